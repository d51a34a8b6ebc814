"""Trainings of several seeds: found in records, and compared."""

from types import SimpleNamespace

import numpy as np
import pytest

from qwen3nb.analysis.comparison.arm_differences import (
    ArmProcedure,
    Claim,
    PromptRole,
    compare_arms,
)
from qwen3nb.analysis.comparison.arms import choose_arm, find_arms, training_and_seed
from qwen3nb.analysis.comparison.differences import paired_difference
from tests.helpers.records import amend, make, state

GENERATOR = np.random.default_rng(5)
HARDNESS = GENERATOR.uniform(0.2, 0.6, 60)


def trained(name, seeds, gain=0.0, *, spread=0.002, **fields):
    """Records of a training, whose seeds score alike but for ``spread`` and noise."""
    of_training = GENERATOR.normal(gain, 0.05, 60)
    records = []
    for seed in seeds:
        quality = GENERATOR.normal(0, spread)
        scores = HARDNESS + of_training + quality + GENERATOR.normal(0, 0.02, 60)
        records.append(make(f"{name}-seed_{seed}", scores.clip(0, 1), **fields))
    return records


def compared(records, *names, **options):
    arms = [choose_arm(records, name) for name in names]
    differences, notes = compare_arms(records, arms, ArmProcedure(draws=500), **options)
    return differences, notes


@pytest.mark.parametrize(
    ("label", "spec", "expected"),
    [
        ("demo-seed_7", "", ("demo", "7")),
        ("demo-seed7-checkpoint-40", "", ("demo-checkpoint-40", "7")),
        ("enc.seed=03", "", ("enc", "3")),
        ("seed_1-checkpoint-90", "runs/a/seed_1/checkpoint-90", ("a-checkpoint-90", "1")),
        ("reseeded-model", "", None),
        ("bm25", "bm25", None),
    ],
)
def test_the_seed_is_read_from_the_label(label, spec, expected):
    record = SimpleNamespace(training=None, model=SimpleNamespace(label=label, spec=spec))
    assert training_and_seed(record) == expected


def test_an_adapter_states_its_training_and_seed():
    record = make("anything", config={"training": {"configuration": "joint_r8", "seed": 42}})
    assert training_and_seed(record) == ("joint_r8", "42")


def test_arms_are_found_and_sorted_by_the_number_of_the_seed():
    records = [*trained("a", (10, 9)), *trained("b", (1,)), make("bm25")]
    arms = find_arms(records)
    assert list(arms) == ["a"]
    assert arms["a"].seeds == ("9", "10")
    assert choose_arm(records, "b").seeds == ("1",)


def test_an_arm_is_named_by_a_pattern_or_a_list_of_labels():
    records = [make("x1"), make("x2"), make("bm25")]
    assert choose_arm(records, "x*").seeds == ("x1", "x2")
    listed = choose_arm(records, "X=x1+bm25")
    assert listed.name == "X"
    assert listed.seeds == ("bm25", "x1")
    with pytest.raises(ValueError, match="no label matches 'y\\*'; labels: bm25, x1, x2"):
        choose_arm(records, "y*")
    with pytest.raises(ValueError, match="unknown training or label 'y'"):
        choose_arm(records, "y")


def test_a_clear_difference_of_trainings_is_shown_for_new_seeds():
    records = [*trained("a", (1, 2, 3), 0.2), *trained("b", (1, 2, 3))]
    ((difference,), notes) = compared(records, "a", "b")
    assert notes == []
    assert difference.claim is Claim.TRAININGS
    assert difference.significant
    assert difference.first_seeds == difference.second_seeds == ("1", "2", "3")
    assert difference.difference == pytest.approx(0.2, abs=0.04)
    assert 2 <= difference.freedom <= 4


def test_seeds_that_vary_more_than_the_arms_differ_show_nothing():
    """The queries alone would claim a difference."""
    records = []
    for name, qualities in (("a", (0.3, 0.0)), ("b", (0.1, 0.0))):
        for seed, quality in enumerate(qualities):
            noise = GENERATOR.normal(0, 0.02, 60)
            records.append(make(f"{name}-seed_{seed}", (HARDNESS + quality + noise).clip(0, 1)))
    ((difference,), _) = compared(records, "a", "b")
    assert difference.of_queries < 0.01
    assert not difference.significant
    assert difference.from_seeds > 0.9


