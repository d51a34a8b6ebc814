"""Effects of the options of an ablation, or of the components of a training, paired by query."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from qwen3nb.analysis.comparison.alignment import newest_clusters, scores_by
from qwen3nb.analysis.comparison.differences import (
    ALPHA,
    PairedDifference,
    corrected,
    paired_difference,
)
from qwen3nb.analysis.stats.score_matrix import SystemScores, system_scores
from qwen3nb.evaluation.studies.ablation import TrainingVariant, V, Variant, VariantResult
from qwen3nb.records.data_used import NO_SCORES, DataUsed


@dataclass(frozen=True)
class Effect:
    """The effect of one setting compared with the reference, averaged over all other options."""

    factor: str  # the option, a field of `Variant`, or the component of a training
    level: str  # its setting
    reference: str  # the setting it is compared with
    estimate: PairedDifference  # with p-values, corrected over all effects
    settings: int  # number of combinations of the other options that are averaged over
    data: DataUsed = NO_SCORES  # of the scores

    @property
    def p_value(self) -> float:
        """The corrected p-value."""
        return self.estimate.corrected

    @property
    def significant(self) -> bool:
        """Whether the effect is significant; see `differences.significant`."""
        return self.estimate.significant(ALPHA)


def effects(outcomes: Sequence[VariantResult[Variant]], *, seed: int = 0) -> list[Effect]:
    """Effect of each setting relative to that of the first variant, paired by query.

    For each query, the main metric is averaged over all combinations of the other options,
    once with the setting and once with the reference setting; the differences are taken
    per query.

    Raises:
        ValueError: outcomes of several tasks, or of a task without a score per query.
    """
    scores = dict(zip((each.variant for each in outcomes), _scores(outcomes), strict=True))
    reference = outcomes[0].variant
    compared = []
    for factor in (field.name for field in fields(Variant)):
        base = getattr(reference, factor)
        for level in dict.fromkeys(getattr(variant, factor) for variant in scores):
            if level == base:
                continue
            with_it = [variant for variant in scores if getattr(variant, factor) == level]
            without = [replace(variant, **{factor: base}) for variant in with_it]
            sides = (
                _mean([scores[variant] for variant in with_it]),
                _mean([scores[variant] for variant in without]),
            )
            compared.append(_Compared(factor, str(level), str(base), *sides, len(with_it)))
    return _tested(compared, outcomes, seed)


def component_effects(
    outcomes: Sequence[VariantResult[TrainingVariant]], *, seed: int = 0
) -> list[Effect]:
    """Effect of each component of a training, from pairs that differ only in this component.

    The later training of a pair is compared with the earlier one, paired by query. Two seeds of one
    training are such a pair: their difference is what an effect must exceed.

    Raises:
        ValueError: outcomes of several tasks or without a score per query, or no two trainings
            that differ in one component.
    """
    compared = []
    scored = zip(outcomes, _scores(outcomes), strict=True)
    for (earlier, theirs), (later, ours) in itertools.combinations(scored, 2):
        if factor := later.variant.difference(earlier.variant):
            level, base = (
                f"{each.components.get(factor, 'none')} ({each.name})"
                for each in (later.variant, earlier.variant)
            )
            compared.append(_Compared(factor, level, base, ours, theirs, 1))
    if not compared:
        names = ", ".join(outcome.variant.name for outcome in outcomes)
        raise ValueError(f"no two of these trainings differ in exactly one component: {names}")
    return _tested(compared, outcomes, seed)


class _Compared(NamedTuple):
    """A setting and its reference, each with scores by query."""

    factor: str
    level: str
    reference: str
    scores: SystemScores  # with the setting
    other: SystemScores  # with the reference
    settings: int


def _tested(
    compared: Sequence[_Compared], outcomes: Sequence[VariantResult[V]], seed: int
) -> list[Effect]:
    """Effects per factor and level, corrected as one family."""
    task = outcomes[0].result.task
    data = DataUsed.of(outcome.result for outcome in outcomes)
    clusters = newest_clusters(outcome.result for outcome in outcomes)
    differences = [
        paired_difference(
            {row.level: row.scores, f"not {row.level}": row.other},
            task=task.key,
            metric=task.main_metric,
            clusters=clusters,
            seed=seed,
        )
        for row in compared
    ]
    return [
        Effect(row.factor, row.level, row.reference, difference, row.settings, data)
        for row, difference in zip(compared, corrected(differences), strict=True)
    ]


def _mean(several: Sequence[SystemScores]) -> SystemScores:
    """The mean of the scores of several variants on the same queries."""
    mean = np.mean([one.scores for one in several], axis=0)
    return system_scores(several[0].queries, mean)


def _scores(outcomes: Sequence[VariantResult[V]]) -> list[SystemScores]:
    """Main metric of each query, of outcomes of one task."""
    if len({outcome.result.task.key for outcome in outcomes}) != 1:
        raise ValueError("expected outcomes of one task")
    columns = []
    for outcome in outcomes:
        metric = outcome.result.task.main_metric
        if metric not in outcome.result.scores:
            raise ValueError(f"{outcome.result.task.key} has no {metric} per query")
        columns.append(scores_by(metric, outcome.result))
    return columns
