"""The files beside a record, in which it keeps what has a row per query.

    results/<label>-<identity>/seed_<n>/<task>.json
    results/<label>-<identity>/seed_<n>/<task>.<digest>.scores.parquet
    results/<label>-<identity>/seed_<n>/<task>.<digest>.top.parquet
    results/<label>-<identity>/seed_<n>/<task>.<digest>.trec     the run of a search or reranking
    results/<label>-<identity>/seed_<n>/<task>.<digest>.qrels    the judgements that score it
    results/first_stages/<task>-<digest>.trec                    a run that all rerankers share

The scores have a column of 64-bit floats per metric, null where the query has no score; the best
documents a list of ids, best first; both the queries' ids in ``query_id``. They are read when they
are needed.

A file's name holds the first digits of its SHA-256, and the record holds all of them. A record
is replaced in three steps, each atomic: the new files are written under names of their own, then
the JSON that names them replaces the old one, then the old files go. Whenever a process is
killed, the JSON on disk names the files it was written with.

    >>> QueryScores.of({"nDCG@10": {"a": 0.5, "b": 1.0}, "MRR@10": {"b": 1.0}})
    <QueryScores: 2 queries; columns nDCG@10, MRR@10>
    >>> QueryScores.of({"nDCG@10": {"a": 0.5, "b": 1.0}}).array("nDCG@10")
    array([0.5, 1. ])
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from qwen3nb import paths
from qwen3nb.metrics.intervals import Array
from qwen3nb.records.errors import ResultError
from qwen3nb.utils.atomic_files import read_json, write_bytes
from qwen3nb.utils.schema import Count, Name, Text, Unicode, shortened

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

_QUERY_ID, _DOCUMENTS = "query_id", "documents"  # columns: of both kinds, of the best documents
_DIGITS = 12  # of the SHA-256, in the file's name
_ABANDONED = 3600.0  # seconds after which a file that no record names is no one's work in progress
_RECENT = 1024  # columns that stay in memory: 57 MB of 6,980 queries each
_RECENT_TOP = 32  # tables of best documents that do: about 10 MB of 6,980 queries each
_STEM = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_END = rf"\.[0-9a-f]{{{_DIGITS}}}\.(scores|top)\.parquet"
_NAME = re.compile(_STEM + _END)
_RUN_END = rf"\.[0-9a-f]{{{_DIGITS}}}\.(trec|qrels)"
_RUN = re.compile(_STEM + r"\.(trec|qrels)")


@dataclass(frozen=True)
class SideEntry:
    """What a record's JSON says of a file beside it: its name, digest and number of rows."""

    file: Text
    sha256: Name
    queries: Count


@dataclass(frozen=True)
class ScoresEntry(SideEntry):
    """What it says of the scores."""

    ids: Name  # digest of the query ids and their order
    columns: dict[Unicode, Count]  # number of queries with a score, by column


@dataclass(frozen=True)
class SideFile:
    """A file beside a record: its path, and its digest as the record states it."""

    path: str
    sha256: str

    @classmethod
    def of(cls, record: Path, name: str, sha256: str) -> SideFile:
        """Return the file that the JSON of ``record`` names.

        Raises:
            ResultError: its name is not that of such a file.
        """
        if not _NAME.fullmatch(name):
            raise ResultError(
                f"{record}: {shortened(name)} is not the name of a file beside a record"
            )
        return cls(str(record.absolute().with_name(name)), sha256)

    @property
    def shown(self) -> str:
        """Its path for messages."""
        return paths.shown(Path(self.path))

    def read(self) -> bytes:
        """Return the file's bytes, which are those that the record was written with.

        Raises:
            ResultError: the file is missing, or has another digest.
        """
        try:
            data = Path(self.path).read_bytes()
        except FileNotFoundError:
            raise ResultError(
                f"{self.shown}: this file of a record is missing; expected "
                f"SHA-256 {self.sha256}. Copy it back to where the record is, or run the task "
                "again with --fresh. If the record was replaced since it was loaded, load it again"
            ) from None
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.sha256:
            raise ResultError(
                f"{self.shown}: its SHA-256 is {digest}, the record beside it "
                f"expects {self.sha256}: it was changed after it was written. Restore it, or run "
                "the task again with --fresh"
            )
        return data

    def open(self) -> pq.ParquetFile:
        """Return the file's table, to read columns from.

        Raises:
            ResultError: missing, another digest, or not Parquet.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        data = self.read()
        try:
            return pq.ParquetFile(pa.BufferReader(data))
        except pa.ArrowException as error:
            raise ResultError(f"{self.shown}: not Parquet ({error})") from None

    def columns(self, names: Iterable[str]) -> list[pa.ChunkedArray]:
        """Return columns, for which the file is read once.

        Raises:
            ResultError: as `open`, or a column is missing.
        """
        table, wanted = self.open(), list(names)
        stored = table.schema_arrow.names
        if missing := [name for name in wanted if name not in stored]:
            raise ResultError(f"{self.shown}: has no column {missing[0]!r}; it has {stored}")
        # By number: a name with a dot would be read as that of a field inside a column.
        numbers = sorted({stored.index(name) for name in wanted})
        read = table.reader.read_all(column_indices=numbers, use_threads=False)
        return [read[numbers.index(stored.index(name))] for name in wanted]


def _encoded(columns: dict[str, Any]) -> bytes:
    """Return Arrow arrays by name as the bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = pa.table(list(columns.values()), names=list(columns))
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_statistics=False)
    return bytes(sink.getvalue().to_pybytes())


