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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.types import DTYPES
from qwen3nb.tiers import TIERS
from qwen3nb.utils.format import json_text, parse_size
from qwen3nb.utils.secrets import PASSED, passed_names

_Command = TypeVar("_Command", bound=Callable[..., Any])
_COMMA = re.compile(r",(?![^\[\]]*\])")  # but not inside a glob such as checkpoint-[1,2]
_COMMON = dict.fromkeys(("checkpoint", "model", "models"), "--model")
_COMMON |= dict.fromkeys(("output", "output_dir"), "--out")

FILE: Any = click.Path(path_type=Path)
FOLDER: Any = click.Path(path_type=Path, file_okay=False)
EXISTING: Any = click.Path(path_type=Path, exists=True, dir_okay=False)


def option(
    *spellings: str, choices: Iterable[str] = (), least: int | None = None, **settings: Any
) -> Callable[[_Command], _Command]:
    """Return `click.option` with the default, if any, in its help.

    Args:
        spellings: of the option, and the name of the function's argument if it differs.
        choices: the allowed values.
        least: the smallest allowed integer.
        settings: of `click.option`.
    """
    if choices:
        settings["type"] = click.Choice([*choices])
    elif least is not None:
        settings["type"] = click.IntRange(min=least)
    default = settings.get("default")
    shown = default not in (None, "", ()) and not isinstance(default, bool)
    return click.option(*spellings, **{"show_default": shown, **settings})


def flag(*spellings: str, help: str) -> Callable[[_Command], _Command]:
    """Return an option without a value."""
    return click.option(*spellings, is_flag=True, help=help)


