"""Queries of a record: their texts, and the documents that a model ranks first."""

from __future__ import annotations

from collections.abc import Mapping

from qwen3nb.evaluation.mteb.search_texts import SearchTexts
from qwen3nb.records.record import Result
from qwen3nb.report.render.format import cut

__all__ = ["query_text", "texts_at_hand", "top_documents"]


def top_documents(result: Result, query: str) -> list[str]:
    """Return the ids of a query's top documents; empty if the record does not keep them."""
    kept = result.config.get("top")
    if not isinstance(kept, Mapping):
        return []
    task = result.task
    whole = "/".join([*task.splits, *task.subsets, query])  # its id in the record of all parts
    return [str(each) for each in kept.get(query) or kept.get(whole) or ()]


def query_text(result: Result, query: str, texts: SearchTexts | None = None) -> str:
    """Return a query's text, from the record or from ``texts``; its id if neither has it."""
    kept = result.config.get("queries")
    if isinstance(kept, dict) and query in kept:
        return str(kept[query])
    return (texts.text(query) if texts else "") or query


def texts_at_hand(result: Result) -> tuple[SearchTexts | None, str]:
    """Return the texts of a record's task, or why there are none.

    There are none to read, and nothing to say, if the record keeps its queries.
    """
    if result.config.get("queries"):
        return None, ""
    try:
        return SearchTexts.of_task(result.task), ""
    except (ValueError, OSError) as error:
        return None, f"Query texts are not available: {cut(str(error), 200)}"
