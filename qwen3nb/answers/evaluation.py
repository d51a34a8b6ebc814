"""How good is one model, and is it better than a baseline? Scores with paired differences."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from qwen3nb.analysis.comparison.benchmark_means import MEAN
from qwen3nb.analysis.comparison.differences import ALPHA, TEST, skewness_condition
from qwen3nb.analysis.forecasting.published import published_benchmarks
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.answers.against_baseline import NO_REFERENCE, AgainstBaseline, against_baseline
from qwen3nb.answers.all_results import Summary, summarise
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.checks import Checks, sanity_check
from qwen3nb.answers.forecast import Forecast, forecast_results
from qwen3nb.answers.one_model import (
    model_and_run_table,
    parts_table,
    per_query_figure,
    small_sets_table,
    suite_table,
)
from qwen3nb.answers.one_query import query_table
from qwen3nb.answers.preview import forecasts
from qwen3nb.answers.run_trace import RunTrace
from qwen3nb.evaluation.run import EvaluationRun, Run
from qwen3nb.metrics.intervals import few_queries_sentence, interval_words
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import Results
from qwen3nb.records.store import records_under
from qwen3nb.report.render import table
from qwen3nb.report.render.figure import Figure, ForestRow, forest_figure
from qwen3nb.report.render.home import formula_link, record_link, task_anchor
from qwen3nb.report.render.table import (
    MANY,
    Cell,
    Conclusion,
    Sections,
    Table,
    plural,
    short_task,
)
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.format import first_names, interval_text, number_text, p_value_text
from qwen3nb.utils.imports import DataFrame

_MOST_NAMES = 3  # tasks that a sentence names


@dataclass(frozen=True, repr=False)
class Evaluation(Answer):
    """One model on its tasks, compared with a baseline; what was reused, skipped or failed."""

    model: Any  # the loaded model
    sources: list[Any]  # the folders or tasks that were evaluated
    requested: list[str]  # names of all requested tasks
    evaluation: EvaluationRun
    run: Run
    baseline: str  # label of the model to compare with; empty for a reference model
    tier: str  # tier whose mean is shown; empty if only a part of it was requested
    caution: str  # warning if the model was used without its authors' prompts
    forecast_benchmarks: tuple[str, ...] = ()  # benchmarks to forecast from these tasks

    @property
    def results(self) -> Results:
        """The records."""
        return self.evaluation.results

    @property
    def failures(self) -> Mapping[str, str]:
        """Why tasks failed, by name."""
        return self.evaluation.reasons

    @cached_property
    def all_records(self) -> Results:
        """The records in the folder, of all models, read once for everything on the page.

        Other runs write records meanwhile. `trace` must name those that the scores were compared
        with, or a page that has just missed a record would never be made anew.
        """
        return records_under(self.run.folder, adapters=False)

    @cached_property
    def scores(self) -> list[AgainstBaseline]:
        """Each score with its paired difference from the baseline."""
        return against_baseline(
            self.results,
            self.all_records,
            baseline=self.baseline,
            tier=self.tier,
            seed=self.run.seed,
        )

    @cached_property
    def summary(self) -> Summary:
        """Means by type or benchmark, with what is missing."""
        reasons = {**self.evaluation.skipped, **self.evaluation.reasons}
        return summarise(self.results, requested=self.requested, reasons=reasons)

    @property
    def trace(self) -> RunTrace:
        """The scores as data, for a page."""
        evaluation_run = self.evaluation
        trace = RunTrace(tuple(self.scores), evaluation_run.reused, evaluation_run.skipped)
        baseline_label = self.baseline or book_settings().baseline
        baselines = trace.baselines_among(self.all_records, named=baseline_label)
        return replace(trace, baselines=baselines)

    @property
    def conclusion(self) -> Conclusion:
        """Whether the model is better than its baselines, on the mean and by number of tasks."""
        return evaluation_conclusion(self.scores, caution=self.caution)

    def table(self) -> Table | Sections:
        """A row per task: the main score, that of the baseline, and which one is better."""
        return scores_table(self.scores, results=self.results, skipped=self.evaluation.skipped)

    def _hints(self, benchmark: str) -> Table | None:
        """Scores far from what the model's others suggest; None if there is none."""
        answer = forecast_results(self.results, benchmark=benchmark)
        if answer is None or not answer.is_usual or not answer.implausible:
            return None
        return answer.hints()

    def intervals_table(self) -> Table | Sections:
        """A row per task: the score and its difference from the baseline, tested."""
        return intervals_table(self.scores)

    def details(self) -> Sections:
        """What stands behind the scores, folded on a page: intervals, tests, checks, the run."""
        views: dict[str, Table | Sections | Figure | None] = {
            "Intervals and tests": self.intervals_table(),
            "Differences from the baseline": baseline_figure(self.scores),
            "By language and subset": self.parts_table(),
            "Small sets": small_sets_table(self.results),
            "Every check": self.checks().table(),
            "Model, settings, software and the command": self.model_and_run_table(),
        }
        for forecast in self.forecasts:
            views[f"Forecast of {forecast.benchmark.name}"] = forecast.table()
        for benchmark in published_benchmarks():
            views[f"Scores to look at, by {benchmark}"] = self._hints(benchmark)
        shown = tuple((title, view) for title, view in views.items() if view is not None)
        return Sections(shown, folded=True)

    def figure(self) -> Figure | None:
        """The difference from the baseline on every task; without one, the scores of queries."""
        return baseline_figure(self.scores) or self.per_query_figure()

    def to_frame(self) -> DataFrame:
        """The scores by every metric, a row each."""
        return self.results.to_frame(all_metrics=True)

    @cached_property
    def forecasts(self) -> list[Forecast]:
        """What the means of the benchmarks will be, in a preview; else nothing."""
        return forecasts(self.results, self.forecast_benchmarks)

    def forecast_conclusions(self) -> list[Conclusion]:
        """The mean that each benchmark will have, in a preview; else nothing."""
        return [forecast.conclusion for forecast in self.forecasts]

    def failures_table(self) -> Table | None:
        """The tasks that failed and why; None if none did."""
        return failures_table(self.failures) if self.failures else None

    def means_table(self) -> Table | None:
        """The means over benchmarks; None if none was requested as a whole."""
        return suite_table(self.summary) if self.summary.means else None

    def parts_table(self) -> Table | None:
        """The scores by language, subset and split; None if no task has several."""
        return parts_table(self.results)

    def per_query_figure(self) -> Figure | None:
        """How the scores of queries are distributed."""
        return per_query_figure(self.results)

    def query_table(self, *, query: str = "", limit: int = 0) -> Table | None:
        """One query with the model's first documents; None if the corpus is too large."""
        return query_table(self.model, self.sources, self.results, query=query, limit=limit)

    def checks(self) -> Checks:
        """Whether the model is sound: it is run on a few texts, once."""
        return self._checks

    @cached_property
    def _checks(self) -> Checks:
        return sanity_check(self.model)

    def model_and_run_table(self) -> Table:
        """The model, the software that measured it, and the command that does so again."""
        return model_and_run_table(self.results)


