"""BM25, the baseline without training, as an MTEB search model.

It runs on bm25s with the settings of MTEB's own baseline for English (``mteb/baseline-bm25s``):
English stop words, the Snowball stemmer, k1 1.5, b 0.75, Lucene's variant. Texts in other
languages and scripts are read as `qwen3nb.models.search.words` says. Settings and words are
recorded with every score, because BM25 implementations differ more from each other than many
models do.

bm25s holds all words of a corpus as Python integers. Here, each block of texts becomes a sparse
matrix of counts, so that memory is that of the index and the vocabulary; its scores are the same
bit by bit. Indexes of large corpora are kept on disk and mapped into memory:

    <cache>/bm25/<key>/    the files of bm25s, and their SHA-256 in manifest.json

The key is a digest of the texts in order, the parameters, the words and the versions of the
libraries, so that all runs and all tasks on a corpus share an index, and no other.
"""

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, load_npz, save_npz

from qwen3nb import paths
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.search import mteb_rows
from qwen3nb.models.search.searcher import Searcher, text_blocks
from qwen3nb.models.search.words import (
    ENGLISH_WORDS,
    STEMMER,
    Words,
    words_of_languages,
    words_of_texts,
)
from qwen3nb.models.types import Stats
from qwen3nb.utils import atomic_files
from qwen3nb.utils.hardware import cores

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
_BLOCK = 1 << 16  # texts whose words are counted at once, and wait in a temporary file
RECIPE = {
    "method": "lucene",
    "k1": 1.5,
    "b": 0.75,
    "stop_words": "en",
    "stemmer": STEMMER,
    "other_languages": "no stop words, no stemmer",
}
_INDEX_MEMORY = 1.5e8  # bytes of an index, whatever the size of the corpus
_MEMORY_PER_CHARACTER = 1.5  # of which the index that is kept has 1
LARGE = 20_000  # documents from which an index is kept; that of fewer takes a second


