"""Help is whole and light; what is mistyped is one line with the near choices."""

import subprocess
import sys

import click
import pytest
from helpers.command_tree import commands

from qwen3nb.cli.main import main

HEAVY = set(
    """
    IPython asyncio datasets httpx huggingface_hub matplotlib mteb nbformat numpy pandas papermill
    peft plotly pyarrow pydantic ray requests rich scipy sentence_transformers sklearn sphinx torch
    tqdm transformers yaml
    """.split()  # noqa: SIM905 - a list of words reads better as lines
)


@pytest.mark.parametrize("width", [80, 100])
def test_help_lists_commands_whole(cli, checkout, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for words, group in commands(groups=True).items():
        done = cli(*words, "--help")
        assert done.exit_code == 0, done.output
        lines = done.output.partition("Options:")[2].splitlines()
        assert not [line for line in lines if "…" in line or line.rstrip().endswith("...")]
        assert max(map(len, lines)) <= width
        names = group.list_commands(click.Context(group))
        assert len(names) == len(set(names)) > 0


def test_the_commands_are_under_four_headings_with_a_line_each(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = cli("--help").output.partition("--help")[2]
    headings = [line for line in text.splitlines() if line.endswith(":")]
    assert headings == ["Make:", "Measure:", "Compare:", "Publish:"]
    listed = [line.split()[0] for line in text.splitlines()[1:] if line.startswith("  ")]
    assert listed == main.list_commands(None)


def test_help_of_every_command_loads_nothing_heavy(checkout):
    """One process shows the help of all, and names the first that brings a library."""
    words = [(), ("run",), *commands()]
    code = (
        "import sys, click\nfrom qwen3nb.cli.main import main\n"
        f"for words in {words}:\n"
        "    try: main([*words, '-h'])\n"
        "    except SystemExit as end: assert not end.code, words\n"
        f"    print('LOADED', words, sorted({HEAVY} & set(sys.modules)))\n"
        "    if not words: print('LOADED', 'first', sorted(m for m in sys.modules if"
        " m.startswith(('qwen3nb.cli.commands.', 'qwen3nb.execution', 'qwen3nb.report'))))\n"
        "try: main(['fetch'])\nexcept SystemExit as end: assert end.code == 2\n"
        f"print('LOADED', 'a command', sorted({HEAVY} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert len(loaded) == len(words) + 2
    assert [line for line in loaded if not line.endswith(" []")] == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["evla"], "No such command 'evla'. Did you mean 'eval'? See `qwen3nb -h`."),
        (["leaderboard"], "Did you mean 'run leaderboard'? See `qwen3nb -h`."),
        (["average", "runs", "out"], "give either --last N or --best N. See `qwen3nb average -h`."),
        (["verify", "resluts"], "resluts: no such file or folder. See `qwen3nb verify -h`."),
        (["cache", "inof"], "No such command 'inof'. Did you mean 'info'? See `qwen3nb cache -h`."),
        (["cache", "x"], "Did you mean 'info', 'prune' or 'verify'?"),
        (["verify", "--checksum"], "--checksums"),
        (["quick", "x", "--pooling", "men"], "Did you mean 'mean'? See `qwen3nb quick -h`."),
        (["quick", "x", "--pooling", "zzz"], "'zzz' is not one of 'mean', 'cls', 'last', "),
        (["eval", "--tier", "smok"], "'pydocs', 'fast', 'full'. Did you mean 'smoke'?"),
        (["encode"], "Missing option '--model'. See `qwen3nb encode -h`."),
        (["encode", "--model", "m", "--input", "i"], "Missing option '--out'."),
        (["tasks", "x"], "Got unexpected extra argument (x)"),
        (["fetch"], "give --tier, --tasks or --model. See `qwen3nb fetch -h`."),
        (["sweep"], "give a TOML file, --model or --notebook. See `qwen3nb sweep -h`."),
        (["rerank-outputs"], "expected either OUTPUTS or --adapter. See `qwen3nb rerank-outputs"),
        (["eval", "--pass-env", "NO_SUCH"], "NO_SUCH is not set. See `qwen3nb eval -h`."),
        (["run", "evall"], "no notebook 'evall'; in "),
    ],
)
def test_a_mistake_is_one_line(cli, checkout, arguments, expected):
    done = cli(*arguments)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("study: ")]
    assert done.exit_code == 2
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")
    assert expected in lines[0]
    assert done.stdout == ""


def test_without_arguments_a_group_shows_its_help(cli):
    for arguments in ([], ["cache"]):
        assert "Usage: qwen3nb" in cli(*arguments).output
