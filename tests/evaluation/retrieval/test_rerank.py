import json
import warnings
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import pytrec_eval
import yaml
from helpers.beir import WORDS, write_beir
from helpers.rerankers import write_reranker
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from qwen3nb import paths
from qwen3nb.answers.board.costs import cost_table
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
from qwen3nb.datasets.rows import DataError
from qwen3nb.datasets.trec import read_run, write_run
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.retrieval import nano
from qwen3nb.evaluation.retrieval.first_stage import first_stage
from qwen3nb.evaluation.retrieval.rerank import dataset_rows, rerank, rerank_items
from qwen3nb.evaluation.run import EvaluationError, EvaluationRun
from qwen3nb.evaluation.studies import lora_runs
from qwen3nb.evaluation.studies.lora_runs import evaluate_trained, find_trained
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.metrics.retrieval import rank_documents
from qwen3nb.models.load import load_encoder
from qwen3nb.models.rerankers import Reranker, load_reranker
from qwen3nb.models.search.fusion import fuse
from qwen3nb.models.types import SpecError
from qwen3nb.records.results import Results
from qwen3nb.records.side_files import first_run_file, reranked_run_file
from qwen3nb.records.store import verify_files
from qwen3nb.tiers import Tier
from qwen3nb.utils.atomic_files import sha256_file


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write_reranker(tmp_path_factory.mktemp("reranker") / "tiny")


@pytest.fixture(scope="module")
def reranker(folder, shared_cache):
    return load_reranker(folder, device="cpu")


def run_suite(reranker, data=None, **options):
    return rerank(reranker, data, show_progress=False, **options)


def first_run(result):
    return read_run(first_run_file(result.path(), result.files))


def test_search_then_rerank_in_one_call(reranker, beir):
    suite = run_suite(reranker, [beir], depth=10)

    (result,) = suite.results
    (collection,) = find_collections(beir)
    record = result.path()
    reranked = read_run(reranked_run_file(record, result.files))
    first = first_run(result)
    assert result.task.name == "words.bm25-10"
    assert len(cost_table([result]).rows) == 1  # what the leaderboard's page shows of it
    assert verify_files([record]) == {}
    # Every number by pytrec_eval, from the runs that were written.
    judge = pytrec_eval.RelevanceEvaluator(
        {q: dict(g) for q, g in collection.qrels.items()},
        {"ndcg_cut.10", "recip_rank", "recall.10"},
    )
    for prefix, run in (("", reranked), ("first ", first)):
        theirs = judge.evaluate({q: dict(s) for q, s in run.items()})
        for query in collection.qrels:
            ours = {name: column[query] for name, column in result.per_query.items()}
            assert ours[f"{prefix}nDCG@10"] == pytest.approx(theirs[query]["ndcg_cut_10"], abs=1e-9)
            assert ours[f"{prefix}MRR@10"] == pytest.approx(theirs[query]["recip_rank"], abs=1e-9)
    theirs = judge.evaluate(first)
    recall = {query: each["recall_10"] for query, each in theirs.items()}
    assert result.per_query["first Recall@10"] == pytest.approx(recall, abs=1e-9)
    for query, scores in reranked.items():
        assert scores.keys() == first[query].keys()
        gain = result.per_query["gain nDCG@10"][query]
        base = result.per_query["first nDCG@10"][query]
        assert base + gain == pytest.approx(result.per_query["nDCG@10"][query])
        assert result.per_query["oracle nDCG@10"][query] >= result.per_query["nDCG@10"][query]
        score = reranker.score(
            collection.queries[query], [collection.documents[d] for d in sorted(scores)]
        )
        assert [scores[d] for d in sorted(scores)] == score.log_odds.tolist()
    assert result.search.counts["pairs"] == sum(map(len, reranked.values()))
    assert "extra" not in collection.qrels


def with_first_run(result, change):
    """Change the run of the first stage, and its digest in the record."""
    run = change({query: dict(scores) for query, scores in first_run(result).items()})
    file = write_run(first_run_file(result.path(), result.files), run, tag="bm25")
    first = {"name": file.name, "sha256": sha256_file(file)}
    return replace(result, files=replace(result.files, first_run=first))


