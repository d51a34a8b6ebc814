"""What more steps would bring: curves, their errors, and when nothing is said."""

import numpy as np
import pytest
from scipy.special import stdtrit

from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.analysis.training import curves
from qwen3nb.analysis.training.curves import Course, adequate_curves
from qwen3nb.analysis.training.forecast import (
    Refusal,
    band,
    forecast,
    held_out,
    reach,
    round_distance,
)


def matrix(curve, *, queries=200, scatter=0.003, seed=0, task="T", clusters=()):
    """Scores of checkpoints along a curve."""
    generator = np.random.default_rng(seed)
    curve = np.asarray(curve, dtype=float)
    scattered = curve + generator.normal(0, scatter, len(curve))
    hardness = generator.normal(0, 0.2, queries)
    scores = scattered[:, None] + hardness + generator.normal(0, 0.05, (len(curve), queries))
    names = tuple(f"q{place:03}" for place in range(queries))
    steps = tuple(f"step {place}" for place in range(len(curve)))
    return ScoreMatrix(task, "nDCG@10", steps, names, scores, {}, clusters)


def saturating(places):
    return 0.3 + 0.2 * (1 - np.exp(-np.asarray(places) / 400))


PLACES = [100.0 * number for number in range(12)]


def test_a_straight_line_has_the_error_of_the_textbook():
    """Prediction by y = a + b x: s sqrt(1/n + (x0 - mean)^2 / Sxx)."""
    places = np.arange(10.0)
    means = 0.3 + 0.02 * places + np.array([1, -1, 0, 2, -2, 1, 0, -1, 1, -1]) / 100
    course = Course(places, means, np.zeros((10, 10)))
    everywhere = np.append(places, 12.0)
    line = curves._Family(np.ones((1, 11)), everywhere[None], saturates=True)
    fit = curves._fitted(course, line, 0.0)
    (found,) = [curves._chosen(course, fit, np.inf)]
    slope, start = np.polyfit(places, means, 1)
    assert found.levels[0, 0] == pytest.approx(start + slope * 12)
    assert found.gains[0, 0] == pytest.approx(slope * 3)
    freedom = 10 - 3  # a constant, a slope and a scale
    errors = means - start - slope * places
    spread = np.sqrt((errors**2).sum() / freedom)
    error = spread * np.sqrt(1 / 10 + (12 - 4.5) ** 2 / ((places - 4.5) ** 2).sum())
    length = stdtrit(freedom, 0.975) * error
    ((low, high),) = found.intervals_of_levels()
    assert (high - low) / 2 == pytest.approx(length)
    # What a checkpoint scores has its own scatter, too.
    ((low, high),) = found.intervals_of_scores()
    assert (high - low) / 2 == pytest.approx(stdtrit(freedom, 0.975) * np.hypot(error, spread))


def test_weights_are_those_of_generalised_least_squares():
    places = np.arange(8.0)
    generator = np.random.default_rng(0)
    course = Course(places, generator.random(8), np.zeros((8, 8)))
    everywhere = np.append(places, 9.0)
    shape = np.log1p(everywhere)
    family = curves._Family(np.ones((1, 9)), shape[None], saturates=True)
    found = curves._chosen(course, curves._fitted(course, family, 0.5), np.inf)
    inverse = np.linalg.inv(curves.correlations(8, 0.5))
    design = np.stack([np.ones(8), shape[:8]], axis=1)
    coefficients = np.linalg.solve(design.T @ inverse @ design, design.T @ inverse @ course.means)
    assert found.levels[0, 0] == pytest.approx(coefficients @ [1, shape[8]])
    errors = course.means - design @ coefficients
    assert found.variance[0] == pytest.approx(errors @ inverse @ errors / (8 - 3))


def test_a_curve_without_errors_is_continued():
    course = Course(np.array(PLACES), saturating(PLACES), np.zeros((12, 12)))
    found = adequate_curves(course, np.array([1200.0, 1300.0]), level=0.95)
    expected = saturating([1200, 1300]) - saturating([1100])
    assert found.gains[found.best] == pytest.approx(expected, abs=5e-4)


def test_scores_without_noise_are_forecast():
    """Between two scales of the grid, none fits exactly."""
    scores = np.repeat(saturating(PLACES)[:, None], 30, axis=1)
    names = tuple(f"q{place:02}" for place in range(30))
    exact = ScoreMatrix("T", "m", tuple(map(str, PLACES)), names, scores, {})
    found = forecast([exact], PLACES, more=100)
    low, high = found.interval
    assert low <= saturating(1200) - saturating(1100) <= high


def test_intervals_cover_and_most_worlds_have_one():
    gain = float(saturating(1200) - saturating(1100))
    covered = []
    for seed in range(40):
        found = forecast([matrix(saturating(PLACES), seed=seed)], PLACES, more=100)
        if found.is_stated:
            low, high = found.interval
            covered.append(low <= gain <= high)
    assert len(covered) >= 28
    assert np.mean(covered) >= 0.93


