"""Texts to vectors on disk: one file, or parts that are equal to it; resumed, refused by name."""

import gzip
import io
import json
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from helpers import TEXTS
from helpers.fault_injection import tree
from helpers.tolerances import assert_close

from qwen3nb.models.load import load_encoder
from qwen3nb.models.search.exact import search
from qwen3nb.models.types import EncoderError
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.vectors import encode_file as module
from qwen3nb.vectors import encode_shards as encode_shards_module
from qwen3nb.vectors.block_file import damaged_shards, read_manifest, shard_blocks
from qwen3nb.vectors.encode_file import encode_to_file
from qwen3nb.vectors.encode_shards import cut_texts, encode_shards
from qwen3nb.vectors.text_files import check_texts, read_texts

LINES = [f"text {number % 17} of ümlauts{' x' * (number % 5)}" for number in range(23)]


def random_encoder(**options):
    return load_encoder("random:8", cache=False, show_progress=False, **options)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", 2)


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


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))


def test_a_file_of_vectors_is_what_encode_gives(tmp_path, own_cache):
    texts = [*TEXTS, "", TEXTS[0], "last"]
    encoder = load_encoder("random:24", show_progress=False)
    rows = encode_to_file(encoder, iter(texts), tmp_path / "v.npy", role="query", total=7)
    assert (rows, encoder.stats.encoded) == (7, 6)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), encoder.encode(texts))
    assert np.load(tmp_path / "v.npy", mmap_mode="r").dtype == np.float32
    assert encode_to_file(encoder, [], tmp_path / "none.npy") == 0
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
    encode_to_file(again, "abcde", file)
    assert (again.stats.cached, again.stats.encoded) == (4, 1)


@pytest.fixture
def encode(cli, tmp_path):
    """Encode ``t.jsonl`` to ``v.npy``."""
    return lambda *options, model="random", source="t.jsonl", output="v.npy": cli(
        *("encode", "--model", model, "--input", tmp_path / source),
        *("--out", tmp_path / output, *options),
    )


def test_encode_from_the_command_line(tmp_path, own_cache, encoder_folder, encode):
    output = tmp_path / "v.npy"
    lines = "".join(json.dumps({"text": text, "id": 1}) + "\n" for text in TEXTS)
    (tmp_path / "t.jsonl").write_text(lines)
    last = ("--pooling", "last")
    done = encode(*last, "--role", "query", model=encoder_folder).output
    assert "4 x 32 float32; 0 distinct texts from the cache, 4 computed" in done
    expected = load_encoder(encoder_folder, pooling="last", cache=False).encode(list(TEXTS))
    assert_close(np.load(output), expected)
    again = encode(*last, model=encoder_folder).output
    assert "4 distinct texts from the cache, 0 computed" in again
    assert "0 distinct" in encode(*last, "--no-cache", model=encoder_folder).output


def test_documents_are_encoded_from_the_formats_of_own_data(tmp_path, own_cache, encode):
    texts = ["sort; a list", "two\nlines"]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    (tmp_path / "t.csv").write_text('id;text\n1;"sort; a list"\n2;"two\nlines"\n')
    (tmp_path / "notes").mkdir()
    for name, text in zip(("a.txt", "b.md"), texts, strict=True):
        (tmp_path / "notes" / name).write_text(text)
    assert encode().exit_code == 0
    expected = np.load(tmp_path / "v.npy")
    for source in ("t.csv", "notes"):
        assert encode(source=source, output="w.npy").exit_code == 0
        assert np.array_equal(np.load(tmp_path / "w.npy"), expected)
    assert "--shards reads JSON lines" in encode("--shards", "2", source="t.csv").output


REFUSED = [
    *(
        (b'{"text": "fine"}\n' + line + b'\n{"text": "fine"}\n', {}, f"t.jsonl:2: .*{message}")
        for line, message in (
            (b'{"text": 3}', "valid string"),
            (b'{"txt": "a"}', "Field required"),
            (b'{"text": "\xff"}', "Invalid JSON"),
            (b'{"text": "\\ud800"}', "hex escape"),
            (b"[" * 100_000, "Invalid JSON"),
        )
    ),
    (b"", {}, "is empty"),
    (b"", {"source": "no.jsonl"}, "no such file"),
    (b"", {"output": "no/v.npy"}, "no such folder to write to"),
    (b"", {"output": "v.txt"}, "expected the name of a .npy file"),
]


