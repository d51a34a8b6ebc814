"""Scores on a mirror's substitutes for MTEB's data are marked wherever they are shown."""

import html
import json
from dataclasses import replace
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
import yaml
from helpers.answers import (
    EXAMPLES,
    chosen,
    exchanged_layers,
    finished_race,
    forgotten,
    query_worth,
    seeds,
)
from helpers.records import RERANKING, RETRIEVAL, amend, benchmark_record, make, state, tier_records
from huggingface_hub import ModelCard

import qwen3nb as q
from qwen3nb.analysis.comparison.ablation_effects import effects
from qwen3nb.analysis.comparison.prompt_effects import PromptPair, PromptScores
from qwen3nb.analysis.inventory.scores import Score
from qwen3nb.analysis.training.checkpoint_scores import trajectories
from qwen3nb.analysis.training.configuration_differences import configuration_differences
from qwen3nb.analysis.training.interference import compare_joint_runs
from qwen3nb.answers.ablation import Ablation
from qwen3nb.answers.against_baseline import against_baseline
from qwen3nb.answers.all_results import all_results, summarise
from qwen3nb.answers.ann import ApproximateSearch
from qwen3nb.answers.board.expected import expected_table, sts_table
from qwen3nb.answers.board.lead import lead_figure
from qwen3nb.answers.board.ranks import rank_table, standings
from qwen3nb.answers.board.record_list import record_list
from qwen3nb.answers.candidates import compare_candidates
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.evaluation import (
    baseline_figure,
    evaluation_conclusion,
    intervals_table,
    scores_table,
)
from qwen3nb.answers.explorer import explore
from qwen3nb.answers.forecast import forecast_results
from qwen3nb.answers.how_sure import how_sure
from qwen3nb.answers.interference import Interference
from qwen3nb.answers.landing import headline_lead
from qwen3nb.answers.one_model import (
    parts_table,
    per_query_figure,
    provenance_table,
    results_table,
    suite_table,
)
from qwen3nb.answers.own_data import own_data
from qwen3nb.answers.prompts import Prompts
from qwen3nb.answers.reproduction import Reproductions
from qwen3nb.answers.reranking import cases_table, reranking
from qwen3nb.answers.trainings import Trainings
from qwen3nb.evaluation.retrieval.ann import AnnPoint, AnnSuite, Compressed
from qwen3nb.evaluation.studies.ablation import Variant, VariantResult
from qwen3nb.evaluation.studies.reproduce import Published, Reproduction
from qwen3nb.execution.publish import NotebookRun
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Part, Result
from qwen3nb.report.card import card_text
from qwen3nb.report.model_report import ModelReport
from qwen3nb.report.paper import PaperContents, write_paper
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.html import data_shown
from qwen3nb.report.render.table import Conclusion, Sections, Table, TableChoice

LOCAL, COMMIT = "local-0123456789abcdef0123456789abcdef", "0228b52cf27578f30900b9e5271d331663a030d7"
LINE = "other data than MTEB's"
# Answers whose views are made below, and those that show no score of a task.
WITH_SCORES = set(
    """
    Ablation ApproximateSearch Candidates Choosing Comparison Evaluation Explorer Forecast
    Forgetting HowSure Interference InterferenceByPart Leaderboard OwnData Prompts QueryWorth
    RaceAnswer Reproductions Reranking SeedComparison TrainingForecasts Trainings
    """.split()  # noqa: SIM905 - a list of words reads better as lines
)
WITHOUT_SCORES = set(
    """
    Calibration Changes Checkpoints Checks ContaminationAnswer Data ExtractedModel Migration
    NoExplorer NoForgetting ParityAnswer PlannedComparison Precision ProbedVectors Speed Status
    """.split()  # noqa: SIM905
)


def substituted(records, revision=LOCAL):
    """The records as if their data had this revision."""
    for record in records:
        amend(record, "task", revision=revision)
    return records


def two_models(revision=LOCAL):
    """Two models on a task of retrieval and one of reranking."""
    rng = np.random.default_rng(0)
    return [
        make(label, rng.random(40), task=task, revision=revision)
        for label in ("m-checkpoint-1", "m-checkpoint-2")
        for task in (RETRIEVAL, RERANKING)
    ]


