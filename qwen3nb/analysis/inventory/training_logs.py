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
_LAYER_MODULE = re.compile(r"(?:^|\.)layers\.(\d+)\.(?:\w+\.)*?(\w+)\.lora_[AB]\b")
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
        layers, modules = self.layers, list(dict.fromkeys(name for _, name in self.cosines))
        table = np.full((len(layers), len(modules), len(self.steps)), np.nan)
        for (layer, name), values in self.cosines.items():
            cosines = np.array(values, dtype=np.float64)  # None is NaN
            table[layers.index(layer), modules.index(name)] = cosines
        means = np.ma.masked_invalid(table).mean(axis=1)
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
    history = state.get("log_history", ())
    entries = []
    for entry in history if isinstance(history, list) else ():
        if isinstance(entry, dict):
            rate = {"lr": entry["learning_rate"]} if "learning_rate" in entry else {}
            entries.append(entry | rate)
    log = _series(entries)
    log.pop("learning_rate", None)
    return TrainingLog(name, log)


def step_number(value: object) -> int | None:
    """Return a step number as an integer; None for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST_STEP:
        return None
    return value


def _series(
    entries: Iterable[Mapping[str, object]],
) -> dict[str, tuple[tuple[int, float], ...]]:
    series: dict[str, dict[int, float]] = {}
    for entry in entries:
        step = step_number(entry.get("step"))
        if step is None:
            continue
        for key, value in entry.items():
            number = rows.finite_number(value)
            if key != "step" and number is not None:
                series.setdefault(key, {})[step] = number
    return {key: tuple(sorted(values.items())) for key, values in series.items()}


def read_conflicts(file: Path) -> Conflicts:
    """Read a joint training's ``gradient_conflicts.jsonl``.

    Raises:
        DataError: see `qwen3nb.datasets.rows.json_lines`.
    """
    entries, notes = rows.json_lines(file)
    measured: dict[int, dict[Module, float]] = {}
    for entry in entries:
        step, per_layer = step_number(entry.get("step")), entry.get("per_layer")
        if step is not None and isinstance(per_layer, dict):
            measured[step] = _cosines(per_layer)
    steps = sorted(measured)
    modules = dict.fromkeys(module for step in steps for module in measured[step])
    cosines = {module: tuple(measured[step].get(module) for step in steps) for module in modules}
    return Conflicts(_run_name(file), tuple(steps), cosines, tuple(notes))


def _cosines(per_layer: Mapping[str, object]) -> dict[Module, float]:
    """Return the mean cosine of each module over its parameters."""
    cosines: dict[Module, list[float]] = {}
    for parameter, value in per_layer.items():
        number = rows.finite_number(value)
        if number is None:
            continue
        match = _LAYER_MODULE.search(parameter)
        module = ("other", parameter.rsplit(".", 2)[0])
        if match:
            module = (match[1], match[2])
        cosines.setdefault(module, []).append(number)
    return {module: sum(values) / len(values) for module, values in cosines.items()}


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
