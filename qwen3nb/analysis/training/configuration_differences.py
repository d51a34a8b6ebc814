"""Differences between every two trained configurations, on the seeds that both have.

With scores per query, each query's difference is averaged over the seeds. With two seeds or more,
the difference is tested for new seeds and new queries (`crossed_differences`); with one, for new
queries of these two models. Without scores per query, it is a paired t-test over seeds.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from qwen3nb.analysis.comparison.differences import HOLM, TEST
from qwen3nb.analysis.comparison.seed_differences import seed_difference
from qwen3nb.analysis.inventory.scores import Score, from_oldest
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import t_test
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.analysis.training.interference import clusters_of
from qwen3nb.metrics.intervals import Interval, student_interval
from qwen3nb.records.record import is_substitute

BySystem: TypeAlias = dict[str, dict[int | None, Score]]  # of configurations, then by seed
QUERIES = f"{TEST} over queries"
BOTH = "interval over seeds and queries"
SEEDS = "t-test over seeds"


@dataclass(frozen=True)
class ConfigurationDifference:
    """The mean difference first − second of two configurations on one data set."""

    kind: str  # ``reranking`` or ``embedding``
    task: str
    metric: str
    first: str  # name of a configuration
    second: str  # name of the other
    seeds: tuple[int | None, ...]  # seeds that both have
    by_seed: tuple[float, ...]  # difference per seed
    difference: float  # mean over seeds
    # over queries if there are scores per query, and over seeds if there are several; or None
    interval: Interval | None = None
    p_value: float | None = None  # two-sided, uncorrected; None if it cannot be computed
    corrected: float | None = None  # p-value corrected over its family
    family: int = 0  # number of p-values in that family
    n: int = 0  # number of queries that all runs answered; 0 without scores per query
    unpaired: int = 0  # number of queries that only some of the runs answered
    units: int = 0  # number of clusters of queries; 0 if queries were sampled one by one
    test: str = SEEDS  # name of the test
    undefined: str = ""  # why there is no p-value, or empty
    revision: str = ""  # of the data set; of a substitute, if any run used one


class _SeedPair(NamedTuple):
    """The scores of two configurations of one seed."""

    first: Score
    second: Score

    @property
    def difference(self) -> float:
        return (self.first.value or 0.0) - (self.second.value or 0.0)


def configuration_differences(
    scores: Iterable[Score], *, resamples: int = DRAWS, seed: int
) -> list[ConfigurationDifference]:
    """Compare all pairs of configurations on every data set that both were evaluated on."""
    differences = []
    for pairs in _pairs_by_data_set(scores):
        differences.append(_with_test(_without_test(pairs), pairs, resamples, seed))
    # Differences without a test are no part of the family.
    p_values = [comparison.p_value for comparison in differences if comparison.p_value is not None]
    corrected_p_values = iter(adjust(p_values, how=HOLM))
    corrected_differences = []
    for difference in differences:
        if difference.p_value is not None:
            p_value = next(corrected_p_values)
            difference = replace(difference, corrected=p_value, family=len(p_values))
        corrected_differences.append(difference)
    return corrected_differences


def _pairs_by_data_set(scores: Iterable[Score]) -> Iterator[list[_SeedPair]]:
    """Yield the pairs of two configurations on a data set, by seed; the newest scores count."""
    for scores_by_system in _newest_by_data_set(scores):
        for first_system, second_system in itertools.combinations(sorted(scores_by_system), 2):
            of_first, of_second = scores_by_system[first_system], scores_by_system[second_system]
            shared_seeds = sorted(of_first.keys() & of_second.keys(), key=_known_first)
            if shared_seeds:
                yield [_SeedPair(of_first[seed], of_second[seed]) for seed in shared_seeds]


def _newest_by_data_set(scores: Iterable[Score]) -> list[BySystem]:
    """Return, of each data set and metric, the newest score by configuration and seed."""
    by_data_set: dict[tuple[str, str, str], BySystem] = {}
    for score in from_oldest(scores):
        if score.main and score.value is not None:
            data_set = (score.kind, score.task, score.metric)
            by_system = by_data_set.setdefault(data_set, {})
            by_seed = by_system.setdefault(score.system, {})
            by_seed[score.seed] = score  # a later one replaces it
    return [by_data_set[data_set] for data_set in sorted(by_data_set)]


def _known_first(seed: int | None) -> tuple[bool, int]:
    """Return the key to sort seeds by; an unknown one comes last."""
    return seed is None, seed or 0


def _without_test(pairs: Sequence[_SeedPair]) -> ConfigurationDifference:
    first_score, second_score = pairs[0]  # all pairs are of the same two configurations
    revisions = [score.revision for pair in pairs for score in pair]
    by_seed = tuple(pair.difference for pair in pairs)
    return ConfigurationDifference(
        kind=first_score.kind,
        task=first_score.task,
        metric=first_score.metric,
        first=first_score.system,
        second=second_score.system,
        seeds=tuple(pair.first.seed for pair in pairs),
        by_seed=by_seed,
        difference=float(np.mean(by_seed)),
        revision=max(revisions, key=is_substitute),  # of a substitute, if any run used one
    )


def _with_test(
    untested: ConfigurationDifference, pairs: Sequence[_SeedPair], resamples: int, seed: int
) -> ConfigurationDifference:
    """Add the p-value: over queries and seeds, over queries, or a t-test over seeds."""
    scores = [score for pair in pairs for score in pair]
    columns = {f"{score.system} {score.seed}": score.per_query for score in scores}
    if not all(columns.values()):
        return _with_test_over_seeds(untested)
    common_queries = set.intersection(*map(set, columns.values()))
    unpaired = len(set().union(*columns.values()) - common_queries)
    untested = replace(untested, test=QUERIES, unpaired=unpaired)
    if not common_queries:
        return replace(untested, undefined="the runs have no query in common")
    matrix = join(columns, task=untested.task, metric=untested.metric, clusters=clusters_of(scores))
    # The runs of the two configurations are in turn, seed by seed.
    of_first, of_second = matrix.scores[0::2], matrix.scores[1::2]  # (seeds, queries)
    tested = seed_difference(
        (untested.first, untested.second),
        of_first,
        of_second,
        matrix,
        draws=resamples,
        seed=seed,
    )
    if tested.freedom is not None:  # two seeds or more
        untested = replace(untested, test=BOTH)
    by_seed = (of_first - of_second).mean(axis=1)
    return replace(
        untested,
        by_seed=tuple(by_seed.tolist()),
        difference=tested.estimate.difference,
        interval=tested.estimate.interval,
        p_value=tested.estimate.p_value,
        n=tested.estimate.n,
        units=tested.estimate.units,
    )


def _with_test_over_seeds(untested: ConfigurationDifference) -> ConfigurationDifference:
    differences = np.array(untested.by_seed)
    if len(differences) == 1:
        return replace(untested, undefined="one seed, and no scores per query")
    test = t_test(differences, np.zeros(len(differences)))
    return replace(
        untested,
        interval=student_interval(differences, level=LEVEL),
        p_value=test.p_value,
        undefined=test.undefined,
    )
