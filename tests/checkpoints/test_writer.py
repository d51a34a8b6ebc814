import json

import torch
from helpers.checkpoints import folder_with
from safetensors.torch import load_file

from qwen3nb.checkpoints.averaging import average_checkpoints
from qwen3nb.checkpoints.folder import ModelFolder, open_checkpoint
from qwen3nb.checkpoints.weights import read_safetensors
from qwen3nb.checkpoints.writer import Piece, write_pieces


def test_a_transfer_writes_what_the_library_reads(tmp_path):
    tensors = {"b": torch.randn(3, 500), "a": torch.tensor([0.5]), "c": torch.zeros(0)}
    source = open_checkpoint(folder_with(tmp_path / "in", tensors))
    pieces = [Piece("b2", "F32", ("b",)), Piece("a", "BF16", ("a",)), Piece("c", "F32", ("c",))]
    file = tmp_path / "x.safetensors"
    written = write_pieces([source], pieces, file, label="copy")
    assert written.warnings == []
    again = ModelFolder(tmp_path).weights_in("x.safetensors")
    assert written.digest == again.digest
    read = load_file(file)
    assert torch.equal(read["b2"], tensors["b"])
    assert torch.equal(read["a"], tensors["a"].bfloat16())
    assert read["c"].numel() == 0
    assert set(read_safetensors(file)) == {"a", "b2", "c"}


def test_blocks_do_not_change_the_mean(tmp_path, monkeypatch):
    tensors = [{"w": torch.randn(7, 33), "v": torch.randn(5).half()} for _ in range(3)]
    folders = [folder_with(tmp_path / str(i), each) for i, each in enumerate(tensors)]
    whole = load_file(average_checkpoints(folders, tmp_path / "whole") / "model.safetensors")
    monkeypatch.setattr("qwen3nb.checkpoints.writer._BLOCK", 4)
    parts = load_file(average_checkpoints(folders, tmp_path / "parts") / "model.safetensors")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_suspicious_matrices_are_reported(tmp_path):
    half = torch.randn(40, 4)
    half[20:] = 0
    tensors = {"same": torch.full((3, 3), 2.0), "half": half, "norm": torch.ones(9)}
    output = average_checkpoints([folder_with(tmp_path / "in", tensors)], tmp_path / "out")
    warnings = json.loads((output / "averaging_metadata.json").read_text())["warnings"]
    assert sorted(warnings) == [
        "half: 50% of the values are exactly 0",
        "same: all values are equal",
    ]
