"""Public names that are loaded on first use."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    module: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return a module's ``__getattr__``, ``__dir__`` and ``__all__`` for names loaded on first use.

    Args:
        module: name of the module.
        homes: its names, by the module that defines them; under a key that ends in a dot, the
            names are modules of that package.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            near = difflib.get_close_matches(name, home_of, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}")
        home = home_of[name]
        if home.endswith("."):
            value = importlib.import_module(home + name)
        else:
            value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        return sorted(home_of)

    return get, names, names()
