"""Scores of several systems aligned by task and query.

Whatever cannot be paired is reported: a query that a system did not answer, a task of a single
system, a record of another revision of the data, a metric without per-query scores. Nothing is
dropped silently.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.metrics.intervals import Array
from qwen3nb.records.record import Result

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "Pairing",
    "ScoreMatrix",
    "SystemScores",
    "by_part",
    "common_revision",
    "comparable",
    "join",
    "model_names",
    "newest_records",
    "pair_against",
    "pair_results",
    "score_columns",
    "shared_queries",
    "system_names",
]

_LEVELS = ("subset", "split")  # of a part, in the order of a task's key
Columns = Mapping[str, Mapping[str, float]]  # system, then query id, to score


@dataclass(frozen=True, eq=False)
class SystemScores(Mapping[str, float]):
    """One system's scores on a task: an array, read like a dictionary by query id.

    Attributes:
        queries: n ids, sorted; systems that answered the same queries share one tuple.
        scores: (n,), in the order of the ids.
    """

    queries: tuple[str, ...]
    scores: Array

    @classmethod
    def of(cls, values: Mapping[str, float]) -> SystemScores:
        """Return the scores of any mapping; one that is such scores already is returned as is."""
        if isinstance(values, SystemScores):
            return values
        return cls(*_in_order(tuple(values), np.array(list(values.values()), dtype=float)))

    def __getitem__(self, query: str) -> float:
        at = bisect_left(self.queries, query)
        if at == len(self) or self.queries[at] != query:
            raise KeyError(query)
        return float(self.scores[at])

    def __iter__(self) -> Iterator[str]:
        return iter(self.queries)

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        return f"<SystemScores of {len(self)} queries>"

    def on(self, queries: tuple[str, ...]) -> Array:
        """Return the scores on some of the queries, in their order."""
        if queries == self.queries:
            return self.scores
        at = {query: index for index, query in enumerate(self.queries)}
        scores: Array = self.scores[[at[query] for query in queries]]
        return scores


def _in_order(queries: tuple[str, ...], scores: Array) -> tuple[tuple[str, ...], Array]:
    """Return query ids and their scores, sorted by id."""
    order = sorted(range(len(queries)), key=queries.__getitem__)
    if order == list(range(len(queries))):
        return queries, scores
    return tuple(queries[index] for index in order), scores[order]


@dataclass(frozen=True)
class ScoreMatrix:
    """Scores of several systems on the queries that all of them answered.

    Attributes:
        task: name of the task.
        metric: name of the metric.
        systems: S names.
        queries: n ids, sorted.
        scores: (S, n).
        unpaired: per system, the query ids that are not shared by all systems.
    """

    task: str
    metric: str
    systems: tuple[str, ...]
    queries: tuple[str, ...]
    scores: Array
    unpaired: dict[str, tuple[str, ...]]

    def column(self, system: str) -> Array:
        """One system's scores (n,).

        Raises:
            ValueError: an unknown system; lists those available.
        """
        if system not in self.systems:
            raise ValueError(
                f"no system {system!r} on {self.task}; available: {', '.join(self.systems)}"
            )
        scores: Array = self.scores[self.systems.index(system)]
        return scores

    def to_frame(self) -> DataFrame:
        """A row per query, a column per system; of two, their difference, smallest first."""
        from pandas import DataFrame, Index

        index = Index(self.queries, name="query")
        frame = DataFrame(self.scores.T, index=index, columns=list(self.systems))
        if len(self.systems) != 2:
            return frame
        first, second = self.systems
        return frame.assign(difference=frame[first] - frame[second]).sort_values("difference")

    @property
    def notes(self) -> tuple[str, ...]:
        """One line per system with unpaired queries."""
        return tuple(
            f"{self.task}: {len(ids)} queries of {system} do not pair ({_some(ids)})"
            for system, ids in self.unpaired.items()
            if ids
        )


@dataclass(frozen=True)
class Pairing:
    """Score matrices per task, and what is in none of them.

    Attributes:
        matrices: one per task, ordered by name.
        left_out: one line per record or task that is in no matrix, with the reason.
    """

    matrices: tuple[ScoreMatrix, ...]
    left_out: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything that does not pair: records, tasks and queries."""
        return self.left_out + tuple(note for each in self.matrices for note in each.notes)


