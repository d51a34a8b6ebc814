"""Configurations with more than plain values, and quotes that nothing closes."""

import io
import struct
import tarfile
import zipfile
from collections import Counter

import pytest

from qwen3nb.datasets.custom.queries import read_queries
from qwen3nb.datasets.rows import DataError, read_settings
from qwen3nb.datasets.training_files import _members, find_reader, open_file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 2001-99-99\n", "month must be in"),
        ("a: !!python/object/apply:os.system [ls]\n", "could not determine a constructor"),
        ("a: x\n" * 99_999, "expected at most .*--read-limit"),
    ],
)
def test_a_configuration_that_is_no_plain_value_is_refused(tmp_path, text, message):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(DataError, match=f"config.yaml: .*{message}"):
        read_settings(tmp_path / "config.yaml")


def test_a_configuration_may_refer_to_its_parts(tmp_path):
    (tmp_path / "config.yaml").write_text("a: &a {x: 1}\nb: {<<: *a, y: 2}\n")
    assert read_settings(tmp_path / "config.yaml") == {"a": {"x": 1}, "b": {"x": 1, "y": 2}}


def test_quotes_that_nothing_closes_are_read_once(tmp_path):
    """A search for their end from each quote would take hours for a file of this size."""
    (tmp_path / "q.toml").write_text('a = """' + '\\"""' * 200_000)
    with pytest.raises(DataError, match="q.toml: not TOML"):
        read_queries(tmp_path / "q.toml")


def overlapping_zip(file, *, entries):
    """Write an archive whose directory names the same file again and again."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.jsonl", b'{"text": "a"}\n' * 10_000)
    content = file.read_bytes()
    start, end = content.index(b"PK\1\2"), content.index(b"PK\5\6")
    directory = content[start:end] * entries
    counts = struct.pack("<HHII", entries, entries, len(directory), start)
    file.write_bytes(content[:start] + directory + content[end : end + 8] + counts + b"\0\0")


def test_files_of_an_archive_that_overlap_are_refused(tmp_path):
    overlapping_zip(tmp_path / "t.zip", entries=3000)
    with pytest.raises(DataError, match=r"t\.zip: its files overlap, as a\.jsonl does"):
        list(find_reader(tmp_path / "t.zip")(open_file(tmp_path / "t.zip", Counter())))


@pytest.mark.parametrize("name", ["t.zip", "t.tar.gz"])
def test_an_archive_of_files_that_unpack_to_far_more_is_refused(tmp_path, name):
    text = b'{"text": "a"}\n' * 400_000  # 5.6 MB
    if name == "t.zip":
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(4):
                archive.writestr(f"{number}.jsonl", text)
    else:
        with tarfile.open(tmp_path / name, "w:gz") as tar:
            for number in range(4):
                member = tarfile.TarInfo(f"{number}.jsonl")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text))
    members = _members(open_file(tmp_path / name, Counter()))
    with pytest.raises(DataError, match=rf"{name}: unpacks to more than .*--read-limit"):
        list(members)
