"""The logged metric that selects checkpoints: its name in the log, and which way is better.

The Trainer of transformers has ``greater_is_better`` for this, and without it one rule: names that
end in "loss" go down, all others up. It is extended here by the names of other losses.
https://huggingface.co/docs/transformers/main_classes/trainer
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from qwen3nb.checkpoints.folder import TrainerState, check_inside, finite_number
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.utils.bounded_files import FileBoundError, read_json_bytes

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
    # The Trainer logs eval_loss for a metric called loss; either name may be given.
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
    # What the settings state comes first.
    for settings in _trainer_settings(checkpoints):
        greater_is_better = settings.get("greater_is_better")
        if isinstance(greater_is_better, bool) and _selects_by(settings, metric):
            return not greater_is_better
    # Next, whether the value that the Trainer kept as best is the lowest or the highest.
    for checkpoint in reversed(checkpoints):
        best_is_lowest = _best_is_lowest(TrainerState.of(checkpoint), metric)
        if best_is_lowest is not None:
            return best_is_lowest
    return named_as_error(metric)


def named_as_error(metric: str) -> bool:
    """Return whether a metric's name says that lower is better, as "loss" and "perplexity" do."""
    if metric.lower().endswith("loss"):
        return True
    words = {word.lower() for word in _WORD.findall(metric)}
    return not words.isdisjoint(_ERRORS)


def _trainer_settings(checkpoints: Sequence[Path]) -> Iterator[Mapping[str, object]]:
    """Yield the settings of a training that are stored as JSON, those of the last step first."""
    trainings = {checkpoint.parent for checkpoint in checkpoints}
    for folder in [*reversed(checkpoints), *trainings]:
        for name in _SETTINGS:
            settings = _read_settings(folder / name)
            if settings is not None:
                yield settings


def _read_settings(file: Path) -> Mapping[str, object] | None:
    """Return the settings in a file; None if it has none that can be read.

    Raises:
        CheckpointError: it is too large.
    """
    try:
        check_inside(file)
        settings = json.loads(read_json_bytes(file))
    except FileBoundError as error:
        raise CheckpointError(str(error)) from None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(settings, dict):
        return None
    return settings


def _selects_by(settings: Mapping[str, object], metric: str) -> bool:
    """Return whether a Trainer selected by this metric; by one without a name, not by a loss."""
    metric_for_best_model = settings.get("metric_for_best_model")
    if not isinstance(metric_for_best_model, str):
        return not metric.endswith("loss")
    return metric_for_best_model.removeprefix("eval_") == metric.removeprefix("eval_")


def _best_is_lowest(state: TrainerState, metric: str) -> bool | None:
    """Return whether the Trainer's best value is the least of the metric; None if not known."""
    best = finite_number(state.best_metric)
    if best is None:
        return None
    values: list[float] = []
    for entry in state.entries:
        value = finite_number(entry.get(metric))
        if value is not None:
            values.append(value)
    if not values or min(values) == max(values):  # no extreme to tell by
        return None
    # The best value may be of another metric: it is then neither extreme.
    if best == min(values):
        return True
    if best == max(values):
        return False
    return None
