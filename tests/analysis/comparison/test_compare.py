"""The comparison core: baseline, families, left-out records."""

import pytest
from helpers.records import RERANKING, RETRIEVAL, make, noisy

from qwen3nb.analysis.comparison.compare import compare


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
