"""`qwen3nb encode --shards`, and `qwen3nb cache verify` of what it writes."""

import numpy as np
import pytest

from qwen3nb.vectors import encode_file as shards_module


@pytest.fixture
def encode(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(shards_module, "AT_ONCE", 2)
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(f'{{"text": "{number}"}}\n' for number in range(7)))
    files = ("--input", source, "--out", tmp_path / "v")
    return lambda *options: cli("encode", "--model", "random:8", *files, *options)


def test_a_folder_of_parts_is_written_and_resumed(encode, cli, tmp_path):
    folder = tmp_path / "v"
    assert f"{folder}: 7 x 8 float32 in 3 parts\n" in encode("--shards", 3).output
    (folder / "part-000001.npy").unlink()
    (folder / "manifest.json").unlink()
    again = encode("--shards", 3).output
    assert f"{folder}: resuming, 2 of 3 parts are there\n" in again
    assert "in 3 parts; 2 were there before" in again
    refused = encode("--shards", 2)
    assert refused.exit_code == 1
    assert "planned in 3 parts; got --shards 2" in refused.output
    assert cli("cache", "verify", folder).output == "7 vectors; 0 of 3 parts damaged\n"


def test_a_damaged_part_is_named(encode, cli, tmp_path):
    encode("--shards", 2)
    file = tmp_path / "v" / "part-000001.npy"
    array = np.load(file)
    np.save(file, array + 1)
    done = cli("cache", "verify", tmp_path / "v")
    assert (done.exit_code, str(file) in done.output) == (1, True)
    assert "7 vectors; 1 of 2 parts damaged" in done.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shards", 9), "in 4 parts, one per 4,096 texts, not 9"),
        (("--shards", 2, "--threads", 2), "--threads is for the workers of --ray"),
    ],
)
def test_what_does_not_fit_is_named(encode, options, message):
    assert message in encode(*options).output