def scores_table(
    scores: Sequence[AgainstBaseline],
    *,
    results: Sequence[Result] = (),
    skipped: Mapping[str, str] | None = None,
) -> Table | Sections:
    """Return a row per task of one model: the main score, the baseline's, and the better one.

    Links to a score lead to its row, which links to the file of its record. Many tasks are in a
    folded table per type, after the means. Skipped tasks are listed below, with the reason.
    """
    files = {result.task.key: record_link(result) for result in results}
    about = f"{_small_sets_text(results)} {_skipped_text(skipped)}".strip()
    if len(scores) <= MANY:
        return _table_of_scores(scores, files, about=about)
    tables = []
    for kind, scores_of_kind in _by_type(scores).items():
        table_of_kind = _table_of_scores(scores_of_kind, files, kind=kind)
        tables.append((_title(kind, scores_of_kind), table_of_kind))
    return Sections(tuple(tables), about)


def intervals_table(scores: Sequence[AgainstBaseline]) -> Table | Sections:
    """Return a row per task: the score and its difference from the baseline, with intervals and p.

    Many tasks are in a folded table per type, after the means.
    """
    if len(scores) <= MANY:
        return _table_of_intervals(scores)
    tables = []
    for kind, scores_of_kind in _by_type(scores).items():
        tables.append((_title(kind, scores_of_kind), _table_of_intervals(scores_of_kind, kind)))
    return Sections(tuple(tables), folded=True)


