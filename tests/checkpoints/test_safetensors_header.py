import json
import struct

import pytest

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.checkpoints.weights import read_safetensors


def raw(header, data=b""):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text)) + text + data


F4 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


BAD = {
    "empty": (b"", "truncated"),
    "truncated": (raw({"a": F4}, b"\0\0"), "tensors end at byte"),
    "trailing bytes": (raw({"a": F4}, b"\0" * 9), "tensors end at byte"),
    "header too long": (struct.pack("<Q", 10**18) + b"{}", "truncated"),
    "not json": (raw(b"{nope"), "invalid safetensors header"),
    "twice": (raw(b'{"a":1,"a":2}'), "duplicate name"),
    "same entry twice": (  # which the safetensors library accepts
        raw(f'{{"a":{json.dumps(F4)},"a":{json.dumps(F4)}}}'.encode(), b"\0" * 4),
        "duplicate name",
    ),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git-LFS pointer"),
    "html": (b"<!DOCTYPE html><html>not found</html>", "an HTML page"),
    "overlap": (
        raw({"a": F4, "b": {**F4, "data_offsets": [2, 6]}}, b"\0" * 6),
        "b overlaps the tensor before it",
    ),
    "gap": (raw({"a": F4, "b": {**F4, "data_offsets": [8, 12]}}, b"\0" * 12), "b follows a gap"),
    "size": (
        raw({"a": {**F4, "shape": [7]}}, b"\0" * 4),
        r"a of .* needs 28 bytes, got 4",
    ),
    "dtype": (raw({"a": {**F4, "dtype": "F31"}}, b"\0" * 4), "a has dtype F31"),
    "entry": (raw({"a": {"dtype": "F32"}}), "malformed header entry for a"),
    "list": (raw([1, 2]), "not an object"),
    "negative": (raw({"a": {**F4, "shape": [-1]}}, b"\0" * 4), "malformed header entry for a"),
    "words": (raw({"a": {**F4, "shape": ["x"]}}, b"\0" * 4), "malformed header entry for a"),
    "nested": (raw(b'{"a":' * 90000), "invalid safetensors header"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_weight_file_is_named_with_its_cause(tmp_path, case):
    content, cause = BAD[case]
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"model\.safetensors.*{cause}"):
        read_safetensors(file)
