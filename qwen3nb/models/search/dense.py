"""Search with an encoder: exact, and by blocks, so that no corpus of vectors is held.

The documents are encoded block by block and each block is searched as it comes, on the GPU if
the encoder runs there. Memory is bounded by a block and the hits, whatever the size of the
corpus; every vector still goes to the embedding cache. Scores are those of `exact.search`, and
depend on no block size.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.search.exact import Hits, search
from qwen3nb.models.search.mteb_rows import document_ids, joined_documents, joined_query
from qwen3nb.vectors.encode_file import encode_blocks
from qwen3nb.vectors.vector_store import stored_vectors

Run = dict[str, dict[str, float]]


def search_texts(
    encoder: Encoder,
    queries: Sequence[str],
    documents: Iterable[str],
    *,
    total: int | None = None,
    encoding: Mapping[str, Any] | None = None,
    **options: Any,
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
    own = search_options(encoder) | ({"device": None} if "boosts" in options else {})
    return search(vectors, blocks, **{**own, **options})


def search_options(encoder: Encoder) -> dict[str, Any]:
    """Return options of `search`: the encoder's similarity, and its device, if that is a GPU."""
    device = None if encoder.device in ("cpu", "server") else encoder.device
    return {"cosine": encoder.similarity_name == "cosine", "zeros": True, "device": device}


class DenseSearch:
    """An encoder as a search model of MTEB, for retrieval and reranking tasks."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._corpus: Any = None

    @property
    def mteb_model_meta(self) -> Any:
        """MTEB's description of the encoder."""
        return self._encoder.mteb_model_meta

    def index(self, corpus: Any, **_: Any) -> None:
        """Keep MTEB's corpus, whose texts are encoded when it is searched."""
        self._corpus = corpus

    def search(
        self,
        queries: Any,
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        task_metadata: Any = None,
        encode_kwargs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> Run:
        """Score the ``top_k`` best documents per query, of all or of those in ``top_ranked``.

        Raise ValueError if one of these is not in the corpus.
        """
        batch_size = (encode_kwargs or {}).get("batch_size")
        encoding = {"task_metadata": task_metadata, "batch_size": batch_size}
        names = [str(row["id"]) for row in queries]
        texts = [joined_query(row) for row in queries]
        if top_ranked is not None:
            candidates = {name: top_ranked.get(name, ()) for name in names}
            return self._rerank(candidates, texts, k=top_k, encoding=encoding)
        hits = search_texts(
            self._encoder,
            texts,
            joined_documents(self._corpus),
            total=len(self._corpus),
            encoding=encoding,
            k=top_k,
        )
        # The names of the documents that were hit, not of the whole corpus.
        rows = np.unique(hits.ids[hits.ids >= 0]).tolist()
        return hits.run(names, dict(zip(rows, document_ids(self._corpus, rows), strict=True)))

    def _rerank(
        self,
        candidates: Mapping[str, Sequence[str]],
        texts: Sequence[str],
        *,
        k: int,
        encoding: dict[str, Any],
    ) -> Run:
        wanted = {name for each in candidates.values() for name in each}
        names = document_ids(self._corpus, range(len(self._corpus)))
        positions = {name: row for row, name in enumerate(names) if name in wanted}
        if lost := sorted(wanted - positions.keys()):
            raise ValueError(
                f"candidate {lost[0]!r} is not in the corpus ({len(lost)} in total); are the "
                "candidates those of this corpus?"
            )
        vectors = self._encoder.encode(list(texts), role="query", **encoding)
        run: Run = {}
        options = search_options(self._encoder) | {"device": None}
        with stored_vectors(
            self._encoder,
            joined_documents(self._corpus),
            total=len(self._corpus),
            role="passage",
            **encoding,
        ) as documents:
            for vector, (query, given) in zip(vectors, candidates.items(), strict=True):
                own = list(dict.fromkeys(given))
                run[query] = {}
                if own:
                    rows = documents.rows(np.array([positions[name] for name in own]))
                    hits = search(vector[None], rows, k=k, **options)
                    run |= hits.run([query], own)
        return run
