"""Track one attempt at a run; write the page of a failed run.

The page of a failed run shows the name and message of the error, the time and where to find
more; it has no numbers. A finished page of the same name is kept, below a notice that a
later run failed. A notebook whose last cell raises what failed among many tasks (tag
``raises-failures``) did its work: its page shows everything, below a notice that names the
failures. An error message is untrusted text: it is shown as the output of a cell,
where neither HTML nor MyST directives take effect.
"""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat

from qwen3nb import paths
from qwen3nb.datasets.mirror import mirrored
from qwen3nb.evaluation.mteb.select import split_names
from qwen3nb.execution.page_names import page_title
from qwen3nb.execution.parameters import Once
from qwen3nb.execution.publish import (
    clean,
    made_with,
    publish,
    without_empty_sections,
    without_secrets,
)
from qwen3nb.models.sources.resolve import find_source
from qwen3nb.records.failures import FailedRun, note_failure
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import write_text
from qwen3nb.utils.markdown import escaped
from qwen3nb.utils.progress import TEXT, seconds_between
from qwen3nb.utils.secrets import HUB_TOKENS, WITHHELD, kernel_environment, known_secrets
from qwen3nb.utils.terminal import uncoloured, visible

__all__ = ["LOG", "Attempt", "cell_error", "named_models", "ran_to_its_end"]

RAISES = "raises-failures"  # tag of the cell that raises what failed, after everything is shown

# Environment variable set by a sweep: the file that receives the output of the run.
LOG = "QWEN3NB_RUN_LOG"
_LONGEST = 4000
_WIDTH = 88


@dataclass
class Attempt:
    """A run, from its start to its page.

    Attributes:
        notebook: name of the notebook.
        values: its parameters.
        page: path of its page; None for a run without a page.
        partial: path of the notebook while it is executed.
        started: start time in seconds since the epoch.
        log: file with its output, if it is part of a sweep.
        once: what was resolved to name the page; its title agrees with that.
    """

    notebook: str
    values: dict[str, Any]
    page: Path | None
    partial: Path | None = None
    started: float = field(default_factory=time.time)
    log: str = field(default_factory=lambda: os.environ.get(LOG, ""))
    once: Once = field(default_factory=Once)

    @contextmanager
    def watched(self, nb: Any) -> Iterator[None]:
        """Record exceptions within the block, such as a dead kernel."""
        from nbclient.exceptions import DeadKernelError

        try:
            yield
        except DeadKernelError:
            self.fail(nb, "DeadKernelError", "the kernel died, possibly out of memory")
            raise
        except Exception as error:
            self.fail(nb, type(error).__name__, str(error))
            raise

    def environment(self, nb: Any) -> dict[str, str]:
        """Return the environment of the run's kernel: no secret, and progress as text.

        The hub's token is in it if the parameters name a model or data of the hub; if not, the
        name of its variable is, for the message of a request that needed it.
        """
        reads = nb.metadata["qwen3nb"].get("reads") == "results"
        download = not reads and _names_hub(self.values)
        seen = kernel_environment(download=download) | {TEXT: str(seconds_between())}
        lacks = (name for name in HUB_TOKENS if os.environ.get(name) and name not in seen)
        return seen | {WITHHELD: next(lacks, "")}

    def succeed(self, nb: Any, *, key: str) -> bool:
        """Publish the page and return True; False for a run without a page."""
        if self.page is None:
            return False
        seconds = time.time() - self.started
        publish(
            nb, self.page, values=self.values, key=key, notebook=self.notebook,
            seconds=seconds, once=self.once,
        )  # fmt: skip
        return True

    def fail(self, nb: Any, error: str, message: str) -> None:
        """Write a page about the failure, and a note for the status page of the book."""
        if self.page is None:
            return
        secrets = known_secrets()
        more = [paths.shown(Path(file)) for file in (self.log, self.partial) if file]
        run = FailedRun(
            page=paths.page_key(self.page),
            notebook=self.notebook,
            parameters=self.values,
            error=visible(secrets.without(error)),
            message=_shortened(visible(uncoloured(secrets.without(message)))),
            started=_second(self.started),
            failed=_second(time.time()),
            seconds=round(time.time() - self.started, 1),
            more=tuple(more),
        )
        if ran_to_its_end(nb):
            page = _with_failures(nb, run, title=self._title(nb))
        else:
            page = _with_notice(self.page, run) or _failed_page(nb, run, title=self._title(nb))
        write_text(self.page, nbformat.writes(without_secrets(page, self.page)) + "\n")
        note_failure(run)

    def _title(self, nb: Any) -> str | None:
        try:
            return page_title(nb, self.values, once=self.once)
        except (ValueError, OSError):  # the model is missing or broken
            return None


