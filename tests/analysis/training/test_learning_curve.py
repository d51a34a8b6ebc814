"""Learning curves, the best checkpoint, variance between seeds, correlations."""

import json
import math

import numpy as np
import pytest
import scipy.stats

from qwen3nb.analysis.training.learning_curve import (
    best_checkpoint,
    correlation,
    curve,
    gain,
    seed_curve,
    variance_split,
)

RNG = np.random.default_rng(2)
BASE = RNG.random(120)


def steps(**means):
    """Checkpoints whose queries all move with their mean, and a little on their own."""
    return {
        int(name[1:]): dict(
            zip(map(str, range(120)), BASE + value + RNG.normal(0, 0.02, 120), strict=True)
        )
        for name, value in means.items()
    }


def test_a_curve_and_its_changes():
    learning = curve(steps(s300=0.2, s100=0.0, s200=0.1))
    assert [point.step for point in learning.points] == [100, 200, 300]
    assert learning.points[0].change is None
    for point in learning.points[1:]:
        assert point.change == pytest.approx(0.1, abs=0.01)
        low, high = point.change_interval
        assert low < point.change < high
        # The change is known better than the score: the queries are the same.
        assert high - low < 0.7 * (point.interval[1] - point.interval[0])
    assert learning.n == 120


def test_the_best_checkpoint_is_named_only_if_it_differs():
    clear = best_checkpoint(steps(s1=0.0, s2=0.1, s3=0.05), seed=0)
    assert (clear.step, clear.next_step, clear.significant, clear.tied) == (2, 3, True, ())
    assert "differs from every other checkpoint" in clear.statement
    same = steps(s1=0.0)[1]
    tied = best_checkpoint({10: same, 20: same, 30: {q: v - 1 for q, v in same.items()}}, seed=0)
    assert (tied.step, tied.next_step, tied.difference) == (10, 20, 0)  # the earlier of equals
    assert (tied.p_value, tied.significant, tied.tied) == (1, False, (20,))
    assert "not significantly different from step 20" in tied.statement
    json.dumps(tied.__dict__, allow_nan=False)
    only = best_checkpoint({5: same}, seed=0)
    assert (only.next_step, only.significant) == (None, False)


def test_the_best_may_differ_from_the_next_but_not_from_another():
    """The third varies too much to differ significantly from the best."""
    queries = [str(i) for i in range(400)]
    best = dict.fromkeys(queries, 0.5)
    second = {query: 0.48 + 0.01 * (i % 2) for i, query in enumerate(queries)}
    wild = {query: float(i % 2) - 0.04 for i, query in enumerate(queries)}
    result = best_checkpoint({1: best, 2: second, 3: wild}, seed=0)
    assert (result.step, result.next_step, result.significant, result.tied) == (1, 2, True, (3,))
    assert "but not from step 3" in result.statement


def test_the_variance_split_by_hand():
    """Two seeds, two queries: [[1, 2], [3, 8]].

    Grand mean 3.5; seed means 1.5, 5.5; query means 2, 5; residuals +-1, so MSR = 4 / 1.
    MSS = 2 * 8 = 16, MSQ = 2 * 4.5 = 9: seeds (16 - 4) / 2 = 6, queries (9 - 4) / 2 = 2.5.
    """
    shares = variance_split([[1, 2], [3, 8]]).shares
    assert shares == pytest.approx((3 / 5.25, 1.25 / 5.25, 1 / 5.25))


def test_negative_components_are_set_to_zero_and_reported():
    split = variance_split([[0, 1], [1, 0]])
    assert (split.shares, len(split.notes)) == ((0, 0, 1), 2)
    assert variance_split([[1, 1], [1, 1]]).shares is None
    with pytest.raises(ValueError, match="two or more seeds and queries"):
        variance_split([[1, 2]])


def test_a_curve_over_seeds():
    names = [f"q{i}" for i in range(80)]
    effects = {1: -0.04, 2: 0.0, 3: 0.04}
    scores = {
        number: {
            step: dict(
                zip(names, BASE[:80] + effect + step / 1000 + RNG.normal(0, 0.01, 80), strict=True)
            )
            for step in (100, 200, 300)
            if (number, step) != (3, 200) and (number == 1 or step < 300)
        }
        for number, effect in effects.items()
    }
    del scores[2][100]["q7"]
    learning = seed_curve(scores)
    assert [(point.step, len(point.means)) for point in learning.points] == [(100, 3), (200, 2)]
    assert learning.left_out == (
        "step 100: 1 queries of seed 1 do not pair (q7)",
        "step 100: 1 queries of seed 3 do not pair (q7)",
        "step 200: no score of seed 3",
        "step 300: no score of seed 2, 3",
    )
    first = learning.points[0]
    assert first.std == pytest.approx(0.04, abs=0.003)
    shared = [name for name in names if name != "q7"]
    queries = np.mean([[own[100][name] for name in shared] for own in scores.values()], axis=0)
    seeds = 4.30265 * first.std / np.sqrt(3)  # 2 degrees of freedom
    of_queries = 1.990847 * queries.std(ddof=1) / np.sqrt(79)
    assert first.interval[1] - first.mean == pytest.approx(np.hypot(seeds, of_queries), rel=1e-4)
    assert sum(first.split.shares) == pytest.approx(1)


def test_a_gain_is_the_last_step_against_the_first():
    made = gain(steps(s10=0.0, s20=0.3, s30=0.1), seed=0)
    assert (made.first, made.last, made.n, made.course) == (10, 30, 120, "uneven")
    assert made.difference == pytest.approx(made.last_mean - made.first_mean)
    low, high = made.interval
    assert low < made.difference < high
    assert made.p_value == pytest.approx(1 / 10_001)
    assert gain(steps(s10=0.0, s20=0.1, s30=0.2), seed=0).course == "rising"
    assert gain(steps(s10=0.2, s20=0.1, s30=0.0), seed=0).course == "falling"
    assert gain(steps(s10=0.0, s20=0.1), seed=0).course == ""
    with pytest.raises(ValueError, match="expected two or more steps; got 1"):
        gain(steps(s10=0.0), seed=0)


def test_the_interval_of_a_rank_correlation_by_hand():
    x, y = range(10), [0, 1, 2, 3, 4, 9, 8, 7, 6, 5]
    result = correlation(x, y)
    r = result.value
    assert r == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
    half = 1.959964 * math.sqrt((1 + r * r / 2) / 7)
    assert result.interval == pytest.approx(
        (math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)), abs=1e-5
    )
    assert result.n == 10
    assert correlation([1, 1, 1], [1, 2, 3]).undefined == "one of the measures is constant"
    assert correlation([1], [2]).undefined == "fewer than three points"
    few = correlation([1, 2, 3], [3, 1, 2])
    assert (few.value, few.interval) == (pytest.approx(-0.5), None)
    assert correlation([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]).interval is None
