"""Publish a run of a notebook, finished or failed, as a page of the book.

The page of a failed run shows the name and message of the error, the time and where to find more. A
finished page of the same name is kept, below a notice that a later run failed. If only the last
cell fails, which raises the failures of tasks (tag ``raises-failures``), the page shows everything,
below a notice that names the failures. Error messages are untrusted: they are shown as cell
outputs, where neither HTML nor MyST takes effect.
"""

import ast
import copy
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat

from qwen3nb import paths
from qwen3nb.datasets.mirror import mirrored
from qwen3nb.execution.page_names import baselines_now, page_title
from qwen3nb.execution.study_paths import at_root
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.records.failures import FailedRun, forget_failure, note_failure
from qwen3nb.records.record import Environment
from qwen3nb.report.evaluation.run_trace import read_trace
from qwen3nb.report.render.html import data_shown, unstyled
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import write_text
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.code_version import git_commit
from qwen3nb.utils.format import escaped
from qwen3nb.utils.progress import TEXT, seconds_between
from qwen3nb.utils.secrets import HUB_TOKENS, WITHHELD, kernel_environment, known_secrets
from qwen3nb.utils.terminal import uncoloured, visible

RAISES = "raises-failures"  # tag of the last cell, which raises the failures of tasks
# Environment variable set by a sweep: the file that receives the output of the run.
LOG = "QWEN3NB_RUN_LOG"

_log = logging.getLogger(__name__)
_LONGEST = 4000  # characters of an error's message
_MAIN = ("qwen3nb", "torch", "transformers", "sentence-transformers", "mteb")
_HEADING = re.compile(r"(#{1,6})\s")
# Progress bars, messages of the kernel.
_NOISE = re.compile(r"\d+%\||\dit/s|\[IPKernelApp\]")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # cursor movements of nested bars


@dataclass
class NotebookRun:
    """A run of a notebook, from its start to its page."""

    notebook: str  # name of the notebook
    values: dict[str, Any]  # its parameters
    page: Path | None  # path of its page; None for a run without a page
    partial: Path | None = None  # path of the notebook while it is executed
    started: float = field(default_factory=time.time)  # start time in seconds since the epoch
    before: float = 0.0  # seconds that it ran before this object was made
    # file with its output, in a sweep
    log: str = field(default_factory=lambda: os.environ.get(LOG, ""))
    made: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Its duration so far, also if the wall clock is set back meanwhile."""
        return round(self.before + time.monotonic() - self.made, 1)

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
        """Return the environment of the run's kernel: without secrets, and with progress as text.

        The hub's token is included if the parameters name a model or data on the hub; otherwise the
        name of its variable is, for error messages.
        """
        reads = nb.metadata["qwen3nb"].get("reads") == "results"
        download = not reads and _names_hub(self.values)
        seen = kernel_environment(download=download) | {TEXT: str(seconds_between())}
        lacks = (name for name in HUB_TOKENS if os.environ.get(name) and name not in seen)
        # Suppress tqdm's warning on missing widgets.
        ignored = [os.environ.get("PYTHONWARNINGS"), "ignore:IProgress not found"]
        warnings = ",".join(filter(None, ignored))
        return seen | {WITHHELD: next(lacks, ""), "PYTHONWARNINGS": warnings}

    def succeed(self, nb: Any, *, key: str) -> bool:
        """Publish an executed notebook and return True; False for a run without a page."""
        if self.page is None:
            return False
        nb = _marked(without_empty_sections(clean(nb, title=page_title(nb, self.values))))
        finished = _second(time.time())
        nb.metadata["qwen3nb"] |= {"key": key, **self._facts(finished=finished)}
        if (trace := read_trace(nb)) is not None:
            nb.metadata["qwen3nb"]["baselines"] = baselines_now(trace, self.values)
        self._write(nb)
        forget_failure(paths.page_key(self.page))
        return True

    def fail(self, nb: Any, error: str | None = None, message: str = "") -> None:
        """Write a page about the failure, and a note for the status page of the book.

        ``error``, the exception's name, is by default that of the last one among the outputs.
        """
        if self.page is None:
            return
        if error is None:
            errors = [each for cell in nb.cells for each in _errors(cell)]
            error, message = (
                (errors[-1].ename, errors[-1].evalue) if errors else ("error", "a cell failed")
            )
        secrets = known_secrets()
        more = [paths.shown(Path(file)) for file in (self.log, self.partial) if file]
        text, half = visible(uncoloured(secrets.without(message))), _LONGEST // 2
        if len(text) > _LONGEST:
            text = f"{text[:half]}\n…\n{text[-half:]}"
        failed = FailedRun(
            page=paths.page_key(self.page),
            notebook=self.notebook,
            parameters=self.values,
            error=visible(secrets.without(error)),
            message=text,
            started=_second(self.started),
            failed=_second(time.time()),
            seconds=self.seconds,
            more=tuple(more),
        )
        if ran_to_its_end(nb):
            page = self._with_failures(nb, failed)
        else:
            page = _with_notice(self.page, failed) or self._failed_page(nb, failed)
        self._write(page)
        note_failure(failed)

    def _facts(self, **times: str) -> dict[str, Any]:
        """Return a page's metadata on its run, commit and main versions."""
        installed = Environment.current().versions
        return {
            "notebook": self.notebook,
            "parameters": self.values,
            **times,
            "seconds": self.seconds,
            "commit": git_commit(paths.root()),
            "versions": {name: installed[name] for name in _MAIN if installed.get(name)},
        }

    def _write(self, nb: Any) -> None:
        """Write the page without secrets, and log what was removed.

        Parts of a stream are joined first, as a secret may span several.
        """
        assert self.page is not None  # noqa: S101 - only runs with a page are published
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.outputs = _joined(cell.outputs)
        nb, kinds = known_secrets().removed(nb)
        if kinds:
            key = paths.page_key(self.page)
            _log.warning("removed from the page %s: %s", key, ", ".join(kinds))
        write_text(self.page, nbformat.writes(nb) + "\n")

    def _title(self, nb: Any) -> str | None:
        try:
            return page_title(nb, self.values)
        except (ValueError, OSError):  # the model is missing or broken
            return None

    def _failed_page(self, nb: Any, failed: FailedRun) -> Any:
        """Create a page that reports only the failure."""
        page = nbformat.v4.new_notebook()
        for name in ("kernelspec", "language_info"):
            if name in nb.metadata:
                page.metadata[name] = nb.metadata[name]
        page.metadata["qwen3nb"] = self._facts(failed=failed.failed)
        notice = _admonition("This run failed", "It has no results. Its last output:")
        head = _markdown("title", f"# {self._title(nb) or escaped(failed.page)} (failed)")
        page.cells = [head, notice, _error_cell(failed)]
        return page

    def _with_failures(self, nb: Any, failed: FailedRun) -> Any:
        """Return the executed notebook as a page, with a notice below its title."""
        nb = _marked(without_empty_sections(clean(nb, title=self._title(nb))))
        nb.cells = [cell for cell in nb.cells if RAISES not in _tags(cell)]
        nb.metadata["qwen3nb"] |= self._facts(finished=failed.failed, failed=failed.failed)
        notice = _admonition("Some of it failed", "All other results are below. Failures:")
        return _below_title(nb, notice, _error_cell(failed))


