import math

import pytest

from qwen3nb.evaluation.mteb.per_query import extract_scores
from qwen3nb.evaluation.mteb.select import select_tasks
from qwen3nb.metrics.aggregate import reported


def test_a_type_without_scores_per_query_keeps_what_mteb_reports():
    task = select_tasks(names=["SummEvalSummarization.v2"])[0]
    columns, named, main = extract_scores(task, {}, {})
    assert columns == {}
    assert named == {main: ("reported", ())}
    value = reported(0.31, n=100)
    assert (value.value, value.low, value.how) == (0.31, None, "reported")
    with pytest.raises(ValueError, match="expected a finite value"):
        reported(math.nan, n=1)
