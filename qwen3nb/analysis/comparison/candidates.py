"""Models on one's own queries: is any better than the one in use?

The rule, in words: a model is called better (or worse) than the current one if the
corrected p-value is below ``alpha`` **and** the difference is larger than ``threshold``;
otherwise there is no significant difference. The p-values are those of the paired
permutation test, adjusted by Holm over all models and metrics that are tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.alignment import ScoreMatrix, join
from qwen3nb.analysis.comparison.by_category import Breakdown, breakdown
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import (
    effect_size,
    minimum_detectable_effect,
    paired_bootstrap,
    permutation_test,
    t_test,
)
from qwen3nb.analysis.stats.resampling import Interval, draw_seed
from qwen3nb.utils.markdown import escaped, interval_text, json_text, markdown_table, number_text

__all__ = ["Change", "Comparison", "Difference", "Recommendation", "compare_models"]

TESTED = ("MRR@10", "nDCG@10")
NO_DIFFERENCE = "no significant difference"
Scores = Mapping[str, Mapping[str, Mapping[str, float]]]  # model, metric, query id


@dataclass(frozen=True)
class Difference:
    """One model against the current one, on one metric.

    Attributes:
        model: its name.
        metric: name of the metric.
        n: queries both answered.
        current: mean of the current model; ``mean`` is the model's.
        difference: mean − current.
        interval: percentile bootstrap interval, or None for a single query.
        p_value: paired permutation test, not adjusted; None where not tested.
        adjusted: adjusted over the family; None where not tested.
        t_p_value: paired t-test, not adjusted, for comparison; None where undefined.
        d_z: Cohen's d_z, or None.
        won: queries on which the model is above; ``tied`` and ``lost`` likewise.
        detectable: smallest true difference these queries would show with a power of
            0.8, or None.
    """

    model: str
    metric: str
    n: int
    current: float
    mean: float
    difference: float
    interval: Interval | None
    p_value: float | None
    adjusted: float | None
    t_p_value: float | None
    d_z: float | None
    won: int
    tied: int
    lost: int
    detectable: float | None


@dataclass(frozen=True)
class Recommendation:
    """What the rule says of one model.

    Attributes:
        model: its name.
        verdict: ``better``, ``worse`` or ``no significant difference``.
        text: why, in plain words.
    """

    model: str
    verdict: str
    text: str


@dataclass(frozen=True)
class Change:
    """A query on which a model and the current one differ most."""

    model: str
    query: str
    current: float
    score: float
    difference: float


@dataclass(frozen=True)
class Comparison:
    """All models against the current one.

    Attributes:
        current: name of the model in use.
        differences: per model and metric.
        recommendations: one per model.
        breakdowns: per model, by category, on the metric that decides; empty without
            categories.
        changes: per model, the queries that changed most, on that metric.
        rule: the rule in words.
        notes: what did not pair.
    """

    current: str
    differences: tuple[Difference, ...]
    recommendations: tuple[Recommendation, ...]
    breakdowns: tuple[Breakdown, ...]
    changes: tuple[Change, ...]
    rule: str
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """As strict JSON."""
        return json_text(self)

    def to_markdown(self) -> str:
        """Recommendations, rule, and tables."""
        parts = [
            *(f"- **{escaped(each.model)}**: {escaped(each.text)}" for each in self.recommendations)
        ]
        parts = ["\n".join(parts), self.rule, self._table(), self._changes()]
        for each in self.breakdowns:
            parts.append(f"**{escaped(each.first)}** by category\n\n{each.to_markdown()}")
        parts += [f"- {escaped(note)}" for note in self.notes]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _table(self) -> str:
        heads = (
            "model", "metric", self.current, "value", "difference", "95 % interval",
            "p, adjusted", "p, t-test", "won / tied / lost", "queries", "detectable",
        )  # fmt: skip
        rows = [
            (
                d.model,
                d.metric,
                number_text(d.current),
                number_text(d.mean),
                number_text(d.difference, sign=True),
                interval_text(d.interval),
                number_text(d.adjusted, digits=4),
                number_text(d.t_p_value, digits=4),
                f"{d.won} / {d.tied} / {d.lost}",
                str(d.n),
                number_text(d.detectable),
            )
            for d in self.differences
        ]
        return markdown_table(heads, rows)

    def _changes(self) -> str:
        if not self.changes:
            return ""
        rows = [
            (
                c.model,
                c.query,
                number_text(c.current),
                number_text(c.score),
                number_text(c.difference, sign=True),
            )
            for c in self.changes
        ]
        return markdown_table(("model", "query", self.current, "value", "difference"), rows)


def compare_models(
    scores: Scores,
    *,
    current: str,
    categories: Mapping[str, str] | None = None,
    tested: Sequence[str] = TESTED,
    decides: str = TESTED[0],
    alpha: float = 0.05,
    threshold: float = 0.05,
    n_resamples: int = 10_000,
    most: int = 5,
    seed: int,
) -> Comparison:
    """Compare any number of models with the current one.

    Args:
        scores: score per model, metric and query id.
        current: name of the model in use.
        categories: category per query id, for the breakdown.
        tested: metrics whose p-values make the family; others are shown without.
        decides: the metric that the recommendation looks at; one of ``tested``.
        alpha: level of the corrected test.
        threshold: smallest difference that matters.
        n_resamples: of bootstrap and permutation.
        most: how many queries that changed most are listed per model.
        seed: of the draws.

    Raises:
        ValueError: no other model, an unknown current one, a metric that a model lacks,
            or no query in common.
    """
    others = _check(scores, current, tested, decides)
    matrices = [
        _beside(scores, model, current, metric) for model in others for metric in scores[current]
    ]
    differences = _adjusted(
        [
            _difference(each, draws=n_resamples, test=each.metric in tested, seed=seed)
            for each in matrices
        ]
    )
    deciding = [each for each in differences if each.metric == decides]
    breakdowns = [
        breakdown(
            scores[model][decides], scores[current][decides], categories,
            names=(model, current), n_resamples=n_resamples, alpha=alpha, seed=seed,
        )
        for model in others
        if categories
    ]  # fmt: skip
    family = sum(each.adjusted is not None for each in differences)
    return Comparison(
        current=current,
        differences=tuple(differences),
        recommendations=tuple(_recommend(d, alpha=alpha, threshold=threshold) for d in deciding),
        breakdowns=tuple(breakdowns),
        changes=tuple(c for m in matrices if m.metric == decides for c in _changes(m, most)),
        rule=_rule(decides, tested, alpha, threshold, family, n_resamples),
        notes=tuple(note for matrix in matrices for note in matrix.notes),
    )


def _check(scores: Scores, current: str, tested: Sequence[str], decides: str) -> list[str]:
    """The other models, in the order given."""
    if current not in scores:
        raise ValueError(f"no model {current!r}; there are: {', '.join(scores)}")
    others = [model for model in scores if model != current]
    if not others:
        raise ValueError(f"no model to compare {current!r} with")
    if decides not in tested:
        raise ValueError(f"{decides!r} decides, but is not tested; tested: {', '.join(tested)}")
    for model, metrics in scores.items():
        if lacking := [m for m in (*tested, *scores[current]) if m not in metrics]:
            raise ValueError(f"{model!r} has no {lacking[0]}; it has: {', '.join(metrics)}")
    return others


def _beside(scores: Scores, model: str, current: str, metric: str) -> ScoreMatrix:
    columns = {name: scores[name][metric] for name in (model, current)}
    return join(columns, task=f"{model}, {metric}", metric=metric)


def _difference(matrix: ScoreMatrix, *, draws: int, test: bool, seed: int) -> Difference:
    """First system against the second, from as many resamples and sign flips as ``draws``."""
    ours, theirs = matrix.scores
    drawn = draw_seed(seed, matrix.queries)
    p = permutation_test(ours, theirs, n_resamples=draws, seed=drawn).p_value if test else None
    size = effect_size(ours, theirs)
    return Difference(
        model=matrix.systems[0],
        metric=matrix.metric,
        n=size.n,
        current=float(theirs.mean()),
        mean=float(ours.mean()),
        difference=size.difference,
        interval=paired_bootstrap(ours, theirs, n_resamples=draws, seed=drawn).interval,
        p_value=p,
        adjusted=p,
        t_p_value=t_test(ours, theirs).p_value if test else None,
        d_z=size.d_z,
        won=size.won,
        tied=size.tied,
        lost=size.lost,
        detectable=minimum_detectable_effect(ours, theirs),
    )


def _adjusted(differences: Sequence[Difference]) -> list[Difference]:
    values = iter(adjust([each.p_value for each in differences if each.p_value is not None]))
    return [
        replace(each, adjusted=next(values)) if each.p_value is not None else each
        for each in differences
    ]


def _recommend(found: Difference, *, alpha: float, threshold: float) -> Recommendation:
    p = 1.0 if found.adjusted is None else found.adjusted
    clear, large = p < alpha, abs(found.difference) > threshold
    verdict = NO_DIFFERENCE
    if clear and large:
        verdict = "better" if found.difference > 0 else "worse"
    size = f"{found.metric} differs by {found.difference:+.3f} (corrected p = {p:.4f}"
    size += f", {found.n} queries)"
    if clear and large:
        text = f"{verdict}: {size}"
    elif clear:
        text = f"{verdict}: {size}: real, but not more than {threshold:g}"
    elif large:
        text = f"{verdict}: {size}: more than {threshold:g}, but it may be chance"
    else:
        text = f"{verdict}: {size}"
    return Recommendation(found.model, verdict, text)


def _changes(matrix: ScoreMatrix, most: int) -> list[Change]:
    """Queries that changed most, largest first; unchanged ones are not listed."""
    ours, theirs = matrix.scores
    changes = [
        Change(matrix.systems[0], query, float(b), float(a), float(a - b))
        for query, a, b in zip(matrix.queries, ours, theirs, strict=True)
        if a != b
    ]
    return sorted(changes, key=lambda change: (-abs(change.difference), change.query))[:most]


def _rule(
    decides: str,
    tested: Sequence[str],
    alpha: float,
    threshold: float,
    family: int,
    n_resamples: int,
) -> str:
    return (
        f"Rule: better or worse if the corrected p-value of {decides} is below {alpha:g} and the "
        f"difference is larger than {threshold:g}; otherwise no significant difference. Paired "
        f"permutation test ({n_resamples:,} sign flips), Holm over {family} tests "
        f"({', '.join(tested)}, every model)."
    )
