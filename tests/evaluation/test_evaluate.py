"""`qwen3nb.evaluate`: a model by its spec, on a tier, on tasks or on a collection."""

import json
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import mteb
import numpy as np
import pandas as pd
import pytest
from datasets import Dataset
from helpers.beir import write_words
from pytrec_eval import RelevanceEvaluator
from sentence_transformers import SentenceTransformer

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
from qwen3nb.datasets.trec import read_run
from qwen3nb.evaluation.evaluate import CollectionItem, evaluate
from qwen3nb.evaluation.mteb.select import limited
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.models.load import load_model
from qwen3nb.models.model import Model
from qwen3nb.models.types import SpecError
from qwen3nb.records.store import load_failures, load_results, verify


@pytest.mark.parametrize("spec", ["bm25", "random", "bm25+random"])
def test_a_collection_takes_the_place_of_tasks(beir, spec):
    with pytest.raises(SpecError, match="bm52"):
        evaluate("bm52", str(beir))
    run = evaluate(spec, TestCollection.from_beir(beir), show_progress=False)
    (result,) = run
    assert (result.model.label, result.task.name) == (load_model(spec).label, "words")
    assert result.model.identity == load_model(spec).identity
    assert verify(result) == []
    again = evaluate(spec, str(beir), show_progress=False)
    assert again.reused == ("words",)
    assert again.results[0].per_query == result.per_query


def test_a_record_of_a_race_is_measured_again_by_a_run_whose_tests_count(beir):
    raced = {"config": {"until_certain": "BEIR"}, "show_progress": False}
    evaluate("random", str(beir), **raced)
    assert evaluate("random", str(beir), **raced).reused == ("words",)
    assert load_results().unreadable
    assert evaluate("random", str(beir), show_progress=False).reused == ()
    assert not load_results().unreadable


def test_a_model_is_loaded_again_only_if_a_task_runs(beir, monkeypatch):
    first = evaluate("random", str(beir), show_progress=False)
    loads = []
    load = Model._load_checked
    monkeypatch.setattr(Model, "_load_checked", lambda self: loads.append(1) or load(self))
    assert evaluate("random", str(beir), show_progress=False).reused == first.results.tasks
    assert not loads
    assert evaluate("random", str(beir), fresh=True, show_progress=False).reused == ()
    assert evaluate("random", str(beir), prompts={"query": "q"}, strict=False, show_progress=False)
    assert len(loads) == 2


def test_data_and_tasks_exclude_each_other(beir):
    for options in ({"tasks": "AuthorSTS"}, {"limit": 5}):
        with pytest.raises(ValueError, match="expected either data, or tasks"):
            evaluate("bm25", beir, **options)


FRAME = pd.DataFrame({"id": ["a"], "text": ["sort a list"]})


@pytest.mark.parametrize(
    "data",
    [
        (FRAME, FRAME, FRAME),
        [FRAME, FRAME],
        FRAME,
        Dataset.from_pandas(FRAME),
        {"queries": FRAME, "documents": FRAME},
        [{"id": "a", "text": "sort a list"}],
    ],
)
def test_data_frames_alone_say_how_to_make_a_collection(home, data):
    written = (
        r"write q.evaluate\(model, q.TestCollection.from_texts\(queries, documents, judgements"
    )
    with pytest.raises(TypeError, match=written) as refused:
        evaluate("bm25", data)
    assert "\n" not in str(refused.value)
    assert "sort a list" not in str(refused.value)


def test_failures_are_kept_instead_of_raised(beir, tmp_path):
    with pytest.raises(EvaluationError) as error:
        evaluate("bm25", [tmp_path / "nowhere", beir], show_progress=False)
    assert [result.task.name for result in error.value.run] == ["words"]
    run = evaluate("bm25", [tmp_path / "nowhere", beir], strict=False, show_progress=False)
    assert run.reused == ("words",)
    assert list(run.failures) == [str(tmp_path / "nowhere")]
    assert "nowhere" in next(iter(run.reasons.values()))


class Lengths:
    """Any object with ``encode``."""

    def encode(self, texts):
        return [[float(len(text)), float(text.count("e")), 1.0] for text in texts]


