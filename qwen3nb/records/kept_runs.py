"""Compare the runs that are kept next to a record with its scores and its best documents.

A record names its runs and qrels with their SHA-256. The scores of a search follow from them; so do
its best documents, and what a reranker's record says of its first stage.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from qwen3nb.metrics.retrieval import JUDGED, find_measure, rank_documents, score_run
from qwen3nb.records.record import Result
from qwen3nb.records.side_files import first_run_file, reranked_run_file
from qwen3nb.utils.atomic_files import sha256_file
from qwen3nb.utils.schema import shortened

_ByQuery = dict[str, dict[str, float]]  # a number per query and document

_ROUNDING = 1e-6  # tolerance between a stored score and one computed from its run
# Columns of a reranker: of its first stage, the difference to it, and of the best order.
_FIRST, _GAIN, _BEST = "first ", "gain ", "oracle "


def run_problems(
    file: Path, result: Result, *, digest: Callable[[Path], str] = sha256_file
) -> Iterator[str]:
    """Yield which runs and qrels of the record in ``file`` are missing, or were changed."""
    files = result.files
    digests = {file.with_name(name): sha for name, sha in (files.runs | files.qrels).items()}
    if files.first_run is not None:
        digests[first_run_file(file, files)] = files.first_run["sha256"]
    for run, expected in digests.items():
        if not run.is_file():
            yield f"its run {run.name} is missing"
        elif digest(run) != expected:
            yield f"its run {run.name} is not the one that was scored"


def rescored_problems(file: Path, result: Result) -> Iterator[str]:
    """Yield what of the record in ``file`` does not follow from its run.

    The scores are compared if its qrels are kept, too.
    """
    files = result.files
    if not files.runs:
        return
    first_run: _ByQuery = {}
    try:
        run = _read_run(reranked_run_file(file, files))
        qrels = _read_qrels(file.with_name(name) for name in files.qrels)
        if files.first_run is not None:
            first_run = _read_run(first_run_file(file, files))
    except ValueError as error:
        yield f"its run or its qrels cannot be read ({error})"
        return
    if files.qrels:  # an empty file judges no query, which differs from none
        yield from _score_problems(result, run, qrels)
    if result.top is not None:
        yield from _top_problems(result.top, run)
    if files.first_run is not None:
        yield from _gain_problems(result)
        yield from _first_stage_problems(result, run, first_run, qrels)


def _score_problems(
    result: Result, run: _ByQuery, qrels: _ByQuery, *, prefix: str = ""
) -> Iterator[str]:
    """Compare the columns of scores whose names begin with ``prefix`` with a run."""
    columns = {}
    for column in result.per_query:
        metric = column.removeprefix(prefix)
        if column.startswith(prefix) and _is_search_metric(metric):
            columns[metric] = column
    if result.data.complete:  # every document counts as judged
        columns.pop(JUDGED, None)
    threshold = result.data.relevance_threshold or 1
    # zeros: a query counts as 0 if none of its judged documents is relevant.
    computed = score_run(qrels, run, columns, threshold=threshold, zeros=True)
    for metric, column in columns.items():
        yield from _column_problems(column, result.per_query[column], computed[metric])


def _is_search_metric(column: str) -> bool:
    """Return whether a column holds a metric that a run gives, such as ``nDCG@10``.

    A run has no ties, as each program orders them in its own way.
    """
    measure = find_measure(column)
    return measure is not None and not measure.averages_ties


def _column_problems(
    name: str, stated: Mapping[str, float], computed: Mapping[str, float]
) -> Iterator[str]:
    """Yield the first score of a column that its run and its qrels don't give."""
    for query, value in computed.items():
        if query not in stated:
            yield f"{name} has no score of query {query!r}, which its qrels judge"
            return
        is_equal = abs(stated[query] - value) <= _ROUNDING
        if not is_equal:
            yield (
                f"{name} of query {query!r} is {stated[query]}, its run and its qrels give {value}"
            )
            return
    without_judgements = sorted(stated.keys() - computed.keys())
    if without_judgements:
        yield f"{name} has scores of {shortened(without_judgements)}, which its qrels do not judge"


def _first_stage_problems(
    result: Result, run: _ByQuery, first_run: _ByQuery, qrels: _ByQuery
) -> Iterator[str]:
    """Compare what a reranker's record says of its first stage with the first stage's run."""
    candidates = {query: scores.keys() for query, scores in first_run.items()}
    reranked = {query: scores.keys() for query, scores in run.items()}
    if reranked != candidates:
        yield "its run ranks other documents than those of its first stage"
        return
    if not result.files.qrels:
        return
    yield from _score_problems(result, first_run, qrels, prefix=_FIRST)
    best_order = {
        query: {document: qrels.get(query, {}).get(document, 0.0) for document in scores}
        for query, scores in first_run.items()
    }
    yield from _score_problems(result, best_order, qrels, prefix=_BEST)


def _gain_problems(result: Result) -> Iterator[str]:
    """Compare the gains of a reranker with the differences of its scores to the first stage's."""
    scores = result.per_query
    for column in scores:
        if not column.startswith(_GAIN):
            continue
        metric = column.removeprefix(_GAIN)
        first_column = f"{_FIRST}{metric}"
        if metric not in scores or first_column not in scores:
            yield f"{column}: expected the columns {metric} and {first_column}, too"
            continue
        first_scores = scores[first_column]
        gains = {
            query: score - first_scores[query]
            for query, score in scores[metric].items()
            if query in first_scores
        }
        yield from _column_problems(column, scores[column], gains)


def _top_problems(top: Mapping[str, Sequence[str]], run: _ByQuery) -> Iterator[str]:
    """Yield the first query whose best documents are not those of the run."""
    depth = max(map(len, top.values()), default=0)
    for query in sorted({*top, *run}):
        best_documents = rank_documents(run.get(query, {}))[:depth]
        if [*top.get(query, ())] != best_documents:
            yield f"its best documents of query {query!r} are not those of its run"
            return


def _read_run(file: Path) -> _ByQuery:
    """Return the scores in a run: lines of query, ``Q0``, document, rank, score, tag."""
    run: _ByQuery = {}
    for query, _, document, _, score, _ in _rows(file, fields=6):
        run.setdefault(query, {})[document] = float(score)
    return run


def _read_qrels(files: Iterable[Path]) -> _ByQuery:
    """Return the grades in qrels: lines of query, 0, document, grade."""
    qrels: _ByQuery = {}
    for file in files:
        for query, _, document, grade in _rows(file, fields=4):
            qrels.setdefault(query, {})[document] = float(grade)
    return qrels


def _rows(file: Path, *, fields: int) -> Iterator[list[str]]:
    """Yield the fields of each line of a run or of qrels."""
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            values = line.split()
            if len(values) != fields:
                raise ValueError(
                    f"{file.name}: line {number} has {len(values)} fields; expected {fields}"
                )
            yield values
