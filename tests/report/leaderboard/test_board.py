"""All models of a tier: tables and figures of tasks, of means of benchmarks, and of ranks."""

import re

import pytest
from helpers.records import (
    RERANKING,
    RETRIEVAL,
    TYPES,
    amend,
    benchmark_record,
    make,
    noisy,
    tier_records,
)

from qwen3nb.answers.all_results import all_results, write_all_results
from qwen3nb.answers.board.grid import headline_task
from qwen3nb.answers.board.ranks import rank_table, standings
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.results import Results
from qwen3nb.records.store import load_results, verify
from qwen3nb.report.render.table import short_task
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import read_json


def test_the_leaderboard_names_what_is_missing_and_marks_the_best():
    bm25 = make("bm25", scores=(0.9, 0.9, 0.9), settings={"model": {"kind": "bm25"}})
    sts = make("m", task="AuthorSTS")
    amend(sts, "task", type="STS")
    table = leaderboard([make("m"), bm25, sts], tier="smoke", links={"run-m": "m.html"}).table()
    first, second = table.rows
    assert [(row[0].text, row[1].text, row[1].strong) for row in table.rows] == [
        ("bm25", "0.900", True),
        ("m", "0.500", False),
    ]
    assert second[1].link == "m.html#score-pydocssampleretrieval"
    assert re.fullmatch(r"\[0\.\d{3}, [01]\.\d{3}\]", second[1].detail)
    assert (first[5].text, second[2].text) == ("no vectors", "not run")
    assert table.columns[1] == "Retrieval\nnDCG@10, n = 3"
    constant = {"cosine": dict.fromkeys("abc", 0.5), "gold": {"a": 1, "b": 2, "c": 3}}
    sts.metrics["nDCG@10"] = aggregate(constant, how="spearman", columns=("cosine", "gold"))
    (row,) = leaderboard([sts], tier="smoke").table().rows
    assert (row[5].text, "constant" in row[5].detail) == ("undefined", True)


def test_the_headline_is_the_task_of_most_models_or_the_means_of_benchmarks():
    first, second = TIERS["smoke"].task_keys[:2]
    results = [make("a", task=second), make("b", task=second), make("b", task=first)]
    assert headline_task(results, tier="smoke") == second
    assert headline_task(results[1:], tier="smoke") == first
    table = leaderboard(results, tier="smoke").headline_table(most=1)
    assert table.columns[1].startswith(short_task(second))
    assert (len(table), table.note.startswith("The best 1 of 2 models.")) == (1, True)
    full = leaderboard(tier_records("m"), tier="full").headline_table().columns
    *means, origin = [head.split("\n")[0] for head in full[1:]]
    assert (means[0], means[-1], origin) == ("BEIR", "MTEB(eng, v2) Mean (TaskType)", "source")
    assert "No results" in leaderboard([], tier="smoke").headline_table().note


def test_marks_show_who_is_near_the_best():
    best, far = make("a", scores=[0.9] * 40), make("c", scores=[0.1] * 40)
    near, other = (make(name, scores=[0.9, 0.8] + [0.9] * 38) for name in "bd")
    amend(other, "task", revision="another")
    for alone in ([best], [best, other]):
        assert not any(row[1].mark for row in leaderboard(alone, tier="smoke").table().rows)
    table = leaderboard([best, near, far], tier="smoke").table()
    cells = {row[0].text: (row[1].strong, row[1].second, row[1].mark) for row in table.rows}
    assert cells == {"a": (True, False, ""), "b": (False, True, "†"), "c": (False, False, "")}
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


