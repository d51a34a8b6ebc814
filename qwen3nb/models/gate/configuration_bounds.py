"""Check a ``config.json`` of any architecture against bounds, before anything is built from it.

Settings are checked by name, wherever they stand in the file, because architectures nest them
(``text_config``, ``encoder``) and share their names. What is not listed here is checked by
transformers, or by comparing the shapes that it leads to with those of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from qwen3nb.checkpoints.inside import read_object
from qwen3nb.models.modeling.size_bounds import WHOLE_NUMBERS
from qwen3nb.models.types import ModelFolderError

__all__ = ["check_configuration", "check_flag", "check_settings", "check_share", "check_whole"]

# Other architectures' names of the settings in `WHOLE_NUMBERS`.
_SYNONYMS = {
    "hidden_size": ("d_model", "dim", "n_embd", "embedding_size", "word_embed_proj_dim"),
    "intermediate_size": (
        "d_ff", "d_inner", "decoder_ffn_dim", "encoder_ffn_dim", "ffn_dim", "ffn_hidden_size",
        "hidden_dim", "moe_intermediate_size", "n_inner",
    ),
    "num_hidden_layers": (
        "decoder_layers", "encoder_layers", "encoder_num_layers", "n_layer", "n_layers",
        "num_decoder_layers", "num_encoder_layers", "num_layers", "num_hidden_groups",
        "inner_group_num",
    ),
    "num_attention_heads": (
        "decoder_attention_heads", "encoder_attention_heads", "n_head", "n_heads", "num_heads",
    ),
    "num_key_value_heads": ("num_kv_heads",),
    "max_position_embeddings": ("n_ctx", "n_positions"),
}  # fmt: skip
_SIZES = (
    WHOLE_NUMBERS
    | {other: WHOLE_NUMBERS[name] for name, others in _SYNONYMS.items() for other in others}
    | {f"encoder_{name}": bounds for name, bounds in WHOLE_NUMBERS.items()}
    | dict.fromkeys(("head_dim", "_head_dim", "encoder_head_dim", "d_kv", "d_head"), (1, 4_096))
    | dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), (0, 10_000))
    | {"type_vocab_size": (0, 1_000_000)}
    | {"relative_attention_num_buckets": (1, 100_000), "max_window_layers": (0, 1_000)}
)
# xlnet has no limit, which it writes as -1.
_UNLIMITED = {"max_position_embeddings", "n_positions"}
_POSITIVE = {  # numbers above 0, and the largest plausible one
    **dict.fromkeys(
        ("layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_eps", "norm_epsilon",
         "rms_norm_eps"),
        1.0,
    ),
    **dict.fromkeys(("rope_theta", "global_rope_theta", "local_rope_theta", "rotary_emb_base"),
                    1e12),
}  # fmt: skip
_FLAGS = {
    "add_cross_attention", "attention_bias", "is_causal", "is_decoder", "is_encoder_decoder",
    "mlp_bias", "normalize", "tie_word_embeddings", "use_bidirectional_attention", "use_cache",
    "use_sliding_window",
}  # fmt: skip
_ACTIVATIONS = {
    "activation", "activation_function", "dense_act_fn", "encoder_hidden_act",
    "feed_forward_proj", "hidden_act", "hidden_activation",
}  # fmt: skip
_GATED = ("glu", "swiglu", "geglu", "reglu")  # names that architectures resolve themselves
_ATTENTIONS = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
_ATTENTION_KEYS = ("_attn_implementation", "attn_implementation")
# Settings that make transformers read, build or run something else than what is checked here.
_FLOATS = "the original model, of plain float weights, or no such key if the weights are floats"
_OWN = "no such key, if the classes of transformers compute the same"
_DIVERTING = {
    "auto_map": ("code in the folder is the model, and it is never run", _OWN),
    "compression_config": ("the weights are quantised", _FLOATS),
    "fusion_config": ("modules would be replaced", _OWN),
    "quantization_config": ("the weights are quantised", _FLOATS),
    "transformers_weights": ("weights of another name would be read", _FLOATS),
}
_FREE = {"id2label", "label2id", "task_specific_params"}  # names of the user's own


def check_configuration(fields: Mapping[str, Any], file: Path) -> None:
    """Check the content of a ``config.json``.

    Args:
        fields: its content.
        file: named in errors.

    Raises:
        ModelFolderError: a setting of another type or out of bounds, heads that cannot share
            the key-value heads, another number of layer types than of layers, an unknown
            activation, or quantised weights; names file and setting.
    """
    model_type = fields.get("model_type")
    if not isinstance(model_type, str | None):
        raise ModelFolderError(f"{file}: model_type is {model_type!r:.60}; expected a string")
    for path, part in _parts(fields):
        _check_part(part, f"{file}: {path}")


def check_settings(folder: Path) -> None:
    """Check the settings of sentence-transformers that a folder stores beside its model.

    Raises:
        ModelFolderError: a maximum length or a number of dimensions that is no whole number, or
            a flag that is none; names file and key.
        CheckpointError: a JSON file that is malformed.
    """
    limits = folder / "sentence_bert_config.json"
    fields = read_object(limits) if limits.exists() else {}
    if (length := fields.get("max_seq_length")) is not None:
        check_whole(length, f"{limits}: max_seq_length", (1, 1_000_000_000))
    if "do_lower_case" in fields:
        check_flag(fields["do_lower_case"], f"{limits}: do_lower_case")
    root = folder / "config_sentence_transformers.json"
    fields = read_object(root) if root.exists() else {}
    if (dimensions := fields.get("truncate_dim")) is not None:
        check_whole(dimensions, f"{root}: truncate_dim", (1, 1_000_000))
    if (generation := folder / "generation_config.json").exists():
        read_object(generation)


def check_whole(value: object, name: str, bounds: tuple[int, int]) -> None:
    """Refuse a ``value`` that is no whole number within ``bounds``; ``name`` is file and key."""
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise ModelFolderError(
            f"{name} is {value!r:.60}; expected a whole number from {bounds[0]:,} to {bounds[1]:,}"
        )


def check_flag(value: object, name: str) -> None:
    """Refuse a ``value`` that is neither true nor false; ``name`` is file and key."""
    if not isinstance(value, bool):
        raise ModelFolderError(f"{name} is {value!r:.60}; expected true or false")


def check_share(value: object, name: str) -> None:
    """Refuse a ``value`` that is no number from 0 to 1; ``name`` is file and key."""
    if not _number(value) or not 0 <= value <= 1:
        raise ModelFolderError(f"{name} is {value!r:.60}; expected a number from 0 to 1")


def _parts(fields: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return every object in ``fields`` with the keys that lead to it."""
    yield path, fields
    for key, value in fields.items():
        if isinstance(value, dict) and key not in _FREE:
            yield from _parts(value, f"{path}{key}.")


