"""Read and check the parameters that a notebook declares in its parameters cell.

The cell declares one parameter per line, ``name: type = value  # help``. papermill's ``-p``
sets parameters, and the command line derives its options from them. This module reads a
notebook as plain JSON, so that ``--help`` stays fast.

Parameters of a name mean the same in all notebooks: `CHOICES` has those whose values can be
listed, `MINIMUM` the numbers with a lower bound, and `CHECKS` all of them. A check takes the
value and raises ``ValueError`` or ``OSError`` with what is expected. Modules that load numpy are
imported inside the checks that need them.
"""

from __future__ import annotations

import ast
import difflib
import json
import logging
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from qwen3nb import paths
from qwen3nb.analysis.stats.multiple_testing import CORRECTIONS
from qwen3nb.models.modeling.dtypes import DTYPES
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.rerankers.prompt_template import TEMPLATES
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.secrets import known_secrets

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


log = logging.getLogger(__name__)
CHOICES: dict[str, tuple[str, ...]] = {
    "average": ("last", "best"),
    "correction": tuple(CORRECTIONS),
    "dtype": tuple(DTYPES),
    "pooling": ("auto", *POOLINGS),
    "template": ("auto", *TEMPLATES),
    "tier": tuple(TIERS),
}

MINIMUM: dict[str, int] = {
    "batch_size": 1,
    "batch_tokens": 0,
    "count": 1,
    "depth": 1,
    "k": 1,
    "limit": 0,
    "max_length": 0,
    "rounds": 1,
    "seed": 0,
    "texts": 1,
}


_OF_TRANSFORMERS = {"pooling", "max_length", "prefix", "append_eos", "bidirectional"}
_WITHOUT_EFFECT = {"bm25": {*_OF_TRANSFORMERS, "dimensions"}, "random": _OF_TRANSFORMERS}


def _expect(holds: Callable[[Any], object], otherwise: str) -> Callable[[Any], object]:
    """Return the check of what must hold of a value, which the message shows."""

    def check(value: Any) -> None:
        if not holds(value):
            raise ValueError(otherwise.format(value))

    return check


def _at_least(name: str, minimum: int) -> Callable[[Any], object]:
    expected = "0 or more" if minimum == 0 else f"at least {minimum}"
    return _expect(lambda value: value >= minimum, f"{name} is {{}}; expected {expected}")


def _split(value: str) -> list[str]:
    return [each.strip() for each in value.split(",")]


def _numbers(name: str, minimum: int) -> Callable[[str], object]:
    check = _at_least(name, minimum)
    return lambda value: [check(int(each)) for each in _split(value)]


def _choice(name: str, value: str) -> str:
    return one_of(name, value, CHOICES[name])


def _choices(name: str, choices: Iterable[str]) -> Callable[[str], object]:
    return lambda value: [one_of(name, each, choices) for each in _split(value)]


def _model(value: str) -> None:
    from qwen3nb.models.kinds.prompts import prompt_warning
    from qwen3nb.models.kinds.resolve import find_source

    if warning := prompt_warning(find_source(value)):
        log.warning(warning)  # at the terminal; the notebook's own is on its page


def _training(value: str) -> None:
    from qwen3nb.models.kinds.resolve import find_training

    find_training(value)


def _indexes(value: str) -> None:
    from qwen3nb.models.search.faiss_index import FAMILIES

    _choices("index", FAMILIES)(value)


