"""All models of a tier: tables and figures of tasks, and of the means of benchmarks."""

import re

import pytest
from helpers.records import TYPES, amend, make, tier_records

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.report.leaderboard.board import (
    bars_figure,
    comparison_figure,
    cost_table,
    headline_table,
    headline_task,
    leaderboard,
    task_tables,
)
from qwen3nb.report.leaderboard.one_model import per_query_figure, similarity_figure
from qwen3nb.report.render.format import short_task
from qwen3nb.tiers import GROUPS, TIERS


def test_the_comparison_names_what_is_missing_and_marks_the_best():
    bm25 = make("bm25", scores=(0.9, 0.9, 0.9), settings={"model": {"kind": "bm25"}})
    sts = make("m", task="AuthorSTS")
    table = leaderboard([make("m"), bm25, sts], tier="smoke", links={"run-m": "m.html"})
    assert [row[0].text for row in table.rows] == ["bm25", "m"]
    first, second = table.rows
    assert (first[1].text, first[1].strong) == ("0.900", True)
    assert (second[1].text, second[1].strong) == ("0.500", False)
    assert second[1].link == "m.html#score-pydocssampleretrieval"
    assert re.fullmatch(r"\[0\.\d{3}, [01]\.\d{3}\]", second[1].detail)
    assert first[5].text == "no vectors"
    assert second[2].text == "not run"
    assert table.columns[1] == "Retrieval\nnDCG@10, n = 3"
    constant = {"cosine": dict.fromkeys("abc", 0.5), "gold": {"a": 1, "b": 2, "c": 3}}
    sts.metrics["nDCG@10"] = aggregate(constant, how="spearman", columns=("cosine", "gold"))
    (row,) = leaderboard([sts], tier="smoke").rows
    assert (row[5].text, "constant" in row[5].detail) == ("undefined", True)


def test_figures_are_made_and_closed():
    import matplotlib.pyplot as plt

    mine = plt.figure()
    results = [make("m"), make("n", scores=(0.1, 0.2, 0.3)), make("m", task="AuthorSTS")]
    figure = comparison_figure(results, tier="smoke")
    assert len(figure.axes) == 5
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["n", "m"]
    assert bars_figure(results, tier="fast") is None
    assert len(per_query_figure(results).axes) == 3
    assert per_query_figure([]) is None
    assert similarity_figure(results) is None
    assert plt.get_fignums() == [mine.number]
    plt.close(mine)


def test_the_headline_is_the_task_of_most_models_or_the_means_of_benchmarks():
    first, second = TIERS["smoke"].task_keys[:2]
    results = [make("a", task=second), make("b", task=second), make("b", task=first)]
    assert headline_task(results, tier="smoke") == second
    assert headline_task(results[1:], tier="smoke") == first
    assert headline_table(results, tier="smoke").columns[1].startswith(short_task(second))
    full = headline_table(tier_records("m"), tier="full").columns
    assert full[1].split("\n")[0] == "BEIR"
    assert full[-1].split("\n")[0] == "MTEB(eng, v2) Mean (TaskType)"
    assert len(full) == 6
    assert "No results" in headline_table([], tier="smoke").note


def test_one_content_under_two_labels_has_one_row_everywhere():
    shared = {"identity": "1" * 64}
    results = [make("new", finished="2026-02-01", **shared), make("old", **shared), make("other")]
    name = "new (= old)"
    for make_table in (leaderboard, headline_table, lambda results, tier: cost_table(results)):
        table = make_table(results, tier="smoke")
        assert sorted(row[0].text for row in table.rows) == [name, "other"]
    assert {cell.text for row in cost_table(results).rows for cell in row[2:3]} == {"1.0"}
    comparison = compare(results, tier="smoke", baseline="old")
    assert comparison.baseline == name
    assert comparison.notes == ()


