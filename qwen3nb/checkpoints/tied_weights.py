"""The one embedding that goes by four names.

The encoder-decoder shares its embedding between both stacks and the output.
Safetensors keep it once; a pickled state dict, or a wrapper's, repeats it under
other names. Copies must be equal: which of two different ones the model had in
training cannot be told from the file.
"""

from __future__ import annotations

from collections.abc import Collection

from qwen3nb.checkpoints.checkpoint import Checkpoint, CheckpointError
from qwen3nb.checkpoints.tensor_io import sha256_of

__all__ = ["EMBEDDINGS", "embedding_name", "extra_copies"]

# In the order in which one is kept.
EMBEDDINGS = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
_ENCODER = EMBEDDINGS[1]
_OUTPUT = EMBEDDINGS[3]


def embedding_name(checkpoint: Checkpoint, *, allow: Collection[str] = ()) -> str | None:
    """The tensor that holds the encoder's embedding, or None if there is none.

    Args:
        checkpoint: an encoder-decoder.
        allow: with ``untied``, copies may differ; the encoder's own is taken.

    Raises:
        CheckpointError: copies that differ.
    """
    if "untied" in allow:
        own = (_ENCODER, *EMBEDDINGS)
        return next((name for name in own if name in checkpoint.tensors), None)
    group = _present(checkpoint)
    _check_equal(checkpoint, group)
    return group[0] if group else None


def extra_copies(checkpoint: Checkpoint) -> set[str]:
    """Names that repeat another tensor of the checkpoint and need not be written again.

    Raises:
        CheckpointError: copies of the shared embedding that differ.
    """
    group = _present(checkpoint)
    _check_equal(checkpoint, group)
    extra = set(group[1:])
    kept: dict[object, str] = {}
    rank = {name: index for index, name in enumerate(EMBEDDINGS)}
    for name in sorted(checkpoint.tensors, key=lambda name: (rank.get(name, -1), name)):
        place = _place(checkpoint, name)
        if kept.setdefault(place, name) != name and checkpoint.tensors[name].count:
            extra.add(name)
    return extra


def _present(checkpoint: Checkpoint) -> list[str]:
    """The embedding's names in this checkpoint that ought to hold the same values."""
    untied = checkpoint.config.get("tie_word_embeddings") is False
    return [
        name
        for name in EMBEDDINGS
        if name in checkpoint.tensors and not (untied and name == _OUTPUT)
    ]


def _place(checkpoint: Checkpoint, name: str) -> object:
    entry = checkpoint.tensors[name]
    return entry.file, entry.start, entry.stop, entry.shape, entry.dtype


def _check_equal(checkpoint: Checkpoint, group: list[str]) -> None:
    if len({_place(checkpoint, name) for name in group}) < 2:
        return
    first, *others = ((name, sha256_of(checkpoint.tensors[name])) for name in group)
    for name, digest in others:
        if digest != first[1]:
            raise CheckpointError(
                f"{checkpoint.folder}: {name} and {first[0]} should be one embedding, but differ; "
                "which one the encoder had cannot be told (--allow untied takes "
                "the encoder's own)"
            )
