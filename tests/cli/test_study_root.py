"""Commands say which study they work in, and refuse where there is none."""

import pytest

from qwen3nb import paths
from qwen3nb.execution.parameters import read_parameters

# Outside a study, each of these ends before it reads or writes anything.
REFUSED = """
book
card --model m
compare --baseline m
demo
diff v1
domain --queries q.toml --documents d.jsonl
eval --model bm25
eval --model bm25 --dry-run
freeze v1
paper --out p
report --model m --out r
reproduce
rerank-outputs outputs --model m --tier fast
rerank-suite --model m SciFact
results
run leaderboard
run mine
sweep --model bm25
tables --out t
verify
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A working directory in no study."""
    for name in ("HOME", "CACHE", "RESULTS", "BOOK", "RUNS"):
        monkeypatch.delenv(f"QWEN3NB_{name}", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    (tmp_path / "outside").mkdir()
    monkeypatch.chdir(tmp_path / "outside")
    return tmp_path / "outside"


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_outside_a_study_a_command_refuses_with_the_way_out(cli, outside, line):
    done = cli(*line.split())
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {outside} is in no study")
    assert "`qwen3nb new my-study` makes one" in done.stderr
    assert (done.stdout, len(done.stderr.splitlines())) == ("", 1)
    assert list(outside.iterdir()) == []
    assert not (outside.parent / "user").exists()


def test_outside_a_study_the_help_of_notebooks_is_there(cli, outside, checkout):
    declared = read_parameters(checkout / "notebooks" / "probes.ipynb")
    shown = cli("run", "probes", "--help").stdout
    assert all(f"--{each.replace('_', '-')}" in shown for each in declared)
    assert "--tier" in cli("eval", "--help").stdout
    assert cli("run", "--help").exit_code == 0


def test_the_study_is_named_before_writing_and_where_one_reads_from_elsewhere(
    checkout, cli, monkeypatch
):
    line = f"study: {checkout}\n"
    assert cli("verify").stderr == line
    monkeypatch.chdir(checkout / "notebooks")
    assert cli("verify").stderr == ""
    monkeypatch.setenv("QWEN3NB_RESULTS", str(checkout.parent / "kept"))
    assert cli("verify").stderr == f"study: {checkout}, kept: {checkout.parent / 'kept'}\n"


def test_a_new_study_is_where_its_commands_work(cli, outside, monkeypatch):
    assert (paths.root(), paths.cache()) == (outside, outside.parent / "user" / "qwen3nb")
    with pytest.raises(paths.NoStudyError, match="QWEN3NB_HOME"):
        paths.results()
    done = cli("new", "my-study", "--title", "T")
    assert done.exit_code == 0, done.output
    assert "cd my-study" in done.output
    study = outside / "my-study"
    assert paths.is_study(study)
    monkeypatch.chdir(study / "notebooks")
    assert (paths.results(), paths.cache()) == (study / "results", study / ".cache")
