"""Tables of the status page: runs, failures, and inconsistent records.

They are based on the pages in ``book/runs``, the notes of failed runs and the records; no model is
loaded and nothing is measured.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from qwen3nb import paths
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

_MOST = 8  # maximum number of names listed in a sentence
_SHOWN = ("checkpoint", "tier", "training")  # parameters also shown at their defaults


def runs_table() -> Table | None:
    """Return a row per page: parameters, status, duration, end; None without a page."""
    rows = []
    for file, ours in _pages():
        finished, failed = _time(ours.get("finished")), _time(ours.get("failed"))
        status = "failed; shows an earlier run" if finished else "failed"
        if failed in ("", finished):
            status = "finished, with failures" if failed else "finished"
        seconds = ours.get("seconds")
        link = f"{'' if file.parent == paths.book_runs() else '../guide/'}{file.stem}.html"
        row = {
            "page\nparameters": Cell(paths.page_key(file), _parameters(ours), link=link),
            "status": Cell(status, strong=bool(failed)),
            "seconds": None if seconds is None else Cell(f"{seconds:,.1f}", value=seconds),
            "finished (UTC)": finished[:16].replace("T", " ") or "never",
        }
        rows.append((not failed, ours["notebook"], file.stem, row))
    if not rows:
        return None
    caption = f"The {len(rows)} pages of this book, and the parameters of their runs."
    ordered = [row for *_, row in sorted(rows, key=lambda each: each[:3])]
    return Table.of(ordered, kind="words", name="runs", caption=caption)


def status_conclusion(results: Iterable[Result] | None = None) -> Conclusion:
    """State how many runs failed, and whether all records have the same software and data."""
    known = load_results() if results is None else results
    lost = sorted(known.unreadable) if isinstance(known, Results) else []
    results = list(known)
    pages = list(_pages())
    failed = sorted(paths.page_key(file) for file, ours in pages if ours.get("failed"))
    text = f"{plural(len(pages), 'run')}, {len(failed)} failed{_listed(failed)}"
    text += f"; {plural(len(results), 'record')}, {len(lost)} damaged and left out{_listed(lost)}"
    here = Environment.current().versions
    older = sum(bool(here.items() - {**here, **r.environment.versions}.items()) for r in results)
    text += f", {older} made with other versions of the libraries than are installed"
    revisions: dict[str, set[str | None]] = {}
    for each in results:
        revisions.setdefault(each.task.key, set()).add(each.task.revision)
    if mixed := sorted(task for task, own in revisions.items() if len(own) > 1):
        text += f". Do not compare numbers across the revisions of the data{_listed(mixed)}"
    return Conclusion(f"{text}.")


def _listed(names: list[str]) -> str:
    """Return the first names in parentheses, and the number of the others."""
    rest = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f" ({', '.join(names[:_MOST])}{rest})" if names else ""


def _pages() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the pages of runs and lessons, except the status page, with their metadata.

    Foreign pages are left out.
    """
    for folder in (paths.book_runs(), paths.book() / "guide"):
        for file in sorted(folder.glob("*.ipynb")):
            try:
                ours = read_json(file)["metadata"]["qwen3nb"]
                for name in ("finished", "failed"):
                    _time(ours.get(name))
                fine = isinstance(ours["notebook"], str) and file.stem != "status"
                float(ours.get("seconds") or 0), dict(ours.get("parameters", {}))
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
            if fine:
                yield file, ours


def _time(text: str | None) -> str:
    """Return a time in ISO 8601, or an empty string; raise ValueError for other text."""
    return datetime.fromisoformat(text).isoformat() if text else ""


def _parameters(ours: dict[str, Any]) -> str:
    """Return the parameters of a run, without those at their defaults."""
    file = paths.notebooks() / f"{ours['notebook']}.ipynb"
    declared: Mapping[str, Parameter] = {}
    with suppress(ParameterError, OSError):  # the notebook is gone, or is not one any more
        declared = read_parameters(file)
    parts = [
        f"{name} {value}"
        for name, value in ours.get("parameters", {}).items()
        if value != ""
        and (name in _SHOWN or name not in declared or value != declared[name].default)
    ]
    return ", ".join(parts) or "defaults"


def failed_runs_table() -> Table | None:
    """Return failed runs and failed tasks, each with its reason; None if nothing failed."""
    rows: list[tuple[object, ...]] = [
        ((run.page, run.failed[:19].replace("T", " ")), run.reason, "\n".join(run.more) or None)
        for run in failed_runs()
    ]
    rows += [
        (where, reason, "the task's .error.txt next to the records")
        for where, reason in sorted(load_failures().items())
    ]
    if not rows:
        return None
    return Table.of(
        rows,
        ("run or task", "why", "details in"),
        kind="words",
        name="failures",
        caption="Every run and task that failed, and why.",
    )


def verification_table(*, verify: bool = True) -> Table:
    """Return the records in which `qwen3nb verify` finds problems, or a sentence if none.

    Args:
        verify: whether to verify them; otherwise records are only counted.
    """
    problems: dict[Path, list[str]] = {}
    counts = []
    for folder, of in zip(record_folders(), ("", " of sets of prompts"), strict=False):
        files = result_files(folder)
        problems |= verify_folder(folder, fresh=False) if verify else {}
        holding = f"{sum(file not in problems for file in files)} of " if verify else ""
        counts.append(f"{holding}{len(files)} records{of}")
    found = f"{' and '.join(counts)}{' are consistent' if verify else ', not verified'}"
    return Table.of(
        ((paths.shown(file), "; ".join(messages)) for file, messages in problems.items()),
        ("file", "inconsistent") if problems else (),
        note=f"{found}. See `qwen3nb verify --help` for what is checked, and what is not.",
        kind="facts",
        name="verification" if problems else "",
        caption="Records that are inconsistent with themselves or their files." if problems else "",
    )
