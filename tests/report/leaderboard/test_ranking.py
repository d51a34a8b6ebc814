"""Ranks, tie groups and ranks by type of task, as tables and a figure."""

import pytest
from helpers.records import RERANKING, RETRIEVAL, amend, make, noisy, tier_records

from qwen3nb.report.leaderboard.board import leaderboard, rank_figure, rank_table, standings
from qwen3nb.tiers import BENCHMARKS, GROUPS


def test_ranks_have_intervals_and_ties_share_a_letter():
    results = [
        make(name, task=task, scores=noisy(mean, spread=0.05, seed=number))
        for number, (name, mean) in enumerate([("a", 0.8), ("b", 0.4), ("c", 0.4)])
        for task in (RETRIEVAL, RERANKING)
    ]
    for result in results:
        amend(result, "task", type="Reranking" if result.task.name == RERANKING else "Retrieval")
    boards = standings(results, tier="smoke")
    table = rank_table(boards)
    first, second, third = table.rows
    assert (first[0].text, first[1].text, first[1].detail) == ("a", "1", "1 to 1")
    assert (second[1].detail, third[1].detail) == ("2 to 3", "2 to 3")
    assert (first[1].mark, second[1].mark, third[1].mark) == ("", "a", "a")
    assert "share a letter" in table.caption
    tasks = ("Retrieval\nn = 40", "Reranking\nn = 40")
    assert table.columns[1:] == (*tasks, "all tasks\nmean of 2 tasks")
    assert "(Simpson's paradox): none." in table.note
    labels = [tick.get_text() for tick in rank_figure(boards).axes[0].get_yticklabels()]
    assert labels[0] == "a"
    assert set(labels) == {"a", "b", "c"}


def test_an_order_that_turns_round_in_a_type_is_flagged():
    means = {
        ("a", RETRIEVAL): 0.9,
        ("b", RETRIEVAL): 0.3,
        ("a", RERANKING): 0.3,
        ("b", RERANKING): 0.5,
    }
    results = []
    for (name, task), mean in means.items():
        result = make(name, task=task, scores=noisy(mean, seed=len(results)))
        amend(result, "task", type=task.removeprefix("PyDocsSample"))
        results.append(result)
    note = rank_table(standings(results, tier="smoke")).note
    assert "a is above b over all tasks" in note
    assert "below it in PyDocsSampleReranking" in note


def test_a_model_without_a_task_is_named_and_not_ranked():
    results = [make(n, task=t) for n in "ab" for t in (RETRIEVAL, RERANKING)]
    table = rank_table(standings([*results, make("c", task=RETRIEVAL)], tier="smoke"))
    assert "c is not ranked: no score on Reranking" in table.note
    *_, last = table.rows
    assert last[0].text == "c"
    assert last[1].text == "1"  # as good as the others, on the only task that it has
    assert [(cell.text, cell.detail) for cell in last[2:]] == [
        ("not ranked", "no score"),
        ("not ranked", "no score on Reranking"),
    ]
    alone = standings([make("a")], tier="smoke")
    assert alone is None
    assert rank_figure(alone) is None
    assert "two or more models" in rank_table(alone).note


def test_the_ranking_of_a_task_agrees_with_the_leaderboard():
    """A model that lacks a task leads the first one: it is row 1 of both tables."""
    means = {
        ("search", RETRIEVAL): 0.8,
        ("encoder", RETRIEVAL): 0.6,
        ("encoder", RERANKING): 0.5,
        ("other", RETRIEVAL): 0.4,
        ("other", RERANKING): 0.4,
    }
    results = [make(name, task=task, scores=noisy(mean)) for (name, task), mean in means.items()]
    ranks, scores = rank_table(standings(results, tier="smoke")), leaderboard(results, tier="smoke")
    models = ["search", "encoder", "other"]
    assert [row[0].text for row in ranks.rows] == [row[0].text for row in scores.rows] == models
    assert [row[1].text for row in ranks.rows] == ["1", "2", "3"]
    assert [row[3].text for row in ranks.rows] == ["not ranked", "1", "2"]


@pytest.mark.integration
def test_a_tier_with_benchmarks_is_ranked_within_each_and_never_over_several():
    without = ["CQADupstackGisRetrieval"]
    results = [
        *tier_records("good", mean=0.7),
        *tier_records("poor", mean=0.3, without=without),
    ]
    boards = standings(results, tier="full")
    assert list(boards.boards)[:3] == ["BEIR", "MS MARCO dev", "MTEB(eng, v2): Classification"]
    assert boards.overall is boards.boards["BEIR"]
    assert not {*GROUPS["CQADupstackRetrieval"]} & {*boards.overall.tasks}  # one forum is missing
    assert len(boards.overall.tasks) == 14
    assert "good" in rank_table(boards).rows[0][0].text
    assert "BEIR (14 tasks with scores of every model" in rank_figure(boards).caption
    table = rank_table(boards)
    assert table.columns[1] == "BEIR\nmean of 14 tasks"
    assert [row[0].text for row in table.rows] == ["good", "poor"]
    assert standings([], tier="full") is None


@pytest.mark.integration
def test_the_forums_of_a_group_weigh_as_one_task():
    results = [*tier_records("a", mean=0.6), *tier_records("b", mean=0.5)]
    records = {r.task.key: r.main.value for r in results if r.model.label == "a"}
    forums = [records[key] for key in GROUPS["CQADupstackRetrieval"]]
    others = [records[key] for key in BENCHMARKS["BEIR"].tasks if key in records]
    board = standings(results, tier="full").overall
    assert board.standings[0].mean == pytest.approx((sum(forums) / 12 + sum(others)) / 15)
