"""What a comparison shows and who leads, in words that follow their numbers."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.records import RERANKING, RETRIEVAL, make, noisy, three_models, tier_records

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.comparison.compare import comparison_conclusion, leaderboard_conclusion
from qwen3nb.report.leaderboard.ranking import standings

TASK = "PyDocsSampleRetrieval"
RNG = np.random.default_rng(3)
BASE = RNG.uniform(0.2, 0.6, 200)


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
    results = [
        make("now", scores=noisy(0.5)),
        make("up", scores=noisy(0.6, seed=1)),
        make("down", scores=noisy(0.1, seed=2)),
    ]
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
        (
            0.5,
            0.3,
            "is not significant after correction {}. Whether the difference is within ±0.05 "
            "is not shown; these queries detect a difference of 0.",
        ),
    ],
)
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
    results = [
        make("now", scores=base),
        make("same", scores=base + rng.normal(0, 0.05, 900)),
        make("new", scores=base + rng.normal(0.02, 0.05, 900)),
    ]
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


def leading(results):
    return leaderboard_conclusion(compare(results, tier="smoke"), task=TASK).text


def test_a_difference_that_is_shown_makes_a_model_best():
    changes = 0.1 + 0.1 * np.tile([-1, 1], 100)
    text = leading([make("second", scores=BASE), make("best", scores=BASE + changes)])
    assert text.startswith(f"best is best on Retrieval: nDCG@10 {np.mean(BASE) + 0.1:.3f} [0.")
    assert text.endswith(
        "ahead of second by 0.100 [0.086, 0.114], a difference that these 200 queries show."
    )


def test_a_difference_that_is_not_shown_does_not():
    close = make("close", scores=BASE + RNG.normal(0.001, 0.1, 200))
    text = leading([make("other", scores=BASE), close])
    assert "scores highest on Retrieval" in text
    assert "not a difference that these 200 queries can show" in text
    assert text.endswith("They do not show it to be ahead of any other model.")
    text = leading([make("other", scores=BASE), close, make("last", scores=BASE - 0.1)])
    assert text.endswith("which they do show.")
    assert "It is ahead of last by 0.1" in text


def test_one_model_and_none():
    assert leading([make("alone", scores=BASE)]).endswith(
        "There is no other model to compare it with."
    )
    other = make("b", scores=BASE[:100] - 0.1)
    assert "No other model has scores on the same queries" in leading(
        [make("a", scores=BASE), other]
    )
    assert leading([]) == "No results yet; run `make demo` to make some."


@pytest.mark.integration
def test_on_a_tier_with_benchmarks_it_is_about_the_mean_of_the_first():
    results = [
        *tier_records("good", mean=0.7),
        *tier_records("poor"),
        *tier_records("part", without=["SciFact"]),
    ]
    boards, comparison = standings(results, tier="full"), compare(results, tier="full")
    text = leaderboard_conclusion(comparison, task="BEIR").text
    best, second = boards.overall.standings
    assert text.startswith(f"good is best on BEIR: mean nDCG@10 of 15 tasks {best.mean:.3f} [")
    assert f"ahead of poor by {best.mean - second.mean:.3f} [" in text
    low, high = comparison.difference("good", "poor", task="BEIR").interval
    assert f"[{low:.3f}, {high:.3f}], a difference that these 1,040 queries show." in text
    assert text.endswith("part is not ranked: no score on SciFact.")


@pytest.mark.parametrize(
    ("interval", "shown"), [((-0.01, 0.1), False), ((0.01, 0.1), True), (None, True)]
)
def test_a_lead_is_shown_only_if_its_interval_agrees_with_the_test(monkeypatch, interval, shown):
    """On few queries the interval of a mean over tasks may hold 0 where the test rejects it."""
    comparison = compare([make("poor", scores=BASE), make("good", scores=BASE + 0.1)])
    between = type(comparison).between

    def with_interval(self, one, other):
        return replace(between(self, one, other), interval=interval)

    monkeypatch.setattr(type(comparison), "between", with_interval)
    words = leaderboard_conclusion(comparison, task=TASK).text
    assert words.startswith("good is best" if shown else "good scores highest")
    assert ("not a difference that these" in words) is not shown
