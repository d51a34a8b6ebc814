"""Brackets of models that are not told apart, and the ranks that they share."""

import itertools

import numpy as np
from helpers.matrices import table

from qwen3nb.analysis.comparison.brackets import Bracket, find_ties, ties_of_differences
from qwen3nb.analysis.comparison.differences import paired_differences
from qwen3nb.analysis.comparison.ranking import tie_groups


def pairs(*texts):
    return {frozenset(text) for text in texts}


def rows_of(ties):
    return [bracket.rows for bracket in ties.brackets]


def test_overlapping_brackets_and_shared_ranks():
    """By hand: a and b are tied, b and c, and e, f and g; c is behind a."""
    ties = find_ties("abcdefgh", pairs("ab", "bc", "ef", "fg", "eg"))
    assert rows_of(ties) == [(0, 1), (1, 2), (4, 5, 6)]
    assert ties.ranks == (1, 1, 3, 4, 5, 5, 5, 8)
    assert ties.best == ("a", "b")
    assert ties.not_separated("b") == ("a", "c")
    assert (ties.rank("g"), ties.not_separated("h")) == (5, ())


def test_a_bracket_leaves_out_a_model_that_is_told_apart():
    """Of a, b and c, only b is behind a: few queries of c, or very unlike ones, show nothing."""
    (bracket,) = find_ties("abc", pairs("ac")).brackets
    assert (bracket.rows, bracket.gaps) == ((0, 2), (1,))
    assert find_ties("abc", pairs("ac")).ranks == (1, 2, 3)


def test_a_pair_that_was_not_compared_is_in_no_bracket():
    rng = np.random.default_rng(4)
    base = rng.random(60)
    near = base + rng.normal(0, 0.1, 60) - 0.001
    matrix = table(base, near, base - 0.5)
    differences = paired_differences(matrix, draws=500, seed=0)
    assert rows_of(ties_of_differences(matrix.systems, differences)) == [(0, 1)]
    assert rows_of(ties_of_differences(matrix.systems, [])) == []
    assert ties_of_differences(matrix.systems, []).ranks == (1, 2, 3)


def test_every_tied_pair_is_in_a_bracket_and_no_other():
    rng = np.random.default_rng(8)
    for _ in range(200):
        models = "abcdefgh"[: rng.integers(0, 9)]
        every_pair = [frozenset(pair) for pair in itertools.combinations(models, 2)]
        tied = {pair for pair in every_pair if rng.random() < rng.choice([0.1, 0.5, 0.9])}
        ties = find_ties(models, tied)
        joined = set()
        for bracket in ties.brackets:
            names = [models[row] for row in bracket.rows]
            joined |= {frozenset(pair) for pair in itertools.combinations(names, 2)}
        assert joined == tied
        # A rank is the place of the best model that shares it, and none is before its place.
        for place, rank in enumerate(ties.ranks, start=1):
            assert rank == place or frozenset((models[rank - 1], models[place - 1])) in tied


def test_brackets_of_neighbours_are_the_groups_of_the_ranking():
    rng = np.random.default_rng(3)
    for _ in range(100):
        scores = -np.sort(-rng.random(7))
        differ = abs(scores[:, None] - scores) > 0.2  # tied as far as they are near
        tied = pairs(*("abcdefg"[i] + "abcdefg"[j] for i, j in np.argwhere(~differ) if i < j))
        assert rows_of(find_ties("abcdefg", tied)) == tie_groups(range(7), differ)


def test_brackets_among_some_models_are_those_of_their_pairs():
    rng = np.random.default_rng(9)
    for _ in range(100):
        every_pair = [frozenset(pair) for pair in itertools.combinations("abcdefg", 2)]
        tied = {pair for pair in every_pair if rng.random() < 0.6}
        some = [model for model in "abcdefg" if rng.random() < 0.6]
        ties = find_ties("abcdefg", tied).among(some)
        joined = set()
        for bracket in ties.brackets:
            names = [ties.models[row] for row in bracket.rows]
            joined |= {frozenset(pair) for pair in itertools.combinations(names, 2)}
        assert joined == {pair for pair in tied if pair <= set(some)}
        assert not any(set(a) < set(b) for a in rows_of(ties) for b in rows_of(ties))


def test_a_bracket_goes_on_below_the_models_that_are_shown():
    ties = find_ties("abcd", pairs("bc", "bd", "cd")).of_first(3)
    assert ties.brackets == (Bracket((1, 2), goes_on=True),)
    assert (ties.models, ties.ranks) == (("a", "b", "c"), (1, 2, 2))
    assert find_ties("abcd", pairs("cd")).of_first(3).brackets == (Bracket((2,), goes_on=True),)
    assert find_ties("abcd", pairs("cd")).of_first(2).brackets == ()
    assert find_ties("", set()).best == ()
