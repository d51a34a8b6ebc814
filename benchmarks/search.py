"""What do search, and encoding to a file, take at N and at 2 N documents?

    python -m benchmarks.search --documents 50000
    python -m benchmarks.search --corpora 50000 200000 400000
    python -m benchmarks.search --passages 450000 --queries 200 --k 1000

Each method runs in a process of its own. The naive method holds the corpus and all scores in
float32 and sorts them completely. Rounding decides its near ties, so ids are compared with those of
float64 scores. The limit is the matrix peak: the product of the queries and a block of documents;
its rate is given for each library that is installed.

With ``--corpora``: what encoding a corpus and searching it takes by its size, with all vectors
held, in blocks that are searched as they are encoded, and with the vectors in a file, as for
several passes; of random vectors with 384 dimensions. Ratios and ids are to the vectors held.

With ``--passages``: BM25 over synthetic passages in an Arrow file, 56 words on average as in MS
MARCO, of a million words by Zipf's law; ours, ours with the index kept, bm25s as its documentation
uses it, that with numba, and rank_bm25 with a tenth of the queries, where these are installed.
Ratios are to bm25s. There are two kinds of queries: short ones, of 6 words by the same law, most of
them rare, so that most documents score 0; and long ones, of 30 of the hundred most frequent words.
With ``--stop-words false``, no word is a stop word, and the most frequent ones stand in nearly all
passages; in technical texts, some stand in half of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.options import command, in_child
from qwen3nb.bench.harness import machine, table, timed
from qwen3nb.utils.atomic_files import read_json, write_json

_DIMENSION = 384  # of the encoded vectors
_BLOCK = 8192  # documents in the product alone, as in a search
_ENCODED = ("held", "blocks", "file")
_VOCABULARY = 1_000_000  # words
_WORDS = {"passage": 56, "query": 6}  # on average
_FREQUENT_WORDS = 100  # of which a long query has some
_LONG_QUERY = 30  # words
_SYLLABLES = [
    a + b for a in "bcdfghjklmnprstvwz" for b in ("a", "e", "i", "o", "an", "er", "ing", "es")
]
_OURS, _KEPT, _PLAIN, _RANK = "qwen3nb", "qwen3nb, kept", "bm25s", "rank_bm25"
_NUMBA = "bm25s, numba"
_NEEDS = {_RANK: "rank_bm25", _NUMBA: "numba"}  # the library of a method that may be missing


@dataclass(frozen=True)
class SearchTiming:
    """One method at one corpus size."""

    method: str
    documents: int  # size of the corpus
    seconds: float  # time of the work itself, without imports; CPU seconds of what is encoded
    megabytes: float  # peak memory above that before the work
    # share of queries whose ids equal those of the exact scores, or of the vectors held; None if
    # there is nothing to compare
    agreement: float | None
    # share of the matrix peak that the method reaches; None where other work is timed with the
    # search
    peak_share: float | None = None


@dataclass(frozen=True)
class WordsTiming:
    """One implementation of BM25."""

    method: str
    queries: str  # their kind, short or long
    index: float  # CPU seconds
    megabytes: float  # peak memory above that before, of indexing and searching
    query: float  # milliseconds per query
    query_cpu: float  # CPU milliseconds per query
    same: float | None  # share of queries with the scores of bm25s, bit by bit; None of other BM25


@dataclass(frozen=True)
class SearchBench:
    """The timings, and the matrix peak in 10⁹ operations per second."""

    title: str
    timings: tuple[SearchTiming, ...]
    peak_gflops: float = 0.0
    products: tuple[tuple[str, float], ...] = ()  # the same per library
    words: tuple[WordsTiming, ...] = ()

    def table(self) -> str:
        """The timings as plain text."""
        if self.words:
            return self._words()
        sizes = [each.documents for each in self.timings]
        small = {each.method: each for each in self.timings if each.documents == min(sizes)}
        held = {each.documents: each for each in self.timings if each.method == "held"}
        rows = []
        for each in self.timings:
            base = held.get(each.documents, small[each.method])
            rows.append(
                {
                    "method": each.method,
                    "documents": f"{each.documents:,}",
                    "s": f"{each.seconds:.2f}",
                    "x s": f"{each.seconds / base.seconds:.2f}",
                    "peak MB": f"{each.megabytes:.0f}",
                    "x peak": f"{each.megabytes / max(1e-3, base.megabytes):.2f}",
                    "same ids": "" if each.agreement is None else f"{each.agreement:.1%}",
                    "of the peak": "" if each.peak_share is None else f"{each.peak_share:.0%}",
                }
            )
        to = "the vectors held" if held else "the smaller corpus"
        rates = ", ".join(f"{name} {rate:.0f}" for name, rate in self.products)
        notes = [f"products in GFLOP/s: {rates}"] if rates else []
        return table(f"{self.title}; ratios to {to}", rows=rows, notes=notes)

    def _words(self) -> str:
        plain = {each.queries: each for each in self.words if each.method == _PLAIN}
        shown = (
            "queries: {queries} | method: {method} | "
            "index CPU s: {index:.1f} | faster: {indexed:.1f}x | "
            "peak MB: {megabytes:.0f} | ms/query: {query:.2f} | faster : {searched:.1f}x | "
            "CPU ms: {query_cpu:.2f} | faster  : {searched_cpu:.1f}x | same scores: {same:.1%}"
        )
        rows = [
            {
                **vars(each),
                "indexed": plain[each.queries].index / each.index,
                "searched": plain[each.queries].query / each.query,
                "searched_cpu": plain[each.queries].query_cpu / each.query_cpu,
            }
            for each in self.words
        ]
        return table(machine(), self.title, rows=rows, shown=shown)


def bench_search(
    *,
    documents: int = 50_000,
    dimension: int = 384,
    queries: int = 500,
    k: int = 100,
    corpora: tuple[int, ...] = (0,),
    passages: int = 0,
    stop_words: bool = True,
) -> SearchBench:
    """Measure NumPy, torch, naive search and encoding to a file; or `_corpora`; or `_passages`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if passages:
            return _passages(folder, passages, queries, k, stop_words=stop_words)
        if any(corpora):
            _write(folder / "queries.npy", queries, _DIMENSION, seed=1)
            return _corpora(folder, corpora, f"{queries} queries, dimension {_DIMENSION}, k {k}", k)
        methods = ["naive", "torch", "numpy", "encode_to_file"]
        timings, peak = [], 0.0
        _write(folder / "queries.npy", queries, dimension, seed=1)
        for size in (documents, 2 * documents):
            _write(folder / "corpus.npy", size, dimension, seed=2)
            in_child(prepare, "exact", name, k, size)
            peak = max(peak, in_child(measure_peak, name, size).output)
            for method in methods:
                done = in_child(prepare, method, name, k, size)
                agreement = None
                if method != "encode_to_file":
                    agreement = _agreement(folder, method, "exact")
                megabytes = done.above / 1e6
                timings.append(SearchTiming(method, size, done.seconds, megabytes, agreement))
        rates = in_child(measure_products, name).output
    timings.sort(key=lambda timing: methods.index(timing.method))
    gflop = 2 * queries * dimension / 1e9  # per document
    timings = [
        replace(each, peak_share=gflop * each.documents / each.seconds / peak)
        if each.agreement is not None
        else each
        for each in timings
    ]
    title = f"{queries} queries, dimension {dimension}, k {k}; matrix peak {peak:.0f} GFLOP/s"
    return SearchBench(title, tuple(timings), peak, tuple(map(tuple, rates)))


