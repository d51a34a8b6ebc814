"""The landing page: the best model, with a figure, and the findings of all pages.

Findings are derived only from records; unsupported ones are omitted.
"""

import html
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import comparable, in_words
from qwen3nb.analysis.comparison.differences import ALPHA, PairedDifference
from qwen3nb.analysis.training.checkpoint_scores import trajectories
from qwen3nb.analysis.training.interference import SPECIALISTS
from qwen3nb.answers.board.lead import how_sure_page, lead_conclusion, lead_figure
from qwen3nb.answers.comparison import Comparison
from qwen3nb.answers.interference import Interference, interference
from qwen3nb.answers.leaderboard import Leaderboard
from qwen3nb.answers.own_data import collections, own_data, page_of
from qwen3nb.answers.reranking import METRIC, rerank_differences
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.html import escaped_text
from qwen3nb.report.render.table import score_text, short_task

_MOST_FINDINGS = 3  # on the landing page


@dataclass(frozen=True)
class Finding:
    """One finding in a sentence, and the numbers behind it."""

    headline: str
    evidence: str
    page: str = ""  # link to these numbers, relative to the page that shows the finding


def headline_lead(
    comparison: Comparison, *, task: str, results: Iterable[Result] = (), folder: str = ""
) -> str:
    """Return the best model and the distance of the others as HTML: a sentence and a figure.

    As `lead_conclusion`; ``folder`` has all other pages, relative to the landing page. If
    any score is on substitutes for MTEB's data, a banner comes first.
    """
    conclusion = lead_conclusion(comparison, task=task, results=results)
    if comparison.records:
        conclusion = replace(conclusion, page=f"{folder}leaderboard.html")
    page = how_sure_page(comparison)
    if page:
        conclusion = replace(conclusion, how_sure=f"{folder}{page}")
    content = conclusion._repr_html_()
    figure = lead_figure(comparison, task=task)
    if figure is not None:
        content += figure._repr_html_()
    banner = data_banner(comparison.data_used())
    return f'{banner}<div class="q-hero">{content}</div>'


def own_data_verdicts(results: Iterable[Result], *, folder: str = "") -> str:
    """Return the verdict on each collection of own data as HTML, linked to its page.

    ``folder`` has all other pages, relative to the landing page.
    """
    records = list(results)
    verdicts = []
    for name in collections(records):
        conclusion = own_data(records, name).conclusion
        linked = replace(conclusion, page=f"{folder}{page_of(name)}.html")
        verdicts.append(
            f'<div class="q-hero"><p class="q-own">On your data, {escaped_text(name)}</p>'
            f"{linked._repr_html_()}</div>"
        )
    return "".join(verdicts)


def data_banner(data: DataUsed) -> str:
    """Return the banner of a page with scores on substitute data as HTML; may be empty."""
    if not data.substitutes:
        return ""
    return (
        '<div class="admonition danger"><p class="admonition-title">Not on MTEB\'s data</p>'
        f"<p>{escaped_text(data.banner)}</p></div>"
    )


def headline_findings(
    comparison: Comparison,
    results: Iterable[Result],
    *,
    task: str,
    links: Mapping[str, str],
    folder: str = "",
) -> str:
    """Return findings on training, joint training, reranking and extracted encoders as HTML.

    Reranking is judged by ``results``, those of adapters included. Pages of run ids, and the folder
    of all others, are relative to the landing page.
    """
    seed = comparison.procedure.seed
    records = list(results)
    all_findings = findings(comparison, task=task, links=links)
    for finding in (
        interference_finding(interference(records, seed=seed), folder=folder),
        rerank_finding(records, seed=seed, links=links),
    ):
        if finding is not None:
            all_findings.append(finding)
    return findings_html(all_findings[:_MOST_FINDINGS])


def landing_page(
    everything: Iterable[Result], board: Leaderboard, *, folder: str = "runs/", most: int = 10
) -> dict[str, str]:
    """Return the parts of the landing page as HTML: the lead, the findings, and the best models.

    Args:
        everything: all records, those of adapters included. Each collection of own data among
            them has its verdict first.
        board: the leaderboard, with the page of each run.
        folder: that of all other pages, relative to the landing page.
        most: number of models in the table.
    """
    records = list(everything)
    comparison, task = board.comparison, board.task
    links = {run: f"{folder}{page}" for run, page in board.links.items()}
    scores = replace(board, links=links).headline_table(most=most)
    lead = own_data_verdicts(board.results, folder=folder)
    if comparison.records or not lead:
        lead += headline_lead(comparison, task=task, results=records, folder=folder)
    return {
        "lead": lead,
        "findings": headline_findings(comparison, records, task=task, links=links, folder=folder),
        "headline": scores.to_html(),
    }


def findings_html(findings: Sequence[Finding]) -> str:
    """Return findings as HTML cards, escaped."""
    cards = []
    for finding in findings:
        headline = escaped_text(finding.headline)
        if finding.page:
            headline = f'<a href="{html.escape(finding.page, quote=True)}">{headline}</a>'
        cards.append(
            f'<div class="q-finding"><p class="q-finding-head">{headline}</p>'
            f"<p>{escaped_text(finding.evidence)}</p></div>"
        )
    return f'<div class="q-findings">{"".join(cards)}</div>'


def interference_finding(report: Interference, *, folder: str = "") -> Finding | None:
    """Return the finding on joint training; None if no pair can be compared.

    The headline is what joint training costs, followed by numbers and the kill gate's verdict.
    """
    if report.worst is None:
        return None
    return Finding(report.finding, report.evidence, f"{folder}interference.html")


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
    page = links.get(best.run, "") if links else ""
    return Finding(headline, evidence, page)


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


def _effect(difference: PairedDifference, task: str, alpha: float) -> str:
    """Describe an effect on a metric, if it is significant."""
    metric = difference.metric
    if not difference.significant(alpha):
        return f"makes no difference in {metric} that these {difference.n} queries show"
    verb = "lifts" if difference.difference > 0 else "lowers"
    return f"{verb} {metric} by {abs(difference.difference):.3f} on {task}"


def findings(
    comparison: Comparison, *, task: str, links: Mapping[str, str] | None = None
) -> list[Finding]:
    """Return the findings on training and extraction, on one task or a benchmark's mean."""
    records = sorted(comparison.scored(task), key=_score, reverse=True)
    pages = links or {}
    all_findings = []
    for finding in (
        _finding_on_training(comparison, records),
        _finding_on_extraction(comparison, records),
    ):
        if finding is not None:
            # Up to here, `page` holds the id of the run.
            run = finding.page
            page_of_run = pages.get(run, "")
            all_findings.append(replace(finding, page=page_of_run))
    return all_findings


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
    effect = _effect(difference, task, comparison.procedure.alpha)
    evidence = _evidence(comparison, course.best, course.start, difference)
    return Finding(f"{name} {effect}", evidence, course.best.run)


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
    verdict = "not significantly different from"
    if difference.significant(comparison.procedure.alpha):
        verdict = "above" if difference.difference > 0 else "below"
    headline = (
        f"The best extracted encoder, {comparison.name(best)}, is {verdict} "
        f"{in_words(difference.second)} on {short_task(best.task.key)}"
    )
    return Finding(headline, _evidence(comparison, best, baseline, difference), best.run)


def _first_extracted(records: Iterable[Result]) -> Result | None:
    """Return the first record of an extracted encoder; None without one."""
    for record in records:
        folder = paths.root() / str(record.model.spec)
        if read_provenance(folder) is not None:
            return record
    return None
