"""What a shell completes, as click's own completion asks for it."""

import os
import re
import subprocess
import sys

import click.shell_completion
import pytest
from helpers import REPOSITORY
from helpers.records import make

from qwen3nb.cli.main import main
from qwen3nb.models.kinds.source import registry

HEAVY = "torch transformers mteb numpy pandas nbformat rich datasets".split()  # noqa: SIM905


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


def test_models_are_the_registry_and_folders(study):
    assert names("eval --model e") == [
        "e5-base-v2",
        "e5-small-v2",
        "embeddinggemma-300m",
        "encoder",
    ]
    assert set(registry()) | {"bm25", "random", "encoder"} <= set(names("quick "))
    assert names("sweep --model bm25,e5-b") == ["bm25,e5-base-v2"]
    assert names("report --baselines bm25,rand") == ["bm25,random"]
    assert completed("eval --checkpoint runs/e") == [("dir", "runs/e")]
    for line in ("tasks --model bm", "run ann --model bm", "domain --model bm"):
        assert names(line) == ["bm25"], line


def test_labels_are_those_of_records(study):
    for line in ("compare --baseline e", "compare --model e", "paper --model e"):
        assert names(line) == ["e5-tuned"], line
    assert names("run leaderboard --baseline e") == ["e5-tuned"]


def test_tasks_tiers_and_notebooks(study):
    assert names("eval --tasks SciF") == ["SciFact"]
    assert names("eval --tasks SciFact,STSB") == ["SciFact,STSBenchmark"]
    assert names("rerank-suite --model m PyDocsSampleRet") == ["PyDocsSampleRetrieval"]
    assert names("eval --tier ") == names("sweep --tier ") == ["smoke", "pydocs", "fast", "full"]
    assert names("run ev") == names("sweep --notebook ev") == ["eval"]
    (study / "notebooks" / "broken.ipynb").write_text("{")
    assert "leaderboard" in names("run ")


def test_commands_and_options(study):
    assert names("ca") == ["cache", "card"]
    assert names("cache ") == ["info", "prune", "verify"]
    assert "--benchmark" in names("eval --b")
    assert completed("extract runs/") == [("file", "runs/")]


def test_outside_a_study_the_rest_is_completed(tmp_path, monkeypatch):
    monkeypatch.delenv("QWEN3NB_HOME")
    monkeypatch.delenv("QWEN3NB_CACHE")
    monkeypatch.chdir(tmp_path)
    assert names("run ev") == []
    assert names("sweep --notebook ev") == []
    assert names("compare --baseline e") == []
    assert names("eval --model bm") == ["bm25"]
    assert names("run nothing --t") == []


def lines_of_the_readme():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"_QWEN3NB_COMPLETE=((\w+)_source) qwen3nb", text))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_lines_of_the_readme_give_a_script(shell, checkout):
    assert lines_of_the_readme() == {f"{each}_source": each for each in ("bash", "zsh", "fish")}
    done = complete(f"{shell}_source")
    assert f"_QWEN3NB_COMPLETE={shell}_complete" in done.stdout
    assert "qwen3nb" in done.stdout


def test_a_key_press_loads_nothing_heavy(study):
    done = complete("bash_complete", COMP_WORDS="qwen3nb eval --model e5-b", COMP_CWORD="3")
    assert done.stdout == "plain,e5-base-v2\n"


def complete(instruction, **environment):
    """Run the program as a shell does, and see that no heavy library was loaded."""
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print(*sorted(set({HEAVY}) & set(sys.modules)),"
        " file=sys.stderr))\n"
        "from qwen3nb.cli.main import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "_QWEN3NB_COMPLETE": instruction, **environment},
    )
    assert (done.returncode, done.stderr.strip()) == (0, ""), done.stderr
    return done
