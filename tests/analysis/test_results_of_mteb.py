"""Results as MTEB publishes them: older formats, undefined splits, experiments."""

import json
import math

import pytest

from qwen3nb.analysis.inventory.collect import load_all_results


def put(folder, task, **content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{task}.json").write_text(json.dumps(content))
    (folder / "model_meta.json").write_text(json.dumps({"name": "lab/m", "revision": "1"}))


def entries(**splits):
    return {
        split: [{"hf_subset": "default", "languages": ["eng-Latn"], "main_score": value}]
        for split, value in splits.items()
    }


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "r/lab__m/1"


def test_results_are_read_outside_a_study(folder, tmp_path, monkeypatch):
    for name in ("HOME", "RESULTS"):
        monkeypatch.delenv(f"QWEN3NB_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    put(folder, "SciFact", task_name="SciFact", dataset_revision="a", scores=entries(test=0.71))
    found = load_all_results(folder.parents[1])
    assert [score.value for score in found.scores] == [0.71]


def test_an_undefined_split_leaves_the_others(folder):
    scores = entries(validation=0.4, test=math.nan)
    put(folder, "AFQMC", task_name="AFQMC", dataset_revision=None, scores=scores)
    found = load_all_results(folder.parents[1])
    assert found.flags == ()
    assert {score.task: score.value for score in found.scores} == {
        "AFQMC/validation": 0.4,
        "AFQMC/test": None,
    }
    assert {score.revision for score in found.scores} == {""}


def test_the_format_before_1_11_is_named(folder):
    put(folder, "STSBenchmark", mteb_dataset_name="STSBenchmark", test={"main_score": 0.8})
    found = load_all_results(folder.parents[1])
    assert found.scores == ()
    assert ["STSBenchmark" in flag.text for flag in found.flags] == [True]


def test_experiments_are_other_settings_of_a_model(folder):
    put(folder, "SciFact", task_name="SciFact", dataset_revision="a", scores=entries(test=0.71))
    other = folder / "experiments/variant_a"
    put(other, "SciFact", task_name="SciFact", dataset_revision="a", scores=entries(test=0.7))
    found = load_all_results(folder.parents[1])
    assert found.flags == ()
    assert {score.system: score.value for score in found.scores} == {
        "lab/m": 0.71,
        "lab/m (variant_a)": 0.7,
    }


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ({}, "scores: Dictionary should have at least 1 item after validation, not 0; got {}"),
        (None, "scores: expected an object; got None"),
        ([0.5], "scores: expected an object; got [0.5]"),
        (
            {"test": []},
            "scores.test: List should have at least 1 item after validation, not 0; got []",
        ),
        ({"test": {"default": 0.5}}, "scores.test: expected a valid list; got {'default': 0.5}"),
        ({"test": [{"ndcg": 1}]}, "scores.test[0].main_score: is missing"),
        ({"test": [0.5]}, "scores.test[0]: expected fields of _Subset; got 0.5"),
    ],
)
def test_a_result_without_scores_is_flagged(folder, scores, reason):
    put(folder, "T", task_name="T", scores=scores)
    put(folder, "U", task_name="U", scores=entries(test=0.7))
    found = load_all_results(folder.parents[1])
    assert [score.task for score in found.scores] == ["U"]
    assert [(flag.kind, flag.text) for flag in found.flags] == [
        ("unreadable", f"{folder / 'T.json'}: {reason}")
    ]


def test_a_list_of_results_is_flagged(folder):
    put(folder, "U", task_name="U", scores=entries(test=0.7))
    (folder / "T.json").write_text("[]")
    alone = folder.parents[1] / "all.json"
    alone.write_text(json.dumps([{"task_name": "T", "scores": entries(test=0.7)}]))
    (alone.parent / "other.json").write_text("[1, 2]")  # of anything else
    found = load_all_results(folder.parents[1])
    expected = "expected an MTEB result, a JSON object; got a list"
    texts = {f"{file}: {expected}" for file in (alone, folder / "T.json")}
    assert {flag.text for flag in found.flags} == texts


def test_a_result_that_lost_its_scores_is_flagged(folder):
    put(folder, "T", task_name="T", mteb_version="2.1.0")
    found = load_all_results(folder.parents[1])
    assert ["scores: is missing" in f.text for f in found.flags] == [True]
