import os
import zipfile

import pytest
import torch
from helpers.checkpoints import folder_with, save_bin

from qwen3nb.checkpoints.folder import open_checkpoint
from qwen3nb.checkpoints.torch_file import read_torch
from qwen3nb.checkpoints.types import CheckpointError


def test_a_state_dict_is_read_like_safetensors(tmp_path):
    flat = torch.randn(20)
    state = {"w": torch.randn(3, 4).bfloat16(), "b": flat[5:11].reshape(2, 3), "half": flat.half()}
    opened = open_checkpoint(save_bin(tmp_path / "bin", state))
    for name, tensor in state.items():
        assert torch.equal(opened.weights.read(name), tensor)
    copies = {name: tensor.clone() for name, tensor in state.items()}
    assert (
        opened.weights.digest
        == open_checkpoint(folder_with(tmp_path / "st", copies)).weights.digest
    )
    assert opened.weights.files == [tmp_path / "bin" / "pytorch_model.bin"]


class Runs:
    """Unpickling it runs a command."""

    def __reduce__(self):
        return os.system, ("touch hacked",)


BAD_BIN = {
    "code": (lambda: {"w": torch.ones(1), "x": Runs()}, "its pickle contains more than tensors"),
    "huge": (lambda: {"w": torch.zeros(1).expand(10**6, 10**6)}, "w claims 4,000,000,000,000"),
    "nested": (lambda: {"model": {"w": torch.ones(1)}}, "model is a dict, expected a flat state"),
    "list": (lambda: [torch.ones(1)], "contains a list, expected a state dict"),
    "strides": (lambda: {"w": torch.randn(3, 4).T}, "w is not contiguous"),
}


@pytest.mark.parametrize("case", BAD_BIN)
def test_a_bad_state_dict_is_refused_and_nothing_runs(tmp_path, case, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, cause = BAD_BIN[case]
    with pytest.raises(CheckpointError, match=rf"pytorch_model\.bin: {cause}"):
        open_checkpoint(save_bin(tmp_path / "bad", make()))
    assert not (tmp_path / "hacked").exists()


def test_other_files_named_bin_are_refused(tmp_path):
    old = save_bin(tmp_path, {"w": torch.ones(1)}, _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match=r"not written by torch\.save"):
        open_checkpoint(old)
    file = old / "pytorch_model.bin"
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(CheckpointError, match="git-LFS pointer"):
        open_checkpoint(old)
    whole = save_bin(tmp_path / "cut", {"w": torch.randn(1000)}) / "pytorch_model.bin"
    whole.write_bytes(whole.read_bytes()[:-2000])
    with pytest.raises(CheckpointError, match="or truncated"):
        read_torch(whole)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"0" * 100)
    with pytest.raises(CheckpointError, match="it is compressed"):
        read_torch(file)
