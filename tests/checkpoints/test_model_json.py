import pytest

from qwen3nb.checkpoints.inside import read_strictly
from qwen3nb.checkpoints.types import CheckpointError

REFUSED = {
    "twice": (b'{"a": {"b": 1, "b": 1}}', "the key 'b' occurs twice"),
    "NaN": (b'{"a": NaN}', "NaN is not JSON"),
    "infinite": (b'{"a": [1e999]}', "the number 1e999 is not finite"),
    "digits": (b'{"a": ' + b"9" * 5000 + b"}", "invalid JSON"),
    "mark": (b"\xef\xbb\xbf{}", "byte order mark"),
    "UTF-16": ("{}".encode("utf-16"), "invalid JSON"),
    "cut": (b'{"a": ', "invalid JSON"),
    "two values": (b"{} {}", "invalid JSON"),
    "deep": (b"[" * 40 + b"]" * 40, "nested in more than 32 levels"),
    "deeper": (b"[" * 100_000 + b"]" * 100_000, "invalid JSON"),
    "empty": (b"", "invalid JSON"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_ambiguous_json_is_refused_with_the_file(tmp_path, case):
    raw, message = REFUSED[case]
    file = tmp_path / "config.json"
    file.write_bytes(raw)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_strictly(file)
    assert str(file) in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path):
    file = tmp_path / "config.json"
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_strictly(file)
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_strictly(tmp_path)


def test_an_object_is_read_as_it_is(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"ä": [1, 2.5, -1e-12, null, true, {"b": "\\u00e9"}]}', encoding="utf-8")
    assert read_strictly(file) == {"ä": [1, 2.5, -1e-12, None, True, {"b": "é"}]}
