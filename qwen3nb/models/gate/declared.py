"""The kind of model that a folder declares; only models with one vector per text are accepted.

Files are considered in this order:

=========================================  ===================================================
``config_sentence_transformers.json``      ``model_type``: the kind of the whole folder
``modules.json``                           the class of each module, and a transformer's task
``config.json``, without ``modules.json``  ``model_type`` and ``architectures``
=========================================  ===================================================

A dense model has one vector per text; a pre-trained one has states, to be pooled. Multi-vector,
sparse and other models are refused: their files would load as a model that was never trained.
Weights, settings and code (``auto_map``, ``quantization_config``) are checked later, by the kind in
`qwen3nb.models.kinds`.
"""

from collections.abc import Iterable
from typing import NoReturn

from qwen3nb.checkpoints.folder import ModelFolder, SentenceModule
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.types import CheckpointError

SETTINGS = "config_sentence_transformers.json"
_DENSE, _CROSS_ENCODER = "SentenceTransformer", "CrossEncoder"
# Settings that PyLate writes for a vector per token, with or without a model_type.
PYLATE = ("attend_to_expansion_tokens", "do_query_expansion", "query_prefix", "skiplist_words")
# Settings with which a transformer processes queries differently from documents.
_QUERY_SETTINGS = ("document_length", "query_expansion", "query_length")
_EMBEDDING_MODULES = ("CLIPModel", "StaticEmbedding")
_MODULES = (
    "Transformer",
    "WordEmbeddings",
    *_EMBEDDING_MODULES,
    "CNN",
    "LSTM",
    "WeightedLayerPooling",
    "WordWeights",
    "Dense",
    "Dropout",
    "LayerNorm",
    "Normalize",
    "Pooling",
)
# Suffixes of transformers' classes whose states may be pooled.
_POOLED_HEADS = (
    "ForCausalLM",
    "ForConditionalGeneration",
    "ForMaskedLM",
    "ForPreTraining",
    "LMHeadModel",
    "Model",
)
# Weights and tokenizer of wordllama, in its package and in its repository on the hub.
_WORDLLAMA = (
    ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"),
    ("l2_supercat_256.safetensors", "l2_supercat_tokenizer_config.json"),
)


def check_dense(folder: ModelFolder) -> None:
    """Check that a folder declares a model with one vector per text.

    Causal language models used by sentence-transformers for reranking are accepted, too.

    Raises:
        CheckpointError: another kind of model is declared; names file, key and value.
        CheckpointError: a JSON file that is malformed.
    """
    settings = folder.object(SETTINGS)
    file = folder.path / SETTINGS
    for key in PYLATE:  # a vector per token, even where no model_type says so
        if key in settings:
            _refuse_value(f"{file}: {key}", settings[key])
    if answers_yes_or_no(folder):
        return
    model_type = settings.get("model_type", _DENSE)
    if model_type != _DENSE:
        _refuse_value(f"{file}: model_type", model_type, (_DENSE,))
    _check_modules(folder)


def _check_modules(folder: ModelFolder) -> None:
    """Refuse modules of sentence-transformers that do not give one vector per text."""
    modules = folder.modules
    if not modules:
        return
    file = folder.path / "modules.json"
    for module in modules:
        if module.name not in _MODULES or module.type.startswith("pylate."):
            _refuse_value(f"{file}: type", module.type, _MODULES)
        if module.name == "Transformer":
            _check_task(module)
    names = {module.name for module in modules}
    # Some modules give a vector per text themselves, and so do some transformers.
    has_pooling = not names.isdisjoint(("Pooling", *_EMBEDDING_MODULES))
    first_output = modules[0].fields.get("module_output_name")
    if not has_pooling and first_output != "sentence_embedding":
        _refuse_value(f"{file}: without Pooling, it", sorted(names))


def answers_yes_or_no(folder: ModelFolder) -> bool:
    """Return whether sentence-transformers uses this causal language model for reranking."""
    if folder.modules:
        return [module.name for module in folder.modules] == ["Transformer", "LogitScore"]
    model_type = folder.object(SETTINGS).get("model_type")
    return model_type == _CROSS_ENCODER and _saved_class(folder).endswith("ForCausalLM")


