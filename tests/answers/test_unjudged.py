"""No door takes a decision that grades of unjudged documents could turn."""

import itertools
import json
import random
from dataclasses import replace
from statistics import fmean

import pytest
from helpers.records import amend, make, state

from qwen3nb.answers.candidates import compare_candidates
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.landing import landing_page
from qwen3nb.answers.own_data import own_data
from qwen3nb.answers.pull_request import pull_request
from qwen3nb.answers.recommendation import Case, own_sentences, recommend, sentences
from qwen3nb.answers.unjudged import metric_with_range, score_range
from qwen3nb.cli.commands import domain
from qwen3nb.evaluation import judged as kept_verdicts
from qwen3nb.evaluation.judged import JudgedVerdict
from qwen3nb.evaluation.retrieval.custom import judgements_of
from qwen3nb.metrics.aggregate import means
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.records.results import Results

METRICS = ("nDCG@10", "MRR@10", "Recall@20", "bpref", "Judged@10")
QUERIES = [f"q{number}" for number in range(30)]


def searched(label, qrels, rankings, *, complete=False, finished="2026-01-01"):
    """The record of rankings, as `qwen3nb domain` makes it."""
    run = {}
    for query, documents in rankings.items():
        run[query] = {document: -float(place) for place, document in enumerate(documents)}
    scores = score_run(qrels, run, METRICS, threshold=2)
    record = make(label, dict(scores["nDCG@10"]), task="domain-mine-1", finished=finished)
    record.per_query.update({metric: dict(scores[metric]) for metric in METRICS})
    record.metrics.update(means(record.per_query))
    amend(record, "task", dataset="domain-mine")
    judgements = None if complete else judgements_of(qrels, run)
    state(record, boosts={}, relevance_threshold=2, judgements=judgements, top=rankings)
    return record


def score(qrels, query, documents):
    """NDCG@10 of one query."""
    run = {query: {document: -float(place) for place, document in enumerate(documents)}}
    return score_run(qrels, run)["nDCG@10"][query]


def alike(*documents):
    """The same ranking for every query."""
    return dict.fromkeys(QUERIES, documents)


def study(*, unjudged, complete=False):
    """Two models: `new` finds the answer first; `old` finds it third, below two documents.

    These documents are ``unjudged``, or judged not relevant.
    """
    answer = {"answer": 3}
    others = {} if unjudged else {"a": 0, "b": 0, "c": 0}
    qrels = dict.fromkeys(QUERIES, answer | others)
    old = searched("old", qrels, alike("a", "b", "answer"), complete=complete)
    new = searched(
        "new",
        qrels,
        alike("answer", "c"),
        complete=complete,
        finished="2026-01-02",
    )
    return [old, new]


def landing(records):
    results = Results(records)
    return landing_page(results, results.leaderboard(tier="smoke"))["lead"]


COUNT = "90 of 120 results are unjudged"


def test_no_door_takes_what_unjudged_documents_could_turn():
    records = study(unjudged=True)
    decision = compare_candidates(records, current="old").decision
    assert decision.brief.startswith(f"No decision. {COUNT}, and their grades could turn every")
    assert decision.use == "old"
    assert own_data(records).conclusion.text == decision.brief
    text = compare(records, baseline="old").conclusion.text
    assert text.startswith("No decision between new and old on domain-mine-1: nDCG@10 1.000 ")
    assert f"{COUNT}, and their grades could turn it: `qwen3nb judge`" in text
    assert "better" not in text
    assert Results(records).compare("new", "old").conclusion.text.startswith("No decision between")
    found = recommend(compare(records), task="domain-mine-1")
    assert found.case is Case.UNJUDGED
    assert "No decision: <strong>new</strong> scores highest" in sentences(found)[0]
    page = landing(records)
    assert "no decision, <strong>old</strong> stays" in page
    assert COUNT in page
    assert set(compare(records).ties("domain-mine-1").best) == {"old", "new"}
    board = Results(records).leaderboard(tasks="domain-mine-1")
    assert COUNT in board.conclusion.text


@pytest.mark.parametrize("options", [{"unjudged": False}, {"unjudged": True, "complete": True}])
def test_what_is_judged_or_stated_complete_is_decided(options):
    records = study(**options)
    report = compare_candidates(records, current="old")
    assert report.decision.title == "Take new instead of old"
    assert not report.unjudged_ranges
    assert "Unjudged documents" not in report.tables()
    text = compare(records, baseline="old").conclusion.text
    assert text.startswith("new is better than old on domain-mine-1")
    assert "take <strong>new</strong> instead of old" in landing(records)
    assert recommend(compare(records), task="domain-mine-1").case is Case.CLEAR_LEAD


@pytest.mark.parametrize("metric", METRICS[:4])
def test_a_decision_by_any_metric_must_hold(metric):
    """Recall@20 ties here, and bpref has no range: nDCG@10 stands in for it."""
    decision = compare_candidates(study(unjudged=True), current="old", tested=[metric]).decision
    assert decision.use == "old"
    by_metric = compare(study(unjudged=True), baseline="old", metric=metric)
    assert "new is better" not in by_metric.conclusion.text
    names = ["MRR@10", "Recall@20", "bpref", "condensed_MRR@10", "nDCGexp@50", "MAP@10", "accuracy"]
    stand_ins = ["MRR@10", "Recall@10", "nDCG@10", "MRR@10", "nDCGexp@10", "nDCG@10", ""]
    assert [metric_with_range(name) for name in names] == stand_ins


