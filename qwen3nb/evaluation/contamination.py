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

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

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
from qwen3nb.models.batching import batches_by_characters
from qwen3nb.models.search.mteb_rows import joined_query, named_documents
from qwen3nb.records.record import Result
from qwen3nb.utils.progress import tqdm

if TYPE_CHECKING:
    from mteb import AbsTask

GRAM = 13  # words of a sequence that counts as found
FEWEST = 3  # words of a shorter text that does: any text may have one or two
MOST_HASHES = 1 << 25  # of sequences of documents; 33 million take about 0.7 GB
KINDS = ("exact", "contained", f"{GRAM}-gram")
_BATCH = 1 << 21  # characters that are hashed at once
_EXAMPLES = 3  # of a task
_NEVER = np.iinfo(np.int64).max  # the row of what was not found
_BASE = np.uint64(0x9E3779B97F4A7C15)  # of polynomials modulo 2^64
# Thai, Japanese and Chinese: each character is a word of its own.
_CHARACTER_WORDS = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[^\W_{_CHARACTER_WORDS}]+|[{_CHARACTER_WORDS}]")
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
        if self.are_documents:
            return (0, GRAM)
        return (0, *range(FEWEST, GRAM + 1))

    @property
    def are_documents(self) -> bool:
        """Whether these are documents, of which a sample may be looked up."""
        return self.what == "documents"


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


def task_texts(task: AbsTask) -> list[Texts]:
    """Return the texts of an MTEB task.

    Raises:
        MirrorError: its data are not at hand; nothing is downloaded.
    """
    load_here(task)
    key = task_key(task)
    if task.metadata.type not in SEARCH_TYPES:
        return [Texts(key, "queries", partial(_row_texts, task))]
    # Moves queries and documents of an older task into `task.dataset`.
    task.convert_v1_dataset_format_to_v2(num_proc=None)
    return [
        Texts(key, "queries", partial(_query_texts, task)),
        Texts(key, "documents", partial(_document_texts, task)),
    ]


def _row_texts(task: AbsTask) -> Iterator[tuple[str, str]]:
    """Yield each text of the rows of a task, with the id of its row."""
    for part in task_slices(task):
        rows: Any = part.data
        is_row_of_lists = task.metadata.type == "PairClassification" and len(rows) == 1
        if is_row_of_lists:
            # Such a row holds a list per column: of first texts, of second ones, of labels.
            rows = list(zip(*rows[0].values(), strict=True))
        for name, row in zip(numbered(range(len(rows))), rows, strict=True):
            for text in strings_of(row):
                yield part.prefix + name, text


def _query_texts(task: AbsTask) -> Iterator[tuple[str, str]]:
    """Yield id and text of each query; those of one reader have one id, as they are scored."""
    for part in task_slices(task):
        for row in part.data["queries"]:
            name = row["id"]
            if by_reader(task):
                name, _, _ = name.rpartition("_")  # ``7_1`` is the second query of reader 7
            yield part.prefix + name, joined_query(row)


def _document_texts(task: AbsTask) -> Iterator[tuple[str, str]]:
    for part in task_slices(task):
        for name, text in named_documents(part.data["corpus"]):
            yield part.prefix + name, text


def without(record: Result, queries: Collection[str]) -> Result:
    """Return a record of the other queries alone."""
    columns = {}
    for column, scores in record.per_query.items():
        columns[column] = {query: score for query, score in scores.items() if query not in queries}
    metrics = dict(record.metrics)
    for name, metric in record.metrics.items():
        # A score that another program reported cannot be computed again.
        if metric.how != REPORTED:
            metrics[name] = aggregate(
                columns, how=metric.how, columns=metric.columns, parts=metric.parts
            )
    return replace(record, per_query=columns, metrics=metrics)


# Look-up.


