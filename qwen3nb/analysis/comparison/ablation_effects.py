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
from qwen3nb.analysis.comparison.seed_differences import seed_difference
from qwen3nb.analysis.stats.score_matrix import SystemScores, join, system_scores
from qwen3nb.evaluation.studies.ablation import (
    SEED_COMPONENTS,
    TrainingVariant,
    V,
    Variant,
    VariantResult,
)
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
    columns = _main_scores(outcomes)
    scores = {outcome.variant: column for outcome, column in zip(outcomes, columns, strict=True)}
    reference = outcomes[0].variant
    contrasts = []
    for factor in (field.name for field in fields(Variant)):
        reference_level = getattr(reference, factor)
        for level in dict.fromkeys(getattr(variant, factor) for variant in scores):
            if level == reference_level:
                continue
            # Every variant with this level, and the same with the reference level in its place.
            variants = [variant for variant in scores if getattr(variant, factor) == level]
            controls = [replace(variant, **{factor: reference_level}) for variant in variants]
            contrasts.append(
                _Contrast(
                    factor=factor,
                    level=str(level),
                    reference=str(reference_level),
                    scores=_mean([scores[variant] for variant in variants]),
                    reference_scores=_mean([scores[variant] for variant in controls]),
                    combinations=len(variants),
                )
            )
    return _corrected(_uncorrected_effects(contrasts, outcomes, seed))


def component_effects(
    outcomes: Sequence[VariantResult[TrainingVariant]], *, seed: int = 0
) -> list[Effect]:
    """Effect of each component of a training, from pairs that differ only in this component.

    The later training of a pair is compared with the earlier one, paired by query. Two seeds of one
    training are such a pair. Trainings that differ only in their seed are also joined, and compared
    with others for new seeds and new queries; their single seeds are then not compared with others.

    Raises:
        ValueError: outcomes of several tasks or without a score per query, or no two trainings
            that differ in one component.
    """
    columns = _main_scores(outcomes)
    scores = [
        (scored_outcome.variant, column)
        for scored_outcome, column in zip(outcomes, columns, strict=True)
    ]
    contrasts = []
    groups = _seeds_of_trainings(scores)
    for (old_variant, old_scores), (new_variant, new_scores) in itertools.combinations(scores, 2):
        # The only component in which the two trainings differ.
        component = new_variant.difference(old_variant)
        if not component:  # none, or several
            continue
        counts = [_count_of_seeds(groups, variant) for variant in (old_variant, new_variant)]
        if component not in SEED_COMPONENTS and max(counts) > 1:
            continue  # compared with their other seeds, below
        contrasts.append(
            _Contrast(
                factor=component,
                level=_component_text(new_variant, component),
                reference=_component_text(old_variant, component),
                scores=new_scores,
                reference_scores=old_scores,
                combinations=1,  # nothing is averaged over
            )
        )
    over_seeds = _effects_over_seeds(groups, outcomes, seed)
    if not contrasts and not over_seeds:
        names = ", ".join(outcome.variant.name for outcome in outcomes)
        raise ValueError(f"no two of these trainings differ in exactly one component: {names}")
    return _corrected([*over_seeds, *_uncorrected_effects(contrasts, outcomes, seed)])


_Group = list[tuple[TrainingVariant, SystemScores]]  # seeds of one training
_Groups = dict[tuple[tuple[str, str], ...], _Group]


def _seeds_of_trainings(scores: _Group) -> _Groups:
    """Join the trainings that differ only in their seed, by their other components.

    Without those of which a seed is not stated, or was trained twice: these are no seeds.
    """
    groups: _Groups = {}
    for variant, column in scores:
        groups.setdefault(variant.without_seed, []).append((variant, column))
    of_seeds: _Groups = {}
    for components, group in groups.items():
        seeds = {variant.seeds for variant, _ in group}
        if () not in seeds and len(seeds) == len(group):
            of_seeds[components] = group
    return of_seeds


def _count_of_seeds(groups: _Groups, variant: TrainingVariant) -> int:
    """Return how many seeds a training has."""
    return len(groups.get(variant.without_seed, [variant]))


