"""The simulation of grading sessions: its t, its errors, its verdicts."""

import numpy as np
import pytest

from benchmarks.judging import curve, hidden_grades, run_session, student_t
from qwen3nb.analysis.judging.pool import grading_pool
from qwen3nb.datasets.collection import TestCollection

QUERIES = {f"q{number}": f"query {number}" for number in range(12)}
DOCUMENTS = {f"d{number}": f"document {number}" for number in range(5)}
QRELS = {query: {"d0": 1} for query in QUERIES}
FIRST = {query: ["d0", "d1", "d2"] for query in QUERIES}
LAST = {query: ["d1", "d2", "d0"] for query in QUERIES}
MIXED = {query: (FIRST if number < 9 else LAST)[query] for number, query in enumerate(QUERIES)}


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
    right = [run_session(pool, grades, highest=1, errors=0.0, seed=seed)[0] for seed in range(5)]
    wrong = [run_session(pool, grades, highest=1, errors=1.0, seed=seed)[0] for seed in range(5)]
    assert (right, wrong) == ([True] * 5, [False] * 5)


def test_a_curve_counts_the_grades_of_its_sessions():
    collection = TestCollection("tiny", DOCUMENTS, QUERIES, QRELS)
    rankings = {"old": LAST, "new": MIXED}
    row = curve(collection, rankings, current="old", candidate="new", errors=0.0, runs=5)
    assert (row.pool, row.wrong) == (36, 0.0)
    assert 0 < row.median_share <= row.high_share <= 1
