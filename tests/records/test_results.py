"""A collection of records."""

import math
from dataclasses import replace

import pytest
from helpers.records import make, tier_records

from qwen3nb.records.results import Results, richest_tier
from qwen3nb.records.store import load_results
from qwen3nb.tiers import TIERS


@pytest.fixture
def results():
    return Results(
        [
            make("bm25", task="PyDocsSampleRetrieval", scores=(0.0, 1.0)),
            make("mini", task="PyDocsSampleRetrieval", scores=(0.5, 1.0)),
            make("mini", task="SciFact", scores=(0.25, 0.75)),
        ]
    )


def test_it_is_a_sequence_that_names_its_models_and_tasks(results):
    assert len(results) == 3
    assert [each.model.label for each in results] == ["bm25", "mini", "mini"]
    assert results[0].model.label == "bm25"
    assert isinstance(results[1:], Results)
    assert results == list(results)
    assert not Results()
    assert results.models == ("bm25", "mini")
    assert results.tasks == ("PyDocsSampleRetrieval", "SciFact")
    assert repr(results).startswith("<Results: 3 records; models bm25, mini; tasks")
    assert repr(Results()) == "<Results: no records>"
    hostile = Results([make("<script>alert(1)</script>")])
    assert "<script>" not in hostile._repr_html_()
    assert "m3 and 2 more" in repr(Results(make(f"m{i}") for i in range(6)))


def test_filters_narrow_together(results):
    assert results.filter(model="mini").tasks == ("PyDocsSampleRetrieval", "SciFact")
    assert results.filter(model="mini", tier="smoke").tasks == ("PyDocsSampleRetrieval",)
    assert len(results.filter(task=["SciFact", "PyDocsSampleRetrieval"])) == 3
    assert len(results.filter(model=results[0].model.identity[:8])) == 1
    assert len(results.filter()) == 3
    made = replace(results[2], config={"tier": "full"})
    assert Results([made]).filter(tier="full") == [made]


@pytest.mark.parametrize(
    ("condition", "choice"),
    [({"model": "minni"}, "mini"), ({"task": "scifact"}, "SciFact"), ({"tier": "huge"}, "smoke")],
)
def test_a_mistyped_condition_lists_the_choices(results, condition, choice):
    with pytest.raises(ValueError, match=choice):
        results.filter(**condition)


def test_the_frame_has_a_row_per_record_with_its_interval(results):
    frame = results.to_frame()
    assert list(frame.model) == ["bm25", "mini", "mini"]
    assert list(frame.value) == [0.5, 0.75, 0.5]
    assert (frame.low <= frame.value).all()
    assert (frame.value <= frame.high).all()
    assert set(frame.metric) == {"nDCG@10"}
    assert list(Results().to_frame().columns) == list(frame.columns)
    undefined = replace(results[0].metrics["nDCG@10"], value=None, low=None, high=None)
    two = replace(results[0], metrics={"nDCG@10": undefined, "MRR@10": undefined})
    assert math.isnan(Results([two, results[1]]).to_frame().value[0])
    assert list(Results([two]).to_frame(all_metrics=True).metric) == ["nDCG@10", "MRR@10"]


def test_loading_gives_a_collection(home, results):
    for each in results:
        each.save()
    loaded = load_results()
    assert isinstance(loaded, Results)
    assert sorted(each.task.name for each in loaded) == sorted(each.task.name for each in results)
    assert set(loaded.filter(tier="smoke").tasks) <= set(TIERS["smoke"].tasks)


def test_the_richest_tier_is_the_largest_with_all_of_its_tasks_or_a_run_of_it():
    assert richest_tier([]) == "smoke"
    assert richest_tier([make("m")]) == "smoke"
    assert richest_tier(tier_records("m", tier="fast")) == "fast"
    one = make("m", task="SciFact", config={"tier": "full"})
    assert richest_tier([one]) == "full"
    # Where no tier is complete, the smallest with results.
    partial = tier_records("m", tier="fast")[1:]
    assert richest_tier(partial) == "fast"
    assert richest_tier([*partial, make("m")]) == "smoke"
    named = make("m", task="SciFact", config={"tier": "full", "tasks": "SciFact"})
    assert richest_tier([named]) == "fast"  # not "full", of which it is no run
    assert richest_tier([make("m", task="no tier's")]) == "smoke"
