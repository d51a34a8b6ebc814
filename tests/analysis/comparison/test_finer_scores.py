"""Finer scores: by hand, aligned with the main metric, and decisive where nDCG@10 stands still."""

import numpy as np
import pytest
from helpers.records import make

from qwen3nb.analysis.comparison.finer_scores import FINER, finer_matrix, finer_scores
from qwen3nb.analysis.comparison.forgotten_groups import Verdict, compare_groups
from qwen3nb.analysis.comparison.group_changes import QueryGroup
from qwen3nb.analysis.stats.score_matrix import join


def record(label, precisions):
    """A record whose queries q0, q1, … have an nDCG@10 of 0.5 and these average precisions."""
    made = make(label, [0.5] * len(precisions))
    made.per_query["MAP@100"] = {f"q{row}": value for row, value in enumerate(precisions)}
    return made


def main_matrix(records):
    columns = {name: made.per_query["nDCG@10"] for name, made in records.items()}
    return join(columns, task="t", metric="nDCG@10")


def test_ranks_are_factors_and_what_is_not_found_stands_at_twice_the_depth():
    assert np.exp(finer_scores(np.array([1.0, 1 / 20, 0.0]))) == pytest.approx([1, 1 / 20, 1 / 200])


def test_rows_and_queries_are_those_of_the_main_metric():
    records = {"old": record("old", [1.0, 0.5, 0.1]), "new": record("new", [0.5, 0.5, 0.0])}
    finer = finer_matrix(main_matrix(records), records)
    assert (finer.metric, finer.queries, finer.systems) == (FINER, ("q0", "q1", "q2"), (*records,))
    change = finer.column("new") - finer.column("old")
    assert np.exp(change) == pytest.approx([0.5, 1, 0.05])


def test_without_average_precisions_there_are_none():
    records = {"old": record("old", [1.0, 0.5]), "new": make("new", [0.5, 0.5])}
    assert finer_matrix(main_matrix(records), records) is None
    records["new"] = record("new", [1.0])  # not of all queries
    records["new"].per_query["nDCG@10"]["q1"] = 0.5
    assert finer_matrix(main_matrix(records), records) is None


def test_a_group_that_falls_below_rank_ten_is_forgotten():
    """It falls from rank 12 to about 40: nDCG@10 is 0 before and after."""
    noise = np.random.default_rng(0).normal(0, 0.3, (2, 90))
    ranks = {"old": np.full(90, 12.0), "new": np.full(90, 12.0)}
    ranks["new"][:30] = 40
    columns, finer_columns = {}, {}
    for name, row in zip(ranks, noise, strict=True):
        queries = [f"q{place:02}" for place in range(90)]
        columns[name] = dict.fromkeys(queries, 0.0)
        finer = finer_scores(np.exp(row) / ranks[name])
        finer_columns[name] = dict(zip(queries, finer.tolist(), strict=True))
    matrix = join(columns, task="t", metric="nDCG@10")
    finer = join(finer_columns, task="t", metric=FINER)
    topic = QueryGroup("topic", "lost", tuple(range(30)))
    names = {"before": "old", "after": "new", "n_resamples": 200}
    _, (blind,) = compare_groups(matrix, [topic], **names)
    assert blind.verdict is Verdict.AS_THE_REST
    _, (change,) = compare_groups(matrix, [topic], finer=finer, **names)
    assert change.verdict is Verdict.FORGOTTEN
    assert change.change.difference == 0
    assert np.exp(change.test.difference) == pytest.approx(12 / 40, rel=0.2)
