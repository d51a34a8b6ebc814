"""What a training wrote down while it ran: losses, learning rate, conflicts of gradients.

    train_log.jsonl            adapter training: a line every few steps
    gradient_conflicts.jsonl   of the joint one: the cosine of two objectives' gradients, per
                               parameter
    trainer_state.json         of a checkpoint, by transformers' Trainer; its log is cumulative

A training that was killed leaves a line cut off in the middle: the last line may be broken,
and is named. A value that is missing stays missing; it is never drawn as 0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.analysis.stats.resampling import Array

__all__ = [
    "Conflicts",
    "TrainingLog",
    "find_logs",
    "find_outputs",
    "json_lines",
    "log_files",
    "read_conflicts",
    "read_log",
    "read_trainer_state",
]

LOG, CONFLICTS = "train_log.jsonl", "gradient_conflicts.jsonl"
_LARGEST = 256 * 2**20  # bytes
_LAYER_MODULE = re.compile(r"(?:^|\.)layers\.(\d+)\.(?:\w+\.)*?(\w+)\.lora_[AB]\b")


@dataclass(frozen=True)
class TrainingLog:
    """One training's log.

    Attributes:
        name: of the training.
        series: by name (``loss``, ``lr``, …), step and value in order.
        notes: lines that cannot be read.
    """

    name: str
    series: dict[str, tuple[tuple[int, float], ...]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conflicts:
    """Cosines of two objectives' gradients.

    Attributes:
        name: of the training.
        steps: at which they were measured.
        cosines: per layer and module, such as ``("0", "q_proj")``, a value per step; None
            where there is none. Of several parameters (a LoRA's A and B) the mean.
        notes: lines that cannot be read.
    """

    name: str
    steps: tuple[int, ...]
    cosines: dict[tuple[str, str], tuple[float | None, ...]] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, numbers in order."""
        names = {layer for layer, _ in self.cosines}
        return tuple(sorted(names, key=lambda name: (not name.isdigit(), name.zfill(6))))

    @property
    def modules(self) -> tuple[str, ...]:
        """Kinds of modules, in the order the file has them."""
        return tuple(dict.fromkeys(module for _, module in self.cosines))

    def by_step(self) -> Array:
        """Mean over modules (layers, steps); NaN where nothing was measured."""
        return _means([[self._row(layer, m) for m in self.modules] for layer in self.layers], 1)

    def by_module(self) -> Array:
        """Mean over steps (layers, modules); NaN where nothing was measured."""
        return _means([[self._row(layer, m) for m in self.modules] for layer in self.layers], 2)

    def _row(self, layer: str, module: str) -> list[float]:
        values = self.cosines.get((layer, module), (None,) * len(self.steps))
        return [math.nan if value is None else value for value in values]


def _means(values: list[list[list[float]]], axis: int) -> Array:
    """Mean along an axis of what is there; NaN where nothing is."""
    table = np.array(values, dtype=np.float64)
    there = np.isfinite(table)
    count = there.sum(axis=axis)
    total = np.where(there, table, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def json_lines(file: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Objects of a file of JSON lines, and a note if its last line is cut off.

    Raises:
        ValueError: a line that is not a JSON object, other than a last one without its end;
            names file and line. Or a file larger than 256 MiB.
    """
    if file.stat().st_size > _LARGEST:
        raise ValueError(f"{file}: larger than {_LARGEST // 2**20} MiB")
    lines = file.read_bytes().split(b"\n")
    objects, notes = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            if number < len(lines):
                reason = getattr(error, "msg", "") or type(error).__name__
                raise ValueError(f"{file}:{number}: not JSON ({reason})") from None
            notes.append(f"{file.name}:{number}: cut off in the middle, left out")
            continue
        if not isinstance(value, dict):
            raise ValueError(f"{file}:{number}: {type(value).__name__}, expected an object")
        objects.append(value)
    return objects, notes


def read_log(file: Path, *, name: str = "") -> TrainingLog:
    """A training's ``train_log.jsonl``.

    Raises:
        ValueError: see `json_lines`.
    """
    entries, notes = json_lines(file)
    return TrainingLog(name or _run_name(file), _series(entries), tuple(notes))


def read_trainer_state(state: Mapping[str, Any], *, name: str) -> TrainingLog:
    """The log in a ``trainer_state.json`` of transformers' Trainer, read before."""
    entries = [entry for entry in state.get("log_history", ()) if isinstance(entry, dict)]
    renamed = [{("lr" if k == "learning_rate" else k): v for k, v in e.items()} for e in entries]
    return TrainingLog(name, _series(renamed))


def _series(entries: Iterable[Mapping[str, Any]]) -> dict[str, tuple[tuple[int, float], ...]]:
    series: dict[str, dict[int, float]] = {}
    for entry in entries:
        step = entry.get("step")
        if not isinstance(step, int):
            continue
        for key, value in entry.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if key != "step" and number and math.isfinite(value):
                series.setdefault(key, {})[step] = float(value)
    return {key: tuple(sorted(values.items())) for key, values in series.items()}


def read_conflicts(file: Path, *, name: str = "") -> Conflicts:
    """A joint training's ``gradient_conflicts.jsonl``.

    Raises:
        ValueError: see `json_lines`.
    """
    entries, notes = json_lines(file)
    measured: dict[int, dict[tuple[str, str], list[float]]] = {}
    for entry in entries:
        step, per_layer = entry.get("step"), entry.get("per_layer")
        if isinstance(step, int) and isinstance(per_layer, dict):
            measured[step] = dict(_cosines(per_layer))
    steps = tuple(sorted(measured))
    modules = dict.fromkeys(module for step in steps for module in measured[step])
    cosines = {
        module: tuple(_mean(measured[step].get(module, [])) for step in steps) for module in modules
    }
    return Conflicts(name or _run_name(file), steps, cosines, tuple(notes))


def _cosines(per_layer: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], list[float]]]:
    cosines: dict[tuple[str, str], list[float]] = {}
    for parameter, value in per_layer.items():
        if isinstance(value, int | float) and math.isfinite(value):
            match = _LAYER_MODULE.search(parameter)
            module = (match[1], match[2]) if match else ("other", parameter.rsplit(".", 2)[0])
            cosines.setdefault(module, []).append(float(value))
    yield from cosines.items()


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _run_name(file: Path) -> str:
    """``rank_only_r4 (seed 42)`` of ``rank_only_r4/seed_42/train_log.jsonl``."""
    seed = file.parent.name.removeprefix("seed_")
    return f"{file.parent.parent.name} (seed {seed})"


def find_outputs(folder: Path) -> list[Path]:
    """Folders below ``folder`` that hold ``<configuration>/seed_<n>/config.yaml``, in order."""
    if not folder.is_dir():
        return []
    return sorted({file.parents[2] for file in folder.rglob("*/seed_*/config.yaml")})


def log_files(folder: Path) -> list[Path]:
    """Every file below ``folder`` that pages about trainings are made of, in order."""
    patterns = ("config.yaml", LOG, CONFLICTS, "trainer_state.json", "results/*.json")
    return sorted({file for pattern in patterns for file in folder.rglob(pattern)})


def find_logs(outputs: Iterable[Path], name: str = LOG) -> list[Path]:
    """Logs of that name of every training below ``outputs``, in order."""
    return [file for folder in outputs for file in sorted(folder.glob(f"*/seed_*/{name}"))]
