import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb import evaluate as mteb_evaluate
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.models.load import load_model
from qwen3nb.records.errors import ResultError
from qwen3nb.records.record import SCHEMA, Result
from qwen3nb.records.side_files import named_files
from qwen3nb.records.store import load_failures, result_files, verify, verify_files
from qwen3nb.tiers import TIERS


@pytest.fixture(scope="module")
def random_results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    model = load_model("random", cache=False, show_progress=False)
    return folder, evaluate(model, tier="smoke", output=folder, show_progress=False)


def test_every_task_of_the_tier_has_a_record_that_holds(random_results):
    folder, done = random_results
    assert [result.task.name for result in done.results] == list(TIERS["smoke"].tasks)
    files = result_files(folder)
    assert len(files) == 5
    assert verify_files(files) == {}
    for file in files:
        stored = Result.load(file)
        assert verify(stored) == []
        assert stored.main.n > 0
        assert stored.environment.versions["mteb"] != "not installed"
        assert stored.cost.seconds > 0
        # Every file parses as strict JSON.
        json.loads(file.read_text(), parse_constant=pytest.fail)
    assert list((folder / "mteb").rglob("PyDocsSampleRetrieval.json"))


def test_finished_tasks_are_not_run_again(random_results, monkeypatch):
    folder, done = random_results
    model = load_model("random", cache=False, show_progress=False)
    monkeypatch.setattr("mteb.evaluate", lambda *_, **__: pytest.fail("ran again"))
    again = evaluate(model, tier="smoke", output=folder, show_progress=False)
    assert again.reused == TIERS["smoke"].tasks
    assert again.results == done.results


def test_another_seed_is_another_model_and_place(random_results):
    folder, _ = random_results
    model = load_model("random", seed=1, cache=False, show_progress=False)
    other = evaluate(
        model, tasks=[embedded_task("AuthorSTS")], seed=1, output=folder, show_progress=False
    )
    assert other.reused == ()
    assert other.results[0].path(folder).parent.name == "seed_1"
    (folder / other.results[0].path(folder)).unlink()


def test_bm25_does_what_it_can_and_the_rest_is_named(tmp_path):
    done = evaluate(load_model("bm25"), tier="smoke", output=tmp_path, show_progress=False)
    assert [result.task.type for result in done.results] == ["Retrieval", "Reranking"]
    assert set(done.skipped) == {
        "PyDocsSampleClassification",
        "PyDocsSampleClustering",
        "AuthorSTS",
    }
    assert done.results[0].main.value > 0.4
    assert done.results[0].model.settings["k1"] == 1.5


def test_a_task_that_fails_is_recorded_and_the_others_go_on(tmp_path, monkeypatch):
    broken = embedded_task("PyDocsSampleRetrieval")

    def explode(*_, **__):
        raise RuntimeError("no such data")

    monkeypatch.setattr(broken, "load_data", explode)
    model = load_model("random", cache=False, show_progress=False)
    tasks = [broken, embedded_task("AuthorSTS")]
    with pytest.raises(
        EvaluationError, match=r"1 of 2 tasks failed.*\n.*RuntimeError: no such data"
    ):
        evaluate(model, tasks=tasks, output=tmp_path, show_progress=False)
    assert [file.stem for file in result_files(tmp_path)] == ["AuthorSTS"]
    failures = load_failures(tmp_path)
    assert list(failures.values()) == ["RuntimeError: no such data"]
    # Once it works, the failure is forgotten.
    fixed = [embedded_task("PyDocsSampleRetrieval")]
    evaluate(model, tasks=fixed, output=tmp_path, show_progress=False)
    assert load_failures(tmp_path) == {}


def test_nan_vectors_give_an_error_and_no_number(tmp_path, monkeypatch):
    """mteb by itself scored all-NaN vectors with an nDCG of 0.82."""
    model = load_model("random", cache=False, show_progress=False)
    monkeypatch.setattr(model, "_embed", lambda texts: np.full((len(texts), 128), np.nan, "f4"))
    with pytest.raises(EvaluationError, match="is not finite"):
        evaluate(model, tasks=[embedded_task("AuthorSTS")], output=tmp_path, show_progress=False)
    assert result_files(tmp_path) == []


