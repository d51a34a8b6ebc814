"""The page of one model: plan, results, means, checks, provenance and figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.answers.all_results import Summary
from qwen3nb.metrics.intervals import few_queries_sentence, interval_words
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest
from qwen3nb.records.store import _USES
from qwen3nb.report.render.figure import COLORS, Figure, MplFigure, panels, plain
from qwen3nb.report.render.home import command_again, formula_link, record_link, task_anchor
from qwen3nb.report.render.table import MANY, Cell, Table, number, short_task

if TYPE_CHECKING:
    from qwen3nb.evaluation.mteb.costs import Planned
    from qwen3nb.evaluation.mteb.plan import Preflight


def results_table(results: Sequence[Result]) -> Table:
    """Return one model's results: a row per task and metric; for many tasks, main metrics only."""
    many = len(results) > MANY
    rows = [
        (result.task.key, name, number(value, strong=main), f"{value.n} {result.task.unit}")
        for result in sorted(results, key=lambda each: str(each.task.type) if many else "")
        for name, value in result.metrics.items()
        if (main := name == result.task.main_metric) or not many
    ]
    values = [value for result in results for value in result.metrics.values()]
    methods = interval_words(value.interval for value in values)
    few_queries = few_queries_sentence(values)
    return Table.of(
        rows,
        ("task", "metric", "value", "n"),
        note=f"Main metric in bold. Intervals: 95 %, {methods}, over n.{few_queries}",
        name="metrics",
        caption="Scores of every task, each with its 95 % interval.",
        data=DataUsed.of(results),
    )


def parts_table(results: Sequence[Result]) -> Table | None:
    """Return a row per split and subset of the tasks that have several, with its languages.

    The first score of a task is the mean over its parts, as reported by MTEB. None if every task
    has one subset and one split.
    """
    rows: list[Sequence[Any]] = []
    for result in (each for each in results if each.parts):
        task, whole = (result.task.key, result.task.main_metric), f"all {len(result.parts)}"
        score = number(result.main, strong=True)
        rows.append((task, whole, None, None, score, result.main.n))
        for part in result.parts:
            languages = ", ".join(part.languages) or "not recorded"
            rows.append((task, part.subset, part.split, languages, part.score, part.score.n))
    if not rows:
        return None
    return Table.of(
        rows,
        ("task\nmetric", "subset", "split", "languages", "value\n95 % interval", "n"),
        note="In bold: the value that MTEB reports, the mean over the parts. Queries are paired "
        "within one subset and split only.",
        name="parts",
        caption="Scores by language, subset and split.",
        data=DataUsed.of(each for each in results if each.parts),
    )


