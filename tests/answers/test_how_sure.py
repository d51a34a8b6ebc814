"""Interval, difference and test in five steps, with the numbers of the other pages."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers import REPOSITORY
from helpers.answers import records
from helpers.records import RETRIEVAL, amend, make, state, tier_records

from qwen3nb import paths
from qwen3nb.analysis.comparison.plan import Plan
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.how_sure import RESAMPLES, how_sure, stacked_dots
from qwen3nb.answers.landing import headline_lead
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.records.results import Results

# Differences a - b of 0, 0.5, 0.25 and -0.25, whose mean is 0.125.
A, B = (1.0, 0.5, 0.75, 0.25), (1.0, 0.0, 0.5, 0.5)
TEXTS = {"q0": "sort a list", "q1": "open a file", "q2": "read a line", "q3": "join words"}


@pytest.fixture
def by_hand(home):
    """Two models on four queries."""
    both = [make("a", A), make("b", B)]
    for record in both:
        state(record, queries=TEXTS)
    return how_sure(both)


def cells(table):
    return [[cell.text for cell in row] for row in table.rows]


def test_step_1_shows_each_kind_of_query_once_and_the_means(by_hand):
    table = by_hand.queries_table()
    assert table.columns == ("query", "a", "b")
    assert [row[0].detail for row in table.rows[:-1]] == [
        "easy for both",
        "in between",
        "hard for both",  # also the one on which a wins most, which is not shown again
        "best for b",
    ]
    assert cells(table) == [
        ["sort a list", "1.000", "1.000"],
        ["read a line", "0.750", "0.500"],
        ["open a file", "0.500", "0.000"],
        ["join words", "0.250", "0.500"],
        ["mean over all 4 queries", "0.625", "0.500"],
    ]


def test_step_2_draws_as_many_queries_as_there_are(by_hand):
    means = by_hand.resampled_means()
    assert len(means) == RESAMPLES == 200
    quarters = means * 4 / 0.25  # sums of scores that are multiples of a quarter
    assert quarters == pytest.approx(np.rint(quarters))
    assert (means.min(), means.max()) >= (0.25, 0.25)
    assert len(set(means)) > 4
    low, high = by_hand.lead.record.main.low, by_hand.lead.record.main.high
    inside = sum(low <= mean <= high for mean in means)
    assert f"{inside} of 200 dots lie inside" in by_hand.resamples_figure().caption


def test_dots_of_one_column_are_stacked():
    x_values, levels = stacked_dots(np.array([0.0, 0.1, 1.0]), 2)
    assert x_values.tolist() == [0.25, 0.25, 0.75]
    assert levels.tolist() == [0.0, 1.0, 0.0]


def test_step_3_counts_wins_and_what_they_add(by_hand):
    assert cells(by_hand.wins_table()) == [
        ["a is better", "2", "+0.188"],  # (0.5 + 0.25) / 4
        ["both are equal", "1", "+0.000"],
        ["b is better", "1", "-0.062"],  # -0.25 / 4
        ["all", "4", "+0.125"],
    ]
    frame = by_hand.to_frame()
    assert frame["difference"].tolist() == [-0.25, 0.0, 0.25, 0.5]


def test_step_4_counts_all_sixteen_flips(by_hand):
    flipped = by_hand.flipped_differences()
    # Of ±0.5 ±0.25 ±0.25, six of eight sums are at least 0.5 from 0; the query without a difference
    # doubles both.
    assert (len(flipped.means), flipped.is_extreme.sum()) == (16, 12)
    assert sorted(set(flipped.means)) == [-0.25, -0.125, 0.0, 0.125, 0.25]
    assert by_hand.pair.p_value == 12 / 16
    assert "12 of 16" in by_hand.test_figure().caption
    assert "p = 0.7500" in by_hand.test_figure().caption


def test_step_5_has_p_alone_and_corrected_and_how_many_queries(by_hand):
    questions = dict(cells(by_hand.decision_table()))
    assert questions["p of this pair alone"] == questions["p corrected for so many"] == "0.7500"
    assert questions["pairs of models that are compared"] == "1"
    assert questions["queries there are"] == "4"
    deviation = float(np.std([0.0, 0.5, 0.25, -0.25], ddof=1))
    plan = Plan(baseline="b", models=("a",), tasks=(RETRIEVAL,), margin=0.125)
    needed = plan.needed(deviation)
    assert by_hand.queries_to_show() == needed
    assert questions["queries that would show a difference of 0.125"] == f"{needed}"
    assert 4 < needed < 200


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("clustered", [False, True])
def test_every_number_is_that_of_the_leaderboard(home, seed, clustered):
    several = records()
    for record in several:
        if clustered:
            clusters = {query: f"c{int(query[1:]) // 2}" for query in record.scores.queries}
            amend(record, "task", clusters=clusters)
    sure = how_sure(several, seed=seed)
    board = leaderboard(several, seed=seed)
    (name, second) = (sure.pair.first, sure.pair.second)
    assert sure.pair == board.comparison.difference(name, second, task=board.task)
    assert sure.pair.family == 3
    assert ("40 queries count as 20 groups" in sure.intervals_figure().caption) == clustered
    assert board.conclusion.strong[0] == name
    flipped = sure.flipped_differences()
    assert len(flipped.means) == 10_000
    assert (flipped.is_extreme.sum() + 1) / 10_001 == sure.pair.p_value
    share = np.mean(np.abs(flipped.means) >= abs(sure.pair.difference) - 1e-12)
    assert share == flipped.is_extreme.mean()


def test_the_verdict_is_in_plain_words(home):
    shown = how_sure([make("a", np.linspace(0.6, 0.9, 40)), make("b", np.linspace(0.2, 0.5, 40))])
    assert shown.conclusion.text == (
        "On Retrieval, a scores 0.750 and b 0.350, over the same 40 queries. The difference is "
        "+0.400; over all queries like these, it is likely between "
        f"{shown.pair.interval[0]:+.3f} and {shown.pair.interval[1]:+.3f}. "
        "These 40 queries show that a is better."
    )
    same = how_sure([make("a", A), make("b", A, identity="b" * 64)])
    assert "the same score on every query" in same.conclusion.text
    assert same.queries_to_show() is None
    assert Results([make("a", A), make("b", B)]).how_sure().pair.difference == 0.125
    assert same.test_figure().svg()
    single = how_sure([make("a", (0.5,)), make("b", (0.4,))])
    assert "A single query says nothing about others." in single.conclusion.text
    assert single._repr_html_()
    assert single.resamples_figure().svg()


def no_mean(label):
    record = make(label, A)
    metric = record.task.main_metric
    record.metrics[metric] = replace(record.metrics[metric], how="reported")
    return record


@pytest.mark.parametrize(
    "given", [[], [make("a", A)], [no_mean("a"), no_mean("b")]], ids=["none", "one", "no mean"]
)
def test_without_two_models_a_sentence_says_what_is_missing(home, given):
    sure = how_sure(given)
    assert sure.conclusion.text.startswith("This page needs two models")
    assert "`qwen3nb eval --tier smoke" in sure.conclusion.text
    tables = (sure.queries_table(), sure.wins_table(), sure.decision_table())
    assert [len(table) for table in tables] == [0, 0, 0]
    figures = (sure.resamples_figure(), sure.intervals_figure(), sure.test_figure())
    assert figures == (None, None, None)
    assert (sure.flipped_differences(), sure.queries_to_show()) == (None, None)
    assert sure.to_frame().empty


def test_a_mean_over_tasks_is_explained_on_one_of_them(home):
    full = [*tier_records("a", mean=0.6), *tier_records("b")]
    sure = how_sure(full, tier="full")
    assert sure.pair.task == sure.task
    assert sure.task in {record.task.key for record in full}
    assert sure.conclusion.text.endswith("a mean over several tasks; this is one.")


@pytest.mark.parametrize("width", [1, 2])
def test_figures_are_drawn_for_a_phone_and_for_a_page(by_hand, width):
    for figure in (by_hand.resamples_figure(), by_hand.intervals_figure(), by_hand.test_figure()):
        assert "<svg" in figure.svg(columns=width)
        for sentence in figure.caption.split(". "):
            assert len(sentence.split()) <= 25


def test_both_first_pages_link_to_it_only_if_the_book_has_it(home):
    two = [make("a", A), make("b", B)]
    notebook = paths.notebooks() / "sure.ipynb"
    assert leaderboard(two).conclusion.how_sure == ""
    assert "how sure" not in headline_lead(compare(two, tier="smoke"), task=RETRIEVAL)
    notebook.parent.mkdir(parents=True, exist_ok=True)
    notebook.write_text("{}")
    assert '<a href="sure.html">How sure is this?</a>' in leaderboard(two).conclusion._repr_html_()
    page = headline_lead(compare(two, tier="smoke"), task=RETRIEVAL, folder="runs/")
    assert '<a href="runs/sure.html">how sure?</a>' in page
    assert leaderboard(two[:1]).conclusion.how_sure == ""


def test_the_page_says_it_in_short_sentences():
    notebook = json.loads((REPOSITORY / "notebooks" / "sure.ipynb").read_text(encoding="utf-8"))
    paragraphs = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            paragraphs += "".join(cell["source"]).split("\n\n")
    steps = [each for each in paragraphs if re.match(r"## \d\.", each)]
    assert len(steps) == 5
    for paragraph in paragraphs:
        for sentence in re.split(r"(?<=[.?!:])\s", paragraph):
            assert len(sentence.split()) <= 25, sentence
        assert "$" not in paragraph
