"""Exact search of vectors in parts, on the nodes of a cluster.

Each part is searched by a Ray task, on a node that reads it from the disk that all share, and
the hits are merged in a tree: what passes Ray's object store is the queries, and hits.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.cluster.connect import LOCAL, connected
from qwen3nb.models.search.exact import Floats, Hits, merge_hits, search
from qwen3nb.vectors.shards import Shard, ShardedVectors, check_content, read_manifest

_FAN = 4  # results merged at once
_RETRIES = 3  # of a task whose node died


def search_on_cluster(
    queries: Floats, folder: Path, *, k: int, address: str = LOCAL, **options: Any
) -> Hits:
    """Return the ``k`` best documents of each query, as `search` of the folder does.

    Args:
        queries: (Q, D).
        folder: vectors in parts, which all nodes see.
        k: hits per query.
        address: see `connected`.
        options: ``backend``, ``block``, ``cosine``, ``rescore`` and ``zeros`` of `search`.

    Raises:
        ClusterError: no cluster.
        ValueError: see `search` and `read_manifest`.
    """
    folder = folder.resolve()
    vectors = read_manifest(folder)
    with connected(address) as ray:
        part = ray.remote(search_shard).options(num_cpus=1, max_retries=_RETRIES)
        merge = ray.remote(merged).options(num_cpus=0, max_retries=_RETRIES)
        shared = ray.put(queries)
        common = folder, vectors, k, options
        level = [part.remote(shared, shard, *common) for shard in vectors.shards]
        while len(level) > 1:
            groups = [level[start : start + _FAN] for start in range(0, len(level), _FAN)]
            level = [merge.remote(k, *group) for group in groups]
        try:
            hits: Hits = ray.get(level[0])
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
    return hits


def search_shard(
    queries: Floats,
    shard: Shard,
    folder: Path,
    vectors: ShardedVectors,
    k: int,
    options: dict[str, Any],
) -> Hits:
    """Return the hits in a part, by their position in the whole corpus; called by Ray.

    Raise ValueError, with the name of the part, for one that is not whole, or odd vectors.
    """
    try:
        vectors.check(shard, folder)
        check_content(shard, folder)
        hits = search(queries, folder / shard.file, k=k, **options)
    except ValueError as error:
        raise ValueError(f"node {platform.node()}: {shard.file}: {error}") from None
    return Hits(np.where(hits.ids < 0, hits.ids, hits.ids + shard.first), hits.scores)


def merged(k: int, *parts: Hits) -> Hits:
    """Return the ``k`` best hits of some parts; called by Ray."""
    return merge_hits(parts, k)
