"""Pooling: from one vector per token to one vector per text.

A rule assigns a weight to each *real* token. The weight depends on the token's rank among
the real tokens of its row, never on its column, so left and right padding give the same
vector.

Shapes: B texts, T columns (padding included), D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qwen3nb.utils.choices import check_choice

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Pooling:
    """A pooling rule; a new one is an entry of `POOLINGS`."""

    # weights of tokens by their ranks, 0 on padding, and the number of real tokens of their text
    weigh: Callable[[Tensor, Tensor], Tensor]
    stored: str  # its name in sentence-transformers
    flag: str  # its key in the configurations of sentence-transformers before 5.4
    code: str  # for states (B, T, D) and a mask (B, T), as shown on the model card
    # for rules that take one token: its position, from the limits of concatenated texts
    only: Callable[[Tensor], Tensor] | None = None


POOLINGS: dict[str, Pooling] = {
    "mean": Pooling(
        lambda rank, length: rank > 0,
        "mean",
        "pooling_mode_mean_tokens",
        "vectors = (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)",
    ),
    "cls": Pooling(
        lambda rank, length: rank == 1,
        "cls",
        "pooling_mode_cls_token",
        "first = mask.argmax(1)\nvectors = states[torch.arange(len(states)), first]",
        only=lambda limits: limits[:-1],
    ),
    "last": Pooling(
        lambda rank, length: (rank > 0) & (rank == length),
        "lasttoken",
        "pooling_mode_lasttoken",
        "last = (mask.cumsum(1) * mask).argmax(1)\n"
        "vectors = states[torch.arange(len(states)), last]",
        only=lambda limits: limits[1:] - 1,
    ),
    "weighted_mean": Pooling(
        lambda rank, length: rank,
        "weightedmean",
        "pooling_mode_weightedmean_tokens",
        "weights = (mask.cumsum(1) * mask).unsqueeze(-1)\n"
        "vectors = (states * weights).sum(1) / weights.sum(1)",
    ),
}


def pool(states: Tensor, mask: Tensor, *, pooling: str, normalize: bool = False) -> Tensor:
    """Pool ``states`` (B, T, D) to float32 vectors (B, D).

    Args:
        states: last hidden states (B, T, D) of any float dtype.
        mask: (B, T), non-zero on real tokens. Padding may be on either side.
        pooling: ``mean``; ``cls``, the first real token (Qwen3 has no CLS token);
            ``last``, the last real token; ``weighted_mean``, the i-th real token
            weighted by i (Muennighoff 2022, SGPT).
        normalize: divide each vector by its Euclidean norm.

    The inputs are not modified. Values in padding columns, even NaN, do not affect the result.

    Raises:
        ValueError: an unknown ``pooling``, mismatched shapes, or a row without a real token.
    """
    rule = POOLINGS[check_choice("pooling", pooling, POOLINGS)]
    if states.ndim != 3 or mask.shape != states.shape[:2]:
        raise ValueError(
            "expected states (B, T, D) and mask (B, T); "
            f"got {tuple(states.shape)} and {tuple(mask.shape)}"
        )
    is_token = mask != 0
    has_no_token = ~is_token.any(dim=1)
    empty_rows = has_no_token.nonzero().flatten().tolist()
    if empty_rows:
        raise ValueError(f"rows {empty_rows} have no real token: nothing to pool")
    ranks = is_token.long().cumsum(dim=1) * is_token  # 1, 2, …; 0 for padding
    lengths = ranks.amax(dim=1, keepdim=True)
    weights = rule.weigh(ranks, lengths).float()
    shares = (weights / weights.sum(dim=1, keepdim=True)).unsqueeze(2)  # (B, T, 1), sum 1
    if not is_token.all():  # a share of 0 is not enough: padding may be NaN
        states = states.masked_fill(~is_token.unsqueeze(-1), 0.0)
    # A product of matrices would add in an order that depends on batch size and threads.
    vectors = (states.float() * shares).sum(dim=1)
    return _unit(vectors) if normalize else vectors


def pool_segments(
    states: Tensor, limits: Tensor, *, pooling: str, normalize: bool = False
) -> Tensor:
    """Pool concatenated ``states`` (T, D) of B texts to float32 vectors (B, D).

    Vectors equal those of `pool` up to rounding. Lengths are only read on the device, so the host
    does not wait for it. ``limits`` (B + 1) are the start of each text and the end of the last;
    texts must not be empty, which is not checked.
    """
    rule = POOLINGS[check_choice("pooling", pooling, POOLINGS)]
    if rule.only is not None:  # a rule that takes one token, such as the last
        pooled_tokens = rule.only(limits)
        vectors = states[pooled_tokens].float()
    else:
        shares = _token_shares(rule, limits, tokens=len(states))
        vectors = _sum_by_text(states.float() * shares.unsqueeze(1), limits)
    return _unit(vectors) if normalize else vectors


def _token_shares(rule: Pooling, limits: Tensor, *, tokens: int) -> Tensor:
    """Return the weight of each token (T,) in the vector of its text; those of a text sum to 1."""
    import torch

    starts, ends = limits[:-1], limits[1:]  # of the B texts
    positions = torch.arange(tokens, dtype=limits.dtype, device=limits.device)
    # (T,): for each token, the number of texts that end before it.
    text_of_token = torch.searchsorted(ends.contiguous(), positions, right=True)
    ranks = positions - starts[text_of_token] + 1  # 1, 2, … within each text
    lengths = (ends - starts)[text_of_token]
    weights = rule.weigh(ranks, lengths).double()
    text_sums = _sum_by_text(weights, limits)
    return weights.float() / text_sums.float()[text_of_token]


def _sum_by_text(numbers: Tensor, limits: Tensor) -> Tensor:
    import torch

    return torch.segment_reduce(numbers, "sum", offsets=limits, axis=0, unsafe=True)


def _unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1e-12)