def set_notice(file: Path, text: str, *, title: str = "") -> None:
    """Replace the notice below the title of a page; an empty text removes it."""
    nb = nbformat.read(file, as_version=4)
    before = [each.source for each in nb.cells]
    nb.cells = [each for each in nb.cells if each.get("id") != "failed-old"]
    if text:
        title = title or "This page is older than the results"
        _below_title(nb, _admonition(title, text, name="old"))
    if [each.source for each in nb.cells] != before:
        write_text(file, nbformat.writes(nb) + "\n")


def named_models(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the models and adapters named in parameters, once each."""
    names = ("checkpoint", "first_stage", "models", "adapter", "base")
    given = (each for name in names for each in split_names(str(values.get(name) or "")))
    return tuple(dict.fromkeys(given))


def _names_hub(values: Mapping[str, Any]) -> bool:
    """Return whether parameters name a model or data of the hub that the mirror does not have.

    Data are a benchmark, types or languages of tasks, and any task except PyDocs.
    """
    if any(values.get(name) for name in ("benchmark", "types", "languages")):
        return True
    own = [name for key in ("task", "tasks", "data") for name in split_names(values.get(key, ""))]
    tier = TIERS.get(values.get("tier", ""))
    for task in own or (tier.task_keys if tier else ()):
        if not (task.startswith(("PyDocs", "AuthorSTS")) or at_root(task).exists()):
            return True
    for spec in named_models(values):
        with suppress(ValueError):  # no or a broken model; reported by the run
            source = find_source(spec)
            for part in source.parts or (source,):
                if part.on_hub and part.id and not mirrored(part.id):
                    return True
    return False


def _tags(cell: Any) -> set[str]:
    return set(cell.metadata.get("tags", ()))


def _errors(cell: Any) -> list[Any]:
    return [output for output in cell.get("outputs", ()) if output.output_type == "error"]


def ran_to_its_end(nb: Any) -> bool:
    """Return whether the only failed cell is the one that raises the failures of tasks."""
    failed = [cell for cell in nb.cells if _errors(cell)]
    return len(failed) == 1 and RAISES in _tags(failed[0])


def _second(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def _moment(when: str) -> str:
    """Format an ISO 8601 time; escaped, because a page on disk may contain anything."""
    return escaped(when[:19].replace("T", " ")) + " UTC"


def _with_notice(page: Path, run: FailedRun) -> Any | None:
    """Return the page of an earlier finished run, with a notice below its title, or None."""
    try:
        nb = nbformat.read(page, as_version=4)
        finished = nb.metadata["qwen3nb"]["finished"]
    except (OSError, ValueError, KeyError, AttributeError):  # no page, or a foreign one
        return None
    nb.metadata["qwen3nb"]["failed"] = run.failed
    nb.cells = [cell for cell in nb.cells if not cell.get("id", "").startswith("failed-")]
    text = f"The run below finished {_moment(str(finished))}. The later failure:"
    return _below_title(nb, _admonition("A later run failed", text), _error_cell(run))


def _below_title(nb: Any, *cells: Any) -> Any:
    """Put cells between the title of a notebook and the text below it; return the notebook."""
    if nb.cells and nb.cells[0].cell_type == "markdown":
        first, *others = nb.cells
        first.source, _, below = first.source.partition("\n")
        rest = [nbformat.v4.new_markdown_cell(below.strip(), id="below-title")]
        nb.cells = [first, *cells, *rest * bool(below.strip()), *others]
    else:
        nb.cells = [*cells, *nb.cells]
    return nb


def _marked(nb: Any) -> Any:
    """Put a banner below the title of a page with scores on substitutes for MTEB's data."""
    outputs = [output for cell in nb.cells for output in cell.get("outputs", ())]
    shown = (
        "".join(text)
        for output in outputs
        for kind, text in output.get("data", {}).items()
        if kind.endswith("text/html")  # also of glued outputs
    )
    data = data_shown("".join(shown))
    if not data.substitutes:
        return nb
    notice = _admonition("Not on MTEB's data", escaped(data.banner), name="data")
    notice.id = "substitute-data"  # stays when a later run fails
    return _below_title(nb, notice)


def _markdown(name: str, source: str) -> Any:
    return nbformat.v4.new_markdown_cell(source, id=f"failed-{name}")


def _admonition(title: str, text: str, *, name: str = "notice") -> Any:
    return _markdown(name, f":::{{admonition}} {title}\n:class: danger\n{text}\n:::")


def _error_cell(run: FailedRun) -> Any:
    """Return a cell with the error and its time as output, which keeps the text literal.

    Cell sources contain no time: equal failures give equal sources.
    """
    more = "".join(f"\nmore in {file}" for file in run.more)
    text = f"{run.error}: {run.message}".rstrip() + f"\n\nfailed {_moment(run.failed)}{more}"
    output = nbformat.v4.new_output("stream", name="stderr", text=text)
    # MyST-NB drops a cell without a source, including its outputs.
    cell = nbformat.v4.new_code_cell("# error", outputs=[output], id="failed-error")
    cell.metadata["tags"] = ["remove-input"]
    return cell


def _joined(outputs: list[Any]) -> list[Any]:
    """Return outputs with consecutive parts of a stream joined."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if output.output_type == "stream" and last and last.get("name") == output.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def without_empty_sections(nb: Any) -> Any:
    """Return a copy of an executed notebook without empty sections.

    A section is empty if its code should show something but has no output, such as a table of
    categories for queries without categories; its text is removed, too. Sections with only text, or
    with code that only computes, are kept.
    """
    nb = copy.deepcopy(nb)
    sections: list[list[Any]] = [[]]
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = [
                output
                for output in cell.outputs
                if output.get("data", {}) != {"text/plain": "None"}
            ]
        if _level(cell):
            sections.append([])
        sections[-1].append(cell)
    kept: list[list[Any]] = []
    for section in reversed(sections):
        level = _level(section[0]) if section else 0
        ends = not kept or 0 < _level(kept[0][0]) <= level  # no subsection remains
        bare = len(section) == 1 and "\n" not in section[0].source.strip()
        if level < 2 or not (_shows_nothing(section) or (ends and bare)):
            kept.insert(0, section)
    nb.cells = [cell for section in kept for cell in section]
    return nb


def _level(cell: Any) -> int:
    """Return the level of the heading that a cell begins with; 0 without one."""
    match = _HEADING.match(cell.source) if cell.cell_type == "markdown" else None
    return len(match[1]) if match else 0


def _shows_nothing(section: list[Any]) -> bool:
    """Return whether no code below a heading has an output, although some should."""
    code = [cell for cell in section[1:] if cell.cell_type == "code"]
    return not any(cell.outputs for cell in code) and any(map(_ends_in_value, code))


def _ends_in_value(cell: Any) -> bool:
    """Return whether a visible cell ends in an expression to show."""
    if "remove-cell" in _tags(cell):
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
    figures lose their own style sheet: on a page, the book's applies.
    """
    nb = copy.deepcopy(nb)
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        if {"parameters", "injected-parameters"} & _tags(cell):
            cell.metadata["tags"] = sorted({*_tags(cell), "remove-cell"})
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
        if kind.endswith("text/html"):  # also for glued outputs
            output.data[kind] = unstyled("".join(shown))
    return output
