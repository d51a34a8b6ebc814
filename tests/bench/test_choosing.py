"""The benchmark of choices prints what it counts."""

import numpy as np

from benchmarks.choosing import coverage, world


def test_a_world_has_scores_and_their_truth():
    data, truth = world(np.random.default_rng(0), models=3, queries=4000)
    assert data.scores.shape == (3, 4000)
    assert np.abs(data.scores.mean(axis=1) - truth).max() < 0.02


def test_choosing_on_all_queries_flatters_and_halves_do_not():
    row = coverage(30, 40, runs=40)
    assert row.bias_same > 0.03
    assert abs(row.bias_halves) < 0.03
    assert row.halves > row.same
