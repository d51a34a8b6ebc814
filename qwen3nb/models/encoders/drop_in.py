"""The methods by which other programs call an encoder, so that ours is one of theirs.

`sentence-transformers <https://sbert.net/docs/package_reference/sentence_transformer/evaluation.html>`_
calls the evaluated model's ``encode_query`` and ``encode_document``; `langchain
<https://python.langchain.com/docs/concepts/embedding_models>`_ calls ``embed_query`` and
``embed_documents``. Each applies the prompt of its role.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class DropIn:
    """The interfaces of sentence-transformers' evaluators and of langchain, by ``encode``."""

    encode: Any

    @property
    def similarity_name(self) -> str:
        """Similarity of the vectors: ``cosine`` or ``dot``."""
        raise NotImplementedError

    def encode_query(self, inputs: str | Sequence[str], **options: Any) -> Any:
        """Encode queries: ``encode`` with ``role="query"``."""
        return self.encode(inputs, role="query", **options)

    def encode_document(self, inputs: str | Sequence[str], **options: Any) -> Any:
        """Encode documents: ``encode`` with ``role="passage"``."""
        return self.encode(inputs, role="passage", **options)

    def embed_query(self, text: str) -> list[float]:
        """Encode one query, for langchain."""
        vector: list[float] = self.encode_query(text).tolist()
        return vector

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Encode documents, for langchain."""
        vectors: list[list[float]] = self.encode_document(texts).tolist()
        return vectors

    @property
    def similarity_fn_name(self) -> str:
        """sentence-transformers' name of the similarity: ``cosine`` or ``dot``."""
        return self.similarity_name

    @property
    def model_card_data(self) -> Any:
        """A card for the scores of an evaluator, which are in what it returns, too."""
        from sentence_transformers import SentenceTransformerModelCardData

        return SentenceTransformerModelCardData()