def join(columns: Columns, *, task: str = "", metric: str = "") -> ScoreMatrix:
    """Join systems by query id.

    >>> join({"a": {"q1": 1.0, "q2": 0.5}, "b": {"q1": 0.0}}).unpaired
    {'a': ('q2',), 'b': ()}

    Raises:
        ValueError: fewer than two systems, no query shared by all, or a value that is not
            finite; names the system and the query.
    """
    if len(columns) < 2:
        raise ValueError(f"{task}: expected two or more systems; got {list(columns)}")
    systems = {system: SystemScores.of(values) for system, values in columns.items()}
    queries = shared_queries([each.queries for each in systems.values()])
    if not queries:
        sizes = ", ".join(f"{system} has {len(values)}" for system, values in columns.items())
        raise ValueError(f"{task}: no query is shared by all systems ({sizes})")
    scores = np.array([each.on(queries) for each in systems.values()])
    if len(bad := np.argwhere(~np.isfinite(scores))):
        system, query = list(columns)[bad[0][0]], queries[bad[0][1]]
        raise ValueError(f"{task}: {system} has no finite value on query {query!r}")
    unpaired = {system: _without(each.queries, queries) for system, each in systems.items()}
    return ScoreMatrix(task, metric, tuple(columns), queries, scores, unpaired)


