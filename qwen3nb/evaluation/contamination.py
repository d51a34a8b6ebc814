"""Was the test in the training data? Texts of tasks looked up in training files.

Texts are compared as words: Unicode NFKC, lower case, everything but letters and digits a space,
and a character of Chinese, Japanese or Thai a word of its own. A text of a task was found

    exact       if a training text (a line, or a string of a row) has exactly its words
    contained   if it has 3 to 12 words, is not a document, and a training text has them in a row
    13-gram     if a training text has 13 of its words in a row

as in Brown et al. 2020 (GPT-3), appendix C. Words and sequences of words are 64-bit hashes, so a
chance match has a probability of about 1 in 10¹¹ for ten million sequences on either side.

Training files and corpora are streamed. What is kept are the hashes of the tasks, at most
`MOST_HASHES`: of larger corpora, a fixed fraction of the sequences of documents (those whose hash
ends in zeros), and all of the queries.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qwen3nb.datasets.mirror import load_here
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.mteb.per_query import task_slices
from qwen3nb.evaluation.mteb.select import task_key
from qwen3nb.evaluation.run import SEARCH_TYPES
from qwen3nb.metrics.aggregate import REPORTED, aggregate, numbered
from qwen3nb.models.search.mteb_rows import joined_document, joined_query
from qwen3nb.records.record import Result
from qwen3nb.utils.progress import tqdm

GRAM = 13  # words of a sequence that counts as found
FEWEST = 3  # words of a shorter text that does: any text may have one or two
MOST_HASHES = 1 << 25  # of sequences of the tasks; 33 million take about 0.7 GB
KINDS = ("exact", "contained", f"{GRAM}-gram")
_BATCH = 1 << 21  # characters that are hashed at once
_EXAMPLES = 3  # of a task
_NEVER = np.iinfo(np.int64).max  # the row of what was not found
_ODD = np.uint64(0x9E3779B97F4A7C15)  # bases of polynomials modulo 2^64, and what is mixed in
_WHOLE = np.uint64(0xD1B54A32D192ED03)
Hashes = NDArray[np.uint64]
Texts = Callable[[], Iterable[tuple[str, str]]]  # pairs of an id and a text, any number of times


@dataclass(frozen=True)
class Found:
    """A text of a task that is in the training data."""

    id: str  # of the query, row or document
    text: str
    how: str  # one of `KINDS`
    share: float  # of its sequences of 13 words; 1 for exact and contained
    where: str  # training file and row of the first match


@dataclass(frozen=True)
class Contamination:
    """What of one task is in the training data."""

    task: str  # key of the task, as in records
    queries: int  # number of queries, or of rows of a task without a search
    documents: int  # number of documents; 0 of such a task
    found: Mapping[str, int]  # queries found, by the first of `KINDS` that holds
    found_documents: Mapping[str, int]
    hits: frozenset[str] = frozenset()  # ids of the queries found
    examples: tuple[Found, ...] = ()
    sampled: int = 1  # of so many sequences of documents, one was looked up

    def __str__(self) -> str:
        def shares(count: int, found: Mapping[str, int]) -> str:
            kinds = ", ".join(f"{found[kind]:,} {kind}" for kind in KINDS if found[kind])
            total = sum(found.values())
            return (
                f"{total:,} of {count:,} ({total / max(1, count):.1%}){': ' * bool(kinds)}{kinds}"
            )

        lines = [f"{self.task}: queries {shares(self.queries, self.found)}"]
        if self.documents:
            part = f"; one of {self.sampled} sequences looked up" if self.sampled > 1 else ""
            lines.append(f"  documents {shares(self.documents, self.found_documents)}{part}")
        lines += [f"  {each.how:9} {each.text:.70}  ← {each.where}" for each in self.examples]
        return "\n".join(lines)


class Source(NamedTuple):
    """The texts of one task."""

    task: str
    queries: Texts
    documents: Texts


def task_source(task: Any) -> Source:
    """Return the texts of an MTEB task, by the ids that records have.

    Raises:
        MirrorError: its data are not at hand; nothing is downloaded.
    """
    load_here(task)
    if task.metadata.type not in SEARCH_TYPES:
        return Source(task_key(task), lambda: _rows(task), lambda: ())
    task.convert_v1_dataset_format_to_v2(num_proc=None)
    slices = task_slices(task)

    def texts(table: str, joined: Callable[[Any], str]) -> Iterator[tuple[str, str]]:
        for part in slices:
            yield from ((f"{part.prefix}{row['id']}", joined(row)) for row in part.data[table])

    return Source(
        task_key(task),
        lambda: texts("queries", joined_query),
        lambda: texts("corpus", joined_document),
    )


def _rows(task: Any) -> Iterator[tuple[str, str]]:
    """The texts of a task's rows, a row's several ones under one id."""
    for part in task_slices(task):
        names = [n for n, value in part.data.features.items() if "string" in str(value)]
        ids = numbered(range(len(part.data)))
        for name, row in zip(ids, part.data.select_columns(names), strict=True):
            for text in _strings(row):
                yield f"{part.prefix}{name}", text


def without(results: Iterable[Result], found: Iterable[Contamination]) -> list[Result]:
    """Return the records, those of the tasks that were looked up on the other queries alone.

    A clustering is scored in draws, not rows: its records stay as they are.
    """
    hits = {each.task: each.hits for each in found}
    clean = []
    for record in results:
        if (gone := hits.get(record.task.key)) and record.task.unit != "draws":
            columns = {
                column: {query: value for query, value in values.items() if query not in gone}
                for column, values in record.per_query.items()
            }
            metrics = {
                name: each
                if each.how == REPORTED
                else aggregate(columns, how=each.how, columns=each.columns, parts=each.parts)
                for name, each in record.metrics.items()
            }
            record = replace(record, per_query=columns, metrics=metrics)
        clean.append(record)
    return clean


# Look-up.


class _Known:
    """Hashes of the tasks, and where each was first seen in the training data."""

    def __init__(self, hashes: Sequence[Hashes]) -> None:
        self.hashes = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *hashes]))
        self.first = np.full(len(self.hashes), _NEVER, dtype=np.int64)  # number of the training row
        bits = min(28, max(16, len(self.hashes).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._there = np.zeros(1 << bits, dtype=bool)  # by the first bits of a hash
        self._there[self.hashes >> self._shift] = True

    def _index(self, hashes: Hashes) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return where hashes would be, and whether they are there."""
        index = np.searchsorted(self.hashes, hashes)
        index[index == len(self.hashes)] = 0
        return index, self.hashes[index] == hashes if len(self.hashes) else index < 0

    def see(self, hashes: Hashes, rows: NDArray[np.int64]) -> None:
        """Note those of ``hashes`` that are known, of training rows with these numbers."""
        maybe = np.flatnonzero(self._there[hashes >> self._shift])
        index, hit = self._index(hashes[maybe])
        np.minimum.at(self.first, index[hit], rows[maybe[hit]])

    def where(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the first training row of each hash, or `_NEVER`."""
        index, hit = self._index(hashes)
        rows = np.full(len(hashes), _NEVER, dtype=np.int64)
        rows[hit] = self.first[index[hit]]
        return rows


class _Index(NamedTuple):
    """What is looked for."""

    grams: _Known  # sequences of 13 words, and whole texts
    phrases: Mapping[int, _Known]  # short queries, by their number of words
    sampled: int  # of so many sequences of documents, one is in ``grams``


def look_up(
    files: Sequence[Path], sources: Sequence[Source], *, most: int = MOST_HASHES, show: bool = True
) -> list[Contamination]:
    """Look the queries and documents of tasks up in every string of training files.

    Args:
        files: as of `training_files`.
        sources: as of `task_source`.
        most: hashes of the tasks that are kept; see above.
        show: whether to show a bar of the bytes of training data that were read.

    Raises:
        DataError: a file that cannot be read.
    """
    index = _index(sources, most)
    starts: list[int] = []  # number of the first row of each file
    count = 0
    size = sum(file.stat().st_size for file in files)
    with tqdm(total=size, unit="B", unit_scale=True, desc="training data", disable=not show) as bar:
        for file in files:
            starts.append(count)
            for rows, texts in _batches(training_texts(file)):
                _see(index, texts, np.array(rows) + starts[-1])
                count = rows[-1] + starts[-1]
            bar.update(file.stat().st_size)

    def place(row: int) -> str:
        at = bisect_left(starts, row) - 1
        return f"{files[at].name}:{row - starts[at]}"

    return [_found(source, index, place) for source in sources]


def _index(sources: Sequence[Source], most: int) -> _Index:
    """Hash the texts of all tasks."""
    kept: list[Hashes] = []
    phrases: dict[int, list[Hashes]] = {}
    documents: list[Hashes] = []
    sampled = 1
    for source in sources:
        for _, texts in _batches(source.queries()):
            words = _words(texts)
            kept += [words.whole(), words.grams()[0]]
            for length in {*words.lengths.tolist()} & {*range(FEWEST, GRAM)}:
                phrases.setdefault(length, []).append(words.contained(length)[0])
        for _, texts in _batches(source.documents()):
            words = _words(texts)
            kept.append(words.whole())
            grams = words.grams()[0]
            documents.append(grams[_in_sample(grams, sampled)])
            if sum(map(len, documents)) > most:
                documents = [np.unique(np.concatenate(documents))]
                while len(documents[0]) > most // 2:
                    sampled *= 2
                    documents = [documents[0][_in_sample(documents[0], sampled)]]
    documents = [each[_in_sample(each, sampled)] for each in documents]
    known = {length: _Known(hashes) for length, hashes in phrases.items()}
    return _Index(_Known([*kept, *documents]), known, sampled)


def _see(index: _Index, texts: Sequence[str], rows: NDArray[np.int64]) -> None:
    """Look up a batch of training texts, of rows with these numbers."""
    words = _words(texts)
    index.grams.see(words.whole(), rows[words.lengths > 0])
    for length, known in (*index.phrases.items(), (GRAM, index.grams)):
        hashes, text = words.grams(length)
        known.see(hashes, rows[text])


def _in_sample(hashes: Hashes, sampled: int) -> Any:
    return (hashes & np.uint64(sampled - 1)) == 0


def _found(source: Source, index: _Index, place: Callable[[int], str]) -> Contamination:
    """Look at the texts of a task once more: which of them were seen?"""
    queries, found = _seen(source.queries(), index._replace(sampled=1), place)
    documents, others = _seen(source.documents(), index._replace(phrases={}), place)
    counts, other_counts = (
        {kind: sum(each.how == kind for each in own.values()) for kind in KINDS}
        for own in (found, others)
    )
    examples = sorted(found.values(), key=lambda each: (-each.share, each.id))[:_EXAMPLES]
    return Contamination(
        source.task,
        queries,
        documents,
        counts,
        other_counts,
        frozenset(found),
        tuple(examples),
        index.sampled,
    )


def _seen(
    every: Iterable[tuple[str, str]], index: _Index, place: Callable[[int], str]
) -> tuple[int, dict[str, Found]]:
    """Return the number of ids of these texts, and what of them was seen."""
    ids: set[str] = set()
    found: dict[str, Found] = {}
    for names, texts in _batches(every):
        ids.update(names)
        words = _words(texts)
        rows = np.full((len(KINDS), len(texts)), _NEVER, dtype=np.int64)  # first that has it
        rows[0, words.lengths > 0] = index.grams.where(words.whole())
        for length, known in index.phrases.items():
            hashes, text = words.contained(length)
            rows[1, text] = known.where(hashes)
        hashes, text = words.grams()
        looked = _in_sample(hashes, index.sampled)
        seen, text = index.grams.where(hashes[looked]), text[looked]
        np.minimum.at(rows[2], text, seen)
        hits, counted = (np.bincount(each) for each in (text[seen < _NEVER], text))
        for i in np.flatnonzero((rows < _NEVER).any(axis=0)).tolist():
            kind = int(np.argmax(rows[:, i] < _NEVER))
            share = float(hits[i] / counted[i]) if kind == 2 else 1.0
            new = Found(names[i], texts[i], KINDS[kind], share, place(int(rows[kind, i])))
            old = found.setdefault(names[i], new)
            found[names[i]] = min(old, new, key=lambda each: KINDS.index(each.how))
    return len(ids), found


# Words as hashes.


@dataclass(frozen=True)
class _Words:
    """The words of a batch of texts, as hashes."""

    text: NDArray[np.int64]  # number of each word's text
    lengths: NDArray[np.int64]  # words of each text
    sums: Hashes  # of the words' hashes times powers, (words + 1,)

    def whole(self) -> Hashes:
        """A hash of all words of each text that has any."""
        return self._of(np.flatnonzero(self.lengths)) ^ _WHOLE

    def contained(self, length: int) -> tuple[Hashes, NDArray[np.intp]]:
        """The sequence of each text that has ``length`` words, and the text's number."""
        texts = np.flatnonzero(self.lengths == length)
        return self._of(texts), texts

    def _of(self, texts: NDArray[np.int64]) -> Hashes:
        end = np.cumsum(self.lengths)[texts]
        start = end - self.lengths[texts]
        return (self.sums[end] - self.sums[start]) * _powers(len(self.sums))[1][start]

    def grams(self, length: int = GRAM) -> tuple[Hashes, NDArray[np.int64]]:
        """A hash of each sequence of ``length`` words within a text, and the text's number."""
        count = max(0, len(self.text) - length + 1)
        hashes = self.sums[length:] - self.sums[:count]
        hashes *= _powers(len(self.sums))[1][:count]
        within = self.text[:count] == self.text[length - 1 :]
        return hashes[within], self.text[:count][within]


_OTHERS = re.compile(r"[^\w\0]|_")  # of text that is not ASCII
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_ASCII = bytes(
    ord(chr(code).lower()) if chr(code).isalnum() or code == 0 or code >= 128 else 32
    for code in range(128)
) + bytes(range(128, 256))


def _words(texts: Sequence[str]) -> _Words:
    joined = "\0".join(text.replace("\0", " ") for text in texts)
    if not joined.isascii():
        joined = _UNSPACED.sub(r" \g<0> ", unicodedata.normalize("NFKC", joined).casefold())
        joined = _OTHERS.sub(" ", joined)
    data = np.frombuffer(joined.encode("utf-8", "replace").translate(_ASCII), dtype=np.uint8)
    letter = np.concatenate([[False], data > 32, [False]])
    edges = np.flatnonzero(letter[1:] != letter[:-1])
    start, end = edges[::2], edges[1::2]
    sums = _sums(data)
    hashes = _mixed((sums[end] - sums[start]) * _powers(len(sums))[1][start])
    text = np.cumsum(data == 0)[start]
    return _Words(text, np.bincount(text, minlength=len(texts)), _sums(hashes))


def _sums(values: NDArray[Any]) -> Hashes:
    """Return the sums (n + 1,) of the first values (n,), each times a power."""
    sums = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values * _powers(len(sums))[0][: len(values)], out=sums[1:])
    return sums


