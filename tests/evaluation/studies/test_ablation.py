import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from helpers.records import make

from qwen3nb.analysis.comparison.ablation_effects import component_effects, effects
from qwen3nb.answers.ablation import Ablation
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.evaluation.studies.ablation import (
    TrainingVariant,
    Variant,
    VariantResult,
    ablate,
    ablate_trainings,
    find_trainings,
    variants,
)
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.record import ModelInfo, Result, TaskInfo

BASE = np.linspace(0.1, 0.5, 40)


def test_every_combination_the_reference_first():
    combinations = variants(poolings=["last", "mean"], averages=[1, 3])
    assert len(combinations) == len(set(combinations)) == 16
    assert combinations[0] == Variant("last", "last", "plain", "unit")
    assert combinations[-1] == Variant("mean", "mean of last 3", "[R] … EOS", "kept")
    assert combinations[-1].name == "mean, mean of last 3, [R] … EOS, kept"
    assert len(variants(prefix="", append_eos=False, normalization=False, averages=[1])) == 4
    with pytest.raises(ValueError, match="unknown pooling 'max'"):
        variants(poolings=["max"])
    with pytest.raises(ValueError, match="expected positive numbers of checkpoints"):
        variants(averages=[0])


def outcome(variant, scores):
    per_query = {"nDCG@10": {f"q{i}": float(score) for i, score in enumerate(scores)}}
    return VariantResult(
        variant,
        Result(
            model=ModelInfo(label="m", identity=variant.name),
            task=TaskInfo(name="T", type="Retrieval", main_metric="nDCG@10"),
            metrics={"nDCG@10": aggregate(per_query, how="mean", columns=("nDCG@10",))},
            per_query=per_query,
            seed=0,
            run="r",
            finished="2026-01-01",
        ),
    )


def made(base, *, pooling=0.0, around=0.0, both=0.0):
    """Outcomes with known effects of last pooling, of the added tokens, and of both."""
    outcomes = []
    for variant in variants(poolings=["mean", "last"], averages=[1], normalization=False):
        last, wrapped = variant.pooling == "last", variant.around != "plain"
        outcomes.append(
            outcome(variant, base + pooling * last + around * wrapped + both * last * wrapped)
        )
    return outcomes


def test_an_effect_is_averaged_over_the_other_options():
    base = np.linspace(0.1, 0.5, 60)
    by_factor = {each.factor: each for each in effects(made(base, pooling=0.1, both=0.2))}
    assert set(by_factor) == {"pooling", "around"}
    assert by_factor["pooling"].estimate.difference == pytest.approx(0.1 + 0.2 / 2)
    assert by_factor["around"].estimate.difference == pytest.approx(0.2 / 2)
    assert by_factor["pooling"].settings == 2
    assert (by_factor["pooling"].level, by_factor["pooling"].reference) == ("last", "mean")
    assert by_factor["pooling"].p_value == pytest.approx(2 / 10_001)  # the smallest, times Holm's 2


def test_effects_are_of_one_task_with_scores_per_query():
    first, *rest = made(np.full(5, 0.3))
    other = replace(first.result, task=replace(first.result.task, name="U"))
    with pytest.raises(ValueError, match="outcomes of one task"):
        effects([VariantResult(first.variant, other), *rest])


@pytest.mark.integration
def test_variants_on_a_real_task(make_checkpoint, tmp_path):
    """Records are kept apart from the leaderboard's; a second call runs nothing."""
    for step in (10, 20):
        make_checkpoint(tmp_path / "training" / f"checkpoint-{step}", seed=step)
    selected = variants(poolings=["mean"], averages=[1, 2], prefix="[R]")[::3]
    first, again = (
        ablate(tmp_path / "training", selected, types="STS", show_progress=False) for _ in range(2)
    )
    assert [each.variant for each in first] == selected
    assert len({each.result.model.identity for each in first}) == len(selected) == 3
    assert [each.result.run for each in again] == [each.result.run for each in first]
    folders = (tmp_path / "home" / "results" / "ablation").glob("*/seed_0/AuthorSTS.json")
    assert len(list(folders)) == 3
    assert not list((tmp_path / "home" / "results").glob("*/seed_0/*.json"))


