"""Did every run finish, and do the records hold? Runs, failures, and inconsistent records.

All is read from the pages in ``book/runs``, the notes of failed runs and the records; no model is
loaded and nothing is measured.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.answers.answer import Answer
from qwen3nb.execution.parameters import ParameterError, read_parameters
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
from qwen3nb.utils.format import first_names
from qwen3nb.utils.imports import DataFrame

_MOST_NAMES = 8  # in a sentence
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
    title: str  # as in the sidebar

    @property
    def name(self) -> str:
        """Name of the page."""
        return paths.page_key(self.file)

    @property
    def link(self) -> str:
        """Address of the page, relative to the status page."""
        name = f"{self.file.stem}.html"
        if self.file.parent == paths.book_runs():
            return name
        return f"../guide/{name}"

    @property
    def status(self) -> str:
        """Whether the run finished, and what the page shows if it failed."""
        if not self.failed:
            return "finished"
        if self.failed == self.finished:
            return "finished, with failures"
        if self.finished:
            return "failed; shows an earlier run"
        return "failed"

    @property
    def parameters_text(self) -> str:
        """The parameters of the run, without those at their defaults."""
        defaults = self._defaults()
        parts = []
        for name, value in self.parameters.items():
            is_default = name in defaults and value == defaults[name]
            is_left_out = is_default and name not in _ALWAYS_SHOWN
            if is_left_out or value == "":
                continue
            parts.append(f"{name} {value}")
        return ", ".join(parts) or "defaults"

    def _defaults(self) -> dict[str, object]:
        """Return the defaults of the notebook; empty if it is gone, or is not one any more."""
        file = paths.notebooks() / f"{self.notebook}.ipynb"
        try:
            parameters = read_parameters(file)
        except (ParameterError, OSError):
            return {}
        return {name: parameter.default for name, parameter in parameters.items()}


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
        page = read_json(file)
        metadata = page["metadata"]["qwen3nb"]
        notebook = metadata["notebook"]
        if not isinstance(notebook, str):
            return None
        seconds = metadata.get("seconds")
        if seconds is not None:
            seconds = float(seconds)
        return RunPage(
            file,
            notebook,
            parameters=dict(metadata.get("parameters", {})),
            seconds=seconds,
            finished=_time(metadata.get("finished")),
            failed=_time(metadata.get("failed")),
            title=_heading(page["cells"]) or file.stem,
        )
    # Other notebooks lack these fields, or have others in their place.
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _heading(cells: Iterable[Mapping[str, Any]]) -> str:
    """Return the first heading of a page, without Markdown's escapes; empty without one."""
    for cell in cells:
        first_line = "".join(cell["source"]).split("\n")[0]
        if cell["cell_type"] == "markdown" and first_line.startswith("# "):
            return first_line.removeprefix("# ").replace("\\", "")
    return ""


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
        failures = [page.title for page in self.pages if page.failed]
        page_names = {page.name for page in self.pages}
        # Such as evaluations beside a training that were killed.
        without_page = [run.page for run in failed_runs() if run.page not in page_names]
        failures += without_page
        count = len(page_names) + len(without_page)
        # Several come first in the table: their titles are long.
        name_of_failure = f" ({failures[0]})" if len(failures) == 1 else ""
        damaged_records = sorted(self.unreadable)
        sentences = [
            f"{plural(count, 'run')}, {len(failures)} failed{name_of_failure}.",
            f"{plural(len(self.results), 'record')}, {len(damaged_records)} damaged and left "
            f"out{_names_in_parentheses(damaged_records)}.",
        ]
        other_versions = self._records_of_other_versions()
        if other_versions:
            sentences.append(
                f"{plural(other_versions, 'record')} made with other versions of the libraries "
                "than are installed."
            )
        tasks = self._tasks_of_several_revisions()
        if tasks:
            names = _names_in_parentheses(tasks)
            sentences.append(f"Do not compare numbers across the revisions of the data{names}.")
        return Conclusion(" ".join(sentences))

    def _records_of_other_versions(self) -> int:
        """Return the number of records that were made with other versions of the libraries."""
        installed = Environment.current().versions
        count = 0
        for result in self.results:
            versions = {**installed, **result.environment.versions}
            if any(versions[name] != installed[name] for name in installed):
                count += 1
        return count

    def _tasks_of_several_revisions(self) -> list[str]:
        revisions_by_task = defaultdict(set)
        for result in self.results:
            revisions_by_task[result.task.key].add(result.task.revision)
        return sorted(task for task, revisions in revisions_by_task.items() if len(revisions) > 1)

    def table(self) -> Table | None:
        """A row per page: parameters, status, duration, end; None without a page."""
        if not self.pages:
            return None
        # False comes before True, so failed runs are on top.
        failures_first = sorted(
            self.pages, key=lambda page: (not page.failed, page.notebook, page.file.stem)
        )
        return Table.of(
            [_page_row(page) for page in failures_first],
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
            time = run.failed[:19].replace("T", " ")  # without the parts of a second
            details = "\n".join(run.more) or None
            rows.append(((run.page, time), run.reason, details))
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
        messages_of_files: dict[Path, list[str]] = {}
        counts = []
        kinds = ("records", "records of sets of prompts")
        # A study without sets of prompts only has the first folder.
        for folder, kind in zip(record_folders(), kinds, strict=False):
            files = result_files(folder)
            count = f"{len(files)} {kind}"
            if verify:
                messages_of_files |= verify_folder(folder, fresh=False)
                consistent_files = sum(file not in messages_of_files for file in files)
                count = f"{consistent_files} of {count}"
            counts.append(count)
        state = " are consistent" if verify else ", not verified"
        note = (
            f"{' and '.join(counts)}{state}. See `qwen3nb verify --help` for what is checked, and "
            "what is not."
        )
        if not messages_of_files:
            return Table((), (), note, kind="facts")
        return Table.of(
            [
                (paths.shown(file), "; ".join(messages))
                for file, messages in messages_of_files.items()
            ],
            ("file", "inconsistent"),
            note=note,
            kind="facts",
            name="verification",
            caption="Records that are inconsistent with themselves or their files.",
        )


def _page_row(page: RunPage) -> dict[str, object]:
    seconds = None
    if page.seconds is not None:
        seconds = Cell(f"{page.seconds:,.1f}", value=page.seconds)
    return {
        "page\nparameters": Cell(page.title, page.parameters_text, link=page.link),
        "status": Cell(page.status, strong=bool(page.failed)),
        "seconds": seconds,
        # Up to the minute.
        "finished (UTC)": page.finished[:16].replace("T", " ") or "never",
    }


def _names_in_parentheses(names: list[str]) -> str:
    """Return the first names in parentheses, and the number of the others."""
    if not names:
        return ""
    return f" ({first_names(names, most=_MOST_NAMES)})"


def status(results: Iterable[Result] | None = None) -> Status:
    """Return the status of a study: its runs, those that failed, and its records.

    By default, ``results`` are all records of the study.
    """
    if results is None:
        results = load_results()
    unreadable: tuple[str, ...] = ()
    if isinstance(results, Results):
        unreadable = tuple(results.unreadable)
    return Status(tuple(results), unreadable)
