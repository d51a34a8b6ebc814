"""Which model to use: by the differences of records made here, and what hides behind them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from helpers.records import amend, make, state

from qwen3nb.analysis.comparison.alignment import nothing_found, without_result
from qwen3nb.answers.candidates import compare_candidates
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.decision import Cost, cheapest, decide
from qwen3nb.answers.doubts import (
    judged_share,
    saturation,
)
from qwen3nb.datasets.judgements import nothing_found_by
from qwen3nb.metrics.aggregate import means
from qwen3nb.metrics.retrieval import METRICS, NOTHING_FOUND, score_run

N = 40
HARD = np.random.default_rng(5).uniform(0.2, 0.5, N)


def record(label, gain, *, seconds=None, dimensions=None, spread=0.0, **changes):
    """A record on own data whose scores are ``gain`` above those of the hard queries."""
    noise = np.random.default_rng(sum(label.encode())).normal(0, spread, N)
    scores = {f"q{n}": float(score) for n, score in enumerate(HARD + gain + noise)}
    result = make(label, scores, task="mine", metric="MRR@10", **changes)
    result.per_query["nDCG@10"] = dict(scores)
    result.metrics["nDCG@10"] = result.metrics["MRR@10"]
    state(result, seconds_per_query=seconds)
    state(result, dimensions=dimensions)
    return result


def decision_of(*records, **options):
    return compare_candidates(records, current="now", **options).decision


def test_of_candidates_that_cannot_be_told_apart_the_cheapest_is_taken():
    now = record("now", 0.0, seconds=1.0, dimensions=100)
    large = record("large", 0.302, spread=0.05, seconds=0.9, dimensions=100)
    small = record("small", 0.3, spread=0.05, seconds=0.1, dimensions=100)
    decision = decision_of(now, large, small)
    assert decision.use == "small"
    (rival,) = decision.rivals
    assert (rival.first, rival.second, rival.significant(0.05)) == ("small", "large", False)
    assert "Not told apart from small: large (MRR@10 " in decision.text
    assert "It is the cheaper one" in decision.text
    far = record("far", 0.45, spread=0.05, seconds=9.0, dimensions=9000)
    decision = decision_of(now, large, small, far)
    assert (decision.use, decision.rivals) == ("far", ())  # shown to be better than the cheap ones
    assert set(decision.also_better) == {"large", "small"}


def test_without_a_better_candidate_the_model_in_use_wins_the_tie():
    cheap = record("cheap", 0.001, spread=0.02, seconds=0.001, dimensions=8)
    decision = decision_of(record("now", 0.0, seconds=9.0, dimensions=999), cheap)
    assert decision.use == "now"
    assert "Not told apart from now: cheap" in decision.text


@pytest.mark.parametrize(
    ("costs", "left"),
    [
        ([(1.0, 400), (0.1, 800)], ["b"]),  # the fastest, whatever its size
        ([(0.10, 400), (0.11, 100)], ["b"]),  # as fast: the smaller
        ([(0.10, 400), (0.11, 400)], ["a", "b"]),
        ([(None, 400), (0.1, 800)], ["a"]),  # seconds of one alone do not decide
        ([(1.0, None), (1.0, 0)], ["a", "b"]),
        ([(None, None), (None, None)], ["a", "b"]),
    ],
)
def test_seconds_per_query_go_before_bytes_per_vector(costs, left):
    named = {name: Cost(*cost) for name, cost in zip("ab", costs, strict=True)}
    assert cheapest(["a", "b"], named) == left


def test_timings_of_two_machines_do_not_decide():
    now = record("now", 0.0, seconds=1.0, dimensions=100)
    large = record("large", 0.3, spread=0.05, seconds=0.01, dimensions=100)
    small = record("small", 0.3, spread=0.05, seconds=0.02, dimensions=10)
    assert decision_of(now, large, small).use == "large"
    amend(large, "environment", platform="elsewhere")
    assert decision_of(now, large, small).use == "small"


def test_a_metric_at_its_ceiling_names_the_next_one():
    now, new = record("now", 0.0), record("new", 0.2)
    for each in (now, new):
        each.per_query["MRR@10"] = dict.fromkeys(each.per_query["MRR@10"], 1.0)
    report = compare_candidates([now, new], current="now")
    text = report.decision.text
    assert report.decision.use == "now"
    assert "MRR@10 is at its ceiling: every model has 1 on 40 of 40 queries" in text
    assert "Look at nDCG@10 instead: new: nDCG@10 0.5" in text
    assert "The metrics disagree: new is better by nDCG@10" in text
    assert "use more queries" not in report.caution
    assert report.saturation.end == "ceiling"
    comparison = compare([record("now", 0.0), record("new", 0.2)], baseline="now")
    assert saturation(comparison.tasks[0]) is None
    zeros = [make(name, dict.fromkeys(map(str, range(9)), 0.0)) for name in ("a", "b")]
    assert saturation(compare(zeros, baseline="a").tasks[0]).end == "floor"


def test_the_metrics_agree_or_the_verdict_says_so():
    now, new = record("now", 0.0), record("new", 0.2)
    assert "disagree" not in decision_of(now, new).text
    new.per_query["nDCG@10"] = dict(now.per_query["nDCG@10"])
    decision = decision_of(now, new)
    assert decision.use == "new"
    assert "The metrics disagree: it is not shown to be better by nDCG@10" in decision.text
    new.per_query["MRR@10"], new.per_query["nDCG@10"] = (
        dict(now.per_query["MRR@10"]),
        record("new", 0.2).per_query["nDCG@10"],
    )
    decision = decision_of(now, new)
    assert decision.use == "now"
    assert "The metrics disagree: new is better by nDCG@10" in decision.text


def with_nothing(result, queries):
    """The record with no document for some queries, which score 0."""
    for column in result.per_query.values():
        column.update(dict.fromkeys(queries, 0.0))
    state(result, top={query: [] if query in queries else ["d"] for query in column})
    amend(result, "task", counts={NOTHING_FOUND: len(queries)})
    return result


def test_no_verdict_rests_on_queries_for_which_nothing_was_found():
    half = [f"q{n}" for n in range(20)]
    new = record("new", 0.01)
    decision = decision_of(with_nothing(record("now", 0.0), half), new)
    assert decision.use == "now"
    why = "new: now found nothing for 20 of 40 queries, on which the difference rests"
    assert decision.undecided == (why,)
    assert "no candidate has a verdict" in decision.text
    report = compare_candidates([record("now", 0.0), with_nothing(new, half)], current="now")
    assert [each.verdict for each in report.recommendations] == ["no verdict"]
    assert report.regressions  # a gate does not pass on what was not found
    # Better on the others, too: named, and taken.
    decision = decision_of(with_nothing(record("now", 0.0), half[:3]), record("new", 0.3))
    assert decision.use == "new"
    assert "now found nothing for 3 of 40 queries" in decision.text


def test_queries_without_documents_are_those_of_the_record_or_of_its_count():
    result = with_nothing(record("m", 0.0), ["q3", "q5"])
    assert nothing_found(result, "MRR@10") == ("q3", "q5")
    state(result, top=None)
    assert nothing_found(result, "MRR@10") == ("q3", "q5")
    amend(result, "task", counts={})
    assert nothing_found(result, "MRR@10") == ()


def test_a_search_that_found_nothing_is_compared_on_no_page():
    now, empty = record("now", 0.1), with_nothing(record("empty", 0.0), [f"q{n}" for n in range(N)])
    comparison = compare([now, empty, record("other", 0.2)], baseline="now")
    assert {each.first for each in comparison.differences} == {"other"}
    assert "mine: empty found nothing for any query, so there is no verdict" in comparison.notes


class Unread(dict):
    """Rankings that must not be read."""

    def __contains__(self, query):
        raise AssertionError(f"the ranking of {query} was read")


def test_scores_above_zero_tell_that_something_was_found():
    """The rankings say the same, for any measure: without documents, no score is above 0."""
    found = record("found", 0.1)
    state(found, top=Unread(q0=["d"]))
    assert without_result(found, "MRR@10") == ""
    names = [f"{name}@10" if metric.has_depth else name for name, metric in METRICS.items()]
    nothing = score_run({"q": {"d": 1, "e": 0}}, {"q": {}}, names)
    assert len(nothing) == len(METRICS)
    assert {name: value for name, value in dict(nothing).items() if value["q"] > 0} == {}


def test_a_fusion_with_an_empty_half_gets_no_verdict():
    now, both = record("now", 0.0), record("both", 0.3)
    amend(both, "task", counts={nothing_found_by("bm25"): N})
    with pytest.raises(ValueError, match=r"which is a fusion of which bm25 found nothing for any"):
        compare_candidates([now, both], current="now")
    amend(both, "task", counts={nothing_found_by("bm25"): N - 1})
    decision = decision_of(now, both)
    assert decision.use == "both"  # and it is named
    assert "queries for which bm25, a part of the fusion, retrieved nothing: 39" in decision.text


def test_at_a_ceiling_of_every_metric_none_is_named():
    now, new = record("now", 0.0), record("new", 0.2)
    for each in (now, new):
        for column in each.per_query.values():
            column.update(dict.fromkeys(column, 1.0))
    assert "No other metric tells the models apart" in decision_of(now, new).text


def judged(result, first, *, relevant=(3,)):
    """The record with the grades of each query's first documents."""
    queries = result.per_query["MRR@10"]
    state(result, judgements={q: {"first": first, "ideal": [*relevant]} for q in queries})
    share = sum(grade >= 0 for grade in first) / len(first)
    result.per_query["Judged@10"] = dict.fromkeys(queries, share)
    result.metrics.update(means({"Judged@10": result.per_query["Judged@10"]}))
    return result


