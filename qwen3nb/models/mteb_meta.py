"""The description of a model that MTEB requires.

It says what decides a result, and nothing else: MTEB's leaderboard shows None as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qwen3nb.models.kinds.source import Source

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta


def mteb_meta(
    model: Any,
    *,
    dimension: int | None,
    kinds: list[str],
    similarity: str | None = None,
    parts: Sequence[Any] = (),
) -> ModelMeta:
    """Describe a loaded model, perhaps with the ``parts`` of a fusion, to MTEB.

    Name and revision come from its identity, because MTEB keys its result cache by them: if two
    local checkpoints shared them, the second would get the scores of the first.
    """
    from mteb.models.model_meta import ModelMeta

    source: Source = model.source
    parts = parts or [model]
    counts = [  # BM25 and random vectors have no parameters
        0 if part.source.kind.weightless else getattr(part, "parameters", None) for part in parts
    ]
    return ModelMeta(
        loader=None,
        name=f"qwen3nb/{model.label}",
        revision=model.identity[:40],
        release_date=None,
        languages=None,
        n_parameters=None if None in counts else sum(filter(None, counts)),
        memory_usage_mb=None,
        max_tokens=getattr(model, "max_length", None),
        embed_dim=dimension,
        license=None,
        open_weights=None,
        public_training_code=None,
        public_training_data=None,
        framework=[],
        reference=f"https://huggingface.co/{source.id}" if source.id else None,
        similarity_fn_name=similarity,
        use_instructions=any(part.source.prompts for part in parts),
        training_datasets=None,
        model_type=kinds,
    )
