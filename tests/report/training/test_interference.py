"""What joint training costs: estimates, tables, words, files, `qwen3nb analyze` and its page."""

import json
import shutil
from dataclasses import replace

import nbformat
import numpy as np
import pytest
from helpers.records import make

from qwen3nb.analysis.inventory.collect import Score
from qwen3nb.analysis.training.interference import (
    REQUIRED,
    DataSetScores,
    Gate,
    Group,
    Interference,
    estimate,
)
from qwen3nb.execution.notebook import finished_page, run_notebook
from qwen3nb.execution.parameters import ParameterError
from qwen3nb.report.headline import interference_finding
from qwen3nb.report.training.interference import (
    InterferenceReport,
    configurations_figure,
    configurations_table,
    interference_conclusion,
    interference_figure,
    interference_report,
    interference_table,
)


def train(base, name, seed, score, *, steps=40, spread=0.1, rank=4, tasks=("reranking",)):
    """Write the folder of a trained adapter."""
    folder = base / name / f"seed_{seed}"
    (folder / "results").mkdir(parents=True)
    mode = name.rsplit("_", 1)[0]
    (folder / "config.yaml").write_text(
        f"model: {{base_model_name: tiny}}\nlora: {{rank: {rank}}}\n"
        f"training: {{mode: {mode}}}\nseed: {seed}\n"
    )
    (folder / "train_log.jsonl").write_text(json.dumps({"step": steps, "loss": 1.0}) + "\n")
    queries = {f"q{i}": score + spread * (i % 2 - 0.5) for i in range(40)}
    if "reranking" in tasks:
        content = {"dataset": "SciFact", "per_query": queries, "aggregate": {"ndcg@10": score}}
        value = {"per_dataset": {"SciFact": content}, "average": {"ndcg@10": score}}
        (folder / "results" / "reranking_results.json").write_text(json.dumps(value))
    if "embedding" in tasks:
        value = {"per_task": {"SciFact": {"main_score": score}}}
        (folder / "results" / "mteb_results.json").write_text(json.dumps(value))


@pytest.fixture
def outputs(tmp_path):
    """Joint training costs ranking a tenth; embedding is half a percent worse."""
    base = tmp_path / "outputs"
    for seed, shift in ((1, 0.0), (2, 0.0005)):
        train(base, "rank_only_r4", seed, 0.5 + shift)
        train(base, "emb_only_r4", seed, 0.6 + shift, tasks=("embedding",))
        train(base, "joint_r4", seed, 0.45 + shift)
        value = {"per_task": {"SciFact": {"main_score": 0.597 + shift}}}
        file = base / "joint_r4" / f"seed_{seed}" / "results" / "mteb_results.json"
        file.write_text(json.dumps(value))
    return base


def texts(table, column):
    return [row[column].text for row in table.rows]


def test_verdicts_by_task_and_overall(outputs):
    report = interference_report(outputs, n_resamples=500)
    table = interference_table(report)
    # Each task has one data set, hence one row.
    assert texts(table, 0) == ["reranking: SciFact", "embedding: SciFact", "overall"]
    verdicts = [(row[1].text, row[1].detail) for row in table.rows[:2]]
    assert verdicts == [("PASS", "PASS"), ("FAIL", "FAIL")]
    assert table.rows[0][2].value == pytest.approx(0.1, abs=1e-3)
    assert "PASS at 2 % or more" in table.note
    finding = interference_finding(report)  # on the landing page
    assert finding.evidence.startswith("TIR ")
    assert "PASS" in finding.evidence
    assert finding.page == "interference.html"
    frame = report.to_frame().set_index(["task", "configuration", "seed"])["score"]
    assert frame["reranking: SciFact", "joint_r4"].tolist() == pytest.approx([0.45, 0.4505])
    (axis,) = interference_figure(report).axes
    assert [t.get_text() for t in axis.get_yticklabels()] == texts(table, 0)
    low, middle, high = [patch.get_extents() for patch in axis.patches]  # the bands of the gate
    assert [low.x1, middle.x1] == pytest.approx([middle.x0, high.x0])


