"""A collection of records."""

import math
from dataclasses import replace

import pytest
from helpers.records import make

from qwen3nb.records.results import Results
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


def test_it_is_a_sequence(results):
    assert len(results) == 3
    assert [each.model.label for each in results] == ["bm25", "mini", "mini"]
    assert results[0].model.label == "bm25"
    assert isinstance(results[1:], Results)
    assert results == list(results)
    assert not Results()


def test_models_and_tasks_are_named_once(results):
    assert results.models == ("bm25", "mini")
    assert results.tasks == ("PyDocsSampleRetrieval", "SciFact")


def test_filters_narrow_together(results):
    assert results.filter(model="mini").tasks == ("PyDocsSampleRetrieval", "SciFact")
    assert results.filter(model="mini", tier="smoke").tasks == ("PyDocsSampleRetrieval",)
    assert len(results.filter(task=["SciFact", "PyDocsSampleRetrieval"])) == 3
    assert len(results.filter(model=results[0].model.identity[:8])) == 1
    assert len(results.filter()) == 3


def test_a_tier_keeps_what_its_run_made(results):
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


def test_an_undefined_value_is_missing_in_the_frame(results):
    undefined = replace(results[0].metrics["nDCG@10"], value=None, low=None, high=None)
    record = replace(results[0], metrics={"nDCG@10": undefined})
    assert math.isnan(Results([record, results[1]]).to_frame().value[0])


def test_all_metrics_are_rows_too(results):
    one = results[0]
    two = replace(one, metrics=one.metrics | {"MRR@10": one.metrics["nDCG@10"]})
    assert list(Results([two]).to_frame(all_metrics=True).metric) == ["nDCG@10", "MRR@10"]


def test_the_repr_lists_models_and_tasks(results):
    assert repr(results).startswith("<Results: 3 records; models bm25, mini; tasks")
    assert repr(Results()) == "<Results: no records>"
    many = Results(make(f"m{i}") for i in range(6))
    assert "m3 and 2 more" in repr(many)


def test_hostile_labels_are_escaped_in_a_notebook():
    shown = Results([make("<script>alert(1)</script>")])._repr_html_()
    assert "<script>" not in shown


def test_loading_gives_a_collection(home, results):
    for each in results:
        each.save()
    loaded = load_results()
    assert isinstance(loaded, Results)
    assert sorted(each.task.name for each in loaded) == sorted(each.task.name for each in results)
    assert set(loaded.filter(tier="smoke").tasks) <= set(TIERS["smoke"].tasks)
