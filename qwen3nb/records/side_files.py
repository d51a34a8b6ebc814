"""Files next to a record, for data with a row per query.

    results/<label>-<identity>/seed_<n>/<task>.json
    results/<label>-<identity>/seed_<n>/<task>.<digest>.scores.parquet
    results/<label>-<identity>/seed_<n>/<task>.<digest>.top.parquet
    results/<label>-<identity>/seed_<n>/<task>.<digest>.trec     run of a search or reranking
    results/<label>-<identity>/seed_<n>/<task>.<digest>.qrels    its relevance judgements
    results/first_stages/<task>-<digest>.trec                    a run shared by all rerankers

The scores have a column of 64-bit floats per metric, null where the query has no score; the best
documents a list of ids, best first; both the queries' ids in ``query_id``. Files are read when
needed.

A file's name contains the first digits of its SHA-256; the record contains the whole digest. A
record is replaced in three atomic steps: new files are written under new names, the new JSON
replaces the old one, the old files are removed. Whenever a process is killed, the JSON on disk
names the files it was written with.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import StringConstraints

from qwen3nb import paths
from qwen3nb.metrics.intervals import Array
from qwen3nb.metrics.query_scores import (
    SHARED_QUERIES,
    QueryScores,
    digest_of_queries,
    read_only,
)
from qwen3nb.records.details import RunFiles
from qwen3nb.records.parquet_pages import PageError, chunk_pages, column_chunks
from qwen3nb.utils.atomic_files import claim, read_json, write_bytes, writer_lives
from qwen3nb.utils.schema import Count, Name, Unicode, shortened

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


class ResultError(ValueError):
    """A record that cannot be read or is inconsistent; names the file and the cause."""


_QUERY_ID, _DOCUMENTS = "query_id", "documents"  # columns: of both kinds, of the best documents
# of columns; others are scores
_TYPES = {_QUERY_ID: "large_string", _DOCUMENTS: "large_list<element: large_string>"}
_DIGITS = 12  # of the SHA-256, in the file's name
EVALUATES = "evaluates"  # purpose of the lock of who evaluates what a record is about
_ABANDONED = 3600.0  # seconds after which a file named by no record counts as abandoned
_LARGEST = 1 << 30  # bytes of a table in memory; one of a million queries has about half
_RECENT = 64  # tables that stay in memory: about 1 MB of 6,980 queries each
_MANY_ROWS = 50_000  # of a table above which it does not stay there
STEM = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # a name that is safe in a path
_END = rf"\.[0-9a-f]{{{_DIGITS}}}\.(scores|top)\.parquet"
_RUN_END = rf"\.[0-9a-f]{{{_DIGITS}}}\.(trec|qrels)"
# Such as ``SciFact.0a1b2c3d4e5f.scores.parquet``; runs of older records have no digest.
_SIDE_FILE = re.compile(rf"{STEM}({_END}|\.trec|\.qrels)")


@dataclass(frozen=True)
class SideEntry:
    """Entry in a record's JSON for a file next to it: name, digest and number of rows."""

    file: Annotated[str, StringConstraints(pattern=f"^{STEM}{_END}$", max_length=255)]
    sha256: Name
    queries: Count


@dataclass(frozen=True)
class ScoresEntry(SideEntry):
    """Entry for the scores."""

    ids: Name  # digest of the query ids and their order
    columns: dict[Unicode, Count]  # number of queries with a score, by column


