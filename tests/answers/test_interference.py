"""What trainings changed, and what joint training costs: tables, words, files and pages."""

import json
import shutil
from dataclasses import replace

import nbformat
import numpy as np
import pytest
from helpers.records import make, state
from helpers.words import long_views

from qwen3nb.analysis.inventory.scores import Score
from qwen3nb.analysis.stats.crossed_differences import crossed_p_value, seed_spreads
from qwen3nb.analysis.stats.interference_ratio import DataSetScores, Gate, QueryScores, estimate
from qwen3nb.analysis.training.interference import REQUIRED, Group, JointComparisons
from qwen3nb.answers.findings import interference_finding
from qwen3nb.answers.interference import (
    Interference,
    configurations_figure,
    configurations_table,
    interference,
)
from qwen3nb.answers.trainings import Trainings, trainings
from qwen3nb.execution.notebook import finished_page, run_notebook
from qwen3nb.execution.parameters import ParameterError
from qwen3nb.records.store import load_results


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
    report = interference([], outputs, resamples=500)
    table = report.table()
    # Each task has one data set, hence one row.
    assert texts(table, 0) == ["reranking: SciFact", "embedding: SciFact", "overall"]
    assert texts(table, 1) == texts(table, 2)  # by evidence, and by point
    assert texts(table, 1)[:2] == ["PASS", "FAIL"]
    assert table.rows[0][3].value == pytest.approx(0.1, abs=1e-3)
    assert "PASS at 2 % or more" in table.method
    assert long_views(report) == {}
    finding = interference_finding(report)  # on the landing page
    assert finding.evidence.startswith("TIR ")
    assert "PASS" in finding.evidence
    assert finding.page == "interference.html"
    frame = report.to_frame()
    assert set(frame["metric"]) == {"nDCG@10"}  # of MTEB's file, too, which does not name it
    frame = frame.set_index(["task", "configuration", "seed"])["score"]
    assert frame["reranking: SciFact", "joint_r4"].tolist() == pytest.approx([0.45, 0.4505])
    (axis,) = report.figure().axes
    assert [t.get_text() for t in axis.get_yticklabels()] == texts(table, 0)
    low, middle, high = [patch.get_extents() for patch in axis.patches]  # the bands of the gate
    assert [low.x1, middle.x1] == pytest.approx([middle.x0, high.x0])


def test_the_report_without_any_training(home, tmp_path):
    (tmp_path / "empty").mkdir()
    report = interference([], tmp_path / "empty")
    assert "0 trained adapters in" in report.table().note
    assert "0 trained adapters in runs, and none" in interference([]).table().note
    assert "no joint adapter can be compared with its specialist, of 0 trained" in str(
        report.conclusion
    )
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        interference([], tmp_path / "nowhere")


@pytest.mark.integration
def test_analyze_prints_writes_and_exits_by_verdict(outputs, cli):
    given = ("analyze", "--output-dir", outputs, "--resamples", 300)
    done = cli(*given, "--exit-code", "evidence")
    assert done.exit_code == 0, done.output
    for text in ("By evidence: PASS. By point, the rule", "Kill gate"):
        assert text in done.output
    folder = outputs / "analysis"
    value = json.loads((folder / "interference.json").read_text())
    assert value["verdict"]["by_point"] == "PASS"
    assert (folder / "interference.md").read_text().startswith("# Task interference")
    written = {file.name for file in folder.iterdir()}
    assert {"interference.svg", "losses.pdf", "configurations.svg", "interference.tex"} <= written
    assert r"\textsubscript{0.000}" in (folder / "configurations.tex").read_text()
    (tested,) = (e for e in value["differences"] if e["kind"] == "reranking")
    assert (tested["seeds"], tested["n"]) == ([1, 2], 40)
    assert tested["difference"] == pytest.approx(-0.05)
    # Equal differences on 40 queries and two seeds: queries that differ more may be missing.
    spreads = seed_spreads(np.array([0.45, 0.4505]), np.array([0.5, 0.5005]))
    expected = crossed_p_value(np.full(40, -0.05), spreads)
    assert tested["p_value"] == pytest.approx(expected, rel=1e-6)
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
    state(result, training=training)
    object.__setattr__(result, "seed", seed)
    return result


def test_our_own_records_of_adapters_are_enough(home):
    low, high = [0.3, 0.5, 0.4] * 10, [0.4, 0.6, 0.5] * 10
    for seed in (1, 2):
        adapter("rank_only_r8", seed, "reranking", high).save()
        adapter("emb_only_r8", seed, "embedding", high).save()
        adapter("joint_r8", seed, "reranking", low).save()
        adapter("joint_r8", seed, "embedding", high).save()
    report = interference(load_results(), resamples=200)
    (group,) = report.comparisons.groups
    assert (group.system, group.refused, group.missing) == ("joint_r8", (), ())
    tasks = {each.name: each for each in group.tasks}
    assert tasks["reranking"].tir == pytest.approx(0.2)
    assert tasks["embedding"].tir == 0
    assert (tasks["reranking"].seeds, report.adapters) == ((1, 2), 6)
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
    assert r"\textsubscript{0.141}" in table.to_latex()
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
    scores = DataSetScores(values, QueryScores(names, queries))
    return estimate("overall", seeds, [scores], gate=Gate()).estimate


