"""The task interference ratio (TIR) of joint training, its interval, and the kill gate's verdict.

The TIR of a seed is (specialist − joint) / specialist: the share of the specialist's score that
joint training loses; it is negative if the joint model is better. It is averaged over seeds; the
maximum over tasks and seeds would find interference in noise.

The kill gate decides whether there is enough interference to be worth treating. There are two
verdicts: by evidence, which is INCONCLUSIVE if the interval over seeds and queries crosses a
threshold or there is only one seed, and by point estimate.

The models of all seeds answered the same queries: a crossed design in which both are random.

References:
    Zou and Donner 2008 (MOVER); Satterthwaite 1946 (degrees of freedom).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

import numpy as np
import scipy  # loads scipy.stats on first use, which takes a second

from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.metrics.intervals import Array, Interval, student_interval

QueryNames = tuple[str, ...]
Influence = Mapping[QueryNames, Array]  # of each query on a mean (n,), by set of queries
_ROUNDING_ERROR = 1e-12

DEFINITION = (
    "TIR = (specialist − joint) / specialist, per seed: the share of the specialist's score "
    "that joint training loses; negative where the joint model is better."
)


class Verdict(StrEnum):
    """A verdict of the kill gate, from the weakest to the strongest."""

    NO_RESULT = "NO RESULT"
    INCONCLUSIVE = "INCONCLUSIVE"
    MARGINAL = "MARGINAL"
    FAIL = "FAIL"
    PASS = "PASS"  # noqa: S105 - no password

    @property
    def exit_code(self) -> int:
        """Exit code of a program; 1 and 2 are reserved for errors and wrong usage."""
        return _EXIT_CODES[self]


_EXIT_CODES = {
    Verdict.PASS: 0,
    Verdict.FAIL: 3,
    Verdict.MARGINAL: 4,
    Verdict.INCONCLUSIVE: 5,
    Verdict.NO_RESULT: 6,
}


def weakest(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the weakest of several verdicts; NO RESULT of none."""
    strength = tuple(Verdict).index
    return min(verdicts, key=strength, default=Verdict.NO_RESULT)


@dataclass(frozen=True)
class Gate:
    """The kill gate's thresholds, as shares."""

    pass_at: float = 0.02  # PASS at this TIR or more: interference worth treating
    fail_below: float = 0.01  # FAIL below this TIR

    def __post_init__(self) -> None:
        if not self.fail_below <= self.pass_at:
            raise ValueError(
                f"expected fail_below <= pass_at; got {self.fail_below} and {self.pass_at}"
            )

    @property
    def text(self) -> str:
        """Describe the rule."""
        return (
            f"Kill gate, on the mean TIR over seeds of each task, and on the mean of the tasks: "
            f"PASS at {100 * self.pass_at:g} % or more (joint training interferes: continue), FAIL "
            f"below {100 * self.fail_below:g} % (it does not: stop), MARGINAL in between. By "
            "evidence, there must be two or more seeds and the whole interval must lie in one "
            "range, else INCONCLUSIVE."
        )

    def verdict(self, tir: float | None) -> Verdict:
        """Verdict by point estimate."""
        if tir is None:
            return Verdict.NO_RESULT
        if tir >= self.pass_at:
            return Verdict.PASS
        if tir < self.fail_below:
            return Verdict.FAIL
        return Verdict.MARGINAL

    def evidence(self, tir: float | None, interval: Interval | None) -> Verdict:
        """Verdict by evidence: the common verdict of both ends of the interval."""
        if tir is None:
            return Verdict.NO_RESULT
        if interval is None:
            return Verdict.INCONCLUSIVE
        low, high = interval
        if self.verdict(low) != self.verdict(high):
            return Verdict.INCONCLUSIVE
        return self.verdict(low)