def test_marks_show_the_contenders_of_the_best():
    best = make("a", scores=[0.9] * 40)
    near = make("b", scores=[0.9, 0.8] + [0.9] * 38)
    far = make("c", scores=[0.1] * 40)
    other = make("d", scores=[0.9, 0.8] + [0.9] * 38)
    amend(other, "task", revision="another")
    for alone in ([best], [best, other]):
        assert not any(row[1].mark for row in leaderboard(alone, tier="smoke").rows)
    table = leaderboard([best, near, far], tier="smoke", links={"run-b": "b.html"})
    cells = {row[0].text: row[1] for row in table.rows}
    assert (cells["a"].strong, cells["a"].mark) == (True, "")
    assert (cells["b"].second, cells["b"].mark) == (True, "†")
    assert cells["b"].link == "b.html#score-pydocssampleretrieval"
    assert (cells["c"].second, cells["c"].mark) == (False, "")
    assert table.legend[0][0] == "†"


NO_VECTORS = [
    key for key in TIERS["full"].task_keys if TYPES[key] not in ("Retrieval", "Reranking")
]


@pytest.fixture(scope="module")
def records():
    bm25 = tier_records("bm25", mean=0.4, without=NO_VECTORS)
    for record in bm25:
        amend(record, "model", settings={"model": {"kind": "bm25"}})
    broken = tier_records("broken", mean=0.3, without=["CQADupstackGisRetrieval"])
    return [*bm25, *broken, *tier_records("a-model", mean=0.6)]


def test_the_first_table_has_a_column_per_benchmark_and_type(records):
    table = leaderboard(records, tier="full", links={"run-a-model": "a.html"})
    assert table.columns[1] == "BEIR\nnDCG@10, 15 tasks"
    assert len(table.columns) == 13
    rows = {row[0].text: row for row in table.rows}
    assert list(rows) == ["a-model", "bm25", "broken"]  # by BEIR; without a mean, last
    assert rows["a-model"][0].link == "a.html"
    assert rows["a-model"][1].strong
    assert rows["a-model"][1].interval[0] < rows["a-model"][1].value
    shown = [cell.text for cell in rows["bm25"][4:8]]
    assert shown == ["12 of 41", "12 of 41", *["no vectors"] * 2]
    assert (rows["broken"][1].text, rows["broken"][1].detail) == ("14 of 15", "incomplete")
    assert leaderboard([], tier="full").rows == ()


def test_every_task_of_the_tier_is_in_a_section(records):
    sections = task_tables(records, tier="full")
    titles = [title for title, _ in sections.tables]
    assert titles[:4] == [
        "BEIR (15 tasks)",
        "BEIR: the parts of CQADupstackRetrieval (12)",
        "MS MARCO dev (1 task)",
        "MTEB(eng, v2): Classification (8 tasks)",
    ]
    heads = {head.split("\n")[0] for _, table in sections.tables for head in table.columns}
    assert heads >= set(TIERS["full"].task_keys)
    assert titles[-1] == "What is missing"
    page = sections._repr_html_()
    assert page.count("<details") == len(sections) == 11
    assert sections.to_markdown().count("\n### ") == 11
    assert "BEIR (15 tasks): 3 rows" in repr(sections)
    missing = {(row[0].text, row[0].detail): row[2].text for row in sections.tables[-1][1].rows}
    assert "Gis" in missing["broken", "BEIR"]
    assert missing["bm25", "MTEB(eng, v2)"].count(",") == len(NO_VECTORS) - 1


def test_a_group_counts_only_with_all_its_parts(records):
    tables = dict(task_tables(records, tier="full").tables)
    beir = tables["BEIR (15 tasks)"]
    column = beir.columns.index("CQADupstackRetrieval\nnDCG@10, mean of 12")
    cells = {row[0].text: row[column] for row in beir.rows}
    assert cells["broken"].text == "11 of 12"
    forums = tables["BEIR: the parts of CQADupstackRetrieval (12)"]
    values = [cell.value for cell in {row[0].text: row for row in forums.rows}["a-model"][1:]]
    assert len(values) == len(GROUPS["CQADupstackRetrieval"])
    assert cells["a-model"].value == pytest.approx(sum(values) / 12)
    assert task_tables([make("m")], tier="smoke") is None
