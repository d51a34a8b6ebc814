"""How alike two rankings are: the share of documents that both have, and rank-biased overlap.

Rankings are positions of documents (Q, K), best first; -1 past the last.

Shapes: Q queries, K ranks.
"""

import numpy as np

from qwen3nb.models.search.exact import Doubles, Hits, Ids

_DECIMALS = 6  # of scores that count
PERSISTENCE = 0.9  # chance that a reader goes on to the next document


def steady_ranking(hits: Hits) -> Ids:
    """Return documents (Q, K), those first whose scores differ by more than rounding.

    Documents of one score, to six decimals, are in the order of the corpus. Copies so rank alike
    by any model, although their vectors differ in the last digit.
    """
    rounded = np.round(hits.scores.astype(np.float64), _DECIMALS)
    order = np.lexsort((hits.ids, -rounded), axis=1)
    ranking: Ids = np.take_along_axis(hits.ids, order, axis=1)
    return ranking


def shared_documents(first: Ids, second: Ids, depth: int) -> Ids:
    """Return how many documents are among the first d of both rankings, for d = 1 … depth.

    Args:
        first: positions of documents (Q, K).
        second: the same of another ranking (Q, M).
        depth: the largest d.

    Returns:
        counts (Q, depth).
    """
    counts = np.zeros((len(first), depth), dtype=np.int64)
    for row, (one, other) in enumerate(zip(first, second, strict=True)):
        one_found = one[one >= 0][:depth]
        other_found = other[other >= 0][:depth]
        _, one_ranks, other_ranks = np.intersect1d(
            one_found, other_found, assume_unique=True, return_indices=True
        )
        # A document is in both from the later of its two ranks on.
        later_ranks = np.maximum(one_ranks, other_ranks)
        counts[row] = np.cumsum(np.bincount(later_ranks, minlength=depth))
    return counts


def overlap_at(first: Ids, second: Ids, k: int) -> Doubles:
    """Return the share of the first k documents that both rankings have, per query (Q,).

    If both rankings are shorter than k, the longer one is the divisor. Two empty ones agree.

    >>> overlap_at(np.array([[4, 2, 7]]), np.array([[2, 9, 4]]), 2)
    array([0.5])

    Raises:
        ValueError: ``k`` is below 1.
    """
    if k < 1:
        raise ValueError(f"expected k of at least 1; got {k}")
    shared = shared_documents(first, second, k)[:, -1]
    longest = np.maximum(_lengths(first), _lengths(second))
    divisors = np.minimum(k, longest)
    is_empty = np.equal(divisors, 0)
    return np.where(is_empty, 1.0, shared / np.maximum(divisors, 1))


def rank_biased_overlap(first: Ids, second: Ids, *, p: float = PERSISTENCE) -> Doubles:
    r"""Return the rank-biased overlap of two rankings, extrapolated, per query (Q,).

    With X(d) documents among the first d of both, a longer ranking of length l and a shorter one
    of length s::

        RBO = (1 - p) / p * (sum over d = 1 … l     of X(d) / d * p^d
                           + sum over d = s+1 … l   of X(s) (d - s) / (s d) * p^d)
              + ((X(l) - X(s)) / l + X(s) / s) * p^l

    It is 1 for equal rankings and 0 for those without a shared document. The first ten ranks have
    86 % of the weight at p = 0.9. Two empty rankings agree; an empty one agrees with no other.

    Source: Webber, Moffat and Zobel, "A similarity measure for indefinite rankings" (ACM TOIS
    28(4), 2010), equation 32.

    >>> rank_biased_overlap(np.array([[1, 2, 3]]), np.array([[1, 2, 3]])).round(3)
    array([1.])

    Raises:
        ValueError: ``p`` is not between 0 and 1.
    """
    if not 0 < p < 1:
        raise ValueError(f"expected p between 0 and 1; got {p}")
    depth = max(first.shape[1], second.shape[1], 1)
    shared = shared_documents(first, second, depth)
    first_lengths, second_lengths = _lengths(first), _lengths(second)
    overlaps = np.empty(len(first))
    for row, counts in enumerate(shared):
        lengths = sorted((int(first_lengths[row]), int(second_lengths[row])))
        overlaps[row] = _extrapolated(counts, shorter=lengths[0], longer=lengths[1], p=p)
    return overlaps


def _extrapolated(counts: Ids, *, shorter: int, longer: int, p: float) -> float:
    """Return the overlap of one query from its counts of shared documents (depth,)."""
    if longer == 0:
        return 1.0
    if shorter == 0:
        return 0.0
    depths = np.arange(1, longer + 1)
    weights = p**depths
    shared = counts[:longer]
    shared_by_shorter = int(counts[shorter - 1])
    agreement = float((shared / depths * weights).sum())
    beyond = depths[shorter:]  # the shorter ranking is thought to go on as it began
    agreement += float(
        (shared_by_shorter * (beyond - shorter) / (shorter * beyond) * weights[shorter:]).sum()
    )
    last_agreement = (shared[-1] - shared_by_shorter) / longer + shared_by_shorter / shorter
    return (1 - p) / p * agreement + float(last_agreement) * p**longer


def _lengths(ranking: Ids) -> Ids:
    """Return the number of documents of each ranking (Q,)."""
    lengths: Ids = (ranking >= 0).sum(axis=1)
    return lengths
