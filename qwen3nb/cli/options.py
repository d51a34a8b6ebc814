"""Options and settings that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from qwen3nb.models.modeling.dtypes import DTYPES
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.tiers import TIERS

__all__ = [
    "DEVICE", "DTYPE", "FILE", "MIRROR", "POOLING", "TIER", "either", "hide_library_bars",
    "seed_option", "use_mirror",
]  # fmt: skip

_Command = TypeVar("_Command", bound=Callable[..., Any])

FILE: Any = click.Path(path_type=Path)
TIER = click.option("--tier", type=click.Choice(list(TIERS)), default="smoke", show_default=True)
POOLING = click.option(
    "--pooling", type=click.Choice([*POOLINGS, "auto"]), default="auto", show_default=True,
    help="auto: the model's own.",
)  # fmt: skip
DEVICE = click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N."
)
DTYPE = click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
MIRROR = click.option(
    "--mirror",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="QWEN3NB_MIRROR",
    help="Folder of local data sets and models, as DIR/<organisation>/<name>.",
)


def seed_option(what: str) -> Callable[[_Command], _Command]:
    """Return the option ``--seed`` with ``what`` as its help."""
    return click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help=what
    )


def use_mirror(mirror: Path | None) -> None:
    """Make this process, and the kernels it starts, look in ``mirror`` first."""
    if mirror is not None:
        os.environ["QWEN3NB_MIRROR"] = str(mirror.resolve())


def hide_library_bars() -> None:
    """Hide the progress bars of transformers while weights load."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def either(argument: str, given: Path | None, option: str, named: Path | None) -> Path:
    """Return a path that was given by position or by name.

    Raises:
        click.UsageError: neither or both were given.
    """
    if (given is None) == (named is None):
        count = "neither" if given is None else "both"
        raise click.UsageError(f"expected {argument} or {option} PATH; got {count}")
    return given or named or Path()
