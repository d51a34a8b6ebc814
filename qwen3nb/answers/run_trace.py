"""The scores of an evaluation's page as data, for the end of `qwen3nb eval`.

The page contains them as output of a custom type in a hidden cell, ignored by browsers. The
terminal thus shows the numbers of the page, even of a reused page, without computing them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qwen3nb.analysis.comparison.alignment import baselines, possible_baselines, system_names
from qwen3nb.answers.against_baseline import AgainstBaseline, strongest
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.utils.atomic_files import read_json, sha256_json

_TYPE = "application/vnd.qwen3nb.run+json"
_CONCLUSION = 'class="q-conclusion"'


@dataclass(frozen=True)
class RunTrace:
    """The scores of a page."""

    scores: tuple[AgainstBaseline, ...]
    reused: tuple[str, ...] = ()  # tasks with a stored record
    skipped: Mapping[str, str] | None = None  # why a task has no result

    def baselines(self, results: Iterable[Result], *, named: str = "") -> list[list[str]]:
        """Return what the page follows from, for each task with a baseline or newer scores.

        This is the task, the name of the baseline by the rule, and a digest of the records of all
        models on the task, over which p-values are corrected. Without a baseline, the name is empty
        and the records are the model's. A label ``named`` by the user, in the run or in
        ``_config.yml``, comes first.
        """
        models, tasks = {each.model for each in self.scores}, {each.task for each in self.scores}
        by_task: dict[str, list[Result]] = {}
        for record in latest(each for each in results if each.task.key in tasks):
            by_task.setdefault(record.task.key, []).append(record)
        others = [
            record
            for records in by_task.values()
            for record in records
            if record.model.label not in models
        ]
        possible = possible_baselines(others, named=named)
        names = system_names(possible)
        order = baselines(possible, names, named=named)
        follows = []
        for task, records in sorted(by_task.items()):
            named_here = {
                names[each.model.identity, each.seed]: each
                for each in possible
                if each.task.key == task and each.main.value is not None
            }
            ordered = [named_here[name] for name in order if name in named_here]
            baseline = strongest(ordered, named)
            if baseline is not None:
                name = names[baseline.model.identity, baseline.seed]
                follows.append([task, name, _digest(records)])
                continue
            own = [record for record in records if record.model.label in models]
            if own:
                follows.append([task, "", _digest(own)])
        return follows

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {_TYPE: asdict(self), "text/plain": ""}  # invisible in the notebook


def _digest(records: Iterable[Result]) -> str:
    """Return a digest that changes with any of the records."""
    made = sorted([each.model.identity, str(each.seed), each.finished] for each in records)
    return sha256_json(made)[:16]


def read_trace(page: Path | Mapping[str, Any]) -> RunTrace | None:
    """Return the scores in a page (a file or a parsed notebook), or None."""
    for output in _outputs(page):
        if (value := output.get("data", {}).get(_TYPE)) is not None:
            scores = tuple(_score(each) for each in value["scores"])
            return RunTrace(scores, tuple(value["reused"]), value["skipped"])
    return None


def read_conclusions(page: Path) -> list[str]:
    """Return the conclusions on a page as plain text."""
    return [
        "".join(output["data"]["text/plain"])
        for output in _outputs(page)
        if _CONCLUSION in "".join(output.get("data", {}).get("text/html", ""))
    ]


def read_finished(page: Path) -> str:
    """Return when a page's run finished, UTC, ISO 8601; empty for other pages."""
    if not page.is_file():
        return ""
    return str(read_json(page).get("metadata", {}).get("qwen3nb", {}).get("finished", ""))


def _outputs(page: Path | Mapping[str, Any]) -> list[dict[str, Any]]:
    if isinstance(page, Path):
        page = read_json(page) if page.is_file() else {"cells": []}
    return [each for cell in page["cells"] for each in cell.get("outputs", ())]


def _score(value: dict[str, Any]) -> AgainstBaseline:
    score = value["score"]
    parts = {"columns": tuple(score["columns"]), "parts": tuple(score["parts"])}
    ends = value["interval"] and tuple(value["interval"])
    missing = tuple(value.get("missing", ()))  # older pages have none
    of_page = {"score": Aggregate(**{**score, **parts}), "interval": ends, "missing": missing}
    return AgainstBaseline(**{**value, **of_page})
