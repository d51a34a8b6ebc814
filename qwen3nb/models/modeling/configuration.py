"""The encoder's configuration, read from the configuration of a training.

Fields are validated before anything is built from them: ten million layers, zero heads, or
an epsilon that is not a number are refused by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, ClassVar

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
# What the encoder needs: its type and plausible range, checked before anything is built.
_NEEDED: dict[str, tuple[type, float, float]] = {
    "vocab_size": (int, 1, 10_000_000),
    "hidden_size": (int, 1, 65_536),
    "intermediate_size": (int, 1, 1_000_000),
    "num_hidden_layers": (int, 1, 1_000),
    "num_attention_heads": (int, 1, 1_024),
    "num_key_value_heads": (int, 1, 1_024),
    "max_position_embeddings": (int, 1, 1_000_000_000),
    "head_dim": (int, 2, 4_096),
    "rms_norm_eps": (float, 1e-20, 1),
    "rope_theta": (float, 1e-3, 1e12),
}
# Other spellings, tried before `encoder_` and the plain one.
_SPELLINGS = {
    "num_hidden_layers": ("encoder_num_layers", "encoder_layers", "num_encoder_layers"),
    "head_dim": ("encoder_head_dim", "_head_dim"),
}


class Qwen3EncoderConfig(Qwen3Config):
    """A stock ``qwen3`` configuration that is bidirectional and stores its pooling.

    Without arguments, the encoder of a Qwen3-0.6B with 64 dimensions per head.

    Args:
        pooling_mode: one of `POOLINGS`; ``mean`` by default.
        normalize: whether ``pooler_output`` has length 1; also called ``normalize_embeddings``.

    Raises:
        TypeError: a keyword that is not a field; a file read by ``from_pretrained`` may have
            fields of other programs, which are kept.
    """

    attribute_map: ClassVar[dict[str, str]] = {"normalize_embeddings": "normalize"}
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
        """Check the keywords that are not fields; ``others`` has them."""
        others.setdefault("rope_theta", _ROPE_THETA)
        self.normalize = others.pop("normalize_embeddings", self.normalize)
        if not others.pop(_FROM_FILE, False):
            _check_keywords(others, {each.name for each in fields(self)})
        if self.pad_token_id == _PAD_TOKEN and self.vocab_size <= _PAD_TOKEN:
            self.pad_token_id = None  # the default, of a vocabulary that does not have it
        super().__post_init__(**others)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        """Build a configuration from the content of a ``config.json``."""
        return super().from_dict({**config_dict, _FROM_FILE: True}, **options)

    @classmethod
    def from_encoder_decoder_config(
        cls, config: Any, pooling_mode: str = "mean", normalize_embeddings: bool = True
    ) -> Qwen3EncoderConfig:
        """Build the encoder's configuration as `encoder_config`, from a dictionary or an object."""
        known = config if isinstance(config, Mapping) else vars(config)
        return encoder_config(dict(known), pooling=pooling_mode, normalize=normalize_embeddings)


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
    needed = {name: _setting(fields, name) for name in _NEEDED if name != "head_dim"}
    heads, groups = needed["num_attention_heads"], needed["num_key_value_heads"]
    size = _setting({"head_dim": needed["hidden_size"] // heads, **fields}, "head_dim")
    if heads % groups or size % 2:
        raise ValueError(
            f"config.json: {heads} attention heads cannot share {groups} key-value heads, or "
            f"have the odd size {size}"
        )
    for name in ("pad_token_id", "eos_token_id"):
        token = fields.get(name)
        if isinstance(token, int) and not 0 <= token < needed["vocab_size"]:
            raise ValueError(f"{name} is {token} but the embedding has {needed['vocab_size']} rows")
    return Qwen3EncoderConfig(
        **needed,  # rope_theta is the older spelling, which other engines read
        head_dim=size,
        initializer_range=fields.get("initializer_range", 0.02),
        rope_parameters={"rope_type": "default", "rope_theta": needed["rope_theta"]},
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
    rope = scaling.get("rope_type", scaling.get("type")) if isinstance(scaling, dict) else scaling
    if rope not in (None, "default"):
        ignored.append(f"rope_scaling {rope!r} (plain rotary positions are used)")
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


def _setting(fields: dict[str, Any], name: str) -> Any:
    kind, least, most = _NEEDED[name]
    rope = fields.get("rope_parameters")
    keys = (*_SPELLINGS.get(name, ()), f"encoder_{name}", name)
    values = [fields.get(key) for key in keys] + (
        [rope.get(name)] if isinstance(rope, dict) else []
    )
    value = next((each for each in values if each is not None), None)
    if value is None:
        raise ValueError(f"config.json lacks {name!r} (or 'encoder_{name}')")
    number = isinstance(value, int | kind) and not isinstance(value, bool)
    if not number or not least <= value <= most:
        raise ValueError(
            f"config.json: {name} is {value!r:.60}; expected a number from {least:,} to {most:,}"
        )
    return kind(value)
