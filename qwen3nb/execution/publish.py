"""Publish a run of a notebook, finished or failed, as a page of the book.

The page of a failed run shows the name and message of the error, the time and where to find more. A
finished page of the same name is kept, below a notice that a later run failed. If only the last
cell fails, which raises the failures of tasks (tag ``raises-failures``), the page shows everything,
below a notice that names the failures. Error messages are untrusted: they are shown as cell
outputs, where neither HTML nor MyST takes effect.
"""

from __future__ import annotations

import ast
import copy
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat

from qwen3nb import paths
from qwen3nb.datasets.mirror import mirrored
from qwen3nb.execution.page_names import page_title
from qwen3nb.execution.study_paths import MODELS, NewValues, Values, path_from_root
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.records.failures import FailedRun, forget_failure, note_failure
from qwen3nb.records.record import Environment
from qwen3nb.report.render.figure import STYLE
from qwen3nb.report.render.html import data_shown, unstyled
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import read_json, write_text
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.code_version import git_commit
from qwen3nb.utils.format import escaped
from qwen3nb.utils.progress import SO_FAR, TEXT_PROGRESS, seconds_between
from qwen3nb.utils.secrets import HUB_TOKENS, WITHHELD_VARIABLE, kernel_environment, known_secrets
from qwen3nb.utils.terminal import uncoloured, visible

if TYPE_CHECKING:
    from nbformat import NotebookNode

RAISES = "raises-failures"  # tag of the last cell, which raises the failures of tasks
# Environment variable set by a sweep: the file that receives the output of the run.
LOG = "QWEN3NB_RUN_LOG"

UNRUN = "unrun"  # in the metadata of a lesson's page that has no results
_NOTICE_OF_AGE = "old"  # name of the notice of `set_notice`
_log = logging.getLogger(__name__)
_LONGEST = 4000  # characters of an error's message
_MAIN_LIBRARIES = ("qwen3nb", "torch", "transformers", "sentence-transformers", "mteb")
_HEADING = re.compile(r"(#{1,6})\s")
# Progress bars, messages of the kernel.
_NOISE = re.compile(rf"\d+%\||\dit/s|\d/\d+ \[\d+:\d\d|\[IPKernelApp\]|^{SO_FAR}")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # cursor movements of nested bars


