"""Map names of an encoder-decoder's tensors to those of a stock Qwen3.

The encoder-decoder shares one embedding between both stacks and the output. Safetensors
files store it once; pickled state dicts and those of wrappers repeat it under other
names. The copies must be equal: if they differ, the one used in training is unknown.
"""

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import CheckpointError

MODEL_TYPES = ("qwen3_encdec", "qwen3_encoder_decoder")
# In order of preference.
EMBEDDINGS = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
_HEAD = EMBEDDINGS[3]
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
    if name == EMBEDDINGS[0]:
        return "embed_tokens.weight"
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
    tensors = checkpoint.weights.tensors
    names: dict[str, str] = {}
    for name in tensors:
        stock_name = encoder_name(name)
        if stock_name is not None:
            names[stock_name] = name
    if untied:
        embeddings = [name for name in (EMBEDDINGS[1], *EMBEDDINGS) if name in tensors]
    else:
        embeddings = _equal_copies(checkpoint)
    if embeddings:
        names["embed_tokens.weight"] = embeddings[0]
    return names


def extra_copies(checkpoint: ModelFolder) -> set[str]:
    """Return the names of tensors that duplicate another tensor of the checkpoint.

    Raises:
        CheckpointError: the copies of the shared embedding differ.
    """
    extra = set(_equal_copies(checkpoint)[1:])
    tensors = checkpoint.weights.tensors
    first_at: dict[object, str] = {}
    for name in sorted(tensors, key=_preference):
        previous = first_at.setdefault(_location(checkpoint, name), name)
        if previous != name and tensors[name].count:
            extra.add(name)
    return extra


def _preference(name: str) -> tuple[int, str]:
    """Order names of tensors; of embeddings, as they are listed, after all others."""
    if name in EMBEDDINGS:
        return EMBEDDINGS.index(name), name
    return -1, name


def _equal_copies(checkpoint: ModelFolder) -> list[str]:
    """Return the names of the embedding's copies, which must have equal values."""
    tensors = checkpoint.weights.tensors
    names = [name for name in EMBEDDINGS if name in tensors]
    is_untied = checkpoint.config.get("tie_word_embeddings") is False
    if is_untied and _HEAD in names:
        names.remove(_HEAD)
    if len({_location(checkpoint, name) for name in names}) < 2:
        return names
    digests = checkpoint.weights.sha256_each(names)
    for name in names[1:]:
        if digests[name] != digests[names[0]]:
            raise CheckpointError(
                f"{checkpoint}: {name} and {names[0]} should be the same embedding, but differ"
            )
    return names


def _location(checkpoint: ModelFolder, name: str) -> object:
    entry = checkpoint.weights.tensors[name]
    return entry.file, entry.start, entry.stop, entry.shape, entry.dtype
