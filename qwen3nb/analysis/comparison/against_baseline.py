"""One model's scores, task by task, each beside the paired difference from a baseline.

The baseline is the first of bm25 and random that can be paired with the model on a task, else the
best other model there. Differences of means come from a `Comparison` of all models with that
baseline, so that they are those of every other page; those of correlations have an interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.compare import Comparison, compare
from qwen3nb.analysis.comparison.correlation_tests import compare_correlations
from qwen3nb.metrics.aggregate import REPORTED, Aggregate
from qwen3nb.metrics.intervals import Interval, excludes_zero
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.utils.choices import one_of

__all__ = ["AgainstBaseline", "against_baseline", "known_baseline"]

BASELINES = ("bm25", "random")
ALPHA = 0.05


@dataclass(frozen=True)
class AgainstBaseline:
    """A model's score on one task, and its paired difference from a baseline.

    Attributes:
        model: label of the model.
        task: key of the task.
        type: MTEB's type of the task.
        metric: the main metric.
        unit: what n counts.
        score: the model's score.
        baseline: label of the baseline; empty if there is none.
        other: the baseline's score; None without one.
        difference: model − baseline, or None.
        interval: of the difference, or None.
        p_value: corrected over all models compared with the baseline on the task; None for a
            difference of correlations, which is judged by its interval.
        why: why there is no difference; empty if there is one.
    """

    model: str
    task: str
    type: str
    metric: str
    unit: str
    score: Aggregate
    baseline: str = ""
    other: float | None = None
    difference: float | None = None
    interval: Interval | None = None
    p_value: float | None = None
    why: str = ""

    @property
    def significant(self) -> bool:
        """Whether a difference is shown: by the corrected p-value, or else by the interval."""
        if self.p_value is not None:
            return self.p_value < ALPHA
        return self.interval is not None and excludes_zero(self.interval)

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``not shown``, or empty without a difference."""
        if self.difference is None:
            return ""
        if not self.significant:
            return "not shown"
        return "better" if self.difference > 0 else "worse"


def known_baseline(results: Iterable[Result], baseline: str) -> str:
    """Return ``baseline`` if it is empty or the label of a record's model.

    Raises:
        ValueError: no record has this label; lists those there are.
    """
    labels = sorted({result.model.label for result in results})
    return one_of("baseline", baseline, labels) if baseline else ""


def against_baseline(
    results: Iterable[Result], others: Iterable[Result], *, baseline: str = "", seed: int = 0
) -> list[AgainstBaseline]:
    """Return a model's score on every task beside its difference from a baseline.

    Args:
        results: records of one model.
        others: records of any models; its own are ignored.
        baseline: label of the baseline; by default bm25, then random, then the best other.
        seed: of the sign flips.
    """
    own = list(results)
    labels = {result.model.label for result in own}
    identities = {result.model.identity for result in own}
    candidates = [
        each
        for each in latest(others)
        if each.model.label not in labels and each.model.identity not in identities
    ]
    pairs = [(result, _pick(result, candidates, baseline)) for result in own]
    compared = _comparisons(pairs, [*own, *candidates], seed=seed)
    return [_against(result, other, compared, baseline) for result, other in pairs]


def _pick(result: Result, candidates: Iterable[Result], baseline: str) -> Result | None:
    """Return the baseline's record on the task of ``result``; None if there is none."""
    column = _column(result)
    usable = [
        each
        for each in candidates
        if each.task.key == result.task.key
        and each.task.revision == result.task.revision
        and each.main.value is not None
        and column in result.per_query
        and column in each.per_query
    ]
    for name in [baseline] if baseline else BASELINES:
        if named := [each for each in usable if each.model.label == name]:
            return max(named, key=lambda each: each.finished)
    if baseline or not usable:
        return None
    return max(usable, key=lambda each: (each.main.value or 0.0, each.model.label))


def _column(result: Result) -> str:
    """Return the name of the column by which two records are paired."""
    return "cosine" if _by_correlation(result) else result.task.main_metric


def _by_correlation(result: Result) -> bool:
    return "gold" in result.per_query


def _comparisons(
    pairs: Sequence[tuple[Result, Result | None]], records: Sequence[Result], *, seed: int
) -> dict[str, Comparison]:
    """Return the comparison of all models with each baseline, on its tasks, by its label."""
    tasks: dict[str, list[str]] = {}
    for result, other in pairs:
        if other is not None and not result.parts and not _by_correlation(result):
            tasks.setdefault(other.model.label, []).append(result.task.key)
    return {
        name: compare(records, baseline=name, tasks=keys, seed=seed) for name, keys in tasks.items()
    }


def _against(
    result: Result, other: Result | None, compared: Mapping[str, Comparison], baseline: str
) -> AgainstBaseline:
    task = result.task
    alone = AgainstBaseline(
        result.model.label, task.key, str(task.type), task.main_metric, task.unit, result.main
    )
    if other is None:
        return replace(alone, why=_why(result, baseline))
    if result.parts:
        return replace(alone, why="its subsets are paired one by one")
    beside = replace(alone, baseline=other.model.label, other=other.main.value)
    if _by_correlation(result):
        ours, theirs = result.per_query, other.per_query
        each = compare_correlations(
            ours["cosine"], theirs["cosine"], theirs["gold"], n_resamples=0, seed=0
        )
        return replace(
            beside, difference=each.difference, interval=each.interval, why=each.undefined
        )
    paired = compared[other.model.label].between(result, other)
    if paired is None:
        return replace(beside, why="no query is shared")
    return replace(
        beside,
        difference=paired.difference,
        interval=paired.interval,
        p_value=paired.corrected,
    )


def _why(result: Result, baseline: str) -> str:
    if result.task.unit == "draws":
        return "its draws are not paired"
    if result.main.how == REPORTED or _column(result) not in result.per_query:
        return "no scores to pair"
    return f"no record of {baseline}" if baseline else "no other model"
