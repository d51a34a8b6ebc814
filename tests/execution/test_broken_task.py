"""One task of a tier whose data are broken: the others are shown, and the failure is named."""

import re

import nbformat
import pytest
from helpers.miniatures import write_miniatures

import qwen3nb as q
from qwen3nb import paths
from qwen3nb.book.status import failed_runs_table, runs_table
from qwen3nb.records.failures import failed_runs
from qwen3nb.records.store import load_failures, load_results, verify
from qwen3nb.utils.atomic_files import read_json

TASKS = "NFCorpus,SciFact"
CALL = ("eval", "--tasks", TASKS, "--checkpoint", "bm25")


def finished():
    return {each.task.key: each.finished for each in load_results()}


@pytest.mark.integration
def test_a_broken_task_is_named_everywhere_and_alone_is_run_again(
    cli, checkout, fixtures, tmp_path, monkeypatch
):
    mirror = write_miniatures(fixtures, tmp_path / "mirror", tasks=TASKS.split(","))
    monkeypatch.setenv("QWEN3NB_MIRROR", str(mirror))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    corpus = mirror / "mteb" / "scifact" / "corpus.jsonl"
    whole = corpus.read_bytes()
    corpus.write_bytes(whole[: len(whole) // 2])

    done = cli(*CALL)
    assert done.exit_code == 1
    assert "1 of 2 tasks failed; the other is saved" in done.output
    last = done.output.strip().splitlines()[-1]
    assert re.search("SciFact: .*JSON", last), last
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
    (row,) = q.leaderboard(load_results(), tier="fast").rows
    assert [row[1].text, *(cell.text for cell in row[3:])] == ["not run"] * 2 + ["no vectors"] * 2
    shown = failed_runs_table().to_html()
    assert shown.count("SciFact: the copy of the data") == 2  # the run, and its task
    assert "finished, with failures" in runs_table().to_html()

    corpus.write_bytes(whole)
    again = cli(*CALL)
    assert again.exit_code == 0, again.output
    assert {name: finished()[name] for name in first} == first
    assert set(finished()) == {"NFCorpus", "SciFact"}
    assert "failed" not in page.read_text()
    assert (failed_runs(), load_failures()) == ([], {})
    everything = read_json(paths.results() / "all_results.json")
    assert (everything["failures"], set(everything["results"]["bm25"])) == ({}, set(finished()))
    assert verify() == []
