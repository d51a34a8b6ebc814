"""How much a choice on the queries that report it flatters, and what halves change.

Worlds of models whose true scores are known: queries differ in hardness, models in quality, and
each model's score of a query in luck. In each, one model is chosen and reported. Printed is how
often the 95 % interval of the reported score covers the chosen model's true score:

    same      chosen and reported on all queries
    halves    chosen on one half, reported on the other, as `qwen3nb choose` does

    python -m benchmarks.choosing --runs 1000
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from benchmarks.options import command
from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, join
from qwen3nb.analysis.training.choosing import choose
from qwen3nb.metrics.intervals import mean_interval

WORLDS = ((5, 50), (20, 50), (50, 50), (20, 200), (50, 200), (50, 1000))  # models, queries
_LUCK = 0.25  # standard deviation of a model's score of a query, around the query's hardness
_SPREAD = 0.01  # standard deviation of the models' qualities, as of checkpoints of one training


@dataclass(frozen=True)
class Coverage:
    """What intervals of a chosen model covered, in one kind of world."""

    models: int
    queries: int
    same: float  # share of intervals that cover, chosen and reported on all queries
    halves: float  # the same for halves
    bias_same: float  # mean of the reported less the true score
    bias_halves: float
    loss_of_halves: float  # by how much the true score of the chosen model is lower with halves


def world(generator: np.random.Generator, models: int, queries: int) -> tuple[ScoreMatrix, list]:
    """Draw scores from 0 to 1, and the true score of each model."""
    qualities = generator.normal(0, _SPREAD, models)

    def scores(count: int) -> np.ndarray:
        hardness = generator.beta(2, 2, count)
        luck = generator.normal(0, _LUCK, (models, count))
        return (hardness + qualities[:, None] + luck).clip(0, 1)

    values = scores(queries)
    truth = scores(20_000).mean(axis=1)
    columns = {}
    for row in range(models):
        by_query = {f"q{place:04}": float(value) for place, value in enumerate(values[row])}
        columns[f"m{row:02}"] = by_query
    return join(columns, task="world", metric="ndcg@10"), truth.tolist()


def coverage(models: int, queries: int, *, runs: int) -> Coverage:
    """Choose in many worlds, and count the intervals that cover the truth."""
    same, halves, bias_same, bias_halves, losses = [], [], [], [], []
    for seed in tqdm(range(runs), desc=f"{models} models, {queries} queries", unit="run"):
        data, truth = world(np.random.default_rng([seed, models, queries]), models, queries)
        means = data.scores.mean(axis=1)
        best = int(means.argmax())
        _, interval = mean_interval(data.scores[best], level=LEVEL)
        low, high = interval or (0.0, 1.0)
        same.append(low <= truth[best] <= high)
        bias_same.append(means[best] - truth[best])
        choice = choose([data], seed=seed, n_resamples=1, splits=1)
        chosen = data.systems.index(choice.chosen.name)
        low, high = choice.interval
        halves.append(low <= truth[chosen] <= high)
        bias_halves.append(choice.chosen.reporting - truth[chosen])
        losses.append(truth[best] - truth[chosen])
    return Coverage(
        models,
        queries,
        same=float(np.mean(same)),
        halves=float(np.mean(halves)),
        bias_same=float(np.mean(bias_same)),
        bias_halves=float(np.mean(bias_halves)),
        loss_of_halves=float(np.mean(losses)),
    )


def bench(*, runs: int = 1000) -> list[Coverage]:
    """Measure how often intervals of a chosen model cover its true score."""
    return [coverage(models, queries, runs=runs) for models, queries in WORLDS]


def shown(rows: list[Coverage]) -> str:
    """Return a line per kind of world."""
    lines = ["models  queries  covers: same  halves  bias: same   halves  given up by halves"]
    for row in rows:
        lines.append(
            f"{row.models:6d}  {row.queries:7d}  {row.same:12.3f}  {row.halves:6.3f}  "
            f"{row.bias_same:+10.4f}  {row.bias_halves:+7.4f}  {row.loss_of_halves:+19.4f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    command(bench, shown)
