"""Notes on failed runs, each kept until the same run succeeds.

    results/failed/<page>.json

Records that the run saved before it failed count like any other; the next attempt reuses them.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from qwen3nb import paths
from qwen3nb.utils.atomic_files import read_json, write_json
from qwen3nb.utils.schema import Number, Unicode, field_problem


@dataclass(frozen=True)
class FailedRun:
    """A run that did not complete."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    page: Unicode  # name of the page it would have produced
    notebook: Unicode  # name of the notebook
    parameters: dict[str, Any]  # all parameters, defaults filled in
    error: Unicode  # name of the exception, or another cause
    message: Unicode  # the error's message
    started: Unicode  # time of the start, UTC, ISO 8601 to the second
    failed: Unicode  # time of the failure, likewise
    seconds: Number  # time until it failed
    more: tuple[Unicode, ...] = ()  # paths of the log and the partly executed notebook

    @property
    def reason(self) -> str:
        """The error and the last line of its message."""
        message = self.message.strip()
        if not message:
            return self.error
        last_line = message.splitlines()[-1].strip()
        return f"{self.error}: {last_line}"


def note_failure(run: FailedRun) -> Path:
    """Store the note of a failed run; it replaces an earlier note of the same page."""
    _remove_partial(run.page, kept=run.more)
    return write_json(_file(run.page), asdict(run))


def forget_failure(page: str) -> None:
    """Delete the note and the partly executed notebook of a page whose run has succeeded."""
    _remove_partial(page)
    _file(page).unlink(missing_ok=True)


def _remove_partial(page: str, *, kept: tuple[str, ...] = ()) -> None:
    """Delete the partly executed notebook named in a page's note."""
    failed = failed_run(page)
    for name in failed.more if failed else ():
        file = paths.root() / name
        if name not in kept and file.resolve().parent == paths.results() / "partial":
            file.unlink(missing_ok=True)


def failed_run(page: str) -> FailedRun | None:
    """Return the note of a page whose last run failed, else None."""
    file = _file(page)
    return _read(file) if file.is_file() else None


def failed_runs(folder: Path | str | None = None) -> list[FailedRun]:
    """Return the notes of all pages whose last run failed, sorted by page.

    A damaged note is returned as a failed run without details.
    """
    files = (Path(folder or paths.results()) / "failed").glob("*.json")
    return [_read(file) for file in sorted(files) if file.is_file()]


def _file(page: str) -> Path:
    return paths.results() / "failed" / f"{page}.json"


def _read(file: Path) -> FailedRun:
    value: Any = None
    try:
        value = read_json(file)
        run: FailedRun = TypeAdapter(FailedRun).validate_python(value)
        return run
    except (OSError, ValueError) as error:
        reason = str(error)
        if isinstance(error, ValidationError):
            reason = field_problem(error, value)
        return FailedRun(
            page=file.stem,
            notebook="",
            parameters={},
            error="damaged note",
            message=f"{paths.shown(file)} is not the note of a failed run ({reason}); delete it",
            started="",
            failed="",
            seconds=0.0,
        )
