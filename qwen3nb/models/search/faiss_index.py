"""FAISS indexes for approximate search: build them, measure their recall and throughput.

Every index is built from the same vectors with one seed and one thread, because several
threads build a different HNSW graph each time. Vectors are added in blocks of 65,536, so that
besides the index no more of them are in memory; IVF is trained on the sample that FAISS draws
itself from all of them, SQ8 on the extremes of each dimension. Recall compares
similarities, not ids: a document as similar as the k-th true neighbour counts as a neighbour,
whichever of the tied documents exact search returns. An index's memory is its serialised size.

Shapes: N documents, Q queries, D dimensions.

References:
    Johnson et al., arXiv:1702.08734 (FAISS); Malkov and Yashunin, arXiv:1603.09320 (HNSW);
    Aumüller et al., arXiv:1807.05614 (recall by distance).
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from qwen3nb.models.search.exact import search
from qwen3nb.utils.choices import check_choice
from qwen3nb.vectors.vector_store import VectorStore

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
SINGLES = 0.5  # minimum seconds to time single queries, at least 20 of them
BATCHES = 0.2  # minimum seconds to repeat batches, at least three times
TOLERANCE = 1e-6  # similarities closer than this are ties
_TRAINED = 39  # vectors per centroid that FAISS recommends
_GPU_FAMILIES = ("flat", "ivf")


class Family(NamedTuple):
    """A family of indexes."""

    parameter: str  # what trades speed for recall; empty for none
    values: tuple[int, ...]  # of it, to try


FAMILIES: dict[str, Family] = {
    "flat": Family("", ()),  # every vector, exactly
    "ivf": Family("nprobe", (1, 2, 4, 8, 16, 32, 64)),  # vectors by cell, some cells searched
    "hnsw": Family("efSearch", (16, 32, 64, 128, 256, 512)),  # a graph of neighbours
    "sq8": Family("", ()),  # 8 bits per dimension
}


@dataclass(frozen=True)
class AnnIndex:
    """A built index."""

    family: str  # one of `FAMILIES`
    made: str  # its description, as in FAISS's index factory
    build_seconds: float  # time for training and adding, with one thread
    size: int  # size of the serialised index in bytes
    device: str  # ``cpu`` or ``cuda``
    largest: int | None  # largest value of the parameter, or None
    # maps queries (Q, D), k and a value of the parameter to scores and ids (Q, k), best first;
    # missing ids are -1
    search: Callable[..., tuple[Vectors, Ids]]

    def values(self, grid: Sequence[int] | None = None) -> list[int | None]:
        """Return the values to try, capped at the largest that the index allows."""
        family = FAMILIES[self.family]
        if not family.parameter:
            return [None]
        values: list[int | None] = []
        for value in sorted(family.values if grid is None else grid):
            if self.largest is not None:  # several values may become the same
                value = min(value, self.largest)
            if value not in values:
                values.append(value)
        return values


@dataclass(frozen=True)
class Speed:
    """Latency and throughput of an index."""

    threads: int  # number of threads
    p50: float  # median milliseconds per single query
    p95: float  # 95th percentile, likewise
    singles: int  # number of single queries timed
    qps: float  # queries per second, all queries in one batch, median of the repetitions


def recall_at_k(
    retrieved: Ids,
    vectors: Vectors | VectorStore,
    queries: Vectors,
    *,
    k: int,
    truth: Ids | None = None,
) -> NDArray[np.float64]:
    """Return the share of the true k nearest neighbours that was retrieved, per query (Q,).

    A document among the first k counts if it is as similar as the k-th true neighbour (to
    1e-6); duplicates count once, −1 never. The divisor is min(k, N).

    Args:
        retrieved: ids (Q, k or more), best first; −1 where missing.
        vectors: documents (N, D).
        queries: (Q, D).
        k: depth.
        truth: ids (Q, k) of an exact search; computed if None.

    Raises:
        ValueError: mismatched shapes, or ``k`` below 1.
    """
    _check_shapes(vectors.shape, queries.shape, k)
    if len(retrieved) != len(queries):
        raise ValueError(f"expected retrieved ids of {len(queries)} queries; got {len(retrieved)}")
    documents = VectorStore.of(vectors)
    if truth is None:
        truth = search(queries, documents.blocks(), k=k, rescore=False).ids
    neighbours = min(k, len(documents))
    recall = np.zeros(len(queries))
    # Similarities are compared, not ids, so that it does not matter which of several ties is found.
    for row, query in enumerate(queries.astype(np.float64)):
        true_neighbours = documents.rows(truth[row, :neighbours]).astype(np.float64)
        least_similarity = (true_neighbours @ query).min()  # of the k-th
        ids = np.unique(retrieved[row, :k])
        found_ids = ids[ids >= 0]  # -1 stands for a missing one
        similarities = documents.rows(found_ids).astype(np.float64) @ query
        found_count = np.count_nonzero(similarities >= least_similarity - TOLERANCE)
        recall[row] = min(int(found_count), neighbours) / neighbours
    return recall


def _check_shapes(documents: Sequence[int], queries: Sequence[int], k: int) -> None:
    are_matrices = len(documents) == 2 and len(queries) == 2
    if not are_matrices or documents[1] != queries[1] or k < 1:
        raise ValueError(
            "expected documents (N, D), queries (Q, D) and k of 1 or more; got "
            f"{documents}, {queries} and {k}"
        )


def build_index(
    vectors: Vectors | VectorStore, *, family: str, seed: int = 0, device: str = "cpu"
) -> AnnIndex:
    """Build an index of documents (N, D) for inner products.

    Args:
        vectors: documents, of unit length for cosine similarity.
        family: one of `FAMILIES`.
        seed: seed of the random numbers used in building.
        device: ``cuda`` or ``auto`` puts flat and IVF indexes on the GPU if FAISS supports
            it; the index's ``device`` is the one in use.

    Raises:
        ValueError: an unknown family, or no documents.
        ImportError: FAISS is not installed.
    """
    check_choice("index", family, FAMILIES)
    if len(vectors.shape) != 2 or not len(vectors):
        raise ValueError(f"expected documents (N, D), N of 1 or more; got {vectors.shape}")
    documents = VectorStore.of(vectors)
    faiss = _faiss()
    count, dimension = documents.shape
    cells = max(1, min(4 * math.isqrt(count), count // _TRAINED))
    recipe = {"flat": "Flat", "ivf": f"IVF{cells},Flat", "hnsw": "HNSW32", "sq8": "SQ8"}[family]
    with threadpool_limits(1):  # of FAISS, OpenMP and BLAS
        started = time.perf_counter()
        index = faiss.index_factory(dimension, recipe, faiss.METRIC_INNER_PRODUCT)
        if family == "ivf":
            index.cp.seed = seed + 1
            index.train(_sample(faiss, documents, index.nlist, index.cp))
        elif family == "hnsw":
            index.hnsw.efConstruction = 200
            index.hnsw.rng = faiss.RandomGenerator(seed + 1)
            recipe += ", efConstruction 200"
        elif family == "sq8":
            index.train(np.stack(extremes(documents)))
        for block in documents.blocks():
            index.add(block)
        seconds = time.perf_counter() - started
    size = _serialised_size(faiss, index)
    used_device = "cpu"
    if family in _GPU_FAMILIES and device.startswith(("cuda", "auto")) and _has_gpu(faiss):
        used_device = "cuda"
        resources = faiss.StandardGpuResources()
        gpu = int(device.partition(":")[2] or 0)
        index = faiss.index_cpu_to_gpu(resources, gpu, index)
        index.resources = resources  # must live as long as the index
    largest = cells if family == "ivf" else None
    search = _search_function(index, family, largest, used_device)
    return AnnIndex(family, recipe, seconds, size, used_device, largest, search)


def _serialised_size(faiss: Any, index: Any) -> int:
    """Return the bytes of an index in a file, without holding them."""
    sizes: list[int] = []
    faiss.write_index(index, faiss.PyCallbackIOWriter(lambda part: sizes.append(len(part))))
    return sum(sizes)


def _has_gpu(faiss: Any) -> bool:
    return hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0


def extremes(vectors: VectorStore) -> tuple[Vectors, Vectors]:
    """Return the minimum and the maximum of each dimension (D,)."""
    parts = [(part.min(axis=0), part.max(axis=0)) for part in vectors.blocks()]
    lows, highs = zip(*parts, strict=True)
    low: Vectors = np.min(lows, axis=0)
    high: Vectors = np.max(highs, axis=0)
    return low, high


def _sample(faiss: Any, vectors: VectorStore, centroids: int, settings: Any) -> Vectors:
    """Return the vectors that FAISS's k-means draws from ``vectors``."""
    largest_count = centroids * settings.max_points_per_centroid
    if len(vectors) <= largest_count:
        return vectors.everything()
    order = np.empty(len(vectors), dtype=np.int32)
    faiss.rand_perm(faiss.swig_ptr(order), len(order), settings.seed)
    return vectors.rows(order[:largest_count].astype(np.int64))


