"""The tier that is shown unless another is named."""

from helpers.records import make, tier_records

from qwen3nb.records.results import richest_tier


def test_a_run_of_a_tier_or_all_of_its_tasks_count_as_its_results():
    assert richest_tier([]) == "smoke"
    assert richest_tier([make("m")]) == "smoke"
    assert richest_tier(tier_records("m", tier="fast")) == "fast"
    one = make("m", task="SciFact", config={"tier": "full"})
    assert richest_tier([one]) == "full"


def test_where_no_tier_is_complete_the_smallest_with_results_is_shown():
    partial = tier_records("m", tier="fast")[1:]
    assert richest_tier(partial) == "fast"
    assert richest_tier([*partial, make("m")]) == "smoke"
    named = make("m", task="SciFact", config={"tier": "full", "tasks": "SciFact"})
    assert richest_tier([named]) == "fast"  # not "full", of which it is no run
    assert richest_tier([make("m", task="no tier's")]) == "smoke"
