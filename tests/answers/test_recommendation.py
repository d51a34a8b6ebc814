"""Which model to use: a case for each state of the evidence, and one wording for each case."""

import html
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.records import RETRIEVAL, amend, make

from qwen3nb.answers.comparison import compare
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.answers.recommendation import Case, counted_questions, recommend, sentences
from qwen3nb.metrics.query_scores import QueryScores

RNG = np.random.default_rng(6)
BASE = RNG.uniform(0.3, 0.6, 200)


def scored(label, gain, *, spread=0.02, spec=""):
    """A model whose scores are those of the base, with a gain and noise."""
    noise = np.random.default_rng([200, *label.encode()]).normal(0, spread, 200)
    record = make(label, scores=BASE + gain + noise - noise.mean())
    if spec:
        amend(record, "model", spec=spec)
    return record


def recommended(*records, toys=()):
    """The recommendation, and its sentences with the names of models between stars."""
    recommendation = recommend(compare(records, tier="smoke"), task=RETRIEVAL, results=records)
    text = " ".join(sentences(recommendation, toys=toys))
    return recommendation, html.unescape(re.sub("</?strong>", "*", text))


def test_a_clear_lead():
    recommendation, text = recommended(
        scored("a", 0.2), scored("b", 0.1), scored("c", 0.1, spread=0.2)
    )
    assert recommendation.case is Case.CLEAR_LEAD
    assert re.fullmatch(
        r"\*a\* finds the most, clearly more than [bc], the next best, on 200 questions\.", text
    )


@pytest.mark.parametrize(
    ("rivals", "words"),
    [
        ("b", "*b* is as good"),
        ("bc", "*b* and *c* are as good"),
        ("bcd", "*b* and 2 more are as good"),
    ],
)
def test_a_tie(rivals, words):
    ties = [scored(label, 0.199 - place / 1e3) for place, label in enumerate(rivals)]
    recommendation, text = recommended(scored("a", 0.2, spread=0.2), *ties, scored("z", 0))
    assert recommendation.case is Case.TIE
    assert recommendation.models.rivals == tuple(rivals)
    assert text == (
        f"*a* finds the most, clearly more than z. {words}, as far as 200 questions can tell."
    )


def test_a_tie_of_all_models():
    recommendation, text = recommended(scored("a", 0.001, spread=0.3), scored("b", 0))
    assert recommendation.case is Case.TIE
    assert text.startswith("*a* scores highest, but not clearly. *b* is as good, as far as")


def test_a_model_that_is_no_better_than_chance():
    chance = scored("random", 0, spec="random")
    _, text = recommended(scored("a", 0.001, spread=0.3), chance)
    assert text.endswith("On 200 questions, it is not shown to be better than chance.")


def test_a_single_model():
    recommendation, text = recommended(scored("a", 0))
    assert recommendation.case is Case.SINGLE
    assert text.startswith("*a* is the only model so far, measured on 200 questions.")


def test_models_of_other_questions_are_not_compared():
    other = make("b", scores={f"other{i}": 0.2 for i in range(50)})
    recommendation, text = recommended(scored("a", 0), other)
    assert recommendation.case is Case.NOT_COMPARED
    assert recommendation.models.unpaired == 1
    assert text.startswith("No decision: *a* scores highest, on 200 questions.")


def test_no_records():
    recommendation, text = recommended()
    assert recommendation.case is Case.NO_RECORDS
    assert text.startswith("No model has been evaluated on whole tasks yet.")
    _, text = recommended(make("judge", task="x.bm25-1"))
    assert text.endswith("There are some on x.bm25-1: see the pages below.")


def test_toys_have_a_mark_and_other_metrics_find_nothing():
    toy = scored("toy", 0.2)
    _, text = recommended(toy, scored("b", 0), toys=["toy"])
    assert text.startswith("*toy* (a toy) finds the most")
    accurate = [scored("a", 0.3), scored("b", 0)]
    for record in accurate:
        amend(record, "task", main_metric="accuracy", unit="texts")
        record.metrics["accuracy"] = record.metrics["nDCG@10"]
        record.per_query["accuracy"] = record.per_query["nDCG@10"]
    _, text = recommended(*accurate)
    assert text == "*a* scores highest, clearly above b, the next best, on 200 texts."


def test_sentences_are_short():
    long = [scored("a-long-name-of-a-model", 0.2, spread=0.2), scored("another", 0.199)]
    for records in (long, [*long, scored("c", 0)], long[:1], []):
        _, text = recommended(*records)
        for sentence in text.split(". "):
            assert len(sentence.split()) <= 25


def test_one_question_is_no_plural():
    assert counted_questions(1, "queries") == "1 question"


def similar(label, value):
    """A record of STS: its score is a correlation, and a pair has none."""
    record = make(label, [value] * 3, task="AuthorSTS", metric="Spearman")
    amend(record, "task", type="STS", unit="pairs")
    values = np.arange(3.0)
    pairs = QueryScores(("a", "b", "c"), {"cosine": values, "gold": values})
    return replace(record, per_query=pairs)


def test_correlations_lead_where_nothing_else_was_measured():
    records = [similar("a", 0.8), similar("b", 0.3)]
    board = leaderboard(records, tier="smoke")
    assert board.task == "AuthorSTS"
    assert "No results" not in board.conclusion.text
    recommendation = recommend(board.comparison, task=board.task, results=records)
    assert recommendation.case is Case.NOT_COMPARED
    assert sentences(recommendation)[1] == "Spearman is of all pairs together: no test here."