def test_the_first_table_has_a_column_per_benchmark(records):
    results = [*records, benchmark_record("alone", "SciFact")]
    table = leaderboard(results, tier="full", links={"run-a-model": "a.html"}).table()
    assert table.columns[1] == "BEIR\nnDCG@10, 15 tasks"
    assert len(table.columns) == 6
    rows = {row[0].text: row for row in table.rows}
    assert list(rows) == ["a-model", "bm25", "broken", "alone"]  # by BEIR, then by their number
    assert rows["a-model"][0].link == "a.html"
    assert rows["a-model"][1].strong
    assert rows["a-model"][1].interval[0] < rows["a-model"][1].value
    assert [cell.text for cell in rows["bm25"][4:]] == ["12 of 41", "12 of 41"]
    assert (rows["broken"][1].text, rows["broken"][1].detail) == ("14 of 15", "incomplete")
    assert leaderboard([], tier="full").table().rows == ()


def test_bm25_that_was_not_run_on_ones_data_needs_no_vectors():
    """A folder's name says nothing; its records say that it is a search."""
    bm25 = make("bm25", task="easy", settings={"model": {"kind": "bm25"}})
    records = [make("m", task="easy"), make("m", task="hard"), bm25]
    texts = {
        row[0].text: row[2].text
        for row in leaderboard(records, tasks=["easy", "hard"]).table().rows
    }
    assert texts["bm25"] == "not run"


def test_every_task_of_the_tier_is_in_a_section(records):
    sections = leaderboard(records, tier="full").task_tables()
    titles = [title for title, _ in sections.tables]
    assert titles[:5] == [
        "Means by type of task",
        "BEIR (15 tasks)",
        "BEIR: the parts of CQADupstackRetrieval (12)",
        "MS MARCO dev (1 task)",
        "MTEB(eng, v2): Classification (8 tasks)",
    ]
    (_, types), (_, beir), (_, forums), *others = sections.tables
    names = {row[0].text for _, table in sections.tables for row in table.rows}
    names |= {head.split("\n")[0] for _, table in others for head in table.columns}
    assert names >= set(TIERS["full"].task_keys)
    assert beir.columns[:4] == ("task", "a-model", "bm25", "broken")  # a row per task
    assert all(head.endswith(" (published)") for head in beir.columns[4:])
    bm25 = next(row for row in types.rows if row[0].text == "bm25")
    assert [cell.text for cell in bm25[1:3]] == ["no vectors", "no vectors"]
    assert sections._repr_html_().count("<details") == len(sections.tables) == 11
    assert sections.to_markdown().count("\n### ") == 11
    group = next(row for row in beir.rows if row[0].text == "CQADupstackRetrieval")
    assert group[0].detail == "nDCG@10, mean of 12"
    assert group[3].text == "11 of 12"  # a group counts only with all its parts
    assert group[1].value == pytest.approx(sum(row[1].value for row in forums.rows) / 12)


def on_both(systems, *, spread=0.02):
    """Records of systems with these means on Retrieval and Reranking, None for no record."""
    records = []
    for name, means in systems.items():
        for task, mean in zip((RETRIEVAL, RERANKING), means, strict=True):
            if mean is not None:
                scores = noisy(mean, spread=spread, seed=len(records))
                records.append(make(name, task=task, scores=scores))
                amend(records[-1], "task", type=task.removeprefix("PyDocsSample"))
    return records


def test_ranks_have_intervals_and_ties_share_a_letter():
    systems = {"a": (0.8, 0.8), "b": (0.4, 0.4), "c": (0.4, 0.4)}
    boards = standings(on_both(systems, spread=0.05), tier="smoke")
    table = rank_table(boards)
    first, second, third = table.rows
    assert (first[0].text, first[1].text, first[1].detail) == ("a", "1", "1 to 1")
    assert (second[1].detail, third[1].detail) == ("2 to 3", "2 to 3")
    assert (first[1].mark, second[1].mark, third[1].mark) == ("", "a", "a")
    assert "share a letter" in table.caption
    tasks = ("Retrieval\nn = 40", "Reranking\nn = 40")
    assert table.columns[1:] == (*tasks, "all tasks\nmean of 2 tasks", "Borda\nall tasks")
    assert [row[-1].text for row in table.rows] == ["1", "2", "3"]


