"""One way in: a model specification to the encoder, or the search model, that it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.rerankers.prompt_template import INSTRUCTION
from qwen3nb.models.sources.fingerprint import fingerprint
from qwen3nb.models.sources.resolve import adapter_source, fetch, find_source
from qwen3nb.models.sources.source import Source
from qwen3nb.models.types import SpecError
from qwen3nb.utils.choices import one_of

if TYPE_CHECKING:
    from qwen3nb.models.search.bm25 import BM25
    from qwen3nb.models.search.fusion import Fusion


def load_encoder(
    spec: str | Path,
    *,
    pooling: str | None = None,
    max_length: int | None = None,
    prefix: str = "",
    append_eos: bool = False,
    normalize: bool | None = None,
    bidirectional: bool = False,
    base: str | Path | None = None,
    instruction: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    batch_size: int = 32,
    seed: int = 0,
    cache: bool = True,
    show_progress: bool = True,
) -> Encoder:
    """The encoder that ``spec`` names.

    Args:
        spec: a folder (an extracted encoder, an encoder-decoder checkpoint, a
            sentence-transformers model, a causal language model, a LoRA adapter, another
            encoder-decoder such as T5Gemma 2, whose encoder is taken), a name from
            ``registry.toml``, a hub id, or ``random``.
        pooling: one of `qwen3nb.POOLINGS`; None or ``auto`` for what the model says of
            itself. A causal language model says nothing, so it needs one.
        max_length: tokens after which a text is cut; None or 0 for what the model says.
        prefix: text put before every input, such as the mode ``[R]`` of a UL2 training;
            for checkpoints and language models. An export has its own stored.
        append_eos: whether the end-of-text token follows every input, likewise.
        normalize: whether vectors get length 1; None for what the model says. Without,
            similarities are dot products.
        bidirectional: run a causal language model with every token seeing every other.
        base: the model a LoRA adapter belongs to; None for the one it names.
        instruction: what a model with instructions is told to look for, where the task has
            none of its own; None for the model's own default. An adapter is told it before
            queries, and takes the last token, which is the end of text, unless told
            otherwise.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        batch_size: texts per batch where they must be padded, and with a model that
            sentence-transformers runs; it changes the speed, not the vectors.
        seed: of random vectors.
        cache: whether vectors are kept between runs.
        show_progress: whether long work shows a bar.

    Raises:
        SpecError: no such model, or one that cannot be loaded; says what could be.
        ValueError: an unknown pooling, dtype or device.
    """
    source = _told(spec, base=base, instruction=instruction)
    options = {"cache": cache, "show_progress": show_progress}
    if source.kind == "random":
        from qwen3nb.models.encoders.random_baseline import RandomEncoder

        dimension = int(source.spec.partition(":")[2] or 128)
        return RandomEncoder(source, seed=seed, dimension=dimension, **options)
    adapter = source.kind == "adapter"
    fingerprint(source)  # reads the headers: a pickle is refused before anything is loaded
    if bidirectional:
        _check_causal(source)
        options["bidirectional"] = True
    if pooling in (None, "auto"):
        pooling = "last" if adapter else None
    return _runner(source)(
        source,
        pooling=one_of("pooling", pooling, POOLINGS) if pooling else None,
        max_length=max_length or source.max_length,
        device=device,
        dtype=dtype,
        batch_size=batch_size,
        prefix=prefix,
        append_eos=append_eos or adapter,
        normalize=normalize,
        **options,
    )


def load_model(spec: str | Path, **options: Any) -> Encoder | BM25 | Fusion:
    """`load_encoder`, or the search model of ``bm25`` or of a fusion such as ``bm25+e5-base-v2``.

    The options are those of `load_encoder`, and go to the encoders of a fusion.
    """
    source = find_source(str(spec))
    if source.kind == "fusion":
        from qwen3nb.models.search.fusion import Fusion

        parts = [load_model(part.spec, **options) for part in source.parts]
        return Fusion(source, [part for part in parts if not isinstance(part, Fusion)])
    if source.kind == "bm25":
        from qwen3nb.models.search.bm25 import BM25

        return BM25(source)
    return load_encoder(spec, **options)


def _told(spec: str | Path, *, base: str | Path | None, instruction: str | None) -> Source:
    """The source of vectors that ``spec`` names, with its instruction.

    Raises:
        SpecError: there is none, or it has no vectors.
    """
    source = adapter_source(Path(spec), base=base) if base is not None else find_source(str(spec))
    if source.kind in ("bm25", "fusion"):
        raise SpecError(f"{spec} has no vectors; load_model('{spec}') gives a search model")
    if source.kind == "hub":
        source = fetch(source)  # only now it shows whether it is an adapter
    if source.kind == "adapter":
        source = replace(
            source, prompts={"query": "Instruct: {instruction}\nQuery:"}, instruction=INSTRUCTION
        )
    return source if instruction is None else replace(source, instruction=instruction)


def _check_causal(source: Source) -> None:
    if source.kind not in ("decoder", "adapter"):
        raise SpecError(
            f"{source.label} is of kind {source.kind!r}; bidirectional is for causal language "
            "models, all others are what they are"
        )


def _runner(source: Source) -> Callable[..., Encoder]:
    """The class that runs models of this kind."""
    from qwen3nb.models.encoders.sentence_transformer import SentenceTransformerEncoder
    from qwen3nb.models.encoders.transformer import TransformerEncoder

    if source.kind == "sentence-transformers":
        return SentenceTransformerEncoder
    return TransformerEncoder
