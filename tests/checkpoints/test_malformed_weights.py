"""Weight files that lie about themselves: refused by name, without much memory or time."""

import shutil
import tracemalloc

import pytest
from helpers import malformed_weights as malformed
from helpers.checkpoints import folder_with, save_bin
from torch import arange, full, ones

from qwen3nb.checkpoints.averaging import average_checkpoints
from qwen3nb.checkpoints.folder import open_checkpoint
from qwen3nb.checkpoints.torch_file import read_torch
from qwen3nb.checkpoints.types import CheckpointError

# What the library reads in the same way is no lie.
HARMLESS = {"an unknown format"}


@pytest.fixture
def folder(tmp_path):
    return folder_with(tmp_path / "model", {"a": arange(64.0), "b": ones(4, 4)})


def read_all(folder):
    opened = open_checkpoint(folder)
    return [opened.weights.read(name) for name in opened.weights.tensors]


def refused(folder):
    """Open the folder and read every value; return the message, and the peak of memory."""
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as raised:
            read_all(folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(raised.value)
    return str(raised.value), peak


@pytest.mark.parametrize("case", sorted(malformed.HEADERS.keys() - HARMLESS))
def test_a_header_that_lies_is_refused(folder, case):
    malformed.HEADERS[case](folder)
    message, _ = refused(folder)
    assert message.startswith(str(folder / "model.safetensors"))
    assert message.isprintable()


@pytest.fixture(scope="module")
def torch_reader(tmp_path_factory):
    """What reading a torch file imports does not count as memory."""
    read_torch(save_bin(tmp_path_factory.mktemp("good"), {"w": ones(1)}) / "pytorch_model.bin")


@pytest.mark.parametrize("case", sorted(malformed.TORCH_FILES.keys() - HARMLESS))
@pytest.mark.usefixtures("torch_reader")
def test_a_torch_file_that_lies_is_refused(folder, case):
    malformed.TORCH_FILES[case](folder)
    message, peak = refused(folder)
    assert message.startswith(str(folder / "pytorch_model.bin"))
    assert not (folder.parent / "hacked").exists()
    assert peak < 40_000_000  # some expand to 60 MB, and would to any size


def test_values_that_no_output_can_hold_are_refused(tmp_path):
    folders = [
        folder_with(tmp_path / f"checkpoint-{step}", {"w": full((8,), 3e38)}) for step in (1, 2)
    ]
    with pytest.raises(CheckpointError, match="w contains values too large for float32"):
        average_checkpoints(folders, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_a_full_disk_names_the_file(folder, tmp_path, monkeypatch):
    import errno
    import os

    def full_disk(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    other = shutil.copytree(folder, tmp_path / "other")
    monkeypatch.setattr("os.pwrite", full_disk)
    with pytest.raises(OSError, match=r"No space left on device: .*model\.safetensors"):
        average_checkpoints([folder, other], tmp_path / "mean")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["home", "model", "other"]