@dataclass
class NotebookRun:
    """A run of a notebook, from its start to its page."""

    notebook: str  # name of the notebook
    values: NewValues  # its parameters
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
    def watched(self, notebook: NotebookNode) -> Iterator[None]:
        """Record exceptions within the block, such as a dead kernel."""
        from nbclient.exceptions import DeadKernelError

        try:
            yield
        except DeadKernelError:
            self.fail(notebook, "DeadKernelError", "the kernel died, possibly out of memory")
            raise
        except Exception as error:
            self.fail(notebook, type(error).__name__, str(error))
            raise

    def environment(self, notebook: NotebookNode) -> dict[str, str]:
        """Return the environment of the run's kernel: without secrets, and with progress as text.

        The hub's token is included if the parameters name a model or data on the hub; otherwise the
        name of its variable is, for error messages.
        """
        reads_results = notebook.metadata["qwen3nb"].get("reads") == "results"
        may_download = not reads_results and _names_hub(self.values)
        environment = kernel_environment(download=may_download)
        environment[TEXT_PROGRESS] = str(seconds_between())
        environment[WITHHELD_VARIABLE] = _withheld_token(environment)
        environment["PYTHONWARNINGS"] = _warning_filters()
        # Plain figures of matplotlib look like those of the book, also on a dark page.
        environment.setdefault("MATPLOTLIBRC", str(STYLE))
        return environment

    def succeed(self, notebook: NotebookNode, *, key: str) -> bool:
        """Publish an executed notebook and return True; False for a run without a page."""
        if self.page is None:
            return False
        page = clean(notebook, title=page_title(notebook, self.values))
        page = _with_banner(without_empty_sections(page))
        facts = self._facts(finished=_iso_time(time.time()))
        page.metadata["qwen3nb"].update(key=key, **facts)
        self._write(page)
        forget_failure(paths.page_key(self.page))
        return True

    def fail(self, notebook: NotebookNode, error: str | None = None, message: str = "") -> None:
        """Write a page about the failure, and a note for the status page of the book.

        ``error``, the exception's name, is by default that of the last one among the outputs.
        """
        if self.page is None:
            return
        if error is None:
            error, message = _last_error(notebook)
        failure = self._failure(error, message)
        if ran_to_its_end(notebook):  # only some of its tasks failed
            page = self._page_with_failures(notebook, failure)
        else:
            # The results of an earlier run stay, below the failure.
            page = _earlier_page(self.page, failure) or self._failed_page(notebook, failure)
        self._write(page)
        note_failure(failure)

    def _failure(self, error: str, message: str) -> FailedRun:
        """Return the note of a failure, without secrets and of bounded length."""
        assert self.page is not None  # noqa: S101 - only runs with a page are published
        secrets = known_secrets()
        plain_message = visible(uncoloured(secrets.without(message)))
        files = [file for file in (self.log, self.partial) if file]
        return FailedRun(
            page=paths.page_key(self.page),
            notebook=self.notebook,
            parameters=self.values,
            error=visible(secrets.without(error)),
            message=_without_middle(plain_message),
            started=_iso_time(self.started),
            failed=_iso_time(time.time()),
            seconds=self.seconds,
            more=tuple(paths.shown(Path(file)) for file in files),
        )

    def _facts(self, **times: str) -> dict[str, object]:
        """Return a page's metadata on its run, commit and main versions."""
        installed = Environment.current().versions
        versions = {name: installed[name] for name in _MAIN_LIBRARIES if installed.get(name)}
        return {
            "notebook": self.notebook,
            "parameters": self.values,
            **times,
            "seconds": self.seconds,
            "commit": git_commit(paths.root()),
            "versions": versions,
        }

    def _write(self, page: NotebookNode) -> None:
        """Write the page without secrets, and log what was removed."""
        assert self.page is not None  # noqa: S101 - only runs with a page are published
        cleaned_page, secret_kinds = without_secrets(page)
        if secret_kinds:
            key = paths.page_key(self.page)
            _log.warning("removed from the page %s: %s", key, ", ".join(secret_kinds))
        write_text(self.page, nbformat.writes(cleaned_page) + "\n")

    def _title(self, notebook: NotebookNode) -> str | None:
        """Return the title of the page; None also if its model is missing or broken."""
        try:
            return page_title(notebook, self.values)
        except (ValueError, OSError):
            return None

    def _failed_page(self, notebook: NotebookNode, failure: FailedRun) -> NotebookNode:
        """Create a page that reports only the failure."""
        page = nbformat.v4.new_notebook()
        for name in ("kernelspec", "language_info"):
            if name in notebook.metadata:
                page.metadata[name] = notebook.metadata[name]
        page.metadata["qwen3nb"] = self._facts(failed=failure.failed)
        title = self._title(notebook) or escaped(failure.page)
        page.cells = [
            _markdown("title", f"# {title} (failed)"),
            _admonition("This run failed", "It has no results. Its last output:"),
            _error_cell(failure),
        ]
        return page

    def _page_with_failures(self, notebook: NotebookNode, failure: FailedRun) -> NotebookNode:
        """Return the executed notebook as a page, with a notice below its title."""
        page = clean(notebook, title=self._title(notebook))
        page = _with_banner(without_empty_sections(page))
        page.cells = [cell for cell in page.cells if RAISES not in _tags(cell)]
        facts = self._facts(finished=failure.failed, failed=failure.failed)
        page.metadata["qwen3nb"].update(facts)
        notice = _admonition("Some of it failed", "All other results are below. Failures:")
        return _below_title(page, notice, _error_cell(failure))


def _without_middle(text: str) -> str:
    """Return a text, of which only beginning and end are left if it is long."""
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]}\n…\n{text[-half:]}"


def _withheld_token(environment: Mapping[str, str]) -> str:
    """Return the variable with the hub's token that a kernel's environment lacks; or empty."""
    for name in HUB_TOKENS:
        if os.environ.get(name) and name not in environment:
            return name
    return ""


def _warning_filters() -> str:
    """Return Python's filters of warnings for a kernel; the last one takes precedence."""
    filters = "ignore:IProgress not found"  # tqdm's warning on missing widgets
    if os.environ.get("PYTHONWARNINGS"):
        return f"{os.environ['PYTHONWARNINGS']},{filters}"
    return filters


