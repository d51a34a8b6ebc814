"""Does joint training interfere? The cost of joint training, and the trained configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from qwen3nb import paths
from qwen3nb.analysis.comparison.differences import ALPHA, HOLM, significant
from qwen3nb.analysis.inventory.anomalies import Flag
from qwen3nb.analysis.inventory.collect import Collection, collect
from qwen3nb.analysis.inventory.scores import Score, from_oldest
from qwen3nb.analysis.inventory.training_logs import find_outputs
from qwen3nb.analysis.stats.interference_ratio import DEFINITION, Estimate
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.analysis.training.configuration_differences import (
    BOTH,
    QUERIES,
    ConfigurationDifference,
    configuration_differences,
)
from qwen3nb.analysis.training.interference import (
    REQUIRED,
    Group,
    JointComparisons,
    compare_joint_runs,
    with_clusters,
)
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.trainings import trainings
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import (
    GREY,
    QUIET,
    Axes,
    Figure,
    MplFigure,
    draw_estimate,
    grid,
    name_rows,
    panels,
    plain,
)
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural, short_task
from qwen3nb.utils.format import escaped, json_text, number_text, p_value_text
from qwen3nb.utils.imports import DataFrame
from qwen3nb.utils.secrets import write_public

# Facts that have to agree where the steps on the task are compared instead of all steps.
_REQUIRED_ON_TASK = (*[name for name in REQUIRED if name != "steps"], "task_steps")
_NO_COST_SHOWN = "Joint training is not shown to cost anything"
_METRIC = "nDCG@10"  # of the figure of configurations


@dataclass(frozen=True, repr=False)
class Interference(Answer):
    """Interference of the trained adapters, with the scores it is estimated from."""

    comparisons: JointComparisons  # estimates and verdicts
    folders: tuple[str, ...] = ()  # folders that were searched for results
    adapters: int = 0  # number of trained adapters with scores
    flags: tuple[str, ...] = ()  # anomalies in their files
    scores: tuple[Score, ...] = ()  # scores of the trained adapters
    differences: tuple[ConfigurationDifference, ...] = ()  # between configurations, tested

    @property
    def data(self) -> DataUsed:
        """The data of the scores."""
        return _data_used(self.scores)

    @property
    def worst(self) -> Group | None:
        """The joint configuration with the highest cost; None if no pair is comparable."""
        compared = [group for group in self.comparisons.groups if group.overall.tir is not None]
        return max(compared, key=lambda group: group.overall.tir or 0.0, default=None)

    @property
    def finding(self) -> str:
        """What joint training costs by its interval, without numbers' details."""
        if self.worst is None:
            return "The cost of joint training is unknown"
        if self.costs_something:
            cost = _percent(self.worst.overall.tir, sign=False, digits=1)
            return f"Joint training costs {cost} % of the specialist's score"
        if self.costs_nothing:
            return "Joint training costs nothing measurable"
        return _NO_COST_SHOWN

    @property
    def costs_something(self) -> bool:
        """Whether the interval shows that joint training loses a share of the score."""
        interval = self._interval_of_cost
        return interval is not None and interval[0] > 0

    @property
    def costs_nothing(self) -> bool:
        """Whether the interval is below what the gate takes for interference, and none is shown."""
        interval = self._interval_of_cost
        if interval is None or self.costs_something:
            return False
        return interval[1] < self.comparisons.gate.fail_below

    @property
    def _interval_of_cost(self) -> tuple[float, float] | None:
        """The interval of the worst TIR, the share of the score that is lost; None of one seed."""
        if self.worst is None or len(self.worst.overall.seeds) == 1:
            return None  # one seed says nothing about other trainings
        return self.worst.overall.interval

    @property
    def evidence(self) -> str:
        """The numbers behind the finding, and the verdicts of the kill gate."""
        if self.worst is None:
            refusals = sum(len(group.refused) for group in self.comparisons.groups)
            return (
                f"no joint adapter can be compared with its specialist, of {self.adapters} "
                f"trained ones ({plural(refusals, 'pair')} refused)."
            )
        estimate = self.worst.overall
        interval = ""
        if estimate.interval:
            low, high = (_percent(end, digits=1) for end in estimate.interval)
            interval = f" [{low}, {high}]"
        sentences = [
            f"TIR {_percent(estimate.tir, digits=1)} %{interval} of {self.worst.system} over "
            f"{plural(len(estimate.seeds), 'seed')}.",
            f"The kill gate says {estimate.by_evidence} by evidence, and {estimate.by_point} by "
            "point, on the mean alone.",
        ]
        if estimate.notes:
            caveats = plural(len(estimate.notes), "caveat")
            sentences.append(f"See {caveats} among what was refused.")
        return " ".join(sentences)

    @property
    def conclusion(self) -> Conclusion:
        """The cost of joint training, and the verdicts of the kill gate."""
        return Conclusion(f"{self.finding}: {self.evidence}", data=self.data)

    @property
    def verdicts(self) -> str:
        """Both verdicts: by evidence, which counts, and by point."""
        return (
            f"By evidence: {self.comparisons.verdict()}. "
            f"By point, the rule on the mean alone: {self.comparisons.verdict(by='point')}."
        )

    def estimates(self) -> Iterator[tuple[str, Estimate]]:
        """Yield the estimates of data sets, tasks and means with unique names.

        A task with a single data set has one row, not two equal ones.
        """
        groups = self.comparisons.groups
        for group in groups:
            prefix = ""
            if len(groups) > 1:
                prefix = f"{group.system}: "
            for estimate in (*group.datasets, *_tasks_of_several_datasets(group)):
                if estimate.tir is not None:
                    yield prefix + _short_name(estimate), estimate
            # The mean is shown even without a TIR.
            yield prefix + group.overall.name, group.overall

    def table(self) -> Table:
        """TIR with standard deviation, interval and both verdicts.

        Rows are data sets, tasks, and their mean.
        """
        comparisons = self.comparisons
        sentences = [
            "± shows the variance between trainings.",
            "Intervals: Student's t over seeds and, with scores per query, queries.",
            f"Compared: the same seed and the same {', '.join(comparisons.required)}.",
            comparisons.gate.text,
        ]
        for group in comparisons.groups:
            if group.basis:
                sentences.append(
                    f"The mean of {group.system} rests on {group.basis}; no other data set is "
                    "averaged."
                )
        return Table.of(
            (_row(name, estimate) for name, estimate in self.estimates()),
            note="Negative where the joint model is better. By evidence, two or more seeds and the "
            "whole interval decide; by point, the mean alone.",
            method=" ".join(sentences),
            empty=f"{self.adapters} trained adapters in {', '.join(self.folders) or 'runs'}, and "
            "none of them joint: nothing to compare.",
            name="interference",
            caption="Task interference ratio (TIR), the share of the specialist's score that joint "
            "training loses, and the kill gate's verdicts by evidence and by point.",
            data=self.data,
        )

    def figure(self) -> Figure | None:
        """A forest plot of the TIR over the gate's bands; None if no pair is comparable.

        Lines are intervals, rings single seeds. The axis includes all seeds; longer lines are cut
        off.
        """
        estimates = {name: row for name, row in self.estimates() if row.tir is not None}
        if not estimates:
            return None
        words = [
            f"{name}: {_percent(estimate.tir)} %, {estimate.by_evidence}"
            for name, estimate in estimates.items()
        ]
        return Figure(
            name="interference",
            draw=partial(self._draw, estimates),
            caption="Task interference ratio (TIR): the share of the specialist's score that joint "
            "training loses. Diamonds: mean over seeds; rings: single seeds; lines: 95 % interval; "
            "those at the edge go on. Shaded: the kill gate.",
            alt=f"Forest plot of the task interference ratio. {'; '.join(words)}.",
            data=self.data,
        )

    def _draw(self, estimates: Mapping[str, Estimate], width: float) -> MplFigure:
        figure, (axis,), _ = panels(1, width, height=0.24 * len(estimates) + 1.2)
        self._draw_bands(axis, list(estimates.values()))
        for row, estimate in enumerate(estimates.values()):
            _draw_row(axis, row, estimate)
        name_rows(axis, list(estimates))
        # The lower limit is the larger one, so that the first row is on top.
        axis.set_ylim(len(estimates) - 0.4, -0.6)
        axis.tick_params(axis="y", length=0)
        axis.set_xlabel("TIR in %")
        figure.legend(loc="outside lower center", ncols=3)
        return figure

    def _draw_bands(self, axis: Axes, estimates: Sequence[Estimate]) -> None:
        """Shade the bands of the gate, over a range that includes all seeds."""
        fail_end = 100 * self.comparisons.gate.fail_below
        pass_start = 100 * self.comparisons.gate.pass_at
        # The axis shows 0, the three bands and every seed, with half as much room on both sides.
        points = [0.0, 2 * pass_start]
        for estimate in estimates:
            points += [100 * tir for tir in estimate.defined_tirs]
        margin = (max(points) - min(points)) / 2
        low, high = min(points) - margin, max(points) + margin
        axis.set_xlim(low, high)
        axis.axvspan(low, fail_end, color=QUIET, label="FAIL", alpha=0.3, linewidth=0)
        axis.axvspan(fail_end, pass_start, color=QUIET, label="MARGINAL", alpha=0.13, linewidth=0)
        axis.axvspan(pass_start, high, color=QUIET, label="PASS", alpha=0.04, linewidth=0)
        axis.axvline(0, color=GREY, linewidth=1)

    def to_frame(self) -> DataFrame:
        """Return a row per task, configuration and seed: the metric and its score."""
        import pandas as pd

        rows = []
        for cell in _cells(self.scores):
            for seed, value in cell.by_seed.items():
                task = f"{cell.column.kind}: {short_task(cell.column.task)}"
                rows.append((task, cell.column.metric, cell.system, seed, value))
        columns = ["task", "metric", "configuration", "seed", "score"]
        return pd.DataFrame(rows, columns=columns).sort_values(columns[:4], ignore_index=True)

    def configurations(self) -> Table:
        """The scores of each configuration, a column per task; see `configurations_table`."""
        return configurations_table(self.scores)

    def differences_table(self) -> Table:
        """The tested differences between configurations; see `differences_table`."""
        return differences_table(self.differences)

    def refusals(self) -> Table:
        """Refused pairs, missing runs, anomalies and caveats."""
        rows = []
        for group in self.comparisons.groups:
            rows += [("refused", line) for line in group.refused]
            rows += [("missing", line) for line in group.missing]
            for estimate in (*group.tasks, group.overall):
                rows += [("note", f"{estimate.name}: {note}") for note in estimate.notes]
        rows += [("missing", line) for line in self.comparisons.missing]
        rows += [("check", line) for line in self.flags]
        # Several estimates may have the same note; a dict has each row once, in order.
        unique_rows = dict.fromkeys(rows)
        return Table.of(
            unique_rows,
            ("kind", "what"),
            empty="Nothing was refused or is missing.",
            kind="words",
            name="refusals",
            caption="Pairs that were not compared, missing runs, and caveats.",
        )

    def to_markdown(self) -> str:
        """Return verdicts, rule, tables and missing runs as Markdown."""
        parts = [
            "# Task interference",
            DEFINITION,
            f"**{self.verdicts}**",
            self.table().to_markdown(),
            "## Configurations",
            self.configurations().to_markdown(),
            "## Differences between configurations",
            self.differences_table().to_markdown(),
            "## Refused, missing, to be checked",
            self.refusals().to_markdown(),
        ]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> str:
        """Return verdicts, estimates, differences and missing runs as strict JSON."""
        comparisons = self.comparisons
        return json_text(
            {
                "verdict": {
                    "by_evidence": comparisons.verdict(),
                    "by_point": comparisons.verdict(by="point"),
                },
                "rule": comparisons.gate.text,
                "interference": comparisons,
                "differences": self.differences,
                "folders": list(self.folders),
                "adapters": self.adapters,
                "flags": list(self.flags),
            }
        )

    def write(self, folder: Path, *, outputs: Path) -> list[Path]:
        """Write ``interference.md`` and ``.json``, figures and LaTeX tables; return the files.

        Losses and gradient conflicts are read from the trainings in ``outputs``.
        """
        folder.mkdir(parents=True, exist_ok=True)
        all_trainings = trainings([], outputs=outputs)  # without records, only what the logs have
        text = self.to_markdown()
        figure_files = []
        for figure in (
            configurations_figure(self.scores),
            self.figure(),
            all_trainings.figure(),
            all_trainings.conflicts(),
        ):
            if figure is None:
                continue
            text += f"\n![{figure.name}]({figure.name}.svg)\n\n{escaped(figure.legend)}\n"
            figure_files.append(figure.save(folder / f"{figure.name}.svg"))
            figure_files.append(figure.save(folder / f"{figure.name}.pdf"))
        files = [
            write_public(folder / "interference.md", text),
            write_public(folder / "interference.json", self.to_json()),
        ]
        for table in (self.table(), self.configurations(), self.differences_table()):
            if table.rows:
                files.append(write_public(folder / f"{table.name}.tex", table.to_latex()))
        return files + figure_files


