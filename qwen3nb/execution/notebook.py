"""Run a parameterised notebook: check its parameters, execute it, publish its page.

The parameters of a notebook are those declared in its cell tagged ``parameters``. An
undeclared name, a value of the wrong type or an invalid choice is refused before a kernel
starts; papermill alone would warn and run with the defaults.

A notebook is executed in ``results/partial``; when it has run to its end, it is cleaned and moved
into ``book/runs`` atomically. After a failed run, an earlier page is kept below a notice; otherwise
a short page reports the failure. Neither counts as finished, and the next success replaces it (see
`qwen3nb.execution.publish`). An interrupted run does not change the book.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3nb import paths
from qwen3nb.analysis.inventory.training_logs import log_files
from qwen3nb.checkpoints.folder import list_checkpoints, open_checkpoint
from qwen3nb.execution.kernel_watch import StalledKernelError
from qwen3nb.execution.page_names import is_old, page_name
from qwen3nb.execution.parameters import (
    Notebook,
    cached_call,
    cached_calls,
    cell_source,
    check_parameters,
    found_defaults,
    read_notebook,
    read_parameters,
    unread_text,
)
from qwen3nb.execution.study_paths import READ_FILES, NewValues, Values, path_from_root
from qwen3nb.models.kinds.lora import adapter_fingerprint
from qwen3nb.models.kinds.prompts import names_prompt_set, prompts_file
from qwen3nb.models.kinds.resolve import find_source, find_training, training_named
from qwen3nb.models.kinds.source import described
from qwen3nb.records.failures import forget_failure
from qwen3nb.study import is_outdated
from qwen3nb.utils.atomic_files import (
    FileStamp,
    exclusive_lock,
    file_stamp,
    sha256_file,
    sha256_json,
)
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.code_version import code_digest

if TYPE_CHECKING:
    from nbformat import NotebookNode

ENGINE = "qwen3nb"
OUTDATED = "the notebook is of another release; `qwen3nb new --update` renews it"


class NotebookError(RuntimeError):
    """A notebook failed; the message has the cause and the path of the partial notebook."""

    def __init__(self, message: str, *, page: Path | None = None) -> None:
        super().__init__(message)
        self.page = page  # if the notebook ran to its end and only some of its tasks failed


def is_ours(notebook: NotebookNode, file: Path) -> bool:
    """Return whether runs of a notebook are published: by its metadata, or if it is in a study."""
    return "qwen3nb" in notebook.metadata or paths.study_of(file) is not None


def page_path(notebook: Path, values: Values, *, name: str = "") -> Path:
    """Return the path of a run's page: in ``runs``, or in ``guide`` for lessons.

    The name is that of `page_name`, unless ``name`` is given.
    """
    folder, _, stem = cached_call(paths.notebook_name, notebook).rpartition("/")
    if not name:
        name = page_name(stem, values, cached_call(read_parameters, notebook))
    return cached_call(paths.book) / (folder or "runs") / f"{name}.ipynb"


def partial_folder() -> Path:
    """Return the folder in which notebooks are executed before publication."""
    return paths.results() / "partial"


def run_key(notebook: Notebook, values: Values) -> str:
    """Return a digest of everything a page depends on: source, parameters, model, code.

    ``notebook`` is read by nbformat or as JSON. A notebook that reads results
    (``metadata.qwen3nb.reads``) also depends on the records (including those of ``folder``) and the
    book's baseline; one that reads outputs of trainings, on their logs and scores.
    """
    parts: dict[str, object] = {
        "cells": [[cell["cell_type"], cell_source(cell)] for cell in notebook["cells"]],
        "parameters": dict(values),
        "code": cached_call(code_digest),
    }
    if "checkpoint" in values:
        spec, base = values["checkpoint"], values.get("base")
        parts["model"] = cached_call(_model_fingerprint, spec, base=base)
    if "candidates" in values:
        parts["candidates"] = [_candidate(spec) for spec in split_names(values["candidates"])]
    for name in ("old", "new"):  # the models of a migration
        if values.get(name):
            parts[name] = cached_call(_model_fingerprint, _without_label(values[name]), base=None)
    for name in READ_FILES:
        digests = _digests_of_files(values.get(name, ""))
        if digests:
            parts[name] = digests
    stamps_of_data = _data_stamps(values.get("data", ""))
    if stamps_of_data:
        parts["data"] = stamps_of_data
    if names_prompt_set(values.get("prompts")):
        parts["prompts"] = sha256_file(prompts_file(values["prompts"]))
    if values.get("adapter"):
        parts["adapter"] = adapter_fingerprint(path_from_root(values["adapter"]))
    if "training" in values:
        parts["training"] = _training_stamps(values["training"])
    facts = notebook["metadata"]["qwen3nb"]
    # A notebook on stored records; its metadata say so.
    if facts.get("reads") == "results":
        parts["results"] = cached_call(_results_digests, facts.get("folder", ""))
        parts["baseline"] = cached_call(book_settings).baseline
    if "outputs" in values:
        parts["outputs"] = _log_digests(values["outputs"])
    return sha256_json(parts)


def _model_fingerprint(spec: str, *, base: str | None) -> dict[str, object]:
    source = find_source(spec, base=base)
    return {**described(source), "label": source.label}


def _candidate(spec: str) -> object:
    """Return what identifies a model to choose from, or all checkpoints of a training."""
    if training_named(spec) is None:
        return cached_call(_model_fingerprint, spec, base=None)
    return _training_stamps(spec)


def _without_label(spec: str) -> str:
    """Return the spec of ``LABEL=SPEC``, and any other as it is."""
    from qwen3nb.datasets.custom.queries import label_and_spec

    if path_from_root(spec).exists():
        return spec
    return label_and_spec(spec)[1]


def _digests_of_files(entries: object) -> list[str]:
    """Return the digests of the files among the entries of a parameter."""
    files = [path_from_root(entry) for entry in split_names(str(entries))]
    return [sha256_file(file) for file in files if file.is_file()]


def _data_stamps(data: str) -> list[FileStamp]:
    """Return the stamps of all files in folders of data, by path."""
    files = []
    for folder in str(data).split(","):
        if folder.strip():
            files += [file for file in path_from_root(folder.strip()).rglob("*") if file.is_file()]
    return [file_stamp(file) for file in sorted(files)]


def _training_stamps(training: str) -> list[FileStamp]:
    """Return the stamps of all files of a training's checkpoints."""
    stamps = []
    for folder in list_checkpoints(find_training(training)):
        stamps += [file_stamp(file) for file in open_checkpoint(folder).stamps]
    return stamps