def _effects_over_seeds(
    groups: _Groups, outcomes: Sequence[VariantResult[TrainingVariant]], seed: int
) -> list[Effect]:
    """Return the effects between two trainings of which one has several seeds, uncorrected."""
    results = [outcome.result for outcome in outcomes]
    task = results[0].task
    clusters = newest_clusters(results)
    data = DataUsed.of(results)
    effects = []
    for old, new in itertools.combinations(groups.values(), 2):
        old_variant, new_variant = _without_seeds(old), _without_seeds(new)
        component = new_variant.difference(old_variant)
        if not component or len(old) == len(new) == 1:
            continue
        columns = {variant.name: column for variant, column in [*new, *old]}
        matrix = join(columns, task=task.key, metric=task.main_metric, clusters=clusters)
        level = _text_of_seeds(new, component)
        difference = seed_difference(
            (level, f"not {level}"),
            matrix.scores_of(variant.name for variant, _ in new),
            matrix.scores_of(variant.name for variant, _ in old),
            matrix,
            seed=seed,
        )
        effects.append(
            Effect(
                factor=component,
                level=level,
                reference=_text_of_seeds(old, component),
                estimate=difference.estimate,
                settings=1,
                data=data,
            )
        )
    return effects


def _without_seeds(group: _Group) -> TrainingVariant:
    """Return a training without its seed."""
    variant, _ = group[0]
    return replace(variant, components=dict(variant.without_seed))


def _text_of_seeds(group: _Group, component: str) -> str:
    """Name the setting of a component, and how many seeds have it."""
    variant, _ = group[0]
    if len(group) == 1:
        return _component_text(variant, component)
    return f"{variant.components.get(component, 'none')} ({len(group)} seeds)"


def _component_text(variant: TrainingVariant, component: str) -> str:
    return f"{variant.components.get(component, 'none')} ({variant.name})"


class _Contrast(NamedTuple):
    """A setting and its reference, each with scores by query."""

    factor: str
    level: str
    reference: str
    scores: SystemScores
    reference_scores: SystemScores
    combinations: int  # of the other options, which are averaged over


def _corrected(effects: Sequence[Effect]) -> list[Effect]:
    """Correct the p-values of effects as one family."""
    estimates = corrected([effect.estimate for effect in effects])
    return [
        replace(effect, estimate=estimate)
        for effect, estimate in zip(effects, estimates, strict=True)
    ]


def _uncorrected_effects(
    contrasts: Sequence[_Contrast], outcomes: Sequence[VariantResult[V]], seed: int
) -> list[Effect]:
    """Return the effects per factor and level."""
    results = [outcome.result for outcome in outcomes]
    task = results[0].task
    clusters = newest_clusters(results)
    # Two systems each: a level, and whatever stands in its place in the reference.
    differences = [
        paired_difference(
            {contrast.level: contrast.scores, f"not {contrast.level}": contrast.reference_scores},
            task=task.key,
            metric=task.main_metric,
            clusters=clusters,
            seed=seed,
        )
        for contrast in contrasts
    ]
    data = DataUsed.of(results)
    return [
        Effect(
            factor=contrast.factor,
            level=contrast.level,
            reference=contrast.reference,
            estimate=difference,
            settings=contrast.combinations,
            data=data,
        )
        for contrast, difference in zip(contrasts, differences, strict=True)
    ]


def _mean(columns: Sequence[SystemScores]) -> SystemScores:
    """The mean of the scores of several variants on the same queries."""
    mean = np.mean([column.scores for column in columns], axis=0)
    return system_scores(columns[0].queries, mean)


def _main_scores(outcomes: Sequence[VariantResult[V]]) -> list[SystemScores]:
    """Main metric of each query, of outcomes of one task."""
    results = [outcome.result for outcome in outcomes]
    if len({result.task.key for result in results}) != 1:
        raise ValueError("expected outcomes of one task")
    columns = []
    for result in results:
        metric = result.task.main_metric
        if metric not in result.scores:
            raise ValueError(f"{result.task.key} has no {metric} per query")
        columns.append(scores_by(metric, result))
    return columns
