"""Comparisons over many tasks: counts by type, a plot per model, a matrix per type."""

import pytest
from helpers.records import amend, benchmark_record, make

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.comparison.by_type import by_type_tables, overview_table
from qwen3nb.report.comparison.figures import differences_figure, pairs_figure
from qwen3nb.report.comparison.tables import differences_table, power_table
from qwen3nb.report.comparison.task_figures import task_differences_figure, wins_figure
from qwen3nb.report.render.sections import Sections
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import BENCHMARKS

KEYS = [*BENCHMARKS["MTEB(eng, v2)"].types["Clustering"], *BENCHMARKS["BEIR"].tasks[3:9]]


@pytest.fixture(scope="module")
def many():
    means = {"good": 0.7, "poor": 0.4}
    results = [benchmark_record(name, key, mean=m) for name, m in means.items() for key in KEYS]
    return compare(results, tasks=KEYS, baseline="poor", draws=500)


def table_note_names(table, task):
    return table.note.partition("Not counted")[2].endswith(f": {task}.")


def test_many_tasks_are_counted_by_type(many):
    table = overview_table(many)
    cells = [[cell.text for cell in row] for row in table.rows]
    assert [row[1:] for row in cells] == [["8", "8 / 0 / 0"], ["6", "6 / 0 / 0"]]
    assert [row[0].detail for row in table.rows] == ["Clustering", "Retrieval"]
    assert "Not counted" not in table.note
    alone = [make("a"), make("b"), make("b", task="Alone")]
    assert table_note_names(overview_table(compare(alone)), "Alone")


def test_a_difference_may_be_significant_on_its_task_only():
    """28 queries won and 12 lost of 40 have p = .02: tasks are corrected one by one."""
    tasks, results = [f"T{i}" for i in range(14)], []
    for task in tasks:
        won = 28 if task == "T0" else 20
        results += [
            make("base", scores=[0.5] * 40, task=task),
            make("new", scores=[0.6] * won + [0.4] * (40 - won), task=task),
        ]
    (row,) = overview_table(compare(results, tasks=tasks, baseline="base")).rows
    assert [cell.text for cell in row[1:]] == ["14", "1 / 13 / 0"]


def test_tables_of_many_tasks_are_split_by_type_and_of_few_are_not(many):
    for make_table in (differences_table, power_table):
        sections = by_type_tables(many, make_table)
        assert isinstance(sections, Sections)
        assert [(title, len(table)) for title, table in sections.tables] == [
            ("Clustering (8 tasks)", 8), ("Retrieval (6 tasks)", 6),
        ]  # fmt: skip
    few = compare([make("a"), make("b", scores=(0.1, 0.3, 0.5))])
    assert isinstance(by_type_tables(few, differences_table), Table)


def test_figures_of_many_tasks_have_a_panel_per_model_and_per_type(many):
    (axis,) = differences_figure(many).axes
    assert axis.get_title() == "good"
    assert len(axis.get_yticks()) == len(KEYS)
    panels = pairs_figure(many).axes
    assert [panel.get_title() for panel in panels] == ["Clustering, 8 tasks", "Retrieval, 6 tasks"]
    assert sorted(text.get_text() for text in panels[0].texts) == ["0", "8"]


def test_types_follow_the_records(many):
    result = make("x")
    amend(result, "task", type="STS")
    assert overview_table(compare([result])).rows == ()


def test_of_many_models_the_best_are_shown_and_the_others_counted():
    names = [f"m{i:02d}" for i in range(33)]
    results = [make(n, [0.1 + 0.02 * i, 0.3, 0.2], task="T") for i, n in enumerate(names)]
    comparison = compare(results, baseline="m00", draws=20)
    assert len(overview_table(comparison)) == 30
    assert len(overview_table(comparison, most=99)) == 32
    figures = [
        differences_figure(comparison),
        pairs_figure(comparison),
        task_differences_figure(comparison, task="T"),
        wins_figure(comparison, task="T"),
    ]
    left_out = ("2 others are", "3 others are", "2 others are", "2 others are")
    for figure, words in zip(figures, left_out, strict=True):
        assert figure.caption.endswith(f" Only the best models are shown, {words} not.")
    assert "too many" not in figures[1].caption  # as more than 20 are drawn
    assert "m02" not in figures[0].alt
    table = differences_table(comparison, models=comparison.leaders(30))
    assert len(table) == 30
    assert "2 others are not. `qwen3nb tables` writes the rows of all." in table.note
    assert "others are" not in differences_table(comparison).note
