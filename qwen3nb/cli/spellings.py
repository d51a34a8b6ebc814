"""One spelling for one thing: `--model` and `--out`, the same in every command.

The rule:

- The model that a command reads is ``--model``: a folder, a name from the registry, a hub id, or
  the label of records. Where several are taken, the option repeats, and each value may name
  several, with commas between them.
- A file or folder that a command writes where you say is ``--out``.
- What has another part has another name: the ``--baseline`` that models are compared with, the
  ``--adapter`` of a base model, the ``--outputs`` of trainings that are read.
- A notebook's parameters keep their names, which are papermill's. Their options have the common
  spelling besides: ``--model, --checkpoint`` sets the parameter ``checkpoint``.
- Spellings of earlier versions work, and are not listed.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from qwen3nb.cli.completion import (
    Completion,
    complete_models,
    complete_notebook_value,
    complete_paths,
)
from qwen3nb.cli.options import FILE

__all__ = ["Respelled", "model_option", "out_option", "parameter_option", "paths_given"]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_COMMA = re.compile(r",(?![^\[\]]*\])")  # but none of a glob such as checkpoint-[1,2]
_OF_PARAMETERS = {
    "checkpoint": "--model",
    "model": "--model",
    "models": "--model",
    "output": "--out",
    "output_dir": "--out",
}


class Respelled(click.Option):
    """An option with spellings of earlier versions, which work and are not listed."""

    def __init__(
        self, spellings: Sequence[str], *, earlier: Sequence[str] = (), **settings: Any
    ) -> None:
        super().__init__([*spellings, *earlier], **settings)
        self.earlier = frozenset(earlier)

    def _listed(self) -> Respelled:
        listed = copy.copy(self)
        listed.opts = [each for each in self.opts if each not in self.earlier]
        return listed

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The line of ``--help``, without earlier spellings."""
        return click.Option.get_help_record(self._listed(), ctx)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """The option's name in errors, without earlier spellings."""
        return click.Option.get_error_hint(self._listed(), ctx)


def model_option(
    name: str = "model", *, several: bool = False, earlier: Sequence[str] = (), **settings: Any
) -> Callable[[_Command], _Command]:
    """Return the option ``--model``.

    Args:
        name: the function's argument.
        several: whether it takes several models: a tuple of them, else one string.
        earlier: spellings of earlier versions.
        settings: of `click.option`.
    """
    if several:
        settings |= {"multiple": True, "callback": _separate}
    settings = {"shell_complete": complete_models, **settings}
    return click.option("--model", name, cls=Respelled, earlier=earlier, **settings)


def _separate(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Separate values at commas; a folder with a comma in its name is one."""
    return tuple(
        part.strip()
        for value in values
        for part in ([value] if Path(value).exists() else _COMMA.split(value))
        if part.strip()
    )


def out_option(
    name: str = "out", *, earlier: Sequence[str] = (), **settings: Any
) -> Callable[[_Command], _Command]:
    """Return the option ``--out``, with the arguments of `model_option`."""
    settings = {"type": FILE, **settings}
    return click.option("--out", name, cls=Respelled, earlier=earlier, **settings)


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
    *, texts: Sequence[str] = (), complete: Completion = complete_paths, **spellings: Sequence[str]
) -> Callable[[_Command], _Command]:
    """Return a decorator: arguments in this order, each of which may be an option instead.

    Args:
        texts: names of arguments that are no paths.
        complete: completes the arguments in a shell.
        spellings: the options by the argument's name, the listed one first.

    >>> paths_given(folder=["--model"], output=["--out", "--output"])  # doctest: +ELLIPSIS
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
        for name, (listed, *earlier) in reversed(spellings.items()):
            wrapped = click.option(
                listed,
                name,
                cls=Respelled,
                earlier=earlier,
                type=None if name in texts else FILE,
                shell_complete=complete if listed == "--model" else None,
                help=f"The same as {name.upper()}.",
            )(wrapped)
        return wrapped

    return decorate


def _filled(
    values: dict[str, Any], arguments: list[str], spellings: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return the values, with arguments for those that no option gave."""
    for name, (listed, *_) in spellings.items():
        if values[name] is None:
            if not arguments:
                raise _mistake(f"Missing {name.upper()}, or option {listed}.")
            values[name] = arguments.pop(0)
    if arguments:
        raise _mistake(f"Got unexpected extra argument ({arguments[0]})")
    return values


def _mistake(message: str) -> click.UsageError:
    return click.UsageError(message, click.get_current_context())
