"""The command line of a script: its options are the keyword arguments of a function."""

from __future__ import annotations

import inspect
from argparse import ArgumentParser
from collections.abc import Callable
from typing import TypeVar

from qwen3nb.utils.format import json_text

T = TypeVar("T")


def command(bench: Callable[..., T], shown: Callable[[T], str]) -> None:
    """Call ``bench`` with the options of the command line, which are its keyword arguments.

    Args:
        bench: a function whose keyword arguments have defaults; its docstring is the help.
        shown: what is printed of its result; ``--json`` prints all of it.
    """
    parser = ArgumentParser(description=(bench.__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    for name, parameter in inspect.signature(bench).parameters.items():
        several = isinstance(parameter.default, tuple)
        one = parameter.default[0] if several else parameter.default
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            nargs="+" if several else None,
            type=(lambda text: text in ("1", "true")) if isinstance(one, bool) else type(one),
            default=parameter.default,
            help=f"default: {parameter.default!r}",
        )
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    result = bench(**options)
    print(json_text(result) if as_json else shown(result))
