"""Pooling: from one vector per token to one vector per text.

A rule assigns a weight to each *real* token. The weight depends on the token's rank among
the real tokens of its row, never on its column, so left and right padding give the same
vector.

Shapes: B texts, T columns (padding included), D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from qwen3nb.utils.choices import one_of

if TYPE_CHECKING:
    from torch import Tensor

# `rank` (B, T) counts the real tokens of a row from 1; it is 0 on padding.
_WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda rank: (rank > 0).float(),
    "cls": lambda rank: (rank == 1).float(),
    "last": lambda rank: ((rank > 0) & (rank == rank.amax(dim=1, keepdim=True))).float(),
    "weighted_mean": lambda rank: rank.float(),
}
POOLINGS = tuple(_WEIGHTS)


def pool(states: Tensor, mask: Tensor, *, how: str, normalize: bool = False) -> Tensor:
    """Pool ``states`` (B, T, D) to float32 vectors (B, D).

    Args:
        states: last hidden states (B, T, D) of any float dtype.
        mask: (B, T), non-zero on real tokens. Padding may be on either side.
        how: ``mean``; ``cls``, the first real token (Qwen3 has no CLS token);
            ``last``, the last real token; ``weighted_mean``, the i-th real token
            weighted by i (Muennighoff 2022, SGPT).
        normalize: divide each vector by its Euclidean norm.

    The inputs are not changed. The values in padding columns, even NaN, do not affect the
    result.

    Raises:
        ValueError: an unknown ``how``, mismatched shapes, or a row without a real token.
    """
    one_of("pooling", how, POOLINGS)
    if states.ndim != 3 or mask.shape != states.shape[:2]:
        raise ValueError(
            "expected states (B, T, D) and mask (B, T); "
            f"got {tuple(states.shape)} and {tuple(mask.shape)}"
        )
    real = mask != 0
    if empty := (~real.any(dim=1)).nonzero().flatten().tolist():
        raise ValueError(f"rows {empty} have no real token: nothing to pool")
    weights = _WEIGHTS[how](real.long().cumsum(dim=1) * real)
    weights = (weights / weights.sum(dim=1, keepdim=True)).unsqueeze(1)
    vectors = weights @ states.float().masked_fill(~real.unsqueeze(-1), 0.0)
    vectors = vectors.squeeze(1)
    return _unit(vectors) if normalize else vectors


def pool_segments(states: Tensor, limits: Tensor, *, how: str, normalize: bool = False) -> Tensor:
    """Pool concatenated ``states`` (T, D) of B texts to float32 vectors (B, D).

    The vectors are those of `pool` up to rounding. Lengths are read on the device only, so that
    the host never waits for it. ``limits`` (B + 1) are the start of each text and the end of the
    last; no text may be empty, which is not checked.
    """
    import torch

    one_of("pooling", how, POOLINGS)
    if how in ("cls", "last"):
        vectors = states[limits[:-1] if how == "cls" else limits[1:] - 1].float()
        return _unit(vectors) if normalize else vectors
    lengths = limits.diff()
    tokens = torch.arange(len(states), dtype=limits.dtype, device=states.device)
    text = torch.searchsorted(limits[1:].contiguous(), tokens, right=True)
    if how == "mean":
        weights = (1 / lengths)[text]
    else:
        ranks = tokens - limits[text] + 1
        weights = ranks / (lengths * (lengths + 1) / 2)[text]
    vectors = torch.segment_reduce(
        states.float() * weights.unsqueeze(1), "sum", offsets=limits, axis=0, unsafe=True
    )
    return _unit(vectors) if normalize else vectors


def _unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1e-12)
