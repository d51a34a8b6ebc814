"""The scores of an evaluation's page as data, for the end of `qwen3nb eval`.

The page contains them as output of a custom type in a hidden cell, ignored by browsers. The
terminal thus shows the numbers of the page, even of a reused page, without computing them.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qwen3nb.analysis.comparison.alignment import (
    baselines,
    possible_baselines,
    system_name,
    system_names,
)
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
    # What the scores follow from, see `baselines_among`; None on pages of older releases, which
    # have it in their metadata.
    baselines: list[list[str]] | None = None

    def baselines_among(self, results: Iterable[Result], *, named: str = "") -> list[list[str]]:
        """Return what the page follows from, for each task with a baseline or newer scores.

        This is the task, the name of the baseline by the rule, and a digest of the records of all
        models on the task, over which p-values are corrected. Without a baseline, the name is empty
        and the records are the model's. A label ``named`` by the user, in the run or in
        ``_config.yml``, comes first.
        """
        models = {score.model for score in self.scores}
        tasks = {score.task for score in self.scores}
        by_task: dict[str, list[Result]] = {}
        for record in latest(result for result in results if result.task.key in tasks):
            by_task.setdefault(record.task.key, []).append(record)
        records_of_others = [
            record
            for record in itertools.chain(*by_task.values())
            if record.model.label not in models
        ]
        candidates = possible_baselines(records_of_others, named=named)
        names = system_names(candidates)
        names_by_rule = baselines(candidates, names, named=named)
        entries = []
        for task, records in sorted(by_task.items()):
            candidate_by_name = {
                system_name(record, names): record
                for record in candidates
                if record.task.key == task and record.main.value is not None
            }
            candidates_in_order = [
                candidate_by_name[name] for name in names_by_rule if name in candidate_by_name
            ]
            baseline = strongest(candidates_in_order, named)
            if baseline is not None:
                entries.append([task, system_name(baseline, names), _digest(records)])
                continue
            # Without a baseline, the page follows from the model's own records alone.
            of_models = [record for record in records if record.model.label in models]
            if of_models:
                entries.append([task, "", _digest(of_models)])
        return entries

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return {_TYPE: asdict(self), "text/plain": ""}  # invisible in the notebook


def _digest(records: Iterable[Result]) -> str:
    """Return a digest that changes with any of the records."""
    facts = sorted([record.model.identity, str(record.seed), record.finished] for record in records)
    return sha256_json(facts)[:16]


def read_trace(page: Path | Mapping[str, Any]) -> RunTrace | None:
    """Return the scores in a page (a file or a parsed notebook), or None."""
    for output in _outputs(page):
        if (value := output.get("data", {}).get(_TYPE)) is not None:
            scores = tuple(map(_score, value["scores"]))
            return RunTrace(
                scores, tuple(value["reused"]), value["skipped"], value.get("baselines")
            )
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
    outputs = []
    for cell in page["cells"]:
        outputs += cell.get("outputs", ())
    return outputs


def _score(value: Mapping[str, Any]) -> AgainstBaseline:
    score = value["score"]
    parts = {"columns": tuple(score["columns"]), "parts": tuple(score["parts"])}
    ends = value["interval"] and tuple(value["interval"])
    missing_models = tuple(value.get("missing", ()))  # older pages have none
    of_page = {
        "score": Aggregate(**{**score, **parts}),
        "interval": ends,
        "missing": missing_models,
    }
    return AgainstBaseline(**{**value, **of_page})
