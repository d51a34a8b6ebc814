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
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from qwen3nb.datasets.rows import DataError, checked_id, numbered_lines, stated_number
from qwen3nb.metrics.retrieval import Qrels, Run, ranking
from qwen3nb.metrics.run_arrays import RunArrays, RunBuilder
from qwen3nb.utils.atomic_files import new_file

_ROWS_AT_ONCE = 100_000
_BLANK = re.compile(r"\s")
_RANK = re.compile(r"-?[0-9]{1,9}")
Ranks = NDArray[np.int32]
T = TypeVar("T")


def write_run(
    file: Path,
    run: Run,
    *,
    tag: str,
    distinct: bool = False,
) -> Path:
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
        handle.writelines(_encoded_queries(file, run, tag=tag, distinct=distinct))
    return file


def run_digest(
    file: Path,
    run: Run,
    *,
    tag: str,
    distinct: bool = False,
) -> str:
    """Return the SHA-256 of the file that `write_run` would write; errors name ``file``."""
    digest = hashlib.sha256()
    for block in _encoded_queries(file, run, tag=tag, distinct=distinct):
        digest.update(block)
    return digest.hexdigest()


def _encoded_queries(
    file: Path,
    run: Run,
    *,
    tag: str,
    distinct: bool,
) -> Iterator[bytes]:
    """Yield the lines of each query."""
    for query in sorted(run):
        ranked_documents = ranking(run, query)
        _check_ids(file, [query, *ranked_documents])
        scores = [float(run[query][document]) for document in ranked_documents]
        if distinct:
            scores = _without_ties(scores)
        lines: list[str] = []
        for rank, (document, score) in enumerate(
            zip(ranked_documents, scores, strict=True), start=1
        ):
            # The columns of TREC: query, Q0 (unused), document, rank, score, tag.
            lines.append(f"{query} Q0 {document} {rank} {score!r} {tag}\n")
        yield "".join(lines).encode("utf-8")


def _without_ties(scores: list[float]) -> list[float]:
    """Return descending scores without ties as 32-bit numbers.

    >>> _without_ties([2.0, 1.0, 1.0, 0.5])
    [2.0, 1.0, 0.9999999403953552, 0.5]
    """
    rounded_scores = _as_float32(np.asarray(scores, dtype=np.float64))
    if np.all(rounded_scores[1:] < rounded_scores[:-1]):  # each is lower than the one before
        return scores
    lowered_scores: list[float] = []
    previous = np.float32(np.inf)
    for score, rounded_score in zip(scores, rounded_scores, strict=True):
        if rounded_score < previous:
            lowered_scores.append(score)
            previous = rounded_score
        else:
            next_lower = np.nextafter(previous, np.float32(-np.inf))  # the next number below
            lowered_scores.append(float(next_lower))
            previous = next_lower
    return lowered_scores


def qrels_bytes(file: Path, qrels: Qrels) -> bytes:
    """Return ``qrels`` in TREC format: ``query 0 document grade``, one per line.

    Negative grades are written as 0, and fractions as they are; trec_eval reads their whole part.
    Raises DataError as `write_run`.
    """
    lines: list[str] = []
    for query in sorted(qrels):
        documents = sorted(qrels[query])
        _check_ids(file, [query, *documents])
        for document in documents:
            grade = max(qrels[query][document], 0)  # a negative grade is written as 0
            lines.append(f"{query} 0 {document} {grade}\n")
    return "".join(lines).encode("utf-8")