def _tasks_of_several_datasets(group: Group) -> list[Estimate]:
    """Return the estimates of tasks that are not those of their only data set."""
    datasets = Counter(_kind(estimate) for estimate in group.datasets)
    return [task for task in group.tasks if datasets[task.name] != 1]


def _kind(estimate: Estimate) -> str:
    """Return the kind of task: ``embedding`` of ``embedding: PyDocsRetrieval``."""
    return estimate.name.partition(": ")[0]


def _short_name(estimate: Estimate) -> str:
    """Return ``embedding: Retrieval`` for ``embedding: PyDocsRetrieval``."""
    kind, colon, dataset = estimate.name.partition(": ")
    return f"{kind}{colon}{short_task(dataset)}"


def interference(
    records: Iterable[Result],
    outputs: Path | str | Sequence[Path | str] = (),
    *,
    task_steps: bool = False,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interference:
    """Compare each jointly trained adapter with its specialists.

    Args:
        records: our own, of which those of adapters count; left out if there are ``outputs``.
        outputs: folders of ``<configuration>/seed_<n>``; by default all below `paths.runs`.
        task_steps: whether the steps on the task have to be equal instead of all steps; also so if
            no pair has equal steps. The table states the criterion.
        resamples: number of sign flips with which configurations are compared.
        seed: of the sign flips.

    Raises:
        FileNotFoundError: a folder in ``outputs`` does not exist.
    """
    folders = _stated_folders(outputs)
    if folders:
        collection = collect(folders)
        flags = collection.flags
    else:
        folders = find_outputs(paths.runs())
        collection = collect(folders, records)
        folders = [*folders, paths.results()]
        # Our folders also have records of other models, whose anomalies are of no concern here.
        flags = _flags_of_adapters(collection)
    adapter_scores = [score for score in collection.scores if _is_of_adapter(score)]
    scores = with_clusters(adapter_scores, collection.scores)
    return Interference(
        comparisons=_compare(scores, task_steps=task_steps),
        folders=tuple(paths.shown(folder) for folder in folders if folder.is_dir()),
        adapters=len({(score.system, score.seed) for score in scores}),
        flags=tuple(f"{flag.kind}: {flag.text}" for flag in flags),
        scores=tuple(scores),
        differences=tuple(configuration_differences(scores, resamples=resamples, seed=seed)),
    )


def _compare(scores: Sequence[Score], *, task_steps: bool) -> JointComparisons:
    """Compare runs with equal steps, or runs with equal steps on the task if there are none."""
    comparisons = compare_joint_runs(scores)
    if comparisons.has_pairs and not task_steps:
        return comparisons
    on_task = compare_joint_runs(scores, required=_REQUIRED_ON_TASK)
    if on_task.has_pairs or task_steps:
        return on_task
    return comparisons


def _is_of_adapter(score: Score) -> bool:
    return "mode" in score.facts


def _flags_of_adapters(collection: Collection) -> tuple[Flag, ...]:
    """Return the anomalies in files of trained adapters; the other records are no part of this."""
    files = {score.source for score in collection.scores if _is_of_adapter(score)}
    return tuple(flag for flag in collection.flags if files.intersection(flag.files))


def _stated_folders(outputs: Path | str | Sequence[Path | str]) -> list[Path]:
    """Return the folders that are named, if any; an empty text names none."""
    if isinstance(outputs, str | Path):
        outputs = [outputs]
    return [Path(folder).expanduser() for folder in outputs if str(folder)]


def _percent(share: float | None, *, sign: bool = True, digits: int = 2) -> str:
    if share is None:
        return number_text(None)
    return number_text(100 * share, sign=sign, digits=digits)


def _row(name: str, estimate: Estimate) -> dict[str, object]:
    """Return a row of the table of interference."""
    tir = _percent(estimate.tir)
    if estimate.std is not None:
        tir += f" ± {_percent(estimate.std, sign=False)}"
    interval = "–"
    if estimate.interval is not None:
        low, high = estimate.interval
        interval = f"[{_percent(low)}, {_percent(high)}]"
    deviation = ""
    if estimate.delta_std is not None:
        deviation = f"± {estimate.delta_std:.4f}"
    return {
        "task\nseeds": (name, ", ".join(map(str, estimate.seeds))),
        "by evidence": Cell(estimate.by_evidence, strong=estimate.name == "overall"),
        "by point": estimate.by_point,
        "TIR in %, ± std\n95 % interval": Cell(
            tir, interval, value=estimate.tir, interval=estimate.interval
        ),
        # With the standard deviation over seeds, where there are several.
        "specialist\n− joint": number(estimate.delta, "+.4f", detail=deviation),
    }


def _draw_row(axis: Axes, row: int, estimate: Estimate) -> None:
    """Draw the mean TIR of an estimate with its interval, and the seeds as rings."""
    color = QUIET
    if estimate.name == "overall":
        color = GREY  # darker on a page
    interval = None
    if estimate.interval:
        low, high = estimate.interval
        interval = (100 * low, 100 * high)
    draw_estimate(axis, row, 100 * (estimate.tir or 0.0), interval, color=color, marker="D")
    tirs = [100 * tir for tir in estimate.defined_tirs]
    # Rings, one per seed.
    axis.plot(tirs, [row] * len(tirs), "o", mfc="none", mec=color, markersize=4)


def _data_used(scores: Iterable[Score | ConfigurationDifference]) -> DataUsed:
    return DataUsed.of_revisions((score.task, score.revision) for score in scores)


class _Column(NamedTuple):
    """What the scores of a column are on."""

    kind: str
    task: str
    metric: str


@dataclass(frozen=True)
class _Scores:
    """The newest scores of one configuration on one task, by seed."""

    system: str
    column: _Column
    by_seed: dict[int | None, float]

    @property
    def mean(self) -> float:
        return fmean(self.by_seed.values())

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over two or more seeds."""
        if len(self.by_seed) < 2:
            return None
        return stdev(self.by_seed.values())


def _cells(scores: Iterable[Score]) -> list[_Scores]:
    """Return the scores of each configuration and task; of one seed, the newest is used."""
    cells: dict[tuple[str, _Column], _Scores] = {}
    for score in from_oldest(scores):
        if score.main and score.value is not None:
            column = _Column(score.kind, score.task, score.metric)
            cell = cells.setdefault((score.system, column), _Scores(score.system, column, {}))
            cell.by_seed[score.seed] = score.value  # replaces that of an older run
    return list(cells.values())


def configurations_table(scores: Iterable[Score]) -> Table:
    """A row per configuration, a column per task: mean over seeds, sample std as a subscript.

    Of the scores of one run, task and metric, the newest is used.
    """
    scores = list(scores)
    cells = _cells(scores)
    columns = sorted({cell.column for cell in cells})
    heads = [f"{column.kind}\n{short_task(column.task)}, {column.metric}" for column in columns]
    rows = []
    for system in sorted({cell.system for cell in cells}):
        by_column = {cell.column: cell for cell in cells if cell.system == system}
        means = [_mean_cell(by_column.get(column)) for column in columns]
        rows.append((system, *means))
    return Table.of(
        rows,
        ("configuration", *heads),
        note="Mean over seeds; in small: sample standard deviation over seeds. Best of each task "
        "in bold, second best underlined, whether or not they differ significantly.",
        empty="No scores of trained configurations.",
        best=True,
        name="configurations",
        caption="Scores of the trained configurations on each task, means over seeds.",
        data=_data_used(scores),
    )


def _mean_cell(scores: _Scores | None) -> tuple[Cell, str]:
    if scores is None:
        return Cell("not run"), ""
    deviation = ""
    if scores.deviation is not None:
        deviation = f"{scores.deviation:.3f}"
    return number(scores.mean, std=deviation), plural(len(scores.by_seed), "seed")


def differences_table(differences: Sequence[ConfigurationDifference]) -> Table:
    """A row per data set and pair of configurations: difference, interval and p-values."""
    return Table.of(
        [_difference_row(difference) for difference in differences],
        note=f"Bold: corrected p < {ALPHA:g}. With two seeds or more, that is for new seeds and "
        "new queries; with one, for these models.",
        method=_differences_method(differences),
        empty="No two configurations have a seed and a task in common.",
        name="configuration-differences",
        caption="Differences between every two trained configurations on each data set, tested.",
        data=_data_used(differences),
    )


def _differences_method(differences: Sequence[ConfigurationDifference]) -> str:
    """Name the tests of the differences, and their correction."""
    # The number of differences whose p-values are corrected together.
    family = max((difference.family for difference in differences), default=0)
    correction = ""
    if family > 1:
        correction = f", corrected by {NAMES[HOLM]} over these {family}"
    clusters = ""
    if any(difference.units for difference in differences):
        clusters = ", by clusters of queries"
    method = interval_words(["paired"])
    return (
        f"95 % intervals and two-sided p-values{correction}. With scores per query: "
        f"{QUERIES}{clusters}, each averaged over the seeds that both have, and the interval "
        f"({method}) over queries. Of several seeds, their interval (Welch's degrees of freedom) "
        "adds in quadrature; p is where the sum touches 0, if larger. Without scores per query: "
        "paired t-test and Student's interval over seeds."
    )


def _difference_row(difference: ConfigurationDifference) -> dict[str, object]:
    names = f"{difference.first} − {difference.second}"
    task = f"{difference.kind}: {short_task(difference.task)}, {difference.metric}"
    change = number(
        difference.difference, "+.3f", interval=difference.interval, detail="no interval"
    )
    uncorrected = difference.undefined  # why there is no p-value
    if difference.p_value is not None:
        uncorrected = f"raw {p_value_text(difference.p_value)}"
    is_significant = significant(difference.corrected, difference.interval)
    sample = "seeds"
    if difference.test in (QUERIES, BOTH):
        sample = f"{difference.n} queries"
    if difference.test == BOTH:
        sample += f", {len(difference.seeds)} seeds"
    seeds = ", ".join(str(seed) for seed in difference.seeds)
    return {
        "first − second\ntask, metric": (names, task),
        "Δ\n95 % interval": change,
        "p, corrected": Cell(
            p_value_text(difference.corrected), uncorrected, strong=is_significant
        ),
        "paired over\nseeds": (sample, seeds),
    }


def configurations_figure(scores: Iterable[Score]) -> Figure | None:
    """Draw a bar per configuration with its standard deviation over seeds, a group per task.

    Shows nDCG@10 of `configurations_table`; None if no score has that metric.
    """
    scores_of_metric = [score for score in scores if score.metric == _METRIC]
    cells = _cells(scores_of_metric)
    if not cells:
        return None
    cells.sort(key=lambda cell: (cell.system, cell.column))
    words = [f"{cell.system} on {short_task(cell.column.task)}: {cell.mean:.3f}" for cell in cells]
    return Figure(
        name="configurations",
        draw=partial(_draw_configurations, cells),
        caption=f"{_METRIC} of each trained configuration: mean over seeds, with the sample "
        "standard deviation over seeds as a line where there are several.",
        alt=f"Bars of {_METRIC} per configuration. {'; '.join(words)}.",
        data=_data_used(scores_of_metric),
    )


def _draw_configurations(cells: Sequence[_Scores], width: float) -> MplFigure:
    """Draw a panel per column, and in it a bar per configuration, the first at the top."""
    columns = sorted({cell.column for cell in cells})
    systems = sorted({cell.system for cell in cells}, reverse=True)
    height = 0.22 * len(systems) + 0.8
    figure, axes, left_axes = panels(len(columns), width, height=height, sharey=True)
    for axis, column in zip(axes, columns, strict=True):
        for cell in reversed(cells):  # from the lowest row to the highest
            if cell.column == column:
                _draw_bar(axis, systems.index(cell.system), cell)
        axis.set_title(plain(f"{short_task(column.task)} ({column.kind})"))
        axis.set_xlabel(column.metric)
        grid(axis)
    for axis in left_axes:
        name_rows(axis, systems)
    return figure


def _draw_bar(axis: Axes, row: int, cell: _Scores) -> None:
    axis.barh(row, cell.mean, xerr=cell.deviation, color=QUIET, ecolor=GREY, height=0.7, alpha=0.85)