def as_exported(folder: ModelFolder) -> bool:
    """Return whether the modules agree with what this package writes into ``config.json``."""
    expected_names = ["Transformer", "Pooling"]
    if folder.config.get("normalize", True):
        expected_names.append("Normalize")
    if [module.name for module in folder.modules] != expected_names:
        return False
    transformer, pooling = folder.modules[:2]
    if transformer.fields.get("do_lower_case") or transformer.folder.path != folder.path:
        return False
    stored_mode = None
    rule = POOLINGS.get(str(folder.config.get("pooling_mode")))
    if rule is not None:
        stored_mode = rule.stored
    # The library stores a name, or a list of one.
    return pooling.fields.get("pooling_mode") in (stored_mode, [stored_mode])


def static_files(folder: ModelFolder) -> tuple[str, ...]:
    """Return the files with the table and the tokenizer of wordllama; empty for another model."""
    if folder.has("config.json"):
        return ()
    for files in _WORDLLAMA:
        if all(map(folder.has, files)):
            return files
    return ()


def check_head(folder: ModelFolder) -> str:
    """Return the class that saved the weights of a pre-trained model.

    Classes whose outputs are not states of texts are refused.
    """
    class_name = _saved_class(folder)
    if not class_name or class_name.endswith(_POOLED_HEADS):  # such as "BertForMaskedLM"
        return class_name
    file = folder.path / "config.json"
    if not _exists_in_transformers(class_name):
        model_type = folder.config.get("model_type")
        raise CheckpointError(
            f"{file}: model_type is {model_type!r:.80}, and architectures names "
            f"{class_name!r:.80}, which is no class of transformers; expected one whose name ends "
            f"in {', '.join(_POOLED_HEADS)}"
        )
    _refuse_value(f"{file}: architectures", class_name, [f"*{ending}" for ending in _POOLED_HEADS])


def _exists_in_transformers(name: str) -> bool:
    """Return whether transformers has something of this name."""
    import transformers

    return name.isidentifier() and hasattr(transformers, name)


def check_object(model: object) -> None:
    """Refuse a loaded sentence-transformers model without one vector per text."""
    class_name = type(model).__name__
    model_type = getattr(model, "model_type", _DENSE)
    if isinstance(model_type, str) and model_type != _DENSE:
        _refuse_value(f"{class_name}: model_type", model_type, (_DENSE,))
    if isinstance(model, Iterable) and hasattr(model, "encode_query"):
        for module in model:
            module_name = type(module).__name__
            if module_name in ("Asym", "Router"):  # queries take another path than documents
                _refuse_value(f"{class_name}: module", module_name)


def _refuse_value(place: str, value: object, expected: Iterable[str] = ()) -> NoReturn:
    message = f"{place} is {value!r:.80}; expected a model with one vector per text"
    examples = ", ".join(expected)
    if examples:
        message += f" (such as {examples})"
    text = str(value)
    # A cross-encoder, which scores a query and a document together.
    scores_pairs = text == _CROSS_ENCODER or text.endswith(("SequenceClassification", "LogitScore"))
    if scores_pairs:
        message += "; `qwen3nb rerank pairs` runs causal language models that answer yes or no"
    raise CheckpointError(message)


def _check_task(module: SentenceModule) -> None:
    """Refuse a transformer without states of texts, or with different ones for queries."""
    task = module.fields.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        _refuse_value(f"{module.file}: transformer_task", task, ("feature-extraction",))
    for key in _QUERY_SETTINGS:
        value = module.fields.get(key)
        if value is not None:
            _refuse_value(f"{module.file}: {key}", value)
    # By kind of input, such as "text" or "image".
    inputs = module.fields.get("modality_config") or {"text": {}}
    if "text" not in inputs:
        _refuse_value(f"{module.file}: modality_config", inputs, ("text",))


def _saved_class(folder: ModelFolder) -> str:
    """Return the class that saved the weights; empty if unknown."""
    names = folder.config.get("architectures")
    if isinstance(names, list) and names:
        return str(names[0])
    return str(names or "")