def _check_ids(file: Path, names: list[str]) -> None:
    # One search for all ids is much faster than one for each.
    if all(names) and not _BLANK.search("".join(names)):
        return
    for name in names:
        if not name or _BLANK.search(name):
            raise DataError(
                f"{file}: the id {name!r:.60} is empty or has white space, which a TREC run and "
                "its qrels cannot express"
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
    run, ranks = _read_run_and_ranks(file)
    return _with_ties_by_rank(run, ranks)


def ranks_decide(file: Path) -> bool:
    """Return whether scores of a run tie where its ranks have another order than the ids."""
    run, ranks = _read_run_and_ranks(file)
    ordered_run, _ = _with_ties_by_rank(run, ranks)
    return bool((ordered_run.scores != run.scores).any())


def _read_run_and_ranks(file: Path) -> tuple[RunArrays, Ranks]:
    """Return a checked run and its ranks, in the order of its scores."""
    builder = RunBuilder()
    ranks_of_lines = array("i")
    for rows in _batched(_rows(file), _ROWS_AT_ONCE):
        queries, documents, ranks, scores = zip(*rows, strict=True)  # the columns of the rows
        builder.add_rows(queries, documents, scores)
        ranks_of_lines.extend(ranks)
    run = builder.run()
    if not run:
        raise DataError(f"{file}: empty; expected lines of a run")
    _check_names(file, run)
    _check_duplicates(file, run)
    # The run has the lines of a query together; in the file they may be anywhere.
    ranks_of_run = builder.in_order(np.frombuffer(ranks_of_lines, dtype=np.int32))
    _check_ranks(file, run, ranks_of_run)
    return run, ranks_of_run


def _check_names(file: Path, run: RunArrays) -> None:
    for names in (run.queries, run.names):
        if "".join(names).isprintable():
            continue
        for name in names:
            checked_id(name, place=str(file))


def _check_duplicates(file: Path, run: RunArrays) -> None:
    """Refuse a document that a query has twice."""
    for query, of_query in _slices_by_query(run):
        documents, counts = np.unique(run.documents[of_query], return_counts=True)
        repeated_documents = documents[counts > 1]
        if len(repeated_documents) > 0:
            name = run.names[repeated_documents[0]]
            raise DataError(f"{file}: duplicate document {name!r:.60} of query {query!r:.60}")


def _slices_by_query(run: RunArrays) -> Iterator[tuple[str, slice]]:
    """Yield each query with the slice of its documents and scores."""
    bounds = pairwise(run.offsets.tolist())
    for query, (start, stop) in zip(run.queries, bounds, strict=True):
        yield query, slice(start, stop)


def _with_ties_by_rank(run: RunArrays, ranks: Ranks) -> tuple[RunArrays, int]:
    """Return a run in which distinct ranks order tied scores, and the number of other ties."""
    new_scores = run.scores.copy()
    rounded_scores = _as_float32(run.scores)
    other_ties = 0
    for _, of_query in _slices_by_query(run):
        ties = _repetitions(rounded_scores[of_query])
        if ties == 0:
            continue
        # Equal ranks order nothing: those ties stay, and are counted.
        has_equal_ranks = _repetitions(ranks[of_query]) > 0
        if has_equal_ranks:
            other_ties += ties
            continue
        by_rank = np.argsort(ranks[of_query])
        # As trec_eval orders them: by score, then by id, both descending.
        by_score = np.lexsort((run.documents[of_query], rounded_scores[of_query]))[::-1]
        if not np.array_equal(by_rank, by_score):
            # Tied scores are lowered a little, so that scores alone give the order of the ranks.
            ranked_scores = run.scores[of_query][by_rank].tolist()
            # A slice is a view, so this changes new_scores itself.
            new_scores[of_query][by_rank] = _without_ties(ranked_scores)
    return replace(run, scores=new_scores), other_ties


def _repetitions(values: NDArray[Any]) -> int:
    """Return how many values are equal to an earlier one."""
    return len(values) - len(np.unique(values))


def _as_float32(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return scores in 32 bits, as trec_eval reads them."""
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def _check_ranks(file: Path, run: RunArrays, ranks: Ranks) -> None:
    """Refuse ranks that contradict the scores; equal ranks are ignored."""
    scores = _as_float32(run.scores)
    first_problem = ""
    total = 0
    for query, of_query in _slices_by_query(run):
        contradictions = _contradictions(ranks[of_query], scores[of_query])
        if contradictions and not first_problem:
            rank, later_rank = contradictions[0]
            first_problem = (
                f"query {query!r:.60}: rank {later_rank} has a higher score than rank {rank}"
            )
        total += len(contradictions)
    if first_problem:
        raise DataError(
            f"{file}: {first_problem} ({total} such ranks in the file); expected scores of which "
            "higher is better, or ranks that are all 0"
        )


def _contradictions(ranks: Ranks, scores: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Return the neighbouring ranks of a query of which the later one has the higher score."""
    by_rank = np.lexsort((-scores, ranks))  # of equal ranks, the higher score first
    earlier_ranks = ranks[by_rank][:-1]
    later_ranks = ranks[by_rank][1:]
    earlier_scores = scores[by_rank][:-1]
    later_scores = scores[by_rank][1:]
    is_contradiction = (later_ranks > earlier_ranks) & (later_scores > earlier_scores)
    pairs = zip(earlier_ranks[is_contradiction], later_ranks[is_contradiction], strict=True)
    return [(int(rank), int(later_rank)) for rank, later_rank in pairs]


def _rows(file: Path) -> Iterator[tuple[str, str, int, float]]:
    """Yield query, document, rank and score of each line that is not blank.

    Three fields are query, document and rank.
    """
    for number, line in numbered_lines(file):
        fields = line.split()
        if not fields:
            continue
        score_text = ""
        if len(fields) == 6:
            query, _, document, rank, score_text, _ = fields
        elif len(fields) == 3:
            query, document, rank = fields
        else:
            raise DataError(
                f"{file}:{number}: {len(fields)} fields, expected 6 (query Q0 document rank score "
                "tag) or 3 (query document rank)"
            )
        if not _RANK.fullmatch(rank):
            raise DataError(f"{file}:{number}: expected a whole number as rank; got {rank!r:.60}")
        if score_text:
            score = stated_number(score_text)
        else:
            score = -float(rank)  # the first rank is the best
        if score is None:
            raise DataError(f"{file}:{number}: expected a finite number; got {score_text!r:.60}")
        yield query, document, int(rank), score


def _batched(rows: Iterator[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most ``size`` rows."""
    block = list(islice(rows, size))
    while block:
        yield block
        block = list(islice(rows, size))