def _writable(value: str) -> None:
    folder = Path(value or paths.results()).expanduser()
    nearest = next(each for each in (folder, *folder.resolve().parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ValueError(
            f"output_dir {value!r} cannot be written to: {nearest} is not a writable folder"
        )


def _task_names(names: list[str]) -> None:
    """Check names of MTEB tasks; those of a tier are known without loading MTEB, for seconds."""
    known = {name for tier in TIERS.values() for name in tier.tasks}
    if unknown := [each for each in names if each not in known]:
        _mteb_select(names=unknown)


def _mteb_select(**selected: Any) -> object:
    """Check a selection of MTEB's tasks."""
    from qwen3nb.evaluation.mteb.select import select_tasks

    return select_tasks(**selected)


def _mteb_tasks(value: str) -> None:
    """Check names of MTEB tasks; data sets of the mirror, with a slash, are resolved later."""
    from qwen3nb.evaluation.mteb.select import ALL

    _task_names([each for each in _split(value) if each and "/" not in each and each != ALL])


def _data(value: str) -> None:
    """Check folders and names of MTEB tasks."""
    names = [each for each in _split(value) if not Path(each).expanduser().is_dir()]
    if lost := [each for each in names if "/" in each]:
        raise ValueError(
            f"data {lost[0]!r}: no such folder. A data set of ir_datasets is first written to one, "
            "in BEIR's format: corpus.jsonl (_id, title, text), queries.jsonl (_id, text) and "
            "qrels/test.tsv (query-id, corpus-id, score)"
        )
    _task_names(names)


def _first_stage(value: str) -> None:
    for each in _split(value):
        if each not in ("bm25", "given") and not Path(each).is_file():
            _model(each)


CHECKS: dict[str, Callable[[Any], object]] = {
    **{name: partial(_choice, name) for name in CHOICES},
    **{name: _at_least(name, minimum) for name, minimum in MINIMUM.items()},
    **{name: _numbers(name, 1) for name in ("averages", "ef_search", "nprobe", "rescore")},
    # Of one model a number; of several that are compared, a list.
    "dimensions": lambda value: (
        _numbers("dimensions", 1) if isinstance(value, str) else _at_least("dimensions", 0)
    )(value),
    "threads": _numbers("threads", 0),
    "poolings": _choices("pooling", POOLINGS),
    "checkpoint": _model,
    "training": _training,
    "adapter": _expect(
        lambda value: not value or (Path(value).expanduser() / "adapter_config.json").is_file(),
        "adapter {!r}: no folder with adapter_config.json",
    ),
    "indexes": _indexes,
    "data": _data,
    "first_stage": _first_stage,
    "tasks": _mteb_tasks,
    "types": lambda value: value and _mteb_select(types=_split(value)),
    "benchmark": lambda value: value and _mteb_select(benchmark=value),
    "device": _expect(
        lambda value: re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value),
        "unknown device {!r}; choose one of auto, cpu, mps, cuda, cuda:N",
    ),
    "output_dir": _writable,
    "outputs": _expect(
        lambda value: not value or Path(value).expanduser().is_dir(), "outputs {!r}: no such folder"
    ),
    "alpha": _expect(lambda value: 0 < value < 1, "alpha is {}; expected between 0 and 1"),
}


class Memo:
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
    declared: Mapping[str, Parameter], given: Mapping[str, Any], *, once: Memo | None = None
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
    once = once or Memo()
    problems = problems or [*_invalid(values, once), *_secret(given, once)]
    defaults = {name: parameter.default for name, parameter in declared.items()}
    if problems := problems or _without_effect(values, defaults, once):
        raise ParameterError("\n".join(problems))
    return values


def _mistyped(name: str, value: Any, declared: Mapping[str, Parameter]) -> str | None:
    """Describe what is wrong with the name or type of a value, or return None."""
    if name not in declared:
        near = difflib.get_close_matches(name, declared, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        return f"unknown parameter {name!r}{hint} The parameters are: {', '.join(declared)}"
    expected = declared[name].type
    if type(value) in _TYPES[expected]:
        return None
    raw = "; papermill's `-r` passes the value as a string" if expected == "str" else ""
    return f"{name} is {value!r} ({type(value).__name__}); expected {expected}{raw}"


def _invalid(values: Mapping[str, Any], once: Memo) -> list[str]:
    """Return the messages of all failed checks."""
    problems = []
    for name, check in CHECKS.items():
        if name in values:
            try:
                once(check, values[name])
            except (ValueError, OSError) as error:
                problems.append(str(error))
    return problems


def _secret(given: Mapping[str, Any], once: Memo) -> list[str]:
    """Return the messages of all values that hold a secret."""
    secrets = once(known_secrets)
    return [
        f"{name} holds {', '.join(kinds)}; parameters are in the names of pages, in records and "
        "in the book. Give what does not, or rename the folder"
        for name, value in given.items()
        if (kinds := secrets.kinds(str(value)))
    ]


def _without_effect(
    values: Mapping[str, Any], defaults: Mapping[str, Any], once: Memo
) -> list[str]:
    """Say which values the checkpoint would ignore: its page would promise what is not so."""
    from qwen3nb.models.kinds.resolve import find_source

    given = {name for name, default in defaults.items() if values[name] != default}
    if "checkpoint" not in values or not given & _WITHOUT_EFFECT["bm25"]:
        return []
    source = once(find_source, values["checkpoint"])
    parts = [_WITHOUT_EFFECT.get(each.kind.name, set()) for each in source.parts or (source,)]
    return [
        f"{name} is {values[name]!r}, which {source.spec} has no use for; "
        f"leave it at {defaults[name]!r}"
        for name in defaults
        if name in given and all(name in part for part in parts)
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
