"""Runs of a model over time: each is paired with the one before, on the queries of both."""

import pytest
from helpers.records import amend, make, own, state

from qwen3nb.analysis.comparison.trend import trend
from qwen3nb.answers.candidates import compare_candidates


def run(scores, *, revision="1", texts=None, identity="1" * 64, finished="2026-01-01", **fields):
    """A record of one model on own data; ``texts`` by query id."""
    record = make(
        "now", task=f"mine-{revision}", scores=scores, identity=identity, finished=finished
    )
    amend(record, "task", dataset="domain-mine", revision=revision, **fields)
    if texts:
        state(record, queries=texts)
    return record


def of(*runs):
    return trend(runs, metric="nDCG@10", n_resamples=500, seed=0)


def test_runs_of_one_label_are_a_trend():
    runs = [
        own("now", 0.5, identity="1" * 64, finished="2026-01-01"),
        own("now", 0.3, identity="2" * 64, finished="2026-02-01", seed=1),
        own("once", 0.3),
    ]
    first, second = trend(runs, metric="MRR@10", n_resamples=500, seed=0)
    assert (first.change, first.p_value, first.shared) == (None, None, 0)
    assert second.change == pytest.approx(-0.2, abs=0.02)
    assert second.p_value < 0.05
    assert (second.model_changed, second.data_changed) == (True, False)


def test_revisions_are_paired_on_the_queries_that_they_share():
    """A query was put before the others, so that every id has shifted: only texts are the same."""
    before = run([0.2, 0.4, 0.9], texts={"q0": "a", "q1": "b", "q2": "c"})
    after = run(
        [1.0, 0.3, 0.5, 0.7],  # of the new one, and of a, b, c: changes of 0.1, 0.1 and -0.2
        revision="2",
        texts={"q0": "new", "q1": "a", "q2": "b", "q3": "c"},
        finished="2026-02-01",
    )
    first, second = of(before, after)
    assert (first.mean, second.mean) == (pytest.approx(0.5), pytest.approx(0.625))
    assert second.change == pytest.approx(0.0, abs=1e-12)
    assert (second.n, second.shared) == (4, 3)
    assert (second.model_changed, second.data_changed) == (False, True)


def test_queries_without_texts_are_paired_by_id():
    before = run([0.2, 0.4, 0.9])
    after = run([0.3, 0.5], revision="2", finished="2026-02-01")
    _, second = of(before, after)
    assert (second.change, second.shared) == (pytest.approx(0.1), 2)


def test_queries_of_one_text_are_told_apart_by_their_ids():
    before = run([0.2, 0.4, 0.9], texts={"q0": "a", "q1": "a", "q2": "c"})
    after = run(
        [0.4, 0.2, 0.9],
        revision="2",
        texts={"q0": "a", "q1": "a", "q2": "c"},
        finished="2026-02-01",
    )
    _, second = of(before, after)
    assert second.shared == 3
    assert second.change == pytest.approx(0.0, abs=1e-12)


def test_without_a_shared_query_there_is_no_change():
    before = run([0.2, 0.4, 0.9], texts={"q0": "a", "q1": "b", "q2": "c"})
    after = run(
        [0.3, 0.5, 0.7],
        revision="2",
        texts={"q0": "d", "q1": "e", "q2": "f"},
        finished="2026-02-01",
    )
    _, second = of(before, after)
    assert (second.change, second.p_value, second.shared) == (None, None, 0)
    assert second.data_changed


@pytest.mark.parametrize(("revision", "fails"), [("0", True), ("2", False)])
def test_only_a_loss_on_the_same_data_fails_a_gate(revision, fails):
    """The same loss on another revision may come from harder data."""
    before = own("now", 0.6, identity="1" * 64)
    after = own("now", 0.3, identity="2" * 64, finished="2026-02-01", seed=1)
    candidate = own("new", 0.3, finished="2026-02-01", seed=2)
    amend(before, "task", revision=revision)
    for record in (after, candidate):
        amend(record, "task", revision="0")
    report = compare_candidates(
        [before, after, candidate], current="now", tested=["MRR@10"], n_resamples=500
    )
    (_, newest) = report.runs
    assert newest.change == pytest.approx(-0.3, abs=0.03)
    assert any("newest run is worse" in reason for reason in report.regressions) == fails
    row = report.trend_table().to_frame().iloc[1]
    assert row["since then"] == ("model" if fails else "model and data")
