"""One paired difference has one interval and one p-value, on every page that shows it."""

import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.records import make

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.card.card import limitations
from qwen3nb.report.comparison.candidates import compare_candidates
from qwen3nb.report.comparison.compare import (
    differences_figure,
    differences_table,
    lead_figure,
    pairs_figure,
    task_differences_figure,
    wins_figure,
)
from qwen3nb.report.headline import headline_lead
from qwen3nb.report.paper import Choice, PaperContents
from qwen3nb.utils.format import interval_text, minus_signs, p_value_text

TASKS = ("PyDocsSampleRetrieval", "PyDocsSampleReranking", "PyDocsSampleClassification")
SMOKE = Choice(tier="smoke")
MEANS = {"leader": 0.50, "second": 0.49, "bm25": 0.48, "random": 0.20}


@pytest.fixture(scope="module")
def results():
    """Four models on three tasks; one of them lacks some queries, one is known by two labels."""
    generator = np.random.default_rng(7)
    records = []
    for task in TASKS:
        base = generator.uniform(0, 1, 60)
        for label, mean in MEANS.items():
            scores = np.clip(base + generator.normal(mean - 0.5, 0.08, 60), 0, 1)
            records.append(make(label, task=task, scores=scores[: 50 if label == "random" else 60]))
    twin = make("twin", task=TASKS[0], identity=records[1].model.identity, finished="2025-01-01")
    twin.per_query["nDCG@10"].update(records[1].per_query["nDCG@10"])
    return [*records, twin]


@pytest.fixture(scope="module")
def comparison(results):
    return compare(results, tier="smoke")


def test_the_comparison_computes_each_difference_once(comparison):
    assert comparison.baseline == "leader"
    assert comparison.on(TASKS[0]).with_baseline is comparison.tasks[0].with_baseline
    assert comparison.on(TASKS[0]).family == comparison.differences[0].family == 6
    assert len(comparison.differences) == 9


@pytest.mark.integration
@pytest.mark.parametrize("task", TASKS)
def test_tables_and_figures_show_the_same_numbers(comparison, results, task):
    expected = {each.first: each for each in comparison.on(task).with_baseline}
    paper = PaperContents(results, SMOKE).tables()
    tables = [each for each in paper if each.name == f"differences-{task}"]
    for table in (*tables, differences_table(comparison, task=task)):
        assert {row[0].text for row in table.rows} == set(expected)
        for row in table.rows:
            each = expected[row[0].text]
            assert (row[1].value, row[1].interval) == (each.difference, each.interval)
            assert row[1].detail == interval_text(each.interval)
            assert row[2].value == each.corrected
            assert row[2].detail == f"raw {p_value_text(each.p_value)}"
            assert row[5].text == str(each.n)
    axis = task_differences_figure(comparison, task=task).axes[0]
    marks = [line for line in axis.lines if line.get_marker() != "None"]
    assert sorted(float(m.get_xdata()[0]) for m in marks) == pytest.approx(
        sorted(each.difference for each in expected.values())
    )
    ends = [tuple(line.get_xdata()) for line in axis.lines if len(line.get_xdata()) == 2]
    for each in expected.values():
        assert any(pair == pytest.approx(each.interval) for pair in ends)
    filled = sum(m.get_markerfacecolor() != "none" for m in marks)
    assert filled == sum(each.significant(0.05) for each in expected.values())
    for figure in (task_differences_figure(comparison, task=task), differences_figure(comparison)):
        assert all(str(each) in figure.alt for each in expected.values())


def test_the_number_of_pairs_in_the_text_is_that_of_the_models(comparison, results):
    for task in TASKS:
        table = differences_table(comparison, task=task)
        figure = task_differences_figure(comparison, task=task)
        for text in (table.note, figure.caption):
            assert re.search(r"over all (\d+) pairs of the models", text)[1] == "6"
        assert len(wins_figure(comparison, task=task).alt.split(";")) == len(table.rows)
    for text in (differences_table(comparison).note, differences_figure(comparison).caption):
        assert re.search(r"on each task \(([\d, ]+)\)", text)[1] == "6, 6, 6"
    captions = {name: figure.caption for name, figure in PaperContents(results, SMOKE).figures()}
    assert captions["differences"] == differences_figure(comparison).caption
    pairs = [each for task in comparison.tasks for each in task.outcomes]
    undecided = sum(not each.significant for each in pairs)
    assert f"{undecided} of {len(pairs)} pairs" in pairs_figure(comparison).alt


def test_the_landing_page_shows_them_too(comparison, home):
    each = comparison.on(TASKS[0]).with_baseline[0].reversed()  # leader minus best other
    page = headline_lead(comparison, task=TASKS[0])
    ends = interval_text(each.interval, sign=False)
    assert minus_signs(f"{each.difference:.3f} {ends}") in page
    shown = "a difference that these" if each.significant(0.05) else "not a difference that these"
    assert f"{shown} {each.n} queries" in page
    assert f"{each.second}: {-each.difference:+.3f}" in lead_figure(comparison, task=TASKS[0]).alt


def test_the_card_shows_the_same_numbers(comparison, results):
    own = [result for result in results if result.model.label == "second"]
    sentences = {text.partition(":")[0]: text for text in limitations(own, comparison)}
    for task in TASKS:
        each = comparison.difference("second", "bm25", task=task)
        assert (task in sentences) == (not each.significant(0.05) or each.difference < 0)
        assert task not in sentences or str(each) in sentences[task]
    assert set(sentences) & set(TASKS), "nothing to compare in this test"


def test_candidates_show_the_same_numbers(results):
    alone = [result for result in results if result.task.name == TASKS[0]]
    comparison = compare(alone, baseline="leader")
    report = compare_candidates(alone, current="leader", tested=("nDCG@10",), task=TASKS[0])
    assert report.comparison.differences == comparison.differences
    shown = {row[1].text: row for row in report.tables()["Differences"].rows}
    differences = {each.first: each for each in comparison.differences}
    for verdict in report.recommendations:
        each = differences[verdict.model]
        assert shown[each.first][3].detail == interval_text(each.interval)
        assert shown[each.first][4].value == each.corrected
        p = p_value_text(each.corrected, relation=True)
        assert f"corrected p {p}, n = {each.n}" in verdict.text
    assert "over all 6 pairs" in report.tables()["Recommendation"].note


def test_other_models_and_tasks_change_no_interval_and_no_raw_p_value(comparison, results):
    pair = [r for r in results if r.model.label in ("leader", "second") and r.task.name == TASKS[0]]
    (alone,) = compare(pair, baseline="leader").differences
    among = comparison.difference("second", "leader", task=TASKS[0])
    assert among == comparison.difference("twin", "leader", task=TASKS[0])
    corrected = {"corrected": among.corrected, "family": among.family}
    assert replace(alone, first=among.first, **corrected) == among
    on_one_task = compare(results, tasks=[TASKS[0]], baseline="leader")
    assert on_one_task.differences == comparison.on(TASKS[0]).with_baseline


def test_a_p_value_at_the_floor_of_the_draws_is_a_bound(comparison):
    each = comparison.difference("random", "leader", task=TASKS[0])
    assert each.p_value == 1 / (comparison.procedure.draws + 1)
    (row,) = (r for r in differences_table(comparison, task=TASKS[0]).rows if r[0].text == "random")
    assert (row[2].text, row[2].detail) == ("<0.001", "raw <0.001")
