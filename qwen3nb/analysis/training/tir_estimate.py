"""Estimates of the TIR, with standard deviation, interval and verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import stats

from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.analysis.training.seed_variance import crossed_interval, query_error
from qwen3nb.metrics.intervals import Array, Interval, student_interval
from qwen3nb.utils.choices import one_of

Queries = tuple[str, ...]  # their ids

# 1 and 2 are reserved for errors and wrong usage.
EXIT_CODES = {"PASS": 0, "FAIL": 3, "MARGINAL": 4, "INCONCLUSIVE": 5, "NO RESULT": 6}
_MOST_SEEDS = 100


@dataclass(frozen=True)
class Gate:
    """The kill gate's thresholds, as shares."""

    pass_at: float = 0.02  # PASS at this TIR or more: the interference is worth treating
    fail_below: float = 0.01  # FAIL below this TIR: it is not

    def __post_init__(self) -> None:
        if not self.fail_below <= self.pass_at:
            raise ValueError(
                f"expected fail_below <= pass_at; got {self.fail_below} and {self.pass_at}"
            )

    @property
    def text(self) -> str:
        """The rule in words."""
        high, low = 100 * self.pass_at, 100 * self.fail_below
        return (
            f"Kill gate, on the mean TIR over seeds of each task, and on the mean of the tasks: "
            f"PASS at {high:g} % or more (joint training interferes: continue), FAIL below "
            f"{low:g} % (it does not: stop), MARGINAL in between. By evidence, there must be two "
            f"or more seeds and the whole interval must lie in one range, else INCONCLUSIVE."
        )

    def verdict(self, tir: float | None) -> str:
        """Verdict by point estimate."""
        if tir is None:
            return "NO RESULT"
        if tir >= self.pass_at:
            return "PASS"
        return "FAIL" if tir < self.fail_below else "MARGINAL"

    def evidence(self, tir: float | None, interval: Interval | None) -> str:
        """Verdict by evidence: that of both ends of the interval, if they agree."""
        if tir is None:
            return "NO RESULT"
        verdicts = {self.verdict(end) for end in interval or ()}
        return verdicts.pop() if len(verdicts) == 1 else "INCONCLUSIVE"


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
    seed_interval: Interval | None = None  # Student's interval over two or more seeds alone
    method: str = ""  # what the interval is over, or why there is none
    by_point: str = ""  # verdict by point estimate; ``by_evidence`` by the interval
    by_evidence: str = ""
    notes: tuple[str, ...] = ()  # caveats
    # score of the specialist per seed; ``joints``: of the joint model. Empty for a mean of tasks
    specialists: tuple[float, ...] = ()
    joints: tuple[float, ...] = ()

    def verdict(self, by: str) -> str:
        """The verdict, ``by`` ``point`` or ``evidence``."""
        by_point = one_of("kind of verdict", by, ("point", "evidence")) == "point"
        return self.by_point if by_point else self.by_evidence


class DataSetScores(NamedTuple):
    """Scores of the S specialists and of their joint runs on one data set."""

    values: Array  # (2, S)
    by_query: tuple[Queries, Array] | None = None  # ids, and scores (n, 2, S), if there are any


class Measured(NamedTuple):
    """An estimate and the error of its queries."""

    estimate: Estimate
    moved: Mapping[Queries, Array] | None  # by the queries (n,) of each set; None if unknown
    problem: str = ""  # why there can be no interval, or empty


def estimate(
    name: str, seeds: Sequence[int | None], datasets: Sequence[DataSetScores], *, gate: Gate
) -> Measured:
    """Estimate the TIR of the mean over data sets, of pairs of these seeds."""
    values = np.mean([each.values for each in datasets], axis=0)
    specialist, joint = values
    has = specialist > 0
    tirs = (specialist - joint)[has] / specialist[has]
    notes = [
        f"the specialist of seed {each} scores 0, so its TIR is undefined"
        for each, fine in zip(seeds, has, strict=True)
        if not fine
    ]
    by_query = [each.by_query for each in datasets if each.by_query is not None]
    moved, problem = None, ""
    if len(by_query) < len(datasets):
        notes.append("no scores per query: the interval is over seeds only")
    elif has.any():
        kept = [(queries, scores[:, :, has]) for queries, scores in by_query]
        moved, problem = _moved(values[:, has], kept)
    per_seed = iter(tirs)
    one = Estimate(
        name,
        tuple(seeds),
        tuple(float(next(per_seed)) if fine else None for fine in has),
        tuple(map(float, specialist - joint)),
        float(tirs.mean()) if len(tirs) else None,
        notes=tuple(notes),
        specialists=tuple(map(float, specialist)),
        joints=tuple(map(float, joint)),
    )
    return Measured(_concluded(one, moved, problem, gate), moved, problem)


