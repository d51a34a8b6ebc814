"""Read and write runs in TREC format, ``query Q0 document rank score tag``; write qrels.

See https://trec.nist.gov/data/qrels_eng/ and the README of trec_eval. Ranks follow trec_eval
(32-bit scores, ties by id, descending), independent of the order of lines, but for one thing: where
scores of a file tie, its own ranks decide, if they are distinct. A file whose ranks contradict its
scores is refused. Scores are written with all digits, for lossless round trips.
Programs order equal scores differently; runs for other programs are therefore written with
``distinct=True``, without ties.
"""

import hashlib
import re
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qwen3nb.datasets.rows import DataError, checked_id, numbered_lines, stated_number
from qwen3nb.metrics.retrieval import Qrels, Run, ranking
from qwen3nb.metrics.run_arrays import RunArrays, RunBuilder
from qwen3nb.utils.atomic_files import new_file

_AT_ONCE = 100_000  # lines
_BLANK = re.compile(r"\s")
_RANK = re.compile(r"-?[0-9]{1,9}")


def write_run(file: Path, run: Run, *, tag: str, distinct: bool = False) -> Path:
    """Write ``run`` atomically, one query after the other.

    Args:
        file: the file to write.
        run: score per query and document.
        tag: name of the system, the last column.
        distinct: break ties: lower a score that equals the previous one in 32 bits to the next
            32-bit number.

    Raises:
        DataError: an id is empty or contains white space, which the format cannot express.
    """
    with new_file(file) as handle:
        handle.writelines(_blocks(file, run, tag=tag, distinct=distinct))
    return file


def run_digest(file: Path, run: Run, *, tag: str, distinct: bool = False) -> str:
    """Return the SHA-256 of the file that `write_run` would write; errors name ``file``."""
    digest = hashlib.sha256()
    for block in _blocks(file, run, tag=tag, distinct=distinct):
        digest.update(block)
    return digest.hexdigest()


def _blocks(file: Path, run: Run, *, tag: str, distinct: bool) -> Iterator[bytes]:
    """Yield the lines of each query."""
    for query in sorted(run):
        ranked = ranking(run, query)
        _check_ids(file, query, ranked)
        scores = run[query]
        values = [float(scores[document]) for document in ranked]
        lines = [
            f"{query} Q0 {document} {rank} {value!r} {tag}\n"
            for rank, (document, value) in enumerate(
                zip(ranked, _lowered(values) if distinct else values, strict=True), start=1
            )
        ]
        yield "".join(lines).encode("utf-8")


def _lowered(scores: list[float]) -> list[float]:
    """Return descending scores without ties as 32-bit numbers.

    >>> _lowered([2.0, 1.0, 1.0, 0.5])
    [2.0, 1.0, 0.9999999403953552, 0.5]
    """
    with np.errstate(over="ignore"):
        values = np.asarray(scores, dtype=np.float32)
    if np.all(values[1:] < values[:-1]):
        return scores
    lowered, last = [], np.float32(np.inf)
    for score, value in zip(scores, values, strict=True):
        if value >= last:
            value = np.nextafter(last, np.float32(-np.inf))
            score = float(value)
        lowered.append(score)
        last = value
    return lowered


def qrels_bytes(file: Path, qrels: Qrels) -> bytes:
    """Return ``qrels`` in TREC format: ``query 0 document grade``, one per line.

    Negative grades are written as 0. Raises DataError as `write_run`.
    """
    lines = []
    for query in sorted(qrels):
        documents = sorted(qrels[query])
        _check_ids(file, query, documents)
        lines += [f"{query} 0 {name} {max(qrels[query][name], 0)}\n" for name in documents]
    return "".join(lines).encode("utf-8")


def _check_ids(file: Path, query: str, documents: list[str]) -> None:
    names = (query, *documents) if documents else ()
    if all(names) and not _BLANK.search("".join(names)):
        return
    name = next(each for each in names if not each or _BLANK.search(each))
    raise DataError(
        f"{file}: the id {name!r:.60} is empty or has white space, which a TREC run and its qrels "
        "cannot express"
    )


def read_run(file: Path) -> dict[str, dict[str, float]]:
    """Read the score per query and document; see `load_run`."""
    return {query: dict(scores) for query, scores in load_run(file).items()}


def load_run(file: Path) -> RunArrays:
    """Read a run as arrays, documents in the order of their lines; see `load_run_with_ties`."""
    return load_run_with_ties(file)[0]