def _by_type(scores: Sequence[AgainstBaseline]) -> dict[str, list[AgainstBaseline]]:
    """Return scores by type of task, the means first, then the types by name."""
    kinds = {score.type for score in scores}
    # False comes before True.
    in_order = sorted(kinds, key=lambda kind: (kind != MEAN, kind))
    return {kind: [score for score in scores if score.type == kind] for kind in in_order}


def _title(kind: str, scores: Sequence[AgainstBaseline]) -> str:
    title = "Means" if kind == MEAN else kind
    return f"{title} ({len(scores)})"


def data_of(scores: Sequence[AgainstBaseline]) -> DataUsed:
    """Return the data of scores; a mean over tasks has none of its own."""
    return DataUsed.of_revisions((score.task, score.revision) for score in scores if score.revision)


def failures_table(failures: Mapping[str, str]) -> Table:
    """Return the tasks that failed and why; empty if none did."""
    return Table.of(
        sorted(failures.items()),
        ("run", "why"),
        empty="No task failed.",
        kind="words",
        name="failures",
        caption="Runs that failed, and why.",
    )


def _small_sets_text(results: Sequence[Result]) -> str:
    """Name the tasks of which a part was evaluated, cut by a rule."""
    names = [short_task(result.task.key) for result in results if result.data.nano]
    if not names:
        return ""
    listed = first_names(names, most=_MOST_NAMES)
    return f"Small sets, cut from whole ones: {listed}. Their scores are not those of the whole."


def _skipped_text(skipped: Mapping[str, str] | None) -> str:
    """Name the tasks left out, or state their number, and why."""
    if not skipped:
        return ""
    by_reason: dict[str, list[str]] = {}
    for task, reason in skipped.items():
        by_reason.setdefault(reason, []).append(task)
    sentences = []
    for reason, tasks in by_reason.items():
        names = ", ".join(tasks)
        if len(tasks) > _MOST_NAMES:
            names = plural(len(tasks), "task")
        sentences.append(f"Left out: {names} ({reason}).")
    return " ".join(sentences)


def _table_of_scores(
    scores: Sequence[AgainstBaseline], files: Mapping[str, str], *, kind: str = "", about: str = ""
) -> Table:
    is_compared = any(score.difference is not None for score in scores)
    rows = [_score_row(score, files.get(score.task, ""), is_compared) for score in scores]
    note = ""
    if is_compared:
        note = (
            "In bold: the better one, or both where no difference is shown. Below a score: whether "
            "it is shown to be better or worse than the baseline's."
        )
    return Table.of(
        rows,
        note=f"{note} {about}".strip(),
        empty=about,
        name=f"scores-{kind}" if kind else "scores",
        caption=_caption(scores, kind),
        data=data_of(scores),
        method=_method(scores),
    )


def _score_row(score: AgainstBaseline, file: str, is_compared: bool) -> dict[str, Cell]:
    row = _task_cells(score)
    row["task"] = replace(row["task"], id=task_anchor(score.task))
    is_tested = score.difference is not None
    row["score"] = table.number(
        score.score.value,
        absent="undefined",
        detail=_verdict_words(score) or score.score.undefined,
        strong=is_tested and score.verdict != "worse",
        link=file,
    )
    if is_compared:
        row["baseline"] = table.number(
            score.other,
            detail=score.reference or score.why,
            strong=is_tested and score.verdict != "better",
        )
    row["n"] = Cell(f"{score.score.n} {score.unit}", value=score.score.n)
    return row


