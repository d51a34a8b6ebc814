"""Options and settings shared by several commands, and their spelling.

- The model that a command reads is ``--model``: a folder, a name from the registry, a hub id, or
  the label of records. Where several are allowed, the option is repeatable, and each value may name
  several, separated by commas.
- A file or folder to write is ``--out``.
- Other roles have other names: the ``--baseline`` that models are compared with, the ``--adapter``
  of a base model, the ``--outputs`` of trainings to read.
- A notebook's parameters keep their names, which are papermill's. Their options also have the
  common spelling: ``--model, --checkpoint`` sets the parameter ``checkpoint``.
"""

import functools
import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, Unpack

import click

from qwen3nb.cli.program import complete_parts
from qwen3nb.models.options import OPTIONS, ModelOptions
from qwen3nb.tiers import TIERS
from qwen3nb.utils.format import json_text, parse_size
from qwen3nb.utils.secrets import PASSED, passed_names

if TYPE_CHECKING:
    from qwen3nb.answers.decision import Decision

_Command = TypeVar("_Command", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[Any], Any]
_COMMA = re.compile(r",(?![^\[\]]*\])")  # but not inside a glob such as checkpoint-[1,2]
# Spellings of a notebook's parameters that all commands share.
_COMMON = {
    "checkpoint": "--model",
    "model": "--model",
    "models": "--model",
    "output": "--out",
    "output_dir": "--out",
}
_DEFAULTS = ModelOptions()

FILE: Any = click.Path(path_type=Path)
FOLDER: Any = click.Path(path_type=Path, file_okay=False)
EXISTING: Any = click.Path(path_type=Path, exists=True, dir_okay=False)
SHARE: Any = click.FloatRange(0, 1, min_open=True, max_open=True)


class OptionSettings(TypedDict, total=False):
    """The settings of `click.option` that commands here use."""

    type: Any
    default: Any
    show_default: bool | str
    help: str
    metavar: str
    required: bool
    multiple: bool
    is_flag: bool
    flag_value: str
    hidden: bool
    envvar: str
    expose_value: bool
    callback: Callable[..., Any]


def option(
    *spellings: str,
    choices: Iterable[str] = (),
    minimum: int | None = None,
    **settings: Unpack[OptionSettings],
) -> Decorator:
    """Return `click.option` with the default, if any, in its help.

    Args:
        spellings: of the option, and the name of the function's argument if it differs.
        choices: the allowed values.
        minimum: the smallest allowed integer.
        settings: of `click.option`.
    """
    names = tuple(choices)
    if names:
        settings["type"] = click.Choice(names)
    elif minimum is not None:
        settings["type"] = click.IntRange(min=minimum)
    if "show_default" not in settings:
        default = settings.get("default")
        # An empty default says nothing, and a flag's is plain from its name.
        says_nothing = default in (None, "", ()) or isinstance(default, bool)
        settings["show_default"] = not says_nothing
    return click.option(*spellings, **settings)


def declared_option(name: str) -> Decorator:
    """Return the option of a command for an option of a model, as `OPTIONS` declares it."""
    declaration = OPTIONS[name]
    return option(
        f"--{name.replace('_', '-')}",
        choices=declaration.plain_choices,
        minimum=declaration.minimum,
        default=_DEFAULTS.plain(name),
        help=declaration.help,
    )


def flag(*spellings: str, help: str) -> Decorator:
    """Return an option without a value."""
    return click.option(*spellings, is_flag=True, help=help)


def options(*decorators: Decorator) -> Decorator:
    """Return a decorator that adds options in order."""

    def decorate(command: _Command) -> _Command:
        for add in reversed(decorators):
            command = add(command)
        return command

    return decorate


def model_option(
    name: str = "model",
    *spellings: str,
    repeatable: bool = False,
    **settings: Unpack[OptionSettings],
) -> Decorator:
    """Return the option ``--model``.

    Args:
        name: the function's argument.
        spellings: further ones.
        repeatable: whether several models are allowed; the value is then a tuple, else a string.
        settings: of `click.option`.
    """
    if repeatable:
        settings["multiple"] = True
        settings["callback"] = _separate
    return option("--model", *spellings, name, **settings)


