"""What a choice of prompts changes: conclusion, tables and figure, from the records of a set."""

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from qwen3nb.analysis.comparison.prompt_effects import (
    RESAMPLES,
    PromptPair,
    PromptScores,
    place,
    prompt_variance,
)
from qwen3nb.records.data_used import DataUsed
from qwen3nb.report.render.figure import COLORS, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.table import Conclusion, Table, number, short_task

_NONE = "No model was evaluated with a set of prompts: `qwen3nb eval --model … --prompts 15`."
_MOST = 1000  # rows of a table or a figure


def _widest(every: Sequence[PromptScores]) -> tuple[Sequence[PromptScores], str]:
    """Return those to show, and a sentence on those left out."""
    if len(every) <= _MOST:
        return every, ""
    shown = heapq.nlargest(_MOST, every, key=lambda each: float(np.ptp(each.values)))
    return shown, f" Shown: {_MOST:,} of {len(every):,}, with the largest range over prompts."


def _data_of(every: Iterable[PromptScores]) -> DataUsed:
    """Return the data of all records."""
    return DataUsed.of(record for each in every for row in each.records for record in row)


def prompts_conclusion(every: Sequence[PromptScores], pairs: Sequence[PromptPair]) -> Conclusion:
    """Say how far prompts move a score, where the defaults stand, and how many pairs turn."""
    if not every:
        return Conclusion(_NONE)
    most = max(every, key=lambda each: float(np.ptp(each.values)))
    first = [place(each)[0] for each in every].count(1)
    text = (
        f"The choice of the prompt moves {most.metric} by up to {np.ptp(most.values):.3f} "
        f"({most.model} on {short_task(most.task)}: {most.values.min():.3f} to "
        f"{most.values.max():.3f} with {len(most.values)} prompts). A model's own prompts are the "
        f"best in {first} of {len(every)} cases."
    )
    if pairs:
        turned = [each for each in pairs if each.reversed_by]
        text += (
            f" In {len(turned)} of {len(pairs)} pairs of models ({len(turned) / len(pairs):.0%}), "
            "the lower one exceeds the default of the higher with some prompt."
        )
        least = min(pairs, key=lambda each: each.probability)
        ends = " [{:.2f}, {:.2f}]".format(*ends) if (ends := least.interval) else ""
        text += (
            f" The least certain order: P({least.first.model} > {least.second.model}) = "
            f"{least.probability:.2f}{ends} on {short_task(least.first.task)}."
        )
    return Conclusion(text, data=_data_of(every))


def prompt_place_table(every: Sequence[PromptScores]) -> Table:
    """A row per model and task: the default's score, those of all prompts, and its place."""
    (shown, left), rows = _widest(every), []
    for each in shown:
        rank, quantile = place(each)
        ends = f"{each.values.min():.3f} to {each.values.max():.3f}"
        rows.append(
            {
                "model": each.model,
                "task": (short_task(each.task), each.metric),
                "default": number(each.default),
                "prompts\nmedian, range": number(float(np.median(each.values)), detail=ends),
                "default's rank": (f"{rank} of {len(each.values) + 1}", f"quantile {quantile:.2f}"),
            }
        )
    return Table.of(
        rows,
        note="The default: a model's own prompts. Quantile: the share of the other prompts with a "
        "lower score, ties counting half. A prompt is that of the queries; passages keep theirs."
        + left,
        empty=_NONE,
        name="prompts-place",
        caption="Score with a model's own prompts, and with each of a set.",
        data=_data_of(shown),
    )


def prompt_pairs_table(pairs: Sequence[PromptPair]) -> Table:
    """A row per pair of models and task: whether a prompt turns their order, and P(A > B)."""
    shown, left = pairs, ""
    if len(pairs) > _MOST:
        shown = heapq.nsmallest(_MOST, pairs, key=lambda each: each.probability)
        left = f" Shown: {_MOST:,} of {len(pairs):,}, with the smallest P(A > B)."
    return Table.of(
        (
            {
                "A": each.first.model,
                "B": each.second.model,
                "task": short_task(each.first.task),
                "A − B\ndefaults": number(each.difference, "+.3f"),
                "B passes A with": each.reversed_by or "none",
                "P(A > B)": number(each.probability, ".2f", interval=each.interval),
            }
            for each in shown
        ),
        note="A is the better one by default. B passes A if its best prompt exceeds A's default. "
        "P(A > B): share of the pairs of a prompt of A and one of B in which A scores higher; "
        f"interval: 95 %, Newcombe's over prompts, with percentiles of {RESAMPLES:,} resamples of "
        "queries." + left,
        empty="Two models on one task are needed.",
        name="prompts-pairs",
        caption="Does a prompt reverse the order of two models?",
        data=_data_of(scores for pair in shown for scores in (pair.first, pair.second)),
    )


def prompt_variance_table(every: Sequence[PromptScores], *, seed: int = 0) -> Table:
    """A row per model and task: the shares of query, prompt and seed in the variance of a score."""
    shown, left = _widest([each for each in every if each.queries])
    split = {each: prompt_variance(each, seed=seed) for each in shown}
    names = dict.fromkeys(part.name for parts in split.values() for part in parts)
    rows = []
    for each, parts in split.items():
        shares = {part.name: number(part.share, ".0%", interval=part.interval) for part in parts}
        if parts:
            row: dict[str, Any] = {"model": each.model, "task": short_task(each.task)}
            rows.append(row | {name: shares.get(name, "–") for name in names})
    return Table.of(
        rows,
        note="Shares of the variance of the score of one query with one prompt: crossed random "
        "effects by the method of moments; the last holds what is left over. Intervals: 95 %, by "
        "generalised pivots, which presume that no rare query has a large effect; none where one "
        "shows." + left,
        empty="Two prompts and scores per query are needed.",
        name="prompts-variance",
        caption="What a score varies with: queries, prompts, or both together.",
        data=_data_of(shown),
    )


def prompts_figure(every: Sequence[PromptScores]) -> Figure:
    """Strips of points: the scores of all prompts, a panel per task and a row per model."""
    shown, left = _widest(every)
    tasks = list(dict.fromkeys(each.task for each in shown))
    models = list(dict.fromkeys(each.model for each in shown))[::-1]

    def draw(width: float) -> MplFigure:
        height = 0.3 * len(models) + 0.9
        figure, axes, first = panels(len(tasks), width, height=height, most=2, sharey=True)
        for axis, task in zip(axes, tasks, strict=True):
            for each in (each for each in shown if each.task == task):
                row, color = models.index(each.model), COLORS[0]
                axis.plot(each.values, [row] * len(each.values), "|", color=color, markersize=11)
                axis.plot([np.median(each.values)], [row], "o", color=color, markersize=4)
                axis.plot([each.default], [row], "D", color=COLORS[1], markersize=5)
                axis.set_xlabel(plain(f"{each.metric}, {short_task(task)}", most=40))
            axis.set_ylim(-0.6, len(models) - 0.4)
            grid(axis)
        for axis in first:
            axis.set_yticks(range(len(models)), [plain(name, most=26) for name in models])
        return figure

    return Figure(
        "prompts",
        draw,
        caption="Score with each prompt (lines), their median (circle) and the score with the "
        f"model's own prompts (diamond). {len(every)} combinations of a model and a task." + left,
        alt="; ".join(
            f"{each.model} on {short_task(each.task)}: {each.values.min():.3f} to "
            f"{each.values.max():.3f}, default {each.default:.3f}"
            for each in shown
        ),
        data=_data_of(shown),
    )
