"""How well two graders agree: Cohen's kappa with quadratic weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads scipy.special on first use

from qwen3nb.datasets.custom.grades import GradeLine, counted_grades
from qwen3nb.metrics.intervals import Array, Interval

_FEWEST_QUERIES = 3  # for an interval


@dataclass(frozen=True)
class Agreement:
    """The agreement of two graders on the documents that both graded."""

    first: str
    second: str
    kappa: float | None  # None if it is not defined
    interval: Interval | None  # of 95 %
    pairs: int  # of a query and a document

    @property
    def text(self) -> str:
        """``ann and bob: weighted kappa 0.71 (95 % interval 0.55 to 0.82) on 120 documents``."""
        documents = f"{self.pairs:,} documents"
        if self.pairs == 1:
            documents = "1 document"
        if self.kappa is None:
            return f"{self.first} and {self.second}: {documents} by both; too few for a kappa"
        text = f"{self.first} and {self.second}: weighted kappa {self.kappa:.2f}"
        if self.interval is not None:
            low, high = self.interval
            text += f" (95 % interval {low:.2f} to {high:.2f})"
        return f"{text} on {documents}"


def agreements(lines: Sequence[GradeLine]) -> list[Agreement]:
    """Return the agreement of every two graders who have a document in common."""
    graders = list(dict.fromkeys(line.grader for line in lines))
    found = []
    for number, second in enumerate(graders):
        for first in graders[:number]:
            agreement = agreement_of(lines, first, second)
            if agreement.pairs:
                found.append(agreement)
    return found


def agreement_of(lines: Sequence[GradeLine], first: str, second: str) -> Agreement:
    """Return the agreement of two graders.

    The interval is that of the jackknife over queries on Fisher's z scale, because documents of one
    query are not independent. There is none for perfect agreement, or fewer than three queries.

    Sources: Cohen, "Weighted kappa" (Psychological Bulletin, 1968); Fleiss and Davies, "Jackknifing
    functions of multinomial frequencies" (American Journal of Epidemiology, 1982).
    """
    first_grades = counted_grades(line for line in lines if line.grader == first)
    second_grades = counted_grades(line for line in lines if line.grader == second)
    pairs = sorted(first_grades.keys() & second_grades.keys())
    if not pairs:
        return Agreement(first, second, kappa=None, interval=None, pairs=0)
    x = np.array([first_grades[pair] for pair in pairs], dtype=float)
    y = np.array([second_grades[pair] for pair in pairs], dtype=float)
    queries, numbers = np.unique([query for query, _ in pairs], return_inverse=True)
    # The sums of each query, from which those of all and of all but one follow: (queries, 6).
    terms = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
    sums = np.zeros((len(queries), terms.shape[1]))
    np.add.at(sums, numbers, terms)
    kappa = float(_kappa(sums.sum(axis=0)))
    if len(pairs) < 2 or not np.isfinite(kappa):
        return Agreement(first, second, kappa=None, interval=None, pairs=len(pairs))
    return Agreement(first, second, kappa, _interval(kappa, sums), pairs=len(pairs))


def _kappa(sums: Array) -> Array:
    """Return kappa from sums (…, 6): 1 − the mean squared difference over the expected one.

    It is not a number if each grader gave one and the same grade to all.
    """
    count, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = (xx + yy - 2 * xy) / count
        expected = (xx + yy) / count - 2 * (x / count) * (y / count)
        kappa: Array = 1 - observed / expected
    return kappa


def _interval(kappa: float, sums: Array) -> Interval | None:
    """Return the 95 % interval; None if the queries are too few, or do not differ."""
    queries = len(sums)
    if queries < _FEWEST_QUERIES or kappa >= 1:
        return None
    without_one = _kappa(sums.sum(axis=0) - sums)
    if not np.all(np.isfinite(without_one)) or np.any(np.abs(without_one) >= 1):
        return None
    z, z_without_one = np.arctanh(kappa), np.arctanh(without_one)
    error = np.sqrt((queries - 1) / queries * np.sum((z_without_one - z_without_one.mean()) ** 2))
    if error == 0:
        return None
    reach = scipy.special.stdtrit(queries - 1, 0.975) * error
    return float(np.tanh(z - reach)), float(np.tanh(z + reach))
