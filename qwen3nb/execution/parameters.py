"""Read and check the parameters that a notebook declares in its parameters cell.

The cell declares one parameter per line, ``name: type = value  # help``. papermill's ``-p`` sets
parameters, and the command line derives its options from them. Notebooks are read as plain JSON,
which keeps ``--help`` fast.

Parameters of one name have the same meaning in all notebooks: `CHOICES` lists allowed values,
`MINIMUM` lower bounds of numbers, and `check_value` checks both. Modules that load numpy are
imported inside the checks that need them.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from qwen3nb.analysis.stats.multiple_testing import CORRECTIONS
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.types import CACHED, DTYPES, TEMPLATE_NAMES
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import one_of, split_names
from qwen3nb.utils.secrets import known_secrets
from qwen3nb.utils.strict_json import parse_toml

if TYPE_CHECKING:
    from qwen3nb.models.kinds.source import Source

P = ParamSpec("P")
T = TypeVar("T")

# By name of a type: types of its values, and the parser for the command line.
_TYPES: dict[str, tuple[tuple[type, ...], Callable[[str], Any]]] = {
    "str": ((str,), str),
    "int": ((int,), int),
    "float": ((float, int), float),
    "bool": ((bool,), {"True": True, "False": False}.__getitem__),
}
_PYTHON = {"display_name": "Python 3", "name": "python3"}
_NARROWING = ("types", "languages", "splits", "subsets")  # of tasks
# Parameters without effect on a model without weights.
_OF_WEIGHTS = ("pooling", "max_length", "prefix", "prompts", "append_eos", "bidirectional")
CHOICES: dict[str, tuple[str, ...]] = {
    "average": ("last", "best"),
    "better": ("auto", "lower", "higher"),
    "correction": tuple(CORRECTIONS),
    "dtype": tuple(DTYPES),
    "cache_dtype": CACHED,
    "pooling": ("auto", *POOLINGS),
    "prompts_by": ("client", "server"),
    "template": ("auto", *TEMPLATE_NAMES),
    "tier": tuple(TIERS),
}

MINIMUM: dict[str, int] = {
    **dict.fromkeys(("averages", "batch_size", "count", "depth", "ef_search", "k"), 1),
    **dict.fromkeys(("nprobe", "rounds", "texts"), 1),
    **dict.fromkeys(("batch_tokens", "dimensions", "limit", "max_length"), 0),
    **dict.fromkeys(("queries", "seed", "threads"), 0),
}


def check_value(name: str, value: Any) -> None:
    """Raise ValueError or OSError for an invalid value of a parameter; lists have commas."""
    from qwen3nb.models.kinds.prompts import names_prompt_set, parse_prompts, read_prompts
    from qwen3nb.models.kinds.resolve import find_training

    listed = [each.strip() for each in value.split(",")] if isinstance(value, str) else [value]
    path = Path(value).expanduser() if isinstance(value, str) and value else None
    if name in CHOICES:
        one_of(name, value, CHOICES[name])
    elif name in MINIMUM:
        for number in map(int, listed):
            if number < MINIMUM[name]:
                raise ValueError(f"{name} is {number}; expected at least {MINIMUM[name]}")
    elif name == "poolings":
        for each in listed:
            one_of("pooling", each, POOLINGS)
    elif name == "indexes":
        from qwen3nb.models.search.faiss_index import FAMILIES

        for each in listed:
            one_of("index", each, FAMILIES)
    elif name == "prompts":
        (read_prompts if names_prompt_set(value) else parse_prompts)(value)
    elif name == "training":
        find_training(value)
    elif name == "adapter" and path and not (path / "adapter_config.json").is_file():
        raise ValueError(f"adapter {value!r}: no folder with adapter_config.json")
    elif name == "outputs" and path and not path.is_dir():
        raise ValueError(f"outputs {value!r}: no such folder")
    elif name == "output_dir" and path:
        nearest = next(each for each in (path, *path.resolve().parents) if each.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            raise ValueError(f"output_dir {value!r} cannot be written to")
    elif name == "data":
        _check_data(listed)
    elif name in ("tasks", "types", "benchmark") and value:
        _check_selection(name, value)
    elif name == "device" and not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
        raise ValueError(f"unknown device {value!r}; choose one of auto, cpu, mps, cuda, cuda:N")
    elif name == "alpha" and not 0 < value < 1:
        raise ValueError(f"alpha is {value}; expected between 0 and 1")


def _check_models(values: Mapping[str, Any], declared: Mapping[str, Parameter]) -> None:
    """Refuse unknown models, and parameters without effect on a model."""
    from qwen3nb.models.kinds.resolve import find_source

    if "checkpoint" in values:
        source = model_of(values)
        parts = source.parts or (source,)
        idle = [name for name in _OF_WEIGHTS if all(part.kind.weightless for part in parts)]
        for name in idle + ["dimensions"] * all(part.kind.searches for part in parts):
            if name in declared and values[name] != declared[name].default:
                raise ValueError(
                    f"{name} {values[name]!r} has no effect on {source.spec}; leave it out"
                )
    for each in map(str.strip, values.get("first_stage", "").split(",")):
        if each not in ("", "bm25", "given") and not Path(each).is_file():
            once(find_source, each)


def _check_narrowed(values: Mapping[str, Any]) -> None:
    """Refuse a selection without tasks, such as a language that none of them has."""
    if not values.get("data") and any(values.get(name) for name in _NARROWING):
        from qwen3nb.evaluation.mteb.select import choose_tasks

        names = ("tier", "tasks", "benchmark", *_NARROWING)
        once(choose_tasks, **{name: values[name] for name in names if name in values})


def check_baseline(values: Mapping[str, Any], declared: Mapping[str, Parameter]) -> None:
    """Refuse a baseline without a record; checked when a run begins, not when it is planned."""
    baseline = values.get("baseline")
    if not baseline or declared["baseline"].default:  # a lesson evaluates its own baseline
        return
    from qwen3nb.records.store import load_results

    records = load_results(values.get("output_dir") or None, adapters=False, whole=False)
    labels = sorted({each.model.label for each in records})
    try:
        one_of("baseline", re.sub(r" \(.*\)$", "", baseline), labels)  # without its seed
    except ValueError as error:
        raise ParameterError(str(error)) from None


def model_of(values: Mapping[str, Any]) -> Source:
    """Return the source of the model in the parameters of a notebook, or raise SpecError."""
    from qwen3nb.models.kinds.resolve import find_source

    return once(find_source, values["checkpoint"], base=values.get("base"))


def _check_data(names: list[str]) -> None:
    """Check folders and names of MTEB tasks."""
    tasks = [each for each in names if not Path(each).expanduser().is_dir()]
    if lost := [each for each in tasks if "/" in each]:
        raise ValueError(
            f"data {lost[0]!r}: no such folder. A data set of ir_datasets is first written to one, "
            "in BEIR's format: corpus.jsonl (_id, title, text), queries.jsonl (_id, text) and "
            "qrels/test.tsv (query-id, corpus-id, score)"
        )
    _check_tasks(tasks)


def _check_selection(name: str, value: str) -> None:
    from qwen3nb.evaluation.mteb.select import ALL, choose_tasks

    listed = split_names(value)
    if name == "tasks":  # data sets in the mirror (with a slash) are resolved later
        _check_tasks([each for each in listed if "/" not in each and each != ALL])
    elif name == "types":
        choose_tasks(types=listed)
    else:
        choose_tasks(benchmark=value)


def _check_tasks(names: list[str]) -> None:
    """Check names of MTEB tasks; those of a tier are known without loading MTEB."""
    known = {name for tier in TIERS.values() for name in tier.tasks}
    if unknown := [each for each in names if each not in known]:
        from qwen3nb.evaluation.mteb.select import choose_tasks

        choose_tasks(tasks=unknown)


_results: ContextVar[dict[tuple[Any, ...], Any] | None] = ContextVar("results", default=None)


@contextmanager
def one_pass() -> Iterator[None]:
    """Cache the results of `once` within the block; later, their sources may have changed."""
    token = _results.set({})
    try:
        yield
    finally:
        _results.reset(token)


def once(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Return ``function(*args, **options)``, cached within a `one_pass`."""
    results = _results.get()
    if results is None:
        return function(*args, **options)
    key = (function, args, *options.items())
    if key not in results:
        results[key] = function(*args, **options)
    result: T = results[key]
    return result


