"""The tier ``full``, from the command to its page, on miniatures of all its data sets."""

import os
import subprocess
import sys

import pytest

from qwen3nb import paths
from qwen3nb.records.store import load_results
from qwen3nb.tiers import TIERS


@pytest.fixture(scope="module")
def rehearsal_mirror(fixtures, tmp_path_factory):
    """A mirror with a miniature of every data set of the tier."""
    generator = fixtures / "tools" / "rehearsal.py"
    if not generator.is_file():
        pytest.skip("the folder of QWEN3NB_FIXTURES has no tools/rehearsal.py")
    folder = tmp_path_factory.mktemp("rehearsal") / "mirror"
    subprocess.run([sys.executable, generator, folder, "--tier", "full"], check=True, timeout=300)
    return folder


def evaluate(mirror, home, *arguments):
    """Type ``qwen3nb eval --tier full …`` in a process of its own."""
    environment = {
        **os.environ,
        "QWEN3NB_MIRROR": str(mirror),
        "HF_HOME": str(home / "hub"),
        "PYTHONWARNINGS": "",
    }
    command = [sys.executable, "-m", "qwen3nb.cli.main", "eval", "--tier", "full", *arguments]
    return subprocess.run(
        command, cwd=home, env=environment, text=True, capture_output=True, check=False,
        timeout=600,
    )  # fmt: skip


@pytest.mark.integration
def test_every_task_has_its_record_and_a_second_run_reuses_all(checkout, rehearsal_mirror):
    done = evaluate(rehearsal_mirror, checkout, "--checkpoint", "random")
    assert done.returncode == 0, done.stderr[-3000:]
    first = {each.task.key: each for each in load_results()}
    assert set(first) == set(TIERS["full"].task_keys)
    assert len(first) == 61
    assert (paths.book_runs() / "eval-random-full.ipynb").is_file()
    again = evaluate(rehearsal_mirror, checkout, "--checkpoint", "random", "--fresh")
    assert again.returncode == 0, again.stderr[-3000:]
    second = {each.task.key: each for each in load_results()}
    assert {name: each.finished for name, each in second.items()} == {
        name: each.finished for name, each in first.items()
    }


@pytest.mark.integration
def test_a_rehearsal_leaves_the_results_as_they_are(checkout, rehearsal_mirror):
    options = ("--checkpoint", "bm25", "--rehearse")
    done = evaluate(rehearsal_mirror, checkout, *options)
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(load_results()) == []
    assert not paths.book_runs().exists()
    rehearsed = load_results(checkout / "results" / "rehearsal")
    types = {each.task.type for each in rehearsed}
    assert (len(rehearsed), types) == (32, {"Retrieval", "Reranking"})
    assert all(each.task.key.endswith("limit16") for each in rehearsed)