def _separate(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Split values at commas, except the name of an existing folder."""
    names: list[str] = []
    for value in values:
        if Path(value).exists():
            names.append(value)
        else:
            names += _COMMA.split(value)
    return tuple(name.strip() for name in names if name.strip())


def _checked_chunks(_: click.Context, __: click.Parameter, value: str) -> str:
    """Return what is done with long documents, as given."""
    from qwen3nb.models.search.chunks import check_chunks

    try:
        return check_chunks(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def labels_option(of: str) -> Decorator:
    """Return the option ``--model`` for the labels of several models, which ``of`` describes."""
    return model_option("models", repeatable=True, help=f"{of}; repeatable.  [default: all]")


def out_option(name: str = "out", **settings: Unpack[OptionSettings]) -> Decorator:
    """Return the option ``--out``, with the arguments of `model_option`."""
    settings.setdefault("type", FILE)
    return option("--out", name, **settings)


def _prompts_in_one_line(context: click.Context, _: click.Parameter, values: Sequence[str]) -> str:
    """Join the prompts of all values into one line; see `parse_prompts`."""
    if not any(values):  # the model's own prompts, unlike "none"
        return ""
    from qwen3nb.models.kinds.prompts import names_prompt_set, prompts_line

    first_value = values[0]
    # A set of prompts, given by a number or a file, runs a task once per prompt.
    takes_sets = context.command.name == "eval"
    if takes_sets and len(values) == 1 and names_prompt_set(first_value):
        return first_value
    try:
        return prompts_line(_joined_prompts(values))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _joined_prompts(values: Sequence[str]) -> dict[str, str]:
    """Return the prompts of all values; none may be given twice."""
    from qwen3nb.models.kinds.prompts import parse_prompts

    all_prompts: dict[str, str] = {}
    for value in values:
        prompts = parse_prompts(value) or {}
        repeated = all_prompts.keys() & prompts.keys()
        if repeated:
            raise ValueError(f"{min(repeated)} is given twice")
        all_prompts |= prompts
    return all_prompts


def seed_option(meaning: str) -> Decorator:
    """Return the option ``--seed`` with ``meaning`` as its help."""
    return option("--seed", minimum=0, default=0, help=meaning)


def set_variables(values: Mapping[str, str]) -> None:
    """Set environment variables until the command ends."""
    before = {name: os.environ.get(name) for name in values}

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    # Several commands may run in one process, as in tests.
    click.get_current_context().call_on_close(restore)
    os.environ.update(values)


def _variable_option(spelling: str, about: str, **settings: Unpack[OptionSettings]) -> Decorator:
    """Return an option that sets an environment variable until the command ends."""
    name = spelling.removeprefix("--").replace("-", "_").upper()
    variable = f"QWEN3NB_{name}"

    def set_variable(_: click.Context, __: click.Parameter, value: int | Path | None) -> None:
        if value is None:
            return
        if isinstance(value, Path):
            value = value.resolve()
        set_variables({variable: str(value)})

    return click.option(
        spelling,
        expose_value=False,  # the command's function does not take it
        callback=set_variable,
        help=f"{about}  [{variable}]",
        **settings,
    )


def pass_names(names: Sequence[str]) -> None:
    """Pass these variables to kernels, even if secret, until the command ends.

    Raises:
        UsageError: a variable that is not set.
    """
    unset = [name for name in names if name not in os.environ]
    if unset:
        raise click.UsageError(
            f"--pass-env names a variable of the environment; {', '.join(unset)} is not set"
        )
    if names:
        every_name = dict.fromkeys([*passed_names(), *names])
        set_variables({PASSED: ",".join(every_name)})


def _pass_names(_: click.Context, __: click.Parameter, names: Sequence[str]) -> None:
    pass_names(names)


class _Size(click.ParamType):
    """A number of bytes, as in 50GB."""

    name = "size"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE = _Size()
JSON = flag("--json", "as_json", help="Print one JSON document.")
TIER = option("--tier", choices=TIERS, help="Tier to show.  [default: richest with results]")
TASKS = option("--tasks", default="", help="Tasks A,B instead of the tier's.")
LIMIT = option(
    "--limit",
    minimum=0,
    default=0,
    help="Most queries, rows, unjudged documents; 0: all.",
)
RESAMPLES = option(
    "--resamples", "n_resamples", minimum=100, default=10_000, help="Draws of a test."
)
RESULTS = option("--results", type=FILE, help="Folder of the records.  [default: results/]")
FACTS = option(
    "--facts",
    type=FILE,
    help="TOML of facts: license, language, datasets, …",
)
LICENSE = option(
    "--license",
    default="",
    help="Licence, such as apache-2.0, if none is stated.",
)
HUB_ID = option("--hub-id", default="", help="Id on the hub, for the card's examples.")
POOLING = declared_option("pooling")
DEVICE = declared_option("device")
DIMENSIONS = declared_option("dimensions")
MAX_LENGTH = declared_option("max_length")
BATCH_SIZE = declared_option("batch_size")
DTYPE = declared_option("dtype")
BASE = declared_option("base")
NO_CACHE = flag("--no-cache", help="Neither read nor write cached vectors.")
FRESH = flag("--fresh", help="Score again even if the record exists.")
RAY = click.option(
    "--ray",
    is_flag=False,
    flag_value="local",
    metavar="[ADDRESS]",
    help="Use a Ray cluster: auto or host:port; without an address, a Ray of this machine.",
)
CACHE_LIMIT = _variable_option(
    "--cache-limit",
    "Keep at most this size of vectors, such as 50GB.",
    type=SIZE,
)
READ_LIMIT = _variable_option(
    "--read-limit",
    "Read files, lines, unpacked .gz up to this size.",
    type=SIZE,
)
MIRROR = _variable_option(
    "--mirror",
    "Folder of data sets and models, as DIR/ORG/NAME.",
    type=FOLDER,
    envvar="QWEN3NB_MIRROR",
)
PASS_ENV = click.option(
    "--pass-env",
    multiple=True,
    metavar="NAME",
    expose_value=False,
    callback=_pass_names,
    help="Let notebooks see this secret variable; repeatable.  [QWEN3NB_PASS_ENV]",
)
PROMPTS = option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="NAME=TEXT",
    callback=_prompts_in_one_line,
    help="Text before an input; NAME is query, passage, symmetric, or a task or type of MTEB. "
    "none: not even the model's own; repeatable.",
)
ENCODER = options(POOLING, MAX_LENGTH, DIMENSIONS, BATCH_SIZE, DEVICE, DTYPE, CACHE_LIMIT)
CHUNKS = option(
    "--chunks",
    default="max",
    metavar="max|cut|N",
    callback=_checked_chunks,
    help="Documents longer than the model. max: split, the best part counts; cut: only their "
    "beginning; N: split all into parts of N characters.",
)
CARD = options(FACTS, LICENSE, HUB_ID)
LOADED = options(ENCODER, PROMPTS, BASE)  # the options of a `Model` on the command line
# The rule for recommending a candidate.
RULE = options(
    option(
        "--metric",
        "tested",
        multiple=True,
        help="Tested metrics, such as MRR@10 or bpref; the first decides.  "
        "[default: the task's main metric first]",
    ),
    option("--alpha", type=click.FloatRange(0, 1), default=0.05, help="Level of the tests."),
    option(
        "--margin",
        "--threshold",
        "margin",
        type=click.FloatRange(min=0),
        default=0.05,
        help="Smallest difference that matters.",
    ),
)


def print_json(value: Any) -> None:
    """Print dataclasses, or containers of them, as one JSON document."""
    click.echo(json_text(value))


def answer(document: Any, *lines: str, as_json: bool) -> None:
    """Print the result of a command as one JSON document or as lines of text."""
    if as_json:
        print_json(document)
    else:
        for line in lines:
            click.echo(line)


def print_table(table: Any, *columns: str, note: str = "") -> None:
    """Print a table, or the rows of one; see `Table.of` in `qwen3nb.report.render.table`."""
    from qwen3nb.report.render import console
    from qwen3nb.report.render.table import Table

    if not isinstance(table, Table):
        table = Table.of(table, columns, note=note)
    console.print_table(table)


def print_text(text: object, *, bold: bool = False) -> None:
    """Print a text, on a terminal wrapped between words."""
    from qwen3nb.report.render import console

    console.print_text(str(text), style="bold" if bold else "")


def print_decision(decision: "Decision") -> None:
    """Print which model to use, and below it the reasons, one a line."""
    from qwen3nb.report.render import console

    print_text(decision.brief, bold=True)
    console.print_list([f"{sentence}." for sentence in decision.sentences])


def hide_library_bars() -> None:
    """Hide the progress bars of transformers while weights load."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def parameter_option(
    name: str, *, used_spellings: Collection[str] = (), **settings: Unpack[OptionSettings]
) -> click.Option:
    """Return the option of a notebook's parameter, with its common spelling as well.

    Args:
        name: name of the parameter; ``models`` and ``prompts`` take several values, joined with
            commas.
        used_spellings: those of other options.
        settings: of `click.Option`.
    """
    hyphenated = name.replace("_", "-")
    spellings = [f"--{hyphenated}"]
    if settings.get("type") is bool:
        spellings = [f"--{hyphenated}/--no-{hyphenated}"]
    common_spelling = _COMMON.get(name)
    # Such as --model for the parameter checkpoint, unless --model means something else.
    if common_spelling and common_spelling not in used_spellings:
        spellings.insert(0, common_spelling)
    if name == "prompts":
        spellings.append("--prompt")
        settings["multiple"] = True
        settings["default"] = ()
        settings["metavar"] = "NAME=TEXT"
        settings["callback"] = _prompts_in_one_line
    if name == "models":
        settings["multiple"] = True
        # Several options make a tuple, which the callback joins to one text.
        settings["default"] = (settings["default"],)
        settings["callback"] = _joined
    return click.Option([name, *spellings], **settings)


