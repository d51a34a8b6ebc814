"""Labels of classifications that are read once give the scores that MTEB's own reading gives."""

from contextlib import nullcontext
from typing import Any

import datasets
import mteb
import numpy as np
import pytest
from mteb.abstasks.classification import AbsTaskClassification

from qwen3nb.evaluation.mteb.evaluate import _task_result
from qwen3nb.evaluation.mteb.labels import labels_read_once


class _Vectors:
    """A model whose vectors are drawn from the length of the texts."""

    mteb_model_meta = None

    def encode(self, batches: Any, **_: Any) -> Any:
        texts = [text for batch in batches for text in batch["text"]]
        return np.array([[len(text), text.count("a"), text.count("e")] for text in texts], "f")

    def similarity(self, left: Any, right: Any) -> Any:
        return left @ right.T

    def similarity_pairwise(self, left: Any, right: Any) -> Any:
        return (left * right).sum(axis=1)


def _rows(count: int, *, seed: int) -> datasets.Dataset:
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.choice(list("ae "), rng.integers(3, 30))) for _ in range(count)]
    return datasets.Dataset.from_dict({"text": texts, "label": rng.integers(0, 2, count).tolist()})


def _classification() -> Any:
    task: Any = mteb.get_task("ImdbClassification")
    task.dataset = datasets.DatasetDict(train=_rows(40, seed=1), test=_rows(20, seed=2))
    task.data_loaded = True
    return task


def _scores(task: Any) -> Any:
    return _task_result(_Vectors(), task, cache=None, predictions_folder=None, options={}).scores


def test_the_scores_are_those_of_mteb() -> None:
    task = _classification()
    by_mteb = _scores(task)
    with labels_read_once(task):
        assert _scores(task) == by_mteb
    assert by_mteb["test"][0]["accuracy"] > 0


def test_cross_validation_is_scored_alike() -> None:
    task = _classification()
    task.is_cross_validation, task.train_split, task.n_splits = True, "test", 4
    by_mteb = _scores(task)
    with labels_read_once(task):
        assert _scores(task) == by_mteb


def test_several_labels_of_a_text_are_scored_alike() -> None:
    """MTEB draws the texts to learn from by the task's own generator."""
    scores = []
    for is_read_once in (False, True):
        task: Any = mteb.get_task("CEDRClassification")
        task.dataset = datasets.DatasetDict(train=_labelled(60, seed=1), test=_labelled(30, seed=2))
        task.data_loaded, task.np_rng = True, np.random.default_rng(0)
        with labels_read_once(task) if is_read_once else nullcontext():
            scores.append(_scores(task))
    by_mteb, read_once = scores
    assert by_mteb == read_once


def _labelled(count: int, *, seed: int) -> datasets.Dataset:
    rows, rng = _rows(count, seed=seed), np.random.default_rng(seed)
    labels = [sorted({int(first), int(second)}) for first, second in rng.integers(0, 4, (count, 2))]
    return rows.remove_columns("label").add_column("label", labels)


def test_metrics_get_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = []

    def scores(_: Any, labels: Any, predictions: Any) -> dict[str, float]:
        kinds.append(type(labels))
        return {"accuracy": float(len(predictions))}

    monkeypatch.setattr(AbsTaskClassification, "_calculate_scores", scores)
    task = _classification()
    with labels_read_once(task):
        _scores(task)
    assert kinds == [list] * task.n_experiments
    assert not {"_calculate_scores", "_undersample_data"} & vars(task).keys()


def test_other_types_stay_as_they_are() -> None:
    task: Any = mteb.get_task("STS12")
    with labels_read_once(task):
        assert "_calculate_scores" not in vars(task)
