"""Runs that failed: a note of each, until the same run succeeds.

    results/failed/<page>.json

A run that fails may have saved records before. They stay where they are, so that the next
attempt need not make them again, but `qwen3nb.records.record.load_results` leaves them out until
the run has come to its end: the numbers of a failed run are shown nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.utils.atomic_files import read_json, write_json

__all__ = ["FailedRun", "failed_run", "failed_runs", "forget_failure", "note_failure"]


@dataclass(frozen=True)
class FailedRun:
    """A run that did not come to its end.

    Attributes:
        page: name of the page it would have made.
        notebook: name of the notebook.
        parameters: all of them, defaults filled in.
        error: name of the exception, or what else ended it.
        message: what that said.
        started: when, UTC, ISO 8601 to the second.
        failed: likewise.
        seconds: how long it took to fail.
        more: where more is to be read: the log, the notebook as far as it came.
    """

    page: str
    notebook: str
    parameters: dict[str, Any]
    error: str
    message: str
    started: str
    failed: str
    seconds: float
    more: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The error and the last line of what it said."""
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        return f"{self.error}: {lines[-1]}" if lines else self.error

    def made(self, *, config: Mapping[str, Any], finished: str) -> bool:
        """Whether this run made the record with ``config`` that was ``finished`` then."""
        ours = all(self.parameters.get(name) == value for name, value in config.items())
        return bool(config) and ours and self.started <= finished <= self.failed


def _file(page: str, folder: Path | None = None) -> Path:
    return (folder or paths.results()) / "failed" / f"{page}.json"


def note_failure(run: FailedRun) -> Path:
    """Keep a note of a failed run; it takes the place of an earlier one's."""
    return write_json(_file(run.page), asdict(run))


def forget_failure(page: str) -> None:
    """The run of this page has succeeded."""
    _file(page).unlink(missing_ok=True)


def failed_run(page: str) -> FailedRun | None:
    """The note of a page's run, if it failed last."""
    file = _file(page)
    return _read(file) if file.is_file() else None


def failed_runs(folder: Path | str | None = None) -> list[FailedRun]:
    """Every run that failed last, by page.

    Raises:
        ValueError: a note that cannot be read; names it.
    """
    files = _file("x", Path(folder) if folder else None).parent.glob("*.json")
    return [_read(file) for file in sorted(files)]


def _read(file: Path) -> FailedRun:
    try:
        value = read_json(file)
        return FailedRun(**{**value, "more": tuple(value["more"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{file}: not the note of a failed run ({error!r}); delete it") from None
