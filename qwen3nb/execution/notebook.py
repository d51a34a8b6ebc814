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

import ast
import difflib
import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click
import nbformat

from qwen3nb import paths
from qwen3nb.analysis.inventory.training_logs import log_files
from qwen3nb.checkpoints.checkpoint import list_checkpoints, open_checkpoint
from qwen3nb.execution.parameter_checks import CHECKS
from qwen3nb.models.sources.lora import adapter_fingerprint
from qwen3nb.models.sources.resolve import SpecError, find_source, find_training
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
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
}
_READERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": {"True": True, "False": False}.__getitem__,
}


class ParameterError(click.ClickException, ValueError):
    """Parameters a notebook cannot run with; the message says what would do.

    A ``ClickException``, so that papermill's command line prints it and no traceback.
    """

    exit_code = 2


class NotebookError(RuntimeError):
    """A notebook that did not come to its end; the message says why and where it is."""


@dataclass(frozen=True)
class Parameter:
    """A declared parameter.

    Attributes:
        name: its name.
        type: ``str``, ``int``, ``float`` or ``bool``.
        default: its value if none is given.
    """

    name: str
    type: str
    default: Any


def declared_parameters(notebook: nbformat.NotebookNode) -> dict[str, Parameter]:
    """The parameters that a notebook declares.

    Raises:
        ParameterError: no cell tagged ``parameters``, or a line in it that is not
            ``name: type = literal``.
    """
    cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", ())]
    if len(cells) != 1:
        raise ParameterError(f"expected one cell tagged 'parameters'; found {len(cells)}")
    declared = {}
    for node in ast.parse(cells[0].source).body:
        if (
            not isinstance(node, ast.AnnAssign)
            or not isinstance(node.target, ast.Name)
            or not isinstance(node.annotation, ast.Name)
            or node.annotation.id not in _TYPES
            or node.value is None
        ):
            raise ParameterError(f"not a typed parameter: {ast.unparse(node)}")
        name = node.target.id
        declared[name] = Parameter(name, node.annotation.id, ast.literal_eval(node.value))
    return declared


def check_parameters(declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters with their values, defaults filled in.

    Raises:
        ParameterError: unknown names, wrong types, or choices that do not exist; all of
            them in one message.
    """
    problems = []
    for name, value in given.items():
        if name not in declared:
            near = difflib.get_close_matches(name, declared, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            problems.append(f"unknown parameter {name!r}{hint} There are: {', '.join(declared)}")
        elif not _fits(value, declared[name].type):
            raw = "; `-r` passes a value as it is typed" if declared[name].type == "str" else ""
            problems.append(
                f"{name} is {value!r} ({type(value).__name__}); expected {declared[name].type}{raw}"
            )
    values = {name: given.get(name, parameter.default) for name, parameter in declared.items()}
    if not problems:
        for name, check in CHECKS.items():
            if name in values:
                try:
                    check(values[name])
                except (ValueError, OSError) as error:
                    problems.append(str(error))
    if problems:
        raise ParameterError("\n".join(problems))
    return values


def _fits(value: Any, type_name: str) -> bool:
    if isinstance(value, bool) and type_name != "bool":
        return False
    return isinstance(value, _TYPES[type_name])


def typed_parameters(notebook: Path, given: Mapping[str, str]) -> dict[str, Any]:
    """Strings from a command line as the types that the notebook declares.

    Raises:
        ParameterError: a value that is not of its type.
    """
    declared = declared_parameters(nbformat.read(notebook, as_version=4))
    typed: dict[str, Any] = {}
    for name, text in given.items():
        kind = declared[name].type if name in declared else "str"
        try:
            typed[name] = _READERS[kind](text)
        except (ValueError, KeyError):
            raise ParameterError(f"{name} is {text!r}; expected {kind}") from None
    return typed


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
        parts["model"] = find_source(values["checkpoint"]).fingerprint()
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