def shared_queries(several: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the query ids, sorted, that are in all of several sorted tuples."""
    first, *others = several
    if all(queries == first for queries in others):
        return first
    return tuple(sorted(set(first).intersection(*others)))


def _without(queries: tuple[str, ...], shared: tuple[str, ...]) -> tuple[str, ...]:
    return () if queries == shared else tuple(sorted({*queries} - {*shared}))


def pair_results(
    results: Iterable[Result], *, metric: str | None = None, tasks: Sequence[str] | None = None
) -> Pairing:
    """Join records into one matrix per task.

    A model that was run with several seeds counts as one system per seed. Of several records
    of the same model, seed and task, the one finished last is used; of several revisions of a
    task's data, the one with most records (if tied, the newer).

    Args:
        results: records of any models, tasks and seeds.
        metric: the per-query metric; by default each task's main metric.
        tasks: names of the tasks to include; all by default.
    """
    given = [result for result in results if tasks is None or result.task.key in tasks]
    newest, left_out = newest_records(given)
    newest = by_part(newest)
    names = system_names(newest)
    by_task: dict[str, list[Result]] = {}
    for result in newest:
        by_task.setdefault(result.task.key, []).append(result)
    missing = sorted(set(tasks or ()) - {result.task.key for result in given})
    left_out += [f"{task}: no record of any system" for task in missing]
    matrices = []
    for task, records in sorted(by_task.items()):
        records.sort(key=lambda each: names[each.model.identity, each.seed])
        matrix, reasons = _matrix(task, records, names, metric)
        left_out += reasons
        if matrix is not None:
            matrices.append(matrix)
    return Pairing(tuple(matrices), tuple(left_out))


def newest_records(results: Iterable[Result]) -> tuple[list[Result], list[str]]:
    """The newest record per model identity, seed and task, and a note on each older one.

    There is no note on a record of the same content under another label, which `model_names` shows.
    """
    newest: dict[tuple[str, int, str], Result] = {}
    replaced = []
    for result in sorted(results, key=lambda each: each.finished):
        key = (result.model.identity, result.seed, result.task.key)
        if key in newest and newest[key].model.label == result.model.label:
            replaced.append(
                f"{key[2]}: an earlier record of {result.model.label} (seed {result.seed}), "
                f"finished {newest[key].finished}"
            )
        newest[key] = result
    return list(newest.values()), replaced


def by_part(results: Iterable[Result]) -> list[Result]:
    """Replace the record of a task with several splits or subsets by a record of each.

    Queries are paired within one subset and split only. The key of a part is that of a task
    restricted to it: ``STS17-en-en``, or ``PoemSentiment-test``.
    """
    return [each for result in results for each in _parts(result)]


def _parts(result: Result) -> list[Result]:
    if not result.parts:
        return [result]
    several = [len({getattr(part, name) for part in result.parts}) > 1 for name in _LEVELS]
    fixed = result.task.selection.endswith(tuple(f"-{part.split}" for part in result.parts))
    parts = []
    for part in result.parts:
        shown = (several[0], several[1] or fixed)
        names = [getattr(part, name) for name, show in zip(_LEVELS, shown, strict=True) if show]
        prefix = f"{part.split}/{part.subset}/"
        columns = {
            column: {q.removeprefix(prefix): v for q, v in values.items() if q.startswith(prefix)}
            for column, values in result.per_query.items()
        }
        task = replace(
            result.task, selection="-".join(names), splits=(part.split,), subsets=(part.subset,),
            languages=part.languages, mteb=None,
        )  # fmt: skip
        metrics = {result.task.main_metric: part.score}
        parts.append(replace(result, task=task, metrics=metrics, per_query=columns, parts=()))
    return parts


def pair_against(
    results: Iterable[Result], reference: Result, *, metric: str | None = None
) -> Pairing:
    """Pair each of ``results`` with ``reference``: matrices of two systems, the reference second.

    Records are paired one by one, so queries that a third system did not answer are kept.

    Args:
        results: records of the reference's task; the reference itself is skipped.
        reference: the record to compare with.
        metric: the per-query metric; by default the task's main metric.
    """
    others = [result for result in results if result is not reference]
    names = system_names([*others, reference])
    task, revision = reference.task.key, reference.task.revision
    wanted = metric or reference.task.main_metric
    matrices, left_out = [], []
    for result in others:
        columns, reasons = score_columns(task, [result, reference], names, wanted, revision)
        left_out += reasons
        if len(columns) < 2:
            continue
        try:
            matrices.append(join(columns, task=task, metric=wanted))
        except ValueError as error:
            left_out.append(str(error))
    return Pairing(tuple(matrices), tuple(dict.fromkeys(left_out)))


def comparable(one: Result, other: Result) -> bool:
    """Whether both records score the same queries of the same data by the first's main metric."""
    metric = one.task.main_metric
    return (
        one.task.key == other.task.key
        and one.task.revision == other.task.revision
        and metric in one.per_query
        and metric in other.per_query
        and one.per_query[metric].keys() == other.per_query[metric].keys()
    )


def model_names(results: Iterable[Result]) -> dict[str, str]:
    """Names by model identity: the newest label, with pooling or digest if not unique.

    A model with several labels shows the others as well: ``demo-average (= runs-ul2-best)``.
    """
    newest = sorted(results, key=lambda each: each.finished)
    models = {result.model.identity: result.model for result in newest}
    aliases: dict[str, set[str]] = {}
    for result in newest:
        aliases.setdefault(result.model.identity, set()).add(result.model.label)
    labels = [model.label for model in models.values()]
    names = {}
    for identity, model in models.items():
        name = model.label
        if labels.count(name) > 1:
            name += f" ({model.settings.get('pooling') or identity[:8]})"
        names[identity] = name
    if len(set(names.values())) < len(names):
        names = {identity: f"{models[identity].label} {identity[:8]}" for identity in models}
    for identity, model in models.items():
        if others := sorted(aliases[identity] - {model.label}):
            names[identity] += f" (= {', '.join(others)})"
    return names


def system_names(results: Iterable[Result]) -> dict[tuple[str, int], str]:
    """Names by identity and seed: the model's, with the seed if there are several."""
    given = list(results)
    names = model_names(given)
    systems = dict.fromkeys((result.model.identity, result.seed) for result in given)
    identities = [identity for identity, _ in systems]
    return {
        (identity, seed): f"{names[identity]} (seed {seed})"
        if identities.count(identity) > 1
        else names[identity]
        for identity, seed in systems
    }


def _matrix(
    task: str, records: list[Result], names: dict[tuple[str, int], str], metric: str | None
) -> tuple[ScoreMatrix | None, list[str]]:
    """Score matrix of one task, or None if no two records can be joined, and what is left out."""
    wanted = metric or records[0].task.main_metric
    columns, reasons = score_columns(task, records, names, wanted, common_revision(records))
    if len(columns) < 2:
        reasons += [f"{task}: {name} has no other system to pair with" for name in columns]
        return None, reasons
    try:
        return join(columns, task=task, metric=wanted), reasons
    except ValueError as error:
        return None, [*reasons, str(error)]


def score_columns(
    task: str,
    records: Sequence[Result],
    names: Mapping[tuple[str, int], str],
    metric: str,
    revision: str,
) -> tuple[dict[str, SystemScores], list[str]]:
    """Per-query scores of the systems that can be compared, and why others cannot.

    Args:
        task: name of the task, for the reasons.
        records: one per system, of this task.
        names: of the systems, by identity and seed.
        metric: the per-query metric.
        revision: of the data; records of another revision are left out.
    """
    columns: dict[str, SystemScores] = {}
    reasons = []
    for result in records:
        name = names[result.model.identity, result.seed]
        if result.task.revision != revision:
            reasons.append(
                f"{task}: {name} was run on revision {result.task.revision} of the data, "
                f"the others on {revision}"
            )
        elif not (values := result.per_query.get(metric)):
            reasons.append(f"{task}: {name} has no {metric} per query")
        elif len(bad := np.flatnonzero(~np.isfinite((own := SystemScores.of(values)).scores))):
            reasons.append(f"{task}: {name} has no finite value on query {own.queries[bad[0]]!r}")
        else:
            columns[name] = own
    return columns, reasons


def common_revision(records: Sequence[Result]) -> str:
    """The revision of the data with most records; if tied, the newer."""
    counts: dict[str, tuple[int, str]] = {}
    for result in records:
        revision = str(result.task.revision)
        count, last = counts.get(revision, (0, ""))
        counts[revision] = (count + 1, max(last, result.finished))
    return max(counts, key=lambda revision: counts[revision])


def _some(ids: Sequence[str], *, shown: int = 5) -> str:
    rest = len(ids) - shown
    return ", ".join(ids[:shown]) + (f" and {rest} more" if rest > 0 else "")
