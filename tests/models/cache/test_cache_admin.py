"""`qwen3nb cache`: list, verify and prune the caches."""

import json

import pytest
from helpers import TEXTS
from helpers.vector_cache import KEYS, filled, segment, stored

from qwen3nb.models.cache.cache_admin import list_caches, prune, to_prune, verify_cache
from qwen3nb.models.load import load_encoder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of an empty embedding cache."""
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embeddings"


def test_info_names_the_model_of_each_file(cli, folder):
    assert "0 models" in cli("cache", "info").output
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
    stored(folder / "good")
    bad = stored(folder / "bad")
    done = cli("cache", "verify")
    assert (done.exit_code, done.output) == (0, "600 vectors hold; those of 0 models are damaged\n")
    data = bytearray(segment(bad).read_bytes())
    data[2000] ^= 1
    segment(bad).write_bytes(data)
    done = cli("cache", "verify")
    assert done.exit_code == 1
    assert f"{segment(bad).name}: 1 vectors fail their checksum" in done.output
    assert "599 vectors hold; those of 1 models are damaged" in done.output


def test_prune_damaged_removes_segments_and_spares_the_others(cli, folder, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE_LIMIT", "1MB")  # small segments
    cache = stored(folder / "x", about={"label": "mine"})
    assert cache.put({KEYS[0]: filled(cache)[1][0]})
    first, second = sorted(folder.glob("x/*.vectors"), key=lambda file: -file.stat().st_size)
    data = bytearray(first.read_bytes())
    data[2000] ^= 1
    first.write_bytes(data)
    assert "1 models" in cli("cache", "prune", "--damaged").output
    assert not first.exists()
    assert not first.with_suffix(".index").exists()
    assert len(cache) == 1
    assert cli("cache", "verify").exit_code == 0
    assert "0 models" in cli("cache", "prune", "--damaged").output
    assert second.is_file()


def test_prune_removes_what_it_lists_and_nothing_else(cli, folder):
    load_encoder("random:64", show_progress=False).encode(list(TEXTS))
    load_encoder("random:32", show_progress=False).encode(list(TEXTS))
    everything = sorted(folder.rglob("*"))
    done = cli("cache", "prune", "--all", "--dry-run")
    assert "2 models" in done.output
    assert "nothing was removed" in done.output
    assert sorted(folder.rglob("*")) == everything
    assert "0 models" in cli("cache", "prune", "--older-than", 1).output
    done = cli("cache", "prune", "--model", "random-32")
    assert "random-32" in done.output
    (left,) = list_caches()
    assert left.label == "random-64"
    assert list(folder.iterdir()) == [left.path]
    for wrong in ([], ["--all", "--damaged"]):
        done = cli("cache", "prune", *wrong)
        assert done.exit_code == 1
        assert "expected --all, or one or more of --older-than" in done.output
    assert to_prune([left], older_than=2, now=left.used + 3 * 86400) == [left]
    assert to_prune([left], older_than=4, now=left.used + 3 * 86400) == []
    assert prune([left]) == left.bytes
    assert not list(folder.iterdir())
    assert verify_cache(left) == (0, [])


def test_prune_to_a_size(cli, folder):
    stored(folder / "x")
    stored(folder / "y", about={"label": "mine"})
    assert "0 B freed" in cli("cache", "prune", "--to", "1GB").output
    assert "expected a size such as" in cli("cache", "prune", "--to", "little").output
    for other in (["--all"], ["--dry-run"], ["--model", "mine"]):
        assert "give no other option" in cli("cache", "prune", "--to", "1GB", *other).output
    done = cli("cache", "prune", "--to", "0B")
    assert "kB freed" in done.output
    assert not list(folder.iterdir())
