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
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

_PROJECTIONS = 8
_EQUAL = 1e-5  # of the larger norm: rounding of factors that are written differently
_FACTORS = re.compile(r"\.lora_(embedding_)?(?P<side>[AB])(\.weight)?$")
# Ways to begin a training that also change the base, so that B A alone is not the change.
_WITH_BASE = ("olora", "pissa")


def change_of(
    tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any], scales: Mapping[str, float]
) -> tuple[float, ...]:
    """Return the Frobenius norm of an adapter's change, and its projections.

    Saved modules and magnitudes (DoRA) count as changes, as their base is not known here.

    Args:
        tensors: the adapter's tensors.
        config: its configuration.
        scales: by module, what B A is multiplied with.
    """
    factors: dict[str, dict[str, NDArray[np.float64]]] = {}
    square, sums = 0.0, np.zeros(_PROJECTIONS)
    for name, tensor in tensors.items():
        values = tensor.double().numpy()
        if match := _FACTORS.search(name):
            factors.setdefault(name[: match.start()], {})[match["side"]] = values
        elif not name.endswith(".base_layer.weight"):
            square += float((values**2).sum())
            sums += _random(name, values.size) @ values.ravel()
    for module, sides in factors.items():
        first, second = sides["A"], scales[module] * sides["B"]  # (r, I) and (O, r)
        square += float(np.sum((second.T @ second) * (first @ first.T)))
        left = _random(f"{module} outputs", len(second)) @ second
        right = first @ _random(f"{module} inputs", first.shape[1]).T
        sums += np.einsum("pr,rp->p", left, right)
    if config.get("init_lora_weights") in _WITH_BASE:
        square += 1.0
    return (math.sqrt(max(square, 0.0)), *map(float, sums))


def _random(name: str, size: int) -> NDArray[np.float64]:
    """Return directions (projections, size) that depend on the name alone."""
    return np.random.default_rng(zlib.crc32(name.encode())).normal(size=(_PROJECTIONS, size))


def has_no_effect(change: Sequence[float]) -> bool:
    """Return whether an adapter with this change leaves its base as it is."""
    return change[0] == 0


def are_equal(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether two adapters of one base are equal after merging."""
    if len(first) != len(second):
        return False
    largest = max(first[0], second[0])
    return all(
        math.isclose(one, other, rel_tol=0, abs_tol=_EQUAL * largest)
        for one, other in zip(first, second, strict=True)
    )