@dataclass(frozen=True)
class SideFile:
    """A file next to a record, as the record states it."""

    path: Path
    sha256: str
    rows: int
    columns: tuple[str, ...]

    @classmethod
    def of(cls, record: Path, entry: SideEntry) -> SideFile:
        """Return the file that the JSON of ``record`` names."""
        columns = [_QUERY_ID, _DOCUMENTS]
        if isinstance(entry, ScoresEntry):
            columns = [_QUERY_ID, *entry.columns]
        path = record.absolute().with_name(entry.file)
        return cls(path, entry.sha256, entry.queries, tuple(columns))

    def read(self) -> bytes:
        """Return the file's bytes, after checking their digest.

        Raises:
            ResultError: the file is missing, or has another digest.
        """
        try:
            if self.path.exists() and not self.path.is_file():
                raise ResultError(
                    f"{paths.shown(self.path)}: expected a file of a record; got a folder, a pipe "
                    "or a device. Restore it, or run the task again with --fresh"
                )
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise ResultError(
                f"{paths.shown(self.path)}: this file of a record is missing; expected SHA-256 "
                f"{self.sha256}. Copy it back to where the record is, or run the task again with "
                "--fresh. If the record was replaced since it was loaded, load it again"
            ) from None
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.sha256:
            raise ResultError(
                f"{paths.shown(self.path)}: its SHA-256 is {digest}, but its record expects "
                f"{self.sha256}: it was changed after it was written. Restore it, or run the task "
                "again with --fresh"
            )
        return data


def _opened(file: SideFile) -> pq.ParquetFile:
    """Return the table in a file, which stays in memory unless it is large; see `_open`."""
    return _open(file) if file.rows > _MANY_ROWS else _recently_opened(file)


@lru_cache(maxsize=_RECENT)
def _recently_opened(file: SideFile) -> pq.ParquetFile:
    return _open(file)


def _open(file: SideFile) -> pq.ParquetFile:
    """Return the table in a file, whose columns are read when needed.

    Raises:
        ResultError: as `SideFile.read`, or not the table that the record states.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = file.read()
    with _parquet(file):
        table = pq.ParquetFile(pa.BufferReader(content))
        footer, names = table.metadata, table.schema_arrow.names
        rows = _rows_of_groups(footer)
    chunks = [*column_chunks(footer)]
    # Others may unpack to more memory than their pages say.
    unexpected = {name for chunk in chunks for name in chunk.encodings} - {"PLAIN", "RLE"}
    if unexpected:
        raise ResultError(
            f"{paths.shown(file.path)}: expected plain columns, as records have; got "
            f"{shortened(sorted(unexpected))}"
        )
    # Text has an offset of 8 bytes for each value, besides.
    with _parquet(file):
        size = sum(_unpacked_size(file, content, chunk) + 8 * chunk.num_values for chunk in chunks)
    if size > _LARGEST:
        raise ResultError(
            f"{paths.shown(file.path)}: it would take {size:,} bytes of memory; expected at "
            f"most {_LARGEST:,}. Do not use this record unless you know who made it"
        )
    if rows != file.rows or names != list(file.columns):
        raise ResultError(
            f"{paths.shown(file.path)}: it has {rows} rows of "
            f"{shortened(names)}; its record says {file.rows} of "
            f"{shortened([*file.columns])}"
        )
    return table


def _rows_of_groups(footer: pq.FileMetaData) -> int:
    """Return the number of rows in a Parquet file, whose sum is stated besides.

    Raises:
        PageError: the sum is another one.
    """
    rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    if sum(rows) != footer.num_rows or min(rows, default=0) < 0:
        raise PageError(
            f"its groups have {shortened(rows)} rows; its footer says {footer.num_rows}"
        )
    return footer.num_rows


def _unpacked_size(file: SideFile, content: bytes, chunk: pq.ColumnChunkMetaData) -> int:
    """Return the bytes that a part of a column unpacks to, as its pages say.

    Raises:
        ResultError: the footer of the file says something else.
        PageError: these are no pages.
    """
    stored_pages = [*chunk_pages(content, chunk)]
    if not all(page.is_plain for page in stored_pages):
        raise ResultError(f"{paths.shown(file.path)}: expected plain columns, as records have")
    values = sum(page.values for page in stored_pages)
    if values != chunk.num_values:
        raise ResultError(
            f"{paths.shown(file.path)}: its pages have {values:,} values of a column; its footer "
            f"says {chunk.num_values:,}. Restore it, or run the task again with --fresh"
        )
    return sum(page.unpacked_size for page in stored_pages)


@contextmanager
def _parquet(file: SideFile) -> Iterator[None]:
    """Name ``file`` in errors of reading Parquet."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, PageError) as error:  # OSError of a damaged page
        message = " ".join(str(error).split())
        raise ResultError(f"{paths.shown(file.path)}: not Parquet ({message})") from None


