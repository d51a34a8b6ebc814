"""Weight files that lie about themselves: refused by name, without much memory or time."""

import io
import json
import os
import struct
import warnings
import zipfile

import pytest
import torch
from helpers.checkpoints import folder_with, save_bin

from qwen3nb.checkpoints.folder import open_checkpoint
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.checkpoints.weights import read_safetensors

LONG = struct.Struct("<Q")
F4 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def raw(header, data=bytes(4)):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return LONG.pack(len(text)) + text + data


def entry(**changes):
    return raw({"a": {**F4, **changes}})


BAD = "not a safetensors file, or truncated"
SAFETENSORS = {
    "empty": (b"", BAD),
    "truncated": (raw({"a": F4}, b"\0\0"), BAD),
    "not JSON": (raw(b"{nope"), BAD),
    "a name twice": (  # which the safetensors library accepts
        raw(f'{{"a":{json.dumps(F4)},"a":{json.dumps(F4)}}}'.encode()),
        "occurs twice",
    ),
    "git-LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git-LFS pointer"),
    "a page": (b"<!DOCTYPE html><html>not found</html>", "an HTML page"),
    "an overlap": (raw({"a": F4, "b": {**F4, "data_offsets": [2, 6]}}, bytes(6)), "`b`"),
    "a large product": (entry(shape=[1 << 62, 1 << 62, 0]), BAD),
    "an unknown dtype": (entry(dtype="F31"), "F31"),
    "a header of 12 MB": (raw(b"{" + b" " * 12_000_000 + b"}"), "its header has 12,000,002 bytes"),
    "a name in colour": (raw({"\x1b[31mred": F4}), "not the name of a tensor"),
}


@pytest.mark.parametrize("case", SAFETENSORS)
def test_a_safetensors_file_is_refused_with_its_cause(tmp_path, case):
    content, cause = SAFETENSORS[case]
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=cause) as error:
        read_safetensors(file)
    assert str(error.value).startswith(str(file))
    assert str(error.value).isprintable()


STATE = {"a": torch.arange(64.0), "b": torch.ones(4, 4)}


def saved(state=STATE):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def zipped(members, *, compressed=()):
    """A zip; members whose names end with one of ``compressed`` are."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that appear twice
        for name, content in members:
            kind = zipfile.ZIP_DEFLATED if name.endswith(compressed or "\0") else zipfile.ZIP_STORED
            archive.writestr(name, content, kind)
    return buffer.getvalue()


with zipfile.ZipFile(io.BytesIO(saved())) as good:
    HELD = [(info.filename, good.read(info)) for info in good.infolist()]


def with_member(end, content, **options):
    return zipped([(n, content if n.endswith(end) else c) for n, c in HELD], **options)


class Runs:
    """Unpickling it runs a command."""

    def __reduce__(self):
        return os.system, ("touch hacked",)


BOMB = bytes(60 << 20)
ALLOCATE = b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\0\0\0\0\x20\x85R."  # bytearray(2 ** 37)
OTHER = "not written by torch"
TORCH = {
    "compressed storage": (lambda: with_member("data/0", BOMB, compressed="data/0"), OTHER),
    "no storage": (lambda: zipped([each for each in HELD if "/data/" not in each[0]]), "unread"),
    "a short storage": (lambda: with_member("data/0", b"short"), "claims 256 bytes, the file has"),
    "half of the file": (lambda: saved()[: -(1 << 12)], OTHER),
    "git-LFS": (lambda: b"version https://git-lfs.github.com/spec/v1\n", "git-LFS pointer"),
    "code": (lambda: {**STATE, "x": Runs()}, "its pickle contains more than tensors"),
    "a pickle that allocates": (lambda: with_member("data.pkl", ALLOCATE), "unreadable"),
    "a pickle of 20 MB": (
        lambda: with_member("data.pkl", b"\x80\x02" + b"]" * 20_000_000 + b"."),
        "its pickle has 20,000,003 bytes",
    ),
    "a nested state": (lambda: {"model": STATE}, "model is a dict, expected a flat state"),
    "a name that is a number": (lambda: {**STATE, 7: torch.ones(1)}, "not the name"),
    "a stride of 0": (
        lambda: {"w": torch.zeros(1).expand(10**6, 10**6)},
        "w claims 4,000,000,000,000",
    ),
    "a transposed matrix": (lambda: {"w": torch.randn(3, 4).T}, "w is not contiguous"),
}


@pytest.mark.parametrize("case", TORCH)
def test_a_torch_file_is_refused_and_nothing_in_it_runs(tmp_path, case, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, cause = TORCH[case]
    content = make()
    folder = save_bin(tmp_path / "model", content)
    file = folder / "pytorch_model.bin"
    if isinstance(content, bytes):
        file.write_bytes(content)
    with pytest.raises(CheckpointError, match=cause) as error:
        open_checkpoint(folder)
    assert str(error.value).startswith(str(file))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "hacked").exists()


def test_a_state_dict_is_read_like_safetensors(tmp_path):
    flat = torch.randn(20)
    state = {"w": torch.randn(3, 4).bfloat16(), "b": flat[5:11].reshape(2, 3), "half": flat.half()}
    opened = open_checkpoint(save_bin(tmp_path / "bin", state)).weights
    for name, tensor in state.items():
        assert torch.equal(opened.read(name), tensor)
    copies = {name: tensor.clone() for name, tensor in state.items()}
    assert opened.digest == open_checkpoint(folder_with(tmp_path / "st", copies)).weights.digest
    assert opened.files == [tmp_path / "bin" / "pytorch_model.bin"]