@pytest.mark.parametrize(("content", "files", "message"), REFUSED)
def test_input_and_output_are_checked_before_a_model_is_loaded(
    tmp_path, monkeypatch, encode, content, files, message
):
    monkeypatch.setattr("qwen3nb.models.load.load_encoder", lambda *_, **__: 1 / 0)
    (tmp_path / "t.jsonl").write_bytes(content)
    done = encode(**files)
    assert done.exit_code == 1
    assert re.search(message, done.output)
    assert not (tmp_path / "v.npy").exists()


@pytest.mark.parametrize("shards", [1, 2, 5, 12, 40])
def test_the_parts_are_what_one_file_holds(tmp_path, source, shards, request):
    """Of Qwen3, too, whose last bits depend on a text's neighbours."""
    encoder = random_encoder()
    if shards == 5:
        folder = request.getfixturevalue("encoder_folder")
        encoder = load_encoder(folder, cache=False, show_progress=False)
    encode_to_file(encoder, read_texts(source), tmp_path / "v.npy", role="query")
    done = encode_shards(encoder, source, tmp_path / "v", shards=shards, role="query")
    parts = done.vectors.shards
    assert done.kept == 0
    assert len(parts) == min(shards, 12)
    assert all(part.first % 2 == 0 for part in parts)
    assert [part.first for part in parts[1:]] == np.cumsum([p.texts for p in parts[:-1]]).tolist()
    np.testing.assert_array_equal(vectors_of(done.folder), np.load(tmp_path / "v.npy"))
    assert damaged_shards(done.folder) == []
    assert not list(done.folder.glob(".*"))


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


@pytest.mark.parametrize("name", ["../x/y.npy", "/x/y.npy", "a/b.npy", ".y.npy", "y.npy\n", None])
@pytest.mark.parametrize("manifest", ["plan.json", "manifest.json"])
def test_a_part_has_a_plain_name_in_the_folder(tmp_path, source, folder, manifest, name):
    """A path in a plan would be renamed and written to; one in a manifest, read."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "y.npy").write_text("of somebody else")
    if manifest == "plan.json":
        (folder / "manifest.json").unlink()
    fields = json.loads((folder / manifest).read_text())
    del fields["check"]
    fields["shards"][1]["file"] = name
    (folder / manifest).write_text(json.dumps({**fields, "check": sha256_json(fields)}))
    before = tree(tmp_path)
    with pytest.raises(ValueError, match=rf"{manifest}: shards\[1\].file: .*; got "):
        search(np.ones((1, 8)), folder, k=1)
    if manifest == "plan.json":
        with pytest.raises(ValueError, match=r"plan.json: shards\[1\].file: .*; got "):
            encode_shards(random_encoder(), source, folder)
    assert tree(tmp_path) == before


def saved(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "damage",
    [
        lambda good: good[:-1],
        lambda good: saved(np.zeros((2, 8), dtype=np.float32)),
        lambda good: good[:-9] + bytes([good[-9] ^ 1]) + good[-8:],
        None,
    ],
    ids=["truncated", "shape", "flipped", "missing"],
)
def test_a_part_that_is_not_whole_is_refused_by_name_and_made_again(source, folder, damage):
    file = folder / "part-000002.npy"
    good = file.read_bytes()
    file.write_bytes(damage(good)) if damage else file.unlink()
    with pytest.raises(ValueError, match=r"part-000002\.npy"):
        search(np.ones((1, 8)), folder, k=1)
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


def test_a_changed_plan_is_refused(source, folder):
    plan = folder / "plan.json"
    plan.write_bytes(plan.read_bytes().replace(b"8", b"9", 1))
    with pytest.raises(ValueError, match=r"plan\.json: changed since it was written"):
        encode_shards(random_encoder(), source, folder)


def test_texts_that_change_after_the_plan_are_refused(tmp_path, source, monkeypatch):
    def changed(*arguments, **options):
        cuts = cut_texts(*arguments, **options)
        source.write_bytes(source.read_bytes().replace(b"text 3", b"text 4"))
        return cuts

    monkeypatch.setattr(encode_shards_module, "cut_texts", changed)
    with pytest.raises(ValueError, match=r"the texts of part-000000\.npy are not those"):
        encode_shards(random_encoder(), source, tmp_path / "v", shards=2)
    assert not list((tmp_path / "v").glob("*part*"))


@pytest.mark.parametrize("has_locks", [True, False])
def test_many_writers_make_each_part_once(tmp_path, source, has_locks, monkeypatch):
    """Each claims its parts. Without locks, the first to finish a part stays."""
    if not has_locks:
        monkeypatch.setattr(encode_shards_module, "claim", lambda *_, **__: nullcontext(True))
    start = threading.Barrier(4)

    def write(_):
        encoder = random_encoder()
        start.wait()
        encode_shards(encoder, source, tmp_path / "v", shards=6)
        return encoder.stats.texts

    with ThreadPoolExecutor(4) as pool:
        texts_of_writers = list(pool.map(write, range(4)))
    if has_locks:
        assert sum(texts_of_writers) == len(LINES)
    assert damaged_shards(tmp_path / "v") == []
    np.testing.assert_array_equal(vectors_of(tmp_path / "v"), random_encoder().encode(LINES))
    assert len(list((tmp_path / "v").iterdir())) == 6 + 2


WRITE = """
import sys, time
from pathlib import Path
from qwen3nb.models.load import load_encoder
from qwen3nb.vectors import encode_file, encode_shards

