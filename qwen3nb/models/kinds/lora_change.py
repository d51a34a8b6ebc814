"""What a LoRA adapter changes, in a few numbers: whether it has an effect, or is another's copy.

The change of a matrix is its scale times B A. A few random projections of all changes tell equal
adapters apart from others, however their factors are written: adapters are equal after merging if
their projections are, up to rounding.

Shapes: r rank, O outputs, I inputs of a matrix.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from qwen3nb.models.types import JsonObject

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Matrix: TypeAlias = NDArray[np.float64]

_PROJECTIONS = 8
_EQUAL = 1e-5  # of the larger norm: rounding of factors that are written differently
_FACTOR_NAME = re.compile(r"\.lora_(embedding_)?(?P<side>[AB])(\.weight)?$")
# Ways to begin a training that also change the base, so that B A alone is not the change.
_CHANGES_BASE = ("olora", "pissa")


def change_of(
    tensors: Mapping[str, torch.Tensor], config: JsonObject, scales: Mapping[str, float]
) -> tuple[float, ...]:
    """Return the Frobenius norm of an adapter's change, and its projections.

    Saved modules and magnitudes (DoRA) count as changes, as their base is not known here.

    Args:
        tensors: the adapter's tensors.
        config: its configuration.
        scales: by module, what B A is multiplied with.
    """
    factors: dict[str, dict[str, Matrix]] = {}  # by module: A (r, I) and B (O, r)
    squared_norm = 0.0
    projections = np.zeros(_PROJECTIONS)
    for name, tensor in tensors.items():
        values = tensor.double().numpy()
        match = _FACTOR_NAME.search(name)
        if match is not None:
            module = name[: match.start()]
            factors.setdefault(module, {})[match["side"]] = values
        elif not name.endswith(".base_layer.weight"):  # a saved module, or a magnitude of DoRA
            squared_norm += float((values**2).sum())
            projections += _random_directions(name, values.size) @ values.ravel()
    # Of an adapted matrix, the change is scale * B A.
    for module, sides in factors.items():
        a = sides["A"]
        b = scales[module] * sides["B"]
        squared_norm += _squared_norm(b, a)
        projections += _projections(module, b, a)
    if config.get("init_lora_weights") in _CHANGES_BASE:  # the base changes, too: never "no effect"
        squared_norm += 1.0
    norm = math.sqrt(max(squared_norm, 0.0))  # rounding may leave a sum just below 0
    return (norm, *projections.tolist())


def _squared_norm(b: Matrix, a: Matrix) -> float:
    """Return the squared Frobenius norm of B A, without computing it."""
    return float(np.sum((b.T @ b) * (a @ a.T)))


def _projections(module: str, b: Matrix, a: Matrix) -> Matrix:
    """Return the projections (projections,) of B A, without computing it."""
    outputs = _random_directions(f"{module} outputs", len(b)) @ b
    inputs = a @ _random_directions(f"{module} inputs", a.shape[1]).T
    projections: Matrix = np.einsum("pr,rp->p", outputs, inputs)
    return projections


def _random_directions(name: str, size: int) -> Matrix:
    """Return directions (projections, size) that depend on the name alone."""
    seed = zlib.crc32(name.encode())
    return np.random.default_rng(seed).normal(size=(_PROJECTIONS, size))


def has_no_effect(change: Sequence[float]) -> bool:
    """Return whether an adapter with this change leaves its base as it is."""
    return change[0] == 0


def are_equal(change: Sequence[float], other_change: Sequence[float]) -> bool:
    """Return whether two adapters of one base are equal after merging."""
    if len(change) != len(other_change):
        return False
    largest_norm = max(change[0], other_change[0])
    differences = np.abs(np.subtract(change, other_change))
    return bool((differences <= _EQUAL * largest_norm).all())