def _check_part(part: Mapping[str, Any], where: str) -> None:
    for name, value in part.items():
        if value is not None and (check := _check_of(name)) is not None:
            check(value, f"{where}{name}")
    for name, (effect, wanted) in _DIVERTING.items():
        if part.get(name) is not None:
            raise ModelFolderError(f"{where}{name} is set, so {effect}; expected {wanted}")
    for name in _ATTENTION_KEYS:
        if part.get(name) not in (None, *_ATTENTIONS):
            raise ModelFolderError(
                f"{where}{name} is {part[name]!r:.60}; expected one of {', '.join(_ATTENTIONS)}"
            )
    _check_layer_types(part, where)
    _check_shared_heads(part, where)
    _check_padding(part, where)


def _check_of(name: str) -> Callable[[Any, str], None] | None:
    if name in _SIZES:
        return _check_size
    if name in _POSITIVE:
        return _check_positive
    if name in _FLAGS:
        return check_flag
    if name in _ACTIVATIONS:
        return _check_activation
    if name.endswith("_token_id"):
        return _check_token
    return check_share if name.endswith(("dropout", "dropout_prob", "_pdrop")) else None


def _key(where: str) -> str:
    return where.rpartition(".")[2].rpartition(" ")[2]


def _check_size(value: Any, where: str) -> None:
    name = _key(where)
    if name in _UNLIMITED and value == -1:
        return
    # Some architectures have a size per layer.
    several = isinstance(value, list) and name == "intermediate_size" and value
    for each in value if several else [value]:
        check_whole(each, where, _SIZES[name])


def _check_positive(value: Any, where: str) -> None:
    largest = _POSITIVE[_key(where)]
    if not _number(value) or not 0 < value <= largest:
        raise ModelFolderError(
            f"{where} is {value!r:.60}; expected a number above 0, at most {largest:g}"
        )


def _check_token(value: Any, where: str) -> None:
    for each in value if isinstance(value, list) else [value]:
        check_whole(each, where, (-1, 10_000_000))


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_activation(value: Any, where: str) -> None:
    from transformers.activations import ACT2FN

    name = value.removeprefix("gated-") if isinstance(value, str) else value
    if not isinstance(name, str) or (name not in ACT2FN and name not in _GATED):
        raise ModelFolderError(
            f"{where} is {value!r:.60}; expected one of {', '.join(sorted(ACT2FN))}"
        )


def _check_layer_types(part: Mapping[str, Any], where: str) -> None:
    types, layers = part.get("layer_types"), part.get("num_hidden_layers")
    if types is None:
        return
    if not isinstance(types, list) or not all(isinstance(each, str) for each in types):
        raise ModelFolderError(f"{where}layer_types is {types!r:.60}; expected a list of names")
    if layers is not None and len(types) != layers:
        raise ModelFolderError(
            f"{where}layer_types has {len(types)} entries; expected num_hidden_layers, {layers}"
        )


def _check_shared_heads(part: Mapping[str, Any], where: str) -> None:
    heads, groups = part.get("num_attention_heads"), part.get("num_key_value_heads")
    if heads is not None and groups is not None and heads % groups:
        raise ModelFolderError(
            f"{where}num_key_value_heads is {groups}: {heads} attention heads cannot share "
            f"{groups} key-value heads; expected a divisor"
        )


def _check_padding(part: Mapping[str, Any], where: str) -> None:
    rows, padding = part.get("vocab_size"), part.get("pad_token_id")
    if rows is not None and isinstance(padding, int) and padding >= rows:
        raise ModelFolderError(
            f"{where}pad_token_id is {padding} but the embedding has {rows} rows; expected an id "
            "below that"
        )
