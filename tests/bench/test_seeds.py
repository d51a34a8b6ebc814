"""The benchmark of trainings with several seeds prints what it counts."""

import numpy as np
import pytest

from benchmarks.seeds import GAIN, POPULATIONS, World, _scores, measure, shown, true_difference


@pytest.mark.parametrize("population", POPULATIONS)
def test_a_population_has_the_true_difference_that_is_stated(population):
    generator = np.random.default_rng(0)
    for gain, truth in ((GAIN, true_difference(population)), (0.0, 0.0)):
        arms = _scores(generator, population, (1, 1), 200_000, gain)
        assert arms.first.mean() - arms.second.mean() == pytest.approx(truth, abs=0.003)


def test_seeds_as_good_as_chance_mislead_the_queries_alone():
    row = measure(World("normal", (2, 2), 50, ratio=10.0, spread=1.0), runs=60)
    assert row.level["queries"] > 0.3
    assert row.level["both"] < 0.15
    assert row.cover["both"] > row.cover["queries"]
    assert "2+2" in shown([row])