def test_any_object_with_encode_is_evaluated_and_reused_by_its_fingerprint():
    options = {"tasks": "AuthorSTS", "show_progress": False}
    first = evaluate(Lengths(), **options)
    assert first.results[0].model.label == "Lengths"
    assert evaluate(Lengths(), **options).reused == ()
    named = {"label": "lengths", "fingerprint": "v1"}
    one = evaluate(Lengths(), **named, **options)
    again = evaluate(Lengths(), **named, **options)
    assert (one.reused, again.reused) == ((), ("AuthorSTS",))
    assert one.results[0].main.value == first.results[0].main.value
    with pytest.raises(TypeError, match=r"an object with encode\(texts\); got list"):
        evaluate([1], **options)
    with pytest.raises(ValueError, match="a model has its own"):
        evaluate("random", fingerprint="v1", **options)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of mteb
def test_a_sentence_transformer_in_memory_scores_as_in_mteb(encoder_folder):
    model = SentenceTransformer(str(encoder_folder), device="cpu", trust_remote_code=True)
    for name in ("AuthorSTS", "PyDocsSampleRetrieval"):
        (ours,) = evaluate(model, tasks=name, limit=20, show_progress=False)
        task = embedded_task(name)
        task.load_data()
        with limited(task, 20):
            options = {"cache": None, "show_progress_bar": False, "co2_tracker": False}
            theirs = mteb.evaluate(model, task, **options).task_results[0].get_score()
        assert ours.task.mteb.value == pytest.approx(theirs, abs=1e-6)


def test_folders_of_jsonl_and_of_msmarco_are_scored_as_by_hand(tmp_path):
    """BM25 ranks 10, 11 for the first query and 11, 10 for the second."""
    texts = {"10": "cat mat", "11": "cat ball", "12": "dawn"}
    queries = {"1": "cat mat", "2": "cat ball"}
    rows, tsv = tmp_path / "rows", tmp_path / "tsv"
    (rows / "qrels").mkdir(parents=True)
    for name, own in (("corpus", texts), ("queries", queries)):
        lines = [json.dumps({"_id": key, "text": text, "title": ""}) for key, text in own.items()]
        (rows / f"{name}.jsonl").write_text("\n".join(lines))
    judged = [("1", "10", 1), ("1", "11", 2), ("2", "10", 1)]
    lines = [json.dumps({"query-id": q, "corpus-id": d, "score": s}) for q, d, s in judged]
    (rows / "qrels" / "test.jsonl").write_text("\n".join(lines))
    tsv.mkdir()
    (tsv / "collection.tsv").write_text("".join(f"{k}\t{t}\n" for k, t in texts.items()))
    (tsv / "queries.dev.small.tsv").write_text("".join(f"{k}\t{t}\n" for k, t in queries.items()))
    (tsv / "qrels.dev.small.tsv").write_text("1\t0\t10\t1\n2\t0\t10\t1\n")

    run = evaluate("bm25", [rows, str(tsv)], output=tmp_path / "out")
    graded, binary = run.results
    assert [each.task.key for each in run.results] == ["rows", "MSMARCO-dev"]
    second = 1 / math.log2(3)  # the discount of rank 2
    assert graded.per_query["nDCG@10"] == pytest.approx(
        {"1": (1 + 2 * second) / (2 + second), "2": second}
    )
    assert binary.per_query["nDCG@10"] == pytest.approx({"1": 1, "2": second})
    assert binary.metrics["MRR@10"].value == pytest.approx(0.75)
    assert binary.metrics["Recall@1"].value == pytest.approx(0.5)
    assert graded.metrics["MAP@100"].value == pytest.approx((1 + 1 / 2) / 2)
    again = evaluate("bm25", [rows, tsv], output=tmp_path / "out")
    assert set(again.reused) == {"rows", "MSMARCO-dev"}


MADE_UP = "a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4e5F6"


class Leaking:
    """A model whose error says more than it should, also in its cause."""

    def __init__(self, text):
        self.text, self.tried = text, False

    def encode(self, texts):
        if not self.tried:  # as it is wrapped
            self.tried = True
            return np.ones((len(texts), 4), np.float32)
        try:
            raise OSError(self.text)
        except OSError as error:
            raise RuntimeError(f"refused: {self.text}\nfor {error!r}") from error


