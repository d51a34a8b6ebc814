"""The files beside a record, in which it keeps what has a row per query.

    results/<label>-<identity>/seed_<n>/<task>.json
    results/<label>-<identity>/seed_<n>/<task>.<digest>.scores.parquet
    results/<label>-<identity>/seed_<n>/<task>.<digest>.top.parquet
    results/<label>-<identity>/seed_<n>/<task>.<digest>.trec     of a search, see `runs`
    results/<label>-<identity>/seed_<n>/<task>.<digest>.qrels    likewise

A file's name holds the first digits of its SHA-256, and the record holds all of them. A record
is replaced in three steps, each atomic: the new files are written under names of their own, then
the JSON that names them replaces the old one, then the old files go. Whenever a process is
killed, the JSON on disk names the files it was written with.
"""

from __future__ import annotations

import hashlib
import re
import reprlib
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb import paths
from qwen3nb.records.errors import ResultError
from qwen3nb.utils.atomic_files import read_json, write_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = [
    "DOCUMENTS",
    "KINDS",
    "QUERY_ID",
    "SideFile",
    "encode_table",
    "named_files",
    "remove_unnamed",
    "run_path",
    "side_file_problems",
    "string_column",
    "write_side_file",
]

KINDS = ("scores", "top")
QUERY_ID, DOCUMENTS = "query_id", "documents"  # columns: of both kinds, of the best documents
_DIGITS = 12  # of the SHA-256, in the file's name
_ABANDONED = 3600.0  # seconds after which a file that no record names is no one's work in progress
_STEM = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_END = rf"\.[0-9a-f]{{{_DIGITS}}}\.({'|'.join(KINDS)})\.parquet"
_NAME = re.compile(_STEM + _END)
_RUN_END = (  # older versions wrote runs without digest
    rf"(\.[0-9a-f]{{{_DIGITS}}}|\.first)?\.trec|\.[0-9a-f]{{{_DIGITS}}}\.qrels"
)
_RUN = re.compile(rf"{_STEM}\.(trec|qrels)")


@dataclass(frozen=True)
class SideFile:
    """A file beside a record.

    Attributes:
        path: its path.
        sha256: its digest, as the record states it.
    """

    path: str
    sha256: str

    @classmethod
    def of(cls, record: Path, entry: dict[str, Any]) -> SideFile:
        """Return the file that an entry of a record's JSON names."""
        name, digest = entry["file"], entry["sha256"]
        if not (isinstance(name, str) and _NAME.fullmatch(name) and isinstance(digest, str)):
            raise ResultError(
                f"{record}: {reprlib.repr(name)} is not the name of a file beside a record"
            )
        return cls(str(record.absolute().with_name(name)), digest)

    @property
    def name(self) -> str:
        """Name of the file."""
        return Path(self.path).name

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

    def column(self, name: str) -> pa.ChunkedArray:
        """Return one column.

        Raises:
            ResultError: as `open`, or the column is missing.
        """
        return self.columns((name,))[0]

    def columns(self, names: Iterable[str]) -> list[pa.ChunkedArray]:
        """Return columns, for which the file is read once.

        Raises:
            ResultError: as `open`, or a column is missing.
        """
        table = self.open()
        numbers = {name: number for number, name in enumerate(table.schema_arrow.names)}
        wanted = list(names)
        if missing := [name for name in wanted if name not in numbers]:
            raise ResultError(f"{self.shown}: has no column {missing[0]!r}; it has {list(numbers)}")
        # By number: a name with a dot would be read as that of a field inside a column.
        indices = sorted(numbers[name] for name in set(wanted))
        read = table.reader.read_all(column_indices=indices, use_threads=False)
        return [read[indices.index(numbers[name])] for name in wanted]