def adapters(revision):
    """Scores of a joint adapter and its specialist, of two seeds."""
    for seed in (1, 2):
        for mode, value in (("rank_only", 0.5), ("joint", 0.45)):
            facts = {"mode": mode, "rank": 4, "base": "tiny", "data_seed": seed, "steps": 9}
            per_query = {f"q{i}": value + 0.01 * (i % 3) + 0.001 * seed for i in range(30)}
            mean = float(np.mean([*per_query.values()]))
            named = (f"{mode}_r4", seed, "SciFact", "nDCG@10", mean)
            more = {"revision": revision, "facts": facts, "per_query": per_query}
            yield Score(*named, kind="reranking", **more)


def ann_suite(revision):
    scores = dict.fromkeys(("a", "b", "c"), 0.5)
    speed = SimpleNamespace(threads=1, qps=9, p50=1.0, p95=2.0, singles=9)
    point = AnnPoint("flat", "flat", "", None, 0.1, 100, "cpu", scores, scores, (speed,))
    of_suite = ("m", "SciFact", 9, 3, 8, 10, "cosine", scores, (point,))
    full = Compressed("float32", 8, 32, scores)
    half = Compressed("float32", 4, 16, {"a": 0.4, "b": 0.5, "c": 0.3})
    used = DataUsed.of_revisions([("SciFact", revision)])
    return AnnSuite(*of_suite, (full, half), data=used)


def reranking_records(revision):
    """A record of reranking; its revision is the digest of a collection."""
    scores = {f"q{i}": 0.1 * i for i in range(9)}
    record = make("reranker", scores, task="SciFact.bm25-100")
    columns = {"first nDCG@10": 0.5, "gain nDCG@10": 0.1, "oracle nDCG@10": 0.9}
    for name, factor in columns.items():
        record.per_query[name] = {query: value * factor for query, value in scores.items()}
        record.metrics[name] = record.metrics["nDCG@10"]
    state(record, collection="SciFact")
    amend(record, "task", type="Reranking", revision="d" * 64, substitute=revision)
    return [record]


