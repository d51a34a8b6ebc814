"""Studies of the notebooks, beyond an evaluation, each loaded when first used."""

from typing import Any

from qwen3nb.old_names import refuse_old_name
from qwen3nb.utils.imports import lazy_names

_get, __dir__, __all__ = lazy_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Load a name on first use; an old name says what to write instead."""
    refuse_old_name(f"studies.{name}")
    return _get(name)
