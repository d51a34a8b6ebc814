"""Methods of merging models, tensor by tensor and block by block.

Every method reads the tensors of all models in step, in blocks, so memory does not grow with the
model. A method may first read a tensor as often as it needs, to gather a few numbers. It then
combines each block by them. All sums are in float64.

    weighted mean   one reading
    SLERP           two: the angles between the models, then the values
    TIES            three: the magnitude that the largest changes reach (two), then the values
    DARE            one
"""

import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from qwen3nb.checkpoints.types import MERGE_METHODS, CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

DENSITIES = {"ties": 0.2, "dare": 0.5}  # the share of changes that stay, by default
_HALF_BITS = 16  # of the 32 bits of a magnitude
_BINS = 1 << _HALF_BITS
# Below this angle, in radians, sines lose more digits than their series leaves out.
_SMALL_ANGLE = 1e-4
# At this distance from opposite directions, in radians, the way between them is undetermined.
_OPPOSITE = 1e-3

# Combines the blocks of all models at one place, in float64, to the block of the merged model.
Combine: TypeAlias = "Callable[[Sequence[Tensor]], Tensor]"


@dataclass(frozen=True)
class TensorBlocks:
    """One tensor of every model, which can be read several times.

    Attributes:
        name: the name in the merged model.
        count: number of values.
        read: yields the blocks of all models at one place, in float64, from first to last place.
        files: the file of each model, for messages.
    """

    name: str
    count: int
    read: "Callable[[], Iterator[list[Tensor]]]"
    files: tuple[Path, ...]


class Method(Protocol):
    """A way to merge models."""

    def for_tensor(self, tensor: TensorBlocks) -> Combine:
        """Read what is needed of a tensor; return what combines its blocks, in their order."""


@dataclass(frozen=True)
class WeightedMean:
    """The mean of all models, by weights that sum to 1."""

    weights: tuple[float, ...]

    def for_tensor(self, tensor: TensorBlocks) -> Combine:
        """See `Method.for_tensor`; nothing is read."""
        del tensor
        return _linear(self.weights)


@dataclass(frozen=True)
class Slerp:
    """Spherical interpolation between two models, or from each merged model to the next one.

    Of the vectors a and b at an angle w, the one at the share t of the way is
    (sin((1 - t) w) a + sin(t w) b) / sin w (Shoemake 1985, "Animating rotation with quaternion
    curves"). Each tensor is one vector. Vectors of another length keep it: only the coefficients
    come from the directions.

    Of more models, the first two are merged, then the result with the third, and so on. At each
    step t is the weight of the new model among those merged so far.
    """

    weights: tuple[float, ...]

    def for_tensor(self, tensor: TensorBlocks) -> Combine:
        """See `Method.for_tensor`; reads the tensor once, for the products of all pairs."""
        products = _inner_products(tensor, len(self.weights))
        # A merged model is a sum of models, so its products follow from those of the models.
        coefficients = np.zeros(len(self.weights))
        coefficients[0] = 1.0
        weight_so_far = self.weights[0]
        for index in range(1, len(self.weights)):
            weight_so_far += self.weights[index]
            share = self.weights[index] / weight_so_far
            angle = _angle(products, coefficients, index)
            if angle > math.pi - _OPPOSITE:
                raise CheckpointError(
                    f"{tensor.files[index]}: {tensor.name} points away from that of the models "
                    "before it, so there is no shortest way between them; use another method or "
                    "order"
                )
            coefficients *= _slerp_coefficient(1 - share, angle)
            coefficients[index] = _slerp_coefficient(share, angle)
        return _linear(coefficients.tolist())


def _inner_products(tensor: TensorBlocks, models: int) -> np.ndarray:
    """Return the inner products of a tensor between all models, of shape (models, models)."""
    import torch

    products = torch.zeros(models, models, dtype=torch.float64)
    for blocks in tensor.read():
        rows = torch.stack(list(blocks))
        products += rows @ rows.T
    values: np.ndarray = products.numpy()
    return values


def _angle(products: np.ndarray, coefficients: np.ndarray, index: int) -> float:
    """Return the angle between a sum of models and one more model, in radians; 0 for zeros."""
    merged_length = math.sqrt(max(0.0, float(coefficients @ products @ coefficients)))
    length = math.sqrt(products[index, index])
    if merged_length == 0 or length == 0:
        return 0.0
    cosine = float(coefficients @ products[index]) / merged_length / length
    return math.acos(min(1.0, max(-1.0, cosine)))


def _slerp_coefficient(share: float, angle: float) -> float:
    """Return sin(share * angle) / sin(angle), also where the angle is almost 0."""
    if angle < _SMALL_ANGLE:
        return share * (1 + (1 - share**2) * angle**2 / 6)
    return math.sin(share * angle) / math.sin(angle)