def _joined(_: click.Context, __: click.Parameter, values: Sequence[str]) -> str:
    return ",".join(values)


def paths_given(
    *,
    texts: Sequence[str] = (),
    others: str | None = None,
    **spellings: str,
) -> Decorator:
    """Return a decorator that adds arguments in this order, each also available as an option.

    Args:
        texts: names of arguments that are not paths.
        others: the parameter that gets further paths, in front of the last argument.
        spellings: option by name of the argument.
    """

    def decorate(command: _Command) -> _Command:
        # Click gets one argument for all words; `call` gives them their names.
        @functools.wraps(command)
        def call(*, arguments: tuple[str, ...], **values: Any) -> Any:
            words = list(arguments)
            further_paths: list[Path] = []
            if others is not None:
                further_paths = [Path(word) for word in _taken_others(values, words, spellings)]
                values = {**values, others: further_paths}
            return command(**_with_arguments(values, words, spellings, texts))

        metavar = _metavar(list(spellings), several=others is not None)
        decorated: Any = click.argument(
            "arguments", nargs=-1, metavar=metavar, shell_complete=complete_parts
        )(call)
        for name, spelling in reversed(spellings.items()):  # click shows the last one first
            settings = OptionSettings(help=f"The same as {name.upper()}.")
            if name not in texts:  # then it is a path
                settings["type"] = FILE
            decorated = click.option(spelling, name, **settings)(decorated)
        return decorated

    return decorate