def test_a_verdict_that_the_worst_grades_leave_is_given():
    """`old` misses the answer; whatever its documents are, `new` has the best ranking."""
    grades = {"answer": 3, "x": 0, "y": 0}
    qrels = dict.fromkeys(QUERIES, grades)
    old = searched("old", qrels, alike("x", "y", *"abcdefgh"))
    new = searched("new", qrels, alike("answer", "a"), finished="2026-01-02")
    report = compare_candidates([old, new], current="old", tested=["MRR@10"])
    assert report.decision.title == "Take new instead of old"
    found = report.unjudged_ranges["new"]
    # At best for it `a` is relevant, at rank 3.
    assert found.lowest == pytest.approx(1 - 1 / 3)
    assert found.highest == 1.0
    assert (found.turns, found.unjudged, found.results) == (False, 8 * 30, 11 * 30)
    (row,) = report.tables()["Unjudged documents"].rows
    assert "better: holds" in row[-1].text


def test_the_means_are_those_of_the_worst_and_the_best_grades_of_all():
    """By trying every grade of every unjudged document of two queries."""
    generator = random.Random(1)
    for _ in range(5):
        qrels = {"q0": {"a": 3, "b": 1}, "q1": {"c": 2, "d": 0}}
        rankings = [{query: generator.sample("abcdef", 4) for query in qrels} for _ in range(2)]
        first, second = (
            searched(label, qrels, ranking)
            for label, ranking in zip(("x", "y"), rankings, strict=True)
        )
        report = compare_candidates([second, first], current="y")
        lowest, highest, scores = [], [], []
        for query, judged in qrels.items():
            found = sorted({*rankings[0][query], *rankings[1][query]} - judged.keys())
            differences, own_scores = [], []
            for grades in itertools.product([0, 1, 2, 3], repeat=len(found)):
                every = {query: judged | dict(zip(found, grades, strict=True))}
                pair = [score(every, query, ranking[query]) for ranking in rankings]
                differences.append(pair[0] - pair[1])
                if all(
                    grade == 0 or document in rankings[0][query]
                    for document, grade in zip(found, grades, strict=True)
                ):
                    own_scores.append(pair[0])
            lowest.append(min(differences))
            highest.append(max(differences))
            scores.append((min(own_scores), max(own_scores)))
        found = report.unjudged_ranges["x"]
        assert (found.lowest, found.highest) == pytest.approx((fmean(lowest), fmean(highest)))
        of_score = score_range(first, "nDCG@10")
        ends = [fmean(values) for values in zip(*scores, strict=True)]
        assert [of_score.lowest, of_score.highest] == pytest.approx(ends)


def test_a_gate_fails_without_a_decision_and_says_so():
    old, new = study(unjudged=True)
    outcome = pull_request(new, old)
    assert outcome.title == f"Failed: no decision between old and new, as {COUNT}"
    (reason,) = outcome.reasons
    assert reason.startswith(f"old: no verdict, as {COUNT}")
    old, new = study(unjudged=False)
    assert pull_request(new, old).title.startswith("Failed: old is worse than new")


def test_the_report_has_the_ranges():
    report = compare_candidates(study(unjudged=True), current="old")
    content = json.loads(report.to_json())["comparison"]["unjudged"]
    assert [entry["model"] for entry in content] == ["new"]
    assert content[0]["turns"] is True
    assert set(content[0]["scores"]) == {"new", "old"}
    assert content[0]["lowest"] < 0 < content[0]["highest"]
    markdown = report.to_markdown()
    assert "## Unjudged documents" in markdown
    assert "| 90 of 120 |" in markdown
    table = own_data(study(unjudged=True)).unjudged_ranges_table()
    assert table.name == "own-unjudged-ranges"
    assert own_data(study(unjudged=False)).unjudged_ranges_table() is None


def test_a_metric_that_was_not_measured_says_how():
    records = study(unjudged=True)
    with pytest.raises(ValueError, match=r"Measure it: qwen3nb domain … --metric 'P\(rel=3\)@5'"):
        compare_candidates(records, current="old", tested=["P(rel=3)@5"])
    with pytest.raises(ValueError, match=r"no record of 'old' with bprf per query; available: new"):
        compare_candidates(records, current="old", tested=["bprf"])


def test_a_final_verdict_of_judge_stands_beside_no_decision(monkeypatch, capsys):
    """It rests on sampled grades, with a test of its own."""
    records = study(unjudged=True)
    judged = JudgedVerdict(
        collection="mine",
        text="Take new.",
        is_final=True,
        current="old",
        candidates=["new"],
        graders=["ann"],
        graded=9,
        pool=120,
        grades="grades.jsonl",
        grades_sha256="0",
        time="2026-01-31T00:00:00+00:00",
    )
    own = replace(own_data(records), judged=judged)
    assert own_sentences(own)[1] == "<code>qwen3nb judge</code> has decided: Take new."
    unsure = replace(own, judged=judged.model_copy(update={"is_final": False}))
    assert COUNT in own_sentences(unsure)[1]
    monkeypatch.setattr(kept_verdicts, "load_verdict", lambda name: {"mine": judged}[name])
    assert domain._print_verdict_of_judge(records)
    assert "`qwen3nb judge`, 2026-01-31: Take new." in capsys.readouterr().out
    assert not domain._print_verdict_of_judge(records[::-1])  # another model in use


def test_without_names_no_document_is_shared():
    records = study(unjudged=True)
    for record in records:
        state(record, top=None)
    found = compare_candidates(records, current="old").unjudged_ranges["new"]
    assert (found.unjudged, found.to_judge) == (90, ())
