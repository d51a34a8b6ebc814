"""What does the choice of a prompt change? A model with its own prompts, and with each of a set."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from qwen3nb.analysis.comparison.prompt_effects import (
    RESAMPLES,
    Component,
    PromptPair,
    PromptScores,
    place,
    prompt_pairs,
    prompt_variance,
    read_prompt_scores,
)
from qwen3nb.answers.answer import Answer
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import COLORS, Axes, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, short_task
from qwen3nb.utils.imports import DataFrame

_NONE = "No model was evaluated with a set of prompts: `qwen3nb eval --model … --prompts 15`."
_MOST = 1000  # rows of a table or a figure


@dataclass(frozen=True, repr=False, eq=False)
class Prompts(Answer):
    """How far prompts move scores, and whether they turn the order of two models."""

    scores: tuple[PromptScores, ...]  # a model on a task, with each prompt of a set
    pairs: tuple[PromptPair, ...]  # of models on a task
    seed: int = 0  # of the resamples

    @property
    def conclusion(self) -> Conclusion:
        """How far prompts move a score, where the defaults stand, and how many pairs turn."""
        if not self.scores:
            return Conclusion(_NONE)
        widest = max(self.scores, key=_range)
        low, high = widest.values.min(), widest.values.max()
        best_defaults = sum(place(scores)[0] == 1 for scores in self.scores)
        sentences = [
            f"The choice of the prompt moves {widest.metric} by up to {_range(widest):.3f} "
            f"({widest.model} on {short_task(widest.task)}: {low:.3f} to {high:.3f} with "
            f"{len(widest.values)} prompts).",
            f"A model's own prompts are the best in {best_defaults} of {len(self.scores)} cases.",
        ]
        if self.pairs:
            sentences += [self._turned_sentence(), self._least_certain_sentence()]
        return Conclusion(" ".join(sentences), data=_data_of(self.scores))

    def _turned_sentence(self) -> str:
        turned = sum(bool(pair.reversed_by) for pair in self.pairs)
        count = len(self.pairs)
        return (
            f"In {turned} of {count} pairs of models ({turned / count:.0%}), the lower one "
            "exceeds the default of the higher with some prompt."
        )

    def _least_certain_sentence(self) -> str:
        pair = min(self.pairs, key=lambda pair: pair.probability)
        interval = ""
        if pair.interval:
            low, high = pair.interval
            interval = f" [{low:.2f}, {high:.2f}]"
        return (
            f"The least certain order: P({pair.first.model} > {pair.second.model}) = "
            f"{pair.probability:.2f}{interval} on {short_task(pair.first.task)}."
        )

    def table(self) -> Table:
        """A row per model and task: the default's score, those of all prompts, and its place."""
        shown, rest = _widest(self.scores)
        return Table.of(
            [_place_row(scores) for scores in shown],
            note="The default: a model's own prompts. Quantile: the share of the other prompts "
            "with a lower score, ties counting half. A prompt is that of the queries; passages "
            f"keep theirs.{rest}",
            empty=_NONE,
            name="prompts-place",
            caption="Score with a model's own prompts, and with each of a set.",
            data=_data_of(shown),
        )

    def pairs_table(self) -> Table:
        """A row per pair of models and task: whether a prompt turns their order, and P(A > B)."""
        shown: Sequence[PromptPair] = self.pairs
        rest = ""
        if len(self.pairs) > _MOST:
            shown = heapq.nsmallest(_MOST, self.pairs, key=lambda pair: pair.probability)
            rest = f" Shown: {_MOST:,} of {len(self.pairs):,}, with the smallest P(A > B)."
        rows = [
            {
                "A": pair.first.model,
                "B": pair.second.model,
                "task": short_task(pair.first.task),
                "A − B\ndefaults": number(pair.difference, "+.3f"),
                "B passes A with": pair.reversed_by or "none",
                "P(A > B)": number(pair.probability, ".2f", interval=pair.interval),
            }
            for pair in shown
        ]
        compared: list[PromptScores] = []
        for pair in shown:
            compared += [pair.first, pair.second]
        return Table.of(
            rows,
            note="A is the better one by default. B passes A if its best prompt exceeds A's "
            "default. P(A > B): share of the pairs of a prompt of A and one of B in which A scores "
            "higher; interval: 95 %, Newcombe's over prompts, with percentiles of "
            f"{RESAMPLES:,} resamples of queries.{rest}",
            empty="Two models on one task are needed.",
            name="prompts-pairs",
            caption="Does a prompt reverse the order of two models?",
            data=_data_of(compared),
        )

    def variance_table(self) -> Table:
        """A row per model and task: the shares of query, prompt and seed in a score's variance."""
        shown, rest = _widest([scores for scores in self.scores if scores.queries])
        components = [prompt_variance(scores, seed=self.seed) for scores in shown]
        names = dict.fromkeys(part.name for parts in components for part in parts)
        rows = []
        for scores, parts in zip(shown, components, strict=True):
            if parts:
                rows.append(_variance_row(scores, parts, list(names)))
        return Table.of(
            rows,
            note="Shares of the variance of the score of one query with one prompt: crossed random "
            "effects by the method of moments; the last holds what is left over. Intervals: 95 %, "
            "by generalised pivots, which presume that no rare query has a large effect; none "
            f"where one shows.{rest}",
            empty="Two prompts and scores per query are needed.",
            name="prompts-variance",
            caption="What a score varies with: queries, prompts, or both together.",
            data=_data_of(shown),
        )

    def figure(self) -> Figure | None:
        """Strips of points: the scores of all prompts, a panel per task and a row per model."""
        if not self.scores:
            return None
        shown, rest = _widest(self.scores)
        words = [
            f"{scores.model} on {short_task(scores.task)}: {scores.values.min():.3f} to "
            f"{scores.values.max():.3f}, default {scores.default:.3f}"
            for scores in shown
        ]
        return Figure(
            "prompts",
            partial(_draw_strips, shown),
            caption="Score with each prompt (lines), their median (circle) and the score with the "
            f"model's own prompts (diamond). {len(self.scores)} combinations of a model and a task."
            + rest,
            alt="; ".join(words),
            data=_data_of(shown),
        )

    def to_frame(self) -> DataFrame:
        """A row per model, task and prompt: its score, and that of the model's own prompts."""
        import pandas as pd

        rows = []
        for scores in self.scores:
            for prompt, value in zip(scores.prompts, scores.values, strict=True):
                case = (scores.model, scores.task, scores.metric)
                rows.append((*case, prompt.name, float(value), scores.default))
        columns = ["model", "task", "metric", "prompt", "value", "default"]
        return pd.DataFrame(rows, columns=columns)