def test_two_implementations_that_disagree_give_no_number(tmp_path, monkeypatch):
    from qwen3nb.evaluation.mteb import per_query

    scored = per_query.score_run
    monkeypatch.setattr(
        per_query,
        "score_run",
        lambda *a, **b: {m: dict.fromkeys(v, 0.5) for m, v in scored(*a, **b).items()},
    )
    with pytest.raises(EvaluationError, match="MTEB's ndcg_at_10 is .* differ by more than 1e-5"):
        evaluate(
            load_model("bm25"),
            tasks=[embedded_task("PyDocsSampleRetrieval")],
            output=tmp_path,
            show_progress=False,
        )


@pytest.fixture
def record(random_results, tmp_path):
    """A copy of one record, to be spoiled."""
    folder, _ = random_results
    source = next(file for file in result_files(folder) if file.stem == "PyDocsSampleRetrieval")
    target = tmp_path / source.relative_to(folder)
    target.parent.mkdir(parents=True)
    for file in (*named_files(source), source):
        shutil.copy(file, target.with_name(file.name))
    return target


@pytest.fixture
def whole(record):
    """The same with its per-query scores inside, as earlier schemas had them."""
    record.write_text(json.dumps(Result.load(record).in_one_file()))
    return record


def spoil(file, change):
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))
    return "; ".join(verify_files([file]).get(file, []))


def test_verify_finds_what_does_not_follow(record):
    def better(value):
        value["metrics"]["nDCG@10"]["value"] += 0.01

    assert "nDCG@10: value is" in spoil(record, better)


def test_verify_finds_a_changed_score(whole):
    def change(value):
        scores = value["per_query"]["MRR@10"]
        scores[next(iter(scores))] = 0.77

    assert "MRR@10: value is" in spoil(whole, change)


def test_verify_finds_a_dropped_query(whole):
    def drop(value):
        scores = value["per_query"]["Recall@10"]
        del scores[next(iter(scores))]

    assert "Recall@10: n is 200, per-query scores give 199" in spoil(whole, drop)


def test_verify_finds_a_narrowed_interval_and_another_models_folder(record):
    def narrow(value):
        value["metrics"]["nDCG@10"]["low"] += 1e-4

    assert "nDCG@10: low is" in spoil(record, narrow)

    def other(value):
        value["model"]["identity"] = "0" * 64

    assert "another identity" in spoil(record, other)


def test_an_unreadable_record_is_named(record):
    text = record.read_text()
    for content, cause in (
        (text[:100], "not a result record"),
        (text.replace(SCHEMA, "qwen3nb.result/9"), "schema is 'qwen3nb.result/9'"),
        ("[]", "schema is 'list'"),
    ):
        record.write_text(content)
        with pytest.raises(ResultError, match=rf"PyDocsSampleRetrieval\.json.*{cause}"):
            Result.load(record)
        assert verify_files([record])


def test_names_that_would_leave_the_folder_are_refused(random_results):
    result = random_results[1].results[0]
    outside = replace(result, model=replace(result.model, label="../../etc"))
    with pytest.raises(ResultError, match="file name; use letters"):
        outside.path()


def test_predictions_stay_in_memory_as_they_were_when_mteb_kept_them(tmp_path):
    task, run = embedded_task("PyDocsSampleRetrieval"), {"q": {"q": 1.0, "d": 0.1 + 0.2}}
    with mteb_evaluate._predictions(task) as kept:
        folder = tmp_path / "predictions"
        task._save_task_predictions(run, None, folder, hf_split="test", hf_subset="default")
        del run["q"]["q"]  # as MTEB does when it scores
    assert kept == {"default": {"test": {"q": {"q": 1.0, "d": 0.1 + 0.2}}}}
    assert not folder.exists()
    assert "_save_task_predictions" not in vars(task)
