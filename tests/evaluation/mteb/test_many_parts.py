"""Tasks of several splits or subsets: each part is scored, and memory stays small."""

import pytest
from helpers.mteb_tasks import WORDS, loaded, search_data

from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb import evaluate as evaluation
from qwen3nb.evaluation.mteb.costs import costs
from qwen3nb.evaluation.mteb.predictions import KeptSearch, run_arrays
from qwen3nb.evaluation.mteb.resources import task_memory
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.metrics.run_arrays import RunArrays

SUBSETS = ["arb_Arab-arb_Arab", "deu_Latn-deu_Latn", "eng_Latn-deu_Latn"]


def belebele():
    """Twelve words as documents, asked for by themselves; each subset has another order."""
    data = {}
    for shift, subset in enumerate(SUBSETS):
        documents = {f"C{place}": word for place, word in enumerate(WORDS)}
        queries = {f"Q{place}": WORDS[(place + shift) % 12] for place in range(6)}
        qrels = {f"Q{place}": {f"C{(place + 2 * shift) % 12}": 1} for place in range(6)}
        data[subset] = {"test": search_data(documents, queries, qrels)}
    return loaded("BelebeleRetrieval", data, hf_subsets=SUBSETS)


def test_every_subset_is_scored_as_mteb_scores_it(encoder, tmp_path):
    run = evaluate(encoder, tasks=[belebele()], output=tmp_path, show_progress=False, runs=True)
    (record,) = run.results
    assert [part.subset for part in record.parts] == SUBSETS
    for part in record.parts:
        assert part.score.value == pytest.approx(part.mteb, abs=1e-5)  # MTEB rounds
    assert record.main.value == pytest.approx(sum(part.score.value for part in record.parts) / 3)
    assert record.main.value == pytest.approx(record.task.mteb.value, abs=1e-5)
    assert record.parts[0].languages == ("arb-Arab", "arb-Arab")
    assert len(record.files.runs) == 1
    assert record.main.n == 18


def test_runs_kept_as_arrays_change_no_score(encoder, tmp_path, monkeypatch):
    kept = []

    class AsDictionaries(KeptSearch):
        def __init__(self, search, depth, *, as_arrays=False):
            kept.append(as_arrays)
            super().__init__(search, depth)

    options = {"tasks": [belebele()], "show_progress": False, "runs": True}
    (record,) = evaluate(encoder, output=tmp_path / "a", **options).results
    monkeypatch.setattr(evaluation, "KeptSearch", AsDictionaries)
    (other,) = evaluate(encoder, output=tmp_path / "b", **options).results
    assert kept == [True]
    assert record.per_query == other.per_query
    assert record.metrics == other.metrics
    assert record.top == other.top
    assert record.files == other.files


def test_arrays_have_the_order_and_the_scores_of_a_run():
    run = {"b": {"d2": 0.1, "d1": 1 / 3}, "a": {}, "c": {"d9": -1.0}}
    arrays = run_arrays(run)
    assert isinstance(arrays, RunArrays)
    assert list(arrays.items()) == list(run.items())
    assert list(arrays["b"]) == ["d2", "d1"]


def test_the_memory_of_many_parts_is_that_of_the_largest_and_of_numbers():
    """By hand: 376 subsets of 900 questions at most, to 488 passages at most."""
    (task,) = costs(choose_tasks(tasks=["BelebeleRetrieval"]))
    assert len(task.part_hits) == 376
    assert max(task.part_hits) <= 900 * 488
    assert task.hits == sum(task.part_hits) > 160_000_000
    needed = task_memory(task, 0, 0, [])
    expected = 256 * max(task.part_hits) + 40 * task.hits + 4096 * task.queries
    assert needed == expected + 130 * task.documents
    assert needed < 9e9