def _corpora(folder: Path, corpora: tuple[int, ...], title: str, k: int) -> SearchBench:
    timings = []
    for size in corpora:
        for method in _ENCODED:
            done = in_child(prepare, method, str(folder), k, size)
            same = _agreement(folder, method, "held")
            timings.append(SearchTiming(method, size, done.cpu, done.above / 1e6, same))
    return SearchBench(title, tuple(timings))


def _agreement(folder: Path, method: str, other: str) -> float:
    same = np.load(folder / f"{method}.npy") == np.load(folder / f"{other}.npy")
    return float(same.all(axis=1).mean())


def _write(file: Path, rows: int, dimension: int, *, seed: int) -> None:
    """Random vectors of length 1."""
    values = np.random.default_rng(seed).standard_normal((rows, dimension), dtype=np.float32)
    np.save(file, values / np.linalg.norm(values, axis=1, keepdims=True))


def measure_peak(folder: str, documents: int) -> Callable[[], float]:
    """10⁹ operations per second of the product of queries and a block of documents alone."""
    from qwen3nb.bench.matrix_peak import MatrixPeak

    queries, dimension = np.load(Path(folder) / "queries.npy").shape
    peak = MatrixPeak({(queries, dimension, min(documents, _BLOCK)): 1})

    def measure() -> float:
        for _ in range(3):
            peak.sample()
        return peak.gflops

    return measure


