"""The best checkpoint of a training, and what it changed."""

import numpy as np
import pytest
from helpers.records import make

from qwen3nb.analysis.training.checkpoint_scores import (
    gain_and_best,
    training_summaries,
    trajectories,
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


def test_the_best_checkpoint_is_named_only_if_it_differs():
    _, clear = gain_and_best(steps(s1=0.0, s2=0.1, s3=0.05), seed=0)
    assert (clear.first, clear.second, clear.significant(0.05)) == ("step 2", "step 3", True)
    same = steps(s1=0.0)[1]
    _, tied = gain_and_best({10: same, 20: same, 30: {q: v - 1 for q, v in same.items()}}, seed=0)
    assert (tied.first, tied.second, tied.difference) == ("step 10", "step 20", 0)  # the earlier
    assert (tied.corrected, tied.significant(0.05)) == (1, False)


def test_a_gain_is_the_last_step_against_the_first():
    made, _ = gain_and_best(steps(s10=0.0, s20=0.3, s30=0.1), seed=0)
    assert (made.first, made.second, made.n) == ("step 30", "step 10", 120)
    assert made.difference == pytest.approx(made.means[0] - made.means[1])
    low, high = made.interval
    assert low < made.difference < high
    assert made.p_value == pytest.approx(1 / 10_001)


def test_a_training_of_several_seeds_has_a_gain_for_new_seeds():
    generator = np.random.default_rng(2)
    records = []
    for seed, gain in ((1, 0.1), (2, 0.12), (3, 0.11)):
        for step, mean in ((0, 0.3), (100, 0.3 + gain)):
            scores = (mean + generator.normal(0, 0.02, 60)).clip(0, 1)
            records.append(make(f"demo-seed_{seed}-checkpoint-{step}", scores))
    found = trajectories(records, tasks=["PyDocsSampleRetrieval"])
    over_seeds, *single = training_summaries(found, seed=0)
    assert (over_seeds.name, over_seeds.seeds) == ("demo, 3 seeds", 3)
    assert [summary.name for summary in single] == [f"demo, seed {seed}" for seed in (1, 2, 3)]
    gain = over_seeds.gain
    assert gain.difference == pytest.approx(0.11, abs=0.01)
    low, high = gain.interval
    for summary in single:
        single_low, single_high = summary.gain.interval
        assert high - low > (single_high - single_low) / 2  # of the mean, but for new seeds
    assert {summary.gain.family for summary in (over_seeds, *single)} == {4}
    assert over_seeds.best.first == "step 100"
