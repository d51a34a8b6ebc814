import shutil

import pytest
from helpers.figures import TASK, records
from helpers.records import make, tier_records

from qwen3nb.report.paper.contents import Choice, PaperContents
from qwen3nb.tiers import TIERS


@pytest.mark.integration
def test_a_paper_on_benchmarks_has_every_task_and_no_wide_table():
    results = [*tier_records("a", mean=0.6), *tier_records("b")]
    choice = Choice(tier="full")
    tables = {table.name: table for table in PaperContents(results, choice).tables()}
    assert len(tables["comparison-full"].rows) == 12
    names = {row[0].text for table in tables.values() for row in table.rows}
    assert names >= set(TIERS["full"].task_keys)
    assert max(len(table.columns) for name, table in tables.items() if name != "cost") <= 6
    assert {"overview", "missing", "differences-STS", "headline-full"} <= set(tables)
    assert all(table.caption for table in tables.values())
    figures = [name for name, _ in PaperContents(results, choice).figures()]
    assert {"comparison-full", "bars-full", "ranks", "differences", "pairs"} <= set(figures)


def test_a_paper_shows_the_models_and_tasks_that_are_named():
    results = records()
    models = tuple(sorted({each.model.label for each in results}))[:2]
    choice = Choice(models=models, tasks=(TASK,))
    board, *others = PaperContents(results, choice).tables()
    assert board.name == "comparison-tasks"
    assert {row[0].text for row in board.rows} == set(models)
    assert len(board.columns) == 2
    assert [table.name for table in others] == ["cost", f"differences-{TASK}"]
    figures = dict(PaperContents(results, choice).figures())
    assert {"comparison-tasks", f"bars-{TASK}", f"differences-{TASK}"} <= set(figures)
    assert not {"ranks", "losses", "interference"} & set(figures)
    shown = " ".join(figures)
    assert not [each for each in results if each.model.label not in models and
                each.model.label in shown]  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(models=("demoo",)), "unknown model with results 'demoo'; choose one of: .*bm25"),
        (Choice(tasks=("Nope",)), "unknown task with results 'Nope'; choose one of: .*PyDocs"),
        (Choice(tier="fast"), "no results on the tier 'fast'; run `qwen3nb eval"),
    ],
)
def test_what_has_no_results_is_refused(choice, message):
    with pytest.raises(ValueError, match=message):
        PaperContents(records(), choice).tables()


@pytest.mark.integration
def test_trainings_need_no_records(home, fixtures):
    if not (fixtures / "adapters").is_dir():
        pytest.skip("these fixtures hold no adapters")
    shutil.copytree(fixtures / "adapters" / "outputs", home / "runs" / "outputs")
    tables = {table.name: table.to_latex() for table in PaperContents([]).tables()}
    assert list(tables) == ["configurations", "configuration-differences", "interference"]
    assert r"\textbf{0.230}\textsubscript{0.050}" in tables["configurations"]
    assert r"\underline{0.172}\textsubscript{0.010}" in tables["configurations"]
    figures = dict(PaperContents([]).figures())
    assert {"configurations", "interference", "losses", "conflicts"} <= set(figures)
    with pytest.raises(ValueError, match="tier 'smoke'"):
        PaperContents([], Choice(tier="smoke")).tables()


def test_adapters_of_a_training_are_in_no_comparison_of_models():
    results = [*records(), make("run-7", config={"training": "x"})]
    assert "run-7" not in {row[0].text for row in PaperContents(results).tables()[0].rows}


def test_without_records_and_trainings_there_is_nothing_to_write(home):
    with pytest.raises(ValueError, match="run `qwen3nb eval"):
        PaperContents([]).tables()
