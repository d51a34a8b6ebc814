"""Count what a reader of a task's scores should know of its data.

A judged document that is not in the corpus can never be retrieved; MTEB counts a query without
a relevant document as 0; equal documents compete with each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from qwen3nb.evaluation.mteb.per_query import task_slices
from qwen3nb.evaluation.run import EvaluationError

__all__ = ["data_counts"]

_MISSING = "judged documents not in the corpus"


def data_counts(task: Any) -> dict[str, int]:
    """Return the counts of a loaded search task that are not 0; empty for other types.

    Raises:
        EvaluationError: most of the judged documents are not in the corpus.
    """
    counts: Counter[str] = Counter()
    judged = 0
    for part in task_slices(task):
        if isinstance(part.data, Mapping) and "relevant_docs" in part.data:
            documents = {id_ for each in part.data["relevant_docs"].values() for id_ in each}
            judged += len(documents)
            counts += _counts(part.data, documents)
    if 2 * counts[_MISSING] > judged:
        raise EvaluationError(
            f"{task.metadata.name}: {counts[_MISSING]} of {judged} judged documents are not in "
            "the corpus; the judgements belong to other documents, or the data are incomplete"
        )
    return dict(+counts)


def _counts(data: Mapping[str, Any], documents: set[str]) -> Counter[str]:
    corpus, judgements = data["corpus"], data["relevant_docs"]
    judged = [judgements.get(query) for query in data["queries"]["id"]]
    return Counter(
        {
            "queries without judgements, left out": sum(not each for each in judged),
            "queries without a relevant document, counted as 0": sum(
                bool(each) and max(each.values()) <= 0 for each in judged
            ),
            _MISSING: len(documents.difference(corpus["id"])),
            "documents equal to another": _repeated(_texts(corpus)),
            "empty documents": sum(not text.strip() for text in _texts(corpus)),
        }
    )


def _texts(corpus: Any) -> Iterable[str]:
    columns = [name for name in ("title", "text") if name in corpus.column_names]
    rows = zip(*(corpus[name] for name in columns), strict=True)
    return (" ".join(str(value or "") for value in row) for row in rows)


def _repeated(texts: Iterable[str]) -> int:
    """Count texts equal to an earlier one, by their hashes: millions fit into memory."""
    hashes = np.fromiter((hash(text) for text in texts), dtype=np.int64)
    return len(hashes) - len(np.unique(hashes))