def _unsuited(preflight: Preflight) -> dict[str, list[str]]:
    """Return the tasks that the model does not support, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for task in preflight.planned:
        runs = task.status in ("to run", "there")
        if not runs and task.task not in preflight.left_out:
            by_reason.setdefault(task.status, []).append(task.task)
    return by_reason


def preflight_table(preflight: Preflight) -> Table:
    """Return the needs of a run compared with the machine, and the expected time."""
    left = sum(each.status == "to run" for each in preflight.planned)
    note = f"{left} of {len(preflight.planned)} tasks to run."
    note += "".join(f" Left out: {task} ({why})." for task, why in preflight.left_out.items())
    unreadable = preflight.unreadable
    if unreadable:
        count = f"{len(unreadable)} of {len(preflight.planned)} tasks cannot be run"
        note += f" {count}: {' '.join(unreadable.values())}."
    for reason, names in _unsuited(preflight).items():
        note += f" Left out: {names[0]}"
        if len(names) > 1:
            note += f" and {len(names) - 1:,} more"
        note += f" ({reason})."
    if preflight.minutes is not None:
        note += (
            f" They take about {preflight.minutes:,.0f} minutes here, from their sizes and the "
            "speed of short, medium and longest texts; less where vectors are stored."
        )
    return Table.of(
        (
            {
                "what": check.name,
                "needed": check.needed,
                "there": check.available,
                "verdict": ("FAILED" if check.problem else "PASSED", check.problem),
            }
            for check in preflight.checks
        ),
        note=note,
        name="preflight",
        caption="Needs of the run, compared with the machine.",
    )


def sweep_table(planned: Sequence[tuple[str, Preflight | str]]) -> Table:
    """Return the needs of runs by model, and their sums, from `plan_runs`."""
    rows = []
    for name in (*dict.fromkeys(name for name, _ in planned), "all"):
        own = [each for model, each in planned if name in (model, "all")]
        ready = [each for each in own if not isinstance(each, str)]
        memory, disk = ([each.checks[i].parts for each in ready] for i in (0, 1))
        most = max((sum(each.values()) for each in memory), default=0)
        vectors = sum(each["vectors"] for each in disk)
        gone = dict.fromkeys(task for each in ready for task in each.left_out)
        shared = max((sum(each.values()) - each["vectors"] for each in disk), default=0)
        rows.append(
            {
                "model": Cell(name, strong=name == "all"),
                "GPU hours": f"{sum(each.hours[0] for each in ready):,.1f}",
                "CPU hours": f"{sum(each.hours[1] for each in ready):,.1f}",
                "GB of memory\nof a run": f"{most / 1e9:,.1f}",
                "GB of disk\nof vectors": (
                    f"{(vectors + shared) / 1e9:,.1f}",
                    f"{vectors / 1e9:,.1f}",
                ),
                "problem": next(
                    (each for each in own if isinstance(each, str)),
                    f"left out: {', '.join(gone)}; too little memory" if gone else None,
                ),
            }
        )
    return Table.of(
        rows,
        note="As if no record or vector were stored; tasks of unknown size are left out. Prepared "
        "data and indexes of BM25, which models share, count once.",
        name="sweep",
        caption="Needs of the runs by model.",
    )


def plan_by_type_table(planned: Sequence[Planned]) -> Table:
    """Return the plan of a run by type of task, with its totals."""
    rows = []
    for name in (*sorted({each.type for each in planned}), "all"):
        own = [each for each in planned if name in (each.type, "all")]
        known = [each.texts for each in own if each.texts is not None]
        unknown = len(own) - len(known)
        minutes = [each.minutes for each in own if each.minutes is not None]
        texts = f"{sum(known):,}" if known else "unknown"
        rows.append(
            {
                "MTEB type": Cell(name, strong=name == "all"),
                "tasks": len(own),
                "to run": sum(each.status == "to run" for each in own),
                "distinct texts": (texts, f"{unknown} unknown" * bool(unknown)),
                "minutes": f"{sum(minutes):,.1f}" if minutes else None,
            }
        )
    return Table.of(rows, name="plan-types", caption="The plan of the run by type of task.")


def provenance_table(results: Sequence[Result]) -> Table:
    """Return the provenance of scores: a row per record, with the anchor for links."""
    several = len({(each.model.identity, each.seed) for each in results}) > 1
    taken, rows = set[str](), []
    for result in results:
        task, metric = result.task, result.task.main_metric
        anchor = task_anchor(task.key)
        anchor = f"{anchor}-{result.model.identity[:8]}" if anchor in taken else anchor
        taken.add(anchor)
        detail = f"{result.model.label}; " * several + f"{task.dataset} at {task.revision[:12]}"
        rows.append(
            {
                "score\nits data": Cell(task.key, detail, id=anchor),
                "metric\nits formula": Cell(metric, link=formula_link(metric)),
                "value": result.main,
                "scores\nfile": Cell(f"{result.main.n} {task.unit}", link=record_link(result)),
                "make it again": Cell(command_again(result), code=True),
            }
        )
    return Table.of(
        rows,
        note="The file is the record, with the score of every query. The command measures again, "
        "into a separate folder.",
        empty="No records.",
        kind="words",
        name="provenance",
        caption="Provenance of these numbers, a row per score.",
        data=DataUsed.of(results),
    )


def model_and_run_table(results: Sequence[Result]) -> Table:
    """Return the identity of one model, and the run and software that measured it."""
    if not results:
        return Table(("what", "value"), (), kind="facts")
    last = newest(results)
    model, settings, environment = last.model, last.model.settings, last.environment
    encoded = sum(result.cost.encoded for result in results)
    cached = sum(result.cost.cached for result in results)
    command = "" if last.search.first is not None else command_again(last, whole=True)
    again = {"make it again": Cell(command, code=True)} if command else {}
    stated = str(settings.get("fingerprint", "")).partition(",")[0]  # "none" without one
    facts = {
        "model": model.label,
        "identity (SHA-256)": model.identity,
        **({"content": f"cannot be verified; version by its user: {stated}"} if stated else {}),
        "spec": model.spec,
        "parameters": f"{model.parameters:,}" if model.parameters else "",
        **{key: str(settings[key]) for key in _USES if key in settings},
        "seed": last.seed,
        ("pairs" if "template" in settings else "vectors"): f"{encoded:,} computed, {cached:,} "
        "from the cache",
        **again,
        "run": last.run,
        "finished (UTC)": last.finished,
        "device": f"{environment.device}, {environment.precision}",
        **({"linear layers": environment.linear} if environment.linear else {}),
        "Python": environment.python,
        **environment.versions,
    }
    for task in (each.task for each in results if each.task.counts):
        counts = (f"{name}: {count:,}" for name, count in task.counts.items())
        facts[f"data of {task.key}"] = "; ".join(counts)
    return Table.of(
        ((name, "none" if value == "" else value) for name, value in facts.items()),
        ("what", "value"),
        kind="facts",
        name="model-and-run",
        caption=f"{model.label} and the software that measured it.",
    )


def suite_table(summary: Summary) -> Table:
    """Return the means: a row per benchmark or type; the note lists what is missing."""
    gone = "; ".join(f"{name} ({reason})" for name, reason in sorted(summary.missing.items()))
    rows: list[Sequence[Any]] = []
    for mean in summary.means:
        tasks = f"{mean.measured} of {mean.column.tasks}" if mean.missing else mean.column.tasks
        value = Cell("incomplete", "; ".join(mean.gaps) if len(mean.gaps) < 3 else "")
        if mean.value is not None:
            value = replace(number(mean.value, interval=mean.interval), text=f"{mean.value:.4f}")
        rows.append((mean.column.name, mean.column.measure, tasks, value))
    apart = ""
    if not summary.means:
        values = [(kind, summary.tasks[kind], summary.by_type.get(kind)) for kind in summary.tasks]
        if len(summary.metrics) > 1:
            apart = f" Unlike metrics are not averaged: {', '.join(summary.metrics)}."
        else:
            values.append(("mean over tasks", sum(summary.tasks.values()), summary.over_tasks))
            values.append(("mean over types", len(summary.by_type), summary.over_types))
        for name, n, score in values:
            rows.append((name, "main score", n, number(score, ".4f", absent="undefined")))
    return Table.of(
        rows,
        ("mean", "metric", "tasks", "value\n95 % interval"),
        note=f"Missing: {gone or 'nothing'}. A mean of a benchmark needs a score on every task. "
        "Where it averages several metrics, it is MTEB's mean. Another mean only compares models "
        f"on exactly the same tasks.{apart}",
        name="means",
        caption=f"Means of {summary.label} over benchmarks and types of task.",
        data=summary.data,
    )


def per_query_figure(results: Sequence[Result], *, metric: str = "nDCG@10") -> Figure | None:
    """Draw the distribution of a retrieval metric over queries, a panel per task.

    The metric is between 0 and 1. Only the tasks with most queries are shown. None if no record has
    the metric per query.
    """
    every = [result for result in results if metric in result.per_query]
    if not every:
        return None
    largest = sorted(every, key=lambda each: -each.scores.counts[metric])[:MANY]
    scores = [(r.task.key, list(r.per_query[metric].values())) for r in every if r in largest]
    means = ", ".join(
        f"{short_task(task)} mean {np.mean(values):.3f}, n = {len(values)}"
        for task, values in scores
    )
    return Figure(
        name="per-query",
        draw=lambda width: _per_query(scores, metric, width),
        caption=f"Queries by their {metric}: {means}. Peaks at both ends: the model either "
        "finds the document or misses it; a peak in the middle: it finds it, but ranks it low."
        f" Tasks with fewer queries that are not shown: {len(every) - len(scores)}.",
        alt=f"Histograms of {metric} over queries: {means}.",
        data=DataUsed.of(result for result in every if result in largest),
        columns=2 if len(scores) > 1 else 1,
    )


def _per_query(scores: Sequence[tuple[str, list[float]]], metric: str, width: float) -> MplFigure:
    figure, axes, _ = panels(len(scores), width, height=1.9, sharey=True)
    for axis, (task, values) in zip(axes, scores, strict=True):
        axis.hist(values, bins=np.linspace(0, 1, 21).tolist(), color=COLORS[0])
        mean = float(np.mean(values))
        axis.axvline(mean, color=COLORS[1], linewidth=1.5)
        axis.set_title(f"{plain(short_task(task))}\nmean {mean:.3f}, n = {len(values)}")
        axis.set_xlabel(f"{metric} of a query")
        axis.set_ylabel("queries")
        axis.label_outer()
    return figure