def _names_hub(values: Mapping[str, Any]) -> bool:
    """Return whether parameters name a model or data of the hub that the mirror does not have."""
    return _names_hub_data(values) or any(map(_is_on_hub, named_models(values)))


def named_models(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what parameters name as models, or as adapters, once each."""
    names = ("checkpoint", "first_stage", "models", "adapter", "base")
    given = (each for name in names for each in split_names(str(values.get(name) or "")))
    return tuple(dict.fromkeys(given))


def _names_hub_data(values: Mapping[str, Any]) -> bool:
    """Return whether tasks are named other than PyDocs, or a tier, benchmark or type of them."""
    own = [name for key in ("task", "tasks", "data") for name in split_names(values.get(key, ""))]
    if any(values.get(name) for name in ("benchmark", "types", "languages")):
        return True
    tier = TIERS.get(values.get("tier", ""))
    tasks = own or (tier.task_keys if tier else ())
    return not all(
        task.startswith(("PyDocs", "AuthorSTS")) or Path(task).expanduser().exists()
        for task in tasks
    )


def _is_on_hub(spec: str) -> bool:
    try:
        source = find_source(spec)
    except ValueError:  # no model, or a broken one; the run says so
        return False
    parts = source.parts or (source,)
    return any(part.kind == "hub" and part.id and not mirrored(part.id) for part in parts)


def cell_error(nb: Any) -> tuple[str, str]:
    """Return name and message of the last error in a notebook."""
    errors = [
        output
        for cell in nb.cells
        for output in cell.get("outputs", ())
        if output.output_type == "error"
    ]
    return (errors[-1].ename, errors[-1].evalue) if errors else ("error", "a cell failed")


def _second(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def _moment(when: str) -> str:
    """Format an ISO 8601 time; escaped, because a page on disk may contain anything."""
    return escaped(when[:19].replace("T", " ")) + " UTC"


def _shortened(text: str) -> str:
    """Keep only the beginning and the end of a long text."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}\n…\n{text[-half:]}"


def _failed_page(nb: Any, run: FailedRun, *, title: str | None) -> Any:
    """Create a page that reports only the failure."""
    page = nbformat.v4.new_notebook()
    for name in ("kernelspec", "language_info"):
        if name in nb.metadata:
            page.metadata[name] = nb.metadata[name]
    page.metadata["qwen3nb"] = {
        "notebook": run.notebook,
        "parameters": run.parameters,
        "failed": run.failed,
        "seconds": run.seconds,
        **made_with(),
    }
    notice = _admonition("This run failed", "It has no results. Its last output:")
    head = _markdown("title", f"# {title or escaped(run.page)} (failed)")
    page.cells = [head, notice, _error_cell(run), _html("facts", _facts(run))]
    return page


def ran_to_its_end(nb: Any) -> bool:
    """Return whether the only cell that failed is the one that raises the failures of tasks."""
    failed = [
        cell.metadata.get("tags", ())
        for cell in nb.cells
        if any(output.output_type == "error" for output in cell.get("outputs", ()))
    ]
    return len(failed) == 1 and RAISES in failed[0]


def _with_failures(nb: Any, run: FailedRun, *, title: str | None) -> Any:
    """Return the executed notebook as a page, with a notice below its title."""
    nb = without_empty_sections(clean(nb, title=title))
    nb.cells = [cell for cell in nb.cells if RAISES not in cell.metadata.get("tags", ())]
    nb.metadata["qwen3nb"] = {
        **nb.metadata["qwen3nb"],
        "notebook": run.notebook,
        "parameters": run.parameters,
        "finished": run.failed,
        "failed": run.failed,
        "seconds": run.seconds,
        **made_with(),
    }
    head, rest = _split_title(nb.cells)
    notice = _admonition("Some of it failed", "Everything else is below. What failed:")
    nb.cells = [*head, notice, _error_cell(run), *rest]
    return nb


def _with_notice(page: Path, run: FailedRun) -> Any | None:
    """Return the page of an earlier finished run, with a notice below its title, or None."""
    try:
        nb = nbformat.read(page, as_version=4)
        finished = nb.metadata["qwen3nb"]["finished"]
    except (OSError, ValueError, KeyError, AttributeError):  # no page, or not one of ours
        return None
    nb.metadata["qwen3nb"]["failed"] = run.failed
    cells = [cell for cell in nb.cells if not cell.get("id", "").startswith("failed-")]
    head, rest = _split_title(cells)
    text = f"The run below finished {_moment(str(finished))}. One failed {_moment(run.failed)}:"
    nb.cells = [*head, _admonition("A later run failed", text), _error_cell(run), *rest]
    return nb


def _split_title(cells: list[Any]) -> tuple[list[Any], list[Any]]:
    """Split off a cell with only the title; the other cells keep the text below it."""
    if not cells or cells[0].cell_type != "markdown":
        return [], cells
    first, *others = cells
    first.source, _, below = first.source.partition("\n")
    if not below.strip():
        return [first], others
    return [first], [nbformat.v4.new_markdown_cell(below.strip(), id="below-title"), *others]


def _facts(run: FailedRun) -> Table:
    facts = {
        "failed (UTC)": run.failed[:19].replace("T", " "),
        "after": f"{run.seconds:.1f} s",
        "notebook": run.notebook,
        **{name: str(value) for name, value in run.parameters.items() if value != ""},
    }
    rows = tuple((Cell(name), Cell(value)) for name, value in facts.items())
    return Table(("what", "value"), rows, kind="facts")


def _markdown(name: str, source: str) -> Any:
    return nbformat.v4.new_markdown_cell(source, id=f"failed-{name}")


def _admonition(title: str, text: str) -> Any:
    return _markdown("notice", f":::{{admonition}} {title}\n:class: danger\n{text}\n:::")


def _error_cell(run: FailedRun) -> Any:
    """Show the error as the output of a cell, so that its text stays literal."""
    lines = f"{run.error}: {run.message}".rstrip().splitlines()
    text = "".join(f"{line}\n" for each in lines for line in _wrapped(each))
    text += "".join(f"\nmore in {file}" for file in run.more)
    return _shown("error", nbformat.v4.new_output("stream", name="stderr", text=text))


def _wrapped(line: str) -> list[str]:
    """Wrap a line to the width of a page."""
    if len(line) <= _WIDTH:
        return [line]
    return textwrap.wrap(line, _WIDTH, subsequent_indent="    ", break_on_hyphens=False)


def _html(name: str, table: Table) -> Any:
    data = {"text/html": table.to_html(), "text/plain": "a table"}
    return _shown(name, nbformat.v4.new_output("display_data", data))


def _shown(name: str, output: Any) -> Any:
    # MyST-NB drops a cell without a source, including its outputs.
    cell = nbformat.v4.new_code_cell(f"# {name}", outputs=[output], id=f"failed-{name}")
    cell.metadata["tags"] = ["remove-input"]
    return cell
