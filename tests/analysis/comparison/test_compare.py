"""The comparison core: baseline, families, left-out records."""

import itertools
from dataclasses import replace

import pytest
from helpers.records import RERANKING, RETRIEVAL, amend, make, noisy

from qwen3nb.analysis.comparison import differences
from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.record import Part


def test_the_baseline_is_the_best_of_those_with_most_tasks():
    results = [make("few", scores=noisy(0.9))] + [
        make(name, task=task, scores=noisy(mean))
        for name, mean in (("all", 0.6), ("worse", 0.5))
        for task in (RETRIEVAL, RERANKING)
    ]
    comparison = compare(results, tier="smoke")
    assert comparison.baseline == "all"
    assert [each.task for each in comparison.tasks] == [RETRIEVAL, RERANKING]
    with pytest.raises(ValueError, match="'nope'; available: all, few, worse"):
        compare(results, tier="smoke", baseline="nope")


def test_a_task_with_several_subsets_is_compared_within_each():
    def multilingual(label, shift):
        values = {
            f"test/{s}/{i}": shift + 0.1 * (i % 3) + 0.2 * (s == "de")
            for s in ("de", "en")
            for i in range(9)
        }
        result = make(label, values, task="T")
        parts = tuple(
            Part(
                "test",
                subset,
                (f"{subset}-Latn",),
                aggregate(
                    result.per_query,
                    how="mean",
                    columns=("nDCG@10",),
                    parts=(f"test/{subset}/",),
                ),
                0.5,
            )
            for subset in ("de", "en")
        )
        return replace(result, parts=parts)

    german = make("c", {str(i): 0.1 for i in range(9)}, task="T")
    amend(german, "task", selection="de")
    results = [multilingual("a", 0.4), multilingual("b", 0.1), german]
    comparison = compare(results, tasks=["T", "T-de"], baseline="a")
    assert [each.task for each in comparison.tasks] == ["T-de", "T-en"]
    both = comparison.on("T-de")
    assert {each.first: each.n for each in both.with_baseline} == {"b": 9, "c": 9}
    assert list(both.columns["a"]) == [str(i) for i in range(9)]
    assert [each.first for each in comparison.on("T-en").with_baseline] == ["b"]
    assert comparison.records["T-de", "a"].task.languages == ("de-Latn",)


def test_a_task_is_drawn_once_and_only_if_it_is_shown(monkeypatch):
    drawn = []
    flips = differences.sign_flip_p_values
    monkeypatch.setattr(
        differences, "sign_flip_p_values", lambda *a, **k: drawn.append(k["seed"]) or flips(*a, **k)
    )
    results = [
        make(name, task=task, scores=noisy(mean, seed=i))
        for i, (name, mean) in enumerate((("a", 0.7), ("b", 0.6), ("c", 0.5)))
        for task in (RETRIEVAL, RERANKING)
    ]
    comparison = compare(results, draws=50)
    shown = comparison.differences_on(RETRIEVAL)
    assert [each.first for each in shown] == ["b", "c"]
    for one, other in itertools.permutations("abc", 2):
        assert comparison.difference(one, other, task=RETRIEVAL).n == 40
    assert len(drawn) == 1
    assert comparison.differences[:2] == shown
    assert len(drawn) == 2


def test_leaders_are_the_best_of_those_with_most_tasks():
    means = {"low": 0.4, "few": 0.9, "high": 0.7, "base": 0.5}
    results = [
        make(name, task=task, scores=noisy(mean))
        for name, mean in means.items()
        for task in (RETRIEVAL, RERANKING)
        if (name, task) != ("few", RERANKING)
    ]
    comparison = compare(results, baseline="base", draws=50)
    assert comparison.leaders(9) == ("few", "high", "low")
    assert comparison.leaders(2) == ("high", "low")
    assert comparison.leaders(1) == ("high",)
