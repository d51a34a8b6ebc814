"""Options and settings that several commands share."""

from __future__ import annotations

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
    "ALPHA", "BATCH_SIZE", "CACHE_LIMIT", "DEVICE", "DIMENSIONS", "DTYPE", "FACTS", "FILE",
    "HUB_ID", "JSON", "LICENSE", "MAX_LENGTH", "MIRROR", "NO_CACHE", "PASS_ENV", "POOLING",
    "RAY", "READ_LIMIT", "REHEARSE", "SIZE", "TESTED", "THRESHOLD", "TIER", "hide_library_bars",
    "pass_names", "print_json", "rehearsal", "seed_option", "use_mirror",
]  # fmt: skip

_Command = TypeVar("_Command", bound=Callable[..., Any])

FILE: Any = click.Path(path_type=Path)
JSON = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document, for programs.",
)
TIER = click.option(
    "--tier", type=click.Choice(list(TIERS)),
    help="The tier to show.  [default: the richest with results]",
)  # fmt: skip
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
    "--pooling", type=click.Choice([*POOLINGS, "auto"]), default="auto", show_default=True,
    help="auto: the model's own.",
)  # fmt: skip
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
    "--metric", "tested", multiple=True, default=("MRR@10", "nDCG@10"), show_default=True,
    help="Tested metrics; the first one decides.",
)  # fmt: skip
ALPHA = click.option("--alpha", type=click.FloatRange(0, 1), default=0.05, show_default=True)
THRESHOLD = click.option(
    "--threshold", type=click.FloatRange(min=0), default=0.05, show_default=True,
    help="Smallest difference that matters.",
)  # fmt: skip
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


def print_json(value: Any) -> None:
    """Print dataclasses, or containers of them, as the one JSON document of a command."""
    from qwen3nb.utils.format import json_text

    click.echo(json_text(value))


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
        raise click.UsageError("--rehearse writes to results/rehearsal/; give no --out")
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
