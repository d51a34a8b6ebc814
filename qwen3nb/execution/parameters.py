"""Read and check the parameters that a notebook declares in its parameters cell.

The cell declares one parameter per line, ``name: type = value  # help``. papermill's ``-p`` sets
parameters, and the command line derives its options from them. Notebooks are read as plain JSON,
which keeps ``--help`` fast.

Parameters of one name have the same meaning in all notebooks: `RULES` says what each accepts, for
the options of a model as `qwen3nb.models.options` declares them. Modules that load numpy are
imported inside the checks that need them.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

import click

from qwen3nb import paths
from qwen3nb.analysis.stats.multiple_testing import CORRECTIONS
from qwen3nb.execution.study_paths import NewValues, Values, path_from_root, relative_to_study
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.options import OPTIONS
from qwen3nb.models.types import (
    NEWEST,
    NEWEST_ADAPTER,
    NEWEST_EXPORT,
    NEWEST_TRAINING,
    TEMPLATE_NAMES,
    SpecError,
)
from qwen3nb.tiers import TIERS
from qwen3nb.utils.bounded_files import FileBoundError, read_bounded_text
from qwen3nb.utils.choices import check_choice, split_names
from qwen3nb.utils.option import Option
from qwen3nb.utils.secrets import known_secrets
from qwen3nb.utils.strict_json import parse_json, parse_toml

if TYPE_CHECKING:
    from qwen3nb.models.kinds.source import Source

Notebook: TypeAlias = Mapping[str, Any]  # the JSON of a notebook, or of one of its cells
MutableNotebook: TypeAlias = MutableMapping[str, Any]
Declared: TypeAlias = Mapping[str, "Parameter"]  # by name
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class _ParameterType:
    """A type that a parameter may have."""

    classes: tuple[type, ...]  # of its values
    parse: Callable[[str], object]  # reads a value on the command line


_TYPES = {
    "str": _ParameterType((str,), str),
    "int": _ParameterType((int,), int),
    "float": _ParameterType((float, int), float),
    "bool": _ParameterType((bool,), {"True": True, "False": False}.__getitem__),
}
TEXT_NOTEBOOKS = (".md", ".Rmd", ".qmd", ".py", ".R", ".jl")  # suffixes of notebooks as text
_MARKDOWN = (".md", ".Rmd", ".qmd")  # those of them that are Markdown
_MOST_OF_NOTEBOOK = 256 << 20  # bytes
_MOST_OF_CONFIG = 1 << 20  # bytes, for which PyYAML takes half a minute
_HEAD_LENGTH = 4000  # characters of a file in which it says that it is a notebook
# A line above the text of a Markdown notebook, such as "jupyter: python3".
_NAMES_KERNEL = re.compile(r"^(jupyter|jupytext|kernelspec):", re.MULTILINE)
# The first line of a cell in a script, such as "# %%" or "# + [markdown]", or jupytext's settings.
_MARKS_CELLS = re.compile(r"^# (%%|jupyter:|\+ *(\{|\[|$))|^# +jupytext:", re.MULTILINE)
_PARAMETER_TAGS = {"parameters", "injected-parameters"}
# Ways to read a parameter without writing its name.
_READS_BY_NAME = re.compile(
    r"\b(globals|locals|vars|eval|exec|get_ipython)\(|^%run\b", re.MULTILINE
)
_PYTHON_KERNEL = {"display_name": "Python 3", "name": "python3"}
_FILTERS_OF_TASKS = ("types", "languages", "splits", "subsets")
# Parameters without effect on a model without weights.
_OF_WEIGHTS = ("pooling", "max_length", "prefix", "prompts", "append_eos", "bidirectional")


def check_value(name: str, value: Any) -> None:
    """Raise ValueError or OSError for an invalid value of a parameter; lists have commas."""
    rule = RULES.get(name)
    if rule is not None:
        rule.validate(name, value)


def _check_prompts(prompts: str) -> None:
    from qwen3nb.models.kinds.prompts import names_prompt_set, parse_prompts, read_prompts

    if names_prompt_set(prompts):
        read_prompts(prompts)
    else:
        parse_prompts(prompts)


def _check_training(training: str) -> None:
    from qwen3nb.models.kinds.resolve import find_training

    find_training(training)


def _check_index(family: str) -> None:
    from qwen3nb.models.search.faiss_index import FAMILIES

    check_choice("index", family, FAMILIES)


def _check_adapter(folder: str) -> None:
    if folder and not (path_from_root(folder) / "adapter_config.json").is_file():
        raise ValueError(f"adapter {folder!r}: no folder with adapter_config.json")


def _check_outputs(folder: str) -> None:
    if folder and not path_from_root(folder).is_dir():
        raise ValueError(f"outputs {folder!r}: no such folder")


def _check_output_dir(folder: str) -> None:
    if not folder:
        return
    path = path_from_root(folder)
    while not path.exists():
        path = path.resolve().parent
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise ValueError(f"output_dir {folder!r} cannot be written to")


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; expected between 0 and 1")


def _check_data(data: str) -> None:
    """Check folders and names of MTEB tasks."""
    tasks = []
    for name in split_names(data):
        if path_from_root(name).is_dir():
            continue
        if "/" in name:
            raise ValueError(
                f"data {name!r}: no such folder. A data set of ir_datasets is first written to "
                "one, in BEIR's format: corpus.jsonl (_id, title, text), queries.jsonl (_id, "
                "text) and qrels/test.tsv (query-id, corpus-id, score)"
            )
        tasks.append(name)
    _check_task_names(tasks)


def _check_tasks(tasks: str) -> None:
    """Check names of MTEB tasks; data sets in the mirror, with a slash, are resolved later."""
    from qwen3nb.evaluation.mteb.select import ALL

    names = [name for name in split_names(tasks) if "/" not in name and name != ALL]
    _check_task_names(names)


def _check_types(types: str) -> None:
    from qwen3nb.evaluation.mteb.select import choose_tasks

    if types:
        choose_tasks(types=split_names(types))


def _check_benchmark(benchmark: str) -> None:
    from qwen3nb.evaluation.mteb.select import choose_tasks

    if benchmark:
        choose_tasks(benchmark=benchmark)


def _check_task(names: str) -> None:
    """Check folders of data, names of MTEB tasks, and those of tasks with records."""
    from qwen3nb.records.store import records_under

    tasks = [name for name in split_names(names) if not path_from_root(name).is_dir()]
    if not tasks:
        return
    recorded = {record.task.key for record in records_under(paths.results(), whole=False)}
    _check_task_names([name for name in tasks if name not in recorded])


def _check_task_names(names: Sequence[str]) -> None:
    """Check names of MTEB tasks; those of a tier are known by themselves."""
    of_tiers = {task for tier in TIERS.values() for task in tier.tasks}
    unknown = [name for name in names if name not in of_tiers]
    if unknown:
        from qwen3nb.evaluation.mteb.select import check_task_names

        check_task_names(unknown)


_POSITIVE = Option(minimum=1, takes_list=True)
_NOT_NEGATIVE = Option(minimum=0, takes_list=True)
# By name of a parameter, what it accepts.
RULES: Mapping[str, Option] = {
    **OPTIONS,
    "adapter": Option(check=_check_adapter),
    "alpha": Option(check=_check_alpha),
    "average": Option(choices=("last", "best")),
    "averages": _POSITIVE,
    "batch_tokens": _NOT_NEGATIVE,
    "benchmark": Option(check=_check_benchmark),
    "better": Option(choices=("auto", "lower", "higher")),
    "correction": Option(choices=tuple(CORRECTIONS)),
    "count": _POSITIVE,
    "data": Option(check=_check_data),
    "depth": _POSITIVE,
    "dimensions": _NOT_NEGATIVE,
    "ef_search": _POSITIVE,
    "indexes": Option(takes_list=True, check=_check_index),
    "k": _POSITIVE,
    "limit": _NOT_NEGATIVE,
    "nprobe": _POSITIVE,
    "output_dir": Option(check=_check_output_dir),
    "outputs": Option(check=_check_outputs),
    "poolings": Option(choices=tuple(POOLINGS), takes_list=True),
    "prompts": Option(check=_check_prompts),
    "prompts_by": Option(choices=("client", "server")),
    "queries": _NOT_NEGATIVE,
    "relevance_threshold": _POSITIVE,
    "rounds": _POSITIVE,
    "task": Option(check=_check_task),
    "tasks": Option(check=_check_tasks),
    "template": Option(plain="auto", choices=TEMPLATE_NAMES),
    "texts": _POSITIVE,
    "threads": _NOT_NEGATIVE,
    "tier": Option(choices=tuple(TIERS)),
    "training": Option(check=_check_training),
    "types": Option(check=_check_types),
}


def _check_models(values: Values, declared: Declared) -> None:
    """Refuse unknown models, and parameters without effect on a model."""
    from qwen3nb.models.kinds.resolve import find_source

    if "checkpoint" in values:
        source = model_of(values)
        # Such as a prompt for bm25.
        for name in _parameters_without_effect(source):
            if name in declared and values[name] != declared[name].default:
                raise ValueError(
                    f"{name} {values[name]!r} has no effect on {source.spec}; leave it out"
                )
        _check_use(source, values, declared)
    for stage in split_names(values.get("first_stage", "")):
        # It is bm25, the candidates given with the data, a file of candidates, or a model.
        if stage not in ("bm25", "given") and not path_from_root(stage).is_file():
            cached_call(find_source, stage)  # raises if there is no such model


def _check_use(source: Source, values: Values, declared: Declared) -> None:
    """Refuse a model that cannot do what the notebook asks of it."""
    from qwen3nb.execution.refusals import refuse_too_many_dimensions

    default = declared["checkpoint"].default
    if default == NEWEST_EXPORT and source.kind.only_searches:
        raise ValueError(f"{source.spec} {source.kind.only_searches}; name a model with vectors")
    if default == NEWEST_ADAPTER and not source.on_hub and not _ranks_pairs(source):
        source.kind.check_causal(source)  # raises: it is another kind of model
    dimensions = values.get("dimensions")
    if isinstance(dimensions, int) and dimensions:  # elsewhere it is a list to try
        refuse_too_many_dimensions(source, dimensions)


def _ranks_pairs(source: Source) -> bool:
    """Return whether a model is of a kind that says yes or no to a pair of texts."""
    return source.kind.adaptable or source.kind.adapts or source.kind.scores_pairs


def _check_study(values: Values) -> None:
    """Refuse files, models, metrics and collections that there are not."""
    from qwen3nb.execution import refusals

    refusals.refuse_missing_files(values)
    refusals.refuse_unknown_names(values)


def _parameters_without_effect(source: Source) -> list[str]:
    """Return the parameters without effect on a model."""
    parts = source.parts or (source,)
    names: list[str] = []
    if all(part.kind.weightless for part in parts):
        names += _OF_WEIGHTS
    if all(part.kind.searches for part in parts):
        names.append("dimensions")
    return names


def _check_selection(values: Values) -> None:
    """Refuse a selection without tasks, such as a language that none of them has."""
    is_narrowed = any(values.get(name) for name in _FILTERS_OF_TASKS)
    if values.get("data") or not is_narrowed:  # own data, or whole tasks
        return
    from qwen3nb.evaluation.mteb.select import choose_tasks

    names = ("tier", "tasks", "benchmark", *_FILTERS_OF_TASKS)
    selection = {name: values[name] for name in names if name in values}
    # Raises if no task is left, as for a language that none of them has.
    cached_call(choose_tasks, **selection)


def check_baseline(values: Values, declared: Declared) -> None:
    """Refuse a baseline without a record; checked when a run begins, not when it is planned."""
    baseline = values.get("baseline")
    if not baseline:
        return
    if declared["baseline"].default:  # a lesson evaluates its own baseline
        return
    from qwen3nb.records.store import records_under

    folder = None
    if values.get("output_dir"):
        folder = path_from_root(values["output_dir"])
    # Only labels are needed, so the files next to the records are not checked (whole).
    records = records_under(folder, adapters=False, whole=False)
    labels = sorted({record.model.label for record in records})
    label = re.sub(r" \(.*\)$", "", baseline)  # without the seed in "random-64 (seed 2)"
    try:
        check_choice("baseline", label, labels)
    except ValueError as error:
        raise ParameterError(str(error)) from None


def model_of(values: Values) -> Source:
    """Return the source of the model in the parameters of a notebook, or raise SpecError."""
    from qwen3nb.models.kinds.resolve import find_source

    return cached_call(find_source, values["checkpoint"], base=values.get("base"))


_results: ContextVar[dict[tuple[Any, ...], Any] | None] = ContextVar("results", default=None)


@contextmanager
def cached_calls() -> Iterator[None]:
    """Cache results of `cached_call` within the block; later, their sources may have changed."""
    token = _results.set({})
    try:
        yield
    finally:
        _results.reset(token)


def cached_call(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Return ``function(*args, **options)``, cached within a `cached_calls`."""
    results = _results.get()
    if results is None:  # not within `cached_calls`
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


