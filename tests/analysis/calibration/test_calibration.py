"""Calibration of the tests; resampling in blocks is faster and gives the same."""

from pathlib import Path

import pytest

from qwen3nb.analysis.calibration.coverage import score_coverage
from qwen3nb.analysis.calibration.simulate import (
    calibrate,
    calibrate_equivalence,
    calibrate_scores,
    calibrate_seeds,
    calibration_markdown,
    read_calibration,
)
from qwen3nb.bench.statistics import bench_intervals, bench_statistics, interval_table, table
from qwen3nb.metrics.intervals import INTERVALS


def of(shares, method, *, world="search", n="300"):
    (share,) = (s for s in shares if (s.method, s.world, s.n) == (method, world, n))
    return share


SHOWN = INTERVALS["widened"]
USUAL = ("search", "normal")
SYMMETRIC = (*USUAL, "rare wins", "accuracy")  # under the null hypothesis of the test
ROWS = {  # of the methods page
    "search": "difference of nDCG@10, 40 % tied",
    "rare wins": "difference, one of eight queries won, none lost",
    "accuracy": "difference of accuracy, 15 % won, 5 % lost",
    "large wins": "difference, 5 % won by 1, the others tied",
    "noisy wins": "the same, with noise of .01",
}
SCORES = {
    "nDCG@10": "nDCG@10",
    "hard nDCG@10": "hard nDCG@10",
    "MRR@10": "MRR@10",
    "AP": "average precision",
    "accuracy .9": "accuracy .9",
    "tied": ".5, but 5 % at 1",
    "nearly equal": "the same, with noise of .01",
    "two kinds": ".9, but 10 % at .1",
    "skewed": "skewed, beta(.5, 5)",
}


def usual(shares):
    """Those of the worlds in which many queries differ."""
    return [share for share in shares if share.world in USUAL]


def test_false_positives_and_coverage_of_300_queries():
    """A short version of the integration tests."""
    shares = calibrate(sizes=(300,), simulations=500, n_resamples=500, seed=5)
    assert {share.verdict for share in usual(shares)} == {"holds"}
    assert {share.world for share in shares} == {*SYMMETRIC, "large wins", "noisy wins"}
    assert {share.kind for share in shares} == {"false positives", "coverage", "power"}
    assert "| holds |" in calibration_markdown(shares)


@pytest.mark.integration
@pytest.mark.parametrize("n", [300, 1000])
def test_false_positives_and_coverage_within_the_binomial_interval(n):
    """2,000 simulated comparisons per world, at other seeds than the stored ones."""
    shares = calibrate(sizes=(n,), simulations=2000, n_resamples=2000, seed=77)
    assert {share.verdict for share in usual(shares)} == {"holds"}
    for share in shares:  # where few queries differ, what is shown is never too bold
        if share.method == SHOWN or (share.kind == "false positives" and share.world in SYMMETRIC):
            assert share.verdict in ("holds", "cautious")


@pytest.mark.integration
def test_small_samples_are_never_called_different_too_often():
    shares = calibrate(sizes=(10, 30), simulations=2000, n_resamples=1000, seed=78)
    for share in shares:
        if share.kind == "false positives" and share.world in SYMMETRIC:
            assert share.verdict in ("holds", "cautious")


def test_the_same_seed_measures_the_same():
    first, second = (
        calibrate(sizes=(20,), simulations=100, n_resamples=100, seed=3) for _ in range(2)
    )
    assert first == second


def test_intervals_over_seeds_and_queries():
    """They hold from two seeds on, in simulations now and stored; with one seed they cannot."""
    narrow, fine = calibrate_seeds(seeds=(1, 2), queries=100, noise=0.005, simulations=300, seed=1)
    assert (narrow.verdict, fine.verdict) == ("too bold", "holds")
    stored = [share for share in read_calibration() if " x " in share.n]
    several = [share for share in stored if not share.n.startswith("1 ")]
    assert {share.n for share in several} == {f"{seeds} x 300" for seeds in (2, 3, 5, 9)}
    assert {share.verdict for share in several} <= {"holds", "cautious"}
    assert [share.verdict for share in stored if share not in several] == ["too bold"] * 2


def test_the_intervals_that_are_shown_hold_their_level_from_ten_queries_on():
    """In the stored simulations; the percentile bootstrap does not."""
    shares = read_calibration()
    shown = [
        share
        for share in shares
        if (share.kind == "coverage" and share.method == SHOWN)
        or (share.kind == "score coverage" and share.method in (SHOWN, "Fisher's z"))
    ]
    assert {*SCORES, "Spearman", *ROWS, "normal"} == {share.world for share in shown}
    assert {"10", "20", "50", "200"} <= {share.n for share in shown}
    assert min(share.share for share in shown) >= 0.94
    bold = [s for s in shares if s.method == "percentile bootstrap" and s.n == "20"]
    assert {s.world for s in bold if s.verdict != "too bold"} == {"accuracy", "Spearman"}


