"""Measure the loss of approximate indexes and compressed vectors on a retrieval task."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypedDict

import numpy as np

from qwen3nb.datasets.collection import TestCollection, find_collections, query_clusters
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.encoders.base import Encoder, truncate_dimensions
from qwen3nb.models.search import faiss_index
from qwen3nb.models.search.exact import Hits, search
from qwen3nb.models.search.faiss_index import FAMILIES, Speed, Vectors
from qwen3nb.records.data_used import NO_SCORES, DataUsed
from qwen3nb.utils.hardware import cores
from qwen3nb.vectors.vector_store import BLOCK, VectorStore, stored_vectors

METRIC = "nDCG@10"
DEPTH = 10


@dataclass(frozen=True)
class AnnPoint:
    """One index at one setting."""

    family: str  # one of `qwen3nb.models.search.faiss_index.FAMILIES`
    made: str  # description of the index
    parameter: str  # the search parameter, such as ``nprobe``, or empty, and its ``value``
    value: int | None
    build_seconds: float  # build time with one thread
    size: int  # size of the serialised index in bytes
    device: str
    recall: Mapping[str, float]  # share of the true k nearest neighbours, per query
    ndcg: Mapping[str, float]  # nDCG@10 per query
    speeds: tuple[Speed, ...]  # search speed for each number of threads

    @property
    def name(self) -> str:
        """Family and setting."""
        if not self.parameter:
            return self.family
        return f"{self.family} {self.parameter} {self.value}"


@dataclass(frozen=True)
class Compressed:
    """Compressed vectors, searched exactly, with nDCG@10 per query."""

    # ``float32``, ``int8`` (documents), ``binary documents`` (float queries) or ``binary`` (both)
    kind: str
    dimension: int  # number of leading dimensions that are kept
    size: int  # bytes per document
    ndcg: Mapping[str, float]


@dataclass(frozen=True)
class AnnSuite:
    """A model's vectors on one task, with every index and compression."""

    label: str  # label of the model
    task: str  # name of the collection; with its numbers of ``documents`` and ``queries``
    documents: int
    queries: int
    dimension: int  # of the vectors, D
    k: int  # depth of the recall
    similarity: str  # ``cosine`` or ``dot``
    exact: Mapping[str, float]  # per-query nDCG@10 of exact search
    points: tuple[AnnPoint, ...]  # one per index and setting
    compressed: tuple[Compressed, ...]  # one per size; full float32 vectors first
    # cluster per query id; empty if queries were sampled one by one
    clusters: Mapping[str, str] = field(default_factory=dict)
    data: DataUsed = NO_SCORES  # the task's


class AnnOptions(TypedDict, total=False):
    """The options of `ann_suite`."""

    task: Any
    indexes: Sequence[str]
    grids: Mapping[str, Sequence[int]]
    dimensions: Sequence[int]
    k: int
    threads: Sequence[int]
    seed: int
    device: str


def ann_suite(
    encoder: Encoder,
    *,
    task: Any = "PyDocsSampleRetrieval",
    indexes: Sequence[str] = tuple(FAMILIES),
    grids: Mapping[str, Sequence[int]] | None = None,
    dimensions: Sequence[int] = (),
    k: int = 10,
    threads: Sequence[int] = (1,),
    seed: int = 0,
    device: str = "cpu",
) -> AnnSuite:
    """Measure every index at every setting, and every compression, on a retrieval task.

    Args:
        encoder: from `load_encoder`.
        task: a collection, or anything `find_collections` accepts; its first part is used.
        indexes: names in `FAMILIES`.
        grids: values to try for each parameter (``nprobe``, ``efSearch``).
        dimensions: numbers of leading dimensions to keep; values of D or more are ignored.
        k: depth of the recall.
        threads: numbers of threads; 0 for all cores.
        seed: seed of the random choices made while building an index.
        device: ``cuda`` for a GPU, if FAISS was built with GPU support.

    Raises:
        ValueError: unknown index or parameter, or a value out of range.
        DataError: the task cannot be used.
    """
    grids = grids or {}
    _check_parameters(grids)
    collection = find_collections(task)[0]
    unit = encoder.similarity_name == "cosine"
    scaled = partial(truncate_dimensions, dimension=encoder.dimension, unit=unit)
    queries = scaled(encoder.encode(list(collection.queries.values()), role="query"))
    texts = collection.documents.values()
    points: list[AnnPoint] = []
    with stored_vectors(
        encoder, texts, total=len(texts), role="passage", transform=scaled
    ) as vectors:
        exact = _search(queries, vectors, k=max(k, DEPTH + 1))
        thread_counts = [count or cores() for count in threads]
        bench = _Bench(collection, vectors, queries, exact, k, thread_counts)
        for family in indexes:
            index = faiss_index.build_index(vectors, family=family, seed=seed, device=device)
            parameter, _ = FAMILIES[family]
            for value in index.values(grids.get(parameter)):
                points.append(bench.point(index, value))
        return AnnSuite(
            label=encoder.label,
            task=collection.name,
            documents=len(vectors),
            queries=len(queries),
            dimension=vectors.shape[1],
            k=k,
            similarity=encoder.similarity_name,
            exact=_ndcg(collection, exact),
            points=tuple(points),
            compressed=compress(collection, vectors, queries, dimensions=dimensions, unit=unit),
            clusters=query_clusters(collection),
            data=DataUsed.of_revisions([(collection.name, collection.substitute)]),
        )


