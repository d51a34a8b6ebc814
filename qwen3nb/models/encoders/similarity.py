"""How two vectors of a model are compared: by cosine or by dot product."""

from __future__ import annotations

from typing import Any

from qwen3nb.models.sources.prompt_names import sentence_settings
from qwen3nb.models.sources.source import Source
from qwen3nb.models.types import SpecError

__all__ = ["unit_and_similarity"]

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
        "cosine" if fields or source.kind == "sentence-transformers" else usual
    )
    if stored not in SIMILARITIES:
        raise SpecError(
            f"{source.label} is compared by {stored!r} (config_sentence_transformers.json); "
            f"supported are: {', '.join(SIMILARITIES)}"
        )
    if stored == usual or unit:  # of vectors of length 1, both are the same
        return {"normalize": unit}
    return {"normalize": unit, "similarity": stored}
