"""One of the two models of a migration: its rankings, vectors and costs on the data.

Vectors are compared by cosine, as on all own data.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from qwen3nb.analysis.migration.mixed_index import first_kept
from qwen3nb.analysis.migration.overlap import overlap_at, steady_ranking
from qwen3nb.analysis.migration.thresholds import Compared
from qwen3nb.evaluation.migration.data import MigrationData
from qwen3nb.models.capabilities import LoadedModel, encodes
from qwen3nb.models.encoders.base import Encoder, truncate_dimensions
from qwen3nb.models.search.dense import as_searcher
from qwen3nb.models.search.exact import Doubles, Floats, Hits, Ids, search
from qwen3nb.models.search.faiss_index import build_index
from qwen3nb.vectors.vector_store import VectorStore, stored_vectors

DEPTH = 1000  # of rankings that are kept, so that a tenth of it still has the first ten
KEPT = 20  # documents of other rankings, as ties may rank in another order
_MOST_HITS = 5_000_000  # that are kept of all queries
_LEAST_DEPTH = 300
_ENOUGH_ENCODED = 64  # texts that were encoded now, whose time counts
_TIMED_TEXTS = 256
_TIMED_SECONDS = 1.0
_INDEXED = 1000  # documents of which indexes are built to learn their size
_INDEXES = ("hnsw", "sq8")


@dataclass(frozen=True)
class Costs:
    """What the vectors of a model cost, per document."""

    dimension: int | None = None  # None without vectors
    seconds: float | None = None  # to encode one on this machine; None if not measured
    timed: int = 0  # texts that were timed
    device: str = ""
    index_bytes: Mapping[str, float] = field(default_factory=dict)  # by kind of index

    def hours(self, documents: int) -> float | None:
        """Return the hours to encode so many documents."""
        return None if self.seconds is None else self.seconds * documents / 3600

    def bytes(self, documents: int, *, per_dimension: int = 4) -> int | None:
        """Return the bytes of the vectors of so many documents; 4 per dimension are float32."""
        return None if self.dimension is None else self.dimension * documents * per_dimension


@dataclass(frozen=True)
class Side:
    """A model with all that is compared of it."""

    label: str
    identity: str
    hits: Hits  # its rankings, without documents that are the query itself
    costs: Costs
    cut: int = 0  # documents that are longer than it takes, of which the end is not read
    # vectors of length 1, whose products are cosines; None if it has no vectors
    vectors: Compared | None = None
    # lengths of the query vectors before they had length 1 (Q,)
    query_lengths: Floats = field(default_factory=lambda: np.empty(0, dtype=np.float32))

    @cached_property
    def ranking(self) -> Ids:
        """The documents of each query, whose order does not hang on rounding."""
        return steady_ranking(self.hits)

    def overlap(self, hits: Hits) -> Doubles:
        """Return the share of its first ten documents that hits have, too, per query (Q,)."""
        return overlap_at(steady_ranking(hits), self.ranking, 10)


def kept_depth(data: MigrationData) -> int:
    """Return how many documents of each ranking are kept."""
    affordable = max(_LEAST_DEPTH, _MOST_HITS // max(1, len(data.queries)))
    return min(DEPTH, affordable, len(data.documents))


@contextmanager
def measured_side(model: LoadedModel, data: MigrationData, *, seed: int) -> Iterator[Side]:
    """Encode and search the data with a model; its vectors are there within the block.

    Raises:
        EncoderError: a text that cannot be encoded.
    """
    if not encodes(model):
        hits = _searched_hits(model, data)
        yield Side(model.label, model.identity, hits, Costs(device=model.device))
        return
    texts = list(data.documents.values())
    scaled = partial(truncate_dimensions, dimension=model.dimension, unit=True)
    encoded_before, seconds_before = model.stats.encoded, model.stats.seconds
    cut_before = model.stats.cut
    with stored_vectors(
        model, texts, total=len(texts), role="passage", transform=scaled
    ) as documents:
        encoded = model.stats.encoded - encoded_before
        cut = model.stats.cut - cut_before
        seconds = None
        if encoded >= _ENOUGH_ENCODED:
            seconds = (model.stats.seconds - seconds_before) / encoded
        elif model.device != "server":  # where texts may be paid
            seconds, encoded = _timed_seconds(model, texts, seed=seed)
        raw_queries = model.encode(list(data.queries.values()), role="query")
        queries = scaled(raw_queries)
        costs = Costs(
            dimension=model.dimension,
            seconds=seconds,
            timed=encoded,
            device=model.device,
            index_bytes=_index_bytes(documents),
        )
        yield Side(
            model.label,
            model.identity,
            searched(queries, documents, data, k=kept_depth(data)),
            costs,
            cut=cut,
            vectors=Compared(queries, documents),
            query_lengths=np.linalg.norm(raw_queries, axis=1),
        )


def searched(
    queries: Floats, documents: VectorStore | Iterable[Floats], data: MigrationData, *, k: int
) -> Hits:
    """Return the ``k`` best documents of each query, without those that are the query itself.

    Args:
        queries: (Q, D).
        documents: a `VectorStore` (N, D), or blocks (n, D).
        data: says which documents are a query itself.
        k: documents per query.
    """
    blocks = documents.blocks() if isinstance(documents, VectorStore) else documents
    hits = search(queries, blocks, k=k + data.most_removed)
    return without_itself(hits, data, k=k)


def without_itself(hits: Hits, data: MigrationData, *, k: int) -> Hits:
    """Return hits (Q, k) without the documents that are the query itself."""
    everything = np.ones(len(data.documents), dtype=bool)
    ids, scores = hits.ids.copy(), hits.scores.copy()
    for row, removed in data.removed.items():
        is_removed = np.isin(ids[row], removed)
        ids[row, is_removed] = -1
        scores[row, is_removed] = -np.inf
    return first_kept(Hits(ids, scores), everything, k)


def _searched_hits(model: LoadedModel, data: MigrationData) -> Hits:
    """Return the rankings of a model without vectors."""
    depth = kept_depth(data)
    ids = np.full((len(data.queries), depth + data.most_removed), -1)
    scores = np.full(ids.shape, -np.inf, dtype=np.float32)
    rows = {query: row for row, query in enumerate(data.queries)}
    for query, found in as_searcher(model).rank(data, k=ids.shape[1]):
        best_first = sorted(found.items(), key=lambda item: (-item[1], data.positions[item[0]]))
        for place, (name, score) in enumerate(best_first):
            ids[rows[query], place] = data.positions[name]
            scores[rows[query], place] = score
    return without_itself(Hits(ids, scores), data, k=depth)


def _timed_seconds(encoder: Encoder, texts: Sequence[str], *, seed: int) -> tuple[float, int]:
    """Return the seconds per text of a random sample, and its size; the cache is not used."""
    sample = random.Random(seed).sample(texts, min(_TIMED_TEXTS, len(texts)))
    count = min(8, len(sample))
    with encoder.uncached():
        encoder.encode(sample[:count], role="passage", show_progress_bar=False)  # warms up
        seconds = 0.0
        while seconds < _TIMED_SECONDS and count < len(sample):
            count = min(4 * count, len(sample))
            started = time.perf_counter()
            encoder.encode(sample[:count], role="passage", show_progress_bar=False)
            seconds = time.perf_counter() - started
        if seconds == 0:  # fewer texts than the warm-up takes
            started = time.perf_counter()
            encoder.encode(sample, role="passage", show_progress_bar=False)
            seconds = time.perf_counter() - started
    return seconds / count, count


def _index_bytes(documents: VectorStore) -> dict[str, float]:
    """Return the bytes per document of FAISS's indexes; empty if FAISS is not installed."""
    count = min(_INDEXED, len(documents))
    sample = next(documents.blocks(count))
    sizes = {}
    for family in _INDEXES:
        try:
            sizes[family] = build_index(sample, family=family).size / count
        except ImportError:
            return {}
    return sizes
