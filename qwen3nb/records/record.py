"""The record of one model on one task: what it is, where it lies, whether it holds.

    results/<label>-<identity>/seed_<n>/<task>.json

A record keeps the score of every query; its aggregates are derived from them and can
be derived again (`problems`). Records are written whole or not at all, as strict JSON,
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
    "Environment",
    "MTEBScore",
    "ModelInfo",
    "Result",
    "ResultError",
    "RunCost",
    "TaskInfo",
    "problems",
    "result_path",
]

SCHEMA = "qwen3nb.result/2"
_FIRST_SCHEMA = "qwen3nb.result/1"
_SIZES = ("documents", "queries", "texts")  # beside the other facts of a task, there
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
class ModelInfo:
    """The model of a record.

    Attributes:
        label: a name fit for files and tables.
        identity: SHA-256 of everything that decides its vectors or scores.
        spec: what it was loaded by: a folder, a registry name, a hub id.
        settings: what the identity is computed from.
        parameters: number of weights; None where the model has none.
    """

    label: str
    identity: str
    spec: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    parameters: int | None = None


@dataclass(frozen=True)
class MTEBScore:
    """The main score that MTEB itself reports for a task, under MTEB's own metric name."""

    metric: str
    value: float


@dataclass(frozen=True)
class TaskInfo:
    """The task of a record, and the part of its data that was run.

    Attributes:
        name: as MTEB writes it, or the name of a test collection.
        type: MTEB's task type, such as ``Retrieval``.
        main_metric: the metric shown first.
        dataset: hub id or name of the data set.
        revision: revision, or digest, of the data.
        unit: what n counts: ``queries``, ``pairs``, ``items``.
        size: number of documents, queries or texts.
        mteb: MTEB's own main score, where MTEB ran the task.
        group: the task this one is a part of, such as ``CQADupStack``.
        categories: query id to category, of one's own queries.
        splits: splits that were run; empty where the record does not say.
        subsets: subsets that were run, likewise.
        languages: languages that were run, likewise.
    """

    name: str
    type: str
    main_metric: str
    dataset: str = ""
    revision: str = ""
    unit: str = "queries"
    size: dict[str, int] = field(default_factory=dict)
    mteb: MTEBScore | None = None
    group: str = ""
    categories: dict[str, str] = field(default_factory=dict)
    splits: tuple[str, ...] = ()
    subsets: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """The software and the machine that made a record."""

    versions: dict[str, str] = field(default_factory=dict)
    python: str = ""
    platform: str = ""
    device: str = "cpu"
    precision: str = "float32"

    @classmethod
    def current(cls, *, device: str = "cpu", precision: str = "float32") -> Environment:
        """This process's environment."""
        return cls(
            versions={name: _installed(name) for name in _VERSIONS},
            python=platform.python_version(),
            platform=platform.platform(),
            device=device,
            precision=precision,
        )


@dataclass(frozen=True)
class RunCost:
    """What a record took to make.

    Attributes:
        seconds: wall clock.
        texts: texts, or pairs, asked of the model, repeated ones included.
        encoded: of these, computed by the model.
        cached: distinct texts read from the embedding cache.
        texts_per_second: speed of the model; None where it computed nothing.
        peak_memory_bytes: of the process; None where the platform does not report it.
    """

    seconds: float = 0.0
    texts: int = 0
    encoded: int = 0
    cached: int = 0
    texts_per_second: float | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True)
