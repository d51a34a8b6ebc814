"""Thresholds carried over, against all pairs of scores."""

import numpy as np
import pytest

from qwen3nb.analysis.migration.thresholds import (
    Compared,
    RelevantPairs,
    carried_threshold,
    changed_sides,
    threshold_of_precision,
    top_scores,
)
from qwen3nb.vectors.vector_store import VectorStore

RANDOM = np.random.default_rng(0)


def unit(*shape):
    vectors = RANDOM.normal(size=shape)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


OLD = Compared(unit(20, 6), VectorStore.of(unit(300, 6)))
NEW = Compared(unit(20, 9), VectorStore.of(unit(300, 9)))


def scores_of(compared):
    return compared.queries @ compared.documents.everything().T


def test_all_scores_are_kept_if_they_fit():
    scores = top_scores(OLD.queries, OLD.documents)
    assert scores.is_whole
    np.testing.assert_allclose(scores.scores, -np.sort(-scores_of(OLD), axis=1), rtol=1e-6)


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_the_number_of_results_is_kept(threshold):
    old, new = top_scores(OLD.queries, OLD.documents), top_scores(NEW.queries, NEW.documents)
    carried = carried_threshold(threshold, old, new)
    assert carried.results == (scores_of(OLD) >= threshold).sum()
    assert carried.results == (scores_of(NEW) >= carried.new).sum()
    assert carried.results_unchanged == (scores_of(NEW) >= threshold).sum()
    low, high = carried.interval
    assert low <= carried.new <= high


def test_equal_models_keep_their_threshold():
    scores = top_scores(OLD.queries, OLD.documents)
    assert carried_threshold(0.62, scores, scores).new == 0.62


def test_a_scale_carries_a_threshold_with_it():
    tripled = top_scores(3 * OLD.queries, OLD.documents)
    carried = carried_threshold(0.5, top_scores(OLD.queries, OLD.documents), tripled)
    assert carried.new == pytest.approx(1.5, abs=0.02)


def test_a_threshold_without_results_or_below_what_is_kept_has_none():
    old = top_scores(OLD.queries, OLD.documents)
    assert carried_threshold(1.5, old, old).new is None
    few = top_scores(OLD.queries, OLD.documents, most=20 * 10)  # ten of each query
    assert not few.is_whole
    assert carried_threshold(-0.9, few, few).new is None
    assert carried_threshold(0.9, few, few).new == carried_threshold(0.9, old, old).new


def test_pairs_that_change_sides_are_counted():
    ((left, came),) = changed_sides(OLD, NEW, [(0.5, 0.3)])
    was_in, is_in = scores_of(OLD) >= 0.5, scores_of(NEW) >= 0.3
    assert left == (was_in & ~is_in).sum()
    assert came == (~was_in & is_in).sum()


def test_the_interval_covers_the_threshold_of_the_population():
    """Of 200 samples of queries, about 95 % have the whole population's threshold inside."""
    queries, documents = unit(400, 4), VectorStore.of(unit(60, 4))
    others, other_documents = unit(400, 5), VectorStore.of(unit(60, 5))
    population = carried_threshold(
        0.5, top_scores(queries, documents), top_scores(others, other_documents)
    )
    covered = 0
    for _ in range(200):
        rows = RANDOM.choice(400, size=30)
        sample = carried_threshold(
            0.5, top_scores(queries[rows], documents), top_scores(others[rows], other_documents)
        )
        low, high = sample.interval
        covered += low <= population.new <= high
    assert 0.9 <= covered / 200 <= 1


def test_the_precision_is_kept():
    old, new = top_scores(OLD.queries, OLD.documents), top_scores(NEW.queries, NEW.documents)
    rows, columns = RANDOM.integers(0, 20, 80), RANDOM.integers(0, 300, 80)
    pairs = RelevantPairs(rows, scores_of(OLD)[rows, columns], scores_of(NEW)[rows, columns])
    found = threshold_of_precision(0.3, old, new, pairs)
    relevant_of_old = (pairs.old >= 0.3).sum()
    assert found.precision == pytest.approx(relevant_of_old / (scores_of(OLD) >= 0.3).sum())
    results = (scores_of(NEW) >= found.new).sum()
    assert found.results == results
    assert (pairs.new >= found.new).sum() / results >= found.precision
    # No lower one that is just below a relevant pair has this precision.
    for score in pairs.new[pairs.new < found.new]:
        lower = score - 1e-6
        assert (pairs.new >= lower).sum() / (scores_of(NEW) >= lower).sum() < found.precision
    low, high = found.interval
    assert low <= found.new <= high


def test_no_results_have_no_precision():
    scores = top_scores(OLD.queries, OLD.documents)
    pairs = RelevantPairs(np.array([0]), np.array([0.1]), np.array([0.2]))
    assert threshold_of_precision(2.0, scores, scores, pairs) is None
