"""What an evaluation's page tells the command line: its scores, for the end of `qwen3nb eval`.

The page carries them in an output of its own type, which a hidden cell shows and no browser sees,
so that the terminal shows the page's numbers, of a reused page too, and computes none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qwen3nb.analysis.comparison.against_baseline import AgainstBaseline
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.utils.atomic_files import read_json

_TYPE = "application/vnd.qwen3nb.run+json"
_CONCLUSION = 'class="q-conclusion"'


@dataclass(frozen=True, repr=False)
class RunTrace:
    """The scores of a page."""

    scores: tuple[AgainstBaseline, ...]
    reused: tuple[str, ...] = ()  # tasks whose record was there already
    skipped: Mapping[str, str] | None = None  # why a task has no result

    def __repr__(self) -> str:
        return f"<RunTrace: {len(self.scores)} scores, {len(self.reused)} reused>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {_TYPE: asdict(self), "text/plain": repr(self)}


def read_trace(page: Path) -> RunTrace | None:
    """Return the scores that a page carries, or None."""
    for output in _outputs(page):
        if (value := output.get("data", {}).get(_TYPE)) is not None:
            scores = tuple(_score(each) for each in value["scores"])
            return RunTrace(scores, tuple(value["reused"]), value["skipped"])
    return None


def read_conclusions(page: Path) -> list[str]:
    """Return the conclusions that a page shows, as plain text."""
    return [
        "".join(output["data"]["text/plain"])
        for output in _outputs(page)
        if _CONCLUSION in "".join(output.get("data", {}).get("text/html", ""))
    ]


def read_finished(page: Path) -> str:
    """Return when a page's run finished, UTC, ISO 8601; empty if it is no page of ours."""
    if not page.is_file():
        return ""
    return str(read_json(page).get("metadata", {}).get("qwen3nb", {}).get("finished", ""))


def _outputs(page: Path) -> list[dict[str, Any]]:
    if not page.is_file():
        return []
    return [each for cell in read_json(page)["cells"] for each in cell.get("outputs", ())]


def _score(value: dict[str, Any]) -> AgainstBaseline:
    score = value["score"]
    parts = {"columns": tuple(score["columns"]), "parts": tuple(score["parts"])}
    ends = value["interval"] and tuple(value["interval"])
    return AgainstBaseline(**{**value, "score": Aggregate(**{**score, **parts}), "interval": ends})