def _log_digests(outputs: str) -> list[list[str]]:
    """Return the paths and digests of the logs and scores of trainings."""
    folder = path_from_root(outputs) if outputs else paths.runs()
    return [[paths.shown(file), sha256_file(file)] for file in log_files(folder)]


def _results_digests(folder: str) -> list[list[str]]:
    """Return the path and digest of every record and of every note of a failure.

    Includes those of a separate ``folder`` such as ``prompts``. The digest of an unreadable file is
    empty.
    """
    patterns = ["*/seed_*/*.json", "*/seed_*/*.error.txt", "failed/*.json"]
    if folder:
        patterns.append(f"{folder}/*/seed_*/*.json")
    files: list[Path] = []
    for pattern in patterns:
        files += paths.results().glob(pattern)
    digests = []
    for file in sorted(files):
        if file.is_file():
            digests.append([paths.shown(file), _digest_or_empty(file)])
    return digests


def _digest_or_empty(file: Path) -> str:
    try:
        return sha256_file(file)
    except OSError:
        return ""


def resolved_parameters(notebook: Path, parameters: Values) -> NewValues:
    """Check ``parameters`` of a notebook file; return all values, see `check_parameters`."""
    return check_parameters(cached_call(read_parameters, notebook), parameters)


def finished_page(notebook: Path, parameters: Values, *, name: str = "") -> Path | None:
    """Return the page of a finished run with the same inputs, or None.

    Also None if a later run of the page failed, if it would now have another baseline, or if the
    notebook must always run because it shows the current state (``metadata.qwen3nb.always``).
    """
    values = resolved_parameters(notebook, parameters)
    page = page_path(notebook, values, name=name)
    if not page.is_file():
        return None
    content = cached_call(read_notebook, notebook)
    shows_current_state = content["metadata"]["qwen3nb"].get("always")  # such as a status page
    if shows_current_state:
        return None
    try:
        published = json.loads(page.read_bytes())
        facts = published["metadata"]["qwen3nb"]
        # A later run failed, something it depends on has changed, or so have the baselines.
        if "failed" in facts or facts["key"] != run_key(content, values) or is_old(published):
            return None
    except (ValueError, KeyError, TypeError):  # damaged, or a foreign page
        return None
    return page


def settle(page: Path) -> None:
    """Remove the note and notebook left by a run that was killed after publishing its page."""
    forget_failure(paths.page_key(page))
    (partial_folder() / f"{paths.page_key(page)}.ipynb").unlink(missing_ok=True)


