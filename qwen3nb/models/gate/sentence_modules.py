"""Check the modules of a sentence-transformers folder: their configurations and weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from qwen3nb.checkpoints.checkpoint import Checkpoint
from qwen3nb.checkpoints.inside import read_object, read_strictly
from qwen3nb.checkpoints.safetensors_header import read_safetensors
from qwen3nb.checkpoints.torch_header import read_torch
from qwen3nb.checkpoints.types import TensorEntry
from qwen3nb.models.gate.configuration_bounds import check_whole
from qwen3nb.models.gate.expected_weights import mismatches, refuse, wrong_types
from qwen3nb.models.gate.refusal import refusing
from qwen3nb.models.gate.static_tables import TokenTable, token_table
from qwen3nb.models.types import ModelFolderError

__all__ = [
    "SentenceModule",
    "check_sentence_modules",
    "check_widths",
    "module_weights",
    "pooling_modes",
    "sentence_modules",
    "starts_static",
    "states_alone",
    "static_width",
]

_LIBRARY = "sentence_transformers."
# Module classes that have weights of the shapes that their configuration says.
_SHAPED = ("CNN", "Dense", "LSTM", "LayerNorm", "WeightedLayerPooling")
_WEIGHTLESS = ("CLIPModel", "Dropout", "Normalize", "Pooling", "Transformer")
_STATIC = "StaticEmbedding"
# Settings that weights do not show, or that take their time before they are compared.
_BOUNDS = {
    "max_seq_length": (1, 1_000_000_000),
    "num_hidden_layers": (1, 1_000),
    "num_layers": (1, 1_000),
}
_LEGACY_MODE = "pooling_mode_"
_LEGACY_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
# Settings that must equal the width of a module's input.
_WIDTHS: Mapping[str, tuple[str, ...]] = {
    "Dense": ("in_features",),
    "Dropout": (),
    "LayerNorm": ("dimension",),
    "Normalize": (),
    "Pooling": ("embedding_dimension", "word_embedding_dimension"),
}
# Arguments of transformers' loader with which it would read other weights than are checked here.
_FOREIGN = {
    "adapter_kwargs", "cache_dir", "config", "gguf_file", "ignore_mismatched_sizes", "key_mapping",
    "merges_file", "quantization_config", "revision", "subfolder", "tokenizer_file", "variant",
    "vocab_file",
}  # fmt: skip
_ARGUMENTS = (
    "config_args", "config_kwargs", "model_args", "model_kwargs", "processor_kwargs",
    "tokenizer_args",
)  # fmt: skip
_SETTINGS = "sentence_bert_config.json"
_LEGACY_SETTINGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_CONFIGURATIONS = {
    "CNN": "cnn_config.json",
    "LSTM": "lstm_config.json",
    "WordEmbeddings": "wordembedding_config.json",
}


@dataclass(frozen=True)
class SentenceModule:
    """One entry of ``modules.json``.

    Attributes:
        name: the name of its class, such as ``Dense``.
        type: the full name of its class.
        folder: where its files are.
        fields: its configuration; empty if it has no such file.
        file: the file of its configuration.
    """

    name: str
    type: str
    folder: Path
    fields: Mapping[str, Any]
    file: Path


def sentence_modules(folder: Path) -> list[SentenceModule]:
    """Return the modules of the sentence-transformers model in ``folder``.

    Raises:
        ModelFolderError: a malformed ``modules.json``, a class that is not one of the
            library's own, or a module outside the folder.
        CheckpointError: a JSON file that is malformed.
    """
    file = folder / "modules.json"
    entries = read_strictly(file)
    if not isinstance(entries, list) or not entries:
        raise ModelFolderError(f"{file}: expected a list of modules, got {entries!r:.60}")
    modules = [_module(folder, file, entry) for entry in entries]
    names = [str(entry["name"]) for entry in entries]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ModelFolderError(f"{file}: two modules are called {twice[0]!r}; expected other names")
    return modules


def check_sentence_modules(modules: list[SentenceModule]) -> None:
    """Check the configuration and weights of every module but the transformer's weights.

    Raises:
        ModelFolderError: names file and setting, or tensor.
        CheckpointError: a weight file that is malformed.
    """
    for module in modules:
        _check_settings(module)
        if module.name in _SHAPED:
            _check_shaped(module)
        elif module.name == _STATIC:
            _table(module)
        elif module.name not in _WEIGHTLESS:
            _check_others(module)


def check_widths(modules: list[SentenceModule], width: int) -> None:
    """Check that each module takes vectors as wide as those that the one before it gives.

    Modules whose width is not in their configuration end the check.

    Args:
        modules: a transformer and the modules after it.
        width: of the transformer's states.

    Raises:
        ModelFolderError: names file and setting.
    """
    for module in modules[1:]:
        if module.name not in _WIDTHS:
            return
        for key in _WIDTHS[module.name]:
            if module.fields.get(key, width) != width:
                raise ModelFolderError(
                    f"{module.file}: {key} is {module.fields[key]}; expected {width}, the width "
                    "of what it is applied to"
                )
        if module.name == "Pooling":
            width *= len(pooling_modes(module))
        elif module.name == "Dense":
            width = module.fields.get("out_features", width)


def starts_static(modules: list[SentenceModule]) -> bool:
    """Return whether texts are read by a static table, and not by a transformer."""
    return modules[0].name == _STATIC


def static_width(module: SentenceModule) -> int:
    """Return the length of the vectors of a static table.

    Raises:
        ModelFolderError: no weights, or no table in them.
    """
    return _table(module).width


def _table(module: SentenceModule) -> TokenTable:
    if not (module.folder / "tokenizer.json").is_file():
        raise ModelFolderError(
            f"{module.folder}: the tokenizer is missing; expected tokenizer.json beside the table "
            "of its tokens"
        )
    opened = _weights(module)
    return token_table(opened.tensors, opened.files[0])


def states_alone(module: SentenceModule) -> bool:
    """Return whether a transformer's only output that is used are its last hidden states."""
    uses = module.fields.get("modality_config", {"text": {}})
    if module.fields.get("transformer_task", "feature-extraction") != "feature-extraction":
        return False
    return isinstance(uses, dict) and all(
        isinstance(each, dict)
        and each.get("method", "forward") == "forward"
        and each.get("method_output_name", "last_hidden_state") == "last_hidden_state"
        for each in uses.values()
    )


