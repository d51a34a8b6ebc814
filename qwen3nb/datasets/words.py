"""Read word pairs with similarity scores, and analogies, from a mirror or a file."""

from pathlib import Path

from qwen3nb.datasets.mirror import mirrored
from qwen3nb.datasets.rows import DataError, numbered_lines, scored_pairs, variant

WordPair = tuple[str, str, float]
Analogy = tuple[str, str, str, str]


def mirrored_words() -> list[Path]:
    """Return the folders of WordSim-353 and SimLex-999 in the mirror."""
    names = ("wordsim353", "wordsim353-sim", "wordsim353-rel", "simlex999")
    folders = [mirrored(f"local/{name}") for name in names]
    return [folder for folder in folders if folder is not None]


def load_word_pairs(path: Path | str) -> list[WordPair]:
    """Read two words and a gold score per row, in order, with duplicates.

    Args:
        path: a file as for `scored_pairs`, or a folder with ``test.jsonl`` or ``test.csv``.

    Raises:
        DataError: no such file, no rows, or a malformed row.
    """
    path = Path(path).expanduser()
    file = variant(path, "test.jsonl", "test.csv") if path.is_dir() else path
    if file is None or not file.is_file():
        raise DataError(f"{path}: expected a file, or a folder with test.jsonl or test.csv")
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
