"""Pairs of texts with a gold score, and analogies: files, and tables in memory.

A table of pairs has columns for the two texts and the score, by our names or by those of published
data sets (``FIRST``, ``SECOND`` and ``GOLD`` of `qwen3nb.datasets.in_memory`), among any others; or
it has these three columns only. WordSim-353, SimLex-999 and SICK are read as they are published.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from qwen3nb.datasets.in_memory import FIRST, GOLD, SECOND, find_column, is_table, table_rows
from qwen3nb.datasets.rows import (
    CONTROL,
    DataError,
    csv_rows,
    json_rows,
    listed,
    numbered_json_rows,
    numbered_lines,
    stated_number,
    variant,
)

WordPair = tuple[str, str, float]
Analogy = tuple[str, str, str, str]
_MEANINGS = (FIRST, SECOND, GOLD)
_NAMES = ("sentence1", "sentence2", "score")
_NUMBER = re.compile(r"\s*[-+]?(nan|inf|infinity|[0-9._e+-]+)\s*")  # as Python reads them
_FILES = ("test.jsonl", "test.csv", "test.tsv", "test.txt")
Cells = Sequence[Any]


def scored_pairs(source: Any, *, of: str) -> list[tuple[str, str, float]]:
    """Read two texts and their score from each row, in order.

    Args:
        source: a JSONL, CSV, TSV or tab-separated text file, plain or compressed; or a data frame
            or a list of dictionaries. The first line of a table whose columns have no known names
            is a header if its score is not a number.
        of: name of the texts in messages.

    Raises:
        DataError: no rows, or a malformed one; a score that is not a finite number; a text that is
            empty or has control characters.
    """
    where = of if is_table(source) or not isinstance(source, Path | str) else str(source)
    pairs: list[tuple[str, str, float]] = []
    for number, (first, second, gold) in _rows_of(source, of):
        score = stated_number(gold)
        if score is None:
            raise DataError(f"{where}:{number}: expected a number as score; got {gold!r:.60}")
        if not first.strip() or not second.strip():
            raise DataError(
                f"{where}:{number}: expected two {of}; got {first!r:.60}, {second!r:.60}"
            )
        if CONTROL.search(first + second):
            raise DataError(f"{where}:{number}: control characters in one of two {of}")
        pairs.append((first, second, score))
    if not pairs:
        raise DataError(f"{where}: no pairs of {of}")
    return pairs


def _rows_of(source: Any, of: str) -> Iterator[tuple[int, Cells]]:
    """Yield the number of each row, its two texts and its score, which is not checked yet."""
    if not isinstance(source, Path | str):
        yield from _rows_in_memory(source, of)
        return
    file = Path(source)
    if ".jsonl" in file.suffixes or ".ndjson" in file.suffixes:
        _, first = next(json_rows(file), (0, {}))
        texts = [_column(first, names) for names in (FIRST, SECOND)]
        gold = _column(first, GOLD)
        yield from numbered_json_rows(file, {**dict.fromkeys(texts, str), gold: (int, float)})
        return
    yield from _rows_of_table(file)


def _rows_in_memory(source: Any, of: str) -> Iterator[tuple[int, Cells]]:
    rows = table_rows(source, what=of)
    columns = dict.fromkeys(name for row in rows for name in row)
    used = [_column(columns, names) for names in _MEANINGS]
    for number, row in enumerate(rows, start=1):
        cells = [row.get(name) for name in used]
        if not all(isinstance(text, str) for text in cells[:2]):
            raise DataError(
                f"{of}:{number}: expected texts in {used[0]!r} and {used[1]!r}; got {row!r:.80}"
            )
        yield number, cells


def _column(columns: Iterable[str], names: Sequence[str]) -> str:
    """Return the column of one of these meanings, or our name of it, which is then missing."""
    return find_column(columns, names) or names[0]


def _rows_of_table(file: Path) -> Iterator[tuple[int, Cells]]:
    """Yield the rows of a file with separated columns."""
    rows = list(_separated(file))
    if not rows:
        return
    header = [name.strip() for name in rows[0][1]]
    used = [find_column(header, names) for names in _MEANINGS]
    if None not in used:
        positions = [header.index(str(name)) for name in used]
        for number, cells in rows[1:]:
            if len(cells) != len(header):
                raise DataError(f"{file}:{number}: {len(cells)} cells, expected {len(header)}")
            yield number, [cells[position].strip() for position in positions]
        return
    for number, cells in rows:
        if len(cells) != len(_NAMES):
            raise DataError(
                f"{file}:{number}: expected two texts and a score, or a header with "
                f"{', '.join(_NAMES)}; got {listed(cells)}"
            )
    is_header = not _NUMBER.fullmatch(rows[0][1][2].lower())
    for number, cells in rows[1:] if is_header else rows:
        yield number, [cell.strip() for cell in cells]


def _separated(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row that is not blank, separated by commas or tabs.

    In a text file, as in most published sets of word pairs, quotes are ordinary characters.
    """
    if not {".txt", ".tab"} & {*file.suffixes}:
        yield from csv_rows(file)
        return
    for number, line in numbered_lines(file):
        text = line.rstrip("\r\n")
        if text.strip():
            yield number, text.split("\t" if "\t" in text else ",")


def load_word_pairs(path: Any) -> list[WordPair]:
    """Read two words and a gold score per row, in order, with duplicates.

    Args:
        path: a file or a table as for `scored_pairs`, or a folder with ``test.jsonl``,
            ``test.csv``, ``test.tsv`` or ``test.txt``.

    Raises:
        DataError: no such file, no rows, or a malformed row.
    """
    if not isinstance(path, Path | str):
        return scored_pairs(path, of="words")
    path = Path(path).expanduser()
    file = variant(path, *_FILES) if path.is_dir() else path
    if file is None or not file.is_file():
        raise DataError(f"{path}: expected a file, or a folder with {' or '.join(_FILES)}")
    return scored_pairs(file, of="words")


def load_analogies(file: Path | str) -> list[Analogy]:
    """Read questions (a, b, c, d), one per line, as in Google's ``questions-words.txt``."""
    file = Path(file).expanduser()
    analogies: list[Analogy] = []
    for number, line in numbered_lines(file):
        words = line.split()
        if not words or words[0].startswith(":"):
            continue
        if len(words) != 4:
            raise DataError(f"{file}:{number}: expected four words; got {len(words)}")
        analogies.append((words[0], words[1], words[2], words[3]))
    if not analogies:
        raise DataError(f"{file}: no questions")
    return analogies
