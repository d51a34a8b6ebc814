"""Runs for other programs: no two scores of a query are equal, and the order is the metrics'."""

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.datasets.rows import DataError
from qwen3nb.datasets.trec import (
    load_run,
    load_run_with_ties,
    qrels_bytes,
    ranks_decide,
    read_run,
    run_digest,
    write_run,
)
from qwen3nb.evaluation.retrieval.first_stage import describe
from qwen3nb.metrics.retrieval import rank_documents, score_run
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


def lines(documents, score, *, rank=lambda position: position):
    """Lines of one query from documents, best first, with a score per position from 1."""
    return "".join(f"q Q0 {name} {rank(n)} {score(n)!r} t\n" for n, name in enumerate(documents, 1))


@pytest.mark.parametrize(
    "score",
    [
        lambda n: 1.0,  # an exporter's, or P(yes) that saturates
        lambda n: 1.0 - n * 1e-12,
        lambda n: 1e8 - n,  # one 32-bit number
        lambda n: -1e8 - n,
        lambda n: 0.0,
        lambda n: -0.0 if n % 2 else 0.0,
        lambda n: 2.0 if n < 3 else 1.0,
        lambda n: float(n < 3),
    ],
)
def test_ranks_decide_where_scores_tie(tmp_path, score):
    """By hand: "b" is at rank 1 and "c" at rank 4. trec_eval agrees once no score ties."""
    file, again = tmp_path / "tied.trec", tmp_path / "again.trec"
    file.write_text(lines("badc", score))
    run, ties = load_run_with_ties(file)
    assert run.ranked("q") == list("badc")
    assert ties == 0
    assert np.abs(run.scores - [score(n) for n in range(1, 5)]).max() <= 40  # of 32-bit 1e8
    qrels = {"q": {"b": 1, "c": 1}}
    values = score_run(qrels, run, ["MRR@10", "nDCG@10"])
    assert values["MRR@10"] == {"q": 1.0}
    write_run(again, run, tag="t", distinct=True)
    oracle = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank", "ndcg_cut.10"})
    expected = oracle.evaluate(read_run(again))["q"]
    assert values["nDCG@10"]["q"] == pytest.approx(expected["ndcg_cut_10"])
    assert expected["recip_rank"] == 1.0


def test_ranks_in_shuffled_lines_and_of_three_columns_decide_too(tmp_path):
    file = tmp_path / "x.trec"
    text = lines("badc", lambda n: 1.0)
    file.write_text("".join(reversed(text.splitlines(keepends=True))))
    assert load_run(file).ranked("q") == list("badc")
    ranks = [2**24 + n for n in range(1, 5)]  # two of which are one 32-bit number
    file.write_text("".join(f"q {d} {n}\n" for d, n in zip("badc", ranks, strict=True)))
    assert load_run(file).ranked("q") == list("badc")


def test_ties_without_ranks_are_counted_and_ordered_by_id(tmp_path):
    file = tmp_path / "x.trec"
    file.write_text(lines("badc", lambda n: 1e8 - n, rank=lambda n: 0))
    run, ties = load_run_with_ties(file)
    assert ties == 3
    assert run.ranked("q") == list("dcba")
    file.write_text(lines("badc", lambda n: 4.0 - n, rank=lambda n: 0))
    run, ties = load_run_with_ties(file)
    assert (run.ranked("q"), ties) == (list("badc"), 0)


def test_a_run_of_ours_with_ties_is_read_as_it_was_written(tmp_path):
    run = {"q": {"a": 1.0, "b": 1.0, "c": 1.0 + 1e-12, "d": 0.5}}
    file = write_run(tmp_path / "x.trec", run, tag="t")
    assert read_run(file) == run
    assert not ranks_decide(file)
    file.write_text(lines("badc", lambda n: 1.0))
    assert ranks_decide(file)
    assert describe(file)[1]["ties"] == "by rank"  # a run kept from before is not reused
