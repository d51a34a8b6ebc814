"""Logs of trainings, and the records of their steps."""

import json

import numpy as np
import pytest
from helpers.records import amend, make

from qwen3nb.analysis.inventory.training_logs import (
    find_logs,
    find_outputs,
    log_files,
    read_conflicts,
    read_log,
    read_trainer_state,
)
from qwen3nb.analysis.training.checkpoint_scores import (
    TrainingStep,
    training_step,
    trajectories,
    trajectory_curve,
)
from qwen3nb.datasets.training_files import json_lines
from qwen3nb.report.training.trainings import (
    best_table,
    conflict_figure,
    logs_table,
    loss_correlation_table,
    loss_figure,
    read_trainings,
    trajectory_figure,
    variance_table,
)

PARAMETER = "base_model.model.model.layers.{}.self_attn.{}.lora_{}.default.weight"
TASK = "PyDocsSampleRetrieval"


def lines(*entries, end="\n"):
    return "\n".join(json.dumps(entry) for entry in entries) + end


@pytest.fixture
def outputs(tmp_path):
    """A joint training that was killed, and a specialist."""
    base = tmp_path / "deep" / "outputs"
    joint, alone = base / "joint_r4" / "seed_7", base / "rank_only_r4" / "seed_7"
    for folder in (joint, alone):
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("training: {mode: joint}\n")
        log = [{"step": s, "loss": 2.0 / s, "lr": 0.1, "loss_emb": 1.0 / s} for s in (1, 2)]
        (folder / "train_log.jsonl").write_text(lines(*log))
    with (joint / "train_log.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    measured = [
        {
            "step": 10,
            "per_layer": {
                PARAMETER.format(0, "q_proj", "A"): 0.2,
                PARAMETER.format(0, "q_proj", "B"): 0.4,
                PARAMETER.format(10, "v_proj", "A"): -0.5,
            },
        },
        {"step": 20, "per_layer": {PARAMETER.format(0, "q_proj", "A"): -0.1, "odd.name.w": 0.5}},
    ]
    (joint / "gradient_conflicts.jsonl").write_text(lines(*measured, end=""))
    return base


def test_a_truncated_line_is_left_out_and_reported(outputs):
    log = read_log(outputs / "joint_r4" / "seed_7" / "train_log.jsonl")
    assert log.name == "joint_r4 (seed 7)"
    assert log.series["loss"] == ((1, 2.0), (2, 1.0))
    assert log.notes == ("train_log.jsonl:3: truncated, left out",)
    broken = outputs / "broken.jsonl"
    broken.write_text('{"step": 1}\n{"ste\n{"step": 3}\n')
    with pytest.raises(ValueError, match="broken.jsonl:2: not JSON"):
        json_lines(broken)
    broken.write_text("[1]\n")
    with pytest.raises(ValueError, match="broken.jsonl:1: list, expected an object"):
        json_lines(broken)


def test_conflicts_by_layer_module_and_step_with_gaps(outputs):
    conflicts = read_conflicts(outputs / "joint_r4" / "seed_7" / "gradient_conflicts.jsonl")
    assert conflicts.steps == (10, 20)
    assert conflicts.layers == ("0", "10", "other")
    assert conflicts.modules == ("q_proj", "v_proj", "odd")
    assert conflicts.cosines["0", "q_proj"] == (pytest.approx(0.3), pytest.approx(-0.1))
    np.testing.assert_allclose(
        conflicts.by_step(), [[0.3, -0.1], [-0.5, np.nan], [np.nan, 0.5]], equal_nan=True
    )
    nothing = [np.nan, np.nan]
    np.testing.assert_allclose(
        conflicts.by_module(),
        [[0.1, *nothing], [np.nan, -0.5, np.nan], [*nothing, 0.5]],
    )


def test_outputs_are_located_at_any_depth(outputs):
    assert find_outputs(outputs.parents[1]) == [outputs]
    assert find_outputs(outputs / "nowhere") == []
    assert [f.parts[-3] for f in find_logs([outputs])] == ["joint_r4", "rank_only_r4"]
    assert len(log_files(outputs)) == 5


def test_a_trainers_log_without_its_non_numeric_values():
    state = {
        "log_history": [
            {"step": 5, "learning_rate": 0.1, "loss": 1.0},
            {"step": 10, "eval_loss": 0.8, "loss": float("nan"), "task": "x", "done": True},
            {"loss": 3.0},
            7,
        ]
    }
    log = read_trainer_state(state, name="ul2")
    assert log.series == {"lr": ((5, 0.1),), "loss": ((5, 1.0),), "eval_loss": ((10, 0.8),)}


@pytest.mark.parametrize(
    ("label", "step"),
    [
        ("demo-checkpoint-400", TrainingStep("demo", 0, 400)),
        ("demo-init", TrainingStep("demo", 0, 0)),
        ("ul2-seed_7-checkpoint-20", TrainingStep("ul2", 7, 20)),
        ("checkpoint-3", TrainingStep("training", 0, 3)),
        ("demo-average", None),
        ("demo-checkpoint-best", None),
    ],
)
def test_the_step_is_that_of_the_label_or_of_the_records_training(label, step):
    result = make(label)
    assert training_step(result) == step
    result.config["training"] = {"configuration": "joint_r4", "seed": 3, "steps": 60}
    assert training_step(result) == TrainingStep("joint_r4", 3, 60)


