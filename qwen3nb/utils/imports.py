"""Import late: public names on first use, and large libraries without the garbage collector.

MTEB, sentence-transformers and what they import leave 700,000 objects that live as long as the
process. The collector visits them during the import, in each later full pass, and when the process
ends, which takes as much time as the imports themselves.
"""

import ast
import difflib
import gc
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pandas

# pandas is only imported where a frame is made.
DataFrame: TypeAlias = "pandas.DataFrame"


def lazy_names(
    module: str,
    file: str,
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return a module's ``__getattr__``, ``__dir__`` and ``__all__`` for names loaded on first use.

    Args:
        module: name of the module.
        file: its ``__file__``. The stub next to it imports the names, so that type checkers and
            editors know what is loaded at run time.
    """
    module_of = _imports_of(Path(file).with_suffix(".pyi"))

    def get(name: str) -> object:
        if name not in module_of:
            hint = ""
            similar = difflib.get_close_matches(name, module_of, n=3)
            if similar:
                hint = f"; did you mean {' or '.join(similar)}?"
            raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}")
        source = module_of[name]
        if source == module:  # the name is that of a module in this package
            value: object = importlib.import_module(f"{source}.{name}")
        else:
            value = getattr(importlib.import_module(source), name)
        setattr(sys.modules[module], name, value)  # found there the next time
        return value

    def names() -> list[str]:
        return sorted(module_of)

    return get, names, names()


def _imports_of(stub: Path) -> dict[str, str]:
    """Return the module that each name in a stub is imported from."""
    modules: dict[str, str] = {}
    for statement in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                modules[alias.name] = str(statement.module)
    return modules


def load_library(name: str) -> ModuleType:
    """Import and return a module without garbage collection of the objects it creates.

    If PyTorch was not loaded before, all objects are then frozen (`gc.freeze`). Later, they might
    include models, with reference cycles; then collection only pauses during the import.
    """
    if name in sys.modules:
        return sys.modules[name]
    # Large libraries leave 700,000 objects for good: once frozen, they cost the collector nothing.
    is_before_torch = "torch" not in sys.modules
    was_enabled = gc.isenabled()
    if is_before_torch:
        gc.collect()  # frozen garbage would stay
    gc.disable()
    try:
        module = importlib.import_module(name)
        if is_before_torch:
            # Not after torch: models, which must be collected, would be frozen as well.
            gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
    return module
