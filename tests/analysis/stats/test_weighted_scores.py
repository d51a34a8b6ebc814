"""Scores of several tasks, weighted where they are read."""

import itertools

import numpy as np
import pytest

from qwen3nb.analysis.stats import weighted_scores
from qwen3nb.analysis.stats.resampling import max_t_p_values
from qwen3nb.analysis.stats.weighted_scores import WeightedScores, WeightedTask


@pytest.fixture
def sums():
    """Three tasks of four systems, of which the first two share their 30 queries."""
    draw = np.random.default_rng(0)
    tasks = [draw.normal(size=(4, queries)) for queries in (30, 30, 21)]
    starts, shares = (0, 0, 30), (0.5, 0.25, 0.25)
    weighted = WeightedScores(tuple(map(WeightedTask, tasks, starts, shares)))
    together = 0.5 * tasks[0] / 30 + 0.25 * tasks[1] / 30
    whole = np.concatenate([together, 0.25 * tasks[2] / 21], axis=1).T
    return weighted, whole


def test_a_query_of_two_tasks_has_the_sum_of_both():
    one = WeightedTask(np.array([[1.0, 2.0]]), start=0, share=0.5)
    two = WeightedTask(np.array([[4.0, 8.0]]), start=0, share=0.25)
    rows = WeightedScores((one, two)).rows(0, 9)
    assert rows.tolist() == [[0.5 * 1 / 2 + 0.25 * 4 / 2], [0.5 * 2 / 2 + 0.25 * 8 / 2]]


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_blocks_are_those_of_a_whole_array(sums, block, monkeypatch):
    monkeypatch.setattr(weighted_scores, "_QUERIES_AT_ONCE", block)
    weighted, whole = sums
    assert weighted.shape == whole.shape == (51, 4)
    blocks = [weighted.rows(start, start + block) for start in range(0, 51, block)]
    np.testing.assert_array_equal(np.concatenate(blocks), whole)
    np.testing.assert_array_equal(weighted.columns([3, 1]), whole[:, [3, 1]])
    assert weighted.range() == (whole.min(), whole.max())


def test_p_values_are_those_of_a_whole_array(sums):
    weighted, whole = sums
    pairs = list(itertools.combinations(range(4), 2))
    p_values = max_t_p_values(weighted, pairs, n_resamples=300, seed=5)
    assert p_values == max_t_p_values(whole, pairs, n_resamples=300, seed=5)
