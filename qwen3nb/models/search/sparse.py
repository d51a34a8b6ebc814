"""Sparse encoders of sentence-transformers, such as SPLADE: a weight per word of a vocabulary.

Scores are dot products of sparse vectors, or cosines, as the folder says. SciPy sums them in the
order in which torch does, so that they equal the library's bit by bit, in less time. Texts are
encoded in batches by tokens: a masked language model has a logit per word and token.

Shapes: Q queries, n documents of a block, V words of the vocabulary.

References:
    Formal et al., arXiv:2109.10086 (SPLADE v2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.batching import batches_by_tokens
from qwen3nb.models.gate.weights import check_weights
from qwen3nb.models.kinds.sentence import SentenceTransformerKind
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.modeling.runtime import token_rows
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.search.library import LibrarySearcher, check_modules, declared_class

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch import Tensor

_LOGITS_PER_BATCH = 2**26  # of a batch: 256 MiB in float32, and a copy of them
_BYTES_PER_WEIGHT = 8  # a weight in single precision, and the number of its word
_MODULES = ("Transformer", "MLMTransformer", "SpladePooling", "Pooling", "SparseAutoEncoder")


class SparseEncoder(LibrarySearcher):
    """A model with a weight per text and word of its vocabulary."""

    least_score = 0.0  # of weights that are not negative
    library_class = "SparseEncoder"
    similarities = ("dot", "cosine")

    def prepared(self, queries: Sequence[str]) -> csr_array:
        """Return the sparse vectors (Q, V) of queries."""
        return self._vectors(queries, "query")

    def block_scores(self, queries: csr_array, documents: Sequence[str]) -> NDArray[np.float32]:
        """Return the products (Q, n) of vectors of queries and of a block of documents."""
        vectors = self._vectors(documents, "passage")
        self.documents += len(documents)
        self.document_bytes += vectors.nnz * _BYTES_PER_WEIGHT
        scores: NDArray[np.float32] = (queries @ vectors.T).toarray()
        return scores

    def _vectors(self, texts: Sequence[str], role: str) -> csr_array:
        """Return the sparse vectors (n, V) of texts."""
        from scipy.sparse import csr_array, vstack

        vocabulary_size = self._model.get_embedding_dimension()
        # The model has a logit per token and word, (tokens, vocabulary), before it is sparse.
        tokens_per_batch = max(1, _LOGITS_PER_BATCH // vocabulary_size)
        order: list[int] = []
        parts: list[csr_array] = []
        for batch in batches_by_tokens(
            self._lengths(texts, role), budget=tokens_per_batch, size=self.batch_size, padded=True
        ):
            vectors = self.encoded(
                [texts[index] for index in batch],
                role,
                batch_size=len(batch) + 1,  # `encoded` adds a row if all texts are blank
                convert_to_sparse_tensor=True,
                save_to_cpu=True,
            )
            parts.append(self._from_torch(vectors)[: len(batch)])
            order.extend(batch)
        if not parts:
            return csr_array((0, vocabulary_size), dtype=np.float32)
        in_order_of_texts = np.argsort(order)  # batches came by length: the inverse order
        return csr_array(vstack(parts, format="csr"))[in_order_of_texts]

    def _lengths(self, texts: Sequence[str], role: str) -> list[int]:
        """Return the tokens of each text with its prompt."""
        prompt = self.prompt(role)
        rows, _ = token_rows(
            self._model.tokenizer, [prompt + text for text in texts], max_length=self.max_length
        )
        return [max(1, len(row)) for row in rows]

    def _from_torch(self, vectors: Tensor) -> csr_array:
        """Return sparse vectors of torch as a matrix of SciPy, of length 1 for cosines."""
        from scipy.sparse import coo_array
        from sentence_transformers.util import normalize_embeddings

        vectors = vectors.float().to_sparse().coalesce()
        if self.similarity == "cosine":
            vectors = normalize_embeddings(vectors).coalesce()
        weights = vectors.values().numpy()
        rows, words = vectors.indices().numpy()  # of each weight: its text, and its column
        return coo_array((weights, (rows, words)), shape=tuple(vectors.shape)).tocsr()


class SparseKind(SentenceTransformerKind):
    """A folder of sentence-transformers' ``SparseEncoder``."""

    name = "sparse-encoder"
    only_searches = "searches and reranks only, as its vectors are sparse"
    adaptable = False

    def matches(self, folder: ModelFolder) -> bool:
        """Return whether the folder declares a ``SparseEncoder``."""
        return declared_class(folder) == "SparseEncoder"

    def check(self, source: Source) -> None:
        """Check modules and weights, also those of the head over the vocabulary."""
        folder = source.own_folder
        check_modules(folder, _MODULES)
        super().check(source)
        first_module = folder.modules[0]
        has_head = first_module.name == "MLMTransformer"
        if has_head or first_module.fields.get("transformer_task") == "fill-mask":
            check_weights(first_module.folder, auto="AutoModelForMaskedLM", whole=True)

    def load(self, source: Source, options: ModelOptions) -> SparseEncoder:
        """Return the loaded model."""
        return SparseEncoder(source, options)
