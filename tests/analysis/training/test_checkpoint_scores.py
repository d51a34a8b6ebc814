"""The best checkpoint of a training, and what it changed."""

import numpy as np
import pytest

from qwen3nb.analysis.training.checkpoint_scores import best_checkpoint, gain
from qwen3nb.analysis.training.interference import crossed_interval

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


def test_the_best_checkpoint_is_named_only_if_it_differs():
    clear = best_checkpoint(steps(s1=0.0, s2=0.1, s3=0.05), seed=0)
    assert (clear.step, clear.next_step, clear.significant) == (2, 3, True)
    same = steps(s1=0.0)[1]
    tied = best_checkpoint({10: same, 20: same, 30: {q: v - 1 for q, v in same.items()}}, seed=0)
    assert (tied.step, tied.next_step, tied.difference) == (10, 20, 0)  # the earlier of equals
    assert (tied.p_value, tied.significant) == (1, False)


def test_a_gain_is_the_last_step_against_the_first():
    made = gain(steps(s10=0.0, s20=0.3, s30=0.1), seed=0)
    assert (made.first, made.last, made.n) == (10, 30, 120)
    assert made.difference == pytest.approx(made.last_mean - made.first_mean)
    low, high = made.interval
    assert low < made.difference < high
    assert made.p_value == pytest.approx(1 / 10_001)
    with pytest.raises(ValueError, match="expected two or more steps; got 1"):
        gain(steps(s10=0.0), seed=0)


def test_an_interval_over_seeds_and_queries_adds_up_both_errors():
    means, moved = np.array([0.1, 0.2, 0.3]), RNG.normal(0, 0.01, 80)
    low, high = crossed_interval(0.2, means, [moved], level=0.95)
    seeds = 4.30265 * 0.1 / np.sqrt(3)  # 2 degrees of freedom
    queries = 1.990450 * np.sqrt(80) * moved.std(ddof=1)  # 79
    assert [low, high] == pytest.approx([0.2 - np.hypot(seeds, queries), 0.4 - low], rel=1e-5)
    assert crossed_interval(0.2, means[:1], [np.zeros(9)], level=0.95) is None