def _task_cells(score: AgainstBaseline) -> dict[str, Cell]:
    # Of a mean over tasks, such as "mean nDCG@10 of 15 tasks".
    metric, _, tasks = score.metric.partition(" of ")
    tasks_text = f"of {tasks}" if tasks else ""
    return {
        "task": Cell(short_task(score.task)),
        "metric": Cell(metric, tasks_text, link=formula_link(score.metric)),
    }


def _verdict_words(score: AgainstBaseline) -> str:
    """Say whether a score is shown to be better or worse than the baseline's; else empty."""
    if score.identical:
        return "identical scores"
    if score.verdict == "not shown":
        return ""
    return score.verdict


def _table_of_intervals(scores: Sequence[AgainstBaseline], kind: str = "") -> Table:
    is_compared = any(score.difference is not None for score in scores)
    note = ""
    if is_compared:
        note = (
            f"In bold: significant differences Δ (corrected p < {ALPHA:g}, and the interval "
            "excludes 0). Below p: the number of pairs over which it is corrected."
        )
    return Table.of(
        [_interval_row(score, is_compared) for score in scores],
        note=note,
        empty="No scores.",
        name=f"intervals-{kind}" if kind else "intervals",
        caption=_caption(scores, kind, "with 95 % intervals"),
        data=data_of(scores),
    )


def _interval_row(score: AgainstBaseline, is_compared: bool) -> dict[str, Cell]:
    row = _task_cells(score)
    row["score\n95 % interval"] = table.number(score.score)
    if is_compared:
        # The pairs of models over which p is corrected.
        pairs = f"{score.family} pairs" if score.family else ""
        p_value = p_value_text(score.p_value)
        row["Δ\n95 % interval"] = _difference_cell(score)
        row["baseline"] = table.number(score.other, detail=score.reference)
        row["p\ncorrected"] = Cell(p_value, pairs, value=score.p_value)
    row["n"] = Cell(f"{score.score.n} {score.unit}", value=score.score.n)
    return row


def _caption(scores: Sequence[AgainstBaseline], kind: str, addition: str = "") -> str:
    caption = f"Scores of {scores[0].model if scores else 'the model'}"
    if addition:
        caption += f", {addition}"
    if kind:
        caption += f": {kind}"
    return f"{caption}."


def _method(scores: Sequence[AgainstBaseline]) -> str:
    """Say how intervals and differences are computed; they are in another table."""
    sentences = [_intervals_sentence(scores)]
    if any(score.difference is not None for score in scores):
        sentences.append(f"Differences are paired query by query: {_test_and_correction(scores)}.")
    return " ".join(sentences)


def _intervals_sentence(scores: Sequence[AgainstBaseline]) -> str:
    # The name of each method; empty for a mean, whose interval is combined from those of tasks.
    methods = [score.score.interval for score in scores if score.score.low is not None]
    sources = []
    if any(methods):
        sources.append(f"{interval_words(methods)}, over n")
    if not all(methods):
        sources.append("of means combined from those of the tasks, which are given")
    if not sources:
        return "These scores have no intervals."
    few_queries = few_queries_sentence(score.score for score in scores)
    return f"Intervals: 95 %, {'; '.join(sources)}.{few_queries}"


def _difference_cell(score: AgainstBaseline) -> Cell:
    """Return the cell of a difference, with its interval or why there is none."""
    # The detail is replaced by the interval, if there is one.
    cell = table.number(
        score.difference,
        "+.3f",
        interval=score.interval,
        detail=score.why or "no interval",
        strong=score.significant,
    )
    if score.identical:
        return replace(cell, detail="identical scores")
    return cell


