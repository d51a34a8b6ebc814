"""Is a sum positive or negative? A test on a sample of its terms, valid at every look.

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

from dataclasses import dataclass, field

import numpy as np
from scipy.special import logsumexp

from qwen3nb.metrics.intervals import Array

_STAKES = np.linspace(0.03, 0.97, 24)  # shares of the largest bet that cannot lose everything


@dataclass
class PositiveTest:
    """A gambler who bets that a sum is positive.

    The capital is split evenly over several stakes, all of which are played to the end.
    """

    # The logarithm of the capital of each stake.
    _log_capitals: Array = field(default_factory=lambda: np.zeros(len(_STAKES)))
    _largest: float = 0.0  # the logarithm of the largest capital so far

    def bet(self, estimate: float, *, least: float) -> None:
        """Play one draw.

        Args:
            estimate: of the sum, after the draw.
            least: what the estimate is at least. It must follow from what was known before.
        """
        if least >= 0:  # the sum is not negative, whatever is drawn
            return
        self._log_capitals = self._log_capitals + np.log1p(_STAKES * estimate / -least)
        log_capital = float(logsumexp(self._log_capitals)) - np.log(len(_STAKES))
        self._largest = max(self._largest, log_capital)

    @property
    def p_value(self) -> float:
        """The p-value of "the sum is 0 or negative", valid at every look."""
        return float(np.exp(-self._largest))
