"""Differences of two trainings, with the errors of seeds and of queries."""

import math

import numpy as np
import pytest
from scipy import stats

from qwen3nb.analysis.stats.crossed_differences import (
    CrossedDesign,
    Spread,
    crossed_interval,
    crossed_p_value,
    seed_spreads,
    share_of_seeds,
    spread_of_mean,
)
from qwen3nb.metrics.intervals import difference_interval

GENERATOR = np.random.default_rng(0)
MANY = GENERATOR.normal(0.05, 0.2, 100)  # differences on queries


def test_as_many_seeds_in_both_arms_have_welchs_degrees_of_freedom():
    first, second = np.array([0.5, 0.6, 0.7]), np.array([0.52, 0.53, 0.51])
    (spread,) = seed_spreads(first, second)
    test = stats.ttest_ind(first, second, equal_var=False)
    assert spread.freedom == pytest.approx(test.df)
    low, high = test.confidence_interval(0.95)
    assert spread.half_width(0.95) == pytest.approx((high - low) / 2)


def test_pairs_of_seeds_are_tested_by_their_differences():
    first, second = np.array([0.5, 0.6, 0.7]), np.array([0.4, 0.52, 0.6])
    (spread,) = seed_spreads(first, second, paired=True)
    low, high = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert spread.half_width(0.95) == pytest.approx((high - low) / 2)
    with pytest.raises(ValueError, match="as many models"):
        seed_spreads(first, second[:2], paired=True)


def test_each_of_two_unequal_arms_has_its_own_degrees_of_freedom():
    first, second = np.array([0.5, 0.6]), np.array([0.4, 0.5, 0.3, 0.4, 0.4])
    assert seed_spreads(first, second) == (spread_of_mean(first), spread_of_mean(second))
    assert [spread.freedom for spread in seed_spreads(first, second)] == [1, 4]


def test_a_single_model_is_taken_as_it_is():
    several = np.array([0.5, 0.6])
    assert seed_spreads(several, np.array([0.4])) == (spread_of_mean(several),)
    assert seed_spreads(np.array([0.4]), np.array([0.5])) == ()
    assert seed_spreads(np.array([0.4]), np.array([0.5]), paired=True) == ()


def test_seeds_that_score_alike_do_not_spread():
    (spread,) = seed_spreads(np.array([0.5, 0.5]), np.array([0.4, 0.4]))
    assert spread.half_width(0.95) == 0


def test_without_seeds_the_interval_is_that_of_every_page():
    assert crossed_interval(MANY, (), level=0.95) == pytest.approx(
        difference_interval(MANY, level=0.95)
    )


def test_lengths_add_up_in_quadrature():
    low, high = difference_interval(MANY, level=0.95)
    mean = MANY.mean()
    half = stats.t.ppf(0.975, 3) * 0.02
    expected = mean - math.hypot(mean - low, half), mean + math.hypot(high - mean, half)
    assert crossed_interval(MANY, [Spread(0.02**2, 3)], level=0.95) == pytest.approx(expected)


def test_few_queries_err_more_rarely():
    few = MANY[:25]
    assert crossed_interval(few, (), level=0.95) == pytest.approx(
        difference_interval(few, level=1 - 0.05 / 4)  # a half of 50, squared
    )


def test_the_p_value_is_where_the_interval_touches_zero():
    spreads = [Spread(0.01**2, 2)]
    p_value = crossed_p_value(MANY, spreads)
    low, high = crossed_interval(MANY, spreads, level=1 - p_value)
    assert min(abs(low), abs(high)) < 1e-9
    assert 0 < p_value < 1


def test_p_values_of_a_clear_difference_and_of_none():
    assert crossed_p_value(MANY + 5, ()) < 1e-5
    assert crossed_p_value(MANY - MANY.mean(), [Spread(0.1, 2)]) == 1
    assert crossed_p_value(MANY[:1], ()) == 1  # a single query shows nothing
    assert crossed_interval(MANY[:1], (), level=0.95) is None


def test_the_share_of_seeds_grows_with_their_spread():
    small, large = [Spread(0.001**2, 9)], [Spread(0.1**2, 9)]
    shares = [share_of_seeds(MANY, spreads, level=0.95) for spreads in (small, large)]
    assert shares[0] < 0.1
    assert shares[1] > 0.9
    assert share_of_seeds(MANY, (), level=0.95) is None


def test_a_claim_for_new_seeds_and_queries_errs_rarely():
    """Where the queries alone claim a difference in most worlds."""
    claims_of_both = claims_of_queries = 0
    for _ in range(300):
        queries = GENERATOR.normal(0, 0.2, 60)
        first = queries + GENERATOR.normal(0, 0.05, (3, 1)) + GENERATOR.normal(0, 0.1, (3, 60))
        second = queries + GENERATOR.normal(0, 0.05, (3, 1)) + GENERATOR.normal(0, 0.1, (3, 60))
        differences = first.mean(axis=0) - second.mean(axis=0)
        spreads = seed_spreads(first.mean(axis=1), second.mean(axis=1))
        low, high = crossed_interval(differences, spreads, level=0.95)
        claims_of_both += low > 0 or high < 0
        low, high = difference_interval(differences, level=0.95)
        claims_of_queries += low > 0 or high < 0
    assert claims_of_both <= 28  # 15 expected; more in 1 of 1,000 trials
    assert claims_of_queries > 100


@pytest.mark.parametrize(
    ("seeds", "prompts"),
    [((2, 2), 0), ((2, 5), 0), ((4, 1), 0), ((1, 1), 3), ((3, 3), 4)],
)
def test_the_power_is_the_share_of_trials_that_show_the_difference(seeds, prompts):
    """Simulated: scores of models and prompts are drawn, and the interval is computed from them."""
    generator = np.random.default_rng(1)
    effect, deviation, queries, trials = 0.06, 0.2, 100, 1500
    design = CrossedDesign(seeds, seed_deviation=0.02, prompts=prompts, prompt_deviation=0.02)
    over_queries = Spread(deviation**2 / queries, queries - 1)
    shown = 0
    for _ in range(trials):
        # A single model is taken as it is: it has no other seeds.
        first, second = (generator.normal(0, 0.02 * (n > 1), n) for n in seeds)
        by_prompt = generator.normal(0, 0.02, prompts)
        error = generator.normal(0, deviation / math.sqrt(queries))
        mean = effect + first.mean() - second.mean() + by_prompt.sum() / max(1, prompts) + error
        spreads = [over_queries, *seed_spreads(first, second)]
        if prompts:
            spreads.append(spread_of_mean(by_prompt))
        shown += mean > math.hypot(*(spread.half_width(0.95) for spread in spreads))
    power = design.power(effect, deviation=deviation, queries=queries, alpha=0.05)
    assert power == pytest.approx(shown / trials, abs=0.04)  # its standard error is 0.013


def test_a_difference_without_any_error_is_shown_but_of_no_single_query():
    design = CrossedDesign((2, 2), seed_deviation=0.0)
    assert design.power(0.01, deviation=0.0, queries=2, alpha=0.05) == 1
    assert design.power(0.01, deviation=0.0, queries=1, alpha=0.05) == 0
