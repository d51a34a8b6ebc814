"""Map weight names of the encoder-decoder to those of a stock Qwen3."""

from __future__ import annotations

__all__ = ["encoder_name"]

_SHARED = "model.shared.weight"
_ENCODER = "model.encoder."
_ALIASES = {
    "model.encoder.embed_tokens.weight": _SHARED,
    "model.decoder.embed_tokens.weight": _SHARED,
    "lm_head.weight": _SHARED,
}


def encoder_name(name: str) -> str | None:
    """Return the Qwen3 name of an encoder-decoder tensor, or None if the encoder lacks it.

    >>> encoder_name("model.shared.weight")
    'embed_tokens.weight'
    >>> encoder_name("model.encoder.layers.3.mlp.up_proj.weight")
    'layers.3.mlp.up_proj.weight'
    >>> encoder_name("model.decoder.norm.weight") is None
    True
    """
    if name == _SHARED:
        return "embed_tokens.weight"
    if name in _ALIASES or not name.startswith(_ENCODER):
        return None
    return name.removeprefix(_ENCODER)
