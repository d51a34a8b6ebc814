"""The scores of an evaluation's page as data, for the end of `qwen3nb eval`.

The page contains them as output of a custom type in a hidden cell, ignored by browsers. The
terminal thus shows the numbers of the page, even of a reused page, without computing them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qwen3nb.analysis.comparison.against_baseline import AgainstBaseline
from qwen3nb.analysis.comparison.alignment import baselines, possible_baselines, system_names
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.utils.atomic_files import read_json

_TYPE = "application/vnd.qwen3nb.run+json"
_CONCLUSION = 'class="q-conclusion"'


@dataclass(frozen=True)
class RunTrace:
    """The scores of a page."""

    scores: tuple[AgainstBaseline, ...]
    reused: tuple[str, ...] = ()  # tasks with a stored record
    skipped: Mapping[str, str] | None = None  # why a task has no result

    def baselines(self, results: Iterable[Result], *, named: str = "") -> list[list[str]]:
        """Return the baseline of each task by the rule, and the time of its record.

        A label ``named`` by the user, in the run or in ``_config.yml``, comes first.
        """
        models, tasks = {each.model for each in self.scores}, {each.task for each in self.scores}
        known = possible_baselines(results, named=named)
        given = (each for each in known if each.task.key in tasks)
        others = [each for each in latest(given) if each.model.label not in models]
        names = system_names(others)
        order = baselines(others, names, named=named)
        made = {
            (each.task.key, names[each.model.identity, each.seed]): each.finished for each in others
        }
        of_tasks = (
            (task, next((name for name in order if (task, name) in made), ""))
            for task in sorted({task for task, _ in made})
        )
        return [[task, name, made[task, name]] for task, name in of_tasks if name]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {_TYPE: asdict(self), "text/plain": ""}  # invisible in the notebook


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
    return AgainstBaseline(**{**value, "score": Aggregate(**{**score, **parts}), "interval": ends})
