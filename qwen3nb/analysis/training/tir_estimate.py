"""Estimates of the TIR, with standard deviation, intervals and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from qwen3nb.analysis.stats.hierarchical_bootstrap import over_seeds, t_probability
from qwen3nb.analysis.stats.resampling import draw_seed, percentile_interval
from qwen3nb.metrics.intervals import Array, Interval, student_interval
from qwen3nb.utils.choices import one_of

__all__ = [
    "EXIT_CODES",
    "Estimate",
    "Gate",
    "Measured",
    "estimate",
    "mean_estimate",
    "seeds_needed",
]

# 1 and 2 are reserved for errors and wrong usage.
EXIT_CODES = {"PASS": 0, "FAIL": 3, "MARGINAL": 4, "INCONCLUSIVE": 5, "NO RESULT": 6}
_FEW_SEEDS = 5
_MOST_SEEDS = 100
_UNDEFINED = 0.01  # largest share of resamples that may have no TIR


@dataclass(frozen=True)
class Gate:
    """The kill gate's thresholds, as shares.

    Attributes:
        pass_at: PASS at this TIR or more: the interference is worth treating.
        fail_below: FAIL below this TIR: it is not.
    """

    pass_at: float = 0.02
    fail_below: float = 0.01

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
            f"or more seeds and both intervals must lie in one range, else INCONCLUSIVE."
        )

    def verdict(self, tir: float | None) -> str:
        """Verdict by point estimate."""
        if tir is None:
            return "NO RESULT"
        if tir >= self.pass_at:
            return "PASS"
        return "FAIL" if tir < self.fail_below else "MARGINAL"

    def evidence(self, tir: float | None, *intervals: Interval | None) -> str:
        """Verdict by evidence: that of all interval ends if none is missing and all agree."""
        if tir is None:
            return "NO RESULT"
        ends = [end for interval in intervals for end in interval or (None,)]
        verdicts = {"INCONCLUSIVE" if end is None else self.verdict(end) for end in ends}
        return verdicts.pop() if len(verdicts) == 1 else "INCONCLUSIVE"


@dataclass(frozen=True)
class Estimate:
    """An estimate of the TIR.

    Attributes:
        name: of the task, of the task and data set, or ``overall``.
        seeds: of the pairs compared.
        tirs: TIR per seed; None if the specialist scores 0.
        deltas: specialist − joint, per seed.
        tir: mean over the seeds with a TIR.
        std: sample standard deviation over them (ddof = 1); None for fewer than two.
        delta: mean of the deltas; ``delta_std`` is their sample standard deviation.
        interval: of the mean TIR over seeds and queries, or None.
        seed_interval: Student's interval over seeds alone; None for fewer than two.
        method: how the interval was computed, or why there is none.
        probability: that the TIR is at least the gate's ``pass_at``, or None.
        by_point: verdict by point estimate; ``by_evidence`` by intervals.
        notes: caveats.
        specialists: score of the specialist per seed; ``joints``: of the joint model. Empty for
            a mean of tasks.
    """

    name: str
    seeds: tuple[int | None, ...]
    tirs: tuple[float | None, ...]
    deltas: tuple[float, ...]
    tir: float | None
    std: float | None
    delta: float | None
    delta_std: float | None
    interval: Interval | None
    seed_interval: Interval | None
    method: str
    probability: float | None
    by_point: str
    by_evidence: str
    notes: tuple[str, ...] = ()
    specialists: tuple[float, ...] = ()
    joints: tuple[float, ...] = ()

    def verdict(self, by: str) -> str:
        """The verdict, ``by`` ``point`` or ``evidence``."""
        by_point = one_of("kind of verdict", by, ("point", "evidence")) == "point"
        return self.by_point if by_point else self.by_evidence


@dataclass(frozen=True)
class Measured:
    """An estimate with the resampled mean TIR (R,) behind its interval, or None."""

    estimate: Estimate
    resampled: Array | None


def estimate(
    name: str,
    seeds: Sequence[int | None],
    values: Array,
    resampled: Array | None,
    *,
    gate: Gate,
    level: float,
    seed: int,
) -> Measured:
    """Estimate the TIR of one task.

    Args:
        name: of the estimate.
        seeds: of the S pairs.
        values: scores of specialist and joint run per seed (2, S).
        resampled: the same in R resamples of queries (R, 2, S), or None.
        gate: the thresholds.
        level: of the interval.
        seed: of the draws of seeds; equal sets of seeds are drawn alike.
    """
    specialist, joint = values
    deltas = specialist - joint
    has = specialist > 0
    tirs = deltas[has] / specialist[has]
    notes = [
        f"the specialist of seed {each} scores 0, so its TIR is undefined"
        for each, fine in zip(seeds, has, strict=True)
        if not fine
    ]
    used = [str(each) for each, fine in zip(seeds, has, strict=True) if fine]
    drawn, problem = None, "" if resampled is not None else "no scores per query"
    if resampled is not None and used:
        drawn, problem = _resampled_means(resampled[:, :, has], draw_seed(seed, used))
    if problem:
        notes.append(f"{problem}: the interval is over seeds only")
    per_seed = iter(tirs)
    made = _make(
        name,
        tuple(seeds),
        tuple(float(next(per_seed)) if fine else None for fine in has),
        deltas,
        float(tirs.mean()) if len(tirs) else None,
        drawn,
        gate=gate,
        level=level,
        notes=notes,
    )
    specialists, joints = tuple(map(float, specialist)), tuple(map(float, joint))
    return Measured(replace(made, specialists=specialists, joints=joints), drawn)


def mean_estimate(
    tasks: Sequence[Measured], *, left_out: Sequence[str], gate: Gate, level: float
) -> Estimate:
    """Mean TIR of the tasks; per seed, for the seeds that all tasks have.

    Tasks that are left out are reported, and the verdict by evidence is then INCONCLUSIVE.
    """
    notes = [f"without {name}, which has no pair" for name in left_out]
    given = [each for each in tasks if each.estimate.tir is not None]
    notes += [
        f"without {each.estimate.name}, which has no TIR"
        for each in tasks
        if each.estimate.tir is None
    ]
    if not given:
        none: Array = np.empty(0)
        return _make("overall", (), (), none, None, None, gate=gate, level=level, notes=notes)
    tables = [dict(zip(e.estimate.seeds, e.estimate.tirs, strict=True)) for e in given]
    deltas = [dict(zip(e.estimate.seeds, e.estimate.deltas, strict=True)) for e in given]
    seeds = tuple(s for s in tables[0] if all(table.get(s) is not None for table in tables))
    arrays = [each.resampled for each in given if each.resampled is not None]
    complete = len(arrays) == len(given)
    if not complete:
        notes.append("a task has no resamples: the interval is over seeds only")
    return _make(
        "overall",
        seeds,
        tuple(float(np.mean([table[s] or 0.0 for table in tables])) for s in seeds),
        np.array([np.mean([table[s] for table in deltas]) for s in seeds]),
        float(np.mean([each.estimate.tir or 0.0 for each in given])),
        np.mean(arrays, axis=0) if complete else None,
        gate=gate,
        level=level,
        notes=notes,
        partial=len(given) < len(tasks) + len(left_out),
    )


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


def _resampled_means(resampled: Array, drawn: tuple[int, int]) -> tuple[Array | None, str]:
    """Mean TIR (R,) in resamples of queries and seeds, or the reason why there is none."""
    specialist, joint = resampled[:, 0], resampled[:, 1]
    fine: NDArray[np.bool_] = np.asarray((specialist > 0).all(axis=1))
    undefined = 1 - float(fine.mean())
    if undefined > _UNDEFINED:
        return None, f"in {100 * undefined:.0f} % of the resamples a specialist scores 0"
    tirs = 1 - joint[fine] / specialist[fine]
    means = over_seeds(tirs, seed=drawn)
    if not fine.all():  # so that tasks can be averaged resample by resample
        full = np.full(len(fine), means.mean())
        full[fine] = means
        means = full
    return means, ""


def _make(
    name: str,
    seeds: tuple[int | None, ...],
    tirs: tuple[float | None, ...],
    deltas: Array,
    tir: float | None,
    drawn: Array | None,
    *,
    gate: Gate,
    level: float,
    notes: Sequence[str],
    partial: bool = False,
) -> Estimate:
    known = np.array([each for each in tirs if each is not None])
    seed_interval = student_interval(known, level=level)
    interval = seed_interval if drawn is None else percentile_interval(drawn, level=level)
    evidence = gate.evidence(tir, interval, seed_interval)
    return Estimate(
        name=name,
        seeds=seeds,
        tirs=tirs,
        deltas=tuple(map(float, deltas)),
        tir=tir,
        std=float(known.std(ddof=1)) if len(known) > 1 else None,
        delta=float(deltas.mean()) if len(deltas) else None,
        delta_std=float(deltas.std(ddof=1)) if len(deltas) > 1 else None,
        interval=interval,
        seed_interval=seed_interval,
        method=_method(drawn, interval, len(known)),
        probability=t_probability(known, threshold=gate.pass_at)
        if drawn is None
        else float((drawn >= gate.pass_at).mean()),
        by_point=gate.verdict(tir),
        by_evidence="INCONCLUSIVE" if partial and tir is not None else evidence,
        notes=(*notes, *_caution(drawn, len(known))),
    )


def _method(drawn: Array | None, interval: Interval | None, seeds: int) -> str:
    if drawn is not None:
        return "bootstrap over seeds and queries" if seeds > 1 else "bootstrap over queries"
    if interval is not None:
        return "Student's t over seeds"
    return "none: needs per-query scores of every task, or two seeds that differ"


def _caution(drawn: Array | None, seeds: int) -> list[str]:
    """Caveats on intervals over few seeds."""
    if drawn is None:
        return []
    if seeds == 1:
        return ["one seed: the interval does not include the variance between trainings"]
    if seeds < _FEW_SEEDS:
        return [
            f"{seeds} seeds: the interval over seeds and queries is too narrow if trainings vary "
            "more than queries; the interval over seeds alone is not"
        ]
    return []