def steps_of(training, *means, seed="", spread=0.2):
    """Records of a training with these means, checkpoint by checkpoint."""
    noise = np.random.default_rng(0).normal(0, spread, 60)
    return [
        make(f"{training}{seed}-checkpoint-{100 * (i + 1)}", scores=mean + noise - noise.mean())
        for i, mean in enumerate(means)
    ]


def test_records_of_one_training_are_a_trajectory():
    results = [
        *steps_of("a", 0.1, 0.5),
        *steps_of("b", 0.2, seed="-seed-1"),
        *steps_of("b", 0.3, seed="-seed-2"),
        make("other"),
    ]
    first, second = trajectories(results, tasks=[TASK])
    assert (first.training, first.steps, list(first.records)) == ("a", (100, 200), [0])
    assert (second.training, sorted(second.records)) == ("b", [1, 2])
    amend(results[0], "task", revision="another")
    (only, _) = trajectories(results, tasks=[TASK])
    assert only.steps == (200,)
    with pytest.raises(ValueError, match="at least one step"):
        trajectory_curve({}, metric="nDCG@10")


def test_a_correlations_trajectory_has_the_records_intervals():
    results = {step: make("m", metric="Spearman") for step in (1, 2)}
    for result in results.values():
        result.per_query.clear()
    curve = trajectory_curve(results, metric="Spearman")
    value = results[1].main
    assert [point.interval for point in curve.points] == [(value.low, value.high)] * 2
    assert curve.points[1].change == 0


def test_the_page_names_the_best_only_where_it_differs(outputs):
    results = [*steps_of("clear", 0.1, 0.6), *steps_of("tied", 0.4, 0.4)]
    trainings = read_trainings(results, tier="smoke", outputs=outputs)
    clear, tied = best_table(trainings).rows
    assert (clear[2].text, clear[4].text) == ("200", "yes")
    assert (tied[2].text, tied[4].text) == ("100", "no")
    assert "not significantly different from step 200" in tied[5].text
    assert "With one seed: clear, tied" in variance_table(trainings).note
    assert "No training has two checkpoints" in loss_correlation_table(trainings).note
    rows = logs_table(trainings).rows
    assert [row[0].text for row in rows] == ["joint_r4 (seed 7)", "rank_only_r4 (seed 7)", "–"]
    assert "truncated" in rows[2][2].detail


def test_variance_is_split_between_seeds_and_queries(outputs):
    results = [*steps_of("a", 0.2, seed="-seed_1"), *steps_of("a", 0.6, seed="-seed_2")]
    (row,) = variance_table(read_trainings(results, tier="smoke", outputs=outputs)).rows
    assert (row[1].text, row[1].detail) == ("a", "step 100, 2 seeds")
    # The queries are the same for both seeds and vary little: the seeds make the error.
    assert int(row[-1].text.split(" %")[0]) > 90


def test_figures_of_trainings(outputs):
    results = [*steps_of("a", 0.1, 0.5), *steps_of("b", 0.2, 0.3)]
    trainings = read_trainings(results, tier="smoke", outputs=outputs)
    (legend,) = trajectory_figure(trainings).figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    titles = [axis.get_title() for axis in loss_figure(trainings).axes]
    assert titles == ["training loss", "loss, embedding", "learning rate"]
    assert [axis.get_xscale() for axis in loss_figure(trainings).axes] == ["linear"] * 3
    heat, _, _, _ = conflict_figure(trainings).axes
    assert [tick.get_text() for tick in heat.get_yticklabels()] == ["0", "10", "other"]
    assert heat.collections[0].get_array().mask.sum() == 2
    assert heat.patch.get_hatch()


def test_tables_and_figures_without_any_training(tmp_path):
    trainings = read_trainings([], tier="smoke", outputs=tmp_path)
    assert (
        trajectory_figure(trainings) is loss_figure(trainings) is conflict_figure(trainings) is None
    )
    assert "No training has two or more" in best_table(trainings).note
    assert logs_table(trainings).note == "No log of a training was found."
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        read_trainings([], tier="smoke", outputs=tmp_path / "nowhere")


def test_losses_of_checkpoints_go_with_their_scores(home, tmp_path):
    """The provenance of the export names the training of a model."""
    training = home / "runs" / "ul2"
    losses = {100: 2.0, 200: 1.0, 300: 0.5, 400: 0.4}
    results = steps_of("ul2", 0.1, 0.2, 0.3, 0.4)
    for step, result in zip(losses, results, strict=True):
        checkpoint, export = training / f"checkpoint-{step}", home / "runs" / "e" / str(step)
        checkpoint.mkdir(parents=True)
        export.mkdir(parents=True)
        log = [{"step": s, "eval_loss": value} for s, value in losses.items() if s <= step]
        (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": log}))
        provenance = {"source": {"folder": f"runs/ul2/checkpoint-{step}"}, "schema": "x"}
        (export / "qwen3nb.json").write_text(json.dumps(provenance))
        amend(result, "model", spec=f"runs/e/{step}")
    (row,) = loss_correlation_table(read_trainings(results, tier="smoke")).rows
    assert (row[2].text, row[3].text) == ("-1.00", "4")


def test_a_real_training(fixtures):
    folder = fixtures / "adapters" / "outputs"
    if not folder.is_dir():
        pytest.skip("these fixtures hold no adapters")
    trainings = read_trainings([], tier="smoke", outputs=folder)
    assert len(trainings.logs) == 6
    assert [each.layers for each in trainings.conflicts] == [("0", "1")] * 2
    assert len(trainings.conflicts[0].modules) == 7
    assert trainings.problems == ()
    assert len(conflict_figure(trainings).axes) == 8
