"""The kind that a model's folder declares: a table of what is known; anything else is refused.

What decides, in this order:

========================================  ====================================================
``config_sentence_transformers.json``     ``model_type``: the archetype of the whole folder
``modules.json``                          the class of each module, and a transformer's task
``config.json``, without ``modules.json`` ``model_type`` and ``architectures``
========================================  ====================================================

A dense model has one vector per text; a pre-trained one has states, to be pooled. Multi-vector,
sparse and other models are never reduced to that: their files would load as a model that nobody
has trained. Weights, settings and code (``auto_map``, ``quantization_config``) come later, in
the ``check`` of its kind, `qwen3nb.models.kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from qwen3nb.checkpoints.folder import ModelFolder, SentenceModule
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.types import ModelFolderError

_DENSE = "a dense model"
_SPARSE = "a sparse encoder, with a weight per token of the vocabulary"
_MULTI = "a multi-vector encoder (ColBERT), with a vector per token"
_CROSS = (
    "a cross-encoder or classifier, with scores and no vectors; `qwen3nb rerank` scores pairs with "
    "causal language models that answer yes or no"
)
_ROUTER = "a router, in which queries and documents take different ways"
_TOKENS = "a model of single tokens or answers, with no vector of a text"
_WORDS = "a bag of words, of which bm25 is the usual search model"
_IMAGES = "a model of images or sound"

_UNDECLARED = "SentenceTransformer"  # to sentence-transformers, too
_SETTINGS = "config_sentence_transformers.json"
_MODEL_TYPES = {
    "SentenceTransformer": _DENSE,
    "CrossEncoder": _CROSS,
    "SparseEncoder": _SPARSE,
    "MultiVectorEncoder": _MULTI,
    "ColBERT": _MULTI,  # of PyLate
}
# Settings that PyLate writes, with or without a model_type.
_PYLATE = ("attend_to_expansion_tokens", "do_query_expansion", "query_prefix", "skiplist_words")
# Settings with which a transformer reads queries in another way than documents.
_OF_QUERIES = ("document_length", "query_expansion", "query_length")
_EMBEDS = ("CLIPModel", "StaticEmbedding")
_CLASSES = {
    **dict.fromkeys(("Transformer", "WordEmbeddings", *_EMBEDS), _DENSE),
    **dict.fromkeys(("CNN", "LSTM", "WeightedLayerPooling", "WordWeights"), _DENSE),
    **dict.fromkeys(("Dense", "Dropout", "LayerNorm", "Normalize", "Pooling"), _DENSE),
    **dict.fromkeys(("Asym", "Router"), _ROUTER),
    **dict.fromkeys(
        ("MLMTransformer", "SparseAutoEncoder", "SparseStaticEmbedding", "SpladePooling"), _SPARSE
    ),
    **dict.fromkeys(("HierarchicalTokenPooling", "MultiVectorMask"), _MULTI),
    "BoW": _WORDS,
    "LogitScore": _CROSS,
}
_TASKS = {
    "feature-extraction": _DENSE,
    "fill-mask": _SPARSE,
    "retrieval": _MULTI,
    "sequence-classification": _CROSS,
    "text-generation": _CROSS,
}
# How the classes of transformers end; the longest that fits decides.
_HEADS = {
    **dict.fromkeys(("ForCausalLM", "ForConditionalGeneration", "ForMaskedLM"), _DENSE),
    **dict.fromkeys(("ForPreTraining", "LMHeadModel", "Model"), _DENSE),
    **dict.fromkeys(("ForSequenceClassification", "ForNextSentencePrediction"), _CROSS),
    **dict.fromkeys(
        ("ForMultipleChoice", "ForQuestionAnswering", "ForTokenClassification"), _TOKENS
    ),
    **dict.fromkeys(("ForAudioClassification", "ForCTC", "ForImageClassification"), _IMAGES),
    "HF_ColBERT": _MULTI,
}


def check_dense(folder: ModelFolder) -> None:
    """Refuse a folder that declares anything but a model with a vector per text.

    A causal language model with which sentence-transformers reranks passes, too.

    Raises:
        ModelFolderError: a declaration that is not known, or that of a model without a vector
            per text; names file, key and archetype.
        CheckpointError: a JSON file that is malformed.
    """
    whole, settings, file = _whole(folder), folder.path / _SETTINGS, folder.path / "modules.json"
    if whole not in (_DENSE, _CROSS):
        _refuse(settings, whole)
    if answers_yes_or_no(folder):
        return
    for module in folder.modules:
        if (archetype := _known(f"{file}: type", module.name, _CLASSES)) != _DENSE:
            _refuse(f"{file}: {module.type}", archetype)
        if module.name == "Transformer":
            _check_task(module)
    if whole != _DENSE:
        _refuse(settings, whole)
    if folder.modules:
        first, names = folder.modules[0], {each.name for each in folder.modules}
        embeds = first.fields.get("module_output_name") == "sentence_embedding"
        if not names & {"Pooling", *_EMBEDS} and not embeds:
            _refuse(f"{file}: no Pooling", _TOKENS)


def answers_yes_or_no(folder: ModelFolder) -> bool:
    """Return whether this is a causal language model that sentence-transformers reranks with."""
    if not folder.modules:
        return _whole(folder) == _CROSS and _head(folder).endswith("ForCausalLM")
    return [each.name for each in folder.modules] == ["Transformer", "LogitScore"]


def as_exported(folder: ModelFolder) -> bool:
    """Return whether the modules say what this package writes into ``config.json``, too."""
    modules, config = folder.modules, folder.config
    names = ["Transformer", "Pooling", *["Normalize"] * bool(config.get("normalize", True))]
    rule = POOLINGS.get(str(config.get("pooling_mode")))
    pooling = None if rule is None else rule.stored
    same = [each.name for each in modules] == names
    return same and modules[1].fields.get("pooling_mode") in (pooling, [pooling])


def check_head(folder: ModelFolder) -> str:
    """Return the class that the weights of a pre-trained model were saved from.

    One that is not known, or whose outputs are not states of texts, is refused.
    """
    head, file = _head(folder), folder.path / "config.json"
    ending = max((each for each in _HEADS if head.endswith(each)), key=len, default=None)
    if ending is None and head:
        raise ModelFolderError(
            f"{file}: architectures is {head!r:.80}, which is not known; expected a class of "
            f"transformers that ends in {', '.join(_HEADS)}"
        )
    if ending is not None and _HEADS[ending] != _DENSE:
        _refuse(f"{file}: {head}", _HEADS[ending])
    return head


def check_object(model: Any) -> None:
    """Refuse a model of sentence-transformers in memory whose vectors are not those of texts."""
    name = type(model).__name__
    if (kind := getattr(model, "model_type", None)) in _MODEL_TYPES:
        if (archetype := _MODEL_TYPES[kind]) != _DENSE:
            _refuse(name, archetype)
        names = [type(module).__name__ for module in model]
        if routers := [each for each in names if _CLASSES.get(each) == _ROUTER]:
            _refuse(f"{name}: {routers[0]}", _ROUTER)


def _whole(folder: ModelFolder) -> str:
    """Return the archetype that the settings of sentence-transformers declare."""
    file, fields = folder.path / _SETTINGS, folder.object(_SETTINGS)
    archetype = _known(f"{file}: model_type", fields.get("model_type", _UNDECLARED), _MODEL_TYPES)
    return _MULTI if archetype == _DENSE and any(key in fields for key in _PYLATE) else archetype


def _known(where: str, value: object, table: Mapping[str, str]) -> str:
    """Return the archetype of ``value``; refuse one that is not in the ``table``."""
    if not isinstance(value, str) or value not in table:
        raise ModelFolderError(
            f"{where} is {value!r:.80}, which is not known; expected one of {', '.join(table)}"
        )
    return table[value]


def _refuse(where: object, archetype: str) -> NoReturn:
    raise ModelFolderError(f"{where}: {archetype}; expected a model with one vector per text")


def _check_task(module: SentenceModule) -> None:
    """Refuse a transformer that gives no states of a text, or other ones to queries."""
    task = module.fields.get("transformer_task", "feature-extraction")
    if (archetype := _known(f"{module.file}: transformer_task", task, _TASKS)) != _DENSE:
        _refuse(f"{module.file}: transformer_task {task!r}", archetype)
    if key := next((key for key in _OF_QUERIES if module.fields.get(key) is not None), None):
        _refuse(f"{module.file}: {key}", _MULTI)
    if "text" not in (module.fields.get("modality_config") or {"text": {}}):
        _refuse(f"{module.file}: modality_config", _IMAGES)


def _head(folder: ModelFolder) -> str:
    """Return the class that the weights were saved from; empty if nothing says it."""
    names = folder.config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else str(names or "")
