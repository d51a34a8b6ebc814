"""Logs of trainings: losses, learning rate, gradient conflicts.

    train_log.jsonl            of an adapter training, one line every few steps
    gradient_conflicts.jsonl   of a joint training: the cosine of two objectives' gradients, per
                               parameter
    trainer_state.json         of a checkpoint by transformers' Trainer, with a cumulative log

A killed training may leave a truncated last line, which is skipped and reported. Missing values are
never treated as 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.datasets.rows import finite_number, json_lines
from qwen3nb.metrics.intervals import Array

LOG, CONFLICTS = "train_log.jsonl", "gradient_conflicts.jsonl"
_MOST_STEPS = 2**53  # beyond, floats skip integers
_LAYER_MODULE = re.compile(r"(?:^|\.)layers\.(\d+)\.(?:\w+\.)*?(\w+)\.lora_[AB]\b")


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
    # per layer and module, such as ``("0", "q_proj")``, one value per step, or None; mean over its
    # parameters (A and B of a LoRA)
    cosines: dict[tuple[str, str], tuple[float | None, ...]] = field(repr=False)
    notes: tuple[str, ...] = ()  # lines that cannot be read

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, in numerical order."""
        names = {layer for layer, _ in self.cosines}
        return tuple(sorted(names, key=lambda name: (not name.isdigit(), name.zfill(6))))

    def by_step(self) -> Array:
        """Mean over modules (layers, steps); NaN where not measured."""
        absent = (None,) * len(self.steps)
        modules = tuple(dict.fromkeys(module for _, module in self.cosines))
        rows = [[self.cosines.get((k, m), absent) for m in modules] for k in self.layers]
        table = np.array(rows, dtype=np.float64)  # None is NaN
        there = np.isfinite(table)
        count, total = there.sum(axis=1), np.where(there, table, 0.0).sum(axis=1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def read_log(file: Path) -> TrainingLog:
    """Read a training's ``train_log.jsonl``.

    Raises:
        DataError: see `qwen3nb.datasets.rows.json_lines`.
    """
    entries, notes = json_lines(file)
    return TrainingLog(_run_name(file), _series(entries), tuple(notes))


def read_trainer_state(state: Mapping[str, Any], *, name: str) -> TrainingLog:
    """The log in the parsed ``trainer_state.json`` of transformers' Trainer."""
    entries = [entry for entry in state.get("log_history", ()) if isinstance(entry, dict)]
    renamed = [{("lr" if k == "learning_rate" else k): v for k, v in e.items()} for e in entries]
    return TrainingLog(name, _series(renamed))


def step_number(value: Any) -> int | None:
    """Return a step number as an integer; None for anything else."""
    number = isinstance(value, int) and not isinstance(value, bool)
    return value if number and abs(value) <= _MOST_STEPS else None


def _series(entries: Iterable[Mapping[str, Any]]) -> dict[str, tuple[tuple[int, float], ...]]:
    series: dict[str, dict[int, float]] = {}
    for entry in entries:
        step = step_number(entry.get("step"))
        if step is None:
            continue
        for key, value in entry.items():
            if key != "step" and (number := finite_number(value)) is not None:
                series.setdefault(key, {})[step] = number
    return {key: tuple(sorted(values.items())) for key, values in series.items()}


def read_conflicts(file: Path) -> Conflicts:
    """Read a joint training's ``gradient_conflicts.jsonl``.

    Raises:
        DataError: see `qwen3nb.datasets.rows.json_lines`.
    """
    entries, notes = json_lines(file)
    measured: dict[int, dict[tuple[str, str], list[float]]] = {}
    for entry in entries:
        step, per_layer = step_number(entry.get("step")), entry.get("per_layer")
        if step is not None and isinstance(per_layer, dict):
            measured[step] = _cosines(per_layer)
    steps = tuple(sorted(measured))
    modules = dict.fromkeys(module for step in steps for module in measured[step])
    values_of = {m: [measured[step].get(m, []) for step in steps] for m in modules}
    cosines = {
        m: tuple(sum(v) / len(v) if v else None for v in values) for m, values in values_of.items()
    }
    return Conflicts(_run_name(file), steps, cosines, tuple(notes))


def _cosines(per_layer: Mapping[str, Any]) -> dict[tuple[str, str], list[float]]:
    cosines: dict[tuple[str, str], list[float]] = {}
    for parameter, value in per_layer.items():
        if (number := finite_number(value)) is not None:
            match = _LAYER_MODULE.search(parameter)
            module = (match[1], match[2]) if match else ("other", parameter.rsplit(".", 2)[0])
            cosines.setdefault(module, []).append(number)
    return cosines


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
    patterns = ("config.yaml", LOG, CONFLICTS, "trainer_state.json", "results/*.json")
    return sorted({file for pattern in patterns for file in folder.rglob(pattern)})


def find_logs(outputs: Iterable[Path], name: str = LOG) -> list[Path]:
    """Logs of this name of all trainings below ``outputs``, in order."""
    return [file for folder in outputs for file in sorted(folder.glob(f"*/seed_*/{name}"))]
