"""The index of BM25: made from a stream of texts, kept on disk, mapped into memory.

    <cache>/bm25/<key>/    the files of bm25s, and their SHA-256 in manifest.json

bm25s holds all words of a corpus as Python integers. Here, each block of texts becomes a sparse
matrix of counts, so that memory is that of the index and the vocabulary; its scores are the same
bit by bit. The key is a digest of the texts in order, the parameters and the versions of the
libraries, so that all runs and all tasks on a corpus share an index.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer
from bm25s.stopwords import STOPWORDS_EN
from scipy.sparse import coo_array, csc_array, load_npz, save_npz

from qwen3nb import paths
from qwen3nb.utils import atomic_files

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
_WORDS = re.compile(r"\w{2,}")
_SPACES = {code: " " for code in range(128) if not _WORDS.fullmatch(2 * chr(code))}
_BLOCK = 1 << 16  # texts whose words are counted at once, and wait in a temporary file


def kept_index(
    texts: Callable[[], Iterable[str]], *, english: bool, settings: Mapping[str, Any]
) -> bm25s.BM25:
    """Return the index of texts from the cache; made if it is not there, or damaged.

    Args:
        texts: returns the texts from the first; called once more if there is no index yet.
        english: whether words are stemmed, and stop words left out.
        settings: what the index depends on besides; with ``method``, ``k1`` and ``b``.

    Raises:
        ValueError: no text has a word.
    """
    digest = hashlib.sha256(atomic_files.canonical({**settings, "english": english}))
    for text in texts():
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    folder = paths.cache() / "bm25" / digest.hexdigest()[:32]
    with atomic_files.turn(folder, what="indexes"):
        if (kept := _opened(folder)) is not None:
            return kept
        index = build_index(texts(), english=english, settings=settings)
        try:
            with atomic_files.new_folder(folder) as work:
                index.save(work, show_progress=False)
                digests = {file.name: atomic_files.sha256_file(file) for file in work.iterdir()}
                atomic_files.write_json(work / MANIFEST, digests)
        except OSError as error:
            log.warning("the index of BM25 is not kept: %s", atomic_files.explained(error))
        return _opened(folder) or index


def _opened(folder: Path) -> bm25s.BM25 | None:
    """Return the index in ``folder``, mapped; None without one, or if it is damaged."""
    if not folder.is_dir():
        return None
    try:
        digests = atomic_files.read_json(folder / MANIFEST)
        if all(
            atomic_files.sha256_file(folder / name) == digest for name, digest in digests.items()
        ):
            return bm25s.BM25.load(folder, mmap=True)
    except (OSError, ValueError, AttributeError):
        pass
    log.warning("%s: this index of BM25 is damaged; it is made again", folder)
    return None


def build_index(texts: Iterable[str], *, english: bool, settings: Mapping[str, Any]) -> bm25s.BM25:
    """Return the index of texts in memory; see `kept_index`."""
    vocabulary, source = _Vocabulary(english=english), map(_spaced, texts)
    index = bm25s.BM25(method=settings["method"], k1=settings["k1"], b=settings["b"])
    with TemporaryDirectory() as folder:
        blocks: list[Path] = []
        while block := list(islice(source, _BLOCK)):
            blocks.append(Path(folder, f"{len(blocks)}.npz"))
            save_npz(blocks[-1], _counts(block, vocabulary), compressed=False)
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

    def __init__(self, *, english: bool) -> None:
        super().__init__(dict.fromkeys(STOPWORDS_EN if english else (), -1))
        self.stems: dict[str, int] = {}
        # Without PyStemmer's own cache, which takes longer than it saves.
        self._stem = Stemmer.Stemmer("english", 0).stemWord if english else str

    def __missing__(self, word: str) -> int:
        stems = self.stems
        self[word] = -1 if len(word) < 2 else stems.setdefault(self._stem(word), len(stems))
        return self[word]


def _spaced(text: str) -> str:
    """Return a text with spaces between its words, which are those that bm25s finds."""
    lower = text.lower()
    if lower.isascii():  # words of one letter are left; they are in no vocabulary
        return lower.translate(_SPACES)
    return " ".join(_WORDS.findall(lower))


def _counts(block: list[str], vocabulary: _Vocabulary) -> csc_array:
    """Return how often each text has each word (n, V); Python sees each word of a block once."""
    split = pc.ascii_split_whitespace(pa.array(block, type=pa.string()))
    words = split.values.dictionary_encode()
    known = np.array([vocabulary[word] for word in words.dictionary.to_pylist()], dtype=np.int32)
    columns = known[words.indices.to_numpy()]
    rows = np.repeat(np.arange(len(block), dtype=np.int32), np.diff(split.offsets.to_numpy()))
    kept = columns >= 0
    once = np.ones(np.count_nonzero(kept), dtype=np.float32)
    shape = len(block), max(1, len(vocabulary.stems))
    return coo_array((once, (rows[kept], columns[kept])), shape=shape).tocsc()  # adds up


def _scores(blocks: list[Path], words: int, *, k1: float, b: float) -> dict[str, Any]:
    """Return, by word, the texts that have it and its score in each.

    As in bm25s, computed in float64 and rounded to float32.
    """
    every, frequencies = [], np.zeros(words, dtype=np.int64)
    for block in map(load_npz, blocks):
        every.append(block.sum(axis=1, dtype=np.int64))
        frequencies[: block.shape[1]] += np.diff(block.indptr)
    lengths = np.concatenate(every)
    known, which = np.unique(frequencies, return_inverse=True)
    rarity = [math.log(1 + (len(lengths) - n + 0.5) / (n + 0.5)) for n in known.tolist()]
    idf = np.array(rarity, dtype=np.float32).astype(np.float64)[which]
    norms = k1 * ((1 - b) + b * lengths / lengths.mean())
    offsets = np.concatenate([[0], np.cumsum(frequencies)])
    scores = np.empty(offsets[-1], dtype=np.float32)
    texts = np.empty(offsets[-1], dtype=np.int32)
    filled, first = offsets[:-1].copy(), 0
    for block in map(load_npz, blocks):
        counts = np.diff(block.indptr)
        starts = filled[: len(counts)]
        places = np.arange(block.nnz) + np.repeat(starts - block.indptr[:-1], counts)
        texts[places] = block.indices + first
        tf = block.data / (norms[block.indices + first] + block.data)
        scores[places] = np.repeat(idf[: len(counts)], counts) * tf
        starts += counts
        first += block.shape[0]
    return {"data": scores, "indices": texts, "indptr": offsets, "num_docs": len(lengths)}