def _check_parameters(names: Iterable[str]) -> None:
    parameters = sorted({parameter for parameter, _ in FAMILIES.values() if parameter})
    for name in sorted(names):
        if name not in parameters:
            raise ValueError(f"unknown parameter {name!r}; choose from {', '.join(parameters)}")


@dataclass(frozen=True)
class _Bench:
    """What every index is measured on."""

    collection: TestCollection
    vectors: VectorStore  # of the documents
    queries: Vectors
    exact: Hits
    k: int
    threads: Sequence[int]

    def point(self, index: faiss_index.AnnIndex, value: int | None) -> AnnPoint:
        """Measure recall, nDCG and speed of an index at one setting."""
        # Recall is measured on the search that is timed; nDCG may need a deeper one, and one
        # document more: the query itself, which is left out of its own ranking.
        _, nearest = index.search(self.queries, self.k, value)
        recalls = faiss_index.recall_at_k(
            nearest, self.vectors, self.queries, k=self.k, truth=self.exact.ids
        )
        scores, documents = index.search(self.queries, max(self.k, DEPTH + 1), value)
        ndcg = _ndcg(self.collection, Hits(documents, scores))
        search_once = partial(index.search, k=self.k, value=value)
        speeds = [
            faiss_index.measure_speed(search_once, self.queries, threads=count)
            for count in self.threads
        ]
        parameter = FAMILIES[index.family].parameter
        return AnnPoint(
            family=index.family,
            made=index.made,
            parameter=parameter,
            value=value,
            build_seconds=index.build_seconds,
            size=index.size,
            device=index.device,
            recall=dict(zip(self.collection.queries, recalls.tolist(), strict=True)),
            ndcg=ndcg,
            speeds=tuple(speeds),
        )


def compress(
    collection: TestCollection,
    vectors: Vectors | VectorStore,
    queries: Vectors,
    *,
    dimensions: Sequence[int] = (),
    unit: bool = True,
) -> tuple[Compressed, ...]:
    """Return nDCG@10 of float32, int8 and binary vectors, at full and reduced dimension.

    int8: each dimension of the documents is divided into 255 steps between its minimum and
    maximum; queries stay float32. Binary: the signs, of the documents only or of both. Reduced
    ``dimensions`` are for models trained for truncation (Kusupati et al. 2022, arXiv:2205.13147);
    other models lose more; with ``unit``, truncated vectors get length 1 again. Documents (N, D)
    and queries (Q, D) are in the order of the collection.
    """
    documents, full_dimension = VectorStore.of(vectors), vectors.shape[1]
    shorter = [dimension for dimension in set(dimensions) if dimension < full_dimension]
    points = []
    for dimension in [full_dimension, *sorted(shorter, reverse=True)]:
        truncate = partial(truncate_dimensions, dimension=dimension, unit=unit)
        truncated, query_vectors = documents.mapped(truncate), truncate(queries)
        in_int8 = truncated.mapped(_int8(truncated))
        signs, query_signs = truncated.mapped(_signs), _signs(query_vectors)
        sign_bytes = math.ceil(dimension / 8)  # a bit each
        variants = (
            _Variant("float32", truncated, query_vectors, size=4 * dimension),
            _Variant("int8", in_int8, query_vectors, size=dimension),
            _Variant("binary documents", signs, query_vectors, size=sign_bytes),
            _Variant("binary", signs, query_signs, size=sign_bytes),
        )
        for variant in variants:
            # One document more, as one may be the query itself.
            hits = _search(variant.queries, variant.documents, k=DEPTH + 1)
            ndcg = _ndcg(collection, hits)
            points.append(Compressed(variant.kind, dimension, variant.size, ndcg))
    return tuple(points)


@dataclass(frozen=True)
class _Variant:
    """Documents and queries in one form."""

    kind: str  # of `Compressed`
    documents: VectorStore
    queries: Vectors
    size: int  # bytes per document


def _signs(vectors: Vectors) -> Vectors:
    return np.where(vectors > 0, 1, -1).astype(np.float32)


def _int8(vectors: VectorStore) -> Callable[[Vectors], Vectors]:
    """Return a function that quantises vectors to 8 bits, between the extremes of ``vectors``."""
    low, high = faiss_index.extremes(vectors)
    step = np.where(high > low, (high - low) / 255, 1)

    return lambda part: np.asarray(np.round((part - low) / step) * step + low, dtype=np.float32)


def _search(queries: Vectors, vectors: VectorStore, *, k: int) -> Hits:
    """Exact search, with float32 scores as in a flat index."""
    return search(queries, vectors.blocks(), k=k, block=BLOCK, rescore=False)


def _ndcg(collection: TestCollection, hits: Hits) -> dict[str, float]:
    run = hits.run(collection.queries, list(collection.documents))
    for query, scores in run.items():
        for document in collection.removed(query):
            scores.pop(document, None)
    return score_run(collection.qrels, run, [METRIC], zeros=True)[METRIC]
