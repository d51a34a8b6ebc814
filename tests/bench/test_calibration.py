"""The simulations of tests and intervals, again and shorter: benchmarks/calibration.py."""

import pytest

from benchmarks.calibration import (
    calibrate,
    calibrate_scores,
    calibrate_seeds,
    simulate,
    table,
)
from qwen3nb.analysis.calibration import read_calibration
from qwen3nb.metrics.intervals import INTERVALS

SHOWN = INTERVALS["widened"]
USUAL = ("search", "normal")
SYMMETRIC = (*USUAL, "rare wins", "accuracy")  # under the null hypothesis of the test


def test_false_positives_and_coverage_of_300_queries():
    shares = calibrate(sizes=(300,), simulations=500, n_resamples=500, seed=5)
    assert {share.verdict for share in shares if share.process in USUAL} == {"holds"}
    assert {share.process for share in shares} == {*SYMMETRIC, "large wins", "noisy wins"}
    assert {share.kind for share in shares} == {"false positives", "coverage", "power"}
    assert "| holds |" in table(shares)


def test_intervals_over_seeds_hold_from_two_seeds_on():
    narrow, fine = calibrate_seeds(seeds=(1, 2), queries=100, noise=0.005, simulations=300, seed=1)
    assert (narrow.verdict, fine.verdict) == ("anti-conservative", "holds")


@pytest.mark.integration
def test_coverage_of_scores_with_twenty_queries():
    """1,000 samples per distribution, at another seed than the stored ones."""
    shares = calibrate_scores(sizes=(20,), simulations=1000, n_resamples=200, seed=4)
    held = {(s.process, s.method): s.share for s in shares}
    assert held["hard nDCG@10", SHOWN] > held["hard nDCG@10", "percentile bootstrap"] + 0.04
    assert min(v for (_, method), v in held.items() if method == SHOWN) >= 0.93


def test_a_run_writes_what_the_page_reads_and_a_seed_gives_the_same(tmp_path, monkeypatch):
    def few(*, seed, simulations):
        shares = calibrate(sizes=(20,), simulations=100, n_resamples=50, seed=seed)
        return shares + calibrate_scores(sizes=(20,), simulations=20, n_resamples=40, seed=seed)

    monkeypatch.setattr("benchmarks.calibration.calibrate", few)
    for name in ("calibrate_equivalence", "calibrate_scores", "calibrate_seeds"):
        monkeypatch.setattr(f"benchmarks.calibration.{name}", lambda **_: [])
    shares = simulate(seed=3, simulations=1, out=str(tmp_path / "shares.json"))
    assert read_calibration(tmp_path / "shares.json") == shares == few(seed=3, simulations=1)
    assert {each.simulations for each in shares if each.kind == "score coverage"} == {100, 25}