def _column(file: SideFile, name: str) -> pa.ChunkedArray:
    """Return a column of the table in a file; raises as `_opened`, or if it has another type."""
    return _columns(file, [name])[name]


def _columns(file: SideFile, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """Return some columns of the table in a file, read at once; raises as `_column`."""
    opened_table = _opened(file)
    with _parquet(file):
        table = opened_table.read(list(names), use_threads=False)
    columns = {name: table[name] for name in names}
    for name, column in columns.items():
        expected = _TYPES.get(name, "double")
        may_have_nulls = name not in _TYPES  # a query may lack a score
        has_right_nulls = may_have_nulls or column.null_count == 0
        if str(column.type) != expected or not has_right_nulls:
            raise ResultError(
                f"{paths.shown(file.path)}: column {name!r} is {column.type} with "
                f"{column.null_count} nulls; expected {expected}, as records have"
            )
    return columns


def _encoded(columns: dict[str, Any]) -> bytes:
    """Return Arrow arrays by name as the bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = pa.table(list(columns.values()), names=list(columns))
    # Plain columns, whose size in memory is known before they are read.
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_statistics=False)
    return bytes(sink.getvalue().to_pybytes())


def _text_array(values: Iterable[str], what: str) -> pa.Array:
    """Return texts as an Arrow array.

    Raises:
        ResultError: one is not a string, or not valid Unicode.
    """
    import pyarrow as pa

    try:
        return pa.array(list(values), pa.large_string())
    except (pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise ResultError(f"{what}: expected strings of valid Unicode ({error})") from None


def encode_scores(scores: QueryScores) -> bytes:
    """Return scores as the bytes of a Parquet file.

    Raises:
        ResultError: a query id is not valid Unicode, or a column has the name of the id column.
    """
    import pyarrow as pa

    if isinstance(scores, StoredScores):
        return scores.file.read()
    if _QUERY_ID in scores:
        raise ResultError(f"a column of scores has the reserved name {_QUERY_ID!r}")
    names = _text_array(scores, what="column").to_pylist()
    columns = {_QUERY_ID: _text_array(scores.queries, what="query id")}
    for name in names:
        columns[name] = pa.array(scores.array(name), from_pandas=True)  # null for NaN
    return _encoded(columns)


class StoredScores(QueryScores):
    """The scores in the file next to a record, read when needed."""

    def __init__(self, file: SideFile, entry: ScoresEntry) -> None:
        """Create from a file and its entry in the record; reads nothing."""
        self.file, self.ids, self.counts = file, entry.ids, entry.columns

    @property
    def queries(self) -> tuple[str, ...]:
        """All query ids, in the order of the arrays.

        Raises:
            ResultError: as `check`.
        """
        return SHARED_QUERIES.get(self.ids) or self.check()

    def check(self) -> tuple[str, ...]:
        """Return the query ids in the file, after comparing them with the record.

        Raises:
            ResultError: not the file or the table that the record states, or different ids.
        """
        return self._checked_queries(_column(self.file, _QUERY_ID))

    def whole(self) -> QueryScores:
        """Return the same scores in memory, all read at once.

        Raises:
            ResultError: as `check`.
        """
        columns = _columns(self.file, self.file.columns)
        queries = self._checked_queries(columns[_QUERY_ID])
        arrays = {name: columns[name].to_numpy() for name in self.counts}
        return QueryScores(queries, arrays, ids=self.ids)

    def _checked_queries(self, column: pa.ChunkedArray) -> tuple[str, ...]:
        """Return the query ids in a column, after comparing them with the record."""
        shared_queries = SHARED_QUERIES.get(self.ids)
        # Columns are compared in a tenth of the time that their texts take.
        if shared_queries and column.equals(_column_of(shared_queries)):
            return shared_queries
        queries = tuple(column.to_pylist())
        if digest_of_queries(queries) != self.ids:
            raise ResultError(
                f"{paths.shown(self.file.path)}: its query ids are not those in its "
                "record: one of them was changed after it was written. Restore both, or run the "
                "task again with --fresh"
            )
        # Records with the same queries share one tuple of ids in memory.
        return SHARED_QUERIES.share(self.ids, queries)

    def array(self, column: str) -> Array:
        """Return a column in the order of `queries`, read-only; NaN for a query without a score.

        Raises:
            KeyError: there is no such column.
            ResultError: as `check`.
        """
        if column not in self.counts:
            raise KeyError(column)
        if self.file.rows > _MANY_ROWS:
            return _read_scores(self.file, column)
        return _score_array(self.file, column)


@lru_cache(maxsize=_RECENT)
def _column_of(queries: tuple[str, ...]) -> pa.ChunkedArray:
    """Return query ids as the column that a file has of them."""
    import pyarrow as pa

    return pa.chunked_array([pa.array(queries, _TYPES[_QUERY_ID])])


@lru_cache(maxsize=_RECENT)
def _score_array(file: SideFile, name: str) -> Array:
    """Return a column of scores: one comparison asks for it several times."""
    return _read_scores(file, name)


def _read_scores(file: SideFile, name: str) -> Array:
    """Return a column of scores, read-only."""
    return read_only(_column(file, name).to_numpy())


class StoredTop(Mapping[str, list[str]]):
    """Mapping of query id to the ids of its best documents, in the file next to a record."""

    def __init__(self, file: SideFile) -> None:
        """Create from a file; reads nothing."""
        self.file = file

    def check(self) -> None:
        """Read the file; raises as `StoredScores.check`."""
        _columns(self.file, self.file.columns)

    def __getitem__(self, query: str) -> list[str]:
        return list(_stored_lists(self.file)[query])

    def __iter__(self) -> Iterator[str]:
        return iter(_stored_lists(self.file))

    def __len__(self) -> int:
        return self.file.rows

    def __repr__(self) -> str:
        return f"<StoredTop: {len(self)} queries>"


@lru_cache(maxsize=_RECENT)
def _stored_lists(file: SideFile) -> dict[str, list[str]]:
    queries, documents = [_column(file, name).to_pylist() for name in file.columns]
    return dict(zip(queries, documents, strict=True))


def encode_top(top: Mapping[str, Sequence[str]]) -> bytes:
    """Return the best documents of each query as the bytes of a Parquet file.

    Raises:
        ResultError: an id is not a string of valid Unicode.
    """
    import pyarrow as pa

    if isinstance(top, StoredTop):
        return top.file.read()
    # Arrow holds lists as one array, and where each begins.
    numbers = [len(documents) for documents in top.values()]
    starts = pa.array(np.cumsum([0, *numbers]), pa.int64())
    documents = _text_array(itertools.chain.from_iterable(top.values()), what="document id")
    columns = {
        _QUERY_ID: _text_array(top, what="query id"),
        _DOCUMENTS: pa.LargeListArray.from_arrays(starts, documents),
    }
    return _encoded(columns)


def write_tables(
    record: Path, scores: QueryScores, top: Mapping[str, Sequence[str]] | None
) -> dict[str, dict[str, Any] | None]:
    """Write the files next to ``record``; return the fields of the record that name them."""
    scores_entry, top_entry = None, None
    if scores:
        file, digest = _write_table(record, "scores", encode_scores(scores))
        entry = ScoresEntry(
            file.name,
            digest,
            queries=len(scores.queries),
            ids=scores.ids,
            columns=dict(scores.counts),
        )
        scores_entry = asdict(entry)
    if top is not None:
        file, digest = _write_table(record, "top", encode_top(top))
        top_entry = asdict(SideEntry(file.name, digest, queries=len(top)))
    return {"scores": scores_entry, "top": top_entry}


def _write_table(record: Path, kind: str, content: bytes) -> tuple[Path, str]:
    """Write a file next to ``record``; return its path and its SHA-256."""
    digest = hashlib.sha256(content).hexdigest()
    file = write_bytes(run_path(record, digest, kind=f"{kind}.parquet"), content)
    return file, digest


def run_path(record: Path, digest: str, *, kind: str = "trec") -> Path:
    """Return the path of the run, or ``qrels``, next to ``record`` with the SHA-256 ``digest``."""
    return record.with_name(f"{record.stem}.{digest[:_DIGITS]}.{kind}")


def first_stage_file(folder: Path, name: str) -> Path:
    """Return the file of a first stage's run in a folder of records."""
    return folder / "first_stages" / name


def first_run_file(record: Path, files: RunFiles) -> Path:
    """Return the file of the first stage's run for ``record``."""
    name = ""
    if files.first_run is not None:
        name = files.first_run["name"]
    return first_stage_file(record.parent.parent.parent, name)


def reranked_run_file(record: Path, files: RunFiles) -> Path:
    """Return the file of the run of ``record``."""
    for name in files.runs:
        return record.with_name(name)
    return record.with_suffix(".trec")


def named_files(record: Path, value: Any = None) -> tuple[Path, ...]:
    """Return the files that the record on disk names, in the order in which to copy them.

    They precede the record itself, so a copy is complete once its JSON exists. A missing or
    unreadable record names none. ``value`` is its JSON, if that was read already.
    """
    try:
        value = value or read_json(record)
        names = [value[kind]["file"] for kind in ("scores", "top") if value.get(kind)]
        files = files_in(value)
        names += [*files.get("runs", ()), *files.get("qrels", ())]
        # A name of any other form may lead out of the folder.
        return tuple(record.with_name(name) for name in names if _SIDE_FILE.fullmatch(name))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def is_side_file(file: Path) -> bool:
    """Return whether a file has the name of one next to a record.

    >>> is_side_file(Path("SciFact.0a1b2c3d4e5f.scores.parquet")), is_side_file(Path("s.parquet"))
    (True, False)
    """
    return bool(_SIDE_FILE.fullmatch(file.name))


def files_in(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the files of the run in a record's JSON; older ones have them in ``config``."""
    files: Mapping[str, Any] = value["files"] if "files" in value else value["config"]
    return files


def remove_unnamed(record: Path, *, replaced: Collection[Path]) -> None:
    """Remove files that the record on disk does not name, and leftovers of killed writers.

    The caller holds the lock of the record.

    Args:
        record: path of the record.
        replaced: files of the previous record. Others are removed once they are an hour old, unless
            a process evaluates what the record is about: it may be about to write the record, and
            after a jump of the clock its files are old, too.
    """
    abandoned = []
    for file in _unnamed(record):
        if file in replaced:
            file.unlink(missing_ok=True)
        elif _is_old(file) and not writer_lives(file):
            abandoned.append(file)
    if abandoned:
        with claim(record, purpose=EVALUATES) as is_ours:
            if is_ours:
                for file in abandoned:
                    file.unlink(missing_ok=True)


def _unnamed(record: Path) -> list[Path]:
    """Return the files that belong to a record by their names, and that it does not name."""
    names_in_record = {file.name for file in named_files(record)}
    stem = re.escape(record.stem)
    # Such as ``SciFact.0a1b2c3d4e5f.trec``, or ``.SciFact.json.x1y2.tmp`` of a killed writer.
    of_record = re.compile(rf"{stem}({_END}|{_RUN_END})|\.{stem}\..*\.tmp")
    unnamed = []
    for file in record.parent.iterdir():
        if of_record.fullmatch(file.name) and file.name not in names_in_record:
            unnamed.append(file)
    return unnamed


def _is_old(file: Path) -> bool:
    with suppress(FileNotFoundError):  # another process removed it
        return time.time() - file.stat().st_mtime > _ABANDONED
    return False
