"""The parameters of a notebook: declared once, in its parameters cell, and checked."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import nbformat

from qwen3nb.execution.parameter_checks import CHECKS

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


def _fits(value: Any, type_name: str) -> bool:
    if isinstance(value, bool) and type_name != "bool":
        return False
    return isinstance(value, _TYPES[type_name])
