import json

import pytest

from qwen3nb.checkpoints.checkpoint import list_checkpoints, metric_of
from qwen3nb.checkpoints.types import CheckpointError


def test_only_numbered_checkpoints_count_and_by_number(tmp_path):
    for name in (
        "checkpoint-1000",
        "checkpoint-200",
        "checkpoint-step-30",
        "checkpoint-best",
        "checkpoint-final",
        "checkpoint-averaged",
        "other",
    ):
        (tmp_path / name).mkdir()
    names = [path.name for path in list_checkpoints(tmp_path)]
    assert names == ["checkpoint-step-30", "checkpoint-200", "checkpoint-1000"]
    with pytest.raises(CheckpointError, match="checkpoint-N"):
        list_checkpoints(tmp_path / "other")


def test_the_metric_is_that_of_the_step(tmp_path):
    log = [{"step": 10, "eval_loss": 1.0}, {"step": 20, "loss": 3.0}]
    state = {"global_step": 20, "log_history": log}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match="no eval_loss at step 20; it logs: eval_loss, loss"):
        metric_of(tmp_path)
    log += [{"step": 20, "eval_loss": 2.5}, {"step": 19, "grad_norm": float("nan")}]
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert metric_of(tmp_path) == 2.5
    log.append({"step": 20, "eval_loss": float("nan")})
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match="eval_loss at step 20 is nan"):
        metric_of(tmp_path)
    (tmp_path / "trainer_state.json").write_text('{"log_history": 3}')
    with pytest.raises(CheckpointError, match="not a trainer state"):
        metric_of(tmp_path)
