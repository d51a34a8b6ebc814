"""Summaries of an evaluation over many tasks, by type and overall; plans and reproductions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.analysis.comparison.benchmark_means import (
    BenchmarkMean,
    benchmark_columns,
    column_mean,
    main_score,
)
from qwen3nb.records.record import Result
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import BENCHMARKS, GROUPS
from qwen3nb.utils.format import interval_text

if TYPE_CHECKING:
    from qwen3nb.evaluation.studies.reproduce import Reproduction

__all__ = ["Summary", "reproduction_conclusion", "reproduction_table", "suite_table", "summarise"]


@dataclass(frozen=True)
class Summary:
    """Means of one model's scores: of each benchmark that was requested whole, or by type.

    Attributes:
        label: name of the model.
        means: of the benchmarks, none if no benchmark was requested whole.
        by_type: mean main score over the tasks of each MTEB type.
        tasks: number of tasks of each type; a group of tasks counts as one.
        over_tasks: mean over all tasks; None if there are none, or of a benchmark's.
        over_types: mean of the means by type, likewise.
        missing: requested tasks without a result, with the reason.
    """

    label: str
    means: tuple[BenchmarkMean, ...]
    by_type: dict[str, float]
    tasks: dict[str, int]
    over_tasks: float | None
    over_types: float | None
    missing: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as a dictionary for JSON."""
        means = {
            each.column.name: {
                "metric": each.column.measure,
                "over": each.column.over,
                "value": each.value,
                "interval": each.interval,
                "missing": list(each.missing),
            }
            for each in self.means
        }
        return {**vars(self), "means": means}


def summarise(
    results: Iterable[Result],
    *,
    requested: Sequence[str] = (),
    reasons: dict[str, str] | None = None,
) -> Summary:
    """Summarise one model's results.

    If benchmarks were requested whole, there is no mean over several of them. A group of tasks
    (CQADupStack's forums) counts as one task with the mean of its parts; if a part is missing, so
    is the task.

    Args:
        results: records of one model.
        requested: keys of the requested tasks; parts by their own.
        reasons: why a task has no result, by key.

    Raises:
        ValueError: the records are of several models.
    """
    results = list(results)
    names = model_names(results)
    if len(names) > 1:
        several = ", ".join(sorted(names.values()))
        raise ValueError(f"expected results of one model, got {several}")
    records = {record.task.key: record for record in newest_records(results)[0]}
    missing = {key: (reasons or {}).get(key, "not run") for key in requested if key not in records}
    means = tuple(
        column_mean(column, records.values())
        for benchmark in BENCHMARKS.values()
        if set(benchmark.task_keys) <= {*requested}
        for column in benchmark_columns(benchmark)
    )
    types = _by_type(records)
    by_type = {name: fmean(values) for name, values in types.items()}
    everything = [value for values in types.values() for value in values]
    return Summary(
        label=next(iter(names.values()), ""),
        means=means,
        by_type=by_type,
        tasks={name: len(values) for name, values in types.items()},
        over_tasks=fmean(everything) if everything and not means else None,
        over_types=fmean(by_type.values()) if by_type and not means else None,
        missing=missing,
    )


def _by_type(records: Mapping[str, Result]) -> dict[str, list[float]]:
    """Return the main scores of the tasks by type; a group needs all its parts."""
    group_of = {part: name for name, parts in GROUPS.items() for part in parts}
    parts: dict[str, list[Result]] = {}
    for key, record in records.items():
        parts.setdefault(group_of.get(key, key), []).append(record)
    types: dict[str, list[float]] = {}
    for name, own in parts.items():
        scores = [value for each in own if (value := main_score(each)) is not None]
        if len(scores) == len(GROUPS.get(name, own)):
            types.setdefault(str(own[0].task.type), []).append(fmean(scores))
    return dict(sorted(types.items()))


def suite_table(summary: Summary) -> Table:
    """Return the means: a row per benchmark and type; the note lists what is missing."""
    gone = "; ".join(f"{name} ({reason})" for name, reason in sorted(summary.missing.items()))
    note = f"Missing: {gone or 'nothing'}."
    if summary.means:
        rows = [_mean_row(mean) for mean in summary.means]
        note += (
            " A mean needs a score on every task. Types and both means of MTEB are those of its "
            "public leaderboard."
        )
        heads = ("mean", "metric", "tasks", "value\n95 % interval")
        caption = f"Means of {summary.label} over each benchmark, and by type of task."
        return Table(heads, tuple(rows), note, name="means", caption=caption)
    rows = [
        (Cell(name), Cell(str(summary.tasks[name])), Cell(_shown(value)))
        for name, value in summary.by_type.items()
    ]
    over = (
        ("mean over tasks", sum(summary.tasks.values()), summary.over_tasks),
        ("mean over types", len(summary.by_type), summary.over_types),
    )
    rows += [
        (Cell(name), Cell(str(n)), Cell(_shown(value), strong=True)) for name, n, value in over
    ]
    note += (
        " A mean over different tasks has no unit; it only compares models on exactly the same "
        "tasks."
    )
    return Table(
        ("MTEB type", "tasks", "mean main score"), tuple(rows), note, name="means",
        caption=f"Mean main scores of {summary.label} by MTEB's types of task.",
    )  # fmt: skip


def _shown(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def _mean_row(mean: BenchmarkMean) -> tuple[Cell, ...]:
    measured = f"{mean.measured} of {mean.column.tasks}" if mean.missing else str(mean.column.tasks)
    interval = interval_text(mean.interval, sign=False, absent="")
    value = Cell("incomplete", "; ".join(mean.gaps) if len(mean.gaps) < 3 else "")
    if mean.value is not None:
        value = Cell(f"{mean.value:.4f}", interval, value=mean.value, interval=mean.interval)
    return Cell(mean.column.name), Cell(mean.column.measure), Cell(measured), value


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
        name="reproduction",
        caption="Published main scores beside ours, with their difference and tolerance.",
    )


def reproduction_conclusion(reproductions: Iterable[Reproduction]) -> Conclusion:
    """Say how many published scores are reproduced, and name the one that is farthest off."""
    done = list(reproductions)
    run = [each for each in done if each.value is not None]
    left = f" {len(done) - len(run)} could not be run here." if len(run) < len(done) else ""
    if not run:
        return Conclusion(f"No published score could be run here, of {len(done)}.")
    off = {id(each): (each.value or 0.0) - each.published.value for each in run}
    worst = max(run, key=lambda each: abs(off[id(each)]) / each.published.tolerance)
    exact, near, failed = (
        sum(each.verdict == verdict for each in run) for verdict in ("OK", "OKish", "FAIL")
    )
    beyond = f"; {near} within five times it" if near else ""
    beyond += f"; {failed} not" if failed else ""
    return Conclusion(
        f"{exact} of {len(run)} published scores are reproduced within their tolerance{beyond}. "
        f"The farthest is {worst.published.model} on {worst.published.task}: "
        f"{off[id(worst)]:+.4f}, tolerance {worst.published.tolerance:g}.{left}"
    )
