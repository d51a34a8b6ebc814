"""One parameterised notebook: check its parameters, run it, publish its page.

A notebook's parameters are what its cell tagged ``parameters`` declares, typed, one
per line. A name it does not declare, a value of another type, or a choice that does
not exist is refused before a kernel starts: papermill by itself would warn and run
the defaults.

A run happens in ``results/partial``; only a notebook that ran to its end is cleaned
and moved into ``book/runs``, in one step. Of a run that fails, the page says so: a page of
an earlier run is kept under a notice, else there is a short one without a number; neither
counts as finished, and the next success replaces it (see `qwen3nb.execution.attempt`). A run that
is interrupted leaves the book as it was.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

import nbformat

from qwen3nb import paths
from qwen3nb.analysis.inventory.training_logs import log_files
from qwen3nb.checkpoints.checkpoint import list_checkpoints, open_checkpoint
from qwen3nb.execution.parameters import (
    Parameter,
    ParameterError,
    check_parameters,
    declared_parameters,
)
from qwen3nb.models.sources.fingerprint import fingerprint
from qwen3nb.models.sources.lora import adapter_fingerprint
from qwen3nb.models.sources.resolve import find_source, find_training
from qwen3nb.models.types import SpecError
from qwen3nb.utils.atomic_files import file_stamp, sha256_file, sha256_json

__all__ = [
    "ENGINE",
    "NotebookError",
    "Parameter",
    "ParameterError",
    "check_parameters",
    "declared_parameters",
    "is_ours",
    "page_name",
    "page_path",
    "partial_folder",
    "run_key",
    "run_notebook",
]

ENGINE = "qwen3nb"


class NotebookError(RuntimeError):
    """A notebook that did not come to its end; the message says why and where it is."""


def is_ours(notebook: nbformat.NotebookNode) -> bool:
    """Whether a notebook is one of this package's: its metadata says so."""
    return "qwen3nb" in notebook.metadata


def page_name(notebook: str, values: Mapping[str, Any], declared: Mapping[str, Parameter]) -> str:
    """The name of a run's page: the notebook, what it ran on, and what was not default.

    The same parameters give the same name, different ones different names. A notebook
    that runs on no model and no training is one page, whatever its parameters.
    """
    if "checkpoint" not in values and "training" not in values:
        return notebook
    parts = [notebook]
    for name, value in values.items():
        if name == "checkpoint":
            parts.append(_model_slug(str(value)))
        elif name == "training":
            parts.append("demo" if value == "demo" else _folder_slug(find_training(value)))
        elif name == "tier":
            parts.append(str(value))
        elif value != declared[name].default and name != "output_dir":
            parts.append(f"{name}-{value}")
    return "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts)


def _model_slug(spec: str) -> str:
    """Readable and one of a kind: a path's last parts, with a digest if it is elsewhere."""
    try:
        folder = find_source(spec).folder
    except SpecError:
        return spec
    if folder is None or (not Path(spec).exists() and not (paths.root() / spec).exists()):
        return spec
    return _folder_slug(folder)


def _folder_slug(folder: Path) -> str:
    resolved = folder.resolve()
    if resolved.is_relative_to(paths.root()):
        short = str(resolved.relative_to(paths.root())).removeprefix("runs/")
        return short.removesuffix("/checkpoints/final")  # where a training leaves its adapters
    digest = hashlib.sha256(str(resolved).encode()).hexdigest()[:6]
    return f"{resolved.parent.name}-{resolved.name}-{digest}"


def page_path(notebook: Path, values: Mapping[str, Any]) -> Path:
    """Where the page of a run is published."""
    declared = declared_parameters(nbformat.read(notebook, as_version=4))
    return paths.book_runs() / f"{page_name(notebook.stem, values, declared)}.ipynb"


def partial_folder() -> Path:
    """Where notebooks run before they are published."""
    return paths.results() / "partial"


def run_key(notebook: nbformat.NotebookNode, values: Mapping[str, Any]) -> str:
    """Digest of all that decides what a run shows: source, parameters, model, code.

    A notebook that reads results (``metadata.qwen3nb.reads``) depends on them too, one that
    reads trainings' outputs on their logs and scores.
    """
    parts: dict[str, Any] = {
        "cells": [[cell.cell_type, cell.source] for cell in notebook.cells],
        "parameters": dict(values),
        "code": _code_digest(),
    }
    if "checkpoint" in values:
        parts["model"] = fingerprint(find_source(values["checkpoint"]))
    if values.get("adapter"):
        parts["adapter"] = adapter_fingerprint(Path(values["adapter"]).expanduser())
    if "training" in values:
        folders = list_checkpoints(find_training(values["training"]))
        files = [file for folder in folders for file in open_checkpoint(folder).stamps]
        parts["training"] = [file_stamp(file) for file in files]
    if notebook.metadata["qwen3nb"].get("reads") == "results":
        patterns = ("*/seed_*/*.json", "*/seed_*/*.error.txt", "failed/*.json")
        files = sorted(file for each in patterns for file in paths.results().glob(each))
        parts["results"] = [[str(file), sha256_file(file)] for file in files]
    if "outputs" in values:
        files = log_files(
            Path(values["outputs"]).expanduser() if values["outputs"] else paths.runs()
        )
        parts["outputs"] = [[str(file), sha256_file(file)] for file in files]
    return sha256_json(parts)