encode_file.AT_ONCE = 2
encoder = load_encoder("random:8", cache=False, show_progress=False)
encode = encoder.encode

def slowly(texts, **options):
    print(len(texts), flush=True)
    time.sleep(60 if sys.argv[3] == "hang" else 0.02)
    return encode(texts, **options)

encoder.encode = slowly
encode_shards.encode_shards(encoder, Path(sys.argv[1]), Path(sys.argv[2]), shards=6)
"""


@pytest.mark.integration
def test_processes_share_the_parts_and_one_that_is_killed_is_replaced(tmp_path, source):
    """As the tasks of a job array: one of four hangs in a part, and is killed."""
    folder = tmp_path / "v"

    def start(how):
        command = [sys.executable, "-c", WRITE, str(source), str(folder), how]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    hanging = start("hang")
    assert hanging.stdout.readline()  # it has a part
    writers = [start("write") for _ in range(3)]
    while len(list(folder.glob("part-*.npy"))) < 5:
        time.sleep(0.05)
    assert [writer.poll() for writer in writers] == [None] * 3  # they wait for the last part
    hanging.kill()
    hanging.communicate()
    texts_of_writers = []
    for writer in writers:
        output, _ = writer.communicate(timeout=240)
        assert writer.returncode == 0
        texts_of_writers.append(sum(map(int, output.split())))
    assert sum(texts_of_writers) == len(LINES)  # none twice
    assert damaged_shards(folder) == []
    np.testing.assert_array_equal(vectors_of(folder), random_encoder().encode(LINES))
    assert len(list(folder.iterdir())) == 6 + 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("texts.jsonl", "expected the name of a folder"),
        ("v.npy", "expected the name of a folder"),
        ("no/v", "no such folder to write to"),
        (".", "holds files but no plan"),
    ],
)
def test_a_folder_of_other_things_is_left_alone(tmp_path, source, name, message):
    with pytest.raises(ValueError, match=message):
        encode_shards(random_encoder(), source, tmp_path / name, shards=2)
    with pytest.raises(ValueError, match=r"folder with a manifest\.json"):
        read_manifest(tmp_path)


def test_marks_blank_lines_and_compression_change_no_vector(tmp_path):
    encoder = random_encoder()
    texts = ["sort a list", "join two strings", "a third"]
    lines = [json.dumps({"text": text}).encode() for text in texts]
    plain = b"\n".join(lines) + b"\n"
    odd = b"\xef\xbb\xbf" + lines[0] + b"\r\n\n  \n" + lines[1] + b"\n" + lines[2] + b"\n\n"
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(plain)
    forms = {
        "bom.jsonl": odd,
        "a.jsonl.gz": gzip.compress(odd),
        "a.jsonl.zst": sink.getvalue().to_pybytes(),
    }
    right = encoder.encode(texts)
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        assert check_texts(tmp_path / name) == 3
        encode_to_file(encoder, read_texts(tmp_path / name), tmp_path / "v.npy")
        np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), right)
    encode_shards(encoder, tmp_path / "bom.jsonl", tmp_path / "parts")
    again = encode_shards(encoder, tmp_path / "bom.jsonl", tmp_path / "parts")
    assert again.kept == 1
    np.testing.assert_array_equal(np.load(tmp_path / "parts/part-000000.npy"), right)
    with pytest.raises(ValueError, match="unpack it for --shards"):
        encode_shards(encoder, tmp_path / "a.jsonl.gz", tmp_path / "other")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(plain)[:-9])
    with pytest.raises(ValueError, match=r"cut.jsonl.gz: cannot be unpacked"):
        check_texts(tmp_path / "cut.jsonl.gz")
