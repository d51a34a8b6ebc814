"""What to grade next, and when the grades decide between two models."""

import numpy as np
import pytest

from qwen3nb.analysis.judging.pool import grading_pool
from qwen3nb.analysis.judging.session import GradingSession
from qwen3nb.analysis.judging.sign_test import PositiveTest

ONE = 1.0  # discounts of the ranks 1, 2 and 3
TWO = 1 / np.log2(3)
THREE = 0.5


def two_models(documents=5, queries=30):
    """Rankings of ``new``, which puts the relevant document first, and ``old``, which does not."""
    new, old = {}, {}
    for query in range(queries):
        names = [f"d{query}-{rank}" for rank in range(documents)]
        new[f"q{query}"] = names
        old[f"q{query}"] = [*names[1:], names[0]]
    return {"old": old, "new": new}


def grade_all(session, grade_of, *, most=None):
    """Grade what the session asks for until it ends; return the number of grades."""
    while most is None or len(session.grades) < most:
        pair = session.next_pair()
        if pair is None:
            break
        session.grade(pair, grade_of(*session.pool.pairs[pair]))
    return len(session.grades)


def first_is_relevant(query, document):
    return 3 if document.endswith("-0") else 0


def test_a_document_counts_by_the_difference_of_its_discounts():
    rankings = {"old": {"q": ["a", "b", "c"]}, "new": {"q": ["a", "c", "d"]}}
    pool = grading_pool(rankings, current="old")
    assert pool.pairs == [("q", "a"), ("q", "b"), ("q", "c"), ("q", "d")]
    assert pool.weights == pytest.approx(np.array([[0, -TWO, TWO - THREE, THREE]]))
    assert list(pool.counts) == [False, True, True, True]
    assert list(pool.best_ranks) == [0, 1, 1, 2]
    assert list(pool.times_found) == [2, 1, 2, 1]


def test_the_sum_of_weighted_grades_is_the_difference_of_dcg():
    rankings = {"old": {"q": ["a", "b"]}, "new": {"q": ["b", "c"]}}
    session = GradingSession(grading_pool(rankings, current="old"), seed=0)
    grades = {"a": 1, "b": 3, "c": 2}
    grade_all(session, lambda query, document: grades[document])
    (standing,) = session.standings()
    assert standing.total == pytest.approx((3 * ONE + 2 * TWO) - (1 * ONE + 3 * TWO))


def test_a_clear_difference_takes_few_grades():
    session = GradingSession(grading_pool(two_models(), current="old"), seed=0)
    count = grade_all(session, first_is_relevant)
    (standing,) = session.standings()
    assert standing.is_better
    assert not standing.is_worse
    assert count < len(session.pool) / 3


def test_the_same_grades_give_the_same_state():
    pool = grading_pool(two_models(), current="old")
    first, second = GradingSession(pool, seed=1), GradingSession(pool, seed=1)
    grade_all(first, first_is_relevant, most=9)
    for pair, grade in first.grades.items():
        second.grade(pair, grade)
    assert second.standings() == first.standings()
    assert second.next_pair() == first.next_pair()


def test_where_models_rank_alike_nothing_is_asked():
    rankings = {"old": {"q": ["a", "b"]}, "new": {"q": ["a", "b"]}}
    session = GradingSession(grading_pool(rankings, current="old"), seed=0)
    assert session.next_pair() is None
    (standing,) = session.standings()
    assert (standing.is_known, standing.total, standing.t) == (True, 0, 0)
    assert standing.queries_needed is None
    assert not standing.is_better
    assert not standing.is_worse


