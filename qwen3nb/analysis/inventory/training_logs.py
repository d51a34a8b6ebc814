"""Logs of trainings: losses by step, and conflicts of the gradients of two objectives."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qwen3nb.datasets import rows
from qwen3nb.metrics.intervals import Array

LOG, CONFLICTS = "train_log.jsonl", "gradient_conflicts.jsonl"
_LARGEST_STEP = 2**53  # beyond, floats skip integers
# Parameters such as ``model.layers.0.self_attn.q_proj.lora_A.weight``.
_LAYER_MODULE = re.compile(
    r"(?:^|\.)layers\.(?P<layer>\d+)\.(?:\w+\.)*?(?P<module>\w+)\.lora_[AB]\b"
)
_LOG_FILES = ("config.yaml", LOG, CONFLICTS, "trainer_state.json", "results/*.json")

Module = tuple[str, str]  # layer and name, such as ``("0", "q_proj")``


@dataclass(frozen=True)
class TrainingLog:
    """The log of one training."""

    name: str  # of the training
    # by name (``loss``, ``lr``, …), step and value in order
    series: dict[str, tuple[tuple[int, float], ...]]
    notes: tuple[str, ...] = ()  # lines that cannot be read


@dataclass(frozen=True)
class Conflicts:
    """Cosines of two objectives' gradients."""

    name: str  # of the training
    steps: tuple[int, ...]  # steps at which they were measured
    # per module one value per step, or None; mean over its parameters (A and B of a LoRA)
    cosines: dict[Module, tuple[float | None, ...]] = field(repr=False)
    notes: tuple[str, ...] = ()  # lines that cannot be read

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, in numerical order."""
        names = {layer for layer, _ in self.cosines}
        return tuple(sorted(names, key=lambda name: (not name.isdigit(), name.zfill(6))))

    def by_step(self) -> Array:
        """Mean over modules (layers, steps); NaN where not measured."""
        layers = self.layers
        modules = list(dict.fromkeys(name for _, name in self.cosines))
        cosines = np.full((len(layers), len(modules), len(self.steps)), np.nan)
        for (layer, module), values in self.cosines.items():
            row, column = layers.index(layer), modules.index(module)
            cosines[row, column] = np.array(values, dtype=np.float64)  # None is NaN
        # A masked mean leaves out what is not measured, and is masked where nothing is.
        means = np.ma.masked_invalid(cosines).mean(axis=1)
        return np.asarray(means.filled(np.nan))


def read_log(file: Path) -> TrainingLog:
    """Read a training's ``train_log.jsonl``.

    Raises:
        DataError: see `qwen3nb.datasets.rows.json_lines`.
    """
    entries, notes = rows.json_lines(file)
    return TrainingLog(_run_name(file), _series(entries), tuple(notes))


def read_trainer_state(state: Mapping[str, object], *, name: str) -> TrainingLog:
    """The log in the parsed ``trainer_state.json`` of transformers' Trainer."""
    history = state.get("log_history")
    if not isinstance(history, list):
        return TrainingLog(name, {})
    series = _series(entry for entry in history if isinstance(entry, dict))
    # The name in our own logs.
    learning_rates = series.pop("learning_rate", None)
    if learning_rates:
        series["lr"] = learning_rates
    return TrainingLog(name, series)


def step_number(value: object) -> int | None:
    """Return a step number as an integer; None for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST_STEP:
        return None
    return value


def _series(
    entries: Iterable[Mapping[str, object]],
) -> dict[str, tuple[tuple[int, float], ...]]:
    """Return the values of each name, by step; of several at one step, the last."""
    series: dict[str, dict[int, float]] = {}
    for entry in entries:
        step = step_number(entry.get("step"))
        if step is None:
            continue
        for name, value in entry.items():
            number = rows.finite_number(value)
            if name != "step" and number is not None:
                series.setdefault(name, {})[step] = number  # a resumed training logs a step again
    return {name: tuple(sorted(values.items())) for name, values in series.items()}


def read_conflicts(file: Path) -> Conflicts:
    """Read a joint training's ``gradient_conflicts.jsonl``.

    Raises:
        DataError: see `qwen3nb.datasets.rows.json_lines`.
    """
    entries, notes = rows.json_lines(file)
    cosines_at: dict[int, dict[Module, float]] = {}
    for entry in entries:
        step = step_number(entry.get("step"))
        per_layer = entry.get("per_layer")
        if step is not None and isinstance(per_layer, dict):
            cosines_at[step] = _mean_cosines(per_layer)
    steps = sorted(cosines_at)
    modules: dict[Module, None] = {}  # a set in the order of the log
    for step in steps:
        modules |= dict.fromkeys(cosines_at[step])
    cosines = {module: tuple(cosines_at[step].get(module) for step in steps) for module in modules}
    return Conflicts(_run_name(file), tuple(steps), cosines, tuple(notes))


def _mean_cosines(per_layer: Mapping[str, object]) -> dict[Module, float]:
    """Return the mean cosine of each module over its parameters."""
    cosines: dict[Module, list[float]] = {}
    for parameter, value in per_layer.items():
        cosine = rows.finite_number(value)
        if cosine is not None:
            cosines.setdefault(_module_of(parameter), []).append(cosine)
    return {module: sum(values) / len(values) for module, values in cosines.items()}


def _module_of(parameter: str) -> Module:
    """Return the layer and name of a parameter's module; the layer of others is ``other``."""
    match = _LAYER_MODULE.search(parameter)
    if match:
        return match["layer"], match["module"]
    module, *_ = parameter.rsplit(".", 2)  # without ``.lora_A.weight``
    return "other", module


def _run_name(file: Path) -> str:
    """Name of a run: ``rank_only_r4 (seed 42)`` for ``rank_only_r4/seed_42/train_log.jsonl``."""
    seed = file.parent.name.removeprefix("seed_")
    return f"{file.parent.parent.name} (seed {seed})"


def find_outputs(folder: Path) -> list[Path]:
    """Folders below ``folder`` that contain ``<configuration>/seed_<n>/config.yaml``, in order."""
    if not folder.is_dir():
        return []
    return sorted({file.parents[2] for file in folder.rglob("*/seed_*/config.yaml")})


def log_files(folder: Path) -> list[Path]:
    """All files below ``folder`` that pages on trainings depend on, in order."""
    return sorted({file for pattern in _LOG_FILES for file in folder.rglob(pattern)})


def find_logs(outputs: Iterable[Path], name: str = LOG) -> list[Path]:
    """Logs of this name of all trainings below ``outputs``, in order."""
    return [file for folder in outputs for file in sorted(folder.glob(f"*/seed_*/{name}"))]
