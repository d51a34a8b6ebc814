"""Which model is better, and is it shown? Paired differences of models on the same queries.

Every page, table, figure and card reads differences between models from a `Comparison`. P-values
are corrected over the family of all pairs of the models compared on a task by one metric, for any
baseline. A pair therefore has the same corrected p-value wherever these models are compared,
whatever tasks and metrics are shown with it.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from qwen3nb.analysis.comparison import alignment
from qwen3nb.analysis.comparison.alignment import Names, Note, in_words, is_floor, system_name
from qwen3nb.analysis.comparison.benchmark_means import MeanComparison, mean_comparisons
from qwen3nb.analysis.comparison.brackets import Ties, find_ties
from qwen3nb.analysis.comparison.differences import (
    TEST,
    PairedDifference,
    Procedure,
    TaskComparison,
    Verdict,
    best_first,
    find_verdict,
    shown_by_interval,
    skewness_condition,
    verdict_words,
)
from qwen3nb.analysis.comparison.plan import plan_words
from qwen3nb.analysis.stats import paired_tests
from qwen3nb.analysis.stats.multiple_testing import CORRECTIONS, MAX_T, NAMES
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.compared.scores import TaskScores, ranked_figure
from qwen3nb.answers.compared.words import Turned, comparison_sentences, turned_pairs
from qwen3nb.answers.unjudged import UnjudgedRange, unjudged_range
from qwen3nb.metrics.intervals import Array, correlation_influence, interval_words
from qwen3nb.metrics.query_scores import QueryScores, rows_of_parts
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import Results
from qwen3nb.records.store import latest
from qwen3nb.report.render.differences import (
    DifferencePanels,
    PairMatrix,
    baseline_text,
    difference_cells,
)
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.table import (
    MANY,
    MOST_MODELS,
    Conclusion,
    Sections,
    Table,
    TableChoice,
    not_shown,
    number,
    plural,
    short_task,
    transposed,
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


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Answer):
    """Models compared with a baseline and with each other, task by task.

    ``comparison["bm25"]`` has the differences of one model from the baseline, and
    ``comparison["SciFact"]`` those of all models on one task.
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
    # these two read the scores of many records, and are called when they are needed
    find_correlations: Callable[[], tuple[TaskComparison, ...]] = tuple
    find_means: Callable[[], tuple[MeanComparison, ...]] = tuple

    @cached_property
    def correlations(self) -> tuple[TaskComparison, ...]:
        """The comparisons on tasks scored by a correlation; see `_with_scores_per_pair`."""
        return self.find_correlations()

    @cached_property
    def means(self) -> tuple[MeanComparison, ...]:
        """The comparisons on the means of a tier's benchmarks; the first represents the tier."""
        return self.find_means()

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
        return _with_baseline(self._columns_on(tasks))

    def __getitem__(self, model: str) -> tuple[PairedDifference, ...]:
        """Differences of a model, by name or label, from the baseline, task by task.

        Or, by the name of a task, those of all models on it.

        Raises:
            KeyError: no such model; lists the models.
        """
        name = self.labels.get(model, model)
        models = {system for _, system in self.records}
        is_task = bool(self._columns_on([model]))
        if is_task and name not in models:
            return self.differences_on(model)
        if name not in models:
            raise KeyError(f"{model!r} was not compared; models: {', '.join(sorted(models))}")
        differences = _with_baseline(self.every_task)
        return tuple(difference for difference in differences if difference.first == name)

    def summary(self) -> Conclusion:
        """The answer in sentences: the `conclusion`."""
        return self.conclusion

    def scored(self, task: str) -> list[Result]:
        """The records of a task; for a benchmark's mean, one record per system with this score."""
        for mean in self.means:
            if mean.task == task:
                return mean.records(self.records)
        return [
            record
            for (task_of_record, _), record in self.records.items()
            if task_of_record == task and record.main.value is not None
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
        if not tasks:
            return DataUsed.of(self.records.values())
        with_parts = set(tasks)
        # A mean rests on the tasks of its benchmark.
        for mean in self.means:
            if mean.task in tasks:
                with_parts.update(part.task for part in mean.parts)
        return DataUsed.of(
            record for (task, _), record in self.records.items() if task in with_parts
        )

    def name(self, result: Result) -> str:
        """Name of the system of a record."""
        return system_name(result, self.names)

    def on(self, task: str, metric: str = "") -> TaskComparison | None:
        """The comparison on one task (and metric); None if no system has scores on it."""
        for compared in self._columns_on([task]):
            if metric in ("", compared.metric):
                return compared
        return None

    def _columns_on(self, tasks: Collection[str]) -> list[TaskComparison]:
        """The comparisons on some tasks or means; those by a correlation only if none else is."""
        columns = [column for column in (*self.tasks, *self.means) if column.task in tasks]
        if {column.task for column in columns}.issuperset(tasks):
            return columns
        return [column for column in self.every_column if column.task in tasks]

    def difference(self, first: str, second: str, *, task: str) -> PairedDifference | None:
        """First − second, by name or label, on one task; None if they cannot be paired."""
        compared = self.on(task)
        if compared is None:
            return None
        first_name = self.labels.get(first, first)
        second_name = self.labels.get(second, second)
        return compared.difference(first_name, second_name)

    def between(self, first: Result, second: Result) -> PairedDifference | None:
        """First − second on the task of both records; None if they cannot be paired."""
        if first.task.key != second.task.key:
            return None
        compared = self.on(first.task.key)
        if compared is None:
            return None
        # A model that was not compared has no name here.
        first_name = self.names.get((first.model.identity, first.seed), "")
        second_name = self.names.get((second.model.identity, second.seed), "")
        return compared.difference(first_name, second_name)

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
        # A number per query, or per cluster of queries: first - second.
        units = self._units(difference)
        level = self.procedure.alpha
        if self.procedure.correction != "none":
            # Holm's first step, which holds for every pair; the level of MaxT is no lower.
            level /= max(1, difference.family)
        # The units are differences already, so they are tested against zeros.
        by_test = paired_tests.minimum_detectable_effect(units, np.zeros(len(units)), alpha=level)
        by_interval = shown_by_interval(units)
        if by_test is None or by_interval is None:
            return None
        return max(by_test, by_interval)

    def queries_needed(self, difference: PairedDifference) -> int | None:
        """Number of queries like a pair's that would show equivalence, or None."""
        margin = self.procedure.margin
        if margin <= 0:
            return None
        units = self._units(difference)
        units_needed = paired_tests.queries_to_show(units, margin=margin)
        if units_needed is None:
            return None
        # A unit is a cluster of queries, or a single one.
        return math.ceil(units_needed * difference.n / len(units))

    def could_turn(self, difference: PairedDifference) -> bool:
        """Whether rare queries that were not sampled could turn the sign of a difference."""
        return paired_tests.unseen_outlier_could_turn(self._units(difference))

    def unjudged(self, difference: PairedDifference) -> UnjudgedRange | None:
        """The range of a difference over the grades of unjudged documents; None if all is judged.

        Only records on own data say what is judged.
        """
        if difference not in self._ranges:
            self._ranges[difference] = unjudged_range(difference, self)
        return self._ranges[difference]

    def turned_by_grades(self, difference: PairedDifference) -> UnjudgedRange | None:
        """The range of a difference if grades of unjudged documents could turn its verdict."""
        found = self.unjudged(difference)
        if found is None or not found.turns:
            return None
        return found

    @cached_property
    def _ranges(self) -> dict[PairedDifference, UnjudgedRange | None]:
        """The ranges of differences that were computed."""
        return {}

    def _units(self, difference: PairedDifference) -> Array:
        """Differences on the sampling units (G,): queries, or clusters of them."""
        matrix = self.matrix(difference)
        first_scores, second_scores = matrix.scores
        return matrix.unit_values(first_scores - second_scores)

    def find_verdict(self, difference: PairedDifference) -> Verdict:
        """What a difference shows."""
        return find_verdict(
            difference.difference,
            difference.corrected,
            difference.interval,
            alpha=self.procedure.alpha,
            margin=self.procedure.margin,
        )

    def verdict(self, difference: PairedDifference) -> str:
        """Verdict on a difference in words; see `differences.verdict_words`."""
        verdict = self.find_verdict(difference)
        return verdict_words(verdict, difference.interval, margin=self.procedure.margin)

    def family(self, task: str = "") -> str:
        """The family over which p-values are corrected, in words."""
        if not task:
            return self._family_words(self.tasks)
        compared = self.on(task)
        if compared is None:
            return self._family_words([])
        return self._family_words([compared])

    def _family_words(self, comparisons: Sequence[TaskComparison]) -> str:
        """Describe the families of tests on some tasks, by their numbers of pairs."""
        # The size of a family is its number of pairs; without one, nothing was tested.
        tested = [compared for compared in comparisons if compared.family > 0]
        sizes = [compared.family for compared in tested]
        # Several metrics of one task are described once, if they have as many pairs.
        is_one_family = len({(compared.task, compared.family) for compared in tested}) == 1
        if not is_one_family:
            return f"{self._over_all_pairs} ({_family_sizes(sizes)})"
        pairs = f"all {sizes[0]} pairs"
        if sizes[0] == 1:
            pairs = "the one pair"
        return f"{self.method} over {pairs} of the models compared"

    @property
    def _over_all_pairs(self) -> str:
        return f"{self.method} over all pairs of the models compared on each task"

    @property
    def test(self) -> str:
        """The test of differences, in words."""
        return TEST

    @property
    def method(self) -> str:
        """The correction of p-values, in words."""
        method = NAMES[self.procedure.correction]
        reasons_for_holm = dict.fromkeys(task.not_max_t for task in self.tasks if task.not_max_t)
        if not reasons_for_holm:
            return method
        return f"{method} (Holm, {', or '.join(reasons_for_holm)})"

    def mean_note(self, task: str) -> str:
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
        comparisons: dict[str, list[TaskComparison]] = {}
        for compared in self.every_task:
            if compared.family > 0:
                kind = types[compared.task]
                comparisons.setdefault(kind, []).append(compared)
        return dict(sorted(comparisons.items()))

    def to_frame(self, *, all_pairs: bool = False) -> DataFrame:
        """The differences from the baseline as a pandas data frame of numbers, one row each.

        With ``all_pairs``, those of every two models, each pair once. The p-values of pages are in
        the column ``corrected``; ``p_value`` is before the correction.
        """
        import pandas as pd

        differences = self.differences
        if all_pairs:
            differences = _with_every_pair(self.tasks)
        rows = []
        for difference in differences:
            row = asdict(difference)
            row["value"], row["baseline"] = difference.means
            # None for a single query.
            row["low"], row["high"] = difference.interval or (None, None)
            rows.append(row)
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
        """Which models are better than the baseline, or which of two models is better.

        First for the mean of a tier, if it has one, else for the first task; then for the others.
        Last, deviations from the plan.
        """
        first = self._first_column
        if first is None:
            return Conclusion(
                "Nothing was compared: no two models have scores on the same queries of these "
                "tasks."
            )
        others = []
        if not self.means:
            others = [task for task in self.every_task if task.with_baseline and task is not first]
        sentences = comparison_sentences(
            first, others, unit=self._unit(first.task), turned=self._all_turned(first, others)
        )
        sentences.append(plan_words(self))
        text = " ".join(sentence for sentence in sentences if sentence)
        return Conclusion(text, data=self.data_used())

    def _all_turned(self, first: TaskComparison, others: Sequence[TaskComparison]) -> Turned:
        """The shown differences from baselines that grades of unjudged documents could turn."""
        turned = []
        for compared in (first, *others):
            for difference in compared.with_baseline:
                if not difference.significant(self.procedure.alpha):
                    continue
                found = self.turned_by_grades(difference)
                if found is not None:
                    turned.append((difference, found))
        return turned_pairs(turned)

    @property
    def _first_column(self) -> TaskComparison | None:
        """The mean or task that speaks for the others; None if nothing was compared."""
        for compared in self._columns_in_turn():
            if compared.with_baseline:
                return compared
        return None

    def _columns_in_turn(self) -> Iterator[TaskComparison]:
        """Yield the means, the tasks, and then those scored by a correlation, which take long."""
        yield from self.means
        yield from self.tasks
        yield from self.correlations

    def _unit(self, task: str) -> str:
        """What the scores on a task or mean are of, such as ``queries``."""
        for (task_of_record, _), record in self.records.items():
            if task_of_record == task:
                return record.task.unit
        return "queries"

    def ties(self, task: str) -> Ties:
        """The models on a task or mean, the best first, and which cannot be told apart."""
        return self._ties(self.on(task))

    def _ties(self, compared: TaskComparison | None) -> Ties:
        if compared is None:
            return find_ties([], [])
        means = {name: compared.mean_of(name) for name in compared.columns}
        names = sorted(means, key=lambda name: (-means[name], name))
        return self.ties_on(compared, names)

    def ties_on(self, compared: TaskComparison, names: Sequence[str]) -> Ties:
        """Return ranks and brackets of models on a task or mean, given the best first."""
        if isinstance(compared, MeanComparison):  # whose records say nothing of judgements
            return find_ties(names, compared.tied_pairs(names))
        return self.ties_of(names, compared.among(names))

    def ties_of(self, names: Sequence[str], differences: Iterable[PairedDifference]) -> Ties:
        """Return ranks and brackets of models, the best first, from the differences between them.

        Models that only grades of unjudged documents could tell apart are not told apart.
        """
        tied_pairs = {
            frozenset({difference.first, difference.second})
            for difference in differences
            if not self.is_shown(difference)
        }
        return find_ties(names, tied_pairs)

    def is_shown(self, difference: PairedDifference) -> bool:
        """Whether a difference is significant, whatever grades unjudged documents have."""
        if not difference.significant(self.procedure.alpha):
            return False
        return self.turned_by_grades(difference) is None

    def _task_scores(self, compared: TaskComparison) -> TaskScores:
        """The scores of all models on a task or mean, by the metric of the comparison."""
        scores, floor = {}, ""
        for record in self.scored(compared.task):
            name = self.name(record)
            scores[name] = record.metrics.get(compared.metric, record.main)
            if is_floor(record):
                floor = name
        return TaskScores(compared, scores, self._ties(compared), self._unit(compared.task), floor)

    def table(self) -> Table | Sections:
        """The scores: a row per model, a column per task, and what is shown next to the baseline.

        For a tier with benchmarks, there is a column per mean; a table with many columns is
        transposed. Many tasks follow in folded tables by type.
        """
        tasks = [task for task in self.every_task if task.with_baseline]
        if len(tasks) <= MANY:  # few enough for one table
            return self._scores_table(self.means or tasks, name="compared")
        sections = []
        if self.means:
            sections.append(("Means", self._scores_table(self.means, name="compared")))
        for kind, tasks_of_type in self.by_type().items():
            title = f"{kind} ({plural(len(tasks_of_type), 'task')})"
            scores = self._scores_table(tasks_of_type, name=f"compared-{kind}")
            sections.append((title, scores))
        return Sections(tuple(sections))

    def _scores_table(self, comparisons: Sequence[TaskComparison], *, name: str) -> Table:
        """Return a row per model and a column per task, or the reverse for many tasks."""
        columns = [
            self._task_scores(compared) for compared in comparisons if compared.with_baseline
        ]
        tasks = [column.compared.task for column in columns]
        if not columns:
            return Table((), (), self._method_text(tasks), name=name)
        # In the order of the first task; models without a score on it come last.
        models = list(dict.fromkeys(name for column in columns for name in column.models))
        is_transposed = len(columns) > _MOST_COLUMNS
        # A transposed table has a column per model, and a row per task.
        most_models = _MOST_COLUMNS if is_transposed else MANY
        rows = []
        for model in models[:most_models]:
            cells = [column.cell(model) for column in columns]
            rows.append([model, *cells])
        baselines = {column.compared.baseline for column in columns}
        heads = [column.head(names_baseline=len(baselines) > 1) for column in columns]
        differences = _with_baseline(column.compared for column in columns)
        scores_table = Table.of(
            rows,
            ["model", *heads],
            note="In bold: the best of a task, and models not told apart from it. Below a score: "
            "whether it is shown to be better or worse than the baseline's."
            + self._hint_at_not_paired(tasks)
            + not_shown(len(models) - most_models),
            name=name,
            caption=f"Scores of the models, next to {baseline_text(differences)}.",
            data=self.data_used(*tasks),
            method=self._method_text(tasks),
        )
        if is_transposed:
            return transposed(scores_table, first="task")
        return scores_table

    def details(self) -> Sections:
        """What stands behind the scores, folded on a page: differences, all pairs, power."""
        views = {
            "Differences from the baseline: intervals and tests": self._differences_sections(),
            "The same differences as a figure": self.differences_figure(),
            "All pairs": self.pairs_figure(),
            "What these queries can show": self.power_table(),
        }
        shown = tuple((title, view) for title, view in views.items() if view is not None)
        return Sections(shown, folded=True)

    def _differences_sections(self) -> Table | Sections:
        """Return the differences from the baseline; of many tasks, in folded tables by type."""
        tasks = [task.task for task in self.every_task if task.with_baseline]
        means = [mean.task for mean in self.means]
        if len(tasks) <= MANY:
            return self._differences_on_page([*means, *tasks], "paired-differences")
        sections = []
        if means:
            sections.append(("Means", self._differences_on_page(means, "differences-of-means")))
        for kind, tasks_of_type in self.by_type().items():
            names = [task.task for task in tasks_of_type]
            title = f"{kind} ({plural(len(names), 'task')})"
            sections.append((title, self._differences_on_page(names, f"differences-of-{kind}")))
        return Sections(tuple(sections), folded=True)

    def _differences_on_page(self, tasks: Sequence[str], name: str) -> Table:
        """Return `differences_table` without its method, which the page says at the scores."""
        return replace(self.differences_table(task=tasks), name=name, method="")

    def differences_table(self, *, task: str | Sequence[str] = "", baseline: str = "") -> Table:
        """Every model against the baseline: difference, interval, p, effect size, queries won.

        For one, several or all tasks; for one task, optionally with another ``baseline``.
        """
        if isinstance(task, str):
            tasks = [task] if task else []
        else:
            tasks = list(task)
        if tasks:
            differences = self.differences_on(*tasks)
            compared = self.on(tasks[0])
        else:
            differences = self.differences
            compared = None
        if baseline and compared is not None:  # another baseline, on one task
            differences = compared.against(baseline)
        # Such as: bm25, or bm25 (on 2 tasks: wordllama).
        baseline_words = baseline_text(differences)
        method = self._method_text(tasks)
        name = "paired-differences"
        if len(tasks) == 1:
            name = f"differences-{tasks[0]}"
        return Table.of(
            self._difference_rows(differences, baseline_words),
            note="In bold: significant by test and interval. Below a corrected p-value: the raw "
            f"one.{self._hint_at_not_paired(tasks)}",
            empty=method,
            method=method,
            name=name,
            caption=f"Paired differences from {baseline_words}, with 95 % intervals and corrected "
            "p-values.",
            data=self.data_used(*tasks),
        )

    def _difference_rows(
        self, differences: Sequence[PairedDifference], baseline_words: str
    ) -> list[dict[str, object]]:
        # Only a mean over tasks has an interval over tasks like these.
        has_like_these = any(difference.like_these for difference in differences)
        rows = []
        for difference in differences:
            delta, corrected = difference_cells(difference, alpha=self.procedure.alpha)
            measured = f"{short_task(difference.task)}, {difference.metric}"
            unpaired = f"{difference.unpaired} unpaired" if difference.unpaired else ""
            # A pair is a cell with a second line.
            row: dict[str, object] = {
                "model\ntask": (difference.first, measured),
                f"Δ to {baseline_words}\n95 % interval": delta,
            }
            if has_like_these:
                row["on tasks like these\n95 % interval"] = interval_text(difference.like_these)
            row["p\ncorrected"] = corrected
            row["d_z"] = number_text(difference.d_z, sign=True, digits=2)
            row["won / tied / lost"] = f"{difference.won} / {difference.tied} / {difference.lost}"
            row["queries"] = (difference.n, unpaired)
            rows.append(row)
        return rows

    def baseline_tables(self, *, task: str) -> Table | TableChoice:
        """`differences_table` on a task, with a baseline that can be changed on the page.

        All variants are based on the same tests; with many models, only the best can be baselines.
        """
        compared = self.on(task)
        if compared is None or len(compared.columns) < 2:
            return self.differences_table(task=task)
        means = {name: compared.mean_of(name) for name in compared.columns}
        names = sorted(means, key=lambda name: -means[name])
        # The first table is shown until a reader chooses another baseline.
        if compared.baseline in names:
            names.remove(compared.baseline)
            names.insert(0, compared.baseline)
        # Each table has a row per model: the more models, the fewer tables.
        most_tables = max(1, _MOST_ROWS // len(names))
        tables = {}
        for name in names[:most_tables]:
            table = self.differences_table(task=task, baseline=name)
            # All tables share one caption, so it does not name the baseline.
            caption = table.caption.replace(in_words(name), "the baseline")
            tables[name] = replace(table, caption=caption)
        return TableChoice(tables, "Baseline")

    def _method_text(self, tasks: Sequence[str]) -> str:
        """Describe how differences are tested, and what is not paired; of all tasks without any."""
        if tasks:
            columns = self._columns_on(tasks)
        else:  # which computes the influence of each pair on a correlation
            columns = list(self.every_column)
        columns = [compared for compared in columns if compared.with_baseline]
        not_paired = self._not_paired_sentence(tasks)
        if not columns:
            return f"No two models have per-query scores on the same task.{not_paired}"
        family = self._over_all_pairs
        # Of one task, or of all, the numbers of pairs are stated.
        if len(tasks) < 2:
            family = self.family(*tasks)
        draws = max(compared.draws for compared in columns)
        condition = _skewness_condition(columns)
        method = (
            f"Differences are paired over queries, with 95 % intervals "
            f"({interval_words(['paired'])}). Test: {self.test}, with {draws:,} draws. "
            f"p is corrected by {family}{condition}. A difference is significant if the corrected "
            f"p < {self.procedure.alpha:g} and the interval excludes 0."
        )
        method += _clusters_sentence(columns)
        method += _parts_sentence(columns)
        if tasks:
            method += self.mean_note(tasks[0])
        return method + not_paired

    def _not_paired_sentence(self, tasks: Sequence[str]) -> str:
        """Say what is not paired, and why; of much, the number."""
        notes = self.notes_on(tasks) if tasks else self.notes
        if not notes:
            return ""
        if len(notes) > _MOST_NAMED:
            return f" Not paired: {len(notes)} records."
        return f" Not paired: {'; '.join(notes)}."

    def _hint_at_not_paired(self, tasks: Sequence[str]) -> str:
        notes = self.notes_on(tasks) if tasks else self.notes
        if not notes:
            return ""
        return " Some scores are not paired: see how this was computed."

    def power_table(self) -> Table:
        """Verdicts by task, and the difference that its queries detect of every model.

        The detectable difference is the largest over all pairs with the baseline.
        """
        margin = self.procedure.margin
        tasks = [task for task in self.every_task if task.with_baseline]
        baseline = baseline_text(_with_baseline(tasks))
        return Table.of(
            [self._power_row(task) for task in tasks],
            note=f"Numbers of models. Equivalent: within ±{margin:g}; no worse: above −{margin:g}. "
            f"Detectable: the true difference that 80 % of such samples show; in bold above "
            f"{margin:g}, where these queries may miss differences that matter.",
            method="Detectable: the largest over the models, by a paired t-test at "
            f"{self.procedure.alpha:g} over the number of pairs, and by the interval. Equivalent "
            "and no worse are said of the whole interval, where no difference is significant.",
            empty="Nothing was compared.",
            name="power",
            caption=f"Verdicts on the differences from {baseline}, and what these queries detect.",
            data=self.data_used(),
        )

    def _power_row(self, compared: TaskComparison) -> dict[str, object]:
        """Count the verdicts on a task, and say what its queries detect."""
        differences = compared.with_baseline
        # None, for what cannot be computed, counts as 0, and 0 is not shown.
        number_of = Counter(self.find_verdict(difference) for difference in differences)
        detectable = max(self.detectable(difference) or 0.0 for difference in differences)
        needed_count = max(self.queries_needed(difference) or 0 for difference in differences)
        is_large = detectable > self.procedure.margin
        return {
            "task\nmetric": (short_task(compared.task), compared.metric),
            "better / worse": f"{number_of[Verdict.BETTER]} / {number_of[Verdict.WORSE]}",
            "equivalent / no worse / not shown": f"{number_of[Verdict.EQUIVALENT]} / "
            f"{number_of[Verdict.NO_WORSE]} / {number_of[Verdict.NOT_SHOWN]}",
            "detectable\npower 0.8": number(detectable or None, strong=is_large),
            "queries\nto be equivalent": number(needed_count or None, ",d"),
            "queries": max(difference.n for difference in differences),
        }

    def figure(self) -> Figure | None:
        """The scores on the first task or mean, with brackets that join models which tie.

        None if nothing was compared.
        """
        first = self._first_column
        if first is None:
            return None
        return self.figure_of(first)

    def figure_of(self, compared: TaskComparison) -> Figure:
        """The scores on one task or mean, with brackets that join models which tie."""
        left_out = not_shown(len(compared.columns) - MOST_MODELS)
        return ranked_figure(
            self._task_scores(compared),
            most=MOST_MODELS,
            left_out=left_out,
            data=self.data_used(compared.task),
        )

    def differences_figure(self) -> Figure | None:
        """Forest plots of the differences from the baseline: a panel per task, a row per model.

        For a tier with benchmarks, a panel per mean; otherwise at most `MANY` tasks. Filled markers
        are significant after correction; the grey band contains differences that do not matter.
        None if nothing was compared.
        """
        columns = [compared for compared in self.means or self.tasks if compared.with_baseline]
        panels = columns[:MANY]
        if not panels:
            return None
        alpha, margin = self.procedure.alpha, self.procedure.margin
        differences = _with_baseline(panels)
        best = best_first(self.differences)[:MOST_MODELS]
        in_order = dict.fromkeys(difference.first for difference in self.differences)
        models = [name for name in in_order if name in best]
        texts = [
            f"{difference.first} on {short_task(difference.task)}: {difference}"
            for difference in differences
            if difference.first in models
        ]
        caption = (
            f"Difference of each model from {baseline_text(differences)}, paired over the n "
            f"queries below each panel, with 95 % intervals. Filled: significant, corrected p < "
            f"{alpha:g}; open: not. Shaded: below {margin:g}."
        )
        if len(columns) > len(panels):
            caption += f" {len(columns) - len(panels)} tasks are not shown."
        number_of_models = len({difference.first for difference in differences})
        caption += not_shown(number_of_models - len(models))
        return Figure(
            name="differences",
            draw=DifferencePanels(panels, models, alpha, margin).draw,
            caption=caption,
            alt=f"Forest plots of differences from {self.baseline}. {'; '.join(texts)}.",
            data=self.data_used(*(compared.task for compared in panels)),
        )

    def pairs_figure(self) -> Figure | None:
        """A matrix of models: the number of tasks on which the row is significantly better.

        Of more than `MOST_MODELS` models, the baseline and those most above it are shown; p-values
        are corrected over the pairs of all models. None if nothing was compared.
        """
        columns: list[TaskComparison] = []
        for tasks_of_type in self.by_type().values():
            columns += tasks_of_type
        if not columns:
            return None
        alpha = self.procedure.alpha
        models = {name for compared in columns for name in compared.columns}
        models_drawn = self._models_of_pairs(columns, models)
        pairs = []
        for compared in columns:
            pairs += compared.among(models_drawn)
        undecided = sum(not pair.significant(alpha) for pair in pairs)
        tasks = plural(len(columns), "task")
        caption = (
            f"Every pair of models: on how many of {tasks} the row is significantly above the "
            f"column (corrected p < {alpha:g}, and an interval that excludes 0)."
        )
        if len(models_drawn) < len(models):
            caption += (
                f" Shown: the baseline and the {len(models_drawn) - 1} models most above it, of "
                f"{len(models)}."
            )
        return Figure(
            name="pairs",
            draw=PairMatrix(pairs, len(columns), alpha).draw,
            caption=caption,
            alt=f"A matrix of counts of {tasks}. "
            f"{undecided} of {len(pairs)} pairs are not significantly different.",
            data=self.data_used(*(compared.task for compared in columns)),
        )

    def _models_of_pairs(self, columns: Sequence[TaskComparison], models: set[str]) -> set[str]:
        """Return all models if they are few, else the baseline and those most above it."""
        if len(models) <= MOST_MODELS:
            return models
        best = best_first(_with_baseline(columns))
        return {self.baseline, *best[: MOST_MODELS - 1]}


def _with_baseline(comparisons: Iterable[TaskComparison]) -> tuple[PairedDifference, ...]:
    """Return every system against the baseline, task by task."""
    differences: list[PairedDifference] = []
    for compared in comparisons:
        differences += compared.with_baseline
    return tuple(differences)


def _family_sizes(sizes: Sequence[int]) -> str:
    """List the numbers of pairs, or their range if there are many."""
    if len(sizes) <= _MOST_COUNTS:
        return ", ".join(map(str, sizes))
    smallest, largest = min(sizes), max(sizes)
    if smallest < largest:
        return f"{smallest} to {largest}"
    return f"{smallest} each"


def _clusters_sentence(comparisons: Sequence[TaskComparison]) -> str:
    clusters = []
    for compared in comparisons:
        if compared.clustered:
            clusters.append(f"{short_task(compared.task)}, {compared.clustered}")
    if not clusters:
        return " The records have no clusters: queries are treated as independent."
    text = "; ".join(clusters)
    if len(clusters) > _MOST_NAMED:
        text = f"on {plural(len(clusters), 'task')}"
    return f" Queries of a cluster are treated as dependent: {text}."


def _parts_sentence(comparisons: Sequence[TaskComparison]) -> str:
    """Say how a task in parts is paired; empty without any."""
    if not any(compared.has_parts for compared in comparisons):
        return ""
    return (
        " A task in parts, such as languages, counts with the mean over its parts. A query of "
        "several parts counts once, as a cluster."
    )


def _skewness_condition(comparisons: Sequence[TaskComparison]) -> str:
    """Say what the correction presumes, where few queries may hide that it does not hold."""
    corrected = [compared for compared in comparisons if compared.family > 1]
    sample_sizes = [pair.units or pair.n for pair in _with_baseline(corrected)]
    return skewness_condition(min(sample_sizes, default=0))


def compare(
    results: Iterable[Result] | str,
    *chosen: str | Iterable[str],
    models: str | Iterable[str] = (),
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
        chosen: labels of the models to compare, one by one or in a list; by default all.
        models: the same, also in a comma-separated string.
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
        names_of_models = ", ".join(map(repr, (results, *chosen)))
        raise TypeError(
            f"expected records, got {results!r}; write q.load_results().compare({names_of_models})"
        )
    procedure = Procedure(
        alpha=alpha,
        margin=margin if minimum is None else minimum,
        correction=check_choice("correction", correction, CORRECTIONS),
        draws=draws,
        seed=seed,
        clusters=clusters,
    )
    records = list(results)
    chosen_models = _chosen_models(chosen, models)
    if chosen_models:
        records = list(Results(records).filter(model=chosen_models))
    everything = latest(records)
    keys = _task_keys(everything, tier, tasks)
    on_tasks = [record for record in everything if record.task.key in keys]
    newest, replaced = alignment.newest_records(on_tasks)
    newest.sort(key=lambda record: keys.index(record.task.key))
    # The parts of a task are compared one by one, but count as one of a benchmark's tasks.
    is_benchmark = bool(tier) and not tasks and bool(TIERS[tier].benchmarks)
    compared = newest if is_benchmark else alignment.by_part(newest)
    metrics = [metric] if isinstance(metric, str) else list(metric)
    _check_metrics(compared, metrics)
    names = alignment.system_names(on_tasks)
    labels = _names_by_label(on_tasks, names)
    named_baseline = _named_baseline(baseline, labels, everything)
    baselines = _baseline_order(compared, names, metrics, named_baseline)
    by_mean, by_correlation = [], []
    for task in _tasks_of(compared):
        of_task = [record for record in compared if record.task.key == task]
        comparing = _TaskRecords(
            of_task, names, procedure, baselines=baselines, named_baseline=named_baseline
        )
        if any(_is_correlation(record) for record in of_task):
            by_correlation.append(comparing)
        else:
            by_mean.append(comparing)
    find_means: Callable[[], tuple[MeanComparison, ...]] = tuple
    if tier and not tasks and not any(metrics):
        find_means = partial(
            mean_comparisons, newest, tier, baselines=baselines, names=names, procedure=procedure
        )
    return Comparison(
        baseline=baselines[0] if baselines else "",
        tasks=_compared_by(by_mean, metrics),
        records={(record.task.key, system_name(record, names)): record for record in compared},
        procedure=procedure,
        names=names,
        left_out=tuple(replaced),
        labels=labels,
        find_correlations=partial(_compared_by, by_correlation, metrics),
        find_means=find_means,
    )


def _compared_by(
    tasks: Iterable["_TaskRecords"], metrics: Sequence[str]
) -> tuple[TaskComparison, ...]:
    """Return a comparison per task and metric."""
    return tuple(comparing.compare_by(metric) for comparing in tasks for metric in metrics)


def _chosen_models(chosen: Iterable[str | Iterable[str]], models: str | Iterable[str]) -> list[str]:
    """Return the labels of the models to compare; empty for all. See `compare`."""
    if isinstance(models, str):
        models = split_names(models)
    labels = list(models)
    for label in chosen:
        if isinstance(label, str):
            labels.append(label)
        else:
            labels += label
    return labels


def _with_every_pair(tasks: Iterable[TaskComparison]) -> tuple[PairedDifference, ...]:
    differences: list[PairedDifference] = []
    for task in tasks:
        differences += task.among(task.columns)
    return tuple(differences)


def _names_by_label(records: Iterable[Result], names: Names) -> dict[str, str]:
    """Return the name of the system of each label; the first one if a label has several."""
    labels: dict[str, str] = {}
    for record in records:
        labels.setdefault(record.model.label, system_name(record, names))
    return labels


def _is_correlation(result: Result) -> bool:
    """Whether a record is scored by the correlation of cosines with grades of pairs of texts."""
    return "gold" in result.per_query


def _task_keys(results: Sequence[Result], tier: str, tasks: str | Sequence[str]) -> Sequence[str]:
    """Return the tasks to compare on: those named, those of a tier, or all with a record."""
    keys = split_names(tasks) if isinstance(tasks, str) else list(tasks)
    if keys:
        return keys
    if tier:
        return TIERS[check_choice("tier", tier, TIERS)].task_keys
    return _tasks_of(results)


def _tasks_of(results: Iterable[Result]) -> list[str]:
    return list(dict.fromkeys(result.task.key for result in results))


def _check_metrics(results: Sequence[Result], metrics: Iterable[str]) -> None:
    """Refuse metrics that no record has per query; correlations only have the main metric."""
    recorded: set[str] = set()
    for result in results:
        if _is_correlation(result):
            recorded.add(result.task.main_metric)
        else:
            recorded.update(result.per_query)
    for metric in metrics:
        if metric and metric not in recorded:  # empty for the main metric of each task
            available = ", ".join(sorted(recorded)) or "no results"
            raise ValueError(f"no result has {metric!r} per query; available: {available}")


def _named_baseline(baseline: str, labels: Mapping[str, str], everything: Sequence[Result]) -> str:
    """Return the name of the baseline that was asked for, here or in ``_config.yml``.

    Raises:
        ValueError: it has no record on these tasks; says which models have.
    """
    names = labels.values()
    if not baseline:
        baseline = book_settings().baseline
        # A baseline that nobody asked for here may be missing.
        if baseline not in labels and baseline not in names:
            return ""
    # It is given by the name of a system, or by the label of a model.
    if baseline in names:
        return baseline
    if baseline in labels:
        return labels[baseline]
    available = ", ".join(sorted(labels)) or "no results"
    text = f"no result of the baseline {baseline!r} on these tasks; available: {available}"
    tasks = {record.task.key for record in everything if record.model.label == baseline}
    tiers = [name for name, tier in TIERS.items() if tasks.intersection(tier.task_keys)]
    if tiers:
        text += f"; it has records in tier {' and '.join(tiers)}"
    raise ValueError(text)


def _baseline_order(
    results: Iterable[Result], names: Names, metrics: Sequence[str], named: str
) -> list[str]:
    """Return the names of possible baselines, the first choice first."""
    with_scores = [result for result in results if _has_scores(result, metrics)]
    reference_models = alignment.baselines(with_scores, names)
    if named:  # asked for
        return [named, *(name for name in reference_models if name != named)]
    if reference_models:
        return reference_models
    # Without a reference model, the model with most tasks, then by name.
    number_of_tasks = Counter(system_name(result, names) for result in with_scores)
    return sorted(number_of_tasks, key=lambda name: (-number_of_tasks[name], name))


def _has_scores(result: Result, metrics: Sequence[str]) -> bool:
    if _is_correlation(result):
        return True
    return any((metric or result.task.main_metric) in result.per_query for metric in metrics)


@dataclass(frozen=True)
class _TaskRecords:
    """The records of one task, and what they are compared with."""

    records: Sequence[Result]
    names: Names
    procedure: Procedure
    baselines: Sequence[str]  # names of possible baselines, the first choice first
    named_baseline: str  # the one that was asked for; empty if none was

    def compare_by(self, metric: str) -> TaskComparison:
        """Compare by a metric, or by the main one, on the data revision of the named baseline."""
        records = [_with_scores_per_pair(record) for record in self.records]
        records.sort(key=self._name)
        task = records[0].task.key
        metric = metric or records[0].task.main_metric
        revision = self._revision(records)
        columns, left_out = alignment.score_columns(task, records, self.names, metric, revision)
        # The first choice among those with scores on this task.
        baseline = next((name for name in self.baselines if name in columns), "")
        if columns:
            left_out += self._baseline_notes(task, baseline)
        clusters: Mapping[str, str] = {}
        if self.procedure.clusters:
            same_data = [record for record in records if str(record.task.revision) == revision]
            clusters = alignment.clusters_across_parts(same_data)
        return TaskComparison(
            task=task,
            metric=metric,
            baseline=baseline,
            columns=columns,
            procedure=self.procedure,
            left_out=tuple(left_out),
            clusters=clusters,
            part_of=alignment.parts_of_queries(records),
        )

    def _baseline_notes(self, task: str, baseline: str) -> list[str]:
        """Say that this baseline is not the first choice, if it is not."""
        if not self.baselines or baseline == self.baselines[0]:
            return []
        note = f"{task}: no record of {self.baselines[0]}"
        if baseline:
            note += f"; compared with {baseline}"
        return [note]

    def _name(self, record: Result) -> str:
        return system_name(record, self.names)

    def _revision(self, records: Sequence[Result]) -> str:
        """Return the revision of the data on which models are compared."""
        for record in records:
            if self._name(record) == self.named_baseline:
                return str(record.task.revision)
        return alignment.common_revision(records)


def _with_scores_per_pair(result: Result) -> Result:
    """Return a record scored by a correlation, with scores per pair of texts averaging to it.

    The score of a pair is the correlation plus the pair's influence on it. Paired differences are
    then tested as for other metrics; without a correlation, there are no scores.
    """
    if not _is_correlation(result):
        return result
    scores = result.scores
    metric = result.task.main_metric
    kind = "pearson" if metric.lower() == "pearson" else "spearman"
    is_scored = ~np.isnan(scores.array("cosine")) & ~np.isnan(scores.array("gold"))
    score_per_pair = np.full(len(scores.queries), np.nan)
    # Each part of a task has a correlation of its own; all pairs are of one part without parts.
    prefixes = [part.prefix for part in result.parts] or [""]
    for rows_of_part in rows_of_parts(scores.queries, prefixes).values():
        rows = rows_of_part[is_scored[rows_of_part]]
        cosines = scores.array("cosine")[rows]
        grades = scores.array("gold")[rows]
        # Few pairs have no interval, and the correlation with a constant is undefined.
        are_too_few = len(rows) < _FEWEST_PAIRS
        if are_too_few or _is_constant(cosines) or _is_constant(grades):
            return replace(result, per_query={})
        correlation, influence = correlation_influence(cosines, grades, how=kind)
        # The influence is centred, so that the scores average to the correlation.
        score_per_pair[rows] = correlation + influence - influence.mean()
    per_query = QueryScores(scores.queries, {metric: score_per_pair}, ids=scores.ids)
    return replace(result, per_query=per_query)


def _is_constant(values: Array) -> bool:
    return bool(values.min() == values.max())