def _test_and_correction(scores: Sequence[AgainstBaseline]) -> str:
    """Name the test of differences and its correction, which may depend on the task."""
    # Keys of a dict are unique, and keep their order.
    corrections: dict[str, None] = {}
    for score in scores:
        is_tested = score.difference is not None and score.family > 1
        if is_tested and score.correction != "none":
            corrections[NAMES[score.correction]] = None
    if not corrections:
        return TEST
    words = (
        f"{TEST}, corrected by {' or '.join(corrections)} over all pairs of the models with scores "
        "on the task, whose number is below p"
    )
    # Of few queries, the correction presumes that their differences are not skewed.
    sample_sizes = [score.score.n for score in scores if score.correction != "none"]
    return words + skewness_condition(min(sample_sizes, default=0))


def terminal_tables(
    scores: Sequence[AgainstBaseline], *, skipped: Mapping[str, str] | None = None
) -> list[Table]:
    """Return the scores with a line per task, for a terminal; each table is narrower than the last.

    Means over tasks are no rows; see `mean_lines`.
    """
    of_tasks = [score for score in scores if score.type != MEAN]
    baselines = {score.reference for score in of_tasks if score.difference is not None}
    rows = []
    for score in of_tasks:
        row: dict[str, Any] = {
            "task": short_task(score.task),
            "metric": score.metric,
            "score": table.number(score.score.value),
            "95 % interval": interval_text(table.number(score.score).interval, sign=False),
        }
        if baselines:
            row["Δ"] = table.number(score.difference, "+.3f", strong=score.significant)
        if len(baselines) > 1:
            row["to"] = score.reference
        row["n"] = score.score.n
        rows.append(row)
    sentences = [_reasons_text(of_tasks), _skipped_text(skipped)]
    if len(baselines) == 1:
        sentences.insert(0, f"Δ: difference from {min(baselines)}; bold: significant.")
    elif baselines:
        sentences.insert(0, "Δ: difference from the model under “to”; bold: significant.")
    note = " ".join(filter(None, sentences))
    tables = []
    for left_out in ((), ("n",), ("n", "95 % interval")):
        kept_rows = [
            {head: value for head, value in row.items() if head not in left_out} for row in rows
        ]
        tables.append(Table.of(kept_rows, note=note, data=data_of(scores)))
    return tables


def _reasons_text(scores: Sequence[AgainstBaseline]) -> str:
    """Say on how many tasks there is no difference, and why."""
    reasons = Counter(score.why for score in scores if score.why)
    sentences = []
    for reason, count in reasons.items():
        sentences.append(f"{plural(count, 'task')} without a difference: {reason}.")
    return " ".join(sentences)


def mean_lines(scores: Sequence[AgainstBaseline]) -> list[str]:
    """Return a line per mean over tasks, such as ``BEIR: mean nDCG@10 of 15 tasks 0.946``."""
    lines = []
    for score in scores:
        if score.type != MEAN:
            continue
        interval = interval_text(table.number(score.score).interval, sign=False)
        value = number_text(score.score.value)
        line = f"{short_task(score.task)}: {score.metric} {value} {interval}".rstrip()
        if score.difference is not None:
            line += f", {number_text(score.difference, sign=True)} to {score.reference}"
        lines.append(line)
    return lines


def baseline_figure(scores: Sequence[AgainstBaseline]) -> Figure | None:
    """Draw the paired difference from the baseline on every task; None without a baseline."""
    in_order = list(scores)
    if len(scores) > MANY:
        in_order.sort(key=lambda score: score.type)
    rows = [
        ForestRow(
            short_task(score.task),
            score.difference,
            score.interval,
            note=f"to {score.baseline}",
            clear=score.significant,
        )
        for score in in_order
        if score.difference is not None
    ]
    if not rows:
        return None
    return forest_figure(
        rows,
        xlabel="difference from the baseline, main metric",
        name="against-baseline",
        caption=f"Paired difference of {scores[0].model} from its baseline on each task, with its "
        "95 % interval over queries, pairs or texts. Right of the line: better than the baseline. "
        "Filled: significant; open: no difference is shown.",
        data=data_of(scores),
    )