def with_column(result, name):
    """Change a column of scores, and what follows from it."""
    column = {query: value / 2 + 0.1 for query, value in result.per_query[name].items()}
    per_query = {**result.per_query, name: column}
    metrics = dict(result.metrics)
    for metric, stated in metrics.items():
        metrics[metric] = aggregate(per_query, how=stated.how, columns=stated.columns)
    return replace(result, per_query=per_query, metrics=metrics)


def with_other_documents(run):
    return {query: {f"{name}-2": score for name, score in run[query].items()} for query in run}


def in_reverse(run):
    return {query: {name: -score for name, score in run[query].items()} for query in run}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: with_first_run(r, with_other_documents), "ranks other documents than those of"),
        (lambda r: with_first_run(r, in_reverse), "first nDCG@10 of query"),
        (lambda r: with_column(r, "first Recall@10"), "first Recall@10 of query"),
        (lambda r: with_column(r, "gain nDCG@10"), "gain nDCG@10 of query"),
        (lambda r: with_column(r, "oracle nDCG@10"), "oracle nDCG@10 of query"),
    ],
    ids=["documents", "order", "recall", "gain", "best order"],
)
def test_what_a_record_says_of_its_first_stage_follows_from_the_run(reranker, beir, change, words):
    """As rewritten with this package, so that every checksum and list holds."""
    (result,) = run_suite(reranker, [beir], depth=10, runs=True).results
    changed = replace(change(result), run="later")
    (problems,) = verify_files([changed.save()]).values()
    assert words in problems[0]


def test_rerankers_share_the_run_of_the_first_stage(reranker, beir, tmp_path):
    other = load_reranker(write_reranker(tmp_path / "other", seed=3), device="cpu")
    (one,), (two,) = (run_suite(each, [beir], depth=5).results for each in (reranker, other))
    assert one.files.first_run == two.files.first_run
    (shared,) = (paths.results() / "first_stages").iterdir()
    assert first_run_file(two.path(), two.files) == shared
    assert not list(paths.results().rglob("*.first.trec"))
    inode = shared.stat().st_ino
    assert run_suite(reranker, [beir], depth=5, fresh=True).reused == ()
    assert shared.stat().st_ino == inode  # not written again
    shared.unlink()  # a record without its runs is not reused
    assert run_suite(reranker, [beir], depth=5).reused == ()
    assert verify_files([one.path(), two.path()]) == {}


def test_groups_are_averaged_into_one_and_the_mean_counts_them_once(reranker, beir, tmp_path):
    for seed, name in enumerate(("android", "gis")):
        write_beir(tmp_path / "cqadupstack" / name, seed=seed + 5, gzipped=bool(seed))

    suite = run_suite(reranker, [beir, tmp_path / "cqadupstack"], depth=5)

    *rows, mean = dataset_rows(suite.results)
    scores = {row["dataset"]: row["nDCG@10"] for row in rows}
    parts = [r.main.value for r in suite.results if r.data.group == "cqadupstack"]
    assert scores.keys() == {"words", "cqadupstack"}
    assert len(parts) == 2
    assert scores["cqadupstack"] == pytest.approx(sum(parts) / 2)
    assert mean["dataset"] == "mean of 2 data sets"
    assert mean["nDCG@10"] == pytest.approx(sum(scores.values()) / 2)
    assert mean["oracle nDCG@10"] >= mean["nDCG@10"]
    words, group, mean = dataset_rows(suite.results[:-1])  # a part of the group is missing
    assert words["nDCG@10"] == scores["words"]
    assert group["nDCG@10"] is mean["nDCG@10"] is None


