"""Sparse and multi-vector encoders: scores, rankings and metrics are those of the library."""

import json
import warnings

import numpy as np
import pytest
from helpers import TEXTS, archetypes
from helpers.beir import write_beir

import qwen3nb as q
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.datasets.collection import find_collections
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.evaluation.embeddings.sts import evaluate_sts
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.retrieval.custom import search_domain
from qwen3nb.evaluation.retrieval.first_stage import first_stage
from qwen3nb.evaluation.retrieval.rerank import rerank
from qwen3nb.metrics.retrieval import rank_documents
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.types import EncoderError, SpecError

KINDS = {"SparseEncoder": archetypes.splade, "MultiVectorEncoder": archetypes.multi_vector}
PROMPTS = {"query": "search: ", "document": "of: "}
QUERIES = ["largest element", "newest rows first", "the lazy dog", "mean of a column"]
DOCUMENTS = [f"{text} Part {number}." for number in range(20) for text in TEXTS]


def write_model(name, root, tokenizer):
    folder = root / "made" / name
    folder.parent.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KINDS[name](folder, tokenizer)
    return folder


@pytest.fixture(scope="module", params=KINDS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def folder(name, tmp_path_factory, tokenizer_folder):
    folder = write_model(name, tmp_path_factory.mktemp("model"), tokenizer_folder)
    file = folder / "config_sentence_transformers.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"prompts": PROMPTS}))
    return folder


@pytest.fixture(scope="module")
def theirs(name, folder):
    import sentence_transformers

    return getattr(sentence_transformers, name)(str(folder), device="cpu")


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder, show_progress=False)


def their_scores(theirs, queries, documents):
    """Scores (Q, N) by the methods of the library alone."""
    return similarities(theirs, theirs.encode_query(queries), theirs.encode_document(documents))


def similarities(theirs, queries, documents):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # a first use of torch's CSR
        return theirs.similarity(queries, documents).numpy()


def test_scores_and_first_ten_are_those_of_the_library(model, theirs):
    """The prompts of the folder are part of both."""
    expected = their_scores(theirs, QUERIES, DOCUMENTS)
    hits = model.best_documents(QUERIES, DOCUMENTS, k=10)
    best = np.argsort(-expected, axis=1, kind="stable")[:, :10]
    np.testing.assert_array_equal(hits.ids, best)
    np.testing.assert_allclose(hits.scores, np.take_along_axis(expected, best, 1), rtol=1e-6)
    for query, row in zip(QUERIES, expected, strict=True):
        np.testing.assert_allclose(model.score_documents(query, DOCUMENTS), row, rtol=1e-6)


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_blocks_and_batches_change_no_score(model, block, monkeypatch):
    expected = model.best_documents(QUERIES, DOCUMENTS, k=10)
    monkeypatch.setattr(model, "block_size", block)
    monkeypatch.setattr(model, "batch_size", 3)
    hits = model.best_documents(QUERIES, DOCUMENTS, k=10)
    np.testing.assert_array_equal(hits.ids, expected.ids)
    np.testing.assert_allclose(hits.scores, expected.scores, rtol=2e-6)


def test_given_prompts_are_used_and_part_of_the_identity(folder, model, theirs):
    other = load_model(folder, prompts={"query": "ask: "}, show_progress=False)
    queries = theirs.encode_query(QUERIES, prompt="ask: ")
    documents = theirs.encode_document(DOCUMENTS, prompt="")
    expected = similarities(theirs, queries, documents)
    for scorer in (other, model.prompted({"query": "ask: "})):
        scores = [scorer.score_documents(query, DOCUMENTS) for query in QUERIES]
        np.testing.assert_allclose(scores, expected, rtol=1e-6)
    assert model.identity != other.identity == model.prompted({"query": "ask: "}).identity
    assert load_model(folder, show_progress=False).identity == model.identity


def test_metrics_are_those_of_the_evaluator_of_the_library(name, folder, theirs, tmp_path):
    from sentence_transformers.multi_vector_encoder import evaluation as of_tokens
    from sentence_transformers.sparse_encoder import evaluation as of_words

    data = write_beir(tmp_path / "beir")
    (collection,) = find_collections(data)
    evaluator = {
        "SparseEncoder": of_words.SparseInformationRetrievalEvaluator,
        "MultiVectorEncoder": of_tokens.MultiVectorInformationRetrievalEvaluator,
    }[name]
    relevant = {}
    for query, grades in collection.qrels.items():
        relevant[query] = {document for document, grade in grades.items() if grade > 0}
    texts = dict(collection.queries), dict(collection.documents)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")
        scores = evaluator(*texts, relevant, write_csv=False)(theirs)
    (result,) = evaluate(folder, data, output=tmp_path / "r", show_progress=False)
    similarity = theirs.similarity_fn_name
    for metric, theirs_name in (("MRR@10", "mrr@10"), ("Recall@10", "recall@10")):
        expected = scores[f"{similarity}_{theirs_name}"]
        assert result.metrics[metric].value == pytest.approx(expected, abs=1e-9)


