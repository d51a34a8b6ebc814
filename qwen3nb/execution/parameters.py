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
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from qwen3nb.analysis.stats.multiple_testing import CORRECTIONS
from qwen3nb.execution.study_paths import at_root, in_study
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
TEXT_NOTEBOOKS = (".md", ".Rmd", ".qmd", ".py", ".R", ".jl")  # suffixes of notebooks as text
_HEAD = 4000  # characters of a file in which it says that it is a notebook
_PARAMETER_TAGS = {"parameters", "injected-parameters"}
# Ways to read a parameter without writing its name.
_READS_BY_NAME = re.compile(
    r"\b(globals|locals|vars|eval|exec|get_ipython)\(|^%run\b", re.MULTILINE
)
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
    **dict.fromkeys(("nprobe", "relevance_threshold", "rounds", "texts"), 1),
    **dict.fromkeys(("batch_tokens", "dimensions", "limit", "max_length"), 0),
    **dict.fromkeys(("queries", "seed", "threads"), 0),
}


def check_value(name: str, value: Any) -> None:
    """Raise ValueError or OSError for an invalid value of a parameter; lists have commas."""
    from qwen3nb.models.kinds.prompts import names_prompt_set, parse_prompts, read_prompts
    from qwen3nb.models.kinds.resolve import find_training

    listed = [each.strip() for each in value.split(",")] if isinstance(value, str) else [value]
    path = at_root(value) if isinstance(value, str) and value else None
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
        if each not in ("", "bm25", "given") and not at_root(each).is_file():
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

    folder = at_root(values["output_dir"]) if values.get("output_dir") else None
    records = load_results(folder, adapters=False, whole=False)
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
    tasks = [each for each in names if not at_root(each).is_dir()]
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
    content = read_notebook(notebook)
    try:
        return declared_parameters(content)
    except ParameterError as error:
        raise ParameterError(f"{notebook}: {error.message}") from None


