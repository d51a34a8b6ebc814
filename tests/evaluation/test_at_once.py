"""Evaluations at once on the same results end as one after the other."""

import threading
from concurrent.futures import ThreadPoolExecutor

from helpers.beir import write_words

from qwen3nb import paths
from qwen3nb.evaluation import evaluate as module
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.records.side_files import named_files
from qwen3nb.records.store import load_results, verify


def test_the_second_of_two_finds_the_record_of_the_first(tmp_path, monkeypatch):
    """Both begin together; one evaluates, the other waits and reuses."""
    data, both, runs = write_words(tmp_path / "words"), threading.Barrier(2), []
    real = module.CollectionItem.evaluate

    def counted(*args):
        runs.append(1)
        return real(*args)

    def begin(_):
        both.wait()
        return evaluate("bm25", data=data, show_progress=False)

    monkeypatch.setattr(module.CollectionItem, "evaluate", counted)
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(begin, range(2)))
    assert len(runs) == 1
    assert sorted(len(each.reused) for each in outcomes) == [0, 1]
    assert len(load_results()) == 1
    assert verify() == []
    assert not list(paths.results().rglob("*.lock"))


def test_records_saved_at_once_leave_one_whole_record_and_no_other_file(tmp_path):
    data = write_words(tmp_path / "words")
    record = next(iter(evaluate("bm25", data=data, show_progress=False)))
    with ThreadPoolExecutor(4) as pool:
        saved = set(pool.map(lambda _: record.save(), range(8)))
    (file,) = saved
    assert verify() == []
    beside = {each.name for each in file.parent.iterdir()}
    assert beside == {file.name, *(each.name for each in named_files(file))}
