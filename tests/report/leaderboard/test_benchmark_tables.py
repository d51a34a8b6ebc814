"""Leaderboards of a tier with benchmarks: its means first, then every task."""

import pytest
from helpers.records import amend, make, tier_records

from qwen3nb.report.leaderboard.benchmark_tables import task_tables
from qwen3nb.report.leaderboard.score_table import leaderboard
from qwen3nb.tiers import GROUPS, TIERS

NO_VECTORS = [
    key for key in TIERS["full"].task_keys
    if key.startswith(("STS", "BIOSSES", "SICK-R")) or "Class" in key or "Clustering" in key
    or key in ("SprintDuplicateQuestions", "TwitterSemEval2015", "TwitterURLCorpus",
               "SummEvalSummarization.v2")
]  # fmt: skip


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
    assert [cell.text for cell in rows["bm25"][4:8]] == [
        "12 of 41",
        "12 of 41",
        *["no vectors"] * 2,
    ]
    assert (rows["broken"][1].text, rows["broken"][1].detail) == ("14 of 15", "incomplete")
    assert leaderboard([], tier="full").rows == ()


def test_every_task_of_the_tier_is_in_a_section(records):
    sections = task_tables(records, tier="full")
    titles = [title for title, _ in sections.tables]
    assert titles[:4] == [
        "BEIR (15 tasks)", "BEIR: the parts of CQADupstackRetrieval (12)", "MS MARCO dev (1 task)",
        "MTEB(eng, v2): Classification (8 tasks)",
    ]  # fmt: skip
    heads = {head.split("\n")[0] for _, table in sections.tables for head in table.columns}
    assert heads >= set(TIERS["full"].task_keys)
    assert titles[-1] == "What is missing"
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


def test_a_tier_without_benchmarks_shows_its_tasks_in_the_leaderboard():
    results = [make("m")]
    assert task_tables(results, tier="smoke") is None
    assert leaderboard(results, tier="smoke").columns[1].startswith("Retrieval")


def test_sections_are_folded_on_a_page_and_have_headings_in_markdown(records):
    sections = task_tables(records, tier="full")
    page = sections._repr_html_()
    assert page.count("<details") == len(sections) == 11
    assert sections.to_markdown().count("\n### ") == 11
    assert "BEIR (15 tasks): 3 rows" in repr(sections)
