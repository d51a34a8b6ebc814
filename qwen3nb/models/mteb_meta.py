"""The description of a model that MTEB requires.

It says what is known of the model, and nothing else: MTEB's leaderboard shows None as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from qwen3nb.checkpoints.provenance import card_fields
from qwen3nb.models.kinds.source import Source, registry

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}  # of a parameter
_MEGABYTE = 1 << 20  # as MTEB counts


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
    return ModelMeta(
        loader=None,
        name=f"qwen3nb/{model.label}",
        revision=model.identity[:40],
        release_date=None,
        languages=None,
        n_parameters=_sum([_parameters(part) for part in parts]),
        memory_usage_mb=_sum([_megabytes(part) for part in parts]),
        max_tokens=getattr(model, "max_length", None),
        embed_dim=dimension,
        license=_license(source),
        open_weights=None,
        public_training_code=None,
        public_training_data=None,
        framework=list(dict.fromkeys(name for part in parts for name in _framework(part.source))),
        reference=f"https://huggingface.co/{source.id}" if source.id else None,
        similarity_fn_name=similarity,
        use_instructions=any(part.source.prompts for part in parts),
        training_datasets=None,
        model_type=kinds,
    )


def _sum(known: Sequence[int | None]) -> int | None:
    """Return the sum; None if one of the numbers is unknown."""
    return None if None in known else sum(number or 0 for number in known)


def _parameters(model: Any) -> int | None:
    """Return the number of parameters; 0 for BM25 and random vectors, which have none."""
    return 0 if model.source.kind.weightless else getattr(model, "parameters", None)


def _megabytes(model: Any) -> int | None:
    """Return the memory of the weights in the dtype in which they run, rounded as by MTEB."""
    parameters = _parameters(model)
    size = _BYTES.get(str(model.settings.get("dtype")), 0 if parameters == 0 else None)
    return None if parameters is None or size is None else round(parameters * size / _MEGABYTE)


def _framework(source: Source) -> list[str]:
    """Return MTEB's names of what the model is written in, as it names them for hub models."""
    folder, names = source.folder, source.kind.framework
    if folder is None:
        return list(names)
    sentence = ["Sentence Transformers"] * folder.has("modules.json")
    return [*sentence, *names, *["safetensors"] * any(folder.path.glob("*.safetensors"))]


def _license(source: Source) -> str | None:
    """Return the licence that the model's card states, else the registry; None if MTEB has no name.

    For MTEB, a licence is one of its own names or an address.
    """
    from mteb.types import Licenses

    same = (each for each in registry().values() if source.id and each.get("id") == source.id)
    card = {} if source.folder is None else card_fields(source.folder.path)
    stated = card.get("license") or next(same, {}).get("licence")
    name = str(stated).lower()
    return name if name in get_args(Licenses) or name.startswith("https://") else None
