"""The score of every document for the words of a query, in an index of bm25s.

An index lists, by word, the documents that have it and its score in each. bm25s adds these lists
entry by entry, in the order of the query. A word that more than an eighth of the documents have
gets a row instead, with a score for every document and 0 where the word is missing. Adding a row
takes as long as adding the entries of a twelfth of the documents, because it is one long loop.
Words are added in the same order, and adding 0 changes no bit, so that sums are those of bm25s.

Few documents can be among the best, and they are found without looking at all scores twice: of
groups of documents, the (k + 1)-th highest of the groups' best scores is a bound that at least
k + 1 documents reach.

Shapes: N documents, k documents to be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

ROWS_MEMORY = 2**28  # bytes of all rows, at most
_FREQUENT_SHARE = 1 / 8  # of the documents; a word that more have gets a row
_LARGEST_GROUP = 64  # documents
_GROUPS_PER_RESULT = 4  # at least, so that few of the best documents share a group


class IndexScores(TypedDict):
    """The scores of an index as bm25s stores them: a sparse matrix with a column per word."""

    data: Floats
    indices: NDArray[np.int32]
    indptr: Rows
    num_docs: int


class WordScores:
    """Sums the scores of words.

    Attributes:
        vocabulary: the number of each word.
    """

    def __init__(self, vocabulary: Mapping[str, int], index: IndexScores) -> None:
        self.vocabulary = vocabulary
        self._documents = index["num_docs"]
        self._starts = index["indptr"]
        # Of mapped files, plain views: slicing a `numpy.memmap` takes longer.
        self._scores = np.asarray(index["data"])
        self._positions = np.asarray(index["indices"])
        self._rows: dict[int, Floats] = {}

    def expand(self, words_of_texts: Iterable[Sequence[str]]) -> None:
        """Make the rows of frequent words of queries, the most frequent first."""
        words = {word for words in words_of_texts for word in words}
        numbers = {self.vocabulary[word] for word in words if word in self.vocabulary}
        counts = {number: self._count(number) for number in numbers - self._rows.keys()}
        most_rows = ROWS_MEMORY // (4 * max(1, self._documents))  # of 4 bytes per score
        for number in sorted(counts, key=lambda number: (-counts[number], number)):
            is_frequent = counts[number] > _FREQUENT_SHARE * self._documents
            if not is_frequent or len(self._rows) >= most_rows:
                return
            self._rows[number] = self._row(number)

    def add(self, words: Sequence[str], sums: Floats) -> Floats:
        """Set ``sums`` (N,) to those of the words; one that no document has counts for nothing."""
        sums.fill(0)
        for word in words:
            number = self.vocabulary.get(word)
            if number is None:
                continue
            row = self._rows.get(number)
            if row is None:
                places = self._places(number)
                np.add.at(sums, self._positions[places], self._scores[places])
            else:
                np.add(sums, row, out=sums)
        return sums

    def _row(self, number: int) -> Floats:
        """Return the score of a word in every document (N,)."""
        row = np.zeros(self._documents, dtype=np.float32)
        places = self._places(number)
        row[self._positions[places]] = self._scores[places]
        return row

    def _places(self, number: int) -> slice:
        """Return where the entries of a word stand."""
        return slice(int(self._starts[number]), int(self._starts[number + 1]))

    def _count(self, number: int) -> int:
        """Return how many documents have a word."""
        return int(self._starts[number + 1] - self._starts[number])


def found_rows(scores: Floats, k: int) -> Rows:
    """Return the documents that may be among the ``k`` best, in their order.

    They are all with a score above 0, or at least k + 1 of them, among which are the k best and
    all that tie with the k-th.

    Args:
        scores: of all documents (N,), none below 0.
        k: documents to be found.
    """
    bound = _score_reached(scores, k + 1)
    if bound > 0:
        return np.flatnonzero(scores >= bound)
    return np.flatnonzero(scores > 0)


def _score_reached(scores: Floats, count: int) -> float:
    """Return a score that at least ``count`` documents reach; 0 if none is easily found."""
    group_size = min(_LARGEST_GROUP, len(scores) // (_GROUPS_PER_RESULT * count))
    if group_size < 2:
        return 0.0
    groups = len(scores) // group_size
    # Each column is a group; the documents left over are in none.
    best_of_groups = scores[: group_size * groups].reshape(group_size, groups).max(axis=0)
    from_end = groups - count
    return float(np.partition(best_of_groups, from_end)[from_end])
