"""Texts to vectors on disk: one file, or parts that are equal to it; resumed, refused by name."""

import json
import threading
from unittest import mock

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import TEXTS
from helpers.fault_injection import tree
from helpers.flips import flipped, flips, refusal

from qwen3nb.cli.main import main
from qwen3nb.models.load import load_encoder
from qwen3nb.models.search.exact import search
from qwen3nb.models.types import EncoderError
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.vectors import encode_file as module
from qwen3nb.vectors.encode_file import (
    block_size,
    cut_texts,
    encode_blocks,
    encode_shards,
    encode_to_file,
    read_texts,
)
from qwen3nb.vectors.shards import damaged_shards, read_manifest, read_shard_plan, shard_blocks

LINES = [f"text {number % 17} of ümlauts{' x' * (number % 5)}" for number in range(23)]


def random_encoder(**options):
    return load_encoder("random:8", cache=False, show_progress=False, **options)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", 2)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "texts.jsonl"
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in LINES]
    file.write_text("\n".join(lines), encoding="utf-8")  # no line break at the end
    return file


@pytest.fixture
def folder(tmp_path, source):
    encode_shards(random_encoder(), source, tmp_path / "v", shards=4)
    return tmp_path / "v"


def vectors_of(folder):
    return np.concatenate(list(shard_blocks(folder, 5)))


def test_a_block_is_bounded_by_its_vectors_and_its_texts():
    assert [block_size(d) for d in (1, 384, 4096, 1 << 30)] == [32_768, 21_845, 2_048, 1]


def test_an_error_says_in_which_block():
    encoder = random_encoder()
    with pytest.raises(EncoderError, match="^counting from text 10: text 2 is not valid Unicode"):
        list(encode_blocks(encoder, [*LINES[:12], "\ud800"], size=10))
    with pytest.raises(EncoderError, match="^random-8: text 2 is not valid Unicode|^text 2"):
        list(encode_blocks(encoder, [*LINES[:2], "\ud800"], size=10))


def test_a_file_of_vectors_is_what_encode_gives(tmp_path, own_cache):
    texts = [*TEXTS, "", TEXTS[0], "last"]
    encoder = load_encoder("random:24", show_progress=False)
    done = encode_to_file(encoder, iter(texts), tmp_path / "v.npy", role="query", total=7)
    assert (done.rows, done.dimension, done.misses) == (7, 24, 6)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), encoder.encode(texts))
    assert np.load(tmp_path / "v.npy", mmap_mode="r").dtype == np.float32
    assert encode_to_file(encoder, [], tmp_path / "none.npy").rows == 0
    assert np.load(tmp_path / "none.npy").shape == (0, 24)


def test_an_interrupted_encoding_resumes(tmp_path, own_cache):
    file = tmp_path / "v.npy"
    file.write_bytes(b"old")

    def broken():
        yield from ("a", "b", "c", "d", "e")
        yield None

    encoder = load_encoder("random", show_progress=False)
    with pytest.raises(EncoderError, match="from text 4: text 1 is NoneType"):
        encode_to_file(encoder, broken(), file)
    with pytest.raises(EncoderError, match="expected 9 texts; got 4"):
        encode_to_file(encoder, "abcd", file, total=9)
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".v")] == []
    again = load_encoder("random", show_progress=False)
    done = encode_to_file(again, "abcde", file)
    assert (done.hits, done.misses) == (4, 1)


