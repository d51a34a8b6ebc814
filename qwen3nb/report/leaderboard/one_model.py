"""Tables of one model's results: many tasks by type, and tasks with several languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qwen3nb.records.record import Result
from qwen3nb.report.leaderboard.tables import results_table
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import number
from qwen3nb.report.render.sections import MANY, Sections
from qwen3nb.report.render.table import Table

__all__ = ["main_scores_table", "parts_table", "results_tables"]


def results_tables(
    results: Sequence[Result], *, skipped: Mapping[str, str] | None = None
) -> Table | Sections:
    """Return a model's results: all metrics, or of many tasks the main scores and the rest folded.

    Args:
        results: records of one model.
        skipped: why a task has no result, by key.
    """
    if len(results) <= MANY:
        return results_table(results, skipped=skipped)
    kinds: dict[str, list[Result]] = {}
    for result in results:
        kinds.setdefault(str(result.task.type), []).append(result)
    tables = [("Main scores", main_scores_table(results, skipped=skipped))]
    for kind, own in sorted(kinds.items()):
        count = f"{len(own)} task{'s' if len(own) > 1 else ''}"
        table = replace(
            results_table(own), name=f"metrics-{kind}", caption=f"Every metric of the {kind} tasks."
        )
        tables.append((f"{kind}, all metrics ({count})", table))
    return Sections(tuple(tables), unfolded=1)


def main_scores_table(
    results: Sequence[Result], *, skipped: Mapping[str, str] | None = None
) -> Table:
    """Return a row per task with its main score, by type of task."""
    ordered = sorted(results, key=lambda each: str(each.task.type))
    rows = [
        (
            Cell(each.task.key),
            Cell(each.task.type),
            Cell(each.task.main_metric),
            number(each.main),
            Cell(f"{each.main.n} {each.task.unit}", value=each.main.n),
        )
        for each in ordered
    ]
    for task, reason in (skipped or {}).items():
        rows.append((Cell(task), Cell("–"), Cell("–"), Cell("not applicable", reason), Cell("–")))
    heads = ("task", "type", "metric", "value\n95 % interval", "n")
    return Table(heads, tuple(rows), name="main-scores", caption="The main score of every task.")


def parts_table(results: Sequence[Result]) -> Table:
    """Return a row per split and subset of the tasks that have several, with its languages.

    The score in front, over all parts, is the one that MTEB reports: the mean of the parts.
    """
    rows: list[tuple[Cell, ...]] = []
    for result in results:
        if not result.parts:
            continue
        task, metric = result.task.key, result.task.main_metric
        whole = f"all {len(result.parts)}"
        rows.append((Cell(task, metric), Cell(whole), Cell("–"), Cell("–"),
                     number(result.main, strong=True), Cell(str(result.main.n))))  # fmt: skip
        rows += [
            (
                Cell(task, metric),
                Cell(part.subset),
                Cell(part.split),
                Cell(", ".join(part.languages) or "not recorded"),
                number(part.score),
                Cell(str(part.score.n)),
            )
            for part in result.parts
        ]
    note = (
        "In bold: the value that MTEB reports, the mean over the parts. Queries are paired "
        "within one subset and split only."
        if rows
        else "Every task has one subset and one split."
    )
    heads = ("task\nmetric", "subset", "split", "languages", "value\n95 % interval", "n")
    return Table(heads, tuple(rows), note, name="parts", caption="Scores by subset and split.")