def views(revision):
    """Every table, figure and conclusion on tasks, by the name of the function that makes it."""
    results = two_models(revision)
    for record in results:
        state(record, queries=dict.fromkeys(record.scores.queries, "text"))
    own = [each for each in results if each.model.label == "m-checkpoint-1"]
    comparison = compare(results, draws=100)
    full = substituted([*tier_records("a", mean=0.6), *tier_records("b")], revision)
    on_full = compare(full, tier="full", draws=100)
    part = benchmark_record("m", "AmazonCounterfactualClassification")
    scores = against_baseline(own, results, baseline="m-checkpoint-2")
    variants = [
        VariantResult(variant, record)
        for variant, record in zip(
            (Variant("mean", 1, "plain", "unit"), Variant("cls", 1, "plain", "unit")),
            [each for each in results if each.task.key == RETRIEVAL],
            strict=True,
        )
    ]
    ablated = Ablation({RETRIEVAL: effects(variants)}, {RETRIEVAL: variants})
    values = ("nDCG@10", (), 0.5, np.array([0.4, 0.6]), ())
    prompts = [PromptScores(r.model.label, r.task.key, *values, ((r,),)) for r in results[:2]]
    pairs = [PromptPair(prompts[0], replace(prompts[1]), "", 0.7)]
    trained = [*adapters(revision)]
    differences = tuple(configuration_differences(trained, resamples=100, seed=0))
    joint = Interference(
        compare_joint_runs(trained), adapters=4, scores=tuple(trained), differences=differences
    )
    steps = Trainings(tuple(trajectories(results, tasks=[RETRIEVAL])))
    reranked = reranking_records(revision)
    page = SimpleNamespace(
        result=reranked[0],
        collection=SimpleNamespace(
            name="SciFact",
            queries={f"q{i}": "text" for i in range(9)},
            qrels={f"q{i}": {"d": 1} for i in range(9)},
            documents={"d": "text"},
        ),
        first={f"q{i}": {"d": 1.0} for i in range(9)},
        run={f"q{i}": {"d": 1.0} for i in range(9)},
    )
    indexes = ApproximateSearch(ann_suite(revision))
    explorer = explore(results, task=RETRIEVAL)
    sure = how_sure(results)
    sts = [make("m", task=each, metric="Spearman") for each in ("STS12", "STSBenchmark")]
    sts = substituted(sts, revision)
    for record in sts:
        amend(record, "task", type="STS")
    measured = [record for record in full if record.model.label == "a"][::2]
    foreseen = forecast_results(measured)
    raced = finished_race(DataUsed.of(measured))
    expected = substituted([make("e5-base-v2", task="STSBenchmark", metric="Spearman")], revision)
    stated = Published("bm25", RETRIEVAL, 0.5, 0.01, "mteb")
    published = [Reproduction(stated, own[0], 0.4)]
    candidates = compare_candidates(
        results, current="m-checkpoint-1", task=RETRIEVAL, tested=["nDCG@10"], n_resamples=100
    )
    mine = [record for record in two_models(revision) if record.task.key == RETRIEVAL]
    for record in mine:
        amend(record, "task", dataset="domain-notes")
    own_answer = own_data(mine)
    report = ModelReport(
        "m-checkpoint-1", "x", q.Results(results), (RETRIEVAL, RERANKING), "smoke", {}, {}
    )
    choice = chosen(results)
    worth = query_worth(results)
    over_seeds = seeds(revision)
    lost = forgotten(results)
    layers = exchanged_layers(results)
    made = {
        "choice.conclusion": choice.conclusion,
        "choice.table": choice.table(),
        "choice.figure": choice.figure(),
        "over_seeds.conclusion": over_seeds.conclusion,
        "over_seeds.table": over_seeds.table(),
        "over_seeds.figure": over_seeds.figure(),
        "forgetting.conclusion": lost.conclusion,
        "forgetting.table": lost.table(),
        "forgetting.queries_table": lost.queries_table(),
        "forgetting.figure": lost.figure(),
        "layers.conclusion": layers.conclusion,
        "layers.table": layers.table(),
        "layers.totals": layers.totals(),
        "layers.figure": layers.figure(),
        "query_worth.conclusion": worth.conclusion,
        "query_worth.table": worth.table(),
        "own_data.conclusion": own_answer.conclusion,
        "own_data.table": own_answer.table(),
        "own_data.scores_table": own_answer.scores_table(),
        "own_data.reasons_table": own_answer.reasons_table(),
        "leaderboard": q.leaderboard(results, comparison=comparison).table(),
        "leaderboard of benchmarks": q.leaderboard(full, tier="full").table(),
        "task_tables": q.leaderboard(full, tier="full").task_tables(),
        "rank_table": rank_table(standings(results, tier="smoke")),
        "rank_table of benchmarks": rank_table(standings(full, tier="full", comparison=on_full)),
        "headline_table": q.leaderboard(results, tier="smoke").headline_table(),
        "record_list": record_list(results),
        "results_table": results_table(own),
        "parts_table": parts_table([with_parts(part, revision)]),
        "provenance_table": provenance_table(own),
        "suite_table": suite_table(summarise(own)),
        "scores_table": scores_table(scores),
        "intervals_table": intervals_table(scores),
        "differences_table": comparison.differences_table(),
        "baseline_tables": comparison.baseline_tables(task=RETRIEVAL),
        "compared_tables": comparison.table(),
        "compared_tables of benchmarks": on_full.table(),
        "power_table": comparison.power_table(),
        "sts_and_msmarco_table": sts_table(sts),
        "expected_table": expected_table(expected),
        "reproduction_table": Reproductions(tuple(published)).table(),
        "reproduction_conclusion": Reproductions(tuple(published)).conclusion,
        "race_table": raced.table(),
        "race_conclusion": raced.conclusion,
        "forecast_table": foreseen.table(),
        "forecast_conclusion": foreseen.conclusion,
        "forecast_hints": foreseen.hints(),
        "ablation_table": ablated.combinations(),
        "effects_table": ablated.table(),
        "effects_figure": ablated.figure(),
        "ablation_conclusion": ablated.conclusion,
        "ann_table": indexes.table(),
        "compression_table": indexes.compression(),
        "ann_figure": indexes.figure(),
        "ann_conclusion": indexes.conclusion,
        "interference_table": joint.table(),
        "interference_figure": joint.figure(),
        "interference_conclusion": joint.conclusion,
        "configurations_table": joint.configurations(),
        "configuration_differences_table": joint.differences_table(),
        "gains_table": steps.table(),
        "training_conclusion": steps.conclusion,
        "training_forecast_conclusion": steps.forecast().conclusion,
        "training_forecast_table": steps.forecast().table(),
        "rerank_table": reranking(reranked).table(),
        "cases_table": cases_table([page]),
        "gain_figure": reranking(reranked).figure(),
        "rerank_conclusion": reranking(reranked).conclusion,
        "prompt_place_table": Prompts(tuple(prompts), ()).table(),
        "prompt_pairs_table": Prompts((), (replace(pairs[0], seed=0),)).pairs_table(),
        "prompts_figure": Prompts(tuple(prompts), ()).figure(),
        "explorer": explorer,
        "explorer_conclusion": explorer.conclusion,
        "how_sure.conclusion": sure.conclusion,
        "how_sure.queries_table": sure.queries_table(),
        "how_sure.resamples_figure": sure.resamples_figure(),
        "how_sure.wins_table": sure.wins_table(),
        "how_sure.intervals_figure": sure.intervals_figure(),
        "how_sure.test_figure": sure.test_figure(),
        "how_sure.decision_table": sure.decision_table(),
        "comparison_conclusion": comparison.conclusion,
        "leaderboard.conclusion": q.leaderboard(results, comparison=comparison).conclusion,
        "leaderboard.overview": q.leaderboard(results, comparison=comparison).overview(),
        "evaluation_conclusion": evaluation_conclusion(scores),
        "baseline_figure": baseline_figure(scores),
        "comparison_figure": q.leaderboard(results, tier="smoke").figure(),
        "scores_figure": comparison.figure(),
        "differences_figure": comparison.differences_figure(),
        "pairs_figure": comparison.pairs_figure(),
        "per_query_figure": per_query_figure(results),
        "lead_figure": lead_figure(comparison, task=RETRIEVAL),
    }
    made |= {f"candidates: {title}": table for title, table in candidates.tables().items()}
    made |= {f"report: {title}": table for title, table in report.tables().items()}
    return made


