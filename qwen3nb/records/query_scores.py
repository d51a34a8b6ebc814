"""The scores of a record's queries, loaded when they are needed.

They are stored beside the record (`qwen3nb.records.side_files`): a row per query with its id in
``query_id``, and a column of 64-bit floats per metric, null where the query has no score.

    >>> QueryScores.of({"nDCG@10": {"a": 0.5, "b": 1.0}, "MRR@10": {"b": 1.0}})
    <QueryScores: 2 queries; columns nDCG@10, MRR@10>
    >>> QueryScores.of({"nDCG@10": {"a": 0.5, "b": 1.0}}).array("nDCG@10")
    array([0.5, 1. ])
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from qwen3nb.metrics.intervals import Array
from qwen3nb.records.errors import ResultError
from qwen3nb.records.side_files import QUERY_ID, SideFile, encode_table, string_column

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["QueryColumn", "QueryScores", "StoredScores"]

_RECENT = 1024  # columns that stay in memory: 57 MB of 6,980 queries each


_WRONG_IDS = (
    "{}: its query ids are not those that its record names: one of them was changed after it was "
    "written. Restore both, or run the task again with --fresh"
)


class _Queries:
    """Query ids in the order of the rows; equal ids of several records are one object."""

    def __init__(self, ids: tuple[str, ...]) -> None:
        self.ids = ids

    @cached_property
    def rows(self) -> dict[str, int]:
        return {query: row for row, query in enumerate(self.ids)}

    @cached_property
    def order(self) -> npt.NDArray[np.intp]:
        return np.array(sorted(range(len(self.ids)), key=self.ids.__getitem__), np.intp)

    @cached_property
    def ordered(self) -> list[str]:
        return sorted(self.ids)

    def of_part(self, part: str) -> npt.NDArray[np.intp]:
        """Rows of the queries whose id begins with ``part``, by id: neighbours in their order."""
        start = bisect_left(self.ordered, part)
        end = bisect_left(
            self.ordered, True, lo=start, key=lambda query: not query.startswith(part)
        )
        return self.order[start:end]


_known: WeakValueDictionary[str, _Queries] = WeakValueDictionary()  # by digest, while in use


def _digest(ids: Iterable[str]) -> str:
    """SHA-256 of ids, each preceded by its length."""
    text = "".join(f"{len(query)}:{query}" for query in ids)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _shared(ids: tuple[str, ...], digest: str) -> _Queries:
    queries = _Queries(ids)
    return _known.setdefault(digest, queries)


class QueryScores(Mapping[str, Mapping[str, float]]):
    """Column, then query id, to score; also as an array per column.

    Create one with `of`; that of a record is `Result.scores`.

    Attributes:
        ids: digest of the query ids and their order.
        counts: number of queries with a score, by column.
    """

    ids: str
    counts: Mapping[str, int]

    def __init__(self, queries: tuple[str, ...], arrays: Mapping[str, Array]) -> None:
        """Hold arrays of float64, a value per query, NaN for a query without one."""
        self.ids = _digest(queries)
        self._queries = _shared(queries, self.ids)
        self._arrays = {name: _read_only(array) for name, array in arrays.items()}
        self.counts = {name: _present(array) for name, array in self._arrays.items()}

    @classmethod
    def of(cls, scores: Mapping[str, Mapping[str, float]]) -> QueryScores:
        """Return the scores of ``scores``, itself if it is one already.

        Raises:
            ResultError: an id that is no string, or a value that no finite 64-bit float equals.
        """
        if isinstance(scores, QueryScores):
            return scores
        queries = tuple(dict.fromkeys(query for column in scores.values() for query in column))
        if wrong := [query for query in queries if not isinstance(query, str)]:
            raise ResultError(f"query ids: expected strings, got {_cut(wrong[0])}")
        rows = {query: row for row, query in enumerate(queries)}
        return cls(queries, {name: _filled(name, scores[name], rows) for name in scores})

    @property
    def queries(self) -> tuple[str, ...]:
        """All query ids, in the order of the arrays."""
        return self._queries.ids

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
        rows = self._queries.of_part(part)
        values = np.stack([self.array(column)[rows] for column in columns], axis=1)
        absent = np.isnan(values)
        for name, differs in zip(columns, (absent != absent[:, :1]).any(axis=0), strict=True):
            if differs:
                raise ValueError(f"columns {columns[0]!r} and {name!r} cover different queries")
        if absent.any():
            rows, values = rows[~absent[:, 0]], values[~absent[:, 0]]
        if not np.isfinite(values).all():
            query = self.queries[rows[np.argwhere(~np.isfinite(values))[0, 0]]]
            raise ValueError(f"query {query!r} has a value that is not finite")
        return values

    def row(self, query: str) -> int:
        """Return the place of a query in `queries`.

        Raises:
            KeyError: the query is not one of them.
        """
        return self._queries.rows[query]

    def __getitem__(self, column: str) -> QueryColumn:
        if column not in self.counts:
            raise KeyError(column)
        return QueryColumn(self, column)

    def __contains__(self, column: object) -> bool:
        return column in self.counts

    def __iter__(self) -> Iterator[str]:
        return iter(self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, QueryScores) and self.ids == other.ids:
            return self.counts == other.counts and all(
                np.array_equal(self.array(name), other.array(name), equal_nan=True) for name in self
            )
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # a mapping

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise TypeError(f"{self!r} is a mapping; for a DataFrame, use to_frame()")

    def __deepcopy__(self, memo: Any) -> QueryScores:
        return self  # nothing in it can change

    def __reduce__(self) -> tuple[Any, ...]:
        return QueryScores, (self.queries, {name: self.array(name) for name in self})

    def __repr__(self) -> str:
        """Number of queries, and the columns."""
        if not self:
            return "<QueryScores: none>"
        return f"<QueryScores: {self._size} queries; columns {', '.join(self)}>"

    @property
    def _size(self) -> int:
        return len(self.queries)

    def to_frame(self) -> pd.DataFrame:
        """Return a row per query, by its id, and a column per metric."""
        import pandas as pd

        columns = {name: self.array(name) for name in self}
        return pd.DataFrame(columns, index=list(self.queries))

    def plain(self) -> dict[str, dict[str, float]]:
        """Return everything as dictionaries."""
        return {name: dict(self[name].items()) for name in self}

    def entry(self, file: SideFile) -> dict[str, Any]:
        """Return what a record's JSON says of the scores in ``file``."""
        return {
            "file": file.name,
            "sha256": file.sha256,
            "queries": self._size,
            "ids": self.ids,
            "columns": dict(self.counts),
        }

    def encoded(self) -> bytes:
        """Return the scores as the bytes of a Parquet file.

        Raises:
            ResultError: a query id is not a string of valid Unicode, or a column has the name of
                the ids' column.
        """
        import pyarrow as pa

        if QUERY_ID in self:
            raise ResultError(
                f"a column of scores is called {QUERY_ID!r}, as is that of the query ids"
            )
        string_column(self, what="column")
        columns = {name: pa.array(self.array(name), from_pandas=True) for name in self}
        return encode_table({QUERY_ID: string_column(self.queries, what="query id")} | columns)