@dataclass(frozen=True)
class Estimate:
    """An estimate of the TIR."""

    name: str  # of the task, of the task and data set, or ``overall``
    seeds: tuple[int | None, ...]  # of the pairs compared
    tirs: tuple[float | None, ...]  # TIR per seed; None if the specialist scores 0
    deltas: tuple[float, ...]  # specialist - joint, per seed
    tir: float | None  # mean over the seeds with a TIR
    std: float | None = None  # sample standard deviation over them (ddof = 1), of two or more
    delta: float | None = None  # mean of the deltas; ``delta_std`` is their standard deviation
    delta_std: float | None = None
    interval: Interval | None = None  # of the mean TIR over seeds and queries, or None
    by_point: str = ""  # verdict by point estimate; ``by_evidence`` by the interval
    by_evidence: str = ""
    notes: tuple[str, ...] = ()  # caveats

    @property
    def defined_tirs(self) -> list[float]:
        """The TIR of each seed that has one."""
        return [tir for tir in self.tirs if tir is not None]

    def with_notes(self, notes: Iterable[str]) -> Self:
        """Return the estimate with further caveats."""
        return replace(self, notes=(*self.notes, *notes))


@dataclass(frozen=True)
class QueryScores:
    """Scores of the S specialists and of their joint runs on each query of a data set."""

    queries: QueryNames  # n sampling units: queries, or clusters of them
    scores: Array  # (n, 2, S)


@dataclass(frozen=True)
class DataSetScores:
    """Scores of the S specialists and of their joint runs on one data set."""

    values: Array  # (2, S)
    by_query: QueryScores | None = None


@dataclass(frozen=True)
class TaskEstimate:
    """An estimate, and how the queries move it."""

    estimate: Estimate
    influence: Influence | None  # None if it is unknown
    problem: str = ""  # why there can be no interval, or empty


def estimate(
    name: str, seeds: Sequence[int | None], datasets: Sequence[DataSetScores], *, gate: Gate
) -> TaskEstimate:
    """Estimate the TIR of the mean over data sets, from pairs of runs of these seeds."""
    specialist, joint = np.mean([dataset.values for dataset in datasets], axis=0)
    deltas = specialist - joint
    tirs: list[float | None] = []
    notes = []
    for seed, score, delta in zip(seeds, specialist, deltas, strict=True):
        if score > 0:
            tirs.append(float(delta / score))
        else:
            tirs.append(None)
            notes.append(f"the specialist of seed {seed} scores 0, so its TIR is undefined")
    point = Estimate(
        name,
        tuple(seeds),
        tuple(tirs),
        tuple(deltas.tolist()),
        _mean([tir for tir in tirs if tir is not None]),
        notes=tuple(notes),
    )
    by_query = [dataset.by_query for dataset in datasets if dataset.by_query is not None]
    if len(by_query) < len(datasets):
        point = point.with_notes(["no scores per query: the interval is over seeds only"])
        return TaskEstimate(_with_verdicts(point, None, "", gate), None)
    is_defined = specialist > 0
    if not is_defined.any():
        return TaskEstimate(_with_verdicts(point, None, "", gate), None)
    specialist, joint = specialist[is_defined], joint[is_defined]
    parts = [QueryScores(part.queries, part.scores[:, :, is_defined]) for part in by_query]
    problem = _why_unstable(specialist, parts)
    influence = None
    if not problem:
        influence = _influence(specialist, joint, parts)
    return TaskEstimate(_with_verdicts(point, influence, problem, gate), influence, problem)


