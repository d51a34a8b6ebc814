"""What a choice of prompts changes: a model's place among its own scores, the order of two models.

``P(A > B)`` is the probability that A scores higher than B if each gets a prompt at random: the
share of all pairs of a prompt of A and a prompt of B in which A's mean score is higher, ties
counting half (Bouthillier et al. 2021). Its interval is a bootstrap's, of percentiles: each
resample draws queries, the same for both models, and the prompts of each, with replacement.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.stats.resampling import (
    LEVEL,
    draw_seed,
    percentile_interval,
    resampled_means,
)
from qwen3nb.analysis.stats.variance import Component, variance_components
from qwen3nb.evaluation.studies.prompts import PromptScores
from qwen3nb.metrics.intervals import Array, Interval

RESAMPLES = 2000


@dataclass(frozen=True)
class PromptPlace:
    """Where a model's own prompts stand among the others."""

    rank: int  # 1 for the best
    of: int  # number of prompts, its own among them
    quantile: float  # share of the others with a lower score, ties counting half


@dataclass(frozen=True)
class PromptPair:
    """Two models on one task, the first of which has the higher score with its own prompts."""

    first: str
    second: str
    task: str
    difference: float  # with their own prompts
    reversed_by: str  # prompt with which the second exceeds the first's own; empty if there is none
    probability: float  # P(first > second)
    interval: Interval | None  # None if the metric is not a mean over queries


def place(scores: PromptScores) -> PromptPlace:
    """Return the place of a model's own prompts among those it was evaluated with."""
    higher, lower = (int(np.sum(each)) for each in _sides(scores.default, scores.values))
    ties = len(scores.values) - higher - lower
    quantile = (lower + ties / 2) / len(scores.values)
    return PromptPlace(higher + 1, len(scores.values) + 1, quantile)


def _sides(value: float, others: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which of the others are higher, and which lower, up to rounding."""
    return others > value + 1e-12, others < value - 1e-12


def prompt_pairs(every: Sequence[PromptScores], *, seed: int = 0) -> list[PromptPair]:
    """Compare every two models on each task; with equal scores, the first by name is the first."""
    pairs = []
    for a, b in itertools.combinations(every, 2):
        if (a.task, a.metric) != (b.task, b.metric):
            continue
        first, second = (b, a) if b.default > a.default else (a, b)
        best = int(np.argmax(second.values))
        reverses = bool(_sides(first.default, second.values)[0][best])
        probability, interval = superiority(first, second, seed=seed)
        pairs.append(
            PromptPair(
                first.model,
                second.model,
                first.task,
                first.default - second.default,
                second.prompts[best].name if reverses else "",
                probability,
                interval,
            )
        )
    return pairs


def superiority(
    first: PromptScores, second: PromptScores, *, seed: int = 0
) -> tuple[float, Interval | None]:
    """Return P(first > second) over prompts, and its interval over prompts and queries.

    Means are over the queries that both answered, and over seeds. Without scores per query, there
    is no interval.
    """
    shared = sorted({*first.queries} & {*second.queries})
    if not shared:
        return float(_share(first.values[None], second.values[None])[0]), None
    columns = []
    for each in (first, second):
        row = {query: index for index, query in enumerate(each.queries)}
        columns.append(each.scores.mean(axis=2)[[row[query] for query in shared]])
    drawn = draw_seed(seed, shared)
    means, resampled = resampled_means(
        np.concatenate(columns, axis=1), n_resamples=RESAMPLES, seed=drawn
    )
    count = columns[0].shape[1]
    generator = np.random.default_rng((*drawn, 1))
    sides = []
    for side in (resampled[:, :count], resampled[:, count:]):
        chosen = generator.integers(0, side.shape[1], side.shape)
        sides.append(np.take_along_axis(side, chosen, axis=1))
    interval = percentile_interval(_share(*sides), level=LEVEL)
    return float(_share(means[None, :count], means[None, count:])[0]), interval


def _share(first: Array, second: Array) -> Array:
    """Share of pairs of columns in which the first is higher: (R, P), (R, Q) to (R,)."""
    difference = first[:, :, None] - second[:, None, :]
    higher, lower = _sides(0.0, difference)
    share: Array = 0.5 + (higher.mean(axis=(1, 2)) - lower.mean(axis=(1, 2))) / 2
    return share


def prompt_variance(scores: PromptScores, *, seed: int = 0) -> list[Component]:
    """Split the variance of a score of one query: query, prompt, seed if several, and both.

    Empty for fewer than two prompts, and for a metric that is not a mean over two queries or more.
    """
    values, factors = scores.scores, ["query", "prompt", "seed"]
    if values.shape[2] == 1:
        values, factors = values[:, :, 0], factors[:2]
    return variance_components(values, factors, seed=seed) if min(values.shape) > 1 else []