def equal_models(queries=16):
    """Two models of equal DCG: each has the relevant document first on half of the queries."""
    rankings = two_models(queries=queries)
    for query in range(queries // 2):
        name = f"q{query}"
        rankings["old"][name], rankings["new"][name] = rankings["new"][name], rankings["old"][name]
    return rankings


def test_between_equal_models_a_session_seldom_decides():
    """At most one in twenty decides for the candidate, and for the other; see `sign_test`."""
    pool = grading_pool(equal_models(), current="old")
    sessions = 60
    better, worse = 0, 0
    for seed in range(sessions):
        session = GradingSession(pool, seed=seed)
        grade_all(session, first_is_relevant)
        (standing,) = session.standings()
        better += standing.is_better
        worse += standing.is_worse
    most = 0.05 * sessions + 2 * np.sqrt(0.05 * 0.95 * sessions)  # two standard errors
    assert max(better, worse) <= most


@pytest.mark.parametrize("seed", range(3))
def test_what_nobody_could_grade_is_taken_for_the_worst(seed):
    """Where every relevant document was skipped, nothing is shown."""
    session = GradingSession(grading_pool(two_models(), current="old"), seed=seed)
    while True:
        pair = session.next_pair()
        if pair is None:
            break
        if session.pool.documents[pair].endswith("-0"):
            session.skip(pair)
        else:
            session.grade(pair, 0)
    (standing,) = session.standings()
    assert standing.is_known
    assert not standing.is_better
    for pair in list(session.skipped):
        session.grade(pair, 3)
    assert session.standings()[0].is_better  # now it is known for certain


def test_grades_that_were_not_asked_for_are_known_but_no_evidence():
    session = GradingSession(grading_pool(two_models(), current="old"), seed=0)
    next_pair = session.next_pair()
    other = next(pair for pair in range(len(session.pool)) if pair != next_pair)
    session.grade(other, 1)
    (standing,) = session.standings()
    assert (standing.p_better, standing.p_worse) == (1.0, 1.0)
    assert session.chances()[other] == 0


def test_two_candidates_share_the_level():
    rankings = two_models()
    rankings["same"] = rankings["old"]
    rankings["other"] = rankings["new"]
    one = GradingSession(grading_pool(two_models(), current="old"), seed=0)
    three = GradingSession(grading_pool(rankings, current="old"), seed=0)
    for session in (one, three):
        for pair, (query, document) in enumerate(session.pool.pairs[:40]):
            session.grade(pair, first_is_relevant(query, document), grader="")
    by_name = {standing.candidate: standing for standing in three.standings()}
    assert by_name["same"].is_known
    assert by_name["new"].p_better == by_name["other"].p_better


def turns(first=6, second=6):
    """Models that take turns: on so many queries each has the relevant document first."""
    rankings = two_models(queries=first + second)
    for query in range(first, first + second):
        name = f"q{query}"
        rankings["old"][name], rankings["new"][name] = rankings["new"][name], rankings["old"][name]
    return rankings


def test_when_all_is_graded_t_is_that_of_the_queries():
    """By hand: the new model gains d on fifteen queries and loses d on five."""
    session = GradingSession(grading_pool(turns(15, 5), current="old"), seed=0)
    for pair, (query, document) in enumerate(session.pool.pairs):
        session.grade(pair, first_is_relevant(query, document))
    (standing,) = session.standings()
    signs = np.array([1.0] * 15 + [-1.0] * 5)
    t = signs.mean() / (signs.std(ddof=1) / np.sqrt(20))
    assert standing.t == pytest.approx(t)
    assert standing.t_error == 1
    assert standing.queries_needed == np.ceil(20 * (2.8 / t) ** 2)
    fewest, most = standing.queries_range
    assert fewest == np.ceil(20 * (2.8 / (t + 1.28)) ** 2)
    assert most == np.ceil(20 * (2.8 / (t - 1.28)) ** 2)


def test_of_a_small_t_no_number_of_queries_may_be_enough():
    session = GradingSession(grading_pool(turns(7, 6), current="old"), seed=0)
    for pair, (query, document) in enumerate(session.pool.pairs):
        session.grade(pair, first_is_relevant(query, document))
    assert session.standings()[0].queries_range[1] is None


def test_models_that_no_grades_tell_apart_end_before_all_is_graded():
    """They end in most sessions, long before the end in some, and never with a decision."""
    pool = grading_pool(turns(20, 20), current="old")
    shares = []
    for seed in range(8):
        session = GradingSession(pool, seed=seed)
        shares.append(grade_all(session, first_is_relevant) / len(pool))
        (standing,) = session.standings()
        assert standing.is_close or standing.is_better or standing.is_worse
    assert np.median(shares) < 0.9


def test_models_that_hardly_differ_are_equal_within_the_margin():
    """They swap documents that are not relevant, on every query."""
    names = [f"d{number}" for number in range(10)]
    swapped = [*names[:7], names[8], names[7], names[9]]
    queries = [f"q{number}" for number in range(100)]
    rankings = {"old": dict.fromkeys(queries, names), "new": dict.fromkeys(queries, swapped)}
    session = GradingSession(grading_pool(rankings, current="old"), seed=0)
    count = grade_all(session, lambda query, document: int(document in ("d0", "d7", "d8")))
    (standing,) = session.standings()
    assert (standing.is_close, standing.is_equal) == (True, True)
    assert count < 0.5 * session.pool.counts.sum()


def test_grades_of_0_and_1_alone_need_hardly_more_than_grades_of_0_and_3():
    """A bet knows no higher grade than it has seen, once it has seen a few above 0."""
    pool = grading_pool(two_models(queries=60), current="old")

    def is_first(query, document):
        return int(document.endswith("-0"))

    sessions = [GradingSession(pool, seed=seed) for seed in range(5)]
    counts = [grade_all(session, is_first) for session in sessions]
    sessions = [GradingSession(pool, seed=seed) for seed in range(5)]
    counts_of_three = [grade_all(session, first_is_relevant) for session in sessions]
    assert np.median(counts) < 1.3 * np.median(counts_of_three)


def test_a_model_that_another_beats_is_asked_about_no_more():
    """The best of three is known; whether the worst beats the model in use is not asked."""
    rankings = two_models(documents=8)
    rankings["best"] = rankings["new"]
    middle = {query: [names[1], names[0], *names[2:]] for query, names in rankings["new"].items()}
    rankings["new"] = middle
    session = GradingSession(grading_pool(rankings, current="old"), seed=0)
    grade_all(session, first_is_relevant)
    middle_standing, best_standing = session.standings()
    assert middle_standing.is_beaten
    assert not best_standing.is_beaten
    assert middle_standing.is_better or best_standing.is_better
    assert not any(standing.is_open for standing in session.standings())


@pytest.mark.parametrize(
    ("rankings", "message"),
    [
        ({"new": {"q": ["a"]}}, "no ranking of 'old'; there are some of: new"),
        ({"old": {"q": ["a"]}}, "only 'old' has a ranking; a choice needs another model"),
    ],
)
def test_too_few_rankings_are_refused(rankings, message):
    with pytest.raises(ValueError, match=message):
        grading_pool(rankings, current="old")


@pytest.mark.parametrize("grade", [-1, 4])
def test_a_grade_out_of_bounds_is_refused(grade):
    session = GradingSession(grading_pool(two_models(), current="old"), seed=0)
    with pytest.raises(ValueError, match=f"expected a grade from 0 to 3; got {grade}"):
        session.grade(0, grade)


def test_the_capital_of_a_fair_game_does_not_grow():
    """The mean of each capital over the two outcomes of a fair coin is what it was."""
    shares = [0.75, 0.25]
    outcomes = []
    for estimate in (-1.0, 1.0):
        test = PositiveTest(shares)
        test.bet(estimate, least=-1.0, stakes=[0.2, 3.0])
        outcomes.append(np.exp(test._log_capitals))
    assert np.mean(outcomes, axis=0) == pytest.approx(shares)


def test_a_stake_that_could_lose_everything_is_cut():
    test = PositiveTest([1.0])
    test.bet(-5.0, least=-1.0, stakes=[1e9])
    assert np.exp(test._log_capitals) == pytest.approx([0.03])


def test_half_of_the_capital_wins_half():
    """By hand: 0.5 of the capital stakes 0.4 on an estimate of 10, the other half nothing."""
    test = PositiveTest([0.5, 0.5])
    test.bet(10.0, least=-1.0, stakes=[0.4, 0.0])
    assert test.p_values == pytest.approx(1 / (0.5 * (1 + 0.4 * 10) + 0.5))


@pytest.mark.parametrize("stake", [0.01, 0.1, 0.5])
def test_a_fair_game_of_many_draws_is_seldom_won(stake):
    """Of 400 gamblers on fair coins, at most 5 % reach 20 times their capital; see `sign_test`."""
    coins = np.random.default_rng(0).choice([-1.0, 1.0], size=(300, 400))
    test = PositiveTest([0.8, 0.2], 400)
    least = np.full(400, -1.0)
    for estimates in coins:
        test.bet(estimates, least=least, stakes=[stake, 2 * stake])
    most = 0.05 + 2 * np.sqrt(0.05 * 0.95 / 400)  # two standard errors
    assert np.mean(test.p_values <= 0.05) <= most


def test_a_sum_that_cannot_be_negative_takes_no_bet():
    test = PositiveTest([1.0])
    test.bet(5.0, least=0.0, stakes=[1.0])
    assert test.p_values == 1.0


def test_a_session_that_a_corrected_grade_opens_again_asks_on():
    """All grades that decided were mistakes; taken back one by one, they decide no more."""
    session = GradingSession(grading_pool(two_models(queries=12), current="old"), seed=0)
    grade_all(session, first_is_relevant)
    assert session.next_pair() is None
    for pair, grade in list(session.grades.items()):
        if grade:
            session.grade(pair, 0)
        if session.standings()[0].is_open:
            break
    assert session.standings()[0].is_open
    assert session.next_pair() is not None
