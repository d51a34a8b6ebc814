"""What the explorer's page holds of single queries: rankings, judgements, documents.

A page holds the queries that differ most, with their documents; of the others it shows the scores
and the text alone, so that a page of thousands of queries can still be sent by mail.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.evaluation.mteb.search_texts import SearchTexts
from qwen3nb.records.record import Result
from qwen3nb.report.comparison.query_texts import top_documents
from qwen3nb.report.render.format import cut

__all__ = ["MOST_QUERIES", "SHOWN", "different_queries", "judged_best", "query_details"]

MOST_QUERIES = 200
SIZE = 1_500_000  # characters of all details of a page
SHOWN = 5  # documents of a ranking, and judged ones, with their texts
LONGEST_DOCUMENT = 200
LONGEST_QUERY = 2000
Grades = Mapping[str, int]


def judged_best(grades: Grades) -> list[str]:
    """Return the judged documents, the highest grade first."""
    return sorted(grades, key=lambda document: (-grades[document], document))


def different_queries(matrix: ScoreMatrix, models: Sequence[str], *, most: int) -> list[str]:
    """Return the queries on which models differ most.

    Half of them differ most between the first two models; the others are taken from every pair in
    turn, so that a page has the largest differences of each.
    """
    pairs = list(itertools.combinations(models, 2))
    orders = [
        np.argsort(-np.abs(matrix.column(a) - matrix.column(b)), kind="stable")[:most].tolist()
        for a, b in pairs
    ]
    in_turn = itertools.chain.from_iterable(zip(*orders, strict=True))
    kept = dict.fromkeys(itertools.chain(orders[0][: most // 2], in_turn))
    return [matrix.queries[index] for index in itertools.islice(kept, most)]


def query_details(
    queries: Sequence[str], records: Mapping[str, Result], texts: SearchTexts | None
) -> dict[str, Any]:
    """Return what a page shows of each query, as far as `SIZE` allows.

    Args:
        queries: ids, the most important first.
        records: the record of each model, by its name.
        texts: texts and judgements; None if they are not at hand.
    """
    details = dict(_details(queries, records, texts))
    named = {query: _named(each) for query, each in details.items()}
    documents: dict[str, list[str]] = {}
    read = texts.documents(named) if texts else {}
    kept, size = {}, 0
    for query, each in details.items():
        own = {
            name: [cut(row.title, LONGEST_DOCUMENT), cut(row.text, LONGEST_DOCUMENT)]
            for name, row in read.get(query, {}).items()
        }
        new = {name: row for name, row in own.items() if name not in documents}
        size += len(json.dumps([query, each, new]))
        if size > SIZE:
            break
        kept[query] = each
        documents |= new
    return {"queries": kept, "documents": documents}


def _details(
    queries: Sequence[str], records: Mapping[str, Result], texts: SearchTexts | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    for query in queries:
        grades = texts.grades(query) if texts else {}
        top = {name: top_documents(record, query) for name, record in records.items()}
        ranked = {document for each in top.values() for document in each}
        best = judged_best(grades)
        yield (
            query,
            {
                "text": texts.text(query)[:LONGEST_QUERY] if texts else "",
                "top": {name: each for name, each in top.items() if each},
                "judged": best[:SHOWN],
                "count": len(best),
                "relevant": sum(grade > 0 for grade in grades.values()),
                "grades": {name: grades[name] for name in {*best[:SHOWN], *ranked} & set(grades)},
            },
        )


def _named(detail: Mapping[str, Any]) -> set[str]:
    """Return the documents of which the page shows the text."""
    shown = [document for each in detail["top"].values() for document in each[:SHOWN]]
    return {*shown, *detail["judged"]}