def set_notice(file: Path, text: str, *, title: str = "") -> None:
    """Replace the notice below the title of a page; an empty text removes it."""
    page = nbformat.read(file, as_version=4)
    sources_before = [cell.source for cell in page.cells]
    # Without the notice of an earlier call, if there is one.
    page.cells = [cell for cell in page.cells if cell.get("id") != _id(_NOTICE_OF_AGE)]
    if text:
        title = title or "This page is older than the results"
        notice = _admonition(title, text, name=_NOTICE_OF_AGE)
        _below_title(page, notice)  # changes the page in place
    sources = [cell.source for cell in page.cells]
    if sources != sources_before:
        write_text(file, nbformat.writes(page) + "\n")


def write_unrun(notebook: Path, page: Path) -> None:
    """Write a notebook that was not run here as a page, with a notice that says so."""
    content = clean(nbformat.read(notebook, as_version=4))
    content.metadata["qwen3nb"] = {UNRUN: True}
    name = paths.notebook_name(notebook)
    text = (
        f"`qwen3nb run {name}` computes its results, `qwen3nb book --lessons` those of all. "
        f"Or open `{name}.ipynb` in JupyterLab, and run it cell by cell."
    )
    notice = _admonition("This lesson was not run here yet", text, style="note")
    text_of_page = nbformat.writes(_below_title(content, notice)) + "\n"
    if not page.is_file() or page.read_text(encoding="utf-8") != text_of_page:
        write_text(page, text_of_page)


def is_unrun(page: Path) -> bool:
    """Return whether a page was written by `write_unrun`."""
    try:
        return bool(read_json(page)["metadata"]["qwen3nb"].get(UNRUN))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged, or a foreign page
        return False


def named_models(values: Values) -> tuple[str, ...]:
    """Return the models and adapters named in parameters, once each."""
    models = []
    for name in (*MODELS, "adapter"):
        models += split_names(str(values.get(name) or ""))
    return tuple(dict.fromkeys(models))


def _names_hub(values: Values) -> bool:
    """Return whether parameters name a model or data of the hub that the mirror does not have.

    Data are a benchmark, types or languages of tasks, and any task except PyDocs.
    """
    if any(values.get(name) for name in ("benchmark", "types", "languages")):
        return True
    for task in _named_tasks(values):
        embedded = task.startswith(("PyDocs", "AuthorSTS"))
        if not embedded and not path_from_root(task).exists():
            return True
    return any(_is_on_hub(model) for model in named_models(values))


def _named_tasks(values: Values) -> Sequence[str]:
    """Return the tasks and the data that parameters name, else those of the tier."""
    tasks = []
    for name in ("task", "tasks", "data"):
        tasks += split_names(values.get(name, ""))
    tier = TIERS.get(values.get("tier", ""))
    if not tasks and tier is not None:
        return tier.task_keys
    return tasks


def _is_on_hub(model: str) -> bool:
    """Return whether a model is on the hub, and not in the mirror."""
    try:
        source = find_source(model)
        parts = source.parts or (source,)
        return any(part.on_hub and part.id and not mirrored(part.id) for part in parts)
    except ValueError:  # no or a broken model; reported by the run
        return False


def _tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", ()))


def _errors(cell: NotebookNode) -> list[NotebookNode]:
    return [output for output in cell.get("outputs", ()) if output.output_type == "error"]


def _last_error(notebook: NotebookNode) -> tuple[str, str]:
    """Return the name and the message of the last exception among the outputs."""
    for cell in reversed(notebook.cells):
        errors = _errors(cell)
        if errors:
            return errors[-1].ename, errors[-1].evalue
    return "error", "a cell failed"


def ran_to_its_end(notebook: NotebookNode) -> bool:
    """Return whether the only failed cell is the one that raises the failures of tasks."""
    failed_cells = [cell for cell in notebook.cells if _errors(cell)]
    return len(failed_cells) == 1 and RAISES in _tags(failed_cells[0])


def _iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _readable_time(iso_time: str) -> str:
    """Format an ISO 8601 time; escaped, because a page on disk may contain anything."""
    return escaped(iso_time[:19].replace("T", " ")) + " UTC"


