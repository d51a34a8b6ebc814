"""Training data in any usual form: files, folders of them, and tables in memory.

What may hold texts but cannot be read is an error that names it: nothing follows from data that
were not read. Files about the data (README.md, state.json, dataset_info.json) are no training data;
they are counted, as are images and sound. `qwen3nb.datasets.training_files` lists the forms.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from qwen3nb.datasets import rows
from qwen3nb.datasets.in_memory import table_rows
from qwen3nb.datasets.rows import LINE, DataError, listed
from qwen3nb.datasets.training_files import (
    MEDIA,
    MEDIA_SUFFIXES,
    NumberedValue,
    find_reader,
    is_about,
    open_file,
    suffix_of,
    supported_types,
)
from qwen3nb.datasets.training_texts import lists_of_words, other_readings, strings_of

EMPTY = "empty files"
_MOST_NAMED = 5  # files in an error
# A part of a data set, as "train-00001-of-00003.parquet".
_NUMBERED_PART = re.compile(r"(?P<start>.*-)(?P<number>\d{5})-of-(?P<count>\d{5})(?P<end>.*)")
_SKIPPED = {".git", ".ipynb_checkpoints", "__pycache__", ".locks", ".no_exist"}


@dataclass
class TrainingData:
    """Files and tables whose texts are read, and what beside them is not."""

    sources: list[Source]
    about: list[Path] = field(default_factory=list)  # files about the data, which are not read
    # what held nothing that could be read, by kind; filled while the texts are read
    without_text: Counter[str] = field(default_factory=Counter)
    rows: int = 0  # that were read
    texts: int = 0  # that were read

    def summary(self) -> str:
        """Return what was read, and what was not, in one or two sentences."""
        files = f"{len(self.sources):,} files"
        if len(self.sources) == 1:
            files = "1 file"
        sentence = f"Read: {files}, {self.rows:,} rows, {self.texts:,} texts."
        not_read: list[str] = []
        for kind, count in sorted(self.without_text.items()):
            if count:
                not_read.append(f"{count:,} {kind}")
        if self.about:  # such as README.md
            names = sorted({file.name for file in self.about})
            not_read.append(f"{len(self.about):,} about the data ({listed(names)})")
        if not not_read:
            return sentence
        return f"{sentence} Not read: {'; '.join(not_read)}."


@dataclass(frozen=True)
class Source:
    """A file of training data, or a table in memory."""

    name: str  # for places of what was found
    values: Callable[[Counter[str]], Iterator[NumberedValue]]  # notes what holds no text
    byte_limit: int | None = None  # characters of all texts, unless the limit is raised
    place: str = ""  # for errors


def find_training_data(inputs: Iterable[object]) -> TrainingData:
    """Return the files that are given, those in folders, in order of their names, and tables.

    Links are followed, and each file is read once.

    Args:
        inputs: files, folders, data frames, lists of dictionaries or lists of texts.

    Raises:
        DataError: a path that does not exist, a folder without training data, or files that cannot
            be read; names them.
    """
    data = TrainingData([])
    for number, source in enumerate(inputs, start=1):
        if isinstance(source, Path | str):
            _add_path(data, Path(source).expanduser())
        else:
            data.sources.append(_source_of_table(source, f"table {number}"))
    return data


def _source_of_table(table: object, name: str) -> Source:
    """Return a table in memory, or a list of texts."""
    values: list[object] = []
    if isinstance(table, list | tuple) and all(isinstance(text, str) for text in table):
        values.extend(table)
    else:
        values.extend(table_rows(table, what=name))
    return Source(name, lambda _: enumerate(values, start=1), place=name)


def _source_of_file(file: Path) -> Source:
    """Return a file as a source; raise DataError if it cannot be read."""
    reader = find_reader(file)
    return Source(
        file.name,
        lambda notes: reader(open_file(file, notes)),
        byte_limit=rows.unpacked_limit(file.stat().st_size),
        place=str(file),
    )


def _add_path(data: TrainingData, path: Path) -> None:
    """Add a file, or all files of a folder; refuse one of which a file cannot be read."""
    if not path.exists():
        raise DataError(f"{path}: no such file or folder of training data")
    if path.is_file():
        data.sources.append(_source_of_file(path))
        return
    files, unread = _files_in(path)
    unread += _missing_parts(files)
    total = len(files) + len(unread)
    sources: list[Source] = []
    for file in files:
        if is_about(file):
            data.about.append(file)
            continue
        is_media = suffix_of(file.name) in MEDIA_SUFFIXES
        if is_media:
            data.without_text[MEDIA] += 1
            continue
        try:
            sources.append(_source_of_file(file))
        except DataError as error:
            unread.append(str(error).removeprefix(f"{path}{os.sep}"))
    if unread:
        raise DataError(
            f"{path}: {len(unread)} of {total} files are not read, so nothing can be said of the "
            f"folder: {_first_of(unread)}. Convert them, or name the files to read"
        )
    if not sources:
        content = "it is empty"
        if files:
            content = f"got {listed(sorted({file.name for file in files}))}"
        raise DataError(
            f"{path}: expected training data in files of type {supported_types()}; {content}"
        )
    data.sources += sources


def _first_of(problems: list[str]) -> str:
    parts = problems[:_MOST_NAMED]
    if len(problems) > _MOST_NAMED:
        parts = [*parts, f"and {len(problems) - _MOST_NAMED} more"]
    return "; ".join(parts)


def _files_in(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the files below a folder, each once, and what cannot be listed."""
    unread: list[str] = []
    visited_folders: set[str] = set()
    file_by_content: dict[str, Path] = {}

    def note(error: OSError) -> None:
        unread.append(f"{error.filename}: {error.strerror}")

    for parent, subfolders, names in os.walk(folder, followlinks=True, onerror=note):
        real_parent = os.path.realpath(parent)
        if real_parent in visited_folders:  # reached by a link before
            subfolders.clear()
            continue
        visited_folders.add(real_parent)
        # The walk goes on into what this list then holds.
        subfolders[:] = sorted(name for name in subfolders if not _is_skipped(Path(parent, name)))
        for name in sorted(names):
            file = Path(parent, name)
            if not file.exists():
                unread.append(f"{name}: a link to nothing")
            elif not file.is_file():
                unread.append(f"{name}: not a regular file")
            else:
                # The hub's cache has each file twice: under its digest, and as a link to that.
                _add_once(file, file_by_content)
    return sorted(file_by_content.values()), unread


