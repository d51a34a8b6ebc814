"""The shared embedding and its four names.

The encoder-decoder shares one embedding between both stacks and the output. Safetensors
files store it once; pickled state dicts and those of wrappers repeat it under other
names. The copies must be equal: if they differ, the file does not say which one the
model had in training.
"""

from __future__ import annotations

from collections.abc import Collection

from qwen3nb.checkpoints.checkpoint import Checkpoint
from qwen3nb.checkpoints.tensor_io import sha256_of
from qwen3nb.checkpoints.types import CheckpointError

__all__ = ["EMBEDDINGS", "embedding_name", "extra_copies"]

# In order of preference.
EMBEDDINGS = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
_ENCODER = EMBEDDINGS[1]
_OUTPUT = EMBEDDINGS[3]


def embedding_name(checkpoint: Checkpoint, *, allow: Collection[str] = ()) -> str | None:
    """Return the name of the encoder's embedding, or None if there is none.

    Args:
        checkpoint: an encoder-decoder.
        allow: with ``untied``, copies may differ, and the encoder's own copy is used.

    Raises:
        CheckpointError: the copies differ.
    """
    if "untied" in allow:
        own = (_ENCODER, *EMBEDDINGS)
        return next((name for name in own if name in checkpoint.tensors), None)
    group = _present(checkpoint)
    _check_equal(checkpoint, group)
    return group[0] if group else None


def extra_copies(checkpoint: Checkpoint) -> set[str]:
    """Return the names of tensors that duplicate another tensor of the checkpoint.

    Raises:
        CheckpointError: the copies of the shared embedding differ.
    """
    group = _present(checkpoint)
    _check_equal(checkpoint, group)
    extra = set(group[1:])
    kept: dict[object, str] = {}
    rank = {name: index for index, name in enumerate(EMBEDDINGS)}
    for name in sorted(checkpoint.tensors, key=lambda name: (rank.get(name, -1), name)):
        location = _location(checkpoint, name)
        if kept.setdefault(location, name) != name and checkpoint.tensors[name].count:
            extra.add(name)
    return extra


def _present(checkpoint: Checkpoint) -> list[str]:
    """Return the names of the embedding's copies, which must have the same values."""
    untied = checkpoint.config.get("tie_word_embeddings") is False
    return [
        name
        for name in EMBEDDINGS
        if name in checkpoint.tensors and not (untied and name == _OUTPUT)
    ]


def _location(checkpoint: Checkpoint, name: str) -> object:
    entry = checkpoint.tensors[name]
    return entry.file, entry.start, entry.stop, entry.shape, entry.dtype


def _check_equal(checkpoint: Checkpoint, group: list[str]) -> None:
    if len({_location(checkpoint, name) for name in group}) < 2:
        return
    first, *others = ((name, sha256_of(checkpoint.tensors[name])) for name in group)
    for name, digest in others:
        if digest != first[1]:
            raise CheckpointError(
                f"{checkpoint.folder}: {name} and {first[0]} should be the same embedding, but "
                "differ (--allow untied uses the encoder's own copy)"
            )