def _code_digest() -> str:
    """Digest of this package's own files."""
    package = Path(__file__).resolve().parent.parent
    files = sorted(
        file
        for file in package.rglob("*")
        if file.suffix in {".py", ".toml", ".tsv", ".j2", ".json", ".mplstyle"}
    )
    return sha256_json([[str(file.relative_to(package)), sha256_file(file)] for file in files])


def resolved_parameters(notebook: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """`check_parameters` for the notebook at a path."""
    declared = declared_parameters(nbformat.read(notebook, as_version=4))
    return check_parameters(declared, parameters)


def finished_page(notebook: Path, parameters: Mapping[str, Any]) -> Path | None:
    """The page of a run that was finished with the same inputs, or None.

    None, too, if a later run of the page failed, and for a notebook that shows what is so
    now (``metadata.qwen3nb.always``).
    """
    node = nbformat.read(notebook, as_version=4)
    values = resolved_parameters(notebook, parameters)
    page = page_path(notebook, values)
    if not page.is_file() or node.metadata["qwen3nb"].get("always"):
        return None
    try:
        done = nbformat.read(page, as_version=4).metadata["qwen3nb"]
        key = None if "failed" in done else done["key"]
    except (ValueError, KeyError, AttributeError):  # not a page of ours, or damaged
        return None
    return page if key is not None and key == run_key(node, values) else None


def run_notebook(
    notebook: Path | str,
    parameters: Mapping[str, Any] | None = None,
    *,
    fresh: bool = False,
    show_progress: bool = True,
    log: Path | None = None,
) -> Path:
    """Run a notebook and publish its page; the page of an equal finished run is reused.

    Args:
        notebook: a path, or the name of one in ``notebooks/``.
        parameters: values by name; what is missing has its default.
        fresh: run although the page is there.
        show_progress: whether to show a bar over the cells.
        log: a file for what the cells print.

    Raises:
        ParameterError: refused before anything ran.
        FileNotFoundError: no such notebook; lists those there are.
        NotebookError: a cell failed, or the kernel died.
    """
    notebook = find_notebook(notebook)
    parameters = dict(parameters or {})
    page = None if fresh else finished_page(notebook, parameters)
    if page is not None:
        return page
    values = resolved_parameters(notebook, parameters)
    page = page_path(notebook, values)
    partial = partial_folder() / page.name
    partial.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") if log else nullcontext() as output:
        _execute(notebook, partial, parameters, output=output, show_progress=show_progress)
    partial.unlink(missing_ok=True)
    return page


def _execute(
    notebook: Path,
    partial: Path,
    parameters: Mapping[str, Any],
    *,
    output: TextIO | None,
    show_progress: bool,
) -> None:
    """Run ``notebook`` as ``partial``; what its cells print goes to ``output``, if any."""
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    try:
        papermill.execute_notebook(
            notebook,
            partial,
            parameters=parameters,
            engine_name=ENGINE,
            progress_bar=show_progress,
            stdout_file=output,
            # Without a log, what the cells say of their progress goes to whoever waits.
            stderr_file=output or (sys.stderr if show_progress else None),
        )
    except PapermillExecutionError as error:
        raise NotebookError(
            f"{notebook.name}: a cell failed: {error.ename}: {error.evalue}\n"
            f"as far as it came it is in {partial}"
        ) from error
    except DeadKernelError as error:
        raise NotebookError(
            f"{notebook.name}: its kernel died, perhaps for want of memory\n"
            f"as far as it came it is in {partial}"
        ) from error


def find_notebook(notebook: Path | str) -> Path:
    """The path of a notebook given by path or by name.

    Raises:
        FileNotFoundError: there is none; lists those there are.
    """
    path = Path(notebook)
    if path.is_file():
        return path
    named = paths.notebooks() / f"{path.name.removesuffix('.ipynb')}.ipynb"
    if named.is_file():
        return named
    there = ", ".join(sorted(file.stem for file in paths.notebooks().glob("*.ipynb"))) or "none"
    raise FileNotFoundError(f"no notebook {str(notebook)!r}; in {paths.notebooks()}: {there}")
