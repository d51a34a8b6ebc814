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
    used = {new: name for name in tensors if (new := encoder_name(name)) is not None}
    own = [name for name in (EMBEDDINGS[1], *EMBEDDINGS) if name in tensors]
    if copies := own if untied else _equal_copies(checkpoint):
        used["embed_tokens.weight"] = copies[0]
    return used


def extra_copies(checkpoint: ModelFolder) -> set[str]:
    """Return the names of tensors that duplicate another tensor of the checkpoint.

    Raises:
        CheckpointError: the copies of the shared embedding differ.
    """
    extra = set(_equal_copies(checkpoint)[1:])
    tensors = checkpoint.weights.tensors
    kept: dict[object, str] = {}
    rank = {name: index for index, name in enumerate(EMBEDDINGS)}
    for name in sorted(tensors, key=lambda name: (rank.get(name, -1), name)):
        location = _location(checkpoint, name)
        if kept.setdefault(location, name) != name and tensors[name].count:
            extra.add(name)
    return extra


def _equal_copies(checkpoint: ModelFolder) -> list[str]:
    """Return the names of the embedding's copies, which must have equal values."""
    tensors = checkpoint.weights.tensors
    untied = checkpoint.config.get("tie_word_embeddings") is False
    names = [n for n in EMBEDDINGS if n in tensors and not (untied and n == EMBEDDINGS[3])]
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
