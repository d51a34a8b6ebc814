"""Published scores of models that were not measured here: grey, in words, never among measured."""

from dataclasses import replace
from statistics import fmean

import pytest
from bs4 import BeautifulSoup
from click.testing import CliRunner
from helpers.records import amend, benchmark_record, make, noisy, tier_records

from qwen3nb.analysis.forecasting import published_models as stored
from qwen3nb.analysis.forecasting.published import published_scores
from qwen3nb.analysis.forecasting.published_models import published_models, source
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.answers.reproduction import Reproductions, measured_reproductions, reproduce
from qwen3nb.cli.main import main
from qwen3nb.models.kinds.source import registry
from qwen3nb.records.record import MTEBScore
from qwen3nb.tiers import BENCHMARKS

E5, BGE, GEMMA = "e5-base-v2", "bge-base-en-v1.5", "embeddinggemma-300m"
STS = "STSBenchmark"


def published(name):
    """The scores of a registered model at exactly its revision, by task."""
    entry = registry()[name]
    return published_models()[entry["id"], entry["revision"]]


def on_real_data(records):
    """The records, as of the data on which most scores are published."""
    revisions = {}
    for scores in published_models().values():
        revisions |= {task: score.data_revision for task, score in scores.items()}
    for record in records:
        amend(record, "task", revision=revisions.get(record.task.key, "r" * 12))
    return records


def fast(*labels, tasks=()):
    records = []
    for position, label in enumerate(labels):
        records += tier_records(label, tier="fast", mean=0.6 - position / 20)
    return on_real_data([r for r in records if not tasks or r.task.key in tasks])


def rows_of(board):
    """The published rows of the first table, as texts by model."""
    page = BeautifulSoup(board.overview()._repr_html_(), "html.parser")
    return {row.th.find(string=True): row for row in page.select("tbody.q-published tr")}


def test_the_scores_are_those_of_the_field_where_splits_and_subsets_are_the_same():
    """The field has the English part of two multilingual tasks, over two splits."""
    field = published_scores()
    others = {"AmazonCounterfactualClassification", "MassiveIntentClassification"}
    compared = 0
    for (model, revision), scores in published_models().items():
        place = field.models.index(model)
        assert revision.startswith(field.revisions[place])
        for task in scores.keys() & set(field.tasks) - others:
            value = field.scores[place, field.tasks.index(task)]
            assert scores[task].value == pytest.approx(value, abs=1.5e-5)  # both are rounded
            compared += 1
    assert compared > 700
    assert (source().licence, source().commit[:8]) == ("CC0-1.0", "f4cc6c8b")


def test_another_file_of_scores_is_refused(monkeypatch, tmp_path):
    file = tmp_path / "scores.tsv.gz"
    file.write_bytes(b"other")
    monkeypatch.setattr(stored, "SCORES", file)
    with pytest.raises(ValueError, match="sha256"):
        published_models.__wrapped__()


def test_a_published_row_is_grey_and_says_so_without_rank_shade_or_value():
    board = leaderboard(fast("a", "b"), tier="fast")
    rows = rows_of(board)
    assert set(rows) == {E5, BGE, GEMMA}
    row = rows[BGE]
    assert (row.td.text, row.td["title"]) == ("–", "not ranked: published, not measured here")
    assert "published, not measured here" in row.th.text
    assert not row.select("[data-sort], [style], strong, a")
    cells = row.select("td.q-none")
    value = published(BGE)[STS].value
    assert [cell.text for cell in cells][3] == f"{value:.2f} published"
    assert "revision a5beb1e3e68b" in cells[3].span["title"]
    assert cells[2].text == "not published"  # FiQA2018 is, but of an unknown revision of the model
    assert board.ties.models == ("a", "b")


def test_a_source_is_a_column_of_exports_and_no_number_mixes_with_measured_ones():
    board = leaderboard(fast("a", "b"), tier="fast")
    table = board.table_with_published(name="scores")
    assert table.columns[-1] == "source"
    assert [row[-1].text for row in table.rows[:2]] == ["measured here"] * 2
    assert table.rows[-1][-1].text == "MTEB's results, revision 64614b0b8b64"
    for text in (table.to_markdown(), table.to_csv(), table.to_latex(), table.to_html()):
        assert "published" in text
    assert "CC0-1.0" in table.to_markdown()
    assert "2026-08-20" in table.to_markdown()
    frame = table.to_frame()
    assert frame[STS].mean() == pytest.approx(board.to_frame()[STS].mean())
    assert len(board.to_frame()) == 2
    measured = board.table().rows
    assert [row[:-1] for row in table.rows[:2]] == [tuple(row) for row in measured]


def test_a_measured_score_takes_the_place_of_a_published_one():
    partly = leaderboard([*fast("a"), *fast(BGE, tasks=("NFCorpus", STS))], tier="fast")
    texts = [cell.text for cell in rows_of(partly)[BGE].select("td.q-none")]
    assert texts[1] == texts[3] == "measured"
    assert texts[4].endswith("published")
    assert BGE not in rows_of(leaderboard([*fast("a"), *fast(BGE)], tier="fast"))