def compare_prompts(*, seed: int = 0) -> Prompts:
    """Return what the choice of a prompt changes, from the records of sets of prompts.

    ``seed`` is that of the resamples. `qwen3nb eval --prompts 15` makes such records.
    """
    scores = read_prompt_scores()
    return Prompts(tuple(scores), tuple(prompt_pairs(scores, seed=seed)), seed)


def _range(scores: PromptScores) -> float:
    return float(np.ptp(scores.values))


def _widest(every: Sequence[PromptScores]) -> tuple[Sequence[PromptScores], str]:
    """Return the scores to show, and a sentence on those left out."""
    if len(every) <= _MOST:
        return every, ""
    shown = heapq.nlargest(_MOST, every, key=_range)
    return shown, f" Shown: {_MOST:,} of {len(every):,}, with the largest range over prompts."


def _data_of(every: Iterable[PromptScores]) -> DataUsed:
    """Return the data of all records."""
    records: list[Result] = []
    for scores in every:
        for by_seed in scores.records:
            records += by_seed
    return DataUsed.of(records)


def _place_row(scores: PromptScores) -> dict[str, object]:
    rank, quantile = place(scores)
    ends = f"{scores.values.min():.3f} to {scores.values.max():.3f}"
    median = float(np.median(scores.values))
    return {
        "model": scores.model,
        "task": (short_task(scores.task), scores.metric),
        "default": number(scores.default),
        "prompts\nmedian, range": number(median, detail=ends),
        "default's rank": (f"{rank} of {len(scores.values) + 1}", f"quantile {quantile:.2f}"),
    }


def _variance_row(
    scores: PromptScores, parts: Sequence[Component], names: Sequence[str]
) -> dict[str, Cell | str]:
    row: dict[str, Cell | str] = {"model": scores.model, "task": short_task(scores.task)}
    row |= dict.fromkeys(names, "–")
    for part in parts:
        row[part.name] = number(part.share, ".0%", interval=part.interval)
    return row


def _draw_strips(every: Sequence[PromptScores], width: float) -> MplFigure:
    tasks = list(dict.fromkeys(scores.task for scores in every))
    models = list(dict.fromkeys(scores.model for scores in every))[::-1]
    height = 0.3 * len(models) + 0.9
    figure, axes, leftmost = panels(len(tasks), width, height=height, per_line=2, sharey=True)
    for axis, task in zip(axes, tasks, strict=True):
        for scores in every:
            if scores.task == task:
                _draw_strip(axis, scores, models.index(scores.model))
        axis.set_ylim(-0.6, len(models) - 0.4)
        grid(axis)
    for axis in leftmost:
        axis.set_yticks(range(len(models)), [plain(name, longest=26) for name in models])
    return figure


def _draw_strip(axis: Axes, scores: PromptScores, row: int) -> None:
    color = COLORS[0]
    axis.plot(scores.values, [row] * len(scores.values), "|", color=color, markersize=11)
    axis.plot([np.median(scores.values)], [row], "o", color=color, markersize=4)
    axis.plot([scores.default], [row], "D", color=COLORS[1], markersize=5)
    axis.set_xlabel(plain(f"{scores.metric}, {short_task(scores.task)}", longest=40))
