"""Search in documents longer than the model: each scores as its best chunk.

`ChunkedSearch` is a searcher around an encoder, or a searcher of pairs such as ColBERT. It splits
documents as `qwen3nb.models.search.chunks` says, and finds the k best documents exactly. Models
that read whole documents, such as BM25, are not split. Vectors of chunks are cached as those of any
text. Memory grows with the texts, and does not with the vectors, which come in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.models.kinds.source import mteb_meta
from qwen3nb.models.search.chunks import (
    BEST,
    ONLY_SEARCHES,
    RULE,
    Chunks,
    check_chunks,
    split_texts,
    suffix,
)
from qwen3nb.models.search.dense import DenseSearch, as_searcher
from qwen3nb.models.search.exact import Doubles, Hits
from qwen3nb.models.search.fusion import fusion_of
from qwen3nb.models.search.searcher import SearchTexts, TextSearcher
from qwen3nb.models.types import Stats
from qwen3nb.records.details import SplitDocuments

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.model_meta import ModelMeta


class ChunkedSearch(TextSearcher):
    """A model that searches long documents by their chunks.

    Attributes:
        size: most tokens, or characters, of a chunk; None if the model takes any text.
        unit: ``tokens`` or ``characters``.
        split: what the last search has split.
    """

    def __init__(self, model: Any, chunks: str = BEST, *, label: str = "") -> None:
        """Wrap a loaded model.

        Args:
            model: an encoder, or a searcher of pairs.
            chunks: ``max`` for chunks as long as the model takes, or a number of characters.
            label: by default that of the model, with a suffix.
        """
        self.label = label or f"{model.label}{suffix(chunks)}"
        self.source = model.source
        self.model = model
        self._searcher: Any = as_searcher(model)
        self.unit = "tokens"
        self.size: int | None = self._searcher.longest
        if check_chunks(chunks).isdecimal():
            self.unit = "characters"
            self.size = int(chunks)
        rule = {"rule": RULE, "size": self.size, "unit": self.unit, "score": BEST}
        self.settings = {**model.settings, "chunks": rule}
        self.least_score = self._searcher.least_score
        self.split: SplitDocuments | None = None
        self._last: tuple[list[str], Chunks] | None = None  # documents and their chunks

    def __repr__(self) -> str:
        return f"<ChunkedSearch {self.label}: identity {self.identity[:8]}>"

    @property
    def only_searches(self) -> str:
        """Why it does no other tasks."""
        return ONLY_SEARCHES

    @property
    def device(self) -> str:  # type: ignore[override]
        """The device that the model runs on."""
        return str(self.model.device)

    @property
    def stats(self) -> Stats:  # type: ignore[override]
        """Work done by the model so far."""
        stats: Stats = self.model.stats
        return stats

    @property
    def parameters(self) -> int | None:
        """Number of parameters, if the model knows it."""
        return getattr(self.model, "parameters", None)

    @property
    def dimension(self) -> int | None:
        """Length of a vector; None without vectors."""
        return getattr(self.model, "dimension", None)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description; its revision is the identity."""
        kinds = list(self._searcher.mteb_kinds)
        if isinstance(self._searcher, DenseSearch):
            kinds = ["dense"]
        return mteb_meta(self, dimension=self.dimension, kinds=kinds)

    def chunks_of(self, documents: Sequence[str]) -> Chunks:
        """Return the texts that are searched for documents, and remember how many are split."""
        if self.size is None:
            return Chunks(list(documents), np.arange(len(documents)), len(documents))
        if self._last is not None and self._last[0] == documents:
            return self._last[1]
        chunks = split_texts(documents, self._lengths, self.size)
        self._last = (list(documents), chunks)
        longer, parts = chunks.split
        self.split = {
            "model": self.label,
            "size": self.size,
            "unit": self.unit,
            "documents": longer,
            "chunks": parts,
        }
        return chunks

    def _lengths(self, texts: Sequence[str]) -> Sequence[int]:
        """Return the length of texts, in tokens with the prompt or in characters."""
        if self.unit == "characters":
            return [len(text) for text in texts]
        lengths: Sequence[int] = self._searcher.document_tokens(texts)
        return lengths

    def best_documents(
        self,
        queries: Sequence[str],
        documents: Iterable[str],
        *,
        k: int,
        boosts: Doubles | None = None,
        keep_ties: bool = False,
    ) -> Hits:
        """Return the ``k`` best documents of each query by their best chunks."""
        chunks = self.chunks_of(list(documents))
        if boosts is not None:
            boosts = boosts[chunks.owners]
        hits: Hits = self._searcher.best_documents(
            queries, chunks.texts, k=k, boosts=boosts, keep_ties=keep_ties, owners=chunks.owners
        )
        return hits

    @contextmanager
    def of_task(self, task: TaskMetadata | None) -> Iterator[None]:
        """Search with the prompts that the model has for a task within the block."""
        # Chunks are counted with the prompt, which is another one before and after.
        self._last = None
        try:
            with self._searcher.of_task(task):
                yield
        finally:
            self._last = None

    def scores_of_all(self, query: str, texts: SearchTexts) -> dict[str, float]:
        """Return the score of every document that is found for one query."""
        documents = list(texts.documents.values())
        hits = self.best_documents([query], documents, k=max(1, len(documents)))
        return hits.run([query], list(texts.documents))[query]

    def seconds_per_query(self, queries: Sequence[str]) -> float:
        """Return the model's time from a query to its vector in seconds."""
        seconds: float = self._searcher.seconds_per_query(queries)
        return seconds

    def is_quick(self, documents: int) -> bool:
        """Return whether the cache may have the vectors of so many documents."""
        is_quick: bool = self._searcher.is_quick(documents)
        return is_quick


def splits(model: Any) -> bool:
    """Return whether a loaded model can read documents by chunks, or does."""
    if isinstance(model, ChunkedSearch):
        return True
    return callable(getattr(type(as_searcher(model)), "document_tokens", None))


def chunked(model: Any, chunks: str = BEST) -> Any:
    """Return a loaded model that splits documents; one that reads whole documents as it is."""
    if len(model.parts) > 1:
        parts = [chunked(part, chunks) for part in model.parts]
        return fusion_of(model.source, parts)
    if not splits(model):
        return model
    return ChunkedSearch(model, chunks)


def splits_any(model: Any, documents: Sequence[str]) -> bool:
    """Return whether a loaded model of chunks splits one of the documents."""
    splitting_parts = [part for part in model.parts if isinstance(part, ChunkedSearch)]
    return any(part.chunks_of(documents).split[0] for part in splitting_parts)


def split_documents(model: Any) -> list[SplitDocuments]:
    """Return what the parts of a loaded model have split in their last search."""
    facts = [getattr(part, "split", None) for part in model.parts]
    return [fact for fact in facts if fact is not None and fact["documents"]]