def _powers(count: int) -> tuple[Hashes, Hashes]:
    """Return at least ``count`` powers of an odd number modulo 2^64, and of its inverse."""
    return _powers_of_two(1 << max(16, (count - 1).bit_length()))


@lru_cache(maxsize=2)
def _powers_of_two(count: int) -> tuple[Hashes, Hashes]:
    every: list[Hashes] = [
        np.cumprod(np.r_[np.uint64(1), np.full(count - 1, base, np.uint64)], dtype=np.uint64)
        for base in (_ODD, np.uint64(pow(int(_ODD), -1, 1 << 64)))
    ]
    return every[0], every[1]


def _mixed(hashes: Hashes) -> Hashes:
    """Spread the bits of hashes (the finaliser of splitmix64)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


# Training files.


def training_files(given: Iterable[Path | str]) -> list[Path]:
    """Return the files that are given, and those in the folders, in order of their names.

    Raises:
        DataError: none, or one that does not exist or is of a type that cannot be read.
    """
    files: list[Path] = []
    for each in map(Path, given):
        if not each.exists():
            raise DataError(f"{each}: no such file or folder of training data")
        own = sorted(each.rglob("*")) if each.is_dir() else [each]
        files += [file for file in own if file.is_file() and (each == file or _type(file))]
    if not files:
        raise DataError(f"no training files given; expected files of type {', '.join(_READERS)}")
    for file in files:
        if not _type(file):
            raise DataError(f"{file}: unknown type; expected one of {', '.join(_READERS)}, or .gz")
    return files


def training_texts(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a training file with the number of their row, from 1 on.

    Raises:
        DataError: it cannot be read; names file and row.
    """
    row = 0
    try:
        for row, value in enumerate(_READERS[_type(file)](file), start=1):
            for text in _strings(value):
                yield row, text
    except (OSError, ValueError, csv.Error, EOFError) as error:
        raise DataError(f"{file}:{row + 1}: cannot be read ({error})") from None


