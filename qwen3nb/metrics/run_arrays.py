"""Runs as arrays: 7 million scores take 84 MB plus ids; as dictionaries, 2 GB.

Shapes: Q queries, N scores of all queries, one query after the other.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, repr=False)
class RunArrays(Mapping[str, Mapping[str, float]]):
    """A run as a mapping of query id to a dictionary of scores, created on access."""

    queries: tuple[str, ...]  # ids of the Q queries
    offsets: NDArray[np.int64]  # start of the scores of each query, then N (Q + 1,)
    names: tuple[str, ...]  # ids of documents, ascending; runs of the same documents share them
    documents: NDArray[np.int32]  # positions in ``names`` (N,)
    scores: NDArray[np.float64]  # (N,)

    def __repr__(self) -> str:
        return f"<run of {len(self):,} queries, {len(self.scores):,} scores>"

    def __getitem__(self, query: str) -> dict[str, float]:
        part = self.part(query)
        return dict(
            zip(self._names_of(self.documents[part]), self.scores[part].tolist(), strict=True)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.queries)

    def __len__(self) -> int:
        return len(self.queries)

    def __contains__(self, query: object) -> bool:
        return query in self._rows

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {query: row for row, query in enumerate(self.queries)}

    def _names_of(self, documents: NDArray[np.int32]) -> list[str]:
        return [self.names[position] for position in documents.tolist()]

    def part(self, query: str) -> slice:
        """Return the slice of the documents and scores of ``query``.

        Raises:
            KeyError: the run lacks the query.
        """
        row = self._rows[query]
        return slice(int(self.offsets[row]), int(self.offsets[row + 1]))

    def listed(self, query: str) -> list[str]:
        """Return the documents of ``query``, in the order of the arrays."""
        return self._names_of(self.documents[self.part(query)])

    def ranked(self, query: str, depth: int | None = None) -> list[str]:
        """Return the first ``depth`` documents of ``query``, sorted as by `rank_documents`.

        Raises:
            ValueError: a score is NaN or infinite; names the document.
        """
        part = self.part(query)
        documents, scores = self.documents[part], self.scores[part]
        self._check_finite(documents, scores)
        with np.errstate(over="ignore"):  # beyond 32 bits, a score is infinite
            rounded_scores = scores.astype(np.float32)
        # By the last key first: score, then document.
        ascending_rows = np.lexsort((documents, rounded_scores))
        best_first = ascending_rows[::-1]
        return self._names_of(documents[best_first[:depth]])

    def _check_finite(self, documents: NDArray[np.int32], scores: NDArray[np.float64]) -> None:
        is_finite = np.isfinite(scores)
        if is_finite.all():
            return
        first_bad = int(is_finite.argmin())
        name = self.names[documents[first_bad]]
        score = float(scores[first_bad])
        raise ValueError(f"document {name!r}: expected a finite score; got {score}")

    def by_name(self) -> Self:
        """Return the run with the documents of each query in ascending order of ids."""
        order = np.empty(len(self.documents), dtype=np.int64)
        for start, stop in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            order[start:stop] = start + np.argsort(self.documents[start:stop])
        return replace(self, documents=self.documents[order], scores=self.scores[order])

    def of_queries(self, queries: Iterable[str]) -> Self:
        """Return the run of ``queries``, in their order; missing queries have no documents."""
        chosen_queries = tuple(queries)
        if chosen_queries == self.queries:
            return self
        rows_of_queries = [self._rows_of(query) for query in chosen_queries]
        # The empty array is for no query at all, of which nothing could be joined.
        rows = np.concatenate([np.empty(0, np.int64), *rows_of_queries])
        return replace(
            self,
            queries=chosen_queries,
            offsets=_offsets([len(rows) for rows in rows_of_queries]),
            documents=self.documents[rows],
            scores=self.scores[rows],
        )

    def _rows_of(self, query: str) -> NDArray[np.int64]:
        """Return the rows of the documents and scores of a query; none if it is missing."""
        if query not in self:
            return np.empty(0, np.int64)
        part = self.part(query)
        return np.arange(part.start, part.stop)


class RunBuilder:
    """Collects scores, query by query or in rows, and returns them as `RunArrays`."""

    def __init__(self) -> None:
        self._queries: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._rows = array("i")
        self._documents = array("i")
        self._scores = array("d")

    def add(self, query: str, scores: Mapping[str, float]) -> None:
        """Add the documents of one query; there may be none."""
        row = self._queries.setdefault(query, len(self._queries))
        self._rows.extend(repeat(row, len(scores)))
        self._extend(scores, scores.values())

    def add_rows(
        self, queries: Sequence[str], documents: Sequence[str], scores: Iterable[float]
    ) -> None:
        """Add query, document and score of each row; queries may come in any order."""
        self._rows.extend(_number_names(queries, self._queries))
        self._extend(documents, scores)

    def _extend(self, documents: Collection[str], scores: Iterable[float]) -> None:
        self._documents.extend(_number_names(documents, self._names))
        self._scores.extend(scores)

    def run(self) -> RunArrays:
        """Return the run, with queries in the order in which they were added."""
        rows = np.frombuffer(self._rows, dtype=np.int32)
        documents = np.frombuffer(self._documents, dtype=np.int32)
        scores = np.frombuffer(self._scores, dtype=np.float64)
        # Documents were numbered as they came; in a run, they are numbered by name.
        names = tuple(sorted(self._names))
        numbers = [self._names[name] for name in names]
        # The inverse of `numbers`: the place of each document among the sorted names.
        position_of_number = np.empty(len(names), dtype=np.int32)
        position_of_number[numbers] = np.arange(len(names), dtype=np.int32)
        lengths = np.bincount(rows, minlength=len(self._queries))  # documents of each query
        return RunArrays(
            queries=tuple(self._queries),
            offsets=_offsets(lengths),
            names=names,
            documents=position_of_number[self.in_order(documents)],
            scores=self.in_order(scores),
        )

    def in_order(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a value per added row (N,) in the order of the run."""
        rows = np.frombuffer(self._rows, dtype=np.int32)
        is_in_order = np.all(rows[1:] >= rows[:-1])
        if is_in_order:
            return values
        return values[np.argsort(rows, kind="stable")]


def _number_names(names: Collection[str], numbers: dict[str, int]) -> Iterator[int]:
    """Yield the number of each name; a new name gets the next number."""
    for name in dict.fromkeys(names):
        numbers.setdefault(name, len(numbers))
    return map(numbers.__getitem__, names)


def _offsets(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the start offsets of parts of these lengths, and the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
