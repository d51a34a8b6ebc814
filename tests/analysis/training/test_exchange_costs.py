"""What exchanged parts cost: by hand, and with damage and without."""

import numpy as np
import pytest

from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.analysis.training.exchange_costs import (
    JOINT,
    SPECIALIST,
    ExchangedScores,
    into,
    task_costs,
)


def exchanged(rows, *, seed=0, task="notes", clusters=None):
    """Scores of one seed: by the name of a row, a value per query."""
    columns = {}
    for name, values in rows.items():
        columns[name] = {f"q{place:03}": float(value) for place, value in enumerate(values)}
    matrix = join(columns, task=task, metric="nDCG@10", clusters=clusters)
    parts = tuple(name.partition(" into ")[0] for name in rows if name.endswith(f"into {JOINT}"))
    return ExchangedScores(seed, parts, (matrix,))


def test_a_cost_is_the_mean_of_both_directions_by_hand():
    """Into the joint adapter: (.2 + .4) / 2 - (.0 + .2) / 2; into the specialist: .5 - .3."""
    scores = exchanged(
        {
            JOINT: [0.0, 0.2],
            SPECIALIST: [0.4, 0.6],
            into(JOINT, "0"): [0.2, 0.4],
            into(SPECIALIST, "0"): [0.2, 0.4],
            into(JOINT, "1"): [0.2, 0.4],
            into(SPECIALIST, "1"): [0.2, 0.4],
        }
    )
    costs = task_costs("embedding", [scores], n_resamples=100)
    first, second = costs.parts
    assert (first.part, first.into_joint, first.into_specialist) == ("0", *[pytest.approx(0.2)] * 2)
    # Of two parts, the costs add up to the difference of the two adapters.
    assert first.cost + second.cost == pytest.approx(costs.specialist - costs.joint)
    assert (costs.joint, costs.specialist) == (pytest.approx(0.1), pytest.approx(0.5))


def world(generator, *, damage=0.0, misfit=0.0, queries=200, layers=4):
    """Scores of two trainings whose layers do not fit each other, one of which is damaged."""
    hardness = generator.beta(2, 2, queries)

    def scored(mean):
        return (hardness + mean + generator.normal(0, 0.1, queries)).clip(0, 1)

    rows = {JOINT: scored(-damage), SPECIALIST: scored(0)}
    for layer in range(layers):
        restored = 0.0 if layer == 1 else damage
        broken = damage if layer == 1 else 0.0
        rows[into(JOINT, str(layer))] = scored(-restored - misfit)
        rows[into(SPECIALIST, str(layer))] = scored(-broken - misfit)
    return exchanged(rows)


def test_a_damaged_layer_is_named_and_no_other():
    for number in range(5):
        scores = world(np.random.default_rng(number), damage=0.08, misfit=0.05)
        costs = task_costs("embedding", [scores], n_resamples=1000)
        assert [part.part for part in costs.named] == ["1"]


def test_layers_that_do_not_fit_are_not_named():
    """One direction alone would call every layer better, the other every layer worse."""
    named = 0
    for number in range(40):
        scores = world(np.random.default_rng([1, number]), misfit=0.1)
        costs = task_costs("embedding", [scores], n_resamples=1000)
        assert all(part.into_joint < 0 < part.into_specialist for part in costs.parts)
        named += bool(costs.named)
    assert named <= 5


def test_if_the_adapters_change_places_costs_change_their_sign():
    scores = world(np.random.default_rng(0), damage=0.05)
    (matrix,) = scores.matrices
    places = {JOINT: SPECIALIST, SPECIALIST: JOINT}
    for part in scores.parts:
        places[into(JOINT, part)] = into(SPECIALIST, part)
        places[into(SPECIALIST, part)] = into(JOINT, part)
    turned = exchanged({name: matrix.column(places[name]) for name in matrix.systems})
    costs = task_costs("embedding", [scores], n_resamples=500)
    reversed_costs = task_costs("embedding", [turned], n_resamples=500)
    for part, reversed_part in zip(costs.parts, reversed_costs.parts, strict=True):
        assert reversed_part.cost == pytest.approx(-part.cost)
        assert reversed_part.p_value == pytest.approx(part.p_value)
        assert reversed_part.costs is part.helps


def test_seeds_are_averaged_per_query_and_a_part_that_is_equal_costs_nothing():
    rows = {JOINT: [0.1, 0.3], SPECIALIST: [0.3, 0.7], into(JOINT, "0"): [0.3, 0.7]}
    rows[into(SPECIALIST, "0")] = [0.1, 0.3]
    equal = exchanged({JOINT: [0.2, 0.2], SPECIALIST: [0.2, 0.2]}, seed=1)
    costs = task_costs("embedding", [exchanged(rows), equal], n_resamples=100)
    (part,) = costs.parts
    assert part.by_seed == (pytest.approx(0.3), 0.0)
    assert part.cost == pytest.approx(0.15)
    assert costs.seeds == (0, 1)


def test_p_values_are_corrected_over_parts_and_adapters():
    scores = world(np.random.default_rng(3), damage=0.03)
    alone = task_costs("embedding", [scores], n_resamples=1000)
    among_three = task_costs("embedding", [scores], families=3, n_resamples=1000)
    for part, other in zip(alone.parts, among_three.parts, strict=True):
        assert part.corrected >= part.p_value
        assert other.corrected == pytest.approx(min(1.0, 3 * part.corrected))


def test_clusters_of_queries_count_together():
    """Of queries that are copies, four in a cluster, the interval is about twice as wide."""
    scores = world(np.random.default_rng(4), queries=50)
    (matrix,) = scores.matrices
    copied = {name: np.repeat(matrix.column(name), 4) for name in matrix.systems}
    clusters = {f"q{place:03}": f"c{place // 4}" for place in range(200)}
    clustered = task_costs("e", [exchanged(copied, clusters=clusters)], n_resamples=500)
    single = task_costs("e", [exchanged(copied)], n_resamples=500)
    assert clustered.units == 50
    for part, other in zip(clustered.parts, single.parts, strict=True):
        ratio = np.ptp(part.interval) / np.ptp(other.interval)
        assert 1.6 < ratio < 2.5


def test_no_parts_that_differ_have_no_costs():
    equal = exchanged({JOINT: [0.2, 0.2], SPECIALIST: [0.2, 0.2]})
    assert task_costs("embedding", [equal]).parts == ()


@pytest.mark.parametrize(
    ("queries", "metrics", "cause"),
    [(3, ("nDCG@10",), "other queries"), (2, ("nDCG@10", "MRR@10"), "unlike metrics have no mean")],
)
def test_what_has_no_mean_is_refused(queries, metrics, cause):
    first = exchanged({JOINT: [0.2, 0.2], SPECIALIST: [0.2, 0.2]})
    matrices = []
    for metric in metrics:
        columns = {
            name: {f"q{place}": 0.1 for place in range(queries)} for name in (JOINT, SPECIALIST)
        }
        matrices.append(join(columns, task=metric, metric=metric))
    other = ExchangedScores(1, (), tuple(matrices))
    several = [first, other] if queries == 3 else [other]
    with pytest.raises(ValueError, match=cause):
        task_costs("embedding", several)
