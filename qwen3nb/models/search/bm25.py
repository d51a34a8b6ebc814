"""BM25, the baseline without training, as an MTEB search model.

It runs on bm25s with the settings of MTEB's own baseline for English (``mteb/baseline-bm25s``):
English stop words, the Snowball stemmer, k1 1.5, b 0.75, Lucene's variant. Texts in other
languages and scripts are read as `qwen3nb.models.search.words` says. Settings and words are
recorded with every score, because BM25 implementations differ more from each other than many
models do.

bm25s holds all words of a corpus as Python integers. Here, each block of texts becomes a sparse
matrix of counts, so that memory is that of the index and the vocabulary; its scores are the same
bit by bit; `qwen3nb.models.search.word_scores` adds them. Indexes of large corpora are kept on
disk and mapped into memory:

    <cache>/bm25/<key>/    the files of bm25s, and their SHA-256 in manifest.json

The key is a digest of the texts in order, the parameters, the words and the versions of the
libraries, so that all runs and all tasks on a corpus share an index, and no other.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, load_npz, save_npz

from qwen3nb import paths
from qwen3nb.models.batching import batches_by_characters
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.search import mteb_rows
from qwen3nb.models.search.searcher import Run, Searcher
from qwen3nb.models.search.word_scores import (
    Floats,
    IndexScores,
    Rows,
    WordScores,
    found_rows,
)
from qwen3nb.models.search.words import (
    ENGLISH_WORDS,
    STEMMER,
    Words,
    words_of_languages,
    words_of_texts,
)
from qwen3nb.models.types import Settings, Stats
from qwen3nb.utils import atomic_files
from qwen3nb.utils.hardware import cores

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

    from qwen3nb.models.search.mteb_rows import MtebRows

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
_BLOCK = 1 << 23  # characters of texts whose words are counted at once, and wait in a file
RECIPE = {
    "method": "lucene",
    "k1": 1.5,
    "b": 0.75,
    "stop_words": "en",
    "stemmer": STEMMER,
    "other_languages": "no stop words, no stemmer",
}
# Bytes of memory while an index is made, measured on corpora of 2 to 180 million characters.
_INDEX_MEMORY = 2e7  # whatever the size of the corpus
_BLOCK_MEMORY = 13  # for each character of the texts that are counted at once
_MEMORY_PER_CHARACTER = 1.4  # of all texts, of which the index that is kept has 1
_QUERIES_AT_ONCE = 16  # of a thread, which keeps one array of scores for them
LARGE = 20_000  # documents from which an index is kept; that of fewer takes a second


class BM25(Searcher):
    """BM25 over a corpus, for retrieval and reranking tasks only.

    A document that shares no word with the query is not retrieved: its score would be 0, and
    its rank would depend on its id alone. ``words`` says how the indexed corpus was read.
    """

    least_score = 0.0
    matched_share = 0.5  # about half of the candidates share a word with the query
    seconds_per_pair = 3e-9
    seconds_per_candidates = 6e-5

    def __init__(self, source: Source, *, cache: bool = True) -> None:
        self.label = source.label
        self.source = source
        self.settings: Settings = {"model": {"kind": "bm25"}, **RECIPE}
        self.settings["bm25s"] = bm25s.__version__
        self.settings["PyStemmer"] = Stemmer.version()
        self.stats = Stats()
        self._documents: list[str] = []  # their ids
        self._position_by_name: dict[str, int] | None = None
        self.words = ENGLISH_WORDS
        self._cache = cache  # whether indexes of large corpora are kept
        self._index: WordScores | None = None
        self._letters: WordScores | None = None  # index of words of one letter, made when needed
        self._parts: WordScores | None = None  # index of parts of words, likewise
        self._texts: Callable[[], Iterable[str]] = tuple  # returns those of the corpus; none yet

    def __repr__(self) -> str:
        return (
            f"<BM25: {RECIPE['method']}, k1 {RECIPE['k1']}, b {RECIPE['b']}, "
            f"{RECIPE['stemmer']} stemmer>"
        )

    def index(
        self,
        corpus: MtebRows,
        *,
        task_metadata: TaskMetadata | None = None,
        hf_subset: str = "",
        words: Words | None = None,
        **_: object,
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
        self._texts = partial(mteb_rows.joined_documents, corpus)
        self._documents = mteb_rows.document_ids(corpus, range(len(corpus)))
        self._position_by_name = None
        self._letters = None
        self._parts = None
        if task_metadata is not None:
            self.words = words_of_languages(mteb_rows.task_languages(task_metadata, hf_subset))
        else:
            self.words = words or words_of_texts([], self._texts())
        try:
            self._index = self._indexed(self.words)
        except ValueError:  # there is no word
            if not self.words.every_script:
                raise
            self.words = self.words.of_letters  # of documents such as "C" and "R"
            self._index = self._indexed(self.words)
        self._count(len(self._documents), started)

    def search(
        self,
        queries: MtebRows,
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: object,
    ) -> Run:
        """Score the ``top_k`` best documents per query, or those in ``top_ranked``."""
        started = time.perf_counter()
        names = [str(row["id"]) for row in queries]
        texts = [mteb_rows.joined_query(row) for row in queries]
        words_of_queries = self.words.split(texts)
        self._index_letters(texts, words_of_queries)
        self._index_parts(words_of_queries)
        self._main_index.expand(words_of_queries)
        if top_ranked is None:
            starts = range(0, len(texts), _QUERIES_AT_ONCE)
            blocks = [slice(start, start + _QUERIES_AT_ONCE) for start in starts]
            with ThreadPoolExecutor(cores()) as threads:
                rankings_of_blocks = threads.map(
                    lambda block: self._rankings(texts[block], words_of_queries[block], top_k),
                    blocks,
                )
                run = dict(zip(names, chain.from_iterable(rankings_of_blocks), strict=True))
        else:
            run = {}
            sums = self._empty_sums()
            for name, text, words in zip(names, texts, words_of_queries, strict=True):
                candidates = top_ranked.get(name, ())
                run[name] = self._matches(self._scores(text, words, sums), candidates)
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
        self._index_parts(words)
        scores = self._scores(query, words[0], self._empty_sums())
        self._count(1, started)
        return [float(scores[self._positions[name]]) for name in documents]

    def first_stage(self) -> tuple[str, Settings]:
        """Return its name and recipe as the first stage of a reranker."""
        return "bm25", {"kind": "bm25", "recipe": self.settings}

    def index_texts(self, texts: Sequence[str]) -> None:
        """Index texts as English, to time it."""
        build_index(texts, words=ENGLISH_WORDS, settings=self.settings)

    def index_memory(self, characters: int) -> int:
        """Return the bytes of memory for an index of texts with so many characters."""
        block = _BLOCK_MEMORY * min(characters, _BLOCK)
        return int(_INDEX_MEMORY + block + _MEMORY_PER_CHARACTER * characters)

    def found_share(self, documents: int, k: int) -> float:
        """Return how much of its ``k`` documents a query finds, in the mean of many queries.

        The share of documents with a word of the query is taken as uniform between 0 and 1.
        """
        if documents <= k:
            return 0.5
        # Queries that share words with at least k documents find k; the others half of it.
        share_below = k / documents
        return 1 - share_below / 2

    def index_disk(self, documents: int, characters: int) -> int:
        """Return the bytes of disk for an index; that of a small corpus is not kept."""
        return characters if documents >= LARGE else 0

    def _rankings(
        self, texts: Sequence[str], words_of_texts: Sequence[Sequence[str]], k: int
    ) -> list[dict[str, float]]:
        """Return the scores of the ``k`` best documents for each query."""
        sums = self._empty_sums()
        rankings = []
        for text, words in zip(texts, words_of_texts, strict=True):
            scores = self._scores(text, words, sums)
            rankings.append(self._best(scores, k))
        return rankings

    def _best(self, scores: Floats, k: int) -> dict[str, float]:
        """Return the scores of the ``k`` best documents, by name.

        Of documents that tie with the k-th, the first in the corpus. In a small one, those that
        bm25s returns, as in all earlier records: NumPy's choice, which depends on the processor,
        and takes a hundred times as long as the rest where most documents score 0.
        """
        rows = found_rows(scores, k)
        if len(rows) > k:
            rows = _best_rows(scores, rows, k)
        names = [self._documents[row] for row in rows.tolist()]
        return dict(zip(names, scores[rows].tolist(), strict=True))

    def _empty_sums(self) -> Floats:
        """Return an array for the scores of all documents (N,)."""
        return np.empty(len(self._documents), dtype=np.float32)

    def _scores(self, text: str, words: Sequence[str], sums: Floats) -> Floats:
        """Return the score of every document for a query and its words, in ``sums`` (N,)."""
        index = self._main_index
        # A query of single letters, such as "C", is searched in the index that has letters.
        if self._letters is not None and _are_letters(words):
            index = self._letters
            (words,) = self.words.of_letters.split([text])
        elif self._parts is not None and self._are_unknown(words):
            index = self._parts
            (words,) = self.words.of_parts.split([text])
        return index.add(words, sums)

    @property
    def _main_index(self) -> WordScores:
        """The index of the corpus, as its language is read."""
        if self._index is None:
            raise ValueError("expected a corpus to search; got none: call index first")
        return self._index

    def _indexed(self, words: Words) -> WordScores:
        """Return the index of the corpus, from the cache if the corpus is large."""
        words = replace(words, parts=False)  # which are indexed apart
        if self._cache and len(self._documents) >= LARGE:
            index = kept_index(self._texts, words=words, settings=self.settings)
        else:
            index = build_index(self._texts(), words=words, settings=self.settings)
        return WordScores(index.vocab_dict, index.scores)

    def _index_letters(self, texts: Sequence[str], words_of_texts: Sequence[Sequence[str]]) -> None:
        """Index words of one letter if a query has no others, and its words are not English."""
        # The main index may have the letters, too: where the documents have no other words.
        is_indexed = self._letters is not None or self.words.letters
        if is_indexed or not self.words.every_script:
            return
        texts_of_letters = []
        for text, words in zip(texts, words_of_texts, strict=True):
            if _are_letters(words):
                texts_of_letters.append(text)
        words_of_letters = self.words.of_letters.split(texts_of_letters)
        if any(words_of_letters):
            self._letters = self._indexed(self.words.of_letters)

    def _index_parts(self, words_of_texts: Sequence[Sequence[str]]) -> None:
        """Index parts of words if a query needs them; see `qwen3nb.models.search.words`."""
        if self._parts is not None or not self.words.parts:
            return
        if any(self._are_unknown(words) for words in words_of_texts):
            self._parts = self._indexed(self.words.of_parts)

    def _are_unknown(self, words: Sequence[str]) -> bool:
        """Return whether there are words of two letters or more, and no document has a word."""
        if _are_letters(words):
            return False
        vocabulary = self._main_index.vocabulary
        return not any(word in vocabulary for word in words)

    @property
    def _positions(self) -> Mapping[str, int]:
        """The position of each document in the corpus; made when it is first needed."""
        if self._position_by_name is None:
            self._position_by_name = {name: row for row, name in enumerate(self._documents)}
        return self._position_by_name

    def _count(self, texts: int, started: float) -> None:
        self.stats.texts += texts
        self.stats.encoded += texts
        self.stats.seconds += time.perf_counter() - started


def _are_letters(words: Sequence[str]) -> bool:
    """Return whether no word has two letters, as of a query such as T恤."""
    return all(len(word) == 1 for word in words)


def _best_rows(scores: Floats, rows: Rows, k: int) -> Rows:
    """Return ``k`` of the ``rows`` with a score above 0; see `BM25._best` on ties."""
    found_scores = scores[rows]
    from_end = len(rows) - k
    kth_best = np.partition(found_scores, from_end)[from_end]
    # In the order of the corpus.
    better = rows[found_scores > kth_best]
    tied = rows[found_scores == kth_best]
    has_more_ties = len(better) + len(tied) > k
    if has_more_ties and len(scores) < LARGE:  # as bm25s chooses, for the sake of old records
        chosen_rows: Rows = np.argpartition(scores, -k)[-k:]
        return chosen_rows
    first_tied = tied[: k - len(better)]
    return np.concatenate([better, first_tied])


def kept_index(
    texts: Callable[[], Iterable[str]], *, words: Words, settings: Settings
) -> bm25s.BM25:
    """Return the index of texts from the cache; made if it is not there, or damaged.

    Args:
        texts: returns the texts from the first; called once more if there is no index yet.
        words: how texts become words.
        settings: what the index depends on besides; with ``method``, ``k1`` and ``b``.

    Raises:
        ValueError: no text has a word.
    """
    folder = paths.cache() / "bm25" / _index_key(texts(), words, settings)
    with atomic_files.exclusive_lock(folder, purpose="indexes"):
        index = _opened(folder)
        if index is None:
            index = build_index(texts(), words=words, settings=settings)
            _keep(index, folder)
            index = _opened(folder) or index  # the file, mapped, takes less memory
        return index


def _index_key(texts: Iterable[str], words: Words, settings: Settings) -> str:
    """Return the digest of all that an index depends on, of which its folder has its name."""
    recipe = dict(settings)
    if words == ENGLISH_WORDS:  # one key, whichever fields `Words` will have
        recipe["english"] = True
    else:
        recipe.update(asdict(words))
        recipe["words"] = words.name
    digest = hashlib.sha256(atomic_files.canonical(recipe))
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        # With lengths, "ab" and "c" differ from "a" and "bc".
        length = len(encoded).to_bytes(8, "little")
        digest.update(length + encoded)
    return digest.hexdigest()[:32]


def _keep(index: bm25s.BM25, folder: Path) -> None:
    """Write an index to its folder in the cache; warn if that is not possible."""
    try:
        with atomic_files.new_folder(folder) as work:
            index.save(work, show_progress=False)
            digests = {file.name: atomic_files.sha256_file(file) for file in work.iterdir()}
            atomic_files.write_json(work / MANIFEST, digests)
    except OSError as error:
        log.warning("the index of BM25 is not kept: %s", atomic_files.explained(error))


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
    try:
        if _is_complete(folder):
            return bm25s.BM25.load(folder, mmap=True)
    except (OSError, ValueError, AttributeError):  # the files are not those of an index
        pass
    log.warning("%s: this index of BM25 is damaged; it is made again", folder)
    return None


def _is_complete(folder: Path) -> bool:
    """Return whether the files of an index are those that were written."""
    digests = atomic_files.read_json(folder / MANIFEST)
    for name, digest in digests.items():
        if atomic_files.sha256_file(folder / name) != digest:
            return False
    return True


def build_index(texts: Iterable[str], *, words: Words, settings: Settings) -> bm25s.BM25:
    """Return the index of texts in memory; see `kept_index`."""
    vocabulary = _Vocabulary(words)
    index = bm25s.BM25(method=settings["method"], k1=settings["k1"], b=settings["b"])
    spaced_texts = map(words.spaced, texts)
    with TemporaryDirectory() as folder:
        files: list[Path] = []
        for block in batches_by_characters(spaced_texts, _BLOCK, text=str):
            file = Path(folder, f"{len(files)}.npz")
            save_npz(file, _word_counts(block, vocabulary), compressed=False)
            files.append(file)
        if not vocabulary.stems:
            raise ValueError(
                "expected documents with words to index; got none with any (empty texts, or "
                "nothing but stop words)"
            )
        index.scores = _index_scores(files, len(vocabulary.stems), k1=index.k1, b=index.b)
    index.vocab_dict = vocabulary.stems
    index.nonoccurrence_array = None  # Lucene's variant scores no word that a text lacks
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


def _word_counts(block: list[str], vocabulary: _Vocabulary) -> csc_array:
    """Return how often each text has each word (n, V); Python sees each word of a block once."""
    # A list of words per text: ``values`` are all words, ``offsets`` where each text begins.
    words_of_texts = pc.ascii_split_whitespace(pa.array(block, type=pa.string()))
    words = words_of_texts.values.dictionary_encode()  # distinct words, and the index of each
    distinct_words = words.dictionary.to_pylist()
    word_numbers = np.array([vocabulary[word] for word in distinct_words], dtype=np.int32)
    columns = word_numbers[words.indices.to_numpy()]  # of each occurrence of a word
    words_per_text = np.diff(words_of_texts.offsets.to_numpy())
    text_numbers = np.arange(len(block), dtype=np.int32)
    rows = np.repeat(text_numbers, words_per_text)
    is_counted = columns >= 0  # neither a stop word nor a letter
    places = (rows[is_counted], columns[is_counted])
    ones = np.ones(np.count_nonzero(is_counted), dtype=np.float32)
    shape = (len(block), max(1, len(vocabulary.stems)))
    return coo_array((ones, places), shape=shape).tocsc()  # adds the ones of a place


def _index_scores(files: Sequence[Path], words: int, *, k1: float, b: float) -> IndexScores:
    """Return, by word, the texts that have it and its score in each.

    As in bm25s, computed in float64 and rounded to float32.
    """
    # BM25: idf * count / (count + k1 * (1 - b + b * length / mean length)).
    lengths, frequencies = _lengths_and_frequencies(files, words)
    idf = _inverse_frequencies(frequencies, len(lengths))
    length_norms = k1 * ((1 - b) + b * lengths / lengths.mean())
    # The scores of a word stand together, in the order of the texts.
    word_starts = np.concatenate([[0], np.cumsum(frequencies)])
    entries = word_starts[-1]
    scores = np.empty(entries, dtype=np.float32)
    texts = np.empty(entries, dtype=np.int32)
    next_places = word_starts[:-1].copy()  # of each word, for its next text
    first_text = 0
    for counts in map(load_npz, files):  # of each word (column) in each text (row) of a block
        texts_per_word = np.diff(counts.indptr)
        block_words = len(texts_per_word)  # the vocabulary grows from block to block
        # From its place in the block's columns, an entry moves to that among those of all texts.
        starts = next_places[:block_words]
        shifts = np.repeat(starts - counts.indptr[:-1], texts_per_word)
        places = np.arange(counts.nnz) + shifts
        block_texts = counts.indices + first_text
        texts[places] = block_texts
        term_weights = counts.data / (length_norms[block_texts] + counts.data)
        scores[places] = np.repeat(idf[:block_words], texts_per_word) * term_weights
        next_places[:block_words] += texts_per_word
        first_text += counts.shape[0]
    return {"data": scores, "indices": texts, "indptr": word_starts, "num_docs": len(lengths)}


def _lengths_and_frequencies(blocks: Sequence[Path], words: int) -> tuple[Rows, Rows]:
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
    rounded_weights = np.array(weights, dtype=np.float32).astype(np.float64)
    inverse: NDArray[np.float64] = rounded_weights[positions]
    return inverse
