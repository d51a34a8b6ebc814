"""Read and check the parameters that a notebook declares in its parameters cell.

The cell declares one parameter per line, ``name: type = value  # help``. papermill's ``-p``
sets parameters, and the command line derives its options from them. This module reads a
notebook as plain JSON, so that ``--help`` stays fast.
"""

from __future__ import annotations

import ast
import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from qwen3nb.execution.parameter_checks import CHECKS, without_effect
from qwen3nb.utils.secrets import known_secrets

__all__ = [
    "Once",
    "Parameter",
    "ParameterError",
    "cell_source",
    "check_parameters",
    "declared_parameters",
    "notebook_title",
    "read_config",
    "read_notebook",
    "read_parameters",
    "typed_parameters",
]

P = ParamSpec("P")
T = TypeVar("T")

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


class Once:
    """Results of functions, each computed once for the same arguments.

    Made anew for each pass over many runs: by the next pass, what its results were read from, such
    as the folder of a model, may be another.
    """

    def __init__(self) -> None:
        self._results: dict[tuple[Any, ...], Any] = {}

    def __call__(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Return ``function(*args, **options)``, computed now or before."""
        key = (function, args, *options.items())
        if key not in self._results:
            self._results[key] = function(*args, **options)
        result: T = self._results[key]
        return result


class ParameterError(click.ClickException, ValueError):
    """Invalid notebook parameters; the message says what is valid.

    A ``ClickException``, so that papermill's command line prints it without a traceback.
    """

    exit_code = 2


@dataclass(frozen=True)
class Parameter:
    """A declared parameter.

    Attributes:
        name: name of the parameter.
        type: ``str``, ``int``, ``float`` or ``bool``.
        default: the default value.
        help: the comment after it.
    """

    name: str
    type: str
    default: Any
    help: str = ""


def read_parameters(notebook: Path) -> dict[str, Parameter]:
    """Return the parameters that a notebook file declares, by name.

    Raises:
        ParameterError: not a notebook, or no valid parameters; the message names the file.
    """
    try:
        return declared_parameters(read_notebook(notebook))
    except ParameterError as error:
        raise ParameterError(f"{notebook}: {error.message}") from None


def declared_parameters(notebook: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return the parameters that a notebook declares, by name.

    Args:
        notebook: a notebook, as read by nbformat or json.

    Raises:
        ParameterError: there is no cell tagged ``parameters``, or a line in it is not
            ``name: type = literal``.
    """
    cells = [c for c in notebook["cells"] if "parameters" in c["metadata"].get("tags", ())]
    if len(cells) != 1:
        raise ParameterError(f"expected one cell tagged 'parameters'; got {len(cells)}")
    source = cell_source(cells[0])
    declared = (_parameter(node, source.splitlines()) for node in ast.parse(source).body)
    return {parameter.name: parameter for parameter in declared}


def _parameter(node: ast.stmt, lines: list[str]) -> Parameter:
    if (
        not isinstance(node, ast.AnnAssign)
        or not isinstance(node.target, ast.Name)
        or not isinstance(node.annotation, ast.Name)
        or node.annotation.id not in _TYPES
        or node.value is None
        or node.end_lineno is None
    ):
        raise ParameterError(
            f"expected a typed parameter, `name: type = value`; got `{ast.unparse(node)}`"
        )
    behind = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
    return Parameter(
        name=node.target.id,
        type=node.annotation.id,
        default=ast.literal_eval(node.value),
        help=behind.strip().removeprefix("#").strip(),
    )


def notebook_title(notebook: Path) -> str:
    """Return the first heading of a notebook file, or its name."""
    cells = [cell for cell in read_notebook(notebook)["cells"] if cell["cell_type"] == "markdown"]
    first = cell_source(cells[0]).split("\n")[0] if cells else ""
    return first.removeprefix("# ") if first.startswith("# ") else notebook.stem


def read_notebook(notebook: Path) -> dict[str, Any]:
    """Return the JSON of a notebook file.

    Raises:
        ParameterError: not a notebook of format 4.
    """
    try:
        content = json.loads(notebook.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ParameterError(f"{notebook} is not a notebook: {error}") from None
    if not isinstance(content, dict) or "cells" not in content:
        raise ParameterError(f"{notebook} is not a notebook of format 4; it has no cells")
    return content


def cell_source(cell: Mapping[str, Any]) -> str:
    """Return the source of a cell, which a file may store as a list of lines."""
    return "".join(cell["source"])


def check_parameters(
    declared: Mapping[str, Parameter], given: Mapping[str, Any], *, once: Once | None = None
) -> dict[str, Any]:
    """Return the values of all parameters, with defaults filled in.

    Args:
        declared: the parameters of the notebook.
        given: values by name.
        once: where the checks of many runs share their results.

    Raises:
        ParameterError: unknown names, wrong types, invalid choices, or values that would have no
            effect, all in one message.
    """
    problems = [
        problem
        for name, value in given.items()
        if (problem := _mistyped(name, value, declared)) is not None
    ]
    values = {name: given.get(name, parameter.default) for name, parameter in declared.items()}
    once = once or Once()
    problems = problems or [*_invalid(values, once), *_secret(given, once)]
    defaults = {name: parameter.default for name, parameter in declared.items()}
    if problems := problems or without_effect(values, defaults, once):
        raise ParameterError("\n".join(problems))
    return values


def _mistyped(name: str, value: Any, declared: Mapping[str, Parameter]) -> str | None:
    """Describe what is wrong with the name or type of a value, or return None."""
    if name not in declared:
        near = difflib.get_close_matches(name, declared, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        return f"unknown parameter {name!r}{hint} The parameters are: {', '.join(declared)}"
    expected = declared[name].type
    if _fits(value, expected):
        return None
    raw = "; papermill's `-r` passes the value as a string" if expected == "str" else ""
    return f"{name} is {value!r} ({type(value).__name__}); expected {expected}{raw}"


def _invalid(values: Mapping[str, Any], once: Once) -> list[str]:
    """Return the messages of all failed checks."""
    problems = []
    for name, check in CHECKS.items():
        if name in values:
            try:
                once(check, values[name])
            except (ValueError, OSError) as error:
                problems.append(str(error))
    return problems


def _secret(given: Mapping[str, Any], once: Once) -> list[str]:
    """Return the messages of all values that hold a secret."""
    secrets = once(known_secrets)
    return [
        f"{name} holds {', '.join(kinds)}; parameters are in the names of pages, in records and "
        "in the book. Give what does not, or rename the folder"
        for name, value in given.items()
        if (kinds := secrets.kinds(str(value)))
    ]


def typed_parameters(declared: Mapping[str, Parameter], given: Mapping[str, str]) -> dict[str, Any]:
    """Convert strings from the command line to the types that a notebook declares.

    Raises:
        ParameterError: a value that cannot be converted.
    """
    typed: dict[str, Any] = {}
    for name, text in given.items():
        kind = declared[name].type if name in declared else "str"
        try:
            typed[name] = _READERS[kind](text)
        except (ValueError, KeyError):
            raise ParameterError(f"{name} is {text!r}; expected {kind}") from None
    return typed


def read_config(file: Path) -> dict[str, Any]:
    """Return the parameters in a TOML, YAML or JSON file, by name.

    Raises:
        ParameterError: not such a file, or not a table of parameters.
    """
    import yaml

    text = file.read_text(encoding="utf-8")
    try:
        values = tomllib.loads(text) if file.suffix == ".toml" else yaml.safe_load(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise ParameterError(f"{file}: cannot be read ({error})") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ParameterError(f"{file}: expected parameters as `name: value`")
    return values


def _fits(value: Any, type_name: str) -> bool:
    if isinstance(value, bool) and type_name != "bool":
        return False
    return isinstance(value, _TYPES[type_name])