def test_ranks_over_tasks_are_by_metric():
    """nDCG@10 of two tasks is averaged, the accuracy of a third is not."""
    results = on_both({"a": (0.8, 0.7), "b": (0.4, 0.4)})
    kind = "PyDocsSampleClassification"
    results += [
        make(name, task=kind, metric="accuracy", scores=noisy(mean))
        for name, mean in (("a", 0.5), ("b", 0.9))
    ]
    boards = standings(results, tier="smoke")
    assert [*boards][3:] == ["all tasks by nDCG@10"]
    assert {*boards["all tasks by nDCG@10"].tasks} == {RETRIEVAL, RERANKING}
    method = rank_table(boards).method
    assert "All tasks by nDCG@10: the mean of" in method
    assert "all tasks" in standings(results[:4], tier="smoke")


def test_a_model_without_a_task_is_named_and_not_ranked_over_all():
    """It leads on the first task: there, it is in row 1 of the leaderboard, too."""
    results = on_both({"search": (0.8, None), "encoder": (0.6, 0.5), "other": (0.4, 0.4)})
    ranks, scores = (
        rank_table(standings(results, tier="smoke")),
        leaderboard(results, tier="smoke").table(),
    )
    models = ["search", "encoder", "other"]
    assert [row[0].text for row in ranks.rows] == [row[0].text for row in scores.rows] == models
    assert [row[1].text for row in ranks.rows] == ["1", "2", "3"]
    assert [row[3].text for row in ranks.rows] == ["not ranked", "1", "2"]
    assert [cell.detail for cell in ranks.rows[0][2:4]] == ["no score", "no score on Reranking"]
    assert rank_table(standings([make("a")], tier="smoke")) is None


def test_a_report_has_its_models_and_what_failed(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "a1B2c3D4e5F6")
    results = Results([make(task="T", scores=(0.2, 0.4)), make(task="U", scores=(0.6, 0.8))])
    failures = {"V": "not with a1B2c3D4e5F6"}
    value = all_results(results, requested="TUV", config={"tier": "x"}, failures=failures)
    assert value["config"] == {"tier": "x"}
    assert value["failures"] == {"V": "not with [removed]"}
    assert (value["model"], value["model_path"]) == ("m", "m")
    of_task = value["results"]["m"]["T"]
    assert of_task["metrics"]["nDCG@10"]["value"] == of_task["main_score"] == pytest.approx(0.3)
    summary = value["summary"]["m"]
    assert summary["by_type"] == {"Retrieval": 0.5}
    assert summary["over_tasks"] == 0.5
    assert summary["missing"] == {"V": "not run"}
    models = [make("m", settings={"pooling": pooling}) for pooling in ("cls", "mean")]
    value = all_results(models, config={}, failures={})  # of one label
    assert list(value["results"]) == list(value["summary"]) == ["m (cls)", "m (mean)"]
    assert value["model"] == "m (cls)"


def test_one_file_has_all_models_of_the_folder(home):
    """Whoever writes it, and however often; the model of the record written last comes first."""
    folder = home / "results"
    for number, name in enumerate(("one", "two", "three")):
        make(name, task="U", scores=(0.1, 0.3), finished="2025-01-01").save()
        make(name, config={"tier": name}, finished=f"2026-01-0{5 - number}").save()
        assert write_all_results() == folder / "all_results.json"
    (folder / "one-1a" / "seed_0").mkdir(parents=True)
    (folder / "one-1a" / "seed_0" / "V.error.txt").write_text("Traceback\nOSError: no data\n")
    value = read_json(write_all_results())
    assert list(value["results"]) == ["three", "one", "two"]
    assert all(set(tasks) == {"PyDocsSampleRetrieval", "U"} for tasks in value["results"].values())
    assert [each["over_tasks"] for each in value["summary"].values()] == pytest.approx([0.35] * 3)
    assert (value["model"], value["config"]) == ("three", {"tier": "three"})
    assert value["failures"] == {"one-1a seed_0 V": "OSError: no data"}
    assert len(load_results()) == 6
    assert verify() == []
