"""The files of a paper, and those of the report on one model."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from helpers.figures import records
from helpers.records import RETRIEVAL as TASK
from helpers.records import make, tier_records
from helpers.study import with_small_pydocs
from huggingface_hub import ModelCard

from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.models.types import SpecError
from qwen3nb.report.model_report import report_model
from qwen3nb.report.paper import PaperContents, write_paper, write_tables
from qwen3nb.report.render.figure import PAPER_STYLES
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS


@pytest.mark.integration
def test_a_paper_on_benchmarks_has_every_task_and_no_wide_table():
    results = [*tier_records("a", mean=0.6), *tier_records("b")]
    paper = PaperContents(results, tier="full")
    tables = {table.name: table for table in paper.tables()}
    assert len(tables["comparison-full"].rows) == 5
    assert len(tables["types"].rows) == 7
    names = {row[0].text for table in tables.values() for row in table.rows}
    names |= {head.split("\n")[0] for table in tables.values() for head in table.columns}
    assert names >= set(TIERS["full"].task_keys)
    assert max(len(table.columns) for name, table in tables.items() if name != "cost") <= 6
    assert "differences-STS" in tables
    assert all(table.name and table.caption for table in tables.values())
    figures = [figure.name for figure in paper.figures()]
    assert {"comparison-full", "differences", "pairs"} <= set(figures)


def test_a_paper_shows_the_models_and_tasks_that_are_named():
    results = records()
    models = tuple(sorted({each.model.label for each in results}))[:2]
    paper = PaperContents(results, models=models, tasks=(TASK,))
    board, *others = paper.tables()
    assert board.name == "comparison-tasks"
    assert {row[0].text for row in board.rows} == set(models)
    assert len(board.columns) == 2
    assert [table.name for table in others] == ["cost", f"differences-{TASK}"]
    figures = {figure.name for figure in paper.figures()}
    assert {"comparison-tasks", "differences", "pairs"} <= set(figures)
    assert not {"losses", "interference"} & set(figures)
    others = {each.model.label for each in results} - set(models)
    assert not [name for name in others if name in " ".join(figures)]
    adapter = make(
        "run-7", config={"training": {"mode": "x"}}
    )  # of a training: not a model to compare
    everything = PaperContents([*results, adapter]).tables()[0]
    assert "run-7" not in {row[0].text for row in everything.rows}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"models": ["demoo"]}, "'demoo'; choose one of: .*bm25"),
        ({"tasks": ["Nope"]}, "'Nope'; choose one of: .*PyDocs"),
        ({"tier": "fast"}, "'fast'; run `qwen3nb eval"),
        (None, "'smoke'; run `qwen3nb eval"),
    ],
)
def test_what_has_no_results_is_refused(home, choice, message):
    paper = PaperContents(records(), **choice) if choice else PaperContents([])
    with pytest.raises(ValueError, match=message):
        paper.tables()


@pytest.fixture(scope="module")
def results():
    """Records of models of which one has a name that no file and no LaTeX takes as it is."""
    kept = [result for result in records() if "demo" not in result.model.label]
    return [*kept, make("../x_y %", scores=np.zeros(60))]


@pytest.fixture(scope="module")
def papers(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    contents = PaperContents(results, tasks=(TASK,))
    return {
        style: (folder / style, write_paper(contents, folder / style, style=style))
        for style in PAPER_STYLES
    }


@pytest.mark.integration
@pytest.mark.parametrize("style", PAPER_STYLES)
def test_every_file_is_used_and_figures_are_as_wide_as_the_columns(papers, style):
    (folder, written), widths = papers[style], PAPER_STYLES[style][:2]
    assert all(file.is_file() for file in written)
    floats = (folder / "figures.tex").read_text()
    shown = re.findall(r"\\includegraphics\[[^]]*\]\{figures/([^}]*)\}", floats)
    assert sorted(shown) == sorted(file.stem for file in (folder / "figures").iterdir())
    inputs = re.findall(r"\\input\{tables/([^}]*)\}", (folder / "tables.tex").read_text())
    assert sorted(inputs) == sorted(file.stem for file in (folder / "tables").iterdir())
    for file in folder.rglob("*.tex"):
        text = file.read_text()
        begun, ended = (sorted(re.findall(rf"\\{w}\{{(.*?)\}}", text)) for w in ("begin", "end"))
        assert begun == ended
    assert ("figure*" in floats) == (style != "neurips")
    for name, width in zip(("per-query-bm25", "comparison-tasks"), widths, strict=True):
        page = (folder / "figures" / f"{name}.pdf").read_bytes()
        box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ", page)
        assert float(box[1]) / 72 == pytest.approx(width, abs=0.02)


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
@pytest.mark.parametrize("style", PAPER_STYLES)
def test_the_article_compiles(papers, style):
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    for step in ([*command, "paper"], ["bibtex", "paper"], [*command, "paper"]):
        done = subprocess.run(step, cwd=papers[style][0], capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    log = (papers[style][0] / "paper.log").read_text(errors="replace")
    assert "Float too large" not in log


def test_a_table_higher_than_a_page_is_divided(results, tmp_path, monkeypatch):
    """Every row stands in one part, in order; each part has the heads and the line on the data."""
    contents = PaperContents(results, tasks=(TASK,))
    row = {"task": "T", "value": 1.0}
    rows = [row | {"task": f"T{number}"} for number in range(49)]
    table = Table.of(
        rows, name="high", caption="High.", note="The note.", data=contents.data_used()
    )
    monkeypatch.setattr(PaperContents, "tables", lambda _: [table])
    files = write_tables(contents, tmp_path, format="latex")
    assert [file.name for file in files] == ["high.tex", "high-2.tex", "high-3.tex"]
    texts = [file.read_text() for file in files]
    assert re.findall(r"\bT\d+\b", "".join(texts)) == [f"T{number}" for number in range(49)]
    assert [len(re.findall(r"\bT\d+\b", text)) for text in texts] == [17, 17, 15]
    assert all(r"\toprule" in text for text in texts)
    assert ["The note." in text for text in texts] == [False, False, True]
    assert ["(continued)" in text for text in texts] == [False, True, True]
    (file,) = write_tables(contents, tmp_path, format="csv")
    assert len(file.read_text().splitlines()) == 50


@pytest.mark.integration
def test_names_are_safe_and_tables_come_in_every_format(results, tmp_path):
    contents = PaperContents(results, tier="smoke")
    files = [file.name for file in write_paper(contents, tmp_path / "p")]
    assert len(set(files)) == len(files)
    assert {"comparison-smoke.pdf", f"differences-{TASK}.tex"} <= set(files)
    assert "per-query-..-x-y.pdf" in files
    with pytest.raises(ValueError, match="'amc'; choose one of: plain, acl"):
        write_paper(contents, tmp_path / "q", style="amc")
    tables = [file.name for file in write_tables(contents, tmp_path / "csv", format="csv")]
    assert "comparison-smoke.csv" in tables


TASKS = "AuthorSTS,PyDocsSampleRetrieval"


@pytest.mark.integration
def test_one_command_evaluates_compares_and_writes_the_card(
    cli, home, encoder_folder, tmp_path, monkeypatch
):
    with_small_pydocs(monkeypatch)
    out = tmp_path / "eval_results"
    call = ("report", "--model", encoder_folder, "--tasks", TASKS, "--out", out)
    done = cli(*call, "--baselines", "bm25,random,no/model")
    assert done.exit_code == 1
    assert "the report is written, but lacks what failed\nno/model: " in done.output
    names = sorted(file.name for file in out.iterdir())
    assert " ".join(re.sub(r"_\d{8}_\d{6}", "_<time>", name) for name in names) == (
        "MODEL_CARD.md all_results.json all_results_<time>.json comparison.json comparison.md "
        "comparison_<time>.json mteb"
    )
    value = json.loads((out / "all_results.json").read_text())
    assert {name: set(tasks) for name, tasks in value["results"].items()} == {
        "tiny": set(TASKS.split(",")),  # every task is run, for every model that can
        "random": set(TASKS.split(",")),
        "bm25": {"PyDocsSampleRetrieval"},
    }
    own = value["results"]["tiny"]
    assert value["summary"]["bm25"]["missing"] == {"AuthorSTS": "not run"}
    assert list(value["failures"]) == ["no/model"]

    compared = json.loads((out / "comparison.json").read_text())
    assert set(compared["results"]) == {"sts", "retrieval"}
    pairs = {each["first"]: each for each in compared["differences"]}
    assert set(pairs) == {"bm25", "random"}
    bm25 = value["results"]["bm25"]["PyDocsSampleRetrieval"]["main_score"]
    assert pairs["bm25"]["difference"] == pytest.approx(
        bm25 - own["PyDocsSampleRetrieval"]["main_score"]
    )
    text = (out / "comparison.md").read_text()
    assert all(each in text for each in ("## STS", "Spearman", "MRR@10", "Recall@100", "## Failed"))
    listed = ModelCard((out / "MODEL_CARD.md").read_text()).data.eval_results
    assert {each.dataset_name for each in listed} == set(TASKS.split(","))
    assert {"cosine_spearman", "ndcg_at_10"} <= {each.metric_type for each in listed}
    assert len(list((out / "mteb").glob("*/*/PyDocsSampleRetrieval.json"))) == 3

    again = cli(*call, "--baselines", "bm25")
    assert again.exit_code == 0, again.output
    assert len(list((home / "results").glob("*/seed_0/*.json"))) == 5  # nothing is run twice


@pytest.mark.integration
def test_an_unknown_model_or_one_without_a_result_is_an_error(tmp_path):
    with pytest.raises(SpecError):
        report_model(tmp_path / "none")
    with pytest.raises(EvaluationError, match="bm25 has no result"):
        report_model("bm25", tasks="AuthorSTS", show_progress=False)
