"""What follows from a reranker's run and its first stage's, by numbers computed by hand.

The reranker puts the relevant d1 first, which the first stage had third; nothing is relevant to q2.
"""

from dataclasses import replace

import pytest
from helpers.records import make

from qwen3nb.records.details import RunFiles
from qwen3nb.records.kept_runs import rescored_problems, run_problems
from qwen3nb.utils.atomic_files import sha256_file, write_text

RUN = "q1 Q0 d1 1 3 m\nq1 Q0 d3 2 2 m\nq1 Q0 d2 3 1 m\nq2 Q0 d1 1 1 m\n"
FIRST_RUN = "q1 Q0 d3 1 9 b\nq1 Q0 d2 2 8 b\nq1 Q0 d1 3 7 b\nq2 Q0 d1 1 1 b\n"
QRELS = "q1 0 d1 1\nq1 0 d9 1\nq2 0 d1 0\n"
SCORES = {
    "MRR@10": {"q1": 1.0, "q2": 0.0},
    "first MRR@10": {"q1": 1 / 3, "q2": 0.0},
    "gain MRR@10": {"q1": 2 / 3, "q2": 0.0},
    "oracle MRR@10": {"q1": 1.0, "q2": 0.0},
    "first Recall@3": {"q1": 0.5, "q2": 0.0},
}


def problems(folder, scores=SCORES, *, qrels=QRELS, first_run=FIRST_RUN, top=None):
    """What is wrong of a record with these scores, beside these files."""
    file = folder / "m-1a2b3c4d" / "seed_0" / "Search.json"
    run = write_text(file.with_name("Search.0123456789ab.trec"), RUN)
    first = write_text(folder / "first_stages" / "first.trec", first_run)
    digests = {}
    if qrels is not None:
        judged = write_text(file.with_name("Search.0123456789ab.qrels"), qrels)
        digests = {judged.name: sha256_file(judged)}
    files = RunFiles(
        qrels=digests,
        runs={run.name: sha256_file(run)},
        first_run={"name": first.name, "sha256": sha256_file(first)},
    )
    result = replace(make("m"), per_query=scores, files=files, top=top)
    assert list(run_problems(file, result)) == []
    return list(rescored_problems(file, result))


def test_what_was_computed_by_hand_follows(tmp_path):
    best = {"q1": ["d1", "d3", "d2"], "q2": ["d1"]}
    assert problems(tmp_path) == []
    assert problems(tmp_path, top=best) == []
    assert problems(tmp_path, qrels=None) == []


@pytest.mark.parametrize("name", SCORES)
def test_another_score_is_named(tmp_path, name):
    found = problems(tmp_path, SCORES | {name: {"q1": 0.9, "q2": 0.0}})
    assert f"{name} of query 'q1' is 0.9, its run and its qrels give " in "\n".join(found)


@pytest.mark.parametrize("name", SCORES)
def test_a_query_without_a_score_is_named(tmp_path, name):
    found = problems(tmp_path, SCORES | {name: {"q1": SCORES[name]["q1"]}})
    assert any(problem.startswith(f"{name} has ") for problem in found)


@pytest.mark.parametrize("missing", ["MRR@10", "first MRR@10"])
def test_a_gain_is_the_difference_of_two_columns(tmp_path, missing):
    scores = {name: column for name, column in SCORES.items() if name != missing}
    words = "gain MRR@10: expected the columns MRR@10 and first MRR@10, too"
    assert problems(tmp_path, scores) == [words]


def test_qrels_without_a_line_are_not_as_if_none_were_kept(tmp_path):
    found = problems(tmp_path, qrels="")
    for name in SCORES.keys() - {"gain MRR@10"}:  # which follows from two columns
        assert f"{name} has scores of ['q1', 'q2'], which its qrels do not judge" in found


def test_a_gain_is_compared_without_qrels(tmp_path):
    scores = SCORES | {"gain MRR@10": {"q1": 0.9, "q2": 0.0}}
    (problem,) = problems(tmp_path, scores, qrels=None)
    assert "gain MRR@10 of query 'q1' is 0.9" in problem


@pytest.mark.parametrize("qrels", [QRELS, None])
def test_a_reranker_ranks_the_documents_of_its_first_stage(tmp_path, qrels):
    other = FIRST_RUN.replace("d2", "d4")
    (problem,) = problems(tmp_path, qrels=qrels, first_run=other)
    assert problem == "its run ranks other documents than those of its first stage"


@pytest.mark.parametrize(
    ("best", "query"),
    [
        ({"q1": ["d1", "d2", "d3"], "q2": ["d1"]}, "q1"),
        ({"q1": ["d1", "d3", "d2"], "q2": []}, "q2"),
        ({"q1": ["d1", "d3", "d2"]}, "q2"),
        ({"q1": ["d1", "d3"], "q2": ["d1"], "q3": ["d1"]}, "q3"),
    ],
)
def test_best_documents_are_the_first_of_the_run(tmp_path, best, query):
    found = problems(tmp_path, top=best)
    assert found == [f"its best documents of query {query!r} are not those of its run"]


def test_a_run_of_another_form_is_named(tmp_path):
    (problem,) = problems(tmp_path, first_run="q1 d1 3\n")
    assert problem == (
        "its run or its qrels cannot be read (first.trec: line 1 has 3 fields; expected 6)"
    )
