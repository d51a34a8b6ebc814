"""Files that never end, or are too large, are refused before they are read."""

import os
from pathlib import Path

import pytest

from qwen3nb.bench.compare import compare_runs
from qwen3nb.checkpoints.folder import CheckpointError, trainer_state
from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.utils.bounded_files import (
    FileBoundError,
    check_replaceable,
    read_bounded,
    read_bounded_json,
    read_bounded_text,
)
from qwen3nb.utils.format import parse_size
from qwen3nb.utils.schema import read_toml


def write_pipe(file):
    os.mkfifo(file)


def write_device(file):
    file.symlink_to("/dev/zero")


def write_sparse(file):
    with file.open("wb") as content:
        content.truncate(1 << 30)


FILES = {
    write_pipe: "expected a regular file, got a pipe, a socket or a device",
    write_device: "expected a regular file, got a pipe, a socket or a device",
    Path.mkdir: "expected a regular file, got a folder",
    write_sparse: r"1,073,741,824 bytes; expected at most \d+,\d+,\d+ \(\d+ MiB\)",
}
READERS = {
    "bytes": lambda file: read_bounded(file, most_bytes=1 << 24),
    "TOML": lambda file: read_toml(file, dict),
    "bench": lambda file: compare_runs(file, file),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("write", FILES, ids=lambda write: write.__name__)
def test_what_has_no_end_or_too_many_bytes_is_refused_by_its_name(tmp_path, read, write):
    file = tmp_path / "a.file"
    write(file)
    with pytest.raises(ValueError, match=rf"^{file}: {FILES[write]}$"):
        read(file)


@pytest.mark.parametrize("content", [b"{}," * 1_000_001, b"[" * 2_000_001, b"1," * 8_000_001])
def test_json_with_too_many_values_is_refused_by_its_name(tmp_path, content):
    """They would take gigabytes: an empty object is two bytes, and 64 in memory."""
    file = tmp_path / "trainer_state.json"
    file.write_bytes(content + b"{}" * 1_000_000)
    words = "expected at most 2,000,000 and 8,000,000$"
    with pytest.raises(FileBoundError, match=f"^{file}: .* {words}"):
        read_bounded_json(file)
    with pytest.raises(CheckpointError, match=f"^{file}: .* expected at most"):
        trainer_state(tmp_path)


def test_a_file_with_as_many_bytes_as_allowed_is_read(tmp_path):
    file = tmp_path / "a.json"
    file.write_bytes(b"[1,\r\n2]")
    assert read_bounded(file, most_bytes=7) == b"[1,\r\n2]"
    assert read_bounded_text(file, most_bytes=7) == "[1,\n2]"
    assert read_bounded_json(file, most_bytes=7) == [1, 2]
    with pytest.raises(FileBoundError, match="7 bytes; expected at most 6"):
        read_bounded(file, most_bytes=6)


def test_an_output_replaces_only_a_file_of_its_kind(tmp_path):
    check_replaceable(tmp_path / "new.safetensors", suffixes=[".md"])
    card = tmp_path / "card.MD"
    card.write_text("# Card")
    check_replaceable(card, suffixes=[".md"])
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    for output in (weights, tmp_path):
        with pytest.raises(FileExistsError, match=r"is no \.md file.*name another file"):
            check_replaceable(output, suffixes=[".md"])


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 5000 + "TB", "1e999GB"])
def test_a_size_that_no_disk_has_is_refused_in_a_short_line(text):
    with pytest.raises(ValueError, match=r"^expected a size such as 500MB.{,100}$"):
        parse_size(text)


def test_a_cache_that_is_no_folder_is_named(monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", "/dev/null")
    with pytest.raises(NotADirectoryError, match="/dev/null: the cache is no folder; set QWEN3NB_"):
        load_pydocs()


@pytest.mark.parametrize("output", ["pairs.jsonl", "model.safetensors"])
def test_scores_of_pairs_replace_neither_the_pairs_nor_weights(cli, tmp_path, output):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"query": "a", "document": "b"}\n')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    before = (tmp_path / output).read_bytes()
    options = ("--model", "base", "--pairs", pairs, "--out", tmp_path / output)
    refused = cli("rerank", "pairs", *options)
    assert refused.exit_code in (1, 2)
    assert "name another file" in refused.output
    assert (tmp_path / output).read_bytes() == before