class BM25(Searcher):
    """BM25 over a corpus, for retrieval and reranking tasks only.

    A document that shares no word with the query is not retrieved: its score would be 0, and
    its rank would depend on its id alone. ``words`` says how the indexed corpus was read.
    """

    matched_share = 0.5  # about half of the candidates share a word with the query
    seconds_per_pair = 3e-9
    seconds_per_candidates = 6e-5

    def __init__(self, source: Source, *, cache: bool = True) -> None:
        self.label = source.label
        self.source = source
        self.settings: dict[str, Any] = {"model": {"kind": "bm25"}, **RECIPE}
        self.settings["bm25s"] = bm25s.__version__
        self.settings["PyStemmer"] = Stemmer.version()
        self.stats = Stats()
        self._documents: list[str] = []
        self.words = ENGLISH_WORDS
        self._cache = cache  # whether indexes of large corpora are kept
        self._index = bm25s.BM25()
        self._letters: bm25s.BM25 | None = None  # index of words of one letter, made when needed
        self._texts: Callable[[], Iterable[str]] = tuple  # of the corpus

    def __repr__(self) -> str:
        return (
            f"<BM25: {RECIPE['method']}, k1 {RECIPE['k1']}, b {RECIPE['b']}, "
            f"{RECIPE['stemmer']} stemmer>"
        )

    def index(
        self,
        corpus: Any,
        *,
        task_metadata: Any = None,
        hf_subset: str = "",
        words: Words | None = None,
        **_: Any,
    ) -> None:
        """Index MTEB's corpus: rows with ``id``, ``text`` and optionally ``title``.

        Args:
            corpus: the rows.
            task_metadata: MTEB's description of the task, which knows its languages.
            hf_subset: the subset of a task with several languages.
            words: how texts are read, without a task; by default by the script of the corpus.

        Raises:
            ValueError: no document has a word.
        """
        started = time.perf_counter()
        texts = partial(mteb_rows.joined_documents, corpus)
        if task_metadata is not None:
            self.words = words_of_languages(mteb_rows.task_languages(task_metadata, hf_subset))
        else:
            self.words = words or words_of_texts([], texts())
        self._documents = mteb_rows.document_ids(corpus, range(len(corpus)))
        self._texts, self._letters = texts, None
        self.__dict__.pop("_positions", None)  # of an earlier corpus
        try:
            self._index = self._indexed(self.words)
        except ValueError:
            if not self.words.every_script:
                raise
            self.words = self.words.of_letters  # of documents such as "C" and "R"
            self._index = self._indexed(self.words)
        self._count(len(self._documents), started)

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Any = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Score the ``top_k`` best documents per query, or those in ``top_ranked``."""
        started = time.perf_counter()
        names = [str(row["id"]) for row in queries]
        texts = [mteb_rows.joined_query(row) for row in queries]
        words = self.words.split(texts)
        self._index_letters(texts, words)
        run: dict[str, dict[str, float]] = {}
        if top_ranked is None:
            with ThreadPoolExecutor(cores()) as threads:
                rankings = threads.map(partial(self._best, k=top_k), texts, words)
                run = dict(zip(names, rankings, strict=True))
        else:
            for name, text, query_words in zip(names, texts, words, strict=True):
                scores = self._scores(text, query_words)
                run[name] = self._matches(scores, top_ranked.get(name, ()))
        self._count(len(run), started)
        return run

    def _matches(self, scores: Floats, candidates: Sequence[str]) -> dict[str, float]:
        """Return the scores of those candidates that share a word with the query."""
        matches = {}
        for document in candidates:
            position = self._positions.get(document)
            if position is not None and scores[position] > 0:
                matches[document] = float(scores[position])
        return matches

    def score(self, query: str, documents: Sequence[str]) -> list[float]:
        """Return the scores of indexed ``documents`` for one query; 0 without a shared word."""
        started = time.perf_counter()
        words = self.words.split([query])
        self._index_letters([query], words)
        scores = self._scores(query, words[0])
        self._count(1, started)
        return [float(scores[self._positions[name]]) for name in documents]

    def first_stage(self) -> tuple[str, dict[str, Any]]:
        """Return its name and recipe as the first stage of a reranker."""
        return "bm25", {"kind": "bm25", "recipe": self.settings}

    def index_texts(self, texts: Sequence[str]) -> None:
        """Index texts as English, to time it."""
        build_index(texts, words=ENGLISH_WORDS, settings=self.settings)

    def index_memory(self, characters: int) -> int:
        """Return the bytes of memory for an index of texts with so many characters."""
        return int(_INDEX_MEMORY + _MEMORY_PER_CHARACTER * characters)

    def index_disk(self, documents: int, characters: int) -> int:
        """Return the bytes of disk for an index; that of a small corpus is not kept."""
        return characters if documents >= LARGE else 0

    def _best(self, text: str, words: Sequence[str], *, k: int) -> dict[str, float]:
        """Return the scores of the ``k`` best documents for a query and its words.

        Of documents that tie with the k-th, the first in the corpus. In a small one, those that
        bm25s returns, as in all earlier records: NumPy's choice, which depends on the processor,
        and takes a hundred times as long as the rest where most documents score 0.
        """
        scores = self._scores(text, words)
        rows = np.flatnonzero(scores > 0)
        if len(rows) > k:
            rows = _best_rows(scores, rows, k)
        names = [self._documents[row] for row in rows.tolist()]
        return dict(zip(names, scores[rows].tolist(), strict=True))

    def _scores(self, text: str, words: Sequence[str]) -> Floats:
        """Return the score of every document (N,) for a query and its words."""
        index = self._index
        if self._letters is not None and _are_letters(words):
            index = self._letters
            words = self.words.of_letters.split([text])[0]
        indexed_words = [word for word in words if word in index.vocab_dict]
        if not indexed_words:
            return np.zeros(len(self._documents), dtype=np.float32)
        scores: Floats = index.get_scores(indexed_words)
        return scores

    def _indexed(self, words: Words) -> bm25s.BM25:
        """Return the index of the corpus, from the cache if the corpus is large."""
        if self._cache and len(self._documents) >= LARGE:
            return kept_index(self._texts, words=words, settings=self.settings)
        return build_index(self._texts(), words=words, settings=self.settings)

    def _index_letters(self, texts: Sequence[str], words: Sequence[Sequence[str]]) -> None:
        """Index words of one letter if a query has no others, and its words are not English."""
        if self._letters is not None or self.words.letters or not self.words.every_script:
            return
        wordless = []
        for text, text_words in zip(texts, words, strict=True):
            if _are_letters(text_words):
                wordless.append(text)
        if any(self.words.of_letters.split(wordless)):
            self._letters = self._indexed(self.words.of_letters)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self._documents)}

    def _count(self, texts: int, started: float) -> None:
        self.stats.texts += texts
        self.stats.encoded += texts
        self.stats.seconds += time.perf_counter() - started


def _are_letters(words: Sequence[str]) -> bool:
    """Return whether no word has two letters, as of a query such as T恤."""
    return all(len(word) == 1 for word in words)


def _best_rows(scores: Floats, rows: Rows, k: int) -> Rows:
    """Return ``k`` of the ``rows`` with a score above 0; see `BM25._best` on ties."""
    found = scores[rows]
    least = np.partition(found, len(found) - k)[len(found) - k]
    above = rows[found > least]
    tied = rows[found == least]
    if len(above) + len(tied) > k and len(scores) < LARGE:
        chosen: Rows = np.argpartition(scores, -k)[-k:]
        return chosen
    return np.concatenate([above, tied[: k - len(above)]])


def kept_index(
    texts: Callable[[], Iterable[str]], *, words: Words, settings: Mapping[str, Any]
) -> bm25s.BM25:
    """Return the index of texts from the cache; made if it is not there, or damaged.

    Args:
        texts: returns the texts from the first; called once more if there is no index yet.
        words: how texts become words.
        settings: what the index depends on besides; with ``method``, ``k1`` and ``b``.

    Raises:
        ValueError: no text has a word.
    """
    recipe = dict(settings)
    if words == ENGLISH_WORDS:
        recipe["english"] = True
    else:
        recipe.update(asdict(words))
        recipe["words"] = words.name
    digest = hashlib.sha256(atomic_files.canonical(recipe))
    for text in texts():
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    folder = paths.cache() / "bm25" / digest.hexdigest()[:32]
    with atomic_files.exclusive_lock(folder, purpose="indexes"):
        stored_index = _opened(folder)
        if stored_index is not None:
            return stored_index
        index = build_index(texts(), words=words, settings=settings)
        try:
            with atomic_files.new_folder(folder) as work:
                index.save(work, show_progress=False)
                digests = {file.name: atomic_files.sha256_file(file) for file in work.iterdir()}
                atomic_files.write_json(work / MANIFEST, digests)
        except OSError as error:
            log.warning("the index of BM25 is not kept: %s", atomic_files.explained(error))
        return _opened(folder) or index


def kept_indexes() -> list[tuple[Path, int, int]]:
    """Return folder, number of documents and bytes of each kept index."""
    indexes = []
    for file in sorted(paths.cache().glob("bm25/*/params.index.json")):
        documents = int(atomic_files.read_json(file)["num_docs"])
        size = sum(part.stat().st_size for part in file.parent.iterdir())
        indexes.append((file.parent, documents, size))
    return indexes


def _opened(folder: Path) -> bm25s.BM25 | None:
    """Return the index in ``folder``, mapped; None without one, or if it is damaged."""
    if not folder.is_dir():
        return None
    with suppress(OSError, ValueError, AttributeError):
        digests = atomic_files.read_json(folder / MANIFEST).items()
        if all(atomic_files.sha256_file(folder / name) == digest for name, digest in digests):
            return bm25s.BM25.load(folder, mmap=True)
    log.warning("%s: this index of BM25 is damaged; it is made again", folder)
    return None


def build_index(texts: Iterable[str], *, words: Words, settings: Mapping[str, Any]) -> bm25s.BM25:
    """Return the index of texts in memory; see `kept_index`."""
    vocabulary = _Vocabulary(words)
    index = bm25s.BM25(method=settings["method"], k1=settings["k1"], b=settings["b"])
    with TemporaryDirectory() as folder:
        blocks: list[Path] = []
        for block in text_blocks(map(words.spaced, texts), _BLOCK):
            file = Path(folder, f"{len(blocks)}.npz")
            save_npz(file, _counts(block, vocabulary), compressed=False)
            blocks.append(file)
        if not vocabulary.stems:
            raise ValueError(
                "expected documents with words to index; got none with any (empty texts, or "
                "nothing but stop words)"
            )
        index.scores = _scores(blocks, len(vocabulary.stems), k1=index.k1, b=index.b)
    index.vocab_dict = vocabulary.stems
    index.nonoccurrence_array = None
    return index


class _Vocabulary(dict[str, int]):
    """The number of each word, which is that of its stem; -1 for a stop word or a letter."""

    def __init__(self, words: Words) -> None:
        super().__init__(dict.fromkeys(words.left_out, -1))
        self.stems: dict[str, int] = {}
        self._shortest = 1 if words.every_script else 2
        self._stem = words.stem

    def __missing__(self, word: str) -> int:
        stems = self.stems
        number = -1
        if len(word) >= self._shortest:
            number = stems.setdefault(self._stem(word), len(stems))
        self[word] = number
        return number


def _counts(block: list[str], vocabulary: _Vocabulary) -> csc_array:
    """Return how often each text has each word (n, V); Python sees each word of a block once."""
    split = pc.ascii_split_whitespace(pa.array(block, type=pa.string()))
    words = split.values.dictionary_encode()
    numbers = np.array([vocabulary[word] for word in words.dictionary.to_pylist()], dtype=np.int32)
    columns = numbers[words.indices.to_numpy()]
    texts = np.arange(len(block), dtype=np.int32)
    rows = np.repeat(texts, np.diff(split.offsets.to_numpy()))
    counted = columns >= 0
    ones = np.ones(np.count_nonzero(counted), dtype=np.float32)
    shape = (len(block), max(1, len(vocabulary.stems)))
    places = (rows[counted], columns[counted])
    return coo_array((ones, places), shape=shape).tocsc()  # adds up


def _scores(blocks: list[Path], words: int, *, k1: float, b: float) -> dict[str, Any]:
    """Return, by word, the texts that have it and its score in each.

    As in bm25s, computed in float64 and rounded to float32.
    """
    lengths, frequencies = _lengths_and_frequencies(blocks, words)
    idf = _inverse_frequencies(frequencies, len(lengths))
    norms = k1 * ((1 - b) + b * lengths / lengths.mean())
    offsets = np.concatenate([[0], np.cumsum(frequencies)])
    scores = np.empty(offsets[-1], dtype=np.float32)
    texts = np.empty(offsets[-1], dtype=np.int32)
    filled = offsets[:-1].copy()
    first = 0
    for block in map(load_npz, blocks):
        counts = np.diff(block.indptr)
        starts = filled[: len(counts)]
        places = np.arange(block.nnz) + np.repeat(starts - block.indptr[:-1], counts)
        text_numbers = block.indices + first
        texts[places] = text_numbers
        term_weights = block.data / (norms[text_numbers] + block.data)
        scores[places] = np.repeat(idf[: len(counts)], counts) * term_weights
        starts += counts
        first += block.shape[0]
    return {"data": scores, "indices": texts, "indptr": offsets, "num_docs": len(lengths)}


def _lengths_and_frequencies(blocks: list[Path], words: int) -> tuple[Rows, Rows]:
    """Return the number of words of each text, and of texts with each word."""
    lengths = []
    frequencies = np.zeros(words, dtype=np.int64)
    for block in map(load_npz, blocks):
        lengths.append(block.sum(axis=1, dtype=np.int64))
        frequencies[: block.shape[1]] += np.diff(block.indptr)
    return np.concatenate(lengths), frequencies


def _inverse_frequencies(frequencies: Rows, texts: int) -> NDArray[np.float64]:
    """Return the weight of each word, of Lucene's formula rounded to float32."""
    distinct, positions = np.unique(frequencies, return_inverse=True)
    weights = []
    for frequency in distinct.tolist():
        weights.append(math.log(1 + (texts - frequency + 0.5) / (frequency + 0.5)))
    rounded = np.array(weights, dtype=np.float32).astype(np.float64)
    inverse: NDArray[np.float64] = rounded[positions]
    return inverse
