"""Write the score of every query to one table, for programs that read Parquet or CSV.

A row is one score: of a model, a task, a query and a metric. Every column of a record's scores is
a metric, also those that an aggregate is computed from, such as ``cosine`` and ``gold`` of STS.
Records are read and written one after the other.

    model, identity, seed     the model's label, its whole identity, and the seed
    task, type, revision      name, type and data of the task
    split, subset             of the query; empty where the record does not say
    query, metric, value      the query's id without split and subset, and its score
    finished, record          when the record was made, and its file below the folder of records

In CSV, a text that a spreadsheet would read as a formula starts with an apostrophe; numbers and
Parquet are as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import new_file
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.format import inert_text

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = """
    model identity seed task type revision split subset query metric value finished record
""".split()  # noqa: SIM905 - a list of words reads better as a line


def write_scores(records: Iterable[Result], file: Path | str) -> Path:
    """Write the score of every query of ``records`` to a ``.parquet`` or ``.csv`` file.

    Raises:
        ValueError: another ending; lists the two.
        ResultError: the scores of a record are missing or changed; ``file`` is left as it was.
    """
    target = Path(file)
    write = _WRITERS[one_of("ending of the file", target.suffix, _WRITERS)]
    with new_file(target) as handle:
        write((table for record in records for table in _tables(record)), handle)
    return target


def _schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {"seed": pa.int64(), "value": pa.float64()}
    return pa.schema([(name, kinds.get(name, pa.large_string())) for name in _COLUMNS])


def _write_parquet(tables: Iterable[pa.Table], handle: BinaryIO) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(handle, _schema(), compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)


def _write_csv(tables: Iterable[pa.Table], handle: BinaryIO) -> None:
    import pyarrow.csv

    with pyarrow.csv.CSVWriter(handle, _schema()) as writer:
        for table in tables:
            writer.write_table(_inert(table))


_WRITERS: dict[str, Callable[[Iterable[pa.Table], BinaryIO], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}


def _tables(record: Result) -> Iterator[pa.Table]:
    """Yield a table of each column of a record's scores."""
    import pyarrow as pa

    model, task = record.model, record.task
    same: dict[str, Any] = {
        "model": model.label,
        "identity": model.identity,
        "seed": record.seed,
        "task": task.key,
        "type": task.type,
        "revision": task.revision,
        "finished": record.finished,
        "record": record.path(Path()).as_posix(),
    }
    scores = record.scores
    queries = pa.table(
        [pa.array(column, pa.large_string()) for column in _located(record)],
        names=["split", "subset", "query"],
    )
    for metric in scores:
        values = scores.array(metric)
        rows = np.flatnonzero(~np.isnan(values))
        columns = same | {"metric": metric}
        arrays = {name: pa.repeat(value, len(rows)) for name, value in columns.items()}
        taken = queries.take(pa.array(rows))
        arrays |= {name: taken[name] for name in queries.column_names}
        arrays["value"] = pa.array(values[rows])
        yield pa.table({name: arrays[name] for name in _COLUMNS}).cast(_schema())


def _located(record: Result) -> tuple[list[str], list[str], list[str]]:
    """Return split, subset and own id of each query of a record, in the order of its scores."""
    task = record.task
    pairs = [(part.split, part.subset) for part in record.parts] or [
        (split, subset) for subset in task.subsets for split in task.splits
    ]
    # As `qwen3nb.evaluation.mteb.per_query` names queries: those of one whole task have no prefix.
    whole = pairs[0] if len(pairs) == 1 and pairs[0][1] == "default" else None
    prefixes = {} if whole else {f"{split}/{subset}/": (split, subset) for split, subset in pairs}
    longest = sorted(prefixes, key=len, reverse=True)
    alone = pairs[0] if len(pairs) == 1 else ("", "")
    located = []
    for query in record.scores.queries:
        prefix = next((each for each in longest if query.startswith(each)), "")
        located.append((*prefixes.get(prefix, alone), query.removeprefix(prefix)))
    splits, subsets, names = zip(*located, strict=True) if located else ((), (), ())
    return list(splits), list(subsets), list(names)


def _inert(table: pa.Table) -> pa.Table:
    """Return a table of which no text is read as a formula."""
    import pyarrow as pa

    for index, name in enumerate(table.column_names):
        column = table[name]
        if name in ("seed", "value"):
            continue
        texts = column.dictionary_encode().combine_chunks()
        inert = pa.array([inert_text(each) for each in texts.dictionary.to_pylist()], column.type)
        coded = pa.DictionaryArray.from_arrays(texts.indices, inert)
        table = table.set_column(index, name, coded.cast(column.type))
    return table