def measure_products(folder: str) -> Callable[[], list[tuple[str, float]]]:
    """10⁹ operations per second of the products of a search, in each library."""
    import torch

    from qwen3nb.models.search.exact import _QUERIES_AT_ONCE

    queries = np.load(Path(folder) / "queries.npy")[:_QUERIES_AT_ONCE]
    corpus = np.load(Path(folder) / "corpus.npy", mmap_mode="r")[:_BLOCK].copy()
    left, right = torch.from_numpy(queries), torch.from_numpy(corpus)
    calls: dict[str, Callable[[], Any]] = {
        "NumPy": lambda: queries @ corpus.T,
        "PyTorch": lambda: left @ right.T,
        "oneDNN": lambda: torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], ""),
    }
    if importlib.util.find_spec("faiss"):
        import faiss

        inner = faiss.METRIC_INNER_PRODUCT
        calls["FAISS"] = lambda: faiss.pairwise_distances(queries, corpus, inner)
    gflop = 2 * len(queries) * corpus.size / 1e9

    def measure() -> list[tuple[str, float]]:
        best = dict.fromkeys(calls, float("inf"))
        with torch.inference_mode():
            for _ in range(10):
                for name, call in calls.items():
                    best[name] = min(best[name], timed(call)[1].seconds)
        return [(name, gflop / seconds) for name, seconds in best.items()]

    return measure


def prepare(method: str, name: str, k: int, size: int) -> Callable[[], None]:
    """Return the work as a function, with all imports done and everything warm."""
    from qwen3nb.models.search.exact import search

    folder = Path(name)
    queries = np.load(folder / "queries.npy")
    search(queries[:2], queries, k=1, device=None if method == "numpy" else "cpu")
    if method in ("naive", "exact"):
        return lambda: _in_full(folder, k, method)
    if method == "encode_to_file" or method in _ENCODED:
        from qwen3nb.models.load import load_encoder

        encoder = load_encoder(f"random:{_DIMENSION}", cache=False, show_progress=False)
        encoder.encode(["warm"])
        return lambda: encode_and_search(method, folder, k, size, encoder)

    def run() -> None:
        device = "cpu" if method == "torch" else None
        hits = search(queries, folder / "corpus.npy", k=k, device=device)
        np.save(folder / f"{method}.npy", hits.ids)

    return run


def _in_full(folder: Path, k: int, method: str) -> None:
    """Sort all scores; for ``exact``, float64 scores, rounded, query by query."""
    queries, corpus = np.load(folder / "queries.npy"), np.load(folder / "corpus.npy")
    if method == "naive":
        best = np.argsort(-(queries @ corpus.T), axis=1, kind="stable")[:, :k]
    else:
        scores = (corpus.astype(np.float64) @ queries.astype(np.float64).T).astype(np.float32)
        best = np.stack([np.argsort(-each, kind="stable")[:k] for each in scores.T])
    np.save(folder / f"{method}.npy", best)


