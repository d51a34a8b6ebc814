"""Exact search by blocks, and texts to a file of vectors."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.bench.search import bench_search
from qwen3nb.cli.main import main
from qwen3nb.models.encoders import encode_file as vectors_module
from qwen3nb.models.encoders.encode_file import encode_to_file
from qwen3nb.models.load import load_encoder
from qwen3nb.models.search.exact import BACKENDS, Hits, boosted, search
from qwen3nb.models.search.npy_file import read_blocks
from qwen3nb.models.types import EncoderError


def by_definition(queries, corpus, k):
    scores = (queries.astype(np.float64) @ corpus.astype(np.float64).T).astype(np.float32)
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(scores, ids, axis=1)


def test_by_hand():
    corpus = np.array([[1, 0], [0, 1], [1, 0], [2, 0]], dtype=np.float32)
    hits = search(corpus[:1], corpus, k=3)
    assert hits.ids.tolist() == [[3, 0, 2]]
    assert hits.scores.tolist() == [[2, 1, 1]]
    assert hits.ids.dtype == np.int64


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    seed=st.integers(0, 10**6), documents=st.integers(1, 120), k=st.integers(1, 150),
    block=st.integers(1, 70), grid=st.booleans(),
)  # fmt: skip
@settings(deadline=None, max_examples=30)
def test_every_backend_and_block_size_gives_the_same(backend, seed, documents, k, block, grid):
    dice = np.random.default_rng(seed)
    corpus = dice.standard_normal((documents, 8), dtype=np.float32)
    queries = dice.standard_normal((3, 8), dtype=np.float32)
    if grid:  # many exact ties
        corpus, queries = corpus.round(), queries.round()
    hits = search(queries, corpus, k=k, backend=backend, block=block)
    ids, scores = by_definition(queries, corpus, k)
    np.testing.assert_array_equal(hits.ids, ids)
    np.testing.assert_array_equal(hits.scores, scores)


@pytest.mark.parametrize("backend", BACKENDS)
def test_copies_rank_in_the_order_of_the_corpus(backend):
    one = np.random.default_rng(0).standard_normal((1, 300), dtype=np.float32)
    corpus = np.repeat(one, 500, axis=0)
    hits = search(np.repeat(one, 300, axis=0), corpus, k=7, backend=backend, block=200)
    assert (hits.ids == np.arange(7)).all()


@given(
    seed=st.integers(0, 10**6), documents=st.integers(1, 60), k=st.integers(1, 70),
    block=st.integers(1, 30), grid=st.booleans(), boost=st.booleans(),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_boosted_cosines_with_all_ties_equal_every_score_sorted(
    seed, documents, k, block, grid, boost
):
    dice = np.random.default_rng(seed)
    corpus = dice.standard_normal((documents, 6), dtype=np.float32)
    queries = dice.standard_normal((4, 6), dtype=np.float32)
    if grid:  # many exact ties, no zero vector
        corpus, queries = corpus.round(), queries.round()
        corpus[:, 0] += 9
        queries[:, 5] += 9
    boosts = dice.choice([0.5, 0.8, 1.0, 1.3], documents) if boost else None
    hits = search(
        queries, corpus, k=k, block=block, cosine=True, boosts=boosts, keep_ties=True
    ).run("abcd", range(documents))
    left, right = (each.astype(np.float32).astype(np.float64) for each in (queries, corpus))
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    cosines = (left[:, None] * right).sum(axis=2)
    factors = np.ones(documents) if boosts is None else boosts
    scores = np.where(cosines >= 0, cosines * factors, cosines / factors).astype(np.float32)
    for row, run in zip(scores, hits.values(), strict=True):
        last = np.sort(row)[::-1][min(k, documents) - 1]
        assert run == {i: score for i, score in enumerate(row.tolist()) if score >= last}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("k", [1, 2, 4, 9])
def test_ties_at_the_cut_are_all_kept_on_request(backend, k):
    corpus = np.array([[0.1], [0.5], [0.5], [0.9], [0.5]], dtype=np.float32)
    queries = np.array([[1.0], [-1.0]], dtype=np.float32)
    hits = search(queries, corpus, k=k, backend=backend, block=2, keep_ties=True)
    expected = {1: ([3], [0]), 2: ([3, 1, 2, 4], [0, 1, 2, 4])}.get(
        k, ([3, 1, 2, 4], [0, 1, 2, 4]) if k < 5 else ([3, 1, 2, 4, 0], [0, 1, 2, 4, 3])
    )
    for ids, scores, best in zip(hits.ids, hits.scores, expected, strict=True):
        assert ids[ids >= 0].tolist() == best
        assert np.isneginf(scores[ids < 0]).all()
    assert search(queries, corpus, k=k, backend=backend).ids.shape == (2, min(k, 5))


@given(seed=st.integers(0, 10**6), documents=st.integers(1, 90), k=st.integers(1, 99))
@settings(deadline=None, max_examples=30)
def test_without_rescoring_the_float32_product_ranks(seed, documents, k):
    dice = np.random.default_rng(seed)
    corpus = dice.standard_normal((documents, 8), dtype=np.float32)
    corpus = corpus[dice.integers(0, documents, documents)]  # with copies
    queries = dice.standard_normal((5, 8), dtype=np.float32)
    hits = search(queries, corpus, k=k, rescore=False)
    scores = queries @ corpus.T
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(hits.ids, ids)
    np.testing.assert_array_equal(hits.scores, np.take_along_axis(scores, ids, axis=1))


def test_hits_by_name_skip_the_padding():
    hits = Hits(np.array([[1, 0], [0, -1]]), np.array([[2, 1], [3, -np.inf]], dtype=np.float32))
    assert hits.run(["p", "q"], ["a", "b"]) == {"p": {"b": 2.0, "a": 1.0}, "q": {"a": 3.0}}


def test_a_boost_never_lowers_a_score_whatever_its_sign():
    cosines = np.array([[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0]])
    scores = boosted(cosines, np.array([0.8, 1.1]))
    assert (scores[:2, 1] > scores[:2, 0]).all()
    np.testing.assert_allclose(scores[1], [-0.5 / 0.8, -0.5 / 1.1])
    assert (scores[2] == 0).all()


def test_files_blocks_and_arrays_are_one_corpus(tmp_path):
    corpus = np.random.default_rng(0).standard_normal((50, 8), dtype=np.float32)
    np.save(tmp_path / "c.npy", corpus)
    expected = by_definition(corpus[:4], corpus, 5)[0]
    blocks = (corpus[i : i + 20] for i in range(0, 50, 20))
    for each in (corpus, tmp_path / "c.npy", blocks):
        np.testing.assert_array_equal(search(corpus[:4], each, k=5, block=7).ids, expected)
    assert search(corpus[:4], corpus[:0], k=5).ids.shape == (4, 0)
    assert search(corpus[:0], corpus, k=5).ids.shape == (0, 5)


def test_what_cannot_be_compared_is_refused(tmp_path):
    corpus = np.ones((30, 4), dtype=np.float32)
    broken = corpus.copy()
    broken[17, 2] = np.nan
    with pytest.raises(ValueError, match="the vector of document 17 is not finite"):
        search(corpus, broken, k=2, block=5)
    with pytest.raises(ValueError, match="the vector of query 17 is not finite"):
        search(broken, corpus, k=2)
    with pytest.raises(ValueError, match=r"document vectors of shape \(N, 4\); got \(30, 3\)"):
        search(corpus, corpus[:, :3], k=2)
    with pytest.raises(ValueError, match="expected k of at least 1; got 0"):
        search(corpus, corpus, k=0)
    with pytest.raises(ValueError, match="unknown backend 'fais'"):
        search(corpus, corpus, k=1, backend="fais")
    with pytest.raises(ValueError, match="too long to compare"):
        search(corpus * 1e30, corpus * 1e30, k=1)
    with pytest.raises(ValueError, match="document 3 is zero"):
        search(corpus, corpus * (np.arange(30) != 3)[:, None], k=1, cosine=True)
    empty = search(corpus[:1], corpus[:2] * [[0], [-1]], k=2, cosine=True, zeros=True)
    assert (empty.ids.tolist(), empty.scores.tolist()) == ([[0, 1]], [[0, -1]])
    for boosts in (np.ones(29), np.ones(31)):
        with pytest.raises(ValueError, match="expected a boost per document"):
            search(corpus, corpus, k=1, boosts=boosts)
    with pytest.raises(ValueError, match="expected backend numpy for a search with boosts"):
        search(corpus, corpus, k=1, boosts=np.ones(30), backend="torch")
    file = tmp_path / "c.npy"
    np.save(file, corpus)
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ValueError, match="is truncated: expected 30 rows of 4 float32"):
        search(corpus, file, k=1)
    np.save(file, corpus.astype(np.float64))
    with pytest.raises(ValueError, match=r"expected float32 \(N, D\).*float64"):
        list(read_blocks(file, 8))
    file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a .npy file"):
        list(read_blocks(file, 8))


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))


def test_a_file_of_vectors_is_what_encode_gives(tmp_path, monkeypatch, own_cache):
    monkeypatch.setattr(vectors_module, "AT_ONCE", 3)
    texts = [*TEXTS, "", TEXTS[0], "last"]
    encoder = load_encoder("random:24", show_progress=False)
    done = encode_to_file(encoder, iter(texts), tmp_path / "v.npy", role="query", total=7)
    assert (done.rows, done.dimension, done.misses) == (7, 24, 6)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), encoder.encode(texts))
    assert np.load(tmp_path / "v.npy", mmap_mode="r").dtype == np.float32
    assert encode_to_file(encoder, [], tmp_path / "none.npy").rows == 0
    assert np.load(tmp_path / "none.npy").shape == (0, 24)


def test_an_interrupted_encoding_resumes(tmp_path, monkeypatch, own_cache):
    monkeypatch.setattr(vectors_module, "AT_ONCE", 3)
    file = tmp_path / "v.npy"
    file.write_bytes(b"old")

    def broken():
        yield from ("a", "b", "c", "d")
        yield None

    encoder = load_encoder("random", show_progress=False)
    with pytest.raises(EncoderError, match="from text 3: text 1 is NoneType"):
        encode_to_file(encoder, broken(), file)
    with pytest.raises(EncoderError, match="expected 9 texts; got 4"):
        encode_to_file(encoder, "abcd", file, total=9)
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".v")] == []
    again = load_encoder("random", show_progress=False)
    done = encode_to_file(again, "abcde", file)
    assert (done.hits, done.misses) == (4, 1)


def test_a_disk_that_fills_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "v.npy"
    file.write_bytes(b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        encode_to_file(load_encoder("random", cache=False), ["a"], file)
    assert [path.read_bytes() for path in tmp_path.glob("*v.npy*")] == [b"old"]


@pytest.fixture
def cli():
    return lambda *arguments: CliRunner().invoke(main, [str(each) for each in arguments])


def test_encode_from_the_command_line(cli, tmp_path, own_cache, encoder_folder):
    source, output = tmp_path / "t.jsonl", tmp_path / "v.npy"
    source.write_text("".join(json.dumps({"text": t, "id": 1}) + "\n" for t in TEXTS))
    arguments = ("encode", "--model", encoder_folder, "--input", source, "--output", output)
    done = cli(*arguments, "--pooling", "last", "--role", "query")
    assert done.exit_code == 0, done.output
    assert "4 x 32 float32; 0 distinct texts from the cache, 4 computed" in done.output
    expected = load_encoder(encoder_folder, pooling="last", cache=False).encode(list(TEXTS))
    np.testing.assert_allclose(np.load(output), expected, atol=1e-5)
    again = cli(*arguments, "--pooling", "last").output
    assert "4 distinct texts from the cache, 0 computed" in again
    assert "0 distinct" in cli(*arguments, "--pooling", "last", "--no-cache").output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": 3}', "got text of type int"),
        (b'{"txt": "a"}', "got text of type NoneType"),
        (b'["a"]', "got no object"),
        (b'{"text": "a', "not JSON"),
        (b"", "not JSON"),
        (b'{"text": "\xff"}', "not JSON"),
        (b'{"text": "\\ud800"}', "not valid Unicode"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_an_invalid_line_is_refused_with_its_number(cli, tmp_path, monkeypatch, line, message):
    monkeypatch.setattr("qwen3nb.models.load.load_encoder", lambda *_, **__: 1 / 0)
    source = tmp_path / "t.jsonl"
    source.write_bytes(b'{"text": "fine"}\n' + line + b'\n{"text": "fine"}\n')
    done = cli("encode", "--model", "random", "--input", source, "--output", tmp_path / "v.npy")
    assert done.exit_code == 1
    assert f"t.jsonl:2: {message}" in done.output or (
        "t.jsonl:2: " in done.output and message in done.output
    )
    assert not (tmp_path / "v.npy").exists()


def test_paths_are_checked_before_anything_is_loaded(cli, tmp_path, monkeypatch):
    monkeypatch.setattr("qwen3nb.models.load.load_encoder", lambda *_, **__: 1 / 0)
    source = tmp_path / "t.jsonl"
    source.write_text("")
    for given_source, output, message in (
        (source, tmp_path / "v.npy", "is empty"),
        (tmp_path / "no.jsonl", tmp_path / "v.npy", "no such file"),
        (source, tmp_path / "no" / "v.npy", "no such folder to write to"),
        (source, tmp_path / "v.txt", "expected the name of a .npy file"),
    ):
        done = cli("encode", "--model", "random", "--input", given_source, "--output", output)
        assert done.exit_code == 1
        assert message in done.output


@pytest.mark.integration
def test_the_bench_compares_peaks_and_ids(cli):
    result = bench_search(documents=3000, dimension=32, queries=20, k=5)
    assert {peak.method for peak in result.timings} >= {"naive", "torch", "numpy", "encode_to_file"}
    assert all(
        peak.agreement == 1.0
        for peak in result.timings
        if peak.method not in ("naive", "encode_to_file")
    )
    assert "as the corpus doubles" in result.table()
    for each in result.timings:
        gflop = None if each.method == "encode_to_file" else 2 * 20 * 32 * each.documents / 1e9
        share = gflop and gflop / each.seconds / result.peak_gflops
        assert each.peak_share == (share and pytest.approx(share))
