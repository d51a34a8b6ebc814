"""Which model is better, and is it shown? Paired differences of models on the same queries.

Every page, table, figure and card reads differences between models from a `Comparison`. P-values
are corrected over the family of all pairs of the models compared on a task by one metric, for any
baseline. A pair therefore has the same corrected p-value wherever these models are compared,
whatever tasks and metrics are shown with it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qwen3nb.analysis.comparison import alignment, differences
from qwen3nb.analysis.comparison.alignment import Names, Note, in_words
from qwen3nb.analysis.comparison.benchmark_means import MeanComparison, mean_comparisons
from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    Procedure,
    TaskComparison,
    Verdict,
    best_first,
    skewness_condition,
)
from qwen3nb.analysis.comparison.plan import plan_words
from qwen3nb.analysis.stats import paired_tests
from qwen3nb.analysis.stats.multiple_testing import CORRECTIONS, MAX_T, NAMES
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.answers.answer import Answer
from qwen3nb.metrics.intervals import Array, correlation_influence, interval_words, within
from qwen3nb.metrics.query_scores import QueryScores, sorted_rows
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import Results
from qwen3nb.records.store import latest
from qwen3nb.report.render import table
from qwen3nb.report.render.differences import (
    SINGLE_QUERY,
    DifferencePanels,
    PairMatrix,
    baseline_text,
    difference_cell,
    difference_cells,
)
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.table import (
    MANY,
    MOST_MODELS,
    Cell,
    Conclusion,
    Head,
    Sections,
    Table,
    TableChoice,
    plural,
    short_task,
)
from qwen3nb.tiers import TIERS
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.choices import check_choice, split_names
from qwen3nb.utils.format import interval_text, number_text
from qwen3nb.utils.imports import DataFrame

# Columns of a data frame of differences: first - second (the baseline).
_COLUMNS = """
    task metric first second n value baseline difference low high p_value corrected family d_z won
    tied lost unpaired
