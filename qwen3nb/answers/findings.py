"""What a study has found besides the best model: on training, reranking and extraction.

Findings are derived only from records; unsupported ones are omitted. A card shows a title, two
numbers and a reason; the headline and the evidence have the test behind them.
"""

import html
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import comparable, in_words
from qwen3nb.analysis.comparison.differences import ALPHA, PairedDifference
from qwen3nb.analysis.training.checkpoint_scores import training_step, trajectories
from qwen3nb.analysis.training.interference import SPECIALISTS
from qwen3nb.answers.comparison import Comparison
from qwen3nb.answers.interference import Interference, interference
from qwen3nb.answers.recommendation import near_scores
from qwen3nb.answers.reranking import METRIC, rerank_differences
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.record import Result
from qwen3nb.report.render.html import escaped_text
from qwen3nb.report.render.table import Cell, Table, plural, score_text, short_task

NOT_SHOWN = "no difference shown"


@dataclass(frozen=True)
class Finding:
    """One finding: what a card says, and the test behind it."""

    title: str  # a few words
    numbers: str  # such as ``0.02 → 0.13``
    reason: str  # a few words on where the numbers are from
    headline: str  # the finding in a sentence
    evidence: str  # the numbers with interval and test
    page: str = ""  # link to these numbers, relative to the page that shows the finding


def interference_finding(report: Interference, *, folder: str = "") -> Finding | None:
    """Return the finding on joint training; None if no pair can be compared.

    The headline is what joint training costs, followed by numbers and the kill gate's verdict.
    """
    if report.worst is None:
        return None
    estimate = report.worst.overall
    count = len(estimate.seeds)
    title, numbers = "Joint or single adapters?", "undecided"
    reason = f"{plural(count, 'seed')} cannot tell"
    if report.costs_something:
        title, reason = "Joint training costs quality", f"shown by {plural(count, 'seed')}"
        numbers = f"{estimate.tir or 0.0:.1%} of the score"
    elif report.costs_nothing:
        title, numbers = "Joint training costs nothing measurable", ""
        reason = f"shown by {plural(count, 'seed')}"
    page = f"{folder}interference.html"
    return Finding(title, numbers, reason, report.finding, report.evidence, page)


def rerank_finding(
    results: Iterable[Result], *, seed: int = 0, links: Mapping[str, str] | None = None
) -> Finding | None:
    """Return the gain of the best reranker on one data set; None without records.

    The data set is the one with most rerankers, then with most queries, so that rerankers are
    compared on the same data. Adapters that were not trained to rerank are controls, and left out.
    """
    records = list(results)
    reranked = [record for record in records if _is_reranked(record) and not _is_control(record)]
    if not reranked:
        return None
    rerankers = _on_task_with_most_rerankers(reranked)
    best = max(rerankers, key=_score)
    # The p-value is corrected over the data sets of this model with the same first stage.
    family = [record for record in reranked if _is_same_pipeline(record, best)]
    gains = rerank_differences(family, seed=seed, others=records)
    gain = gains[family.index(best)]
    task = short_task(gain.task)
    evidence = f"{METRIC} on {task} against its first stage: {gain}."
    if len(rerankers) > 1:
        evidence += f" Chosen as the best of {len(rerankers)} rerankers there."
    headline = f"Reranking by {best.model.label} {_effect(gain, task, ALPHA)}"
    pages = links or {}
    return Finding(
        title=_title(
            gain,
            ALPHA,
            better="Reranking helps",
            worse="Reranking harms",
            question="Does reranking help?",
        ),
        numbers=_change(gain),
        reason=_reason(gain, ALPHA, f"{best.model.label} on {task}"),
        headline=headline,
        evidence=evidence,
        page=pages.get(best.run, ""),
    )


def _is_reranked(record: Result) -> bool:
    return f"first {METRIC}" in record.per_query


def _on_task_with_most_rerankers(records: Iterable[Result]) -> list[Result]:
    """Return the records of one task: that with most of them, then with most queries."""
    by_task = defaultdict(list)
    for record in records:
        by_task[record.task.key].append(record)
    return max(by_task.values(), key=lambda on_task: (len(on_task), on_task[0].main.n))


