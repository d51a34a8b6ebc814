"""Runs of one model over time."""

import pytest
from helpers.records import amend, own

from qwen3nb.analysis.comparison.history import trend


def test_runs_of_one_label_are_a_trend():
    runs = [
        own("now", 0.5, identity="1" * 64, finished="2026-01-01"),
        own("now", 0.3, identity="2" * 64, finished="2026-02-01", seed=1),
        own("now", 0.3, identity="3" * 64, finished="2026-03-01", seed=1),
        own("once", 0.3),
    ]
    amend(runs[2], "task", revision="another")
    first, second, third = trend(runs, metric="MRR@10", n_resamples=500, seed=0)
    assert (first.change, first.p_value) == (None, None)
    assert second.change == pytest.approx(-0.2, abs=0.02)
    assert second.p_value < 0.05
    assert (third.change, third.p_value) == (None, None)  # the data changed