def sentence(*overalls, notes=()):
    groups = tuple(
        Group(f"joint_r{8 * i}", replace(each, notes=notes), (), (), (), ())
        for i, each in enumerate(overalls, start=1)
    )
    comparisons = JointComparisons(groups, Gate(), REQUIRED, ())
    return str(Interference(comparisons, ("runs",), adapters=6).conclusion)


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
    assert text.endswith("See 1 caveat among what was refused.")


NOISE = np.random.default_rng(0).normal(0, 0.2, 60)
NOISE -= NOISE.mean()


def steps_of(training, *means, first=100, spread=1.0, other=0.0, **fields):
    """Records of a training with these means; ``other`` is noise of its own at each step."""
    own = np.random.default_rng(1).normal(0, other, (len(means), 60))
    return [
        make(
            f"{training}-checkpoint-{first + 100 * i}",
            scores=(mean + spread * NOISE + own[i] - own[i].mean()).tolist(),
            **fields,
        )
        for i, mean in enumerate(means)
    ]


UP, DOWN = steps_of("a", 0.2, 0.3, 0.5, other=0.01), steps_of("a", 0.5, 0.3, 0.2, other=0.01)
UNCLEAR = steps_of("a", 0.3, 0.31, 0.302, other=0.2)
SEEDS = steps_of("a-seed-1", 0.2, 0.4) + steps_of("a-seed-2", 0.2, 0.4)
MANY = [each for name in "abcde" for each in steps_of(name, 0.2, 0.5, other=0.01)]


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (
            UP,
            "Training a raised nDCG@10 on Retrieval: 0.200 at step 100, 0.500 at step 300. Step 3",
        ),
        (DOWN, "lowered nDCG@10 on Retrieval: 0.500 at step 100, 0.200 at step 300"),
        (UNCLEAR, "Training a is not shown to change nDCG@10 on Retrieval: 0.300 at step 100"),
        (steps_of("a", 0.3), "No training has two evaluated checkpoints"),
        (SEEDS, "Training a, seed 2 raised"),
        (MANY, "The table has 3 more."),
    ],
)
def test_what_a_training_changed(tmp_path, results, words):
    assert words in str(trainings(results, tier="smoke", outputs=tmp_path).conclusion)


def test_p_values_of_gains_are_corrected_over_all_of_them(tmp_path):
    results = [*steps_of("a", 0.2, 0.5, other=0.01), *steps_of("b", 0.3, 0.31, other=0.2)]
    table = trainings(results, tier="smoke", outputs=tmp_path).table()
    clear, noise = table.rows
    assert clear[5].value == pytest.approx(2 / 10_001)  # the smallest, times Holm's 2
    assert (clear[5].strong, noise[5].strong) == (True, False)
    assert clear[4].value == pytest.approx(0.3)
    assert (clear[2].detail, clear[3].detail, clear[6].text) == ("step 100", "step 200", "60")
    assert "Holm over 2 gains" in table.method
    assert "No training" in Trainings().table().note


@pytest.fixture
def continued(home, monkeypatch):
    """A training of two checkpoints, and one that started from the last of them."""
    monkeypatch.setenv("QWEN3NB_HOME", str(home))
    records = steps_of("ul2", 0.2, 0.3) + steps_of("pairs", 0.4, 0.6, first=50)
    folders = ("ul2/checkpoint-100", "ul2/checkpoint-200", "pairs/checkpoint-50")
    for result, folder in zip(records, (*folders, "pairs/checkpoint-150"), strict=True):
        export = home / "exports" / result.model.label
        export.mkdir(parents=True)
        source = {"source": {"folder": f"runs/{folder}"}}
        (export / "qwen3nb.json").write_text(json.dumps(source))
        object.__setattr__(result.model, "spec", str(export.relative_to(home)))
        (home / "runs" / folder).mkdir(parents=True)
    return records


@pytest.mark.parametrize(
    ("start", "steps"),
    [("runs/ul2/checkpoint-200", (0, 50, 150)), ("runs/nowhere", (50, 150)), (7, (50, 150))],
)
def test_a_training_starts_where_it_says(home, continued, start, steps):
    (home / "runs" / "pairs" / "training.json").write_text(json.dumps({"start": start}))
    for number, result in enumerate(continued[2:]):  # the step is then that of the checkpoint
        object.__setattr__(result.model, "label", f"my-model-{number}")
    course = trainings(continued, tier="smoke")
    second, first = sorted(course.trajectories, key=lambda each: each.training)
    assert (first.training, sorted(first.records[0])) == ("ul2", [100, 200])
    assert (second.training, sorted(second.records[0])) == ("pairs", list(steps))
    if 0 in steps:
        assert second.records[0][0] is continued[1]
        assert "pairs raised nDCG@10 on Retrieval: 0.300 at step 0" in str(course.conclusion)


def test_runs_without_their_seed_are_refused():
    with pytest.raises(ValueError, match="zip"):
        estimate("T", [1], [DataSetScores(np.full((2, 2), 0.5))], gate=Gate())
