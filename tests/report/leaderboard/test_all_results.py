"""The file with all results of a folder."""

from dataclasses import replace

import pytest
from helpers.records import make

from qwen3nb.records.results import Results
from qwen3nb.records.store import load_results, verify
from qwen3nb.report.leaderboard.all_results import all_results, write_all_results
from qwen3nb.utils.atomic_files import read_json


def test_a_report_has_its_models_and_what_failed(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "a1B2c3D4e5F6")
    results = Results([make(task="T", scores=(0.2, 0.4)), make(task="U", scores=(0.6, 0.8))])
    failures = {"V": "not with a1B2c3D4e5F6"}
    value = all_results(results, requested="TUV", config={"tier": "x"}, failures=failures)
    assert value["config"] == {"tier": "x"}
    assert value["failures"] == {"V": "not with [removed]"}
    assert (value["model"], value["model_path"]) == ("m", "m")
    of_task = value["results"]["m"]["T"]
    assert of_task["metrics"]["nDCG@10"]["value"] == of_task["main_score"] == pytest.approx(0.3)
    summary = value["summary"]["m"]
    assert summary["by_type"] == {"Retrieval": 0.5}
    assert summary["over_tasks"] == 0.5
    assert summary["missing"] == {"V": "not run"}
    models = [make("m", settings={"pooling": pooling}) for pooling in ("cls", "mean")]
    value = all_results(models, config={}, failures={})  # of one label
    assert list(value["results"]) == list(value["summary"]) == ["m (cls)", "m (mean)"]
    assert value["model"] == "m (cls)"


def test_one_file_has_all_models_of_the_folder(home):
    """Whoever writes it, and however often; the model of the newest record comes first."""
    folder = home / "results"
    for number, name in enumerate(("one", "two", "three")):
        make(name, config={"tier": name}, finished=f"2026-01-0{5 - number}").save()
        make(name, task="U", scores=(0.1, 0.3), finished="2025-01-01").save()
        assert write_all_results() == folder / "all_results.json"
    (folder / "one-1a" / "seed_0").mkdir(parents=True)
    (folder / "one-1a" / "seed_0" / "V.error.txt").write_text("Traceback\nOSError: no data\n")
    value = read_json(write_all_results())
    assert list(value["results"]) == ["one", "three", "two"]
    assert all(set(tasks) == {"PyDocsSampleRetrieval", "U"} for tasks in value["results"].values())
    assert [each["over_tasks"] for each in value["summary"].values()] == pytest.approx([0.35] * 3)
    assert (value["model"], value["config"]) == ("one", {"tier": "one"})
    assert value["failures"] == {"one-1a seed_0 V": "OSError: no data"}
    assert len(load_results()) == 6
    assert verify() == []


def test_the_newest_record_of_a_task_counts_and_an_older_file_is_no_problem(home):
    first = make("m", scores=(0.1, 0.3))
    for seed, finished in ((1, "2026-01-02"), (0, "2026-01-01")):
        replace(first, seed=seed, finished=finished).save()
    value = read_json(write_all_results())
    assert "seed_1" in value["results"]["m"]["PyDocsSampleRetrieval"]["record"]
    make("m", scores=(0.7, 0.9), seed=1, finished="2026-01-03").save()
    make("new").save()
    assert verify() == []