def test_no_verdict_that_unjudged_documents_could_turn():
    now, new = judged(record("now", 0.3), [0, 3]), judged(record("new", 0.0), [-1, -1, 0, 3])
    state(new, top={query: ["a", "b", "c", "d"] for query in new.per_query["MRR@10"]})
    report = compare_candidates([now, new], current="now")
    decision = report.decision
    assert (decision.title, decision.use) == ("No decision", "now")
    (why,) = decision.undecided
    assert why.startswith(
        "new: 80 of 240 results are unjudged, and their grades could turn it. At worst, MRR@10 "
        "would differ by +0."
    )
    assert why.endswith(". Judge first a for q0, a for q1, a for q10 and 37 more")
    assert decision.brief == (
        "No decision. 80 of 240 results are unjudged, and their grades could turn every verdict: "
        "`qwen3nb judge` asks for the grades that matter."
    )
    assert "Judged@10: 0.50 (new), 1.00 (now)" in decision.text
    assert "If what has no judgement is not relevant, new is worse: MRR@10 0." in decision.text
    assert [each.verdict for each in report.recommendations] == ["no verdict"]
    assert report.regressions  # worse as recorded
    (row,) = report.tables()["Recommendation"].rows
    assert "0.50" in [cell.text for cell in row]
    assert judged_share(new) == 0.5
    assert "Judged@10" not in {each.metric for each in report.comparison.differences}