def mean_estimate(tasks: Sequence[Measured], *, left_out: Sequence[str], gate: Gate) -> Estimate:
    """Mean TIR of the tasks; per seed, for the seeds that all tasks have.

    Tasks that are left out are reported, and the verdict by evidence is then INCONCLUSIVE.
    """
    notes = [f"without {name}, which has no pair" for name in left_out]
    given = [each for each in tasks if each.estimate.tir is not None]
    lacking = [each.estimate.name for each in tasks if each.estimate.tir is None]
    notes += [f"without {name}, which has no TIR" for name in lacking]
    tables = [
        {
            seed: (tir, delta)
            for seed, tir, delta in zip(e.seeds, e.tirs, e.deltas, strict=True)
            if tir is not None
        }
        for e in (each.estimate for each in given)
    ]
    seeds = tuple(s for s in next(iter(tables), {}) if all(s in table for table in tables))
    means = [np.mean([table[seed] for table in tables], axis=0) for seed in seeds]
    moved = [each.moved for each in given if each.moved is not None]
    complete = bool(given) and len(moved) == len(given)
    problem = next((each.problem for each in given if each.problem), "")
    if given and not complete and not problem:
        notes.append("a task has no scores per query: the interval is over seeds only")
    one = Estimate(
        "overall",
        seeds,
        tuple(float(tir) for tir, _ in means),
        tuple(float(delta) for _, delta in means),
        float(np.mean([each.estimate.tir for each in given])) if given else None,
        notes=tuple(notes),
    )
    parts = [(key, part / len(moved)) for each in moved for key, part in each.items()]
    partial = len(given) < len(tasks) + len(left_out)
    return _concluded(one, _sums(parts) if complete else None, problem, gate, partial=partial)


def seeds_needed(each: Estimate, gate: Gate) -> int | None:
    """Number of seeds at which Student's interval would lie in the range of the point estimate.

    Assumes that more seeds leave mean and standard deviation as they are, so with few seeds it is
    a rough guide. None without a standard deviation, and for more than 100.
    """
    if each.tir is None or each.std is None:
        return None
    ends = {
        "PASS": [each.tir - gate.pass_at],
        "FAIL": [gate.fail_below - each.tir],
        "MARGINAL": [each.tir - gate.fail_below, gate.pass_at - each.tir],
    }
    margin = min(ends[each.by_point])
    counts = np.arange(2, _MOST_SEEDS + 1)
    half = stats.t.ppf(0.975, counts - 1) * each.std / np.sqrt(counts)
    enough = counts[half < margin]
    return int(enough[0]) if len(enough) else None


def _moved(
    values: Array, by_query: Sequence[tuple[Queries, Array]]
) -> tuple[dict[Queries, Array] | None, str]:
    """How far each query moves the mean TIR (delta method), or why that is unknown.

    With scores s and g of a seed, a query's scores x and y move its TIR by (x g / s - y) / s, over
    the number of queries.
    """
    if any(len(queries) < 2 for queries, _ in by_query):
        return None, "a data set has a single query"
    specialist, joint = values
    shares = [scores / (len(by_query) * len(scores)) for _, scores in by_query]
    for seed, score in enumerate(specialist):
        error, freedom = query_error([part[:, 0, seed] for part in shares])
        if score <= stats.t.ppf((1 + LEVEL) / 2, freedom) * error:
            return None, "by its queries, the score of a specialist may be 0"
    parts = [
        ((part[:, 0] * joint / specialist - part[:, 1]) / specialist).mean(axis=1)
        for part in shares
    ]
    return _sums(zip((queries for queries, _ in by_query), parts, strict=True)), ""


def _sums(parts: Iterable[tuple[Queries, Array]]) -> dict[Queries, Array]:
    """Sums per set of queries: what answers the same queries is not independent."""
    sums: dict[Queries, Array] = defaultdict(lambda: np.zeros(()))
    for queries, part in parts:
        sums[queries] = sums[queries] + part
    return dict(sums)


def _concluded(
    one: Estimate,
    moved: Mapping[Queries, Array] | None,
    problem: str,
    gate: Gate,
    *,
    partial: bool = False,
) -> Estimate:
    """The estimate with its deviations, intervals, verdicts and caveats."""
    known = np.array([each for each in one.tirs if each is not None])
    deltas, parts, interval = np.array(one.deltas), list((moved or {}).values()), None
    needs = "needs per-query scores of every task, or two seeds, and some that differ"
    method = f"none: {problem or needs}"
    if one.tir is not None and not problem:
        interval = crossed_interval(one.tir, known, parts, level=LEVEL)
    if interval is not None:
        over = ["seeds"] * (len(known) > 1 or not parts) + ["queries"] * bool(parts)
        method = f"Student's t over {' and '.join(over)}"
    caveats = [f"no interval: {problem}"] if problem else []
    if parts and len(known) < 2 and not problem:
        caveats.append("one seed: the interval does not include the variance between trainings")
    return replace(
        one,
        std=float(known.std(ddof=1)) if len(known) > 1 else None,
        delta=float(deltas.mean()) if len(deltas) else None,
        delta_std=float(deltas.std(ddof=1)) if len(deltas) > 1 else None,
        interval=interval,
        seed_interval=student_interval(known, level=LEVEL),
        method=method,
        by_point=gate.verdict(one.tir),
        by_evidence=gate.evidence(one.tir, interval if len(known) > 1 and not partial else None),
        notes=(*one.notes, *caveats),
    )
