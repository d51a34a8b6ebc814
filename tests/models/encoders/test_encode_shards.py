"""Vectors in parts: equal to those of one file, resumable, refused by name if not whole."""

import json
import threading

import numpy as np
import pytest
from helpers.fault_injection import tree
from helpers.flips import flipped, flips, refusal

from qwen3nb.models.encoders import encode_file
from qwen3nb.models.encoders import encode_shards as shards_module
from qwen3nb.models.encoders.encode_file import encode_to_file, read_texts
from qwen3nb.models.encoders.encode_shards import cut_texts, encode_shards
from qwen3nb.models.load import load_encoder
from qwen3nb.models.search.exact import search
from qwen3nb.models.search.shards import (
    damaged_shards,
    read_manifest,
    read_shard_plan,
    shard_blocks,
)
from qwen3nb.utils.atomic_files import sha256_json

TEXTS = [f"text {number % 17} of ümlauts{' x' * (number % 5)}" for number in range(23)]


def random_encoder(**options):
    return load_encoder("random:8", cache=False, show_progress=False, **options)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    for module in (encode_file, shards_module):
        monkeypatch.setattr(module, "AT_ONCE", 2)


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "texts.jsonl"
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in TEXTS]
    file.write_text("\n".join(lines), encoding="utf-8")  # no line break at the end
    return file


@pytest.fixture
def folder(tmp_path, source):
    encode_shards(random_encoder(), source, tmp_path / "v", shards=4)
    return tmp_path / "v"


def vectors_of(folder):
    return np.concatenate(list(shard_blocks(folder, 5)))


@pytest.mark.parametrize("shards", [1, 2, 5, 12, 40])
@pytest.mark.parametrize("marks", [4, 1 << 17])
def test_the_parts_are_what_one_file_holds(tmp_path, source, monkeypatch, shards, marks):
    monkeypatch.setattr(shards_module, "_MARKS", marks)
    encode_to_file(random_encoder(), read_texts(source), tmp_path / "v.npy", role="query")
    done = encode_shards(random_encoder(), source, tmp_path / "v", shards=shards, role="query")
    parts = done.vectors.shards
    assert done.kept == 0
    assert len(parts) == min(shards, 3 if marks == 4 else 12)  # few marks: one per 8 texts
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
    monkeypatch.setattr(shards_module, "TEXTS_PER_SHARD", 10)
    assert len(cut_texts(source, tmp_path, shards=None).shards) == 3
    assert len(cut_texts(source, tmp_path, shards=None, at_least=8).shards) == 8


def test_a_search_of_the_folder_is_one_of_the_file(tmp_path, folder):
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


OUTSIDE = ["../x/y.npy", "..", "/x/y.npy", "a/b.npy", ".y.npy", "y", "", "y.npy/..", "a\\b.npy",
           "plan.json", "y.npy\n", None, 3]  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
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
    with pytest.raises(ValueError, match=rf"{manifest}: .*expected"):
        search(vectors_of(folder)[:1], folder, k=1)
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


def test_a_flipped_bit_fails_the_checksum(folder):
    file = folder / "part-000003.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    assert damaged_shards(folder) == ["part-000003.npy"]


def test_another_model_role_input_or_number_of_parts_is_refused(tmp_path, source, folder):
    other = tmp_path / "other.jsonl"
    other.write_bytes(source.read_bytes().replace(b"text 3", b"text 4"))
    for encoder, file, options, message in (
        (random_encoder(seed=1), source, {}, "another model: expected random"),
        (random_encoder(), source, {"role": "query"}, "got .*, role query"),
        (random_encoder(), other, {}, r"another input: expected texts\.jsonl"),
        (random_encoder(), source, {"shards": 5}, "planned in 4 parts; got --shards 5"),
    ):
        with pytest.raises(ValueError, match=message):
            encode_shards(encoder, file, folder, **options)
    assert encode_shards(random_encoder(), source, folder, shards=4).kept == 4


def test_texts_that_change_after_the_plan_are_refused(tmp_path, source, monkeypatch):
    def changed(*arguments, **options):
        cuts = cut_texts(*arguments, **options)
        source.write_bytes(source.read_bytes().replace(b"text 3", b"text 4"))
        return cuts

    monkeypatch.setattr(shards_module, "cut_texts", changed)
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
    np.testing.assert_array_equal(vectors_of(tmp_path / "v"), random_encoder().encode(TEXTS))
    assert len(list((tmp_path / "v").iterdir())) == 6 + 2


def test_a_late_writer_leaves_the_part_that_is_there(folder, source):
    plan = read_shard_plan(folder)
    before = (folder / "part-000000.npy").stat()
    texts = TEXTS[: plan.shards[0].texts]
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
    "text", ["[]", '{"schema": 2}', '{"schema": 1}', '{"schema": 1, "source": 3}']
)
def test_a_foreign_manifest_is_refused_by_name(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match=r"manifest\.json: "):
        read_manifest(tmp_path)


def test_a_flipped_byte_is_refused_and_encoded_again(source, folder):
    expected, whole = vectors_of(folder), tree(folder)
    refused = 0
    for file, position, bits in flips(folder, count=400):
        with flipped(file, position, bits):
            text = refusal(vectors_of, folder)
            if text is None:
                np.testing.assert_array_equal(vectors_of(folder), expected)
            else:
                assert str(file) in text
                refused += 1
    assert refused > 300
    assert tree(folder) == whole
    for name in ("part-000001.npy", "manifest.json"):
        file = folder / name
        good = file.read_bytes()
        file.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
        encode_shards(random_encoder(), source, folder)
        assert file.read_bytes() == good
    (folder / "plan.json").write_bytes((folder / "plan.json").read_bytes().replace(b"8", b"9", 1))
    with pytest.raises(ValueError, match=r"plan\.json: changed since it was written"):
        encode_shards(random_encoder(), source, folder)
