"""Compare the weights in a folder with its configuration, without reading their values.

The loader of transformers determines the expected weights and their names, on torch's ``meta``
device.

A weight may only be missing if the states used do not depend on it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import FLOATS, TensorEntry
from qwen3nb.models.types import CheckpointError, refusing

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PretrainedConfig, PreTrainedModel

    from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig

_POSITION_MODULES = ("position_embeddings", "wpe")  # modules with a row per position
_MOST_LISTED = 3
ZEROS = 0.25  # share of exact zeros above which a matrix is reported
_SAMPLED = 4_000  # values of a matrix
_log = logging.getLogger(__name__)


class LoadingReport(TypedDict):
    """What transformers' loader says of weights, by their names."""

    missing_keys: Collection[str]
    unexpected_keys: Collection[str]
    mismatched_keys: Collection[tuple[str, Sequence[int], Sequence[int]]]  # stored and expected


def check_weights(
    folder: ModelFolder,
    *,
    head: bool = False,
    encoder: bool = False,
    whole: bool = False,
    auto: str = "AutoModel",
) -> PreTrainedModel:
    """Check the weights of a transformers architecture; return the model on the meta device.

    Args:
        folder: the model's folder; its settings are within bounds.
        head: whether the output matrix of a causal language model is used.
        encoder: whether only the encoder of an encoder-decoder is used.
        whole: whether no weight may be missing, because more than the last hidden states is used.
        auto: the class of transformers that finds the architecture, if no ``head`` is used.

    Raises:
        CheckpointError: an architecture that is unknown or cannot be built; weights that are
            missing, unexpected, of another shape or not of a float type; names file and tensor.
    """
    import transformers

    file = folder.path / "config.json"
    model_type = folder.model_type
    if model_type not in transformers.CONFIG_MAPPING:
        # transformers would guess the type from the path.
        stated = folder.config.get("model_type")
        raise CheckpointError(
            f"{file}: model_type is {stated!r:.60}; expected an architecture of transformers, "
            "such as 'bert' or 'qwen3'"
        )
    if head:
        auto = "AutoModelForCausalLM"
    with refusing(file, "no model can be built from it"):
        model, report = _dry_run(folder, auto)
    missing_weights = report["missing_keys"]
    if not head and not whole:  # only what the last hidden states depend on must be there
        part = model.get_encoder() if encoder else model
        missing_weights = _used_weights(missing_weights, model, part)
    problems = []
    for name, shape, expected_shape in sorted(report["mismatched_keys"]):
        problems.append(f"{name}: shape {list(shape)}, config.json expects {list(expected_shape)}")
    problems += [f"{name}: missing" for name in sorted(missing_weights)]
    unexpected_weights = _weights_of_modules(report["unexpected_keys"], model, folder)
    problems += [f"{name}: unexpected" for name in unexpected_weights]
    if problems:
        raise _unfitting_weights(folder, problems)
    # Buffers such as "position_ids", by the last part of their names, may be whole numbers.
    constants = {name.rpartition(".")[2] for name, _ in model.named_buffers()}
    check_types(folder.weights.tensors.values(), constants | {"position_ids"})
    return model


def _unfitting_weights(folder: ModelFolder, problems: Sequence[str]) -> CheckpointError:
    """Return the error for weights that do not fit; it lists the first problems."""
    text = "; ".join(problems[:_MOST_LISTED])
    if len(problems) > _MOST_LISTED:
        text += f" (and {len(problems) - _MOST_LISTED} more)"
    return CheckpointError(
        f"{folder}: the weights in {folder.weights.files[0].name} do not match config.json: "
        f"{text}. Copy both from the same checkpoint again, "
        "unwrapped if names begin with a wrapper's"
    )


