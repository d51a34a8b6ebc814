import json

import pytest

from qwen3nb.checkpoints.checkpoint import list_checkpoints, metric_of
from qwen3nb.checkpoints.types import CheckpointError


def test_only_numbered_checkpoints_count_and_by_number(tmp_path):
    for name in ("1000", "200", "step-30", "best", "final", "averaged"):
        (tmp_path / f"checkpoint-{name}").mkdir()
    names = [path.name for path in list_checkpoints(tmp_path)]
    assert names == ["checkpoint-step-30", "checkpoint-200", "checkpoint-1000"]
    with pytest.raises(CheckpointError, match="checkpoint-N"):
        list_checkpoints(tmp_path / "checkpoint-best")


def test_the_metric_is_that_of_the_step(tmp_path):
    log = [{"step": 10, "eval_loss": 1.0}, {"step": 20, "loss": 3.0}]

    def metric(history):
        state = {"global_step": 20, "log_history": history}
        (tmp_path / "trainer_state.json").write_text(json.dumps(state))
        return metric_of(tmp_path)

    more = [{"step": 20, "eval_loss": 2.5}, {"step": 19, "grad_norm": float("nan")}]
    assert metric([*log, *more]) == 2.5
    for history, message in (
        (log, "no eval_loss at step 20; it logs: eval_loss, loss"),
        ([*log, {"step": 20, "eval_loss": float("nan")}], "eval_loss at step 20 is nan"),
        (3, "not a trainer state"),
    ):
        with pytest.raises(CheckpointError, match=message):
            metric(history)