def evaluation_conclusion(scores: Sequence[AgainstBaseline], *, caution: str = "") -> Conclusion:
    """State the first score next to its baseline, and in how many other tasks it is better.

    ``caution``, a caveat on the scores, comes last.
    """
    if not scores:
        return Conclusion("No task was finished, so there is no score to speak of.")
    compared = [score for score in scores if score.difference is not None]
    first_score = scores[0]
    # A mean speaks for all tasks; else the first task that is compared does.
    if compared and first_score.type != MEAN:
        first_score = compared[0]
    others = [score for score in scores if score.type != MEAN and score is not first_score]
    sentences = [_first_sentence(first_score)]
    if compared:
        noun = "task" if first_score.type == MEAN else "other task"
        sentences.append(_counts_sentence(others, noun))
    else:
        sentences.append(_advice_sentence(scores))
    if caution:
        sentences.append(f"{caution}.")
    return Conclusion(" ".join(filter(None, sentences)), data=data_of(scores))


def _first_sentence(score: AgainstBaseline) -> str:
    """State a score, next to that of its baseline if there is one."""
    text = _score_in_words(score)
    if score.difference is None:
        return f"{text}."
    other = number_text(score.other)
    if score.identical:
        return f"{text}, the same as {score.reference} on every query."
    if score.verdict == "not shown":
        sample = f"{score.score.n:,} {score.unit}"
        return f"{text}, as good as {score.reference} with {other}, as far as {sample} can tell."
    return f"{text}, {score.verdict} than {score.reference} with {other}."


def _score_in_words(score: AgainstBaseline) -> str:
    value = "undefined"
    if score.score.value is not None:
        value = number_text(score.score.value)
    # Of a mean over tasks, such as "mean nDCG@10 of 15 tasks".
    metric, _, tasks = score.metric.partition(" of ")
    if score.type != MEAN:
        return f"{score.model} scores {metric} {value} on {short_task(score.task)}"
    over = f", over {tasks}" if tasks else ""
    return f"{score.model} has a {metric} of {value} on {score.task}{over}"


def _counts_sentence(other_scores: Sequence[AgainstBaseline], noun: str) -> str:
    """Count the other tasks that are compared, by verdict; empty without any."""
    scores = [score for score in other_scores if score.difference is not None]
    if not scores:
        return ""
    if len(scores) == 1:
        return _one_more_sentence(scores[0])
    verdicts = Counter(score.verdict for score in scores)
    parts = [f"{word} on {verdicts[word]}" for word in ("better", "worse") if verdicts[word]]
    tasks = f"{plural(len(scores), noun)} compared"
    if len(verdicts) == 1 and parts:
        return f"It is {scores[0].verdict} on all {tasks}."
    text = f"Of {tasks}"
    if not parts:
        return f"{text}, none shows a difference."
    text += f", it is {' and '.join(parts)}"
    if verdicts["not shown"]:
        text += f"; on {verdicts['not shown']}, no difference is shown"
    return f"{text}."


def _one_more_sentence(score: AgainstBaseline) -> str:
    if score.verdict == "not shown":
        return f"On {short_task(score.task)}, no difference from {score.reference} is shown."
    return f"On {short_task(score.task)}, it is {score.verdict} than {score.reference}."


def _advice_sentence(scores: Sequence[AgainstBaseline]) -> str:
    """Advise a reference model to compare with, on tasks that lack one; or nothing."""
    baseline = _advised_baseline([score for score in scores if score.why == NO_REFERENCE])
    if not baseline:
        return ""
    return f"For a baseline, run `qwen3nb eval --model {baseline}` on the same tasks."


def _advised_baseline(scores: Sequence[AgainstBaseline]) -> str:
    """Return a reference model that has run on none of the tasks, or an empty string."""
    if not scores:
        return ""
    has_search = any(score.type in ("Retrieval", "Reranking") for score in scores)
    # A model without a record of any task is missing on the first one, too.
    for name in scores[0].missing:
        has_run_elsewhere = any(name not in score.missing for score in scores)
        # A model that only searches, such as BM25, has no scores on other types of tasks.
        is_suited = has_search or not find_source(name).kind.searches
        if is_suited and not has_run_elsewhere and name != scores[0].model:
            return name
    return ""
