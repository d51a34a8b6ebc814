"""The tier ``full``, from the command to its page, on miniatures of all its data sets."""

import subprocess

import pytest
from helpers.miniatures import write_miniatures
from helpers.notebooks import call

import qwen3nb as q
from qwen3nb import paths
from qwen3nb.records.store import load_results
from qwen3nb.tiers import TIERS


@pytest.fixture(scope="module")
def rehearsal_mirror(fixtures, tmp_path_factory):
    """A mirror with a miniature of every data set of the tier, which holds all of ``fast``."""
    return write_miniatures(fixtures, tmp_path_factory.mktemp("rehearsal") / "mirror")


@pytest.fixture
def offline(checkout, rehearsal_mirror, monkeypatch):
    """A home that knows the mirror and no hub."""
    monkeypatch.setenv("QWEN3NB_MIRROR", str(rehearsal_mirror))
    monkeypatch.setenv("HF_HOME", str(checkout / "hub"))
    return checkout


@pytest.mark.integration
def test_every_task_has_its_record_and_a_second_run_reuses_all(offline):
    # As typed in notebooks/, without an output.
    typed = ("eval.ipynb", "-p", "tier", "full", "-p", "checkpoint", "random")
    done = call(*typed, folder=offline / "notebooks", stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {each.task.key for each in load_results()} == set(TIERS["full"].task_keys)
    assert len(load_results()) == 61
    assert (paths.book_runs() / "eval-random-full.ipynb").is_file()
    again = q.evaluate("random", tier="full", show_progress=False)
    assert set(again.reused) == set(TIERS["full"].task_keys)


@pytest.mark.integration
def test_a_rehearsal_leaves_the_results_as_they_are(offline, cli):
    done = cli("eval", "--tier", "fast", "--checkpoint", "bm25", "--rehearse")
    assert done.exit_code == 0, done.output[-3000:]
    assert list(load_results()) == []
    assert not paths.book_runs().exists()
    rehearsed = load_results(offline / "results" / "rehearsal")
    assert [each.task.key for each in rehearsed] == [
        "FiQA2018-limit16",
        "NFCorpus-limit16",
        "SciFact-limit16",
    ]
