"""Read and write runs in TREC format: ``query Q0 document rank score tag``, one per line.

See https://trec.nist.gov/data/qrels_eng/ and the README of trec_eval. Ranks follow
trec_eval (32-bit scores, ties by id, descending), whatever the order of the lines. Scores
keep all their digits, so that a run survives a round trip.

The reader of ir_measures is not used: it accepts NaN and duplicate documents, and its
errors name neither file nor line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from qwen3nb.datasets.rows import DataError, open_text
from qwen3nb.metrics.retrieval import Run, rank_documents
from qwen3nb.utils.atomic_files import write_text

__all__ = ["cut_run", "read_run", "write_run"]

_BLANK = re.compile(r"\s")


def write_run(file: Path, run: Run, *, tag: str) -> Path:
    """Write ``run`` atomically.

    Raises:
        DataError: an id is empty or contains white space, which the format cannot express.
    """
    lines = []
    for query in sorted(run):
        for rank, document in enumerate(rank_documents(run[query]), start=1):
            for name in (query, document):
                if not name or _BLANK.search(name):
                    raise DataError(
                        f"{file}: the id {name!r} is empty or has white space, which a TREC run "
                        "cannot express"
                    )
            lines.append(f"{query} Q0 {document} {rank} {float(run[query][document])!r} {tag}\n")
    return write_text(file, "".join(lines))


def read_run(file: Path) -> dict[str, dict[str, float]]:
    """Read the score per query and document.

    Raises:
        DataError: a malformed line, a score that is not a finite number, or a duplicate
            document; names file and line.
    """
    run: dict[str, dict[str, float]] = {}
    with open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.split()
            if not fields:
                continue
            query, document, score = _fields(file, number, fields)
            scores = run.setdefault(query, {})
            if document in scores:
                raise DataError(
                    f"{file}:{number}: duplicate document {document!r} of query {query!r}"
                )
            scores[document] = score
    if not run:
        raise DataError(f"{file}: empty; expected lines of a run")
    return run


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


def cut_run(run: Mapping[str, Mapping[str, float]], depth: int) -> dict[str, dict[str, float]]:
    """Keep the ``depth`` best documents of each query."""
    return {
        query: {document: scores[document] for document in rank_documents(scores)[:depth]}
        for query, scores in run.items()
    }