class _Index:
    """Hashes of the tasks, and where each was first seen in the training data.

    Args:
        hashes: of the tasks.
        lengths: numbers of words of the sequences that are looked up.
        one_in: of so many sequences of documents, one is looked up.
    """

    def __init__(self, hashes: Sequence[Hashes], lengths: set[int], one_in: int) -> None:
        self.lengths, self.one_in = lengths, one_in
        self._hashes = np.unique(np.concatenate(hashes))
        self._lines = np.full(len(self._hashes), _NEVER, dtype=np.int64)
        # Most hashes of training data are not among these. A table of their first bits tells so
        # quickly: it has about 16 places for each hash.
        bits = min(28, max(16, len(self._hashes).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._may_occur = np.zeros(1 << bits, dtype=bool)
        self._may_occur[self._hashes >> self._shift] = True

    def _positions(self, hashes: Hashes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows of ``hashes`` that the tasks have, and their positions among these."""
        rows = np.flatnonzero(self._may_occur[hashes >> self._shift])
        positions = np.searchsorted(self._hashes[:-1], hashes[rows])
        is_equal = self._hashes[positions] == hashes[rows]
        return rows[is_equal], positions[is_equal]

    def note(self, hashes: Hashes, lines: NDArray[np.int64]) -> None:
        """Note the lines of training data in which hashes occur, if they are among ours."""
        rows, positions = self._positions(hashes)
        np.minimum.at(self._lines, positions, lines[rows])

    def first_lines(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the first line of each hash, or `_NEVER`."""
        rows, positions = self._positions(hashes)
        lines = np.full(len(hashes), _NEVER, dtype=np.int64)
        lines[rows] = self._lines[positions]
        return lines


def look_up(training: TrainingData, sources: Sequence[Texts]) -> list[Contamination]:
    """Look texts of tasks up in every string of training data, as of `find_training_data`.

    Raises:
        DataError: a file that cannot be read, or no text in any.
    """
    index = _index(sources)
    # Lines are numbered over all files, one after the other.
    last_lines_before: list[int] = []  # by file
    last_line = 0
    with tqdm(unit="B", unit_scale=True, desc="training data") as bar:
        for source in training.sources:
            lines_before = last_line
            last_lines_before.append(lines_before)
            try:
                for lines_in_file, texts in _batches(source_texts(source, training)):
                    lines = np.array(lines_in_file) + lines_before
                    last_line = int(lines[-1])
                    for sequences in _sequences(texts, index.lengths):
                        index.note(sequences.hashes, lines[sequences.rows])
                    bar.update(sum(len(text) for text in texts))
            except DataError as error:
                raise DataError(f"{error}. It was not read, so nothing can be said") from None
    if not training.texts:
        raise DataError(f"the training data hold no text. {training.summary()}")

    def place(line: int) -> str:
        """Return the file of a line, and its number there."""
        # The last file that begins before the line.
        number = bisect_left(last_lines_before, line) - 1
        line_in_file = line - last_lines_before[number]
        return f"{training.sources[number].name}:{line_in_file}"

    return [_found(source, index, place) for source in sources]


def _index(sources: Iterable[Texts]) -> _Index:
    """Hash the texts of tasks; of documents a sample that fits `MOST_HASHES`."""
    unsampled: list[Hashes] = []  # of whole texts, and of all sequences in queries
    sample = _Sample()  # of the sequences in documents
    # In words; 0 stands for whole texts.
    lengths = {0, GRAM}
    for source in sources:
        for _, texts in _batches(source.read()):
            for sequences in _sequences_to_find(source, texts, sample.one_in):
                if len(sequences.hashes) > 0:
                    lengths.add(sequences.length)
                if source.are_documents and not sequences.are_whole_texts:
                    sample.hashes.append(sequences.hashes)
                else:
                    unsampled.append(sequences.hashes)
            sample.shrink()
    return _Index([*unsampled, *sample.hashes], lengths, sample.one_in)


class _Sample:
    """Hashes of sequences in documents: one in ``one_in``, at most `MOST_HASHES`."""

    def __init__(self) -> None:
        self.hashes: list[Hashes] = []
        self.one_in = 1  # a power of 2

    def shrink(self) -> None:
        """Drop equal hashes if there are too many; then half of them, as often as it takes."""
        while sum(len(hashes) for hashes in self.hashes) > MOST_HASHES:
            distinct = np.unique(np.concatenate(self.hashes))
            if len(distinct) > MOST_HASHES // 2:
                self.one_in *= 2
                distinct = distinct[_is_in_sample(distinct, self.one_in)]
            self.hashes = [distinct]


def _is_in_sample(hashes: Hashes, one_in: int) -> NDArray[np.bool_]:
    """Return which hashes are taken, one in ``one_in``, a power of 2: those that end in zeros."""
    last_bits = hashes & np.uint64(one_in - 1)
    return np.asarray(last_bits == 0)


class _Sequences(NamedTuple):
    """Sequences of equally many words in some texts."""

    length: int  # number of words; 0 for whole texts
    hashes: Hashes
    rows: NDArray[np.int64]  # number of the text of each

    @property
    def are_whole_texts(self) -> bool:
        return self.length == 0


def _sequences_to_find(source: Texts, texts: Sequence[str], one_in: int) -> Iterator[_Sequences]:
    """Yield those of `_sequences` by which texts of a task are found.

    They are the sequences of 13 words, of documents a sample, and whole texts of fewer words.
    """
    if not source.are_documents:
        one_in = 1  # every sequence of a query
    for length, hashes, rows in _sequences(texts, source.lengths):
        if length == GRAM:
            is_selected = _is_in_sample(hashes, one_in)
        else:
            # A text of exactly so many words has a single sequence of them.
            sequences_per_text = np.bincount(rows)
            is_selected = sequences_per_text[rows] == 1
        yield _Sequences(length, hashes[is_selected], rows[is_selected])


def _found(source: Texts, index: _Index, place: Callable[[int], str]) -> Contamination:
    """Look at the texts of a task once more: which of them were seen?"""
    ids: set[str] = set()
    ids_with_words: set[str] = set()
    hits: dict[str, Found] = {}
    for names, texts in _batches(source.read()):
        ids.update(names)
        ids_with_words.update(name for name, text in zip(names, texts, strict=True) if _words(text))
        for hit in _hits(source, names, texts, index, place):
            # Several texts may have one id: the best kind of match counts.
            earlier_hit = hits.get(hit.id)
            if earlier_hit is None or _rank(hit) < _rank(earlier_hit):
                hits[hit.id] = hit
    numbers = Counter(hit.how for hit in hits.values())
    return Contamination(
        task=source.task,
        texts=source.what,
        number=len(ids),
        found={kind: numbers[kind] for kind in KINDS},
        hits=tuple(sorted(hits)),
        examples=tuple(sorted(hits.values(), key=_rank)[:_EXAMPLES]),
        sampled=index.one_in if source.are_documents else 1,
        wordless=len(ids - ids_with_words),
    )


def _hits(
    source: Texts,
    names: Sequence[str],
    texts: Sequence[str],
    index: _Index,
    place: Callable[[int], str],
) -> Iterator[Found]:
    """Yield the texts that are in the training data, each by the first kind that holds."""
    first_lines = _first_lines(source, texts, index)
    is_seen = first_lines < _NEVER
    for row in np.flatnonzero(is_seen.any(axis=0)).tolist():
        # (kinds,): the first kind that holds.
        kind = int(np.argmax(is_seen[:, row]))
        line = int(first_lines[kind, row])
        yield Found(names[row], texts[row], KINDS[kind], place(line))


def _first_lines(source: Texts, texts: Sequence[str], index: _Index) -> NDArray[np.int64]:
    """Return the first line of training data with each text, (kinds, texts); or `_NEVER`."""
    first_lines = np.full((len(KINDS), len(texts)), _NEVER, dtype=np.int64)
    for sequences in _sequences_to_find(source, texts, index.one_in):
        kind = KINDS.index("contained")
        if sequences.are_whole_texts:
            kind = KINDS.index("exact")
        elif sequences.length == GRAM:
            kind = KINDS.index(f"{GRAM}-gram")
        lines = index.first_lines(sequences.hashes)
        # A text may have several of the sequences: its earliest line is kept.
        np.minimum.at(first_lines[kind], sequences.rows, lines)
    return first_lines


def _rank(hit: Found) -> int:
    return KINDS.index(hit.how)


# Words as hashes.


def _words(text: str) -> list[str]:
    if text.isascii():
        return text.lower().translate(_SPACES).split()  # faster
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _sequences(texts: Sequence[str], lengths: Collection[int]) -> Iterator[_Sequences]:
    """Hash whole texts that have words, and sequences of 2 to 13 words, if in ``lengths``."""
    words_by_text = [_words(text) for text in texts]
    words_per_text = np.array([len(words) for words in words_by_text])
    rows_with_words = np.flatnonzero(words_per_text)
    whole_texts = [" ".join(words_by_text[row]) for row in rows_with_words]
    # 0: whole texts, of any number of words.
    yield _Sequences(0, _hashed(whole_texts), rows_with_words)
    word_hashes = _hashed([*chain(*words_by_text)])
    row_of_word = np.repeat(np.arange(len(texts)), words_per_text)
    # Each sequence is hashed from that of one word less: times the base, plus its last word. In 64
    # bits, these numbers overflow, as they may.
    hashes = word_hashes
    for length in range(2, GRAM + 1):
        last_words = word_hashes[length - 1 :]
        hashes = hashes[:-1] * _BASE + last_words
        if length in lengths:
            # A sequence that runs from one text into the next is none.
            row_of_first_word = row_of_word[: len(hashes)]
            row_of_last_word = row_of_word[length - 1 :]
            is_in_one_text = row_of_first_word == row_of_last_word
            yield _Sequences(length, hashes[is_in_one_text], row_of_first_word[is_in_one_text])


def _hashed(texts: list[str]) -> Hashes:
    return hash_array(np.array(texts, dtype=object), categorize=False)


def _batches(pairs: Iterable[tuple[Any, str]]) -> Iterator[tuple[list[Any], list[str]]]:
    """Group pairs of a name and a text into lists of about `_BATCH` characters."""
    for batch in batches_by_characters(pairs, _BATCH, text=itemgetter(1)):
        yield [name for name, _ in batch], [text for _, text in batch]
