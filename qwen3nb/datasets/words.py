"""Word pairs with similarity scores, and analogies, from a mirror or a file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from qwen3nb.datasets.mirror import mirrored
from qwen3nb.datasets.rows import DataError, json_rows, open_text, variant

_FIELDS: dict[str, type | tuple[type, ...]] = {
    "sentence1": str,
    "sentence2": str,
    "score": (int, float),
}


Pair = tuple[str, str, float]


Analogy = tuple[str, str, str, str]


def mirrored_words() -> list[Path]:
    """The folders of word pairs that the mirror has: WordSim-353 and SimLex-999."""
    names = ("wordsim353", "wordsim353-sim", "wordsim353-rel", "simlex999")
    found = [mirrored(f"local/{name}") for name in names]
    return [folder for folder in found if folder is not None]


def load_word_pairs(place: Path | str) -> list[Pair]:
    """Two words and a gold score per row of a file, in its order, repetitions included.

    A first line of CSV whose score is no number is a header.

    Raises:
        DataError: no such file, no rows, or a row that is not what it should be.
    """
    folder = Path(place).expanduser()
    file = variant(folder, "test.jsonl", "test.csv") if folder.is_dir() else folder
    if file is None or not file.is_file():
        raise DataError(f"{folder}: no such file, nor a folder with test.jsonl or test.csv")
    if ".jsonl" in file.name:
        pairs = [(a, b, float(score)) for a, b, score in json_rows(file, _FIELDS)]
    else:
        pairs = list(_csv_pairs(file))
    if not pairs:
        raise DataError(f"{file}: no pairs of words")
    for row, (first, second, score) in enumerate(pairs, start=1):
        if not first.strip() or not second.strip() or not math.isfinite(score):
            raise DataError(f"{file}: pair {row} is {first!r}, {second!r}, {score}")
    return pairs


def load_analogies(file: Path | str) -> list[Analogy]:
    """Questions (a, b, c, d), four words a line, as in Google's ``questions-words.txt``.

    Raises:
        DataError: no questions, or a line that is not four words.
    """
    file = Path(file).expanduser()
    found: list[Analogy] = []
    with open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words or words[0].startswith(":"):
                continue
            if len(words) != 4:
                raise DataError(f"{file}:{number}: {len(words)} words, expected four")
            found.append((words[0], words[1], words[2], words[3]))
    if not found:
        raise DataError(f"{file}: no questions")
    return found


def _csv_pairs(file: Path) -> Iterator[Pair]:
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
                        f"{file}:{number}: score {row[2]!r}, expected a number"
                    ) from None