def with_parts(record, revision):
    """The record of a task with two subsets."""
    parts = tuple(Part("test", name, (), record.main, 0.5) for name in ("en", "de"))
    amend(record, "task", revision=revision)
    return replace(record, parts=parts)


def tables_in(view):
    if isinstance(view, Sections):
        return [table for _, table in view.tables]
    return [*view.variants.values()] if isinstance(view, TableChoice) else [view]


@pytest.mark.integration
def test_every_view_marks_substitutes_and_none_marks_true_copies():
    marked, plain = views(LOCAL), views(COMMIT)
    figures = {name: each for name, each in marked.items() if isinstance(each, Figure)}
    for name, figure in figures.items():  # drawn below: one of them
        assert LINE in figure.legend, name
        assert LINE not in plain[name].legend, name
    for name, view in marked.items():
        if name in figures and name != "lead_figure":
            continue
        page, of_copies = (html.unescape(each._repr_html_()) for each in (view, plain[name]))
        assert data_shown(view._repr_html_()).substitutes, name
        assert not data_shown(plain[name]._repr_html_()).substitutes, name
        assert LINE not in of_copies, name
        assert isinstance(view, Conclusion) or LINE in page, name
        for table in tables_in(view):
            if isinstance(table, Table):
                assert html.unescape(table.to_html()).count(LINE) == 1, name
                assert table.to_markdown().count(LINE) == 1, name
                assert LINE in table.to_latex(), name
    assert set(EXAMPLES) == WITH_SCORES | WITHOUT_SCORES, "an answer that this test does not know"


def test_a_table_counts_the_tasks_that_it_shows():
    results = two_models(COMMIT)
    for record in results:
        if record.task.key == RERANKING:
            amend(record, "task", revision=LOCAL)
    mixed = f"1 of 2 tasks on {LINE}: {RERANKING}."
    assert q.leaderboard(results).table().notes()[0] == mixed
    one = q.leaderboard(results, tasks=[RETRIEVAL]).table()
    assert not one.data.substitutes
    assert LINE not in one.to_markdown()
    assert compare(results, draws=99).differences_table(task=RETRIEVAL).data.text == ""
    full = substituted([*tier_records("a"), *tier_records("b")])
    (line, *_) = q.leaderboard(full, tier="full").table().notes()
    assert line == f"61 of 61 tasks on {LINE}."
    assert q.leaderboard(full, tier="full").table().to_html().count("61 of 61") == 1


