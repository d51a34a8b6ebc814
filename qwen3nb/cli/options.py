"""Options and settings that several commands share, and how they are spelled.

- The model that a command reads is ``--model``: a folder, a name from the registry, a hub id, or
  the label of records. Where several are taken, the option repeats, and each value may name
  several, with commas between them.
- A file or folder that a command writes where you say is ``--out``.
- What has another part has another name: the ``--baseline`` that models are compared with, the
  ``--adapter`` of a base model, the ``--outputs`` of trainings that are read.
- A notebook's parameters keep their names, which are papermill's. Their options have the common
  spelling besides: ``--model, --checkpoint`` sets the parameter ``checkpoint``.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from qwen3nb import paths
from qwen3nb.cli.completion import (
    Completion,
    complete_models,
    complete_notebook_value,
    complete_paths,
    complete_tasks,
)
from qwen3nb.models.modeling.dtypes import DTYPES
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.tiers import TIERS
from qwen3nb.utils.byte_sizes import parse_size
from qwen3nb.utils.secrets import PASSED, passed_names

_Command = TypeVar("_Command", bound=Callable[..., Any])
_COMMA = re.compile(r",(?![^\[\]]*\])")  # but none of a glob such as checkpoint-[1,2]
_OF_PARAMETERS = {
    "checkpoint": "--model",
    "model": "--model",
    "models": "--model",
    "output": "--out",
    "output_dir": "--out",
}

FILE: Any = click.Path(path_type=Path)
JSON = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document, for programs.",
)
TIERS_CHOICE = click.Choice(list(TIERS))
TIER = click.option(
    "--tier", type=TIERS_CHOICE, help="The tier to show.  [default: the richest with results]"
)
TASKS = click.option(
    "--tasks",
    default="",
    shell_complete=complete_tasks,
    help="Tasks, separated by commas, instead of a tier's.",
)
RESULTS = click.option("--results", type=FILE, help="Folder of the records.  [default: results/]")
FACTS = click.option(
    "--facts",
    type=FILE,
    help="TOML with further facts: license, language, datasets, base_model, citation, …",
)
LICENSE = click.option(
    "--license",
    default="",
    help="Licence, such as apache-2.0, if neither the facts nor the training state one.",
)
HUB_ID = click.option("--hub-id", default="", help="Id on the hub, for the card's examples.")
POOLING = click.option(
    "--pooling",
    type=click.Choice([*POOLINGS, "auto"]),
    default="auto",
    show_default=True,
    help="auto: the model's own.",
)
DEVICE = click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N."
)
DIMENSIONS = click.option(
    "--dimensions", type=int, metavar="N", help="Leading dimensions to keep.  [default: all]"
)
MAX_LENGTH = click.option(
    "--max-length", type=click.IntRange(min=1), help="Tokens.  [default: the model's]"
)
BATCH_SIZE = click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True)
NO_CACHE = click.option("--no-cache", is_flag=True, help="Neither read nor write cached vectors.")
# The rule by which a candidate replaces the model in use.
TESTED = click.option(
    "--metric",
    "tested",
    multiple=True,
    default=("MRR@10", "nDCG@10"),
    show_default=True,
    help="Tested metrics; the first one decides.",
)
ALPHA = click.option("--alpha", type=click.FloatRange(0, 1), default=0.05, show_default=True)
THRESHOLD = click.option(
    "--threshold",
    type=click.FloatRange(min=0),
    default=0.05,
    show_default=True,
    help="Smallest difference that matters.",
)
DTYPE = click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
RAY = click.option(
    "--ray",
    is_flag=False,
    flag_value="local",
    metavar="[ADDRESS]",
    help="Run on a Ray cluster: auto, host:port or ray://host:port; without an address, on a Ray "
    "of this machine.",
)
REHEARSE = click.option(
    "--rehearse",
    is_flag=True,
    help="Run every task on 16 rows, to its end; records and page go to results/rehearsal/.",
)


class _Size(click.ParamType):
    """A number of bytes, as in 50GB."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _variable(option: str, **settings: Any) -> Callable[[_Command], _Command]:
    """Return an option that this process, and those it starts, obey until the command ends."""
    name = f"QWEN3NB_{option.strip('-').replace('-', '_').upper()}"

    def obey(_: click.Context, __: click.Parameter, value: int | Path | None) -> None:
        if value is not None:
            set_variables({name: str(value.resolve() if isinstance(value, Path) else value)})

    settings["help"] += f"  [{name}]"
    return click.option(option, expose_value=False, callback=obey, **settings)


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


SIZE = _Size()
CACHE_LIMIT = _variable(
    "--cache-limit",
    type=SIZE,
    help="Keep at most this much of vectors, of all models, such as 50GB; the least recently "
    "used go first.",
)
READ_LIMIT = _variable(
    "--read-limit",
    type=SIZE,
    help="Read data files, lines and unpacked .gz files up to this size, such as 4GB, if that is "
    "more than the usual limit.",
)
MIRROR = _variable(
    "--mirror",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="QWEN3NB_MIRROR",
    help="Folder of local data sets and models, as DIR/<organisation>/<name>.",
)
_REHEARSED = 16  # rows, queries and unjudged documents


def pass_names(names: Sequence[str]) -> None:
    """Let kernels have these variables, though secret, until the command ends.

    Raises:
        UsageError: a variable that is not set.
    """
    if absent := [name for name in names if name not in os.environ]:
        raise click.UsageError(
            f"--pass-env names a variable of the environment; {', '.join(absent)} is not set"
        )
    if names:
        set_variables({PASSED: ",".join(dict.fromkeys([*passed_names(), *names]))})


