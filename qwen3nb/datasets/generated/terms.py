"""How telling a word is in a collection, and which documents have all words of a query.

Words are those that BM25 reads (`qwen3nb.models.search.words`), in every script. A word of a text
has two forms: as it stands there, in small letters, and the stem by which it is counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qwen3nb.datasets.generated.languages import function_words, has_particle
from qwen3nb.datasets.generated.texts import clauses
from qwen3nb.models.search.words import Words, is_without_blanks
from qwen3nb.utils.progress import tqdm

if TYPE_CHECKING:
    from scipy.sparse import csc_array

_LONGEST_WORD = 40  # characters; what is longer is no word
_COMMON_SHARE = 0.1  # of documents, from which a word tells little
_LEAST_COMMON = 2  # documents that a telling word may stand in, in a small collection
LONGEST_PHRASE = 3  # words
_LONGEST_PACKED = 5  # the same in bigrams, of scripts without blanks: six letters


@dataclass(frozen=True)
class Token:
    """A word of a text."""

    text: str  # as it stands there, in small letters
    stem: str  # by which it is counted


@dataclass(frozen=True)
class Phrase:
    """Words that stand together in a document."""

    tokens: tuple[Token, ...]
    score: float  # how telling it is

    @property
    def text(self) -> str:
        """The words with blanks between them, where their script has blanks."""
        return joined(token.text for token in self.tokens)

    @property
    def stems(self) -> frozenset[str]:
        """The stems of its words."""
        return frozenset(token.stem for token in self.tokens)


def joined(words: Iterable[str]) -> str:
    """Return words as a text; bigrams of scripts without blanks overlap.

    >>> joined(["sort", "list"]), joined(["打印", "印机"])
    ('sort list', '打印机')
    """
    text = ""
    for word in words:
        is_packed = bool(text) and is_without_blanks(word) and is_without_blanks(text[-1])
        if not is_packed:
            text = f"{text} {word}".strip()
            continue
        for length in range(len(word) - 1, -1, -1):  # the longest overlap first
            if text.endswith(word[:length]):
                text += word[length:]
                break
    return text


class Terms:
    """The words of a collection, and how many documents have each."""

    def __init__(self, texts: Sequence[str], words: Words, *, show_progress: bool = False) -> None:
        self._words = words
        self._with_accents = replace(words, accents=True)
        self._stem = words.stem
        self.size = len(texts)
        stems_of_texts = []
        for text in tqdm(texts, desc="reading documents", disable=not show_progress):
            stems_of_texts.append([token.stem for token in self.tokens(text)])
        self._columns: dict[str, int] = {}
        for stems in stems_of_texts:
            for stem in stems:
                self._columns.setdefault(stem, len(self._columns))
        self._stems_of_texts = stems_of_texts

    def tokens(self, text: str) -> list[Token]:
        """Return the words of a text in their order, also those that say little."""
        plain = self._words.spaced(text).split()
        accented = plain
        if not text.isascii():
            accented = self._with_accents.spaced(text).split()
        if len(accented) != len(plain):
            accented = plain
        return [Token(shown, self._stem(word)) for shown, word in zip(accented, plain, strict=True)]

    @cached_property
    def counts(self) -> csc_array:
        """How often each text (N) has each stem (V), by column."""
        from scipy.sparse import csc_array

        rows: list[int] = []
        columns: list[int] = []
        values: list[int] = []
        for row, stems in enumerate(self._stems_of_texts):
            for stem, count in Counter(stems).items():
                rows.append(row)
                columns.append(self._columns[stem])
                values.append(count)
        shape = (self.size, len(self._columns))
        return csc_array((values, (rows, columns)), shape=shape)

    @cached_property
    def _frequencies(self) -> NDArray[np.int64]:
        """How many texts have each stem (V,)."""
        return np.diff(self.counts.indptr).astype(np.int64)

    def column(self, stem: str) -> int:
        """Return the column of a stem in `counts`.

        Raises:
            KeyError: no text has it.
        """
        return self._columns[stem]

    def frequency(self, stem: str) -> int:
        """Return how many texts have a stem."""
        column = self._columns.get(stem)
        return 0 if column is None else int(self._frequencies[column])

    def weight(self, stem: str) -> float:
        """Return the inverse document frequency of a stem: the logarithm of N / n."""
        return math.log((self.size + 1) / (self.frequency(stem) + 0.5))

    def is_common(self, token: Token, language: str) -> bool:
        """Return whether a word tells little.

        It is a function word of the language, no letters or too many, or is in a tenth of the
        texts.
        """
        is_name = any(map(str.isalpha, token.text)) and len(token.text) <= _LONGEST_WORD
        if not is_name or token.text in self._words.left_out:
            return True
        if token.text in function_words(language):
            return True
        if is_without_blanks(token.text) and has_particle(token.text, language):
            return True
        most = max(_LEAST_COMMON, _COMMON_SHARE * self.size)
        return self.frequency(token.stem) > most

    def row_counts(self, row: int) -> Mapping[str, int]:
        """Return how often a text has each of its stems."""
        return Counter(self._stems_of_texts[row])

    def rows_with(self, counts: Mapping[str, int]) -> NDArray[np.intp]:
        """Return the texts that have each stem at least so often."""
        matrix = self.counts
        rows: NDArray[np.intp] | None = None
        for stem in sorted(counts, key=self.frequency):  # the rarest first
            column = self._columns.get(stem)
            if column is None:
                return np.array([], dtype=np.intp)
            part = slice(matrix.indptr[column], matrix.indptr[column + 1])
            found = matrix.indices[part][matrix.data[part] >= counts[stem]]
            rows = found if rows is None else np.intersect1d(rows, found, assume_unique=True)
            if len(rows) == 0:
                break
        if rows is None:
            return np.arange(self.size)
        return np.asarray(rows, dtype=np.intp)


def key_phrases(sentences: Iterable[str], terms: Terms, *, row: int, language: str) -> list[Phrase]:
    """Return the phrases of a document, the most telling first; none shares a word with another.

    A phrase has up to three words that stand together, without one that tells little. Its score
    is the sum of tf-idf over its words, divided by the root of their number. Words that no other
    document has are left out if others remain: they would make a query trivial.

    Args:
        sentences: of the document.
        terms: of the collection.
        row: position of the document in it.
        language: of the document (ISO 639-3).
    """
    runs = [
        run
        for sentence in sentences
        for clause in clauses(sentence)
        for run in _telling_runs(terms.tokens(clause), terms, language)
    ]
    counts = terms.row_counts(row)
    shared_runs = [part for run in runs for part in _without_unique_words(run, terms)]
    phrases = _disjoint_phrases(shared_runs, terms, counts)
    if not phrases:
        phrases = _disjoint_phrases(runs, terms, counts)
    return phrases


def _telling_runs(tokens: Sequence[Token], terms: Terms, language: str) -> Iterator[list[Token]]:
    """Yield the longest runs of words that tell something."""
    run: list[Token] = []
    for position, token in enumerate(tokens):
        is_word = not terms.is_common(token, language)
        if is_word and not _overlaps_function_word(tokens, position, language):
            run.append(token)
            continue
        if run:
            yield run
        run = []
    if run:
        yield run


def _overlaps_function_word(tokens: Sequence[Token], position: int, language: str) -> bool:
    """Return whether a bigram shares a letter with a function word before or after it."""
    if not is_without_blanks(tokens[position].text):
        return False
    neighbours = tokens[max(position - 1, 0) : position + 2]
    return any(
        neighbour.text in function_words(language) and is_without_blanks(neighbour.text)
        for neighbour in neighbours
    )


def _without_unique_words(run: Sequence[Token], terms: Terms) -> Iterator[list[Token]]:
    """Yield the parts of a run between words that only one document has."""
    part: list[Token] = []
    for token in run:
        if terms.frequency(token.stem) > 1:
            part.append(token)
            continue
        if part:
            yield part
        part = []
    if part:
        yield part


def _disjoint_phrases(
    runs: Iterable[Sequence[Token]], terms: Terms, counts: Mapping[str, int]
) -> list[Phrase]:
    """Return the phrases of some runs, the most telling first; each word is in one of them."""
    phrases: dict[tuple[Token, ...], Phrase] = {}
    for run in runs:
        for tokens in _parts_of(run):
            if tokens in phrases:
                continue
            weights = [terms.weight(token.stem) * counts.get(token.stem, 1) for token in tokens]
            phrases[tokens] = Phrase(tokens, sum(weights) / math.sqrt(len(weights)))
    best_first = sorted(phrases.values(), key=lambda phrase: (-phrase.score, phrase.text))
    chosen: list[Phrase] = []
    used: set[str] = set()
    for phrase in best_first:
        has_repetition = len(phrase.stems) < len(phrase.tokens)
        if has_repetition or used & phrase.stems:
            continue
        chosen.append(phrase)
        used |= phrase.stems
    return chosen


def _parts_of(run: Sequence[Token]) -> Iterator[tuple[Token, ...]]:
    """Yield the words of a run that stand together, up to the longest phrase."""
    for first in range(len(run)):
        is_packed = is_without_blanks(run[first].text)
        longest = _LONGEST_PACKED if is_packed else LONGEST_PHRASE
        for end in range(first + 1, min(len(run), first + longest) + 1):
            yield tuple(run[first:end])
