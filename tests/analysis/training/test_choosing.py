"""Choosing on one half of the queries and reporting on the other."""

import numpy as np
import pytest

from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.analysis.training.choosing import choose, flattery, greedy_soup, split


def matrix(scores, *, task="A", clusters=None, metric="ndcg@10"):
    """Return scores (models, queries) as a matrix of models m0, m1 …"""
    columns = {}
    for row, values in enumerate(np.asarray(scores, dtype=float)):
        by_query = {f"q{place:03}": float(value) for place, value in enumerate(values)}
        columns[f"m{row}"] = by_query
    return join(columns, task=task, metric=metric, clusters=clusters)


def random_scores(seed, models, queries, *, quality=None, sigma=0.2):
    generator = np.random.default_rng(seed)
    hardness = generator.beta(2, 2, queries)
    noise = generator.normal(0, sigma, (models, queries))
    return (hardness + noise + (0 if quality is None else np.reshape(quality, (-1, 1)))).clip(0, 1)


def test_halves_share_no_query_and_keep_clusters_whole():
    clusters = {f"q{place:03}": f"c{place // 3}" for place in range(31)}
    data = matrix(random_scores(0, 2, 31), clusters=clusters)
    halves = split([data], seed=4)
    first, second = halves.parts(data)
    assert set(first.queries) | set(second.queries) == set(data.queries)
    assert not set(first.queries) & set(second.queries)
    groups = [{clusters[query] for query in part.queries} for part in (first, second)]
    assert not groups[0] & groups[1]
    assert abs(len(first.queries) - len(second.queries)) <= 3
    assert split([data], seed=4) == halves != split([data], seed=5)


def test_the_choice_by_hand():
    # m1 is best on every query, so on both halves.
    data = matrix([[0.1] * 80, [0.9] * 80, [0.5] * 80])
    choice = choose([data], n_resamples=500)
    assert choice.chosen.name == "m1"
    assert choice.chosen.selecting == choice.chosen.reporting == pytest.approx(0.9)
    assert [other.name for other in choice.others] == ["m2", "m0"]
    assert [other.difference for other in choice.others] == pytest.approx([0.4, 0.8])
    assert choice.equally_good == ()
    assert choice.loss == pytest.approx(0)
    assert choice.flattery == pytest.approx(0)
    assert choice.queries == (40, 40)


def test_scores_are_those_of_the_halves():
    data = matrix(random_scores(1, 4, 30))
    choice = choose([data], seed=3, n_resamples=200)
    first, second = split([data], seed=3).parts(data)
    best = int(first.scores.mean(axis=1).argmax())
    assert choice.chosen.name == f"m{best}"
    assert choice.chosen.reporting == pytest.approx(second.scores[best].mean())
    assert choice.loss == pytest.approx(first.scores[best].mean() - second.scores[best].mean())
    low, high = choice.interval
    assert low < choice.chosen.reporting < high


def test_the_mean_over_tasks_counts_each_task_once():
    small, large = random_scores(2, 3, 10), random_scores(3, 3, 90)
    data = [matrix(small, task="A"), matrix(large, task="B")]
    halves = split(data)
    choice = choose(data, halves=halves, n_resamples=200)
    parts = [halves.parts(task)[1] for task in data]
    row = int(choice.chosen.name[1:])
    expected = np.mean([part.scores[row].mean() for part in parts])
    assert choice.chosen.reporting == pytest.approx(expected)


def test_models_that_differ_by_luck_are_equally_good_and_flatter():
    choice = choose([matrix(random_scores(5, 20, 60))], n_resamples=500)
    assert len(choice.equally_good) >= 18
    assert choice.flattery > 0.02


def test_a_better_model_is_told_apart():
    quality = [0.0, 0.25, 0.0]
    choice = choose([matrix(random_scores(6, 3, 200, quality=quality))], n_resamples=500)
    assert choice.chosen.name == "m1"
    assert choice.equally_good == ()


def test_flattery_is_the_bias_of_the_best_of_equal_models():
    """The expected largest of 10 normal means is 1.539 of their standard errors."""
    biases = []
    for seed in range(10):
        generator = np.random.default_rng(seed)
        scores = 0.5 + generator.normal(0, 0.1, (10, 80))
        biases.append(flattery([matrix(scores)], seed=seed, splits=40))
    expected = 1.539 * 0.1 / np.sqrt(40)
    assert np.mean(biases) == pytest.approx(expected, rel=0.2)


def test_the_interval_covers_where_choosing_and_reporting_on_the_same_queries_does_not():
    covered, covered_by_all = 0, 0
    for seed in range(120):
        # All models have the true mean 0.5.
        generator = np.random.default_rng(seed)
        data = matrix(generator.uniform(0, 1, (25, 60)))
        choice = choose([data], seed=seed, n_resamples=1, splits=1)
        low, high = choice.interval
        covered += low <= 0.5 <= high
        best = data.scores[data.scores.mean(axis=1).argmax()]
        covered_by_all += best.mean() - 2.0 * best.std(ddof=1) / np.sqrt(60) <= 0.5
    assert covered >= 108  # 95 % of 120 are 114; below 108 with a chance of 1 %
    assert covered_by_all <= 90


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        ([], "no task has scores"),
        ([matrix([[0, 1, 1], [1, 0, 0]])], "A: 3 queries in 3 groups"),
        (
            [matrix(np.eye(4)), matrix(np.eye(4), task="B", metric="mrr@10")],
            "B is scored by mrr@10, A by ndcg@10",
        ),
        ([matrix(np.eye(4)), matrix(np.eye(4)[:3], task="B")], "m3 has scores on only one"),
    ],
)
def test_what_has_no_choice_is_refused(data, cause):
    with pytest.raises(ValueError, match=cause):
        choose(data)


def test_a_greedy_soup_by_hand():
    # Of models 0, 1, 2 with 0.5, 0.7, 0.6: 1 first, with 2 better, with 0 worse.
    scores = {(1, 2): 0.75, (0, 1, 2): 0.74}
    steps = greedy_soup([0.5, 0.7, 0.6], scores.__getitem__)
    assert [(step.added, step.members, step.is_kept) for step in steps] == [
        (1, (1,), True),
        (2, (1, 2), True),
        (0, (0, 1, 2), False),
    ]


def test_a_soup_that_is_as_good_is_kept_and_a_worse_one_is_left():
    steps = greedy_soup([0.7, 0.6, 0.5], {(0, 1): 0.6, (0, 2): 0.7}.__getitem__)
    assert [step.is_kept for step in steps] == [True, False, True]
    assert steps[-1].members == (0, 2)
