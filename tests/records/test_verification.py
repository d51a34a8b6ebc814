"""What verification recomputes from: samples of stored scores, equal to those of dictionaries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.metrics.aggregate import sample_of
from qwen3nb.records.query_scores import QueryScores

VALUES = st.dictionaries(st.text("ab/é\U0010ffff", max_size=4), st.floats(0, 1), min_size=1)


@settings(max_examples=60, deadline=None)
@given(first=VALUES, part=st.text("ab/é\U0010ffff", max_size=2), absent=st.booleans())
def test_a_sample_of_stored_scores_is_that_of_dictionaries(first, part, absent):
    second = {query: value / 3 for query, value in reversed(first.items())}
    scores = {"one": first, "two": second}
    if absent:  # in one column only: rows that the others leave empty
        scores["three"] = {"b/only": 0.5}
    stored = QueryScores.of(scores)
    for columns in (("one",), ("two",), ("one", "two")):
        theirs = sample_of(scores, columns, part)
        ours = stored.sample(columns, part)
        assert ours.tolist() == theirs.tolist()
        assert not len(ours) or (ours.shape, ours.strides) == (theirs.shape, theirs.strides)


def test_columns_that_cover_different_queries_are_refused():
    stored = QueryScores.of({"one": {"a": 0.1, "b": 0.2}, "two": {"a": 0.3}})
    assert stored.sample(("two",)).tolist() == [[0.3]]
    with pytest.raises(ValueError, match="'one' and 'two' cover different queries"):
        stored.sample(("one", "two"))
    infinite = QueryScores(("a", "b"), {"one": np.array([0.1, np.inf])})
    with pytest.raises(ValueError, match="query 'b' has a value that is not finite"):
        infinite.sample(("one",))
