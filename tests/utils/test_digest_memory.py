"""A journal of finished work, and the digests of unchanged files that it remembers."""

import os
import time

import pytest
from helpers.flips import flipped, flips

from qwen3nb import paths
from qwen3nb.utils.atomic_files import sha256_file
from qwen3nb.utils.journal import Journal, remembered_digest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "weights"
    file.write_text("one")
    time.sleep(0.03)  # younger files are not remembered
    return file


def known_digests():
    journal = Journal(paths.cache() / "digests.journal")
    return {key: journal.get(key) for key in sorted(journal.keys())}


def test_a_digest_is_remembered_until_the_file_changes(file):
    first = remembered_digest([file], lambda: sha256_file(file))
    assert remembered_digest([file], lambda: pytest.fail("computed again")) == first
    status = file.stat()
    file.write_text("two")  # of the same size, and with the same time
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert remembered_digest([file], lambda: sha256_file(file)) == sha256_file(file) != first
    known = known_digests()
    file.write_text("new")  # it has just changed: another change may have this time
    remembered_digest([file], lambda: "stale")
    assert known_digests() == known


def test_a_damaged_entry_is_not_believed_and_made_again(file, cache):
    digest = remembered_digest([file], lambda: sha256_file(file))
    assert list(known_digests().values()) == [digest]
    for flip in flips(cache, count=25):
        with flipped(*flip):
            assert set(known_digests().values()) <= {digest}
    (cache / "digests.journal").write_bytes(b"\xff{not a journal\n\0")
    assert remembered_digest([file], lambda: sha256_file(file)) == digest
    assert list(known_digests().values()) == [digest]


def test_a_cache_that_cannot_be_written_or_read_costs_another_reading(file, cache, caplog):
    cache.write_text("a file where the folder should be")
    assert remembered_digest([file], lambda: sha256_file(file)) == sha256_file(file)
    assert "digests are computed again" in caplog.text
    cache.unlink()
    (cache / "digests.journal").mkdir(parents=True)
    assert remembered_digest([file], lambda: sha256_file(file)) == sha256_file(file)
    assert known_digests() == {}


def test_a_file_replaced_while_it_was_read_is_not_remembered_as_what_came(tmp_path):
    folder, other, before = (tmp_path / name for name in ("model", "other", "before"))
    for each, text in ((folder, "one"), (other, "two")):
        each.mkdir()
        (each / "weights").write_text(text)
    time.sleep(0.03)
    file = folder / "weights"

    def compute():
        folder.rename(before)
        other.rename(folder)
        return sha256_file(file)

    assert remembered_digest([file], compute) == sha256_file(file)
    folder.rename(other)
    before.rename(folder)  # the first file again, with its inode and times
    assert remembered_digest([file], lambda: sha256_file(file)) == sha256_file(file)


def test_a_journal_survives_a_torn_line(tmp_path):
    file = tmp_path / "j.jsonl"
    Journal(file).add("a", [1, 2.5])
    Journal(file).add("b", {"x": 1})
    whole = file.read_bytes()
    for cut in range(0, len(whole) - 1, 3):
        file.write_bytes(whole[:cut])
        journal = Journal(file)
        assert journal.get("b") is None
        journal.add("c", cut)
        assert Journal(file).get("c") == cut
    file.write_bytes(whole.replace(b"2.5", b"2.6"))
    assert Journal(file).get("a") is None
    assert Journal(file).get("b") == {"x": 1}