PASS_ENV = click.option(
    "--pass-env",
    multiple=True,
    metavar="NAME",
    expose_value=False,
    callback=lambda _, __, names: pass_names(names),
    help="Let notebooks see this variable of the environment, though its name or value is that of "
    "a secret; repeatable.  [QWEN3NB_PASS_ENV]",
)


def seed_option(what: str) -> Callable[[_Command], _Command]:
    """Return the option ``--seed`` with ``what`` as its help."""
    return click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help=what
    )


def options(*each: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds options in their order."""
    return lambda command: functools.reduce(lambda inner, add: add(inner), reversed(each), command)


ENCODER = options(POOLING, MAX_LENGTH, DIMENSIONS, BATCH_SIZE, DEVICE, DTYPE, CACHE_LIMIT)


def print_json(value: Any) -> None:
    """Print dataclasses, or containers of them, as the one JSON document of a command."""
    from qwen3nb.utils.format import json_text

    click.echo(json_text(value))


def answer(document: Any, *lines: str, as_json: bool) -> None:
    """Print the answer of a command: one JSON document for programs, or lines for people."""
    if as_json:
        print_json(document)
    else:
        for line in lines:
            click.echo(line)


def rehearsal(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return ``parameters`` with a limit; until the command ends, write to a folder of its own.

    Raises:
        UsageError: ``output_dir`` is given; a rehearsal has its own.
    """
    if "output_dir" in parameters:
        raise click.UsageError("--rehearse writes to results/rehearsal/; give no --out")
    folder = paths.results() / "rehearsal"
    set_variables({"QWEN3NB_RESULTS": str(folder), "QWEN3NB_BOOK": str(folder / "book")})
    return {"limit": _REHEARSED, **parameters}


def hide_library_bars() -> None:
    """Hide the progress bars of transformers while weights load."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def model_option(
    name: str = "model", *, several: bool = False, **settings: Any
) -> Callable[[_Command], _Command]:
    """Return the option ``--model``.

    Args:
        name: the function's argument.
        several: whether it takes several models: a tuple of them, else one string.
        settings: of `click.option`.
    """
    if several:
        settings |= {"multiple": True, "callback": _separate}
    settings = {"shell_complete": complete_models, **settings}
    return click.option("--model", name, **settings)


def _separate(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Separate values at commas; a folder with a comma in its name is one."""
    return tuple(
        part.strip()
        for value in values
        for part in ([value] if Path(value).exists() else _COMMA.split(value))
        if part.strip()
    )


def out_option(name: str = "out", **settings: Any) -> Callable[[_Command], _Command]:
    """Return the option ``--out``, with the arguments of `model_option`."""
    return click.option("--out", name, **{"type": FILE, **settings})


def parameter_option(name: str, *, taken: Collection[str] = (), **settings: Any) -> click.Option:
    """Return the option of a notebook's parameter, which has its common spelling besides.

    Args:
        name: name of the parameter; ``models`` takes several, joined with commas.
        taken: spellings that other options have.
        settings: of `click.Option`.
    """
    own = f"--{name.replace('_', '-')}"
    if settings.get("type") is bool:
        own = f"{own}/--no-{own[2:]}"
    common = _OF_PARAMETERS.get(name, "")
    spellings = [common] if common and common not in {own, *taken} else []
    if name == "models":
        settings |= {"multiple": True, "default": (settings["default"],), "callback": _joined}
    if complete := complete_notebook_value(name):
        settings["shell_complete"] = complete
    return click.Option([name, *spellings, own], **settings)


def _joined(_: click.Context, __: click.Parameter, values: Sequence[str]) -> str:
    return ",".join(values)


def paths_given(
    *, texts: Sequence[str] = (), complete: Completion = complete_paths, **spellings: str
) -> Callable[[_Command], _Command]:
    """Return a decorator: arguments in this order, each of which may be an option instead.

    Args:
        texts: names of arguments that are no paths.
        complete: completes the arguments in a shell.
        spellings: the option by the argument's name.

    >>> paths_given(folder="--model", output="--out")  # doctest: +ELLIPSIS
    <function ...>
    """
    metavar = " ".join(spellings).upper()

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def filled(*, arguments: tuple[str, ...], **values: Any) -> Any:
            values = _filled(values, list(arguments), spellings)
            return command(
                **{
                    name: Path(value) if name in spellings and name not in texts else value
                    for name, value in values.items()
                }
            )

        wrapped: Any = click.argument(
            "arguments", nargs=-1, metavar=metavar, shell_complete=complete
        )(filled)
        for name, listed in reversed(spellings.items()):
            wrapped = click.option(
                listed,
                name,
                type=None if name in texts else FILE,
                shell_complete=complete if listed == "--model" else None,
                help=f"The same as {name.upper()}.",
            )(wrapped)
        return wrapped

    return decorate


def _filled(
    values: dict[str, Any], arguments: list[str], spellings: Mapping[str, str]
) -> dict[str, Any]:
    """Return the values, with arguments for those that no option gave."""
    for name, listed in spellings.items():
        if values[name] is None:
            if not arguments:
                raise _mistake(f"Missing {name.upper()}, or option {listed}.")
            values[name] = arguments.pop(0)
    if arguments:
        raise _mistake(f"Got unexpected extra argument ({arguments[0]})")
    return values


def _mistake(message: str) -> click.UsageError:
    return click.UsageError(message, click.get_current_context())
