"""Runs as TREC writes them: ``query Q0 document rank score tag``, a line per document.

https://trec.nist.gov/data/qrels_eng/ and trec_eval's README. Ranks are trec_eval's own
(32-bit scores, ties by id, descending), whatever order a file has; scores keep all their
digits, so that a run read back is the run written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from qwen3nb.datasets.rows import DataError, open_text
from qwen3nb.metrics.retrieval import Run, rank_documents
from qwen3nb.utils.atomic_files import write_text

__all__ = ["read_run", "write_run"]

_BLANK = re.compile(r"\s")


def write_run(file: Path, run: Run, *, tag: str) -> Path:
    """Write ``run``, whole or not at all.

    Raises:
        DataError: an id that is empty or holds white space, which the format cannot say.
    """
    lines = []
    for query in sorted(run):
        for rank, document in enumerate(rank_documents(run[query]), start=1):
            for name in (query, document):
                if not name or _BLANK.search(name):
                    raise DataError(f"{file}: the id {name!r} cannot stand in a TREC run")
            lines.append(f"{query} Q0 {document} {rank} {float(run[query][document])!r} {tag}\n")
    return write_text(file, "".join(lines))


def read_run(file: Path) -> dict[str, dict[str, float]]:
    """Score per query and document.

    Raises:
        DataError: a line of another form, a score that is not a number, a document twice;
            names file and line.
    """
    run: dict[str, dict[str, float]] = {}
    with open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.split()
            if not fields:
                continue
            query, document, score = _fields(file, number, fields)
            found = run.setdefault(query, {})
            if document in found:
                raise DataError(f"{file}:{number}: document {document!r} twice for {query!r}")
            found[document] = score
    if not run:
        raise DataError(f"{file}: no line, so no run")
    return run


def _fields(file: Path, number: int, fields: list[str]) -> tuple[str, str, float]:
    """Query, document, score; from three fields (query, document, rank) as MS MARCO's, too."""
    if len(fields) not in (3, 6):
        raise DataError(
            f"{file}:{number}: {len(fields)} fields, expected 6 (query Q0 document rank score "
            "tag) or 3 (query document rank)"
        )
    try:
        score = float(fields[4]) if len(fields) == 6 else -float(int(fields[2]))
    except ValueError:
        raise DataError(f"{file}:{number}: not a number among {fields[2:]}") from None
    if not math.isfinite(score):
        raise DataError(f"{file}:{number}: the score {score} is not a number")
    return fields[0], fields[2] if len(fields) == 6 else fields[1], score


def cut_run(run: Mapping[str, Mapping[str, float]], depth: int) -> dict[str, dict[str, float]]:
    """The ``depth`` best documents of each query."""
    return {
        query: {document: scores[document] for document in rank_documents(scores)[:depth]}
        for query, scores in run.items()
    }
