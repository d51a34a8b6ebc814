"""Differences between trained configurations, tested.

Two configurations are compared on one data set by the runs of the seeds that both have, so a seed
is set against the same seed. With scores per query, each query's difference is averaged over the
seeds, and the signs of these averages are flipped (`comparison.differences`): the test is over
queries, for these trainings. Without them only the seeds are left, and the test is the paired
t-test of their differences. All p-values of one report are one family.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qwen3nb.analysis.comparison.differences import paired_differences
from qwen3nb.analysis.inventory.score import Score
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import t_test
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, join
from qwen3nb.metrics.intervals import Interval, student_interval

QUERIES = "permutation test over queries"
SEEDS = "t-test over seeds"
_BySeed = dict[int | None, Score]


@dataclass(frozen=True)
class ConfigurationDifference:
    """The mean difference first − second of two configurations on one data set."""

    kind: str  # ``reranking`` or ``embedding``
    task: str
    metric: str
    first: str  # name of a configuration
    second: str  # name of the other
    seeds: tuple[int | None, ...]  # those that both have
    by_seed: tuple[float, ...]  # difference per seed
    difference: float  # their mean
    # over queries if there are scores per query, else over seeds; or None
    interval: Interval | None
    p_value: float | None  # two-sided, uncorrected; None if it cannot be computed
    corrected: float | None  # p-value corrected over its family
    family: int  # number of p-values in that family
    n: int  # number of queries that all runs answered; 0 without scores per query
    unpaired: int  # number of queries that only some of the runs answered
    test: str  # name of the test
    undefined: str = ""  # why there is no p-value, or empty


def configuration_differences(
    scores: Iterable[Score], *, draws: int = DRAWS, seed: int
) -> list[ConfigurationDifference]:
    """Compare all pairs of configurations on every data set that both were evaluated on."""
    given = list(_compared(_by_configuration(scores), draws=draws, seed=seed))
    tested = [each.p_value for each in given if each.p_value is not None]
    values = iter(adjust(tested))
    return [
        each if each.p_value is None else replace(each, corrected=next(values), family=len(tested))
        for each in given
    ]


def _by_configuration(scores: Iterable[Score]) -> dict[tuple[str, str, str], dict[str, _BySeed]]:
    """Newest score per data set, configuration and seed."""
    table: dict[tuple[str, str, str], dict[str, _BySeed]] = {}
    for score in sorted(scores, key=lambda each: each.finished):
        if score.main and score.value is not None:
            systems = table.setdefault((score.kind, score.task, score.metric), {})
            systems.setdefault(score.system, {})[score.seed] = score
    return table


def _compared(
    table: dict[tuple[str, str, str], dict[str, _BySeed]], *, draws: int, seed: int
) -> Iterator[ConfigurationDifference]:
    for key, systems in sorted(table.items()):
        for first, second in itertools.combinations(sorted(systems), 2):
            ours, theirs = systems[first], systems[second]
            seeds = sorted(ours.keys() & theirs.keys(), key=lambda each: (each is None, each or 0))
            pairs = [(ours[each], theirs[each]) for each in seeds]
            if not pairs:
                continue
            shared = _no_test(key, pairs)
            if all(score.per_query for pair in pairs for score in pair):
                yield _over_queries(shared, pairs, draws=draws, seed=seed)
            else:
                yield _over_seeds(shared)


def _no_test(
    key: tuple[str, str, str], pairs: Sequence[tuple[Score, Score]]
) -> ConfigurationDifference:
    """The differences by seed, without a test."""
    by_seed = tuple((a.value or 0.0) - (b.value or 0.0) for a, b in pairs)
    (first, second), mean = pairs[0], float(np.mean(by_seed))
    seeds = tuple(a.seed for a, _ in pairs)
    names = (*key, first.system, second.system)
    return ConfigurationDifference(*names, seeds, by_seed, mean, None, None, None, 0, 0, 0, SEEDS)


def _over_queries(
    shared: ConfigurationDifference,
    pairs: Sequence[tuple[Score, Score]],
    *,
    draws: int,
    seed: int,
) -> ConfigurationDifference:
    """The difference with a permutation test of the queries' means over seeds."""
    columns = {f"{score.system} {score.seed}": score.per_query for pair in pairs for score in pair}
    common = set.intersection(*(set(each) for each in columns.values()))
    unpaired = len(set().union(*columns.values()) - common)
    if not common:
        reason = "the runs have no query in common"
        return replace(shared, test=QUERIES, unpaired=unpaired, undefined=reason)
    joined = join(columns, task=shared.task, metric=shared.metric)
    rows = joined.scores.reshape(len(pairs), 2, -1)
    means = ScoreMatrix(
        shared.task,
        shared.metric,
        (shared.first, shared.second),
        joined.queries,
        rows.mean(axis=0),
        {},
    )
    (tested,) = paired_differences(means, draws=draws, seed=seed)
    return replace(
        shared,
        by_seed=tuple(float(each) for each in (rows[:, 0] - rows[:, 1]).mean(axis=1)),
        difference=tested.difference,
        interval=tested.interval,
        p_value=tested.p_value,
        n=tested.n,
        unpaired=unpaired,
        test=QUERIES,
    )


def _over_seeds(shared: ConfigurationDifference) -> ConfigurationDifference:
    """The difference with a paired t-test of the seeds."""
    values = np.array(shared.by_seed)
    if len(values) == 1:
        return replace(shared, undefined="one seed, and no scores per query")
    tested = t_test(values, np.zeros(len(values)))
    return replace(
        shared,
        interval=student_interval(values, level=LEVEL),
        p_value=tested.p_value,
        undefined=tested.undefined,
    )
