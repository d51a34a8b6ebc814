"""The statistics benchmark on the command line."""

from click.testing import CliRunner

from qwen3nb.cli.main import main


def invoke(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_the_bench_of_statistics(home):
    done = invoke(
        "bench", "statistics", "--systems", 3, "--tasks", 1, "--queries", 50,
        "--resamples", 200, "--loop-pairs", 3,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "all pairs from one set of draws" in done.output
