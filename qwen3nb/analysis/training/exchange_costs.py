"""What each part of a joint adapter costs, by exchanging it for that of its specialist.

A part is a layer, a kind of module, or a single module. It is exchanged in both directions::

    into the joint adapter    score(joint with the specialist's part) - score(joint)
    into the specialist       score(specialist) - score(specialist with the joint adapter's part)

Both are above 0 if the joint adapter's part is the worse one. But parts of two trainings hardly
ever fit each other, so the first is too low and the second too high. The cost is their mean, per
query. If joint and specialist change places, it changes its sign. So between two trainings of one
kind it is 0 on average, however badly their parts fit. Of two parts, the costs are the Shapley
values (Shapley 1953), and add up to the difference of the two adapters.

"Without damage" thus means that joint adapter and specialist could change places: they differ by
noise alone. The test flips the signs of the cost per query, or per cluster of queries, for all
parts at once. It speaks of these adapters on other queries, not of other trainings; the costs by
seed show how much trainings differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qwen3nb.analysis.comparison import ranking
from qwen3nb.analysis.comparison.differences import ALPHA, HOLM, significant
from qwen3nb.analysis.stats import resampling
from qwen3nb.analysis.stats.multiple_testing import MAX_T, adjust, enough_draws
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.analysis.stats.skewness import skewed
from qwen3nb.metrics.intervals import Array, Interval

JOINT, SPECIALIST = "joint", "specialist"
_NOTHING = ""  # the row of zeros with which costs are compared


def into(adapter: str, part: str) -> str:
    """Return the name of an adapter, `JOINT` or `SPECIALIST`, with a part of the other one."""
    return f"{part} into {adapter}"


@dataclass(frozen=True)
class ExchangedScores:
    """The scores of one seed's adapters on a task: both, and both with each part exchanged."""

    seed: int
    parts: tuple[str, ...]  # in which the two differ
    # a matrix per data set, with the rows `JOINT`, `SPECIALIST`, and two per part: see `into`
    matrices: tuple[ScoreMatrix, ...]


@dataclass(frozen=True)
class PartCost:
    """What a part of the joint adapter costs."""

    part: str
    cost: float  # mean of both directions
    interval: Interval | None  # of the cost
    p_value: float  # two-sided, uncorrected
    corrected: float  # over all parts, adapters and tasks
    into_joint: float  # what the specialist's part adds to the joint adapter
    into_specialist: float  # what the joint adapter's part takes from the specialist
    by_seed: tuple[float, ...]  # cost per seed
    alpha: float = ALPHA

    @property
    def is_significant(self) -> bool:
        """Whether the cost differs from 0, by test and interval."""
        return significant(self.corrected, self.interval, alpha=self.alpha)

    @property
    def costs(self) -> bool:
        """Whether the part is shown to cost something."""
        return self.is_significant and self.cost > 0

    @property
    def helps(self) -> bool:
        """Whether the joint adapter's part is shown to be better than the specialist's."""
        return self.is_significant and self.cost < 0


@dataclass(frozen=True)
class TaskCosts:
    """What the parts of a joint adapter cost on one task."""

    task: str  # ``embedding`` or ``reranking``
    metric: str
    data_sets: tuple[str, ...]
    queries: int
    units: int  # clusters of queries; 0 if queries were sampled one by one
    seeds: tuple[int, ...]
    joint: float  # mean score
    specialist: float  # mean score
    difference: Interval | None  # interval of specialist - joint
    parts: tuple[PartCost, ...]
    correction: str = MAX_T  # one of `multiple_testing.CORRECTIONS`

    @property
    def named(self) -> tuple[PartCost, ...]:
        """The parts that are shown to cost something, the largest cost first."""
        costly = [part for part in self.parts if part.costs]
        return tuple(sorted(costly, key=lambda part: -part.cost))