def load_run_with_ties(file: Path) -> tuple[RunArrays, int]:
    """Read a run as arrays, and count its neighbours that tie and have no rank to order them.

    Where 32-bit scores of a query tie in another order than that of its ranks, they are lowered to
    the next 32-bit number, so that the ranks count. Tied documents without distinct ranks are
    ordered by id, as in trec_eval.

    Raises:
        DataError: a malformed line, a score that is not a finite number, a rank that is not a whole
            number (each names file and line), a duplicate document, an id with control
            characters, or ranks that contradict the scores.
    """
    return _with_ties_by_rank(*_as_written(file))


def ranks_decide(file: Path) -> bool:
    """Return whether scores of a run tie where its ranks have another order than the ids."""
    run, ranks = _as_written(file)
    ordered, _ = _with_ties_by_rank(run, ranks)
    return bool((ordered.scores != run.scores).any())


def _as_written(file: Path) -> tuple[RunArrays, NDArray[np.int32]]:
    """Return a checked run and its ranks, in the order of its scores."""
    builder, ranks = RunBuilder(), array("i")
    lines = _rows(file)
    while block := list(islice(lines, _AT_ONCE)):
        queries, documents, ranked, scores = zip(*block, strict=True)
        builder.add_rows(queries, documents, scores)
        ranks.extend(ranked)
    run = builder.run()
    if not run:
        raise DataError(f"{file}: empty; expected lines of a run")
    for names in (run.queries, run.names):
        if not "".join(names).isprintable():
            for name in names:
                checked_id(name, where=str(file))
    for query, (start, stop) in zip(run.queries, pairwise(run.offsets.tolist()), strict=True):
        rows, counts = np.unique(run.documents[start:stop], return_counts=True)
        if len(counts) < stop - start:
            twice = run.names[rows[counts > 1][0]]
            raise DataError(f"{file}: duplicate document {twice!r:.60} of query {query!r:.60}")
    ordered_ranks = builder.in_order(np.frombuffer(ranks, dtype=np.int32))
    _check_ranks(file, run, ordered_ranks)
    return run, ordered_ranks


def _with_ties_by_rank(run: RunArrays, ranks: NDArray[np.int32]) -> tuple[RunArrays, int]:
    """Return a run in which distinct ranks order tied scores, and the number of other ties."""
    scores, without_rank = run.scores.copy(), 0
    with np.errstate(over="ignore"):
        rounded = scores.astype(np.float32)
    for start, stop in pairwise(run.offsets.tolist()):
        part = slice(start, stop)
        ties = (stop - start) - len(np.unique(rounded[part]))
        if ties == 0:
            continue
        if len(np.unique(ranks[part])) < stop - start:
            without_rank += ties
            continue
        by_rank = np.argsort(ranks[part])
        by_score = np.lexsort((run.documents[part], rounded[part]))[::-1]
        if (by_rank != by_score).any():
            scores[part][by_rank] = _lowered(scores[part][by_rank].tolist())
    return replace(run, scores=scores), without_rank


def _check_ranks(file: Path, run: RunArrays, ranks: NDArray[np.int32]) -> None:
    """Refuse ranks that contradict the scores; equal ranks are ignored."""
    rows = np.repeat(np.arange(len(run)), np.diff(run.offsets))
    with np.errstate(over="ignore"):
        scores = run.scores.astype(np.float32)
    same = rows[1:] == rows[:-1]
    if np.any(same & (ranks[1:] <= ranks[:-1])):
        order = np.lexsort((-scores, ranks, rows))
        ranks, scores = ranks[order], scores[order]
    odd = np.flatnonzero(same & (ranks[1:] > ranks[:-1]) & (scores[1:] > scores[:-1]))
    if len(odd):
        at = int(odd[0]) + 1
        raise DataError(
            f"{file}: query {run.queries[rows[at]]!r:.60}: rank {ranks[at]} has a higher score "
            f"than rank {ranks[at - 1]} ({len(odd)} such ranks in the file); expected scores of "
            "which higher is better, or ranks that are all 0"
        )


def _rows(file: Path) -> Iterator[tuple[str, str, int, float]]:
    """Yield query, document, rank and score of each line that is not blank.

    Three fields are query, document and rank.
    """
    for number, line in numbered_lines(file):
        fields = line.split()
        if not fields:
            continue
        if len(fields) not in (3, 6):
            raise DataError(
                f"{file}:{number}: {len(fields)} fields, expected 6 (query Q0 document rank score "
                "tag) or 3 (query document rank)"
            )
        short = len(fields) == 3
        rank = fields[2] if short else fields[3]
        if not _RANK.fullmatch(rank):
            raise DataError(f"{file}:{number}: expected a whole number as rank; got {rank!r:.60}")
        score = -float(rank) if short else stated_number(fields[4])
        if score is None:
            raise DataError(f"{file}:{number}: expected a finite number; got {fields[4]!r:.60}")
        yield fields[0], fields[1] if short else fields[2], int(rank), score