def options(*each: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds options in order."""
    return lambda command: functools.reduce(lambda inner, add: add(inner), reversed(each), command)


def model_option(
    name: str = "model", *spellings: str, several: bool = False, **settings: Any
) -> Callable[[_Command], _Command]:
    """Return the option ``--model``.

    Args:
        name: the function's argument.
        spellings: further ones.
        several: whether several models are allowed; the value is then a tuple, else a string.
        settings: of `click.option`.
    """
    if several:
        settings |= {"multiple": True, "callback": _separate}
    return option("--model", *spellings, name, **settings)


def _separate(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Split values at commas, except the name of an existing folder."""
    return tuple(
        part.strip()
        for value in values
        for part in ([value] if Path(value).exists() else _COMMA.split(value))
        if part.strip()
    )


def labels_option(of: str) -> Callable[[_Command], _Command]:
    """Return the option ``--model`` for the labels of several models, which ``of`` describes."""
    about = f"{of}; repeatable.  [default: all]"
    return model_option("models", several=True, help=about)


def out_option(name: str = "out", **settings: Any) -> Callable[[_Command], _Command]:
    """Return the option ``--out``, with the arguments of `model_option`."""
    return option("--out", name, **{"type": FILE, **settings})


def _one_line(_: click.Context, __: click.Parameter, values: Sequence[str]) -> str:
    """Join the prompts of all values into one line; see `parse_prompts`."""
    if not any(values):  # the model's own prompts, unlike "none"
        return ""
    from qwen3nb.models.kinds.prompts import names_prompt_set, parse_prompts, prompts_line

    if len(values) == 1 and _.command.name == "eval" and names_prompt_set(values[0]):
        return values[0]

    named: dict[str, str] = {}
    try:
        for each in map(parse_prompts, values):
            if twice := named.keys() & (each or {}):
                raise ValueError(f"{min(twice)} is given twice")
            named |= each or {}
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return prompts_line(named)


def seed_option(what: str) -> Callable[[_Command], _Command]:
    """Return the option ``--seed`` with ``what`` as its help."""
    return option("--seed", least=0, default=0, help=what)


def set_variables(values: Mapping[str, str]) -> None:
    """Set environment variables until the command ends."""
    before = {name: os.environ.get(name) for name in values}

    def restore() -> None:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    click.get_current_context().call_on_close(restore)
    os.environ.update(values)


def _variable(spelling: str, **settings: Any) -> Callable[[_Command], _Command]:
    """Return an option that sets an environment variable until the command ends."""
    name = f"QWEN3NB_{spelling.strip('-').replace('-', '_').upper()}"

    def obey(_: click.Context, __: click.Parameter, value: int | Path | None) -> None:
        if value is not None:
            set_variables({name: str(value.resolve() if isinstance(value, Path) else value)})

    settings["help"] += f"  [{name}]"
    return click.option(spelling, expose_value=False, callback=obey, **settings)


def pass_names(names: Sequence[str]) -> None:
    """Pass these variables to kernels, even if secret, until the command ends.

    Raises:
        UsageError: a variable that is not set.
    """
    if absent := [name for name in names if name not in os.environ]:
        raise click.UsageError(
            f"--pass-env names a variable of the environment; {', '.join(absent)} is not set"
        )
    if names:
        set_variables({PASSED: ",".join(dict.fromkeys([*passed_names(), *names]))})


class _Size(click.ParamType):
    """A number of bytes, as in 50GB."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return value if isinstance(value, int) else parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE = _Size()
JSON = flag("--json", "as_json", help="Print one JSON document, for programs.")
TIER = option(
    "--tier", choices=TIERS, help="The tier to show.  [default: the richest with results]"
)
TASKS = option("--tasks", default="", help="Tasks, separated by commas, instead of a tier's.")
LIMIT = option(
    "--limit",
    least=0,
    default=0,
    help="At most this many queries, and unjudged documents or rows, per task; 0 for all.",
)
RESULTS = option("--results", type=FILE, help="Folder of the records.  [default: results/]")
FACTS = option(
    "--facts",
    type=FILE,
    help="TOML with further facts: license, language, datasets, base_model, citation, …",
)
LICENSE = option(
    "--license",
    default="",
    help="Licence, such as apache-2.0, if neither the facts nor the training state one.",
)
HUB_ID = option("--hub-id", default="", help="Id on the hub, for the card's examples.")
POOLING = option(
    "--pooling", choices=[*POOLINGS, "auto"], default="auto", help="auto: the model's own."
)
DEVICE = option("--device", default="auto", help="auto, cpu, cuda or cuda:N.")
DIMENSIONS = option(
    "--dimensions", type=int, metavar="N", help="Leading dimensions to keep.  [default: all]"
)
MAX_LENGTH = option("--max-length", least=1, help="Tokens.  [default: the model's]")
BATCH_SIZE = option("--batch-size", least=1, default=32)
NO_CACHE = flag("--no-cache", help="Neither read nor write cached vectors.")
FRESH = flag("--fresh", help="Score again even if the record exists.")
DTYPE = option(
    "--dtype",
    choices=DTYPES,
    default="float32",
    help="int8: linear layers in 8 bits, on a CPU with VNNI.",
)
RAY = click.option(
    "--ray",
    is_flag=False,
    flag_value="local",
    metavar="[ADDRESS]",
    help="Run on a Ray cluster: auto, host:port or ray://host:port; without an address, on a Ray "
    "of this machine.",
)
CACHE_LIMIT = _variable(
    "--cache-limit",
    type=SIZE,
    help="Keep at most this size of vectors, of all models, such as 50GB; the least recently "
    "used go first.",
)
READ_LIMIT = _variable(
    "--read-limit",
    type=SIZE,
    help="Read data files, lines and unpacked .gz files up to this size, such as 4GB, if it is "
    "more than the usual limit.",
)
MIRROR = _variable(
    "--mirror",
    type=FOLDER,
    envvar="QWEN3NB_MIRROR",
    help="Folder of local data sets and models, as DIR/<organisation>/<name>.",
)
PASS_ENV = click.option(
    "--pass-env",
    multiple=True,
    metavar="NAME",
    expose_value=False,
    callback=lambda _, __, names: pass_names(names),
    help="Let notebooks see this variable of the environment, though its name or value is that of "
    "a secret; repeatable.  [QWEN3NB_PASS_ENV]",
)
BASE = option("--base", default="", help="Base model of a LoRA adapter, if moved.")
PROMPTS = option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="NAME=TEXT",
    callback=_one_line,
    help="Text before an input, such as query='query: '; NAME is query, passage, symmetric (for "
    "any text), or a task or type of MTEB; repeatable. none: not even the model's own.",
)
ENCODER = options(POOLING, MAX_LENGTH, DIMENSIONS, BATCH_SIZE, DEVICE, DTYPE, CACHE_LIMIT)
CARD = options(FACTS, LICENSE, HUB_ID)
LOADED = options(ENCODER, PROMPTS, BASE)  # all settings of `load_encoder` on the command line
# The rule for recommending a candidate.
RULE = options(
    option(
        "--metric",
        "tested",
        multiple=True,
        help="Tested metrics; the first one decides.  [default: the task's main metric, then "
        "MRR@10 and nDCG@10]",
    ),
    option("--alpha", type=click.FloatRange(0, 1), default=0.05),
    option(
        "--threshold",
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


def print_table(table: Any, *columns: str, **options: Any) -> None:
    """Print a table, or the rows of one; see `Table.of` in `qwen3nb.report.render.table`."""
    from qwen3nb.report.render import console
    from qwen3nb.report.render.table import Table

    shown = table if isinstance(table, Table) else Table.of(table, columns, **options)
    console.print_table(shown)


def hide_library_bars() -> None:
    """Hide the progress bars of transformers while weights load."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def parameter_option(name: str, *, taken: Collection[str] = (), **settings: Any) -> click.Option:
    """Return the option of a notebook's parameter, with its common spelling as well.

    Args:
        name: name of the parameter; ``models`` and ``prompts`` take several values, joined with
            commas.
        taken: spellings used by other options.
        settings: of `click.Option`.
    """
    own = f"--{name.replace('_', '-')}"
    if settings.get("type") is bool:
        own = f"{own}/--no-{own[2:]}"
    common = _COMMON.get(name, own)
    spellings = [own] if common in {own, *taken} else [common, own]
    if name == "prompts":
        spellings.append("--prompt")
        settings |= {"multiple": True, "default": (), "metavar": "NAME=TEXT", "callback": _one_line}
    if name == "models":
        settings |= {
            "multiple": True,
            "default": (settings["default"],),
            "callback": lambda _, __, values: ",".join(values),
        }
    return click.Option([name, *spellings], **settings)


def paths_given(*, texts: Sequence[str] = (), **spellings: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds arguments in this order, each also available as an option.

    Args:
        texts: names of arguments that are not paths.
        spellings: option by name of the argument.
    """

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def filled(*, arguments: tuple[str, ...], **values: Any) -> Any:
            left = list(arguments)
            for name, spelling in spellings.items():
                if values[name] is None and not left:
                    raise click.UsageError(f"Missing {name.upper()}, or option {spelling}.")
                value = left.pop(0) if values[name] is None else values[name]
                values[name] = value if name in texts else Path(value)
            if left:
                raise click.UsageError(f"Got unexpected extra argument ({left[0]})")
            return command(**values)

        metavar = " ".join(spellings).upper()
        wrapped: Any = click.argument("arguments", nargs=-1, metavar=metavar)(filled)
        for name, spelling in reversed(spellings.items()):
            wrapped = click.option(
                spelling,
                name,
                type=None if name in texts else FILE,
                help=f"The same as {name.upper()}.",
            )(wrapped)
        return wrapped

    return decorate
