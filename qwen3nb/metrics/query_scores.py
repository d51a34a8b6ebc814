"""The scores of every query, as an array per column.

>>> scores = QueryScores.of({"nDCG@10": {"a": 0.5, "b": 1.0}, "MRR@10": {"b": 1.0}})
>>> scores
<QueryScores: 2 queries; columns nDCG@10, MRR@10>
>>> scores.array("nDCG@10")
array([0.5, 1. ])
>>> scores["MRR@10"]
{'b': 1.0}
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from qwen3nb.metrics.intervals import Array
from qwen3nb.utils.imports import DataFrame
from qwen3nb.utils.schema import shortened

_RECENT_ROWS = 64  # sorted orders of queries that stay in memory
_RECENT_IDS = 256  # sets of query ids that stay in memory, about one per task


class SharedQueries:
    """Query ids by their digest, so that the records of a task share one tuple.

    At most ``size`` tuples are held; the oldest goes first.
    """

    def __init__(self, size: int = _RECENT_IDS) -> None:
        self._size = size
        self._queries: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._queries)

    def get(self, digest: str) -> tuple[str, ...] | None:
        """Return the queries of a digest; None if they are not held."""
        return self._queries.get(digest)

    def share(self, digest: str, queries: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tuple that is held for a digest; hold ``queries`` if there is none."""
        held_queries = self._queries.setdefault(digest, queries)
        while len(self._queries) > self._size:
            oldest = next(iter(self._queries))
            self._queries.pop(oldest, None)
        return held_queries


SHARED_QUERIES = SharedQueries()


def digest_of_queries(queries: Iterable[str]) -> str:
    """Return the SHA-256 of query ids, each preceded by its length."""
    text = "".join(f"{len(query)}:{query}" for query in queries)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=_RECENT_ROWS)
def sorted_rows(queries: tuple[str, ...]) -> npt.NDArray[np.intp]:
    """Return the rows of the queries, sorted by id."""
    return np.array(sorted(range(len(queries)), key=queries.__getitem__), np.intp)


def rows_of_parts(
    queries: tuple[str, ...], parts: Iterable[str]
) -> dict[str, npt.NDArray[np.intp]]:
    """Return the rows of the queries whose ids begin with each of some prefixes, sorted by id."""
    rows = sorted_rows(queries)
    rows_by_part = {}
    # Ids with the same beginning stand next to each other, as they are sorted.
    for part in parts:
        beginning = partial(_beginning, queries, len(part))
        first = bisect_left(rows, part, key=beginning)
        last = bisect_right(rows, part, key=beginning)
        rows_by_part[part] = rows[first:last]
    return rows_by_part


def _beginning(queries: tuple[str, ...], length: int, row: int) -> str:
    """Return the first letters of the id in a row."""
    return queries[row][:length]


