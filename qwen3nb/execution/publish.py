"""Publish an executed notebook as a page of the book."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.report.render.html import unstyled
from qwen3nb.utils.markdown import escaped
from qwen3nb.utils.secrets import without

__all__ = ["clean", "is_widget_warning", "page_title", "publish"]

_WIDGETS = re.compile(r"TqdmWarning|autonotebook import tqdm")  # tqdm's warning that there are none
_NOISE = re.compile(rf"\d+%\||\dit/s|{_WIDGETS.pattern}|\[IPKernelApp\]")  # and progress bars
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # cursor movements of nested bars
# Tag of a Markdown cell that is left out, with the cells up to the next, if these show nothing.
_NEEDS_OUTPUT = "needs-output"


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
    secrets: Sequence[str] = (),
) -> None:
    """Clean an executed notebook and write it into the book atomically.

    Args:
        nb: the completely executed notebook.
        page: path of the page; replaces the page of a failed run.
        values: its parameters.
        key: see `qwen3nb.execution.notebook.run_key`.
        notebook: name of the source notebook.
        seconds: duration of the run.
        secrets: strings to remove from the page.
    """
    import nbformat

    from qwen3nb.records.failures import forget_failure
    from qwen3nb.utils.atomic_files import write_text

    nb = clean(nb, title=page_title(nb, values))
    nb.metadata["qwen3nb"] = {
        **nb.metadata["qwen3nb"],
        "key": key,
        "notebook": notebook,
        "parameters": values,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
    }
    write_text(page, without(secrets, nbformat.writes(nb)) + "\n")
    forget_failure(paths.page_key(page))


def page_title(nb: Any, values: dict[str, Any]) -> str | None:
    """Return ``label · tier`` for a run on a checkpoint and a tier, else ``heading · label``.

    A run on one's own data is titled with the names of their folders instead of the tier, a page
    without a model with its tasks, if any were named.
    """
    from qwen3nb.models.sources.resolve import find_source

    if "training" in values:
        heading = next((c.source for c in nb.cells if c.cell_type == "markdown"), "# Training")
        folder = Path(values["training"]).name
        return f"{heading.split(chr(10))[0].removeprefix('# ')} · {escaped(folder)}"
    if "checkpoint" not in values:
        heading = next((c.source for c in nb.cells if c.cell_type == "markdown"), "# Run")
        task, title = values.get("task"), heading.split("\n")[0].removeprefix("# ")
        return f"{title} · {escaped(str(task))}" if task else None
    folders = ", ".join(Path(each.strip()).name for each in values.get("data", "").split(","))
    parts = [find_source(values["checkpoint"]).label, folders or values.get("tier", "")]
    if "tier" not in values:
        heading = next((c.source for c in nb.cells if c.cell_type == "markdown"), "# Run")
        parts.insert(0, heading.split("\n")[0].removeprefix("# "))
    if values.get("pooling", "auto") != "auto":
        parts.append(values["pooling"])
    return " · ".join(escaped(str(part)) for part in parts if part)


def clean(nb: Any, *, title: str | None = None) -> Any:
    """Return a copy of an executed notebook for the book.

    Widgets and progress bars are removed (they show a stale 0 %), parameters are hidden
    (the last table of a page lists them), sections tagged ``needs-output`` that show nothing are
    left out, and the heading is replaced by ``title``. Tables and figures lose the style that
    they bring: on a page, the book's applies.
    """
    nb = copy.deepcopy(nb)
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        tags = cell.metadata.get("tags", [])
        if {"parameters", "injected-parameters"} & set(tags):
            cell.metadata["tags"] = sorted({*tags, "remove-cell"})
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(_clean_output, cell.outputs) if output]
    nb.cells = [cell for section in _sections(nb.cells) for cell in section if _shows(section)]
    first = next((cell for cell in nb.cells if cell.cell_type == "markdown"), None)
    if title and first is not None and first.source.startswith("# "):
        first.source = "\n".join([f"# {title}", *first.source.split("\n")[1:]])
    return nb


def _sections(cells: Sequence[Any]) -> list[list[Any]]:
    """Split cells before each Markdown cell."""
    sections: list[list[Any]] = []
    for cell in cells:
        if cell.cell_type == "markdown" or not sections:
            sections.append([])
        sections[-1].append(cell)
    return sections


def _shows(section: Sequence[Any]) -> bool:
    """Whether a section has something to show, if it says that it needs to."""
    head, *rest = section
    if _NEEDS_OUTPUT not in head.metadata.get("tags", ()):
        return True
    return any(cell.get("outputs") for cell in rest)


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
