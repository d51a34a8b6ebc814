"""Publish an executed notebook as a page of the book."""

from __future__ import annotations

import ast
import copy
import logging
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.execution.page_names import page_title
from qwen3nb.execution.parameters import Once
from qwen3nb.records.record import Environment
from qwen3nb.report.render.html import unstyled
from qwen3nb.utils.code_version import git_commit
from qwen3nb.utils.secrets import known_secrets

__all__ = [
    "clean",
    "is_widget_warning",
    "made_with",
    "publish",
    "without_empty_sections",
    "without_secrets",
]

_log = logging.getLogger(__name__)

_MAIN = ("qwen3nb", "torch", "transformers", "sentence-transformers", "mteb")
_HEADING = re.compile(r"(#{1,6})\s")

_WIDGETS = re.compile(r"TqdmWarning|autonotebook import tqdm")  # tqdm's warning that there are none
_NOISE = re.compile(rf"\d+%\||\dit/s|{_WIDGETS.pattern}|\[IPKernelApp\]")  # and progress bars
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # cursor movements of nested bars


def is_widget_warning(line: str) -> bool:
    """Whether a line of output only warns that a notebook has no widgets for progress bars."""
    return _WIDGETS.search(line) is not None


def publish(
    nb: Any,
    page: Path,
    *,
    values: dict[str, Any],
    key: str,
    notebook: str = "",
    seconds: float = 0.0,
    once: Once | None = None,
) -> None:
    """Clean an executed notebook and write it into the book atomically.

    Args:
        nb: the completely executed notebook.
        page: path of the page; replaces the page of a failed run.
        values: its parameters.
        key: see `qwen3nb.execution.notebook.run_key`.
        notebook: name of the source notebook.
        seconds: duration of the run.
        once: what was resolved to name the page; its title agrees with that.
    """
    import nbformat

    from qwen3nb.records.failures import forget_failure
    from qwen3nb.utils.atomic_files import write_text

    nb = without_empty_sections(clean(nb, title=page_title(nb, values, once=once)))
    nb.metadata["qwen3nb"] = {
        **nb.metadata["qwen3nb"],
        "key": key,
        "notebook": notebook,
        "parameters": values,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        **made_with(),
    }
    write_text(page, nbformat.writes(without_secrets(nb, page)) + "\n")
    forget_failure(paths.page_key(page))


def without_secrets(nb: Any, page: Path) -> Any:
    """Return a notebook without secrets, and log what was removed from which page.

    Texts that a kernel has sent in parts are joined first: a secret may lie across them.
    """
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    nb, kinds = known_secrets().removed(nb)
    if kinds:
        _log.warning("removed from the page %s: %s", paths.page_key(page), ", ".join(kinds))
    return nb


def _joined(outputs: list[Any]) -> list[Any]:
    """Return outputs with the parts of one stream in one."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if output.output_type == "stream" and last and last.get("name") == output.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def made_with() -> dict[str, Any]:
    """Return the commit and the main versions that a page made now comes from."""
    installed = Environment.current().versions
    versions = {name: installed[name] for name in _MAIN if installed.get(name)}
    return {"commit": git_commit(paths.root()), "versions": versions}


def without_empty_sections(nb: Any) -> Any:
    """Return a copy of an executed notebook without the sections that show nothing.

    A section shows nothing if its code was to show something and none of it has an output, such
    as a table of the categories of queries without categories. One of text alone stays, and so
    does one of code that only computes.
    """
    nb = copy.deepcopy(nb)
    sections: list[list[Any]] = [[]]
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_none(output)]
        if _level(cell):
            sections.append([])
        sections[-1].append(cell)
    kept: list[list[Any]] = []
    for section in reversed(sections):
        level = _level(section[0]) if section else 0
        ends = not kept or 0 < _level(kept[0][0]) <= level  # no section of its own remains below
        if level < 2 or not (_shows_nothing(section) or (ends and _is_bare(section))):
            kept.insert(0, section)
    nb.cells = [cell for section in kept for cell in section]
    return nb


def _is_none(output: Any) -> bool:
    """Return whether an output shows nothing but ``None``."""
    return set(output.get("data", ())) == {"text/plain"} and output.data["text/plain"] == "None"


def _level(cell: Any) -> int:
    """Return the level of the heading that a cell begins with; 0 without one."""
    match = _HEADING.match(cell.source) if cell.cell_type == "markdown" else None
    return len(match[1]) if match else 0


def _is_bare(section: list[Any]) -> bool:
    return len(section) == 1 and "\n" not in section[0].source.strip()


def _shows_nothing(section: list[Any]) -> bool:
    code = [cell for cell in section[1:] if cell.cell_type == "code"]
    only_code = len(code) == len(section) - 1
    silent = not any(cell.outputs for cell in code)
    return only_code and silent and any(map(_ends_in_value, code))


def _ends_in_value(cell: Any) -> bool:
    """Return whether a cell that a reader sees ends in something to show."""
    if "remove-cell" in cell.metadata.get("tags", ()):
        return False
    try:
        last = ast.parse(cell.source).body[-1:]
    except SyntaxError:  # a magic of IPython
        return False
    return any(isinstance(node, ast.Expr) for each in last for node in ast.walk(each))


def clean(nb: Any, *, title: str | None = None) -> Any:
    """Return a copy of an executed notebook for the book.

    Widgets and progress bars are removed (they show a stale 0 %), parameters are hidden
    (the last table of a page lists them), and the heading is replaced by ``title``. Tables and
    figures lose the style that they bring: on a page, the book's applies.
    """
    nb = copy.deepcopy(nb)
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        tags = cell.metadata.get("tags", [])
        if {"parameters", "injected-parameters"} & set(tags):
            cell.metadata["tags"] = sorted({*tags, "remove-cell"})
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(_clean_output, cell.outputs) if output]
    first = next((cell for cell in nb.cells if cell.cell_type == "markdown"), None)
    if title and first is not None and first.source.startswith("# "):
        first.source = "\n".join([f"# {title}", *first.source.split("\n")[1:]])
    return nb


def _clean_output(output: Any) -> Any:
    if output.output_type == "stream" and output.name == "stderr":
        lines = re.split(r"\r|\n", output.text)
        kept = [line for line in lines if _ANSI.sub("", line).strip() and not _NOISE.search(line)]
        output.text = "\n".join(kept)
        return output if kept else None
    if "application/vnd.jupyter.widget-view+json" in output.get("data", {}):
        return None
    for kind, shown in output.get("data", {}).items():
        if kind.endswith("text/html"):  # also of what a page glues
            output.data[kind] = unstyled("".join(shown))
    return output
