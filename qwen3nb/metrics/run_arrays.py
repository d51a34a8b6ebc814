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
        return dict(zip(self._named(self.documents[part]), self.scores[part].tolist(), strict=True))

    def __iter__(self) -> Iterator[str]:
        return iter(self.queries)

    def __len__(self) -> int:
        return len(self.queries)

    def __contains__(self, query: object) -> bool:
        return query in self._rows

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {query: row for row, query in enumerate(self.queries)}

    def _named(self, documents: NDArray[np.int32]) -> list[str]:
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
        return self._named(self.documents[self.part(query)])

    def ranked(self, query: str, depth: int | None = None) -> list[str]:
        """Return the first ``depth`` documents of ``query``, sorted as by `rank_documents`.

        Raises:
            ValueError: a score is NaN or infinite; names the document.
        """
        part = self.part(query)
        documents, scores = self.documents[part], self.scores[part]
        finite = np.isfinite(scores)
        if not finite.all():
            row = int(finite.argmin())
            name, score = self.names[documents[row]], float(scores[row])
            raise ValueError(f"document {name!r}: expected a finite score; got {score}")
        with np.errstate(over="ignore"):
            order = np.lexsort((documents, scores.astype(np.float32)))
        return self._named(documents[order[::-1][:depth]])

    def by_name(self) -> Self:
        """Return the run with the documents of each query in ascending order of ids."""
        order = np.empty(len(self.documents), dtype=np.int64)
        for start, stop in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            order[start:stop] = start + np.argsort(self.documents[start:stop])
        return replace(self, documents=self.documents[order], scores=self.scores[order])

    def of_queries(self, queries: Iterable[str]) -> Self:
        """Return the run of ``queries``, in their order; missing queries have no documents."""
        selected = tuple(queries)
        if selected == self.queries:
            return self
        parts = []
        for query in selected:
            part = slice(0, 0)
            if query in self:
                part = self.part(query)
            parts.append(part)
        rows = np.concatenate(
            [np.empty(0, np.int64), *(np.arange(part.start, part.stop) for part in parts)]
        )
        return replace(
            self,
            queries=selected,
            offsets=_ends([part.stop - part.start for part in parts]),
            documents=self.documents[rows],
            scores=self.scores[rows],
        )


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
        self._rows.extend(_numbers(queries, self._queries))
        self._extend(documents, scores)

    def _extend(self, documents: Collection[str], scores: Iterable[float]) -> None:
        self._documents.extend(_numbers(documents, self._names))
        self._scores.extend(scores)

    def run(self) -> RunArrays:
        """Return the run, with queries in the order in which they were added."""
        rows = np.frombuffer(self._rows, dtype=np.int32)
        documents = np.frombuffer(self._documents, dtype=np.int32)
        scores = np.frombuffer(self._scores, dtype=np.float64)
        names = tuple(sorted(self._names))
        numbers = [self._names[name] for name in names]
        positions = np.empty(len(names), dtype=np.int32)
        positions[numbers] = np.arange(len(names), dtype=np.int32)
        return RunArrays(
            tuple(self._queries),
            _ends(np.bincount(rows, minlength=len(self._queries))),
            names,
            positions[self.in_order(documents)],
            self.in_order(scores),
        )

    def in_order(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a value per added row (N,) in the order of the run."""
        rows = np.frombuffer(self._rows, dtype=np.int32)
        if np.all(rows[1:] >= rows[:-1]):
            return values
        return values[np.argsort(rows, kind="stable")]


def _numbers(names: Collection[str], numbers: dict[str, int]) -> Iterator[int]:
    """Yield the number of each name; a new name gets the next number."""
    for name in dict.fromkeys(names):
        numbers.setdefault(name, len(numbers))
    return map(numbers.__getitem__, names)


def _ends(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the start offsets of parts of these lengths, and the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
