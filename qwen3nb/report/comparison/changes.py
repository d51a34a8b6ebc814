"""The queries on which models and the baseline differ most, with their texts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.evaluation.mteb.search_texts import SearchTexts
from qwen3nb.report.comparison.explorer import explorer_link
from qwen3nb.report.comparison.query_texts import query_text, texts_at_hand, top_documents
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import cut, short_task
from qwen3nb.report.render.table import Table

__all__ = ["changes_table"]

_LONGEST = 80  # characters of a query
_PAGE = "explorer.html"


def changes_table(
    comparison: Comparison,
    *,
    explorer: str = "",
    texts: SearchTexts | None = None,
    models: int = 4,
    most: int = 3,
    best: int = 5,
) -> Table:
    """Return the queries on which models and the baseline differ most, on the first task.

    Args:
        comparison: the comparison to show.
        explorer: the task that the explorer's page shows; its queries link there.
        texts: texts of the first task; by default read, if its data are at hand.
        models: how many models to show, those nearest to the baseline.
        most: how many queries of each.
        best: how many top documents of both, if the records keep them and there is no link to
            the explorer, which shows them with their texts.
    """
    task = next((each.task for each in comparison.tasks if each.with_baseline), "")
    shown = comparison.differences_on(task)
    nearest = sorted(shown, key=lambda each: abs(each.difference))[:models]
    matrices = [comparison.matrix(each) for each in nearest]
    why = ""
    if texts is None and matrices:
        texts, why = texts_at_hand(comparison.records[task, comparison.baseline])
    page = _PAGE if explorer == task else ""
    rows = [
        row for matrix in matrices for row in _changes(comparison, matrix, texts, most, best, page)
    ]
    heads = ["model", "query", "Δ\nmodel, baseline", f"top {best}\nmodel", "baseline"]
    # Without a document in any record, or where a link leads to all of them.
    if page or not any(row[3].text for row in rows):
        rows, heads = [row[:3] for row in rows], heads[:3]
    return Table(
        tuple(heads),
        tuple(rows),
        why if rows else "No query changed.",
        kind="words",
        name="changes",
        caption=f"{short_task(task)}: the queries on which the {len(nearest)} models nearest to "
        f"{comparison.baseline} and {comparison.baseline} itself differ most, at most {most} each."
        if rows
        else "",
    )


def _changes(
    comparison: Comparison,
    matrix: ScoreMatrix,
    texts: SearchTexts | None,
    most: int,
    best: int,
    page: str,
) -> Iterator[tuple[Cell, ...]]:
    records = [comparison.records[matrix.task, name] for name in matrix.systems]
    differences = matrix.scores[0] - matrix.scores[1]
    for i in map(int, np.argsort(-np.abs(differences), kind="stable")[:most]):
        if differences[i]:
            query = matrix.queries[i]
            text = query_text(records[0], query, texts)
            values = "{:.3f}, {:.3f}".format(*matrix.scores[:, i])
            yield (
                Cell(matrix.systems[0]),
                Cell(
                    cut(text, _LONGEST),
                    "" if text == query else query,
                    link=explorer_link(query, *matrix.systems, page=page) if page else "",
                ),
                Cell(f"{differences[i]:+.3f}", values),
                *(Cell(", ".join(top_documents(each, query)[:best])) for each in records),
            )