class QueryScores(Mapping[str, Mapping[str, float]]):
    """Mapping of column, then query id, to score; also one array per column.

    Create with `of`, or see `qwen3nb.records.record.Result.scores`.
    """

    ids: str  # digest of the query ids and their order
    counts: Mapping[str, int]  # number of queries with a score, by column

    def __init__(
        self, queries: tuple[str, ...], arrays: Mapping[str, Array], *, ids: str = ""
    ) -> None:
        """Create from arrays of float64, one value per query, NaN for a missing score.

        ``ids`` is the digest of the queries, if it was computed before.
        """
        self.ids = ids or digest_of_queries(queries)
        # Records of one task have the same queries, of which one tuple is held.
        self._queries = SHARED_QUERIES.share(self.ids, queries)
        self._arrays = {name: read_only(array) for name, array in arrays.items()}
        self.counts = {
            name: int(np.count_nonzero(~np.isnan(array))) for name, array in arrays.items()
        }

    @classmethod
    def of(cls, scores: Mapping[str, Mapping[str, float]]) -> QueryScores:
        """Return ``scores`` as `QueryScores`; unchanged if it is one.

        Raises:
            ValueError: an id that is not a string, or a value that is not a finite number.
        """
        if isinstance(scores, QueryScores):
            return scores
        row_of_query: dict[str, int] = {}
        for column in scores.values():
            for query in column:
                if not isinstance(query, str):
                    raise ValueError(f"query ids: expected strings, got {shortened(query)}")
                row_of_query.setdefault(query, len(row_of_query))
        arrays = {}
        for name, column in scores.items():
            rows = [row_of_query[query] for query in column]
            array = np.full(len(row_of_query), np.nan)  # of a query that the column lacks
            array[rows] = _finite_values(name, column)
            arrays[name] = array
        return cls(tuple(row_of_query), arrays)

    @property
    def queries(self) -> tuple[str, ...]:
        """All query ids, in the order of the arrays."""
        return self._queries

    def array(self, column: str) -> Array:
        """Return a column in the order of `queries`, read-only; NaN for a query without a score.

        Raises:
            KeyError: there is no such column.
        """
        return self._arrays[column]

    def sample(self, columns: Sequence[str], part: str = "") -> Array:
        """Return the values (n, columns) of the queries whose id begins with ``part``, by id.

        Raises:
            KeyError: there is no such column.
            ValueError: columns that do not cover the same queries, or a value that is not finite.
        """
        (sample,) = self.samples(columns, (part,))
        return sample

    def samples(self, columns: Sequence[str], parts: Sequence[str]) -> list[Array]:
        """Return the values of several parts, each as `sample` does.

        Raises:
            KeyError, ValueError: as `sample`.
        """
        rows_by_part = rows_of_parts(self.queries, parts)
        values = np.stack([self.array(column) for column in columns], axis=1)
        return [self._scored(columns, values, rows_by_part[part]) for part in parts]

    def _scored(
        self, columns: Sequence[str], every_value: Array, rows: npt.NDArray[np.intp]
    ) -> Array:
        """Return the values (n, columns) of some rows, without those that have no score."""
        values = every_value[rows]
        is_missing = np.isnan(values)
        is_missing_in_first = is_missing[:, :1]  # (n, 1), compared with every column
        differs_from_first = (is_missing != is_missing_in_first).any(axis=0)  # by column
        if differs_from_first.any():
            differing_column = columns[int(differs_from_first.argmax())]  # the first that differs
            raise ValueError(
                f"columns {columns[0]!r} and {differing_column!r} cover different queries"
            )
        has_score = ~is_missing_in_first[:, 0]
        rows = rows[has_score]
        values = values[has_score]
        is_finite = np.isfinite(values).all(axis=1)
        if not is_finite.all():
            first_bad_row = rows[is_finite.argmin()]
            query = self.queries[first_bad_row]
            raise ValueError(f"query {query!r} has a value that is not finite")
        return values

    def __getitem__(self, column: str) -> dict[str, float]:
        """Return the scores of a column by query, in the order of `queries`."""
        array = self.array(column)
        rows = np.flatnonzero(~np.isnan(array)).tolist()
        queries = self.queries
        return {queries[row]: value for row, value in zip(rows, array[rows].tolist(), strict=True)}

    def __contains__(self, column: object) -> bool:
        return column in self.counts

    def __iter__(self) -> Iterator[str]:
        return iter(self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    def __array__(self, dtype: object = None, copy: object = None) -> Array:
        # pandas would mistake any mapping but a dict for the list of its keys.
        raise TypeError(f"{self!r} is a mapping; for a DataFrame, use to_frame()")

    def __repr__(self) -> str:
        """Number of queries, and the columns."""
        if not self:
            return "<QueryScores: none>"
        return f"<QueryScores: {len(self.queries)} queries; columns {', '.join(self)}>"

    def __sub__(self, other: QueryScores) -> DataFrame:
        """Return the differences as a data frame, paired by query; missing where one has none."""
        if not isinstance(other, QueryScores):
            return NotImplemented
        return self.to_frame() - other.to_frame()

    def to_frame(self) -> DataFrame:
        """Return a row per query, by its id, and a column per metric."""
        import pandas as pd

        columns = {name: self.array(name) for name in self}
        return pd.DataFrame(columns, index=list(self.queries))


def read_only(array: Array) -> Array:
    """Return a view of an array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _finite_values(name: str, column: Mapping[str, float]) -> Array:
    """Return the values of a column.

    Raises:
        ValueError: one is not a finite number; names its query.
    """
    try:
        values = np.array(list(column.values()), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {name!r}: expected numbers ({error})") from None
    is_finite = np.isfinite(values)
    if not is_finite.all():
        first_bad_row = int(is_finite.argmin())
        query = list(column)[first_bad_row]
        raise ValueError(
            f"column {name!r}: query {query!r} has the value {shortened(column[query])}; "
            "expected a finite 64-bit float"
        )
    return values