def test_what_is_stored_of_the_test_and_of_equivalence():
    """The test holds its level under symmetry; equivalence is never said too often."""
    shares = read_calibration()
    test = [s for s in shares if s.method == "permutation test"]
    assert max(s.share for s in test if s.world in SYMMETRIC) <= 0.06
    assert of(test, "permutation test", world="large wins", n="10").share > 0.5  # published
    called = [s for s in shares if s.kind == "false equivalence"]
    assert {s.n for s in called} == {"3", "5", "10", "20", "50", "200"}
    assert {s.world for s in called} == {*ROWS, "normal"}
    assert max(s.share for s in called if s.method == SHOWN) <= 0.05
    assert max(s.share for s in called if s.method == "two one-sided t-tests") > 0.5


def test_equivalence_is_simulated_again():
    first, second = (calibrate_equivalence(sizes=(4, 30), simulations=500, seed=9) for _ in "ab")
    assert first == second
    assert max(share.share for share in first if share.method == SHOWN) <= 0.05


def test_differences_are_not_wider_than_they_must_be():
    """Where many queries differ, the interval shown is near its level; Student's is not enough."""
    shares = read_calibration()
    covered = [s for s in usual(shares) if s.method == SHOWN and s.kind == "coverage"]
    assert max(s.share for s in covered) <= 0.965
    assert of(shares, "Student's", world="rare wins", n="10").share < 0.72
    assert of(shares, "Student's", world="rare wins", n="50").verdict == "too bold"


def test_the_table_of_the_methods_page_is_the_stored_one():
    """Each row, number by number, as the page prints them."""
    page = (Path(__file__).parents[3] / "book" / "methods.md").read_text()
    shares = [s for s in read_calibration() if "coverage" in s.kind]
    for world, title in (ROWS | SCORES).items():
        for method in (SHOWN, "Student's", "percentile bootstrap"):
            held = [of(shares, method, world=world, n=n).share for n in ("10", "20", "50", "200")]
            cells = " | ".join(f"{share:.3f}".lstrip("0") for share in held)
            name = f"**{method}**" if method == SHOWN else method
            assert f"| {title} | {name} | {cells} |" in page


def test_coverage_of_scores_is_simulated_again():
    """The same seed gives the same."""
    first, second = (
        calibrate_scores(sizes=(20,), simulations=100, n_resamples=40, seed=4) for _ in range(2)
    )
    assert first == second
    assert {share.kind for share in first} == {"score coverage"}


@pytest.mark.integration
def test_coverage_of_scores_with_twenty_queries():
    """1,000 samples per world, at another seed than the stored ones."""
    shares = calibrate_scores(sizes=(20,), simulations=1000, n_resamples=200, seed=4)
    held = {(s.world, s.method): s.share for s in shares}
    assert held["hard nDCG@10", SHOWN] > held["hard nDCG@10", "percentile bootstrap"] + 0.04
    assert min(v for (_, method), v in held.items() if method == SHOWN) >= 0.93


def test_the_stored_numbers_are_those_of_the_methods_page():
    shares = read_calibration()
    for world in USUAL:
        for method in ("permutation test", "t-test", "percentile bootstrap", "Student's"):
            for n in ("200", "1000"):
                assert of(shares, method, world=world, n=n).verdict == "holds"
        assert of(shares, "BCa bootstrap", world=world, n="1000").verdict == "holds"
    # Methods that do not hold are stored as well.
    assert of(shares, "BCa bootstrap", n="200").verdict == "too bold"  # .942, with 40 % ties
    assert of(shares, "percentile bootstrap", n="20").verdict == "too bold"
    assert of(shares, "permutation test", n="10").verdict == "cautious"


def test_intervals_take_less_than_twice_the_time_of_the_bootstrap():
    rows = bench_intervals(queries=500, n_resamples=2000, repeats=3)
    assert [row.what for row in rows][-1] == "paired difference"
    assert max(row.ratio for row in rows) <= 2  # measured: below 0.05
    assert SHOWN in interval_table(rows)


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


def test_a_share_counts_all_simulations_of_its_batches():
    for _, _, _, held, total in score_coverage(
        sizes=(10,), simulations=20, n_resamples=100, seed=0
    ):
        assert total in (100, 25)  # correlations take a quarter
        assert held > 0.3 * total  # Student's on tied scores: .40
