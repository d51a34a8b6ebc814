"""Counts of extreme flips, compared with those of every flip in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.analysis.stats.extreme_flips import PairThresholds, count_extreme


def by_every_flip(pairs, sums):
    """The counts by their definition: MaxT takes the largest statistic of the pairs so far."""
    differences = np.abs(sums[pairs.first] - sums[pairs.second])
    raw = (differences >= pairs.differences[:, None]).sum(axis=1)
    largest = np.maximum.accumulate(differences * pairs.weights[:, None], axis=0)
    return raw, (largest >= pairs.statistics[:, None]).sum(axis=1)


def pair_thresholds(sums, differences, distances):
    """All pairs of systems, with these differences and distances, in the order of a test."""
    first, second = np.triu_indices(len(sums), 1)
    weights = np.divide(1.0, distances, out=np.zeros(len(distances)), where=distances > 0)
    statistics = differences * weights
    order = np.argsort(statistics, kind="stable")
    return PairThresholds(
        first[order],
        second[order],
        differences[order],
        weights[order],
        statistics[order] * (1 - 1e-9),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 12),
    st.integers(1, 300),
    st.sampled_from([3, 1000, 2**40, 2**49]),
    st.sampled_from([0, 2**50]),
    st.sampled_from([0.0, 0.1, 1.0, 4.0]),
    st.integers(0, 2**31),
)
def test_counts_are_those_of_every_flip(systems, flips, spread, common, lead, seed):
    """Also of ties, of equal systems, and of differences that no flip reaches."""
    rng = np.random.default_rng(seed)
    sums = np.rint(rng.normal(0, spread / 8, (systems, flips))) + common
    sums[rng.integers(systems)] = sums[0]  # often equal systems
    count = systems * (systems - 1) // 2
    # Differences of the sample are often those of a flip, and then less by some rounding.
    observed = np.abs(sums[:, 0] - sums[:, -1])[rng.integers(systems, size=count)]
    differences = np.rint(observed * lead) - rng.integers(0, 3, count)
    distances = spread * rng.choice([0.25, 1.0, 1.0, 3.0], count)
    pairs = pair_thresholds(sums, differences, distances)
    counts, expected = count_extreme(pairs, sums), by_every_flip(pairs, sums)
    assert counts.raw.tolist() == expected[0].tolist()
    assert counts.by_family.tolist() == expected[1].tolist()


def test_many_pairs_at_once_and_few(monkeypatch):
    rng = np.random.default_rng(4)
    shares = rng.normal(size=(40, 1))
    sums = np.rint(1e9 * rng.normal(size=(40, 500)))
    first, second = np.triu_indices(40, 1)
    distances = np.linalg.norm(sums[first] - sums[second], axis=1) / np.sqrt(500)
    differences = np.abs(shares[first] - shares[second])[:, 0] * distances
    pairs = pair_thresholds(sums, np.rint(differences), distances)
    raw, by_family = by_every_flip(pairs, sums)
    assert 0 < by_family[-1] < by_family[0]
    for most in (1, 5_000, 1 << 19):
        monkeypatch.setattr("qwen3nb.analysis.stats.extreme_flips._MOST_GAPS", most)
        counts = count_extreme(pairs, sums)
        assert counts.raw.tolist() == raw.tolist()
        assert counts.by_family.tolist() == by_family.tolist()


@pytest.mark.parametrize("apart", [1.0, 2.0**52])
def test_a_pair_of_equal_systems_is_as_extreme_in_every_flip(apart):
    sums = np.array([[apart] * 5] * 2 + [[0.0] * 5])
    pairs = pair_thresholds(sums, np.array([-4.0, apart, apart]), np.array([0.0, apart, apart]))
    assert [each.tolist() for each in count_extreme(pairs, sums)] == [[5] * 3] * 2
