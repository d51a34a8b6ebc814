"""Tables of the status page: runs, failures, machine, software, data versions.

Everything is read from the pages in ``book/runs``, the reports of failed runs and the
records; no model is loaded and nothing is measured.
"""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.execution.parameters import read_parameters
from qwen3nb.records.failures import failed_runs
from qwen3nb.records.record import Environment, Result
from qwen3nb.records.results import Results
from qwen3nb.records.store import load_failures, load_results, result_files, verify_folder
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.table import Table
from qwen3nb.utils.atomic_files import read_json
from qwen3nb.utils.hardware import cores, gpu_names, processor, total_memory

__all__ = [
    "data_versions_table",
    "failed_runs_table",
    "machine_table",
    "runs_table",
    "software_table",
    "status_conclusion",
    "verification_table",
]

_UNKNOWN = "not recorded"
_MOST = 8  # names listed in a cell; the rest is counted


@dataclass(frozen=True)
class _Page:
    """The metadata of a page."""

    name: str
    link: str
    notebook: str
    parameters: dict[str, Any]
    finished: str
    failed: str
    seconds: float | None

    @property
    def status(self) -> str:
        if not self.failed:
            return "finished"
        if self.failed == self.finished:
            return "finished, with failures"
        return "failed; shows an earlier run" if self.finished else "failed"


def runs_table() -> Table:
    """Return a row per page: notebook, parameters, status, duration.

    Parameters at their defaults are left out, except the model and the tier.
    """
    pages = sorted(_pages(), key=lambda page: (not page.failed, page.notebook, page.name))
    rows = tuple(
        (
            Cell(page.name, link=page.link),
            Cell(page.notebook),
            Cell(_parameters(page)),
            Cell(page.status, strong=bool(page.failed)),
            _duration(page.seconds),
            _when(page.finished),
        )
        for page in pages
    )
    failed = sum(bool(page.failed) for page in pages)
    columns = ("page", "notebook", "parameters", "status", "duration", "finished (UTC)")
    note = f"{len(pages)} pages, {failed} of failed runs." if pages else "No pages yet."
    caption = "Every page of this book: its notebook, the parameters of its run, and how it ended."
    return Table(columns, rows, note, kind="words", caption=caption, name="runs")


def status_conclusion(results: Iterable[Result] | None = None) -> Conclusion:
    """Say how many runs failed, and whether all records have the same software and data."""
    known = load_results() if results is None else results
    lost = sorted(known.unreadable) if isinstance(known, Results) else []
    results = list(known)
    pages = list(_pages())
    failed = sorted(page.name for page in pages if page.failed)
    runs = f"{len(pages)} of {len(pages)} runs finished"
    if failed:
        runs = f"{len(failed)} of {len(pages)} runs failed ({_shortened(failed)})"
    older = sum(not _is_current(result) for result in results)
    software = f"{older} of {len(results)} records were made with other versions than are installed"
    if not older:
        software = f"all {len(results)} records were made with the versions installed here"
    mixed = sorted(task for task, made in _by_task(results).items() if len(_revisions(made)) > 1)
    data = "each task has one revision of its data"
    if mixed:
        data = f"do not compare numbers across the revisions of {_shortened(mixed)}"
    if lost:
        count = "1 record is" if len(lost) == 1 else f"{len(lost)} records are"
        runs += f"; {count} damaged and left out everywhere ({_shortened(lost)})"
    return Conclusion(f"{runs}; {software}; {data}." if results else f"{runs}; no records yet.")


def _is_current(result: Result) -> bool:
    made = result.environment.versions
    return all(
        made.get(name, version) == version
        for name, version in Environment.current().versions.items()
    )


def _by_task(results: Iterable[Result]) -> dict[str, list[Result]]:
    by_task = defaultdict(list)
    for result in results:
        by_task[result.task.key].append(result)
    return dict(by_task)


def _revisions(results: Iterable[Result]) -> set[str]:
    return {result.task.revision for result in results}


def _pages() -> list[_Page]:
    """Return the pages in ``book/runs`` and ``book/guide``, without the status page."""
    folders = (paths.book_runs(), paths.book() / "guide")
    files = [file for folder in folders for file in sorted(folder.glob("*.ipynb"))]
    return [page for file in files if file.stem != "status" and (page := _page(file))]


