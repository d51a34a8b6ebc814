"""Whole runs, from the command to the page: a full tier, a hub, and data that are broken."""

import importlib.util
import re
import subprocess
import sys

import nbformat
import pytest
from helpers.notebooks import call

import qwen3nb as q
from qwen3nb import paths
from qwen3nb.answers.status import status
from qwen3nb.records.failures import failed_runs
from qwen3nb.records.store import load_failures, load_results, verify
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import read_json

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def miniatures(fixtures, tmp_path_factory):
    """A mirror with a miniature of every data set of the tier ``full``, which holds ``fast``."""
    file = fixtures / "tools" / "rehearsal.py"
    if not file.is_file():
        pytest.skip("the folder of QWEN3NB_FIXTURES has no tools/rehearsal.py")
    spec = importlib.util.spec_from_file_location("rehearsal", file)
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # its dataclasses look themselves up
    spec.loader.exec_module(made)
    mirror = tmp_path_factory.mktemp("rehearsal") / "mirror"
    made.generate(mirror, made.tasks("full", ()))
    return mirror


@pytest.fixture
def offline(checkout, miniatures, monkeypatch):
    """A home that knows the mirror and no hub."""
    monkeypatch.setenv("QWEN3NB_MIRROR", str(miniatures))
    monkeypatch.setenv("HF_HOME", str(checkout / "hub"))
    return checkout


def finished():
    return {each.task.key: each.finished for each in load_results()}


def test_every_task_of_a_tier_has_its_record(offline):
    # As typed in notebooks/, without an output.
    typed = ("eval.ipynb", "-p", "tier", "full", "-p", "checkpoint", "random:8")
    done = call(*typed, folder=offline / "notebooks", stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(finished()) == set(TIERS["full"].task_keys)
    assert len(load_results()) == 61
    assert (paths.book_runs() / "eval-random-8-full.ipynb").is_file()


def test_a_broken_task_is_named_everywhere_and_alone_is_run_again(offline, cli):
    corpus = paths.mirror() / "mteb" / "scifact" / "corpus.jsonl"
    whole = corpus.read_bytes()
    corpus.write_bytes(whole[: len(whole) // 2])
    line = ("eval", "--tasks", "NFCorpus,SciFact", "--checkpoint", "bm25")
    try:
        done = cli(*line)
    finally:
        corpus.write_bytes(whole)
    assert done.exit_code == 1
    assert "1 of 2 tasks failed" in done.output
    assert re.search("SciFact: .*JSON", done.output.strip().splitlines()[-1])
    first = finished()
    assert set(first) == {"NFCorpus"}
    (page,) = paths.book_runs().glob("eval-*.ipynb")
    assert str(page) in done.output
    text = page.read_text()
    assert all(each in text for each in ("Some of it failed", "SciFact", "NFCorpus"))
    assert nbformat.read(page, as_version=4).metadata.qwen3nb.finished
    everything = read_json(paths.results() / "all_results.json")
    (failure,) = everything["failures"]
    assert failure.endswith("seed_0 SciFact")
    assert set(everything["results"]["bm25"]) == {"NFCorpus"}
    (row,) = q.leaderboard(load_results(), tier="fast").table().rows
    assert [row[1].text, *(cell.text for cell in row[3:])] == ["not run"] * 2 + ["no vectors"] * 2
    shown = status().failures_table().to_html()
    assert shown.count("SciFact: the copy of the data") == 2  # the run, and its task
    assert "finished, with failures" in status().table().to_html()

    again = cli(*line)
    assert again.exit_code == 0, again.output
    assert {name: finished()[name] for name in first} == first
    assert set(finished()) == {"NFCorpus", "SciFact"}
    assert "failed" not in page.read_text()
    assert (failed_runs(), load_failures()) == ([], {})
    everything = read_json(paths.results() / "all_results.json")
    assert (everything["failures"], set(everything["results"]["bm25"])) == ({}, set(finished()))
    assert verify() == []
