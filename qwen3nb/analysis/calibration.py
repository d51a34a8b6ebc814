"""Simulated error rates of tests and intervals, as ``qwen3nb bench calibration`` measures them.

Under the null hypothesis, 0.05 of the p-values should be below 0.05; intervals of level 0.95
should contain the true value in 0.95 of the cases. Each measured share comes with the range that
contains the share of an exact method with probability 0.99, given the number of simulations.
"""

from dataclasses import dataclass
from pathlib import Path

from qwen3nb.utils.atomic_files import read_json

_ERRORS = ("false positives", "false equivalence", "family-wise error", "condition errors")
STORED = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Share:
    """One measured share."""

    method: str  # the test or interval that is simulated
    # ``false positives``, ``false equivalence``, ``coverage`` (of differences), ``score coverage``
    # or ``power``; for families of tests ``family-wise error``, ``family power`` (mean share of
    # true differences found) or ``false discoveries`` (mean share among those found); where an
    # assumption fails (`qwen3nb.bench.conditions`), ``condition errors``, ``condition coverage``,
    # ``condition power`` or ``condition shown`` (share of samples in which there is an interval)
    kind: str
    # the distribution of the data; for power, with the true difference; for families, with the null
    # hypothesis, ``complete`` or ``partial``
    process: str
    n: str  # number of queries, or ``seeds x queries``
    simulations: int  # number of simulations
    share: float  # the measured share
    expected: float | None  # the share of an exact method; None for power at a given difference
    # with probability 0.99, the share of an exact method lies between this and ``high``
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """``holds``, ``conservative`` (fewer errors than nominal), ``anti-conservative`` (more).

        Empty if no share is expected.
        """
        if self.low is None or self.high is None:
            return ""
        if self.low <= self.share <= self.high:
            return "holds"
        is_below = self.share < self.low
        is_of_errors = self.kind in _ERRORS
        errs_less = is_below if is_of_errors else not is_below  # a high coverage has few errors
        return "conservative" if errs_less else "anti-conservative"

    @property
    def is_anti_conservative(self) -> bool:
        """Whether there are more errors than chance explains."""
        return self.verdict == "anti-conservative"

    @property
    def is_over_seeds(self) -> bool:
        """Whether seeds were sampled, too, not only queries."""
        return " x " in self.n


def read_calibration(file: Path | str = "") -> list[Share]:
    """Read the shares of a run of ``qwen3nb bench calibration``, by default the stored one."""
    return [Share(**share) for share in read_json(Path(file or STORED))["shares"]]
