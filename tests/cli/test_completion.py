"""What a shell completes, as click's own completion asks for it."""

import os
import re
import subprocess
import sys

import click.shell_completion
import pytest
from helpers import REPOSITORY
from helpers.command_tree import HEAVY
from helpers.records import make

from qwen3nb.cli.main import main
from qwen3nb.models.kinds.source import registry


def completed(line):
    """What would be offered for the last word of a line."""
    *words, last = line.split(" ")
    completion = click.shell_completion.ShellComplete(main, {}, "qwen3nb", "_QWEN3NB_COMPLETE")
    return [(each.type, each.value) for each in completion.get_completions(words, last)]


def names(line):
    return [value for _, value in completed(line)]


@pytest.fixture
def study(checkout, monkeypatch, tmp_path):
    (tmp_path / "here" / "encoder").mkdir(parents=True)
    (tmp_path / "here" / "e\x1b[31m").mkdir()
    (tmp_path / "here" / "enc.txt").touch()
    make("e5-tuned").save()
    monkeypatch.chdir(tmp_path / "here")
    return checkout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("eval --model e", ["e5-base-v2", "e5-small-v2", "embeddinggemma-300m", "encoder"]),
        ("sweep --model bm25,e5-b", ["bm25,e5-base-v2"]),
        ("report --baselines bm25,rand", ["bm25,random"]),
        ("run ann --model bm", ["bm25"]),
        ("compare --baseline e", ["e5-tuned"]),
        ("paper --model e", ["e5-tuned"]),
        ("run leaderboard --baseline e", ["e5-tuned"]),
        ("eval --tasks SciFact,STSB", ["SciFact,STSBenchmark"]),
        ("rerank-suite --model m PyDocsSampleRet", ["PyDocsSampleRetrieval"]),
        ("eval --tier ", ["smoke", "pydocs", "fast", "full"]),
        ("run ev", ["eval"]),
        ("sweep --notebook ev", ["eval"]),
        ("ca", ["cache", "card"]),
        ("cache ", ["info", "prune", "verify"]),
    ],
)
def test_names_are_completed(study, line, expected):
    assert names(line) == expected


def test_models_are_the_registry_and_folders_and_paths_are_the_shells(study):
    assert set(registry()) | {"bm25", "random", "encoder"} <= set(names("quick "))
    assert completed("eval --checkpoint runs/e") == [("dir", "runs/e")]
    assert completed("extract runs/") == [("file", "runs/")]
    assert "--benchmark" in names("eval --b")
    (study / "notebooks" / "broken.ipynb").write_text("{")
    assert "leaderboard" in names("run ")


def test_outside_a_study_the_rest_is_completed(tmp_path, monkeypatch):
    monkeypatch.delenv("QWEN3NB_HOME")
    monkeypatch.delenv("QWEN3NB_CACHE")
    monkeypatch.chdir(tmp_path)
    for line in ("run ev", "sweep --notebook ev", "compare --baseline e", "run nothing --t"):
        assert names(line) == []
    assert names("eval --model bm") == ["bm25"]


def test_the_lines_of_the_guide_give_a_script_and_a_key_press_loads_nothing_heavy(checkout):
    page = REPOSITORY / "book" / "guide" / "files.md"
    text = page.read_text(encoding="utf-8")
    lines = dict(re.findall(r"_QWEN3NB_COMPLETE=((\w+)_source) qwen3nb", text))
    assert lines == {f"{shell}_source": shell for shell in ("bash", "zsh", "fish")}
    assert "_QWEN3NB_COMPLETE=bash_complete" in complete("bash_source")
    pressed = {"COMP_WORDS": "qwen3nb eval --model e5-b", "COMP_CWORD": "3"}
    assert complete("bash_complete", **pressed) == "plain,e5-base-v2\n"


def complete(instruction, **environment):
    """Run the program as a shell does, and see that no heavy library was loaded."""
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print(*sorted({HEAVY} & set(sys.modules)), file=sys.stderr))\n"
        "from qwen3nb.cli.main import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "_QWEN3NB_COMPLETE": instruction, **environment},
    )
    assert (done.returncode, done.stderr.strip()) == (0, ""), done.stderr
    return done.stdout
