"""Comparison of systems on shared queries; each paired difference is computed once.

Every page, table, figure and card reads differences between models from a `Comparison`. P-values
are corrected over the family of all pairs of the models compared on a task by one metric, for any
baseline. A pair therefore has the same corrected p-value wherever these models are compared,
whatever tasks and metrics are shown with it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape

import numpy as np

from qwen3nb.analysis.comparison import alignment, differences
from qwen3nb.analysis.comparison.alignment import Names
from qwen3nb.analysis.comparison.benchmark_means import MeanComparison, mean_comparisons
from qwen3nb.analysis.comparison.differences import PairedDifference, Procedure, TaskComparison
from qwen3nb.analysis.stats import paired_tests
from qwen3nb.analysis.stats.multiple_testing import CORRECTIONS, MAX_T, NAMES
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.metrics.intervals import Array, correlation_influence
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.side_files import QueryScores, sorted_rows
from qwen3nb.records.store import latest
from qwen3nb.tiers import TIERS
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.choices import one_of, split_names
from qwen3nb.utils.imports import DataFrame

# Columns of a data frame of differences: first - second (the baseline).
_COLUMNS = """
    task metric first second n value baseline difference low high p_value corrected family d_z won
    tied lost unpaired
""".split()  # noqa: SIM905 - a list of words reads better as a line
_FEWEST_PAIRS = 4  # required for the interval of a correlation


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Systems compared with a baseline and with each other, task by task."""

    # name of the baseline on most tasks (see `alignment`); empty if there is none
    baseline: str
    tasks: tuple[TaskComparison, ...]  # one comparison per task and metric
    # the records compared, by task and name of the system
    records: Mapping[tuple[str, str], Result]
    procedure: Procedure  # how differences are tested
    names: Names  # names of the systems, by identity and seed
    left_out: tuple[str, ...] = ()  # records that are not compared, each with the reason
    # name of the system by label of its records
    labels: Mapping[str, str] = field(default_factory=dict)
    # comparisons on tasks scored by a correlation (see `_as_means`)
    correlations: tuple[TaskComparison, ...] = ()
    # comparisons on the means of a tier's benchmarks; the first represents the tier
    means: tuple[MeanComparison, ...] = ()

    @property
    def differences(self) -> tuple[PairedDifference, ...]:
        """Every system against the baseline, task by task."""
        return tuple(each for task in self.tasks for each in task.with_baseline)

    def differences_on(self, *tasks: str) -> tuple[PairedDifference, ...]:
        """Every system against the baseline on some tasks or means, computed only for these."""
        every = (*self.tasks, *self.correlations, *self.means)
        return tuple(d for each in every if each.task in tasks for d in each.with_baseline)

    def scored(self, task: str) -> list[Result]:
        """The records of a task; for a benchmark's mean, one record per system with this score."""
        for mean in self.means:
            if mean.task == task:
                return mean.records(self.records)
        return [
            each
            for (name, _), each in self.records.items()
            if name == task and each.main.value is not None
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what is not compared with the baseline, and why."""
        notes = [note for task in self.tasks for note in task.notes]
        return tuple(dict.fromkeys([*self.left_out, *notes]))

    def data_used(self, *tasks: str) -> DataUsed:
        """The data of some tasks or means of benchmarks; by default of all records."""
        parts = {part.task for mean in self.means if mean.task in tasks for part in mean.parts}
        wanted = parts.union(tasks)
        records = (each for (key, _), each in self.records.items() if not tasks or key in wanted)
        return DataUsed.of(records)

    def name(self, result: Result) -> str:
        """Name of the system of a record."""
        return self.names[result.model.identity, result.seed]

    def on(self, task: str, metric: str = "") -> TaskComparison | None:
        """The comparison on one task (and metric); None if no system has scores on it."""
        every = (*self.tasks, *self.correlations, *self.means)
        return next((t for t in every if t.task == task and metric in ("", t.metric)), None)

    def difference(self, first: str, second: str, *, task: str) -> PairedDifference | None:
        """First − second, by name or label, on one task; None if they cannot be paired."""
        compared = self.on(task)
        first, second = (self.labels.get(name, name) for name in (first, second))
        return None if compared is None else compared.difference(first, second)

    def between(self, first: Result, second: Result) -> PairedDifference | None:
        """First − second on the task of both records; None if they cannot be paired."""
        compared = self.on(first.task.key) if first.task.key == second.task.key else None
        a, b = (self.names.get((each.model.identity, each.seed), "") for each in (first, second))
        return compared.difference(a, b) if compared else None

    def matrix(self, difference: PairedDifference) -> ScoreMatrix:
        """The scores behind a difference, query by query.

        Raises:
            ValueError: the difference is not one of this comparison.
        """
        compared = self.on(difference.task, difference.metric)
        if compared is None:
            raise ValueError(f"no comparison on {difference.task} by {difference.metric}")
        return compared.matrix(difference.first, difference.second)

    def detectable(self, difference: PairedDifference) -> float | None:
        """The smallest true difference that is significant in 80 % of such samples, or None.

        Both a paired t-test, at the level of the pair's corrected test, and the interval have to
        show it.
        """
        how, units = self.procedure, self._units(difference)
        # The level of Holm's first step, which holds for every pair; that of MaxT is no lower.
        tests = 1 if how.correction == "none" else max(1, difference.family)
        by_test = paired_tests.minimum_detectable_effect(
            units, np.zeros(len(units)), alpha=how.alpha / tests
        )
        by_interval = differences.shown_by_interval(units)
        return None if by_test is None or by_interval is None else max(by_test, by_interval)

    def queries_needed(self, difference: PairedDifference) -> int | None:
        """Number of queries like a pair's that would show equivalence, or None."""
        if (margin := self.procedure.minimum) <= 0:
            return None
        units = self._units(difference)
        needed = paired_tests.queries_to_show(units, margin=margin)
        # The number of clusters times their mean size.
        return needed and math.ceil(needed * difference.n / len(units))

    def could_turn(self, difference: PairedDifference) -> bool:
        """Whether rare queries that were not sampled could turn the sign of a difference."""
        return paired_tests.unseen_outlier_could_turn(self._units(difference))

    def _units(self, difference: PairedDifference) -> Array:
        """Differences on the sampling units (G,): queries, or clusters of them."""
        matrix = self.matrix(difference)
        ours, theirs = matrix.scores
        return matrix.units(ours - theirs)

    def verdict(self, difference: PairedDifference) -> str:
        """Verdict on a difference; see `differences.verdict`."""
        how, each = self.procedure, difference
        return differences.verdict(
            each.difference, each.corrected, each.interval, alpha=how.alpha, margin=how.minimum
        )

    def family(self, task: str = "") -> str:
        """The family over which p-values are corrected, in words."""
        every = self.tasks if not task else filter(None, [self.on(task)])
        families = [each for each in every if each.family]
        sizes, tasks = [each.family for each in families], {each.task for each in families}
        method = self.method
        if len({*sizes}) == len(tasks) == 1:
            pairs = f"all {sizes[0]} pairs" if sizes[0] > 1 else "the one pair"
            return f"{method} over {pairs} of the models compared"
        low, high = min(sizes, default=0), max(sizes, default=0)
        counts = ", ".join(map(str, sizes))
        if len(sizes) > 12:
            counts = f"{low} to {high}" if low < high else f"{low} each"
        return f"{method} over all pairs of the models compared on each task ({counts})"

    @property
    def test(self) -> str:
        """The test of differences, in words."""
        return differences.TEST

    @property
    def method(self) -> str:
        """The correction of p-values, in words."""
        method = NAMES[self.procedure.correction]
        exceptions = dict.fromkeys(task.not_max_t for task in self.tasks if task.not_max_t)
        return f"{method} (Holm, {', or '.join(exceptions)})" if exceptions else method

    def given(self, task: str) -> str:
        """A sentence on the intervals of a mean; empty for a task."""
        if not any(each.task == task for each in self.means):
            return ""
        like_these = any(each.like_these for each in self.differences_on(task))
        return " Intervals of a mean are over queries, its tasks being given" + (
            "; on tasks like these, over the tasks, as a sample (Student's)." if like_these else "."
        )

    def to_frame(self) -> DataFrame:
        """The differences from the baseline as a pandas data frame of numbers, one row each."""
        import pandas as pd

        rows = []
        for each in self.differences:
            row = {part.name: getattr(each, part.name) for part in fields(PairedDifference)}
            row["value"], row["baseline"] = row.pop("means")
            row["low"], row["high"] = row.pop("interval") or (None, None)
            rows.append({name: row[name] for name in _COLUMNS})
        return pd.DataFrame(rows, columns=_COLUMNS)

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(max_rows=20, float_format="{:.3f}".format)
        return f"<p>{escape(repr(self))}</p>{table}"

    def __repr__(self) -> str:
        models, tasks = {name for _, name in self.records}, {each.task for each in self.tasks}
        return (
            f"Comparison of {len(models)} models on {len(tasks)} tasks, baseline "
            f"{self.baseline!r}, {sum(each.family for each in self.tasks)} pairs"
        )


def compare(
    results: Iterable[Result] | str,
    *more: str,
    baseline: str = "",
    metric: str | Sequence[str] = "",
    tier: str = "",
    tasks: str | Sequence[str] = (),
    alpha: float = 0.05,
    minimum: float = 0.05,
    correction: str = MAX_T,
    draws: int = DRAWS,
    seed: int = 0,
    clusters: bool = True,
) -> Comparison:
    """Compare all models that have records of the same tasks.

    Args:
        results: any records; the newest of each model and task is used.
        more: not used; names of models instead of records are refused with a hint.
        baseline: label or name of a model; by default the one in ``_config.yml``, else a reference
            model (see `qwen3nb.analysis.comparison.alignment`), else the first by name of the
            models with most tasks.
        metric: one or several per-query metrics; by default each task's main metric.
        tier: name of the tier whose tasks are compared.
        tasks: task names, or a comma-separated string, instead of a tier's; by default every task
            with a record.
        alpha: level of the tests.
        minimum: smallest difference that matters.
        correction: one of `multiple_testing.CORRECTIONS`.
        draws: number of sign flips; increased where the number of pairs requires it.
        seed: seed of the sign flips.
        clusters: whether tests and intervals of differences treat queries of one cluster
            (`TaskInfo.clusters`) as dependent.

    Raises:
        ValueError: an unknown tier or correction, or a baseline or metric without records; lists
            the available ones.
        TypeError: names of models instead of records; says what to write.
    """
    if isinstance(results, str) or more:
        models = [each for each in (results, *more) if isinstance(each, str)]
        raise TypeError(
            f"expected records, got {', '.join(map(repr, models))}; write "
            f"q.load_results().filter(model={models!r}).compare(baseline={models[0]!r})"
        )
    one_of("correction", correction, CORRECTIONS)
    everything = latest(results)
    wanted = split_names(tasks) if isinstance(tasks, str) else list(tasks)
    if not wanted:
        wanted = list(TIERS[one_of("tier", tier, TIERS)].task_keys) if tier else _tasks(everything)
    given = [result for result in everything if result.task.key in wanted]
    newest, replaced = alignment.newest_records(given)
    newest = alignment.by_part(sorted(newest, key=lambda each: wanted.index(each.task.key)))
    metrics = [metric] if isinstance(metric, str) else list(metric)
    _check_metrics(newest, metrics)
    names = alignment.system_names(given)
    labels: dict[str, str] = {}
    for each in given:  # the first of several systems with one label
        labels.setdefault(each.model.label, names[each.model.identity, each.seed])
    own = book_settings().baseline
    if own and not baseline and (own in labels or own in names.values()):
        baseline = own
    if baseline and baseline not in names.values():
        if baseline not in labels:
            known = ", ".join(sorted(labels)) or "no results"
            there = {each.task.key for each in everything if each.model.label == baseline}
            tiers = [name for name, each in TIERS.items() if there.intersection(each.task_keys)]
            where = f"; it has records in tier {' and '.join(tiers)}" if tiers else ""
            raise ValueError(
                f"no result of the baseline {baseline!r} on these tasks; available: {known}{where}"
            )
        baseline = labels[baseline]
    order = _in_order(newest, names, metrics, baseline)
    procedure = Procedure(alpha, minimum, correction, draws, seed=seed, clusters=clusters)
    by_correlation = {each.task.key for each in newest if "gold" in each.per_query}
    compared = [
        _on_task([r for r in newest if r.task.key == task], names, each, order, baseline, procedure)
        for task in _tasks(newest)
        for each in metrics
    ]
    return Comparison(
        baseline=next(iter(order), ""),
        tasks=tuple(each for each in compared if each.task not in by_correlation),
        records={(r.task.key, names[r.model.identity, r.seed]): r for r in newest},
        procedure=procedure,
        names=names,
        left_out=tuple(replaced),
        labels=labels,
        correlations=tuple(each for each in compared if each.task in by_correlation),
        means=mean_comparisons(newest, tier, baselines=order, names=names, procedure=procedure)
        if tier and not tasks and not any(metrics)
        else (),
    )


def _tasks(results: Iterable[Result]) -> list[str]:
    return list(dict.fromkeys(result.task.key for result in results))


def _check_metrics(results: Sequence[Result], metrics: Iterable[str]) -> None:
    """Refuse metrics that no record has per query; correlations only have the main metric."""
    recorded = {
        name
        for each in results
        for name in ([each.task.main_metric] if "gold" in each.per_query else each.per_query)
    }
    for metric in filter(None, metrics):
        if metric not in recorded:
            known = ", ".join(sorted(recorded)) or "no results"
            raise ValueError(f"no result has {metric!r} per query; available: {known}")


def _in_order(
    results: Iterable[Result], names: Names, metrics: Sequence[str], named: str
) -> list[str]:
    """Return the names of possible baselines, the first choice first."""
    scored = [
        each
        for each in results
        if "gold" in each.per_query
        or any((metric or each.task.main_metric) in each.per_query for metric in metrics)
    ]
    counts = Counter(names[each.model.identity, each.seed] for each in scored)
    chosen = dict.fromkeys(filter(None, [named, *alignment.baselines(scored, names)]))
    return list(chosen) or sorted(counts, key=lambda name: (-counts[name], name))


def _on_task(
    records: Sequence[Result],
    names: Names,
    metric: str,
    order: Sequence[str],
    named: str,
    procedure: Procedure,
) -> TaskComparison:
    """Compare on one task, on the data revision of the ``named`` baseline."""
    records = [_as_means(each) for each in records]
    task, metric = records[0].task.key, metric or records[0].task.main_metric
    ordered = sorted(records, key=lambda each: names[each.model.identity, each.seed])
    own = [str(r.task.revision) for r in ordered if names[r.model.identity, r.seed] == named]
    revision = own[0] if own else alignment.common_revision(ordered)
    columns, left_out = alignment.score_columns(task, ordered, names, metric, revision)
    present = next((name for name in order if name in columns), "")
    if columns and order and present != order[0]:
        instead = f"; compared with {present}" if present else ""
        left_out.append(f"{task}: no record of {order[0]}{instead}")
    shared = alignment.newest_clusters(r for r in ordered if str(r.task.revision) == revision)
    return TaskComparison(
        task,
        metric,
        present,
        columns,
        procedure,
        tuple(left_out),
        clusters=shared if procedure.clusters else {},
    )


def _as_means(result: Result) -> Result:
    """Return a record scored by a correlation, with scores per pair of texts averaging to it.

    The score of a pair is the correlation plus the pair's influence on it. Paired differences are
    then tested as for other metrics; without a correlation, there are no scores.
    """
    if "gold" not in result.per_query:
        return result
    scores, metric = result.scores, result.task.main_metric
    rows = sorted_rows(scores.queries)
    columns = [scores.array(name)[rows] for name in ("cosine", "gold")]
    there = ~np.isnan(columns).any(axis=0)
    rows, columns = rows[there], [each[there] for each in columns]
    if len(rows) < _FEWEST_PAIRS or not all(map(np.ptp, columns)):
        return replace(result, per_query={})
    how = "pearson" if metric.lower() == "pearson" else "spearman"
    value, moved = correlation_influence(columns[0], columns[1], how=how)
    means = np.full(len(scores.queries), np.nan)
    means[rows] = value + moved - moved.mean()
    own = QueryScores(scores.queries, {metric: means}, ids=scores.ids)
    return replace(result, per_query=own)
