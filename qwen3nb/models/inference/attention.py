"""Custom attention in a transformers model, and what decides whether a model supports it.

transformers calls the function in each layer, without building its own mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["FIXED_ROPES", "attend_with", "other_layers", "rope_type"]

# Rotary frequencies that depend neither on the batch nor on its longest text.
FIXED_ROPES = ("default", "linear", "yarn", "llama3")


def attend_with(model: Any, name: str, attention: Callable[..., Any]) -> None:
    """Register ``attention`` with transformers as ``name``; every layer of ``model`` calls it.

    No mask is registered, so transformers passes None. Registering a function that returns None
    would do the same, but transformers would first look whether positions restart, which makes
    the host wait for a GPU.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(name, attention)
    model.set_attn_implementation(name)


def rope_type(config: Any) -> str:
    """Return the type of the model's rotary positions; ``default`` if unset."""
    return str((getattr(config, "rope_parameters", None) or {}).get("rope_type", "default"))


def other_layers(config: Any) -> set[str]:
    """Return the kinds of layers without full attention, such as sliding windows."""
    return set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
