"""Weights of a fusion that some queries choose for others: grid, folds, and choice."""

import itertools

import numpy as np
import pytest

from qwen3nb.metrics.fusion_weights import (
    FEWEST,
    FOLDS,
    STEPS,
    best_row,
    equal_weights,
    folds_of_queries,
    rows_for_folds,
    totals_by_fold,
    weight_grid,
)
from qwen3nb.metrics.near_copies import SHARE, with_near_copies


def texts_of(queries):
    """A text for each query that has hardly anything in common with the others."""
    random = np.random.default_rng(0)
    return {query: " ".join(map(str, random.integers(10**9, size=3))) for query in queries}


@pytest.mark.parametrize("parts", STEPS)
def test_the_grid_has_every_combination_and_the_equal_one(parts):
    steps = STEPS[parts]
    counts = itertools.product(range(steps + 1), repeat=parts)
    expected = [row for row in counts if sum(row) == steps]
    grid = weight_grid(parts)
    assert np.rint(grid * steps).astype(int).tolist() == [list(row) for row in expected]
    assert np.allclose(grid.sum(axis=1), 1)
    assert any(np.allclose(row, equal_weights(parts)) for row in grid)


def test_queries_of_a_cluster_share_a_fold_that_depends_on_names_and_seed_alone():
    queries = [f"q{number}" for number in range(60)]
    clusters = {query: f"c{number // 2}" for number, query in enumerate(queries)}
    texts = texts_of(queries)
    folds = folds_of_queries(texts, clusters)
    assert (folds[::2] == folds[1::2]).all()
    assert np.bincount(folds).tolist() == [6] * FOLDS  # 30 clusters of two queries
    shuffled = dict(reversed(texts.items()))
    assert folds_of_queries(shuffled, clusters)[::-1].tolist() == folds.tolist()
    assert folds_of_queries(texts, clusters, seed=1).tolist() != folds.tolist()


def test_near_copies_share_a_fold_and_count_as_one():
    texts = texts_of([f"q{number}" for number in range(FEWEST - 1)])
    copies = {f"{query} copy": f"{text}?" for query, text in texts.items()}
    assert not folds_of_queries(texts | copies, {}).any()  # too few without copies
    more = {"x": "another question", "y": "ANOTHER  question.", "z": "an other thing"}
    folds = folds_of_queries(texts | copies | more, {})
    by_query = dict(zip([*texts, *copies, *more], folds.tolist(), strict=True))
    assert all(by_query[query] == by_query[f"{query} copy"] for query in texts)
    assert by_query["x"] == by_query["y"]


def test_near_copies_are_those_of_all_pairs():
    """Prefix filtering finds no fewer pairs than a comparison of all."""
    random = np.random.default_rng(1)
    texts = {}
    for number in range(60):
        words = [f"word{value}" for value in random.integers(30, size=8)]
        texts[f"a{number}"] = " ".join(words)
        texts[f"b{number}"] = " ".join([*words[:7], f"word{random.integers(30)}"])
    clusters = with_near_copies({}, texts)
    alike = components_of(texts)
    groups = {}
    for query, cluster in clusters.items():
        groups.setdefault(cluster, set()).add(query)
    assert sorted(map(sorted, groups.values())) == sorted(map(sorted, alike))
    assert 1 < len(groups) < len(texts)
    together = with_near_copies({"a0": "c", "a1": "c"}, texts)
    assert together["a0"] == together["a1"]


def components_of(texts):
    """Connected components of all pairs that share 80 % of their threes of letters."""
    threes = {
        query: {f" {text} "[n : n + 3] for n in range(len(text))} for query, text in texts.items()
    }
    components = [{query} for query in texts]
    for first, second in itertools.combinations(texts, 2):
        a, b = threes[first], threes[second]
        if len(a & b) >= SHARE * len(a | b):
            joined = [each for each in components if first in each or second in each]
            components = [each for each in components if each not in joined]
            components.append(set().union(*joined))
    return components


def test_few_clusters_have_one_fold_however_many_queries():
    queries = [f"q{number}" for number in range(100)]
    few = {query: f"c{number % (FEWEST - 1)}" for number, query in enumerate(queries)}
    assert not folds_of_queries(texts_of(queries), few).any()
    enough = {query: f"c{number % FEWEST}" for number, query in enumerate(queries)}
    assert folds_of_queries(texts_of(queries), enough).any()


def test_no_query_has_a_say_in_its_own_weights():
    """Whatever a fold scores, its weights stay; those of all other folds may change."""
    random = np.random.default_rng(0)
    grid = weight_grid(2)
    folds = np.arange(40) % FOLDS
    scores = random.random((40, len(grid)))
    rows = rows_for_folds(totals_by_fold(scores, folds), grid)
    scores[folds == 3] = random.random((4, len(grid))) * 100
    changed = rows_for_folds(totals_by_fold(scores, folds), grid)
    assert changed[3] == rows[3]
    assert changed != rows


def test_of_equal_sums_the_row_nearest_to_equal_weights_is_taken():
    grid = weight_grid(2)
    sums = np.zeros(len(grid))
    assert grid[best_row(sums, grid)].tolist() == [0.5, 0.5]
    sums[[2, 17]] = 1  # weights of 0.1 and 0.85
    assert grid[best_row(sums, grid)][0] == 0.85
    sums[2] += 1e-10  # by rounding alone
    assert grid[best_row(sums, grid)][0] == 0.85
