"""Count what a reader of a task's scores should know of its data.

A judged document that is not in the corpus can never be retrieved; MTEB counts a query without
a relevant document as 0; equal documents compete with each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from qwen3nb.datasets.judgements import judgement_counts, text_counts
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.mteb.per_query import task_slices
from qwen3nb.evaluation.run import EvaluationError

__all__ = ["data_counts"]


def data_counts(task: Any) -> dict[str, int]:
    """Return the counts of a loaded search task that are not 0; empty for other types.

    Raises:
        EvaluationError: most of the judged documents of a part are not in its corpus.
    """
    counts: Counter[str] = Counter()
    for part in task_slices(task):
        if isinstance(part.data, Mapping) and "relevant_docs" in part.data:
            try:
                counts.update(_counts(part.data, where=f"{task.metadata.name}{part.prefix}"))
            except DataError as error:
                raise EvaluationError(str(error)) from None
    return dict(+counts)


def _counts(data: Mapping[str, Any], *, where: str) -> dict[str, int]:
    corpus = data["corpus"]
    judged = judgement_counts(
        data["relevant_docs"],
        queries=data["queries"]["id"],
        documents=corpus["id"],
        where=where,
        zeros=True,
    )
    return judged | text_counts("documents", _texts(corpus))


def _texts(corpus: Any) -> Iterable[str]:
    columns = [name for name in ("title", "text") if name in corpus.column_names]
    rows = zip(*(corpus[name] for name in columns), strict=True)
    return (" ".join(str(value or "") for value in row) for row in rows)
