"""Whether the page of an evaluation compares its model with what it would be compared with now.

Such a page says which baseline its model is better than. It is not run again for every record: only
when another baseline would be chosen, or the chosen one was evaluated anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qwen3nb.execution.parameters import once
from qwen3nb.records.record import Environment, Result
from qwen3nb.records.store import load_results
from qwen3nb.report.evaluation.run_trace import RunTrace, read_trace
from qwen3nb.utils.book_settings import book_settings


def _records(values: Mapping[str, Any]) -> list[Result]:
    folder = values.get("output_dir") or None
    return list(once(load_results, folder, adapters=False, whole=False))


def baselines_now(trace: RunTrace, values: Mapping[str, Any]) -> list[list[str]]:
    """Return the baselines that a run's page would have now; see `RunTrace.baselines`."""
    named = values.get("baseline") or once(book_settings).baseline
    return trace.baselines(_records(values), named=named)


def is_old(page: Mapping[str, Any]) -> bool:
    """Return whether a page, as JSON, would have other baselines now, or newer records of them."""
    made = page["metadata"]["qwen3nb"]
    trace = read_trace(page)
    return trace is not None and made.get("baselines", []) != baselines_now(
        trace, made["parameters"]
    )


def newer_records(page: Mapping[str, Any]) -> list[Result]:
    """Return the records of other models on a page's tasks that were made after it."""
    made = page["metadata"]["qwen3nb"]
    trace, records = read_trace(page), _records(made["parameters"])
    others = records if trace is None else trace.others(records)
    return [each for each in others if each.finished > made["finished"]]


def is_measured(page: Mapping[str, Any]) -> bool:
    """Return whether a run again would reuse every record, by the versions they were made with."""
    trace, values = read_trace(page), page["metadata"]["qwen3nb"]["parameters"]
    if trace is None:
        return True
    made = {(each.model, each.task) for each in trace.scores}
    current = Environment.current().versions
    records = (each for each in _records(values) if (each.model.label, each.task.key) in made)
    return all(each.environment.versions == current for each in records)
