"""Effects of the options of an ablation, or of the components of a training, paired by query."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from qwen3nb.analysis.comparison.differences import significant
from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.stats.paired_tests import MeanDifference, mean_difference, permutation_test
from qwen3nb.evaluation.studies.ablation import TrainingVariant, V, Variant, VariantResult
from qwen3nb.metrics.intervals import Array


@dataclass(frozen=True)
class Effect:
    """The effect of one setting compared with the reference, averaged over all other options."""

    factor: str  # the option, a field of `Variant`, or the component of a training
    level: str  # its setting
    reference: str  # the setting it is compared with
    estimate: MeanDifference  # mean paired difference with its interval
    p_value: float  # of the paired permutation test, Holm-corrected over all effects
    settings: int  # number of combinations of the other options that are averaged over

    @property
    def significant(self) -> bool:
        """Whether the effect is significant; see `differences.significant`."""
        return significant(self.p_value, self.estimate.interval)


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
    rows = []
    for factor in (field.name for field in fields(Variant)):
        base = getattr(reference, factor)
        for level in dict.fromkeys(getattr(variant, factor) for variant in scores):
            if level == base:
                continue
            with_it = [variant for variant in scores if getattr(variant, factor) == level]
            without = [replace(variant, **{factor: base}) for variant in with_it]
            a, b = (np.mean([scores[each] for each in side], axis=0) for side in (with_it, without))
            rows.append((factor, level, base, a, b, len(with_it)))
    return _tested(rows, seed)


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
    rows = []
    scored = zip(outcomes, _scores(outcomes), strict=True)
    for (earlier, b), (later, a) in itertools.combinations(scored, 2):
        if factor := later.variant.difference(earlier.variant):
            level, base = (
                f"{each.components.get(factor, 'none')} ({each.name})"
                for each in (later.variant, earlier.variant)
            )
            rows.append((factor, level, base, a, b, 1))
    if not rows:
        names = ", ".join(outcome.variant.name for outcome in outcomes)
        raise ValueError(f"no two of these trainings differ in exactly one component: {names}")
    return _tested(rows, seed)


def _tested(rows: Sequence[tuple[str, str, str, Array, Array, int]], seed: int) -> list[Effect]:
    """Effects per factor and level, from the scores with the level and with the reference."""
    adjusted = holm([permutation_test(a, b, seed=seed).p_value for *_, a, b, _ in rows])
    return [
        Effect(factor, level, base, mean_difference(a, b), p, count)
        for (factor, level, base, a, b, count), p in zip(rows, adjusted, strict=True)
    ]


def _scores(outcomes: Sequence[VariantResult[V]]) -> list[Array]:
    """Main metric of each query, ordered by query id, of outcomes of one task."""
    if len({outcome.result.task.key for outcome in outcomes}) != 1:
        raise ValueError("expected outcomes of one task")
    tables = []
    for task, scores in ((each.result.task, each.result.scores) for each in outcomes):
        if task.main_metric not in scores:
            raise ValueError(f"{task.key} has no {task.main_metric} per query")
        tables.append(scores.sample([task.main_metric])[:, 0])
    return tables
