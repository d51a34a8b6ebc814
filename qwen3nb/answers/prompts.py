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
from qwen3nb.report.render.figure import GREY, QUIET, Axes, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural, short_task
from qwen3nb.utils.imports import DataFrame

_NONE = "No model was evaluated with a set of prompts: `qwen3nb eval --model … --prompts 15`."
_MOST_ROWS = 1000  # of a table or a figure


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
        best_defaults = sum(_is_default_best(scores) for scores in self.scores)
        sentences = [
            f"The choice of the prompt moves {widest.metric} by up to {_range(widest):.3f} "
            f"({widest.model} on {short_task(widest.task)}: {low:.3f} to {high:.3f} with "
            f"{len(widest.values)} prompts).",
            f"A model's own prompts are the best in {best_defaults} of {len(self.scores)} cases.",
        ]
        if self.pairs:
            sentences.append(self._sentence_on_reversed_pairs())
        return Conclusion(" ".join(sentences), data=_data_of(self.scores))

    def _sentence_on_reversed_pairs(self) -> str:
        reversed_pairs = sum(pair.reversed_by != "" for pair in self.pairs)
        count = len(self.pairs)
        return (
            f"In {reversed_pairs} of {plural(count, 'pair')} of models, some prompt of the lower "
            "one exceeds the default of the higher."
        )

    def table(self) -> Table:
        """A row per model and task: the default's score, those of all prompts, and its place."""
        widest = _widest(self.scores)
        return Table.of(
            [_place_row(scores) for scores in widest],
            note=f"The default: a model's own prompts.{_widest_sentence(self.scores)}",
            method="Quantile: the share of the other prompts with a lower score, ties counting "
            "half. A prompt is that of the queries; passages keep theirs.",
            empty=_NONE,
            name="prompts-place",
            caption="Score with a model's own prompts, and with each of a set.",
            data=_data_of(widest),
        )

    def pairs_table(self) -> Table:
        """A row per pair of models and task: whether a prompt turns their order, and P(A > B)."""
        shown_pairs: Sequence[PromptPair] = self.pairs
        limit_sentence = ""
        if len(self.pairs) > _MOST_ROWS:
            shown_pairs = heapq.nsmallest(_MOST_ROWS, self.pairs, key=lambda pair: pair.probability)
            limit_sentence = (
                f" Shown: {_MOST_ROWS:,} of {len(self.pairs):,}, with the smallest P(A > B)."
            )
        scores: list[PromptScores] = []
        for pair in shown_pairs:
            scores += [pair.first, pair.second]
        return Table.of(
            [_pair_row(pair) for pair in shown_pairs],
            note="A is the better one by default. B passes A if its best prompt exceeds A's "
            f"default.{limit_sentence}",
            method="P(A > B): share of the pairs of a prompt of A and one of B in which A scores "
            "higher; interval: 95 %, Newcombe's over prompts, with percentiles of "
            f"{RESAMPLES:,} resamples of queries.",
            empty="Two models on one task are needed.",
            name="prompts-pairs",
            caption="Does a prompt reverse the order of two models?",
            data=_data_of(scores),
        )

    def variance_table(self) -> Table:
        """A row per model and task: the shares of query, prompt and seed in a score's variance."""
        with_queries = [scores for scores in self.scores if scores.queries]
        widest = _widest(with_queries)
        components_of_scores = [prompt_variance(scores, seed=self.seed) for scores in widest]
        # Keys of a dict are unique, and keep their order.
        names: dict[str, None] = {}
        for components in components_of_scores:
            names |= dict.fromkeys(component.name for component in components)
        rows = []
        for scores, components in zip(widest, components_of_scores, strict=True):
            if components:
                rows.append(_variance_row(scores, components, list(names)))
        return Table.of(
            rows,
            note="Shares of the variance of the score of one query with one prompt; the last holds "
            f"what is left over.{_widest_sentence(with_queries)}",
            method="Crossed random effects by the method of moments. Intervals: 95 %, by "
            "generalised pivots, which presume that no rare query has a large effect; none where "
            "one shows.",
            empty="Two prompts and scores per query are needed.",
            name="prompts-variance",
            caption="What a score varies with: queries, prompts, or both together.",
            data=_data_of(widest),
        )

    def figure(self) -> Figure | None:
        """Strips of points: the scores of all prompts, a panel per task and a row per model."""
        if not self.scores:
            return None
        widest = _widest(self.scores)
        words = [
            f"{scores.model} on {short_task(scores.task)}: {scores.values.min():.3f} to "
            f"{scores.values.max():.3f}, default {scores.default:.3f}"
            for scores in widest
        ]
        return Figure(
            "prompts",
            partial(_draw_strips, widest),
            caption="Score with each prompt (lines), their median (circle) and the score with the "
            f"model's own prompts (diamond).{_widest_sentence(self.scores)}",
            alt="; ".join(words),
            data=_data_of(widest),
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


def _widest(all_scores: Sequence[PromptScores]) -> Sequence[PromptScores]:
    """Return the scores to show: those with the largest range, if there are very many."""
    if len(all_scores) <= _MOST_ROWS:
        return all_scores
    return heapq.nlargest(_MOST_ROWS, all_scores, key=_range)


def _widest_sentence(all_scores: Sequence[PromptScores]) -> str:
    """Say how many are not shown; empty if all are."""
    if len(all_scores) <= _MOST_ROWS:
        return ""
    return f" Shown: {_MOST_ROWS:,} of {len(all_scores):,}, with the largest range over prompts."


def _data_of(all_scores: Iterable[PromptScores]) -> DataUsed:
    """Return the data of all records."""
    records: list[Result] = []
    for scores in all_scores:
        for by_seed in scores.records:
            records += by_seed
    return DataUsed.of(records)


def _is_default_best(scores: PromptScores) -> bool:
    rank, _ = place(scores)
    return rank == 1


def _pair_row(pair: PromptPair) -> dict[str, object]:
    return {
        "A": pair.first.model,
        "B": pair.second.model,
        "task": short_task(pair.first.task),
        "A − B\ndefaults": number(pair.difference, "+.3f"),
        "B passes A with": pair.reversed_by or "none",
        "P(A > B)": number(pair.probability, ".2f", interval=pair.interval),
    }


def _place_row(scores: PromptScores) -> dict[str, object]:
    rank, quantile = place(scores)
    ends = f"{scores.values.min():.3f} to {scores.values.max():.3f}"
    median = float(np.median(scores.values))
    return {
        "model": scores.model,
        "task": (short_task(scores.task), scores.metric),
        "default": number(scores.default),
        "prompts\nmedian, range": number(median, detail=ends),
        # The default is one more prompt.
        "default's rank": (f"{rank} of {len(scores.values) + 1}", f"quantile {quantile:.2f}"),
    }


def _variance_row(
    scores: PromptScores, components: Sequence[Component], names: Sequence[str]
) -> dict[str, Cell | str]:
    row: dict[str, Cell | str] = {"model": scores.model, "task": short_task(scores.task)}
    row |= dict.fromkeys(names, "–")
    for component in components:
        row[component.name] = number(component.share, ".0%", interval=component.interval)
    return row


def _draw_strips(all_scores: Sequence[PromptScores], width: float) -> MplFigure:
    """Draw a panel per task, and in it a row per model, the first at the top."""
    tasks = list(dict.fromkeys(scores.task for scores in all_scores))
    models = list(dict.fromkeys(scores.model for scores in all_scores))
    models.reverse()  # the last one is drawn on top
    height = 0.3 * len(models) + 0.9
    figure, axes, left_axes = panels(len(tasks), width, height=height, per_line=2, sharey=True)
    for axis, task in zip(axes, tasks, strict=True):
        for scores in all_scores:
            if scores.task == task:
                _draw_strip(axis, scores, models.index(scores.model))
        axis.set_ylim(-0.6, len(models) - 0.4)
        grid(axis)
    for axis in left_axes:
        axis.set_yticks(range(len(models)), [plain(name, longest=26) for name in models])
    return figure


def _draw_strip(axis: Axes, scores: PromptScores, row: int) -> None:
    axis.plot(scores.values, [row] * len(scores.values), "|", color=QUIET, markersize=11)
    axis.plot([np.median(scores.values)], [row], "o", color=QUIET, markersize=4)
    axis.plot([scores.default], [row], "D", color=GREY, markersize=5)
    axis.set_xlabel(plain(f"{scores.metric}, {short_task(scores.task)}", longest=40))
