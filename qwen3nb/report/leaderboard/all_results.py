"""One file with the scores of all models of a folder, for other programs to read.

results/all_results.json        of all records; written anew by `eval`, `sweep` and `report`
eval_results/all_results.json   of the models of a report

Each holds the ``model``, its ``model_path`` and the ``config`` of the newest record, or of the
report; ``results`` by model and task, with the checksum of each record; a ``summary`` by model;
and ``failures``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.records.record import Result, checksum
from qwen3nb.records.store import load_failures, load_results
from qwen3nb.records.verification import SUMMARY, SUMMARY_SCHEMA, scores_of
from qwen3nb.report.leaderboard.one_model import summarise
from qwen3nb.utils.atomic_files import write_json
from qwen3nb.utils.files.turns import turn
from qwen3nb.utils.secrets import known_secrets

_ROWS = ("top", "queries", "runs", "qrels")  # of a record's parameters, those with a row per query


def write_all_results(folder: Path | str | None = None) -> Path:
    """Write the scores of all records in ``folder``, by default `paths.results`; return the file.

    Processes that write it take turns, and each reads the records when it has its own.
    """
    base = Path(folder).expanduser() if folder else paths.results()
    with turn(base / SUMMARY):
        records = list(load_results(base, whole=False))
        newest = max(records, key=lambda each: each.finished, default=None)
        if newest is not None:  # the model of the last evaluation first
            records.sort(key=lambda each: each.model.identity != newest.model.identity)
        config = {k: v for k, v in newest.config.items() if k not in _ROWS} if newest else {}
        value = all_results(records, config=config, failures=load_failures(base))
        return write_json(base / SUMMARY, value)


def all_results(
    results: Iterable[Result],
    *,
    config: Mapping[str, Any],
    failures: Mapping[str, str],
    requested: Sequence[str] = (),
    when: datetime | None = None,
) -> dict[str, Any]:
    """Return the scores of records as JSON, those of the model of the run first.

    Args:
        results: records of one or several models.
        config: parameters of the run.
        failures: task or model -> why it failed.
        requested: keys of the tasks that the means are over; by default those of each model.
        when: the time in it; by default now.
    """
    listed = list(results)
    names = model_names(listed)
    by_model: dict[str, list[Result]] = {names[each.model.identity]: [] for each in listed}
    for result in newest_records(listed)[0]:
        by_model[names[result.model.identity]].append(result)
    summaries = {
        name: summarise(own, requested=requested or [each.task.key for each in own])
        for name, own in by_model.items()
    }
    public, _ = known_secrets().removed({"config": dict(config), "failures": dict(failures)})
    value = {
        "schema": SUMMARY_SCHEMA,
        "model": next(iter(by_model), ""),
        "model_path": listed[0].model.spec if listed else "",
        "timestamp": (when or datetime.now(UTC)).isoformat(timespec="seconds"),
        "config": public["config"],
        "results": {
            name: {result.task.key: scores_of(result) for result in own}
            for name, own in by_model.items()
        },
        "summary": {name: replace(own, label=name).as_dict() for name, own in summaries.items()},
        "failures": public["failures"],
    }
    return {**value, "checksum": checksum(value)}
