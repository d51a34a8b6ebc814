"""The page of task interference: what joint training costs, and the trained configurations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from qwen3nb import paths
from qwen3nb.analysis.comparison.differences import ALPHA, significant
from qwen3nb.analysis.inventory.collect import Collection, Score, load_all_results
from qwen3nb.analysis.inventory.training_logs import find_outputs
from qwen3nb.analysis.training.interference import (
    DEFINITION,
    QUERIES,
    REQUIRED,
    ConfigurationDifference,
    Estimate,
    Gate,
    Interference,
    configuration_differences,
    interference,
    seeds_needed,
)
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.render.cell import Cell, number
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import COLORS, GREY, SMALL, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.format import plural, short_task
from qwen3nb.report.render.model_styles import model_colors
from qwen3nb.report.render.table import Table
from qwen3nb.report.training.trainings import conflict_figure, loss_figure, read_trainings
from qwen3nb.utils.format import json_text, number_text, p_value_text, percent_text
from qwen3nb.utils.markdown import escaped
from qwen3nb.utils.secrets import write_public

if TYPE_CHECKING:
    from pandas import DataFrame

_TASK_STEPS = (*(name for name in REQUIRED if name != "steps"), "task_steps")
_Task = tuple[str, str, str]  # kind, data set and metric


@dataclass(frozen=True)
class InterferenceReport:
    """Interference of the trained adapters, with the scores it is estimated from."""

    interference: Interference  # estimates and verdicts
    folders: tuple[str, ...]  # folders that were searched for results
    runs: int  # number of trained adapters with scores
    flags: tuple[str, ...]  # anomalies in their files
    scores: tuple[Score, ...] = ()  # of the trained adapters
    differences: tuple[ConfigurationDifference, ...] = ()  # between configurations, tested
    requested: bool = False  # whether the comparison by steps on the task was requested

    @property
    def hint(self) -> str:
        """How refused pairs could be compared, or empty."""
        if _refused_for_steps(self.interference):
            return (
                "All refused pairs differ in optimiser steps, and in the steps spent on the task "
                "or those are unknown; train both for the same number, or log the task of each "
                "step."
            )
        if self.interference.required == _TASK_STEPS and not self.requested:
            return (
                "No two runs have the same optimiser steps, so runs are compared that spent the "
                "same steps on the task: a joint run takes steps on the other task besides "
                "(--task-steps; papermill: task_steps)."
            )
        return ""

    def estimates(self) -> Iterator[tuple[str, Estimate]]:
        """Yield the estimates of data sets, tasks and means with unique names.

        A task with a single data set has one row, not two equal ones.
        """
        groups = self.interference.groups
        for group in groups:
            prefix = f"{group.system}: " if len(groups) > 1 else ""
            sizes = Counter(each.name.partition(": ")[0] for each in group.datasets)
            tasks = [each for each in group.tasks if sizes[each.name] != 1]
            for each in (*group.datasets, *tasks, group.overall):
                if each.tir is not None or each is group.overall:
                    kind, colon, dataset = each.name.partition(": ")
                    yield f"{prefix}{kind}{colon}{short_task(dataset)}", each

    def to_frame(self) -> DataFrame:
        """Return a row per task, configuration and seed: the metric and its score."""
        from pandas import DataFrame

        rows = [
            (f"{kind}: {short_task(name)}", metric, system, seed, value)
            for (system, (kind, name, metric)), seeds in _by_seed(self.scores).items()
            for seed, value in seeds.items()
        ]
        columns = ["task", "metric", "configuration", "seed", "score"]
        return DataFrame(rows, columns=columns).sort_values(columns[:4], ignore_index=True)

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

    def to_json(self) -> str:
        """As strict JSON: verdicts, estimates, differences, and what is missing."""
        estimates = self.interference
        verdict = {f"by_{by}": estimates.verdict(by=by) for by in ("evidence", "point")}
        return json_text(
            {
                "verdict": verdict,
                "rule": estimates.gate.text,
                "interference": estimates,
                "differences": self.differences,
                "folders": list(self.folders),
                "adapters": self.runs,
                "flags": list(self.flags),
                "hint": self.hint,
            }
        )


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
    given = [outputs] if isinstance(outputs, str | Path) else outputs
    named = [Path(each).expanduser() for each in given if str(each)]
    folders = named or find_outputs(paths.runs()) + [paths.results()] * paths.results().is_dir()
    collection = load_all_results(folders) if folders else Collection(())
    scores = [score for score in collection.scores if "mode" in score.facts]
    sources = {score.source for score in scores}
    estimates = interference(scores, required=_TASK_STEPS if task_steps else REQUIRED)
    if _refused_for_steps(estimates) and not task_steps and not _paired(estimates):
        fair = interference(scores, required=_TASK_STEPS)
        estimates = fair if _paired(fair) else estimates
    return InterferenceReport(
        interference=estimates,
        folders=tuple(map(paths.shown, folders)),
        runs=len({(score.system, score.seed) for score in scores}),
        flags=tuple(
            f"{flag.kind}: {flag.text}"
            for flag in collection.flags
            if named or sources.intersection(flag.files)
        ),
        scores=tuple(scores),
        differences=tuple(configuration_differences(scores, draws=n_resamples, seed=seed)),
        requested=task_steps,
    )


def _refused_for_steps(estimates: Interference) -> bool:
    """Whether pairs were refused, each of them for its optimiser steps."""
    lines = [line for group in estimates.groups for line in group.refused]
    return bool(lines) and all("optimiser steps" in line for line in lines)


def _paired(estimates: Interference) -> bool:
    return any(each.tir is not None for group in estimates.groups for each in group.tasks)


def verdict_words(estimates: Interference) -> str:
    """Both verdicts: that by evidence, which counts, and that of the rule by point."""
    return (
        f"By evidence: {estimates.verdict()}. "
        f"By point, the rule on the mean alone: {estimates.verdict(by='point')}."
    )


def write_interference(report: InterferenceReport, folder: Path, *, outputs: Path) -> list[Path]:
    """Write ``interference.md``, ``interference.json``, figures and LaTeX tables.

    Args:
        report: from `interference_report`.
        folder: where to write; created if it does not exist.
        outputs: folder of the trainings, for their losses and gradient conflicts.

    Returns:
        The files written.
    """
    trainings = read_trainings([], outputs=outputs, adapters_only=True)
    of_scores = (configurations_figure(report.scores), interference_figure(report))
    of_trainings = (loss_figure(trainings), conflict_figure(trainings))
    figures = [figure for figure in (*of_scores, *of_trainings) if figure is not None]
    tables = (
        interference_table(report),
        configurations_table(report.scores),
        configuration_differences_table(report.differences),
    )
    folder.mkdir(parents=True, exist_ok=True)
    shown = [f"\n![{f.name}]({f.name}.svg)\n\n{escaped(f.caption)}\n" for f in figures]
    return [
        write_public(folder / "interference.md", report.to_markdown() + "".join(shown)),
        write_public(folder / "interference.json", report.to_json()),
        *(write_public(folder / f"{t.name}.tex", t.to_latex()) for t in tables if t.rows),
        *(f.save(folder / f"{f.name}.{ending}") for f in figures for ending in ("svg", "pdf")),
    ]


def interference_table(report: InterferenceReport, *, rule: bool = True) -> Table:
    """TIR with standard deviation, interval and both verdicts.

    Rows are data sets, tasks, and their mean.

    Args:
        report: from `interference_report`.
        rule: whether to state the gate's rule in the note.
    """
    rows = []
    for name, each in report.estimates():
        spread = "" if each.std is None else f" ± {_percent(each.std, sign=False)}"
        ends = "–" if each.interval is None else "[{}, {}]".format(*map(_percent, each.interval))
        within = "" if each.delta_std is None else f"± {each.delta_std:.4f}"
        task = (name, ", ".join(map(str, each.seeds)))
        verdicts = Cell(each.by_evidence, each.by_point, strong=each.name == "overall")
        tir = Cell(_percent(each.tir) + spread, ends, value=each.tir, interval=each.interval)
        rows.append((task, verdicts, tir, number(each.delta, "+.4f", detail=within)))
    interval = f"TIR in %, ± std\n{100 * report.interference.level:g} % interval"
    methods = dict.fromkeys(each.method for _, each in report.estimates() if each.tir is not None)
    note = (
        "Negative where the joint model is better; ± shows the variance between trainings. "
        f"Intervals: {'; '.join(methods) or 'none, as no pair is comparable'}."
        + (f" {report.interference.gate.text}" if rule else "")
    )
    if not report.runs:
        where = ", ".join(report.folders) or paths.shown(paths.runs())
        note = f"No results of trained adapters in {where}."
    elif not report.interference.groups:
        note = f"{report.runs} adapters, none of them joint: nothing to compare."
    return Table.of(
        rows,
        ("task\nseeds", "by evidence\nby point", interval, "specialist\n− joint"),
        note=note,
        name="interference",
        caption="Task interference ratio (TIR), the share of the specialist's score that joint "
        "training loses, and the kill gate's verdicts by evidence and by point.",
    )


def _percent(share: float | None, *, sign: bool = True, digits: int = 2) -> str:
    return number_text(None if share is None else 100 * share, sign=sign, digits=digits)


def interference_seeds_table(report: InterferenceReport) -> Table:
    """A row per data set and seed: both scores, their difference, and the TIR."""
    rows = [
        (
            name,
            str(seed),
            number(ours, ".4f"),
            number(joint, ".4f"),
            number(delta, "+.4f"),
            (None, "the specialist scores 0")
            if tir is None
            else Cell(percent_text(tir), value=tir),
        )
        for name, each in report.estimates()
        if each.specialists
        for seed, ours, joint, delta, tir in zip(
            each.seeds, each.specialists, each.joints, each.deltas, each.tirs, strict=True
        )
    ]
    return Table.of(
        rows,
        ("task", "seed", "specialist", "joint", "specialist − joint", "TIR"),
        empty="No pair of runs is comparable.",
        name="interference-seeds",
        caption="Scores of the specialist and the joint adapter of each seed, and the share lost.",
    )


def refusals_table(report: InterferenceReport) -> Table:
    """Refused pairs, missing runs, anomalies and caveats."""
    rows = []
    for group in report.interference.groups:
        rows += [("refused", line) for line in group.refused]
        rows += [("missing", line) for line in group.missing]
        for each in (*group.tasks, group.overall):
            rows += [("note", f"{each.name}: {note}") for note in each.notes]
    rows += [("missing", line) for line in report.interference.missing]
    rows += [("check", line) for line in report.flags]
    rows += [("note", report.hint)] * bool(report.hint)
    return Table.of(
        dict.fromkeys(rows),
        ("kind", "what"),
        empty="Nothing was refused or is missing." if report.runs else "No adapter was found.",
        kind="words",
        name="refusals",
        caption="Pairs that were not compared, missing runs, and caveats.",
    )


def interference_figure(report: InterferenceReport) -> Figure | None:
    """A forest plot of the TIR over the gate's bands; None if no pair is comparable.

    Lines are intervals, rings single seeds. Intervals that exceed the axis end in an arrow.
    """
    rows = [(name, each) for name, each in report.estimates() if each.tir is not None]
    if not rows:
        return None
    gate = report.interference.gate

    def draw(width: float) -> MplFigure:
        low, high = _limits([each for _, each in rows], gate)
        figure, (axis,), _ = panels(1, width, height=0.24 * len(rows) + 1.0)
        axis.set_xlim(low, high)
        for name, color, left, right in (
            ("PASS", COLORS[2], 100 * gate.pass_at, high),
            ("MARGINAL", COLORS[4], 100 * gate.fail_below, 100 * gate.pass_at),
            ("FAIL", GREY, low, 100 * gate.fail_below),
        ):
            axis.axvspan(left, right, color=color, alpha=0.13, linewidth=0)
            look: dict[str, Any] = {"fontsize": SMALL, "color": color, "ha": "center"}
            look |= {"va": "bottom", "rotation": 90 * (right - left < 0.12 * (high - low))}
            at = ((left + right) / 2, 1.01)
            axis.annotate(name, at, xycoords=("data", "axes fraction"), **look)
        axis.axvline(0, color=GREY, linewidth=1)
        for row, (_, each) in enumerate(reversed(rows)):
            color = COLORS[1] if each.name == "overall" else COLORS[0]
            if each.interval:
                left, right = (100 * end for end in each.interval)
                ends = [max(left, low), min(right, high)]
                axis.plot(ends, [row, row], color=color, linewidth=2, solid_capstyle="butt")
                for beyond, end, arrow in ((left < low, low, "<"), (right > high, high, ">")):
                    if beyond:
                        axis.plot([end], [row], arrow, color=color, markersize=5, clip_on=False)
            single = [100 * tir for tir in each.tirs if tir is not None]
            axis.plot(single, [row] * len(single), "o", mfc="none", mec=color, markersize=4)
            axis.plot([100 * (each.tir or 0.0)], [row], "D", color=color, markersize=4.5)
        axis.set_yticks(range(len(rows)), [plain(name, most=40) for name, _ in reversed(rows)])
        axis.set_ylim(-0.6, len(rows) - 0.3)
        axis.tick_params(axis="y", length=0)
        axis.set_xlabel("TIR in %")
        return figure

    words = "; ".join(f"{name}: {_percent(each.tir)} %, {each.by_evidence}" for name, each in rows)
    return Figure(
        name="interference",
        draw=draw,
        caption="Task interference ratio (TIR): the share of the specialist's score that joint "
        "training loses. Diamonds: mean over seeds; rings: single seeds; lines: 95 % interval over "
        "seeds and, where per-query scores are stored, queries, with an arrow where it exceeds the "
        "axis. Shaded: the bands of the kill gate.",
        alt=f"Forest plot of the task interference ratio. {words}.",
    )


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


def interference_conclusion(report: InterferenceReport) -> Conclusion:
    """Say what joint training costs, and what the kill gate's words mean.

    The first sentence is the finding, and can stand alone. Of several joint configurations, it is
    about the one that costs most.
    """
    gate = report.interference.gate
    groups = [group for group in report.interference.groups if group.overall.tir is not None]
    if not groups:
        return Conclusion(_no_result(report))
    worst = max(groups, key=lambda group: group.overall.tir or 0.0)
    each = worst.overall
    several = f" (the worst of {len(groups)} configurations, {worst.system})"
    left_out = "; ".join(note for note in each.notes if note.startswith("without "))
    return Conclusion(
        f"Joint training{several if len(groups) > 1 else ''} {_cost(each, gate)}. "
        + _gate_words(each, gate)
        + (f" This is {left_out}." if left_out else "")
    )


def _no_result(report: InterferenceReport) -> str:
    unknown = "so the cost of joint training is unknown."
    if not report.runs:
        return f"No trained adapters have been evaluated, {unknown}"
    if not report.interference.groups:
        return f"None of the {report.runs} adapters was trained jointly, {unknown}"
    refused = sum(len(group.refused) for group in report.interference.groups)
    why = f": {refused} pair{'s were' if refused > 1 else ' was'} refused" if refused else ""
    return f"No joint adapter can be compared with its specialist{why}. {report.hint}".rstrip()


def _cost(each: Estimate, gate: Gate) -> str:
    """What follows "Joint training": the cost in words, the TIR, its interval and the seeds."""
    tir, count = each.tir or 0.0, len(each.seeds)
    shown = [_percent(value, sign=False, digits=1) for value in (tir, *(each.interval or ()))]
    ends = f" [{', '.join(shown[1:])}]" if each.interval else ""
    low, high = each.interval if each.interval and count > 1 else (-math.inf, math.inf)
    words = "is not shown to cost anything"
    if low > 0:
        much = f"costs {shown[0]} % of the specialist's score"
        words = much if tir >= gate.pass_at else "costs a little"
    elif high < 0:
        words = "costs nothing, it helps"
    elif high < gate.fail_below:
        words = "costs nothing measurable"
    return f"{words}: TIR {shown[0]} %{ends} over {plural(count, 'seed')}"


def _gate_words(each: Estimate, gate: Gate) -> str:
    """The gate's verdicts, what they mean, and what would settle them."""
    high, low = f"{100 * gate.pass_at:g} %", f"{100 * gate.fail_below:g} %"
    meaning = {
        "PASS": f"a loss of {high} or more, enough interference to go on and treat it",
        "FAIL": f"a loss below {low}, so there is no interference to treat",
        "MARGINAL": f"a loss between {low} and {high}",
    }[each.by_point]
    if each.by_evidence == each.by_point:
        return f"The kill gate says {each.by_evidence}, by evidence and by point: {meaning}."
    return (
        f"The kill gate says {each.by_evidence} by evidence: {_missing(each, gate)}. By point, "
        f"the rule on the mean alone, it says {each.by_point} ({meaning})."
    )