@dataclass(frozen=True)
class Ties:
    """Merge changes against a base: trim them, elect a sign, average those that agree.

    Yadav and others 2023, "TIES-Merging: Resolving Interference When Merging Models"
    (https://arxiv.org/abs/2306.01708). For each value, with the changes d of the models:

    1. Of each model's tensor, the ``density`` of largest ``|d|`` stays; the others become 0. All
       that equal the smallest one that stays do so, too.
    2. The sign is that of the weighted sum of d; + if it is 0.
    3. The mean of those d that have it, by their weights, times ``scale``, is added to the base.

    The base is the last of the blocks. Magnitudes are compared in float32.
    """

    weights: tuple[float, ...]
    density: float
    scale: float

    def for_tensor(self, tensor: TensorBlocks) -> Combine:
        """See `Method.for_tensor`; reads the tensor twice, for what the largest changes reach."""
        import torch

        weights = torch.tensor(self.weights, dtype=torch.float64)[:, None]
        thresholds = _smallest_that_stay(tensor, len(self.weights), self.density)[:, None]

        def combine(blocks: "Sequence[Tensor]") -> "Tensor":
            base = blocks[-1]
            changes = torch.stack(list(blocks[:-1])) - base
            stays = changes.abs().float() >= thresholds
            changes = changes * stays
            weighted_changes = changes * weights
            sign = torch.where(weighted_changes.sum(0) >= 0, 1.0, -1.0)
            agrees = changes.sign() == sign
            total_weight = (agrees * weights).sum(0)
            total_change = (agrees * weighted_changes).sum(0)
            # Where no change stays, both are 0.
            change = total_change / total_weight.clamp(min=min(self.weights))
            return base + self.scale * change

        return combine


def _smallest_that_stay(tensor: TensorBlocks, models: int, density: float) -> "Tensor":
    """Return the smallest magnitude that stays, per model, as float32.

    Of positive floats, the order is that of their bits. So the upper 16 bits of the magnitude
    follow from one count of all values, the lower 16 from a second one.
    """
    import torch

    remaining = torch.full((models,), int(density * tensor.count), dtype=torch.int64)
    upper_half = _half_at(_counts(tensor, models, None), remaining)
    lower_half = _half_at(_counts(tensor, models, upper_half), remaining)
    bits = (upper_half << _HALF_BITS) | lower_half
    magnitudes = bits.to(torch.int32).view(torch.float32)
    # If no value stays, the threshold is above all of them.
    nothing_stays = int(density * tensor.count) == 0
    if nothing_stays:
        magnitudes.fill_(torch.inf)
    return magnitudes


def _counts(tensor: TensorBlocks, models: int, upper_half: "Tensor | None") -> "Tensor":
    """Count the changes by a half of their bits, of shape (models, 65,536).

    It is the upper half; if an ``upper_half`` is given per model, the lower half of those with it.
    """
    import torch

    counts = torch.zeros(models, _BINS, dtype=torch.int64)
    for blocks in tensor.read():
        base = blocks[-1]
        for index in range(models):
            bits = (blocks[index] - base).abs().float().view(torch.int32)
            half = bits >> _HALF_BITS
            if upper_half is not None:
                half = bits[half == upper_half[index]] & (_BINS - 1)
            counts[index] += torch.bincount(half, minlength=_BINS)
    return counts


def _half_at(counts: "Tensor", remaining: "Tensor") -> "Tensor":
    """Return the half at which, from the largest down, ``remaining`` values are reached.

    ``remaining`` is lowered by those with a larger half.
    """
    import torch

    from_largest = counts.flip(1).cumsum(1)
    place = (from_largest < remaining[:, None]).sum(1)
    larger = torch.where(
        place > 0,
        from_largest.gather(1, (place - 1).clamp(min=0)[:, None])[:, 0],
        0,
    )
    remaining -= larger
    return _BINS - 1 - place


@dataclass(frozen=True)
class Dare:
    """Drop changes against a base at random, scale up the others, and add their weighted mean.

    Yu and others 2024, "Language Models are Super Mario" (https://arxiv.org/abs/2311.03099). Each
    change stays with the chance ``density`` and is then divided by it. ``scale`` times the weighted
    mean of the changes is added to the base, the last of the blocks.

    Whether a value stays depends on the seed, the place of the model (from 0), and the tensor's
    name only. See `_generator`.
    """

    weights: tuple[float, ...]
    density: float
    scale: float
    seed: int

    def for_tensor(self, tensor: TensorBlocks) -> Combine:
        """See `Method.for_tensor`; nothing is read."""
        import torch

        generators = []
        for index in range(len(self.weights)):
            generators.append(_generator(self.seed, index, tensor.name))

        def combine(blocks: "Sequence[Tensor]") -> "Tensor":
            base = blocks[-1]
            merged = base.clone()
            for weight, block, generator in zip(self.weights, blocks[:-1], generators, strict=True):
                stays = torch.from_numpy(generator.random(len(base)) < self.density)
                merged += self.scale * weight / self.density * stays * (block - base)
            return merged

        return combine


