"""The paired difference of two groups of models, each of several seeds, as all pages show it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qwen3nb.analysis.comparison.differences import Pair, PairedDifference, paired_difference
from qwen3nb.analysis.stats.crossed_differences import (
    Spread,
    crossed_interval,
    crossed_p_value,
    seed_spreads,
    share_of_seeds,
)
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, system_scores
from qwen3nb.metrics.intervals import Array


@dataclass(frozen=True)
class SeedDifference:
    """A difference for new seeds and new queries, and what it is made of."""

    estimate: PairedDifference  # of the means over seeds; interval and p-value for new seeds, too
    of_queries: float  # p-value over the queries alone
    freedom: float | None  # degrees of freedom of the seeds, the smaller of two; None without
    from_seeds: float | None  # share of the squared length of the interval not from the queries


def seed_difference(
    names: Pair,
    first: Array,
    second: Array,
    matrix: ScoreMatrix,
    *,
    paired: bool = False,
    others: Sequence[Spread] = (),
    draws: int = DRAWS,
    seed: int = 0,
) -> SeedDifference:
    """Return first − second for new seeds and new queries; of two models, that of every page.

    Models of a group that score alike on every query are one model, and count once.

    Args:
        names: of the two groups.
        first: scores (S, n) of the first group's models on the queries of the matrix.
        second: the same of the second group (R, n).
        matrix: whose queries and clusters they are.
        paired: whether models at one place share what the seed does; see `seed_spreads`.
        others: what else was sampled, such as prompts.
        draws: of the permutation test over queries.
        seed: of these draws.
    """
    if paired:
        kept = _distinct_rows(np.concatenate([first, second], axis=1))
        first, second = first[kept], second[kept]
    else:
        first, second = first[_distinct_rows(first)], second[_distinct_rows(second)]
    first_means, second_means = first.mean(axis=0), second.mean(axis=0)
    clusters: dict[str, str] = {}
    if matrix.clusters:
        clusters = dict(zip(matrix.queries, matrix.clusters, strict=True))
    first_name, second_name = names
    over_queries = paired_difference(
        {
            first_name: system_scores(matrix.queries, first_means),
            second_name: system_scores(matrix.queries, second_means),
        },
        task=matrix.task,
        metric=matrix.metric,
        clusters=clusters,
        draws=draws,
        seed=seed,
    )
    seeds = seed_spreads(first.mean(axis=1), second.mean(axis=1), paired=paired)
    spreads = (*seeds, *others)
    estimate = over_queries
    units = matrix.unit_values(first_means - second_means)
    if spreads:
        p_value = max(over_queries.p_value, crossed_p_value(units, spreads))
        estimate = replace(
            over_queries,
            interval=crossed_interval(units, spreads, level=LEVEL),
            p_value=p_value,
            corrected=p_value,
        )
    return SeedDifference(
        estimate=estimate,
        of_queries=over_queries.p_value,
        freedom=min((spread.freedom for spread in seeds), default=None),
        from_seeds=share_of_seeds(units, spreads, level=LEVEL),
    )


def _distinct_rows(rows: Array) -> list[int]:
    """Return the places of the rows that equal no earlier one, in order."""
    place_of: dict[bytes, int] = {}
    for place, row in enumerate(rows):
        place_of.setdefault(row.tobytes(), place)
    return list(place_of.values())
