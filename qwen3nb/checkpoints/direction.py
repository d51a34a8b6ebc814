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
from typing import Any

from qwen3nb.checkpoints.folder import check_inside, trainer_state
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
        for entry in trainer_state(checkpoint).get("log_history", ()):
            if isinstance(entry, dict):
                logged.update(entry)
    spellings = (metric, f"eval_{metric}", metric.removeprefix("eval_"))
    return next((name for name in spellings if name in logged), metric)


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
        lower = _from_best_metric(trainer_state(checkpoint), metric)
        if lower is not None:
            return lower
    return named_as_error(metric)


def named_as_error(metric: str) -> bool:
    """Return whether a metric's name says that lower is better, as "loss" and "perplexity" do."""
    if metric.lower().endswith("loss"):
        return True
    words = {word.lower() for word in _WORD.findall(metric)}
    return not words.isdisjoint(_ERRORS)


def _trainer_settings(checkpoints: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of a training that are stored as JSON, those of the last step first."""
    folders = [*reversed(checkpoints), *{checkpoint.parent for checkpoint in checkpoints}]
    for file in (folder / name for folder in folders for name in _SETTINGS):
        with suppress(OSError, ValueError, CheckpointError, RecursionError):
            check_inside(file, file.parent)
            settings = json.loads(file.read_bytes())
            if isinstance(settings, dict):
                yield settings


def _concerns(settings: Mapping[str, Any], metric: str) -> bool:
    """Return whether ``greater_is_better`` is about this metric; an unnamed one may be a loss."""
    named = settings.get("metric_for_best_model")
    if not isinstance(named, str):
        return not metric.endswith("loss")
    return named.removeprefix("eval_") == metric.removeprefix("eval_")


def _from_best_metric(state: Mapping[str, Any], metric: str) -> bool | None:
    """Return whether the Trainer's best value is the least of the metric; None if not known."""
    best = state.get("best_metric")
    if not _is_number(best):
        return None
    values = [
        entry[metric]
        for entry in state.get("log_history", ())
        if isinstance(entry, dict) and _is_number(entry.get(metric))
    ]
    if not values or min(values) == max(values):
        return None
    if best == min(values):
        return True
    return False if best == max(values) else None


def _is_number(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]
