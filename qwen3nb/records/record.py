"""The record of one model on one task: what it is, where it lies, whether it holds.

    results/<label>-<identity>/seed_<n>/<task>.json

A record keeps the score of every query; its aggregates are derived from them and can
be derived again (`verify`). Records are written whole or not at all, as strict JSON,
and found again by the identity of model and task, never by a name alone.
"""

from __future__ import annotations

import math
import platform
import re
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.metrics.aggregate import REPORTED, Aggregate, aggregate
from qwen3nb.utils.atomic_files import read_json, write_json

__all__ = [
    "SCHEMA",
    "Result",
    "ResultError",
    "environment",
    "verify",
]

SCHEMA = "qwen3nb.result/1"
_VERSIONS = (
    "qwen3nb",
    "torch",
    "transformers",
    "sentence-transformers",
    "mteb",
    "datasets",
    "bm25s",
    "numpy",
    "scipy",
    "scikit-learn",
)
_TOLERANCE = 1e-9
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class ResultError(ValueError):
    """A record that cannot be read or does not hold; names the file and the cause."""


@dataclass(frozen=True)
class Result:
    """One model on one task.

    Attributes:
        model: ``label``, ``identity``, ``settings``, ``spec``.
        task: ``name``, ``type``, ``revision``, ``main_metric``, and what its size is.
        metrics: aggregate per metric name.
        per_query: column, then query id, to value.
        seed: seed of the run: of the intervals, and of random vectors.
        config: the parameters the run was given.
        environment: versions, device, precision.
        cost: seconds, texts per second, peak memory.
        run: id of the run, shared by all its records.
        finished: when, UTC, ISO 8601.
    """

    model: dict[str, Any]
    task: dict[str, Any]
    metrics: dict[str, Aggregate]
    per_query: dict[str, dict[str, float]]
    seed: int
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    cost: dict[str, Any] = field(default_factory=dict)
    run: str = ""
    finished: str = ""

    @property
    def main(self) -> Aggregate:
        """The task's main metric."""
        return self.metrics[self.task["main_metric"]]

    def path(self, folder: Path | None = None) -> Path:
        """Where the record lies under ``folder`` (by default `paths.results`)."""
        name = f"{self.model['label']}-{self.model['identity'][:8]}"
        return result_path(folder, name, self.seed, self.task["name"])

    def save(self, folder: Path | None = None) -> Path:
        """Write the record, whole or not at all."""
        value = {"schema": SCHEMA, **asdict(self)}
        return write_json(self.path(folder), value)

    @classmethod
    def load(cls, file: Path) -> Result:
        """Read a record.

        Raises:
            ResultError: not JSON, not of this schema, or a field is missing.
        """
        try:
            value = read_json(file)
            if not isinstance(value, dict) or value.get("schema") != SCHEMA:
                found = value.get("schema") if isinstance(value, dict) else type(value).__name__
                raise ResultError(f"{file}: schema is {found!r}, expected {SCHEMA!r}")
            fields = {key: value[key] for key in cls.__dataclass_fields__}
            fields["metrics"] = {
                name: Aggregate(**{**item, "columns": tuple(item["columns"])})
                for name, item in fields["metrics"].items()
            }
            return cls(**fields)
        except ResultError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResultError(f"{file}: not a result record ({error!r})") from None


def result_path(folder: Path | None, model: str, seed: int, task: str) -> Path:
    """``folder/<model>/seed_<seed>/<task>.json``.

    Raises:
        ResultError: a model or task name that is not fit for a path.
    """
    for name in (model, task):
        if not _NAME.fullmatch(name):
            raise ResultError(f"{name!r} is not fit for a file name; use letters, digits, . _ -")
    return (folder or paths.results()) / model / f"seed_{seed}" / f"{task}.json"


def verify(result: Result) -> list[str]:
    """What in a record does not follow from its per-query scores; empty if all does."""
    problems = []
    if result.task.get("main_metric") not in result.metrics:
        problems.append(f"main metric {result.task.get('main_metric')!r} is not among its metrics")
    for name, stored in result.metrics.items():
        if stored.how == REPORTED:
            continue  # nothing to derive it from, and the record says so
        try:
            again = aggregate(
                result.per_query, how=stored.how, columns=stored.columns, seed=result.seed
            )
        except (ValueError, KeyError) as error:
            problems.append(f"{name}: cannot be derived ({error})")
            continue
        for part in ("value", "low", "high", "n"):
            ours, theirs = getattr(again, part), getattr(stored, part)
            if not _same(ours, theirs):
                problems.append(f"{name}: {part} is {theirs}, per-query scores give {ours}")
    return problems


def _same(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=0, abs_tol=_TOLERANCE)


def environment(*, device: str = "cpu", precision: str = "float32") -> dict[str, Any]:
    """Versions, platform, device: what the numbers were made with."""
    versions = {}
    for name in _VERSIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "versions": versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device,
        "precision": precision,
    }
