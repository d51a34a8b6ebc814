"""Did every run finish, and do the records hold? Runs, failures, and inconsistent records.

All is read from the pages in ``book/runs``, the notes of failed runs and the records; no model is
loaded and nothing is measured.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.answers.answer import Answer
from qwen3nb.execution.parameters import Parameter, ParameterError, read_parameters
from qwen3nb.records.failures import failed_runs
from qwen3nb.records.record import Environment, Result
from qwen3nb.records.results import Results
from qwen3nb.records.store import (
    load_failures,
    load_results,
    record_folders,
    result_files,
    verify_folder,
)
from qwen3nb.report.render.table import Cell, Conclusion, Table, plural
from qwen3nb.utils.atomic_files import read_json
from qwen3nb.utils.imports import DataFrame

_MOST = 8  # maximum number of names listed in a sentence
_ALWAYS_SHOWN = ("checkpoint", "tier", "training")  # parameters also shown at their defaults


@dataclass(frozen=True)
class RunPage:
    """The page of a run, from the metadata of its notebook."""

    file: Path
    notebook: str
    parameters: Mapping[str, Any]
    seconds: float | None
    finished: str  # ISO 8601; empty if the run never finished
    failed: str  # ISO 8601; empty if it did not fail

    @property
    def name(self) -> str:
        """Name of the page."""
        return paths.page_key(self.file)

    @property
    def link(self) -> str:
        """Address of the page, relative to the status page."""
        folder = "" if self.file.parent == paths.book_runs() else "../guide/"
        return f"{folder}{self.file.stem}.html"

    @property
    def status(self) -> str:
        """Whether the run finished, and what the page shows if it failed."""
        if self.failed in ("", self.finished):
            return "finished, with failures" if self.failed else "finished"
        return "failed; shows an earlier run" if self.finished else "failed"

    @property
    def parameters_text(self) -> str:
        """The parameters of the run, without those at their defaults."""
        declared: Mapping[str, Parameter] = {}
        with suppress(ParameterError, OSError):  # the notebook is gone, or is not one any more
            declared = read_parameters(paths.notebooks() / f"{self.notebook}.ipynb")
        parts = []
        for name, value in self.parameters.items():
            is_default = name in declared and value == declared[name].default
            if value != "" and (name in _ALWAYS_SHOWN or not is_default):
                parts.append(f"{name} {value}")
        return ", ".join(parts) or "defaults"


def read_pages() -> Iterator[RunPage]:
    """Yield the pages of runs and lessons, except the status page; foreign pages are left out."""
    for folder in (paths.book_runs(), paths.book() / "guide"):
        for file in sorted(folder.glob("*.ipynb")):
            page = _read_page(file)
            if page is not None and file.stem != "status":
                yield page


def _read_page(file: Path) -> RunPage | None:
    """Return a page from its metadata; None if they are not ours, or damaged."""
    try:
        metadata = read_json(file)["metadata"]["qwen3nb"]
        seconds = metadata.get("seconds")
        page = RunPage(
            file,
            metadata["notebook"],
            dict(metadata.get("parameters", {})),
            None if seconds is None else float(seconds),
            _time(metadata.get("finished")),
            _time(metadata.get("failed")),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return page if isinstance(page.notebook, str) else None


def _time(text: str | None) -> str:
    """Return a time in ISO 8601, or an empty string; raise ValueError for other text."""
    return datetime.fromisoformat(text).isoformat() if text else ""


@dataclass(frozen=True, repr=False, eq=False)
class Status(Answer):
    """The runs of a book, those that failed, and the state of the records."""

    results: tuple[Result, ...]
    unreadable: tuple[str, ...]  # files of records that could not be read

    @cached_property
    def pages(self) -> tuple[RunPage, ...]:
        """The pages of runs and lessons."""
        return tuple(read_pages())

    @property
    def conclusion(self) -> Conclusion:
        """How many runs failed, and whether all records have the same software and data."""
        failed = sorted(page.name for page in self.pages if page.failed)
        damaged = sorted(self.unreadable)
        text = (
            f"{plural(len(self.pages), 'run')}, {len(failed)} failed{_listed(failed)}; "
            f"{plural(len(self.results), 'record')}, {len(damaged)} damaged and left out"
            f"{_listed(damaged)}, {self._made_otherwise()} made with other versions of the "
            "libraries than are installed"
        )
        mixed = self._tasks_of_several_revisions()
        if mixed:
            text += f". Do not compare numbers across the revisions of the data{_listed(mixed)}"
        return Conclusion(f"{text}.")

    def _made_otherwise(self) -> int:
        """Return the number of records that were made with other versions of the libraries."""
        installed = Environment.current().versions
        count = 0
        for result in self.results:
            versions = result.environment.versions
            if any(versions.get(name, version) != version for name, version in installed.items()):
                count += 1
        return count

    def _tasks_of_several_revisions(self) -> list[str]:
        revisions: dict[str, set[str | None]] = {}
        for result in self.results:
            revisions.setdefault(result.task.key, set()).add(result.task.revision)
        return sorted(task for task, of_task in revisions.items() if len(of_task) > 1)

    def table(self) -> Table | None:
        """A row per page: parameters, status, duration, end; None without a page."""
        if not self.pages:
            return None
        in_order = sorted(
            self.pages, key=lambda page: (not page.failed, page.notebook, page.file.stem)
        )
        return Table.of(
            [_page_row(page) for page in in_order],
            kind="words",
            name="runs",
            caption=f"The {len(self.pages)} pages of this book, and the parameters of their runs.",
        )

    def to_frame(self) -> DataFrame:
        """A row per page: name, notebook, status, seconds, when it finished."""
        import pandas as pd

        rows = [
            (page.name, page.notebook, page.status, page.seconds, page.finished)
            for page in self.pages
        ]
        return pd.DataFrame(rows, columns=["page", "notebook", "status", "seconds", "finished"])

    def failures_table(self) -> Table | None:
        """Failed runs and failed tasks, each with its reason; None if nothing failed."""
        rows: list[tuple[object, ...]] = []
        for run in failed_runs():
            when = run.failed[:19].replace("T", " ")
            rows.append(((run.page, when), run.reason, "\n".join(run.more) or None))
        for task, reason in sorted(load_failures().items()):
            rows.append((task, reason, "the task's .error.txt next to the records"))
        if not rows:
            return None
        return Table.of(
            rows,
            ("run or task", "why", "details in"),
            kind="words",
            name="failures",
            caption="Every run and task that failed, and why.",
        )

    def verification_table(self, *, verify: bool = True) -> Table:
        """The records in which `qwen3nb verify` finds problems, or a sentence if none.

        Args:
            verify: whether to verify them; otherwise records are only counted.
        """
        problems: dict[Path, list[str]] = {}
        counts = []
        for folder, kind in zip(record_folders(), ("", " of sets of prompts"), strict=False):
            files = result_files(folder)
            count = f"{len(files)} records{kind}"
            if verify:
                problems |= verify_folder(folder, fresh=False)
                consistent = sum(file not in problems for file in files)
                count = f"{consistent} of {count}"
            counts.append(count)
        state = " are consistent" if verify else ", not verified"
        caption = ""
        if problems:
            caption = "Records that are inconsistent with themselves or their files."
        return Table.of(
            [(paths.shown(file), "; ".join(messages)) for file, messages in problems.items()],
            ("file", "inconsistent") if problems else (),
            note=f"{' and '.join(counts)}{state}. See `qwen3nb verify --help` for what is checked, "
            "and what is not.",
            kind="facts",
            name="verification" if problems else "",
            caption=caption,
        )


def _page_row(page: RunPage) -> dict[str, object]:
    seconds = None
    if page.seconds is not None:
        seconds = Cell(f"{page.seconds:,.1f}", value=page.seconds)
    return {
        "page\nparameters": Cell(page.name, page.parameters_text, link=page.link),
        "status": Cell(page.status, strong=bool(page.failed)),
        "seconds": seconds,
        "finished (UTC)": page.finished[:16].replace("T", " ") or "never",
    }


def _listed(names: list[str]) -> str:
    """Return the first names in parentheses, and the number of the others."""
    if not names:
        return ""
    text = ", ".join(names[:_MOST])
    if len(names) > _MOST:
        text += f" and {len(names) - _MOST} more"
    return f" ({text})"


def status(results: Iterable[Result] | None = None) -> Status:
    """Return the status of a study: its runs, those that failed, and its records.

    By default, ``results`` are all records of the study.
    """
    records = load_results() if results is None else results
    unreadable = tuple(records.unreadable) if isinstance(records, Results) else ()
    return Status(tuple(records), unreadable)
