"""The command line of a script, and processes of their own.

Peak memory is that of a process that does one thing, above what it had after its imports.
"""

from __future__ import annotations

import inspect
import json
import runpy
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from qwen3nb.bench.harness import Timing, timed
from qwen3nb.utils.format import json_text
from qwen3nb.utils.hardware import peak_memory, resident_memory

T = TypeVar("T")
PYTHON = sys.executable


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


@dataclass(frozen=True)
class ChildTiming(Timing):
    """One call in a process of its own."""

    output: Any  # what the call returned, through JSON
    peak: int  # peak memory of the process in bytes
    above: int  # the part of the peak above that before the call
    grown: int  # the part of the peak above the memory before the call


def in_child(prepare: Callable[..., Callable[[], Any]], *arguments: str | int) -> ChildTiming:
    """Call what ``prepare`` returns in a new process, and measure that call.

    Args:
        prepare: a function of a module or of a script; what it imports, loads and warms is not
            measured.
        arguments: of ``prepare``.

    Raises:
        ValueError: the process failed; with the end of its error output.
    """
    code = "import sys; from benchmarks.options import _child; _child(*sys.argv[1:])"
    file, name = prepare.__code__.co_filename, prepare.__name__
    printed = finished([PYTHON, "-c", code, file, name, json.dumps(arguments)])
    return ChildTiming(**json.loads(printed.splitlines()[-1]))


def _child(file: str, name: str, arguments: str) -> None:
    """In the child process: prepare, call, and print what the call took."""
    call = runpy.run_path(file)[name](*json.loads(arguments))
    highest, before = peak_memory() or 0, resident_memory()
    output, timing = timed(call)
    peak = peak_memory() or resident_memory()
    answer = {"output": output, "peak": peak, "above": peak - highest, "grown": peak - before}
    print(json.dumps({**vars(timing), **answer}))


def finished(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Run a program to its end and return what it printed.

    Raises:
        ValueError: it failed; with the end of its error output.
    """
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stderr or done.stdout)[-2000:]
        raise ValueError(f"`{' '.join(arguments[1:7])} …` failed:\n{tail}")
    return done.stdout
