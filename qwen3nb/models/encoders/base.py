"""The base class of encoders: texts to vectors, whatever the model.

An `Encoder`, as returned by `qwen3nb.models.load`, encodes lists of strings. It implements
MTEB's ``EncoderProtocol``, so that every MTEB task runs it unchanged.

Rules for all models:

- equal texts are encoded once, and a vector does not depend on the rest of its batch;
- a text without tokens (empty, blank) is encoded as the model's end-of-text token alone,
  and counted;
- a text that is not valid Unicode (a lone surrogate) is refused with its index;
- a vector that is zero or not finite is an error that names the text's index;
- special tokens inside a text are plain text.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb import paths
from qwen3nb.models.batching import deduplicate
from qwen3nb.models.counters import Stats
from qwen3nb.models.encoders.embedding_cache import EmbeddingCache, text_key
from qwen3nb.models.encoders.progress import EncodingProgress
from qwen3nb.models.encoders.prompts import ROLES, prompt_for
from qwen3nb.models.mteb_meta import mteb_meta
from qwen3nb.models.sources.fingerprint import fingerprint
from qwen3nb.models.sources.source import Source
from qwen3nb.models.types import EncoderError, Vectors
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.choices import one_of

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta
    from torch import Tensor


__all__ = ["Encoder"]

log = logging.getLogger(__name__)
ENCODING = 2  # increase when vectors change for the same model: part of every identity
_CHUNK = 512  # texts encoded and stored together: a kill loses at most this many
_LONG = 2.0  # seconds above which an encoding is logged
_MTEB_ROLES = {"query": "query", "document": "passage"}


class Encoder(ABC):
    """Texts to vectors.

    Attributes:
        label: a short name that is safe in file names.
        settings: everything its vectors depend on, as JSON; see `identity`.
        prompts: text prepended to an input, per role.
        stats: work done so far.
        show_progress: whether long encodings show a progress bar.
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
            "model": fingerprint(source),
            "prompts": source.prompts,
            **({"instruction": source.instruction} if source.instruction else {}),
            **settings,
        }
        self.stats = Stats()
        self.show_progress = show_progress
        self._tick: Callable[[int], None] | None = (
            None  # called with the number of texts done within a chunk
        )
        self._cache = self._own_cache() if cache else None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.label}: {self.dimension} dimensions, on {self.device}, "
            f"identity {self.identity[:8]}>"
        )

    def _own_cache(self) -> EmbeddingCache:
        about = {"label": self.label, "identity": self.identity, "settings": self.settings}
        folder = paths.cache() / "embeddings"
        return EmbeddingCache(folder / f"{self.identity[:32]}.sqlite", about=about)

    @property
    def cache(self) -> EmbeddingCache | None:
        """The vectors kept between runs, or None."""
        return self._cache

    @property
    def device(self) -> str:
        """The device that the model runs on."""
        return "cpu"

    @property
    def identity(self) -> str:
        """SHA-256 of everything this encoder's vectors depend on."""
        return sha256_json(self.settings)

    @property
    @abstractmethod
    def dimension(self) -> int:
        """D, the length of a vector."""

    @abstractmethod
    def _embed(self, texts: Sequence[str]) -> Vectors:
        """Return vectors (N, D) of distinct texts, prompts included."""

    def encode(
        self,
        inputs: str | Sequence[str] | Iterable[dict[str, Any]],
        *,
        role: str | None = None,
        prompt_type: Any = None,
        task_metadata: Any = None,
        **_: Any,
    ) -> Vectors:
        """Encode ``inputs`` into vectors (N, D), float32, in input order; (D,) for one string.

        Args:
            inputs: a string, a list of strings, or MTEB's batches.
            role: ``query`` or ``passage``; with the task, it selects the prompt.
            prompt_type: MTEB's name for the role.
            task_metadata: MTEB's description of the task.

        Raises:
            EncoderError: an input that is not a string, or a vector that is zero or not finite.
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
            vectors = self._cached_or_computed(distinct, where)
        if time.perf_counter() - started > _LONG:
            hits = self.stats.cached - hits
            misses = len(distinct) - hits
            log.info("%s: %d vectors from the cache, %d computed", self.label, hits, misses)
        return vectors[where]

    def _cached_or_computed(self, texts: Sequence[str], where: Sequence[int]) -> Vectors:
        """Return vectors (N, D) of distinct texts, computing those missing from the cache.

        ``where`` gives the position of each input's text among them, for errors.
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
        # Texts of similar length share a chunk, and so a forward pass.
        missing.sort(key=lambda index: -len(texts[index]))
        sizes = [len(texts[index]) for index in missing]
        with EncodingProgress(self.label, sizes, show=self.show_progress) as bar:
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
        """Return the vectors of the texts at ``chunk`` in ``distinct``; refuse invalid ones."""
        texts = [distinct[index] for index in chunk]
        started = time.perf_counter()
        vectors = self._embed(texts)
        self.stats.seconds += time.perf_counter() - started
        self.stats.encoded += len(texts)
        bad = ~np.isfinite(vectors).all(axis=1) | ~vectors.any(axis=1)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            what = "zero" if np.isfinite(vectors[row]).all() else "not finite"
            index = where.index(chunk[row])
            raise EncoderError(
                f"{self.label}: the vector of text {index} is {what}: {texts[row]!r:.80}"
            )
        return vectors

    @property
    def similarity_name(self) -> str:
        """``cosine``, or ``dot`` for models set not to normalise."""
        return "cosine" if self.settings.get("normalize", True) else "dot"

    def similarity(self, first: Any, second: Any) -> Tensor:
        """Return similarities (N, M) of vectors (N, D) and (M, D); a vector (D,) is one row."""
        left, right = (self._comparable(each) for each in (first, second))
        return left.reshape(-1, left.shape[-1]) @ right.reshape(-1, right.shape[-1]).T

    def similarity_pairwise(self, first: Any, second: Any) -> Tensor:
        """Return similarities (N,) of the rows of (N, D) and (N, D)."""
        return (self._comparable(first) * self._comparable(second)).sum(dim=-1)

    def _comparable(self, vectors: Any) -> Tensor:
        import torch

        tensor = torch.as_tensor(np.asarray(vectors), dtype=torch.float32)
        if self.similarity_name == "cosine":
            tensor = torch.nn.functional.normalize(tensor, dim=-1)
        return tensor

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description, with a name and revision unique to this encoder."""
        return mteb_meta(self, dimension=self.dimension, kinds=["dense"])


def _texts(inputs: Any) -> list[str]:
    """Return the strings of a list or of MTEB's batches; refuse anything else."""
    texts: list[str] = []
    for item in inputs:
        texts.extend(item["text"] if isinstance(item, dict) else [item])
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise EncoderError(f"text {index} is {type(text).__name__}, expected a string")
    return texts
