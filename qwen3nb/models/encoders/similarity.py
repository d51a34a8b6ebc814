"""How two vectors of a model are compared: by cosine or by dot product, of how many dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from qwen3nb.models.kinds.prompts import sentence_settings
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.types import SpecError, Vectors

SIMILARITIES = ("cosine", "dot")


def unit_and_similarity(source: Source, *, given: bool | None, unit: bool) -> dict[str, Any]:
    """Return the settings of an encoder that say how its vectors are compared.

    A model is compared as ``config_sentence_transformers.json`` says, by cosine if it says
    nothing. If the user decides about the length of its vectors, or it is a model without
    that file, vectors of length 1 are compared by cosine and others by dot product.

    Args:
        source: the model.
        given: the user's ``normalize``.
        unit: whether its vectors have length 1.

    Raises:
        SpecError: another similarity.
    """
    usual = "cosine" if unit else "dot"
    if given is not None or source.folder is None:
        return {"normalize": unit}
    fields = sentence_settings(source.folder)
    stored = fields.get("similarity_fn_name") or (
        "cosine" if fields or source.kind.cosine else usual
    )
    if stored not in SIMILARITIES:
        raise SpecError(
            f"{source.label} is compared by {stored!r} (config_sentence_transformers.json); "
            f"supported are: {', '.join(SIMILARITIES)}"
        )
    if stored == usual or unit:  # of vectors of length 1, both are the same
        return {"normalize": unit}
    return {"normalize": unit, "similarity": stored}


def leading_dimensions(dimensions: int | None, *, width: int, label: str) -> int | None:
    """Return how many leading dimensions are kept of ``width``; None if all are.

    Raises:
        SpecError: more than there are, or fewer than 1; None and 0 mean all.
    """
    if dimensions is None or dimensions in (0, width):
        return None
    if type(dimensions) is not int or not 1 <= dimensions <= width:
        raise SpecError(
            f"{label}: dimensions is {dimensions!r}; expected 1 to {width}, the width of its "
            "vectors"
        )
    return dimensions


def truncate_dimensions(vectors: Vectors, dimension: int, *, unit: bool = True) -> Vectors:
    """Keep the first ``dimension`` dimensions of (N, D), rescaled to length 1 if ``unit``.

    A vector whose prefix is zero stays zero.

    Raises:
        ValueError: ``dimension`` is not 1 to D.
    """
    if not 1 <= dimension <= vectors.shape[1]:
        raise ValueError(f"dimension is {dimension}; expected 1 to {vectors.shape[1]}")
    kept = np.array(vectors[:, :dimension], dtype=np.float32, order="C")
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    if unit:
        kept /= np.where(lengths > 0, lengths, 1)
    return kept
