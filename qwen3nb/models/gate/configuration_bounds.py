"""Check a ``config.json`` of any architecture before anything is built from it.

Only what costs time, runs or reads something else, or would change vectors unseen is checked here,
by name and wherever it stands in the file (``text_config``, ``encoder``). transformers checks the
types of the other settings, and the shapes they lead to are compared with those of the weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from qwen3nb.checkpoints.inside import read_object
from qwen3nb.models.types import ModelFolderError

__all__ = ["check_configuration", "check_flag", "check_settings", "check_whole"]

_MANY = 10_000  # of modules, which take their time to build before a weight is compared
_MODULES = re.compile(r"n_layers?|\w*_(layers|experts|groups|group_num)")
_EPSILON = re.compile(r"\w*norm\w*_eps(ilon)?")
_THETA = re.compile(r"\w*rope_theta|rotary_emb_base")
_FLAG = re.compile(
    r"add_cross_attention|is_(causal|decoder|encoder_decoder)|normalize|tie_word_embeddings|"
    r"use_(bidirectional_attention|sliding_window)"
)
_ACTIVATION = re.compile(
    r"activation(_function)?|dense_act_fn|(encoder_)?hidden_act(ivation)?|feed_forward_proj"
)
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
        ModelFolderError: a setting of another type or out of bounds, an unknown activation,
            code in the folder or quantised weights; names file and setting.
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


def _parts(fields: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return every object in ``fields`` with the keys that lead to it."""
    yield path, fields
    for key, value in fields.items():
        if isinstance(value, dict) and key not in _FREE:
            yield from _parts(value, f"{path}{key}.")


def _check_part(part: Mapping[str, Any], where: str) -> None:
    for name, value in part.items():
        if value is not None:
            _check_value(name, value, f"{where}{name}")
    for name, (effect, wanted) in _DIVERTING.items():
        if part.get(name) is not None:
            raise ModelFolderError(f"{where}{name} is set, so {effect}; expected {wanted}")
    for name in _ATTENTION_KEYS:
        if part.get(name) not in (None, *_ATTENTIONS):
            raise ModelFolderError(
                f"{where}{name} is {part[name]!r:.60}; expected one of {', '.join(_ATTENTIONS)}"
            )


def _check_value(name: str, value: Any, where: str) -> None:
    if _FLAG.fullmatch(name):
        check_flag(value, where)
    elif _ACTIVATION.fullmatch(name):
        _check_activation(value, where)
    elif (epsilon := _EPSILON.fullmatch(name)) or _THETA.fullmatch(name):
        largest = 1.0 if epsilon else 1e12
        if not _number(value) or not 0 < value <= largest:
            raise ModelFolderError(
                f"{where} is {value!r:.60}; expected a number above 0, at most {largest:g}"
            )
    elif name.endswith("_token_id"):
        for each in value if isinstance(value, list) else [value]:
            check_whole(each, where, (-1, 10_000_000))
    elif type(value) is int and _MODULES.fullmatch(name):
        check_whole(value, where, (0, _MANY))


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_activation(value: Any, where: str) -> None:
    from transformers.activations import ACT2FN

    name = value.removeprefix("gated-") if isinstance(value, str) else value
    if not isinstance(name, str) or (name not in ACT2FN and name not in _GATED):
        raise ModelFolderError(
            f"{where} is {value!r:.60}; expected one of {', '.join(sorted(ACT2FN))}"
        )
