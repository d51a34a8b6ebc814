"""Components of variance next to statsmodels, by hand, and in simulation."""

import numpy as np
import pandas as pd
import pytest

from qwen3nb.analysis.comparison.prompt_effects import variance_components

RNG = np.random.default_rng(5)


def crossed(deviations, shape, generator=RNG):
    """Scores with independent normal effects of these standard deviations, by axes."""
    scores = np.zeros(shape)
    for axes, deviation in deviations.items():
        own = [size if axis in axes else 1 for axis, size in enumerate(shape)]
        scores = scores + generator.normal(0, deviation, own)
    return scores


def test_two_by_two_by_hand():
    # Means 2, 5 of rows and 3, 4 of columns; residuals +-.5.
    query, prompt, both = variance_components([[1.0, 3.0], [5.0, 5.0]], ("query", "prompt"))
    assert [each.name for each in (query, prompt, both)] == ["query", "prompt", "query × prompt"]
    # Mean squares 9, 1 and 1 with one degree of freedom each.
    assert (query.variance, prompt.variance, both.variance) == pytest.approx((4, 0, 1))
    assert (query.share, prompt.share, both.share) == pytest.approx((0.8, 0, 0.2))


def test_the_sums_of_squares_are_those_of_statsmodels():
    formula = pytest.importorskip("statsmodels.formula.api")
    anova_lm = pytest.importorskip("statsmodels.stats.anova").anova_lm
    shape = (12, 4, 3)
    scores = crossed({(0,): 1, (1,): 0.4, (0, 1): 0.3, (0, 1, 2): 0.2}, shape)
    rows = [(f"q{i}", f"p{j}", f"s{k}", scores[i, j, k]) for i, j, k in np.ndindex(shape)]
    frame = pd.DataFrame(rows, columns=["q", "p", "s", "y"])
    table = anova_lm(formula.ols("y ~ (C(q) + C(p) + C(s)) ** 2", frame).fit())
    mean = {name: row["sum_sq"] / row["df"] for name, row in table.iterrows()}
    q, p, s = "C(q)", "C(p)", "C(s)"
    rest = mean["Residual"]
    pairs = {pair: mean[f"{pair[0]}:{pair[1]}"] for pair in ((q, p), (q, s), (p, s))}
    expected = [
        (mean[q] - pairs[q, p] - pairs[q, s] + rest) / (4 * 3),
        (mean[p] - pairs[q, p] - pairs[p, s] + rest) / (12 * 3),
        (mean[s] - pairs[q, s] - pairs[p, s] + rest) / (12 * 4),
        (pairs[q, p] - rest) / 3,
        (pairs[q, s] - rest) / 4,
        (pairs[p, s] - rest) / 12,
        rest,
    ]
    components = variance_components(scores, ("query", "prompt", "seed"))
    assert [each.variance for each in components] == pytest.approx(expected)
    assert [each.df for each in components] == table["df"].tolist()


def test_shares_and_their_intervals_in_simulation():
    truth, shape = {(0,): 1.0, (1,): 0.5, (0, 1): 0.7}, (60, 15)
    total = sum(each**2 for each in truth.values())
    covered = np.zeros(3)
    for seed in range(100):
        scores = crossed(truth, shape, np.random.default_rng(seed))
        components = variance_components(scores, ("query", "prompt"), seed=seed)
        shares = np.array([each**2 / total for each in truth.values()])
        covered += [
            e.interval[0] <= t <= e.interval[1] for e, t in zip(components, shares, strict=True)
        ]
    assert (covered / 100 >= 0.91).all()
    assert (covered / 100 <= 0.99).all()


def test_equal_scores_have_no_variance():
    components = variance_components(np.full((3, 2), 0.5), ("query", "prompt"))
    assert [(each.variance, each.share) for each in components] == [(0, 0)] * 3


@pytest.mark.parametrize(("effects", "least"), [("exponential", 0.84), ("lognormal", None)])
def test_shares_hold_or_have_no_interval_where_query_effects_are_not_normal(effects, least):
    shown = covered = 0
    for seed in range(100):
        generator = np.random.default_rng(seed)
        if effects == "exponential":
            queries = generator.exponential(size=(200, 1)) - 1
        else:
            queries = generator.lognormal(size=(200, 1)) / np.sqrt((np.e - 1) * np.e)
        prompts = 0.2 * generator.normal(size=(1, 10))
        scores = queries + prompts + generator.normal(0, 0.3, (200, 10))
        query, *_ = variance_components(scores, ("query", "prompt"), seed=seed)
        if query.interval is not None:
            shown += 1
            covered += query.interval[0] <= 1 / (1 + 0.04 + 0.09) <= query.interval[1]
    if least is None:
        assert shown <= 20
    else:
        assert shown >= 70
        assert covered / shown >= least
