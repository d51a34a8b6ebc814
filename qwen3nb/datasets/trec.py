"""Read and write runs in TREC format: ``query Q0 document rank score tag``, one per line.

See https://trec.nist.gov/data/qrels_eng/ and the README of trec_eval. Ranks follow
trec_eval (32-bit scores, ties by id, descending), whatever the order of the lines. Scores
keep all their digits, so that a run survives a round trip.

The reader of ir_measures is not used: it accepts NaN and duplicate documents, and its
errors name neither file nor line.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from qwen3nb.datasets.rows import DataError, open_text
from qwen3nb.metrics.retrieval import Run, ranking
from qwen3nb.metrics.run_arrays import RunArrays, RunBuilder
from qwen3nb.utils.atomic_files import new_file

__all__ = ["load_run", "read_run", "run_digest", "write_run"]

Columns = tuple[tuple[str, ...], tuple[str, ...], tuple[float, ...]]
_BLOCK = 8192  # lines
_BLANK = re.compile(r"\s")


def write_run(file: Path, run: Run, *, tag: str) -> Path:
    """Write ``run`` atomically, one query after the other.

    Raises:
        DataError: an id is empty or contains white space, which the format cannot express.
    """
    with new_file(file) as handle:
        handle.writelines(_blocks(file, run, tag=tag))
    return file


def run_digest(file: Path, run: Run, *, tag: str) -> str:
    """Return the SHA-256 of what `write_run` would write.

    Raises:
        DataError: as `write_run`; names ``file``.
    """
    digest = hashlib.sha256()
    for block in _blocks(file, run, tag=tag):
        digest.update(block)
    return digest.hexdigest()


def _blocks(file: Path, run: Run, *, tag: str) -> Iterator[bytes]:
    """Yield the lines of each query."""
    for query in sorted(run):
        ranked = ranking(run, query)
        _check_ids(file, query, ranked)
        scores = run[query]
        lines = [
            f"{query} Q0 {document} {rank} {float(scores[document])!r} {tag}\n"
            for rank, document in enumerate(ranked, start=1)
        ]
        yield "".join(lines).encode("utf-8")


def _check_ids(file: Path, query: str, documents: list[str]) -> None:
    names = (query, *documents) if documents else ()
    if all(names) and not _BLANK.search("".join(names)):
        return
    name = next(each for each in names if not each or _BLANK.search(each))
    raise DataError(
        f"{file}: the id {name!r} is empty or has white space, which a TREC run cannot express"
    )


def read_run(file: Path) -> dict[str, dict[str, float]]:
    """Read the score per query and document.

    Raises:
        DataError: see `load_run`.
    """
    return {query: dict(scores) for query, scores in load_run(file).items()}


def load_run(file: Path) -> RunArrays:
    """Read a run as arrays, documents in the order of their lines.

    Raises:
        DataError: a malformed line, a score that is not a finite number, or a duplicate
            document; names file and line.
    """
    builder = RunBuilder()
    with open_text(file) as lines:
        first = 1
        while block := list(islice(lines, _BLOCK)):
            queries, documents, scores = _columns(file, first, block)
            builder.add_rows(queries, documents, scores)
            first += len(block)
    run = builder.run()
    if not run:
        raise DataError(f"{file}: empty; expected lines of a run")
    for start, stop in pairwise(run.offsets.tolist()):
        if len(np.unique(run.documents[start:stop])) < stop - start:
            raise _duplicate(file)
    return run


def _columns(file: Path, first: int, lines: list[str]) -> Columns:
    """Return queries, documents and scores of lines, whose first has the number ``first``."""
    text = "".join(lines)
    fields = text.split()
    columns = [tuple(fields[each::6]) for each in range(6)]
    if "\n".join(map(" ".join, zip(*columns, strict=False))) + "\n" == text:
        with suppress(ValueError):  # the line of the bad number is named below
            scores = tuple(map(float, columns[4]))
            if all(map(math.isfinite, scores)):
                return columns[0], columns[2], scores
    rows = [line.split() for line in lines]
    parsed = [_fields(file, number, row) for number, row in enumerate(rows, start=first) if row]
    return tuple(zip(*parsed, strict=True)) or ((), (), ())  # type: ignore[return-value]


def _duplicate(file: Path) -> DataError:
    """Describe the first line that has a document of its query again."""
    seen: set[tuple[str, str]] = set()
    with open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.split()
            if not fields:
                continue
            query, document, _ = _fields(file, number, fields)
            if (query, document) in seen:
                break
            seen.add((query, document))
    return DataError(f"{file}:{number}: duplicate document {document!r} of query {query!r}")


def _fields(file: Path, number: int, fields: list[str]) -> tuple[str, str, float]:
    """Return query, document and score; three fields (query, document, rank) as in MS MARCO."""
    if len(fields) not in (3, 6):
        raise DataError(
            f"{file}:{number}: {len(fields)} fields, expected 6 (query Q0 document rank score "
            "tag) or 3 (query document rank)"
        )
    try:
        score = float(fields[4]) if len(fields) == 6 else -float(int(fields[2]))
    except ValueError:
        raise DataError(f"{file}:{number}: expected a number; got {fields[2:]}") from None
    if not math.isfinite(score):
        raise DataError(f"{file}:{number}: expected a finite score; got {score}")
    return fields[0], fields[2] if len(fields) == 6 else fields[1], score