def _mean(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return float(np.mean(values))


def mean_estimate(
    tasks: Sequence[TaskEstimate], *, left_out: Sequence[str], gate: Gate
) -> Estimate:
    """Estimate the mean TIR of the tasks, over the seeds that all tasks have.

    Omitted tasks, each with its reason, are reported, and make the verdict by evidence
    INCONCLUSIVE.
    """
    notes = [f"without {name_and_reason}" for name_and_reason in left_out]
    averaged_tasks = []
    for task in tasks:
        if task.estimate.tir is None:
            notes.append(f"without {task.estimate.name}, which has no TIR")
        else:
            averaged_tasks.append(task)
    sets_of_seeds = {frozenset(_by_seed(task.estimate)) for task in averaged_tasks}
    if len(sets_of_seeds) > 1:
        notes.append(_different_seeds(averaged_tasks))
    point = _mean_point(averaged_tasks)
    problems = [task.problem for task in averaged_tasks if task.problem]
    influences = [task.influence for task in averaged_tasks if task.influence is not None]
    influence = None
    if averaged_tasks and len(influences) == len(averaged_tasks):
        influence = _mean_influence(influences)
    elif averaged_tasks and not problems:
        notes.append("a task has no scores per query: the interval is over seeds only")
    first_problem = next(iter(problems), "")
    is_complete = len(averaged_tasks) == len(tasks) + len(left_out)
    point = point.with_notes(notes)
    return _with_verdicts(point, influence, first_problem, gate, is_complete=is_complete)


def _mean_point(tasks: Sequence[TaskEstimate]) -> Estimate:
    """Return the mean of several tasks with a TIR, over the seeds that all have."""
    tables = [_by_seed(task.estimate) for task in tasks]
    seeds = _common_seeds(tables)
    tirs, deltas = [], []
    for seed in seeds:
        mean_tir, mean_delta = np.mean([table[seed] for table in tables], axis=0)  # over tasks
        tirs.append(float(mean_tir))
        deltas.append(float(mean_delta))
    tirs_of_tasks = [task.estimate.tir for task in tasks if task.estimate.tir is not None]
    return Estimate(
        name="overall",
        seeds=seeds,
        tirs=tuple(tirs),
        deltas=tuple(deltas),
        tir=_mean(tirs_of_tasks),  # with seeds that another task lacks
    )


def _by_seed(estimate: Estimate) -> dict[int | None, tuple[float, float]]:
    """Return the TIR and the delta of each seed that has a TIR."""
    table = {}
    for seed, tir, delta in zip(estimate.seeds, estimate.tirs, estimate.deltas, strict=True):
        if tir is not None:
            table[seed] = (tir, delta)
    return table


def _common_seeds(tables: Sequence[Mapping[int | None, object]]) -> tuple[int | None, ...]:
    if not tables:
        return ()
    return tuple(seed for seed in tables[0] if all(seed in table for table in tables))


def _different_seeds(tasks: Sequence[TaskEstimate]) -> str:
    """Return a note on the seeds of each task."""
    seeds_by_task = []
    for task in tasks:
        seeds = ", ".join(map(str, _by_seed(task.estimate)))
        seeds_by_task.append(f"{task.estimate.name}: {seeds}")
    seeds_text = "; ".join(seeds_by_task)
    return f"the tasks have different seeds ({seeds_text}); each counts by the mean of its own"


def _mean_influence(influences: Sequence[Influence]) -> Influence:
    """Return the influence of the queries on the mean of several tasks."""
    parts = []
    for influence in influences:
        for queries, part in influence.items():
            parts.append((queries, part / len(influences)))
    return _sums(parts)


def _why_unstable(specialist: Array, parts: Sequence[QueryScores]) -> str:
    """Return why the influence of queries cannot be estimated, or an empty text."""
    if any(len(part.queries) < 2 for part in parts):
        return "a data set has a single query"
    # A TIR divides by the specialist's score, which must therefore be clearly above 0.
    # What each query adds to the score: (n, 2, S), of specialists and joint runs, by seed.
    addends = [part.scores / (len(parts) * len(part.scores)) for part in parts]
    for seed, score in enumerate(specialist):
        error, freedom = query_error([addend[:, 0, seed] for addend in addends])
        half_width = scipy.stats.t.ppf((1 + LEVEL) / 2, freedom) * error
        if score <= half_width:
            return "by its queries, the score of a specialist may be 0"
    return ""


def _influence(specialist: Array, joint: Array, parts: Sequence[QueryScores]) -> Influence:
    """Return the influence of each query on the mean TIR (delta method).

    With scores s and g of a seed, a query's scores x and y move its TIR by (x g / s - y) / s, over
    the number of queries.
    """
    moves = []
    for part in parts:
        addends = part.scores / (len(parts) * len(part.scores))
        of_specialist, of_joint = addends[:, 0], addends[:, 1]
        # TIR = 1 - joint / specialist, differentiated by both scores (delta method): (n, S).
        per_seed = (of_specialist * joint / specialist - of_joint) / specialist
        moves.append((part.queries, per_seed.mean(axis=1)))
    return _sums(moves)


def _sums(parts: Iterable[tuple[QueryNames, Array]]) -> dict[QueryNames, Array]:
    """Return sums per set of queries: models with the same queries are not independent."""
    sums: dict[QueryNames, Array] = {}
    for queries, part in parts:
        sums[queries] = sums.get(queries, np.zeros(())) + part
    return sums


def _with_verdicts(
    point: Estimate,
    influence: Influence | None,
    problem: str,
    gate: Gate,
    *,
    is_complete: bool = True,
) -> Estimate:
    """Return the point estimate with deviations, interval, verdicts and caveats."""
    tirs = np.array(point.defined_tirs)
    parts = list((influence or {}).values())
    interval = None
    if point.tir is not None and not problem:
        interval = crossed_interval(point.tir, tirs, parts)
    caveats = []
    if problem:
        caveats.append(f"no interval: {problem}")
    elif parts and len(tirs) < 2:
        caveats.append("one seed: the interval does not include the variance between trainings")
    # One seed, or a mean without some of its tasks, is no evidence.
    is_evidence = len(tirs) > 1 and is_complete
    estimate = replace(
        point,
        std=_deviation(tirs),
        delta=_mean(point.deltas),
        delta_std=_deviation(np.array(point.deltas)),
        interval=interval,
        by_point=gate.verdict(point.tir),
        by_evidence=gate.evidence(point.tir, interval if is_evidence else None),
    )
    return estimate.with_notes(caveats)


def _deviation(values: Array) -> float | None:
    """Return the sample standard deviation of two or more values."""
    if len(values) < 2:
        return None
    return float(values.std(ddof=1))


def crossed_interval(mean: float, per_seed: Array, influence: Sequence[Array]) -> Interval | None:
    """Return the interval of a mean over seeds and queries, with the errors of both (MOVER).

    Each error is Student's. The error of the seeds includes their interaction with the queries,
    which the other counts again: the interval is conservative where queries vary most. For a single
    seed, or without influences of queries, only the other error counts; None if neither varies.

    Args:
        mean: the estimate.
        per_seed: value of each seed (S,).
        influence: of each query on the mean, (n,) per set of queries.
    """
    low, high = student_interval(per_seed, level=LEVEL) or (0.0, 0.0)  # of one seed, no width
    error, freedom = query_error(influence)
    half_over_seeds = (high - low) / 2
    half_over_queries = float(scipy.special.stdtrit(freedom, (1 + LEVEL) / 2)) * error
    half = math.hypot(half_over_seeds, half_over_queries)  # MOVER: in quadrature
    if half <= _ROUNDING_ERROR:
        return None
    return mean - half, mean + half


def query_error(influence: Sequence[Array]) -> tuple[float, float]:
    """Return the standard error of a sum over queries, and its degrees of freedom (Satterthwaite).

    Args:
        influence: of each of two or more queries on the sum, (n,) per independent set of queries.
    """
    sizes = np.array([len(part) for part in influence])
    variances = np.array([len(part) * part.var(ddof=1) for part in influence])
    total = float(variances.sum())
    if total == 0:
        return 0.0, 1.0
    return math.sqrt(total), total**2 / float((variances**2 / (sizes - 1)).sum())