class StoredScores(QueryScores):
    """The scores in the file beside a record, read on first use."""

    def __init__(
        self, file: SideFile, *, ids: str, queries: int, columns: Mapping[str, int]
    ) -> None:
        """Name the file and what the record says of it; nothing is read."""
        self.file = file
        self.ids = ids
        self.counts = columns
        self._number = queries

    @classmethod
    def named(cls, record: Path, entry: dict[str, Any]) -> StoredScores:
        """Return the scores that an entry of a record's JSON names."""
        columns = {str(name): int(count) for name, count in entry["columns"].items()}
        return cls(
            SideFile.of(record, entry),
            ids=str(entry["ids"]),
            queries=int(entry["queries"]),
            columns=columns,
        )

    @cached_property
    def _queries(self) -> _Queries:  # type: ignore[override]  # read on first use
        return _known.get(self.ids) or _shared(_stored_ids(self.file, self.ids), self.ids)

    @property
    def _size(self) -> int:
        return self._number

    def array(self, column: str) -> Array:
        """Return a column in the order of `queries`, read-only; NaN for a query without a score.

        Raises:
            KeyError: there is no such column.
            ResultError: the file is missing, or not the one that the record was written with.
        """
        return _stored_column(self.file, column, rows=self._number, count=self.counts[column])

    def loaded(self) -> QueryScores:
        """Return all scores, held in memory, from one reading of the file.

        Raises:
            ResultError: as `array`, or the query ids are not those of the record.
        """
        ids, *columns = self.file.columns((QUERY_ID, *self.counts))
        arrays = {
            name: _checked(self.file, name, column.to_numpy(), rows=self._number, count=count)
            for (name, count), column in zip(self.counts.items(), columns, strict=True)
        }
        scores = QueryScores(tuple(ids.to_pylist()), arrays)
        if scores.ids != self.ids:
            raise ResultError(_WRONG_IDS.format(self.file.shown))
        return scores

    def encoded(self) -> bytes:
        """Return the bytes of the file."""
        return self.file.read()

    def __reduce__(self) -> tuple[Any, ...]:
        return _stored, (self.file, self.ids, self._number, dict(self.counts))