def _is_same_pipeline(record: Result, other: Result) -> bool:
    """Whether two records are of one reranker after the same first stage."""
    is_same_model = record.model.identity == other.model.identity
    return is_same_model and _first_stage(record) == _first_stage(other)


def _first_stage(record: Result) -> str:
    """Return the first stage of a reranking, which is a part of its task's name."""
    return record.task.key.partition(".")[2]


def _is_control(result: Result) -> bool:
    """Return whether a record is of an adapter that was trained, but not to rerank."""
    if result.training is None or not result.training.mode:
        return False
    mode = str(result.training.mode)
    return mode != SPECIALISTS["reranking"] and not mode.startswith("joint")


def _title(
    difference: PairedDifference, alpha: float, *, better: str, worse: str, question: str
) -> str:
    """Return what a difference shows in a few words; a question if it shows nothing."""
    if not difference.significant(alpha):
        return question
    return better if difference.difference > 0 else worse


def _reason(difference: PairedDifference, alpha: float, reason: str) -> str:
    """Return where a difference is from, and whether it is shown."""
    if difference.significant(alpha):
        return reason
    return f"{NOT_SHOWN}: {reason}"


def _change(difference: PairedDifference) -> str:
    """Return the second score of a difference, and the first, which came later."""
    after, before = near_scores(difference.means)
    return f"{before} → {after}"


def _effect(difference: PairedDifference, task: str, alpha: float) -> str:
    """Describe an effect on a metric, if it is significant."""
    metric = difference.metric
    if not difference.significant(alpha):
        return f"makes no difference in {metric} that these {difference.n} queries show"
    verb = "lifts" if difference.difference > 0 else "lowers"
    return f"{verb} {metric} by {abs(difference.difference):.3f} on {task}"


def all_findings(
    comparison: Comparison,
    results: Iterable[Result],
    *,
    task: str,
    links: Mapping[str, str],
    folder: str = "",
) -> list[Finding]:
    """Return findings on training, extracted encoders, joint training and reranking.

    Reranking is judged by ``results``, those of adapters included. Pages of run ids, and the folder
    of all others, are relative to the page that shows the findings.
    """
    seed = comparison.procedure.seed
    records = list(results)
    found: list[Finding | None] = [*findings(comparison, task=task, links=links)]
    found.append(interference_finding(interference(records, seed=seed), folder=folder))
    found.append(rerank_finding(records, seed=seed, links=links))
    return [finding for finding in found if finding is not None]


def cards(shown: Sequence[Finding]) -> str:
    """Return findings as HTML cards, escaped: a title, the numbers and a reason."""
    parts = []
    for finding in shown:
        title = escaped_text(finding.title)
        if finding.page:
            title = f'<a href="{html.escape(finding.page, quote=True)}">{title}</a>'
        parts.append(
            f'<div class="q-finding"><p class="q-finding-head">{title}</p>'
            f'<p class="q-finding-numbers">{escaped_text(finding.numbers)}</p>'
            f"<p>{escaped_text(finding.reason)}</p></div>"
        )
    return f'<div class="q-findings">{"".join(parts)}</div>'


def evidence_table(shown: Sequence[Finding]) -> Table | None:
    """Return the findings with the test behind each of them; None without any."""
    if not shown:
        return None
    rows = [[Cell(finding.headline, link=finding.page), finding.evidence] for finding in shown]
    return Table.of(
        rows,
        ["finding", "numbers and test"],
        kind="words",
        name="findings",
        caption="The findings, with interval and test.",
    )


def findings(
    comparison: Comparison, *, task: str, links: Mapping[str, str] | None = None
) -> list[Finding]:
    """Return the findings on training and extraction, on one task or a benchmark's mean."""
    records = sorted(comparison.scored(task), key=_score, reverse=True)
    pages = links or {}
    found = []
    for finding in (
        _finding_on_training(comparison, records),
        _finding_on_extraction(comparison, records),
    ):
        if finding is not None:
            # Up to here, `page` holds the id of the run.
            page_of_run = pages.get(finding.page, "")
            found.append(replace(finding, page=page_of_run))
    return found


