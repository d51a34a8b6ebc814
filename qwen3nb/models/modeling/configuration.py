"""The encoder's configuration, read from the configuration of a training.

Fields are validated before anything is built from them: ten million layers, zero heads, or
an epsilon that is not a number are refused by name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable
from dataclasses import fields
from typing import Any

from transformers import Qwen3Config

_PAD_TOKEN = 151_643  # of Qwen3, by default
_ROPE_THETA = 1e6
_FROM_FILE = "_from_file"  # marks the fields of a file for `Qwen3EncoderConfig`
# Keywords that every configuration of transformers takes, besides its fields.
_GENERAL = {
    "attn_implementation",
    "experts_implementation",
    "name_or_path",
    "num_labels",
    "output_attentions",
    "rope_scaling",
    "rope_theta",
    "torch_dtype",
    "transformers_version",
}
# Settings that are whole numbers, and their plausible ranges, checked before anything is built.
_WHOLE_NUMBERS = {
    "vocab_size": (1, 10_000_000),
    "hidden_size": (1, 65_536),
    "intermediate_size": (1, 1_000_000),
    "num_hidden_layers": (1, 1_000),
    "num_attention_heads": (1, 1_024),
    "num_key_value_heads": (1, 1_024),
    "max_position_embeddings": (1, 1_000_000_000),
}
# Other spellings, tried before the plain one.
_SPELLINGS = {"num_hidden_layers": ("encoder_num_layers", "encoder_layers", "num_encoder_layers")}


class Qwen3EncoderConfig(Qwen3Config):
    """A stock ``qwen3`` configuration that is bidirectional and stores its pooling.

    Without arguments, the encoder of a Qwen3-0.6B with 64 dimensions per head.

    Args:
        pooling_mode: one of `POOLINGS`; ``mean`` by default.
        normalize: whether ``pooler_output`` has length 1.

    Raises:
        TypeError: a keyword that is no field; a file read by ``from_pretrained`` may have
            fields of other programs, which are kept.
    """

    vocab_size: int = 152_036
    hidden_size: int = 1024
    intermediate_size: int = 2816
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    num_key_value_heads: int | None = 8
    head_dim: int = 64
    max_position_embeddings: int = 40_960
    pad_token_id: int | None = _PAD_TOKEN
    pooling_mode: str = "mean"
    normalize: bool = True
    is_causal: bool = False
    # text-embeddings-inference's name of the same setting.
    use_bidirectional_attention: bool = True

    def __post_init__(self, **others: Any) -> None:
        """Check the keywords that are no fields; ``others`` has them."""
        others.setdefault("rope_theta", _ROPE_THETA)
        if not others.pop(_FROM_FILE, False):
            _check_keywords(others, {each.name for each in fields(self)})
        if self.pad_token_id == _PAD_TOKEN and self.vocab_size <= _PAD_TOKEN:
            self.pad_token_id = None  # the default, of a vocabulary that does not have it
        super().__post_init__(**others)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        """Build a configuration from the content of a ``config.json``."""
        return super().from_dict({**config_dict, _FROM_FILE: True}, **options)


def _check_keywords(others: Iterable[str], known: Collection[str]) -> None:
    unknown = [name for name in others if name not in _GENERAL]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise TypeError(
            f"Qwen3EncoderConfig has no field {unknown[0]!r}.{hint} Fields: "
            f"{', '.join(sorted(known))}"
        )


def encoder_config(
    fields: dict[str, Any], *, pooling: str = "mean", normalize: bool = True
) -> Qwen3EncoderConfig:
    """Build the encoder's configuration from that of an encoder-decoder or a Qwen3.

    Reads the spellings in use: a nested ``encoder``, ``encoder_hidden_size`` before
    ``hidden_size``, and for the head size ``_head_dim``, ``head_dim``, else hidden size /
    heads. The rope theta is copied, never defaulted: a wrong value silently changes every
    vector.

    Args:
        fields: the checkpoint's ``config.json``.
        pooling: stored as ``pooling_mode``.
        normalize: stored as ``normalize``.

    Raises:
        ValueError: a field that is missing or out of range, key-value heads that do not divide
            the heads, or a token id beyond the embedding; names the field.
    """
    if isinstance(fields.get("encoder"), dict):  # a configuration per stack
        fields = {**fields, **fields["encoder"]}
    sizes = {name: _whole(fields, name, bounds) for name, bounds in _WHOLE_NUMBERS.items()}
    heads, groups = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    if heads % groups:
        raise ValueError(
            f"config.json: {heads} attention heads cannot share {groups} key-value heads"
        )
    for name in ("pad_token_id", "eos_token_id"):
        token = fields.get(name)
        if isinstance(token, int) and not 0 <= token < sizes["vocab_size"]:
            raise ValueError(f"{name} is {token} but the embedding has {sizes['vocab_size']} rows")
    theta = _positive(fields, "rope_theta", largest=1e12)
    return Qwen3EncoderConfig(
        **sizes,
        head_dim=_head_dim(fields, sizes["hidden_size"], heads),
        rms_norm_eps=_positive(fields, "rms_norm_eps", largest=1.0),
        initializer_range=fields.get("initializer_range", 0.02),
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        rope_theta=theta,  # the older spelling, which other engines read
        hidden_act="silu",
        attention_bias=False,
        attention_dropout=0.0,
        use_sliding_window=False,
        tie_word_embeddings=False,
        use_cache=False,
        pad_token_id=fields.get("pad_token_id"),
        eos_token_id=fields.get("eos_token_id"),
        pooling_mode=pooling,
        normalize=normalize,
        is_causal=False,
        use_bidirectional_attention=True,
    )


def ignored_settings(fields: dict[str, Any]) -> list[str]:
    """Return the settings in ``config.json`` that the encoder stores but does not use.

    Its layers are plain: rotary positions without scaling, full attention, SiLU. Other
    settings may be meant for another architecture.
    """
    ignored = []
    scaling = fields.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type")) if isinstance(scaling, dict) else scaling
    if kind not in (None, "default"):
        ignored.append(f"rope_scaling {kind!r} (plain rotary positions are used)")
    activation = fields.get("encoder_hidden_act", fields.get("hidden_act", "silu"))
    if activation not in ("silu", "swish"):
        ignored.append(f"hidden_act {activation!r} (SiLU is used)")
    layers = fields.get("layer_types")
    kinds = set(map(str, layers)) if isinstance(layers, list) else set()
    if fields.get("use_sliding_window") or kinds - {"full_attention"}:
        ignored.append("sliding-window attention (full attention is used)")
    if fields.get("attention_bias"):
        ignored.append("attention_bias (no biases are used)")
    return [f"config.json sets {each}" for each in ignored]


def _find(fields: dict[str, Any], name: str) -> Any:
    rope = fields.get("rope_parameters")
    for key in (*_SPELLINGS.get(name, ()), f"encoder_{name}", name):
        if fields.get(key) is not None:
            return fields[key]
    if isinstance(rope, dict) and rope.get(name) is not None:
        return rope[name]
    inside = " or rope_parameters.rope_theta" if name == "rope_theta" else ""
    raise ValueError(f"config.json lacks {name!r} (or 'encoder_{name}'{inside})")


def _whole(fields: dict[str, Any], name: str, bounds: tuple[int, int]) -> int:
    value = _find(fields, name)
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise ValueError(
            f"config.json: {name} is {value!r:.60}; expected a whole number from {bounds[0]:,} "
            f"to {bounds[1]:,}"
        )
    return value


def _positive(fields: dict[str, Any], name: str, *, largest: float) -> float:
    value = _find(fields, name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= largest:
        raise ValueError(
            f"config.json: {name} is {value!r:.60}; expected a number above 0, at most {largest:g}"
        )
    return float(value)


def _head_dim(fields: dict[str, Any], hidden: int, heads: int) -> int:
    for key in ("encoder_head_dim", "_head_dim", "head_dim"):
        if (value := fields.get(key)) is not None:
            break
    else:
        key, value = "head_dim", hidden // heads
    if type(value) is not int or not 2 <= value <= 4096 or value % 2:
        raise ValueError(
            f"config.json: {key} is {value!r:.60}; expected an even number from 2 to 4096"
        )
    return value
