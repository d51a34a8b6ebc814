"""Map names of an encoder-decoder's tensors to those of a stock Qwen3.

The encoder-decoder shares one embedding between both stacks and the output. Safetensors
files store it once; pickled state dicts and those of wrappers repeat it under other
names. The copies must be equal: if they differ, the one used in training is unknown.
Stock models share theirs with the output, if their configuration ties them.
"""

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import CheckpointError, TensorEntry

MODEL_TYPES = ("qwen3_encdec", "qwen3_encoder_decoder")
_SHARED_EMBEDDING = "model.shared.weight"
_ENCODER_EMBEDDING = "model.encoder.embed_tokens.weight"
_OUTPUT_LAYER = "lm_head.weight"
# In order of preference.
EMBEDDINGS = (
    _SHARED_EMBEDDING,
    _ENCODER_EMBEDDING,
    "model.decoder.embed_tokens.weight",
    _OUTPUT_LAYER,
)
_STOCK_EMBEDDING = "embed_tokens.weight"
# The same of stock models, if they are tied; the stacks of T5Gemma have an embedding each.
_TIED_IN_STOCK = ("model.embed_tokens.weight", _STOCK_EMBEDDING, _OUTPUT_LAYER)
_TIED_IN_T5GEMMA = ("model.decoder.embed_tokens.weight", "lm_head.out_proj.weight")
_ENCODER = "model.encoder."


def encoder_name(name: str) -> str | None:
    """Return the Qwen3 name of an encoder-decoder tensor, or None if the encoder lacks it.

    >>> encoder_name("model.shared.weight")
    'embed_tokens.weight'
    >>> encoder_name("model.encoder.layers.3.mlp.up_proj.weight")
    'layers.3.mlp.up_proj.weight'
    >>> encoder_name("model.decoder.norm.weight") is None
    True
    """
    if name == _SHARED_EMBEDDING:
        return _STOCK_EMBEDDING
    if name in EMBEDDINGS or not name.startswith(_ENCODER):
        return None
    return name.removeprefix(_ENCODER)


def encoder_tensors(checkpoint: ModelFolder, *, untied: bool = False) -> dict[str, str]:
    """Return the names of the encoder's tensors, by their names in a stock Qwen3.

    Args:
        checkpoint: an encoder-decoder.
        untied: whether copies of the embedding may differ; the encoder's own is then used.

    Raises:
        CheckpointError: copies of the embedding differ.
    """
    stored_names: dict[str, str] = {}
    for name in checkpoint.weights.tensors:
        stock_name = encoder_name(name)
        if stock_name is not None:
            stored_names[stock_name] = name
    # The embedding may be stored under several names; one of them is chosen.
    embeddings = _embeddings_in(checkpoint)
    # If copies may differ, the encoder's own counts, else all must be equal.
    if untied and _ENCODER_EMBEDDING in embeddings:
        stored_names[_STOCK_EMBEDDING] = _ENCODER_EMBEDDING
        return stored_names
    if not untied:
        embeddings = _equal_embeddings(checkpoint)
    if embeddings:
        stored_names[_STOCK_EMBEDDING] = embeddings[0]
    return stored_names


def extra_copies(checkpoint: ModelFolder) -> set[str]:
    """Return the names of tensors that duplicate another tensor of the checkpoint.

    Raises:
        CheckpointError: the copies of the shared embedding differ.
    """
    extra = set(_equal_copies(checkpoint, _tied_names(checkpoint))[1:])  # all but the first
    tensors = checkpoint.weights.tensors
    # Names of the same bytes in a file are one tensor, stored once.
    names_by_bytes: dict[object, list[str]] = {}
    for name in sorted(tensors, key=_preference):
        names_by_bytes.setdefault(_bytes_of(tensors[name]), []).append(name)
    for names in names_by_bytes.values():
        duplicates = names[1:]
        # Empty tensors have the same (no) bytes without being copies.
        extra.update(name for name in duplicates if tensors[name].count > 0)
    return extra


def _preference(name: str) -> tuple[int, str]:
    """Order names of tensors; of embeddings, as they are listed, after all others."""
    if name in EMBEDDINGS:
        return EMBEDDINGS.index(name), name
    return -1, name


def _embeddings_in(checkpoint: ModelFolder) -> list[str]:
    return [name for name in EMBEDDINGS if name in checkpoint.weights.tensors]


def _equal_embeddings(checkpoint: ModelFolder) -> list[str]:
    """Return the names of an encoder-decoder's embedding, whose copies must be equal."""
    names = _embeddings_in(checkpoint)
    is_untied = checkpoint.config.get("tie_word_embeddings") is False
    if is_untied and _OUTPUT_LAYER in names:  # which then has its own weights
        names.remove(_OUTPUT_LAYER)
    return _equal_copies(checkpoint, names)


def _tied_names(checkpoint: ModelFolder) -> list[str]:
    """Return the names of the embedding that a checkpoint has, the one to keep first."""
    tensors = checkpoint.weights.tensors
    tie = checkpoint.config.get("tie_word_embeddings")
    is_t5gemma = str(checkpoint.config.get("model_type")).startswith("t5gemma")
    is_stock = any(name in tensors for name in _TIED_IN_STOCK[:2])
    if is_t5gemma:
        candidates: tuple[str, ...] = _TIED_IN_T5GEMMA
        is_tied = tie is not False
    elif is_stock:
        candidates = _TIED_IN_STOCK
        is_tied = tie is True
    else:
        return _equal_embeddings(checkpoint)
    if not is_tied:
        return []
    return [name for name in candidates if name in tensors]


def _equal_copies(checkpoint: ModelFolder, names: list[str]) -> list[str]:
    """Return the names of one tensor; refuse copies that differ."""
    tensors = checkpoint.weights.tensors
    different_bytes = {_bytes_of(tensors[name]) for name in names}
    if len(different_bytes) < 2:
        return names
    hashes = checkpoint.weights.sha256_each(names)
    for name in names:
        if hashes[name] != hashes[names[0]]:
            raise CheckpointError(
                f"{tensors[name].file}: {name} and {names[0]} should be the same embedding, but "
                "differ; save the model again, or set tie_word_embeddings to false in its "
                "config.json if both were trained"
            )
    return names


def _bytes_of(entry: TensorEntry) -> tuple[object, ...]:
    """Return which bytes a tensor is, and how they are read; copies may share them."""
    return entry.file, entry.start, entry.stop, entry.shape, entry.dtype
