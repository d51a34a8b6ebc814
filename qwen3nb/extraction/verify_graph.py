"""Verify that the ONNX graph of an export computes what the source of the export computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction.onnx_graph import OnnxGraph
from qwen3nb.models.modeling.qwen3_encoder import pad_rows

if TYPE_CHECKING:
    from torch import Tensor

# Of the largest state. Another library adds up in another order, so its rounding differs, and
# grows with the size of what is added up.
MAX_PART = 1e-4
_TOGETHER = (1, 3)  # texts in a batch, besides all of them


@dataclass(frozen=True)
class GraphVerification:
    """Differences between an ONNX graph and the source of the export.

    Attributes:
        max_difference: largest absolute difference of hidden states over all real tokens, divided
            by the largest state of the source, or by 1 if that is smaller.
        leak: change of the first state when only the last token changes.
        batches: texts and tokens (B, T) of each compared batch.
    """

    max_difference: float
    leak: float
    batches: tuple[tuple[int, int], ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the verification as stored in the provenance."""
        return {**asdict(self), "bound": MAX_PART}


def verify_graph(
    file: Path,
    rows: Sequence[Sequence[int]],
    theirs: Mapping[str, Sequence[Tensor]],
    *,
    vocabulary: int,
    origin: Path,
) -> GraphVerification:
    """Compare the graph in ``file`` with the states of the source.

    Args:
        file: the graph.
        rows: token ids of each input.
        theirs: per padding side, the source's states (T, H) of each row, computed in one batch.
        vocabulary: number of tokens.
        origin: the source, for errors.

    Raises:
        CheckpointError: the graph is causal, or states differ by more than `MAX_PART`.
    """
    graph = OnnxGraph(file)
    leak = _leak(graph, vocabulary)
    if not leak > 0:
        raise CheckpointError(
            f"{origin}: the ONNX graph runs causally: its first state does not depend on the last "
            "token. Nothing was written; install the newest transformers and PyTorch"
        )
    scale = max(1.0, *(float(each.abs().max()) for each in theirs["right"]))
    apart, batches = [], []
    for side, states in theirs.items():
        for size in (len(rows), *_TOGETHER):
            for start in range(0, len(rows), size):
                part = slice(start, start + size)
                ids, mask = pad_rows(rows[part], side=side)
                batches.append((ids.shape[0], ids.shape[1]))
                real = zip(graph(ids, mask), mask.bool(), states[part], strict=True)
                apart += [(ours[kept] - other).abs().max() for ours, kept, other in real]
    difference = float(torch.stack(apart).max()) / scale
    if not difference <= MAX_PART:
        raise CheckpointError(
            f"{origin}: the states of the ONNX graph differ from the source's by {difference:.2e} "
            f"of the largest, more than {MAX_PART:.0e}; nothing was written"
        )
    return GraphVerification(difference, leak, tuple(dict.fromkeys(batches)))


def _leak(graph: OnnxGraph, vocabulary: int) -> float:
    ids = torch.arange(1, 7).remainder(vocabulary).unsqueeze(0)
    other = ids.clone()
    other[0, -1] = (other[0, -1] + vocabulary // 2) % vocabulary
    first, second = (graph(each, torch.ones_like(each))[0, 0] for each in (ids, other))
    return float((first - second).abs().max())
