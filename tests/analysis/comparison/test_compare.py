"""The comparison core: baseline, families, left-out records."""

from dataclasses import replace

import pytest
from helpers.records import RERANKING, RETRIEVAL, amend, make, noisy

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
        values = {f"test/{s}/{i}": shift + 0.1 * (i % 3) + 0.2 * (s == "de")
                  for s in ("de", "en") for i in range(9)}  # fmt: skip
        result = make(label, values, task="T")
        parts = tuple(
            Part("test", subset, (f"{subset}-Latn",),
                 aggregate(result.per_query, how="mean", columns=("nDCG@10",), seed=0,
                           parts=(f"test/{subset}/",)), 0.5)
            for subset in ("de", "en")
        )  # fmt: skip
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
