"""Every pair of systems on every task, from one set of draws per task.

For each task the queries are drawn once (`resampling`), and all pairs are read off the
same resampled means: the numbers are those `paired_bootstrap` and `permutation_test`
give for the pair with the same seed, but for rounding at 1e-12.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.alignment import ScoreMatrix
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import effect_size
from qwen3nb.analysis.stats.resampling import (
    Interval,
    bca_interval,
    draw_seed,
    percentile_interval,
    resampled_means,
    sign_flip_extremes,
)
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.markdown import interval_text, json_text, markdown_table, number_text

__all__ = ["Family", "Pair", "compare_pairs"]

FAMILIES = ("all", "task")


@dataclass(frozen=True)
class Pair:
    """Two systems on one task.

    Attributes:
        task: name of the task.
        first: a; ``second`` is b.
        n: queries both answered.
        difference: mean of a − b.
        interval: percentile bootstrap interval, or None for a single query.
        bca: bias-corrected and accelerated interval, or None.
        p_value: paired permutation test, two-sided.
        adjusted: p-value adjusted over the family.
        d_z: Cohen's d_z, or None.
        won: queries on which a is above b; ``tied`` and ``lost`` likewise.
    """

    task: str
    first: str
    second: str
    n: int
    difference: float
    interval: Interval | None
    bca: Interval | None
    p_value: float
    adjusted: float
    d_z: float | None
    won: int
    tied: int
    lost: int


@dataclass(frozen=True)
class Family:
    """All comparisons that were made together, and how their p-values were adjusted.

    Attributes:
        pairs: the comparisons.
        correction: name of the correction.
        family: what it was taken over, in words.
        level: of the intervals.
        n_resamples: of bootstrap and permutation.
        notes: what did not pair.
    """

    pairs: tuple[Pair, ...]
    correction: str
    family: str
    level: float
    n_resamples: int
    notes: tuple[str, ...]

    def between(self, first: str, second: str, *, task: str) -> Pair:
        """One comparison, in the order it was made.

        Raises:
            KeyError: no such comparison.
        """
        for pair in self.pairs:
            if (pair.task, pair.first, pair.second) == (task, first, second):
                return pair
        raise KeyError(f"no comparison of {first!r} with {second!r} on {task!r}")

    def to_json(self) -> str:
        """As strict JSON."""
        return json_text(self)

    def to_markdown(self) -> str:
        """As a Markdown table with its note."""
        rows = [
            (
                pair.task,
                pair.first,
                pair.second,
                number_text(pair.difference, sign=True),
                interval_text(pair.interval),
                f"{pair.adjusted:.4f}",
                number_text(pair.d_z, sign=True, digits=2),
                f"{pair.won} / {pair.tied} / {pair.lost}",
                str(pair.n),
            )
            for pair in self.pairs
        ]
        heads = ("task", "a", "b", "a − b", f"{100 * self.level:g} % interval", "p, adjusted")
        table = markdown_table((*heads, "d_z", "won / tied / lost", "queries"), rows)
        note = (
            f"Paired over queries; percentile bootstrap and two-sided paired permutation test, "
            f"{self.n_resamples:,} resamples; p-values adjusted by {self.correction} over "
            f"{self.family}."
        )
        return "\n".join([table, "", note, *(f"\n- {line}" for line in self.notes)])


def compare_pairs(
    matrices: Sequence[ScoreMatrix],
    *,
    n_resamples: int = 10_000,
    level: float = 0.95,
    correction: str = "holm",
    family: str = "all",
    seed: int,
) -> Family:
    """Compare all systems of each matrix with one another.

    Args:
        matrices: one per task, from `pairs.join` or `pairs.pair_results`; or one per model,
            from `pairs.pair_against`.
        n_resamples: of the bootstrap, and of the permutation test.
        level: of the intervals.
        correction: one of `corrections.CORRECTIONS`.
        family: ``all``: p-values are adjusted over all comparisons; ``task``: over those
            of each task.
        seed: of the draws; equal sets of queries are drawn alike.

    Raises:
        ValueError: an unknown correction or family.
    """
    one_of("family", family, FAMILIES)
    groups = [list(_pairs(m, n_resamples=n_resamples, level=level, seed=seed)) for m in matrices]
    if family == "all":
        groups = [[pair for group in groups for pair in group]]
    adjusted = []
    for group in groups:
        values = adjust([pair.p_value for pair in group], how=correction)
        adjusted += [replace(pair, adjusted=p) for pair, p in zip(group, values, strict=True)]
    words = f"all {len(adjusted)} comparisons"
    if family == "task":
        words = f"the comparisons of each task ({', '.join(str(len(g)) for g in groups)})"
    notes = tuple(note for matrix in matrices for note in matrix.notes)
    return Family(tuple(adjusted), correction, words, level, n_resamples, notes)


def _pairs(matrix: ScoreMatrix, *, n_resamples: int, level: float, seed: int) -> Iterator[Pair]:
    """The comparisons of one task, not adjusted."""
    columns = matrix.scores.T
    drawn = draw_seed(seed, matrix.queries)
    observed, means = resampled_means(columns, n_resamples=n_resamples, seed=drawn)
    pairs = list(itertools.combinations(range(len(matrix.systems)), 2))
    counts = sign_flip_extremes(columns, pairs, n_resamples=n_resamples, seed=drawn)
    single = len(matrix.queries) == 1
    for (i, j), count in zip(pairs, counts, strict=True):
        differences = columns[:, i] - columns[:, j]
        resampled = means[:, i] - means[:, j]
        size = effect_size(columns[:, i], columns[:, j])
        centre = float(observed[i] - observed[j])
        p = (count + 1) / (n_resamples + 1)
        yield Pair(
            task=matrix.task,
            first=matrix.systems[i],
            second=matrix.systems[j],
            n=size.n,
            difference=size.difference,
            interval=None if single else percentile_interval(resampled, level=level),
            bca=None
            if single
            else bca_interval(resampled, differences, observed=centre, level=level),
            p_value=p,
            adjusted=p,
            d_z=size.d_z,
            won=size.won,
            tied=size.tied,
            lost=size.lost,
        )
