"""The record: its schema, the previous schema, its repr."""

import json
from dataclasses import replace

import pytest
from helpers.records import amend, make

from qwen3nb.records.errors import ResultError
from qwen3nb.records.record import Environment, MTEBScore, Result


def test_a_record_is_read_back_as_it_was_written(tmp_path):
    result = make(scores=(0.1, 0.2, 0.4))
    amend(result, "task", size={"documents": 5, "queries": 3}, mteb=MTEBScore("ndcg_at_10", 0.25))
    amend(result, "task", splits=("test",), subsets=("en",), languages=("eng-Latn",))
    assert Result.load(result.save(tmp_path)) == result


def test_the_repr_shows_model_task_and_score():
    result = make("mini", task="SciFact", scores=(0.0, 1.0))
    assert repr(result).startswith("<Result mini on SciFact: nDCG@10 0.500 [")
    assert repr(result).endswith("n = 2 queries>")
    undefined = replace(result.main, value=None, low=None, high=None)
    assert "undefined" in repr(replace(result, metrics={"nDCG@10": undefined}))


def test_the_environment_names_versions_and_device():
    here = Environment.current(device="cuda:0", precision="bfloat16")
    assert here.linear == ""
    assert (here.device, here.precision) == ("cuda:0", "bfloat16")
    assert here.versions["numpy"].startswith("2")
    assert here.python.startswith("3")


@pytest.mark.parametrize("name", ["../../../out", "a/b", "/out", "..", ".hidden", ""])
@pytest.mark.parametrize("part", ["label", "task"])
def test_no_label_and_no_task_leaves_the_folder_of_results(tmp_path, part, name):
    folder, before = tmp_path / "study" / "results", sorted(tmp_path.rglob("*"))
    result = make(name) if part == "label" else make(task=name)
    with pytest.raises(ResultError):
        result.save(folder)
    assert sorted(tmp_path.rglob("*")) == before
    file = make().save(folder)
    value = json.loads(file.read_text())
    value["config"]["runs"] = {f"{name}.trec": "0" * 64}
    file.write_text(json.dumps(value))
    with pytest.raises(ResultError, match="config.runs"):
        Result.load(file)
