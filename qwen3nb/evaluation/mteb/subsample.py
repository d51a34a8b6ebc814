"""Subsample a task, deterministically, to fewer queries, documents and rows.

A limited task is a different, usually easier task: its record has another name, and its
scores are comparable only under the same limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["limited"]

# Types whose rows may hold lists of texts.
_LISTS = ("Clustering", "PairClassification")


@contextmanager
def limited(task: Any, limit: int) -> Iterator[None]:
    """Reduce a loaded MTEB task to at most ``limit`` items of each kind inside the block.

    For search tasks, this limits the queries, and the documents other than those judged for
    these queries (or listed as their candidates), which are all kept. For other tasks, it
    limits the rows of the evaluated splits. The draw does not depend on the seed of a run,
    so every model gets the same data.
    """
    if not limit:
        yield
        return
    whole = task.dataset
    task.dataset = _less(whole, limit, task=task)
    try:
        yield
    finally:
        task.dataset = whole


def _less(data: Any, limit: int, *, task: Any) -> Any:
    """Return ``data`` of a subset or split with the evaluated splits subsampled."""
    import datasets

    if isinstance(data, datasets.Dataset):
        rows = data.select(_drawn(len(data), limit))
        return _shorter(rows, limit) if task.metadata.type in _LISTS else rows
    if "relevant_docs" in data:
        return _less_to_search(data, limit)
    return {
        name: part if _untouched(name, task) else _less(part, limit, task=task)
        for name, part in data.items()
    }


def _untouched(name: str, task: Any) -> bool:
    """Whether a part neither is nor contains an evaluated split, such as training texts."""
    return name not in task.eval_splits and name not in task.hf_subsets


def _drawn(count: int, limit: int) -> list[int]:
    if count <= limit:
        return list(range(count))
    drawn = np.random.default_rng(0).choice(count, size=limit, replace=False)
    return sorted(drawn.tolist())


def _shorter(rows: Any, limit: int) -> Any:
    """Subsample the lists in each row, keeping texts and their labels aligned."""
    return rows.map(
        lambda row: {
            name: [value[i] for i in _drawn(len(value), limit)]
            for name, value in row.items()
            if isinstance(value, list)
        }
    )


def _less_to_search(data: Mapping[str, Any], limit: int) -> dict[str, Any]:
    judged = data["relevant_docs"]
    answered = [i for i, query in enumerate(data["queries"]["id"]) if query in judged]
    queries = data["queries"].select([answered[i] for i in _drawn(len(answered), limit)])
    kept = set(queries["id"])
    candidates = data.get("top_ranked")
    needed = {document for query in kept for document in judged[query]}
    if candidates:
        needed |= {document for query in kept for document in candidates.get(query, ())}
    ids = data["corpus"]["id"]
    others = [i for i, document in enumerate(ids) if document not in needed]
    stay = {others[i] for i in _drawn(len(others), limit)}
    return {
        **data,
        "queries": queries,
        "corpus": data["corpus"].select(
            [i for i, document in enumerate(ids) if i in stay or document in needed]
        ),
        "relevant_docs": {query: judged[query] for query in judged if query in kept},
        "top_ranked": candidates
        and {q: documents for q, documents in candidates.items() if q in kept},
    }