def encode_and_search(method: str, folder: Path, k: int, size: int, encoder: Any) -> None:
    """Encode ``size`` texts by random vectors, which cost little, and search them."""
    from qwen3nb.models.search.exact import search
    from qwen3nb.vectors.encode_file import encode_blocks, encode_to_file
    from qwen3nb.vectors.vector_store import stored_vectors

    if method == "encode_to_file":
        encode_to_file(encoder, _texts(size), folder / "encoded.npy", total=size)
        return
    queries = np.load(folder / "queries.npy")
    if method == "held":
        hits = search(queries, encoder.encode(list(_texts(size))), k=k)
    elif method == "blocks":
        hits = search(queries, encode_blocks(encoder, _texts(size)), k=k)
    else:
        with stored_vectors(encoder, _texts(size), total=size, limit=0) as vectors:
            hits = search(queries, vectors.blocks(), k=k)
    np.save(folder / f"{method}.npy", hits.ids)


def _texts(size: int) -> Iterator[str]:
    return (f"document {index} {'word ' * (index % 50)}" for index in range(size))


def _passages(
    folder: Path, passages: int, queries: int, k: int, *, stop_words: bool
) -> SearchBench:
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    rows = {"count": passages, "words": _WORDS["passage"], "seed": 0, "stop_words": stop_words}
    corpus = Dataset.from_generator(synthetic_rows, gen_kwargs=rows, cache_dir=str(folder / "hf"))
    corpus.save_to_disk(folder / "passages")
    short = synthetic_rows(queries, _WORDS["query"], 1, stop_words=stop_words)
    long = frequent_rows(queries, 2, stop_words=stop_words)
    write_json(folder / "queries.json", {"short": list(short), "long": list(long)})
    methods = [_OURS, _KEPT, _PLAIN]
    methods += [method for method, name in _NEEDS.items() if importlib.util.find_spec(name)]
    done = {method: in_child(prepare_words, method, str(folder), k) for method in methods}
    timings = []
    for kind in ("short", "long"):
        expected = np.load(folder / f"{_PLAIN} {kind}.npy")
        for method, child in done.items():
            indexed, searched_by_kind, count = child.output
            searched = searched_by_kind[kind]
            found = np.load(folder / f"{method} {kind}.npy")
            same = (found == expected[:count]).all(axis=1).mean()
            timings.append(
                WordsTiming(
                    method,
                    kind,
                    indexed["cpu"],
                    child.above / 1e6,
                    1000 * searched["seconds"] / count,
                    1000 * searched["cpu"] / count,
                    None if method == _RANK else float(same),
                )
            )
    title = f"{passages:,} passages, {queries} queries of each kind, k {k}; ratios to bm25s"
    return SearchBench(title, (), words=tuple(timings))


def synthetic_rows(
    count: int, words: int, seed: int, *, stop_words: bool = True
) -> Iterator[dict[str, str]]:
    """Random texts; a word's frequency is inverse to its rank, and the first are stop words."""
    vocabulary = _vocabulary(_VOCABULARY, stop_words=stop_words)
    draw = np.random.default_rng(seed)
    for row in range(count):
        length = max(1, int(draw.gamma(6, words / 6)))
        ranks = (_VOCABULARY ** draw.random(length)).astype(int) - 1
        yield {"id": str(row), "text": " ".join([vocabulary[rank] for rank in ranks])}


def frequent_rows(count: int, seed: int, *, stop_words: bool = True) -> Iterator[dict[str, str]]:
    """Random texts of the most frequent words that are no stop words."""
    number_of_stop_words = _number_of_stop_words(stop_words=stop_words)
    vocabulary = _vocabulary(number_of_stop_words + _FREQUENT_WORDS, stop_words=stop_words)
    frequent_words = vocabulary[number_of_stop_words:]
    draw = np.random.default_rng(seed)
    for row in range(count):
        words = draw.choice(frequent_words, _LONG_QUERY, replace=False)
        yield {"id": str(row), "text": " ".join(words)}


