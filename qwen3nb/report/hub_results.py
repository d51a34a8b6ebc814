"""The hub's file of evaluation results, ``.eval_results/qwen3nb.yaml`` of a model.

The hub reads it in place of the card's ``model-index``: an entry per data set and part, with the
main score. Only data sets of the hub can have one. https://huggingface.co/docs/hub/eval-results
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.records.record import Result
from qwen3nb.utils.secrets import write_public

FILE = Path(".eval_results") / "qwen3nb.yaml"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_BUILT_IN = "qwen3nb/"  # data sets that this package builds
_REVISION = re.compile(r"[0-9a-f]{40}")


class Entry(TypedDict):
    """An entry of the file."""

    dataset: dict[str, str]
    value: float
    date: str
    notes: str


def hub_results_text(results: Sequence[Result]) -> str:
    """Return the content of the file for the records of one model.

    Results on other data than the hub's are left out and named in a comment: own data, substitutes
    of a data set, and parts of one by a limit.
    """
    import yaml

    entries: list[Entry] = []
    lines = ["# Main scores, by qwen3nb; the card has their intervals."]
    for result in sorted(results, key=lambda record: record.task.key):
        if _is_whole_data_of_hub(result):
            entries += _entries(result)
        else:
            name_on_one_line = " ".join(result.task.key.split())
            lines.append(f"# Not on data of the hub: {name_on_one_line}")
    body = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)
    return "\n".join([*lines, body])


def write_hub_results(folder: Path, results: Sequence[Result]) -> Path:
    """Write the file into the folder of a model, without secrets; return its path."""
    file = folder / FILE
    file.parent.mkdir(exist_ok=True)
    return write_public(file, hub_results_text(results))


def _is_whole_data_of_hub(result: Result) -> bool:
    task = result.task
    if task.dataset.startswith(_BUILT_IN) or not _HUB_ID.fullmatch(task.dataset):
        return False
    is_limited = bool(result.config.get("limit") or re.search(r"limit\d", task.selection))
    is_limited = is_limited or bool(result.data.nano)
    return not is_limited and not task.is_substitute and not task.is_generated


def _entries(result: Result) -> list[Entry]:
    """Return an entry for each split and subset that has a score."""
    if not result.parts:
        return _entry(result, result.main)
    entries = []
    for part in result.parts:
        entries += _entry(result, part.score, subset=part.subset, split=part.split)
    return entries


def _entry(result: Result, score: Aggregate, *, subset: str = "", split: str = "") -> list[Entry]:
    """Return the entry of a score; none if it has no value."""
    if score.value is None:
        return []
    task = result.task
    dataset = {"id": task.dataset, "task_id": subset or "default"}
    # Only a full commit, of 40 hexadecimal digits, pins the data.
    if _REVISION.fullmatch(task.revision or ""):
        dataset["revision"] = str(task.revision)
    # MTEB's own name of the metric, where it has one.
    metric = task.mteb.metric if task.mteb else task.main_metric
    notes = f"{task.name}, {metric}"
    if split:
        notes = f"{notes}, split {split}"
    value = round(score.value, 6)
    return [{"dataset": dataset, "value": value, "date": result.finished, "notes": notes}]
