"""The checkpoints of a training: their folders, their order, and what the trainer logged."""

from __future__ import annotations

import json
import math
import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from qwen3nb.checkpoints.folder import check_inside
from qwen3nb.checkpoints.types import CheckpointError

_NUMBERED = re.compile(r"checkpoint-(?:step-)?(\d{1,18})")


def step_of(folder: Path) -> int | None:
    """Return the step in a folder name, or None for ``-best``, ``-final`` and the like.

    >>> step_of(Path("checkpoint-200")), step_of(Path("checkpoint-step-3"))
    (200, 3)
    >>> step_of(Path("checkpoint-best")) is None
    True
    """
    match = _NUMBERED.fullmatch(folder.name)
    return int(match[1]) if match else None


def list_checkpoints(folder: Path | str) -> list[Path]:
    """Return the numbered checkpoints in ``folder``, sorted by step.

    Raises:
        CheckpointError: there are none, or two have the same step.
    """
    folder = Path(folder)
    numbered = sorted(
        (step, path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.is_dir() and (step := step_of(path)) is not None
    )
    if not numbered:
        missing = "" if folder.is_dir() else "no such folder; "
        hint = f"; {folder.name} is one: give {folder.parent}" if step_of(folder) else ""
        raise CheckpointError(
            f"{folder}: {missing}expected folders named checkpoint-N, found none{hint}"
        )
    for (step, path), (next_step, other) in pairwise(numbered):
        if step == next_step:
            raise CheckpointError(f"{folder}: {path.name} and {other.name} have the same step")
    return [path for _, path in numbered]


def metric_of(folder: Path, metric: str = "eval_loss") -> float:
    """Return a metric at the checkpoint's own step, from its ``trainer_state.json``.

    The log in that file is cumulative, so its last entry may belong to an earlier step.

    Raises:
        CheckpointError: no such file, no such metric at that step, or not a finite number.
    """
    file = folder / "trainer_state.json"
    state = trainer_state(folder)
    step = state.get("global_step", step_of(folder))
    log = [entry for entry in state.get("log_history", ()) if isinstance(entry, dict)]
    values = [entry[metric] for entry in log if entry.get("step") == step and metric in entry]
    if not values:
        seen = sorted({key for entry in log for key in entry})
        raise CheckpointError(f"{file}: no {metric} at step {step}; it logs: {', '.join(seen)}")
    value = values[-1]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise CheckpointError(f"{file}: {metric} at step {step} is {value!r}, expected a number")
    return float(value)


def trainer_state(folder: Path) -> dict[str, Any]:
    """Return the content of ``trainer_state.json``; empty if there is no such file.

    NaN is accepted, because trainers log gradient norms that are NaN.

    Raises:
        CheckpointError: the file is not a trainer state.
    """
    file = folder / "trainer_state.json"
    if not os.path.lexists(file):
        return {}
    check_inside(file)
    try:
        state = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not a trainer state ({error})") from None
    if not isinstance(state, dict) or not isinstance(state.get("log_history", []), list):
        raise CheckpointError(
            f"{file}: not a trainer state (expected an object with the list log_history)"
        )
    return state