def test_a_disk_that_fills_leaves_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "v.npy").write_bytes(b"old")
    monkeypatch.setattr("os.fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        encode_to_file(random_encoder(), ["a"], tmp_path / "v.npy")
    assert [path.read_bytes() for path in tmp_path.glob("*v.npy*")] == [b"old"]


def command(source, output, *options, model="random"):
    words = ("encode", "--model", model, "--input", source, "--out", output, *options)
    return CliRunner().invoke(main, [str(each) for each in words])


def test_encode_from_the_command_line(tmp_path, own_cache, encoder_folder):
    source, output = tmp_path / "t.jsonl", tmp_path / "v.npy"
    source.write_text("".join(json.dumps({"text": t, "id": 1}) + "\n" for t in TEXTS))
    done = command(source, output, "--pooling", "last", "--role", "query", model=encoder_folder)
    assert done.exit_code == 0, done.output
    assert "4 x 32 float32; 0 distinct texts from the cache, 4 computed" in done.output
    expected = load_encoder(encoder_folder, pooling="last", cache=False).encode(list(TEXTS))
    np.testing.assert_allclose(np.load(output), expected, atol=1e-5)
    again = command(source, output, "--pooling", "last", model=encoder_folder)
    assert "4 distinct texts from the cache, 0 computed" in again.output
    fresh = command(source, output, "--pooling", "last", "--no-cache", model=encoder_folder)
    assert "0 distinct" in fresh.output


LINES_REFUSED = [
    (b'{"text": 3}', "valid string"),
    (b'{"txt": "a"}', "Field required"),
    (b'["a"]', "an object"),
    (b'{"text": "a', "Invalid JSON"),
    (b"", "Invalid JSON"),
    (b'{"text": "\xff"}', "Invalid JSON"),
    (b'{"text": "\\ud800"}', "hex escape"),
    (b"[" * 100_000, "Invalid JSON"),
]


def test_an_invalid_line_is_refused_with_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr("qwen3nb.models.load.load_encoder", lambda *_, **__: 1 / 0)
    source = tmp_path / "t.jsonl"
    for line, message in LINES_REFUSED:
        source.write_bytes(b'{"text": "fine"}\n' + line + b'\n{"text": "fine"}\n')
        done = command(source, tmp_path / "v.npy")
        assert done.exit_code == 1
        assert "t.jsonl:2: " in done.output
        assert message in done.output
    assert not (tmp_path / "v.npy").exists()


PATHS = [
    ("t.jsonl", "v.npy", "is empty"),
    ("no.jsonl", "v.npy", "no such file"),
    ("t.jsonl", "no/v.npy", "no such folder to write to"),
    ("t.jsonl", "v.txt", "expected the name of a .npy file"),
]


def test_paths_are_checked_before_anything_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr("qwen3nb.models.load.load_encoder", lambda *_, **__: 1 / 0)
    (tmp_path / "t.jsonl").write_text("")
    for source, output, message in PATHS:
        done = command(tmp_path / source, tmp_path / output)
        assert done.exit_code == 1
        assert message in done.output


@pytest.mark.parametrize("shards", [1, 2, 5, 12, 40])
def test_the_parts_are_what_one_file_holds(tmp_path, source, shards):
    encode_to_file(random_encoder(), read_texts(source), tmp_path / "v.npy", role="query")
    done = encode_shards(random_encoder(), source, tmp_path / "v", shards=shards, role="query")
    parts = done.vectors.shards
    assert done.kept == 0
    assert len(parts) == min(shards, 12)
    assert all(part.first % 2 == 0 for part in parts)
    assert [part.first for part in parts[1:]] == np.cumsum([p.texts for p in parts[:-1]]).tolist()
    np.testing.assert_array_equal(vectors_of(done.folder), np.load(tmp_path / "v.npy"))
    assert damaged_shards(done.folder) == []
    assert not list(done.folder.glob(".*"))


def test_the_parts_of_a_model_whose_batches_round_are_too(tmp_path, source, encoder_folder):
    """Qwen3's last bits depend on a text's neighbours, which are the same in the same part."""
    encoder = load_encoder(encoder_folder, cache=False, show_progress=False)
    encode_to_file(encoder, read_texts(source), tmp_path / "v.npy")
    encode_shards(encoder, source, tmp_path / "v", shards=3)
    np.testing.assert_array_equal(vectors_of(tmp_path / "v"), np.load(tmp_path / "v.npy"))


def test_without_a_number_a_part_has_many_texts(tmp_path, source, monkeypatch):
    monkeypatch.setattr(module, "TEXTS_PER_SHARD", 10)
    counts = [len(cut_texts(source, tmp_path, shards=None, at_least=n)[1]) for n in (1, 8)]
    assert counts == [3, 8]


def test_a_search_of_the_folder_is_one_of_the_file(folder):
    vectors = vectors_of(folder)
    hits, expected = search(vectors[:3], folder, k=9, block=2), search(vectors[:3], vectors, k=9)
    np.testing.assert_array_equal(hits.ids, expected.ids)
    np.testing.assert_array_equal(hits.scores, expected.scores)


def test_what_is_there_is_kept_and_the_rest_encoded(source, folder):
    before = {file.name: file.stat().st_mtime_ns for file in folder.glob("part-*.npy")}
    (folder / "part-000001.npy").unlink()
    (folder / "manifest.json").unlink()
    (folder / ".part-000001.npy.x.tmp").write_bytes(b"of a killed writer")
    with pytest.raises(ValueError, match=r"not finished: 3 of 4 parts"):
        read_manifest(folder)
    encoder = random_encoder()
    assert encode_shards(encoder, source, folder).kept == 3
    assert encoder.stats.texts == read_manifest(folder).shards[1].texts
    after = {file.name: file.stat().st_mtime_ns for file in folder.glob("part-*.npy")}
    assert {name for name in before if before[name] != after[name]} == {"part-000001.npy"}
    assert not list(folder.glob(".*"))


OUTSIDE = ["../x/y.npy", "..", "/x/y.npy", "a/b.npy", ".y.npy", "y", "", "y.npy/..", "a\\b.npy"]


@pytest.mark.parametrize("name", [*OUTSIDE, "plan.json", "y.npy\n", None, 3])
@pytest.mark.parametrize("manifest", ["plan.json", "manifest.json"])
def test_a_part_has_a_plain_name_in_the_folder(tmp_path, source, folder, manifest, name):
    """A path in a plan would be renamed and written to; one in a manifest, read."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "y.npy").write_text("of somebody else")
    if manifest == "plan.json":
        (folder / "manifest.json").unlink()
    value = json.loads((folder / manifest).read_text())
    value["shards"][1]["file"] = name
    fields = {key: each for key, each in value.items() if key != "check"}
    (folder / manifest).write_text(json.dumps(fields | {"check": sha256_json(fields)}))
    before = tree(tmp_path)
    with pytest.raises(ValueError, match=rf"{manifest}: shards.1.file.*expected"):
        search(np.ones((1, 8)), folder, k=1)
    if manifest == "plan.json":
        with pytest.raises(ValueError, match=r"plan.json: .*part-000000.npy"):
            encode_shards(random_encoder(), source, folder)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("damage", ["missing", "truncated", "longer", "shape", "header"])
def test_a_part_that_is_not_whole_is_refused_by_name_and_made_again(source, folder, damage):
    file = folder / "part-000002.npy"
    good = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "shape":
        np.save(file, np.zeros((2, 8), dtype=np.float32))
    else:
        bad = {"truncated": good[:-1], "longer": good + b"x", "header": b"x" + good[1:]}
        file.write_bytes(bad[damage])
    for read in (read_manifest, damaged_shards, lambda each: search(np.ones((1, 8)), each, k=1)):
        with pytest.raises(ValueError, match=r"part-000002\.npy"):
            read(folder)
    assert encode_shards(random_encoder(), source, folder).kept == 3
    assert file.read_bytes() == good


@pytest.mark.parametrize(
    ("encoder", "line", "options", "message"),
    [
        ({"seed": 1}, b"text 3", {}, "another model: expected random"),
        ({}, b"text 3", {"role": "query"}, "got .*, role query"),
        ({}, b"text 4", {}, r"another input: expected texts\.jsonl"),
        ({}, b"text 3", {"shards": 5}, "planned in 4 parts; got --shards 5"),
    ],
)
def test_another_model_role_input_or_number_of_parts_is_refused(
    tmp_path, source, folder, encoder, line, options, message
):
    other = tmp_path / "other.jsonl"
    other.write_bytes(source.read_bytes().replace(b"text 3", line))
    with pytest.raises(ValueError, match=message):
        encode_shards(random_encoder(**encoder), other, folder, **options)
    assert encode_shards(random_encoder(), source, folder, shards=4).kept == 4


def test_texts_that_change_after_the_plan_are_refused(tmp_path, source, monkeypatch):
    def changed(*arguments, **options):
        cuts = cut_texts(*arguments, **options)
        source.write_bytes(source.read_bytes().replace(b"text 3", b"text 4"))
        return cuts

    monkeypatch.setattr(module, "cut_texts", changed)
    with pytest.raises(ValueError, match=r"the texts of part-000000\.npy are not those"):
        encode_shards(random_encoder(), source, tmp_path / "v", shards=2)
    assert not list((tmp_path / "v").glob("*part*"))


def test_many_writers_make_each_part_once(tmp_path, source):
    """All find no part, encode it under names of their own, and the first to finish stays."""
    start, errors = threading.Barrier(4), []

    def write():
        encoder = random_encoder()
        start.wait()
        try:
            encode_shards(encoder, source, tmp_path / "v", shards=6)
        except ValueError as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    assert damaged_shards(tmp_path / "v") == []
    np.testing.assert_array_equal(vectors_of(tmp_path / "v"), random_encoder().encode(LINES))
    assert len(list((tmp_path / "v").iterdir())) == 6 + 2


def test_a_late_writer_leaves_the_part_that_is_there(folder):
    plan = read_shard_plan(folder)
    before = (folder / "part-000000.npy").stat()
    texts = LINES[: plan.shards[0].texts]
    encode_to_file(random_encoder(seed=5), texts, folder / "part-000000.npy", replace=False)
    after = (folder / "part-000000.npy").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert damaged_shards(folder) == []


def test_a_folder_of_other_things_is_left_alone(tmp_path, source):
    for name, message in (
        ("texts.jsonl", "expected the name of a folder"),
        ("v.npy", "expected the name of a folder"),
        ("no/v", "no such folder to write to"),
        (".", "holds files but no plan"),
    ):
        with pytest.raises(ValueError, match=message):
            encode_shards(random_encoder(), source, tmp_path / name, shards=2)
    with pytest.raises(ValueError, match=r"folder with a manifest\.json"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "fields", [[], {"schema": 2}, {"schema": 1}, {"schema": 1, "source": 3}, {"check": "x"}]
)
def test_a_foreign_manifest_is_refused_by_name(tmp_path, fields):
    signed = {"check": sha256_json(fields), **fields} if isinstance(fields, dict) else fields
    (tmp_path / "manifest.json").write_text(json.dumps(signed))
    with pytest.raises(ValueError, match=r"manifest\.json: "):
        read_manifest(tmp_path)


def test_a_flipped_byte_is_refused_and_encoded_again(source, folder):
    expected, whole = vectors_of(folder), tree(folder)
    refused = 0
    for file, position, bits in flips(folder, count=200):
        with flipped(file, position, bits):
            text = refusal(vectors_of, folder)
            if text is None:
                np.testing.assert_array_equal(vectors_of(folder), expected)
            else:
                assert str(file) in text
                refused += 1
    assert refused > 150
    assert tree(folder) == whole
    for name in ("part-000001.npy", "manifest.json"):
        file = folder / name
        good = file.read_bytes()
        file.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
        if name.endswith(".npy"):
            assert damaged_shards(folder) == [name]
        encode_shards(random_encoder(), source, folder)
        assert file.read_bytes() == good
    (folder / "plan.json").write_bytes((folder / "plan.json").read_bytes().replace(b"8", b"9", 1))
    with pytest.raises(ValueError, match=r"plan\.json: changed since it was written"):
        encode_shards(random_encoder(), source, folder)
