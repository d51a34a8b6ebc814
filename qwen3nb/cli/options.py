"""Options and settings that several commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from qwen3nb import paths
from qwen3nb.models.cache.byte_sizes import parse_size
from qwen3nb.models.modeling.dtypes import DTYPES
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.tiers import TIERS
from qwen3nb.utils.secrets import PASSED, passed_names

__all__ = [
    "CACHE_LIMIT", "DEVICE", "DIMENSIONS", "DTYPE", "FILE", "MIRROR", "PASS_ENV", "POOLING", "RAY",
    "READ_LIMIT", "REHEARSE", "SIZE", "TIER", "hide_library_bars", "pass_names", "paths_given",
    "rehearsal", "seed_option", "use_mirror",
]  # fmt: skip

_Command = TypeVar("_Command", bound=Callable[..., Any])

FILE: Any = click.Path(path_type=Path)
TIER = click.option(
    "--tier", type=click.Choice(list(TIERS)),
    help="The tier to show.  [default: the richest with results]",
)  # fmt: skip
POOLING = click.option(
    "--pooling", type=click.Choice([*POOLINGS, "auto"]), default="auto", show_default=True,
    help="auto: the model's own.",
)  # fmt: skip
DEVICE = click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N."
)
DIMENSIONS = click.option(
    "--dimensions", type=int, metavar="N", help="Leading dimensions to keep.  [default: all]"
)
DTYPE = click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
MIRROR = click.option(
    "--mirror",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="QWEN3NB_MIRROR",
    help="Folder of local data sets and models, as DIR/<organisation>/<name>.",
)
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


def _limit(variable: str) -> Callable[[click.Context, click.Parameter, int | None], None]:
    """Return what makes this process, and those it starts, obey a limit until the command ends."""

    def obey(ctx: click.Context, _: click.Parameter, value: int | None) -> None:
        if value is not None:
            before = os.environ.get(variable)
            ctx.call_on_close(lambda: _set_variables({variable: before}))
            os.environ[variable] = str(value)

    return obey


SIZE = _Size()
CACHE_LIMIT = click.option(
    "--cache-limit", type=SIZE, expose_value=False, callback=_limit("QWEN3NB_CACHE_LIMIT"),
    help="Keep at most this much of vectors, of all models, such as 50GB; the least recently "
    "used go first.  [QWEN3NB_CACHE_LIMIT]",
)  # fmt: skip
READ_LIMIT = click.option(
    "--read-limit", type=SIZE, expose_value=False, callback=_limit("QWEN3NB_READ_LIMIT"),
    help="Read data files, lines and unpacked .gz files up to this size, such as 4GB, if that is "
    "more than the usual limit.  [QWEN3NB_READ_LIMIT]",
)  # fmt: skip
_REHEARSED = 16  # rows, queries and unjudged documents


def pass_names(names: Sequence[str], ctx: click.Context) -> None:
    """Let kernels have these variables, though secret, until the command ends.

    Raises:
        UsageError: a variable that is not set.
    """
    if absent := [name for name in names if name not in os.environ]:
        raise click.UsageError(
            f"--pass-env names a variable of the environment; {', '.join(absent)} is not set"
        )
    if names:
        before = os.environ.get(PASSED)
        ctx.call_on_close(lambda: _set_variables({PASSED: before}))
        os.environ[PASSED] = ",".join(dict.fromkeys([*passed_names(), *names]))


def _pass_given(ctx: click.Context, _: click.Parameter, names: tuple[str, ...]) -> None:
    pass_names(names, ctx)


PASS_ENV = click.option(
    "--pass-env", multiple=True, metavar="NAME", expose_value=False, callback=_pass_given,
    help="Let notebooks see this variable of the environment, though its name or value is that of "
    "a secret; repeatable.  [QWEN3NB_PASS_ENV]",
)  # fmt: skip


def seed_option(what: str) -> Callable[[_Command], _Command]:
    """Return the option ``--seed`` with ``what`` as its help."""
    return click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help=what
    )


def paths_given(**options: str) -> Callable[[_Command], _Command]:
    """Return a decorator: paths as arguments in this order, or as the options that are named.

    >>> paths_given(folder="--checkpoint-dir", output="--output")  # doctest: +ELLIPSIS
    <function ...>
    """
    metavar = " ".join(options).upper()

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def filled(*, arguments: tuple[Path, ...], **values: Any) -> Any:
            rest = list(arguments)
            for name, option in options.items():
                if values[name] is None:
                    if not rest:
                        raise click.UsageError(f"Missing {name.upper()}, or option {option}.")
                    values[name] = rest.pop(0)
            if rest:
                raise click.UsageError(f"Got unexpected extra argument ({rest[0]})")
            return command(**values)

        wrapped: Any = click.argument("arguments", nargs=-1, type=FILE, metavar=metavar)(filled)
        for name, option in reversed(options.items()):
            wrapped = click.option(option, name, type=FILE, help=f"The same as {name.upper()}.")(
                wrapped
            )
        return wrapped

    return decorate


def use_mirror(mirror: Path | None) -> None:
    """Make this process, and the kernels it starts, look in ``mirror`` first."""
    if mirror is not None:
        os.environ["QWEN3NB_MIRROR"] = str(mirror.resolve())


def rehearsal(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return ``parameters`` with a limit; until the command ends, write to a folder of its own.

    Raises:
        UsageError: ``output_dir`` is given; a rehearsal has its own.
    """
    if "output_dir" in parameters:
        raise click.UsageError("--rehearse writes to results/rehearsal/; give no --output-dir")
    folder = paths.results() / "rehearsal"
    own = {"QWEN3NB_RESULTS": str(folder), "QWEN3NB_BOOK": str(folder / "book")}
    before = {name: os.environ.get(name) for name in own}
    click.get_current_context().call_on_close(lambda: _set_variables(before))
    _set_variables(own)
    return {"limit": _REHEARSED, **parameters}


def _set_variables(values: Mapping[str, str | None]) -> None:
    """Set environment variables; None removes one."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def hide_library_bars() -> None:
    """Hide the progress bars of transformers while weights load."""
    from transformers.utils import logging

    logging.disable_progress_bar()
