"""Candidates compared with the model in use, on one task: the decision and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from qwen3nb.analysis.comparison.by_category import Breakdown, breakdown
from qwen3nb.analysis.comparison.candidates import (
    Decision,
    QueryChange,
    Recommendation,
    decide,
    enough_queries,
    evidence,
    largest_changes,
    recommend,
)
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference, significant
from qwen3nb.analysis.comparison.history import TrendPoint
from qwen3nb.analysis.comparison.task_comparison import TaskComparison
from qwen3nb.analysis.stats.paired_tests import t_test
from qwen3nb.records.record import Result
from qwen3nb.utils.format import p_value_text

__all__ = ["CandidateComparison", "query_seconds"]

_FEW = 9  # queries, below which coverage is not known to hold; see `analysis.calibration`


@dataclass(frozen=True)
class CandidateComparison:
    """Candidates compared with the model in use, on one task.

    Attributes:
        comparison: the differences, metric by metric.
        tested: metrics whose p-values are shown; the first is the deciding one.
        runs: earlier and present runs of these models, on the deciding metric.
        most: number of queries listed per candidate.
        left_out: records that are not compared, each with the reason.
    """

    comparison: Comparison
    tested: tuple[str, ...]
    runs: tuple[TrendPoint, ...]
    most: int
    left_out: tuple[str, ...]

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.deciding.task

    @property
    def current(self) -> str:
        """Name of the model in use."""
        return self.comparison.baseline

    @property
    def records(self) -> Mapping[str, Result]:
        """The record of each model by name, the model in use first."""
        names = {name: record for (_, name), record in self.comparison.records.items()}
        return {self.current: names.pop(self.current), **names}

    @property
    def deciding(self) -> TaskComparison:
        """The comparison on the deciding metric."""
        return self._on(self.tested[0])

    @cached_property
    def differences(self) -> tuple[PairedDifference, ...]:
        """Every candidate against the model in use by the deciding metric."""
        return self.in_order(self.deciding)

    @property
    def recommendations(self) -> tuple[Recommendation, ...]:
        """The recommendation for each candidate."""
        return tuple(recommend(each, comparison=self.comparison) for each in self.differences)

    @cached_property
    def decision(self) -> Decision:
        """Which model to use; a model that is taken has its other metrics named."""
        decision = decide(self.differences, comparison=self.comparison)
        kept = decision.use == decision.current
        more = self._missed if kept else self._drawbacks(decision.use)
        return replace(decision, reason=decision.reason + more)

    @property
    def headline(self) -> str:
        """The decision in a sentence: ``Take Y …`` if a candidate is better, else ``Keep X``."""
        return str(self.decision)

    @cached_property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """The differences by category of queries, per candidate; empty without categories."""
        categories = self.records[self.current].task.categories
        how = self.comparison.procedure
        return tuple(
            breakdown(
                self.deciding.columns[each.first], self.deciding.columns[self.current], categories,
                names=(each.first, self.current), n_resamples=how.draws, alpha=how.alpha,
                seed=how.seed,
            )
            for each in self.differences
            if categories
        )  # fmt: skip

    @property
    def changes(self) -> tuple[QueryChange, ...]:
        """The queries that changed most on the deciding metric, per candidate."""
        matrices = (self.deciding.matrix(each.first, self.current) for each in self.differences)
        return tuple(c for matrix in matrices for c in largest_changes(matrix, most=self.most))

    @property
    def regressions(self) -> tuple[str, ...]:
        """What a gate fails on: worse candidates, and runs worse than the previous one."""
        how = self.comparison.procedure
        worse = [
            f"{each.model}: {each.text}"
            for each in self.recommendations
            if each.matters and each.verdict.startswith("worse")
        ]
        worse += [
            f"{run.label}: its newest run is worse than the previous one ({self.tested[0]} "
            f"{run.change:+.3f}, corrected p {p_value_text(run.p_value, relation=True)}, "
            f"n = {run.n})"
            for run in _newest(self.runs)
            if run.change is not None and run.change < -how.minimum
            if significant(run.p_value, run.change_interval, alpha=how.alpha)
        ]
        return tuple(worse)

    @property
    def caution(self) -> str:
        """What these queries are too few to detect; empty if nothing."""
        how = self.comparison.procedure
        open_ones = [
            each
            for each in self.differences
            if self.comparison.verdict(each) in ("no worse", "not shown")
        ]
        detectable = [self.comparison.detectable(each) for each in open_ones]
        largest = max((value for value in detectable if value is not None), default=0.0)
        sentences = []
        if largest > how.minimum:
            sentences.append(
                f"With these queries, only differences of {largest:.3f} or more are detected with "
                f"a power of 0.8; smaller ones above {how.minimum:g} may be missed; use more "
                "queries."
            )
        sentences += [
            f"{each.first}: {more}."
            for each in open_ones
            if (more := enough_queries(self.comparison, [each]))
        ]
        sentences += [
            f"{each.first}: rare queries that are not among these could turn the sign of its "
            "difference."
            for each in self.differences
            if each.significant(how.alpha) and self.comparison.could_turn(each)
        ]
        if min((each.n for each in self.differences), default=_FEW + 1) <= _FEW:
            sentences.append(f"Intervals from {_FEW} queries or fewer may be too narrow.")
        return " ".join(sentences)

    def in_order(self, task: TaskComparison) -> tuple[PairedDifference, ...]:
        """The differences from the model in use by one metric, in the order of the records."""
        order = list(self.records)
        return tuple(sorted(task.with_baseline, key=lambda each: order.index(each.first)))

    def t_test(self, difference: PairedDifference) -> float | None:
        """The p-value of the paired t-test, not corrected; None without a spread."""
        return t_test(*self.comparison.matrix(difference).scores).p_value

    def _on(self, metric: str) -> TaskComparison:
        (task,) = (task for task in self.comparison.tasks if task.metric == metric)
        return task

    @property
    def _missed(self) -> str:
        """Which difference of the best candidate may have been missed where none is shown."""
        best = max(self.differences, key=lambda each: each.difference)
        least = self.comparison.detectable(best)
        if all(each.verdict.startswith("worse") for each in self.recommendations):
            return ""
        if best.tied == best.n:
            return "; they tie on every query"
        if least is None or least >= 1:
            return "; these queries are too few to show any difference"
        return f"; these queries would show a difference of {least:.3f} in 80 % of samples"

    def _drawbacks(self, model: str) -> str:
        """The tested metrics by which a model that is taken is significantly worse."""
        alpha = self.comparison.procedure.alpha
        differences = [
            each
            for metric in self.tested[1:]
            for each in self._on(metric).with_baseline
            if each.first == model and each.difference < 0 and each.significant(alpha)
        ]
        return "".join(f"; but it is worse by {evidence(each)}" for each in differences)


def query_seconds(result: Result) -> float | None:
    """Seconds that one query takes; None if the record does not say."""
    value = result.config.get("seconds_per_query")
    return float(value) if isinstance(value, int | float) else None


def _newest(runs: Sequence[TrendPoint]) -> list[TrendPoint]:
    return list({run.label: run for run in runs}.values())