class Result:
    """One model on one task.

    Attributes:
        model: which model.
        task: which task, on which data.
        metrics: aggregate per metric name.
        per_query: column, then query id, to value.
        seed: seed of the run: of the intervals, and of random vectors.
        config: the parameters the run was given.
        environment: versions, device, precision.
        cost: seconds, texts per second, peak memory.
        run: id of the run, shared by all its records.
        finished: when, UTC, ISO 8601.
        checksum: of the record's content; empty where it was written without one.
    """

    model: ModelInfo
    task: TaskInfo
    metrics: dict[str, Aggregate]
    per_query: dict[str, dict[str, float]]
    seed: int
    config: dict[str, Any] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    cost: RunCost = field(default_factory=RunCost)
    run: str = ""
    finished: str = ""
    checksum: str = ""

    def __repr__(self) -> str:
        """Model, task and main score with its interval."""
        name = f"{self.model.label} on {self.task.name}"
        main = self.metrics.get(self.task.main_metric)
        if main is None or main.value is None:
            return f"<Result {name}: {self.task.main_metric} undefined>"
        interval = "" if main.low is None else f" [{main.low:.3f}, {main.high:.3f}]"
        return (
            f"<Result {name}: {self.task.main_metric} {main.value:.3f}{interval}, "
            f"n = {main.n} {self.task.unit}>"
        )

    @property
    def main(self) -> Aggregate:
        """The task's main metric."""
        return self.metrics[self.task.main_metric]

    def path(self, folder: Path | None = None) -> Path:
        """Where the record lies under ``folder`` (by default `paths.results`)."""
        name = f"{self.model.label}-{self.model.identity[:8]}"
        return result_path(folder, name, self.seed, self.task.name)

    def save(self, folder: Path | None = None) -> Path:
        """Write the record, whole or not at all."""
        value = {"schema": SCHEMA, **asdict(self)}
        return write_json(self.path(folder), value)

    @classmethod
    def load(cls, file: Path) -> Result:
        """Read a record, of this schema or of the one before.

        Raises:
            ResultError: not JSON, not of a known schema, or a field is missing.
        """
        try:
            value = read_json(file)
            schema = value.get("schema") if isinstance(value, dict) else type(value).__name__
            if schema not in (SCHEMA, _FIRST_SCHEMA):
                raise ResultError(f"{file}: schema is {schema!r}, expected {SCHEMA!r}")
            return cls(**_typed(_from_first(value) if schema == _FIRST_SCHEMA else value))
        except ResultError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResultError(f"{file}: not a result record ({error!r})") from None


def _typed(value: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record's JSON as `Result` takes them."""
    fields = {name: value[name] for name in Result.__dataclass_fields__}
    task = dict(fields["task"])
    for name in ("splits", "subsets", "languages"):
        task[name] = tuple(task[name])
    if task["mteb"] is not None:
        task["mteb"] = MTEBScore(**task["mteb"])
    return fields | {
        "model": ModelInfo(**fields["model"]),
        "task": TaskInfo(**task),
        "environment": Environment(**fields["environment"]),
        "cost": RunCost(**fields["cost"]),
        "metrics": {
            name: Aggregate(**{**item, "columns": tuple(item["columns"])})
            for name, item in fields["metrics"].items()
        },
    }


def _from_first(value: dict[str, Any]) -> dict[str, Any]:
    """A record of the first schema, which named the task's sizes among its other facts."""
    task = dict(value["task"])
    size = {name: task.pop(name) for name in _SIZES if name in task}
    unknown: dict[str, Any] = {"splits": (), "subsets": (), "languages": (), "mteb": None}
    return value | {"task": unknown | task | {"size": size}, "checksum": ""}


def result_path(folder: Path | None, model: str, seed: int, task: str) -> Path:
    """``folder/<model>/seed_<seed>/<task>.json``.

    Raises:
        ResultError: a model or task name that is not fit for a path.
    """
    for name in (model, task):
        if not _NAME.fullmatch(name):
            raise ResultError(f"{name!r} is not fit for a file name; use letters, digits, . _ -")
    return (folder or paths.results()) / model / f"seed_{seed}" / f"{task}.json"


def problems(result: Result) -> list[str]:
    """What in a record does not follow from its per-query scores; empty if all does."""
    wrong = []
    if result.task.main_metric not in result.metrics:
        wrong.append(f"main metric {result.task.main_metric!r} is not among its metrics")
    for name, stored in result.metrics.items():
        if stored.how == REPORTED:
            continue  # nothing to derive it from, and the record says so
        try:
            again = aggregate(
                result.per_query, how=stored.how, columns=stored.columns, seed=result.seed
            )
        except (ValueError, KeyError) as error:
            wrong.append(f"{name}: cannot be derived ({error})")
            continue
        for part in ("value", "low", "high", "n"):
            ours, theirs = getattr(again, part), getattr(stored, part)
            if not _same(ours, theirs):
                wrong.append(f"{name}: {part} is {theirs}, per-query scores give {ours}")
    return wrong


def _same(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=0, abs_tol=_TOLERANCE)


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
