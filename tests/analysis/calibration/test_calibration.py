"""Calibration of the tests; resampling in blocks is faster and gives the same."""

import pytest

from qwen3nb.analysis.calibration.simulate import (
    calibrate,
    calibrate_seeds,
    calibration_markdown,
    read_calibration,
)
from qwen3nb.bench.statistics import bench_statistics, table


def of(shares, method, *, world="search", n="300"):
    (share,) = (s for s in shares if (s.method, s.world, s.n) == (method, world, n))
    return share


def test_false_positives_and_coverage_of_300_queries():
    """A short version of the integration tests."""
    shares = calibrate(sizes=(300,), simulations=500, n_resamples=500, seed=5)
    assert {share.verdict for share in shares} == {"holds"}
    assert {share.kind for share in shares} == {"false positives", "coverage", "power"}
    assert "| holds |" in calibration_markdown(shares)


@pytest.mark.integration
@pytest.mark.parametrize("n", [300, 1000])
def test_false_positives_and_coverage_within_the_binomial_interval(n):
    """2,000 simulated comparisons per world, at other seeds than the stored ones."""
    shares = calibrate(sizes=(n,), simulations=2000, n_resamples=2000, seed=77)
    assert {share.verdict for share in shares} == {"holds"}


@pytest.mark.integration
def test_small_samples_are_never_called_different_too_often():
    shares = calibrate(sizes=(10, 30), simulations=2000, n_resamples=1000, seed=78)
    for share in shares:
        if share.kind == "false positives":
            assert share.verdict in ("holds", "cautious")


def test_the_same_seed_measures_the_same():
    first, second = (
        calibrate(sizes=(20,), simulations=100, n_resamples=100, seed=3) for _ in range(2)
    )
    assert first == second


def test_intervals_over_seeds_and_queries():
    """Valid where queries vary; too narrow with two seeds and little noise, as documented."""
    shares = calibrate_seeds(seeds=(3,), queries=100, simulations=300, n_resamples=300, seed=1)
    assert shares[0].share > 0.9
    narrow = calibrate_seeds(
        seeds=(2,), queries=100, noise=0.005, simulations=200, n_resamples=200, seed=1
    )
    assert narrow[0].verdict == "too bold"


def test_the_stored_numbers_are_those_of_the_methods_page():
    shares = read_calibration()
    for world in ("search", "normal"):
        for method in ("permutation test", "t-test", "percentile bootstrap", "BCa bootstrap"):
            for n in ("300", "1000"):
                assert of(shares, method, world=world, n=n).verdict == "holds"
    # Methods that do not hold are stored as well.
    assert of(shares, "percentile bootstrap", n="10").verdict == "too bold"
    assert of(shares, "permutation test", n="10").verdict == "cautious"


def test_all_pairs_at_once_are_faster_and_equal_within_the_resampling_error():
    rows = bench_statistics(
        systems=8, tasks=1, queries=1500, n_resamples=2000, loop_pairs=3, seed=1
    )
    loop, blocks, full = rows
    assert (loop.pairs, loop.measured, blocks.measured) == (28, 3, 28)
    assert blocks.ratio > 3  # more on a quiet machine; the full size is in the book
    assert blocks.deviation < 5
    assert full.peak_mib < 100
    assert "times faster" in table(rows)
