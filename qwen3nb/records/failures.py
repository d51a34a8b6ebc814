"""Notes on failed runs, each kept until the same run succeeds.

    results/failed/<page>.json

The records that it saved before it failed are whole and count like any other; the next
attempt reuses them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.utils.atomic_files import read_json, write_json

__all__ = ["FailedRun", "failed_run", "failed_runs", "forget_failure", "note_failure"]


@dataclass(frozen=True)
class FailedRun:
    """A run that did not complete.

    Attributes:
        page: name of the page it would have produced.
        notebook: name of the notebook.
        parameters: all parameters, defaults filled in.
        error: name of the exception, or what else ended the run.
        message: the error's message.
        started: time of the start, UTC, ISO 8601 to the second.
        failed: time of the failure, likewise.
        seconds: time until it failed.
        more: where to read more: the log, the partly executed notebook.
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
        """The error and the last line of its message."""
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        return f"{self.error}: {lines[-1]}" if lines else self.error


def _file(page: str, folder: Path | None = None) -> Path:
    return (folder or paths.results()) / "failed" / f"{page}.json"


def note_failure(run: FailedRun) -> Path:
    """Store the note of a failed run; it replaces an earlier note of the same page."""
    return write_json(_file(run.page), asdict(run))


def forget_failure(page: str) -> None:
    """Delete the note of a page whose run has succeeded."""
    _file(page).unlink(missing_ok=True)


def failed_run(page: str) -> FailedRun | None:
    """Return the note of a page whose last run failed, else None."""
    file = _file(page)
    return _read(file) if file.is_file() else None


def failed_runs(folder: Path | str | None = None) -> list[FailedRun]:
    """Return the notes of all pages whose last run failed, sorted by page.

    A note that is damaged is one of a run of which no more is known.
    """
    files = _file("x", Path(folder) if folder else None).parent.glob("*.json")
    return [_read(file) for file in sorted(files) if file.is_file()]


def _read(file: Path) -> FailedRun:
    try:
        return _checked(read_json(file))
    except (OSError, ValueError, TypeError, KeyError) as error:
        return FailedRun(
            page=file.stem, notebook="", parameters={}, error="damaged note",
            message=f"{paths.shown(file)} is not the note of a failed run ({error}); delete it",
            started="", failed="", seconds=0.0,
        )  # fmt: skip


def _checked(value: Any) -> FailedRun:
    """Return a note from its JSON.

    Raises:
        TypeError: not an object, or a field that is unknown or of another type.
        KeyError: a field is missing.
    """
    run = FailedRun(**{**value, "more": tuple(value["more"])})
    texts = (run.page, run.notebook, run.error, run.message, run.started, run.failed, *run.more)
    if not all(isinstance(each, str) and _is_unicode(each) for each in texts):
        raise TypeError("expected texts")
    if not isinstance(run.parameters, dict) or not isinstance(run.seconds, int | float):
        raise TypeError("expected an object of parameters and a number of seconds")
    return run


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