def _earlier_page(file: Path, failure: FailedRun) -> NotebookNode | None:
    """Return the page of an earlier finished run, with a notice below its title, or None."""
    try:
        page = nbformat.read(file, as_version=4)
        finished = page.metadata["qwen3nb"]["finished"]
    except (OSError, ValueError, KeyError, AttributeError):  # no page, or a foreign one
        return None
    page.metadata["qwen3nb"]["failed"] = failure.failed
    # Without the notices of earlier failures.
    page.cells = [cell for cell in page.cells if not cell.get("id", "").startswith("failed-")]
    text = f"The run below finished {_readable_time(str(finished))}. The later failure:"
    notice = _admonition("A later run failed", text)
    return _below_title(page, notice, _error_cell(failure))


def _below_title(page: NotebookNode, *cells: NotebookNode) -> NotebookNode:
    """Put cells between the title of a page and the text below it; return the page."""
    if not page.cells or page.cells[0].cell_type != "markdown":
        page.cells = [*cells, *page.cells]
        return page
    title_cell, *other_cells = page.cells
    # The rest of the title's cell becomes a cell of its own, below the new ones.
    title_cell.source, _, text = title_cell.source.partition("\n")
    page.cells = [title_cell, *cells]
    if text.strip():
        page.cells.append(nbformat.v4.new_markdown_cell(text.strip(), id="below-title"))
    page.cells += other_cells
    return page


def _with_banner(page: NotebookNode) -> NotebookNode:
    """Put a banner below the title of a page on substitutes for MTEB's data, or made queries."""
    data = data_shown("".join(_html_outputs(page)))
    if not data.warnings:
        return page
    notices = []
    for warning in data.warnings:
        notice = _admonition(warning.title, escaped(warning.text), name=warning.name)
        notice.id = f"on-{warning.name}"  # stays when a later run fails
        notices.append(notice)
    return _below_title(page, *notices)


def _html_outputs(page: NotebookNode) -> Iterator[str]:
    """Yield the outputs of a page that are HTML, also glued ones."""
    for cell in page.cells:
        for output in cell.get("outputs", ()):
            for kind, text in output.get("data", {}).items():
                if kind.endswith("text/html"):
                    yield "".join(text)


def _id(name: str) -> str:
    """Return the id of a cell that a later run of the page removes."""
    return f"failed-{name}"


def _markdown(name: str, source: str) -> NotebookNode:
    return nbformat.v4.new_markdown_cell(source, id=_id(name))


def _admonition(
    title: str, text: str, *, name: str = "notice", style: str = "danger"
) -> NotebookNode:
    return _markdown(name, f":::{{admonition}} {title}\n:class: {style}\n{text}\n:::")


def _error_cell(failure: FailedRun) -> NotebookNode:
    """Return a cell with the error and its time as output, which keeps the text literal.

    Cell sources contain no time: equal failures give equal sources.
    """
    text = f"{failure.error}: {failure.message}".rstrip()
    text += f"\n\nfailed {_readable_time(failure.failed)}"
    for file in failure.more:
        text += f"\nmore in {file}"
    output = nbformat.v4.new_output("stream", name="stderr", text=text)
    # MyST-NB drops a cell without a source, including its outputs.
    cell = nbformat.v4.new_code_cell("# error", outputs=[output], id="failed-error")
    cell.metadata["tags"] = ["remove-input"]
    return cell


def without_secrets(notebook: NotebookNode) -> tuple[NotebookNode, list[str]]:
    """Remove the secrets in a notebook; return it, and their kinds.

    Parts of a stream are joined first, as a secret may span several.
    """
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _with_joined_streams(cell.outputs)
    return known_secrets().clean(notebook)


