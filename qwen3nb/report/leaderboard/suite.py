"""Summaries of an evaluation over many tasks, by type and overall; plans and reproductions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qwen3nb.records.record import Result
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from qwen3nb.evaluation.studies.reproduce import Reproduction

__all__ = ["Summary", "reproduction_table", "suite_table", "summarise"]


@dataclass(frozen=True)
class Summary:
    """Means of one model's main scores, as MTEB defines them.

    Attributes:
        label: label of the model.
        by_type: mean over the tasks of each MTEB type.
        tasks: number of tasks of each type.
        over_tasks: mean over all tasks; None if there are none.
        over_types: mean of the means by type; None if there are none.
        missing: requested tasks without a result, with the reason.
    """

    label: str
    by_type: dict[str, float]
    tasks: dict[str, int]
    over_tasks: float | None
    over_types: float | None
    missing: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as a dictionary for JSON."""
        return vars(self)


def summarise(
    results: Iterable[Result],
    *,
    requested: Sequence[str] = (),
    reasons: dict[str, str] | None = None,
) -> Summary:
    """Summarise one model's results.

    The parts of a composite task (CQADupStack's forums) count as one task with the mean of the
    parts; if a part is missing, so is the task.

    Args:
        results: records of one model.
        requested: names of the requested tasks; parts by their own names.
        reasons: why a task has no result, by name.

    Raises:
        ValueError: the records are of several models.
    """
    results = list(results)
    labels = {result.model.label for result in results}
    if len(labels) > 1:
        raise ValueError(f"expected results of one model, got {', '.join(sorted(labels))}")
    have = {result.task.key for result in results}
    missing = {name: (reasons or {}).get(name, "not run") for name in requested if name not in have}
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.task.group or result.task.key, []).append(result)
    types: dict[str, list[float]] = {}
    for parts in groups.values():
        values = [value for part in parts if (value := main_score(part)) is not None]
        if len(values) == len(parts):
            types.setdefault(parts[0].task.type, []).append(sum(values) / len(values))
    by_type = {name: sum(values) / len(values) for name, values in sorted(types.items())}
    everything = [value for values in types.values() for value in values]
    return Summary(
        label=next(iter(labels), ""),
        by_type=by_type,
        tasks={name: len(values) for name, values in sorted(types.items())},
        over_tasks=sum(everything) / len(everything) if everything else None,
        over_types=sum(by_type.values()) / len(by_type) if by_type else None,
        missing=missing,
    )


def main_score(result: Result) -> float | None:
    """Return MTEB's main score of the task; its metric may differ from the record's main one."""
    mteb = result.task.mteb
    return result.main.value if mteb is None else mteb.value


def suite_table(summary: Summary) -> Table:
    """Return the means: a row per type, the two overall means; the note lists what is missing."""

    def shown(value: float | None) -> str:
        return "undefined" if value is None else f"{value:.4f}"

    rows = [
        (Cell(name), Cell(str(summary.tasks[name])), Cell(shown(value)))
        for name, value in summary.by_type.items()
    ]
    total = str(sum(summary.tasks.values()))
    rows += [
        (Cell("mean over tasks"), Cell(total), Cell(shown(summary.over_tasks), strong=True)),
        (
            Cell("mean over types"),
            Cell(str(len(summary.by_type))),
            Cell(shown(summary.over_types), strong=True),
        ),
    ]
    gone = "; ".join(f"{name} ({reason})" for name, reason in sorted(summary.missing.items()))
    return Table(
        ("MTEB type", "n", "mean main score"),
        tuple(rows),
        f"Missing: {gone or 'nothing'}. A mean over different tasks has no unit; it only "
        "compares models on exactly the same tasks.",
    )


def reproduction_table(reproductions: Iterable[Reproduction]) -> Table:
    """Return published scores beside ours; those that could not be run give the reason."""
    rows = []
    for done in reproductions:
        each = done.published
        ours = Cell(done.verdict, done.reason) if done.value is None else Cell(f"{done.value:.4f}")
        off = "not run" if done.value is None else f"{done.value - each.value:+.4f}"
        rows.append(
            (
                Cell(each.model),
                Cell(each.task),
                Cell(f"{each.value:.4f}", each.source),
                ours,
                Cell(off),
                Cell(f"{each.tolerance:g}"),
                Cell("–" if done.value is None else done.verdict, strong=done.verdict == "FAIL"),
            )
        )
    return Table(
        ("model", "task", "published", "ours", "difference", "tolerance", "verdict"),
        tuple(rows),
        "Main scores as MTEB defines them. OK: within the tolerance; OKish: within five times the "
        "tolerance. mteb: MTEB's results repository; card: the model's card; stored: first "
        "measured here.",
        kind="words",
    )