def _module(folder: Path, file: Path, entry: object) -> SentenceModule:
    fields = entry if isinstance(entry, dict) else {}
    for key in ("name", "path", "type"):
        if not isinstance(fields.get(key), str):
            raise ModelFolderError(
                f"{file}: a module's {key} is {fields.get(key)!r:.60}; expected a string"
            )
    kind, path = fields["type"], PurePosixPath(fields["path"])
    if not kind.startswith(_LIBRARY):
        raise ModelFolderError(
            f"{file}: the module type {kind!r:.80} needs code from elsewhere, which is never run; "
            f"expected a class of {_LIBRARY.rstrip('.')}"
        )
    if path.is_absolute() or ".." in path.parts or "\\" in fields["path"]:
        raise ModelFolderError(
            f"{file}: the path {fields['path']!r:.80} leaves the folder; expected a folder in it"
        )
    inside, name = folder / path, kind.rpartition(".")[2]
    settings = _settings_file(inside, name)
    return SentenceModule(
        name, kind, inside, read_object(settings) if settings.exists() else {}, settings
    )


def _settings_file(folder: Path, name: str) -> Path:
    if name in ("CLIPModel", "Transformer"):
        present = (each for each in (_SETTINGS, *_LEGACY_SETTINGS) if (folder / each).exists())
        return folder / next(present, _SETTINGS)
    file = folder / _CONFIGURATIONS.get(name, "config.json")
    return file if file.exists() else folder / "config.json"


