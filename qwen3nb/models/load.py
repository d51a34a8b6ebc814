"""From what a user gives to a model that runs: a spec, a `Model`, an object, or a loaded model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from qwen3nb.models.capabilities import ScoresPairs, is_model, scores_pairs
from qwen3nb.models.model import Model
from qwen3nb.models.options import BATCH_SIZE, OptionArguments
from qwen3nb.models.search.chunks import CUT, check_chunks
from qwen3nb.models.types import SpecError

if TYPE_CHECKING:
    from qwen3nb.models.encoders.base import Encoder
    from qwen3nb.models.model import LoadedModel


def load_encoder(
    spec: str | Path,
    *,
    label: str = "",
    max_seq_length: int | None = None,
    **options: Unpack[OptionArguments],
) -> Encoder:
    """Load the encoder that ``spec`` names.

    Args:
        spec: see `Model`.
        label: the ``name`` of `Model`.
        max_seq_length: its ``max_length``, under the name in sentence-transformers.
        options: the options of `Model`.

    Raises:
        SpecError: no such model, a model without vectors or that cannot be loaded, or one with
            fewer ``dimensions``.
        ValueError: an unknown pooling, dtype or device.
    """
    return _model(spec, label, max_seq_length, options).load_encoder()


def load_model(
    spec: str | Path,
    *,
    label: str = "",
    max_seq_length: int | None = None,
    **options: Unpack[OptionArguments],
) -> LoadedModel:
    """Load an encoder, the search model ``bm25`` or a fusion such as ``bm25+e5-base-v2``.

    The arguments are those of `load_encoder`; a fusion passes the options to its encoders.

    Raises:
        SpecError: as for `load_encoder`, or prompts for a model without vectors.
    """
    return _model(spec, label, max_seq_length, options).load()


def _model(
    spec: str | Path, label: str, max_seq_length: int | None, options: OptionArguments
) -> Model:
    model = Model(str(spec), **options)
    if label:
        model = replace(model, name=label)
    if max_seq_length and model.max_length is None:
        model = replace(model, max_length=max_seq_length)
    return model


def named(model: Any, **options: Unpack[OptionArguments]) -> Any:
    """Return the `Model` of a spec with these options; anything else as it is."""
    if isinstance(model, str | Path):
        return Model(str(model), **options)
    return model


def loaded(model: Any) -> Any:
    """Return a loaded model: what a spec or a `Model` loads, and anything else as it is."""
    model = named(model)
    if isinstance(model, Model):
        return model.load()
    return model


def with_chunks(model: Any, chunks: str) -> Any:
    """Return a `Model`, or a loaded model, that splits documents; see `Model`."""
    from qwen3nb.models.search.chunked import chunked

    if isinstance(model, Model):
        return model.with_chunks(chunks)
    return chunked(model, chunks)


def with_chunks_if_longer(model: Any, documents: Sequence[str], chunks: str) -> Any:
    """Return a model that splits documents if it splits one of these, else as it is.

    Args:
        model: a `Model`, or a loaded one; anything else is returned as it is.
        documents: their texts.
        chunks: see `Model`; ``cut`` returns the model.

    Raises:
        ValueError: other ``chunks``.
    """
    from qwen3nb.models.search.chunked import splits_any

    is_known = isinstance(model, Model) or is_model(model)
    if check_chunks(chunks) == CUT or not is_known:
        return model
    splitting_model = with_chunks(model, chunks)
    if isinstance(splitting_model, Model):
        can_split = splitting_model.splits or splitting_model.parts
        if not can_split:  # BM25 is not loaded
            return model
    if splits_any(loaded(splitting_model), documents):
        return splitting_model
    return model


def loaded_scorer(model: Any) -> ScoresPairs:
    """Return what scores pairs: a yes/no reranker, or a search model such as ColBERT.

    Raises:
        SpecError: a model that scores no pairs, such as an encoder or BM25.
    """
    model = named(model)
    if isinstance(model, Model):
        model = model.load() if model.only_searches else model.reranker
    if not scores_pairs(model):
        raise SpecError(f"{model.label} scores no pairs, so it cannot rerank")
    return model


def label_of(model: Any) -> str:
    """Return the label of a model; one that cannot be loaded is refused here.

    Raises:
        SpecError: see `Model.load`.
    """
    if isinstance(model, Model):
        return model.facts.label
    return str(model.label)


def to_model(
    model: Any,
    *,
    prompts: Mapping[str, str] | None = None,
    base: Path | str | None = None,
    label: str = "",
    fingerprint: str = "",
    batch_size: int | None = None,
    show_progress: bool = True,
) -> Any:
    """Return a `Model` for a spec, an encoder for an object with ``encode``, else the model itself.

    For arguments see `qwen3nb.evaluate`.

    Raises:
        ValueError: an option that is for other models.
        TypeError: the model is of none of these kinds.
    """
    from qwen3nb.models.encoders.wrapped import WrappedEncoder, with_tokenizer

    is_spec = isinstance(model, str | Path)
    is_known = is_spec or isinstance(model, Model) or is_model(model)
    if is_known and (label or fingerprint):
        raise ValueError("label and fingerprint are for objects with encode(); a model has its own")
    if base and not is_spec:
        raise ValueError("base is for a model named by its spec; give it to q.Model")
    if is_known and prompts is not None and not is_spec:
        raise ValueError("prompts are for a model named by its spec; give them to q.Model")
    if is_spec:
        return Model(
            str(model),
            prompts=prompts,
            base=base,
            batch_size=batch_size or BATCH_SIZE,
            show_progress=show_progress,
        )
    if is_known:
        return model
    if isinstance(model, tuple) and len(model) == 2:
        label = label or type(model[0]).__name__
        model = with_tokenizer(*model)
    encoder = WrappedEncoder(
        model,
        label=label,
        fingerprint=fingerprint,
        batch_size=batch_size or BATCH_SIZE,
        show_progress=show_progress,
    )
    if prompts is None:
        return encoder
    return encoder.prompted(prompts)
