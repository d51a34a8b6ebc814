import pytest
import torch
from helpers.checkpoints import folder_with, save_bin
from safetensors.torch import load_file

from qwen3nb.checkpoints.averaging import average_checkpoints
from qwen3nb.checkpoints.folder import open_checkpoint
from qwen3nb.checkpoints.names import embedding_name
from qwen3nb.checkpoints.types import CheckpointError

EMBEDDING = torch.randn(5, 3)


ALIASES = ("model.encoder.embed_tokens.weight", "lm_head.weight")


def test_copies_of_the_embedding_are_written_once(tmp_path):
    """From a pickle, where they are one storage, and from safetensors, where they are copies."""
    copies = {"model.shared.weight": EMBEDDING, **dict.fromkeys(ALIASES, EMBEDDING)}
    pickled = save_bin(tmp_path / "bin", copies)
    stored = folder_with(tmp_path / "st", {name: value.clone() for name, value in copies.items()})
    output = average_checkpoints([pickled, stored], tmp_path / "mean")
    assert set(load_file(output / "model.safetensors")) == {"model.shared.weight"}


def test_copies_that_differ_are_refused_unless_they_may(tmp_path):
    tensors = {"model.shared.weight": EMBEDDING, ALIASES[0]: EMBEDDING + 1}
    opened = open_checkpoint(folder_with(tmp_path / "a", tensors))
    with pytest.raises(CheckpointError, match="same embedding, but differ"):
        embedding_name(opened)
    assert embedding_name(opened, allow=["untied"]) == ALIASES[0]
    with pytest.raises(CheckpointError, match="same embedding, but differ"):
        average_checkpoints([opened.path], tmp_path / "mean")
    tensors = {"model.shared.weight": EMBEDDING, ALIASES[1]: EMBEDDING + 1}
    output = folder_with(tmp_path / "b", tensors)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight and model\.shared\.weight"):
        embedding_name(open_checkpoint(output))
    (output / "config.json").write_text('{"tie_word_embeddings": false}')
    assert embedding_name(open_checkpoint(output)) == "model.shared.weight"
    only = open_checkpoint(folder_with(tmp_path / "c", {ALIASES[1]: EMBEDDING}))
    assert embedding_name(only) == ALIASES[1]
