"""Scores of several systems joined by query id."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.analysis.stats.score_matrix import join

COLUMNS = st.dictionaries(
    st.sampled_from("abc"),
    st.dictionaries(st.sampled_from(["q1", "q2", "q3", "q4"]), st.floats(0, 1), min_size=1),
    min_size=2,
)


def test_join_by_hand():
    matrix = join({"a": {"q2": 0.2, "q1": 0.1, "q3": 1}, "b": {"q1": 0.5, "q2": 0.6}}, task="T")
    assert matrix.queries == ("q1", "q2")
    assert matrix.scores.tolist() == [[0.1, 0.2], [0.5, 0.6]]
    assert matrix.unpaired == {"a": ("q3",), "b": ()}
    assert matrix.notes == ("T: 1 queries of a do not pair (q3)",)
    assert matrix.column("b").tolist() == [0.5, 0.6]
    with pytest.raises(ValueError, match="no system 'c' on T; .*: a, b"):
        matrix.column("c")


@settings(max_examples=25, deadline=None)
@given(COLUMNS)
def test_join_loses_no_query(columns):
    if not set.intersection(*(set(values) for values in columns.values())):
        with pytest.raises(ValueError, match="no query is shared by all systems"):
            join(columns)
        return
    matrix = join(columns)
    for system, values in columns.items():
        assert set(matrix.queries) | set(matrix.unpaired[system]) == set(values)
        assert matrix.column(system).tolist() == [values[query] for query in matrix.queries]


def test_join_refuses():
    with pytest.raises(ValueError, match="two or more systems"):
        join({"a": {"q": 1}})
    with pytest.raises(ValueError, match="T: b has no finite value on query 'q2'"):
        join({"a": {"q1": 1, "q2": 1}, "b": {"q1": 1, "q2": float("nan")}}, task="T")


def test_the_frame_has_a_row_per_query_and_the_difference_of_two_systems():
    columns = {"a": {"q1": 0.9, "q2": 0.25}, "b": {"q2": 0.5, "q1": 0.4}}
    frame = join(columns).to_frame()
    assert frame.index.name == "query"
    assert frame.to_dict("index") == {
        "q2": {"a": 0.25, "b": 0.5, "difference": -0.25},
        "q1": {"a": 0.9, "b": 0.4, "difference": 0.5},
    }
    assert list(frame.index) == ["q2", "q1"]  # the largest loss first
    three = join({**columns, "c": {"q1": 0.0, "q2": 1.0}}).to_frame()
    assert (list(three.columns), list(three.index)) == (["a", "b", "c"], ["q1", "q2"])
