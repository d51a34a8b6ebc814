"""Worlds of trainings with a known curve, and what forecasts cover in them."""

import numpy as np

from benchmarks.training_curves import OTHERS, SATURATING, coverage, shown, world


def test_a_world_follows_its_curve():
    drawn = world(np.random.default_rng(0), "straight", 11, 4000, scatter=0.0, correlation=0.0)
    assert drawn.more == 100
    assert np.isclose(drawn.gain, 0.01)  # a tenth of 0.1
    means = drawn.matrix.scores.mean(axis=1)
    assert np.abs(np.diff(means) - 0.01).max() < 0.01
    assert abs(drawn.next_score - means[-1] - 0.01) < 0.01


def test_coverage_is_counted_where_something_is_stated():
    assert len(SATURATING) >= 8
    assert not set(SATURATING) & set(OTHERS)
    stated = coverage("hyperbolic", 12, 60, runs=8, scatter=0.004, correlation=0.0)
    assert stated.stated >= 0.5
    assert stated.covers >= 0.75
    turns = coverage("turning", 24, 300, runs=4, scatter=0.001, correlation=0.0)
    assert turns.stated == 0
    assert turns.covers is None
    assert sum(turns.refused.values()) == 4
    assert "turning" in shown([stated, turns])
