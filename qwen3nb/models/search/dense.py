"""Search with an encoder: exact, and by blocks, so that no corpus of vectors is held.

The documents are encoded block by block and each block is searched as it comes, on the GPU if
the encoder runs there. Memory is bounded by a block and the hits, whatever the size of the
corpus; every vector still goes to the embedding cache. Scores are those of `exact.search`, and
depend on no block size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.prompts import prompt_for
from qwen3nb.models.search.exact import (
    Doubles,
    EncoderOptions,
    Hits,
    Ids,
    SearchOptions,
    search,
)
from qwen3nb.models.search.mteb_rows import document_ids, joined_documents, joined_query
from qwen3nb.models.search.searcher import (
    Run,
    Searcher,
    SearchTexts,
    TextSearcher,
    check_candidates,
    distinct_candidates,
    median_seconds,
    named_hits,
)
from qwen3nb.models.types import Settings
from qwen3nb.vectors.encode_file import encode_blocks
from qwen3nb.vectors.vector_store import stored_vectors

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.model_meta import ModelMeta

    from qwen3nb.models.search.mteb_rows import MtebRows


def search_texts(
    encoder: Encoder,
    queries: Sequence[str],
    documents: Iterable[str],
    *,
    total: int | None = None,
    encoding: Mapping[str, Any] | None = None,
    **options: Unpack[SearchOptions],
) -> Hits:
    """Return the best documents of each query, encoding the documents block by block.

    Args:
        encoder: any encoder.
        queries: texts of the queries.
        documents: texts of the documents.
        total: number of documents, for the progress bar.
        encoding: options of `Encoder.encode`.
        options: options of `search`, such as ``k``; by default those of `search_options`.

    Raises:
        EncoderError: a text that cannot be encoded.
    """
    settings = dict(encoding or {})
    vectors = encoder.encode(list(queries), role="query", **settings)
    blocks = encode_blocks(encoder, documents, total=total, role="passage", **settings)
    defaults = search_options(encoder)
    options.setdefault("cosine", defaults["cosine"])
    options.setdefault("zeros", defaults["zeros"])
    if "boosts" not in options:  # which need NumPy
        options.setdefault("device", defaults["device"])
    return search(vectors, blocks, **options)


def search_options(encoder: Encoder) -> EncoderOptions:
    """Return options of `search`: the encoder's similarity, and its device, if that is a GPU."""
    device = None if encoder.device in ("cpu", "server") else encoder.device
    return {"cosine": encoder.similarity_name == "cosine", "zeros": True, "device": device}