class ParameterError(click.ClickException, ValueError):
    """Invalid notebook parameters; the message says what is valid.

    It is a ``ClickException``: papermill's command line prints it without a traceback.
    """

    exit_code = 2


@dataclass(frozen=True)
class Parameter:
    """A declared parameter."""

    name: str  # name of the parameter
    type: str  # ``str``, ``int``, ``float`` or ``bool``
    default: Any  # the default value
    help: str = ""  # the comment after it


def read_parameters(notebook: Path) -> dict[str, Parameter]:
    """Return the parameters that a notebook file declares, by name; errors name the file."""
    try:
        return declared_parameters(read_notebook(notebook))
    except ParameterError as error:
        raise ParameterError(f"{notebook}: {error.message}") from None


def declared_parameters(notebook: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return the parameters that a notebook declares, by name; empty without a parameters cell.

    Raises ParameterError if several cells are tagged ``parameters``, or a line in one is not
    ``name: type = literal``.
    """
    cells = [c for c in notebook["cells"] if "parameters" in c["metadata"].get("tags", ())]
    if len(cells) > 1:
        raise ParameterError(f"expected one cell tagged 'parameters'; got {len(cells)}")
    source = "".join(map(cell_source, cells))
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
    """Return the JSON of a notebook file; raise ParameterError unless it is of format 4."""
    try:
        content = json.loads(notebook.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ParameterError(f"{notebook} is not a notebook: {error}") from None
    if not isinstance(content, dict) or "cells" not in content:
        raise ParameterError(f"{notebook} is not a notebook of format 4; it has no cells")
    complete(content)
    return content


def complete(notebook: Any) -> None:
    """Add the metadata of this package's notebooks to a custom notebook, in place.

    It depends on the records if it loads them; its language is Python by default.
    """
    metadata = notebook.setdefault("metadata", {})
    if "qwen3nb" not in metadata:
        reads = any("load_results" in cell_source(cell) for cell in notebook["cells"])
        metadata["qwen3nb"] = {"reads": "results"} if reads else {}
    language = metadata.get("language_info", {}).get("name", "python")
    kernel = {**_PYTHON, "language": language}
    metadata["kernelspec"] = kernel | metadata.get("kernelspec", {})


def cell_source(cell: Mapping[str, Any]) -> str:
    """Return the source of a cell, which may be stored as a list of lines."""
    return "".join(cell["source"])


def check_parameters(declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all declared parameters, with defaults, including the default model.

    Unknown names, wrong types and invalid choices are in one ParameterError.
    """
    if not (problems := _mistyped(given, declared)):
        values = {name: given.get(name, parameter.default) for name, parameter in declared.items()}
        if values.get("checkpoint") == "":
            from qwen3nb.models.kinds.resolve import default_model

            values["checkpoint"] = once(default_model)[0]
        for name, value in values.items():
            try:
                once(check_value, name, value)
            except (ValueError, OSError) as error:
                problems.append(str(error))
        try:
            _check_models(values, declared)
            if not problems:
                _check_narrowed(values)
        except (ValueError, OSError) as error:
            problems.append(str(error))
        problems += _secret(given)
    if problems:
        raise ParameterError("\n".join(problems))
    return values


def _mistyped(given: Mapping[str, Any], declared: Mapping[str, Parameter]) -> list[str]:
    """Return messages on wrong names and types of values."""
    problems = []
    for name, value in given.items():
        if name not in declared:
            near = difflib.get_close_matches(name, declared, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            known = ", ".join(declared) or "none: no cell of the notebook is tagged 'parameters'"
            problems.append(f"unknown parameter {name!r}{hint} The parameters are: {known}")
        elif type(value) not in _TYPES[expected := declared[name].type][0]:
            raw = "; papermill's `-r` passes the value as a string" if expected == "str" else ""
            kind = type(value).__name__
            problems.append(f"{name} is {value!r} ({kind}); expected {expected}{raw}")
    return problems


def _secret(given: Mapping[str, Any]) -> list[str]:
    """Return messages on values that contain a secret."""
    secrets = once(known_secrets)
    return [
        f"{name} contains {', '.join(kinds)}; parameters appear in names of pages, in records and "
        "in the book. Use another value, or rename the folder"
        for name, value in given.items()
        if (kinds := secrets.kinds(str(value)))
    ]


def typed_parameters(declared: Mapping[str, Parameter], given: Mapping[str, str]) -> dict[str, Any]:
    """Convert strings from the command line to declared types, or raise ParameterError."""
    typed: dict[str, Any] = {}
    for name, text in given.items():
        kind = declared[name].type if name in declared else "str"
        try:
            typed[name] = _TYPES[kind][1](text)
        except (ValueError, KeyError):
            raise ParameterError(f"{name} is {text!r}; expected {kind}") from None
    return typed


def read_config(file: Path) -> dict[str, Any]:
    """Return the parameters in a TOML, YAML or JSON file, or raise ParameterError."""
    import yaml

    try:
        text = file.read_text(encoding="utf-8")
        values = parse_toml(text) if file.suffix == ".toml" else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ParameterError(f"{file}: cannot be read ({error})") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ParameterError(f"{file}: expected parameters as `name: value`")
    return values
