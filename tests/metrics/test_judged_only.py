"""Metrics of judged documents only, of ties and of fractional grades, by oracles."""

import itertools
import random
from statistics import fmean

import numpy as np
import pytest
import pytrec_eval
from sklearn.metrics import ndcg_score

from qwen3nb.metrics.retrieval import (
    OF_JUDGED_DOCUMENTS,
    Measure,
    deepest,
    find_measure,
    rank_documents,
    score_rankings,
    score_run,
)

DOCUMENTS = [f"d{number}" for number in range(12)]
SCORES = [0.1, 0.2, 0.3, 0.5, -1.0]  # few, so that many documents tie


def random_case(generator):
    """Grades and a run of one query, with documents that only one of them has."""
    documents = DOCUMENTS[: generator.randint(1, len(DOCUMENTS))]
    judged = [document for document in documents if generator.random() < 0.5] or documents[:1]
    found = [document for document in documents if generator.random() < 0.8] or documents[:1]
    grades = {document: generator.randint(0, 3) for document in judged}
    return grades, {document: generator.choice(SCORES) for document in found}


def oracle(qrels, run, measure, threshold=1):
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {measure}, relevance_level=threshold)
    return {query: values[measure] for query, values in evaluator.evaluate(run).items()}


@pytest.mark.parametrize("threshold", [1, 2])
def test_bpref_is_that_of_trec_eval(threshold):
    generator = random.Random(threshold)
    cases = {f"q{number}": random_case(generator) for number in range(2000)}
    qrels = {query: grades for query, (grades, _) in cases.items()}
    run = {query: scores for query, (_, scores) in cases.items()}
    ours = score_run(qrels, run, ["bpref"], threshold=threshold)["bpref"]
    theirs = oracle(qrels, run, "bpref", threshold)
    assert len(ours) > 1000
    assert ours == pytest.approx({query: theirs[query] for query in ours}, abs=1e-12)


def test_bpref_by_hand():
    """Two relevant, three not; the second relevant one stands below one that is not."""
    qrels = {"q": {"a": 1, "b": 2, "x": 0, "y": 0, "z": 0}}
    run = {"q": {"a": 5.0, "unjudged": 4.0, "x": 3.0, "b": 2.0}}
    assert score_run(qrels, run, ["bpref"])["bpref"]["q"] == (1 + 1 - 1 / 2) / 2


def test_condensed_metrics_are_those_of_the_run_without_unjudged_documents():
    generator = random.Random(3)
    cases = {f"q{number}": random_case(generator) for number in range(1000)}
    qrels = {query: grades for query, (grades, _) in cases.items()}
    run = {query: scores for query, (_, scores) in cases.items()}
    left = {}
    for query, scores in run.items():
        judged = {document: scores[document] for document in scores if document in qrels[query]}
        if judged:
            left[query] = judged
    ours = score_run(qrels, run, ["condensed_nDCG@3", "condensed_MRR@10"], threshold=2)
    gain = oracle(qrels, left, "ndcg_cut_3")
    for query, value in ours["condensed_nDCG@3"].items():
        assert value == pytest.approx(gain.get(query, 0.0), abs=1e-9)
    rank = oracle(qrels, left, "recip_rank", 2)
    for query, value in ours["condensed_MRR@10"].items():
        assert value == pytest.approx(rank.get(query, 0.0))


def test_judged_documents_are_looked_for_below_the_first_ten():
    run = {"q": {f"u{number:02}": 99.0 - number for number in range(40)} | {"a": 0.0}}
    scores = score_run({"q": {"a": 1, "b": 0}}, run, ["MRR@10", "condensed_MRR@10", "bpref"])
    assert [scores[name]["q"] for name in scores] == [0.0, 1.0, 1.0]


def test_names_and_depths():
    assert Measure("bpref").search_depth == 1000
    assert deepest([Measure("nDCG@10"), Measure("condensed_nDCG@10")]) == 1000
    assert deepest([Measure("tie_averaged_nDCG@10")]) == 10
    assert [find_measure(name) for name in ("bpref@10", "condensed_nDCG", "accuracy")] == [None] * 3
    with pytest.raises(ValueError, match=r"nDCG, .* with a depth, as in nDCG@10, or bpref"):
        Measure("Bpref")
    assert all(find_measure(name) for name in OF_JUDGED_DOCUMENTS)


def orders_of_ties(scores):
    """Yield every ranking in which a better score comes first."""
    groups = []
    for value in sorted(set(scores.values()), reverse=True):
        tied = [document for document in scores if scores[document] == value]
        groups.append(list(itertools.permutations(tied)))
    for parts in itertools.product(*groups):
        yield list(itertools.chain(*parts))


