"""A fusion whose weights are chosen by the grades of other queries: formulas, honesty, records."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import qwen3nb as q
from qwen3nb.cli.main import main
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.retrieval.custom import evaluate_domain, search_domain
from qwen3nb.evaluation.retrieval.first_stage import describe
from qwen3nb.evaluation.retrieval.fitted_fusion import fit_fusion
from qwen3nb.metrics.fusion_weights import FOLDS, STEPS, folds_of_queries
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.capabilities import refusal
from qwen3nb.models.kinds.resolve import FUSION_KIND, find_source, split_fusion
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.load import load_model
from qwen3nb.models.model import Model
from qwen3nb.models.search.fusion import FittedFusion, fuse, scaled_scores
from qwen3nb.models.types import SpecError
from qwen3nb.records.store import verify
from qwen3nb.records.verification import fitted_problems
from qwen3nb.utils.atomic_files import sha256_json

DEPTH = 100


class Part:
    """What a fusion knows of a part."""

    def __init__(self, label, least_score=None):
        self.label, self.least_score = label, least_score


def fusion(*parts, fitted="cv"):
    model = FittedFusion.__new__(FittedFusion)
    model._parts = model._searchers = parts
    model.source = Source("a+b", FUSION_KIND, "a-plus-b", fitted=fitted)
    return model


def fit(runs, qrels, *, parts=None, clusters=None, **options):
    fitted = options.pop("fitted", "cv")
    parts = parts or [Part(f"part {number}", least_score=0.0) for number in range(len(runs))]
    model = fusion(*parts, fitted=fitted)
    texts = {query: sha256_json(query) for query in qrels}  # none like another
    return fit_fusion(
        model, runs, qrels, texts=texts, clusters=clusters or {}, depth=DEPTH, **options
    )


def means(runs, qrels):
    return float(score_run(qrels, runs, ["nDCG@10"]).array("nDCG@10").mean())


def noise(random, queries, documents=30):
    """Scores that know nothing of relevance; the first document of each query is relevant."""
    values = random.random((queries, documents))
    return {
        f"q{query}": {f"d{document}": float(value) for document, value in enumerate(row)}
        for query, row in enumerate(values)
    }


def one_relevant(queries):
    return {f"q{query}": {"d0": 1} for query in range(queries)}


def test_scores_on_the_common_scale_by_hand():
    """TM2C2 of Bruch et al.: BM25 from 0, a cosine from -1; the best document has 1."""
    assert scaled_scores({"a": 8.0, "b": 2.0}, least=0.0) == {"a": 1.0, "b": 0.25}
    assert scaled_scores({"a": 0.5, "b": -0.25}, least=-1.0) == {"a": 1.0, "b": 0.5}
    # Without a bound, ranx's min-max: (score - min) / (max - min).
    assert scaled_scores({"a": 8.0, "b": 2.0, "c": 5.0}, least=None) == {"a": 1, "b": 0, "c": 0.5}
    assert scaled_scores({"a": 3.0, "b": 3.0}, least=None) == {"a": 1.0, "b": 1.0}
    assert scaled_scores({}, least=None) == {}


def test_a_document_that_a_part_does_not_return_has_its_lowest_score():
    words, vectors = Part("words", 0.0), Part("vectors", -1.0)
    rankings = [{"a": 4.0, "b": 1.0}, {"c": 0.6, "a": 0.2}]
    query = fusion(words, vectors).fused_query(rankings, depth=2)
    assert query.documents == ("c", "b", "a")
    # Both returned as many as they were asked for: the others have at most the last score.
    assert query.scores.tolist() == [[0.25, 0.25, 1.0], pytest.approx([1.0, 0.75, 0.75])]
    # With fewer, they found no others.
    query = fusion(words, vectors).fused_query(rankings, depth=3)
    assert query.scores.tolist() == [[0.0, 0.25, 1.0], pytest.approx([1.0, 0.0, 0.75])]
    assert query.fused(np.array([0.6, 0.4])) == pytest.approx(
        {"a": 0.6 + 0.4 * 0.75, "b": 0.6 * 0.25, "c": 0.4}
    )


def test_equal_weights_of_ranks_are_reciprocal_rank_fusion():
    random = np.random.default_rng(0)
    runs = [noise(random, 5), noise(random, 5)]
    fitted = fit(runs, one_relevant(5), fitted="cv-ranks")
    assert fitted.fitted["reason"] == "5 independent queries are fewer than 20"
    assert fitted.fitted["weights"] == [0.5, 0.5]
    for query, scores in fuse(runs).items():
        halves = {document: score / 2 for document, score in scores.items()}
        assert fitted.hits[query] == pytest.approx(halves)


def test_weights_and_held_out_scores_agree_with_plain_numpy():
    """Another computation of the whole: each fold with the best weight of all other folds."""
    random = np.random.default_rng(1)
    queries, documents = 50, 40
    relevance = random.random((queries, documents)) < 0.1
    relevance[:, 0] = True
    tables = [random.random((queries, documents)) + strength * relevance for strength in (0.3, 0.5)]
    names = [f"q{query}" for query in range(queries)]
    runs = [
        {
            name: {f"d{document:02}": float(value) for document, value in enumerate(row)}
            for name, row in zip(names, table, strict=True)
        }
        for table in tables
    ]
    qrels = {
        name: {f"d{document:02}": 1 for document in np.flatnonzero(row)}
        for name, row in zip(names, relevance, strict=True)
    }
    clusters = {name: f"c{query // 2}" for query, name in enumerate(names)}
    fitted = fit(runs, qrels, clusters=clusters, seed=7)

    first, second = [table / table.max(axis=1, keepdims=True) for table in tables]
    discounts = 1 / np.log2(np.arange(2, 12))
    steps = STEPS[2]
    scores = np.zeros((queries, steps + 1))
    for step in range(steps + 1):
        weight = step / steps
        best_first = np.argsort(-(weight * first + (1 - weight) * second), axis=1)[:, :10]
        found = np.take_along_axis(relevance, best_first, axis=1)
        ideal = [discounts[: min(10, count)].sum() for count in relevance.sum(axis=1)]
        scores[:, step] = (found * discounts).sum(axis=1) / ideal
    texts = {name: sha256_json(name) for name in names}  # none like another
    folds = folds_of_queries(texts, clusters, seed=7)
    expected = np.zeros(queries)
    for fold in range(FOLDS):
        best = scores[folds != fold].mean(axis=0).argmax()
        assert fitted.fitted["folds"][fold] == pytest.approx([best / steps, 1 - best / steps])
        expected[folds == fold] = scores[folds == fold, best]
    held_out = score_run(qrels, fitted.hits, ["nDCG@10"]).array("nDCG@10")
    assert held_out == pytest.approx(expected, abs=1e-6)
    assert fitted.fitted["same_queries"] == pytest.approx(scores.mean(axis=0).max())


def test_choosing_between_useless_parts_flatters_only_the_score_on_the_same_queries():
    """Any fusion of noise is noise; the best of 21 on the same queries looks better than that."""
    random = np.random.default_rng(2)
    qrels = one_relevant(40)
    single, held_out, same = [], [], []
    for _ in range(60):
        runs = [noise(random, 40), noise(random, 40)]
        fitted = fit(runs, qrels)
        single.append(means(runs[0], qrels))
        held_out.append(means(fitted.hits, qrels))
        same.append(fitted.fitted["same_queries"])
    differences = np.subtract(held_out, single)
    standard_error = differences.std(ddof=1) / np.sqrt(len(differences))
    assert abs(differences.mean()) < 3 * standard_error
    flattery = np.subtract(same, single)
    assert flattery.mean() > 5 * flattery.std(ddof=1) / np.sqrt(len(flattery))


def test_a_fusion_of_parts_that_complement_each_other_wins_held_out():
    """Each part is sure of the relevant document for one half of the queries."""
    random = np.random.default_rng(3)
    runs = [noise(random, 60), noise(random, 60)]
    for query in range(60):
        runs[query % 2][f"q{query}"]["d0"] = 2.5
    qrels = one_relevant(60)
    fitted = fit(runs, qrels)
    assert means(fitted.hits, qrels) > max(means(run, qrels) for run in runs) + 0.15
    for weights in fitted.fitted["folds"]:
        assert 0.3 < weights[0] < 0.7


def test_three_parts_of_which_one_is_useless():
    random = np.random.default_rng(4)
    runs = [noise(random, 60) for _ in range(3)]
    for query in range(60):
        runs[query % 2][f"q{query}"]["d0"] = 2.5
    qrels = one_relevant(60)
    fitted = fit(runs, qrels)
    assert sum(fitted.fitted["weights"]) == pytest.approx(1)
    assert fitted.fitted["weights"][2] < min(fitted.fitted["weights"][:2])
    assert means(fitted.hits, qrels) > means(runs[0], qrels) + 0.15


def test_queries_for_which_no_part_finds_anything_score_0():
    random = np.random.default_rng(5)
    runs = [noise(random, 30), noise(random, 30)]
    for run in runs:
        run["q0"] = {}
    fitted = fit(runs, one_relevant(30))
    assert fitted.hits["q0"] == {}
    assert means(fitted.hits, one_relevant(30)) > 0


def test_a_spec_says_how_weights_are_fitted(tmp_path):
    source = find_source("bm25+random@cv")
    assert ([part.spec for part in source.parts], source.fitted) == (["bm25", "random"], "cv")
    assert source.label == Model("bm25+random@cv").label == "bm25-plus-random-cv"
    assert find_source("bm25+random@cv-ranks").label == "bm25-plus-random-cv-ranks"
    identities = {Model(f"bm25+random{how}").identity for how in ("", "@cv", "@cv-ranks")}
    assert len(identities) == 3  # before they were loaded, and
    identities |= {load_model(f"bm25+random{how}").identity for how in ("", "@cv", "@cv-ranks")}
    assert len(identities) == 3  # after
    folder = tmp_path / "model@cv"
    folder.mkdir()
    assert split_fusion(f"bm25+{folder}") == (f"bm25+{folder}", "")
    assert split_fusion(f"bm25+{folder}@cv") == (f"bm25+{folder}", "cv")
    with pytest.raises(SpecError, match="at most 5 models; got 6"):
        find_source("bm25+random+random:1+random:2+random:3+random:4@cv")
    for misspelt in ("bm25+random@CV", "bm25@cv", "random@cv+bm25", "bm25+random@cv@cv"):
        with pytest.raises(SpecError, match="A fusion ends in @cv or @cv-ranks, as bm25"):
            find_source(misspelt)


def test_where_there_are_no_grades_weights_are_equal_or_refused():
    model = load_model("bm25+random@cv", show_progress=False)
    found = Model("bm25+random@cv").search(["red"], ["red hat", "blue"], k=2)
    assert set(found[0]) == {0, 1}
    with pytest.raises(DataError, match="weights that the grades of own data choose"):
        describe(model)
    for tried in (model, Model("bm25+random@cv")):
        assert "as `qwen3nb domain` does" in refusal(tried, "Retrieval")
    assert refusal(Model("bm25+random"), "Retrieval") == ""


@pytest.fixture
def domain():
    """Words that only BM25 understands, for 24 queries in 24 clusters."""
    documents = [{"id": f"d{number}", "text": f"word{number} common"} for number in range(40)]
    queries = [
        {"id": f"q{number}", "query": f"word{number}", "expected": [f"d{number}"]}
        for number in range(24)
    ]
    return load_domain(queries, documents, complete=True, name="words")


def test_the_record_states_weights_and_what_choosing_flatters(domain):
    models = ["random:16", "bm25", "bm25+random:16@cv"]
    run = evaluate_domain(models, domain, show_progress=False)
    record = run.results[2]
    fitted = record.search.fitted
    assert fitted["parts"] == ["bm25", "random-16"]
    assert len(fitted["folds"]) == FOLDS
    assert fitted["same_queries"] >= record.main.value
    assert verify(record) == []
    (stored,) = (each for each in q.load_results() if each.search.fitted)
    assert stored.search.fitted == fitted
    again = evaluate_domain(models, domain, show_progress=False)
    assert len(again.reused) == 3
    other_seed = evaluate_domain(models[2:], domain, seed=1, show_progress=False).results[0]
    assert verify(other_seed) == []
    page = q.Results(run.results).own_data()
    table = page.fusion_table()
    assert [row["model"] for row in table.to_frame().to_dict("records")] == [record.model.label]
    sentence = "fuses bm25 and random-16, 0.50 to 0.50, chosen on other queries: nDCG@10 1.000 held"
    assert any(sentence in reason for reason in page.candidates.decision.sentences)
    assert "## Fusions" in page.candidates.to_markdown()
    assert json.loads(page.candidates.to_json())["models"][record.model.label]["settings"]["fitted"]
    assert q.Results(run.results[:2]).own_data().fusion_table() is None
    hits = search_domain(load_model("bm25+random:16@cv", show_progress=False), domain)
    assert score_run(domain.grades, hits).array("nDCG@10") == pytest.approx(
        record.scores.array("nDCG@10")
    )


def test_changed_weights_and_sums_are_found_even_with_a_new_checksum(domain):
    record = evaluate_domain(["bm25+random:16@cv"], domain, show_progress=False).results[0]

    def problems(**changes):
        fitted = {**record.search.fitted, **changes}
        return list(fitted_problems(replace(record, search=replace(record.search, fitted=fitted))))

    assert problems() == []
    folds = record.search.fitted["folds"]
    assert problems(weights=[0.9, 0.1]) == [
        "its fusion states weights that do not follow from its sums"
    ]
    assert problems(folds=[[0.0, 1.0], *folds[1:]]) == [
        "its fusion states weights that do not follow from its sums"
    ]
    assert "its sums differ" in problems(same_queries=0.5)[0]
    totals = [[total + 1 for total in row] for row in record.search.fitted["totals"]]
    assert "its held-out scores do not add up to the sums of its fusion" in problems(totals=totals)
    assert "expected (10, 21)" in problems(totals=[])[0]


def test_the_command_names_the_weights_and_the_words(domain, tmp_path):
    queries, documents = tmp_path / "q.jsonl", tmp_path / "d.jsonl"
    rows = [
        {"query": text, "relevance_grades": {name.replace("q", "d"): 3}}
        for name, text in domain.queries.items()
    ]
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"id": name, "text": text} for name, text in domain.texts.items()]
    documents.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["domain", "--queries", str(queries), "--documents", str(documents), "--complete"]
    arguments += ["--model", "random:16,both=bm25+random:16@cv", "--no-report"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "Take both instead of random-16" in done.output
    text = " ".join(done.output.split())
    assert "BM25 reads words of English; English stop words and stemmer" in text