def turning(places):
    share = np.asarray(places) / 1100
    return 0.3 + 0.2 * (1 - np.exp(-share / 0.15)) - 0.2 * share**2


def jumping(places):
    return saturating(places) + 0.1 * (np.asarray(places) > 850)


def growing(places):
    return 0.3 + 0.4 * (np.asarray(places) / 1100) ** 6


@pytest.mark.parametrize(
    ("curve", "reasons"),
    [
        (turning, {Refusal.TURNS}),
        (jumping, {Refusal.MISSED, Refusal.NO_CURVE}),
        (growing, {Refusal.MISSED, Refusal.NO_CURVE}),
    ],
)
def test_nothing_is_stated_of_other_curves(curve, reasons):
    found = [forecast([matrix(curve(PLACES), seed=seed)], PLACES) for seed in range(10)]
    refused = [one.refusal for one in found]
    assert sum(refusal in reasons for refusal in refused) >= 9
    for one in found:
        assert one.is_stated == (one.interval is not None) == (one.gain is not None)


def test_a_turn_is_placed():
    found = forecast([matrix(turning(PLACES))], PLACES)
    highest = PLACES[int(turning(PLACES).argmax())]
    assert abs(found.turn - highest) <= 100


def test_too_little_is_refused():
    few = forecast([matrix(saturating(PLACES[:7]))], PLACES[:7])
    assert few.refusal is Refusal.FEW_CHECKPOINTS
    single = forecast([matrix(saturating(PLACES), queries=1)], PLACES)
    assert single.refusal is Refusal.FEW_QUERIES
    far = forecast([matrix(saturating(PLACES))], PLACES, more=301)
    assert far.refusal is Refusal.TOO_FAR
    assert reach(PLACES) == 300
    same = matrix(np.full(12, 0.5))
    equal = ScoreMatrix(
        "T", "m", same.systems, same.queries, np.repeat(same.scores[:1], 12, axis=0), {}
    )
    assert forecast([equal], PLACES).refusal is Refusal.SAME_SCORES


def test_wrong_arguments_are_named():
    data = matrix(saturating(PLACES))
    with pytest.raises(ValueError, match="got none"):
        forecast([], PLACES)
    with pytest.raises(ValueError, match="increase"):
        forecast([data], PLACES[::-1])
    with pytest.raises(ValueError, match="12 checkpoints for 11 places"):
        forecast([data], PLACES[:11])
    with pytest.raises(ValueError, match="0 or more; got -5"):
        forecast([data], PLACES, more=-5)


def test_the_test_sees_only_the_first_checkpoints():
    """Another last checkpoint changes nothing that was foreseen."""
    data = matrix(saturating(PLACES))
    changed = ScoreMatrix("T", "m", data.systems, data.queries, data.scores.copy(), {})
    changed.scores[-1] += 0.01
    before, after = forecast([data], PLACES), forecast([changed], PLACES)
    assert len(before.tested) == held_out(12) == 3
    foreseen = [one.interval for one in before.tested]
    assert foreseen == [one.interval for one in after.tested]


def test_the_mean_of_tasks_is_surer_than_one():
    first = matrix(saturating(PLACES), task="A", scatter=0, seed=1)
    second = matrix(saturating(PLACES), task="B", scatter=0, seed=2)
    both = Course.of([first, second], PLACES)
    one = Course.of([first], PLACES)
    other = Course.of([second], PLACES)
    assert both.means == pytest.approx((one.means + other.means) / 2)
    assert both.covariance == pytest.approx((one.covariance + other.covariance) / 4)
    assert forecast([first, second], PLACES).queries == 400


def test_copies_of_queries_in_clusters_are_no_new_evidence():
    data = matrix(saturating(PLACES), queries=60)
    names = tuple(f"{query}{copy}" for query in data.queries for copy in "ab")
    copies = ScoreMatrix(
        "T",
        "nDCG@10",
        data.systems,
        names,
        np.repeat(data.scores, 2, axis=1),
        {},
        tuple(query for query in data.queries for _ in "ab"),
    )
    first, second = forecast([data], PLACES), forecast([copies], PLACES)
    assert second.interval == pytest.approx(first.interval)


def test_the_band_ends_where_the_forecast_does():
    drawn = band([matrix(saturating(PLACES))], PLACES, more=100)
    assert (drawn.places[0], drawn.places[-1]) == (0, 1200)
    for (low, high), level in zip(drawn.intervals, drawn.curve, strict=True):
        assert low <= level <= high


def test_a_distance_is_round_and_no_farther_than_the_test():
    assert round_distance([0, 1000, 2000, 4000]) == 2000
    assert round_distance(range(9)) == 1
    dense_at_the_end = [0, 5000, 9000, 9960, 9970, 9980, 9990, 10_000]
    assert reach(dense_at_the_end) == 20
    assert round_distance(dense_at_the_end) == 20