def _page(file: Path) -> _Page | None:
    try:
        metadata = read_json(file)["metadata"]
        ours = metadata["qwen3nb"]
        seconds = ours.get("seconds", metadata.get("papermill", {}).get("duration"))
        return _Page(
            name=paths.page_key(file),
            link=f"{'' if file.parent == paths.book_runs() else '../guide/'}{file.stem}.html",
            notebook=str(ours.get("notebook") or _notebook_of(file.stem)),
            parameters=dict(ours.get("parameters", {})),
            finished=_time(ours.get("finished", "")),
            failed=_time(ours.get("failed", "")),
            seconds=None if seconds is None else float(seconds),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no page of this program
        return None


def _time(text: str) -> str:
    """Return a time in ISO 8601, or an empty string.

    Raises:
        ValueError: neither.
        TypeError: not even a text.
    """
    return datetime.fromisoformat(text).isoformat() if text else ""


def _notebook_of(page: str) -> str:
    """Infer the notebook of a page without that metadata from the page's name."""
    stems = paths.notebook_names()
    return max((stem for stem in stems if f"{page}-".startswith(f"{stem}-")), key=len, default="–")


def _parameters(page: _Page) -> str:
    defaults = _defaults(page.notebook)
    shown = ("checkpoint", "tier", "training")
    parts = [
        f"{name} {value}"
        for name, value in page.parameters.items()
        if value != "" and (name in shown or name not in defaults or value != defaults[name])
    ]
    return ", ".join(parts) or "defaults"


def _defaults(notebook: str) -> dict[str, Any]:
    file = paths.notebooks() / f"{notebook}.ipynb"
    declared = read_parameters(file) if file.is_file() else {}
    return {name: parameter.default for name, parameter in declared.items()}


def _duration(seconds: float | None) -> Cell:
    if seconds is None:
        return Cell(_UNKNOWN)
    return Cell(f"{seconds:,.1f}\N{NO-BREAK SPACE}s", value=seconds)


def _when(moment: str) -> Cell:
    """Return a date that does not break at its hyphens, with the time below it."""
    day, _, time = _moment(moment).partition(" ")
    if not day:
        return Cell("never")
    since = datetime.fromisoformat(moment).timestamp()
    return Cell(day.replace("-", "\N{NON-BREAKING HYPHEN}"), time, value=since)


def _moment(when: str) -> str:
    """Format an ISO 8601 time as ``2026-11-20 12:04:21``."""
    return when[:19].replace("T", " ")


def failed_runs_table() -> Table:
    """Return failed runs and failed tasks, each with its reason."""
    rows = [
        (Cell(run.page, _moment(run.failed)), Cell(run.reason), Cell("\n".join(run.more) or "–"))
        for run in failed_runs()
    ]
    rows += [
        (Cell(where), Cell(reason), Cell("the task's .error.txt beside the records"))
        for where, reason in sorted(load_failures().items())
    ]
    columns = ("run or task", "why", "details in")
    note = "" if rows else "Nothing failed."
    caption = "Every run and task that failed, and why."
    return Table(columns, tuple(rows), note, kind="words", caption=caption, name="failures")


def machine_table() -> Table:
    """Return the machine that built this page: processor, cores, memory, GPUs, system."""
    counted = Counter(gpu_names())
    facts = {
        "processor": processor(),
        "cores": str(cores()),
        "memory": f"{total_memory() / 2**30:.1f} GiB",
        "GPUs": ", ".join(f"{n} × {name}" for name, n in counted.items()) or "none",
        "system": platform.platform(),
        "Python": platform.python_version(),
    }
    rows = tuple((Cell(name), Cell(value)) for name, value in facts.items())
    caption = "The machine that built this page; each record names its own."
    return Table(("what", "value"), rows, kind="facts", caption=caption, name="machine")


def software_table(results: Iterable[Result] | None = None) -> Table:
    """Return installed versions, and the records made with other versions."""
    results = load_results() if results is None else list(results)
    installed = Environment.current().versions
    rows = []
    for package, version in installed.items():
        by_version = defaultdict(list)
        for result in results:
            by_version[result.environment.versions.get(package, _UNKNOWN)].append(result)
        same = by_version.pop(version, [])
        others = [f"{other}: {_names(made)}" for other, made in sorted(by_version.items())]
        rows.append((Cell(package), Cell(version), Cell(str(len(same))), _others(others)))
    columns = ("package", "installed", "records made with it", "records made with others")
    caption = "Installed versions, and how many records were made with them or with others."
    return Table(columns, tuple(rows), kind="words", caption=caption, name="software")


def data_versions_table(results: Iterable[Result] | None = None) -> Table:
    """Return the data set and revision of each task, and the records of other revisions.

    The revision of a task is that of its newest record.
    """
    results = load_results() if results is None else list(results)
    rows = []
    for task, made in sorted(_by_task(results).items()):
        last = max(made, key=lambda result: result.finished).task
        older = defaultdict(list)
        for result in made:
            if result.task.revision != last.revision:
                older[str(result.task.revision)[:12]].append(result)
        others = [f"{revision}: {_names(group)}" for revision, group in sorted(older.items())]
        same = len(made) - sum(map(len, older.values()))
        cells = (Cell(task), Cell(last.dataset, str(last.revision)[:12]), Cell(str(same)))
        rows.append((*cells, _others(others)))
    columns = ("task", "data set\nrevision", "records of it", "records of other revisions")
    note = "" if rows else "No records yet."
    caption = "The data of each task, by the revision of its newest record."
    return Table(columns, tuple(rows), note, kind="words", caption=caption, name="data")


def _names(results: Iterable[Result]) -> str:
    """Return the model and task of the first records, and the number of the rest."""
    return _shortened(sorted({f"{each.model.label} on {each.task.key}" for each in results}))


def _shortened(names: list[str]) -> str:
    rest = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + rest


def _others(lines: list[str]) -> Cell:
    return Cell("; ".join(lines) or "none", strong=bool(lines))


def verification_table(*, verify: bool = True) -> Table:
    """Return the number of records and whether `qwen3nb verify` finds nothing wrong with them.

    Args:
        verify: whether to verify them; otherwise records are only counted.
    """
    files = result_files()
    problems = verify_folder(paths.results()) if verify else {}
    hold = sum(file not in problems for file in files)
    verified = f"{hold} of {len(files)} are consistent"
    facts = {
        "records": str(len(files)),
        "verified": verified if verify else "not verified",
    }
    rows = [(Cell(name), Cell(value)) for name, value in facts.items()]
    rows += [
        (Cell(paths.shown(file), "inconsistent"), Cell("; ".join(messages)))
        for file, messages in problems.items()
    ]
    note = (
        "A record is consistent if its content is that of its checksum, every aggregate follows "
        "from its per-query scores and the model's identity from its settings, and its runs and "
        "MTEB's result are those it was made from. None was removed. `qwen3nb verify --help` says "
        "what cannot be seen."
    )
    caption = "Whether the records agree with themselves and with the files they were made from."
    return Table(
        ("what", "value"), tuple(rows), note, kind="facts", caption=caption, name="verification"
    )