def _stored(file: SideFile, ids: str, queries: int, columns: dict[str, int]) -> StoredScores:
    return StoredScores(file, ids=ids, queries=queries, columns=columns)


@lru_cache(maxsize=_RECENT)
def _stored_column(file: SideFile, column: str, *, rows: int, count: int) -> Array:
    return _checked(file, column, file.column(column).to_numpy(), rows=rows, count=count)


def _checked(file: SideFile, column: str, values: Array, *, rows: int, count: int) -> Array:
    array = _read_only(values)
    if (len(array), _present(array)) != (rows, count):
        raise ResultError(
            f"{file.shown}: column {column!r} has {_present(array)} scores in {len(array)} rows; "
            f"its record says {count} in {rows}"
        )
    return array


def _stored_ids(file: SideFile, digest: str) -> tuple[str, ...]:
    ids = tuple(file.column(QUERY_ID).to_pylist())
    if _digest(ids) != digest:
        raise ResultError(_WRONG_IDS.format(file.shown))
    return ids


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _present(array: Array) -> int:
    return int(len(array) - np.isnan(array).sum())


def _filled(name: str, column: Mapping[str, float], rows: Mapping[str, int]) -> Array:
    """The values of a column, in their rows."""
    values = np.array([_number(value, name, query) for query, value in column.items()], float)
    if not np.isfinite(values).all():
        query = list(column)[int(np.argmin(np.isfinite(values)))]
        raise ResultError(f"column {name!r}: query {query!r} has a value that is not finite")
    array = np.full(len(rows), np.nan)
    array[[rows[query] for query in column]] = values
    return array


def _number(value: float, name: str, query: str) -> float:
    if type(value) is float:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if number != value:
        raise ResultError(
            f"column {name!r}: query {query!r} has the value {_cut(value)}; expected a 64-bit float"
        )
    return number


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


class QueryColumn(Mapping[str, float]):
    """Query id to score, of one column."""

    def __init__(self, scores: QueryScores, name: str) -> None:
        """Of the column ``name`` of ``scores``."""
        self._scores = scores
        self._name = name

    def __getitem__(self, query: str) -> float:
        value = float(self._scores.array(self._name)[self._scores.row(query)])
        if value != value:  # NaN: the query has no score in this column
            raise KeyError(query)
        return value

    def __iter__(self) -> Iterator[str]:
        queries = self._scores.queries
        if len(self) == len(queries):
            return iter(queries)
        present = ~np.isnan(self._scores.array(self._name))
        return (query for query, is_there in zip(queries, present, strict=True) if is_there)

    def __len__(self) -> int:
        return self._scores.counts[self._name]

    def items(self) -> ItemsView[str, float]:
        """Pairs of query and score, in the order of the queries."""
        return _Items(self)

    def values(self) -> ValuesView[float]:
        """Scores in the order of the queries."""
        return _Values(self)

    def scores(self) -> list[float]:
        """Return the scores of the queries that have one."""
        array = self._scores.array(self._name)
        return [float(value) for value in array[~np.isnan(array)]]

    def __array__(self, *_: Any, **__: Any) -> Array:
        # pandas would take any mapping but a dict for the list of its keys.
        raise TypeError(f"{self!r} is a mapping; pass dict(…) of it, or array({self._name!r})")

    def __repr__(self) -> str:
        return f"<QueryColumn {self._name}: {len(self)} queries>"


class _Items(ItemsView[str, float]):
    _mapping: QueryColumn

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return zip(self._mapping, self._mapping.scores(), strict=True)


class _Values(ValuesView[float]):
    _mapping: QueryColumn

    def __iter__(self) -> Iterator[float]:
        return iter(self._mapping.scores())