def _metavar(names: Sequence[str], *, several: bool) -> str:
    """Return how arguments are written in a help, such as ``FOLDER... OUTPUT``."""
    first, *rest = names
    if several:
        first += "..."
    return " ".join([first, *rest]).upper()


def _taken_others(
    values: Mapping[str, object],
    words: list[str],
    spellings: Mapping[str, str],
) -> list[str]:
    """Take the words that are too many for the arguments: those after the first one."""
    missing = [name for name in spellings if values[name] is None]
    surplus = len(words) - len(missing)
    if surplus <= 0:
        return []
    first_argument = next(iter(spellings))
    start = int(first_argument in missing)
    others = words[start : start + surplus]
    del words[start : start + surplus]
    return others


def _with_arguments(
    values: Mapping[str, object],
    arguments: Sequence[str],
    spellings: Mapping[str, str],
    texts: Sequence[str],
) -> dict[str, object]:
    """Return the values with the arguments in place of the options that are not given."""
    completed = dict(values)
    remaining = deque(arguments)
    # Each argument is for the next name that has no option, in their order.
    for name, spelling in spellings.items():
        if completed[name] is not None:  # given as an option
            continue
        if not remaining:
            raise click.UsageError(f"Missing {name.upper()}, or option {spelling}.")
        argument = remaining.popleft()
        if name in texts:  # the others are paths
            completed[name] = argument
        else:
            completed[name] = Path(argument)
    if remaining:
        raise click.UsageError(f"Got unexpected extra argument ({remaining[0]})")
    return completed