def test_a_retrieval_task_and_the_candidates_of_a_reranking_task(model, theirs, tmp_path):
    run = evaluate(
        model,
        tasks=["PyDocsSampleRetrieval", "PyDocsReranking"],
        limit=4,
        output=tmp_path,
        show_progress=False,
    )
    assert {result.task.type for result in run} == {"Retrieval", "Reranking"}
    assert not run.skipped


def test_other_tasks_are_refused_in_one_sentence(model, tmp_path):
    run = evaluate(model, tasks=["AuthorSTS"], output=tmp_path, show_progress=False)
    (reason,) = run.skipped.values()
    assert reason == f"{model.label} {model.only_searches}"
    assert "searches and reranks only" in reason
    with pytest.raises(SpecError, match="searches and reranks only"):
        evaluate_sts(model, (["a"], ["b"], [1.0]))


def test_own_data_with_boosts(model, theirs, tmp_path):
    """By hand: the library's scores times the boosts."""
    rows = [{"id": f"d{number}", "text": text} for number, text in enumerate(DOCUMENTS)]
    file = tmp_path / "documents.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = tmp_path / "queries.toml"
    text = '[[queries]]\nid = "q"\nquery = "largest element"\nrelevance_grades = { d0 = 3 }\n'
    queries.write_text(text)
    domain = load_domain(queries, file)
    scores = their_scores(theirs, ["largest element"], DOCUMENTS)[0]
    best = np.argsort(-scores, kind="stable")[:20]
    run = search_domain(model, domain)["q"]
    expected = {f"d{row}": pytest.approx(float(scores[row]), rel=1e-6) for row in best}
    assert run == expected or len(run) > 20  # more if others tie with the last
    assert rank_documents(run)[:10] == [f"d{row}" for row in best[:10]]


def test_its_scores_are_those_of_plain_numpy(name, model, theirs):
    """Products of dense rows of weights; MaxSim: the best token of a document, by query token."""
    queries = theirs.encode_query(QUERIES)
    documents = theirs.encode_document(DOCUMENTS[:30])
    if name == "SparseEncoder":
        rows = [vectors.to_dense().numpy() for vectors in (queries, documents)]
        expected = rows[0] @ rows[1].T
        sizes = [8 * np.count_nonzero(row) for row in rows[1]]
    else:
        expected = [
            [(query.numpy() @ document.numpy().T).max(axis=1).sum() for document in documents]
            for query in queries
        ]
        sizes = [document.numpy().nbytes for document in documents]
    hits = model.prompted(model.prompts)
    found = [hits.score_documents(query, DOCUMENTS[:30]) for query in QUERIES]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert hits.bytes_per_document == pytest.approx(np.mean(sizes))


