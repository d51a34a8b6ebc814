"""Models of sentence-transformers, and static models of wordllama."""

from typing import Any

from qwen3nb.checkpoints.folder import ModelFolder, SentenceModule
from qwen3nb.checkpoints.weights import Weights
from qwen3nb.models.gate.architecture import check_architecture
from qwen3nb.models.gate.bounds import check_bounds, check_settings
from qwen3nb.models.gate.declared import static_files
from qwen3nb.models.gate.weights import check_length, check_types, check_weights
from qwen3nb.models.kinds.source import FolderKind, Source
from qwen3nb.models.kinds.transformer import ENCODER_DECODERS, check_opened, check_reads_text
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import CheckpointError

_WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
_TRANSFORMERS = ("CLIPModel", "MLMTransformer", "Transformer")
# Arguments of transformers' loader that would load weights other than those checked here.
_FOREIGN_ARGUMENTS = {
    "adapter_kwargs",
    "cache_dir",
    "config",
    "gguf_file",
    "ignore_mismatched_sizes",
    "key_mapping",
    "merges_file",
    "quantization_config",
    "revision",
    "subfolder",
    "tokenizer_file",
    "variant",
    "vocab_file",
}
_ARGUMENT_KEYS = (
    "config_args",
    "config_kwargs",
    "model_args",
    "model_kwargs",
    "processor_kwargs",
    "tokenizer_args",
)


class SentenceTransformerKind(FolderKind):
    """A model of sentence-transformers with a vector per text."""

    name = "sentence-transformers"
    library = "sentence_transformers"
    of_others = True
    cosine = True
    adaptable = True

    def matches(self, folder: ModelFolder) -> bool:
        """Return whether the folder has modules of sentence-transformers."""
        return bool(folder.modules)

    def check(self, source: Source) -> None:
        """Check settings and weights of every module before anything is built."""
        folder = source.own_folder
        if _is_transformer(folder):
            check_opened(folder)
        else:  # the weights are in folders of modules
            check_settings(folder)
        for module in folder.modules:
            _check_settings(module)
            if module.name in _TRANSFORMERS:
                _check_transformer(module)
            else:
                _check_weights(module, folder)

    def weights(self, folder: ModelFolder) -> Weights:
        """Return the weights of the first module."""
        if _is_transformer(folder):
            return super().weights(folder)
        return _module_weights(folder.modules[0]) or folder.weights

    def modules(self, folder: ModelFolder) -> dict[str, Weights]:
        """Return the weights of the other modules, by path."""
        weights = super().modules(folder)
        for module in folder.modules:
            path = module.folder.path.relative_to(folder.path).as_posix()  # such as "2_Dense"
            if path == "." or path in weights:
                continue
            module_weights = _module_weights(module)
            if module_weights is not None:
                weights[path] = module_weights
        return weights

    def load(self, source: Source, options: ModelOptions) -> Any:
        """Return the loaded encoder."""
        from qwen3nb.models.encoders.sentence_transformer import SentenceTransformerEncoder

        return SentenceTransformerEncoder(source, options)


class _Static(FolderKind):
    """A static model: a text's vector is the mean of a table's vectors of its tokens."""

    name = "static"
    library = "torch"
    cosine = True

    def matches(self, folder: ModelFolder) -> bool:
        return bool(static_files(folder))

    def files(self, folder: ModelFolder) -> tuple[str, ...]:
        return static_files(folder)[1:]

    def weights(self, folder: ModelFolder) -> Weights:
        return folder.weights_in(static_files(folder)[0])

    def load(self, source: Source, options: ModelOptions) -> Any:
        from qwen3nb.models.encoders.static import StaticEncoder

        return StaticEncoder(source, options)


SENTENCE, STATIC = SentenceTransformerKind(), _Static()


def _is_transformer(folder: ModelFolder) -> bool:
    """Return whether the folder itself has a transformer.

    Before release 2 of the library, it was in ``0_Transformer``; the ``config.json`` above named
    the release alone.
    """
    return folder.has("config.json") and any(
        module.folder.path == folder.path for module in folder.modules
    )


def _fills_masks(module: SentenceModule) -> bool:
    """Return whether a transformer is used with its head for masked words."""
    task = module.fields.get("transformer_task")
    return task == "fill-mask" or module.name == "MLMTransformer"


def _check_transformer(module: SentenceModule) -> None:
    folder = module.folder
    check_opened(folder)
    if module.name != "CLIPModel":
        check_architecture(folder)
    # A head for masked words may be missing here: whoever uses one checks it.
    uses_only_states = _uses_only_states(module) or _fills_masks(module)
    uses_only_encoder = folder.model_type in ENCODER_DECODERS
    model = check_weights(folder, encoder=uses_only_encoder, whole=not uses_only_states)
    if uses_only_states:
        check_reads_text(model, folder, alone=False)
    check_length(model, module.fields.get("max_seq_length"), f"{module.file}: max_seq_length")


def _check_weights(module: SentenceModule, folder: ModelFolder) -> None:
    """Check the weights of another module, if it has any; the library checks the rest."""
    weights = _module_weights(module)
    if weights is None:
        return
    check_types(weights.tensors.values())
    if module.name == "StaticEmbedding" and len(weights.tensors) > 1:
        raise CheckpointError(  # such as a weight per token, of model2vec
            f"{folder}: has {', '.join(weights.tensors)}; expected a table alone, as "
            "sentence-transformers reads no more"
        )


def _uses_only_states(module: SentenceModule) -> bool:
    """Return whether only the last hidden states of a transformer are used."""
    # Such as {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}.
    modalities = module.fields.get("modality_config", {"text": {}})
    if not isinstance(modalities, dict):
        return False
    for modality in modalities.values():
        if not isinstance(modality, dict):
            return False
        if modality.get("method", "forward") != "forward":
            return False
        if modality.get("method_output_name", "last_hidden_state") != "last_hidden_state":
            return False
    return True


def _check_settings(module: SentenceModule) -> None:
    """Refuse settings that take excessive time, or that load or run anything not checked here."""
    check_bounds(module.fields, module.file)
    for key in _ARGUMENT_KEYS:  # such as "model_kwargs", which go to transformers' loader
        arguments = module.fields.get(key, {})
        if not isinstance(arguments, dict):
            raise CheckpointError(f"{module.file}: {key} is {arguments!r:.60}; expected an object")
        foreign_names = sorted(_FOREIGN_ARGUMENTS & arguments.keys())
        if foreign_names:
            raise CheckpointError(
                f"{module.file}: {key}.{foreign_names[0]} would load other files or weights than "
                "those that are checked; remove it"
            )
    if module.fields.get("tokenizer_name_or_path") is not None:
        raise CheckpointError(
            f"{module.file}: tokenizer_name_or_path names another folder; expected the tokenizer "
            "in this one"
        )
    activation = module.fields.get("activation_function")
    if module.name == "SpladePooling":  # a word, of which the module knows two
        return
    if activation is not None and not str(activation).startswith("torch.nn."):
        # sentence-transformers would ignore or import it.
        raise CheckpointError(
            f"{module.file}: activation_function is {activation!r:.60}; expected a class of "
            "torch, such as 'torch.nn.modules.activation.Tanh'"
        )


def _module_weights(module: SentenceModule) -> Weights | None:
    """Return the weights next to the configuration of a module; None if there are none."""
    for name in _WEIGHT_FILES:
        if module.folder.has(name):
            return module.folder.weights_in(name)
    return None
