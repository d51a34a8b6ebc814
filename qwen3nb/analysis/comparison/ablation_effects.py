"""Effects of the options of an ablation, paired by query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.stats.paired_tests import MeanDifference, mean_difference, permutation_test
from qwen3nb.evaluation.studies.ablation import Variant, VariantResult
from qwen3nb.records.record import Result

__all__ = ["Effect", "effects"]


@dataclass(frozen=True)
class Effect:
    """The effect of one setting compared with the reference, averaged over all other options.

    Attributes:
        factor: the option, a field of `Variant`.
        level: its setting.
        reference: the setting it is compared with.
        estimate: mean paired difference with its interval.
        p_value: of the paired permutation test, Holm-corrected over all effects.
        settings: number of combinations of the other options that are averaged over.
    """

    factor: str
    level: str
    reference: str
    estimate: MeanDifference
    p_value: float
    settings: int


def effects(outcomes: Sequence[VariantResult], *, seed: int = 0) -> list[Effect]:
    """Effect of each setting relative to that of the first variant, paired by query.

    For each query, the main metric is averaged over all combinations of the other options,
    once with the setting and once with the reference setting; the differences are taken
    per query.

    Args:
        outcomes: results of one task, from `ablate`.
        seed: of the tests.

    Raises:
        ValueError: outcomes of several tasks, or of a task without a score per query.
    """
    if len({outcome.result.task.key for outcome in outcomes}) != 1:
        raise ValueError("expected outcomes of one task")
    scores = {outcome.variant: _scores(outcome.result) for outcome in outcomes}
    reference = outcomes[0].variant
    rows = []
    for factor in (field.name for field in fields(Variant)):
        base = getattr(reference, factor)
        levels = dict.fromkeys(getattr(variant, factor) for variant in scores)
        for level in levels:
            if level == base:
                continue
            pairs = [
                (variant, replace(variant, **{factor: base}))
                for variant in scores
                if getattr(variant, factor) == level
            ]
            a, b = (np.mean([scores[pair[side]] for pair in pairs], axis=0) for side in (0, 1))
            rows.append((factor, level, base, a, b, len(pairs)))
    adjusted = holm([permutation_test(a, b, seed=seed).p_value for *_, a, b, _ in rows])
    return [
        Effect(factor, level, base, mean_difference(a, b), p, count)
        for (factor, level, base, a, b, count), p in zip(rows, adjusted, strict=True)
    ]


def _scores(result: Result) -> list[float]:
    """Main metric of each query, ordered by query id."""
    scores = result.per_query.get(result.task.main_metric)
    if scores is None:
        raise ValueError(f"{result.task.key} has no {result.task.main_metric} per query")
    return [scores[query] for query in sorted(scores)]
