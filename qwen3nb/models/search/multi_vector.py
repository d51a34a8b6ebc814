"""Multi-vector encoders of sentence-transformers, such as ColBERT: a vector per token.

A query's score with a document is their MaxSim: for each vector of the query the largest product
with a vector of the document, and the sum of these; ``meanmaxsim`` divides it by the number of the
query's vectors. sentence-transformers computes it, for a block of documents at a time. Folders of
PyLate are read as sentence-transformers reads them.

Shapes: Q queries, n documents of a block.

References:
    Khattab and Zaharia, arXiv:2004.12832 (ColBERT).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.kinds.sentence import SentenceTransformerKind
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.search.library import LibrarySearcher, check_modules, declared_class

if TYPE_CHECKING:
    from torch import Tensor

_PRODUCTS = 2**24  # products of vectors, with these, at once: 64 MiB in float32
_BYTES_PER_NUMBER = 4  # single precision
_MODULES = ("Transformer", "Dense", "MultiVectorMask", "Normalize", "HierarchicalTokenPooling")


class MultiVectorEncoder(LibrarySearcher):
    """A model with a vector per token."""

    mteb_kinds = ("late-interaction",)
    seconds_per_pair = 1e-5
    library_class = "MultiVectorEncoder"
    similarities = ("maxsim", "meanmaxsim")

    def prepared(self, queries: Sequence[str]) -> list[Tensor]:
        """Return the vectors of each query, (tokens, width)."""
        return self._vectors(queries, "query")

    def block_scores(self, queries: list[Tensor], documents: Sequence[str]) -> NDArray[np.float32]:
        """Return the MaxSim (Q, n) of prepared queries and a block of documents."""
        vectors = self._vectors(documents, "passage")
        self.documents += len(documents)
        self.document_bytes += sum(tokens.numel() for tokens in vectors) * _BYTES_PER_NUMBER
        scores = self._model.similarity(queries, vectors, chunk_elements=_PRODUCTS)
        matrix: NDArray[np.float32] = scores.cpu().numpy()
        return matrix

    def _vectors(self, texts: Sequence[str], role: str) -> list[Tensor]:
        """Return the vectors of each text, (tokens, width)."""
        vectors: list[Tensor] = self.encoded(texts, role, batch_size=self.batch_size)
        return vectors[: len(texts)]


class MultiVectorKind(SentenceTransformerKind):
    """A folder of sentence-transformers' ``MultiVectorEncoder``, or of PyLate."""

    name = "multi-vector-encoder"
    only_searches = "searches and reranks only, as it has a vector per token"
    adaptable = False

    def matches(self, folder: ModelFolder) -> bool:
        """Return whether the folder declares a ``MultiVectorEncoder``."""
        return declared_class(folder) == "MultiVectorEncoder"

    def check(self, source: Source) -> None:
        """Check modules and weights before anything is built."""
        check_modules(source.own_folder, _MODULES)
        super().check(source)

    def load(self, source: Source, options: ModelOptions) -> MultiVectorEncoder:
        """Return the loaded model."""
        return MultiVectorEncoder(source, options)
