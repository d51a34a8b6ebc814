"""Labelled texts from PyDocs, for classifiers: which library, and which words are code.

Both sets of labels are by the authors of the documentation, and neither was made for this purpose:

- `library_texts`: the first sentence about a function, labelled by the library that it is in.
- `marked_code`: the start of a description, with a label for each word. A word is code if its
  author put it in backticks, which are removed. Authors do not mark every word of code, so the
  best possible score is below 1.

Like PyDocs, the texts are built from the installed libraries. Their licences apply: the PSF licence
for Python, and BSD licences for numpy, scipy, pandas and scikit-learn.

Libraries repeat their phrases, so a training text may be much like a test text. No text occurs
twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from qwen3nb.datasets.pydocs.build import Entry, PyDocs

Label: TypeAlias = str | tuple[str, ...]  # of a text, or one for each of its words

LIBRARIES = (
    "numpy",
    "numpy.polynomial",
    "python",
    "scipy.signal",
    "scipy.special",
    "scipy.stats",
)
CODE, OTHER = "code", "other"
WORD_LABELS = (OTHER, CODE)
LONGEST = 40  # words of a text with a label for each word
# Code between double or single backticks, after a role such as :func: or without one.
_CODE = re.compile(r"(?::[\w:]+:)?(?:``(.+?)``|`([^`]+)`)")
# What backticks also mark: formulas, sections and links.
_NO_CODE = re.compile(r":math:|:ref:|\.\. math|`_")


@dataclass(frozen=True)
class LabelledTexts:
    """Texts, and the label of each; or for each text a label per word, separated by blanks.

    Raises:
        ValueError: not one label per text, or not one per word.
    """

    texts: tuple[str, ...]
    labels: tuple[Label, ...]

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.labels):
            raise ValueError(
                f"expected one label per text; got {len(self.texts)} texts and "
                f"{len(self.labels)} labels"
            )
        for text, label in zip(self.texts, self.labels, strict=True):
            words = len(text.split())
            if not isinstance(label, str) and len(label) != words:
                raise ValueError(
                    f"expected a label per word; got {len(label)} for the {words} words of "
                    f"{text!r:.60}"
                )

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def names(self) -> tuple[str, ...]:
        """The distinct labels, sorted."""
        distinct: set[str] = set()
        for label in self.labels:
            distinct.update((label,) if isinstance(label, str) else label)
        return tuple(sorted(distinct))

    def first(self, count: int) -> LabelledTexts:
        """Return the first texts."""
        return LabelledTexts(self.texts[:count], self.labels[:count])

    def at(self, rows: Iterable[int]) -> LabelledTexts:
        """Return the texts at these positions."""
        positions = list(rows)
        texts = tuple(self.texts[row] for row in positions)
        return LabelledTexts(texts, tuple(self.labels[row] for row in positions))


@dataclass(frozen=True)
class Draws:
    """Several draws of texts to learn from, and texts to test on; no text is in two of them."""

    training: tuple[LabelledTexts, ...]
    test: LabelledTexts


def draw(
    labelled: LabelledTexts, *, draws: int = 5, size: int = 200, test: int = 300, seed: int = 0
) -> Draws:
    """Draw ``test`` texts to test on, and ``draws`` times ``size`` others to learn from, at random.

    Raises:
        ValueError: fewer texts than that, or a number below 1.
    """
    if min(draws, size, test) < 1:
        raise ValueError(
            f"expected at least one draw of one text, and one test text; got {draws} draws of "
            f"{size} texts and {test} test texts"
        )
    required = draws * size + test
    if len(labelled) < required:
        raise ValueError(
            f"{draws} draws of {size} texts and {test} test texts take {required:,} labelled "
            f"texts; got {len(labelled):,}. Use fewer draws or smaller ones"
        )
    order = np.random.default_rng(seed).permutation(len(labelled)).tolist()
    training = []
    for start in range(test, required, size):
        training.append(labelled.at(order[start : start + size]))
    return Draws(tuple(training), labelled.at(order[:test]))


def library_texts(pydocs: PyDocs, *, libraries: Sequence[str] = LIBRARIES) -> LabelledTexts:
    """Return the first sentences about the functions of these libraries, labelled by library."""
    libraries_by_text: dict[str, str] = {}
    named = set(pydocs.query_names)
    for entry in _in_order(pydocs):
        if entry.name in named and entry.label in libraries:
            libraries_by_text.setdefault(entry.summary, entry.label)
    return LabelledTexts(tuple(libraries_by_text), tuple(libraries_by_text.values()))


def marked_code(pydocs: PyDocs, *, longest: int = LONGEST) -> LabelledTexts:
    """Return the first words of descriptions, each labelled ``code`` or ``other``.

    Only descriptions whose first ``longest`` words have both labels are taken.
    """
    labels_by_text: dict[str, tuple[str, ...]] = {}
    for entry in _in_order(pydocs):
        if _NO_CODE.search(entry.text):
            continue
        words, labels = words_with_labels(entry.text)
        first_labels = labels[:longest]
        if set(first_labels) == set(WORD_LABELS):
            labels_by_text.setdefault(" ".join(words[:longest]), first_labels)
    return LabelledTexts(tuple(labels_by_text), tuple(labels_by_text.values()))


def words_with_labels(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a text without its backticks, and whether each was between them.

    A word is code if any part of it is, such as ``axis,``.

    >>> words_with_labels("Sum along `axis`, see :func:`numpy.sum` or ``a + b``.")[0]
    ('Sum', 'along', 'axis,', 'see', 'numpy.sum', 'or', 'a', '+', 'b.')
    >>> words_with_labels("Sum along `axis`, or not.")[1]
    ('other', 'other', 'code', 'other', 'other')
    """
    parts: list[str] = []
    is_code: list[bool] = []  # of each character
    end = 0
    for match in _CODE.finditer(text):
        marked = match[1] or match[2]
        before = text[end : match.start()]
        parts += [before, marked]
        is_code += [False] * len(before) + [True] * len(marked)
        end = match.end()
    parts.append(text[end:])
    is_code += [False] * len(text[end:])
    plain_text = "".join(parts)
    words, labels = [], []
    for word in re.finditer(r"\S+", plain_text):
        words.append(word[0])
        labels.append(CODE if any(is_code[word.start() : word.end()]) else OTHER)
    return tuple(words), tuple(labels)


def _in_order(pydocs: PyDocs) -> list[Entry]:
    return sorted(pydocs.entries, key=lambda entry: entry.name)