def _generator(seed: int, index: int, name: str) -> np.random.Generator:
    """Return the generator of one tensor's mask: a value stays if its number is below the density.

    The key of numpy's Philox is the first 16 bytes of the SHA-256 of seed, place of the model and
    name, separated by zero bytes. Its ``random()`` gives one number per value, in their order.
    """
    digest = hashlib.sha256(f"{seed}\0{index}\0{name}".encode()).digest()
    key = int.from_bytes(digest[:16], "little")
    return np.random.Generator(np.random.Philox(key=key))


def _linear(coefficients: Sequence[float]) -> Combine:
    """Return what adds the blocks, each times its coefficient."""

    def combine(blocks: "Sequence[Tensor]") -> "Tensor":
        total = coefficients[0] * blocks[0]
        for coefficient, block in zip(coefficients[1:], blocks[1:], strict=True):
            total.add_(block, alpha=coefficient)
        return total

    return combine


def check_weights(weights: Sequence[float]) -> None:
    """Refuse weights that are not above 0."""
    for weight in weights:
        if not (math.isfinite(weight) and weight > 0):
            raise ValueError(f"a weight is {weight}, expected a number above 0")


def _shares(weights: Sequence[float]) -> tuple[float, ...]:
    """Return weights divided by their sum; refuse one that is nothing next to the largest."""
    largest = max(weights)
    # By a power of two, which rounds nothing: the sum of weights up to 1e308 would be infinite.
    _, exponent = math.frexp(largest)
    scaled_weights = [math.ldexp(weight, -exponent) for weight in weights]
    total = sum(scaled_weights)
    for weight, scaled_weight in zip(weights, scaled_weights, strict=True):
        if scaled_weight < sys.float_info.min:
            raise ValueError(
                f"the weight {weight} is nothing next to {largest}; leave its model out, or give "
                "weights that are closer to each other"
            )
    return tuple(weight / total for weight in scaled_weights)


def check_density(density: float | None) -> None:
    """Refuse a share of changes outside (0, 1]."""
    if density is not None and not 0 < density <= 1:
        raise ValueError(f"density is {density}, expected above 0 and at most 1")


@dataclass(frozen=True)
class Merge:
    """How models are merged: a method, and its settings."""

    method: str = "mean"  # one of `MERGE_METHODS`
    weights: tuple[float, ...] | None = None  # of the models, in their order; None: all equal
    density: float | None = None  # share of changes that stay; None: the method's default
    scale: float = 1.0  # of the merged change
    seed: int = 0  # of DARE's masks

    def __post_init__(self) -> None:
        """Refuse settings outside their range, or of another method."""
        if self.method not in MERGE_METHODS:
            raise ValueError(f"unknown method {self.method!r}; expected one of {MERGE_METHODS}")
        check_weights(self.weights or ())
        check_density(self.density)
        if not math.isfinite(self.scale):
            raise ValueError(f"scale is {self.scale}, expected a number")
        if not self.needs_base and (self.density is not None or self.scale != 1):
            raise ValueError(
                f"density and scale are of changes against a base; {self.method!r} has none"
            )

    @property
    def needs_base(self) -> bool:
        """Whether changes against a base are merged."""
        return self.method in DENSITIES

    @property
    def is_plain_mean(self) -> bool:
        """Whether it is the mean with equal weights."""
        return self.method == "mean" and self.weights is None

    def shares(self, models: int) -> tuple[float, ...]:
        """Return the weights of so many models, which sum to 1.

        Raises:
            ValueError: another number of weights is given, or one is nothing next to another.
        """
        weights = self.weights
        if weights is None:
            weights = (1.0,) * models
        if len(weights) != models:
            raise ValueError(
                f"{len(weights)} weights for {models} models; give one weight per model, in the "
                "order of the models"
            )
        return _shares(weights)

    def for_models(self, models: int) -> Method:
        """Return the method with its settings, for so many models.

        Raises:
            ValueError: another number of weights is given, or SLERP has one model only.
        """
        shares = self.shares(models)
        if self.method == "mean":
            return WeightedMean(shares)
        if self.method == "slerp":
            if models < 2:
                raise ValueError(f"SLERP is between models, got {models}; name two or more")
            return Slerp(shares)
        density = self.density or DENSITIES[self.method]
        if self.method == "ties":
            return Ties(shares, density, self.scale)
        return Dare(shares, density, self.scale, self.seed)

    def as_dict(self, models: int) -> dict[str, object]:
        """Return the settings that count, for the metadata of the merged model."""
        fields: dict[str, object] = {"method": self.method, "weights": list(self.shares(models))}
        if self.needs_base:
            fields["density"] = self.density or DENSITIES[self.method]
            fields["scale"] = self.scale
        if self.method == "dare":
            fields["seed"] = self.seed
            fields["mask"] = "numpy Philox, keyed by SHA-256 of seed, place of the model, and name"
        return fields