def read_parameters(notebook: Path) -> Declared:
    """Return the parameters that a notebook file declares, by name; errors name the file."""
    content = read_notebook(notebook)
    try:
        return declared_parameters(content)
    except ParameterError as error:
        raise ParameterError(f"{notebook}: {error.message}") from None


def declared_parameters(notebook: Notebook) -> Declared:
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
    lines = source.splitlines()
    declared = [_parameter(statement, lines) for statement in statements]
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
    is_continued = False  # by a backslash at the end of a magic
    for line in source.split("\n"):
        text = line.strip()
        is_magic = is_continued or text.startswith(("%", "!", "?")) or text.endswith("?")
        is_continued = is_magic and text.endswith("\\")
        if is_magic:
            lines.append("")  # the others keep their numbers
        else:
            lines.append(line)
    return "\n".join(lines)


def _parameter(statement: ast.stmt, lines: Sequence[str]) -> Parameter:
    """Return the parameter that a statement of the cell declares."""
    parameter = _typed_assignment(statement, lines)
    if parameter is None:
        raise ParameterError(
            f"expected a typed parameter, `name: type = value`; got `{ast.unparse(statement):.200}`"
        )
    return parameter


def _typed_assignment(statement: ast.stmt, lines: Sequence[str]) -> Parameter | None:
    """Return the parameter in ``name: type = value  # help``; None for any other statement."""
    if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
        return None
    if statement.value is None:
        return None
    try:
        # Raises unless it is a literal, such as 3 or "fast".
        default = ast.literal_eval(statement.value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    type_name = ast.unparse(statement.annotation)
    if type_name not in _TYPES or type(default) not in _TYPES[type_name].classes:
        return None
    return Parameter(
        name=statement.target.id,
        type=type_name,
        default=default,
        help=_comment_after(statement, lines),
    )


def _comment_after(statement: ast.stmt, lines: Sequence[str]) -> str:
    """Return the comment on the line in which a statement ends; empty without one."""
    if statement.end_lineno is None or statement.end_col_offset is None:
        return ""
    last_line = lines[statement.end_lineno - 1]
    rest = last_line.encode()[statement.end_col_offset :].decode()  # the offset counts bytes
    return rest.strip().removeprefix("#").strip()


def notebook_title(notebook: Path) -> str:
    """Return the first heading of a notebook file, or its name."""
    for cell in read_notebook(notebook)["cells"]:
        if cell.get("cell_type") == "markdown":
            line = cell_source(cell).split("\n")[0]
            if line.startswith("# "):
                return line.removeprefix("# ")
            break
    return notebook.stem


def read_notebook(notebook: Path) -> Notebook:
    """Return the JSON of a notebook file; raise ParameterError unless it is of format 4."""
    if is_text_notebook(notebook):
        raise ParameterError(
            f"{notebook} is a notebook as text; `jupytext --to ipynb {notebook}` converts it"
        )
    try:
        text = read_bounded_text(notebook, most_bytes=_MOST_OF_NOTEBOOK)
        content = json.loads(text.removeprefix("\ufeff"))
    except FileBoundError as error:
        raise ParameterError(str(error)) from None
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
    add_missing_metadata(content)
    return content


def _is_cell(cell: object) -> bool:
    """Return whether a value of JSON is a cell: with a type, and with a source of text."""
    if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
        return False
    source = cell.get("source", "")
    if isinstance(source, list):
        return all(isinstance(line, str) for line in source)
    return isinstance(source, str)


def add_missing_metadata(notebook: MutableNotebook) -> None:
    """Add the metadata of this package's notebooks to a custom notebook, in place.

    It depends on the records if it loads them; its language is Python by default.
    """
    cells = notebook["cells"]
    for cell in cells:
        cell.setdefault("source", "")
        _ensure_object(cell, "metadata")
    metadata = _ensure_object(notebook, "metadata")
    # Ours state what they read; any other notebook is searched for the call that loads records.
    is_ours = isinstance(metadata.get("qwen3nb"), dict)
    facts = _ensure_object(metadata, "qwen3nb")
    if not is_ours and any("load_results" in cell_source(cell) for cell in cells):
        facts["reads"] = "results"
    language = _text_fields(metadata.get("language_info")).get("name", "python")
    kernel = {**_PYTHON_KERNEL, "language": language}
    # What the notebook itself names takes precedence.
    metadata["kernelspec"] = kernel | _text_fields(metadata.get("kernelspec"))


def _ensure_object(parent: MutableNotebook, name: str) -> MutableNotebook:
    """Return the object of JSON in a field, which becomes an empty one if it is anything else."""
    if not isinstance(parent.get(name), dict):
        parent[name] = {}
    value: MutableNotebook = parent[name]
    return value


def _text_fields(value: object) -> dict[str, str]:
    """Return the texts of an object of JSON, by name; empty for any other value."""
    if not isinstance(value, dict):
        return {}
    return {name: text for name, text in value.items() if isinstance(text, str)}


def notebook_language(notebook: Notebook) -> str:
    """Return the language of a notebook's kernel, as its metadata name it; Python by default."""
    metadata = notebook.get("metadata") or {}
    language = _text_fields(metadata.get("language_info")).get("name", "python")
    return str(_text_fields(metadata.get("kernelspec")).get("language", language))


def is_python(notebook: Notebook) -> bool:
    """Return whether a notebook's cells are Python."""
    return notebook_language(notebook).lower() in ("python", "python3", "ipython")


def is_text_notebook(file: Path) -> bool:
    """Return whether a file is a notebook as text, such as jupytext's ``.md`` and ``.py``.

    It names jupytext or a kernel above its text, or marks its cells by ``# %%``.
    """
    if file.suffix not in TEXT_NOTEBOOKS or not file.is_file():
        return False
    with file.open(encoding="utf-8", errors="replace") as text:
        head = text.read(_HEAD_LENGTH)
    if file.suffix in _MARKDOWN:
        # A byte order mark may come first, as in files of Windows.
        has_front_matter = head.lstrip("\ufeff").startswith("---\n")
        # Such as a line `jupyter: python3`.
        return has_front_matter and _NAMES_KERNEL.search(head) is not None
    # Such as a line `# %%`.
    return _MARKS_CELLS.search(head) is not None


def cell_source(cell: Notebook) -> str:
    """Return the source of a cell, which may be stored as a list of lines."""
    return "".join(cell.get("source") or "")


def cell_tags(cell: Notebook) -> set[str]:
    """Return the tags of a cell."""
    metadata = cell.get("metadata") or {}
    tags = metadata.get("tags")
    if not isinstance(tags, list):
        return set()
    return {tag for tag in tags if isinstance(tag, str)}


def unread_parameters(notebook: Notebook, declared: Declared) -> dict[str, str]:
    """Return the parameters without effect, by name, and what happens to each instead.

    They are those that no cell reads, or that a cell overwrites before it is read. None if the
    notebook reads names in other ways, as by ``globals()`` or ``%run``.
    """
    if not is_python(notebook):
        return {}
    uses: list[_NameUse] = []
    for cell in notebook["cells"]:
        if cell.get("cell_type") != "code" or _PARAMETER_TAGS & cell_tags(cell):
            continue
        source = cell_source(cell)
        statements = parsed_cell(source)
        # Any parameter may be read by such a cell, as by globals()[name].
        if statements is None or _READS_BY_NAME.search(source):
            return {}
        # A magic reads names, such as `!ls {folder}` or `%time f(limit)`.
        for name in re.findall(r"\w+", _magics(source)):
            uses.append(_NameUse(name))
        for statement in statements:
            uses += _name_uses(statement)
    first_uses: dict[str, _NameUse] = {}
    for use in uses:
        # Only the first use counts: a later `limit = 5` does not undo a read.
        first_uses.setdefault(use.name, use)
    reasons = {}
    for name in declared:
        if name not in first_uses:
            reasons[name] = "no cell reads it"
        elif first_uses[name].sets:
            reasons[name] = "a cell sets it before it is read"
    return reasons


def _magics(source: str) -> str:
    """Return the lines of a cell that are IPython's, not Python's."""
    lines = source.split("\n")
    python = _without_magics(source).split("\n")
    magics = [line for line, code in zip(lines, python, strict=True) if line != code]
    return "\n".join(magics)


@dataclass(frozen=True)
class _NameUse:
    """A place in which a notebook reads a name, or sets it without a condition."""

    name: str
    sets: bool = False


def _name_uses(statement: ast.stmt) -> list[_NameUse]:
    """Return the names that a statement reads, then those that it sets without a condition."""
    names_read: list[str] = []
    names_set: list[str] = []
    for node in ast.walk(statement):
        if not isinstance(node, ast.Name):
            continue
        if isinstance(node.ctx, ast.Store):
            names_set.append(node.id)
        else:
            names_read.append(node.id)
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        names_read.append(statement.target.id)  # `name += 1` reads the name
    uses = [_NameUse(name) for name in names_read]
    # In a loop or an `if`, the name may stay as it is.
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        uses += [_NameUse(name, sets=True) for name in names_set]
    return uses


def unread_text(notebook: Notebook, declared: Declared) -> str:
    """Return a warning about parameters without effect; empty if there are none."""
    reasons = unread_parameters(notebook, declared)
    if not reasons:
        return ""
    text = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return f"warning: parameters without effect: {text}"


def check_parameters(declared: Declared, arguments: Values) -> NewValues:
    """Return the values of all declared parameters, with defaults, including the default model.

    Paths are relative to the study; see `qwen3nb.execution.study_paths`.

    Unknown names, wrong types and invalid choices are in one ParameterError.
    """
    # Types first: the checks of values below rely on them.
    problems = _problems_of_types(declared, arguments)
    if problems:
        raise ParameterError("\n".join(problems))
    values = {name: parameter.default for name, parameter in declared.items()}
    values |= relative_to_study(arguments)
    for name, found in found_defaults(declared, arguments).items():
        values[name] = found.value
    problems = _problems_of_values(declared, values) + _problems_of_secrets(arguments)
    if problems:
        raise ParameterError("\n".join(problems))
    return values


def check_given(declared: Declared, arguments: Values) -> None:
    """Refuse unknown names, wrong types and invalid values of a model that is not there yet.

    Raises:
        ParameterError: names all of them.
    """
    problems = _problems_of_types(declared, arguments) + _problems_of_secrets(arguments)
    problems += _problems_of_single_values(arguments)
    if problems:
        raise ParameterError("\n".join(problems))


@dataclass(frozen=True)
class FoundDefault:
    """The model or training that a run takes if none is named."""

    value: str
    sentence: str  # which one it is, and why


def found_defaults(declared: Declared, arguments: Values) -> dict[str, FoundDefault]:
    """Return what a run takes as its model and its training where none is named, by parameter.

    Raises:
        ParameterError: the study has none; the message says what to do.
    """
    values = {name: parameter.default for name, parameter in declared.items()}
    values |= arguments
    try:
        return _found_defaults(values)
    except SpecError as error:
        raise ParameterError(str(error)) from None


def _found_defaults(values: Values) -> dict[str, FoundDefault]:
    from qwen3nb.models.kinds.resolve import default_model, find_training, newest_model

    defaults = {}
    checkpoint = values.get("checkpoint")
    if checkpoint == "":  # no model is given, but one is needed
        spec, sentence = cached_call(default_model)
        defaults["checkpoint"] = FoundDefault(spec, sentence)
    elif checkpoint in NEWEST:
        spec = cached_call(newest_model, checkpoint)
        sentence = f"No model was named: this is {spec} ({checkpoint})."
        defaults["checkpoint"] = FoundDefault(spec, sentence)
    if values.get("training") == NEWEST_TRAINING:
        folder = paths.shown(cached_call(find_training, NEWEST_TRAINING))
        sentence = f"No training was named: this is {folder} ({NEWEST_TRAINING})."
        defaults["training"] = FoundDefault(folder, sentence)
    return defaults


def _problems_of_values(declared: Declared, values: Values) -> list[str]:
    """Return messages on values that are not allowed, alone or together."""
    problems = _problems_of_single_values(values)
    try:
        _check_models(values, declared)
        _check_study(values)
        # Tasks can only be chosen by valid values, and doing so takes seconds.
        if not problems:
            _check_selection(values)
    except (ValueError, OSError) as error:
        problems.append(str(error))
    return problems


def _problems_of_single_values(values: Values) -> list[str]:
    """Return messages on values that are not allowed, whatever the others are."""
    problems = []
    for name, value in values.items():
        try:
            cached_call(check_value, name, value)  # raises for an invalid one
        except (ValueError, OSError) as error:
            problems.append(str(error))
    return problems


def _problems_of_types(declared: Declared, arguments: Values) -> list[str]:
    """Return messages on wrong names and types of values."""
    problems = []
    for name, value in arguments.items():
        if name not in declared:
            problems.append(_unknown_parameter_text(name, declared))
            continue
        expected = declared[name].type
        if type(value) not in _TYPES[expected].classes:  # not isinstance: True is no int
            problem = f"{name} is {value!r} ({type(value).__name__}); expected {expected}"
            if expected == "str":
                problem += "; papermill's `-r` passes the value as a string"
            problems.append(problem)
    return problems


def _unknown_parameter_text(name: str, declared: Declared) -> str:
    """Return a message on a parameter that the notebook lacks."""
    names = ", ".join(declared) or "none: no cell of the notebook is tagged 'parameters'"
    hint = "."
    similar = difflib.get_close_matches(name, declared, n=1)
    if similar:
        hint = f"; did you mean {similar[0]!r}?"
    return f"unknown parameter {name!r}{hint} The parameters are: {names}"


def _problems_of_secrets(arguments: Values) -> list[str]:
    """Return messages on values that contain a secret."""
    secrets = cached_call(known_secrets)
    problems = []
    for name, value in arguments.items():
        kinds = secrets.kinds(str(value))
        if kinds:
            problems.append(
                f"{name} contains {', '.join(kinds)}; parameters appear in names of pages, in "
                "records and in the book. Use another value, or rename the folder"
            )
    return problems


def typed_parameters(declared: Declared, texts: Mapping[str, str]) -> NewValues:
    """Convert strings from the command line to declared types, or raise ParameterError."""
    values: NewValues = {}
    for name, text in texts.items():
        type_name = "str"  # for unknown names, which are refused later
        if name in declared:
            type_name = declared[name].type
        try:
            values[name] = _TYPES[type_name].parse(text)
        except (ValueError, KeyError):  # KeyError: neither True nor False
            raise ParameterError(f"{name} is {text!r}; expected {type_name}") from None
    return values


def read_config(file: Path) -> NewValues:
    """Return the parameters in a TOML, YAML or JSON file, or raise ParameterError."""
    from qwen3nb.utils.strict_yaml import parse_yaml

    parsers: dict[str, Callable[[str], object]] = {".toml": parse_toml, ".json": parse_json}
    parse = parsers.get(file.suffix, parse_yaml)
    try:
        text = read_bounded_text(file, most_bytes=_MOST_OF_CONFIG)
        values = parse(text.removeprefix("\ufeff"))
    except FileBoundError as error:
        raise ParameterError(str(error)) from None
    except ValueError as error:
        raise ParameterError(f"{file}: cannot be read ({error})") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ParameterError(f"{file}: expected parameters as `name: value`")
    return values
