"""Bounds of the intervals of all pairs, compared with the intervals."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.analysis.stats import pair_moments
from qwen3nb.metrics.intervals import difference_interval


def scores_of(kind, systems, n, rng):
    if kind == "rare":  # most differences are 0
        return np.where(rng.random((systems, n)) < 0.1, rng.random((systems, n)), 0.5)
    if kind == "large":  # as of clusters, or of parts with weights
        return 5 * rng.normal(size=(systems, n))
    if kind == "near":  # but for a few queries
        return rng.random(n) + 1e-3 * (rng.random((systems, n)) < 0.2)
    return rng.beta(0.4, 0.6, (systems, n))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["rare", "large", "near", "usual"]),
    st.integers(2, 6),
    st.integers(2, 120),
    st.integers(0, 2**31),
)
def test_the_intervals_of_all_pairs_are_within_the_bounds(kind, systems, n, seed):
    scores = scores_of(kind, systems, n, np.random.default_rng(seed))
    bounds = pair_moments.interval_bounds(scores, level=0.95)
    for i, j in itertools.permutations(range(systems), 2):
        low, high = difference_interval(scores[i] - scores[j])
        mean = (scores[i] - scores[j]).mean()
        assert abs(bounds.means[i, j] - mean) < 1e-12
        if bounds.is_certain[i, j]:
            below, above = mean - low, high - mean
            assert bounds.below.shortest[i, j] - 1e-12 <= below
            assert below <= bounds.below.longest[i, j] + 1e-12
            assert bounds.above.shortest[i, j] - 1e-12 <= above
            assert above <= bounds.above.longest[i, j] + 1e-12


def test_what_is_certain_and_how_near_the_bounds_are(monkeypatch):
    rng = np.random.default_rng(1)
    scores = rng.beta(0.4, 0.6, (5, 1000))
    scores[1] = scores[0]
    scores[2] = scores[0] + 0.01 * (np.arange(1000) == 5)
    bounds = pair_moments.interval_bounds(scores, level=0.95)
    assert not bounds.is_certain[:3, :3].any()  # equal, or nearly: digits cancel
    assert bounds.is_certain[3:, :3].all()
    assert bounds.is_certain[3, 4]
    # Of values with much spread, no query is missing.
    assert (bounds.below.longest[3:, :3] < 1.05 * bounds.below.shortest[3:, :3]).all()
    monkeypatch.setattr(pair_moments, "_QUERIES_AT_ONCE", 7)
    in_blocks = pair_moments.interval_bounds(scores, level=0.95)
    np.testing.assert_allclose(in_blocks.above.longest, bounds.above.longest, rtol=1e-9)
    assert (in_blocks.is_certain == bounds.is_certain).all()