def task_costs(
    task: str,
    scores: Sequence[ExchangedScores],
    *,
    families: int = 1,
    alpha: float = ALPHA,
    n_resamples: int = resampling.DRAWS,
    seed: int = 0,
) -> TaskCosts:
    """Return what each part costs on a task, as a mean over data sets and seeds.

    Args:
        task: ``embedding`` or ``reranking``.
        scores: of each seed, on the same data sets.
        families: number of adapters and tasks that are looked at; p-values are also corrected over
            them.
        alpha: level of the test.
        n_resamples: number of sign flips.
        seed: of the sign flips.

    Raises:
        ValueError: seeds with other data sets or queries, or unlike metrics.
    """
    _check_same_data(scores)
    parts = list(dict.fromkeys(part for of_seed in scores for part in of_seed.parts))
    costs_by_seed = [_costs(of_seed, parts) for of_seed in scores]
    matrices = []  # of costs, per data set
    for costs_on_data in zip(*costs_by_seed, strict=True):
        matrices.append(_mean_matrix(costs_on_data))
    shares = np.full(len(matrices), 1 / len(matrices))
    found = _Tested.of(
        matrices, parts, shares, families=families, n_resamples=n_resamples, seed=seed
    )
    directions = _directions(scores, parts)
    joint, specialist = _means(scores)
    first = scores[0].matrices[0]
    rows = []
    for place, part in enumerate(parts):
        into_joint, into_specialist = directions[part]
        by_seed = []
        for of_seed in costs_by_seed:
            on_data_sets = [matrix.scores[place].mean() for matrix in of_seed]
            by_seed.append(float(np.mean(on_data_sets)))
        rows.append(
            PartCost(
                part=part,
                cost=float(np.mean(by_seed)),
                interval=found.intervals[place],
                p_value=found.p_values[place],
                corrected=found.corrected[place],
                into_joint=into_joint,
                into_specialist=into_specialist,
                by_seed=tuple(by_seed),
                alpha=alpha,
            )
        )
    return TaskCosts(
        task=task,
        metric=first.metric,
        data_sets=tuple(matrix.task for matrix in matrices),
        queries=sum(len(matrix.queries) for matrix in matrices),
        units=sum(len(matrix.unit_names) for matrix in matrices if matrix.clusters),
        seeds=tuple(of_seed.seed for of_seed in scores),
        joint=joint,
        specialist=specialist,
        difference=_difference(scores, shares),
        parts=tuple(rows),
        correction=found.correction,
    )


def _check_same_data(scores: Sequence[ExchangedScores]) -> None:
    """Refuse seeds that were not scored on the same queries, by one metric."""
    reference = scores[0].matrices
    expected = [(matrix.task, matrix.queries) for matrix in reference]
    for of_seed in scores[1:]:
        if [(matrix.task, matrix.queries) for matrix in of_seed.matrices] != expected:
            raise ValueError(
                f"seed {of_seed.seed} and seed {scores[0].seed} were scored on other queries; "
                "expected the same data for all seeds"
            )
    metrics = sorted({matrix.metric for matrix in reference})
    if len(metrics) > 1:
        raise ValueError(
            f"the data sets are scored by {' and '.join(metrics)}; unlike metrics have no mean. "
            "Name tasks of one metric"
        )


def _costs(scores: ExchangedScores, parts: Sequence[str]) -> list[ScoreMatrix]:
    """Return the cost of each part per query, a matrix per data set; 0 of a part that is equal."""
    matrices = []
    for matrix in scores.matrices:
        rows = [np.zeros(len(matrix.queries))] * (len(parts) + 1)
        for place, part in enumerate(parts):
            if part in scores.parts:
                gain, loss = _both(matrix, part)
                rows[place] = (gain + loss) / 2
        matrices.append(_with_rows(matrix, (*parts, _NOTHING), np.array(rows)))
    return matrices