def check_encoder(
    folder: ModelFolder, sources: Mapping[str, str], **settings: Any
) -> Qwen3EncoderConfig:
    """Check the encoder in a Qwen3 encoder-decoder, and return its configuration.

    Args:
        folder: the encoder-decoder; its decoder is not used, and not checked.
        sources: names of its tensors, see `qwen3nb.checkpoints.names.encoder_tensors`.
        settings: of `qwen3nb.models.modeling.configuration.encoder_config`.

    Raises:
        CheckpointError: a configuration that no encoder can be built from, or tensors that are
            missing, unexpected, of another shape or not of a float type.
    """
    import torch

    from qwen3nb.models.modeling.configuration import encoder_config
    from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel

    # On the meta device a tensor has a shape and no numbers, so nothing is read.
    entries = {}
    empty_weights = {}
    for encoder_name, stored_name in sources.items():
        entry = folder.weights.tensors[stored_name]
        entries[encoder_name] = entry
        empty_weights[encoder_name] = torch.empty(entry.shape, device="meta")
    with refusing(folder, "no encoder can be built from it"), torch.device("meta"):
        config = encoder_config(folder.config, **settings)
        model = Qwen3EncoderModel(config)
    with refusing(folder, "the weights do not match config.json"):
        model.load_state_dict(empty_weights)
    check_types(entries.values())
    return config


def check_types(entries: Iterable[TensorEntry], constants: Collection[str] = ()) -> None:
    """Refuse weights that are not of a float type, which libraries silently convert.

    ``constants`` are suffixes of names of tensors that are not weights, such as ``position_ids``.
    """
    for entry in entries:
        if entry.stored_name.rpartition(".")[2] not in constants:
            entry.check_float()


def check_length(model: nn.Module, length: int | None, name: str) -> None:
    """Refuse a maximum ``length`` in tokens above the number of learned positions of a ``model``.

    ``name`` is the name of the length in errors: file and key, or model and option.
    """
    if length is None:
        return
    for path, module in model.named_modules():
        # A table with a row per position, such as "embeddings.position_embeddings".
        module_name = path.rpartition(".")[2]
        if module_name not in _POSITION_MODULES or not hasattr(module, "num_embeddings"):
            continue
        positions = module.num_embeddings
        if module.padding_idx is not None:  # RoBERTa and others count from this index + 1
            positions -= module.padding_idx + 1
        if length > positions:
            raise CheckpointError(
                f"{name} is {length:,}; expected at most {positions:,}, the number of positions "
                "that the model has learned"
            )


def own_weights(model: nn.Module) -> None:
    """Copy weights of a torch ``model`` from a memory-mapped file into memory.

    Otherwise later changes of the file would change the model.
    """
    for weight in (*model.parameters(), *model.buffers()):
        if not weight.untyped_storage().resizable():  # torch does not own its memory
            weight.data = weight.data.clone()


def check_finite(model: nn.Module, folder: ModelFolder) -> None:
    """Refuse a loaded torch ``model`` with a weight that is NaN or infinite, by its name.

    A finite sum has only finite terms, and is cheap. If a sum is not finite, each value is checked,
    because sums of finite weights may overflow.
    """
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and not (weight.sum().isfinite() or weight.isfinite().all()):
            raise CheckpointError(
                f"{folder}: {name} contains NaN or infinity as {str(weight.dtype)[6:]}; expected "
                "finite weights. Use an earlier checkpoint, or float32 if the weights are larger "
                "than float16 can hold"
            )


def warn_of_constants(model: nn.Module, folder: object) -> None:
    """Warn of matrices of a loaded torch ``model`` that are constant, or mostly exactly zero.

    Such a layer was probably never written completely; norms and biases may be constant. A sample
    decides whether all values are read.
    """
    names = [name for name, weight in model.named_parameters() if _is_constant(weight.detach())]
    if names:
        _log.warning(
            "%s: %s: its values are all equal, or at least a quarter of them exactly 0 (%d such "
            "matrices). Vectors may be wrong; compare the file with its source",
            folder,
            names[0],
            len(names),
        )


