"""The simulation of grading sessions: its t, its errors, its verdicts."""

import json

import numpy as np
import pytest

from benchmarks.judging import (
    Choice,
    JudgingCosts,
    Store,
    curve,
    erring,
    hidden_grades,
    plain_way,
    run_session,
    shown,
    student_t,
)
from qwen3nb.analysis.judging.pool import grading_pool
from qwen3nb.datasets.collection import TestCollection

QUERIES = {f"q{number}": f"query {number}" for number in range(12)}
DOCUMENTS = {f"d{number}": f"document {number}" for number in range(5)}
QRELS = {query: {"d0": 1} for query in QUERIES}
FIRST = {query: ["d0", "d1", "d2"] for query in QUERIES}
LAST = {query: ["d1", "d2", "d0"] for query in QUERIES}
MIXED = {query: (FIRST if number < 9 else LAST)[query] for number, query in enumerate(QUERIES)}
COLLECTION = TestCollection("tiny", DOCUMENTS, QUERIES, QRELS)
RANKINGS = {"old": LAST, "new": MIXED, "best": FIRST}


def test_t_is_that_of_the_differences_of_dcg():
    """The candidate gains 1 - 1/2 on nine queries, and nothing on three."""
    pool = grading_pool({"old": LAST, "new": MIXED}, current="old")
    differences = np.array([0.5] * 9 + [0.0] * 3)
    by_hand = differences.mean() / (differences.std(ddof=1) / np.sqrt(12))
    t = student_t(pool, hidden_grades(pool, QRELS), list(QUERIES))
    assert t == pytest.approx(by_hand)


def test_a_judge_who_always_errs_prefers_the_other_model():
    pool = grading_pool({"old": LAST, "new": FIRST}, current="old")
    grades = hidden_grades(pool, QRELS)
    for seed in range(3):
        wrong = erring(grades, highest=1, errors=1.0, seed=seed)
        (right_standing,) = run_session(pool, grades, highest=1, seed=seed).standings()
        (wrong_standing,) = run_session(pool, wrong, highest=1, seed=seed).standings()
        assert right_standing.is_better
        assert wrong_standing.is_worse


def test_errors_are_other_grades_drawn_uniformly():
    grades = np.full(30_000, 2)
    given = erring(grades, highest=3, errors=0.3, seed=0)
    shares = np.bincount(given.astype(int), minlength=4) / len(given)
    assert shares == pytest.approx([0.1, 0.1, 0.7, 0.1], abs=0.01)


def test_the_plain_way_stops_at_two_point_eight_standard_errors():
    """By hand: differences of 1 and 2 are clear at once, so that the fewest queries are judged."""
    differences = np.array([1.0, 2.0] * 10)
    takes_candidate, graded = plain_way(differences, np.full(20, 7), seed=0)
    assert (takes_candidate, graded) == (True, 5 * 7)
    takes_candidate, graded = plain_way(np.array([1.0, -1.1] * 10), np.full(20, 7), seed=0)
    assert (takes_candidate, graded) == (False, 20 * 7)


def test_a_curve_counts_the_grades_of_its_sessions_and_goes_on_where_it_was(tmp_path):
    choice = Choice(COLLECTION, RANKINGS, ["old", "new"])
    file = tmp_path / "sessions.jsonl"
    row = curve(choice, Store(file), errors=0.0, runs=5)
    assert (row.outcomes[0].pool, row.wrong) == (36, 0.0)
    assert np.all((row.shares > 0) & (row.shares <= 1))
    lines = file.read_text().splitlines()
    key, seed, outcome = json.loads(lines[-1])
    outcome["graded"] = 1
    file.write_text("\n".join([*lines[:-1], json.dumps([key, seed, outcome]), lines[0][:20]]))
    again = curve(choice, Store(file), errors=0.0, runs=6)
    assert [other.graded for other in again.outcomes[:4]] == [
        other.graded for other in row.outcomes[:4]
    ]
    assert again.outcomes[4].graded == 1  # read, not run again
    assert len(again.outcomes) == 6


def test_of_several_models_the_one_that_no_other_beats_is_taken(tmp_path):
    choice = Choice(COLLECTION, RANKINGS, ["old", "new", "best"])
    row = curve(choice, Store(tmp_path / "s.jsonl"), errors=0.0, runs=3)
    assert {outcome.taken for outcome in row.outcomes} <= {"new", "best"}
    text = shown(JudgingCosts("here", 3, False, (row,)))
    assert "old or new or best" in text


def test_swapped_rankings_make_equal_models(tmp_path):
    choice = Choice(COLLECTION, RANKINGS, ["old", "best"])
    means = [
        student_t(pool, grades, list(QUERIES))
        for pool, grades in (choice._pool(choice._swapped(seed)) for seed in range(200))
    ]
    assert abs(np.mean(np.sign(means))) < 0.2
