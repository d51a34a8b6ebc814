"""The logged metric that selects checkpoints: which way is better, and where it is not logged."""

import json
import math

import pytest
from click.testing import CliRunner
from transformers import TrainingArguments

from qwen3nb.checkpoints.averaging import select_checkpoints
from qwen3nb.checkpoints.direction import lower_is_better, named_as_error
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.cli.main import main

STEPS = (100, 200, 300, 400)
RISING = {100: 0.3, 200: 0.5, 300: 0.7, 400: 0.2}


def training(folder, metric, values, **state):
    """A folder of checkpoints without weights; each state has the log up to its step, as usual."""
    log = [{"step": step, metric: value} for step, value in values.items()]
    for step in STEPS:
        checkpoint = folder / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        history = [entry for entry in log if entry["step"] <= step]
        fields = {"global_step": step, "log_history": history, **state}
        (checkpoint / "trainer_state.json").write_text(json.dumps(fields))
    return folder


def steps(selection):
    return {int(folder.name.removeprefix("checkpoint-")) for folder in selection.folders}


@pytest.mark.parametrize(
    "metric", ["eval_loss", "loss", "eval_dev_loss", "eval_ndcg", "eval_accuracy", "dev", "f1"]
)
def test_the_direction_is_that_of_the_trainer(tmp_path, metric):
    arguments = TrainingArguments(
        str(tmp_path),
        metric_for_best_model=metric,
        load_best_model_at_end=True,
        eval_strategy="steps",
        save_strategy="steps",
        eval_steps=1,
        save_steps=1,
    )
    folder = training(tmp_path / "run", metric, RISING)
    selection = select_checkpoints(folder, best=2, metric=metric)
    assert steps(selection) == ({200, 300} if arguments.greater_is_better else {100, 400})
    better = "higher" if arguments.greater_is_better else "lower"
    assert selection.rule == f"best 2 by {metric} ({better} is better)"


@pytest.mark.parametrize(
    ("metric", "lower"),
    [
        ("eval_perplexity", True),
        ("eval_wer", True),
        ("eval_RMSE", True),
        ("eval_lossMlm", True),
        ("eval_loss_de", True),
        ("eval_errorRate", True),
        ("eval_cross_entropy", True),
        ("eval_bits_per_byte", True),
        ("eval_nats_per_token", True),
        ("eval_brier_score", True),
        ("eval_answer", False),  # neither "wer" nor "err" is a word of these
        ("eval_merit", False),
        ("eval_piece_f1", False),
        ("eval_samples_per_second", False),
        ("eval_NanoBEIR_mean_cosine_ndcg@10", False),
    ],
)
def test_other_errors_go_down_by_their_names(metric, lower):
    assert named_as_error(metric) is lower


def test_what_the_training_states_comes_before_the_name(tmp_path):
    by_state = training(tmp_path / "a", "eval_margin", RISING, greater_is_better=False)
    assert steps(select_checkpoints(by_state, best=2, metric="eval_margin")) == {100, 400}
    # of another metric, it says nothing
    other = {"greater_is_better": False, "metric_for_best_model": "loss"}
    of_another = training(tmp_path / "b", "eval_margin", RISING, **other)
    assert steps(select_checkpoints(of_another, best=2, metric="eval_margin")) == {200, 300}
    beside = training(tmp_path / "c", "eval_margin", RISING)
    arguments = {"greater_is_better": False, "metric_for_best_model": "margin"}
    (beside / "checkpoint-400" / "training_args.json").write_text(json.dumps(arguments))
    assert steps(select_checkpoints(beside, best=2, metric="eval_margin")) == {100, 400}
    best = {"best_metric": 0.2, "best_model_checkpoint": "run/checkpoint-400"}
    by_best = training(tmp_path / "d", "eval_margin", RISING, **best)
    assert steps(select_checkpoints(by_best, best=2, metric="eval_margin")) == {100, 400}
    # a choice of the caller comes first
    forced = select_checkpoints(by_best, best=2, metric="eval_margin", lower_is_better=False)
    assert steps(forced) == {200, 300}


def test_an_unnamed_direction_does_not_turn_a_loss(tmp_path):
    folder = training(tmp_path, "eval_loss", RISING, greater_is_better=True)
    assert lower_is_better("eval_loss", sorted(folder.iterdir()))


def test_the_name_in_the_log_may_have_the_prefix_of_the_trainer(tmp_path):
    folder = training(tmp_path, "eval_ndcg", RISING)
    selection = select_checkpoints(folder, best=1, metric="ndcg")
    assert (selection.rule, steps(selection)) == ("best 1 by eval_ndcg (higher is better)", {300})


def test_checkpoints_without_a_value_are_left_out_and_named(tmp_path):
    folder = training(tmp_path, "eval_ndcg", {100: 0.3, 200: math.nan, 400: 0.2})
    selection = select_checkpoints(folder, best=3, metric="eval_ndcg")
    assert steps(selection) == {100, 400}
    assert "checkpoint-200: left out, as its eval_ndcg is nan" in selection.note
    assert "checkpoint-300: left out, as no eval_ndcg is logged at its step" in selection.note
    assert "3 checkpoints requested, 2 averaged" in selection.note
    with pytest.raises(CheckpointError, match="no bleu at step 100; it logs: eval_ndcg"):
        select_checkpoints(folder, best=1, metric="bleu")


def test_the_command_takes_both_directions(tmp_path, make_checkpoint):
    run = tmp_path / "run"
    for step, value in RISING.items():
        checkpoint = make_checkpoint(run / f"checkpoint-{step}", seed=step)
        entry = {"step": step, "eval_ndcg": value}
        state = {"global_step": step, "log_history": [entry]}
        (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    for option, expected in (
        ([], {"checkpoint-200", "checkpoint-300"}),
        (["--higher-is-better"], {"checkpoint-200", "checkpoint-300"}),
        (["--lower-is-better"], {"checkpoint-100", "checkpoint-400"}),
    ):
        output = tmp_path / "-".join(["mean", *option])
        arguments = ["average", run, output, "--best", 2, "--metric", "eval_ndcg", *option]
        done = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert done.exit_code == 0, done.output
        written = json.loads((output / "averaging_metadata.json").read_text())
        assert set(written["averaged_from"]) == expected


def test_a_best_value_that_no_float_holds_says_nothing(tmp_path):
    folder = training(tmp_path, "eval_loss", RISING, best_metric=10**400)
    assert steps(select_checkpoints(folder, best=1)) == {400}


@pytest.mark.parametrize("name", ["trainer_state.json", "training_args.json"])
def test_a_file_of_gigabytes_is_refused_before_it_is_read(tmp_path, name):
    folder = training(tmp_path, "eval_loss", RISING)
    with (folder / "checkpoint-400" / name).open("r+b" if "state" in name else "wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(CheckpointError, match=rf"{name}: 3,221,225,472 bytes; expected at most"):
        select_checkpoints(folder, best=1)
