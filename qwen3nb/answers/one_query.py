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
from qwen3nb.evaluation.retrieval.nano import nano_collection, nano_data
from qwen3nb.metrics.retrieval import rank_documents
from qwen3nb.models.capabilities import reranks_only
from qwen3nb.models.search.dense import as_searcher
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.table import Cell, Table, cut, short_task
from qwen3nb.tiers import NANO
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
    searches = [result for result in results if _is_search_with_scores(result)]
    for result in sorted(searches, key=lambda result: result.task.size["documents"]):
        # Larger ones, which follow, are not affordable either.
        if not _is_affordable(model, result.task.size["documents"]):
            return None
        for source in data:
            collection = _find_collection(source, result.task.key, limit)
            if collection is not None:
                return _query_table(model, collection, result, query)
    return None


def _is_search_with_scores(result: Result) -> bool:
    """Whether a record is of one search, with its number of documents and scores per query."""
    task = result.task
    if task.type != "Retrieval" or result.parts:
        return False
    return "documents" in task.size and task.main_metric in result.per_query


def _is_affordable(model: Any, documents: int) -> bool:
    if reranks_only(model):
        return False
    if as_searcher(model).is_quick(documents):
        return documents <= _SEARCHED
    return documents <= _ENCODED


def _find_collection(source: Any, key: str, limit: int) -> TestCollection | None:
    """Return the test collection of a task's key; None if ``source`` does not have it.

    ``source`` is a folder or one of MTEB's task objects, whose data may not be available here.
    """
    # A task object of MTEB; a folder is named by a text.
    if not isinstance(source, str):
        if task_key(source, limit=limit) != key or not _load_without_network(source):
            return None
        return _collection_of_task(source, key, limit)
    for collection in find_collections(source):
        if collection.name == key:
            return collection
        if key == f"{collection.name}-{NANO}":
            return nano_collection(collection)
    return None


def _load_without_network(task: Any) -> bool:
    """Load the data of a task; return whether they are available."""
    if task.data_loaded:
        return True
    # Built-in data sets are made on this machine.
    is_built_in = task.metadata.dataset["path"].startswith("qwen3nb/")
    # The hub counts as unreachable: a page asks nobody for data.
    unavailable = missing(needs([task]), reachable=lambda: False)
    if unavailable and not is_built_in:
        return False
    with local_data(task):
        load_data(task)
    return True


def _collection_of_task(task: Any, key: str, limit: int) -> TestCollection | None:
    """Return the collection of a loaded task; None if it has several, of splits or subsets."""
    if hasattr(task, "convert_v1_dataset_format_to_v2"):
        task.convert_v1_dataset_format_to_v2(num_proc=None)
    with nano_data(task), limited(task, limit):
        collections = list(find_collections(task))
    if len(collections) != 1:
        return None
    return replace(collections[0], name=key)


def typical_query(values: Mapping[str, float]) -> str:
    """Return the query with the score nearest to the mean; the first by id if tied.

    >>> typical_query({"a": 0.0, "b": 1.0, "c": 0.5})
    'c'
    """
    mean = float(np.mean(list(values.values())))
    return min(sorted(values), key=lambda query: abs(values[query] - mean))


def _query_table(model: Any, collection: TestCollection, result: Result, query: str) -> Table:
    metric = result.task.main_metric
    scores_of_queries = result.per_query[metric]
    if query and query not in scores_of_queries:
        examples = ", ".join(sorted(scores_of_queries)[:5])
        raise ValueError(f"unknown query {query!r} of {result.task.key}; such as: {examples}")
    query = query or typical_query(scores_of_queries)
    scores = as_searcher(model).scores_of_all(collection.queries[query], collection)
    # Such as the query itself, where it is one of the documents.
    for document in collection.removed(query):
        scores.pop(document, None)
    return Table.of(
        _document_rows(scores, collection, query),
        note=f"Searched again among all {len(collection.documents):,} documents of "
        f"{short_task(result.task.key)}: the first {_TOP}, then any relevant document below them. "
        "Relevant documents in bold.",
        kind="words",
        name="one-query",
        caption=f"Query {query}: “{shortened(collection.queries[query])}” has {metric} "
        f"{number_text(float(scores_of_queries[query]))} with {result.model.label}.",
        data=DataUsed.of([result]),
    )


def _document_rows(
    scores: Mapping[str, float], collection: TestCollection, query: str
) -> list[dict[str, object]]:
    """Return the top documents, then the relevant ones below them, then those not retrieved."""
    ranking = list(rank_documents(scores))
    grades = collection.qrels[query]
    relevant = {document for document, grade in grades.items() if grade > 0}
    relevant_below = [document for document in ranking[_TOP:] if document in relevant]
    relevant_without_score = sorted(relevant - set(ranking))
    rows = []
    for document in (*ranking[:_TOP], *relevant_below, *relevant_without_score):
        rank: object = "not retrieved"
        score = None
        if document in scores:
            rank = ranking.index(document) + 1
            score = f"{scores[document]:.3f}"
        text = collection.documents.get(document, "(not in the corpus)")
        row = {
            "rank": rank,
            "document": Cell(shortened(text), document, strong=document in relevant),
            "score": score,
            "judged": _judgement(grades.get(document)),
        }
        rows.append(row)
    return rows


def _judgement(grade: float | None) -> str:
    if grade is None:
        return "not judged"
    if grade > 0:
        return "relevant"
    return "not relevant"


def shortened(text: str) -> str:
    """Return a text on one line, of at most 120 characters."""
    return cut(text, _SHOWN)
