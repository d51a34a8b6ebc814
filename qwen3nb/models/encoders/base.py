"""Texts to vectors, whatever the model: one class, one way in.

`load_encoder` takes a spec (a folder, a registry name, a hub id, ``random``) and gives
an `Encoder`. An encoder implements MTEB's ``EncoderProtocol``, so that any MTEB task
runs it unchanged, and encodes plain lists of strings.

Rules, the same for every model:

- equal texts are encoded once, and a vector does not depend on its neighbours;
- a text that has no token of its own (empty, blank) is encoded as the model's end of
  text alone, and counted;
- a text that is not valid Unicode (a lone surrogate) is refused with its index;
- a vector that is zero or not finite is an error with the text's index, never a result;
- special tokens inside a text are text.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb import paths
from qwen3nb.models.batching import deduplicate
from qwen3nb.models.counters import Stats
from qwen3nb.models.encoders.embedding_cache import EmbeddingCache, text_key
from qwen3nb.models.encoders.progress import Progress
from qwen3nb.models.encoders.prompts import ROLES, prompt_for
from qwen3nb.models.modeling.pooling import POOLINGS
from qwen3nb.models.mteb_meta import mteb_meta
from qwen3nb.models.rerankers.prompt_template import INSTRUCTION
from qwen3nb.models.sources.lora import adapter_source
from qwen3nb.models.sources.resolve import Source, SpecError, fetch, find_source
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.choices import one_of

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta
    from torch import Tensor

    from qwen3nb.models.search.bm25 import BM25
    from qwen3nb.models.search.fusion import Fusion

__all__ = ["Encoder", "EncoderError", "load_encoder", "load_model"]

log = logging.getLogger(__name__)
ENCODING = 2  # raise when vectors change for the same model: part of every identity
_CHUNK = 512  # texts encoded and stored together: what a kill can cost
_LONG = 2.0  # seconds after which an encoding is worth a line in the log
Vectors = NDArray[np.float32]
_MTEB_ROLES = {"query": "query", "document": "passage"}


class EncoderError(ValueError):
    """A text that cannot be encoded, or a vector that must not be used."""


class Encoder(ABC):
    """Texts to vectors.

    Attributes:
        label: a name fit for files and tables.
        settings: everything that decides its vectors, as JSON; see `identity`.
        prompts: text put before a text, per role.
        stats: what it did so far.
        show_progress: whether long work shows a bar.
    """

    searches_only = False

    def __init__(
        self,
        source: Source,
        *,
        settings: dict[str, Any],
        cache: bool = True,
        show_progress: bool = True,
    ) -> None:
        self.label = source.label
        self.source = source
        self.prompts = source.prompts
        self.settings = {
            "encoding": ENCODING,
            "model": source.fingerprint(),
            "prompts": source.prompts,
            **({"instruction": source.instruction} if source.instruction else {}),
            **settings,
        }
        self.stats = Stats()
        self.show_progress = show_progress
        self._tick: Callable[[int], None] | None = None  # hears of texts within a chunk
        self._cache = self._own_cache() if cache else None

    def _own_cache(self) -> EmbeddingCache:
        about = {"label": self.label, "identity": self.identity, "settings": self.settings}
        folder = paths.cache() / "embeddings"
        return EmbeddingCache(folder / f"{self.identity[:32]}.sqlite", about=about)

    @property
    def device(self) -> str:
        """Where the model runs."""
        return "cpu"

    @property
    def identity(self) -> str:
        """SHA-256 of everything that decides this encoder's vectors."""
        return sha256_json(self.settings)

    @property
    @abstractmethod
    def dimension(self) -> int:
        """D, the length of a vector."""

    @abstractmethod
    def _embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors (N, D) of distinct texts, prompts included."""

    def encode(
        self,
        inputs: str | Sequence[str] | Iterable[dict[str, Any]],
        *,
        role: str | None = None,
        prompt_type: Any = None,
        task_metadata: Any = None,
        **_: Any,
    ) -> Vectors:
        """Vectors (N, D), float32, in the order of ``inputs``; (D,) for one string.

        Args:
            inputs: a string, a list of strings, or the batches MTEB gives.
            role: ``query`` or ``passage``; with the task it decides the prompt.
            prompt_type: MTEB's name for the role.
            task_metadata: MTEB's description of the task.

        Raises:
            EncoderError: an input that is no text, or a vector that is zero or not finite.
            ValueError: an unknown role.
        """
        if role is None and prompt_type is not None:
            role = _MTEB_ROLES[getattr(prompt_type, "value", prompt_type)]
        if role is not None:
            one_of("role", role, ROLES)
        prompt = prompt_for(
            self.prompts, role=role, task=task_metadata, instruction=self.source.instruction
        )
        if isinstance(inputs, str):
            vector: Vectors = self._encode([prompt + inputs])[0]
            return vector
        return self._encode([prompt + text for text in _texts(inputs)])

    def _encode(self, texts: list[str]) -> Vectors:
        for index, text in enumerate(texts):
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise EncoderError(f"text {index} is not valid Unicode: {text!r:.80}") from None
        distinct, where = deduplicate(texts)
        started, hits = time.perf_counter(), self.stats.cached
        self.stats.texts += len(texts)
        with self._cache if self._cache is not None else nullcontext():
            vectors = self._kept_or_new(distinct, where)
        if time.perf_counter() - started > _LONG:
            hits = self.stats.cached - hits
            misses = len(distinct) - hits
            log.info("%s: %d vectors from the cache, %d computed", self.label, hits, misses)
        return vectors[where]

    def _kept_or_new(self, texts: Sequence[str], where: Sequence[int]) -> Vectors:
        """Vectors (N, D) of distinct texts; what the cache does not have is computed.

        ``where`` is each input's distinct text, for errors.
        """
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        missing = list(range(len(texts)))
        keys: list[bytes] = []
        if self._cache is not None:
            keys = [text_key(text) for text in texts]
            before = self._cache.damaged
            known = self._cache.fill(keys, vectors)
            missing = np.flatnonzero(~known).tolist()
            self.stats.cached += len(texts) - len(missing)
            self.stats.damaged += self._cache.damaged - before
            self._cache.touch()
        # Texts of like length share a chunk, and with it a forward.
        missing.sort(key=lambda index: -len(texts[index]))
        sizes = [len(texts[index]) for index in missing]
        with Progress(self.label, sizes, show=self.show_progress) as bar:
            self._tick = bar.advance
            for start in range(0, len(missing), _CHUNK):
                chunk = missing[start : start + _CHUNK]
                vectors[chunk] = self._checked(chunk, texts, where)
                if self._cache is not None:
                    self._cache.put({keys[index]: vectors[index] for index in chunk})
                bar.advance(start + len(chunk) - bar.texts)
        return vectors

    def _checked(
        self, chunk: Sequence[int], distinct: Sequence[str], where: Sequence[int]
    ) -> Vectors:
        """Vectors of the distinct texts ``chunk``; ``where`` is each input's distinct text."""
        texts = [distinct[index] for index in chunk]
        started = time.perf_counter()
        vectors = self._embed(texts)
        self.stats.seconds += time.perf_counter() - started
        self.stats.encoded += len(texts)
        bad = ~np.isfinite(vectors).all(axis=1) | ~vectors.any(axis=1)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            what = "zero" if np.isfinite(vectors[row]).all() else "not finite"
            place = where.index(chunk[row])
            raise EncoderError(
                f"{self.label}: the vector of text {place} is {what}: {texts[row]!r:.80}"
            )
        return vectors

    @property
    def similarity_name(self) -> str:
        """``cosine``, or ``dot`` where vectors keep their length on purpose."""
        return "cosine" if self.settings.get("normalize", True) else "dot"

    def similarity(self, first: Any, second: Any) -> Tensor:
        """Similarities (N, M) of vectors (N, D) and (M, D); a single vector (D,) is one row."""
        left, right = (self._comparable(each) for each in (first, second))
        return left.reshape(-1, left.shape[-1]) @ right.reshape(-1, right.shape[-1]).T

    def similarity_pairwise(self, first: Any, second: Any) -> Tensor:
        """Similarities (N,) of rows of (N, D) and (N, D)."""
        return (self._comparable(first) * self._comparable(second)).sum(dim=-1)

    def _comparable(self, vectors: Any) -> Tensor:
        import torch

        tensor = torch.as_tensor(np.asarray(vectors), dtype=torch.float32)
        if self.similarity_name == "cosine":
            tensor = torch.nn.functional.normalize(tensor, dim=-1)
        return tensor

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description; its name and revision are this encoder's alone."""
        return mteb_meta(self, dimension=self.dimension, kinds=["dense"])


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
    source.fingerprint()  # reads the headers: a pickle is refused before anything is loaded
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


def _texts(inputs: Any) -> list[str]:
    """The strings of a list, or of MTEB's batches; refuses anything else by its index."""
    texts: list[str] = []
    for item in inputs:
        texts.extend(item["text"] if isinstance(item, dict) else [item])
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise EncoderError(f"text {index} is {type(text).__name__}, expected a string")
    return texts