def test_the_report_without_any_training(home, tmp_path):
    (tmp_path / "empty").mkdir()
    report = interference_report(tmp_path / "empty")
    assert "0 trained adapters in" in interference_table(report).note
    assert "0 trained adapters in runs, and none" in interference_table(interference_report()).note
    assert "of 0 trained adapters, none is joint" in str(interference_conclusion(report))
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        interference_report(tmp_path / "nowhere")


@pytest.mark.integration
def test_analyze_prints_writes_and_exits_by_verdict(outputs, cli):
    given = ("analyze", "--output-dir", outputs, "--resamples", 300)
    done = cli(*given, "--exit-code", "evidence")
    assert done.exit_code == 0, done.output
    for text in ("By evidence: PASS. By point, the rule", "Kill gate", "joint_r4 − rank_only_r4"):
        assert text in done.output
    folder = outputs / "analysis"
    value = json.loads((folder / "interference.json").read_text())
    assert value["verdict"]["by_point"] == "PASS"
    assert (folder / "interference.md").read_text().startswith("# Task interference")
    written = {file.name for file in folder.iterdir()}
    assert {"interference.svg", "losses.pdf", "configurations.svg", "interference.tex"} <= written
    assert r"\textsubscript{.000}" in (folder / "configurations.tex").read_text()
    (tested,) = (e for e in value["differences"] if e["kind"] == "reranking")
    assert (tested["seeds"], tested["n"]) == ([1, 2], 40)
    assert tested["difference"] == pytest.approx(-0.05)
    assert tested["p_value"] == pytest.approx(1 / 301)
    shutil.rmtree(outputs / "joint_r4" / "seed_2")
    assert cli(*given, "--exit-code", "evidence").exit_code == 5  # one seed is not evidence
    shutil.rmtree(outputs / "joint_r4")
    assert cli(*given, "--exit-code", "point").exit_code == 6


@pytest.mark.integration
def test_the_page_follows_the_trainings_it_shows(checkout, outputs):
    given = {"outputs": str(outputs)}
    page = nbformat.read(run_notebook("interference", given, show_progress=False), as_version=4)
    assert "rank_only" in str(page)
    notebook = checkout / "notebooks" / "interference.ipynb"
    assert finished_page(notebook, given) is not None
    train(outputs, "rank_only_r4", 3, 0.5)
    assert finished_page(notebook, given) is None
    with pytest.raises(ParameterError, match="nowhere': no such folder"):
        run_notebook("interference", {"outputs": "nowhere"})


def adapter(name, seed, kind, scores):
    """A record of an adapter, as written by the demo."""
    mode, rank = name.rsplit("_r", 1)
    result = make(
        f"{name}-{seed}", task=f"PyDocs.{kind}", scores=scores, identity=f"{name}{seed}{kind}" * 9
    )
    training = {"configuration": name, "seed": seed, "mode": mode, "rank": int(rank)}
    training |= {"base": "tiny", "data_seed": seed, "steps": 60, "kind": kind}
    result.config["training"] = training
    object.__setattr__(result, "seed", seed)
    return result


def test_our_own_records_of_adapters_are_enough(home):
    low, high = [0.3, 0.5, 0.4] * 10, [0.4, 0.6, 0.5] * 10
    for seed in (1, 2):
        adapter("rank_only_r8", seed, "reranking", high).save()
        adapter("emb_only_r8", seed, "embedding", high).save()
        adapter("joint_r8", seed, "reranking", low).save()
        adapter("joint_r8", seed, "embedding", high).save()
    report = interference_report(n_resamples=200)
    (group,) = report.interference.groups
    assert (group.system, group.refused, group.missing) == ("joint_r8", (), ())
    tasks = {each.name: each for each in group.tasks}
    assert tasks["reranking"].tir == pytest.approx(0.2)
    assert tasks["embedding"].tir == 0
    assert (tasks["reranking"].seeds, report.runs) == ((1, 2), 6)
    assert report.folders == ("results",)