def encode_table(columns: dict[str, Any]) -> bytes:
    """Return Arrow arrays by name as the bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = pa.table(list(columns.values()), names=list(columns))
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_statistics=False)
    return bytes(sink.getvalue().to_pybytes())


def string_column(values: Iterable[str], *, what: str) -> pa.Array:
    """Return texts as an Arrow array.

    Raises:
        ResultError: one is not a string, or not valid Unicode.
    """
    import pyarrow as pa

    texts = list(values)
    for text in texts:
        if not isinstance(text, str):
            raise ResultError(f"{what}: expected strings, got {text!r}")
    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError:
        wrong = next(text for text in texts if _is_invalid(text))
        raise ResultError(
            f"{what} {wrong!r} has a lone surrogate, which is not valid Unicode; rename it"
        ) from None


def _is_invalid(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def run_path(record: Path, digest: str, *, kind: str = "trec") -> Path:
    """Return the path of the run, or ``qrels``, beside ``record`` with the SHA-256 ``digest``."""
    return record.with_name(f"{record.stem}.{digest[:_DIGITS]}.{kind}")


def write_side_file(record: Path, kind: str, data: bytes) -> SideFile:
    """Write a file beside ``record``, which does not name it yet."""
    digest = hashlib.sha256(data).hexdigest()
    file = record.with_name(f"{record.stem}.{digest[:_DIGITS]}.{kind}.parquet")
    return SideFile(str(write_bytes(file, data)), digest)


def named_files(record: Path) -> tuple[Path, ...]:
    """Return the files that the record on disk names, in the order in which to copy them.

    They come before the record itself, so that a copy is complete once it has its JSON. A record
    that is missing, unreadable or of an earlier schema names none.
    """
    try:
        value = read_json(record)
        entries = [value[kind] for kind in KINDS if value.get(kind)]
        tables = [Path(SideFile.of(record, entry).path) for entry in entries]
        return (*tables, *_named_runs(record, value["config"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def _named_runs(record: Path, config: dict[str, Any]) -> list[Path]:
    """Return the run and the qrels that a record names; one of an older reranking names none."""
    if "first" in config and "runs" not in config:
        older = (record.with_suffix(end) for end in (".trec", ".first.trec"))
        return [run for run in older if run.is_file()]
    names = [*config.get("runs", ()), *config.get("qrels", ())]
    return [record.with_name(name) for name in names if _RUN.fullmatch(name)]


def remove_unnamed(record: Path, *, replaced: Collection[Path]) -> None:
    """Remove files that the record on disk does not name.

    Args:
        record: path of the record, which has just been written.
        replaced: the files that the record before it named. Others are removed once they are an
            hour old: until then, another process may be about to write the record that names them.
    """
    named = {file.name for file in named_files(record)}
    old = {file.name for file in replaced}
    own = re.compile(re.escape(record.stem) + f"({_END}|{_RUN_END})")
    for file in record.parent.glob(f"{record.stem}.*"):
        idle = file.name in old or _age(file) > _ABANDONED
        if own.fullmatch(file.name) and file.name not in named and idle:
            file.unlink(missing_ok=True)
    for file in record.parent.glob(f".{record.stem}.*.tmp"):  # of writers that were killed
        if _age(file) > _ABANDONED:
            file.unlink(missing_ok=True)


def side_file_problems(record: Path, value: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the files that a record's JSON names.

    Missing, changed, or not the table that the record describes; rows are not read.
    """
    for kind in KINDS:
        if entry := value.get(kind):
            try:
                file = SideFile.of(record, entry)
                yield from _table_problems(file, kind, entry)
            except ResultError as error:
                yield str(error)


def _table_problems(file: SideFile, kind: str, entry: dict[str, Any]) -> Iterator[str]:
    """Compare rows and columns of a file with what its record says of them."""
    table = file.open()
    expected = {QUERY_ID: "string", **_columns(kind, entry)}
    columns = {field.name: _simple(field.type) for field in table.schema_arrow}
    if columns != expected:
        yield f"{file.shown}: its columns are {_cut(columns)}; its record expects {_cut(expected)}"
    rows, stated = table.metadata.num_rows, entry["queries"]
    if rows != stated:
        yield f"{file.shown}: it has {rows} rows; its record says {stated}"


def _columns(kind: str, entry: dict[str, Any]) -> dict[str, str]:
    """The columns beside the query ids, by name, with their types."""
    return dict.fromkeys(entry["columns"], "double") if kind == "scores" else {DOCUMENTS: "list"}


def _simple(of: pa.DataType) -> str:
    return str(of).removeprefix("large_").partition("<")[0]


def _cut(columns: dict[str, str]) -> str:
    text = ", ".join(f"{name} ({of})" for name, of in columns.items())
    return reprlib.repr(text)


def _age(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:
        return 0.0
