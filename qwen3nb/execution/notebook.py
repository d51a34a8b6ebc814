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
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb import paths
from qwen3nb.analysis.inventory import log_files
from qwen3nb.checkpoints.folder import list_checkpoints, open_checkpoint
from qwen3nb.execution.page_names import is_old, page_name
from qwen3nb.execution.parameters import (
    Parameter,
    cell_source,
    check_parameters,
    once,
    one_pass,
    read_notebook,
    read_parameters,
    unread_text,
)
from qwen3nb.execution.study_paths import at_root
from qwen3nb.models.kinds.lora import adapter_fingerprint
from qwen3nb.models.kinds.prompts import names_prompt_set
from qwen3nb.models.kinds.resolve import default_model, find_source, find_training
from qwen3nb.models.kinds.source import described
from qwen3nb.records.failures import forget_failure
from qwen3nb.study import is_outdated
from qwen3nb.utils.atomic_files import file_stamp, sha256_file, sha256_json, turn
from qwen3nb.utils.book_settings import book_settings
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


def model_taken(declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> str:
    """Return a sentence on the default model; empty if a model is given or none is needed."""
    own = declared.get("checkpoint")
    if own is None or given.get("checkpoint", own.default):
        return ""
    return once(default_model)[1]


def page_path(notebook: Path, values: Mapping[str, Any], *, name: str = "") -> Path:
    """Return the path of a run's page: in ``runs``, or in ``guide`` for lessons.

    The name is that of `page_name`, unless ``name`` is given.
    """
    folder, _, stem = once(paths.notebook_name, notebook).rpartition("/")
    name = name or page_name(stem, values, once(read_parameters, notebook))
    return once(paths.book) / (folder or "runs") / f"{name}.ipynb"


def partial_folder() -> Path:
    """Return the folder in which notebooks are executed before publication."""
    return paths.results() / "partial"


def run_key(notebook: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return a digest of everything a page depends on: source, parameters, model, code.

    ``notebook`` is read by nbformat or as JSON. A notebook that reads results
    (``metadata.qwen3nb.reads``) also depends on the records (including those of ``folder``) and the
    book's baseline; one that reads outputs of trainings, on their logs and scores.
    """
    parts: dict[str, Any] = {
        "cells": [[cell["cell_type"], cell_source(cell)] for cell in notebook["cells"]],
        "parameters": dict(values),
        "code": once(code_digest),
    }
    if "checkpoint" in values:
        parts["model"] = once(_model_fingerprint, values["checkpoint"], base=values.get("base"))
    data = [each.strip() for each in str(values.get("data", "")).split(",")]
    inside = (file for each in data if each for file in at_root(each).rglob("*"))
    if files := sorted(file for file in inside if file.is_file()):
        parts["data"] = [file_stamp(file) for file in files]
    if names_prompt_set(values.get("prompts")):
        from qwen3nb.models.kinds.prompts import prompts_file

        parts["prompts"] = sha256_file(prompts_file(values["prompts"]))
    if values.get("adapter"):
        parts["adapter"] = adapter_fingerprint(at_root(values["adapter"]))
    if "training" in values:
        folders = list_checkpoints(find_training(values["training"]))
        files = [file for folder in folders for file in open_checkpoint(folder).stamps]
        parts["training"] = [file_stamp(file) for file in files]
    about = notebook["metadata"]["qwen3nb"]
    if about.get("reads") == "results":
        parts["results"] = once(_results_digests, about.get("folder", ""))
        parts["baseline"] = once(book_settings).baseline
    if "outputs" in values:
        files = log_files(at_root(values["outputs"]) if values["outputs"] else paths.runs())
        parts["outputs"] = [[paths.shown(file), sha256_file(file)] for file in files]
    return sha256_json(parts)


def _model_fingerprint(spec: str, *, base: str | None) -> dict[str, Any]:
    source = find_source(spec, base=base)
    return {**described(source), "label": source.label}


def _results_digests(folder: str) -> list[list[str]]:
    """Return the path and digest of every record and of every note of a failure.

    Includes those of a separate ``folder`` such as ``prompts``. The digest of an unreadable file is
    empty.
    """
    patterns: tuple[str, ...] = ("*/seed_*/*.json", "*/seed_*/*.error.txt", "failed/*.json")
    patterns += (f"{folder}/*/seed_*/*.json",) if folder else ()
    digests = []
    for file in sorted(file for each in patterns for file in paths.results().glob(each)):
        if file.is_file():
            digests.append([paths.shown(file), ""])
            with suppress(OSError):
                digests[-1][1] = sha256_file(file)
    return digests


def resolved_parameters(notebook: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Check ``parameters`` of a notebook file; return all values, see `check_parameters`."""
    return check_parameters(once(read_parameters, notebook), parameters)


def finished_page(notebook: Path, parameters: Mapping[str, Any], *, name: str = "") -> Path | None:
    """Return the page of a finished run with the same inputs, or None.

    Also None if a later run of the page failed, if it would now have another baseline, or if the
    notebook must always run because it shows the current state (``metadata.qwen3nb.always``).
    """
    values = resolved_parameters(notebook, parameters)
    page = page_path(notebook, values, name=name)
    if not page.is_file():
        return None
    node = once(read_notebook, notebook)
    if node["metadata"]["qwen3nb"].get("always"):
        return None
    try:
        done = json.loads(page.read_bytes())
        made = done["metadata"]["qwen3nb"]
        if "failed" in made or made["key"] != run_key(node, values) or is_old(done):
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
    parameters: Mapping[str, Any] | None = None,
    *,
    fresh: bool = False,
    show_progress: bool = True,
    name: str = "",
) -> Path:
    """Run a notebook and return its published page; a finished run with equal inputs is reused.

    Args:
        notebook: a path, or the name of a notebook in ``notebooks/``.
        parameters: values by name; all others keep their defaults.
        fresh: run even if there is a finished page with the same inputs.
        show_progress: whether to show a progress bar over the cells.
        name: name of the page; by default see `page_name`.

    Raises:
        ParameterError: invalid parameters; nothing was run.
        FileNotFoundError: no such notebook; lists the known names.
        NotebookError: a cell failed, or the kernel died.
    """
    notebook = paths.find_notebook(notebook)
    parameters = dict(parameters or {})
    waited: list[str] = []

    def wait() -> None:
        waited.append(f"another process runs {paths.page_key(page)}; waiting for its end")
        print(*waited, file=sys.stderr)

    with one_pass(), paths.within(paths.study_of(notebook)), ExitStack() as stack:
        if taken := model_taken(once(read_parameters, notebook), parameters):
            print(taken, file=sys.stderr)
        if unread := unread_text(once(read_notebook, notebook), once(read_parameters, notebook)):
            print(unread, file=sys.stderr)
        if not fresh and (done := finished_page(notebook, parameters, name=name)):
            settle(done)
            return done
        values = resolved_parameters(notebook, parameters)
        page = page_path(notebook, values, name=name)
        partial = partial_folder() / f"{paths.page_key(page)}.ipynb"
        stack.enter_context(turn(partial, what="runs", waiting=wait))
        if waited and not fresh:
            with one_pass():  # results of another process meanwhile
                if done := finished_page(notebook, parameters, name=name):
                    return done
        _execute(notebook, partial, parameters, name=page.stem, show_progress=show_progress)
        partial.unlink(missing_ok=True)
    return page


def _execute(
    notebook: Path, partial: Path, parameters: Mapping[str, Any], *, name: str, show_progress: bool
) -> None:
    """Execute ``notebook`` into ``partial``; its cells show their progress on the terminal."""
    import nbformat
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    from qwen3nb.execution.publish import ran_to_its_end

    kernel = read_notebook(notebook)["metadata"]["kernelspec"]
    page, where = None, f"the notebook up to there: {partial}"
    try:
        papermill.execute_notebook(
            notebook,
            partial,
            parameters=parameters,
            engine_name=ENGINE,
            page_name=name,
            progress_bar=show_progress,
            stderr_file=sys.stderr if show_progress else None,
            kernel_name=kernel["name"],
            language=kernel["language"],
        )
    except PapermillExecutionError as error:
        why = f"a cell failed: {error.ename}: {error.evalue}"
        if is_outdated(notebook):
            where = f"{OUTDATED}\n{where}"
        if ran_to_its_end(nbformat.read(partial, as_version=4)):
            page = paths.book_runs() / partial.name
            why, where = f"not everything succeeded; the rest is in {page}", error.evalue
        raise NotebookError(f"{notebook.name}: {why}\n{where}", page=page) from error
    except DeadKernelError as error:
        why = "the kernel died, possibly out of memory"
        raise NotebookError(f"{notebook.name}: {why}\n{where}") from error
