"""The encoder's configuration, read from the configuration of a training."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, ClassVar

from transformers import Qwen3Config

from qwen3nb.models.types import JsonObject

_PAD_TOKEN = 151_643  # of Qwen3, by default
_ROPE_THETA = 1e6
# Required settings; `qwen3nb.models.gate.bounds` has their bounds.
_NEEDED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
)
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
        TypeError: a keyword that looks like a misspelt field.
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
        """Set derived fields; ``others`` has unknown keywords."""
        others.setdefault("rope_theta", _ROPE_THETA)
        self.normalize = others.pop("normalize_embeddings", self.normalize)
        self._check_spelling(others)
        has_pad_token = self.vocab_size > _PAD_TOKEN
        if self.pad_token_id == _PAD_TOKEN and not has_pad_token:
            self.pad_token_id = None  # the default is not in this vocabulary
        super().__post_init__(**others)

    def _check_spelling(self, names: Iterable[str]) -> None:
        """Refuse a name that looks like a mistyped field; others are those of newer releases."""
        known_names = {field.name for field in fields(self)} | set(self.attribute_map)
        for name in names:
            if name in known_names or name.startswith("_"):
                continue
            # Close to a field, and not one: a slip. Far from all: a field of a newer release.
            similar = get_close_matches(name, known_names, 1, cutoff=0.85)
            if similar:
                raise TypeError(
                    f"Qwen3EncoderConfig has no field {name!r}; did you mean {similar[0]!r}?"
                )

    @property
    def rope_theta(self) -> float:
        """The base of the rotary positions; transformers keeps it in ``rope_parameters``."""
        stored: JsonObject = getattr(self, "rope_parameters", None) or {}
        return float(stored.get("rope_theta", _ROPE_THETA))

    @rope_theta.setter
    def rope_theta(self, value: float) -> None:
        stored: JsonObject = getattr(self, "rope_parameters", None) or {}
        self.rope_parameters = {**stored, "rope_theta": value}

    @classmethod
    def from_encoder_decoder_config(
        cls, config: Any, pooling_mode: str = "mean", normalize_embeddings: bool = True
    ) -> Qwen3EncoderConfig:
        """Build the encoder's configuration as `encoder_config`, from a dictionary or an object."""
        if not isinstance(config, Mapping):
            config = vars(config)
        return encoder_config(dict(config), pooling=pooling_mode, normalize=normalize_embeddings)


def encoder_config(
    fields: JsonObject, *, pooling: str = "mean", normalize: bool = True
) -> Qwen3EncoderConfig:
    """Build the encoder's configuration from that of an encoder-decoder or a Qwen3.

    Reads the spellings in use: a nested ``encoder``, ``encoder_hidden_size`` before
    ``hidden_size``, and for the head size ``_head_dim``, ``head_dim``, else hidden size /
    heads. The rope theta has no default: a wrong value silently changes every vector.

    Args:
        fields: the checkpoint's ``config.json``.
        pooling: stored as ``pooling_mode``.
        normalize: stored as ``normalize``.

    Raises:
        ValueError: a field that is missing or of another type, an activation or a scaling of
            rotary positions that transformers does not have, key-value heads that do not divide
            the heads, or a token id beyond the embedding; names the field.
    """
    if isinstance(fields.get("encoder"), dict):  # a configuration per stack
        fields = {**fields, **fields["encoder"]}
    _check_known(fields)
    settings = {name: _setting(fields, name) for name in _NEEDED}
    heads = settings["num_attention_heads"]
    groups = settings["num_key_value_heads"]
    head_size = _setting({"head_dim": settings["hidden_size"] // heads, **fields}, "head_dim")
    if heads % groups or head_size % 2:
        raise ValueError(
            f"config.json: {heads} attention heads cannot share {groups} key-value heads, or "
            f"have the odd size {head_size}"
        )
    rows = settings["vocab_size"]
    for name in ("pad_token_id", "eos_token_id"):
        token = fields.get(name)
        if isinstance(token, int) and not 0 <= token < rows:
            raise ValueError(f"{name} is {token} but the embedding has {rows} rows")
    return Qwen3EncoderConfig(
        **settings,  # rope_theta is the older spelling, read by other engines
        head_dim=head_size,
        initializer_range=fields.get("initializer_range", 0.02),
        rope_parameters={"rope_type": "default", "rope_theta": settings["rope_theta"]},
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
    )


def _check_known(fields: JsonObject) -> None:
    """Refuse an activation or a scaling of positions that no model of transformers has.

    The training's own encoder has SiLU and plain positions whatever a known one says, see
    `ignored_settings`; an unknown one is of another architecture.
    """
    from transformers.activations import ACT2FN
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    _check_choice("hidden_act", _activation(fields), ACT2FN)
    _check_choice("rope_scaling", _rope_type(fields), {None, "default", *ROPE_INIT_FUNCTIONS})


def _check_choice(name: str, value: object, choices: Container[object]) -> None:
    is_text = value is None or isinstance(value, str)
    if not is_text or value not in choices:
        raise ValueError(
            f"config.json: {name} is {value!r:.60}, which transformers does not have; this is "
            "another architecture, or a spelling mistake"
        )


def _activation(fields: JsonObject) -> Any:
    return fields.get("encoder_hidden_act", fields.get("hidden_act", "silu"))


def _rope_type(fields: JsonObject) -> Any:
    """Return the type of scaling of rotary positions; None without any."""
    scaling = fields.get("rope_scaling") or {}
    if isinstance(scaling, dict):
        return scaling.get("rope_type", scaling.get("type"))
    return scaling


def ignored_settings(fields: JsonObject) -> list[str]:
    """Return the settings in ``config.json`` that the encoder stores but does not use.

    Its layers are plain: rotary positions without scaling, full attention, SiLU. Other
    settings may be meant for another architecture.
    """
    ignored = []
    rope = _rope_type(fields)
    if rope not in (None, "default"):
        ignored.append(f"rope_scaling {rope!r} (plain rotary positions are used)")
    activation = _activation(fields)
    if activation not in ("silu", "swish"):
        ignored.append(f"hidden_act {activation!r} (SiLU is used)")
    layers = fields.get("layer_types")
    attentions = {"full_attention"}
    if isinstance(layers, list):
        attentions.update(map(str, layers))
    if fields.get("use_sliding_window") or len(attentions) > 1:
        ignored.append("sliding-window attention (full attention is used)")
    if fields.get("attention_bias"):
        ignored.append("attention_bias (no biases are used)")
    return [f"config.json sets {setting}" for setting in ignored]


def _setting(fields: JsonObject, name: str) -> Any:
    """Return a required setting, in whichever spelling it is stored."""
    value = _stored_setting(fields, name)
    if value is None:
        raise ValueError(f"config.json lacks {name!r} (or 'encoder_{name}')")
    if name in ("rms_norm_eps", "rope_theta"):
        return float(value)
    return value


def _stored_setting(config: JsonObject, name: str) -> Any:
    # Such as "encoder_num_layers", then "encoder_num_hidden_layers", then "num_hidden_layers".
    spellings = (*_SPELLINGS.get(name, ()), f"encoder_{name}", name)
    for spelling in spellings:
        value = config.get(spelling)
        if value is not None:
            return value
    rope = config.get("rope_parameters")  # where transformers 5 keeps rope_theta
    if isinstance(rope, dict):
        return rope.get(name)
    return None
