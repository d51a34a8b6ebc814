"""Weight drift: distances between checkpoints, and from each checkpoint to their mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from qwen3nb.checkpoints.folder import ModelFolder, open_checkpoint
from qwen3nb.checkpoints.names import EMBEDDINGS, encoder_name
from qwen3nb.checkpoints.types import CheckpointError

_LAYER = re.compile(r"layers\.(\d+)\.(.+)\.weight")


@dataclass(frozen=True)
class TensorDrift:
    """The change of one encoder tensor from one checkpoint to the next.

    Attributes:
        earlier: folder name of the earlier checkpoint.
        later: folder name of the later checkpoint.
        layer: number of the layer; None for the embedding and the last norm.
        module: name within the layer, such as ``mlp.up_proj``.
        relative: ‖later − earlier‖ / ‖earlier‖ (Frobenius), in float32.
    """

    earlier: str
    later: str
    layer: int | None
    module: str
    relative: float


def weight_drift(folders: Sequence[Path]) -> list[TensorDrift]:
    """Return the change of every encoder tensor between consecutive checkpoints.

    At most two tensors are in memory at a time.

    Raises:
        CheckpointError: fewer than two checkpoints, or incompatible ones.
    """
    if len(folders) < 2:
        raise CheckpointError(f"drift needs 2 or more checkpoints; got {len(folders)}")
    changes = []
    for first, second in pairwise(map(open_checkpoint, folders)):
        for name in _encoder_tensors(first):
            match = _LAYER.search(name)
            rest = (None, "embedding" if name in EMBEDDINGS else "last norm")
            layer, module = (int(match[1]), match[2]) if match else rest
            moved, size = _squares(first, second, name)
            relative = (moved / size) ** 0.5 if size else 0.0
            changes.append(TensorDrift(first.path.name, second.path.name, layer, module, relative))
    return changes


def distance_to(center: Path, folders: Sequence[Path]) -> dict[str, float]:
    """Return ‖w − center‖ / ‖center‖ over all encoder weights, per folder name."""
    middle = open_checkpoint(center)
    distances = {}
    for folder in folders:
        other = open_checkpoint(folder)
        squares = [_squares(middle, other, name) for name in _encoder_tensors(middle)]
        moved, size = (sum(each) for each in zip(*squares, strict=True))
        distances[folder.name] = (moved / size) ** 0.5
    return distances


def _encoder_tensors(checkpoint: ModelFolder) -> list[str]:
    names = [name for name in checkpoint.weights.tensors if encoder_name(name) is not None]
    if not any(name in names for name in EMBEDDINGS):
        names += [name for name in EMBEDDINGS if name in checkpoint.weights.tensors][:1]
    return names


def _squares(first: ModelFolder, second: ModelFolder, name: str) -> tuple[float, float]:
    """‖second − first‖² and ‖first‖² of one tensor."""
    shape, other = first.weights.tensors[name].shape, second.weights.tensors.get(name)
    if other is None or other.shape != shape:
        raise CheckpointError(
            f"{second}: expected {name} of shape {shape}, as in {first.path.name}"
        )
    before, after = first.weights.read(name).float(), second.weights.read(name).float()
    size = float(before.square().sum())
    return float((after - before).square().sum()), size