def test_two_single_models_are_compared_as_on_every_page():
    records = [make("x", HARDNESS), make("y", HARDNESS**2)]
    ((difference,), _) = compared(records, "x", "y")
    columns = {record.model.label: record.per_query["nDCG@10"] for record in records}
    known = paired_difference(columns, draws=500, seed=0)
    assert difference.claim is Claim.MODELS
    assert (difference.interval, difference.p_value) == (known.interval, known.p_value)
    assert difference.freedom is None


def test_an_arm_may_be_one_model():
    records = [*trained("a", (1, 2, 3), 0.2), make("bm25", HARDNESS)]
    ((difference,), _) = compared(records, "a", "bm25")
    assert difference.claim is Claim.FIRST
    assert difference.freedom == 2
    assert difference.by_seed[1] == (pytest.approx(HARDNESS.mean()),)


def test_p_values_are_corrected_over_all_pairs():
    records = [*trained("a", (1, 2), 0.2), *trained("b", (1, 2)), make("bm25", HARDNESS)]
    differences, _ = compared(records, "a", "b", "bm25")
    assert [difference.family for difference in differences] == [3, 3, 3]
    smallest = min(difference.p_value for difference in differences)
    assert min(difference.corrected for difference in differences) == min(1, 3 * smallest)


def test_two_seeds_with_the_same_scores_count_as_one_model():
    records = [make("a-seed_1", HARDNESS), make("a-seed_2", HARDNESS), make("bm25", HARDNESS**2)]
    ((difference,), notes) = compared(records, "a", "bm25")
    assert difference.claim is Claim.MODELS
    assert notes == [
        "PyDocsSampleRetrieval: seed 2 of a scores as seed 1 on every query, and they count as "
        "one model"
    ]


def test_a_model_in_two_arms_is_refused():
    records = trained("a", (1, 2))
    with pytest.raises(ValueError, match="a-seed_1 is in a and in a-seed_1"):
        compared(records, "a", "a-seed_1")


def test_a_seed_without_scores_on_a_task_is_left_out_there():
    records = [*trained("a", (1, 2)), *trained("b", (1, 2))]
    for record in records[:3]:
        other = make(record.model.label, HARDNESS, task="Other")
        records.append(other)
    differences, _ = compared(records, "a", "b")
    seeds = {difference.task: difference.second_seeds for difference in differences}
    assert seeds == {"Other": ("1",), "PyDocsSampleRetrieval": ("1", "2")}


def with_prompt(record, name, shift):
    """The record of a model with a prompt of a set."""
    scores = np.array([*record.per_query["nDCG@10"].values()]) + shift
    label = record.model.label
    prompted = make(label, scores.clip(0, 1), identity=f"{label} {name}")
    state(prompted, prompt={"name": name, "text": f"{name}: ", "of": record.model.identity})
    return prompted


def test_prompts_of_a_set_are_averaged_and_may_be_a_sample():
    records = [*trained("a", (1, 2, 3), 0.2), *trained("b", (1, 2, 3))]
    prompted = []
    for record in records:
        is_first = record.model.label.startswith("a")
        for name, shift in (("p0", 0.0), ("p1", 0.06), ("p2", -0.06)):
            prompted.append(with_prompt(record, name, shift if is_first else -shift))
    found = {}
    for role in (PromptRole.FIXED, PromptRole.SAMPLE):
        arms = [choose_arm(records, name) for name in "ab"]
        procedure = ArmProcedure(draws=200, prompts=role)
        ((found[role],), _) = compare_arms(records, arms, procedure, prompt_records=prompted)
    fixed, sample = found[PromptRole.FIXED], found[PromptRole.SAMPLE]
    assert fixed.prompts == ("p0", "p1", "p2")
    assert fixed.difference == pytest.approx(sample.difference)
    assert fixed.significant
    assert not sample.significant  # with other prompts, the order may turn
    assert sample.interval[0] < fixed.interval[0]


def test_clusters_of_queries_count_together():
    records = [*trained("a", (1, 2), 0.2), *trained("b", (1, 2))]
    for record in records:
        amend(record, "task", clusters={f"q{i}": f"c{i // 6}" for i in range(60)})
    ((difference,), _) = compared(records, "a", "b")
    assert difference.units == 10
