"""Subsample a task for a quick look: fewer queries, documents and rows, always the same.

A limited task is a different, mostly easier task: its record has another name, and its
scores compare with others under the same limit only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["limited", "limited_name"]

# Types whose rows may hold whole lists of texts.
_LISTS = ("Clustering", "PairClassification")


def limited_name(name: str, limit: int) -> str:
    """Return the name of the task under a limit; 0 is no limit."""
    return f"{name}-limit{limit}" if limit else name


@contextmanager
def limited(task: Any, limit: int) -> Iterator[None]:
    """Reduce a loaded MTEB task to at most ``limit`` of everything inside the block.

    Search tasks: queries, and documents besides those judged for these queries (or listed
    as their candidates), which all stay. Other tasks: rows of the evaluated splits. The
    draw does not depend on the seed of a run, so every model gets the same data.
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
    """``data`` of a subset or split with less in it, down to the splits that are evaluated."""
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
    """Whether a part is neither evaluated nor holds what is: the texts to learn from."""
    return name not in task.eval_splits and name not in task.hf_subsets


def _drawn(count: int, limit: int) -> list[int]:
    if count <= limit:
        return list(range(count))
    drawn = np.random.default_rng(0).choice(count, size=limit, replace=False)
    return sorted(drawn.tolist())


def _shorter(rows: Any, limit: int) -> Any:
    """Rows whose lists of texts, and what belongs to each text, are cut alike."""
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
