"""One file with everything that a run has measured, for other programs to read.

results/all_results.json                                   the last evaluation
results/summaries/all_results_20261121_192013.json         a copy of each
eval_results/all_results.json                              a report of several models

Each holds the ``model``, its ``model_path``, the ``config`` of the run, ``results`` by model and
task, a ``summary`` by model, and ``failures``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import model_names
from qwen3nb.records.record import Result
from qwen3nb.report.leaderboard.suite import Summary
from qwen3nb.utils.atomic_files import write_json
from qwen3nb.utils.files.turns import turn

__all__ = ["scores_of", "write_all_results"]

SCHEMA = "qwen3nb.all-results/2"


def write_all_results(
    results: Iterable[Result],
    summaries: Iterable[Summary],
    *,
    config: Mapping[str, Any],
    failures: Mapping[str, str] | None = None,
    folder: Path | str | None = None,
    copies: Path | str | None = None,
    when: datetime | None = None,
) -> list[Path]:
    """Write ``all_results.json`` and its stamped copy; return both paths.

    Args:
        results: records of one or several models, those of the model of the run first.
        summaries: their means, from `summarise`, one per model.
        config: parameters of the run.
        failures: task or model -> why it failed.
        folder: by default `paths.results`.
        copies: folder of the copy; by default ``summaries`` in ``folder``.
        when: the time in it and in its copy's name; by default now.
    """
    base = Path(folder).expanduser() if folder else paths.results()
    now, listed = when or datetime.now(UTC), list(results)
    by_model = _by_model(listed)
    value = {
        "schema": SCHEMA,
        "model": next(iter(by_model), ""),
        "model_path": listed[0].model.spec if listed else "",
        "timestamp": now.isoformat(timespec="seconds"),
        "config": dict(config),
        "results": by_model,
        "summary": {each.label: each.as_dict() for each in summaries},
        "failures": dict(failures or {}),
    }
    beside = Path(copies) if copies else base / "summaries"
    with turn(beside / "all_results.json"):
        while (copy := beside / f"all_results_{now:%Y%m%d_%H%M%S}.json").exists():
            now += timedelta(seconds=1)
        return [write_json(base / "all_results.json", value), write_json(copy, value)]


def _by_model(results: list[Result]) -> dict[str, dict[str, Any]]:
    """Return the scores by model, by a name that no other has, and task."""
    names = model_names(results)
    models: dict[str, dict[str, Any]] = {}
    for result in results:
        models.setdefault(names[result.model.identity], {})[result.task.key] = scores_of(result)
    return models


def scores_of(result: Result) -> dict[str, Any]:
    """Return the scores of a record without those of its queries."""
    task = result.task
    return {
        "identity": result.model.identity,
        "type": task.type,
        "dataset": task.dataset,
        "revision": task.revision,
        "splits": task.splits,
        "subsets": task.subsets,
        "main_metric": task.main_metric,
        "main_score": result.main.value,
        "metrics": {name: asdict(value) for name, value in result.metrics.items()},
        "parts": [asdict(part) for part in result.parts],
        "mteb": asdict(task.mteb) if task.mteb else None,
        "size": task.size,
        "counts": task.counts,
        "seconds": result.cost.seconds,
    }
