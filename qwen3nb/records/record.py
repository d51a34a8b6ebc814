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
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.metrics.aggregate import REPORTED, Aggregate, aggregate
from qwen3nb.records.failures import failed_runs
from qwen3nb.utils.atomic_files import read_json, write_json

__all__ = [
    "SCHEMA",
    "Result",
    "ResultError",
    "environment",
    "load_failures",
    "load_results",
    "taken_over",
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


def load_results(folder: Path | str | None = None, *, adapters: bool = True) -> list[Result]:
    """Every record under ``folder``, by model and task; none if the folder is not there.

    Records that a failed run made are left out until that run has come to its end; see
    `qwen3nb.records.failures`.

    Args:
        folder: by default `paths.results`.
        adapters: whether those of trained adapters are among them, a few runs of the same
            training per seed (``qwen3nb.evaluation.studies.lora_runs``); no leaderboard lists them.

    Raises:
        ResultError: a record that cannot be read; names it.
    """
    failed = failed_runs(folder)
    return [
        result
        for result in map(Result.load, result_files(folder))
        if (adapters or "training" not in result.config)
        and not any(run.made(config=result.config, finished=result.finished) for run in failed)
    ]


def taken_over(
    result: Result, *, config: dict[str, Any], run: str, folder: Path | None = None
) -> Result:
    """A record that a failed run left, signed by the run that reuses it and saved again.

    Any other record is returned as it is.
    """
    made = (each.made(config=result.config, finished=result.finished) for each in failed_runs())
    if not any(made):
        return result
    now = datetime.now(UTC).isoformat(timespec="seconds")
    signed = replace(result, config=config, run=run, finished=now)
    signed.save(folder)
    return signed


def result_files(folder: Path | str | None = None) -> list[Path]:
    """The files of records under ``folder``."""
    base = Path(folder) if folder else paths.results()
    return sorted(base.glob("*/seed_*/*.json"))


def load_failures(folder: Path | str | None = None) -> dict[str, str]:
    """The last line of each failed task's traceback, by model, seed and task."""
    base = Path(folder) if folder else paths.results()
    failures = {}
    for file in sorted(base.glob("*/seed_*/*.error.txt")):
        lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        name = file.name.removesuffix(".error.txt")
        failures[f"{file.parent.parent.name} {file.parent.name} {name}"] = (
            lines[-1] if lines else ""
        )
    return failures


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


def verify_files(files: Iterable[Path]) -> dict[Path, list[str]]:
    """Problems per file, for the files that have any; an unreadable file is one."""
    problems: dict[Path, list[str]] = {}
    for file in files:
        try:
            result = Result.load(file)
            found = verify(result)
            if file.name != f"{result.task['name']}.json":
                found.append(f"holds the task {result.task['name']!r}")
            if not file.parent.parent.name.endswith(f"-{result.model['identity'][:8]}"):
                found.append("lies in the folder of another model's identity")
        except (ResultError, KeyError) as error:
            found = [str(error)]
        if found:
            problems[file] = found
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
