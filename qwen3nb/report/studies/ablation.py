"""Tables, figure and conclusion of an ablation: variants and effects of options."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qwen3nb.analysis.comparison.differences import ALPHA, correction_words, family_words
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.records.data_used import DataUsed
from qwen3nb.report.render.differences import difference_cell, difference_text
from qwen3nb.report.render.figure import COLORS, Figure, ForestRow, forest_figure
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, short_task
from qwen3nb.utils.format import p_value_text

if TYPE_CHECKING:
    from qwen3nb.analysis.comparison.ablation_effects import Effect
    from qwen3nb.evaluation.studies.ablation import Variant, VariantResult


_FLOOR = 0.05  # mean score of a metric from 0 to 1 below which a model finds next to nothing


def ablation_table(outcomes: Sequence[VariantResult[Variant]]) -> Table:
    """All variants with their scores, best first."""
    ordered = sorted(outcomes, key=lambda each: -(each.result.main.value or 0.0))
    first = ordered[0].result
    rows: list[dict[str, Any]] = [
        {
            "pooling": each.variant.pooling,
            "weights": each.variant.weights,
            "around a text": each.variant.around,
            "vectors": "length 1, cosine" if each.variant.length == "unit" else "kept, dot product",
            first.task.main_metric: number(each.result.main, strong=each is ordered[0]),
        }
        for each in ordered
    ]
    return Table.of(
        rows,
        note=f"{first.task.key}, n = {first.main.n} {first.task.unit}. Intervals: 95 %, "
        f"{interval_words(each.result.main.interval for each in ordered)}. "
        "The best value is biased upwards by the selection among variants.",
        name=f"ablation-{short_task(first.task.key)}",
        caption=f"All {len(ordered)} combinations of options on {short_task(first.task.key)}, best "
        "first.",
        data=DataUsed.of(each.result for each in ordered),
    )


def _data_of(effects: Sequence[Effect]) -> DataUsed:
    return functools.reduce(operator.or_, (each.data for each in effects), DataUsed())


def effects_table(effects: Sequence[Effect], *, task: str = "", kind: str = "effects") -> Table:
    """The effect of each option on one task, with interval and corrected p-value.

    From `effects` or `component_effects`; where a page has several, ``kind`` starts their names.
    """
    on = f", on {short_task(task)}" if task else ""
    settings = " or ".join(map(str, sorted({each.settings for each in effects})))
    return Table.of(
        (
            {
                "option": each.factor,
                "setting": (each.level, f"instead of {each.reference}"),
                "difference": difference_cell(each.estimate, spec="+.4f"),
                "p\ncorrected": Cell(
                    p_value_text(each.p_value), strong=each.significant, value=each.p_value
                ),
            }
            for each in effects
        ),
        note=f"Paired over {effects[0].estimate.n if effects else 0} queries, each averaged over "
        f"the combinations of the other options ({settings}); 95 % interval "
        f"({interval_words(['paired'])}); p: {_method(effects)}; in bold: significant, p < "
        f"{ALPHA:g} and the interval excludes 0.",
        name=f"{kind}-{short_task(task)}-tested",
        caption=f"Effect of each setting compared with the reference{on}.",
        data=_data_of(effects),
    )


def effects_figure(effects: Sequence[Effect], *, task: str = "", kind: str = "effects") -> Figure:
    """A forest plot of the effects, with the arguments of `effects_table`."""
    on = f", on {short_task(task)}" if task else ""
    factors = list(dict.fromkeys(each.factor for each in effects))
    rows = [
        ForestRow(
            f"{each.factor}: {each.level}, not {each.reference}",
            each.estimate.difference,
            each.estimate.interval,
            color=COLORS[factors.index(each.factor) % len(COLORS)],
            clear=each.significant,
        )
        for each in effects
    ]
    return forest_figure(
        rows,
        xlabel="mean paired difference over queries, with 95 % interval",
        name=f"{kind}-{short_task(task)}",
        caption=f"Effect of each option{on}: paired over n = "
        f"{effects[0].estimate.n if effects else 0} queries, each averaged "
        "over the combinations of the other options, with 95 % intervals "
        f"({interval_words(['paired'])}). Filled marks: significant, p < {ALPHA:g} "
        f"({_method(effects)}), and the interval excludes 0.",
        data=_data_of(effects),
    )


def _method(effects: Sequence[Effect]) -> str:
    """Name the test of the effects and its family."""
    return family_words([effect.estimate for effect in effects], "effects")


def _highest(effects: Sequence[Effect]) -> float:
    """The largest mean score of a setting."""
    return max(max(effect.estimate.means) for effect in effects)


def ablation_conclusion(measured: Mapping[str, Sequence[Effect]]) -> Conclusion:
    """State which options have a significant effect after correction, by task (see `effects`)."""
    sentences = []
    for task, effects in measured.items():
        ordered = sorted(effects, key=lambda each: -abs(each.estimate.difference))
        if not ordered:
            continue
        clear = [each for each in ordered if each.significant]
        largest = "; ".join(
            f"{each.level} instead of {each.reference} ({each.factor}), "
            f"{difference_text(each.estimate)}"
            for each in clear or ordered[:1]
        )
        estimate = ordered[0].estimate
        correction = correction_words(estimate.correction, estimate.family)
        tested = ", ".join(filter(None, [f"{estimate.n} queries", correction]))
        sentences.append(
            f"On {short_task(task)} ({tested}), {len(clear)} of {len(ordered)} settings have a "
            f"significant effect; the largest: {largest}."
        )
        if _highest(ordered) < _FLOOR:
            sentences.append(
                f"The model is at the floor: no setting averages {_FLOOR:g} or more, so options "
                "can hardly be told apart here."
            )
    every = [effect for effects in measured.values() for effect in effects]
    text = " ".join(sentences) or "No two settings were compared."
    return Conclusion(text, data=_data_of(every))
