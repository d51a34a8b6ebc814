"""Runs for other programs: no two scores of a query are equal, and the order is the metrics'."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.datasets.rows import DataError
from qwen3nb.datasets.trec import load_run, qrels_bytes, run_digest, write_run
from qwen3nb.metrics.retrieval import rank_documents
from qwen3nb.utils.atomic_files import sha256_file

NEAR = [1.0, 1.0 + 1e-9, 1.0 - 1e-9, 1.0 - 6e-8, 1.0 - 2e-7, 0.0, -0.0, 1e-45, -1e-45, 7e37, -7e37]
SCORES = st.dictionaries(
    st.sampled_from([f"d{n}" for n in range(12)] + ["é", "日本", "~"]),
    st.sampled_from(NEAR) | st.floats(-1e30, 1e30, width=64),
    min_size=1,
    max_size=15,
)


@given(run=st.dictionaries(st.sampled_from("uvw"), SCORES, min_size=1))
@settings(deadline=None, max_examples=40)
def test_distinct_scores_keep_the_order_and_change_only_where_they_must(tmp_path_factory, run):
    file = tmp_path_factory.mktemp("run") / "x.trec"
    write_run(file, run, tag="t", distinct=True)
    assert sha256_file(file) == run_digest(file, run, tag="t", distinct=True)
    assert load_run(file).keys() == run.keys()
    written = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        query, _, document, _, score, _ = line.split(" ")
        written.setdefault(query, []).append((document, float(score)))
    for query, ranked in written.items():
        names, scores = zip(*ranked, strict=True)
        assert list(names) == rank_documents(run[query])
        values = np.array(scores, dtype=np.float32)
        assert (np.diff(values) < 0).all()
        assert (np.diff(scores) < 0).all()
        own = np.array([run[query][name] for name in names])
        if (np.diff(own.astype(np.float32)) < 0).all():
            assert list(scores) == own.tolist()
        steps = np.spacing(np.abs(own).astype(np.float32)) * len(own)
        assert (np.abs(own - scores) <= 2 * steps).all()


def test_qrels_are_sorted_and_have_no_grade_below_zero(tmp_path):
    data = qrels_bytes(tmp_path / "x", {"q2": {"é": 2, "b": -3}, "q1": {"a": 0}, "q0": {}})
    assert data.decode() == "q1 0 a 0\nq2 0 b 0\nq2 0 é 2\n"
    for qrels in ({"q": {"a\tb": 1}}, {"q x": {"a": 1}}, {"q": {"": 1}}):
        with pytest.raises(DataError, match="is empty or has white space"):
            qrels_bytes(tmp_path / "x", qrels)
