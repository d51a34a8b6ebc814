"""An attention of our own in a transformers model, and whether the model allows one.

transformers calls it in each layer, without the mask that it would make for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["FIXED_ROPES", "attend_with", "other_layers", "rope_type"]

# Rotary frequencies that depend neither on the batch nor on its longest text.
FIXED_ROPES = ("default", "linear", "yarn", "llama3")


def attend_with(model: Any, name: str, attention: Callable[..., Any]) -> None:
    """Let every layer of ``model`` call ``attention``, known to transformers as ``name``."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, _no_mask)
    model.set_attn_implementation(name)


def _no_mask(*_: Any, **__: Any) -> None:
    return None


def rope_type(config: Any) -> str:
    """How the model's rotary positions are made; ``default`` where it does not say."""
    return str((getattr(config, "rope_parameters", None) or {}).get("rope_type", "default"))


def other_layers(config: Any) -> set[str]:
    """Kinds of layers that do not attend to all that came before, such as sliding windows."""
    return set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
