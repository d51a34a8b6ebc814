"""Tables of a comparison: differences, power, correlations, counts by type, changed queries."""

import numpy as np
import pytest
from helpers.records import amend, benchmark_record, make, three_models
from helpers.search_texts import search_texts

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.comparison.compare import (
    breakdown_table,
    by_type_tables,
    changes_table,
    correlations_table,
    differences_figure,
    differences_table,
    overview_table,
    pairs_figure,
    power_table,
    task_differences_figure,
    wins_figure,
)
from qwen3nb.report.comparison.explorer import top_documents
from qwen3nb.report.render.sections import Sections
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import BENCHMARKS

KEYS = [*BENCHMARKS["MTEB(eng, v2)"].types["Clustering"], *BENCHMARKS["BEIR"].tasks[3:9]]
TASK = "PyDocsSampleRetrieval"
TEXTS = search_texts({f"q{i}": f"{i} " + "which method sorts a list? " * 9 for i in range(40)})


def compared(**more):
    return compare(three_models(), tier="smoke", baseline="now", **more)


def test_differences_with_what_the_queries_can_show():
    comparison = compared()
    good, same = differences_table(comparison).rows
    assert (good[0].text, good[2].strong, good[4].text) == ("good", True, "40 / 0 / 0")
    assert (same[0].text, same[2].strong) == ("same", False)
    assert "Holm over all 3 pairs of the models compared" in differences_table(comparison).note
    assert len(comparison.tasks[0].outcomes) == 3
    power = power_table(comparison).rows
    assert [row[1].text for row in power] == ["better", "not shown"]
    assert (power[0][4].text, power[1][4].value > 40) == ("–", True)
    assert power[1][2].strong
    assert not power_table(compared(minimum=0.2)).rows[1][2].strong
    assert breakdown_table(comparison) is correlations_table(comparison) is None


def test_correlations_are_compared_by_pairs_of_texts():
    gold = np.linspace(0, 5, 60)

    def scored(label, spread):
        cosine = gold + np.random.default_rng(1).normal(0, spread, 60)
        result = make(label, task="AuthorSTS", metric="cosine", scores=cosine)
        result.per_query["gold"] = {f"q{i}": float(v) for i, v in enumerate(gold)}
        amend(result, "task", main_metric="Spearman")
        return result

    (row,) = correlations_table(
        compare([scored("a", 5.0), scored("b", 0.1)], tier="smoke", baseline="b")
    ).rows
    assert row[0].text == "a"
    assert float(row[1].text) < -0.2
    assert row[2].strong


def test_unpaired_queries_are_counted():
    first, second = make("a", scores=(0.9, 0.8, 0.7, 0.6)), make("b", scores=(0.5, 0.4, 0.3))
    table = differences_table(compare([first, second], baseline="b"))
    (row,) = table.rows
    assert row[1].text == "+0.400"
    assert row[4].text == "3 / 0 / 0"
    assert (row[5].text, row[5].detail) == ("3", "1 unpaired")
    assert "No two models" in differences_table(compare([]), task="x").note


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
            ("Clustering (8 tasks)", 8),
            ("Retrieval (6 tasks)", 6),
        ]
    few = compare([make("a"), make("b", scores=(0.1, 0.3, 0.5))])
    assert isinstance(by_type_tables(few, differences_table), Table)


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


def test_figures_of_many_tasks_have_a_panel_per_model_and_per_type(many):
    (axis,) = differences_figure(many).axes
    assert axis.get_title() == "good"
    assert len(axis.get_yticks()) == len(KEYS)
    panels = pairs_figure(many).axes
    assert [panel.get_title() for panel in panels] == ["Clustering, 8 tasks", "Retrieval, 6 tasks"]
    assert sorted(text.get_text() for text in panels[0].texts) == ["0", "8"]


def changed(**more):
    comparison = compare(three_models(), tier="smoke", baseline="now")
    return changes_table(comparison, texts=TEXTS, **more)


def test_changed_queries_have_their_text_beside_the_id():
    table = changed()
    assert len(table.rows) == 6
    assert len(table.columns) == 3  # no record keeps its documents
    query = table.rows[0][1]
    assert query.text.startswith(f"{query.detail.removeprefix('q')} which method")
    assert (len(query.text), query.text[-1], query.link) == (80, "…", "")
    assert "the 2 models nearest to now and now itself differ most" in table.caption


def test_changed_queries_of_the_task_that_the_explorer_shows_link_there():
    row = changed(explorer=TASK).rows[0]
    assert row[1].link == f"explorer.html#q={row[1].detail}&a={row[0].text}&b=now"
    assert changed(explorer="SciFact").rows[0][1].link == ""


def test_top_documents_are_shown_where_no_link_leads_to_them():
    results = [make("a", (0.1, 0.5)), make("b", (0.2, 0.9))]
    results[0].config["top"] = {"q0": ["d1", "d2"], "q1": ["d3", "d4"]}
    comparison = compare(results, baseline="b")
    row = changes_table(comparison, texts=TEXTS).rows[0]
    assert [cell.text for cell in row][3:] == ["d3, d4", ""]
    assert len(changes_table(comparison, texts=TEXTS, explorer=TASK).columns) == 3


def test_the_parts_of_a_task_have_the_rankings_of_the_whole():
    """Their queries have no prefix, the record's rankings have."""
    result = make("a")
    amend(result, "task", splits=("test",), subsets=("en",))
    result.config["top"] = {"test/en/q0": ["d"], "test/de/q0": ["e"]}
    assert top_documents(result, "q0") == ["d"]
    assert top_documents(result, "test/de/q0") == ["e"]
    assert top_documents(result, "q1") == []


def test_without_texts_the_ids_remain_and_a_note_says_why():
    results = [
        make(name, scores, task="NoSuchTask")
        for name, scores in (("a", (0.1, 0.5, 0.3)), ("b", (0.2, 0.4, 0.9)))
    ]
    table = changes_table(compare(results, baseline="a"))
    assert [row[1].text for row in table.rows] == ["q2", "q0", "q1"]
    assert table.rows[0][1].detail == ""
    assert table.note.startswith("Query texts are not available: unknown task")
