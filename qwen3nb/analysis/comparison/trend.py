"""How did the runs of each model change, over its versions and over revisions of the data?

Each run is paired with the one before, on the queries that both have. In own data, ids may be
numbers in the file, which shift when a query is added. So a query of another revision is known by
its text.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from qwen3nb.analysis.comparison.alignment import scores_by, without_result
from qwen3nb.analysis.comparison.differences import PairedDifference, paired_difference
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL
from qwen3nb.analysis.stats.score_matrix import SystemScores, shared_queries, system_scores
from qwen3nb.metrics.intervals import Interval, mean_interval
from qwen3nb.records.record import Result
from qwen3nb.records.results import from_oldest


@dataclass(frozen=True)
class TrendPoint:
    """One run in a trend."""

    label: str  # of the model
    finished: str  # time, ISO 8601
    identity: str  # of the model's weights and settings
    revision: str  # of the data
    # over queries; ``interval`` is its widened or Student's interval, or None for a single query
    mean: float
    interval: Interval | None
    n: int
    # mean paired difference from the previous run; None for the first run, and without shared
    # queries
    change: float | None = None
    change_interval: Interval | None = None  # of the change
    p_value: float | None = None  # paired permutation test, Holm-corrected over all changes
    shared: int = 0  # number of queries that the previous run has, too
    model_changed: bool = False  # since the previous run
    data_changed: bool = False


def trend(
    results: Iterable[Result], *, metric: str, n_resamples: int = DRAWS, seed: int
) -> tuple[TrendPoint, ...]:
    """Successive runs of models, ordered by label and time; labels with one run are left out.

    A run is a record. Consecutive ones are compared on the queries that they share.
    """
    runs_by_label: dict[str, list[Result]] = {}
    for result in from_oldest(results):
        if metric in result.per_query:
            runs_by_label.setdefault(result.model.label, []).append(result)
    points = []
    for runs in runs_by_label.values():
        if len(runs) < 2:  # a single run is no trend
            continue
        points.append(_point(runs[0], metric))
        for previous, run in pairwise(runs):
            change = _change(previous, run, metric, draws=n_resamples, seed=seed)
            points.append(_with_change(_point(run, metric), previous, change))
    return tuple(_with_corrected_p_values(points))


def _point(run: Result, metric: str) -> TrendPoint:
    """Return a run with its mean, not compared with another one."""
    scores = run.scores.sample([metric])[:, 0]  # the only column of (n, 1)
    _, interval = mean_interval(scores, level=LEVEL)
    return TrendPoint(
        label=run.model.label,
        finished=run.finished,
        identity=run.model.identity,
        revision=str(run.task.revision),
        mean=float(scores.mean()),
        interval=interval,
        n=len(scores),
    )


def _change(
    previous: Result, run: Result, metric: str, *, draws: int, seed: int
) -> PairedDifference | None:
    """Return the difference of a run from the previous one; None if no query can be paired."""
    if without_result(previous, metric) or without_result(run, metric):
        return None
    clusters: Mapping[str, str] | None = run.task.clusters
    if previous.task.revision == run.task.revision:
        run_scores = scores_by(metric, run)
        previous_scores = scores_by(metric, previous)
    else:
        query_keys = _query_keys(run)
        run_scores = _scores_by_key(metric, run, query_keys)
        previous_scores = _scores_by_key(metric, previous, _query_keys(previous))
        if clusters:
            clusters = {query_keys[query]: cluster for query, cluster in clusters.items()}
    if not shared_queries([run_scores.queries, previous_scores.queries]):
        return None
    return paired_difference(
        {"this run": run_scores, "the previous run": previous_scores},
        task=run.task.key,
        metric=metric,
        clusters=clusters,
        draws=draws,
        seed=seed,
    )


def _query_keys(record: Result) -> dict[str, str]:
    """By query id, what knows the query in another revision: its text, else its id.

    Queries of equal texts are told apart by their ids.
    """
    texts = {query: str(text) for query, text in (record.data.queries or {}).items()}
    counts = Counter(texts.values())
    keys = {}
    for query in record.scores.queries:
        text = texts.get(query, "")
        if not text:
            keys[query] = query
        elif counts[text] == 1:
            keys[query] = text
        else:
            keys[query] = f"{text} ({query})"
    return keys


def _scores_by_key(metric: str, record: Result, keys: Mapping[str, str]) -> SystemScores:
    """Return the scores of a record, with its queries named by their keys."""
    scores = scores_by(metric, record)
    return system_scores(tuple(keys[query] for query in scores.queries), scores.scores)


def _with_change(
    point: TrendPoint, previous: Result, change: PairedDifference | None
) -> TrendPoint:
    """Return a run with its difference from the previous one, and what changed between them."""
    point = replace(
        point,
        model_changed=point.identity != previous.model.identity,
        data_changed=point.revision != str(previous.task.revision),
    )
    if change is None:
        return point
    return replace(
        point,
        change=change.difference,
        change_interval=change.interval,
        p_value=change.p_value,
        shared=change.n,
    )


def _with_corrected_p_values(points: Iterable[TrendPoint]) -> list[TrendPoint]:
    """Correct the p-values of all changes; points without one stay as they are."""
    points = list(points)
    # The first run of a model has no change, and so no p-value.
    p_values = [point.p_value for point in points if point.p_value is not None]
    adjusted = iter(adjust(p_values))
    corrected = []
    for point in points:
        if point.p_value is not None:
            corrected.append(replace(point, p_value=next(adjusted)))
        else:
            corrected.append(point)
    return corrected
