"""A measure added as the handbook says is right in every door, by pytrec_eval."""

import json
from datetime import date

import pytest
import pytrec_eval
from helpers.handbook import example
from helpers.mteb_tasks import loaded, search_data
from helpers.rerankers import write_reranker

from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.retrieval.rerank import rerank
from qwen3nb.metrics import retrieval
from qwen3nb.metrics.retrieval import METRICS, RECORDED, Metric
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.records.record import Result
from qwen3nb.records.store import verify_files

DOCUMENTS = {f"d{n:03}": f"alpha {'beta ' * (n % 7)}gamma {n % 5} delta" for n in range(400)}
QUERIES = {f"q{n}": f"alpha beta gamma {n}" for n in range(4)}
GRADES = {
    query: {f"d{(37 * n + 11 * step) % 400:03}": step % 4 for step in range(60)}
    for n, query in enumerate(QUERIES)
}


def set_f(grades, ideal, k):
    """Harmonic mean of the precision and the recall of the first k as a set."""
    found = sum(grade > 0 for grade in grades[:k])
    return 2 * found / (len(grades[:k]) + len(ideal))


# A measure of each kind, as pytrec_eval names it, and whether it cuts the run itself.
ADDED = {
    "Hit@3": ("success_3", None),  # binary
    "nDCG@5": ("ndcg_cut_5", None),  # graded
    "Recall@200": ("recall_200", None),  # deeper than any that is recorded
    "SetF@30": ("set_F", 30),  # of a set
    "MAP@30": ("map_cut_30", None),
}


@pytest.fixture
def added(monkeypatch):
    """The measures, added as in the handbook, with its own example."""
    source = example("def _first(")
    metrics = {**METRICS, "SetF": Metric(set_f, graded=False)}
    monkeypatch.setattr(retrieval, "METRICS", metrics)
    exec(source, {**vars(retrieval), "METRICS": metrics})  # noqa: S102 - our own page
    for kind, names in RECORDED.items():
        monkeypatch.setitem(RECORDED, kind, (*names, *ADDED, "First@1"))


def compare(record, threshold=1):
    """Compare a record's scores with those of its run and its qrels."""
    file = record.path()
    (qrels_file,) = file.parent.glob(f"{file.stem}.*.qrels")
    (run_file,) = file.parent.glob(f"{file.stem}.*.trec")
    with qrels_file.open() as lines:
        qrels = pytrec_eval.parse_qrel(lines)
    with run_file.open() as lines:
        run = pytrec_eval.parse_run(lines)
    for name, (theirs, depth) in ADDED.items():
        measured = run
        if depth is not None:
            measured = {}
            for query, scores in run.items():
                ranked = sorted(scores, key=lambda d: (scores[d], d), reverse=True)
                measured[query] = {document: scores[document] for document in ranked[:depth]}
        level = 1 if METRICS.get(name.partition("@")[0], Metric(set_f, False)).graded else threshold
        evaluator = pytrec_eval.RelevanceEvaluator(qrels, {theirs}, relevance_level=level)
        expected = {query: scores[theirs] for query, scores in evaluator.evaluate(measured).items()}
        assert expected, name
        assert dict(record.per_query[name]) == pytest.approx(expected), name
    for query, value in record.per_query["First@1"].items():
        best = max(run[query], key=lambda d: (run[query][d], d))
        assert value == float(qrels[query].get(best, 0) == max(qrels[query].values()))
    loaded_again = Result.load(file)
    assert set(loaded_again.metrics) >= {*ADDED, "First@1"}
    assert verify_files([file]) == {}


OPTIONS = {"runs": True, "show_progress": False}


@pytest.mark.parametrize("threshold", [1, 2])
@pytest.mark.parametrize("model", ["bm25", "random", "bm25+random"])
def test_on_collections(added, model, threshold):
    collection = TestCollection.from_texts(QUERIES, DOCUMENTS, GRADES)
    (record,) = evaluate(model, collection, relevance_threshold=threshold, **OPTIONS)
    compare(record, threshold)


@pytest.mark.parametrize("threshold", [1, 2])
@pytest.mark.parametrize("model", ["bm25", "random", "bm25+random"])
def test_on_own_data(added, tmp_path, model, threshold):
    lines = []
    for query, text in QUERIES.items():
        grades = ", ".join(f"{name} = {grade}" for name, grade in GRADES[query].items())
        lines.append(f'[[queries]]\nid = "{query}"\nquery = "{text}"')
        lines.append(f"relevance_grades = {{ {grades} }}")
    (tmp_path / "queries.toml").write_text("\n".join(lines))
    rows = [json.dumps({"id": name, "text": text}) for name, text in DOCUMENTS.items()]
    (tmp_path / "docs.jsonl").write_text("\n".join(rows))
    domain = load_domain(
        tmp_path / "queries.toml",
        tmp_path / "docs.jsonl",
        relevance_threshold=threshold,
        on=date(2026, 1, 1),
    )
    (record,) = evaluate(model, domain, **OPTIONS)
    compare(record, threshold)


@pytest.mark.parametrize("model", ["bm25", "random", "bm25+random"])
def test_on_tasks_of_mteb(added, model):
    data = {"default": {"test": search_data(DOCUMENTS, QUERIES, GRADES)}}
    task = loaded("SciFact", data)
    (record,) = evaluate(model, tasks=[task], **OPTIONS)
    compare(record)


def test_on_tasks_deeper_than_mteb_searches(added, monkeypatch):
    task = loaded("SciFact", {"default": {"test": search_data(DOCUMENTS, QUERIES, GRADES)}})
    monkeypatch.setattr(task, "_top_k", 20)
    monkeypatch.setattr(task, "k_values", (1, 3, 5, 10, 20))
    (record,) = evaluate("random", tasks=[task], **OPTIONS)
    compare(record)


@pytest.mark.integration
@pytest.mark.parametrize("threshold", [1, 2])
def test_on_reranking(added, tmp_path, threshold):
    collection = TestCollection("words", DOCUMENTS, QUERIES, GRADES, relevance_threshold=threshold)
    model = load_reranker(write_reranker(tmp_path / "m"), device="cpu")
    (record,) = rerank(model, collection, depth=40, **OPTIONS)
    compare(record, threshold)
