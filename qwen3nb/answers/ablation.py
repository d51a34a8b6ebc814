"""Which options work best? Variants of an encoder, and the effect of each option or component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from qwen3nb.analysis.comparison.differences import ALPHA, family_words
from qwen3nb.answers.answer import Answer
from qwen3nb.metrics.intervals import few_queries_sentence, interval_words
from qwen3nb.records.data_used import NO_SCORES, DataUsed
from qwen3nb.report.render.differences import difference_cell
from qwen3nb.report.render.figure import Figure, ForestRow, forest_figure
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural, short_task
from qwen3nb.utils.format import number_text, p_value_text
from qwen3nb.utils.imports import DataFrame

if TYPE_CHECKING:
    from qwen3nb.analysis.comparison.ablation_effects import Effect
    from qwen3nb.evaluation.studies.ablation import Variant, VariantResult

_FLOOR = 0.05  # mean score of a metric from 0 to 1 below which a model finds next to nothing


class AblationOptions(TypedDict, total=False):
    """Of the evaluation and of the model; see `qwen3nb.evaluation.studies.ablation.ablate`."""

    tier: str
    types: str  # comma-separated types of MTEB tasks, by default ``Retrieval``
    output: Path | None
    max_length: int | None
    batch_size: int
    device: str
    dtype: str
    show_progress: bool


@dataclass(frozen=True, repr=False)
class Ablation(Answer):
    """Effects of options, or of the components of a training, on each task."""

    effects: Mapping[str, Sequence[Effect]]  # by task
    outcomes: Mapping[str, Sequence[VariantResult[Any]]]  # records of all variants, by task
    kind: str = "effects"  # starts the names of tables and figures

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(self.effects)

    @property
    def data(self) -> DataUsed:
        """The data of the scores."""
        data = NO_SCORES
        for effects in self.effects.values():
            data |= _data_used(effects)
        return data

    @property
    def conclusion(self) -> Conclusion:
        """Which options have a significant effect after correction, by task."""
        compared = {task: effects for task, effects in self.effects.items() if effects}
        if not compared:
            return Conclusion("No two settings were compared.", data=self.data)
        first_task = next(iter(compared))
        sentences = [_sentence(first_task, compared[first_task])]
        if len(compared) > 1:
            sentences.append(f"The tables have {plural(len(compared) - 1, 'more task')}.")
        floored = [task for task, effects in compared.items() if _is_at_floor(effects)]
        if floored:
            sentences.append(_floor_sentence(floored, len(compared)))
        return Conclusion(" ".join(sentences), data=self.data)

    def table(self, task: str = "") -> Table | None:
        """The effect of each option on one task, with interval and corrected p-value.

        Args:
            task: by default the first one.
        """
        if not self.effects:
            return None
        task = task or self.tasks[0]
        effects = self.effects[task]
        # How many combinations of the other options are averaged: mostly the same number.
        combinations = sorted({effect.settings for effect in effects})
        numbers = " or ".join(str(number) for number in combinations)
        return Table.of(
            [_row(effect) for effect in effects],
            note=f"Paired over {_sample_size(effects)} queries. Bold: significant, p < "
            f"{ALPHA:g} and the interval excludes 0.",
            method=f"Each query is averaged over the combinations of the other options "
            f"({numbers}). 95 % interval: {interval_words(['paired'])}. p: {_test(effects)}.",
            name=f"{self.kind}-{short_task(task)}-tested",
            caption=f"Effect of each setting compared with the reference, on {short_task(task)}.",
            data=_data_used(effects),
        )

    def figure(self, task: str = "") -> Figure | None:
        """A forest plot of the effects on one task, by default the first one."""
        if not self.effects:
            return None
        task = task or self.tasks[0]
        effects = self.effects[task]
        rows = []
        for effect in effects:
            row = ForestRow(
                f"{effect.factor}: {effect.level}, not {effect.reference}",
                effect.estimate.difference,
                effect.estimate.interval,
                clear=effect.significant,  # a filled mark
            )
            rows.append(row)
        return forest_figure(
            rows,
            xlabel="mean paired difference over queries, with 95 % interval",
            name=f"{self.kind}-{short_task(task)}",
            caption=f"Effect of each option, on {short_task(task)}: paired over n = "
            f"{_sample_size(effects)} queries, with 95 % intervals. Filled marks: significant; "
            "the table has the test.",
            data=_data_used(effects),
        )

    def combinations(self, task: str = "") -> Table:
        """All variants with their scores on one task, best first."""
        best_first = sorted(
            self.outcomes[task or self.tasks[0]],
            # A variant without a score comes last.
            key=lambda outcome: -(outcome.result.main.value or 0.0),
        )
        scores = [outcome.result.main for outcome in best_first]
        rows = []
        for place, outcome in enumerate(best_first):
            rows.append(_combination_row(outcome, is_best=place == 0))
        key = best_first[0].result.task.key
        unit = best_first[0].result.task.unit
        intervals = interval_words(score.interval for score in scores)
        return Table.of(
            rows,
            note=f"{key}, n = {scores[0].n} {unit}. The best of many variants is partly the "
            "luckiest: its value is biased upwards.",
            method=f"Intervals: 95 %, {intervals}.{few_queries_sentence(scores)}",
            name=f"ablation-{short_task(key)}",
            caption=f"All {len(rows)} combinations of options on {short_task(key)}, best first.",
            data=DataUsed.of(outcome.result for outcome in best_first),
        )

    def to_frame(self, task: str = "") -> DataFrame:
        """Return a row per query and a column per variant: the main metric on one task."""
        import pandas as pd

        if not self.outcomes:
            return pd.DataFrame()
        columns = {}
        for outcome in self.outcomes[task or self.tasks[0]]:
            metric = outcome.result.task.main_metric
            columns[outcome.variant.name] = dict(outcome.result.per_query[metric])
        return pd.DataFrame(columns)


def ablation(
    training: Path | str,
    *,
    poolings: Sequence[str] = (),
    averages: Sequence[int] = (1, 3),
    normalization: bool = True,
    prefix: str = "[R]",
    append_eos: bool = True,
    seed: int = 0,
    **options: Unpack[AblationOptions],
) -> Ablation:
    """Evaluate every combination of options on the same queries; stored records are reused.

    Args:
        training: a folder with ``checkpoint-N`` folders, or ``demo``.
        poolings: poolings to try, by default all; the first one is the reference.
        averages: numbers of last checkpoints to average; the first one is the reference.
        normalization: whether to try unnormalised vectors with dot products.
        prefix: prefix to compare with plain texts; empty for none.
        append_eos: whether to append the end-of-text token, together with the prefix.
        seed: of the evaluation and of the draws.
        options: of `qwen3nb.evaluation.studies.ablation.ablate`, such as ``tier`` and ``device``.

    Raises:
        CheckpointError: no checkpoints, or they cannot be averaged.
        ValueError: unknown pooling, or a number that is not positive.
    """
    from qwen3nb.analysis.comparison.ablation_effects import effects
    from qwen3nb.evaluation.studies.ablation import ablate, by_task, variants
    from qwen3nb.models.kinds.resolve import find_training
    from qwen3nb.models.modeling.pooling import POOLINGS

    combinations = variants(
        poolings=poolings or tuple(POOLINGS),
        averages=averages,
        normalization=normalization,
        prefix=prefix,
        append_eos=append_eos,
    )
    results = ablate(
        find_training(str(training)),
        combinations,
        prefix=prefix,
        append_eos=append_eos,
        seed=seed,
        **options,
    )
    outcomes = by_task(results)
    effects_by_task = {}
    for task, outcomes_on_task in outcomes.items():
        effects_by_task[task] = effects(outcomes_on_task, seed=seed)
    return Ablation(effects_by_task, outcomes)


def training_components(
    folder: Path | str, *, seed: int = 0, **options: Unpack[AblationOptions]
) -> Ablation:
    """Compare the last checkpoints of trainings that differ in exactly one component.

    Two seeds of one training are such a pair. Trainings with several seeds (``seed`` in the
    settings of ``training.json``) are compared with others for new seeds and new queries.

    Args:
        folder: the trainings; empty for none.
        seed: of the evaluation and of the draws.
        options: as in `ablation`.

    Raises:
        ValueError: no two trainings that differ in one component.
    """
    from qwen3nb.analysis.comparison.ablation_effects import component_effects
    from qwen3nb.evaluation.studies.ablation import ablate_trainings, by_task, find_trainings

    if not folder:
        return Ablation({}, {}, kind="components")
    results = ablate_trainings(find_trainings(folder), seed=seed, **options)
    outcomes = by_task(results)
    effects = {}
    for task, outcomes_on_task in outcomes.items():
        effects[task] = component_effects(outcomes_on_task, seed=seed)
    return Ablation(effects, outcomes, kind="components")


def _data_used(effects: Sequence[Effect]) -> DataUsed:
    data = NO_SCORES
    for effect in effects:
        data |= effect.data
    return data


def _sample_size(effects: Sequence[Effect]) -> int:
    return effects[0].estimate.n if effects else 0


def _test(effects: Sequence[Effect]) -> str:
    """Name the test of the effects and its family."""
    return family_words([effect.estimate for effect in effects], "effects")


def _sentence(task: str, effects: Sequence[Effect]) -> str:
    """Say how many settings have a significant effect on a task, and which is the largest."""
    significant = [effect for effect in effects if effect.significant]
    largest = max(significant or effects, key=lambda effect: abs(effect.estimate.difference))
    change = number_text(largest.estimate.difference, sign=True)
    settings = f"{largest.level} instead of {largest.reference} ({largest.factor}), {change}"
    where = f"On {short_task(task)}"
    if not significant:
        return (
            f"{where}, none of {plural(len(effects), 'setting')} has a significant effect. The "
            f"largest: {settings}."
        )
    verb = "has" if len(significant) == 1 else "have"
    return (
        f"{where}, {len(significant)} of {plural(len(effects), 'setting')} {verb} a significant "
        f"effect. The largest: {settings}."
    )


def _is_at_floor(effects: Sequence[Effect]) -> bool:
    """Whether the model finds next to nothing, whatever the setting."""
    return max(max(effect.estimate.means) for effect in effects) < _FLOOR


def _floor_sentence(tasks: Sequence[str], number_of_tasks: int) -> str:
    where = ""
    if number_of_tasks > 1:
        where = f" on {plural(len(tasks), 'task')}"
    return (
        f"The model is at the floor{where}: no setting averages {_FLOOR:g} or more, so options "
        "can hardly be told apart."
    )


def _row(effect: Effect) -> dict[str, object]:
    """Return a row of the table of effects."""
    p_value = Cell(p_value_text(effect.p_value), strong=effect.significant, value=effect.p_value)
    return {
        "option": effect.factor,
        "setting": (effect.level, f"instead of {effect.reference}"),
        "difference": difference_cell(effect.estimate, spec="+.4f"),
        "p\ncorrected": p_value,
    }


def _combination_row(outcome: VariantResult[Variant], *, is_best: bool) -> dict[str, object]:
    """Return a row of the table of combinations."""
    variant, result = outcome.variant, outcome.result
    vectors = "kept, dot product"
    if variant.length == "unit":
        vectors = "length 1, cosine"
    return {
        "pooling": variant.pooling,
        "weights": variant.weights,
        "around a text": variant.around,
        "vectors": vectors,
        result.task.main_metric: number(result.main, strong=is_best),
    }
