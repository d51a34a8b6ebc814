"""`qwen3nb cache`: list, verify and prune the caches."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from helpers import TEXTS

from qwen3nb.models.encoders.cache_admin import list_caches, prune, to_prune, verify_cache
from qwen3nb.models.encoders.embedding_cache import EmbeddingCache, text_key
from qwen3nb.models.load import load_encoder

KEYS = [text_key(str(i)) for i in range(300)]
ROWS = np.random.default_rng(0).standard_normal((300, 64), dtype=np.float32)


def stored(file, **options):
    cache = EmbeddingCache(file, **options)
    assert cache.put(dict(zip(KEYS, ROWS, strict=True)))
    return cache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of an empty embedding cache."""
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embeddings"


def test_info_names_the_model_of_each_file(cli, folder):
    assert "0 files" in cli("cache", "info").output
    encoder = load_encoder("random:64", show_progress=False)
    encoder.encode(list(TEXTS))
    about = json.loads(encoder._cache.about_file.read_text())
    assert about["identity"] == encoder.identity
    done = cli("cache", "info")
    assert done.exit_code == 0, done.output
    assert "random-64  4 texts" in done.output
    encoder._cache.about_file.unlink()
    assert "unknown  4 texts" in cli("cache", "info").output
    encoder._cache.about_file.write_text("{")
    assert "its description is damaged" in cli("cache", "info").output
    load_encoder("random:64", show_progress=False).encode(["one more"])
    assert "random-64  5 texts" in cli("cache", "info").output


def test_verify_finds_damaged_vectors(cli, folder):
    stored(folder / "good.sqlite")
    bad = stored(folder / "bad.sqlite")
    done = cli("cache", "verify")
    assert (done.exit_code, done.output) == (0, "600 vectors hold; 0 files are damaged\n")
    with closing(sqlite3.connect(bad.file)) as database, database:
        database.execute("update e set v = zeroblob(256) where k = ?", [KEYS[7]])
    done = cli("cache", "verify")
    assert done.exit_code == 1
    assert "1 vectors fail their checksum" in done.output
    assert "599 vectors hold; 1 files are damaged" in done.output
    bad.file.write_bytes(b"no database" * 1000)
    assert "damaged: file is not a database" in cli("cache", "verify").output
    bad.get(KEYS)
    assert "moved aside" in cli("cache", "verify").output


def test_prune_removes_what_it_lists_and_nothing_else(cli, folder):
    load_encoder("random:64", show_progress=False).encode(list(TEXTS))
    load_encoder("random:32", show_progress=False).encode(list(TEXTS))
    (folder / "a.sqlite.damaged").write_bytes(b"x" * 2000)
    everything = sorted(folder.iterdir())
    done = cli("cache", "prune", "--all", "--dry-run")
    assert "3 files" in done.output
    assert "nothing was removed" in done.output
    assert sorted(folder.iterdir()) == everything
    assert "0 files" in cli("cache", "prune", "--older-than", 1).output
    assert "1 files, 2.0 kB freed" in cli("cache", "prune", "--damaged").output
    done = cli("cache", "prune", "--model", "random-32")
    assert "random-32" in done.output
    (left,) = list_caches()
    assert left.label == "random-64"
    assert len(list(folder.iterdir())) == 2
    for wrong in ([], ["--all", "--damaged"]):
        done = cli("cache", "prune", *wrong)
        assert done.exit_code == 1
        assert "expected --all, or one or more of --older-than" in done.output
    assert to_prune([left], older_than=2, now=left.used + 3 * 86400) == [left]
    assert to_prune([left], older_than=4, now=left.used + 3 * 86400) == []
    assert prune([left]) == left.bytes
    assert not list(folder.iterdir())
    assert verify_cache(left) == (0, []) or not left.file.exists()
