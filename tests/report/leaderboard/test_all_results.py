"""The file with all results of a run."""

from helpers.records import make

from qwen3nb.records.results import Results
from qwen3nb.records.store import load_results
from qwen3nb.report.leaderboard.all_results import write_all_results
from qwen3nb.report.leaderboard.suite import summarise
from qwen3nb.utils.atomic_files import read_json


def test_a_run_has_one_file_and_a_stamped_copy(tmp_path):
    results = Results([make(task="T", scores=(0.2, 0.4)), make(task="U", scores=(0.6, 0.8))])
    summary = summarise(results, requested=["T", "U", "V"], reasons={"V": "no data"})
    options = {"config": {"tier": "x"}, "failures": {"V": "no data"}, "folder": tmp_path}
    copies = [write_all_results(results, [summary], **options)[1] for _ in "ab"]
    value = read_json(tmp_path / "all_results.json")
    assert len(set(copies)) == 2
    assert all(copy.parent == tmp_path / "summaries" for copy in copies)
    assert read_json(copies[1])["results"] == value["results"]
    assert value["config"] == {"tier": "x"}
    assert value["failures"] == {"V": "no data"}
    assert (value["model"], value["model_path"]) == ("m", "m")
    assert value["results"]["m"]["T"]["metrics"]["nDCG@10"]["value"] == 0.30000000000000004
    assert value["results"]["m"]["T"]["main_score"] == 0.30000000000000004
    summary = value["summary"]["m"]
    assert summary["by_type"] == {"Retrieval": 0.5}
    assert summary["over_tasks"] == 0.5
    assert summary["missing"] == {"V": "no data"}
    assert load_results(tmp_path) == []


def test_models_with_one_label_keep_their_scores_apart(tmp_path):
    models = [[make("m", settings={"pooling": pooling})] for pooling in ("cls", "mean")]
    write_all_results([*models[0], *models[1]], map(summarise, models), config={}, folder=tmp_path)
    value = read_json(tmp_path / "all_results.json")
    assert list(value["results"]) == ["m (cls)", "m (mean)"]
    assert value["model"] == "m (cls)"