def _with_joined_streams(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Return outputs with consecutive parts of a stream joined."""
    joined_outputs: list[NotebookNode] = []
    for output in outputs:
        if (
            output.output_type == "stream"
            and joined_outputs
            and joined_outputs[-1].get("name") == output.name
        ):
            joined_outputs[-1].text += output.text
        else:
            joined_outputs.append(output)
    return joined_outputs


def without_empty_sections(notebook: NotebookNode) -> NotebookNode:
    """Return a copy of an executed notebook without empty sections.

    A section is empty if its code should show something but has no output, such as a table of
    categories for queries without categories; its text is removed, too. Sections with only text, or
    with code that only computes, are kept.
    """
    page = copy.deepcopy(notebook)
    for cell in page.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_none(output)]
    cells: list[NotebookNode] = []
    level_of_next = 0  # of the next heading that is kept; 0 at the end
    # From the end: a heading without text stays if a section below it does.
    for section in reversed(_sections(page)):
        level = _heading_level(section[0])
        has_subsection = level_of_next > level
        is_below_title = level >= 2
        if is_below_title and _is_empty(section, has_subsection=has_subsection):
            continue
        cells = [*section, *cells]
        level_of_next = level
    page.cells = cells
    return page


def _is_none(output: NotebookNode) -> bool:
    """Return whether an output is the value None."""
    return bool(output.get("data", {}) == {"text/plain": "None"})


def _sections(page: NotebookNode) -> list[list[NotebookNode]]:
    """Return the cells by heading: each section begins with its heading, but for the first."""
    sections: list[list[NotebookNode]] = []
    for cell in page.cells:
        if not sections or _heading_level(cell):
            sections.append([])
        sections[-1].append(cell)
    return sections


def _is_empty(section: Sequence[NotebookNode], *, has_subsection: bool) -> bool:
    """Return whether a section shows nothing, or is a heading with nothing below it."""
    heading, *cells = section
    if not cells and "\n" not in heading.source.strip():
        return not has_subsection
    code = [cell for cell in cells if cell.cell_type == "code"]
    if any(cell.outputs for cell in code):
        return False
    return any(_ends_in_value(cell) for cell in code)


def _heading_level(cell: NotebookNode) -> int:
    """Return the level of the heading that a cell begins with; 0 without one."""
    if cell.cell_type != "markdown":
        return 0
    match = _HEADING.match(cell.source)
    if match is None:
        return 0
    return len(match[1])


def _ends_in_value(cell: NotebookNode) -> bool:
    """Return whether a visible cell ends in an expression to show."""
    if "remove-cell" in _tags(cell):
        return False
    try:
        statements = ast.parse(cell.source).body
    except SyntaxError:  # a magic of IPython
        return False
    if not statements:
        return False
    # Also within a block, such as `if rows: show(rows)`.
    return any(isinstance(node, ast.Expr) for node in ast.walk(statements[-1]))


def clean(notebook: NotebookNode, *, title: str | None = None) -> NotebookNode:
    """Return a copy of an executed notebook for the book.

    Widgets and progress bars are removed (they show a stale 0 %), parameters are hidden
    (the last table of a page lists them), and the heading is replaced by ``title``. Tables and
    figures lose their own style sheet: on a page, the book's applies.
    """
    page = copy.deepcopy(notebook)
    page.metadata.pop("widgets", None)
    for cell in page.cells:
        tags = _tags(cell)
        if "parameters" in tags or "injected-parameters" in tags:
            cell.metadata["tags"] = sorted({*tags, "remove-cell"})  # the book hides such cells
        if cell.cell_type == "code":
            cell.outputs = _clean_outputs(cell.outputs)
    if title:
        _replace_heading(page, title)
    return page


def _replace_heading(page: NotebookNode, title: str) -> None:
    """Put a title in the place of the heading of the first text."""
    for cell in page.cells:
        if cell.cell_type == "markdown":
            heading, newline, text = cell.source.partition("\n")
            if heading.startswith("# "):
                cell.source = f"# {title}{newline}{text}"
            return


def _clean_outputs(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Return outputs without widgets, progress bars and style sheets."""
    cleaned = []
    for output in outputs:
        data = output.get("data", {})
        if "application/vnd.jupyter.widget-view+json" in data:  # such as a stale progress bar
            continue
        if output.output_type == "stream" and output.name == "stderr":
            output.text = _without_progress(output.text)
            if not output.text:
                continue
        for kind, text in data.items():
            if kind.endswith("text/html"):  # also for glued outputs
                data[kind] = unstyled("".join(text))
        cleaned.append(output)
    return cleaned


def _without_progress(text: str) -> str:
    """Return what was printed without progress bars and messages of the kernel."""
    lines = []
    for line in re.split(r"\r|\n", text):
        if _ANSI.sub("", line).strip() and not _NOISE.search(line):
            lines.append(line)
    return "\n".join(lines)
