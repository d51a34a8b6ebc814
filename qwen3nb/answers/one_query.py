"""An example query: the top documents of a model, and the judged documents.

Texts come from data used by the evaluation, never from the network.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.mirror import load_data, local_data, missing, needs
from qwen3nb.evaluation.mteb.select import limited, task_key
from qwen3nb.metrics.retrieval import rank_documents
from qwen3nb.models.capabilities import reranks_only
from qwen3nb.models.search.dense import as_searcher
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.table import Cell, Table, cut, short_task
from qwen3nb.utils.format import number_text

_TOP = 5
_SHOWN = 120  # characters of a text
_ENCODED = 1_000  # maximum number of documents encoded for one query
_SEARCHED = 50_000  # maximum number of documents searched with cached vectors


def query_table(
    model: Any, data: Sequence[Any], results: Iterable[Result], *, query: str = "", limit: int = 0
) -> Table | None:
    """Return the top documents of a model for one query, and its judged documents.

    Uses the search task with fewest documents, whose corpus is searched again. None without such a
    task, or if its corpus is too large for this. By default, the query is the one with a score
    nearest to the mean; ``data`` and ``limit`` are those of the evaluation.

    Raises:
        ValueError: an unknown query; names some known ones.
    """
    searched = [
        each
        for each in results
        if each.task.type == "Retrieval"
        and not each.parts
        and "documents" in each.task.size
        and each.task.main_metric in each.per_query
    ]
    for result in sorted(searched, key=lambda each: each.task.size["documents"]):
        if not _affordable(model, result.task.size["documents"]):
            return None
        collections = (_collection(each, result, limit) for each in data)
        if (collection := next(filter(None, collections), None)) is not None:
            return _query_table(model, collection, result, query)
    return None


def _affordable(model: Any, documents: int) -> bool:
    if reranks_only(model):
        return False
    quick = as_searcher(model).is_quick(documents)
    return documents <= (_SEARCHED if quick else _ENCODED)


def _collection(source: Any, result: Result, limit: int) -> TestCollection | None:
    """Return the test collection of a record, if ``source`` has it and its data are available."""
    if isinstance(source, str):
        return next((c for c in find_collections(source) if c.name == result.task.key), None)
    if task_key(source, limit=limit) != result.task.key:
        return None
    if not source.data_loaded:
        built_in = source.metadata.dataset["path"].startswith("qwen3nb/")
        if not built_in and missing(needs([source]), reachable=lambda: False):
            return None
        with local_data(source):
            load_data(source)
    if hasattr(source, "convert_v1_dataset_format_to_v2"):
        source.convert_v1_dataset_format_to_v2(num_proc=None)
    with limited(source, limit):
        found = [*find_collections(source)]
    return replace(found[0], name=result.task.key) if len(found) == 1 else None


def typical_query(values: Mapping[str, float]) -> str:
    """Return the query with the score nearest to the mean; the first by id if tied.

    >>> typical_query({"a": 0.0, "b": 1.0, "c": 0.5})
    'c'
    """
    mean = float(np.mean(list(values.values())))
    return min(sorted(values), key=lambda query: abs(values[query] - mean))


def _query_table(model: Any, collection: TestCollection, result: Result, query: str) -> Table:
    metric = result.task.main_metric
    values = result.per_query[metric]
    if query and query not in values:
        known = ", ".join(sorted(values)[:5])
        raise ValueError(f"unknown query {query!r} of {result.task.key}; such as: {known}")
    query = query or typical_query(values)
    scores = as_searcher(model).scores_of_all(collection.queries[query], collection)
    for document in collection.removed(query):
        scores.pop(document, None)
    ranked = list(rank_documents(scores))
    grades = collection.qrels[query]
    relevant = {name for name, grade in grades.items() if grade > 0}
    rest = [name for name in ranked[_TOP:] if name in relevant]
    words = {name: "relevant" if grade > 0 else "not relevant" for name, grade in grades.items()}
    rows = (
        {
            "rank": ranked.index(name) + 1 if name in scores else "not retrieved",
            "document": Cell(
                shortened(collection.documents.get(name, "(not in the corpus)")),
                name,
                strong=name in relevant,
            ),
            "score": f"{scores[name]:.3f}" if name in scores else None,
            "judged": words.get(name, "not judged"),
        }
        for name in [*ranked[:_TOP], *rest, *sorted(relevant - {*ranked})]
    )
    return Table.of(
        rows,
        note=f"Searched again among all {len(collection.documents):,} documents of "
        f"{short_task(result.task.key)}: the first {_TOP}, then any relevant document below them. "
        "Relevant documents in bold.",
        kind="words",
        name="one-query",
        caption=f"Query {query}: “{shortened(collection.queries[query])}” has {metric} "
        f"{number_text(float(values[query]))} with {result.model.label}.",
        data=DataUsed.of([result]),
    )


def shortened(text: str) -> str:
    """Return a text on one line, of at most 120 characters."""
    return cut(text, _SHOWN)
