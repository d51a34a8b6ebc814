"""What a comparison shows, in words that follow its numbers."""

import numpy as np
import pytest
from helpers.records import RERANKING, RETRIEVAL, make, noisy, three_models

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.comparison.conclusion import comparison_conclusion


def said(results, **more):
    return comparison_conclusion(compare(results, tier="smoke", **more)).text


def test_what_is_shown_is_counted_and_the_largest_is_named():
    text = said(three_models(), baseline="now")
    assert text.startswith(
        "1 of 2 differences from now on Retrieval is significant after correction "
        "(Holm over all pairs of models on each task): 1 better, 0 worse. The largest is +0.2"
    )
    assert "(nDCG@10 of good on Retrieval)" in text
    assert "Whether the other difference is within ±0.05 is not shown; these queries detect" in text


def test_a_gain_is_named_beside_a_larger_loss():
    results = [make("now", scores=noisy(0.5)), make("up", scores=noisy(0.6, seed=1)),
               make("down", scores=noisy(0.1, seed=2))]  # fmt: skip
    text = said(results, baseline="now")
    assert "2 of 2 differences" in text
    assert "1 better, 1 worse" in text
    assert "of down on Retrieval); the largest gain is +0.1" in text
    assert "within" not in text


@pytest.mark.parametrize(
    ("mean", "spread", "words"),
    [
        (0.7, 0.02, "is significant after correction {}: better."),
        (0.3, 0.02, "is significant after correction {}: worse."),
        (0.5, 0.3, "is not significant after correction {}. Whether the difference is within ±0.05 "
         "is not shown; these queries detect a difference of 0."),
    ],
)  # fmt: skip
def test_one_difference(mean, spread, words):
    results = [
        make("now", scores=noisy(0.5)),
        make("new", scores=noisy(mean, spread=spread, seed=8)),
    ]
    text = said(results, baseline="now")
    words = words.format("(Holm over all pairs of models on each task)")
    assert text.startswith(f"The difference from now on Retrieval {words}")
    assert ("queries like these would show it to be within ±0.05" in text) == (spread > 0.1)


def test_on_many_queries_a_difference_may_be_shown_and_small():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.2, 0.8, 900)
    results = [make("now", scores=base), make("same", scores=base + rng.normal(0, 0.05, 900)),
               make("new", scores=base + rng.normal(0.02, 0.05, 900))]  # fmt: skip
    text = said(results, baseline="now")
    assert text.startswith("1 of 2 differences from now on Retrieval is significant")
    assert "It is smaller than 0.05, the least that matters" in text
    assert text.endswith("The other difference is within ±0.05: equivalent.")


def test_none_of_several_and_nothing():
    results = [
        make(name, task=task, scores=noisy(0.5, spread=0.3, seed=seed))
        for seed, name in enumerate("abc", 1)
        for task in (RETRIEVAL, RERANKING)
    ]
    text = said(results, correction="none", baseline="a")
    assert text.startswith("None of the 4 differences from a on 2 tasks is significant without a")
    assert "Of the 4: 4 not shown to be either; these queries detect a difference of 0." in text
    assert said([make("a")]).startswith("Nothing was compared")