def _is_constant(weight: torch.Tensor) -> bool:
    """Return whether a matrix is constant, or has many exact zeros."""
    if weight.ndim < 2 or weight.numel() < 2 or not weight.is_floating_point():
        return False
    values = weight.flatten()
    sample = values[:: max(1, len(values) // _SAMPLED)]
    if float((sample == 0).float().mean()) > ZEROS / 2:
        return float((values == 0).float().mean()) > ZEROS
    return bool((sample == sample[0]).all()) and bool((values == values[0]).all())


def _dry_run(folder: ModelFolder, auto_class: str) -> tuple[PreTrainedModel, LoadingReport]:
    """Return the model on the meta device, and the report of transformers' loader."""
    import torch

    config, model_class = _stock_class(folder, auto_class)
    empty_weights = {}
    for entry in folder.weights.tensors.values():
        empty_weights[entry.stored_name] = torch.empty(entry.shape, device="meta")
    with quiet_transformers(logging.CRITICAL):  # reports of its loader are raised as errors here
        model, report = model_class.from_pretrained(
            None,  # no folder: configuration and weights are given
            config=config,
            state_dict=empty_weights,
            device_map={"": "meta"},
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # reported here, and refused
            output_loading_info=True,
        )
    return model, report


def _stock_class(folder: ModelFolder, auto_class: str) -> tuple[PretrainedConfig, Any]:
    """Return the configuration in a folder, and the class of transformers that it stands for."""
    import transformers
    from transformers import AutoConfig

    auto = getattr(transformers, auto_class)  # such as AutoModel
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    config.get_text_config().to_dict()  # raises unless it is a configuration
    model_class = auto._model_mapping.get(type(config), None)
    if model_class is None:
        raise ValueError(f"{auto.__name__} has no model of type {config.model_type!r}")
    if isinstance(model_class, tuple):  # several sizes of one architecture; first the default
        model_class = model_class[0]
    return config, model_class


@contextmanager
def quiet_transformers(level: int) -> Iterator[None]:
    """Suppress progress bars of transformers, and messages below a level of `logging`."""
    from transformers.utils import logging

    old_level = logging.get_verbosity()
    had_progress_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity(level)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(old_level)
        if had_progress_bars:
            logging.enable_progress_bar()


def _used_weights(
    missing_weights: Collection[str], model: PreTrainedModel, part: nn.Module
) -> set[str]:
    """Return the ``missing_weights`` on which the last hidden states of ``part`` depend.

    They do not depend on weights outside of ``part``, nor on a pooler, without which transformers
    can build the same model.
    """
    weights = dict(model.named_parameters(remove_duplicate=False))
    part_ids = {id(weight) for weight in part.parameters()}  # a tied weight has several names
    has_optional_pooler = "add_pooling_layer" in inspect.signature(type(model)).parameters
    used_weights = set()
    for name in missing_weights:
        if has_optional_pooler and name.startswith("pooler."):
            continue
        # A buffer, or a weight of the part itself.
        is_parameter = name in weights
        if not is_parameter or id(weights[name]) in part_ids:
            used_weights.add(name)
    return used_weights


def _weights_of_modules(
    unexpected: Collection[str], model: PreTrainedModel, folder: ModelFolder
) -> list[str]:
    """Return the ``unexpected`` weights that belong to a module of the model.

    Others belong to heads that this package does not use, such as ``cls.predictions``.
    Constants, which older releases stored, are not of a float type, or have no dimension.
    """
    modules = {name for name, _ in model.named_children()}  # such as "encoder" of a BERT
    prefix = f"{model.base_model_prefix}."
    # Older releases stored numbers that are no weights, such as position ids.
    constants = []
    for entry in folder.weights.tensors.values():
        if entry.dtype not in FLOATS or not entry.shape:
            constants.append(entry.stored_name)
    weights_of_modules = []
    for name in sorted(unexpected):
        # "encoder" of "bert.encoder.layer.0.…"; the heads of tasks are no modules of this model.
        top_module = name.removeprefix(prefix).split(".")[0]
        is_constant = any(constant.endswith(name) for constant in constants)
        if top_module in modules and not is_constant:
            weights_of_modules.append(name)
    return weights_of_modules