@pytest.mark.integration
def test_a_mean_is_named_by_the_checkpoints_that_there_are(make_checkpoint, tmp_path):
    for step in (10, 20):
        make_checkpoint(tmp_path / "training" / f"checkpoint-{step}", seed=step)
    selected = variants(
        poolings=["mean"], averages=[1, 2, 3], prefix="", append_eos=False, normalization=False
    )
    outcomes = ablate(tmp_path / "training", selected, types="STS", show_progress=False)
    assert [each.variant.weights for each in outcomes] == ["last", "mean of last 2"]


def test_a_model_at_the_floor_is_stated_to_be(tmp_path):
    low = np.random.default_rng(0).uniform(0, 0.03, 60)
    text = "The model is at the floor: no setting averages 0.05 or more"
    assert text in str(Ablation({"T": effects(made(low, pooling=0.001))}, {}).conclusion)
    higher = effects(made(low + 0.1, pooling=0.001))
    assert "floor" not in str(Ablation({"T": higher}, {}).conclusion)


def trained(name, shift, **components):
    training = TrainingVariant(name, None, {"objective": "UL2", **components})
    return VariantResult(training, make(name, scores=(BASE + shift).tolist()))


def test_every_pair_that_differs_in_one_component_is_an_effect():
    outcomes = [
        trained("base", 0.0, mixing="4", seed="0"),
        trained("even", 0.1, mixing="1", seed="0"),
        trained("even-2", 0.08, mixing="1", seed="1"),  # differs from base in two
        trained("same", 0.3, mixing="1", seed="0"),  # differs from even in nothing
    ]
    measured = component_effects(outcomes)
    shown = {(e.factor, e.level, e.reference): e.estimate.difference for e in measured}
    assert shown == {
        ("mixing", "1 (even)", "4 (base)"): pytest.approx(0.1),
        ("mixing", "1 (same)", "4 (base)"): pytest.approx(0.3),
        ("seed", "1 (even-2)", "0 (even)"): pytest.approx(-0.02),
        ("seed", "0 (same)", "1 (even-2)"): pytest.approx(0.22),
    }
    assert [each.p_value for each in measured] == [pytest.approx(4 / 10_001)] * 4  # Holm over 4
    answer = Ablation({"T": measured}, {}, kind="components")
    assert [row[0].text for row in answer.table().rows] == [e.factor for e in measured]
    assert "mixing: 1 (even)" in answer.figure().alt


def test_trainings_of_several_seeds_are_compared_over_them():
    outcomes = [
        trained("base", 0.0, mixing="4", seed="0"),
        trained("base-2", 0.01, mixing="4", seed="1"),
        trained("even", 0.1, mixing="1", seed="0"),
        trained("even-2", 0.14, mixing="1", seed="1"),
        trained("tall", 0.2, mixing="9", seed="0"),  # one seed
    ]
    measured = component_effects(outcomes)
    shown = {(e.factor, e.level, e.reference): e for e in measured}
    assert list(shown) == [
        ("mixing", "1 (2 seeds)", "4 (2 seeds)"),
        ("mixing", "9 (tall)", "4 (2 seeds)"),
        ("mixing", "9 (tall)", "1 (2 seeds)"),
        ("seed", "1 (base-2)", "0 (base)"),
        ("seed", "1 (even-2)", "0 (even)"),
    ]
    effect = shown["mixing", "1 (2 seeds)", "4 (2 seeds)"]
    assert effect.estimate.difference == pytest.approx(0.115)
    # Seeds of 0.10 and 0.14 make it uncertain, although all queries agree.
    assert effect.p_value > 0.05
    assert {e.estimate.family for e in measured} == {5}


def test_a_component_that_one_training_lacks_is_a_difference():
    (effect,) = component_effects([trained("a", 0), trained("b", 0.1, prefix="[R]")])
    assert (effect.factor, effect.level, effect.reference) == ("prefix", "[R] (b)", "none (a)")


def test_without_a_pair_there_is_no_effect():
    outcomes = [trained("a", 0, x="1", y="1"), trained("b", 0.1, x="2", y="2")]
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
    options = {"output": tmp_path / "r", "device": "cpu", "max_length": 16}
    outcomes = ablate_trainings(trainings, **options)
    assert {o.result.task.key for o in outcomes} == {"PyDocsSampleRetrieval"}
    assert outcomes[1].result.model.spec.endswith("b/checkpoint-20")
    (effect,) = component_effects(outcomes)
    means = [o.result.main.value for o in outcomes]
    assert effect.estimate.difference == pytest.approx(means[1] - means[0])
    again = ablate_trainings(trainings, **options)
    assert [o.result.finished for o in again] == [o.result.finished for o in outcomes]