@pytest.mark.parametrize(
    ("now", "new", "title"),
    [
        ([0, 3], [3, 0], "Take new instead of now"),  # all judged
        ([0, 3], [3, -1], "Take new instead of now"),  # the winner's could only help it
        ([-1, 3], [3, 0], "No decision"),
        ([0, 3, -1], [3, 0], "Take new instead of now"),  # below the first relevant one
    ],
)
def test_only_what_could_help_the_loser_turns_a_verdict(now, new, title):
    records = judged(record("now", 0.0), now), judged(record("new", 0.3), new)
    report = compare_candidates(records, current="now", tested=["MRR@10"])
    assert report.decision.title == title
    assert not report.regressions  # better as recorded, so a gate passes


def test_what_is_not_shown_is_no_claim_that_could_turn():
    new = judged(record("new", -0.08, spread=0.3), [-1, 3])
    decision = compare_candidates(
        [judged(record("now", 0.0), [-1, 3]), new], current="now"
    ).decision
    assert decision.title == "Keep now"
    assert decision.undecided == ()


def test_a_verdict_must_be_shown_without_the_queries_for_which_nothing_was_found():
    """Of 40 queries 32 are missed; on the other 8 the candidate gains 0.2 on average, p = 0.29."""
    rest = [f"q{n}" for n in range(32, 40)]
    now, new = record("now", 0.0), record("new", 0.0)
    for query, gain in zip(rest, [0.5, -0.3, 0.6, -0.2, 0.6, -0.1, 0.7, -0.2], strict=True):
        new.per_query["MRR@10"][query] = now.per_query["MRR@10"][query] + gain
    gains = [0.5, -0.3, 0.6, -0.2, 0.6, -0.1, 0.7, -0.2]
    flips = np.array(list(itertools.product([1, -1], repeat=8))) @ gains
    assert np.mean(np.abs(flips) >= sum(gains) - 1e-9) > 0.05  # exact, by hand
    assert np.mean(gains) > 0.05
    now = with_nothing(now, [f"q{n}" for n in range(32)])
    decision = decision_of(now, new, tested=["MRR@10"])
    assert decision.title == "No decision"
    assert "now found nothing for 32 of 40 queries, on which the difference rests" in decision.text


def test_the_decision_is_a_value():
    comparison = compare([record("now", 0.0), record("new", 0.3)], baseline="now")
    (task,) = comparison.tasks
    costs = {"now": Cost(), "new": Cost()}
    decision = decide(task, task.with_baseline, comparison=comparison, costs=costs)
    assert (decision.use, decision.current, decision.title) == (
        "new",
        "now",
        "Take new instead of now",
    )
    assert str(decision).startswith("Take new instead of now: MRR@10 0.")
    doubted = decide(
        task, task.with_baseline, comparison=comparison, costs=costs, doubts={"new": "why"}
    )
    assert (doubted.use, doubted.undecided) == ("now", ("new: why",))
    assert replace(decision, remarks=("Mind this",)).text.endswith(". Mind this.")
