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

from typing import Any, NoReturn

from qwen3nb.checkpoints.folder import ModelFolder, SentenceModule
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.types import CheckpointError

SETTINGS = "config_sentence_transformers.json"
_DENSE, _PAIRS = "SentenceTransformer", "CrossEncoder"
# Settings that PyLate writes for a vector per token, with or without a model_type.
PYLATE = ("attend_to_expansion_tokens", "do_query_expansion", "query_prefix", "skiplist_words")
# Settings with which a transformer processes queries differently from documents.
_OF_QUERIES = ("document_length", "query_expansion", "query_length")
_EMBEDS = ("CLIPModel", "StaticEmbedding")
_MODULES = (
    *("Transformer", "WordEmbeddings", *_EMBEDS, "CNN", "LSTM", "WeightedLayerPooling"),
    *("WordWeights", "Dense", "Dropout", "LayerNorm", "Normalize", "Pooling"),
)
# Suffixes of transformers' classes whose states may be pooled.
_HEADS = (
    *("ForCausalLM", "ForConditionalGeneration", "ForMaskedLM", "ForPreTraining", "LMHeadModel"),
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
    whole, file = folder.object(SETTINGS), folder.path / SETTINGS
    if key := next((key for key in PYLATE if key in whole), None):
        _refuse(f"{file}: {key}", whole[key])
    if answers_yes_or_no(folder):
        return
    if (kind := whole.get("model_type", _DENSE)) != _DENSE:
        _refuse(f"{file}: model_type", kind, (_DENSE,))
    for module in folder.modules:
        if module.name not in _MODULES or module.type.startswith("pylate."):
            _refuse(f"{folder.path / 'modules.json'}: type", module.type, _MODULES)
        if module.name == "Transformer":
            _check_task(module)
    if folder.modules:
        first, names = folder.modules[0], {each.name for each in folder.modules}
        embeds = first.fields.get("module_output_name") == "sentence_embedding"
        if not names & {"Pooling", *_EMBEDS} and not embeds:
            _refuse(f"{folder.path / 'modules.json'}: without Pooling, it", sorted(names))


def answers_yes_or_no(folder: ModelFolder) -> bool:
    """Return whether sentence-transformers uses this causal language model for reranking."""
    if not folder.modules:
        kind = folder.object(SETTINGS).get("model_type")
        return kind == _PAIRS and _head(folder).endswith("ForCausalLM")
    return [each.name for each in folder.modules] == ["Transformer", "LogitScore"]


def as_exported(folder: ModelFolder) -> bool:
    """Return whether the modules agree with what this package writes into ``config.json``."""
    modules, config = folder.modules, folder.config
    names = ["Transformer", "Pooling", *["Normalize"] * bool(config.get("normalize", True))]
    rule = POOLINGS.get(str(config.get("pooling_mode")))
    pooling = None if rule is None else rule.stored
    if [each.name for each in modules] != names or modules[0].fields.get("do_lower_case"):
        return False
    own = modules[0].folder.path == folder.path
    return own and modules[1].fields.get("pooling_mode") in (pooling, [pooling])


def static_files(folder: ModelFolder) -> tuple[str, ...]:
    """Return the files with the table and the tokenizer of wordllama; empty for another model."""
    if folder.has("config.json"):
        return ()
    return next((each for each in _WORDLLAMA if all(map(folder.has, each))), ())


def check_head(folder: ModelFolder) -> str:
    """Return the class that saved the weights of a pre-trained model.

    Classes whose outputs are not states of texts are refused.
    """
    head = _head(folder)
    if head and not head.endswith(_HEADS):
        if not _in_transformers(head):
            raise CheckpointError(
                f"{folder.path / 'config.json'}: architectures names {head!r:.80}, which is no "
                "class of transformers; expected one whose name ends in "
                f"{', '.join(_HEADS)}"
            )
        _refuse(f"{folder.path / 'config.json'}: architectures", head, [f"*{e}" for e in _HEADS])
    return head


def _in_transformers(name: str) -> bool:
    """Return whether transformers has something of this name."""
    import transformers

    return name.isidentifier() and hasattr(transformers, name)


def check_object(model: Any) -> None:
    """Refuse a loaded sentence-transformers model without one vector per text."""
    kind = getattr(model, "model_type", _DENSE)
    if isinstance(kind, str) and kind != _DENSE:
        _refuse(f"{type(model).__name__}: model_type", kind, (_DENSE,))
    if hasattr(model, "encode_query") and hasattr(model, "__iter__"):
        for name in (type(module).__name__ for module in model):
            if name in ("Asym", "Router"):
                _refuse(f"{type(model).__name__}: module", name)


def _refuse(where: str, value: object, expected: Any = ()) -> NoReturn:
    known = f" (such as {', '.join(expected)})" if expected else ""
    pairs = str(value) == _PAIRS or str(value).endswith(("SequenceClassification", "LogitScore"))
    hint = "; `qwen3nb rerank` runs causal language models that answer yes or no" if pairs else ""
    raise CheckpointError(
        f"{where} is {value!r:.80}; expected a model with one vector per text{known}{hint}"
    )


def _check_task(module: SentenceModule) -> None:
    """Refuse a transformer without states of texts, or with different ones for queries."""
    task = module.fields.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        _refuse(f"{module.file}: transformer_task", task, ("feature-extraction",))
    if key := next((key for key in _OF_QUERIES if module.fields.get(key) is not None), None):
        _refuse(f"{module.file}: {key}", module.fields[key])
    if "text" not in (uses := module.fields.get("modality_config") or {"text": {}}):
        _refuse(f"{module.file}: modality_config", uses, ("text",))


def _head(folder: ModelFolder) -> str:
    """Return the class that saved the weights; empty if unknown."""
    names = folder.config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else str(names or "")
