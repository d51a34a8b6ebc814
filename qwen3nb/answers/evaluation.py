"""How good is one model, and is it better than a baseline? Scores with paired differences."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from qwen3nb.analysis.comparison.benchmark_means import MEAN
from qwen3nb.analysis.comparison.differences import ALPHA, TEST, skewness_condition
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.answers.against_baseline import NO_REFERENCE, AgainstBaseline, against_baseline
from qwen3nb.answers.all_results import Summary, summarise
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.checks import Checks, sanity_check
from qwen3nb.answers.one_model import (
    model_and_run_table,
    parts_table,
    per_query_figure,
    suite_table,
)
from qwen3nb.answers.one_query import query_table
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
from qwen3nb.utils.format import interval_text, number_text, p_value_text
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
        """A row per task: the main score, and its difference from the baseline."""
        return scores_table(self.scores, results=self.results, skipped=self.evaluation.skipped)

    def figure(self) -> Figure | None:
        """The difference from the baseline on every task; without one, the scores of queries."""
        return baseline_figure(self.scores) or self.per_query_figure()

    def to_frame(self) -> DataFrame:
        """The scores by every metric, a row each."""
        return self.results.to_frame(all_metrics=True)

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
        """Whether the model is sound: it is run on a few texts."""
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
    """Return a row per task of one model: the main score, and its difference from the baseline.

    Links to a score lead to its row, which links to the file of its record. Many tasks are in a
    folded table per type, after the means. Skipped tasks are listed below, with the reason.
    """
    files = {result.task.key: record_link(result) for result in results}
    about = _skipped_text(skipped)
    if len(scores) <= MANY:
        return _table_of_scores(scores, files, about=about)
    by_type: dict[str, list[AgainstBaseline]] = {}
    for score in scores:
        by_type.setdefault(score.type, []).append(score)
    tables = []
    # Means come first, because False comes before True; then the types by name.
    for kind in sorted(by_type, key=lambda kind: (kind != MEAN, kind)):
        title = "Means" if kind == MEAN else kind
        table_of_kind = _table_of_scores(by_type[kind], files, kind=kind)
        tables.append((f"{title} ({len(by_type[kind])})", table_of_kind))
    return Sections(tuple(tables), about)


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
    note = _intervals_sentence(scores)
    if is_compared:
        note += (
            " In bold: differences Δ from the baseline that are significant (corrected p < "
            f"{ALPHA:g}, and the interval excludes 0). p: {_test_and_correction(scores)}."
        )
    caption = f"Scores of {scores[0].model if scores else 'the model'}"
    if kind:
        caption += f": {kind}"
    return Table.of(
        rows,
        note=f"{note} {about}".strip(),
        empty=about,
        name=f"scores-{kind}" if kind else "scores",
        caption=f"{caption}.",
        data=data_of(scores),
    )


def _score_row(score: AgainstBaseline, file: str, is_compared: bool) -> dict[str, Cell]:
    # Of a mean over tasks, such as "mean nDCG@10 of 15 tasks".
    metric, _, tasks = score.metric.partition(" of ")
    tasks_text = f"of {tasks}" if tasks else ""
    row = {
        "task": Cell(short_task(score.task), id=task_anchor(score.task)),
        "metric": Cell(metric, tasks_text, link=formula_link(score.metric)),
        "score\n95 % interval": table.number(score.score, link=file),
    }
    if is_compared:
        # The pairs of models over which p is corrected.
        pairs = f"{score.family} pairs" if score.family else ""
        p_value = p_value_text(score.p_value)
        row["Δ\n95 % interval"] = _difference_cell(score)
        row["baseline"] = table.number(score.other, detail=score.reference)
        row["p\ncorrected"] = Cell(p_value, pairs, value=score.p_value)
    row["n"] = Cell(f"{score.score.n} {score.unit}", value=score.score.n)
    return row


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


def terminal_table(
    scores: Sequence[AgainstBaseline],
    *,
    reused: Sequence[str] = (),
    skipped: Mapping[str, str] | None = None,
) -> Table:
    """Return the scores with a line per task, for a terminal, and which records were reused."""
    rows = [
        {
            "task": short_task(score.task),
            "metric": score.metric,
            "score": number_text(score.score.value),
            "95 % interval": interval_text(table.number(score.score).interval, sign=False),
            "Δ": Cell(number_text(score.difference, sign=True), strong=score.significant),
            # The baseline, or why there is none.
            "to": score.reference or score.why,
            "n": f"{score.score.n} {score.unit}",
            "record": "reused" if score.task in reused else "new",
        }
        for score in scores
    ]
    return Table.of(rows, note=_skipped_text(skipped), data=data_of(scores))


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
    """State whether a model is better than its baselines, on the mean and by number of tasks.

    ``caution``, a caveat on the scores, comes last.
    """
    if not scores:
        return Conclusion("No task was finished, so there is no score to speak of.")
    means = [score for score in scores if score.type == MEAN]
    tasks = [score for score in scores if score.type != MEAN]
    sentences = [_mean_in_words(score) for score in means]
    by_baseline: dict[str, list[AgainstBaseline]] = {}
    for score in tasks:
        if score.difference is not None:
            by_baseline.setdefault(score.reference, []).append(score)
    sentences += [_summary_of_differences(compared) for compared in by_baseline.values()]
    without_difference = [score for score in tasks if score.difference is None]
    if without_difference:
        sentences.append(
            _summary_without_differences(without_difference, summed_up=bool(means or by_baseline))
        )
    if caution:
        sentences.append(f"{caution}.")
    return Conclusion(" ".join(sentences), data=data_of(scores))


def _mean_in_words(score: AgainstBaseline) -> str:
    """Sum up a mean over tasks, with its difference from the baseline if there is one."""
    if score.difference is not None:
        return _task_in_words(score)
    metric, _, tasks = score.metric.partition(" of ")
    over = f", over {tasks}" if tasks else ""
    return f"{score.model} has a {metric} of {table.score_text(score.score)} on {score.task}{over}."


def _summary_of_differences(scores: Sequence[AgainstBaseline]) -> str:
    """Count the significant differences from one baseline, and name the largest of them."""
    first_score, *other_scores = scores
    if not other_scores:
        return _task_in_words(first_score)
    significant_scores = [score for score in scores if score.significant]
    # Without a significant difference, the largest of all is named.
    largest = max(significant_scores or scores, key=lambda score: abs(score.difference or 0.0))
    effect = f"(the largest, on {short_task(largest.task)}: {_effect(largest)})"
    compared = f"Of {len(scores)} tasks compared with {first_score.reference}, "
    if not significant_scores:
        return f"{compared}{first_score.model} has no significant difference on any {effect}."
    better = sum(score.verdict == "better" for score in significant_scores)
    worse = len(significant_scores) - better
    return (
        f"{compared}{first_score.model} is better on {better} and worse on {worse} by a "
        f"significant paired difference {effect}."
    )


def _summary_without_differences(scores: Sequence[AgainstBaseline], *, summed_up: bool) -> str:
    """State what a model scores on tasks without a difference, and which baseline is missing."""
    sentences = []
    if not summed_up:
        sentences.append(_scores_in_words(scores))
    reasons = Counter(score.why for score in scores)
    # The count of a single reason would repeat the number of tasks.
    words = list(reasons)
    if len(reasons) > 1:
        words = [f"{count}: {reason}" for reason, count in reasons.items()]
    untested = f"Tasks without a difference to test: {len(scores)} ({'; '.join(words)})"
    baseline = _advised_baseline([score for score in scores if score.why == NO_REFERENCE])
    if baseline:
        untested += f"; run `qwen3nb eval --model {baseline}` on the same tasks for a baseline"
    return " ".join([*sentences, f"{untested}."])


def _scores_in_words(scores: Sequence[AgainstBaseline]) -> str:
    """State the score of the first task, or the number of tasks if there are many."""
    first_score = scores[0]
    if len(scores) > MANY:
        return (
            f"{first_score.model} has scores on {len(scores)} tasks, and no mean over a whole "
            "benchmark."
        )
    return (
        f"{first_score.model} scores {first_score.metric} {table.score_text(first_score.score)} on "
        f"{short_task(first_score.task)}, n = {first_score.score.n}."
    )


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


def _task_in_words(score: AgainstBaseline) -> str:
    verdict = f"{score.model} is {score.verdict} than {score.reference}"
    if score.verdict == "not shown":
        verdict = f"no difference between {score.model} and {score.reference} is shown"
    values = f"{score.metric} {number_text(score.score.value)} against {number_text(score.other)}"
    return (
        f"On {short_task(score.task)}, {verdict}: {values}, a paired difference of "
        f"{_effect(score)}."
    )


def _effect(score: AgainstBaseline) -> str:
    difference = score.difference or 0.0
    if score.identical:
        return f"{number_text(difference, sign=True)}, identical scores on all {score.score.n}"
    effect = table.effect_text(difference, score.interval, score.p_value, absent="(no interval)")
    if score.family > 1:
        effect += f" over {score.family} pairs"
    return f"{effect}, n = {score.score.n}"