def _texts(values: Iterable[str], what: str) -> pa.Array:
    """Return texts as an Arrow array.

    Raises:
        ResultError: one is not a string, or not valid Unicode.
    """
    import pyarrow as pa

    try:
        return pa.array(list(values), pa.large_string())
    except pa.ArrowTypeError as error:
        raise ResultError(f"{what}: expected strings ({error})") from None
    except UnicodeEncodeError as error:
        raise ResultError(
            f"{what} {error.object!r} has a lone surrogate, which is not valid Unicode; rename it"
        ) from None


class _Queries:
    """Query ids in the order of the rows; equal ids of several records are one object."""

    def __init__(self, ids: tuple[str, ...]) -> None:
        self.ids = ids
        self._parts: dict[str, npt.NDArray[np.intp]] = {}

    def of_part(self, part: str) -> npt.NDArray[np.intp]:
        """Rows of the queries whose id begins with ``part``, by id."""
        if part not in self._parts:
            rows = (
                [row for row in self.of_part("") if self.ids[row].startswith(part)]
                if part
                else sorted(range(len(self.ids)), key=self.ids.__getitem__)
            )
            self._parts[part] = np.array(rows, np.intp)
        return self._parts[part]


_known: WeakValueDictionary[str, _Queries] = WeakValueDictionary()  # by digest, while in use


