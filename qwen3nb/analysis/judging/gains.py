"""What gain is expected of a document that nobody has graded yet.

It follows from the grades so far of documents like it: those that the same models find, at the same
best rank. Few grades are drawn towards what is known of all documents that these models find, and
of all documents of this rank. The constants gave few grades in simulations on three collections.
"""

import numpy as np

from qwen3nb.analysis.judging.pool import GradingPool
from qwen3nb.metrics.intervals import Array

_PRIOR_GRADES = 24.0  # as many grades as what is expected without any counts
_PRIOR_GAIN = 0.2  # expected before the first grade, as a share of the highest so far
_PRIOR_DECAY = 0.4  # it falls with the rank, counted from 1, to this power
_LEAST_SIZE = 0.4  # of gains, as a share of the largest: no chance becomes too small


class ExpectedGains:
    """The gain that is expected of each pair, from those graded so far."""

    def __init__(self, pool: GradingPool) -> None:
        self._ranks = pool.best_ranks
        self._finders = pool.finders
        shape = (int(self._finders.max(initial=0)) + 1, int(self._ranks.max(initial=0)) + 1)
        self._counts = np.zeros(shape)  # of grades, by finders and rank
        self._sums = np.zeros(shape)
        self._squares = np.zeros(shape)
        self._highest = 1  # grade so far

    def add(self, pair: int, grade: int, *, count: int = 1) -> None:
        """Take a grade of a pair; a count of -1 takes it back."""
        place = self._finders[pair], self._ranks[pair]
        self._highest = max(self._highest, grade)
        self._counts[place] += count
        self._sums[place] += count * grade
        self._squares[place] += count * grade**2

    def means(self) -> Array:
        """The expected gain of each pair (N,)."""
        table = self._smoothed(self._sums, _PRIOR_GAIN * self._highest)
        return table[self._finders, self._ranks]

    def squares(self) -> Array:
        """The expected squared gain of each pair (N,)."""
        table = self._smoothed(self._squares, _PRIOR_GAIN * self._highest**2)
        return table[self._finders, self._ranks]

    def sizes(self) -> Array:
        """The root of the expected squared gain of each pair (N,), none too small."""
        sizes = np.sqrt(self.squares())
        return np.maximum(sizes, _LEAST_SIZE * sizes.max(initial=0))

    def _smoothed(self, sums: Array, prior: float) -> Array:
        """Return the mean of each place, drawn towards that of its finders and of its rank."""
        decay = (1.0 + np.arange(sums.shape[1])) ** -_PRIOR_DECAY
        overall = _shrunk(sums.sum(), self._counts.sum(), prior)
        of_finders = _shrunk(sums.sum(axis=1), self._counts.sum(axis=1), overall)
        prior_of_ranks = overall * decay / decay.mean()
        of_ranks = _shrunk(sums.sum(axis=0), self._counts.sum(axis=0), prior_of_ranks)
        return _shrunk(sums, self._counts, np.outer(of_finders, of_ranks) / overall)


def _shrunk(sums: Array, counts: Array, priors: Array | float) -> Array:
    """Return means that are drawn towards priors."""
    return (sums + _PRIOR_GRADES * priors) / (counts + _PRIOR_GRADES)
