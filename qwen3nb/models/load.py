"""Load the encoder or search model that a model spec names, or know its identity from before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb import paths
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.prompts import parse_prompts, prompt_warning
from qwen3nb.models.kinds.resolve import fetch_model, find_source
from qwen3nb.models.kinds.source import Settings, Source, described, fingerprint, unchanged
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.types import CACHED, KnownModel, SpecError
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.code_version import code_digest, installed_version
from qwen3nb.utils.hardware import gpus
from qwen3nb.utils.imports import load_library

if TYPE_CHECKING:
    from qwen3nb.models.search.bm25 import BM25
    from qwen3nb.models.search.fusion import Fusion

log = logging.getLogger(__name__)
_LIBRARIES = "torch transformers tokenizers sentence-transformers peft numpy bm25s PyStemmer"
_WITHOUT_EFFECT = ("batch_size", "cache", "show_progress")  # options that change no identity


def load_encoder(
    spec: str | Path,
    *,
    pooling: str | None = None,
    max_length: int | None = None,
    max_seq_length: int | None = None,
    prefix: str = "",
    append_eos: bool = False,
    normalize: bool | None = None,
    dimensions: int | None = None,
    bidirectional: bool = False,
    base: str | Path | None = None,
    instruction: str | None = None,
    prompts: Mapping[str, str] | str | None = None,
    label: str = "",
    device: str = "auto",
    dtype: str = "float32",
    batch_size: int = 32,
    seed: int = 0,
    cache: bool = True,
    cache_dtype: str = "float32",
    show_progress: bool = True,
) -> Encoder:
    """Load the encoder that ``spec`` names.

    Prompts, pooling and maximum length given here take precedence over the registry, and the
    registry over the model's folder.

    Args:
        spec: a folder (an extracted encoder, an encoder-decoder checkpoint, a
            sentence-transformers model, a causal language model, a LoRA adapter,
            another encoder-decoder such as T5Gemma 2, whose encoder is used), a name from
            ``registry.toml``, a hub id, ``api:URL#MODEL`` for one behind an OpenAI-compatible
            endpoint, or ``random``.
        pooling: one of `POOLINGS`; None or ``auto`` for the model's own. A causal
            language model has none, so it must be given.
        max_length: tokens after which a text is truncated; None or 0 for the model's own.
        max_seq_length: the same, under the name in sentence-transformers.
        prefix: text prepended to every input, such as the mode ``[R]`` of a UL2 training;
            for checkpoints and language models. An export stores its own.
        append_eos: whether the end-of-text token follows every input, likewise.
        normalize: whether vectors get unit length; None for the model's own setting. Without
            it, similarities are dot products.
        dimensions: leading dimensions to keep (Matryoshka); None or 0 for all. Truncated vectors
            are normalised again if the model normalises.
        bidirectional: let every token of a causal language model attend to every other.
        base: the base model of a LoRA adapter; None or empty for the one that the adapter names.
        instruction: for models with instructions, used if the task has none; None for the
            model's default. An adapter applies it to queries, and by default pools the
            last token, the end of text.
        prompts: text prepended to an input, by role (``query``, ``passage``, or ``symmetric`` for
            an input without a role) or task, see `qwen3nb.models.kinds.prompts`; or one line, as
            for `parse_prompts`. They replace all others; ``{}`` for no prompts. None for those of
            the registry, else of the model's folder (``config_sentence_transformers.json``); a
            warning is given if there are none but the model's authors prescribe some.
        label: name in records and tables; empty for the model's own, with the suffix ``-prompts``
            or ``-no-prompts`` if other prompts than its own are used, ``-int8`` and
            ``-float16-vectors``.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``int8`` for linear layers in 8 bits on a
            CPU with VNNI.
        batch_size: texts per batch, for padded batches and for sentence-transformers; affects
            speed, not vectors.
        seed: seed of the random baseline's vectors.
        cache: whether vectors are cached between runs.
        cache_dtype: ``float32``, or ``float16`` for half the disk: all vectors are rounded to it,
            cached or not, and the model has another identity.
        show_progress: whether long encodings show a progress bar.

    Raises:
        SpecError: no such model, a model that cannot be loaded, or one with fewer ``dimensions``.
        ValueError: an unknown pooling, dtype or device.
    """
    source = find_source(str(spec), base=base)
    given = parse_prompts(prompts)
    if source.kind.searches:
        raise SpecError(f"{spec} has no vectors; load_model('{spec}') gives a search model")
    if source.on_hub:
        source = fetch_model(source)  # only its files show its kind
    source = source.kind.prompted(source)
    used = source.prompts if given is None else given
    caution = "" if prefix else prompt_warning(source, given)
    differ = "" if used == source.prompts else "-prompts" if used else "-no-prompts"
    differ += "-int8" * (dtype == "int8")
    differ += "-float16-vectors" * (one_of("cache_dtype", cache_dtype, CACHED) == "float16")
    source = replace(
        source,
        label=label or f"{source.label}{differ}",
        prompts=used,
        instruction=source.instruction if instruction is None else instruction,
    )
    if source.kind.library:
        load_library(source.kind.library)
    if caution:
        log.warning(caution)
    if bidirectional and not source.kind.directed:
        raise SpecError(
            f"{source.label} is of kind {source.kind.name!r}; bidirectional is for causal language "
            "models; other models have a fixed direction"
        )
    source.kind.check(source)
    source = replace(source, content=fingerprint(source))
    settings = Settings(
        pooling=None if pooling in (None, "auto") else one_of("pooling", pooling, POOLINGS),
        max_length=max_length or max_seq_length or source.max_length,
        prefix=prefix,
        append_eos=append_eos,
        normalize=normalize,
        dimensions=dimensions,
        bidirectional=bidirectional,
        device=device,
        dtype=dtype,
        batch_size=batch_size,
        seed=seed,
        cache=cache,
        cache_dtype=cache_dtype,
        show_progress=show_progress,
    )
    try:
        encoder: Encoder = source.kind.load(source, settings)
    except Exception:
        unchanged(source)  # files that are being replaced may have caused the error
        raise
    return encoder


def load_model(spec: str | Path, **options: Any) -> Encoder | BM25 | Fusion:
    """Load an encoder, or the search model ``bm25`` or a fusion such as ``bm25+e5-base-v2``.

    The options are those of `load_encoder`; a fusion passes them to its encoders.

    Raises:
        SpecError: as for `load_encoder`, or prompts for a model without vectors.
    """
    source = find_source(str(spec), base=options.get("base"))
    if source.parts:
        from qwen3nb.models.search.fusion import Fusion

        parts = [load_model(part.spec, **options) for part in source.parts]
        return Fusion(source, [part for part in parts if not isinstance(part, Fusion)])
    if source.kind.searches:
        if options.get("prompts"):
            raise SpecError(f"{spec} has no vectors, so it takes no prompts")
        model: BM25 = source.kind.load(source, Settings(cache=options.get("cache", True)))
        return model
    return load_encoder(spec, **options)


def known_or_loaded(spec: str, load: Callable[[], Any], options: Mapping[str, Any]) -> Any:
    """Return the `KnownModel` of an earlier run, or load the model and store its identity.

    Loading a model and its libraries takes seconds to minutes. Label and identity are cached under
    a digest of everything they depend on: the content of the files, ``options``, versions, code and
    hardware.

    Args:
        spec: spec of the model.
        load: loads the model.
        options: options of `load_model`.

    Raises:
        SpecError: no such model.
    """
    digest = _digest(spec, options)
    file = paths.cache() / "identities" / f"{digest[:32]}.json"
    with suppress(OSError, ValueError, TypeError):  # missing or damaged
        return KnownModel(**read_json(file), load=cache(load))
    model = load()
    if _digest(spec, options) == digest:  # otherwise its files were replaced during loading
        kept = {each.name: getattr(model, each.name) for each in fields(KnownModel)[:-1]}
        try:
            write_json(file, kept)
        except OSError as error:
            log.warning("%s: not written (%s)", file, error)
    return model


def _digest(spec: str, options: Mapping[str, Any]) -> str:
    source = _fetched(find_source(spec, base=options.get("base")))
    used = {name: str(value) for name, value in options.items() if name not in _WITHOUT_EFFECT}
    versions = [code_digest(), *map(installed_version, _LIBRARIES.split())]
    return sha256_json([described(source), source.label, used, versions, gpus()])


def _fetched(source: Source) -> Source:
    if source.on_hub:
        return fetch_model(source)
    return replace(source, parts=tuple(_fetched(part) for part in source.parts))
