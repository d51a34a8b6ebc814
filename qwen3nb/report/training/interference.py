"""Report, tables and figure of task interference, the cost of joint training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3nb import paths
from qwen3nb.analysis.inventory.collect import Collection, load_all_results
from qwen3nb.analysis.inventory.score import Score
from qwen3nb.analysis.inventory.training_logs import find_outputs
from qwen3nb.analysis.training.configuration_tests import (
    ConfigurationDifference,
    configuration_differences,
)
from qwen3nb.analysis.training.interference import DEFINITION, Interference, interference
from qwen3nb.analysis.training.match_runs import REQUIRED
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.figure import COLORS, GREY, SMALL, Figure, plain
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.table import Table
from qwen3nb.report.training.configurations import (
    configuration_differences_table,
    configurations_table,
)
from qwen3nb.utils.format import number_text, percent_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.analysis.training.tir_estimate import Estimate, Gate

__all__ = [
    "InterferenceReport",
    "interference_figure",
    "interference_report",
    "interference_seeds_table",
    "interference_table",
    "refusals_table",
]

TASK_STEPS = (*(name for name in REQUIRED if name != "steps"), "task_steps")


@dataclass(frozen=True)
class InterferenceReport:
    """Interference of the trained adapters, with the scores it is estimated from.

    Attributes:
        interference: estimates and verdicts.
        folders: folders that were searched for results.
        runs: number of trained adapters with scores.
        flags: anomalies in their files.
        scores: of the trained adapters.
        differences: between configurations, tested.
        requested: whether the comparison by steps on the task was requested.
    """

    interference: Interference
    folders: tuple[str, ...]
    runs: int
    flags: tuple[str, ...]
    scores: tuple[Score, ...] = ()
    differences: tuple[ConfigurationDifference, ...] = ()
    requested: bool = False

    @property
    def hint(self) -> str:
        """How refused pairs could be compared, or empty."""
        lines = [line for group in self.interference.groups for line in group.refused]
        if lines and all("optimiser steps" in line for line in lines):
            return (
                "All refused pairs differ in optimiser steps, and in the steps spent on the task "
                "or those are unknown; train both for the same number, or log the task of each "
                "step."
            )
        if self.interference.required == TASK_STEPS and not self.requested:
            return (
                "No two runs have the same optimiser steps, so runs are compared that spent the "
                "same steps on the task: a joint run takes steps on the other task besides "
                "(--task-steps; papermill: task_steps)."
            )
        return ""

    def to_markdown(self) -> str:
        """As Markdown: verdicts, rule, tables, and what is missing."""
        estimates = self.interference
        parts = [
            "# Task interference",
            DEFINITION,
            estimates.gate.text,
            f"Compared: same seed, and the same {', '.join(estimates.required)}.",
            f"**{verdict_words(estimates)}**",
            interference_table(self, rule=False).to_markdown(),
            "## Configurations",
            configurations_table(self.scores).to_markdown(),
            "## Differences between configurations",
            configuration_differences_table(self.differences).to_markdown(),
            "## By seed",
            interference_seeds_table(self).to_markdown(),
            "## Refused, missing, to be checked",
            refusals_table(self).to_markdown(),
        ]
        return "\n\n".join(parts) + "\n"


def interference_report(
    outputs: Path | str | Sequence[Path | str] = "",
    *,
    task_steps: bool = False,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> InterferenceReport:
    """Read folders of trainings and compare each joint adapter with its specialists.

    Args:
        outputs: one or more folders of ``<configuration>/seed_<n>``; by default all below
            `paths.runs`, and our own records in `paths.results`.
        task_steps: require the steps spent on the task to agree, instead of all steps. This is
            also done, and said, if every pair is refused for its optimiser steps alone.
        n_resamples: number of sign flips in the tests between configurations.
        seed: of the sign flips.

    Raises:
        FileNotFoundError: a folder in ``outputs`` does not exist.
    """
    folders = _folders(outputs)
    collection = load_all_results(folders) if folders else Collection(())
    scores = _trained(collection)
    sources = {score.source for score in scores}
    named = bool(outputs)
    flags = [
        f"{flag.kind}: {flag.text}"
        for flag in collection.flags
        if named or sources.intersection(flag.files)
    ]
    required = TASK_STEPS if task_steps else REQUIRED
    estimates = interference(scores, required=required)
    if not task_steps and _differ_in_steps(estimates):
        fair = interference(scores, required=TASK_STEPS)
        paired = any(each.tir is not None for group in fair.groups for each in group.tasks)
        estimates = fair if paired else estimates
    runs = len({(score.system, score.seed) for score in scores})
    differences = configuration_differences(scores, draws=n_resamples, seed=seed)
    return InterferenceReport(
        interference=estimates,
        folders=tuple(map(paths.shown, folders)),
        runs=runs,
        flags=tuple(flags),
        scores=tuple(scores),
        differences=tuple(differences),
        requested=task_steps,
    )


def _differ_in_steps(estimates: Interference) -> bool:
    """Whether there are pairs, and all are refused for their optimiser steps."""
    lines = [line for group in estimates.groups for line in group.refused]
    paired = any(each.tir is not None for group in estimates.groups for each in group.tasks)
    return not paired and bool(lines) and all("optimiser steps" in line for line in lines)


def _trained(collection: Collection) -> list[Score]:
    return [score for score in collection.scores if "mode" in score.facts]


def _folders(outputs: Path | str | Sequence[Path | str]) -> list[Path]:
    if isinstance(outputs, str | Path) and str(outputs):
        return [Path(outputs).expanduser()]
    if not isinstance(outputs, str | Path) and outputs:
        return [Path(each).expanduser() for each in outputs]
    own = [paths.results()] if paths.results().is_dir() else []
    return find_outputs(paths.runs()) + own


def _rows(report: InterferenceReport) -> Iterator[tuple[str, Estimate]]:
    """Yield the estimates of data sets, tasks and means with unique names.

    A task with a single data set has one row, not two equal ones.
    """
    several = len(report.interference.groups) > 1
    for group in report.interference.groups:
        prefix = f"{group.system}: " if several else ""
        sizes = Counter(each.name.partition(": ")[0] for each in group.datasets)
        tasks = [each for each in group.tasks if sizes[each.name] != 1]
        for each in (*group.datasets, *tasks, group.overall):
            if each.tir is not None or each is group.overall:
                kind, colon, dataset = each.name.partition(": ")
                yield f"{prefix}{kind}{colon}{short_task(dataset)}", each


def verdict_words(estimates: Interference) -> str:
    """Both verdicts: that by evidence, which counts, and that of the rule by point."""
    return (
        f"By evidence: {estimates.verdict()}. "
        f"By point, the rule on the mean alone: {estimates.verdict(by='point')}."
    )


def interference_table(report: InterferenceReport, *, rule: bool = True) -> Table:
    """TIR with standard deviation, interval and both verdicts.

    Rows are data sets, tasks, and their mean.

    Args:
        report: from `interference_report`.
        rule: whether to state the gate's rule in the note.
    """
    level = 100 * report.interference.level
    columns = (
        "task\nseeds", "by evidence\nby point", f"TIR in %, ± std\n{level:g} % interval",
        "specialist\n− joint",
    )  # fmt: skip
    caption = (
        "Task interference ratio (TIR), the share of the specialist's score that joint training "
        "loses, and the kill gate's verdicts by evidence and by point."
    )
    rows = tuple(_row(name, each) for name, each in _rows(report))
    return Table(columns, rows, _note(report, rule=rule), name="interference", caption=caption)


def _row(name: str, each: Estimate) -> tuple[Cell, ...]:
    spread = "" if each.std is None else f" ± {_percent(each.std, sign=False)}"
    error = "" if each.delta_std is None else f"± {each.delta_std:.4f}"
    overall = each.name == "overall"
    return (
        Cell(name, ", ".join(map(str, each.seeds))),
        Cell(each.by_evidence, each.by_point, strong=overall),
        Cell(
            _percent(each.tir) + spread,
            _percents(each.interval),
            value=each.tir,
            interval=each.interval,
        ),
        Cell(number_text(each.delta, sign=True, digits=4), error, value=each.delta),
    )


def _percent(share: float | None, *, sign: bool = True) -> str:
    return number_text(None if share is None else 100 * share, sign=sign, digits=2)


def _percents(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"[{_percent(interval[0])}, {_percent(interval[1])}]"


def _note(report: InterferenceReport, *, rule: bool) -> str:
    if not report.runs:
        where = ", ".join(report.folders) or paths.shown(paths.runs())
        return f"No results of trained adapters in {where}."
    if not report.interference.groups:
        return f"{report.runs} adapters, none of them joint: nothing to compare."
    methods = dict.fromkeys(each.method for _, each in _rows(report) if each.tir is not None)
    shown_methods = "; ".join(methods) or "none, as no pair is comparable"
    text = "Negative where the joint model is better; ± shows the variance between trainings. "
    text += f"Intervals: {shown_methods}."
    return f"{text} {report.interference.gate.text}" if rule else text


def interference_seeds_table(report: InterferenceReport) -> Table:
    """A row per data set and seed: both scores, their difference, and the TIR."""
    rows = []
    for name, each in _rows(report):
        if not each.specialists:
            continue
        for seed, ours, joint, delta, tir in zip(
            each.seeds, each.specialists, each.joints, each.deltas, each.tirs, strict=True
        ):
            rows.append(
                (
                    Cell(name),
                    Cell(str(seed)),
                    Cell(f"{ours:.4f}", value=ours),
                    Cell(f"{joint:.4f}", value=joint),
                    Cell(f"{delta:+.4f}", value=delta),
                    Cell("–", "the specialist scores 0")
                    if tir is None
                    else Cell(percent_text(tir), value=tir),
                )
            )
    return Table(
        ("task", "seed", "specialist", "joint", "specialist − joint", "TIR"),
        tuple(rows),
        "" if rows else "No pair of runs is comparable.",
        name="interference-seeds",
        caption="Scores of the specialist and the joint adapter of each seed, and the share lost.",
    )


def refusals_table(report: InterferenceReport) -> Table:
    """Refused pairs, missing runs, anomalies and caveats."""
    estimates = report.interference
    rows = []
    for group in estimates.groups:
        rows += [("refused", line) for line in group.refused]
        rows += [("missing", line) for line in group.missing]
        for each in (*group.tasks, group.overall):
            rows += [("note", f"{each.name}: {note}") for note in each.notes]
    rows += [("missing", line) for line in estimates.missing]
    rows += [("check", line) for line in report.flags]
    if report.hint:
        rows.append(("note", report.hint))
    cells = tuple((Cell(kind), Cell(text)) for kind, text in dict.fromkeys(rows))
    note = "Nothing was refused or is missing." if report.runs else "No adapter was found."
    note = "" if rows else note
    return Table(
        ("kind", "what"),
        cells,
        note,
        kind="words",
        name="refusals",
        caption="Pairs that were not compared, missing runs, and caveats.",
    )


def interference_figure(report: InterferenceReport) -> Figure | None:
    """A forest plot of the TIR over the gate's bands; None if no pair is comparable.

    Lines are intervals, rings single seeds. Intervals that exceed the axis end in an arrow.
    """
    rows = [(name, each) for name, each in _rows(report) if each.tir is not None]
    if not rows:
        return None
    words = "; ".join(f"{name}: {_percent(each.tir)} %, {each.by_evidence}" for name, each in rows)
    return Figure(
        name="interference",
        draw=lambda width: _draw(rows, report.interference.gate, width),
        caption="Task interference ratio (TIR): the share of the specialist's score that joint "
        "training loses. Diamonds: mean over seeds; rings: single seeds; lines: 95 % interval over "
        "seeds and, where per-query scores are stored, queries, with an arrow where it exceeds the "
        "axis. Shaded: the bands of the kill gate.",
        alt=f"Forest plot of the task interference ratio. {words}.",
    )


def _draw(rows: Sequence[tuple[str, Estimate]], gate: Gate, width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    low, high = _limits([each for _, each in rows], gate)
    figure, axis = plt.subplots(figsize=(width, 0.24 * len(rows) + 1.0))
    axis.set_xlim(low, high)
    _bands(axis, gate, low, high)
    for row, (_, each) in enumerate(reversed(rows)):
        color = COLORS[1] if each.name == "overall" else COLORS[0]
        _span(axis, row, each.interval, low, high, color=color)
        single = [100 * tir for tir in each.tirs if tir is not None]
        axis.plot(single, [row] * len(single), "o", mfc="none", mec=color, markersize=4)
        axis.plot([100 * (each.tir or 0.0)], [row], "D", color=color, markersize=4.5)
    axis.set_yticks(range(len(rows)), [plain(name, most=40) for name, _ in reversed(rows)])
    axis.set_ylim(-0.6, len(rows) - 0.3)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("TIR in %")
    return figure


def _limits(rows: Sequence[Estimate], gate: Gate) -> tuple[float, float]:
    """Limits of the axis in %: points and gate; of intervals, what is near the points."""
    values = [0.0, gate.pass_at, gate.fail_below, 2 * gate.pass_at - gate.fail_below]
    values += [tir for each in rows for tir in each.tirs if tir is not None]
    room = max(values) - min(values)
    least, most = min(values) - room, max(values) + room
    values += [min(max(end, least), most) for each in rows for end in each.interval or ()]
    low, high = 100 * min(values), 100 * max(values)
    room = max(0.08 * (high - low), 0.5)
    return low - room, high + room


def _bands(axis: Axes, gate: Gate, low: float, high: float) -> None:
    ends = (high, 100 * gate.pass_at, 100 * gate.fail_below, low)
    for name, color, right, left in zip(
        ("PASS", "MARGINAL", "FAIL"), (COLORS[2], COLORS[4], GREY), ends[:3], ends[1:], strict=True
    ):
        axis.axvspan(left, right, color=color, alpha=0.13, linewidth=0)
        narrow = right - left < 0.12 * (high - low)
        axis.annotate(
            name, ((left + right) / 2, 1.01), xycoords=("data", "axes fraction"), ha="center",
            va="bottom", fontsize=SMALL, color=color, rotation=90 if narrow else 0,
        )  # fmt: skip
    axis.axvline(0, color=GREY, linewidth=1)


def _span(
    axis: Axes, row: int, interval: tuple[float, float] | None, low: float, high: float,
    *, color: str,
) -> None:  # fmt: skip
    if interval is None:
        return
    left, right = 100 * interval[0], 100 * interval[1]
    ends = [max(left, low), min(right, high)]
    axis.plot(ends, [row, row], color=color, linewidth=2, solid_capstyle="butt")
    if left < low:
        axis.plot([low], [row], "<", color=color, markersize=5, clip_on=False)
    if right > high:
        axis.plot([high], [row], ">", color=color, markersize=5, clip_on=False)