def declared_parameters(notebook: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return the parameters that a notebook declares, by name; empty without a parameters cell.

    Magics are ignored.

    Raises ParameterError if several cells are tagged ``parameters``, they are not Python, or a line
    is not ``name: type = literal``.
    """
    cells = [cell for cell in notebook["cells"] if "parameters" in cell_tags(cell)]
    if len(cells) > 1:
        raise ParameterError(f"expected one cell tagged 'parameters'; got {len(cells)}")
    if not cells:
        return {}
    if not is_python(notebook):
        raise ParameterError(
            f"its parameters are in {notebook_language(notebook)}; expected Python. "
            "`papermill NOTEBOOK OUTPUT` runs it without a page"
        )
    source = cell_source(cells[0])
    statements = parsed_cell(source)
    if statements is None:
        raise ParameterError("its parameters cell is not Python; expected `name: type = value`")
    declared = (_parameter(node, source.splitlines()) for node in statements)
    return {parameter.name: parameter for parameter in declared}


def parsed_cell(source: str) -> list[ast.stmt] | None:
    """Return the statements of a code cell without IPython's magics; None if it is not Python."""
    for text in (source, _without_magics(source)):
        with suppress(SyntaxError, ValueError, RecursionError):
            return ast.parse(text).body
    return None


def _without_magics(source: str) -> str:
    """Blank the lines that are IPython's: ``%magic``, ``!command``, ``?help`` and ``help?``."""
    lines = []
    continued = False
    for line in source.split("\n"):
        text = line.strip()
        magic = continued or text.startswith(("%", "!", "?")) or text.endswith("?")
        continued = magic and text.endswith("\\")
        lines.append("" if magic else line)
    return "\n".join(lines)


def _parameter(node: ast.stmt, lines: list[str]) -> Parameter:
    refusal = ParameterError(
        f"expected a typed parameter, `name: type = value`; got `{ast.unparse(node):.200}`"
    )
    if (
        not isinstance(node, ast.AnnAssign)
        or not isinstance(node.target, ast.Name)
        or node.value is None
        or node.end_lineno is None
    ):
        raise refusal
    try:
        default = ast.literal_eval(node.value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise refusal from None
    kind = ast.unparse(node.annotation)
    if kind not in _TYPES or type(default) not in _TYPES[kind][0]:
        raise refusal
    behind = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
    comment = behind.strip().removeprefix("#").strip()
    return Parameter(name=node.target.id, type=kind, default=default, help=comment)


def notebook_title(notebook: Path) -> str:
    """Return the first heading of a notebook file, or its name."""
    cells = [
        cell for cell in read_notebook(notebook)["cells"] if cell.get("cell_type") == "markdown"
    ]
    first = cell_source(cells[0]).split("\n")[0] if cells else ""
    return first.removeprefix("# ") if first.startswith("# ") else notebook.stem


def read_notebook(notebook: Path) -> dict[str, Any]:
    """Return the JSON of a notebook file; raise ParameterError unless it is of format 4."""
    if is_text_notebook(notebook):
        raise ParameterError(
            f"{notebook} is a notebook as text; `jupytext --to ipynb {notebook}` converts it"
        )
    try:
        content = json.loads(notebook.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"{notebook} is not a notebook: {error}") from None
    if isinstance(content, dict) and "worksheets" in content:
        raise ParameterError(
            f"{notebook} is a notebook of format 3, expected 4; "
            f"`jupyter nbconvert --to notebook --inplace {notebook}` converts it"
        )
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        raise ParameterError(f"{notebook} is not a notebook of format 4; it has no cells")
    if not all(map(_is_cell, content["cells"])):
        raise ParameterError(f"{notebook} is not a notebook; a cell is not one of format 4")
    complete(content)
    return content


def _is_cell(cell: object) -> bool:
    """Return whether a value of JSON is a cell: with a type, and with a source of text."""
    if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
        return False
    source = cell.get("source", "")
    lines = source if isinstance(source, list) else [source]
    return all(isinstance(line, str) for line in lines)


def complete(notebook: Any) -> None:
    """Add the metadata of this package's notebooks to a custom notebook, in place.

    It depends on the records if it loads them; its language is Python by default.
    """
    if not isinstance(notebook.get("metadata"), dict):
        notebook["metadata"] = {}
    metadata = notebook["metadata"]
    for cell in notebook["cells"]:
        cell.setdefault("source", "")
        if not isinstance(cell.get("metadata"), dict):
            cell["metadata"] = {}
    if not isinstance(metadata.get("qwen3nb"), dict):
        reads = any("load_results" in cell_source(cell) for cell in notebook["cells"])
        metadata["qwen3nb"] = {"reads": "results"} if reads else {}
    language = _named(metadata.get("language_info")).get("name", "python")
    kernel = {**_PYTHON, "language": language}
    metadata["kernelspec"] = kernel | _named(metadata.get("kernelspec"))


def _named(value: object) -> dict[str, Any]:
    """Return an object of JSON without values that are not text; empty for any other value."""
    fields = value if isinstance(value, dict) else {}
    return {name: text for name, text in fields.items() if isinstance(text, str)}


def notebook_language(notebook: Mapping[str, Any]) -> str:
    """Return the language of a notebook's kernel, as its metadata name it; Python by default."""
    metadata = notebook.get("metadata") or {}
    language = _named(metadata.get("language_info")).get("name", "python")
    return str(_named(metadata.get("kernelspec")).get("language", language))


def is_python(notebook: Mapping[str, Any]) -> bool:
    """Return whether a notebook's cells are Python."""
    return notebook_language(notebook).lower() in ("python", "python3", "ipython")


def is_text_notebook(file: Path) -> bool:
    """Return whether a file is a notebook as text, such as jupytext's ``.md`` and ``.py``.

    It names jupytext or a kernel above its text, or marks its cells by ``# %%``.
    """
    if file.suffix not in TEXT_NOTEBOOKS or not file.is_file():
        return False
    with file.open(encoding="utf-8", errors="replace") as lines:
        head = lines.read(_HEAD)
    if file.suffix in (".md", ".Rmd", ".qmd"):
        front = head.lstrip("\ufeff").startswith("---\n")
        return front and bool(re.search(r"(?m)^(jupyter|jupytext|kernelspec):", head))
    return bool(re.search(r"(?m)^# (%%|jupyter:|\+ *(\{|\[|$))|^# +jupytext:", head))


def cell_source(cell: Mapping[str, Any]) -> str:
    """Return the source of a cell, which may be stored as a list of lines."""
    return "".join(cell.get("source") or "")


def cell_tags(cell: Mapping[str, Any]) -> set[str]:
    """Return the tags of a cell."""
    tags = (cell.get("metadata") or {}).get("tags")
    return {tag for tag in tags if isinstance(tag, str)} if isinstance(tags, list) else set()


def unread_parameters(
    notebook: Mapping[str, Any], declared: Mapping[str, Parameter]
) -> dict[str, str]:
    """Return the parameters without effect, by name, and what happens to each instead.

    They are those that no cell reads, or that a cell overwrites before it is read. None if the
    notebook reads names in other ways, as by ``globals()`` or ``%run``.
    """
    cells = [
        cell
        for cell in notebook["cells"]
        if cell.get("cell_type") == "code" and not _PARAMETER_TAGS & cell_tags(cell)
    ]
    left = dict.fromkeys(declared, "no cell reads it")
    overwritten: dict[str, str] = {}
    if not is_python(notebook):
        return {}
    for cell in cells:
        source = cell_source(cell)
        statements = parsed_cell(source)
        if statements is None or _READS_BY_NAME.search(source):
            return {}
        magics = set(re.findall(r"\w+", _magics(source)))
        for name in magics & left.keys():
            del left[name]
        for statement in statements:
            read, stored = _names(statement)
            for name in read & left.keys():
                del left[name]
            for name in stored & left.keys():
                overwritten[name] = "a cell sets it before it is read"
                del left[name]
    return {name: (left | overwritten)[name] for name in declared if name in left | overwritten}


def _magics(source: str) -> str:
    """Return the lines of a cell that are IPython's, not Python's."""
    python = _without_magics(source).split("\n")
    lines = zip(source.split("\n"), python, strict=True)
    return "\n".join(line for line, kept in lines if line != kept)


def _names(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the names that a statement reads, and those that it sets without a condition."""
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    read = {name.id for name in names if not isinstance(name.ctx, ast.Store)}
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        read.add(statement.target.id)
    plain = isinstance(statement, ast.Assign | ast.AnnAssign)
    stored = {name.id for name in names if plain and isinstance(name.ctx, ast.Store)}
    return read, stored


def unread_text(notebook: Mapping[str, Any], declared: Mapping[str, Parameter]) -> str:
    """Return a warning about parameters without effect; empty if there are none."""
    unread = unread_parameters(notebook, declared)
    listed = "; ".join(f"{name}: {reason}" for name, reason in unread.items())
    return f"warning: parameters without effect: {listed}" if listed else ""


def check_parameters(declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all declared parameters, with defaults, including the default model.

    Paths are relative to the study; see `qwen3nb.execution.study_paths`.

    Unknown names, wrong types and invalid choices are in one ParameterError.
    """
    if not (problems := _mistyped(given, declared)):
        located = in_study(given)
        values = {
            name: located.get(name, parameter.default) for name, parameter in declared.items()
        }
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
