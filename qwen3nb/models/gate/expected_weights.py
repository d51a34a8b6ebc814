"""Compare the weights in a folder with those that its configuration expects, by headers alone.

What an architecture expects, and under which names it accepts its weights, is decided by
transformers: its own loader runs on tensors without values (torch's ``meta`` device). A weight
may only be absent if the states that are used do not depend on it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.checkpoint import Checkpoint
from qwen3nb.checkpoints.tied_weights import EMBEDDINGS
from qwen3nb.checkpoints.types import FLOATS, TensorEntry
from qwen3nb.checkpoints.weight_names import encoder_name
from qwen3nb.models.gate.refusal import quiet, refusing
from qwen3nb.models.types import ModelFolderError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "check_encoder_weights",
    "check_length",
    "check_reads_text",
    "check_weights",
    "mismatches",
    "refuse",
    "wrong_types",
]

# Names and shapes of tensors.
Shapes = Mapping[str, tuple[int, ...]]
_LAYER_KEYS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers")
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.")
_POSITIONS = ("position_embeddings", "wpe")  # modules with a row per position
_SHOWN = 3
# Tasks of transformers whose architectures read texts, others that do, and what they consist of.
_TEXT = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "TEXT_ENCODING")
_TEXT_TYPES = ("canine", "splinter")
_TEXT_PARTS = {"attn_config", "decoder", "encoder", "ffn_config"}
_LAYER = re.compile(r"layers\.\d{1,9}\.")


def check_weights(
    opened: Checkpoint, *, head: bool = False, encoder: bool = False, whole: bool = False
) -> Any:
    """Check the weights of an architecture of transformers; return the model without values.

    Args:
        opened: the model's folder; its configuration is within bounds.
        head: whether the output matrix of a causal language model is used.
        encoder: whether only the encoder of an encoder-decoder is used.
        whole: whether more than the last hidden states is used, so that no weight may be absent.

    Raises:
        ModelFolderError: an unknown architecture, or one that cannot be built from this
            configuration; weights that are missing, unexpected, of another shape or not of a
            float type; names file and tensor.
    """
    _check_type(opened)
    _check_layers(opened)
    with refusing(opened.folder / "config.json", "no model can be built from it"):
        model, report = _dry_run(opened, head=head)
    part = model.get_encoder() if encoder else model
    problems = [
        f"{name}: shape {list(came)}, config.json expects {list(expected)}"
        for name, came, expected in sorted(report["mismatched_keys"])
    ]
    missing = report["missing_keys"]
    if missing and not head and not whole:
        missing = _used(missing, model, part)
    problems += [f"{name}: missing" for name in sorted(missing)]
    problems += [f"{name}: unexpected" for name in _own(report["unexpected_keys"], model, opened)]
    constants = {name.rpartition(".")[2] for name, _ in model.named_buffers()}
    problems += wrong_types(opened.tensors.values(), constants | {"position_ids"})
    refuse(opened, problems)
    return model


def check_encoder_weights(opened: Checkpoint) -> None:
    """Check the encoder in a Qwen3 encoder-decoder; its decoder is not used.

    Raises:
        ModelFolderError: see `check_weights`.
    """
    import torch

    from qwen3nb.models.modeling.configuration import encoder_config
    from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel

    try:
        config = encoder_config(opened.config)
    except ValueError as error:
        raise ModelFolderError(f"{opened.folder}: {error}") from None
    stored = {new: name for name in opened.tensors if (new := encoder_name(name)) is not None}
    if embedding := next((name for name in EMBEDDINGS if name in opened.tensors), None):
        stored["embed_tokens.weight"] = embedding
    layers = {int(name.split(".")[1]) for name in stored if _LAYER.match(name)}
    if len(layers) != config.num_hidden_layers:
        raise ModelFolderError(
            f"{opened.folder}: {config.num_hidden_layers} encoder layers in config.json, "
            f"{len(layers)} in the weights. {_advice(opened)}"
        )
    with torch.device("meta"):
        expected = Qwen3EncoderModel(config).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    refuse(opened, mismatches({new: opened.tensors[name] for new, name in stored.items()}, shapes))


def check_length(model: Any, length: int | None, name: str) -> None:
    """Refuse a maximum ``length`` beyond the positions that a model has learned.

    Args:
        model: with or without values.
        length: a maximum number of tokens; None for the model's own.
        name: of the length in errors: a file and a key, or a model and an option.

    Raises:
        ModelFolderError: names the largest possible length.
    """
    if length is None:
        return
    for path, module in model.named_modules():
        if path.rpartition(".")[2] not in _POSITIONS or not hasattr(module, "num_embeddings"):
            continue
        # RoBERTa and its kin count positions from behind that of padding.
        first = 0 if module.padding_idx is None else module.padding_idx + 1
        if length > module.num_embeddings - first:
            raise ModelFolderError(
                f"{name} is {length:,}; expected at most {module.num_embeddings - first:,}, the "
                "number of positions that the model has learned"
            )


def mismatches(entries: Mapping[str, TensorEntry], expected: Shapes) -> list[str]:
    """Return a line for each tensor that is missing, unexpected, or of another shape or type."""
    problems = [f"{name}: missing" for name in expected.keys() - entries.keys()]
    for name, entry in entries.items():
        if name not in expected:
            problems.append(f"{entry.stored_name}: unexpected")
        elif entry.shape != expected[name]:
            problems.append(
                f"{entry.stored_name}: shape {list(entry.shape)}, config.json expects "
                f"{list(expected[name])}"
            )
        elif entry.dtype not in FLOATS:
            problems.append(_wrong_type(entry))
    return sorted(problems)


def refuse(opened: Checkpoint, problems: Sequence[str], *, config: str = "config.json") -> None:
    """Raise an error that shows the first of the ``problems``, if there are any."""
    if not problems:
        return
    more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
    raise ModelFolderError(
        f"{opened.folder}: the weights in {opened.files[0].name} do not match {config}: "
        f"{'; '.join(problems[:_SHOWN])}{more}. {_advice(opened)}"
    )


def _advice(opened: Checkpoint) -> str:
    prefix = next(
        (
            prefix
            for prefix in _WRAPPERS
            for entry in opened.tensors.values()
            if f".{prefix}" in f".{entry.stored_name}"
        ),
        None,
    )
    if prefix is not None:
        return f"Names have a wrapper's prefix {prefix!r}; save the unwrapped model"
    return "Copy both from the same checkpoint again"


def _check_type(opened: Checkpoint) -> None:
    """Refuse an architecture that transformers lacks, would guess from the path, or mix up."""
    import transformers

    file, model_type = opened.folder / "config.json", opened.config.get("model_type")
    if model_type not in transformers.CONFIG_MAPPING:
        raise ModelFolderError(
            f"{file}: model_type is {model_type!r:.60}; expected an architecture of transformers, "
            "such as 'bert' or 'qwen3'"
        )
    for name in opened.config.get("architectures") or ():
        config = getattr(getattr(transformers, str(name), None), "config_class", None)
        if getattr(config, "model_type", None) != model_type:
            raise ModelFolderError(
                f"{file}: architectures is {name!r:.60}; expected a class that transformers has "
                f"for {model_type!r}, the model_type"
            )


def check_reads_text(model: Any, file: Path, *, alone: bool) -> None:
    """Refuse an architecture of transformers that does not read texts.

    Args:
        model: from `check_weights`.
        file: its ``config.json``, named in errors.
        alone: whether texts must be all that it reads, as no module of sentence-transformers says
            what becomes of the rest.

    Raises:
        ModelFolderError: an architecture for images or sound, or for several modalities.
    """
    from transformers.models.auto import modeling_auto

    kind = model.config.model_type
    known = any(kind in getattr(modeling_auto, f"MODEL_FOR_{each}_MAPPING_NAMES") for each in _TEXT)
    parts = set(getattr(model.config, "sub_configs", ())) - _TEXT_PARTS
    others = alone and (parts or not (known or kind in _TEXT_TYPES))
    if model.main_input_name != "input_ids" or others:
        raise ModelFolderError(
            f"{file}: model_type is {kind!r}, which is not an architecture for texts alone; "
            "expected one such as 'bert' or 'qwen3', or a multi-modal model with the modules of "
            "sentence-transformers"
        )


def _check_layers(opened: Checkpoint) -> None:
    """Refuse more layers than there are tensors, which would take long to build."""
    for key in _LAYER_KEYS:
        layers = opened.config.get(key)
        if isinstance(layers, int) and layers > len(opened.tensors):
            raise ModelFolderError(
                f"{opened.folder / 'config.json'}: {key} is {layers:,}, but the weights have only "
                f"{len(opened.tensors):,} tensors; config.json belongs to another model"
            )


def _dry_run(opened: Checkpoint, *, head: bool) -> tuple[Any, dict[str, Any]]:
    """Return the model without values, and the report of transformers' loader."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    auto = AutoModelForCausalLM if head else AutoModel
    config = AutoConfig.from_pretrained(opened.folder, trust_remote_code=False)
    config.get_text_config().to_dict()  # which an object in its place, unread, is not
    kind = auto._model_mapping.get(type(config), None)
    if kind is None:
        raise ModelFolderError(
            f"{opened.folder / 'config.json'}: model_type is {config.model_type!r}; expected "
            f"an architecture that transformers' {auto.__name__} has"
        )
    if isinstance(kind, tuple):  # several sizes of one architecture; the first is the default
        kind = kind[0]
    state: dict[str, Tensor] = {
        entry.stored_name: torch.empty(entry.shape, device="meta")
        for entry in opened.tensors.values()
    }
    with quiet():
        model, report = kind.from_pretrained(
            None,
            config=config,
            state_dict=state,
            device_map={"": "meta"},
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # reported here, and refused
            output_loading_info=True,
        )
    return model, report


