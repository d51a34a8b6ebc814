"""Which study a command works in: said before it starts, refused where there is none.

What a command writes lands in a folder that may be far from the working directory, since
`QWEN3NB_HOME` or a study above it decides. So a command that writes results, pages or models says
where; one that only reads them says so if they are not those of the folder one is in. The line
goes to standard error; standard output holds the answer alone. Vectors in the cache, which
only save time, are not worth a line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from qwen3nb import paths
from qwen3nb.utils.terminal import say

__all__ = ["in_study"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def in_study(
    *, writes: bool = False, unless: Sequence[str] = (), folder: Callable[[], Path] = paths.results
) -> Callable[[_Command], _Command]:
    """Return a decorator of a command that works in a study.

    Args:
        writes: whether it writes there.
        unless: options with which it needs no study, such as the folder of the records.
        folder: what it needs of the study.

    Raises:
        NoStudyError: by the command, before it does anything, outside a study.
    """

    def decorate(command: _Command) -> _Command:
        @functools.wraps(command)
        def checked(**values: Any) -> Any:
            if not any(values.get(name) for name in unless):
                needed = folder()
                _say_root(needed, writes=writes)
            return command(**values)

        wrapped: Any = checked
        return wrapped

    return decorate


def _say_root(needed: Path, *, writes: bool) -> None:
    """Say which study it is, and where a variable moves the folder out of it."""
    root = paths.find_root()
    inside = root is not None and needed.is_relative_to(root)
    if writes or not inside or root is None or not Path.cwd().is_relative_to(root):
        parts = [f"study: {root}"] if root else []
        if not inside:
            parts.append(f"{needed.name}: {needed}")
        say(", ".join(parts), err=True, dim=True)
