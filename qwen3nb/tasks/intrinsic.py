"""A first look at an encoder: is it an encoder at all?

Four checks that cost seconds and catch the usual accidents: vectors of the wrong
length, a causal or scrambled model, dimensions that say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.models.bm25 import BM25
from qwen3nb.models.encoders import Encoder, load_encoder
from qwen3nb.tasks.embedded import author_sts

__all__ = ["COLLAPSED_SHARE", "COLLAPSED_VARIANCE", "Check", "quick_look", "vector_agreement"]

COLLAPSED_VARIANCE = 1e-6  # a dimension that varies less says nothing
COLLAPSED_SHARE = 0.10  # share of such dimensions from which on we warn
NORM_TOLERANCE = 1e-3
FOX = "The quick brown fox jumps over the lazy dog."
PARAPHRASE = "A fast, dark-coloured fox leaps above a sleepy hound."
UNRELATED = (
    "Interest rates rose for the third time this year.",
    "Preheat the oven and grease a baking tin.",
    "The committee published its report on water quality.",
)


@dataclass(frozen=True)
class Check:
    """One check and what came of it.

    Attributes:
        name: what is checked.
        verdict: ``PASSED``, ``WARNING`` or ``FAILED``.
        found: the value, in words.
        expected: the threshold, in words.
    """

    name: str
    verdict: str
    found: str
    expected: str


def quick_look(encoder: Encoder | BM25, texts: Sequence[str] | None = None) -> list[Check]:
    """Check an encoder on ``texts``, by default the author-written sentence pairs.

    A search model has no vectors to look at, which is the one check it gets.

    Raises:
        EncoderError: a vector is zero or not finite.
    """
    if isinstance(encoder, BM25):
        return [Check("vectors", "NOT APPLICABLE", f"{encoder.label} searches without", "–")]
    if texts is None:
        texts = [text for first, second, _ in author_sts() for text in (first, second)]
    vectors = encoder.encode(list(texts))
    return [
        _norms(vectors),
        _paraphrase(encoder),
        _collapsed(vectors),
        _distinct(vectors),
    ]


def _norms(vectors: NDArray[np.float32]) -> Check:
    off = float(np.abs(np.linalg.norm(vectors, axis=1) - 1).max())
    verdict = "PASSED" if off <= NORM_TOLERANCE else "WARNING"
    return Check(
        "vectors have length 1", verdict, f"off by at most {off:.1e}", f"≤ {NORM_TOLERANCE:g}"
    )


def _paraphrase(encoder: Encoder) -> Check:
    fox, *others = encoder.encode([FOX, PARAPHRASE, *UNRELATED])
    near, *far = encoder.similarity(fox[None], np.stack(others))[0].tolist()
    verdict = "PASSED" if near > max(far) else "FAILED"
    return Check(
        "a paraphrase is closer than unrelated sentences",
        verdict,
        f"{near:.3f} against at most {max(far):.3f}",
        "closer than each of three",
    )


def _collapsed(vectors: NDArray[np.float32]) -> Check:
    share = float((vectors.var(axis=0) < COLLAPSED_VARIANCE).mean())
    return Check(
        "dimensions that say nothing",
        "PASSED" if share < COLLAPSED_SHARE else "WARNING",
        f"{share:.1%} of {vectors.shape[1]} vary by less than {COLLAPSED_VARIANCE:g}",
        f"< {COLLAPSED_SHARE:.0%}",
    )


def _distinct(vectors: NDArray[np.float32]) -> Check:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similar = unit @ unit.T
    mean = float((similar.sum() - len(unit)) / (len(unit) * (len(unit) - 1)))
    return Check(
        "different texts point in different directions",
        "PASSED" if mean < 0.95 else "WARNING",
        f"mean cosine {mean:.3f}",
        "< 0.95",
    )


def vector_agreement(
    center: Path, others: Sequence[Path], **options: Any
) -> Mapping[str, tuple[float, float]]:
    """Cosine of each model's vectors with the center's: mean and lowest, by folder name.

    Over the distinct sentences of the author-written STS set.

    Args:
        center: a model folder, such as an average.
        others: folders of models of the same dimension, such as its sources.
        options: to `load_encoder`, such as ``pooling``.
    """
    texts = sorted({text for one, other, _ in author_sts() for text in (one, other)})

    def vectors(folder: Path) -> NDArray[np.float32]:
        options_ = {"show_progress": False, **options}
        found = load_encoder(folder, **options_).encode(texts)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    middle = vectors(center)
    found = {}
    for folder in others:
        cosines = (middle * vectors(folder)).sum(axis=1)
        found[folder.name] = (float(cosines.mean()), float(cosines.min()))
    return found
