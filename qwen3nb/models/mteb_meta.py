"""The description of a model that MTEB requires."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta

__all__ = ["mteb_meta"]


def mteb_meta(model: Any, *, dimension: int | None, kinds: list[str]) -> ModelMeta:
    """Describe a model to MTEB; name and revision come from its identity.

    MTEB keys its result cache by them: if two local checkpoints shared them, the second
    would get the scores of the first.
    """
    from mteb.models.model_meta import ModelMeta

    return ModelMeta(
        loader=None,
        name=f"qwen3nb/{model.label}",
        revision=model.identity[:40],
        release_date=None,
        languages=None,
        n_parameters=None,
        memory_usage_mb=None,
        max_tokens=None,
        embed_dim=dimension,
        license=None,
        open_weights=None,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch"],
        similarity_fn_name=getattr(model, "similarity_name", "cosine"),
        use_instructions=bool(getattr(model, "prompts", None)),
        training_datasets=None,
        model_type=kinds,
    )