def test_it_is_a_baseline_of_own_data_in_command_page_judge_and_comparison(
    name, folder, cli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    texts = [f"{text} {number}" for number, text in enumerate(TEXTS)]
    rows = [{"id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    queries = [
        {"query": text, "relevance_grades": {f"d{number}": 3}} for number, text in enumerate(texts)
    ]
    for file, content in {"docs.jsonl": rows, "queries.jsonl": queries}.items():
        (tmp_path / file).write_text("".join(json.dumps(row) + "\n" for row in content))
    given = ["--queries", "queries.jsonl", "--documents", "docs.jsonl"]
    models = ["--model", f"bm25,it={folder},both=bm25+{folder}@cv"]
    done = cli("domain", *given, *models, "--complete", "--no-report")
    assert done.exit_code == 0, done.output
    results = q.load_results()
    record = next(each for each in results if each.model.label == "it")
    assert record.search.bytes_per_document > 0
    page = results.own_data()
    assert [each.model.label for each in page.records] == ["bm25", "it", "both"]
    (row,) = page.models_table().to_frame().query("model == 'it'").to_dict("records")
    assert row["vector bytes"] == round(record.search.bytes_per_document)
    assert len(page.fusion_table()) == 1
    assert results.compare("bm25", "it").table() is not None
    assert cli("verify").exit_code == 0
    sheet = cli("judge", *given, *models, "--sheet", "sheet.csv")
    assert sheet.exit_code == 0, sheet.output
    assert (tmp_path / "sheet.csv").exists()


def test_it_reranks_the_candidates_of_a_first_stage(folder, theirs, tmp_path):
    data = write_beir(tmp_path / "beir")
    (collection,) = find_collections(data)
    (result,) = rerank(folder, data, depth=5, output=tmp_path / "r", show_progress=False)
    stage = first_stage(collection, "bm25", depth=5)
    gains = []
    for query in stage.run:
        candidates = list(stage.run.listed(query))
        texts = [collection.documents[document] for document in candidates]
        scores = their_scores(theirs, [collection.queries[query]], texts)[0]
        ranked = rank_documents(dict(zip(candidates, scores.tolist(), strict=True)))
        first = next((n for n, d in enumerate(ranked, 1) if collection.qrels[query].get(d)), None)
        gains.append(1 / first if first else 0.0)
    assert result.metrics["MRR@10"].value == pytest.approx(np.mean(gains))


def test_it_is_a_first_stage_itself(model, theirs, tmp_path):
    (collection,) = find_collections(write_beir(tmp_path / "beir"))
    stage = first_stage(collection, model, depth=5)
    assert (stage.label, stage.recipe["identity"]) == (model.label, model.identity)
    documents = list(collection.documents)
    scores = their_scores(
        theirs, list(collection.queries.values()), list(collection.documents.values())
    )
    for query, row in zip(collection.queries, scores, strict=True):
        expected = rank_documents(dict(zip(documents, row.tolist(), strict=True)))[:5]
        assert rank_documents(stage.run[query]) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"pooling": "mean"},
        {"normalize": True},
        {"dimensions": 8},
        {"prefix": "[R] "},
        {"dtype": "int8"},
    ],
)
def test_options_without_effect_are_refused(folder, options):
    with pytest.raises(SpecError, match=f"{next(iter(options))}.* cannot be set"):
        load_model(folder, **options)


def test_it_has_no_vectors_and_takes_no_invalid_text(folder, model):
    with pytest.raises(SpecError, match="searches and reranks only, .*; load_model"):
        load_encoder(folder)
    with pytest.raises(EncoderError, match="text 1 is not valid Unicode"):
        model.best_documents(["a"], ["b", "\ud800"], k=1)
    assert model.best_documents(["a"], [" ", ""], k=2).ids.shape == (1, 2)


def test_a_head_that_is_missing_is_refused(tmp_path, tokenizer_folder):
    """The library would draw its weights at random."""
    from safetensors.torch import load_file, save_file

    folder = write_model("SparseEncoder", tmp_path, tokenizer_folder)
    (file,) = folder.rglob("model.safetensors")
    weights = {name: weight for name, weight in load_file(file).items() if "cls." not in name}
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="cls.predictions.*missing"):
        load_model(folder)


def test_the_command_reranks_with_it(cli, folder, tmp_path):
    data = write_beir(tmp_path / "beir")
    done = cli("rerank", "suite", "--model", str(folder), str(data), "--out", str(tmp_path / "r"))
    assert done.exit_code == 0, done.output
    assert "beir" in done.output


def test_a_folder_of_pylate_is_read_as_the_library_reads_it(tmp_path, tokenizer_folder):
    """Its prefixes are prompts; its queries are expanded, and its documents lose punctuation."""
    import sentence_transformers

    folder = write_model("MultiVectorEncoder", tmp_path, tokenizer_folder)
    fields = {
        "model_type": "ColBERT",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 16,
        "document_length": 32,
        "do_query_expansion": False,
        "skiplist_words": [".", ","],
    }
    (folder / "config_sentence_transformers.json").write_text(json.dumps(fields))
    modules = json.loads((folder / "modules.json").read_text())
    kept = [module for module in modules if module["type"].endswith(("Transformer", "Dense"))]
    for module in kept:
        if module["type"].endswith("Dense"):
            module["type"] = "pylate.models.Dense.Dense"
    (folder / "modules.json").write_text(json.dumps(kept))
    theirs = sentence_transformers.MultiVectorEncoder(str(folder), device="cpu")
    model = load_model(folder, show_progress=False)
    assert model.prompts == {"query": "[Q] ", "passage": "[D] "}
    expected = their_scores(theirs, QUERIES, DOCUMENTS)
    for query, row in zip(QUERIES, expected, strict=True):
        np.testing.assert_allclose(model.score_documents(query, DOCUMENTS), row, rtol=1e-6)


def test_a_module_of_pylate_is_taken_from_multi_vector_folders_only(tmp_path, tokenizer_folder):
    """Elsewhere the library would import PyLate; sparse folders have no Dense."""
    write = archetypes.module(archetypes.sentence(), 1, type="pylate.models.Dense.Dense")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = write(tmp_path / "dense", tokenizer_folder)
    with pytest.raises(CheckpointError, match="pylate"):
        load_model(folder)