def _missing(each: Estimate, gate: Gate) -> str:
    """Why the evidence settles nothing, and how many seeds could."""
    if len(each.seeds) < 2:
        return "one seed cannot show how much trainings vary; two or more are needed"
    if each.interval is None:
        return "there is no interval"
    if gate.evidence(each.tir, each.seed_interval) == "INCONCLUSIVE":
        needed = seeds_needed(each, gate)
        many = "more seeds than are practical" if needed is None else f"about {needed} seeds"
        return f"the seeds differ too much; at this spread {many} would be needed"
    if gate.evidence(each.tir, each.interval) == "INCONCLUSIVE":
        return "the seeds agree, but the interval over seeds and queries needs more queries"
    return "not every task could be compared"


def configurations_table(scores: Iterable[Score]) -> Table:
    """A row per configuration, a column per task: mean over seeds, sample std as a subscript.

    Args:
        scores: of trained runs; of several for one run, task and metric, the newest is used.
    """
    cells = _by_seed(scores)
    tasks = sorted({task for _, task in cells})
    rows: list[list[Any]] = []
    for system in sorted({system for system, _ in cells}):
        rows.append([system])
        for task in tasks:
            values = list(cells.get((system, task), {}).values())
            spread = f"{stdev(values):.3f}" if len(values) > 1 else ""
            mean = number(fmean(values), std=spread) if values else Cell("not run")
            rows[-1].append((mean, plural(len(values), "seed") if values else ""))
    return Table.of(
        rows,
        ("configuration", *(f"{kind}\n{short_task(name)}, {of}" for kind, name, of in tasks)),
        note="Mean over seeds; beside it, in small: sample standard deviation over seeds. Best of "
        "each task in bold, second best underlined, whether or not they differ significantly.",
        empty="No scores of trained configurations.",
        best=True,
        name="configurations",
        caption="Scores of the trained configurations on each task, means over seeds.",
    )