def published_page(outputs, folder):
    """A page with these outputs, each of a cell."""
    nb = nbformat.v4.new_notebook(metadata={"qwen3nb": {}})
    nb.cells = [nbformat.v4.new_markdown_cell("# Title\n\nThe first sentence.")]
    for data in outputs:
        output = nbformat.v4.new_output("display_data", data=data)
        nb.cells.append(nbformat.v4.new_code_cell("show()", outputs=[output]))
    page = folder / "p.ipynb"
    NotebookRun("p", {}, page).succeed(nb, key="k")
    return nbformat.read(page, as_version=4)


@pytest.mark.parametrize("kind", ["text/html", "application/papermill.record/text/html"])
def test_a_page_has_a_banner_above_its_first_sentence(home, kind):
    true, other = (q.leaderboard(two_models(each)).table() for each in (COMMIT, LOCAL))
    shown = [{kind: table._repr_html_()} for table in (true, other)]
    page = published_page(shown, home / "book" / "runs")
    title, banner, below = [cell.source for cell in page.cells if cell.cell_type == "markdown"]
    assert (title, below) == ("# Title", "The first sentence.")
    assert banner.startswith(":::{admonition} Not on MTEB's data\n:class: danger\n2 of 2 tasks")
    plain = published_page(shown[:1], home / "book" / "runs")
    assert plain.cells[0].source == "# Title\n\nThe first sentence."


def test_the_landing_page_begins_with_the_banner():
    lead = headline_lead(compare(two_models(LOCAL), draws=99), task=RETRIEVAL)
    assert html.unescape(lead).index("Not on MTEB's data") < lead.index("q-lead")
    assert lead.startswith('<div class="admonition')
    assert "admonition" not in headline_lead(compare(two_models(COMMIT), draws=99), task=RETRIEVAL)


def test_the_card_says_so_first_and_the_hub_index_has_no_substitute(encoder_folder):
    content = fingerprint(find_source(str(encoder_folder)))
    settings = {"model": content, "pooling": "mean"}
    tasks = {RETRIEVAL: COMMIT, RERANKING: LOCAL}
    own = [make("t", task=task, settings=settings, revision=at) for task, at in tasks.items()]
    text = card_text(encoder_folder, own)
    _, front, body = text.split("---\n", 2)
    (index,) = yaml.safe_load(front)["model-index"]
    assert [each["dataset"]["name"] for each in index["results"]] == [RETRIEVAL]
    title, banner = [line for line in body.splitlines() if line][:2]
    assert title.startswith("# Model card")
    assert banner.startswith(f"> **Not on MTEB's data.** 1 of 2 tasks on {LINE}")
    alone = card_text(encoder_folder, own[1:])
    assert "model-index" not in yaml.safe_load(alone.split("---\n")[1])
    assert "mteb" not in ModelCard(alone).data.tags
    assert LINE not in card_text(encoder_folder, own[:1])


@pytest.mark.integration
def test_the_paper_says_so_first(tmp_path):
    contents = PaperContents(two_models(LOCAL), tasks=(RETRIEVAL,))
    write_paper(contents, tmp_path / "of-substitutes")
    article = (tmp_path / "of-substitutes" / "paper.tex").read_text()
    assert article.index(r"\input{data}") < article.index("Every figure and table")
    stated = (tmp_path / "of-substitutes" / "data.tex").read_text()
    assert stated.startswith(rf"\textbf{{1 of 1 task on {LINE}: {RETRIEVAL}.")
    assert LINE in (tmp_path / "of-substitutes" / "figures.tex").read_text()
    write_paper(PaperContents(two_models(COMMIT), tasks=(RETRIEVAL,)), tmp_path / "of-copies")
    assert (tmp_path / "of-copies" / "data.tex").read_text() == ""


def test_a_record_keeps_the_fact_and_old_records_are_read(tmp_path):
    new = reranking_records(LOCAL)[0]
    assert new.task.is_substitute
    assert Result.load(new.save(tmp_path)).task.substitute == LOCAL
    (plain,) = reranking_records("")
    file = plain.save(tmp_path)
    assert "substitute" not in json.loads(file.read_text())["task"]
    assert not Result.load(file).task.is_substitute
    old = make("m", revision=LOCAL)  # a record of before has only a revision
    assert Result.load(old.save(tmp_path)).task.is_substitute
    summary = all_results([old], config={}, failures={})["summary"]["m"]
    assert summary["substitutes"] == [RETRIEVAL]
    json.dumps(summary)
