"""The index of BM25: made from a stream of texts, kept on disk, mapped into memory.

    <cache>/bm25/<key>/*.npy, *.json    as bm25s saves an index
                       manifest.json    the SHA-256 of each of these files

bm25s holds the words of all texts as lists of Python integers, a hundred bytes and more per word.
Here they are counted block by block, and what an index needs of a block waits in a temporary file;
memory is that of the vocabulary and the finished index. Its scores are those of bm25s, bit by bit.

The key is a digest of the texts in their order, the parameters and the versions of the libraries,
so that all runs and all tasks on one corpus share an index. A file that is damaged is noticed by
its digest; the index is then made again.

References:
    Kamphuis, de Vries, Boytsov and Lin 2020 (Lucene's variant, which needs no correction).
    Lù 2024, BM25S (scores computed when indexing).
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer
from bm25s.stopwords import STOPWORDS_EN
from numpy.typing import NDArray
from scipy.sparse import coo_array

from qwen3nb import paths
from qwen3nb.utils.atomic_files import (
    canonical,
    explained,
    new_folder,
    read_json,
    sha256_file,
    turn,
    write_json,
)

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
_WORDS = re.compile(r"\w{2,}")
_SPACES = {code: " " for code in range(128) if not _WORDS.fullmatch(2 * chr(code))}
_BLOCK = 1 << 24  # characters whose words are counted at once: about 200 MB
Ints = NDArray[np.integer[Any]]


def kept_index(
    texts: Callable[[], Iterable[str]], *, english: bool, settings: Mapping[str, Any]
) -> bm25s.BM25:
    """Return the index of texts from the cache, where it is put if it is not there.

    Args:
        texts: returns the texts from the first; called once more if there is no index yet.
        english: whether words are stemmed, and stop words left out.
        settings: what the index depends on besides; with ``method``, ``k1`` and ``b``.

    Raises:
        ValueError: no text has a word.
    """
    folder = paths.cache() / "bm25" / _key(texts(), canonical({**settings, "english": english}))
    with turn(folder, what="indexes"):
        if (index := _opened(folder)) is not None:
            return index
        index = build_index(texts(), english=english, settings=settings)
        try:
            with new_folder(folder) as work:
                index.save(work, show_progress=False)
                write_json(
                    work / MANIFEST, {file.name: sha256_file(file) for file in work.iterdir()}
                )
        except OSError as error:
            log.warning("the index of BM25 is not kept: %s", explained(error))
            return index
    return _opened(folder) or index


def _key(texts: Iterable[str], about: bytes) -> str:
    digest = hashlib.sha256(about)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]


def _opened(folder: Path) -> bm25s.BM25 | None:
    """Return the index in ``folder``, mapped; None without one, or if it is damaged."""
    if not folder.is_dir():
        return None
    try:
        digests = read_json(folder / MANIFEST)
        if all(sha256_file(folder / name) == digest for name, digest in digests.items()):
            return bm25s.BM25.load(folder, mmap=True)
    except (OSError, ValueError, AttributeError):
        pass
    log.warning("%s: this index of BM25 is damaged; it is made again", folder)
    return None


def build_index(texts: Iterable[str], *, english: bool, settings: Mapping[str, Any]) -> bm25s.BM25:
    """Return the index of texts in memory; see `kept_index`."""
    vocabulary = _Vocabulary(english=english)
    index = bm25s.BM25(method=settings["method"], k1=settings["k1"], b=settings["b"])
    with TemporaryFile() as file:
        lengths, frequencies = _count(texts, vocabulary, file)
        if not vocabulary.stems:
            raise ValueError(
                f"expected documents with words to index; got {sum(map(len, lengths))} without "
                "any (empty texts, or nothing but stop words)"
            )
        file.seek(0)
        index.scores = _postings(file, lengths, frequencies, k1=index.k1, b=index.b)
    index.vocab_dict = vocabulary.stems
    index.nonoccurrence_array = None
    return index


class _Vocabulary(dict[str, int]):
    """The number of each word, which is that of its stem; -1 for a stop word or a letter."""

    def __init__(self, *, english: bool) -> None:
        super().__init__(dict.fromkeys(STOPWORDS_EN if english else (), -1))
        self.stems: dict[str, int] = {}
        # PyStemmer's own cache takes longer than it saves: each word is stemmed once.
        self._stem = Stemmer.Stemmer("english", 0).stemWord if english else str

    def __missing__(self, word: str) -> int:
        stems = self.stems
        self[word] = -1 if len(word) < 2 else stems.setdefault(self._stem(word), len(stems))
        return self[word]


def _count(
    texts: Iterable[str], vocabulary: _Vocabulary, file: BinaryIO
) -> tuple[list[Ints], Ints]:
    """Return the words of each text (n,) per block, and the texts that have each word (V,).

    ``file`` gets, per block, offsets (V + 1,), and by word the texts that have it and how often.
    """
    lengths: list[Ints] = []
    frequencies: Ints = np.zeros(0, dtype=np.int64)
    for numbers, counts in _numbered(texts, vocabulary):
        kept = numbers >= 0
        rows = np.repeat(np.arange(len(counts), dtype=np.int32), counts)[kept]
        once = np.ones(len(rows), dtype=np.float32)
        shape = len(counts), max(1, len(vocabulary.stems))
        block = coo_array((once, (rows, numbers[kept])), shape=shape).tocsc()  # adds up
        for part in (block.indptr, block.indices, block.data):
            np.save(file, part)
        lengths.append(np.bincount(rows, minlength=len(counts)))
        before, frequencies = frequencies, np.diff(block.indptr).astype(np.int64)
        frequencies[: len(before)] += before
    return lengths, frequencies


def _numbered(texts: Iterable[str], vocabulary: _Vocabulary) -> Iterator[tuple[Ints, Ints]]:
    """Yield, per block of texts, the numbers of all words and how many of them each text has."""
    spaced: list[str] = []
    characters = 0
    for text in texts:
        spaced.append(_spaced(text))
        characters += len(text)
        if characters >= _BLOCK:
            yield _looked_up(spaced, vocabulary)
            spaced, characters = [], 0
    if spaced:
        yield _looked_up(spaced, vocabulary)


def _spaced(text: str) -> str:
    """Return a text with spaces between its words, which are those that bm25s finds.

    Words of one letter may be left; they are in no vocabulary.

    >>> _spaced("It's a Naïve_1!"), _spaced("It's 1!")
    ('it naïve_1', 'it s 1 ')
    """
    lower = text.lower()
    return lower.translate(_SPACES) if lower.isascii() else " ".join(_WORDS.findall(lower))


def _looked_up(spaced: list[str], vocabulary: _Vocabulary) -> tuple[Ints, Ints]:
    """Split texts by Arrow, so that Python sees each word once per block."""
    words = pc.ascii_split_whitespace(pa.array(spaced, type=pa.string()))
    encoded = words.values.dictionary_encode()
    numbers = map(vocabulary.__getitem__, encoded.dictionary.to_pylist())
    known = np.fromiter(numbers, dtype=np.int32, count=len(encoded.dictionary))
    return known[encoded.indices.to_numpy()], np.diff(words.offsets.to_numpy())


def _postings(
    file: BinaryIO, lengths: list[Ints], frequencies: Ints, *, k1: float, b: float
) -> dict[str, Any]:
    """Return, by word, the texts that have it and its score in each: ``scores`` of bm25s.

    Computed in float64 in bm25s's order of operations, and rounded to float32 where it does.
    """
    every = np.concatenate(lengths)
    known, which = np.unique(frequencies, return_inverse=True)
    rarity = [math.log(1 + (len(every) - n + 0.5) / (n + 0.5)) for n in known.tolist()]
    idf = np.array(rarity, dtype=np.float32).astype(np.float64)[which]
    mean = every.mean()
    offsets = np.concatenate([[0], np.cumsum(frequencies)])
    scores = np.empty(offsets[-1], dtype=np.float32)
    texts = np.empty(offsets[-1], dtype=np.int32)
    filled, first = offsets[:-1].copy(), 0
    for own in lengths:
        starts, rows, times = (np.load(file) for _ in range(3))
        counts = np.diff(starts)
        places = np.arange(len(rows)) + np.repeat(filled[: len(counts)] - starts[:-1], counts)
        norm = k1 * ((1 - b) + b * own / mean)
        scores[places] = np.repeat(idf[: len(counts)], counts) * (times / (norm[rows] + times))
        texts[places] = rows + first
        filled[: len(counts)] += counts
        first += len(own)
    return {"data": scores, "indices": texts, "indptr": offsets, "num_docs": len(every)}
