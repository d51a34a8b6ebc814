"""Populations of scores whose true mean or difference is known.

Pairs are the scores of two systems, families those of eight. They are like those of tasks, or drawn
from a matrix of recorded scores.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from typing import Protocol, TypeAlias

import numpy as np

from qwen3nb.metrics.intervals import Array

Generator: TypeAlias = np.random.Generator
Shape: TypeAlias = tuple[int, ...]
# Scores of two systems, and their true difference.
Pair: TypeAlias = "tuple[Array, Array, Array | float]"
DrawScores: TypeAlias = Callable[[Generator, Shape], Array]


class DrawPair(Protocol):
    """Draws the scores of two systems."""

    def __call__(self, generator: Generator, shape: Shape, *, shift: bool) -> Pair:
        """Draw scores in the ``shape`` (queries, simulations), with a difference if ``shift``."""


SYSTEMS = 8  # of a family
_TIED = 0.4  # share of queries on which two systems have the same score
# Gains of no hit, and of ranks 10 to 1.
_GAINS = np.array([0.0, *(1 / np.log2(np.arange(11, 1, -1)))])


def ratings(generator: Generator, n: int) -> tuple[Array, Array]:
    """Similarities (n,), with noise that depends on the rating, and ratings in halves."""
    rating = generator.beta(1.2, 1, n)
    noise = generator.normal(0, 0.12, n) * (1.3 - rating)
    similarity = 0.4 + 0.5 * rating**1.5 + noise
    return similarity, np.round(10 * rating) / 2


def _choices(generator: Generator, shape: Shape, chances: Mapping[float, float]) -> Array:
    """Draw values with their chances, which add up to 1."""
    return _chosen(chances, generator.random(shape))


def _chosen(chances: Mapping[float, float], uniform: Array) -> Array:
    """Return the values that uniform draws from 0 to 1 stand for; of the rest, the last."""
    values = np.array(list(chances))
    ends = np.cumsum(list(chances.values()))
    return np.asarray(values[np.searchsorted(ends[:-1], uniform, side="right")])


def _mixture(
    generator: Generator,
    shape: Shape,
    chances: Mapping[float, float],
    others: Callable[[Shape], Array],
) -> Array:
    """Draw values with their chances, and the remaining ones from a distribution."""
    uniform = generator.random(shape)  # below the sum of chances, it decides on a value
    sum_of_chances = np.cumsum(list(chances.values()))[-1]
    return np.where(uniform < sum_of_chances, _chosen(chances, uniform), others(shape))


def _rank_chances(none: float) -> dict[float, float]:
    """Chances of the gains of no hit, in proportion to ``none``, and of ranks 10 to 1."""
    weights = np.append(none, np.geomspace(0.05, 0.3, 10))
    return dict(zip(_GAINS.tolist(), weights / weights.sum(), strict=True))


def _search(generator: Generator, shape: Shape, shift: bool) -> Pair:
    """Scores like nDCG: the rank of one relevant document, many queries tied."""
    # The better system has fewer queries without a hit.
    chances_of_better = _rank_chances(0.3 if shift else 0.5)
    chances = _rank_chances(0.5)
    a = _choices(generator, shape, chances_of_better)
    b = _choices(generator, shape, chances)
    is_tied = generator.random(shape) < _TIED
    # The true difference: of expected gains, where the two do not tie.
    gain_of_better = sum(gain * (chances_of_better[gain] - chances[gain]) for gain in chances)
    return np.where(is_tied, b, a), b, (1 - _TIED) * gain_of_better


def _with_differences(values: Array, truth: float) -> Pair:
    """Scores with these differences, exactly; the lower of two is 0."""
    return np.maximum(values, 0.0), np.maximum(-values, 0.0), truth


def _normal(generator: Generator, shape: Shape, shift: bool) -> Pair:
    truth = 0.1 if shift else 0.0
    return _with_differences(generator.normal(truth, 0.3, shape), truth)


def _rare_wins(generator: Generator, shape: Shape, shift: bool) -> Pair:
    """Like nDCG: one of eight queries is won, by a third on average, and none is lost."""
    sizes = np.where(generator.random(shape) < 1 / 8, generator.beta(1, 2, shape), 0.0)
    if shift:
        return _with_differences(sizes, 1 / 24)
    signs = np.where(generator.random(shape) < 0.5, 1.0, -1.0)
    return _with_differences(signs * sizes, 0.0)


def _accuracy(generator: Generator, shape: Shape, shift: bool) -> Pair:
    """15 % of the queries are won and 5 % lost, by 1 each."""
    win_share = 0.15 if shift else 0.1
    values = _choices(generator, shape, {1.0: win_share, -1.0: 0.2 - win_share, 0.0: 0.8})
    return _with_differences(values, 2 * win_share - 0.2)


def _large_wins(generator: Generator, shape: Shape, shift: bool) -> Pair:
    """Without a difference, 5 % of the queries are won by .95 and the others lost by .05.

    With one, all of these differences are .05 larger.
    """
    truth = 0.05 if shift else 0.0
    return _with_differences(_choices(generator, shape, {0.95: 0.05, -0.05: 0.95}) + truth, truth)


def _noisy_wins(generator: Generator, shape: Shape, shift: bool) -> Pair:
    """Large wins, with noise in every difference."""
    truth = 0.05 if shift else 0.0
    wins = _choices(generator, shape, {0.95: 0.05, -0.05: 0.95})
    return _with_differences(wins + truth + generator.normal(0, 0.01, shape), truth)


PAIRS: dict[str, DrawPair] = {
    "search": _search,
    "normal": _normal,
    "rare wins": _rare_wins,
    "accuracy": _accuracy,
    "large wins": _large_wins,
    "noisy wins": _noisy_wins,
}


def fitted(scores: Array, generator: Generator, shape: Shape, shift: bool) -> Pair:
    """Draw from the population of a score matrix (S systems, N queries): a bootstrap of queries.

    Each simulation compares two systems at random, the better one first, so that the true
    difference is that of their means. Under the null hypothesis, each query's two scores are
    exchanged with probability 1/2, which makes the differences symmetric about 0 and keeps
    their sizes and ties, and how hard the queries are.
    """
    _, simulations = shape
    means = scores.mean(axis=1)
    best_first = np.argsort(-means)
    pairs = np.array(list(combinations(best_first, 2)))  # (pairs, 2), the better one first
    drawn_pairs = pairs[generator.integers(len(pairs), size=simulations)]
    better, worse = drawn_pairs.T
    drawn_queries = generator.integers(scores.shape[1], size=shape)  # (n, simulations)
    of_better, of_worse = scores[better, drawn_queries], scores[worse, drawn_queries]
    if shift:
        return of_better, of_worse, means[better] - means[worse]
    # Exchanged at random, the systems do not differ, and differences are symmetric about 0.
    is_exchanged = generator.random(shape) < 0.5
    a = np.where(is_exchanged, of_worse, of_better)
    b = np.where(is_exchanged, of_better, of_worse)
    return a, b, 0.0


def _mrr(generator: Generator, shape: Shape) -> Array:
    """Reciprocal ranks; nearly half of the queries are without a hit."""
    rank = generator.geometric(0.25, shape)
    is_without_hit = (rank > 10) | (generator.random(shape) < 0.4)
    return np.where(is_without_hit, 0, 1 / rank)


def _ndcg(generator: Generator, shape: Shape) -> Array:
    chances = {0.0: 0.25, 1.0: 0.25}
    return _mixture(generator, shape, chances, lambda shape: generator.beta(1.2, 1.2, shape))


def _hard_ndcg(generator: Generator, shape: Shape) -> Array:
    chances = {0.0: 0.75, 1.0: 0.05}
    return _mixture(generator, shape, chances, lambda shape: generator.beta(1, 2, shape))


def _nearly_equal(generator: Generator, shape: Shape) -> Array:
    return _mixture(generator, shape, {1.0: 0.05}, lambda shape: generator.normal(0.5, 0.01, shape))


def _average_precision(generator: Generator, shape: Shape) -> Array:
    return _mixture(generator, shape, {0.0: 0.1}, lambda shape: generator.beta(0.6, 1.5, shape))


SCORES: dict[str, DrawScores] = {
    "nDCG@10": _ndcg,
    "hard nDCG@10": _hard_ndcg,
    "MRR@10": _mrr,
    "accuracy .9": lambda generator, shape: _choices(generator, shape, {1.0: 0.9, 0.0: 0.1}),
    "tied": lambda generator, shape: _choices(generator, shape, {1.0: 0.05, 0.5: 0.95}),
    "nearly equal": _nearly_equal,
    "two kinds": lambda generator, shape: _choices(generator, shape, {0.1: 0.1, 0.9: 0.9}),
    "skewed": lambda generator, shape: generator.beta(0.5, 5, shape),
    "AP": _average_precision,
    "V-measure": lambda generator, shape: np.clip(generator.normal(0.45, 0.02, shape), 0, 1),
}


def _groups(generator: Generator, shape: Shape, *, size: int, noise: float) -> Array:
    """Groups of systems that differ by noise of this standard deviation."""
    queries, systems = shape
    groups = generator.normal(size=(queries, systems // size)).repeat(size, axis=1)
    return groups + generator.normal(0, noise, shape)


def _with_ties(generator: Generator, scores: Array, share: float) -> Array:
    """Give all systems the score of the first on a share of the queries."""
    return np.where(generator.random((len(scores), 1)) < share, scores[:, :1], scores)


def exchanged(matrix: Array, generator: Generator, shape: Shape) -> Array:
    """Each system answers each query as one of a score matrix (S, N), drawn at random."""
    queries, _ = shape
    systems = generator.integers(len(matrix), size=shape)
    rows = generator.integers(matrix.shape[1], size=(queries, 1))
    return np.asarray(matrix[systems, rows])


def _family_search(generator: Generator, shape: Shape) -> Array:
    return _with_ties(generator, _choices(generator, shape, _rank_chances(0.5)), _TIED)


def _family_accuracy(generator: Generator, shape: Shape) -> Array:
    return _with_ties(generator, np.rint(generator.random(shape)), 0.6)


def _family_rare_wins(generator: Generator, shape: Shape) -> Array:
    sizes = np.where(generator.random(shape) < 1 / 16, generator.beta(1, 2, shape), 0.0)
    return sizes * generator.choice((-1, 1), size=shape)


# Scores (rows, SYSTEMS) of systems without a true difference, whose differences are symmetric about
# 0, per pair; jointly, but for search and those fitted to records.
FAMILIES: dict[str, DrawScores] = {
    "search": _family_search,
    "normal": lambda generator, shape: generator.normal(size=shape),
    "rare wins": _family_rare_wins,
    "accuracy": _family_accuracy,
    # between two groups, alike
    "correlated": partial(_groups, size=SYSTEMS // 2, noise=0.3),
    # four pairs of systems that hardly differ
    "twins": partial(_groups, size=2, noise=0.05),
}