def test_other_first_stages_by_one_parameter(reranker, beir, tmp_path):
    (collection,) = find_collections(beir)
    dense = load_encoder("random:16", cache=False)
    sparse_run = first_stage(collection, "bm25", depth=5).run
    dense_run = first_stage(collection, dense, depth=5).run
    file = write_run(tmp_path / "mine.trec", dense_run, tag="mine")

    for query, scores in dense_run.items():
        (vector,) = dense.encode([collection.queries[query]], role="query")
        all_scores = dense.encode(list(collection.documents.values()), role="passage") @ vector
        names = np.array(list(collection.documents))
        assert rank_documents(scores) == names[np.argsort(-all_scores)[:5]].tolist()
    assert first_stage(collection, file, depth=5).run == dense_run
    fused = first_stage(collection, ["bm25", dense], depth=5)
    assert fused.label == "rrf-bm25-random-16"
    assert all(len(scores) == 5 for scores in fused.run.values())
    assert fuse([{"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 9.0}}]) == {
        "q": {"a": 1 / 61, "b": 1 / 62 + 1 / 61}
    }
    suite = run_suite(reranker, [beir], first=str(file), depth=5)
    assert suite.results[0].task.name == "words.mine-5"
    assert first_run(suite.results[0]) == dense_run
    assert sparse_run != dense_run


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("nothing.trec", "unknown first stage 'nothing.trec'; expected bm25, given"),
        ("given", "have no candidates"),
    ],
)
def test_first_stages_that_are_none(beir, first, message):
    with pytest.raises(DataError, match=message):
        first_stage(find_collections(beir)[0], first)


def write_msmarco(folder):
    """Two queries of MS MARCO dev, with 40 passages in the official top 1,000 of each."""
    folder.mkdir()
    passages = {
        str(i): f"passage about {WORDS[i % 15]} and {WORDS[(i * 7) % 15]}" for i in range(40)
    }
    (folder / "queries.dev.small.tsv").write_text("7\tsort\n9\tmean\n11\tnever judged\n")
    (folder / "qrels.dev.small.tsv").write_text("7\t0\t0\t1\n9\t0\t9\t1\n")
    top = [
        f"{q}\t{p}\t{t}\t{passages[p]}\n"
        for q, t in (("7", "sort"), ("9", "mean"))
        for p in passages
    ]
    (folder / "top1000.dev").write_text("".join(reversed(top)))
    return folder


def test_ids_with_white_space_are_searched_but_not_reranked(reranker):
    documents = {"New York": "sort a list", "Rome": "read a file"}
    cities = TestCollection.from_texts({"a b": "sort"}, documents, {"a b": ["New York"]})
    (result,) = evaluate("bm25", cities, show_progress=False)
    assert result.main.value == 1.0
    with pytest.raises(EvaluationError, match="custom: the id 'a b' is empty or has white space"):
        run_suite(reranker, cities)


def test_a_document_is_no_answer_to_itself(reranker, tmp_path):
    folder = write_beir(tmp_path / "arguana")
    queries = (folder / "queries.jsonl").read_text().replace('"q1"', '"d1"')
    (folder / "queries.jsonl").write_text(queries)
    qrels = (folder / "qrels" / "test.tsv").read_text().replace("q1\td1\t", "d1\td1\t")
    (folder / "qrels" / "test.tsv").write_text(qrels.replace("q1\td10\t", "d1\td10\t"))
    collection = replace(find_collections(folder)[0], skip_self=True)
    run = first_stage(collection, depth=30).run
    assert "d1" not in run["d1"]
    assert "d1" in run["q0"] or len(run["q0"]) < 30