def _used(missing: Collection[str], model: Any, part: Any) -> set[str]:
    """Return the ``missing`` weights on which the last hidden states of ``part`` depend.

    They depend neither on weights outside of ``part``, nor on a pooler over the first token:
    transformers can build the same model without it.
    """
    weights = dict(model.named_parameters(remove_duplicate=False))
    inside = {id(weight) for weight in part.parameters()}
    without_pooler = "add_pooling_layer" in inspect.signature(type(model)).parameters
    return {
        name
        for name in missing
        if not (without_pooler and name.startswith("pooler."))
        and (name not in weights or id(weights[name]) in inside)
    }


def _own(unexpected: Collection[str], model: Any, opened: Checkpoint) -> list[str]:
    """Return the ``unexpected`` weights that lie inside a module of the model.

    Others belong to heads that this package does not use, such as ``cls.predictions``.
    Constants, which older releases stored, are not of a float type, or have no dimension.
    """
    children = {name for name, _ in model.named_children()}
    prefix = f"{model.base_model_prefix}."
    entries = {entry.stored_name: entry for entry in opened.tensors.values()}
    constants = {
        name for name, entry in entries.items() if entry.dtype not in FLOATS or not entry.shape
    }
    return sorted(
        name
        for name in unexpected
        if name.removeprefix(prefix).split(".")[0] in children
        and not any(constant.endswith(name) for constant in constants)
    )


def wrong_types(entries: Iterable[TensorEntry], constants: Collection[str] = ()) -> list[str]:
    """Return a line for each weight that is not of a float type.

    Args:
        entries: the tensors.
        constants: last parts of names of tensors that are no weights, such as ``position_ids``.
    """
    return [
        _wrong_type(entry)
        for entry in entries
        if entry.dtype not in FLOATS and entry.stored_name.rpartition(".")[2] not in constants
    ]


def _wrong_type(entry: TensorEntry) -> str:
    return f"{entry.stored_name}: of type {entry.dtype}, expected {', '.join(FLOATS)}"
