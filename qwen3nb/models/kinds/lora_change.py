"""What a LoRA adapter changes: by module, and in a few numbers.

The numbers say whether it has an effect, or is another's copy.

The change of a matrix is its scale times B A. A few random projections of all changes tell equal
adapters apart from others, however their factors are written: adapters are equal after merging if
their projections are, up to rounding.

Shapes: r rank, O outputs, I inputs of a matrix.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from qwen3nb.models.types import JsonObject

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from qwen3nb.checkpoints.folder import ModelFolder

    Matrix: TypeAlias = NDArray[np.float64]

_PROJECTIONS = 8
_EQUAL = 1e-5  # of the larger norm: rounding of factors that are written differently
_OF_BASE = ".base_layer.weight"  # how the name ends under which PEFT saves the base's embedding
# The name of a factor in an adapter's file, after the name of its module.
_FACTOR_NAME = re.compile(r"\.lora_(embedding_)?(?P<side>[AB])(\.weight)?$")
# Ways to begin a training that also change the base, so that B A alone is not the change.
CHANGES_BASE = ("olora", "pissa")
# What selects modules, and how strongly they are changed, where an adapter states it by module.
PLAIN_SELECTION: dict[str, object] = {
    "alpha_pattern": {},
    "ensure_weight_tying": False,
    "exclude_modules": None,
    "layers_pattern": None,
    "layers_to_transform": None,
    "rank_pattern": {},
    "use_rslora": False,
}


def factor_names(tensors: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the names of the factors A and B among those of an adapter's tensors, by module.

    >>> factor_names(["up.lora_A.weight", "up.lora_B.weight", "up.base_layer.weight"])
    {'up': {'A': 'up.lora_A.weight', 'B': 'up.lora_B.weight'}}
    """
    names_by_module: dict[str, dict[str, str]] = {}
    for name in tensors:
        match = _FACTOR_NAME.search(name)
        if match is not None:
            module = name[: match.start()]
            names_by_module.setdefault(module, {})[match["side"]] = name
    return names_by_module


def is_of_base(name: str) -> bool:
    """Return whether a tensor is the base's embedding, which PEFT saved with the adapter."""
    return name.endswith(_OF_BASE)


def is_whole_change(name: str) -> bool:
    """Return whether a tensor is a saved module or a magnitude (DoRA), not a factor or the base."""
    return _FACTOR_NAME.search(name) is None and not is_of_base(name)


@dataclass(frozen=True)
class ModuleChange:
    """What an adapter changes in a module: ``scale * b @ a``."""

    a_name: str  # of the tensor A, in the adapter's file
    a: Tensor  # (r, I)
    b_name: str
    b: Tensor  # (O, r)
    scale: float

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the module's matrix: O, I."""
        return len(self.b), self.a.shape[1]

    @property
    def is_nothing(self) -> bool:
        """Whether the module stays as it is."""
        return self.scale == 0 or not self.a.any() or not self.b.any()

    def equals(self, other: ModuleChange) -> bool:
        """Return whether another adapter changes the module by the same matrix, exactly."""
        if self.is_nothing or other.is_nothing:
            return self.is_nothing and other.is_nothing
        has_same_factors = self.a.equal(other.a) and self.b.equal(other.b)
        return has_same_factors and self.scale == other.scale


def module_changes(
    tensors: Mapping[str, Tensor], scales: Mapping[str, float]
) -> dict[str, ModuleChange]:
    """Return an adapter's changes by module, named as in the names of its tensors.

    Args:
        tensors: the adapter's tensors.
        scales: by module, what B A is multiplied with.
    """
    changes: dict[str, ModuleChange] = {}
    for module, names in factor_names(tensors).items():
        changes[module] = ModuleChange(
            a_name=names["A"],
            a=tensors[names["A"]],
            b_name=names["B"],
            b=tensors[names["B"]],
            scale=scales[module],
        )
    return changes


@dataclass(frozen=True)
class AdapterChanges:
    """A LoRA adapter that was read: its changes by module."""

    folder: ModelFolder
    config: JsonObject
    by_module: Mapping[str, ModuleChange]  # by the name of the module in its model
    of_base: Mapping[str, Tensor]  # tensors of the base that PEFT saved with it


def change_of(
    tensors: Mapping[str, Tensor], config: JsonObject, scales: Mapping[str, float]
) -> tuple[float, ...]:
    """Return the Frobenius norm of an adapter's change, and its projections.

    Saved modules and magnitudes (DoRA) count as changes, as their base is not known here.

    Args:
        tensors: the adapter's tensors.
        config: its configuration.
        scales: by module, what B A is multiplied with.
    """
    squared_norm = 0.0
    projections = np.zeros(_PROJECTIONS)
    for name, tensor in tensors.items():
        if is_whole_change(name):
            values = tensor.double().numpy()
            squared_norm += float((values**2).sum())
            projections += _random_directions(name, values.size) @ values.ravel()
    for module, change in module_changes(tensors, scales).items():
        a = change.a.double().numpy()
        b = change.scale * change.b.double().numpy()
        squared_norm += _squared_norm(b, a)
        projections += _projections(module, b, a)
    if config.get("init_lora_weights") in CHANGES_BASE:  # the base changes, too: never "no effect"
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