def _search_function(
    index: Any, family: str, largest: int | None, device: str
) -> Callable[..., tuple[Vectors, Ids]]:
    parameter = FAMILIES[family].parameter
    faiss = _faiss()
    settings = faiss.GpuParameterSpace if device == "cuda" else faiss.ParameterSpace

    def search(queries: Vectors, k: int, value: int | None) -> tuple[Vectors, Ids]:
        _check_value(value, family, largest)
        if value is not None:  # such as nprobe=8: FAISS sets parameters by their name
            settings().set_index_parameter(index, parameter, value)
        return index.search(np.ascontiguousarray(queries), min(k, index.ntotal))

    return search


def _check_value(value: int | None, family: str, largest: int | None) -> None:
    """Refuse a value of the parameter that an index of ``family`` does not take."""
    parameter = FAMILIES[family].parameter
    needs_value = bool(parameter)
    # A value without a parameter, or the other way round.
    if needs_value != (value is not None):
        raise ValueError(f"{family} is searched with {parameter or 'no parameter'}; got {value}")
    if value is None:
        return
    is_too_large = largest is not None and value > largest
    if value < 1 or is_too_large:
        raise ValueError(f"{parameter} is {value}; expected 1 to {largest or 'any number'}")


def measure_speed(
    search: Callable[[Vectors], object], queries: Vectors, *, threads: int = 1
) -> Speed:
    """Time ``search`` on queries (Q, D), after a warm-up with the same queries."""
    if not len(queries) or threads < 1:
        raise ValueError(f"expected queries and threads; got {len(queries)} and {threads}")
    single_queries = [queries[row : row + 1] for row in range(len(queries))]
    with threadpool_limits(threads):
        search(queries)  # a warm-up, not timed
        for query in single_queries[:5]:
            search(query)
        singles: list[float] = []
        for query in single_queries:
            singles.append(_seconds(search, query))
            # `SINGLES` and `BATCHES` are the seconds to measure for, at least.
            if len(singles) >= 20 and sum(singles) > SINGLES:
                break
        batches: list[float] = []
        end = time.perf_counter() + BATCHES
        while len(batches) < 3 or time.perf_counter() < end:
            batches.append(_seconds(search, queries))
    p50, p95 = np.quantile(singles, [0.5, 0.95]) * 1000  # milliseconds
    queries_per_second = len(queries) / float(np.median(batches))
    return Speed(threads, float(p50), float(p95), len(singles), queries_per_second)


def _seconds(search: Callable[[Vectors], object], queries: Vectors) -> float:
    started = time.perf_counter()
    search(queries)
    return time.perf_counter() - started


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ImportError("faiss is not installed: pip install 'qwen3nb[cpu]', or [gpu]") from error
    return faiss