class DenseSearch(TextSearcher):
    """An encoder as a searcher, for retrieval and reranking tasks."""

    def __init__(self, encoder: Encoder) -> None:
        self.label = encoder.label
        self.source = encoder.source
        self.settings = encoder.settings
        self.device = encoder.device
        self.stats = encoder.stats
        if encoder.similarity_name == "cosine":
            self.least_score = -1.0
        self.longest = encoder.longest
        self._encoder = encoder

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description of the encoder."""
        return self._encoder.mteb_model_meta

    def search(
        self,
        queries: MtebRows,
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        task_metadata: TaskMetadata | None = None,
        encode_kwargs: Mapping[str, Any] | None = None,
        **_: object,
    ) -> Run:
        """Score the ``top_k`` best documents per query, of all or of those in ``top_ranked``.

        Raise ValueError if one of these is not in the corpus.
        """
        batch_size = (encode_kwargs or {}).get("batch_size")
        encoding = {"task_metadata": task_metadata, "batch_size": batch_size}
        names = [str(row["id"]) for row in queries]
        texts = [joined_query(row) for row in queries]
        if top_ranked is not None:
            candidates = distinct_candidates(names, top_ranked)
            return self._rerank(candidates, texts, k=top_k, encoding=encoding)
        hits = search_texts(
            self._encoder,
            texts,
            joined_documents(self._corpus),
            total=len(self._corpus),
            encoding=encoding,
            k=top_k,
        )
        return named_hits(hits, names, self._corpus)

    def _rerank(
        self,
        candidates: Mapping[str, Sequence[str]],
        texts: Sequence[str],
        *,
        k: int,
        encoding: dict[str, Any],
    ) -> Run:
        positions = self._positions(candidates)
        query_vectors = self._encoder.encode(list(texts), role="query", **encoding)
        options = search_options(self._encoder)
        options["device"] = None  # NumPy, as one query has few candidates
        run: Run = {}
        with stored_vectors(
            self._encoder,
            joined_documents(self._corpus),
            total=len(self._corpus),
            role="passage",
            **encoding,
        ) as document_vectors:
            for vector, query in zip(query_vectors, candidates, strict=True):
                run[query] = {}
                names = candidates[query]
                if names:  # not every query has candidates
                    rows = np.array([positions[name] for name in names])
                    hits = search(vector[None], document_vectors.rows(rows), k=k, **options)
                    run.update(hits.run([query], names))
        return run

    def _positions(self, candidates: Mapping[str, Sequence[str]]) -> dict[str, int]:
        """Return the position of each candidate in the corpus."""
        candidate_ids: set[str] = set().union(*candidates.values())
        ids = document_ids(self._corpus, range(len(self._corpus)))
        positions = {name: row for row, name in enumerate(ids) if name in candidate_ids}
        check_candidates(candidate_ids, positions)
        return positions

    def document_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of documents with their prompt, however many."""
        encoder = self._encoder
        prompt = prompt_for(
            encoder.prompts,
            role="passage",
            task=self._task,
            instruction=encoder.source.instruction,
        )
        return encoder.token_counts([prompt + text for text in texts])

    def best_documents(
        self,
        queries: Sequence[str],
        documents: Iterable[str],
        *,
        k: int,
        boosts: Doubles | None = None,
        keep_ties: bool = False,
        owners: Ids | None = None,
    ) -> Hits:
        """Return the ``k`` best documents of each query.

        Args:
            queries: their texts.
            documents: their texts, or those of their chunks.
            k: documents per query.
            boosts: a positive factor per text (N,); scores are then boosted cosines.
            keep_ties: return every document that ties with the k-th, too.
            owners: the document of each text (N,), rising, if texts are chunks of documents,
                which then score by their best one.
        """
        options: SearchOptions = {"k": k, "keep_ties": keep_ties, "owners": owners}
        if boosts is not None:
            options["boosts"] = boosts
            options["cosine"] = True
        total = None
        if isinstance(documents, Sized):  # for the progress bar
            total = len(documents)
        return search_texts(
            self._encoder,
            queries,
            documents,
            total=total,
            encoding={"task_metadata": self._task},
            **options,
        )

    def scores_of_all(self, query: str, texts: SearchTexts) -> dict[str, float]:
        """Return the similarity of every document to one query."""
        encoder = self._encoder
        documents = encoder.encode(list(texts.documents.values()), role="passage")
        similarities = encoder.similarity(encoder.encode([query], role="query"), documents)[0]
        return dict(zip(texts.documents, similarities.tolist(), strict=True))

    def first_stage(self) -> tuple[str, Settings]:
        """Return its name and recipe as the first stage of a reranker."""
        return self.label, {"kind": "dense", "identity": self._encoder.identity}

    def seconds_per_query(self, queries: Sequence[str]) -> float:
        """Return the median time from a query to its vector in seconds, without the cache."""
        with self._encoder.uncached():
            return median_seconds(
                lambda query: self._encoder.encode(query, role="query", show_progress_bar=False),
                queries,
            )

    def is_quick(self, documents: int) -> bool:
        """Return whether the cache may have the vectors of so many documents."""
        cache = self._encoder.cache
        return cache is not None and len(cache) >= documents


def as_searcher(model: Any) -> Searcher:
    """Return a model that searches: the model itself, or an encoder's exact search."""
    if isinstance(model, Encoder):
        return DenseSearch(model)
    searcher: Searcher = model
    return searcher
