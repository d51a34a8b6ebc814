"""Who leads, in a sentence whose words follow its numbers, and in a figure."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.records import make, noisy, tier_records

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.comparison.lead import lead_figure, leaderboard_conclusion
from qwen3nb.report.leaderboard.ranking import standings

TASK = "PyDocsSampleRetrieval"
RNG = np.random.default_rng(3)
BASE = RNG.uniform(0.2, 0.6, 200)


def said(results, **more):
    return leaderboard_conclusion(compare(results, tier="smoke"), task=TASK, **more).text


def test_a_difference_that_is_shown_makes_a_model_best():
    changes = 0.1 + 0.1 * np.tile([-1, 1], 100)
    text = said([make("second", scores=BASE), make("best", scores=BASE + changes)])
    assert text.startswith(f"best is best on Retrieval: nDCG@10 {np.mean(BASE) + 0.1:.3f} [0.")
    assert text.endswith(
        "ahead of second by 0.100 [0.086, 0.114], a difference that these 200 queries show."
    )


def test_a_difference_that_is_not_shown_does_not():
    close = make("close", scores=BASE + RNG.normal(0.001, 0.1, 200))
    text = said([make("other", scores=BASE), close])
    assert "scores highest on Retrieval" in text
    assert "not a difference that these 200 queries can show" in text
    assert text.endswith("They do not show it to be ahead of any other model.")
    text = said([make("other", scores=BASE), close, make("last", scores=BASE - 0.1)])
    assert text.endswith("which they do show.")
    assert "It is ahead of last by 0.1" in text


def test_one_model_and_none():
    assert said([make("alone", scores=BASE)]).endswith(
        "There is no other model to compare it with."
    )
    other = make("b", scores=BASE[:100] - 0.1)
    assert "No other model has scores on the same queries" in said([make("a", scores=BASE), other])
    assert said([]) == "No results yet; run `make demo` to make some."
    assert lead_figure(compare([make("alone")]), task=TASK) is None


def test_the_figure_has_the_best_on_its_line_and_the_others_behind():
    results = [make("a", scores=noisy(0.7)), make("b", scores=noisy(0.6, spread=0.4, seed=1)),
               make("c", scores=noisy(0.3, seed=2))]  # fmt: skip
    figure = lead_figure(compare(results, tier="smoke"), task=TASK)
    (axis, *_) = figure.axes
    assert [tick.get_text() for tick in axis.get_yticklabels()][-1] == "a"
    marks = [line for line in axis.lines if line.get_marker() != "None"]
    filled = {round(float(m.get_xdata()[0]), 1): m.get_markerfacecolor() != "none" for m in marks}
    assert filled[0.0]
    assert filled[-0.4]  # c is behind
    assert sorted(filled.values()) == [False, True, True]  # b is not shown to be
    assert figure.columns == 1  # as wide as a phone
    assert "Not shown: 1 more" in lead_figure(compare(results), task=TASK, most=2).caption


@pytest.mark.integration
def test_on_a_tier_with_benchmarks_it_is_about_the_mean_of_the_first():
    results = [
        *tier_records("good", mean=0.7), *tier_records("poor"),
        *tier_records("part", without=["SciFact"]),
    ]  # fmt: skip
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