def test_a_long_query_is_cut_and_counted(folder, beir):
    rows = [json.loads(line) for line in (beir / "queries.jsonl").read_text().splitlines()]
    rows[2]["text"] = "sort row " * 300
    rows[5]["text"] = "mean sum " * 400
    (beir / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    short = load_reranker(folder, device="cpu", max_length=400)

    (result,) = run_suite(short, [beir], depth=3).results

    assert result.main.n == 8
    assert result.search.counts["queries_cut"] == 2
    assert result.task.counts["queries cut to leave room for a document"] == 2


def tiny_tier(monkeypatch, *names):
    """Make ``names`` the data sets of the tier `fast`."""
    module = "qwen3nb.evaluation.retrieval.rerank.TIERS"
    monkeypatch.setattr(module, {"fast": Tier("fast", "", names)})
    monkeypatch.setattr(Tier, "reranking", property(lambda tier: tier.tasks))


def test_a_tier_without_data_sets_to_rerank_names_those_with_some():
    with pytest.raises(ValueError, match="multilingual has no data sets .*: smoke, pydocs, fast"):
        rerank(None, tier="multilingual", first="bm25")


def test_a_tier_is_the_same_as_its_data_sets(reranker, beir, monkeypatch):
    tiny_tier(monkeypatch, str(beir))
    (result,) = run_suite(reranker, tier="fast", depth=4, limit=3).results
    assert run_suite(reranker, [beir], depth=4, limit=3).reused == ("words",)
    assert (result.task.key, result.task.main_metric) == ("words.bm25-4-limit3", "nDCG@10")
    assert result.main.n == result.task.size["queries"] == 3
    assert result.task.size["documents"] == 6 + 3  # two of each query are judged
    for given in ({}, {"data": [beir], "tier": "fast"}, {"data": [beir], "msmarco": beir}):
        with pytest.raises(ValueError, match="expected either data sets or a tier"):
            run_suite(reranker, **{"data": None, **given})


def test_the_official_ms_marco_takes_the_place_of_the_task(reranker, beir, tmp_path, monkeypatch):
    tiny_tier(monkeypatch, str(beir), "MSMARCO")
    official = write_msmarco(tmp_path / "msmarco")
    (bm25,) = run_suite(reranker, [official], first="given", depth=10).results
    assert sorted(bm25.per_query["MRR@10"]) == ["7", "9"]
    assert bm25.metrics["first Recall@10"].value == 1.0  # BM25 puts the word's passages first
    (official / "run.dev.small.tsv").write_text(
        "".join(f"{q}\t{d}\t{d + 1}\n" for q in (7, 9) for d in range(40))
    )

    words, result = run_suite(reranker, None, tier="fast", msmarco=official, depth=10).results

    assert result.task.name == "MSMARCO-dev.given-10"
    assert result.task.main_metric == "MRR@10"
    assert result.per_query["first MRR@10"] == {"7": 1.0, "9": 1 / 10}  # ranks of the run
    run = first_run(result)
    assert rank_documents(run["7"]) == [str(d) for d in range(10)]  # cut to the depth
    judge = pytrec_eval.RelevanceEvaluator({"7": {"0": 1}, "9": {"9": 1}}, {"recip_rank"})
    theirs = judge.evaluate(read_run(reranked_run_file(result.path(), result.files)))
    assert result.main.value == pytest.approx(np.mean([t["recip_rank"] for t in theirs.values()]))
    mean = dataset_rows([words, result])[-1]
    assert mean["dataset"] == "mean of 2 data sets"
    assert mean["nDCG@10"] == pytest.approx(
        (words.main.value + result.metrics["nDCG@10"].value) / 2
    )


def test_an_interrupted_run_scores_no_query_twice(folder, beir, own_cache, monkeypatch):
    scored, score = [], Reranker.score

    def counted(self, query, documents):
        scored.append(query)
        if len(scored) == 4:
            raise KeyboardInterrupt
        return score(self, query, documents)

    with monkeypatch.context() as patch:
        patch.setattr(Reranker, "score", counted)
        with pytest.raises(KeyboardInterrupt):
            run_suite(load_reranker(folder, device="cpu"), [beir], depth=4)
        assert not list(paths.results().glob("*/*/*.json"))
        (resumed,) = run_suite(load_reranker(folder, device="cpu"), [beir], depth=4)
    assert len(scored) == 8 + 1
    (whole,) = run_suite(load_reranker(folder, device="cpu"), [beir], depth=4, fresh=True)
    assert resumed.per_query == whole.per_query
    assert resumed.config == whole.config
    assert resumed.metrics == whole.metrics


SCIFACT_OF_THE_HUB = """---
configs:
- {config_name: default, data_files: [{split: test, path: qrels/test.jsonl}]}
- {config_name: corpus, data_files: [{split: corpus, path: corpus.jsonl}]}
- {config_name: queries, data_files: [{split: queries, path: queries.jsonl}]}
---
"""


@pytest.mark.integration
def test_a_substitute_of_the_mirror_is_recorded(reranker, tmp_path, monkeypatch):
    """Also where the record's revision is the digest of the collection that was searched."""
    mirror = tmp_path / "mirror" / "mteb" / "scifact"
    (mirror / "qrels").mkdir(parents=True)
    files = {
        "corpus.jsonl": [{"_id": f"d{i}", "title": "", "text": f"word{i} tail"} for i in range(9)],
        "queries.jsonl": [{"_id": f"q{i}", "text": f"word{i}"} for i in range(3)],
        "qrels/test.jsonl": [
            {"query-id": f"q{i}", "corpus-id": f"d{i}", "score": 1} for i in range(3)
        ],
    }
    for name, rows in files.items():
        (mirror / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (mirror / "README.md").write_text(SCIFACT_OF_THE_HUB)
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path / "mirror"))
    (reranked,) = run_suite(reranker, ["SciFact"], depth=3, output=tmp_path)
    (collection,) = find_collections("SciFact")
    (searched_task,) = evaluate("bm25", tasks="SciFact", output=tmp_path, show_progress=False)
    (of_collection,) = evaluate("bm25", collection, output=tmp_path / "b", show_progress=False)
    revision = searched_task.task.revision
    assert revision.startswith("local-")
    for result in (reranked, of_collection):
        assert result.task.substitute == revision
        assert result.task.is_substitute
    monkeypatch.delenv("QWEN3NB_MIRROR")
    (plain,) = run_suite(reranker, ["PyDocsSampleRetrieval"], depth=3, limit=2)
    assert not plain.task.is_substitute