""".split()  # noqa: SIM905 - a list of words reads better as a line
_FEWEST_PAIRS = 4  # required for the interval of a correlation
_MOST_NAMED = 3  # notes below a table, and tasks in a sentence; more are counted
_MOST_ROWS = 700  # maximum rows in tables for all baselines, to limit the size of a page
_MOST_COLUMNS = 5  # maximum columns of differences with intervals on a page
_MOST_COUNTS = 12  # sizes of families listed in a sentence
_OPEN_VERDICTS = (Verdict.EQUIVALENT, Verdict.NO_WORSE, Verdict.NOT_SHOWN)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Answer):
    """Models compared with a baseline and with each other, task by task.

    ``comparison["bm25"]`` has the differences of one model from the baseline.
    """

    # name of the baseline on most tasks (see `alignment`); empty if there is none
    baseline: str
    tasks: tuple[TaskComparison, ...]  # one comparison per task and metric
    # the records compared, by task and name of the system
    records: Mapping[tuple[str, str], Result]
    procedure: Procedure  # how differences are tested
    names: Names  # names of the systems, by identity and seed
    left_out: tuple[Note, ...] = ()  # records that are not compared
    # name of the system by label of its records
    labels: Mapping[str, str] = field(default_factory=dict)
    # comparisons on tasks scored by a correlation (see `_as_means`)
    correlations: tuple[TaskComparison, ...] = ()
    # comparisons on the means of a tier's benchmarks; the first represents the tier
    means: tuple[MeanComparison, ...] = ()

    @property
    def every_task(self) -> tuple[TaskComparison, ...]:
        """The comparisons on tasks, those scored by a correlation last."""
        return (*self.tasks, *self.correlations)

    @property
    def every_column(self) -> tuple[TaskComparison, ...]:
        """The comparisons on tasks and on means."""
        return (*self.every_task, *self.means)

    @property
    def differences(self) -> tuple[PairedDifference, ...]:
        """Every system against the baseline, task by task."""
        return _with_baseline(self.tasks)

    def differences_on(self, *tasks: str) -> tuple[PairedDifference, ...]:
        """Every system against the baseline on some tasks or means, computed only for these."""
        return _with_baseline(task for task in self.every_column if task.task in tasks)

    def __getitem__(self, model: str) -> tuple[PairedDifference, ...]:
        """Differences of a model, by name or label, from the baseline, task by task.

        Raises:
            KeyError: no such model; lists the models.
        """
        name = self.labels.get(model, model)
        models = sorted({name for _, name in self.records})
        if name not in models:
            raise KeyError(f"{model!r} was not compared; models: {', '.join(models)}")
        every = _with_baseline(self.every_task)
        return tuple(difference for difference in every if difference.first == name)

    def scored(self, task: str) -> list[Result]:
        """The records of a task; for a benchmark's mean, one record per system with this score."""
        for mean in self.means:
            if mean.task == task:
                return mean.records(self.records)
        return [
            record
            for (name, _), record in self.records.items()
            if name == task and record.main.value is not None
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what is not compared with the baseline, and why."""
        notes = [str(note) for note in self.left_out]
        for task in self.tasks:
            notes += task.notes
        return tuple(dict.fromkeys(notes))

    def notes_on(self, tasks: Sequence[str]) -> tuple[str, ...]:
        """Notes on what is not compared on some tasks."""
        notes = [str(note) for note in self.left_out if note.task in tasks]
        for task in self.tasks:
            if task.task in tasks:
                notes += task.notes
        return tuple(dict.fromkeys(notes))

    def data_used(self, *tasks: str) -> DataUsed:
        """The data of some tasks or means of benchmarks; by default of all records."""
        wanted = set(tasks)
        for mean in self.means:
            if mean.task in tasks:
                wanted.update(part.task for part in mean.parts)
        return DataUsed.of(
            record for (key, _), record in self.records.items() if not tasks or key in wanted
        )

    def name(self, result: Result) -> str:
        """Name of the system of a record."""
        return self.names[result.model.identity, result.seed]

    def on(self, task: str, metric: str = "") -> TaskComparison | None:
        """The comparison on one task (and metric); None if no system has scores on it."""
        for compared in self.every_column:
            if compared.task == task and metric in ("", compared.metric):
                return compared
        return None

    def difference(self, first: str, second: str, *, task: str) -> PairedDifference | None:
        """First − second, by name or label, on one task; None if they cannot be paired."""
        compared = self.on(task)
        if compared is None:
            return None
        return compared.difference(self.labels.get(first, first), self.labels.get(second, second))

    def between(self, first: Result, second: Result) -> PairedDifference | None:
        """First − second on the task of both records; None if they cannot be paired."""
        if first.task.key != second.task.key:
            return None
        compared = self.on(first.task.key)
        if compared is None:
            return None
        minuend = self.names.get((first.model.identity, first.seed), "")
        subtrahend = self.names.get((second.model.identity, second.seed), "")
        return compared.difference(minuend, subtrahend)

    def matrix(self, difference: PairedDifference) -> ScoreMatrix:
        """The scores behind a difference, query by query.

        Raises:
            ValueError: the difference is not one of this comparison.
        """
        compared = self.on(difference.task, difference.metric)
        if compared is None:
            raise ValueError(f"no comparison on {difference.task} by {difference.metric}")
        return compared.matrix(difference.first, difference.second)

    def detectable(self, difference: PairedDifference) -> float | None:
        """The smallest true difference that is significant in 80 % of such samples, or None.

        Both a paired t-test, at the level of the pair's corrected test, and the interval have to
        show it.
        """
        units = self._units(difference)
        # The level of Holm's first step, which holds for every pair; that of MaxT is no lower.
        tests = max(1, difference.family)
        if self.procedure.correction == "none":
            tests = 1
        by_test = paired_tests.minimum_detectable_effect(
            units, np.zeros(len(units)), alpha=self.procedure.alpha / tests
        )
        by_interval = differences.shown_by_interval(units)
        if by_test is None or by_interval is None:
            return None
        return max(by_test, by_interval)

    def queries_needed(self, difference: PairedDifference) -> int | None:
        """Number of queries like a pair's that would show equivalence, or None."""
        margin = self.procedure.margin
        if margin <= 0:
            return None
        units = self._units(difference)
        needed = paired_tests.queries_to_show(units, margin=margin)
        if not needed:
            return needed
        # The number of clusters times their mean size.
        return math.ceil(needed * difference.n / len(units))

    def could_turn(self, difference: PairedDifference) -> bool:
        """Whether rare queries that were not sampled could turn the sign of a difference."""
        return paired_tests.unseen_outlier_could_turn(self._units(difference))

    def _units(self, difference: PairedDifference) -> Array:
        """Differences on the sampling units (G,): queries, or clusters of them."""
        matrix = self.matrix(difference)
        first, second = matrix.scores
        return matrix.unit_values(first - second)

    def find_verdict(self, difference: PairedDifference) -> Verdict:
        """What a difference shows."""
        return differences.find_verdict(
            difference.difference,
            difference.corrected,
            difference.interval,
            alpha=self.procedure.alpha,
            margin=self.procedure.margin,
        )

    def verdict(self, difference: PairedDifference) -> str:
        """Verdict on a difference in words; see `differences.verdict_words`."""
        found = self.find_verdict(difference)
        return differences.verdict_words(found, difference.interval, margin=self.procedure.margin)

    def family(self, task: str = "") -> str:
        """The family over which p-values are corrected, in words."""
        tasks = list(self.tasks)
        if task:
            compared = self.on(task)
            tasks = [] if compared is None else [compared]
        families = [compared for compared in tasks if compared.family]
        sizes = [compared.family for compared in families]
        names = {compared.task for compared in families}
        if len(set(sizes)) == 1 and len(names) == 1:
            pairs = "the one pair" if sizes[0] == 1 else f"all {sizes[0]} pairs"
            return f"{self.method} over {pairs} of the models compared"
        return f"{self._over_all_pairs} ({_family_sizes(sizes)})"

    @property
    def _over_all_pairs(self) -> str:
        return f"{self.method} over all pairs of the models compared on each task"

    @property
    def test(self) -> str:
        """The test of differences, in words."""
        return differences.TEST

    @property
    def method(self) -> str:
        """The correction of p-values, in words."""
        method = NAMES[self.procedure.correction]
        exceptions = dict.fromkeys(task.not_max_t for task in self.tasks if task.not_max_t)
        if not exceptions:
            return method
        return f"{method} (Holm, {', or '.join(exceptions)})"

    def given(self, task: str) -> str:
        """A sentence on the intervals of a mean; empty for a task."""
        if not any(mean.task == task for mean in self.means):
            return ""
        sentence = " Intervals of a mean are over queries, its tasks being given"
        if any(difference.like_these for difference in self.differences_on(task)):
            sentence += "; on tasks like these, over the tasks, as a sample (Student's)"
        return f"{sentence}."

    def by_type(self) -> dict[str, list[TaskComparison]]:
        """The tasks on which models were compared, by type of task."""
        types = {task: str(record.task.type) for (task, _), record in self.records.items()}
        tasks: dict[str, list[TaskComparison]] = {}
        for task in self.every_task:
            if task.family:
                tasks.setdefault(types[task.task], []).append(task)
        return dict(sorted(tasks.items()))

    def to_frame(self) -> DataFrame:
        """The differences from the baseline as a pandas data frame of numbers, one row each."""
        import pandas as pd

        rows = []
        for difference in self.differences:
            value, baseline = difference.means
            low, high = difference.interval or (None, None)
            ends = {"value": value, "baseline": baseline, "low": low, "high": high}
            rows.append(
                [
                    ends[column] if column in ends else getattr(difference, column)
                    for column in _COLUMNS
                ]
            )
        return pd.DataFrame(rows, columns=_COLUMNS)

    def __repr__(self) -> str:
        models = {name for _, name in self.records}
        tasks = {task.task for task in self.tasks}
        pairs = sum(task.family for task in self.tasks)
        return (
            f"Comparison of {len(models)} models on {len(tasks)} tasks, baseline "
            f"{self.baseline!r}, {pairs} pairs"
        )

    @property
    def conclusion(self) -> Conclusion:
        """Which differences from the baseline are significant, and what is known of the others.

        First for the mean of a tier, if it has one, then by task; last, deviations from the plan.
        """
        every = _with_baseline(self.every_task)
        if not every:
            return Conclusion(
                "Nothing was compared: no two models have scores on the same queries of these "
                "tasks."
            )
        sentences = []
        if self.means and self.means[0].with_baseline:
            sentences.append(self._significant_sentence(self.means[0].with_baseline))
        sentences.append(self._significant_sentence(every))
        alpha = self.procedure.alpha
        open_ = [difference for difference in every if not difference.significant(alpha)]
        if open_:
            sentences.append(self._open_sentence(open_))
        planned = plan_words(self)
        if planned:
            sentences.append(planned)
        return Conclusion(" ".join(sentences), data=self.data_used())

    def _significant_sentence(self, every: Sequence[PairedDifference]) -> str:
        """State the number of significant differences, their directions, and the largest."""
        procedure = self.procedure
        shown = [difference for difference in every if difference.significant(procedure.alpha)]
        corrected = f"after correction ({self.method} over all pairs of models on each task)"
        if procedure.correction == "none":
            corrected = "without a correction"
        verb = "is" if len(shown) == 1 else "are"
        text = (
            f"{len(shown)} of {plural(len(every), 'difference')} from {baseline_text(every)} on "
            f"{self._tasks_text(every)} {verb} significant {corrected}"
        )
        if not shown:
            return f"{text}."
        better = sum(difference.difference > 0 for difference in shown)
        text += f": {better} better, {len(shown) - better} worse"
        small = sum(within(difference.interval, procedure.margin) for difference in shown)
        if small:
            text += f", {small} by less than {procedure.margin:g}, the least that matters"
        largest = max(shown, key=lambda difference: abs(difference.difference))
        effect = table.effect_text(largest.difference, largest.interval, absent=f"({SINGLE_QUERY})")
        return (
            f"{text}. The largest is {effect} ({largest.metric} of {largest.first} on "
            f"{short_task(largest.task)})."
        )

    def _tasks_text(self, every: Sequence[PairedDifference]) -> str:
        """Name the task of differences, or count their tasks and name those without any."""
        tasks = {difference.task for difference in every}
        if len(tasks) == 1:
            return short_task(every[0].task)
        others = sorted({task for task, _ in self.records} - tasks)
        if not others:
            return f"{len(tasks)} tasks"
        return f"{len(tasks)} tasks (not on {_some([short_task(task) for task in others])})"

    def _open_sentence(self, open_: Sequence[PairedDifference]) -> str:
        """State the verdicts on differences that are not significant."""
        verdicts = Counter(self.find_verdict(difference) for difference in open_)
        margin = f"{self.procedure.margin:g}"
        words = {
            Verdict.EQUIVALENT: f"equivalent (within ±{margin})",
            Verdict.NO_WORSE: f"no worse (above −{margin})",
            Verdict.NOT_SHOWN: "not shown to be either",
        }
        counts = [f"{verdicts[kind]} {words[kind]}" for kind in words if verdicts[kind]]
        text = f"Not significant: {', '.join(counts)}"
        largest = max(self.detectable(difference) or 0.0 for difference in open_)
        if largest:
            text += (
                f"; a difference of {largest:.3f} is detected in 80 % of samples, whichever the "
                "model"
            )
        return f"{text}."

    def table(self) -> Table | Sections:
        """The differences from the baseline: a row per model, a column per task.

        For a tier with benchmarks, there is a column per mean; a table with many columns is
        transposed. Many tasks follow in folded tables by type.
        """
        tasks = [task for task in self.every_task if task.with_baseline]
        if len(tasks) <= MANY:
            return self._compared_table(self.means or tasks, name="differences")
        tables = []
        if self.means:
            tables.append(("Means", self._compared_table(self.means, name="differences")))
        for kind, compared in self.by_type().items():
            title = f"{kind} ({plural(len(compared), 'task')})"
            tables.append((title, self._compared_table(compared, name=f"differences-{kind}")))
        return Sections(tuple(tables))

    def _compared_table(self, tasks: Sequence[TaskComparison], *, name: str) -> Table:
        columns = [task for task in tasks if task.with_baseline]
        every = _with_baseline(columns)
        models = best_first(every)
        is_wide = len(columns) > _MOST_COLUMNS
        most = _MOST_COLUMNS if is_wide else MANY
        heads = ["model"] if columns else []
        heads += [_column_head(task, columns) for task in columns]
        rows = []
        for model in models[:most]:
            row: list[Cell | str] = [model]
            row += [self._difference_from_baseline(model, task) for task in columns]
            rows.append(row)
        note = self._reading_note([task.task for task in columns])
        compared = Table.of(
            rows,
            heads,
            note=note + table.not_shown(len(models) - most),
            name=name,
            caption=f"Difference of each model from {baseline_text(every)}, with its 95 % "
            "interval.",
            data=self.data_used(*(task.task for task in columns)),
        )
        return table.transposed(compared, first="task") if is_wide else compared

    def _difference_from_baseline(self, model: str, task: TaskComparison) -> Cell:
        for difference in task.with_baseline:
            if difference.first == model:
                is_significant = difference.significant(self.procedure.alpha)
                return difference_cell(difference, strong=is_significant)
        return Cell("baseline" if model == task.baseline else "–")

    def differences_table(self, *, task: str | Sequence[str] = "", baseline: str = "") -> Table:
        """Every model against the baseline: difference, interval, p, effect size, queries won.

        For one, several or all tasks; for one task, optionally with another ``baseline``.
        """
        tasks = list(task)
        if isinstance(task, str):
            tasks = [task] if task else []
        shown = self.differences_on(*tasks) if tasks else self.differences
        if baseline:
            compared = self.on(*tasks)
            if compared is not None:
                shown = compared.against(baseline)
        named = baseline_text(shown)
        has_like_these = any(difference.like_these for difference in shown)
        rows = []
        for difference in shown:
            delta, corrected = difference_cells(difference, alpha=self.procedure.alpha)
            measured = f"{short_task(difference.task)}, {difference.metric}"
            unpaired = f"{difference.unpaired} unpaired" if difference.unpaired else ""
            row: dict[str, object] = {
                "model\ntask": (difference.first, measured),
                f"Δ to {named}\n95 % interval": delta,
            }
            if has_like_these:
                like_these = interval_text(difference.like_these)
                row["on tasks like these\n95 % interval"] = like_these
            row["p\ncorrected"] = corrected
            row["d_z"] = number_text(difference.d_z, sign=True, digits=2)
            row["won / tied / lost"] = f"{difference.won} / {difference.tied} / {difference.lost}"
            row["queries"] = (difference.n, unpaired)
            rows.append(row)
        note = self._reading_note(tasks)
        return Table.of(
            rows,
            note=f"{note} Below a corrected p-value: the raw one.",
            empty=note,
            name=f"differences-{tasks[0]}" if len(tasks) == 1 else "paired-differences",
            caption=f"Paired differences from {named}, with 95 % intervals and corrected p-values.",
            data=self.data_used(*tasks),
        )

    def baseline_tables(self, *, task: str) -> Table | TableChoice:
        """`differences_table` on a task, with a baseline that can be changed on the page.

        All variants are based on the same tests; with many models, only the best can be baselines.
        """
        compared = self.on(task)
        if compared is None or len(compared.columns) < 2:
            return self.differences_table(task=task)
        means = {name: column.scores.mean() for name, column in compared.columns.items()}
        best = sorted(means, key=lambda name: -means[name])
        names = list(dict.fromkeys([compared.baseline or best[0], *best]))
        tables = {}
        for name in names[: max(1, _MOST_ROWS // len(names))]:
            variant = self.differences_table(task=task, baseline=name)
            caption = variant.caption.replace(in_words(name), "the baseline")
            tables[name] = replace(variant, caption=caption)
        return TableChoice(tables, "Baseline")

    def _reading_note(self, tasks: Sequence[str]) -> str:
        """Describe how differences are tested, and what is not paired."""
        shown = [task for task in self.every_column if not tasks or task.task in tasks]
        shown = [task for task in shown if task.with_baseline]
        not_paired = self._not_paired_sentence(tasks)
        if not shown:
            return f"No two models have per-query scores on the same task.{not_paired}"
        family = self.family(*tasks) if len(tasks) < 2 else self._over_all_pairs
        draws = max(task.draws for task in shown)
        note = (
            f"Paired over queries: 95 % interval ({interval_words(['paired'])}), {self.test} "
            f"with {draws:,} draws; p corrected by {family}{_skewness_condition(shown)}; in bold "
            f"where the difference is significant: corrected p < {self.procedure.alpha:g}, and "
            f"the interval excludes 0.{_clusters_sentence(shown)}"
        )
        if tasks:
            note += self.given(tasks[0])
        return note + not_paired

    def _not_paired_sentence(self, tasks: Sequence[str]) -> str:
        notes = self.notes_on(tasks) if tasks else self.notes
        if not notes:
            return ""
        listed = "; ".join(notes)
        if len(notes) > _MOST_NAMED:
            listed = f"{len(notes)} records"
        return f" Not paired: {listed}."

    def power_table(self) -> Table:
        """Verdicts by task, and the difference that its queries detect of every model.

        The detectable difference is the largest over all pairs with the baseline.
        """
        margin, alpha = self.procedure.margin, self.procedure.alpha
        tasks = [task for task in self.every_task if task.with_baseline]
        named = baseline_text(_with_baseline(tasks))
        return Table.of(
            [self._power_row(task) for task in tasks],
            note=f"Numbers of models by verdict; differences are from {named}. Equivalent: the "
            f"interval is within ±{margin:g}; no worse: it is above −{margin:g}. Detectable: "
            "the true difference that is significant in 80 % of such samples whichever the model, "
            f"the largest over the models (by a paired t-test at {alpha:g} over the number of "
            f"pairs, and by the interval); in bold above {margin:g}: these queries may then miss "
            "differences that matter.",
            empty="Nothing was compared.",
            name="power",
            caption=f"Verdicts on the differences from {named}, and the difference that these "
            "queries detect, whichever the model.",
            data=self.data_used(),
        )

    def _power_row(self, task: TaskComparison) -> dict[str, object]:
        every = task.with_baseline
        verdicts = Counter(self.find_verdict(difference) for difference in every)
        detectable = max(self.detectable(difference) or 0.0 for difference in every)
        needed = max(self.queries_needed(difference) or 0 for difference in every)
        is_large = detectable > self.procedure.margin
        row: dict[str, object] = {"task\nmetric": (short_task(task.task), task.metric)}
        for kinds in ((Verdict.BETTER, Verdict.WORSE), _OPEN_VERDICTS):
            row[" / ".join(kinds)] = " / ".join(str(verdicts[kind]) for kind in kinds)
        row["detectable\npower 0.8"] = table.number(detectable or None, strong=is_large)
        row["queries\nto be equivalent"] = table.number(needed or None, ",d")
        row["queries"] = max(difference.n for difference in every)
        return row

    def figure(self) -> Figure | None:
        """Forest plots: a panel per task, a row per model with its difference and interval.

        For a tier with benchmarks, a panel per mean; otherwise at most `MANY` tasks. Filled markers
        are significant after correction; the grey band contains differences that do not matter.
        None if nothing was compared.
        """
        every = [task for task in self.means or self.tasks if task.with_baseline]
        tasks = every[:MANY]
        if not tasks:
            return None
        alpha, margin = self.procedure.alpha, self.procedure.margin
        shown = _with_baseline(tasks)
        best = best_first(self.differences)[:MOST_MODELS]
        in_order = dict.fromkeys(difference.first for difference in self.differences)
        models = [name for name in in_order if name in best]
        words = [
            f"{difference.first} on {short_task(difference.task)}: {difference}"
            for difference in shown
            if difference.first in models
        ]
        caption = (
            f"Difference of each model's mean from that of {baseline_text(shown)}, paired over "
            f"the n queries below each panel, with 95 % intervals ({interval_words(['paired'])}). "
            f"Filled: significantly different by the {self.test}, corrected p < {alpha:g}, "
            f"{self.family()}, and by the interval; open: not significantly different. Shaded: "
            f"differences below {margin:g}."
        )
        if len(every) > len(tasks):
            caption += f" {len(every) - len(tasks)} tasks are not shown."
        count = len({difference.first for difference in shown})
        return Figure(
            name="differences",
            draw=DifferencePanels(tasks, models, alpha, margin).draw,
            caption=caption + table.not_shown(count - len(models)),
            alt=f"Forest plots of differences from {self.baseline}. {'; '.join(words)}.",
            data=self.data_used(*(task.task for task in tasks)),
        )

    def pairs_figure(self) -> Figure | None:
        """A matrix of models: the number of tasks on which the row is significantly better.

        Of more than `MOST_MODELS` models, the baseline and those most above it are shown; p-values
        are corrected over the pairs of all models. None if nothing was compared.
        """
        tasks = [task for compared in self.by_type().values() for task in compared]
        if not tasks:
            return None
        every = {name for task in tasks for name in task.columns}
        shown = every
        if len(every) > MOST_MODELS:
            above = best_first(_with_baseline(tasks))
            shown = {self.baseline, *above[: MOST_MODELS - 1]}
        pairs = [pair for task in tasks for pair in task.among(shown)]
        alpha, count = self.procedure.alpha, plural(len(tasks), "task")
        undecided = sum(not pair.significant(alpha) for pair in pairs)
        caption = (
            f"Every pair of models: on how many of {count} the row is significantly above the "
            f"column, paired over the queries that both answered ({self.test}, corrected p < "
            f"{alpha:g}, {self._over_all_pairs}, and an interval that excludes 0)."
        )
        if len(shown) < len(every):
            caption += (
                f" Shown are the baseline and the {len(shown) - 1} models most above it on "
                f"average; of the {len(every)} models compared, comparison.difference(first, "
                "second, task=name) in this notebook gives any pair, corrected alike."
            )
        return Figure(
            name="pairs",
            draw=PairMatrix(pairs, len(tasks), alpha).draw,
            caption=caption,
            alt=f"A matrix of counts of {count}. "
            f"{undecided} of {len(pairs)} pairs are not significantly different.",
            data=self.data_used(*(task.task for task in tasks)),
        )


def _with_baseline(tasks: Iterable[TaskComparison]) -> tuple[PairedDifference, ...]:
    """Return every system against the baseline, task by task."""
    return tuple(difference for task in tasks for difference in task.with_baseline)


def _family_sizes(sizes: Sequence[int]) -> str:
    """List the numbers of pairs, or their range if there are many."""
    if len(sizes) <= _MOST_COUNTS:
        return ", ".join(map(str, sizes))
    smallest, largest = min(sizes), max(sizes)
    if smallest < largest:
        return f"{smallest} to {largest}"
    return f"{smallest} each"


def _column_head(task: TaskComparison, columns: Sequence[TaskComparison]) -> str:
    """Name a task with its metric and n, and its baseline if others have another one."""
    queries = max(difference.n for difference in task.with_baseline)
    text = f"{short_task(task.task)}\n{task.metric}, n = {queries:,}"
    if len({column.baseline for column in columns}) > 1:
        text += f", to {in_words(task.baseline)}"
    return Head(text, queries)


def _clusters_sentence(tasks: Sequence[TaskComparison]) -> str:
    clustered = [f"{short_task(task.task)}, {task.clustered}" for task in tasks if task.clustered]
    if not clustered:
        return " The records have no clusters: queries are treated as independent."
    listed = "; ".join(clustered)
    if len(clustered) > _MOST_NAMED:
        listed = f"on {plural(len(clustered), 'task')}"
    return f" Queries of a cluster are treated as dependent: {listed}."


def _skewness_condition(tasks: Sequence[TaskComparison]) -> str:
    """Say what the correction presumes, where few queries may hide that it does not hold."""
    families = [task for task in tasks if task.family > 1]
    sizes = [pair.units or pair.n for pair in _with_baseline(families)]
    return skewness_condition(min(sizes, default=0))


def _some(names: Sequence[str]) -> str:
    """Name the first few, and count the others."""
    text = ", ".join(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        text += f" and {len(names) - _MOST_NAMED} more"
    return text


def compare(
    results: Iterable[Result] | str,
    *models: str,
    baseline: str = "",
    metric: str | Sequence[str] = "",
    tier: str = "",
    tasks: str | Sequence[str] = (),
    alpha: float = 0.05,
    margin: float = 0.05,
    correction: str = MAX_T,
    draws: int = DRAWS,
    seed: int = 0,
    clusters: bool = True,
    minimum: float | None = None,
) -> Comparison:
    """Compare models on all tasks of which they have records.

    Args:
        results: any records; the newest of each model and task is used.
        models: labels of the models to compare; by default all.
        baseline: label or name of a model; by default the one in ``_config.yml``, else a reference
            model (see `qwen3nb.analysis.comparison.alignment`), else the first by name of the
            models with most tasks.
        metric: one or several per-query metrics; by default each task's main metric.
        tier: name of the tier whose tasks are compared.
        tasks: task names, or a comma-separated string, instead of a tier's; by default every task
            with a record.
        alpha: level of the tests.
        margin: smallest difference that matters.
        correction: one of `multiple_testing.CORRECTIONS`.
        draws: number of sign flips; increased where the number of pairs requires it.
        seed: seed of the sign flips.
        clusters: whether tests and intervals of differences treat queries of one cluster
            (`TaskInfo.clusters`) as dependent.
        minimum: earlier name of ``margin``, in notebooks of older studies.

    Raises:
        ValueError: an unknown tier, correction or model, or a baseline or metric without records;
            lists the available ones.
        TypeError: names of models instead of records; says what to write.
    """
    if isinstance(results, str):
        listed = ", ".join(map(repr, (results, *models)))
        raise TypeError(
            f"expected records, got {results!r}; write q.load_results().compare({listed})"
        )
    check_choice("correction", correction, CORRECTIONS)
    if minimum is not None:
        margin = minimum
    records = list(results)
    if models:
        records = list(Results(records).filter(model=models))
    everything = latest(records)
    keys = _task_keys(everything, tier, tasks)
    on_tasks = [record for record in everything if record.task.key in keys]
    newest, replaced = alignment.newest_records(on_tasks)
    in_order = sorted(newest, key=lambda record: keys.index(record.task.key))
    compared = alignment.by_part(in_order)
    metrics = [metric] if isinstance(metric, str) else list(metric)
    _check_metrics(compared, metrics)
    names = alignment.system_names(on_tasks)
    labels: dict[str, str] = {}
    for record in on_tasks:  # the first of several systems with one label
        labels.setdefault(record.model.label, names[record.model.identity, record.seed])
    named = _named_baseline(baseline, labels, everything)
    order = _baseline_order(compared, names, metrics, named)
    procedure = Procedure(alpha, margin, correction, draws, seed=seed, clusters=clusters)
    by_mean, by_correlation = [], []
    for task in _tasks_of(compared):
        of_task = [record for record in compared if record.task.key == task]
        by_metric = [_compare_on(of_task, names, name, order, named, procedure) for name in metrics]
        if any("gold" in record.per_query for record in of_task):
            by_correlation += by_metric
        else:
            by_mean += by_metric
    means: tuple[MeanComparison, ...] = ()
    if tier and not tasks and not any(metrics):
        means = mean_comparisons(compared, tier, baselines=order, names=names, procedure=procedure)
    return Comparison(
        baseline=order[0] if order else "",
        tasks=tuple(by_mean),
        records={
            (record.task.key, names[record.model.identity, record.seed]): record
            for record in compared
        },
        procedure=procedure,
        names=names,
        left_out=tuple(replaced),
        labels=labels,
        correlations=tuple(by_correlation),
        means=means,
    )


def _task_keys(results: Sequence[Result], tier: str, tasks: str | Sequence[str]) -> Sequence[str]:
    """Return the tasks to compare on: those named, those of a tier, or all with a record."""
    named = split_names(tasks) if isinstance(tasks, str) else list(tasks)
    if named:
        return named
    if tier:
        return TIERS[check_choice("tier", tier, TIERS)].task_keys
    return _tasks_of(results)


def _tasks_of(results: Iterable[Result]) -> list[str]:
    return list(dict.fromkeys(result.task.key for result in results))


def _check_metrics(results: Sequence[Result], metrics: Iterable[str]) -> None:
    """Refuse metrics that no record has per query; correlations only have the main metric."""
    recorded: set[str] = set()
    for result in results:
        if "gold" in result.per_query:
            recorded.add(result.task.main_metric)
        else:
            recorded.update(result.per_query)
    for metric in metrics:
        if metric and metric not in recorded:
            available = ", ".join(sorted(recorded)) or "no results"
            raise ValueError(f"no result has {metric!r} per query; available: {available}")


def _named_baseline(baseline: str, labels: Mapping[str, str], everything: Sequence[Result]) -> str:
    """Return the name of the baseline that was asked for, here or in ``_config.yml``.

    Raises:
        ValueError: it has no record on these tasks; says which models have.
    """
    names = labels.values()
    if not baseline:
        of_book = book_settings().baseline
        is_available = of_book in labels or of_book in names
        baseline = of_book if is_available else ""
    if not baseline or baseline in names:
        return baseline
    if baseline in labels:
        return labels[baseline]
    available = ", ".join(sorted(labels)) or "no results"
    tasks = {record.task.key for record in everything if record.model.label == baseline}
    tiers = [name for name, tier in TIERS.items() if tasks.intersection(tier.task_keys)]
    elsewhere = f"; it has records in tier {' and '.join(tiers)}" if tiers else ""
    raise ValueError(
        f"no result of the baseline {baseline!r} on these tasks; available: {available}{elsewhere}"
    )


def _baseline_order(
    results: Iterable[Result], names: Names, metrics: Sequence[str], named: str
) -> list[str]:
    """Return the names of possible baselines, the first choice first."""
    scored = [result for result in results if _has_scores(result, metrics)]
    order = dict.fromkeys(alignment.baselines(scored, names))
    if named:
        order = dict.fromkeys([named, *order])
    if order:
        return list(order)
    tasks = Counter(names[result.model.identity, result.seed] for result in scored)
    return sorted(tasks, key=lambda name: (-tasks[name], name))


def _has_scores(result: Result, metrics: Sequence[str]) -> bool:
    if "gold" in result.per_query:
        return True
    return any((metric or result.task.main_metric) in result.per_query for metric in metrics)


def _compare_on(
    records: Sequence[Result],
    names: Names,
    metric: str,
    baselines: Sequence[str],
    named: str,
    procedure: Procedure,
) -> TaskComparison:
    """Compare on one task, on the data revision of the ``named`` baseline."""

    def name_of(record: Result) -> str:
        return names[record.model.identity, record.seed]

    ordered = sorted(map(_as_means, records), key=name_of)
    task = ordered[0].task.key
    metric = metric or ordered[0].task.main_metric
    revision = alignment.common_revision(ordered)
    for record in ordered:
        if name_of(record) == named:
            revision = str(record.task.revision)
            break
    columns, left_out = alignment.score_columns(task, ordered, names, metric, revision)
    present = [name for name in baselines if name in columns]
    baseline = present[0] if present else ""
    if columns and baselines and baseline != baselines[0]:
        instead = f"; compared with {baseline}" if baseline else ""
        left_out.append(f"{task}: no record of {baselines[0]}{instead}")
    clusters: Mapping[str, str] = {}
    if procedure.clusters:
        clusters = alignment.newest_clusters(
            record for record in ordered if str(record.task.revision) == revision
        )
    return TaskComparison(
        task, metric, baseline, columns, procedure, tuple(left_out), clusters=clusters
    )


def _as_means(result: Result) -> Result:
    """Return a record scored by a correlation, with scores per pair of texts averaging to it.

    The score of a pair is the correlation plus the pair's influence on it. Paired differences are
    then tested as for other metrics; without a correlation, there are no scores.
    """
    if "gold" not in result.per_query:
        return result
    scores, metric = result.scores, result.task.main_metric
    rows = sorted_rows(scores.queries)
    cosines, grades = scores.array("cosine")[rows], scores.array("gold")[rows]
    is_scored = ~np.isnan([cosines, grades]).any(axis=0)
    rows, cosines, grades = rows[is_scored], cosines[is_scored], grades[is_scored]
    if len(rows) < _FEWEST_PAIRS or not np.ptp(cosines) or not np.ptp(grades):
        return replace(result, per_query={})
    kind = "pearson" if metric.lower() == "pearson" else "spearman"
    correlation, influence = correlation_influence(cosines, grades, how=kind)
    per_pair = np.full(len(scores.queries), np.nan)
    per_pair[rows] = correlation + influence - influence.mean()
    return replace(
        result, per_query=QueryScores(scores.queries, {metric: per_pair}, ids=scores.ids)
    )