def run_notebook(
    notebook: Path | str,
    parameters: Values | None = None,
    *,
    fresh: bool = False,
    show_progress: bool = True,
    name: str = "",
) -> Path:
    """Run a notebook and return its published page; a finished run with equal inputs is reused.

    Args:
        notebook: a path, or the name of a notebook in ``notebooks/``.
        parameters: values by name; all others keep their defaults.
        fresh: run even if there is a finished page with the same inputs, and measure again what
            has records.
        show_progress: whether to say that it runs, and to show the bars of its cells.
        name: name of the page; by default see `page_name`.

    Raises:
        ParameterError: invalid parameters; nothing was run.
        FileNotFoundError: no such notebook; lists the known names.
        NotebookError: a cell failed, or the kernel died or did nothing for minutes, twice.
    """
    notebook = paths.find_notebook(notebook)
    parameters = dict(parameters or {})
    with cached_calls(), paths.within(paths.study_of(notebook)):
        for remark in _remarks(notebook, parameters):
            print(remark, file=sys.stderr)
        if not fresh:
            finished = finished_page(notebook, parameters, name=name)
            if finished is not None:
                settle(finished)  # leftovers of a run that was killed after it had published
                return finished
        values = resolved_parameters(notebook, parameters)
        page = page_path(notebook, values, name=name)
        partial = partial_folder() / f"{paths.page_key(page)}.ipynb"
        other_run = _OtherRun(paths.page_key(page))
        with exclusive_lock(partial, purpose="runs", on_wait=other_run.note):
            # While this process waited for the lock, the other may have made the page.
            if other_run.seen and not fresh and _is_finished(notebook, parameters, name=name):
                return page
            if show_progress:
                print(f"running {page.stem}", file=sys.stderr)
            if partial.is_file():  # left by a run that failed or was killed
                print(_remark_on_restart(page, fresh=fresh), file=sys.stderr)
            try:
                _execute(
                    notebook,
                    partial,
                    parameters,
                    name=page.stem,
                    show_progress=show_progress,
                    fresh=fresh,
                )
            except FileNotFoundError:
                # On a disk without locks between machines, another one may run the page as well.
                # If it ends first, it removes the file.
                if not _is_finished(notebook, parameters, name=name):
                    raise
            partial.unlink(missing_ok=True)
    return page


@dataclass
class _OtherRun:
    """Another process that runs the same page, if there is one."""

    page: str
    seen: bool = False

    def note(self) -> None:
        """Note that there is one, and say so."""
        self.seen = True
        print(f"another process runs {self.page}; waiting for its end", file=sys.stderr)


def _remarks(notebook: Path, parameters: Values) -> list[str]:
    """Return what to say before a run: which model is taken, which parameters have no effect."""
    declared = cached_call(read_parameters, notebook)
    found = found_defaults(declared, parameters)
    remarks = [default.sentence for default in found.values()]
    without_effect = unread_text(cached_call(read_notebook, notebook), declared)
    if without_effect:
        remarks.append(without_effect)
    return remarks


def _is_finished(notebook: Path, parameters: Values, *, name: str) -> bool:
    """Return whether another process has meanwhile finished the page."""
    with cached_calls():  # reads the results anew
        return finished_page(notebook, parameters, name=name) is not None


def _remark_on_restart(page: Path, *, fresh: bool) -> str:
    """Return what to say before a page is run whose last run did not finish."""
    beginning = f"The last run of {paths.page_key(page)} did not finish; it starts anew"
    if fresh:
        return f"{beginning}, and measures everything again."
    return f"{beginning}. Stored records and vectors are not computed again."


def _execute(
    notebook: Path,
    partial: Path,
    parameters: Values,
    *,
    name: str,
    show_progress: bool,
    fresh: bool,
) -> None:
    """Execute ``notebook`` into ``partial``; its cells show their progress on the terminal."""
    import nbformat
    import papermill  # its engines are loaded with it, ours among them
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    from qwen3nb.execution.publish import ran_to_its_end

    kernel = read_notebook(notebook)["metadata"]["kernelspec"]
    hint = f"the notebook up to there: {partial}"
    if is_outdated(notebook):
        hint = f"{OUTDATED}\n{hint}"

    def execute() -> None:
        papermill.execute_notebook(
            notebook,
            partial,
            parameters=parameters,
            engine_name=ENGINE,
            page_name=name,
            fresh=fresh,
            progress_bar=False,  # it would count cells
            stderr_file=sys.stderr if show_progress else None,
            kernel_name=kernel["name"],
            language=kernel["language"],
        )

    try:
        _with_second_try(execute)
    except StalledKernelError as error:
        raise NotebookError(f"{notebook.name}: {error}\n{hint}") from error
    except PapermillExecutionError as error:
        if ran_to_its_end(nbformat.read(partial, as_version=4)):
            page = paths.book_runs() / partial.name
            reason = f"not everything succeeded; the rest is in {page}"
            message = f"{notebook.name}: {reason}\n{error.evalue}"
            raise NotebookError(message, page=page) from error
        reason = f"a cell failed: {error.ename}: {error.evalue}"
        raise NotebookError(f"{notebook.name}: {reason}\n{hint}") from error
    except DeadKernelError as error:
        reason = "the kernel died, possibly out of memory"
        raise NotebookError(f"{notebook.name}: {reason}\n{hint}") from error


def _with_second_try(execute: Callable[[], object]) -> None:
    """Execute a notebook; if its kernel stalls, once more."""
    try:
        execute()
    except StalledKernelError as stall:
        print(f"{stall}. Another one starts; stored records are reused", file=sys.stderr)
        execute()