def _evidence(
    comparison: Comparison, best: Result, other: Result, difference: PairedDifference
) -> str:
    """Describe two scores over the same queries, and their paired difference."""
    return (
        f"{comparison.name(best)} {score_text(best.main)}, against {score_text(other.main)} of "
        f"{comparison.name(other)}: {difference}."
    )


def _paired_difference(
    comparison: Comparison, best: Result, other: Result
) -> PairedDifference | None:
    """Return the difference of two scores; None if they are not over the same queries."""
    if not comparable(best, other):
        return None
    return comparison.between(best, other)


def _score(result: Result) -> float:
    return result.main.value or 0.0


class _Course(NamedTuple):
    """The start of a training, and the best of its later checkpoints."""

    training: str
    start: Result
    best: Result


def _courses(records: Sequence[Result]) -> list[_Course]:
    """Return the courses of trainings with two or more evaluated steps."""
    tasks = list(dict.fromkeys(record.task.key for record in records))
    courses = []
    for trajectory in trajectories(records, tasks=tasks):
        for record_by_step in trajectory.records.values():  # one per seed
            first_step = min(record_by_step)
            later_records = [record for step, record in record_by_step.items() if step > first_step]
            if later_records:
                best = max(later_records, key=_score)
                start = record_by_step[first_step]
                courses.append(_Course(trajectory.training, start, best))
    return courses


def _finding_on_training(comparison: Comparison, records: Sequence[Result]) -> Finding | None:
    """Compare the best later checkpoint of a training with its start; the page is the run's id.

    For several trainings, that of the best checkpoint. The p-value is corrected over a family that
    includes the other checkpoints.
    """
    courses = _courses(records)
    if not courses:
        return None
    course = max(courses, key=lambda course: _score(course.best))
    difference = _paired_difference(comparison, course.best, course.start)
    if difference is None:
        return None
    name = f"Training {course.training}"
    if "contrastive" in course.training.lower():
        name = "Contrastive training"
    task = short_task(course.best.task.key)
    alpha = comparison.procedure.alpha
    step = training_step(course.best)
    steps = "" if step is None else f"{step.step:,} steps"
    return Finding(
        title=_title(
            difference,
            alpha,
            better="Training helps",
            worse="Training harms",
            question="Does training help?",
        ),
        numbers=_change(difference),
        reason=_reason(difference, alpha, f"{steps} of {course.training}"),
        headline=f"{name} {_effect(difference, task, alpha)}",
        evidence=_evidence(comparison, course.best, course.start, difference),
        page=course.best.run,
    )


def _finding_on_extraction(comparison: Comparison, records: Sequence[Result]) -> Finding | None:
    """Compare the best extracted encoder with the baseline; the page is the run's id."""
    best = _first_extracted(records)
    if best is None:
        return None
    on_task = comparison.on(best.task.key)
    if on_task is None:
        return None
    baselines = [record for record in records if comparison.name(record) == on_task.baseline]
    if not baselines:
        return None
    baseline = baselines[0]
    difference = _paired_difference(comparison, best, baseline)
    if difference is None:
        return None
    alpha = comparison.procedure.alpha
    verdict = "not significantly different from"
    if difference.significant(alpha):
        verdict = "above" if difference.difference > 0 else "below"
    headline = (
        f"The best extracted encoder, {comparison.name(best)}, is {verdict} "
        f"{in_words(difference.second)} on {short_task(best.task.key)}"
    )
    score, score_of_baseline = near_scores(difference.means)
    return Finding(
        title=_title(
            difference,
            alpha,
            better=f"Our encoder is above {difference.second}",
            worse=f"Our encoder is below {difference.second}",
            question=f"Our encoder or {difference.second}?",
        ),
        numbers=f"{score} against {score_of_baseline}",
        reason=_reason(difference, alpha, comparison.name(best)),
        headline=headline,
        evidence=_evidence(comparison, best, baseline, difference),
        page=best.run,
    )


def _first_extracted(records: Iterable[Result]) -> Result | None:
    """Return the first record of an extracted encoder; None without one."""
    for record in records:
        folder = paths.root() / str(record.model.spec)
        if read_provenance(folder) is not None:
            return record
    return None