@pytest.mark.integration
def test_mteb_runs_it_on_reranking_and_only_on_that(reranker):
    task = embedded_task("PyDocsSampleReranking")
    task.load_data()
    data = task.dataset["default"]["test"]
    kept = list(data["relevant_docs"])[:4]
    data["queries"] = data["queries"].filter(lambda row: row["id"] in kept)
    data["relevant_docs"] = {query: data["relevant_docs"][query] for query in kept}
    data["top_ranked"] = {query: data["top_ranked"][query][:10] for query in kept}

    done = evaluate(reranker, tasks=[task, embedded_task("AuthorSTS")], show_progress=False)

    assert done.skipped == {"AuthorSTS": f"{reranker.label} reranks only"}
    (result,) = done.results
    assert result.main.n == 4
    assert verify_files([result.path()]) == {}
    suite = run_suite(reranker, [task], first="given", depth=10)
    # One path through MTEB, one through ours: the same order, the same scores.
    assert suite.results[0].per_query["nDCG@10"] == pytest.approx(result.per_query["nDCG@10"])


def write_outputs(folder, base, *, mode="joint_single", seed=42):
    """One seed of one configuration, as written by a training."""
    seed_folder = folder / f"{mode}_r2" / f"seed_{seed}"
    model = AutoModelForCausalLM.from_pretrained(base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
        adapted.save_pretrained(seed_folder / "checkpoints" / "final")
    data = {"instruction_prefix": "Find the function."}
    (seed_folder / "config.yaml").write_text(
        yaml.safe_dump({"training": {"mode": mode}, "data": data})
    )
    return seed_folder


@pytest.mark.integration
def test_what_a_training_left_is_found_and_evaluated(folder, beir, tmp_path):
    from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

    outputs = tmp_path / "outputs"
    for mode, seed in (("joint_single", 42), ("rank_only", 7)):
        write_outputs(outputs, folder, mode=mode, seed=seed)
    (outputs / "emb_only_r2" / "seed_1" / "checkpoints").mkdir(parents=True)  # not finished

    adapters = find_trained(outputs)
    options = {"depth": 4, "device": "cpu", "show_progress": False}

    def evaluated():
        tasks = [embedded_task("AuthorSTS")]
        return evaluate_trained(outputs, [beir], embedding_tasks=tasks, **options)

    results = evaluated().results

    assert [(each.configuration, each.seed, each.embeds) for each in adapters] == [
        ("joint_single_r2", 42, True),
        ("rank_only_r2", 7, False),
    ]
    done = [(r.training.configuration, r.seed, r.task.name) for r in results]
    assert done == [
        ("joint_single_r2", 42, "words.bm25-4"),
        ("joint_single_r2", 42, "AuthorSTS"),
        ("rank_only_r2", 7, "words.bm25-4"),
    ]
    kinds = [r.training.kind for r in results]
    assert kinds == ["reranking", "embedding", "reranking"]
    assert results[0].training.steps is None  # no log
    assert results[0].model.settings["instruction"] == "Find the function."
    assert verify_files([result.path() for result in results]) == {}
    assert evaluated().reused == (
        "joint_single_r2/seed_42: words",
        "joint_single_r2/seed_42: AuthorSTS",
        "rank_only_r2/seed_7: words",
    )
    back = json.loads((adapters[1].seed_folder / "results" / "words.bm25-4.json").read_text())
    assert back["per_query"] == results[2].per_query["nDCG@10"]
    assert back["aggregate"] == {"ndcg@10": results[2].main.value}
    assert back["config"]["training"]["mode"] == "rank_only"


@pytest.mark.parametrize(
    ("tier", "expected"), [("fast", ["FiQA2018", "NFCorpus", "SciFact"]), ("pydocs", None)]
)
def test_an_adapter_embeds_what_it_reranks_on_tier_fast(monkeypatch, tmp_path, tier, expected):
    trained = lora_runs.TrainedAdapter("joint_r2", 42, "joint", tmp_path / "a" / "b" / "final", {})
    evaluated_tasks = []

    def noted(*model, **options):
        evaluated_tasks.append(options.get("tasks"))
        return EvaluationRun(Results([]), (), {}, {}, label="a", kind="evaluations", folder="")

    monkeypatch.setattr(lora_runs, "find_trained", lambda *_, **__: [trained])
    monkeypatch.setattr(lora_runs, "adapter_change", lambda _: (1.0, 0.5))
    monkeypatch.setattr(lora_runs, "rerank", noted)
    monkeypatch.setattr(lora_runs, "evaluate", noted)
    for name in ("load_reranker", "load_encoder"):
        monkeypatch.setattr(lora_runs, name, lambda *_, **__: None)
    evaluate_trained(tmp_path, tier=tier)
    embedded = evaluated_tasks[1] and sorted(evaluated_tasks[1])
    assert embedded == expected


def test_outputs_that_are_none_say_what_was_looked_for(folder, tmp_path):
    with pytest.raises(SpecError, match="no adapter found; expected <configuration>/seed_<n>"):
        find_trained(tmp_path)
    seed_folder = write_outputs(tmp_path, folder)
    (seed_folder / "config.yaml").write_text("training: {mode: contrastive}")
    with pytest.raises(DataError, match="mode 'contrastive'; expected one of rank_only"):
        find_trained(tmp_path)
    (seed_folder / "config.yaml").unlink()
    with pytest.raises(DataError, match=r"config.yaml: file not found"):
        find_trained(tmp_path)


@pytest.mark.integration
def test_the_tasks_of_a_group_are_loaded_one_by_one_and_know_how_many_they_are(monkeypatch):
    documents, loaded = {f"d{i}": f"text {i}" for i in range(9)}, []

    def load(task):
        loaded.append(task.metadata.name)
        texts = {"q": "text 1"}
        return [TestCollection.from_texts(texts, documents, {"q": ["d1"]}, name=loaded[-1])]

    monkeypatch.setattr(nano, "find_collections", load)
    first, second = islice(rerank_items("CQADupstackRetrieval", depth=2), 2)
    assert (
        [first.name, second.name]
        == loaded
        == [
            "CQADupstackAndroidRetrieval",
            "CQADupstackEnglishRetrieval",
        ]
    )
    assert (first.collection.group, first.parts) == ("CQADupstackRetrieval", 12)
    (alone,) = rerank_items("CQADupstackAndroidRetrieval", depth=2)
    assert (alone.collection.group, alone.parts) == ("", 0)
    with pytest.raises(DataError, match="'SciFcat' is neither a folder nor an MTEB task.*SciFact"):
        next(rerank_items("SciFcat"))
