"""Scores joined by task and query."""

from dataclasses import replace
from functools import partial

from helpers.records import make

from qwen3nb.analysis.comparison.alignment import (
    model_names,
    newest_records,
    pair_results,
    score_columns,
)

TASK = "PyDocsSampleRetrieval"


def test_columns_follow_the_ids_whatever_the_order_in_the_record():
    one = make("one", {"q2": 0.2, "q1": 0.1, "q3": 0.3})
    other = make("other", {"q3": 0.6, "q1": 0.4, "q2": 0.5})
    other = replace(other, per_query={"MRR@10": {"q9": 1.0}, **other.per_query})
    names = {(each.model.identity, 0): each.model.label for each in (one, other)}
    columns, reasons = score_columns("T", [one, other, one], names, "nDCG@10", "r" * 12)
    assert not reasons
    assert {name: dict(column) for name, column in columns.items()} == {
        "one": {"q1": 0.1, "q2": 0.2, "q3": 0.3},
        "other": {"q1": 0.4, "q2": 0.5, "q3": 0.6},
    }


def test_records_are_paired_and_the_rest_is_reported():
    scores = {"q1": 0.1, "q2": 0.5}
    record = partial(make, task="T", revision="r1")
    pairing = pair_results(
        [
            record("a", scores),
            record("b", {**scores, "q3": 1.0}),
            record("b", scores, finished="0"),
            record("c", scores, revision="r2"),
            record("d", scores, metric="Spearman"),
            record("a", scores, task="U"),
        ],
        metric="nDCG@10",
        tasks=["T", "U", "V"],
    )
    (matrix,) = pairing.matrices
    assert (matrix.task, matrix.systems) == ("T", ("a", "b"))
    text = "\n".join(pairing.notes)
    assert "earlier record of b (seed 0)" in text
    assert "T: c was run on revision r2 of the data, the others on r1" in text
    assert "T: d has no nDCG@10 per query" in text
    assert "U: a has no other system to pair with" in text
    assert "V: no record of any system" in text
    assert "T: 1 queries of b do not pair (q3)" in text


def test_names_distinguish_systems():
    scores = {"q1": 0.1, "q2": 0.5}
    pairing = pair_results(
        [
            make("a", scores, identity="1" * 16),
            make("a", scores, identity="2" * 16),
            make("b", scores, seed=1),
            make("b", scores, seed=2),
        ]
    )
    systems = pairing.matrices[0].systems
    assert set(systems) == {"a (11111111)", "a (22222222)", "b (seed 1)", "b (seed 2)"}


def test_a_model_with_several_labels_is_one_with_aliases():
    shared = {"identity": "1" * 64}
    records = [make("new", finished="2026-02-01", **shared), make("old", **shared), make("b")]
    assert set(model_names(records).values()) == {"new (= old)", "b"}
    newest, notes = newest_records(records)
    assert (len(newest), notes) == (2, [])
    _, notes = newest_records([make("a"), make("a", finished="2026-03-01")])
    assert notes == [f"{TASK}: an earlier record of a (seed 0), finished 2026-01-01"]
