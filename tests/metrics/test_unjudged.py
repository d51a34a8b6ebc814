"""The range over grades of unjudged documents, by trying every grade of each."""

import itertools
import random
import time

import numpy as np
import pytest

from qwen3nb.metrics.retrieval import UNJUDGED, Measure, score_run
from qwen3nb.metrics.unjudged import NOTHING, GradedDocuments, extremes, has_range

MEASURES = ["nDCG@3", "nDCG@10", "nDCGexp@4", "MRR@3", "MRR@10", "Hit@2", "P@3", "Recall@3"]


def graded(judgements, documents):
    grades = [judgements.get(document, UNJUDGED) for document in documents]
    ideal = sorted((grade for grade in judgements.values() if grade > 0), reverse=True)
    return GradedDocuments(documents, grades, ideal)


def scores(judgements, rankings, measure, threshold):
    """The scores of rankings by `score_run`, which pytrec_eval has checked."""
    values = []
    for documents in rankings:
        run = {"q": {document: -float(place) for place, document in enumerate(documents)}}
        found = score_run({"q": judgements}, run, [measure], threshold=threshold)[measure]
        values.append(found["q"] if documents else 0.0)
    return values


def random_case(generator, grades):
    documents = generator.sample("abcdefg", generator.randint(1, 5))
    others = generator.sample("abcdefg", generator.randint(0, 4))
    judged = generator.sample("abcdefgxy", 5)
    judgements = {document: generator.choice([0, *grades]) for document in judged}
    # The highest grade is among the judgements, so that any may be given.
    judgements["z"] = grades[-1]
    judgements["w"] = grades[0]
    return judgements, documents, others


@pytest.mark.parametrize("grades", [(1,), (1, 2, 3), (0.5, 3)])
@pytest.mark.parametrize("name", MEASURES)
def test_no_grades_give_a_difference_beyond_the_extremes(name, grades):
    measure, generator = Measure(name), random.Random(len(name))
    threshold = grades[-1]
    for _ in range(25):
        judgements, documents, others = random_case(generator, grades)
        unjudged = sorted({*documents, *others} - judgements.keys())
        pair = (graded(judgements, documents), graded(judgements, others))
        # The other queries' grades may be given, too: each grade stands in one of them.
        found = extremes(measure, [pair[0]], [pair[1]], threshold=threshold)
        levels = sorted({0, *pair[0].ideal}) if measure.graded else [0, threshold]
        tried = []
        for assigned in itertools.product(levels, repeat=len(unjudged)):
            every = judgements | dict(zip(unjudged, assigned, strict=True))
            first, second = scores(every, (documents, others), name, threshold)
            tried.append(first - second)
        lowest, highest = found.lowest[0], found.highest[0]
        assert lowest[0] - lowest[1] == pytest.approx(min(tried), abs=1e-12)
        assert highest[0] - highest[1] == pytest.approx(max(tried), abs=1e-12)
        recorded = scores(judgements, (documents, others), name, threshold)
        assert found.recorded[0].tolist() == pytest.approx(recorded)


def test_the_extremes_of_a_score_are_those_against_nothing():
    """By hand: relevant at 1 it gains; relevant at 10 it raises the ideal ranking more."""
    documents = [f"d{place}" for place in range(10)]
    judgements = {f"d{place}": 0 for place in range(1, 10)} | {"x": 1}
    found = extremes(Measure("nDCG@10"), [graded(judgements, documents)], [NOTHING])
    ideal = 1 + 1 / np.log2(3)
    assert (found.lowest[0, 0], found.highest[0, 0]) == (0.0, pytest.approx(1 / ideal))
    judgements = {"d0": 1} | {f"d{place}": 0 for place in range(1, 9)}
    found = extremes(Measure("nDCG@10"), [graded(judgements, documents)], [NOTHING])
    assert found.highest[0, 0] == 1.0
    assert found.lowest[0, 0] == pytest.approx((1 + 1 / np.log2(11)) / ideal)


def test_a_document_that_both_rank_alike_changes_nothing():
    judgements = {"a": 1, "b": 0}
    first, second = graded(judgements, ["u", "a", "b"]), graded(judgements, ["u", "b", "a"])
    found = extremes(Measure("MRR@10"), [first], [second])
    assert found.highest[0].tolist() == found.recorded[0].tolist() == [1 / 2, 1 / 3]
    assert found.lowest[0].tolist() == [1.0, 1.0]


def test_grades_of_other_queries_may_be_given():
    """By hand: the first query has grade 1 alone, the second shows that there is a 3."""
    first = [graded({"a": 1}, ["u", "a"]), graded({"b": 3}, ["b"])]
    found = extremes(Measure("nDCG@10"), first, [NOTHING, NOTHING])
    assert found.highest[0, 0] == 1.0  # u has 1 or 3
    assert found.recorded[0, 0] == pytest.approx(1 / np.log2(3))


def test_what_has_no_range_is_refused():
    assert not has_range(Measure("bpref"))
    assert not has_range(Measure("Judged@10"))
    with pytest.raises(ValueError, match="the range of MAP@10 is not known"):
        extremes(Measure("MAP@10"), [NOTHING], [NOTHING])
    with pytest.raises(ValueError, match="expected a relevant document for every query"):
        extremes(Measure("nDCG@10"), [NOTHING], [NOTHING])


def test_three_thousand_queries_take_a_moment():
    generator = random.Random(0)
    names = [f"d{number}" for number in range(40)]
    first, second = [], []
    for _ in range(3000):
        judgements = {name: generator.randint(0, 3) for name in names[:8]} | {"d0": 3}
        for rankings in (first, second):
            rankings.append(graded(judgements, generator.sample(names, 10)))
    start = time.process_time()
    found = extremes(Measure("nDCG@10"), first, second)
    assert time.process_time() - start < 5
    difference = found.highest - found.lowest
    assert (difference[:, 0] - difference[:, 1] >= 0).all()