def _both(matrix: ScoreMatrix, part: str) -> tuple[Array, Array]:
    """Return what a part adds to the joint adapter, and takes from the specialist (n,)."""
    gain = matrix.column(into(JOINT, part)) - matrix.column(JOINT)
    loss = matrix.column(SPECIALIST) - matrix.column(into(SPECIALIST, part))
    return gain, loss


def _with_rows(matrix: ScoreMatrix, names: tuple[str, ...], rows: Array) -> ScoreMatrix:
    """Return other rows (S, n) on the queries of a matrix."""
    return replace(matrix, systems=names, scores=rows, unpaired={})


def _mean_matrix(matrices: Sequence[ScoreMatrix]) -> ScoreMatrix:
    """Return the means of matrices with equal rows and queries."""
    first = matrices[0]
    mean = np.mean([matrix.scores for matrix in matrices], axis=0)
    return _with_rows(first, first.systems, mean)


@dataclass(frozen=True)
class _Tested:
    """The tests of all parts, in their order."""

    intervals: list[Interval | None]
    p_values: list[float]
    corrected: list[float]
    correction: str

    @classmethod
    def of(
        cls,
        matrices: Sequence[ScoreMatrix],
        parts: Sequence[str],
        shares: Array,
        *,
        families: int,
        n_resamples: int,
        seed: int,
    ) -> _Tested:
        """Test the costs (parts, n) of each data set against 0."""
        if not parts:
            return cls([], [], [], MAX_T)
        pairs = [(place, len(parts)) for place in range(len(parts))]
        units = [matrix.unit_values(matrix.scores, centred=False) for matrix in matrices]
        seeds = [resampling.draw_seed(seed, matrix.unit_names) for matrix in matrices]
        n_resamples = enough_draws(len(parts) * families, draws=n_resamples)
        p_values, corrected = ranking.mean_p_values(
            units, seeds, shares, n_resamples=n_resamples, pairs=pairs
        )
        correction = MAX_T
        if any(skewed(values.T, pairs) for values in units):
            correction = HOLM
            corrected = adjust(p_values, how=HOLM)
        names = [(part, _NOTHING) for part in parts]
        differences = ranking.paired_over_tasks(matrices, names, shares)
        return cls(
            intervals=[difference.interval for difference in differences],
            p_values=p_values,
            corrected=[min(1.0, families * p_value) for p_value in corrected],  # Bonferroni
            correction=correction,
        )


def _directions(
    scores: Sequence[ExchangedScores], parts: Sequence[str]
) -> Mapping[str, tuple[float, float]]:
    """Return the mean gain of the joint adapter and the mean loss of the specialist, by part."""
    means = {}
    for part in parts:
        gains, losses = [], []
        for of_seed in scores:
            for matrix in of_seed.matrices:
                gain, loss = 0.0, 0.0  # of a part in which the two are equal
                if part in of_seed.parts:
                    gain, loss = (float(values.mean()) for values in _both(matrix, part))
                gains.append(gain)
                losses.append(loss)
        means[part] = (float(np.mean(gains)), float(np.mean(losses)))
    return means


def _means(scores: Sequence[ExchangedScores]) -> tuple[float, float]:
    """Return the mean scores of joint adapters and of specialists."""
    joint, specialist = [], []
    for of_seed in scores:
        for matrix in of_seed.matrices:
            joint.append(float(matrix.column(JOINT).mean()))
            specialist.append(float(matrix.column(SPECIALIST).mean()))
    return float(np.mean(joint)), float(np.mean(specialist))


def _difference(scores: Sequence[ExchangedScores], shares: Array) -> Interval | None:
    """Return the interval of the specialists' score less that of the joint adapters."""
    systems = (SPECIALIST, JOINT)
    matrices = []
    for on_data in zip(*[of_seed.matrices for of_seed in scores], strict=True):
        both = [_with_rows(matrix, systems, matrix.scores_of(systems)) for matrix in on_data]
        matrices.append(_mean_matrix(both))
    (difference,) = ranking.paired_over_tasks(matrices, [systems], shares)
    return difference.interval