def _by_seed(scores: Iterable[Score]) -> Mapping[tuple[str, _Task], Mapping[int | None, float]]:
    """Newest value per seed, by system and task."""
    newest: dict[tuple[str, _Task], dict[int | None, float]] = {}
    for score in sorted(scores, key=lambda each: each.finished):
        if score.main and score.value is not None:
            key = (score.system, (score.kind, score.task, score.metric))
            newest.setdefault(key, {})[score.seed] = score.value
    return newest


def configuration_differences_table(
    differences: Sequence[ConfigurationDifference],
) -> Table:
    """A row per data set and pair of configurations: difference, interval and p-values."""
    family = next((each.family for each in differences if each.family), 0)
    rows: list[dict[str, Any]] = []
    for each in differences:
        raw = each.undefined if each.p_value is None else p_value_text(each.p_value)
        count = f"{each.n} queries" if each.test == QUERIES else plural(len(each.seeds), "seed")
        clear = significant(each.corrected, each.interval)
        task = f"{each.kind}: {short_task(each.task)}, {each.metric}"
        by_seed = ", ".join(f"{value:+.3f}" for value in each.by_seed)
        ends: dict[str, Any] = {"interval": each.interval, "detail": "no interval"}
        rows.append(
            {
                "first − second\ntask, metric": (f"{each.first} − {each.second}", task),
                "Δ\n95 % interval": number(each.difference, "+.3f", **ends),
                "p, corrected\nraw": Cell(p_value_text(each.corrected), raw, strong=clear),
                "seeds\nΔ by seed": (", ".join(map(str, each.seeds)), by_seed),
                "paired over": (count, f"{each.unpaired} unpaired" if each.unpaired else ""),
            }
        )
    return Table.of(
        rows,
        note=f"95 % intervals and two-sided p-values, corrected by Holm over these {family}, below "
        f"it the raw p-value; corrected p < {ALPHA:g} in bold. With scores per query: permutation "
        "test over queries, each averaged over the seeds that both have, and the interval "
        f"({interval_words(['paired'])}) over queries; it says nothing about other seeds. "
        "Without: paired t-test and Student's interval over seeds.",
        empty="No two configurations have a seed and a task in common.",
        name="configuration-differences",
        caption="Differences between every two trained configurations on each data set, tested.",
    )


