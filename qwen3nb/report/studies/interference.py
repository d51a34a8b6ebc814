"""The page of task interference: the cost of joint training, and the configurations."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.comparison.differences import ALPHA, HOLM, significant
from qwen3nb.analysis.inventory import (
    Collection,
    Score,
    find_outputs,
    from_oldest,
    load_all_results,
)
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.analysis.training import interference as analysis
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.records.data_used import DataUsed
from qwen3nb.report.render.figure import (
    COLORS,
    GREY,
    Figure,
    MplFigure,
    draw_estimate,
    grid,
    name_rows,
    panels,
    plain,
)
from qwen3nb.report.render.model_styles import model_colors
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural, short_task
from qwen3nb.report.studies.trainings import conflict_figure, loss_figure, read_trainings
from qwen3nb.utils.format import escaped, json_text, number_text, p_value_text
from qwen3nb.utils.imports import DataFrame
from qwen3nb.utils.secrets import write_public

_TASK_STEPS = (*(name for name in analysis.REQUIRED if name != "steps"), "task_steps")
_Task = tuple[str, str, str]  # kind, data set and metric


@dataclass(frozen=True)
class InterferenceReport:
    """Interference of the trained adapters, with the scores it is estimated from."""

    interference: analysis.Interference  # estimates and verdicts
    folders: tuple[str, ...]  # folders that were searched for results
    runs: int  # number of trained adapters with scores
    flags: tuple[str, ...]  # anomalies in their files
    scores: tuple[Score, ...] = ()  # scores of the trained adapters
    differences: tuple[analysis.ConfigurationDifference, ...] = ()  # between configurations, tested

    @property
    def data(self) -> DataUsed:
        """The data of the scores."""
        return _data_of(self.scores)

    def estimates(self) -> Iterator[tuple[str, analysis.Estimate]]:
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
        import pandas as pd

        rows = [
            (f"{kind}: {short_task(name)}", metric, system, seed, value)
            for (system, (kind, name, metric)), seeds in _by_seed(self.scores).items()
            for seed, value in seeds.items()
        ]
        columns = ["task", "metric", "configuration", "seed", "score"]
        return pd.DataFrame(rows, columns=columns).sort_values(columns[:4], ignore_index=True)

    def to_markdown(self) -> str:
        """Return verdicts, rule, tables and missing runs as Markdown."""
        parts = [
            "# Task interference",
            analysis.DEFINITION,
            f"**{verdict_words(self.interference)}**",
            interference_table(self).to_markdown(),
            "## Configurations",
            configurations_table(self.scores).to_markdown(),
            "## Differences between configurations",
            configuration_differences_table(self.differences).to_markdown(),
            "## Refused, missing, to be checked",
            refusals_table(self).to_markdown(),
        ]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> str:
        """Return verdicts, estimates, differences and missing runs as strict JSON."""
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
            }
        )


def _data_of(scores: Iterable[Score | analysis.ConfigurationDifference]) -> DataUsed:
    return DataUsed.of_revisions((each.task, each.revision) for each in scores)


def interference_report(
    outputs: Path | str | Sequence[Path | str] = "",
    *,
    task_steps: bool = False,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> InterferenceReport:
    """Read folders of trainings and compare each joint adapter with its specialists.

    The folders are of ``<configuration>/seed_<n>``; by default all below `paths.runs`, and our own
    records in `paths.results`. With ``task_steps``, or if no pair has equal total steps, the steps
    on the task have to be equal instead; the table states the criterion. Configurations are
    compared by ``n_resamples`` sign flips.

    Raises:
        FileNotFoundError: a folder in ``outputs`` does not exist.
    """
    given = [outputs] if isinstance(outputs, str | Path) else outputs
    named = [Path(each).expanduser() for each in given if str(each)]
    folders = named or find_outputs(paths.runs()) + [paths.results()] * paths.results().is_dir()
    collection = load_all_results(folders) if folders else Collection(())
    trained = [score for score in collection.scores if "mode" in score.facts]
    scores = analysis.with_clusters(trained, collection.scores)
    sources = {score.source for score in scores}
    required = _TASK_STEPS if task_steps else analysis.REQUIRED
    estimates = analysis.interference(scores, required=required)
    if not task_steps and not _paired(estimates):
        fair = analysis.interference(scores, required=_TASK_STEPS)
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
        differences=tuple(analysis.configuration_differences(scores, draws=n_resamples, seed=seed)),
    )


def _paired(estimates: analysis.Interference) -> bool:
    return any(each.tir is not None for group in estimates.groups for each in group.tasks)


def verdict_words(estimates: analysis.Interference) -> str:
    """Return both verdicts: by evidence, which counts, and by point."""
    return (
        f"By evidence: {estimates.verdict()}. "
        f"By point, the rule on the mean alone: {estimates.verdict(by='point')}."
    )


def write_interference(report: InterferenceReport, folder: Path, *, outputs: Path) -> list[Path]:
    """Write ``interference.md``, ``interference.json``, figures and LaTeX tables; return the files.

    Losses and gradient conflicts are read from the trainings in ``outputs``.
    """
    trainings = read_trainings([], outputs=outputs)
    of_scores = (configurations_figure(report.scores), interference_figure(report))
    of_trainings = (loss_figure(trainings), conflict_figure(trainings))
    figures = [figure for figure in (*of_scores, *of_trainings) if figure is not None]
    tables = (
        interference_table(report),
        configurations_table(report.scores),
        configuration_differences_table(report.differences),
    )
    folder.mkdir(parents=True, exist_ok=True)
    shown = [f"\n![{f.name}]({f.name}.svg)\n\n{escaped(f.legend)}\n" for f in figures]
    return [
        write_public(folder / "interference.md", report.to_markdown() + "".join(shown)),
        write_public(folder / "interference.json", report.to_json()),
        *(write_public(folder / f"{t.name}.tex", t.to_latex()) for t in tables if t.rows),
        *(f.save(folder / f"{f.name}.{ending}") for f in figures for ending in ("svg", "pdf")),
    ]


def interference_table(report: InterferenceReport) -> Table:
    """TIR with standard deviation, interval and both verdicts.

    Rows are data sets, tasks, and their mean.
    """
    rows = []
    for name, each in report.estimates():
        spread = "" if each.std is None else f" ± {_percent(each.std, sign=False)}"
        ends = "–" if each.interval is None else "[{}, {}]".format(*map(_percent, each.interval))
        within = "" if each.delta_std is None else f"± {each.delta_std:.4f}"
        rows.append(
            {
                "task\nseeds": (name, ", ".join(map(str, each.seeds))),
                "by evidence": Cell(each.by_evidence, strong=each.name == "overall"),
                "by point": each.by_point,
                "TIR in %, ± std\n95 % interval": Cell(
                    _percent(each.tir) + spread, ends, value=each.tir, interval=each.interval
                ),
                "specialist\n− joint": number(each.delta, "+.4f", detail=within),
            }
        )
    estimates = report.interference
    return Table.of(
        rows,
        note="Negative where the joint model is better; ± shows the variance between trainings. "
        "Intervals: Student's t over seeds and, with scores per query, queries. Compared: the same "
        f"seed and the same {', '.join(estimates.required)}. {estimates.gate.text}"
        + "".join(f" {line}" for line in _bases(estimates)),
        empty=f"{report.runs} trained adapters in {', '.join(report.folders) or 'runs'}, and none "
        "of them joint: nothing to compare.",
        name="interference",
        caption="Task interference ratio (TIR), the share of the specialist's score that joint "
        "training loses, and the kill gate's verdicts by evidence and by point.",
        data=report.data,
    )


def _bases(estimates: analysis.Interference) -> list[str]:
    """Return a sentence on the data sets that the mean of each joint configuration rests on."""
    return [
        f"The mean of {group.system} rests on {group.basis}; no other data set is averaged."
        for group in estimates.groups
        if group.basis
    ]


def _percent(share: float | None, *, sign: bool = True, digits: int = 2) -> str:
    return number_text(None if share is None else 100 * share, sign=sign, digits=digits)


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
    return Table.of(
        dict.fromkeys(rows),
        ("kind", "what"),
        empty="Nothing was refused or is missing.",
        kind="words",
        name="refusals",
        caption="Pairs that were not compared, missing runs, and caveats.",
    )


def interference_figure(report: InterferenceReport) -> Figure | None:
    """A forest plot of the TIR over the gate's bands; None if no pair is comparable.

    Lines are intervals, rings single seeds. The axis includes all seeds; longer lines are cut off.
    """
    rows = [(name, each) for name, each in report.estimates() if each.tir is not None]
    if not rows:
        return None
    gate = report.interference.gate

    def draw(width: float) -> MplFigure:
        figure, (axis,), _ = panels(1, width, height=0.24 * len(rows) + 1.2)
        single = [[100 * tir for tir in each.tirs if tir is not None] for _, each in rows]
        points = [0.0, 200 * gate.pass_at, *(tir for each in single for tir in each)]
        room = (max(points) - min(points)) / 2
        low, high = min(points) - room, max(points) + room
        axis.set_xlim(low, high)
        for name, color, left, right in (
            ("FAIL", GREY, low, 100 * gate.fail_below),
            ("MARGINAL", COLORS[4], 100 * gate.fail_below, 100 * gate.pass_at),
            ("PASS", COLORS[2], 100 * gate.pass_at, high),
        ):
            axis.axvspan(left, right, color=color, alpha=0.13, linewidth=0, label=name)
        axis.axvline(0, color=GREY, linewidth=1)
        for row, (_, each) in enumerate(rows):
            color = COLORS[1] if each.name == "overall" else COLORS[0]
            ends = each.interval and (100 * each.interval[0], 100 * each.interval[1])
            draw_estimate(axis, row, 100 * (each.tir or 0.0), ends, color=color, marker="D")
            seeds = [row] * len(single[row])
            axis.plot(single[row], seeds, "o", mfc="none", mec=color, markersize=4)
        name_rows(axis, [name for name, _ in rows])
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.tick_params(axis="y", length=0)
        axis.set_xlabel("TIR in %")
        figure.legend(loc="outside lower center", ncols=3)
        return figure

    words = "; ".join(f"{name}: {_percent(each.tir)} %, {each.by_evidence}" for name, each in rows)
    return Figure(
        name="interference",
        draw=draw,
        caption="Task interference ratio (TIR): the share of the specialist's score that joint "
        "training loses. Diamonds: mean over seeds; rings: single seeds; lines: 95 % interval over "
        "seeds and, where per-query scores are stored, queries; those that reach the edge go on. "
        "Shaded: the bands of the kill gate.",
        alt=f"Forest plot of the task interference ratio. {words}.",
        data=report.data,
    )


def interference_conclusion(report: InterferenceReport) -> Conclusion:
    """State the cost of joint training, by its interval, and the verdicts of the kill gate.

    The text up to the colon is the finding, usable on its own. The joint configuration with the
    highest cost is described.
    """
    gate = report.interference.gate
    groups = [group for group in report.interference.groups if group.overall.tir is not None]
    if not groups:
        refused = sum(len(group.refused) for group in report.interference.groups)
        return Conclusion(
            f"The cost of joint training is unknown: of {report.runs} trained adapters, none is "
            f"joint and comparable with its specialist ({plural(refused, 'pair')} refused).",
            data=report.data,
        )
    worst = max(groups, key=lambda group: group.overall.tir or 0.0)
    each = worst.overall
    low, high = each.interval if each.interval and len(each.seeds) > 1 else (-1.0, 1.0)
    shows = "is not shown to cost anything"
    if low > 0:
        shows = f"costs {_percent(each.tir, sign=False, digits=1)} % of the specialist's score"
    elif high < gate.fail_below:
        shows = "costs nothing measurable"
    ends = [_percent(end, digits=1) for end in each.interval or ()]
    text = (
        f"Joint training {shows}: TIR {_percent(each.tir, digits=1)} %"
        f"{f' [{ends[0]}, {ends[1]}]' if ends else ''} of {worst.system} over "
        f"{plural(len(each.seeds), 'seed')}. The kill gate says {each.by_evidence} by evidence, "
        f"and {each.by_point} by point, the rule on the mean alone. It rests on {worst.basis}."
    )
    sentences = [text, *(f"Note: {note}." for note in each.notes)]
    return Conclusion(" ".join(sentences), data=report.data)


def configurations_table(scores: Iterable[Score]) -> Table:
    """A row per configuration, a column per task: mean over seeds, sample std as a subscript.

    Of the scores of one run, task and metric, the newest is used.
    """
    scores = list(scores)
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
        data=_data_of(scores),
    )


def _by_seed(scores: Iterable[Score]) -> Mapping[tuple[str, _Task], Mapping[int | None, float]]:
    """Newest value per seed, by system and task."""
    newest: dict[tuple[str, _Task], dict[int | None, float]] = {}
    for score in from_oldest(scores):
        if score.main and score.value is not None:
            key = (score.system, (score.kind, score.task, score.metric))
            newest.setdefault(key, {})[score.seed] = score.value
    return newest


def configuration_differences_table(
    differences: Sequence[analysis.ConfigurationDifference],
) -> Table:
    """A row per data set and pair of configurations: difference, interval and p-values."""
    family = next((each.family for each in differences if each.family), 0)
    corrected = f", corrected by {NAMES[HOLM]} over these {family}" if family > 1 else ""
    clustered = ", by clusters of queries" if any(each.units for each in differences) else ""
    rows: list[dict[str, Any]] = []
    for each in differences:
        raw = each.undefined if each.p_value is None else f"raw {p_value_text(each.p_value)}"
        clear = significant(each.corrected, each.interval)
        rows.append(
            {
                "first − second\ntask, metric": (
                    f"{each.first} − {each.second}",
                    f"{each.kind}: {short_task(each.task)}, {each.metric}",
                ),
                "Δ\n95 % interval": number(
                    each.difference, "+.3f", interval=each.interval, detail="no interval"
                ),
                "p, corrected": Cell(p_value_text(each.corrected), raw, strong=clear),
                "paired over\nseeds": (
                    f"{each.n} queries" if each.test == analysis.QUERIES else "seeds",
                    ", ".join(map(str, each.seeds)),
                ),
            }
        )
    return Table.of(
        rows,
        note=f"95 % intervals and two-sided p-values{corrected}; "
        f"corrected p < {ALPHA:g} in bold. With scores per query: {analysis.QUERIES}{clustered}, "
        f"each averaged over the seeds that both have, and the interval "
        f"({interval_words(['paired'])}) over queries; this does not generalise to other seeds. "
        "Without: paired t-test and Student's interval over seeds.",
        empty="No two configurations have a seed and a task in common.",
        name="configuration-differences",
        caption="Differences between every two trained configurations on each data set, tested.",
        data=_data_of(differences),
    )


def configurations_figure(scores: Iterable[Score]) -> Figure | None:
    """Draw a bar per configuration with its standard deviation over seeds, a group per task.

    Shows nDCG@10 of `configurations_table`; None if no score has that metric.
    """
    metric = "nDCG@10"
    scores = list(scores)
    cells = {key: seeds for key, seeds in _by_seed(scores).items() if key[1][2] == metric}
    if not cells:
        return None
    systems = sorted({system for system, _ in cells})
    tasks = sorted({task for _, task in cells})

    def draw(width: float) -> MplFigure:
        height = 0.22 * len(systems) + 0.8
        figure, axes, firsts = panels(len(tasks), width, height=height, sharey=True)
        colors, rows = model_colors(systems), systems[::-1]
        for axis, task in zip(axes, tasks, strict=True):
            for row, system in enumerate(rows):
                values = list(cells.get((system, task), {}).values())
                if values:
                    spread = stdev(values) if len(values) > 1 else None
                    look: dict[str, Any] = {"color": colors[system], "ecolor": GREY, "alpha": 0.85}
                    axis.barh(row, fmean(values), xerr=spread, height=0.7, **look)
            axis.set_title(plain(f"{short_task(task[1])} ({task[0]})"))
            axis.set_xlabel(metric)
            grid(axis)
        for axis in firsts:
            name_rows(axis, rows)
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
        data=_data_of(each for each in scores if each.metric == metric),
    )
