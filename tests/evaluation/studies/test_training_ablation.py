"""Components of a training, by trainings that differ in one of them."""

import json
import shutil

import numpy as np
import pytest
from helpers.records import make

from qwen3nb.analysis.comparison.ablation_effects import component_effects
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.evaluation.studies.ablation import (
    TrainingOutcome,
    TrainingVariant,
    ablate_trainings,
    find_trainings,
)
from qwen3nb.report.studies.ablation import effects_figure, effects_table

BASE = np.linspace(0.1, 0.5, 40)


def outcome(name, shift, **components):
    training = TrainingVariant(name, None, {"objective": "UL2", **components})
    return TrainingOutcome(training, make(name, scores=(BASE + shift).tolist()))


def test_every_pair_that_differs_in_one_component_is_an_effect():
    outcomes = [
        outcome("base", 0.0, mixing="4", seed="0"),
        outcome("even", 0.1, mixing="1", seed="0"),
        outcome("even-2", 0.08, mixing="1", seed="1"),  # differs from base in two
        outcome("same", 0.3, mixing="1", seed="0"),  # differs from even in nothing
    ]
    effects = component_effects(outcomes)
    shown = {(e.factor, e.level, e.reference): e.estimate.difference for e in effects}
    assert shown == {
        ("mixing", "1 (even)", "4 (base)"): pytest.approx(0.1),
        ("mixing", "1 (same)", "4 (base)"): pytest.approx(0.3),
        ("seed", "1 (even-2)", "0 (even)"): pytest.approx(-0.02),
        ("seed", "0 (same)", "1 (even-2)"): pytest.approx(0.22),
    }
    assert [each.p_value for each in effects] == [pytest.approx(4 / 10_001)] * 4  # Holm over 4
    assert [row[0].text for row in effects_table(effects).rows] == [e.factor for e in effects]
    assert "mixing: 1 (even)" in effects_figure(effects).alt


def test_a_component_that_one_training_lacks_is_a_difference():
    (effect,) = component_effects([outcome("a", 0), outcome("b", 0.1, prefix="[R]")])
    assert (effect.factor, effect.level, effect.reference) == ("prefix", "[R] (b)", "none (a)")


def test_without_a_pair_there_is_no_effect():
    outcomes = [outcome("a", 0, x="1", y="1"), outcome("b", 0.1, x="2", y="2")]
    with pytest.raises(ValueError, match="differ in exactly one component: a, b"):
        component_effects(outcomes)
    with pytest.raises(ValueError, match="outcomes of one task"):
        component_effects([])


@pytest.fixture
def series(make_checkpoint, tmp_path):
    """Two trainings: the second has another learning rate and a checkpoint more."""
    for name, rate, steps in (("a", 0.001, (10,)), ("b", 0.003, (10, 20))):
        for step in steps:
            make_checkpoint(tmp_path / name / f"checkpoint-{step}", seed=int(rate * 1e4) + step)
        settings = {"learning_rate": rate, "steps": 20}
        facts = {"objective": "UL2", "settings": settings, "seconds": step}
        (tmp_path / name / "training.json").write_text(json.dumps(facts))
    return tmp_path


def test_trainings_are_read_without_their_outcomes(series):
    first, second = find_trainings(series)
    assert dict(first.components) == {"objective": "UL2", "learning_rate": "0.001", "steps": "20"}
    assert second.difference(first) == "learning_rate"
    shutil.rmtree(series / "b")
    with pytest.raises(CheckpointError, match="expected two or more folders.*; got 1"):
        find_trainings(series)


@pytest.mark.integration
def test_the_last_checkpoints_are_evaluated_and_reused(series, tmp_path):
    trainings = find_trainings(series)
    outcomes = ablate_trainings(trainings, output=tmp_path / "r", device="cpu")
    assert {o.result.task.key for o in outcomes} == {"PyDocsSampleRetrieval"}
    assert outcomes[1].result.model.spec.endswith("b/checkpoint-20")
    (effect,) = component_effects(outcomes)
    means = [o.result.main.value for o in outcomes]
    assert effect.estimate.difference == pytest.approx(means[1] - means[0])
    again = ablate_trainings(trainings, output=tmp_path / "r", device="cpu")
    assert [o.result.finished for o in again] == [o.result.finished for o in outcomes]