def _type(file: Path) -> str:
    suffix = file.with_suffix("").suffix if file.suffix == ".gz" else file.suffix
    return suffix.lower() if suffix.lower() in _READERS else ""


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(each)


def _lines(file: Path) -> Iterator[str]:
    kind: Any = gzip.open if file.suffix == ".gz" else open
    with kind(file, "rt", encoding="utf-8", errors="replace", newline="\n") as stream:
        for line in stream:
            yield line.removesuffix("\n")


def _document(file: Path) -> Iterator[Any]:
    value = json.loads("\n".join(_lines(file)))
    return iter(value if isinstance(value, list) else [value])


def _separated(delimiter: str) -> Callable[[Path], Iterator[list[str]]]:
    return lambda file: csv.reader(_lines(file), delimiter=delimiter)


def _arrow(file: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.suffix == ".parquet":
        batches: Iterable[Any] = pq.ParquetFile(file).iter_batches(batch_size=1024)
    else:  # as the library datasets writes it: a stream
        batches = pa.ipc.open_stream(pa.memory_map(str(file)))
    for batch in batches:
        yield from batch.to_pylist()


_READERS: dict[str, Callable[[Path], Iterator[Any]]] = {
    ".jsonl": lambda file: (json.loads(line) for line in _lines(file) if line.strip()),
    ".json": _document,
    ".csv": _separated(","),
    ".tsv": _separated("\t"),
    ".parquet": _arrow,
    ".arrow": _arrow,
    ".txt": _lines,
    ".md": _lines,
}


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
