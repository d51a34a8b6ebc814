"""Tables of the status page: runs, failures, machine, software, data versions.

Everything is read from the pages in ``book/runs``, the reports of failed runs and the
records; no model is loaded and nothing is measured.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from qwen3nb import paths
from qwen3nb.execution.parameters import read_parameters
from qwen3nb.records.failures import failed_runs
from qwen3nb.records.record import Environment, Result
from qwen3nb.records.results import Results
from qwen3nb.records.store import load_failures, load_results, result_files, verify_folder
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.format import plural
from qwen3nb.report.render.table import Table
from qwen3nb.utils.atomic_files import read_json
from qwen3nb.utils.hardware import cores, gpu_names, processor, total_memory

_UNKNOWN = "not recorded"
_MOST = 8  # names listed in a cell; the rest is counted


@dataclass(frozen=True)
class _Page:
    """The metadata of a page; times are ISO 8601 or empty."""

    name: str
    link: str
    notebook: str
    parameters: dict[str, Any]
    finished: str
    failed: str
    seconds: float | None


def runs_table() -> Table | None:
    """Return a row per page: parameters, duration, and how it ended; None without a page.

    Parameters at their defaults are left out, except the model and the tier. The status is a
    column only if a run failed.
    """
    pages = sorted(_pages(), key=lambda page: (not page.failed, page.notebook, page.name))
    failed = any(page.failed for page in pages)
    rows = []
    for page in pages:
        row: dict[str, Any] = {
            "page\nparameters": Cell(page.name, _parameters(page), link=page.link)
        }
        if failed:
            status = "failed; shows an earlier run" if page.finished else "failed"
            if page.failed in ("", page.finished):
                status = "finished, with failures" if page.failed else "finished"
            row["status"] = Cell(status, strong=bool(page.failed))
        took = f"{page.seconds or 0:,.1f}\N{NO-BREAK SPACE}s"
        row["duration"] = _UNKNOWN if page.seconds is None else Cell(took, value=page.seconds)
        at = Cell("never")
        if page.finished:  # it does not break at its hyphens, nor before the time
            since = datetime.fromisoformat(page.finished).timestamp()
            when = _moment(page.finished)[:16].replace("-", "\N{NON-BREAKING HYPHEN}")
            at = Cell(when.replace(" ", "\N{NO-BREAK SPACE}"), value=since)
        rows.append({**row, "finished (UTC)": at})
    if not rows:
        return None
    caption = f"The {len(rows)} pages of this book, and the parameters of their runs."
    return Table.of(rows, kind="words", name="runs", caption=caption)


def status_conclusion(results: Iterable[Result] | None = None) -> Conclusion:
    """Say how many runs failed, and whether all records have the same software and data."""
    known = load_results() if results is None else results
    lost = sorted(known.unreadable) if isinstance(known, Results) else []
    results = list(known)
    pages = list(_pages())
    failed = sorted(page.name for page in pages if page.failed)
    runs = f"{'all ' if len(pages) > 1 else ''}{plural(len(pages), 'run')} finished"
    if failed:
        runs = f"{len(failed)} of {len(pages)} runs failed ({_shortened(failed)})"
    here = Environment.current().versions
    older = sum(bool(here.items() - {**here, **r.environment.versions}.items()) for r in results)
    software = f"{older} of {len(results)} records were made with other versions than are installed"
    if not older:
        software = f"all {len(results)} records were made with the versions installed here"
    mixed = sorted(
        task
        for task, made in _by_task(results).items()
        if len({each.task.revision for each in made}) > 1
    )
    data = "each task has one revision of its data"
    if mixed:
        data = f"do not compare numbers across the revisions of {_shortened(mixed)}"
    if lost:
        count = "1 record is" if len(lost) == 1 else f"{len(lost)} records are"
        runs += f"; {count} damaged and left out everywhere ({_shortened(lost)})"
    text = f"{runs}; {software}; {data}." if results else f"{runs}; no records yet."
    return Conclusion(text[0].upper() + text[1:])


def _pages() -> list[_Page]:
    """Return the pages in ``book/runs`` and ``book/guide``, without the status page."""
    folders, pages = (paths.book_runs(), paths.book() / "guide"), []
    for file in (file for folder in folders for file in sorted(folder.glob("*.ipynb"))):
        try:
            ours = read_json(file)["metadata"]["qwen3nb"]
            seconds = ours.get("seconds")
            page = _Page(
                name=paths.page_key(file),
                link=f"{'' if file.parent == paths.book_runs() else '../guide/'}{file.stem}.html",
                notebook=str(ours["notebook"]),
                parameters=dict(ours.get("parameters", {})),
                finished=_time(ours.get("finished", "")),
                failed=_time(ours.get("failed", "")),
                seconds=None if seconds is None else float(seconds),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # no page of this program
        if file.stem != "status":
            pages.append(page)
    return pages


def _time(text: str) -> str:
    """Return a time in ISO 8601, or an empty string.

    Raises:
        ValueError: neither.
        TypeError: not even a text.
    """
    return datetime.fromisoformat(text).isoformat() if text else ""


def _parameters(page: _Page) -> str:
    file = paths.notebooks() / f"{page.notebook}.ipynb"
    declared = read_parameters(file) if file.is_file() else {}
    defaults = {name: parameter.default for name, parameter in declared.items()}
    shown = ("checkpoint", "tier", "training")
    parts = [
        f"{name} {value}"
        for name, value in page.parameters.items()
        if value != "" and (name in shown or name not in defaults or value != defaults[name])
    ]
    return ", ".join(parts) or "defaults"


def _moment(when: str) -> str:
    """Format an ISO 8601 time as ``2026-11-20 12:04:21``."""
    return when[:19].replace("T", " ")


def failed_runs_table() -> Table | None:
    """Return failed runs and failed tasks, each with its reason; None if nothing failed."""
    rows: list[tuple[object, ...]] = [
        ((run.page, _moment(run.failed)), run.reason, "\n".join(run.more) or None)
        for run in failed_runs()
    ]
    rows += [
        (where, reason, "the task's .error.txt beside the records")
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


def machine_table() -> Table:
    """Return the machine that built this page: processor, cores, memory, GPUs, system."""
    counted = Counter(gpu_names())
    facts = {
        "processor": processor(),
        "cores": cores(),
        "memory": f"{total_memory() / 2**30:.1f} GiB",
        "GPUs": ", ".join(f"{n} × {name}" for name, n in counted.items()) or "none",
        "system": platform.platform(),
        "Python": platform.python_version(),
    }
    caption = "The machine that built this page; each record names its own."
    columns = ("what", "value")
    return Table.of(facts.items(), columns, kind="facts", caption=caption, name="machine")


def software_table(results: Iterable[Result] | None = None) -> Table:
    """Return installed versions, and the records made with other versions."""
    results = load_results() if results is None else list(results)
    rows = []
    for package, version in Environment.current().versions.items():
        versions = [(each.environment.versions.get(package, _UNKNOWN), each) for each in results]
        others = [(known, each) for known, each in versions if known != version]
        rows.append(
            {
                "package": package,
                "installed": version,
                "records made with it": len(versions) - len(others),
                "records made with others": _others(others),
            }
        )
    caption = "Installed versions, and how many records were made with them"
    return _table(rows, caption, name="software")


def _table(rows: list[dict[str, Any]], caption: str, *, name: str) -> Table:
    """Return a table without its last column, of others, if there are none."""
    *_, last = rows[0] if rows else [""]
    if not any(row[last].strong for row in rows):
        caption += "; none with others" if name == "software" else ""
        rows = [{head: row[head] for head in row if head != last} for row in rows]
    return Table.of(rows, empty="No records yet.", kind="words", caption=f"{caption}.", name=name)


def data_versions_table(results: Iterable[Result] | None = None) -> Table:
    """Return the data set and revision of each task, and the records of other revisions.

    The revision of a task is that of its newest record.
    """
    results = load_results() if results is None else list(results)
    rows = []
    for task, made in sorted(_by_task(results).items()):
        last = max(made, key=lambda result: result.finished).task
        older = [
            (str(each.task.revision)[:12], each)
            for each in made
            if each.task.revision != last.revision
        ]
        rows.append(
            {
                "task": task,
                "data set\nrevision": (last.dataset, str(last.revision)[:12]),
                "records of it": len(made) - len(older),
                "records of other revisions": _others(older),
            }
        )
    return _table(rows, "The data of each task, by the revision of its newest record", name="data")


def _by_task(results: Iterable[Result]) -> dict[str, list[Result]]:
    by_task: dict[str, list[Result]] = {}
    for result in results:
        by_task.setdefault(result.task.key, []).append(result)
    return by_task


def _shortened(names: list[str]) -> str:
    rest = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + rest


def _others(records: Iterable[tuple[str, Result]]) -> Cell:
    """Return model and task of the first records of each version, and the number of the rest."""
    names: dict[str, set[str]] = {}
    for version, each in records:
        names.setdefault(version, set()).add(f"{each.model.label} on {each.task.key}")
    lines = [f"{version}: {_shortened(sorted(own))}" for version, own in sorted(names.items())]
    return Cell("; ".join(lines) or "none", strong=bool(lines))


def verification_table(*, verify: bool = True) -> Table:
    """Return the records in which `qwen3nb verify` finds something wrong; else a line says so.

    Args:
        verify: whether to verify them; otherwise records are only counted.
    """
    files = result_files()
    problems = verify_folder(paths.results()) if verify else {}
    hold = f"{sum(file not in problems for file in files)} of {len(files)} records are consistent"
    return Table.of(
        ((paths.shown(file), "; ".join(messages)) for file, messages in problems.items()),
        ("file", "inconsistent") if problems else (),
        note=f"{hold if verify else f'{len(files)} records, not verified'}. A record is consistent "
        "if its content is that of its checksum, every aggregate follows from its per-query scores "
        "and the model's identity from its settings, and its runs and MTEB's result are those it "
        "was made from. None was removed. See qwen3nb verify --help for what cannot be seen.",
        kind="facts",
        name="verification" if problems else "",
        caption="Records that do not agree with themselves or their files." if problems else "",
    )