def test_other_prompts_and_other_data_are_named_and_substitutes_left_out():
    records = fast("a")
    board = leaderboard(records, tier="fast")
    assert rows_of(board)[E5].select("td.q-none")[3].text.endswith("‡ published, other prompt")
    amend(records[3], "task", revision="f" * 40)
    words = rows_of(leaderboard(records, tier="fast"))[BGE].select("td.q-none")[3].text
    assert words.endswith("‡ published, other revision of the data")
    amend(records[3], "task", revision="local-0123456789abcdef")
    texts = [c.text for c in rows_of(leaderboard(records, tier="fast"))[BGE].select("td.q-none")]
    assert texts[3] == "not published"


def test_a_score_by_another_measure_or_of_another_revision_is_no_match(monkeypatch):
    records = fast("a")
    amend(records[3], "task", mteb=MTEBScore("cosine_spearman", 0.123))
    texts = [c.text for c in rows_of(leaderboard(records, tier="fast"))[BGE].select("td.q-none")]
    assert texts[3] == "not published"
    entries = {name: dict(entry) for name, entry in registry().items()}
    entries[BGE]["revision"] = f"{entries[BGE]['revision'][:-1]}0"
    monkeypatch.setattr("qwen3nb.answers.board.published.registry", lambda: entries)
    assert BGE not in rows_of(leaderboard(fast("a"), tier="fast"))


def test_a_published_mean_needs_every_task_and_is_of_published_scores_alone():
    board = leaderboard(on_real_data(tier_records("a")), tier="full")
    row = rows_of(board)
    assert set(row) == {GEMMA}
    texts = [cell.text for cell in row[GEMMA].select("td.q-none")]
    assert texts[:3] == ["not published"] * 3
    scores = published(GEMMA)
    mean = fmean(scores[task].value for task in BENCHMARKS["MTEB(eng, v2)"].tasks)
    assert texts[3].startswith(f"{mean:.2f}")
    sections = board.task_tables()
    assert "e5-base-v2 (published)" in sections.to_markdown()
    assert "CC0-1.0" in sections.about
    assert "published" not in board.task_tables(published=False).to_markdown()


def test_tiers_without_published_tasks_are_as_before():
    board = leaderboard([make("a", noisy(0.5)), make("b", noisy(0.4))], tier="smoke")
    assert rows_of(board) == {}
    assert board.table_with_published() == board.table()
    page = BeautifulSoup(board.overview()._repr_html_(), "html.parser")
    assert "published" not in page.select_one("#tab-scores").text
    assert "gte-base" in page.select_one("details.q-references").text


def as_registered(name, task, value, **options):
    """A record of a registered model as the registry has it, with MTEB's own score."""
    entry = registry()[name]
    used = {"prompts": entry.get("prompts", {}), "max_length": entry.get("max_length", 256)}
    record = benchmark_record(name, task)
    amend(record, "model", spec=name, settings={"model": {"kind": "x"}, "dtype": "float32", **used})
    amend(
        record,
        "task",
        mteb=MTEBScore("main_score", value),
        revision=published(name)[task].data_revision,
    )
    return replace(record, options={"pooling": "auto", "max_length": 0, **options})


def test_records_of_the_same_model_task_and_revision_are_compared_with_published_scores():
    value = published(BGE)[STS].value
    same = as_registered(BGE, STS, value + 0.001)
    other_prompt = as_registered(E5, STS, 0.9)
    found = measured_reproductions([same, other_prompt])
    assert {r.published.model: r.verdict for r in found} == {BGE: "OK", E5: "not judged"}
    answer = Reproductions(tuple(found))
    assert answer.conclusion.text.startswith("1 of 1 published scores are reproduced within")
    assert "1 were published with other prompts, and not judged." in answer.conclusion.text
    assert answer.table().rows[0][2].detail == "MTEB at f4cc6c8b365a"
    assert measured_reproductions([same], models="gte-base") == []
    assert measured_reproductions([same], tasks="SICK-R") == []


def test_a_near_miss_is_not_compared():
    shorter = as_registered(BGE, STS, 0.9, max_length=128)
    other_data = as_registered(BGE, STS, 0.9)
    amend(other_data, "task", revision="f" * 40)
    namesake = as_registered(BGE, STS, 0.9)
    amend(namesake, "model", spec="runs/bge-base-en-v1.5")
    without_prompts = as_registered(BGE, STS, 0.9)
    amend(without_prompts, "model", settings={**without_prompts.model.settings, "prompts": {}})
    cut = as_registered(BGE, STS, 0.9)
    amend(cut, "model", settings={**cut.model.settings, "dimensions": 64})
    for record in (shorter, other_data, namesake, without_prompts, cut):
        assert measured_reproductions([record]) == []


def test_nothing_runs_where_only_what_was_measured_is_compared(home, monkeypatch):
    records = [as_registered(BGE, STS, published(BGE)[STS].value)]
    for module in ("records.store", "answers.reproduction"):
        monkeypatch.setattr(f"qwen3nb.{module}.load_results", lambda: records)
    assert [found.verdict for found in reproduce(measured=True).reproductions] == ["OK"]
    done = CliRunner().invoke(main, ["reproduce", "--measured"])
    assert done.exit_code == 0, done.output
    assert "OK" in done.output
    assert "(MTEB at f4cc6c8b365a)" in done.output
    records[0] = as_registered(BGE, STS, 0.5)
    assert CliRunner().invoke(main, ["reproduce", "--measured"]).exit_code == 1
    records.clear()
    failed = CliRunner().invoke(main, ["reproduce", "--measured"])
    assert (failed.exit_code, "no record here has the model" in failed.output) == (1, True)
