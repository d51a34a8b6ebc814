"""The logged metric that selects checkpoints: its name in the log, and which way is better.

The Trainer of transformers has ``greater_is_better`` for this, and without it one rule: names that
end in "loss" go down, all others up. It is extended here by the names of other losses.
https://huggingface.co/docs/transformers/main_classes/trainer
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from qwen3nb.checkpoints.folder import TrainerState, check_inside
from qwen3nb.checkpoints.types import CheckpointError

# Words in the names of metrics that measure an error.
_ERRORS = frozenset(
    """
    bits bpb bpc bpt brier cer crossentropy distance divergence ece eer entropy err error errors
    fid kl loss losses mae mape mer mse msle nats nll perplexity ppl rmse rmsle runtime smape
    ter wer
    """.split()  # noqa: SIM905 - a list of words reads better as lines
)
_SETTINGS = ("trainer_state.json", "training_args.json", "args.json")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def logged_name(metric: str, checkpoints: Sequence[Path]) -> str:
    """Return the name under which a metric is logged: the Trainer puts ``eval_`` in front.

    Raises:
        CheckpointError: a ``trainer_state.json`` cannot be read.
    """
    logged: set[str] = set()
    for checkpoint in checkpoints:
        for entry in TrainerState.of(checkpoint).entries:
            logged.update(entry)
    for name in (metric, f"eval_{metric}", metric.removeprefix("eval_")):
        if name in logged:
            return name
    return metric


def lower_is_better(metric: str, checkpoints: Sequence[Path]) -> bool:
    """Return whether lower values of ``metric`` are better in a training.

    In this order: ``greater_is_better`` of its Trainer, if it is stated for this metric; what the
    Trainer kept as ``best_metric``; the metric's name.

    Args:
        metric: the name in the log, such as ``eval_loss``.
        checkpoints: the checkpoints of the training, by step.

    Raises:
        CheckpointError: a ``trainer_state.json`` cannot be read.
    """
    for settings in _trainer_settings(checkpoints):
        greater = settings.get("greater_is_better")
        if isinstance(greater, bool) and _concerns(settings, metric):
            return not greater
    for checkpoint in reversed(checkpoints):
        lower = _from_best_metric(TrainerState.of(checkpoint), metric)
        if lower is not None:
            return lower
    return named_as_error(metric)


def named_as_error(metric: str) -> bool:
    """Return whether a metric's name says that lower is better, as "loss" and "perplexity" do."""
    if metric.lower().endswith("loss"):
        return True
    words = {word.lower() for word in _WORD.findall(metric)}
    return not words.isdisjoint(_ERRORS)


def _trainer_settings(checkpoints: Sequence[Path]) -> Iterator[Mapping[str, object]]:
    """Yield the settings of a training that are stored as JSON, those of the last step first."""
    folders = list(reversed(checkpoints))
    folders += {checkpoint.parent for checkpoint in checkpoints}
    for folder in folders:
        for name in _SETTINGS:
            with suppress(OSError, ValueError, CheckpointError, RecursionError):
                check_inside(folder / name, folder)
                settings = json.loads((folder / name).read_bytes())
                if isinstance(settings, dict):
                    yield settings


def _concerns(settings: Mapping[str, object], metric: str) -> bool:
    """Return whether ``greater_is_better`` is about this metric; an unnamed one may be a loss."""
    best_by = settings.get("metric_for_best_model")
    if not isinstance(best_by, str):
        return not metric.endswith("loss")
    return best_by.removeprefix("eval_") == metric.removeprefix("eval_")


def _from_best_metric(state: TrainerState, metric: str) -> bool | None:
    """Return whether the Trainer's best value is the least of the metric; None if not known."""
    best = _number(state.best_metric)
    if best is None:
        return None
    values: list[float] = []
    for entry in state.entries:
        value = _number(entry.get(metric))
        if value is not None:
            values.append(value)
    if not values or min(values) == max(values):
        return None
    if best == min(values):
        return True
    if best == max(values):
        return False
    return None


def _number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value):
        return None
    return value
