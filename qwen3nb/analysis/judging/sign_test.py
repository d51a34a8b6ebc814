"""Is a sum positive? A test on a sample of its terms, valid at every look.

The terms are fixed but unknown until they are drawn. They are drawn one by one, without
replacement, with chances that are stated before. After each draw there is an estimate of the whole
sum whose expected value is the sum itself: what is known, plus what is expected of the rest,
corrected by how far the drawn term is from its expectation, over its chance.

The test bets on that estimate. A gambler who starts with a capital of 1 and bets that the sum is
positive cannot expect to win while it is not. So the chance that the capital ever reaches 1 / alpha
is at most alpha (Ville's inequality), no matter when one looks or stops.

Sources: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (JRSS B,
2024); Shekhar, Xu, Lipton, Liang and Ramdas, "Risk-limiting financial audits via weighted sampling
without replacement" (UAI 2023).
"""

import numpy as np
from numpy.typing import ArrayLike

from qwen3nb.metrics.intervals import Array

_STAKES = np.linspace(0.03, 0.97, 24)  # shares of the largest bet that cannot lose everything


class PositiveTest:
    """Gamblers who each bet that a sum of theirs is positive.

    The capital of each is split evenly over several stakes, all of which are played to the end.
    """

    def __init__(self, *shape: int) -> None:
        # The logarithm of the capital of each gambler's stakes.
        self._log_capitals = np.zeros((*shape, len(_STAKES)))
        self._largest = np.zeros(shape)  # the logarithm of each gambler's largest capital so far

    def bet(self, estimates: ArrayLike, *, least: ArrayLike) -> None:
        """Play one draw.

        Args:
            estimates: of each sum, after the draw.
            least: what each estimate is at least. It must follow from what was known before. One
                that is lower counts as this.
        """
        least = np.asarray(least, dtype=float)
        can_lose = least < 0  # otherwise the sum is not negative, whatever is drawn
        returns = np.where(can_lose, estimates, 0.0) / np.where(can_lose, -least, 1.0)
        returns = np.maximum(returns, -1.0)
        self._log_capitals += np.log1p(_STAKES * returns[..., np.newaxis])
        peaks = self._log_capitals.max(axis=-1)
        shares = np.exp(self._log_capitals - peaks[..., np.newaxis]).mean(axis=-1)
        self._largest = np.maximum(self._largest, peaks + np.log(shares))

    @property
    def p_values(self) -> Array:
        """The p-value of "the sum is 0 or negative" for each sum, valid at every look."""
        return np.exp(-self._largest)