def _vocabulary(size: int, *, stop_words: bool) -> list[str]:
    """Words by rank: the stop words, if there are any, and then others."""
    from bm25s.stopwords import STOPWORDS_EN

    words = STOPWORDS_EN[: _number_of_stop_words(stop_words=stop_words)]
    number = len(STOPWORDS_EN)  # of the first word that is none
    return [*words, *map(_word, range(number, number + size - len(words)))]


def _number_of_stop_words(*, stop_words: bool) -> int:
    from bm25s.stopwords import STOPWORDS_EN

    return len(STOPWORDS_EN) if stop_words else 0


def _word(number: int) -> str:
    rest, last = divmod(number, len(_SYLLABLES))
    return (_word(rest) if rest else "") + _SYLLABLES[last]


def prepare_words(method: str, name: str, k: int) -> Callable[[], Any]:
    """Return the work of one implementation: index, search, and keep the scores."""
    from datasets import load_from_disk

    folder = Path(name)
    os.environ["QWEN3NB_CACHE"] = str(folder / "cache")
    corpus, queries_by_kind = (
        load_from_disk(folder / "passages"),
        read_json(folder / "queries.json"),
    )
    start = {_OURS: _ours, _KEPT: _ours, _PLAIN: _plain, _NUMBA: _numba, _RANK: _rank_bm25}[method]
    if method == _RANK:
        queries_by_kind = {
            kind: queries[: max(1, len(queries) // 10)] for kind, queries in queries_by_kind.items()
        }

    def run() -> tuple[dict[str, float], dict[str, dict[str, float]], int]:
        search, indexed = timed(partial(start, corpus))
        searched_by_kind = {}
        for kind, queries in queries_by_kind.items():
            search(queries[:1], k)  # warms up
            found, searched = timed(partial(search, queries, k))
            searched_by_kind[kind] = vars(searched)
            scores = np.zeros((len(queries), k), dtype=np.float32)
            for row, values in zip(scores, found, strict=True):
                row[: len(values)] = -np.sort(-np.asarray(values, dtype=np.float32))
            np.save(folder / f"{method} {kind}.npy", scores)
        return vars(indexed), searched_by_kind, len(scores)

    return run


def _ours(corpus: Any) -> Callable[..., Any]:
    from qwen3nb.models.kinds.resolve import find_source
    from qwen3nb.models.search.bm25 import BM25

    model = BM25(find_source("bm25"))
    model.index(corpus)

    def search(queries: list[dict[str, str]], k: int) -> list[list[float]]:
        return [list(hits.values()) for hits in model.search(queries, top_k=k).values()]

    return search


def _tokens(texts: list[str]) -> list[list[str]]:
    import bm25s
    import Stemmer

    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    return bm25s.tokenize(texts, return_ids=False, **options)


def _numba(corpus: Any) -> Callable[..., Any]:
    return _plain(corpus, backend="numba")


def _plain(corpus: Any, backend: str = "numpy") -> Callable[..., Any]:
    import bm25s

    model = bm25s.BM25(method="lucene", k1=1.5, b=0.75, backend=backend)
    model.index(_tokens(list(corpus["text"])), show_progress=False)

    def search(queries: list[dict[str, str]], k: int) -> Any:
        tokens = _tokens([row["text"] for row in queries])
        return model.retrieve(tokens, k=k, show_progress=False).scores

    return search


def _rank_bm25(corpus: Any) -> Callable[..., Any]:
    model = importlib.import_module(_RANK).BM25Okapi(_tokens(list(corpus["text"])), k1=1.5, b=0.75)

    def search(queries: list[dict[str, str]], k: int) -> list[Any]:
        scores = map(model.get_scores, _tokens([row["text"] for row in queries]))
        return [-np.partition(-each, k)[:k] for each in scores]

    return search


if __name__ == "__main__":
    command(bench_search, SearchBench.table)
