"""The statistics benchmark on the command line."""

import json

import click
from click.testing import CliRunner

from qwen3nb.cli.commands.bench import LIMITS, bench
from qwen3nb.cli.main import main


def invoke(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_the_bench_of_statistics(home):
    arguments = ("bench", "statistics", "--systems", 3, "--tasks", 1, "--queries", 50,
                 "--resamples", 200, "--loop-pairs", 3)  # fmt: skip
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    assert "all pairs from one set of draws" in done.output
    assert f"limit: {LIMITS['statistics']}" in done.output
    document = json.loads(invoke(*arguments, "--json").stdout)
    assert document["bench"] == "statistics"
    assert document["limit"] == LIMITS["statistics"]
    assert document["results"][0]["what"] == "numpy loop, pair by pair"


def test_every_benchmark_of_speed_names_its_limit():
    others = {"calibration"}  # of error rates
    assert set(LIMITS) == set(bench.list_commands(click.Context(bench))) - others