@pytest.mark.parametrize("data", ["task", "collection"])
def test_a_secret_in_an_error_is_written_nowhere(home, beir, monkeypatch, capfd, data):
    monkeypatch.setenv("MY_SERVICE_API_KEY", MADE_UP)
    options = {"tasks": "AuthorSTS"} if data == "task" else {"data": beir}
    model = Leaking(f"401 for key {MADE_UP}")
    with pytest.raises(EvaluationError) as error:
        evaluate(model, label="leaking", show_progress=False, **options)
    assert "[removed]" in str(error.value)
    shown = [str(error.value), repr(error.value.run), *error.value.run.failures.values()]
    written = [
        file.read_bytes().decode(errors="replace") for file in home.rglob("*") if file.is_file()
    ]
    assert data == "collection" or any("RuntimeError: refused" in text for text in written)
    for text in (*shown, *written, *capfd.readouterr(), *load_failures().values()):
        assert MADE_UP not in text


def test_the_second_of_two_finds_the_record_of_the_first(tmp_path, monkeypatch):
    """Both begin together; one evaluates, the other waits and reuses."""
    data, both, runs = write_words(tmp_path / "words"), threading.Barrier(2), []
    real = CollectionItem.evaluate

    def counted(*args):
        runs.append(1)
        return real(*args)

    def begin(_):
        both.wait()
        return evaluate("bm25", data=data, show_progress=False)

    monkeypatch.setattr(CollectionItem, "evaluate", counted)
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(begin, range(2)))
    assert len(runs) == 1
    assert sorted(len(each.reused) for each in outcomes) == [0, 1]
    assert len(load_results()) == 1
    assert verify() == []
    assert not list(paths.results().rglob("*.lock"))


def test_an_evaluation_removes_what_a_killed_one_has_left(tmp_path):
    words, results = write_words(tmp_path / "words"), tmp_path / "results"
    for fresh in (False, True):
        evaluate("random:8", data=words, output=results, fresh=fresh, show_progress=False)
        (record,) = results.glob("*/seed_*/words.json")
        left = record.with_name("words.0123456789ab.trec")
        assert not left.exists()
        left.touch()
        os.utime(left, (0, 0))
    assert verify(results) == []


def test_the_threshold_of_binary_metrics_is_that_of_trec_eval(tmp_path):
    grades = {"q1": {"a": 1, "b": 2, "c": 3}, "q2": {"d": 2, "a": 1}, "q3": {"c": 1}}
    documents = {"a": "kettle kettle kettle", "b": "kettle kettle pan", "c": "kettle pan pot"}
    documents["d"] = "spoon fork knife"
    queries = {"q1": "kettle", "q2": "spoon kettle", "q3": "pot"}
    collection = TestCollection.from_texts(queries, documents, grades)
    options = {"output": tmp_path, "show_progress": False, "runs": True}
    (record,) = evaluate("bm25", collection, relevance_threshold=2, **options)
    assert record.data.relevance_threshold == 2
    assert verify(tmp_path) == []
    (plain,) = evaluate("bm25", collection, **options)  # other data: not reused
    assert plain.data.relevance_threshold is None
    run = read_run(next(tmp_path.glob("bm25*/seed_0/*.trec")))
    names = {"MRR@10": "recip_rank", "P@5": "P_5", "Recall@10": "recall_10"}
    for level, scored in ((1, plain), (2, record)):
        measures = {*names.values(), "ndcg_cut_10"}
        theirs = RelevanceEvaluator(grades, measures, relevance_level=level).evaluate(run)
        for ours, name in (names | {"nDCG@10": "ndcg_cut_10"}).items():
            if ours in scored.per_query:
                right = {query: theirs[query][name] for query in queries}
                assert dict(scored.per_query[ours]) == pytest.approx(right)
    assert plain.metrics["MRR@10"].value > record.metrics["MRR@10"].value


def test_the_threshold_is_refused_where_it_would_have_no_effect():
    with pytest.raises(ValueError, match="relevance_threshold is for collections"):
        evaluate("bm25", tasks="AuthorSTS", relevance_threshold=2)
