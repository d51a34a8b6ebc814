"""UL2 denoising, the training objective of the demo's encoder-decoder.

Three denoisers (Tay et al. 2022), marked by a mode token at the front:

    [R]  regular: 15 % of the tokens in spans of about 3
    [X]  extreme: 50 % of the tokens in spans of about 8
    [S]  sequential: everything after a random point

Each hidden span is replaced by a sentinel in the source; the target lists the sentinels,
each followed by the tokens it hides. Source and target end with the end-of-text token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

__all__ = ["DENOISERS", "Denoiser", "Example", "denoise", "hide_spans", "hide_suffix"]


@dataclass(frozen=True)
class Denoiser:
    """One way to hide tokens.

    Attributes:
        mode: the text at the front of the source.
        share: share of the examples.
        rate: share of hidden tokens; None for everything after a random point.
        span: mean length of a hidden span.
    """

    mode: str
    share: float
    rate: float | None
    span: int


DENOISERS = (
    Denoiser("[R]", 0.4, 0.15, 3),
    Denoiser("[X]", 0.3, 0.50, 8),
    Denoiser("[S]", 0.3, None, 0),
)


@dataclass(frozen=True)
class Example:
    """Token ids of a source and of its target."""

    source: list[int]
    target: list[int]


def denoise(
    ids: Sequence[int],
    *,
    modes: dict[str, list[int]],
    sentinels: Sequence[int],
    end: int,
    generator: np.random.Generator,
) -> Example:
    """Create a training example from a text of at least four tokens.

    Args:
        ids: token ids of the text, without end token.
        modes: token ids of each mode's text.
        sentinels: token ids of the sentinels, in order.
        end: id of the end-of-text token.
        generator: draws the denoiser and the hidden tokens.
    """
    shares = [denoiser.share for denoiser in DENOISERS]
    denoiser = DENOISERS[generator.choice(len(DENOISERS), p=shares)]
    if denoiser.rate is None:
        source, target = hide_suffix(ids, sentinel=sentinels[0], generator=generator)
    else:
        source, target = hide_spans(
            ids,
            rate=denoiser.rate,
            span=denoiser.span,
            sentinels=sentinels,
            generator=generator,
        )
    return Example([*modes[denoiser.mode], *source, end], [*target, end])


def hide_suffix(
    ids: Sequence[int], *, sentinel: int, generator: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Hide everything after a random point, with at least a quarter on each side."""
    quarter = max(1, len(ids) // 4)
    point = int(generator.integers(quarter, len(ids) - quarter + 1))
    return [*ids[:point], sentinel], [sentinel, *ids[point:]]


def hide_spans(
    ids: Sequence[int],
    *,
    rate: float,
    span: int,
    sentinels: Sequence[int],
    generator: np.random.Generator,
) -> tuple[list[int], list[int]]:
    """Hide ``rate`` of the tokens in spans of about ``span``; the first token stays."""
    hidden = min(max(1, round(len(ids) * rate)), len(ids) - 1)
    count = min(max(1, round(hidden / span)), len(sentinels), len(ids) - hidden)
    gone = _parts(hidden, count, generator)
    kept = _parts(len(ids) - hidden, count, generator)
    source: list[int] = []
    target: list[int] = []
    start = 0
    for sentinel, stay, leave in zip(sentinels, kept, gone, strict=False):
        source += [*ids[start : start + stay], sentinel]
        target += [sentinel, *ids[start + stay : start + stay + leave]]
        start += stay + leave
    return source, target


def _parts(total: int, count: int, generator: np.random.Generator) -> list[int]:
    """Split ``total`` into ``count`` positive numbers, all splits equally likely."""
    cuts = np.sort(generator.choice(total - 1, size=count - 1, replace=False)) + 1
    edges = [0, *cuts.tolist(), total]
    return [right - left for left, right in pairwise(edges)]