def _digest(ids: Iterable[str]) -> str:
    """SHA-256 of ids, each preceded by its length."""
    text = "".join(f"{len(query)}:{query}" for query in ids)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class QueryScores(Mapping[str, Mapping[str, float]]):
    """Column, then query id, to score; also as an array per column.

    Create one with `of`; that of a record is `Result.scores`.
    """

    ids: str  # digest of the query ids and their order
    counts: Mapping[str, int]  # number of queries with a score, by column

    def __init__(self, queries: tuple[str, ...], arrays: Mapping[str, Array]) -> None:
        """Hold arrays of float64, a value per query, NaN for a query without one."""
        self.ids = _digest(queries)
        self._queries = _known.setdefault(self.ids, _Queries(queries))
        self._arrays = {name: _read_only(array) for name, array in arrays.items()}
        self.counts = {name: _present(array) for name, array in self._arrays.items()}

    @classmethod
    def of(cls, scores: Mapping[str, Mapping[str, float]]) -> QueryScores:
        """Return the scores of ``scores``, itself if it is one already.

        Raises:
            ResultError: an id that is not a string, or a value that no finite 64-bit float equals.
        """
        if isinstance(scores, QueryScores):
            return scores
        queries = tuple(dict.fromkeys(query for column in scores.values() for query in column))
        if wrong := [query for query in queries if not isinstance(query, str)]:
            raise ResultError(f"query ids: expected strings, got {shortened(wrong[0])}")
        rows = {query: row for row, query in enumerate(queries)}
        arrays = {name: np.full(len(queries), np.nan) for name in scores}
        for name, column in scores.items():
            arrays[name][[rows[query] for query in column]] = _numbers(name, column)
        return cls(queries, arrays)

    @property
    def queries(self) -> tuple[str, ...]:
        """All query ids, in the order of the arrays."""
        return self._queries.ids

    @property
    def size(self) -> int:
        """Number of queries."""
        return len(self.queries)

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

    def __getitem__(self, column: str) -> dict[str, float]:
        """Return the scores of a column by query, in the order of `queries`."""
        pairs = zip(self.queries, self.array(column).tolist(), strict=True)
        return {query: value for query, value in pairs if value == value}  # not NaN

    def __contains__(self, column: object) -> bool:
        return column in self.counts

    def __iter__(self) -> Iterator[str]:
        return iter(self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    def __array__(self, *_: Any, **__: Any) -> Array:
        # pandas would take any mapping but a dict for the list of its keys.
        raise TypeError(f"{self!r} is a mapping; for a DataFrame, use to_frame()")

    def __repr__(self) -> str:
        """Number of queries, and the columns."""
        if not self:
            return "<QueryScores: none>"
        return f"<QueryScores: {self.size} queries; columns {', '.join(self)}>"

    def to_frame(self) -> pd.DataFrame:
        """Return a row per query, by its id, and a column per metric."""
        import pandas as pd

        columns = {name: self.array(name) for name in self}
        return pd.DataFrame(columns, index=list(self.queries))

    def plain(self) -> dict[str, dict[str, float]]:
        """Return everything as dictionaries."""
        return dict(self)

    def encoded(self) -> bytes:
        """Return the scores as the bytes of a Parquet file.

        Raises:
            ResultError: a query id is not a string of valid Unicode, or a column has the name of
                the ids' column.
        """
        import pyarrow as pa

        if _QUERY_ID in self:
            raise ResultError(
                f"a column of scores is called {_QUERY_ID!r}, as is that of the query ids"
            )
        _texts(self, what="column")
        columns = {name: pa.array(self.array(name), from_pandas=True) for name in self}
        return _encoded({_QUERY_ID: _texts(self.queries, what="query id")} | columns)


def _numbers(name: str, column: Mapping[str, float]) -> list[float]:
    """Return the values of a column, which are finite 64-bit floats."""
    values = []
    for query, value in column.items():
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if number != value or not math.isfinite(number):
            raise ResultError(
                f"column {name!r}: query {query!r} has the value {shortened(value)}; "
                "expected a finite 64-bit float"
            )
        values.append(number)
    return values


class StoredScores(QueryScores):
    """The scores in the file beside a record, read on first use."""

    def __init__(self, file: SideFile, entry: ScoresEntry) -> None:
        """Name the file and what the record says of it; nothing is read."""
        self.file, self.stated = file, entry
        self.ids, self.counts = entry.ids, entry.columns

    @cached_property
    def _queries(self) -> _Queries:  # type: ignore[override]  # read on first use
        if known := _known.get(self.ids):
            return known
        (ids,) = self.file.columns((_QUERY_ID,))
        return self._named(tuple(ids.to_pylist()))

    def _named(self, ids: tuple[str, ...]) -> _Queries:
        if _digest(ids) != self.ids:
            raise ResultError(
                f"{self.file.shown}: its query ids are not those that its record names: one of "
                "them was changed after it was written. Restore both, or run the task again with "
                "--fresh"
            )
        return _known.setdefault(self.ids, _Queries(ids))

    @property
    def size(self) -> int:
        """Number of queries."""
        return self.stated.queries

    def array(self, column: str) -> Array:
        """Return a column in the order of `queries`, read-only; NaN for a query without a score.

        Raises:
            KeyError: there is no such column.
            ResultError: the file is missing, or not the one that the record was written with.
        """
        return _stored_column(self.file, column, rows=self.size, count=self.counts[column])

    def loaded(self) -> QueryScores:
        """Return all scores, held in memory, from one reading of the file.

        Raises:
            ResultError: as `array`, or the query ids are not those of the record.
        """
        ids, *columns = self.file.columns((_QUERY_ID, *self.counts))
        arrays = {
            name: _as_stated(self.file, name, column.to_numpy(), rows=self.size, count=count)
            for (name, count), column in zip(self.counts.items(), columns, strict=True)
        }
        return QueryScores(self._named(tuple(ids.to_pylist())).ids, arrays)

    def encoded(self) -> bytes:
        """Return the bytes of the file."""
        return self.file.read()


@lru_cache(maxsize=_RECENT)
def _stored_column(file: SideFile, column: str, *, rows: int, count: int) -> Array:
    (values,) = file.columns((column,))
    return _as_stated(file, column, values.to_numpy(), rows=rows, count=count)


def _as_stated(file: SideFile, column: str, values: Array, *, rows: int, count: int) -> Array:
    if (len(values), _present(values)) != (rows, count):
        raise ResultError(
            f"{file.shown}: column {column!r} has {_present(values)} scores in {len(values)} rows; "
            f"its record says {count} in {rows}"
        )
    return _read_only(values)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _present(array: Array) -> int:
    return int(len(array) - np.isnan(array).sum())


class StoredTop(Mapping[str, list[str]]):
    """Query id to the ids of its best documents, in the file beside a record."""

    def __init__(self, file: SideFile, entry: SideEntry) -> None:
        """Name the file and what the record says of it; nothing is read."""
        self.file, self.stated = file, entry

    def __getitem__(self, query: str) -> list[str]:
        return list(_stored_lists(self.file)[query])

    def __iter__(self) -> Iterator[str]:
        return iter(_stored_lists(self.file))

    def __len__(self) -> int:
        return self.stated.queries

    def __repr__(self) -> str:
        return f"<StoredTop: {len(self)} queries>"


@lru_cache(maxsize=_RECENT_TOP)
def _stored_lists(file: SideFile) -> dict[str, list[str]]:
    queries, documents = (each.to_pylist() for each in file.columns((_QUERY_ID, _DOCUMENTS)))
    return dict(zip(queries, documents, strict=True))


def encode_top(top: Mapping[str, Sequence[str]]) -> bytes:
    """Return the best documents of each query as the bytes of a Parquet file.

    Raises:
        ResultError: an id is not a string of valid Unicode.
    """
    import pyarrow as pa

    if isinstance(top, StoredTop):
        return top.file.read()
    lists = [list(each) for each in top.values()]
    ends = pa.array(np.cumsum([0, *map(len, lists)]), pa.int64())
    documents = _texts(chain.from_iterable(lists), what="document id")
    columns = {
        _QUERY_ID: _texts(top, what="query id"),
        _DOCUMENTS: pa.LargeListArray.from_arrays(ends, documents),
    }
    return _encoded(columns)


def run_path(record: Path, digest: str, *, kind: str = "trec") -> Path:
    """Return the path of the run, or ``qrels``, beside ``record`` with the SHA-256 ``digest``."""
    return record.with_name(f"{record.stem}.{digest[:_DIGITS]}.{kind}")


def first_stage_file(folder: Path, name: str) -> Path:
    """Return the file of a first stage's run in a folder of records."""
    return folder / "first_stages" / name


def first_run_file(record: Path, config: Mapping[str, Any]) -> Path:
    """Return the file of the first stage's run for ``record``."""
    name = (config.get("first_run") or {}).get("name", "")
    return first_stage_file(record.parent.parent.parent, name)


def reranked_run_file(record: Path, config: Mapping[str, Any]) -> Path:
    """Return the file of the run of ``record``, which has one."""
    return record.with_name(next(iter(config.get("runs") or ("",))) or f"{record.stem}.trec")


def write_side_file(record: Path, kind: str, data: bytes) -> tuple[str, str]:
    """Write a file beside ``record``, which does not name it yet; return its name and digest."""
    digest = hashlib.sha256(data).hexdigest()
    return write_bytes(run_path(record, digest, kind=f"{kind}.parquet"), data).name, digest


def named_files(record: Path) -> tuple[Path, ...]:
    """Return the files that the record on disk names, in the order in which to copy them.

    They come before the record itself, so that a copy is complete once it has its JSON. A record
    that is missing or unreadable names none.
    """
    try:
        value = read_json(record)
        entries = [value[kind] for kind in ("scores", "top") if value.get(kind)]
        tables = [SideFile.of(record, each["file"], each["sha256"]).path for each in entries]
        runs = [*value["config"].get("runs", ()), *value["config"].get("qrels", ())]
        named = [record.with_name(name) for name in runs if _RUN.fullmatch(name)]
        return (*map(Path, tables), *named)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def remove_unnamed(record: Path, *, replaced: Collection[Path]) -> None:
    """Remove files that the record on disk does not name, and those of writers that were killed.

    Args:
        record: path of the record, which has just been written.
        replaced: the files that the record before it named. Others are removed once they are an
            hour old: until then, another process may be about to write the record that names them.
    """
    named, old = ({file.name for file in files} for files in (named_files(record), replaced))
    stem = re.escape(record.stem)
    own = re.compile(rf"{stem}({_END}|{_RUN_END})|\.{stem}\..*\.tmp")
    for file in record.parent.iterdir():
        if own.fullmatch(file.name) and file.name not in named:
            with suppress(FileNotFoundError):
                if file.name in old or time.time() - file.stat().st_mtime > _ABANDONED:
                    file.unlink()


def side_file_problems(per_query: object, top: object) -> Iterator[str]:
    """Yield what is wrong with the files of a record's scores and best documents.

    Missing, changed, or not the table that the record describes; rows are not read.
    """
    for stored in (per_query, top):
        if not isinstance(stored, StoredScores | StoredTop):
            continue
        try:
            table, shown = stored.file.open(), stored.file.shown
        except ResultError as error:
            yield str(error)
            continue
        others = {_DOCUMENTS: "list"}
        if isinstance(stored, StoredScores):
            others = dict.fromkeys(stored.counts, "double")
        expected = {_QUERY_ID: "string", **others}
        columns = {
            field.name: str(field.type).removeprefix("large_").partition("<")[0]
            for field in table.schema_arrow
        }
        if columns != expected:
            ours, theirs = shortened(columns), shortened(expected)
            yield f"{shown}: its columns are {ours}; its record expects {theirs}"
        rows, stated = table.metadata.num_rows, stored.stated.queries
        if rows != stated:
            yield f"{shown}: it has {rows} rows; its record says {stated}"
