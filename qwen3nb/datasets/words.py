"""Read word pairs with similarity scores, and analogies, from a mirror or a file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from qwen3nb.datasets.mirror import mirrored
from qwen3nb.datasets.rows import DataError, json_rows, open_text, variant

__all__ = ["Analogy", "WordPair", "load_analogies", "load_word_pairs", "mirrored_words"]

_FIELDS: dict[str, type | tuple[type, ...]] = {
    "sentence1": str,
    "sentence2": str,
    "score": (int, float),
}
WordPair = tuple[str, str, float]
Analogy = tuple[str, str, str, str]


def mirrored_words() -> list[Path]:
    """Return the folders of WordSim-353 and SimLex-999 in the mirror."""
    names = ("wordsim353", "wordsim353-sim", "wordsim353-rel", "simlex999")
    folders = [mirrored(f"local/{name}") for name in names]
    return [folder for folder in folders if folder is not None]


def load_word_pairs(path: Path | str) -> list[WordPair]:
    """Read two words and a gold score per row, in order, with duplicates.

    If the score in the first line of a CSV file is not a number, the line is a header.

    Args:
        path: a JSONL or CSV file, or a folder with ``test.jsonl`` or ``test.csv``.

    Raises:
        DataError: no such file, no rows, or a malformed row.
    """
    path = Path(path).expanduser()
    file = variant(path, "test.jsonl", "test.csv") if path.is_dir() else path
    if file is None or not file.is_file():
        raise DataError(f"{path}: expected a file, or a folder with test.jsonl or test.csv")
    if ".jsonl" in file.name:
        pairs = [(a, b, float(score)) for a, b, score in json_rows(file, _FIELDS)]
    else:
        pairs = list(_csv_pairs(file))
    if not pairs:
        raise DataError(f"{file}: no word pairs")
    for row, (first, second, score) in enumerate(pairs, start=1):
        if not first.strip() or not second.strip() or not math.isfinite(score):
            raise DataError(
                f"{file}: pair {row}: expected two words and a finite score, "
                f"got {first!r}, {second!r}, {score}"
            )
    return pairs


def load_analogies(file: Path | str) -> list[Analogy]:
    """Read questions (a, b, c, d), one per line, as in Google's ``questions-words.txt``.

    Raises:
        DataError: no questions, or a line without exactly four words.
    """
    file = Path(file).expanduser()
    analogies: list[Analogy] = []
    with open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words or words[0].startswith(":"):
                continue
            if len(words) != 4:
                raise DataError(f"{file}:{number}: expected four words; got {len(words)}")
            analogies.append((words[0], words[1], words[2], words[3]))
    if not analogies:
        raise DataError(f"{file}: no questions")
    return analogies


def _csv_pairs(file: Path) -> Iterator[WordPair]:
    delimiter = "\t" if ".tsv" in file.name else ","
    with open_text(file) as lines:
        rows = csv.reader(lines, delimiter=delimiter)
        for number, row in enumerate(rows, start=1):
            if not row:
                continue
            if len(row) != 3:
                raise DataError(f"{file}:{number}: {len(row)} fields, expected word, word, score")
            try:
                yield row[0].strip(), row[1].strip(), float(row[2])
            except ValueError:
                if number > 1:
                    raise DataError(
                        f"{file}:{number}: expected a number as score; got {row[2]!r}"
                    ) from None