def configurations_figure(scores: Iterable[Score]) -> Figure | None:
    """Draw a bar per configuration with its standard deviation over seeds, a group per task.

    Of nDCG@10; None if no score has that metric. The scores are those of `configurations_table`.
    """
    metric = "nDCG@10"
    cells = {key: seeds for key, seeds in _by_seed(scores).items() if key[1][2] == metric}
    if not cells:
        return None
    systems = sorted({system for system, _ in cells})
    tasks = sorted({task for _, task in cells})

    def draw(width: float) -> MplFigure:
        height = 0.21 * len(systems) + 0.8
        figure, axes, firsts = panels(len(tasks), width, height=height, sharey=True)
        colors, rows = model_colors(systems), systems[::-1]
        for axis, task in zip(axes, tasks, strict=True):
            for row, system in enumerate(rows):
                values = list(cells.get((system, task), {}).values())
                if values:
                    axis.barh(row, fmean(values), height=0.7, color=colors[system], alpha=0.85)
                if len(values) > 1:
                    ends = [fmean(values) - stdev(values), fmean(values) + stdev(values)]
                    axis.plot(ends, [row, row], color=GREY, linewidth=1.4)
            axis.set_title(plain(f"{short_task(task[1])} ({task[0]})", most=34))
            axis.set_xlabel(metric)
            grid(axis)
        for axis in firsts:
            axis.set_yticks(range(len(rows)), [plain(name, most=28) for name in rows])
        return figure

    words = "; ".join(
        f"{system} on {short_task(task)}: {fmean(seeds.values()):.3f}"
        for (system, (_, task, _)), seeds in sorted(cells.items())
    )
    return Figure(
        name="configurations",
        draw=draw,
        caption=f"{metric} of each trained configuration: mean over seeds, with the sample "
        "standard deviation over seeds as a line where there are several.",
        alt=f"Bars of {metric} per configuration. {words}.",
    )
