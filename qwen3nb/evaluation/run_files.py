"""Write the run and the qrels of a search beside its record, for programs that score runs.

Both are in TREC format, and the record names them with their digests (`qwen3nb.records.runs`).
They hold the queries of the record under the record's ids, so that a program with the
definitions of trec_eval gets the record's score of every query. A query for which nothing was
retrieved has no line in a run, and scores 0.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from qwen3nb.datasets.trec import qrels_bytes, run_digest, write_run
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.metrics.retrieval import Qrels, Run
from qwen3nb.records.record import Result
from qwen3nb.records.runs import run_problems
from qwen3nb.records.side_files import run_path
from qwen3nb.utils.atomic_files import write_bytes

__all__ = ["has_runs", "with_added_runs", "with_qrels", "with_runs"]


def has_runs(result: Result, folder: Path) -> bool:
    """Whether a record names its run and its qrels, and they are there as they were written."""
    named = result.config.get("runs") and result.config.get("qrels")
    return bool(named) and not any(run_problems(result.path(folder), result, known={}))


def with_runs(result: Result, folder: Path, *, run: Run, qrels: Qrels) -> Result:
    """Write the run and the qrels of a search; return the record that names them, to be saved.

    Args:
        result: the record of the search.
        folder: folder of the records.
        run: the score per query and document that was scored.
        qrels: the grade per query and document that it was scored by.

    Raises:
        DataError: an id is empty or has white space, which TREC's formats cannot express.
    """
    named = with_qrels(result, folder, qrels)
    file, tag = result.path(folder), result.model.label
    digest = run_digest(file, run, tag=tag, distinct=True)
    written = write_run(run_path(file, digest), run, tag=tag, distinct=True)
    return replace(named, config=named.config | {"runs": {written.name: digest}})


def with_qrels(result: Result, folder: Path, qrels: Qrels) -> Result:
    """Write the qrels of a search; return the record that names them, to be saved.

    Raises:
        DataError: as `with_runs`.
    """
    file = result.path(folder)
    data = qrels_bytes(file, qrels)
    digest = sha256(data).hexdigest()
    written = write_bytes(run_path(file, digest, kind="qrels"), data)
    return replace(result, config=result.config | {"qrels": {written.name: digest}})


def with_added_runs(earlier: Result, again: Result) -> Result:
    """Return a stored record with the runs of its repetition, which has the same scores.

    Raises:
        EvaluationError: the scores differ.
    """
    if earlier.scores != again.scores:
        raise EvaluationError(
            f"{earlier.task.key}: the record has other scores than its repetition, whose run is "
            "therefore not added to it; use --fresh to replace the record"
        )
    names = {name: again.config[name] for name in ("runs", "qrels")}
    return replace(earlier, config=earlier.config | names)