def _check_settings(module: SentenceModule) -> None:
    for key, value in module.fields.items():
        where = f"{module.file}: {key}"
        if key in _BOUNDS and value is not None:
            check_whole(value, where, _BOUNDS[key])
        elif key in _ARGUMENTS:
            _check_arguments(value, where)
    if module.fields.get("tokenizer_name_or_path") is not None:
        raise ModelFolderError(
            f"{module.file}: tokenizer_name_or_path names another folder; expected the tokenizer "
            "in this one"
        )
    if module.name == "Pooling":
        _check_pooling(module)
    activation = module.fields.get("activation_function")
    if module.name == "Dense" and activation is not None and not _of_torch(activation):
        raise ModelFolderError(
            f"{module.file}: activation_function is {activation!r:.60}; expected a class of "
            "torch, such as 'torch.nn.modules.activation.Tanh'"
        )


def _of_torch(name: object) -> bool:
    return isinstance(name, str) and name.startswith("torch.nn.")


def _check_arguments(value: object, where: str) -> None:
    if not isinstance(value, dict):
        raise ModelFolderError(f"{where} is {value!r:.60}; expected an object")
    if foreign := sorted(_FOREIGN & value.keys()):
        raise ModelFolderError(
            f"{where}.{foreign[0]} would load other files or weights than those that are checked; "
            "remove it"
        )


def _check_pooling(module: SentenceModule) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    known = Pooling.POOLING_MODES
    modes = pooling_modes(module)
    for mode in modes:
        if mode not in known:
            raise ModelFolderError(
                f"{module.file}: pooling_mode is {mode!r:.60}; expected one of {', '.join(known)}"
            )
    if not modes:
        raise ModelFolderError(
            f"{module.file}: has no pooling; expected pooling_mode, one of {', '.join(known)}"
        )


def pooling_modes(module: SentenceModule) -> list[Any]:
    """Return the poolings of a module, in the spelling since 5.4 or of the flags before it."""
    modes = module.fields.get("pooling_mode")
    if modes is not None:
        return modes if isinstance(modes, list) else [modes]
    flags = {key: value for key, value in module.fields.items() if key.startswith(_LEGACY_MODE)}
    return [_LEGACY_MODES.get(key, key) for key, value in flags.items() if value]


def _class(module: SentenceModule) -> Any:
    from sentence_transformers.util import import_from_string

    with refusing(module.file, f"sentence-transformers has no class {module.type}"):
        return import_from_string(module.type)


def _check_shaped(module: SentenceModule) -> None:
    """Compare weights with those of the module built from its configuration, without values."""
    import torch

    kind = _class(module)
    renames = getattr(kind, "config_key_renames", {})
    fields = {renames.get(key, key): value for key, value in module.fields.items()}
    taken = set(inspect.signature(kind).parameters) - {"activation_function"}
    with refusing(module.file, "no module can be built from it"), torch.device("meta"):
        built = kind(**{key: value for key, value in fields.items() if key in taken})
    expected = {name: tuple(tensor.shape) for name, tensor in built.state_dict().items()}
    opened = _weights(module)
    refuse(opened, mismatches(opened.tensors, expected), config=module.file.name)


def _check_others(module: SentenceModule) -> None:
    """Check the types of weights whose shapes are free, such as those of word embeddings."""
    if (opened := module_weights(module)) is not None:
        refuse(opened, wrong_types(opened.tensors.values()), config=module.file.name)


_READERS: Mapping[str, Callable[[Path], dict[str, TensorEntry]]] = {
    "model.safetensors": read_safetensors,
    "pytorch_model.bin": read_torch,
}


def module_weights(module: SentenceModule) -> Checkpoint | None:
    """Return the weights beside the configuration of a module; None if there are none."""
    for name, read_header in _READERS.items():
        if (module.folder / name).exists():
            return Checkpoint(module.folder, {}, read_header(module.folder / name))
    return None


def _weights(module: SentenceModule) -> Checkpoint:
    if (opened := module_weights(module)) is not None:
        return opened
    raise ModelFolderError(
        f"{module.folder}: no weights of the module {module.name}; expected {' or '.join(_READERS)}"
    )
