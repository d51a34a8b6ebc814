"""qwen3nb: from a Qwen3 training checkpoint to a book whose every number can be traced.

The names below are public. Namespaces: `tables`, `figures` and `conclusions` present results and
the output of `studies`; `stats`; `datasets`; `paths` of everything on disk. Each is loaded on first
use, which keeps `import qwen3nb` fast.
"""

from typing import Any

from qwen3nb.utils.imports import lazy_names

_get, __dir__, __all__ = lazy_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Load a public name on first use; an old name says what to write instead."""
    if name not in __all__ and not name.startswith("__"):
        from qwen3nb.old_names import namespace_of_old_names, refuse_old_name

        refuse_old_name(name)
        namespace = namespace_of_old_names(name)
        if namespace is not None:
            return namespace
    return _get(name)
