"""Is a sum positive? A test on a sample of its terms, valid at every look.

The terms are fixed but unknown until they are drawn. They are drawn one by one, without
replacement, with chances that are stated before. After each draw there is an estimate of the whole
sum whose expected value is the sum itself: what is known, plus what is expected of the rest,
corrected by how far the drawn term is from its expectation, over its chance.

The test bets on that estimate. A gambler who starts with a capital of 1 and bets that the sum is
positive cannot expect to win while it is not. So the chance that the capital ever reaches 1 / alpha
is at most alpha (Ville's inequality), no matter when one looks or stops.

How much is staked decides how soon the capital grows. It grows fastest where the stake is the sum
over the variance of the estimate (Kelly's bet). Both are guessed, from what was known before the
draw. A wrong guess takes more draws, but no bet becomes unfair. So the capital is split over a few
guesses, which are all played to the end.

Sources: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (JRSS B,
2024); Shekhar, Xu, Lipton, Liang and Ramdas, "Risk-limiting financial audits via weighted sampling
without replacement" (UAI 2023).
"""

import numpy as np
from numpy.typing import ArrayLike

from qwen3nb.metrics.intervals import Array

_LARGEST_LOSS = 0.97  # of the capital, in one draw


class PositiveTest:
    """Gamblers who each bet that a sum of theirs is positive.

    Args:
        shares: of the capital of each, by stake (K,); their sum is 1.
        shape: of the gamblers.
    """

    def __init__(self, shares: ArrayLike, *shape: int) -> None:
        log_shares = np.log(np.asarray(shares, dtype=float))
        # The logarithm of the capital of each gambler, by stake.
        self._log_capitals = np.tile(log_shares, (*shape, 1))
        self._largest = np.zeros(shape)  # the logarithm of each gambler's largest capital so far

    def bet(self, estimates: ArrayLike, *, least: ArrayLike, stakes: ArrayLike) -> None:
        """Play one draw.

        Args:
            estimates: of each sum, after the draw.
            least: what each estimate is at least. One that is lower counts as this.
            stakes: of each gambler (..., K): the share of a capital that an estimate of 1 wins. One
                that could lose nearly everything is cut.

        `least` and `stakes` must follow from what was known before.
        """
        least = np.asarray(least, dtype=float)
        can_lose = least < 0  # otherwise the sum is not negative, whatever is drawn
        returns = np.where(can_lose, estimates, 0.0) / np.where(can_lose, -least, 1.0)
        returns = np.maximum(returns, -1.0)
        losses = np.minimum(stakes * np.maximum(-least, 0.0)[..., np.newaxis], _LARGEST_LOSS)
        self._log_capitals += np.log1p(losses * returns[..., np.newaxis])
        capitals = np.logaddexp.reduce(self._log_capitals, axis=-1)
        self._largest = np.maximum(self._largest, capitals)

    @property
    def p_values(self) -> Array:
        """The p-value of "the sum is 0 or negative" for each sum, valid at every look."""
        return np.exp(-self._largest)
