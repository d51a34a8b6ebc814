"""Was the test in the training data? Texts of tasks looked up in training files.

Texts are compared as words: runs of letters and digits in lower case after Unicode NFKC, and each
character of Chinese, Japanese or Thai a word of its own. A text of a task was found

    exact       if a training text (a line, or a string of a row) has exactly its words
    contained   if it has 3 to 12 words, is not a document, and a training text has them in a row
    13-gram     if a training text has 13 of its words in a row

as in Brown et al. 2020 (GPT-3), appendix C. Sequences of words are compared as 64-bit hashes, so a
chance match has a probability of about 1 in 10¹¹ for ten million sequences on either side.

Training files and corpora are streamed. What is kept are the hashes of the tasks, at most
`MOST_HASHES`: of larger corpora, a fixed fraction of the sequences of documents (those whose hash
ends in zeros), and all of the queries.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pandas.util import hash_array

from qwen3nb.datasets.mirror import load_here
from qwen3nb.datasets.rows import DataError
from qwen3nb.datasets.training_data import TrainingData, source_texts
from qwen3nb.datasets.training_texts import strings_of
from qwen3nb.evaluation.mteb.per_query import by_reader, task_slices
from qwen3nb.evaluation.mteb.select import task_key
from qwen3nb.evaluation.run import SEARCH_TYPES
from qwen3nb.metrics.aggregate import REPORTED, aggregate, numbered
from qwen3nb.models.search.mteb_rows import joined_document, joined_query
from qwen3nb.records.record import Result
from qwen3nb.utils.progress import tqdm

GRAM = 13  # words of a sequence that counts as found
FEWEST = 3  # words of a shorter text that does: any text may have one or two
MOST_HASHES = 1 << 25  # of sequences of documents; 33 million take about 0.7 GB
KINDS = ("exact", "contained", f"{GRAM}-gram")
_BATCH = 1 << 21  # characters that are hashed at once
_EXAMPLES = 3  # of a task
_NEVER = np.iinfo(np.int64).max  # the row of what was not found
_ODD = np.uint64(0x9E3779B97F4A7C15)  # base of polynomials modulo 2^64
_ALONE = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[^\W_{_ALONE}]+|[{_ALONE}]")
_SPACES = {code: " " for code in range(128) if not chr(code).isalnum()}
Hashes = NDArray[np.uint64]


class Texts(NamedTuple):
    """The queries or the documents of one task."""

    task: str  # its key, as in records
    what: str  # ``queries``, which are the rows of a task without a search, or ``documents``
    read: Callable[[], Iterable[tuple[str, str]]]  # ids, as in records, and texts

    @property
    def lengths(self) -> tuple[int, ...]:
        """Numbers of words of the sequences that are looked up; 0 for whole texts."""
        return (0, GRAM) if self.what == "documents" else (0, *range(FEWEST, GRAM + 1))


@dataclass(frozen=True)
class Found:
    """A text of a task that is in the training data."""

    id: str
    text: str
    how: str  # one of `KINDS`
    where: str  # training file and line of the first match


@dataclass(frozen=True)
class Contamination:
    """Which queries or documents of a task are in the training data."""

    task: str
    texts: str  # ``queries`` or ``documents``
    number: int  # how many there are
    found: Mapping[str, int]  # number of those found, by the first of `KINDS` that holds
    hits: tuple[str, ...]  # their ids
    examples: tuple[Found, ...]
    sampled: int  # of so many sequences of 13 words, one was looked up
    wordless: int = 0  # texts without a word, which cannot be found

    @property
    def share(self) -> float:
        """The share of the texts that was found."""
        return len(self.hits) / max(1, self.number)


def task_texts(task: Any) -> list[Texts]:
    """Return the texts of an MTEB task.

    Raises:
        MirrorError: its data are not at hand; nothing is downloaded.
    """
    load_here(task)
    key = task_key(task)
    if task.metadata.type not in SEARCH_TYPES:
        return [Texts(key, "queries", partial(_row_texts, task))]
    task.convert_v1_dataset_format_to_v2(num_proc=None)
    return [
        Texts(key, "queries", partial(_query_texts, task)),
        Texts(key, "documents", partial(_document_texts, task)),
    ]


def _row_texts(task: Any) -> Iterator[tuple[str, str]]:
    """Yield each text of the rows of a task, with the id of its row."""
    for part in task_slices(task):
        rows: Any = part.data
        if task.metadata.type == "PairClassification" and len(rows) == 1:  # row of lists
            rows = list(zip(*rows[0].values(), strict=True))
        for name, row in zip(numbered(range(len(rows))), rows, strict=True):
            for text in strings_of(row):
                yield part.prefix + name, text


def _query_texts(task: Any) -> Iterator[tuple[str, str]]:
    """Yield id and text of each query; those of one reader have one id, as they are scored."""
    for part in task_slices(task):
        for row in part.data["queries"]:
            name = row["id"]
            if by_reader(task):
                name = name.rpartition("_")[0]
            yield part.prefix + name, joined_query(row)


def _document_texts(task: Any) -> Iterator[tuple[str, str]]:
    for part in task_slices(task):
        for row in part.data["corpus"]:
            yield part.prefix + row["id"], joined_document(row)


def without(record: Result, queries: Collection[str]) -> Result:
    """Return a record of the other queries alone."""
    columns = {}
    for column, scores in record.per_query.items():
        columns[column] = {query: score for query, score in scores.items() if query not in queries}
    metrics = {}
    for name, metric in record.metrics.items():
        metrics[name] = metric
        if metric.how != REPORTED:
            metrics[name] = aggregate(
                columns, how=metric.how, columns=metric.columns, parts=metric.parts
            )
    return replace(record, per_query=columns, metrics=metrics)


# Look-up.


class _Index:
    """Hashes of the tasks, and where each was first seen in the training data.

    ``lengths`` are the numbers of words of the sequences that are looked up.
    """

    def __init__(self, hashes: Sequence[Hashes], lengths: set[int], sampled: int) -> None:
        self.lengths, self.sampled = lengths, sampled
        self._hashes = np.unique(np.concatenate(hashes))
        self._first = np.full(len(self._hashes), _NEVER, dtype=np.int64)  # number of the line
        bits = min(28, max(16, len(self._hashes).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._occurs = np.zeros(1 << bits, dtype=bool)  # by the first bits of a hash
        self._occurs[self._hashes >> self._shift] = True

    def _positions(self, hashes: Hashes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows of ``hashes`` that the tasks have, and their positions among these."""
        rows = np.flatnonzero(self._occurs[hashes >> self._shift])
        positions = np.searchsorted(self._hashes[:-1], hashes[rows])
        is_equal = self._hashes[positions] == hashes[rows]
        return rows[is_equal], positions[is_equal]

    def see(self, hashes: Hashes, lines: NDArray[np.int64]) -> None:
        """Note those of ``hashes`` that are there, of training data in lines of these numbers."""
        rows, positions = self._positions(hashes)
        np.minimum.at(self._first, positions, lines[rows])

    def where(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the first line of each hash, or `_NEVER`."""
        rows, positions = self._positions(hashes)
        lines = np.full(len(hashes), _NEVER, dtype=np.int64)
        lines[rows] = self._first[positions]
        return lines


def look_up(training: TrainingData, sources: Sequence[Texts]) -> list[Contamination]:
    """Look texts of tasks up in every string of training data, as of `find_training_data`.

    Raises:
        DataError: a file that cannot be read, or no text in any.
    """
    index = _index(sources)
    starts: list[int] = []  # number of lines before each file
    last = 0
    with tqdm(unit="B", unit_scale=True, desc="training data") as bar:
        for source in training.sources:
            starts.append(last)
            try:
                for lines, texts in _batches(source_texts(source, training)):
                    numbers = np.array(lines) + starts[-1]
                    last = int(numbers[-1])
                    for _, hashes, text in _sequences(texts, index.lengths):
                        index.see(hashes, numbers[text])
                    bar.update(sum(map(len, texts)))
            except DataError as error:
                raise DataError(f"{error}. It was not read, so nothing can be said") from None

    if not training.texts:
        raise DataError(f"the training data hold no text. {training.summary()}")

    def place(line: int) -> str:
        at = bisect_left(starts, line) - 1
        return f"{training.sources[at].name}:{line - starts[at]}"

    return [_seen(source, index, place) for source in sources]


def _index(sources: Iterable[Texts]) -> _Index:
    """Hash the texts of tasks; of documents a sample that fits `MOST_HASHES`."""
    others: list[Hashes] = []
    document_grams: list[Hashes] = []
    lengths, sampled = {0, GRAM}, 1
    for source in sources:
        for _, texts in _batches(source.read()):
            for length, hashes, _ in _looked_for(source, texts, sampled):
                if len(hashes):
                    lengths.add(length)
                if length and source.what == "documents":
                    document_grams.append(hashes)
                else:
                    others.append(hashes)
            while sum(len(hashes) for hashes in document_grams) > MOST_HASHES:
                unique = np.unique(np.concatenate(document_grams))
                if len(unique) > MOST_HASHES // 2:
                    sampled *= 2
                    unique = unique[_in_sample(unique, sampled)]
                document_grams = [unique]
    return _Index([*others, *document_grams], lengths, sampled)


def _in_sample(hashes: Hashes, sampled: int) -> Any:
    return (hashes & np.uint64(sampled - 1)) == 0


def _looked_for(
    source: Texts, texts: Sequence[str], sampled: int
) -> Iterator[tuple[int, Hashes, NDArray[np.int64]]]:
    """Yield those of `_sequences` by which texts of a task are found.

    They are the sequences of 13 words, of documents a sample, and whole texts of fewer words.
    """
    share = 1
    if source.what == "documents":
        share = sampled
    for length, hashes, text in _sequences(texts, source.lengths):
        if length < GRAM:
            selected = np.bincount(text)[text] == 1
        else:
            selected = _in_sample(hashes, share)
        yield length, hashes[selected], text[selected]


def _seen(source: Texts, index: _Index, place: Callable[[int], str]) -> Contamination:
    """Look at the texts of a task once more: which of them were seen?"""
    ids: set[str] = set()
    ids_with_words: set[str] = set()
    hits: dict[str, Found] = {}
    for names, texts in _batches(source.read()):
        ids.update(names)
        ids_with_words.update(name for name, text in zip(names, texts, strict=True) if _words(text))
        first_lines = _first_lines(source, texts, index)
        for row in np.flatnonzero((first_lines < _NEVER).any(axis=0)).tolist():
            kind = int(np.argmax(first_lines[:, row] < _NEVER))
            line = int(first_lines[kind, row])
            hit = Found(names[row], texts[row], KINDS[kind], place(line))
            if hit.id not in hits or _rank(hit) < _rank(hits[hit.id]):
                hits[hit.id] = hit
    counts = dict.fromkeys(KINDS, 0)
    for hit in hits.values():
        counts[hit.how] += 1
    return Contamination(
        task=source.task,
        texts=source.what,
        number=len(ids),
        found=counts,
        hits=tuple(sorted(hits)),
        examples=tuple(sorted(hits.values(), key=_rank)[:_EXAMPLES]),
        sampled=index.sampled if source.what == "documents" else 1,
        wordless=len(ids - ids_with_words),
    )


def _first_lines(source: Texts, texts: Sequence[str], index: _Index) -> NDArray[np.int64]:
    """Return where texts were first seen, (kinds, texts): as a whole, in part, or by 13 words."""
    lines = np.full((len(KINDS), len(texts)), _NEVER, dtype=np.int64)
    for length, hashes, text in _looked_for(source, texts, index.sampled):
        kind = 1
        if length == 0:
            kind = 0
        elif length == GRAM:
            kind = 2
        np.minimum.at(lines[kind], text, index.where(hashes))
    return lines


def _rank(found: Found) -> int:
    return KINDS.index(found.how)


# Words as hashes.


def _words(text: str) -> list[str]:
    if text.isascii():
        return text.lower().translate(_SPACES).split()  # faster
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _sequences(
    texts: Sequence[str], lengths: Collection[int]
) -> Iterator[tuple[int, Hashes, NDArray[np.int64]]]:
    """Hash the sequences of words within texts.

    Yields a number of words, one of ``lengths`` from 2 to 13, the hash of each sequence of so many,
    and the number of its text; first 0, the hash of each whole text that has words, and its number.
    """
    words = [_words(text) for text in texts]
    counts = np.array([len(each) for each in words])
    some = np.flatnonzero(counts)
    yield 0, _hashed([" ".join(words[i]) for i in some]), some
    every = sums = _hashed([*chain(*words)])
    text = np.repeat(np.arange(len(texts)), counts)
    for length in range(2, GRAM + 1):
        sums = sums[:-1] * _ODD + every[length - 1 :]
        if length in lengths:
            own = text[: len(sums)]
            within = own == text[length - 1 :]
            yield length, sums[within], own[within]


def _hashed(texts: list[str]) -> Hashes:
    return hash_array(np.array(texts, dtype=object), categorize=False)


def _batches(pairs: Iterable[tuple[Any, str]]) -> Iterator[tuple[list[Any], list[str]]]:
    """Group pairs of a name and a text into lists of about `_BATCH` characters."""
    names, texts, size = [], [], 0
    for name, text in pairs:
        names.append(name)
        texts.append(text)
        size += len(text) + 1
        if size >= _BATCH:
            yield names, texts
            names, texts, size = [], [], 0
    if texts:
        yield names, texts
