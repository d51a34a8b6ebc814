"""Pairs of texts with a gold score, and analogies: files, and tables in memory.

A table of pairs has columns for the two texts and the score, by our names or by those of published
data sets (``FIRST``, ``SECOND`` and ``GOLD`` of `qwen3nb.datasets.in_memory`), among any others; or
it has these three columns only. WordSim-353, SimLex-999 and SICK are read as they are published.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from qwen3nb.datasets.custom.formats import (
    PlacedRow,
    RowRequest,
    SeparatedValues,
    find_format,
    rows_of_file,
)
from qwen3nb.datasets.in_memory import FIRST, GOLD, SECOND, find_column, is_table, table_rows
from qwen3nb.datasets.rows import (
    CONTROL,
    DataError,
    csv_rows,
    listed,
    numbered_lines,
    shown_value,
    stated_number,
    unicode_text,
    variant,
)

WordPair = tuple[str, str, float]
Analogy = tuple[str, str, str, str]
NumberedCells = tuple[int, list[str]]  # the number of a line, and its cells
_COLUMN_NAMES = ("sentence1", "sentence2", "score")
_NUMBER = re.compile(r"\s*[-+]?(nan|inf|infinity|[0-9._e+-]+)\s*")  # as Python reads them
_FILES = ("test.jsonl", "test.csv", "test.tsv", "test.txt")
_SUFFIXES_OF_PLAIN_TEXT = {".txt", ".tab"}  # in which quotes are ordinary characters
PlacedPair = tuple[str, tuple[str, str, object]]  # where a pair is, its two texts and its score


def scored_pairs(source: object, *, of: str) -> list[tuple[str, str, float]]:
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
    pairs: list[tuple[str, str, float]] = []
    # `of` is what messages call the texts, such as "words".
    for place, (first_text, second_text, gold) in _pairs_of(source, what=of):
        score = stated_number(gold)
        if score is None:
            raise DataError(f"{place}: expected a number as score; got {shown_value(gold)}")
        if not first_text.strip() or not second_text.strip():
            raise DataError(
                f"{place}: expected two {of}; got {shown_value(first_text)}, "
                f"{shown_value(second_text)}"
            )
        if not unicode_text(first_text + second_text):
            raise DataError(f"{place}: a lone surrogate in {first_text!r:.60}, {second_text!r:.60}")
        if CONTROL.search(first_text + second_text):
            raise DataError(f"{place}: control characters in one of two {of}")
        pairs.append((first_text, second_text, score))
    if not pairs:
        place = of
        if isinstance(source, Path | str) and not is_table(source):
            place = str(source)
        raise DataError(f"{place}: no pairs of {of}")
    return pairs


def _pairs_of(source: object, what: str) -> Iterator[PlacedPair]:
    """Yield the place of each pair, its texts and its score, which are not checked yet."""
    if not isinstance(source, Path | str):
        rows = enumerate(table_rows(source, what=what), start=1)
        yield from _pairs_of_rows([(f"{what}:{number}", row) for number, row in rows])
        return
    file = Path(source)
    file_format = find_format(file)
    # Separated cells may lack a header; other formats have names of columns.
    if file_format is None or isinstance(file_format, SeparatedValues):
        yield from _pairs_of_cells(file)
    else:
        yield from _pairs_of_rows(list(rows_of_file(file, RowRequest())))


def _pairs_of_rows(rows: Sequence[PlacedRow]) -> Iterator[PlacedPair]:
    """Yield the pairs of rows with named columns."""
    columns: dict[str, None] = {}  # of all rows, in their order
    for _, row in rows:
        columns.update(dict.fromkeys(row))
    first_column = _column_or_our_name(columns, FIRST)
    second_column = _column_or_our_name(columns, SECOND)
    gold_column = _column_or_our_name(columns, GOLD)
    for place, row in rows:
        first_text = row.get(first_column)
        second_text = row.get(second_column)
        if not isinstance(first_text, str) or not isinstance(second_text, str):
            raise DataError(
                f"{place}: expected texts in {first_column!r} and {second_column!r}; "
                f"got {shown_value(row)}"
            )
        yield place, (first_text, second_text, row.get(gold_column))


def _column_or_our_name(columns: Iterable[str], names: Sequence[str]) -> str:
    """Return the column with one of these names, or our name of it, which is then missing."""
    return find_column(columns, names) or names[0]


def _pairs_of_cells(file: Path) -> Iterator[PlacedPair]:
    """Yield the pairs of a file with separated columns, with or without a header."""
    lines = list(_separated(file))
    if not lines:
        return
    _, first_cells = lines[0]
    header = [cell.strip() for cell in first_cells]
    columns = [find_column(header, names) for names in (FIRST, SECOND, GOLD)]
    positions = [header.index(column) for column in columns if column is not None]
    if len(positions) == len(columns):  # the header names all three
        yield from _pairs_in_columns(file, lines, positions)
    else:
        yield from _pairs_in_three_columns(file, lines)


def _pairs_in_columns(
    file: Path,
    lines: Sequence[NumberedCells],
    positions: Sequence[int],
) -> Iterator[PlacedPair]:
    """Yield the pairs below a header: two texts and a score at these positions."""
    first_position, second_position, gold_position = positions
    # The first line, of which the number is not needed, is the header.
    (_, header), *lines_below = lines
    for number, cells in lines_below:
        place = f"{file}:{number}"
        if len(cells) != len(header):
            raise DataError(f"{place}: {len(cells)} cells, expected {len(header)}")
        first_text = cells[first_position].strip()
        second_text = cells[second_position].strip()
        yield place, (first_text, second_text, cells[gold_position].strip())


def _pairs_in_three_columns(file: Path, lines: Sequence[NumberedCells]) -> Iterator[PlacedPair]:
    """Yield two texts and a score of each line; the first line may be a header."""
    # All lines are checked before the first pair is yielded.
    for number, cells in lines:
        if len(cells) != len(_COLUMN_NAMES):
            raise DataError(
                f"{file}:{number}: expected two texts and a score, or a header with "
                f"{', '.join(_COLUMN_NAMES)}; got {listed(cells)}"
            )
    for position, (number, cells) in enumerate(lines):
        first_text, second_text, gold = (cell.strip() for cell in cells)
        is_header = position == 0 and not _NUMBER.fullmatch(gold.lower())
        if not is_header:
            yield f"{file}:{number}", (first_text, second_text, gold)


def _separated(file: Path) -> Iterator[NumberedCells]:
    """Yield the cells of each row that is not blank, separated by commas or tabs.

    In a text file, as in most published sets of word pairs, quotes are ordinary characters.
    """
    # In .txt and .tab files, quotes are characters like any other.
    has_quotes = _SUFFIXES_OF_PLAIN_TEXT.isdisjoint(file.suffixes)
    if has_quotes:
        yield from csv_rows(file)
        return
    for number, line in numbered_lines(file):
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        separator = ","
        if "\t" in text:
            separator = "\t"
        yield number, text.split(separator)


def load_word_pairs(path: object) -> list[WordPair]:
    """Read two words and a gold score per row, in order, with duplicates.

    Args:
        path: a file or a table as for `scored_pairs`, or a folder with ``test.jsonl``,
            ``test.csv``, ``test.tsv`` or ``test.txt``.

    Raises:
        DataError: no such file, no rows, or a malformed row.
    """
    if not isinstance(path, Path | str):
        return scored_pairs(path, of="words")
    place = Path(path).expanduser()
    file: Path | None = place
    if place.is_dir():
        file = variant(place, *_FILES)  # or compressed
    if file is None or not file.is_file():
        raise DataError(f"{place}: expected a file, or a folder with {' or '.join(_FILES)}")
    return scored_pairs(file, of="words")


def load_analogies(file: Path | str) -> list[Analogy]:
    """Read questions (a, b, c, d), one per line, as in Google's ``questions-words.txt``."""
    file = Path(file).expanduser()
    analogies: list[Analogy] = []
    for number, line in numbered_lines(file):
        words = line.split()
        if not words or words[0].startswith(":"):  # as in ": capital-common-countries"
            continue
        if len(words) != 4:
            raise DataError(f"{file}:{number}: expected four words; got {len(words)}")
        a, b, c, d = words  # as in "Athens Greece Oslo Norway"
        analogies.append((a, b, c, d))
    if not analogies:
        raise DataError(f"{file}: no questions")
    return analogies
