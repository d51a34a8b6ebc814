"""How much two computations of one model may differ: one rule, from dtype, depth and width.

Libraries and processors add numbers in different orders. Rounding errors of a sum are independent,
so they grow with the square root of the number of terms; those of a model with that of its layers.
They are relative to the norm of a vector: a component may be near zero while its vector is not.
"""

from math import sqrt

import numpy as np
import torch

_ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-9}
_OPERATIONS = 8  # that round one after the other in a layer
TINY = {"depth": 2, "width": 64}  # the models of `tiny_models`, of the demo and the mock tasks
MINILM = {"depth": 6, "width": 384}


def tolerance(*, depth, width, dtype="float32"):
    """Return the largest relative difference that rounding explains.

    States are stored in ``dtype``; products of ``width`` terms are added in float32 at least.
    """
    stored = _ROUNDING[dtype]
    added = min(stored, _ROUNDING["float32"])
    return _OPERATIONS * sqrt(depth) * (stored + added * sqrt(width))


def assert_close(actual, expected, *, depth=2, width=64, dtype="float32", score=0.0):
    """Assert that rows (..., D) differ by at most `tolerance` of their norm.

    The defaults are those of tiny models. A row of zeros has to be one in both. ``score`` is the
    largest of an attention. Its rounding changes the logarithm of a weight, so both the weight and
    the sum of all weights by that factor.
    """
    actual, expected = (_array(each) for each in (actual, expected))
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert np.isfinite(actual).all()
    norms = np.linalg.norm(expected, axis=-1)
    differences = np.linalg.norm(actual - expected, axis=-1)
    largest = tolerance(depth=depth, width=width, dtype=dtype) + 2 * score * _ROUNDING[dtype]
    wrong = np.argwhere(np.atleast_1d(differences > largest * norms))
    assert not len(wrong), (
        f"{len(wrong)} of {norms.size} rows differ by more than {largest:.1e} of their norm; "
        f"first row {wrong[0].tolist()}: {np.atleast_1d(differences)[tuple(wrong[0])]:.2e} "
        f"of {np.atleast_1d(norms)[tuple(wrong[0])]:.2e}"
    )


def _array(values):
    if isinstance(values, torch.Tensor):
        values = values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64)