def _add_once(file: Path, file_by_content: dict[str, Path]) -> None:
    """Add a file; a hub's cache has each twice: under its digest, and as a link with its name."""
    content = os.path.realpath(file)
    previous = file_by_content.setdefault(content, file)
    if file.suffix and not previous.suffix:
        file_by_content[content] = file


def _is_skipped(folder: Path) -> bool:
    """Return whether a folder is of programs; ``.cache`` is if the hub's client made it."""
    if folder.name == ".cache":
        return (folder / "huggingface/download").is_dir()
    return folder.name in _SKIPPED


def _missing_parts(files: Iterable[Path]) -> list[str]:
    """Return the parts of data sets that are not there, as ``a-00001-of-00003.parquet``."""
    numbers_by_series: dict[_Series, set[int]] = {}
    for file in files:
        match = _NUMBERED_PART.fullmatch(file.name)
        # Such as train-00001-of-00003.parquet, one of a series of three.
        if match is not None:
            series = _Series(file.parent, match["start"], match["count"], match["end"])
            numbers_by_series.setdefault(series, set()).add(int(match["number"]))
    missing_parts: list[str] = []
    for series, numbers in numbers_by_series.items():
        for number in series.missing(numbers)[:_MOST_NAMED]:
            name = f"{series.start}{number:05}-of-{series.count}{series.end}"
            missing_parts.append(f"{name}: not there")
    return missing_parts


@dataclass(frozen=True)
class _Series:
    """A data set in numbered files of a folder, by the parts of their names that are equal."""

    folder: Path
    start: str  # such as ``train-``
    count: str  # such as ``00003``
    end: str  # such as ``.parquet``

    def missing(self, numbers: set[int]) -> list[int]:
        """Return the numbers that are not there; some series count from 1."""
        count = int(self.count)
        first_number = 0
        if count in numbers:
            first_number = 1
        return sorted(set(range(first_number, first_number + count)) - numbers)


def source_texts(source: Source, data: TrainingData) -> Iterator[tuple[int, str]]:
    """Yield the texts of a source with the number of their line or row, and count them.

    Raises:
        DataError: it cannot be read, has rows but no text, or is too large; names the place.
    """
    limits = _SizeLimits(source)
    notes_before = data.without_text.total()
    rows_read = 0
    strings_read = 0
    previous_number = 0
    for number, value in source.values(data.without_text):
        is_new_row = number != previous_number  # a row may have several values
        if is_new_row:
            rows_read += 1
            previous_number = number
        for text in strings_of(value, data.without_text):
            limits.add(text, number)
            strings_read += 1
            if text.strip():
                data.texts += 1
            yield number, text
            # As one may also read it: without markup, or with words joined that a line end breaks.
            for reading in other_readings(text):
                yield number, reading
        for words in lists_of_words(value):  # one text of each list
            yield number, words
    if rows_read > 0 and strings_read == 0:
        raise DataError(
            f"{source.place}: {rows_read:,} rows without a text; if they are numbers of tokens, "
            "give the texts"
        )
    # Nothing was read, and nothing was found that cannot be read: the source is empty.
    has_noted_nothing = data.without_text.total() == notes_before
    if rows_read == 0 and has_noted_nothing:
        data.without_text[EMPTY] += 1
    data.rows += rows_read


class _SizeLimits:
    """Refuses a text, or all texts of a source, of more characters than the limits."""

    def __init__(self, source: Source) -> None:
        self._place = source.place
        self._longest_text = rows.size_limit(LINE)
        self._all_texts: int | None = None
        if source.byte_limit is not None:
            self._all_texts = rows.size_limit(source.byte_limit)
        self._size = 0

    def add(self, text: str, number: int) -> None:
        """Count a text of the line or row with this number."""
        if len(text) > self._longest_text:
            limit = rows.raised_limit(self._longest_text)
            raise DataError(f"{self._place}:{number}: a text of more than {limit}")
        self._size += len(text)
        if self._all_texts is not None and self._size > self._all_texts:
            limit = rows.raised_limit(self._all_texts)
            raise DataError(f"{self._place}:{number}: unpacks to more than {limit}")
