"""Linear maps, against scipy and scikit-learn."""

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.stats import ortho_group
from sklearn.linear_model import Ridge

from qwen3nb.analysis.migration.linear_map import (
    PENALTIES,
    Moments,
    RidgeFit,
    fit_ridge,
    fit_rotation,
    squared_error,
    squared_errors,
    total_of,
    with_unit_length,
)
from qwen3nb.analysis.migration.relation import Relation, find_relation

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(200, 8)).astype(np.float32)
NOISY = X @ RANDOM.normal(size=(8, 5)) + 0.5 + 0.3 * RANDOM.normal(size=(200, 5))
Y = NOISY.astype(np.float32)
ROTATION = ortho_group.rvs(8, random_state=1)


def test_a_planted_rotation_is_found_exactly():
    rotated = (X @ ROTATION).astype(np.float32)
    fitted = fit_rotation(Moments.of(X[:100], rotated[:100]))
    np.testing.assert_allclose(fitted.matrix, ROTATION, atol=1e-6)
    unseen = with_unit_length(rotated[100:])
    error, square = squared_errors(fitted, X[100:], unseen)
    assert error < 1e-10 * square


@pytest.mark.parametrize("width", [5, 8, 11])
def test_a_rotation_is_that_of_scipy_with_padded_vectors(width):
    target = RANDOM.normal(size=(200, width)).astype(np.float32)
    largest = max(8, width)
    padded_x = np.pad(X, ((0, 0), (0, largest - 8))).astype(float)
    padded_y = np.pad(target, ((0, 0), (0, largest - width))).astype(float)
    expected, _ = orthogonal_procrustes(padded_x, padded_y)
    fitted = fit_rotation(Moments.of(X, target)).matrix
    scale = np.linalg.norm(fitted, 2)
    # Padding leaves a part undetermined, on which no vector has a value.
    overlap = np.trace(padded_x.T @ padded_y @ expected.T)
    assert np.trace(X.T.astype(float) @ target @ (fitted / scale).T) == pytest.approx(overlap)


@pytest.mark.parametrize("penalty", [1e-6, 0.1, 10.0])
def test_ridge_is_that_of_scikit_learn(penalty):
    fit = RidgeFit(Moments.of(X, Y))
    fitted = fit.at(penalty)
    expected = Ridge(alpha=fit.absolute(penalty)).fit(X.astype(float), Y.astype(float))
    np.testing.assert_allclose(fitted.matrix, expected.coef_.T, atol=1e-9)
    np.testing.assert_allclose(fitted.offset, expected.intercept_, atol=1e-9)


def test_errors_follow_from_the_sums():
    fitted = RidgeFit(Moments.of(X[:100], Y[:100])).at(0.1)
    by_rows = ((fitted.apply(X[100:]) - Y[100:]) ** 2).sum()
    assert squared_error(fitted, Moments.of(X[100:], Y[100:])) == pytest.approx(by_rows, rel=1e-5)


def test_sums_of_parts_are_those_of_the_whole():
    whole = Moments.of(X, Y)
    parts = total_of([Moments.of(X[:30], Y[:30]), Moments.of(X[30:], Y[30:])])
    np.testing.assert_allclose(parts.xy, whole.xy)
    assert parts.count == whole.count
    with pytest.raises(ValueError, match="at least one document"):
        total_of([])


def test_the_penalty_is_the_one_that_predicts_best():
    fitting, checking = Moments.of(X[:12], Y[:12]), Moments.of(X[12:100], Y[12:100])
    errors = [squared_error(RidgeFit(fitting).at(penalty), checking) for penalty in PENALTIES]
    assert fit_ridge(fitting, checking).penalty == PENALTIES[int(np.argmin(errors))]


@pytest.mark.parametrize(
    ("new", "relation"),
    [
        (X, Relation.SAME),
        (3 * X, Relation.RESCALED),
        (X / np.linalg.norm(X, axis=1, keepdims=True), Relation.RESCALED),
        (X[:, :3], Relation.NEW_IS_PREFIX),
        (np.hstack([X, X]), Relation.OLD_IS_PREFIX),
        (X[:, ::-1], Relation.UNRELATED),
    ],
)
def test_related_vectors_are_recognised(new, relation):
    assert find_relation(X, new) is relation
