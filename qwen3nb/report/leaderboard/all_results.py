"""One file with everything a run of several tasks has measured, for other programs to read.

results/all_results.json                                   the last run
results/summaries/all_results_20261121_192013.json         a copy of each run
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.records.record import Result
from qwen3nb.report.leaderboard.suite import Summary
from qwen3nb.utils.atomic_files import write_json

__all__ = ["write_all_results"]

SCHEMA = "qwen3nb.all-results/1"


def write_all_results(
    results: Iterable[Result],
    summary: Summary,
    *,
    config: dict[str, Any],
    folder: Path | str | None = None,
) -> Path:
    """Write ``all_results.json`` and its stamped copy; return the path of the copy.

    Args:
        results: records of one model.
        summary: their means, from `summarise`.
        config: parameters of the run.
        folder: by default `paths.results`.
    """
    base = Path(folder).expanduser() if folder else paths.results()
    now = datetime.now(UTC)
    value = {
        "schema": SCHEMA,
        "finished": now.isoformat(timespec="seconds"),
        "config": config,
        "results": {result.task.key: _entry(result) for result in results},
        "summary": summary.as_dict(),
    }
    while (copy := base / "summaries" / f"all_results_{now:%Y%m%d_%H%M%S}.json").exists():
        now += timedelta(seconds=1)
    write_json(base / "all_results.json", value)
    return write_json(copy, value)


def _entry(result: Result) -> dict[str, Any]:
    """Return the scores of a record without those of its queries."""
    task = result.task
    return {
        "model": result.model.label,
        "identity": result.model.identity,
        "type": task.type,
        "dataset": task.dataset,
        "revision": task.revision,
        "splits": task.splits,
        "subsets": task.subsets,
        "main_metric": task.main_metric,
        "metrics": {name: asdict(value) for name, value in result.metrics.items()},
        "parts": [asdict(part) for part in result.parts],
        "mteb": asdict(task.mteb) if task.mteb else None,
        "size": task.size,
        "counts": task.counts,
        "seconds": result.cost.seconds,
    }