@pytest.mark.parametrize("depth", [1, 2, 3, 10])
def test_tie_averaged_ndcg_is_the_mean_over_all_orders(depth):
    generator = random.Random(depth)
    for _ in range(40):
        found = generator.sample("abcdef", generator.randint(1, 6))
        scores = {document: generator.choice([1.0, 2.0]) for document in found}
        grades = {document: generator.randint(0, 3) for document in "abcg"} | {"a": 2}
        name = f"tie_averaged_nDCG@{depth}"
        value = score_run({"q": grades}, {"q": scores}, [name])[name]["q"]
        each = []
        for order in orders_of_ties(scores):
            untied = {document: -float(place) for place, document in enumerate(order)}
            plain = score_run({"q": grades}, {"q": untied}, [f"nDCG@{depth}"])
            each.append(plain[f"nDCG@{depth}"]["q"])
        assert value == pytest.approx(fmean(each))


def test_tie_averaged_ndcg_is_that_of_scikit_learn():
    generator = np.random.default_rng(0)
    for _ in range(50):
        grades = generator.integers(0, 4, 9) / 2 + generator.random(9).round(1)
        scores = generator.integers(0, 3, 9).astype(float)
        names = [f"d{number}" for number in range(9)]
        qrels = {"q": dict(zip(names, grades.tolist(), strict=True))}
        run = {"q": dict(zip(names, scores.tolist(), strict=True))}
        ours = score_run(qrels, run, ["tie_averaged_nDCG@5"])["tie_averaged_nDCG@5"]["q"]
        assert ours == pytest.approx(ndcg_score([grades], [scores], k=5))


def test_scores_that_tie_in_32_bits_tie():
    run = {"q": {"a": 1.0, "b": 1.0 + 1e-12}}
    scores = score_run({"q": {"a": 1}}, run, ["tie_averaged_nDCG@1", "nDCG@1"])
    assert (scores["tie_averaged_nDCG@1"]["q"], scores["nDCG@1"]["q"]) == (0.5, 0.0)


def test_fractional_grades_are_gains():
    """trec_eval reads whole numbers only; nDCG of grades times four is the same."""
    generator = random.Random(5)
    for _ in range(200):
        grades = {document: generator.randint(0, 8) for document in DOCUMENTS} | {"d0": 5}
        _, scores = random_case(generator)
        quarters = {document: grade / 4 for document, grade in grades.items()}
        ours = score_run({"q": quarters}, {"q": scores}, ["nDCG@10"])["nDCG@10"]["q"]
        theirs = oracle({"q": grades}, {"q": scores}, "ndcg_cut_10")["q"]
        assert ours == pytest.approx(theirs)
        ranked = [rank_documents(scores)]
        assert score_rankings(ranked, [quarters], ["nDCG@10"])["nDCG@10"] == ours


@pytest.mark.parametrize(
    ("name", "measure"),
    [("P(rel=2)@5", "P_5"), ("bpref(rel=3)", "bpref"), ("MRR(rel=2)@10", "recip_rank")],
)
def test_a_measure_may_name_its_threshold(name, measure):
    generator = random.Random(7)
    level = int(name[name.index("=") + 1])
    for _ in range(100):
        grades, scores = random_case(generator)
        grades["d0"] = 3
        ours = score_run({"q": grades}, {"q": scores}, [name], threshold=1)[name]["q"]
        theirs = oracle({"q": grades}, {"q": scores}, measure, level)["q"]
        if theirs >= 0.1:  # trec_eval's reciprocal rank is not cut off at 10
            assert ours == pytest.approx(theirs)
    for wrong in ("nDCG(rel=2)@10", "P(rel=0)@5"):
        with pytest.raises(ValueError, match="expected a threshold above 0, of a metric without"):
            Measure(wrong)


def test_half_a_grade_is_relevant_from_its_threshold():
    """By hand: exponential gains are 2^1.5 - 1 and 2^0.5 - 1."""
    qrels, run = {"q": {"a": 1.5, "b": 0.5}}, {"q": {"b": 2.0, "a": 1.0}}
    scores = score_run(qrels, run, ["MRR@10", "nDCGexp@10", "P@2"], threshold=1.5)
    assert (scores["MRR@10"]["q"], scores["P@2"]["q"]) == (0.5, 0.5)
    high, low, log = 2**1.5 - 1, 2**0.5 - 1, np.log2(3)
    assert scores["nDCGexp@10"]["q"] == pytest.approx((low + high / log) / (high + low / log))
    assert score_run(qrels, run, ["MRR@10"], threshold=0.5)["MRR@10"]["q"] == 1.0
