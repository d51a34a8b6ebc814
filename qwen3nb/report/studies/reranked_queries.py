"""Queries before and after reranking: one examined by hand, and those that changed most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qwen3nb.metrics.retrieval import ranking
from qwen3nb.report.evaluation.by_hand import shortened, typical_query
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.table import Table
from qwen3nb.report.studies.reranking import METRIC, Reranked, probability

__all__ = ["cases_table", "reranked_query_table"]


def cases_table(pages: Sequence[Reranked], *, helped: bool, count: int = 3, top: int = 3) -> Table:
    """The queries that changed most: top documents of both runs, relevant ones in bold."""
    changed = [
        (gain, query, page)
        for page in pages
        for query, gain in page.result.per_query[f"gain {METRIC}"].items()
        if gain and (gain > 0) == helped
    ]
    cases = sorted(changed, key=lambda case: (-abs(case[0]), case[1]))[:count]
    rows = [row for gain, query, page in cases for row in _case(page, query, gain, top)]
    columns = ("query", "rank", "first stage", "reranked")
    note = "Relevant documents in bold." if rows else "There is no such query."
    return Table(
        columns, tuple(rows), note, kind="words", name=f"rerank-{'gains' if helped else 'losses'}",
        caption=f"The {len(cases)} queries that {'gained' if helped else 'lost'} most, with the "
        f"first {top} documents before and after.",
    )  # fmt: skip


def _case(page: Reranked, query: str, gain: float, top: int) -> list[tuple[Cell, ...]]:
    both = [ranking(run, query, top) for run in (page.first, page.run)]
    rows = []
    for rank in range(max(map(len, both))):
        shown = (_document(page, query, ranked, rank) for ranked in both)
        what = f"{page.name}, {METRIC} {gain:+.3f}"
        head = Cell(shortened(page.collection.queries[query]), what)
        rows.append((head if rank == 0 else Cell(""), Cell(str(rank + 1)), *shown))
    return rows


def _document(page: Reranked, query: str, ranked: Sequence[str], rank: int) -> Cell:
    if rank >= len(ranked):
        return Cell("–")
    grades: Mapping[str, int] = page.collection.qrels[query]
    text = shortened(page.collection.documents[ranked[rank]])
    return Cell(text, strong=grades.get(ranked[rank], 0) > 0)


def reranked_query_table(pages: Sequence[Reranked], *, query: str = "", top: int = 5) -> Table:
    """Return the first documents of one query before and after reranking.

    Args:
        pages: reranked data sets.
        query: its id in one of them; by default, in the first one, the query whose gain is
            nearest to the mean.
        top: number of documents.

    Raises:
        ValueError: no data set has this query; names some of the first.
    """
    page = next((each for each in pages if not query or query in each.run), None)
    if page is None:
        known = ", ".join(sorted(pages[0].run)[:5])
        raise ValueError(f"unknown query {query!r}; such as: {known}")
    gains = page.result.per_query[f"gain {METRIC}"]
    name = query or typical_query(gains)
    before, after = (ranking(run, name, top) for run in (page.first, page.run))
    rows = tuple(
        (
            Cell(str(rank + 1)),
            _document(page, name, before, rank),
            _document(page, name, after, rank),
            _chance(page, name, after, rank),
        )
        for rank in range(max(len(before), len(after)))
    )
    text = shortened(page.collection.queries[name])
    why = "" if query else " The query whose gain is nearest to the mean."
    return Table(
        ("rank", "first stage", "reranked", "P(yes)\nlog-odds"),
        rows,
        f"Relevant documents in bold.{why}",
        kind="words",
        name="rerank-query",
        caption=f"Query {name} of {short_task(page.name)}, “{text}”: the first {top} documents "
        f"before and after reranking, {METRIC} {gains[name]:+.3f}.",
    )


def _chance(page: Reranked, query: str, ranked: Sequence[str], rank: int) -> Cell:
    if rank >= len(ranked):
        return Cell("–")
    log_odds = page.run[query][ranked[rank]]
    return Cell(f"{float(probability(np.array([log_odds]))[0]):.3f}", f"{log_odds:+.2f}")