def test_configurations_are_means_over_seeds_with_their_spread():
    """Two seeds by hand: mean 0.3, sample standard deviation sqrt(2 * 0.1^2 / 1)."""

    def score(system, seed, value, *, task="A", finished=""):
        return Score(system, seed, task, "nDCG@10", value, kind="reranking", finished=finished)

    scores = [
        score("joint_r8", 42, 0.2),
        score("joint_r8", 123, 0.4),
        score("rank_only_r8", 42, 0.5),
        score("rank_only_r8", 42, 0.9, finished="2026-01-02"),
        score("other", 1, None),
        score("joint_r8", 42, 0.7, task="B"),
    ]
    table = configurations_table(scores)
    joint, rank = table.rows
    assert (joint[1].text, joint[1].std, joint[1].second) == ("0.300", "0.141", True)
    assert (rank[1].text, rank[1].std, rank[1].strong) == ("0.900", "", True)
    assert (joint[2].text, rank[2].text) == ("0.700", "not run")
    assert r"\textsubscript{.141}" in table.to_latex()
    first, second = configurations_figure(scores).axes
    assert [bar.get_width() for bar in first.patches] == [0.9, pytest.approx(0.3)]  # from below
    assert [bar.get_width() for bar in second.patches] == [0.7]
    assert configurations_figure([]) is None


def measured(*tirs):
    """An estimate of these TIRs, one per seed, which 100 queries hardly move."""
    values = np.array([np.full(len(tirs), 0.5), 0.5 * (1 - np.array(tirs))])
    queries = np.repeat(values[None], 100, axis=0)
    queries[:, 1] += 0.001 * np.tile([-10.0, 10.0], 50)[:, None]
    seeds, names = tuple(range(len(tirs))), tuple(map(str, range(100)))
    return estimate(
        "overall", seeds, [DataSetScores(values, (names, queries))], gate=Gate()
    ).estimate


def sentence(*overalls, notes=()):
    groups = tuple(
        Group(f"joint_r{8 * i}", replace(each, notes=notes), (), (), (), ())
        for i, each in enumerate(overalls, start=1)
    )
    estimates = Interference(groups, Gate(), REQUIRED, ())
    return str(interference_conclusion(InterferenceReport(estimates, ("runs",), 6, ())))


FEW = (-0.04, 0.012)  # two seeds that vary
CLEAR = (0.0, 0.001, -0.001, 0.0005, -0.0005)
COST = (0.08, 0.081, 0.079, 0.08, 0.0805)


@pytest.mark.parametrize(
    ("tirs", "shows", "gate"),
    [
        (FEW, "is not shown to cost anything: TIR -1.4 % [", "INCONCLUSIVE by evidence, and FAIL"),
        (CLEAR, "costs nothing measurable: TIR +0.0 % [", "says FAIL by evidence, and FAIL by"),
        (COST, "costs 8.0 % of the specialist's score: TIR +8.0 % [", "says PASS by evidence, and"),
        ((0.1, -0.02), "is not shown to cost anything:", "INCONCLUSIVE by evidence, and PASS by p"),
        ((0.08,), "is not shown to cost anything", "over 1 seed. The kill gate says INCONCLUSIVE"),
    ],
)
def test_the_words_follow_from_estimate_and_interval(tirs, shows, gate):
    text = sentence(measured(*tirs))
    assert text.startswith(f"Joint training {shows}")
    assert gate in text


def test_the_worst_of_several_configurations_speaks_and_caveats_are_said():
    text = sentence(measured(*CLEAR), measured(*COST), notes=("without embedding",))
    assert text.startswith("Joint training costs 8.0 %")
    assert "of joint_r16 over 5 seeds" in text
    assert text.endswith("Note: without embedding.")
