"""What the landing page says: who leads, with a figure, and the findings of all pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import ALPHA
from qwen3nb.records.record import Result
from qwen3nb.records.store import load_results
from qwen3nb.report.comparison.lead import lead_figure, leaderboard_conclusion
from qwen3nb.report.leaderboard.findings import Finding, findings, findings_html
from qwen3nb.report.render.format import short_task
from qwen3nb.report.studies.reranking import METRIC, rerank_differences
from qwen3nb.report.training.interference import InterferenceReport, interference_report
from qwen3nb.report.training.interference_words import interference_conclusion

__all__ = ["headline_findings", "headline_lead", "interference_finding", "rerank_finding"]


def headline_lead(comparison: Comparison, *, task: str, folder: str = "") -> str:
    """Return who leads and how far the others are behind, as HTML: a sentence and a figure.

    Args:
        comparison: comparison of the models on the leaderboard.
        task: task or benchmark the models are compared on.
        folder: folder of all other pages, relative to the landing page.
    """
    sentence = leaderboard_conclusion(comparison, task=task)
    if comparison.records:
        sentence = replace(sentence, page=f"{folder}leaderboard.html")
    figure = lead_figure(comparison, task=task)
    drawn = figure._repr_html_() if figure is not None else ""
    return f'<div class="q-hero">{sentence._repr_html_()}{drawn}</div>'


def headline_findings(
    comparison: Comparison,
    *,
    task: str,
    links: Mapping[str, str] | None = None,
    folder: str = "",
) -> str:
    """Return three findings as HTML: on training, extracted encoders, and other pages.

    Args:
        comparison: comparison of the models on the leaderboard.
        task: task the models are compared on.
        links: page of each run id, relative to the landing page.
        folder: folder of all other pages, relative to the landing page.
    """
    seed = comparison.procedure.seed
    others = (
        interference_finding(interference_report(seed=seed)),
        rerank_finding(load_results(), seed=seed, links=links),
    )
    more = [
        replace(each, page=folder + each.page) if each.page == "interference.html" else each
        for each in others
        if each
    ]
    return findings_html(findings(comparison, task=task, links=links, more=more))


def interference_finding(report: InterferenceReport) -> Finding | None:
    """Return what joint training costs; None if no pair can be compared.

    The headline is the finding of `interference_conclusion`, below it are its numbers, and what
    the kill gate's words mean.
    """
    groups = report.interference.groups
    if all(group.overall.tir is None for group in groups):
        return None
    headline, _, numbers = interference_conclusion(report).text.partition(": ")
    return Finding(headline, numbers, "interference.html")


def rerank_finding(
    results: Iterable[Result], *, seed: int = 0, links: Mapping[str, str] | None = None
) -> Finding | None:
    """Return what reranking gains on the data set with the most queries; None without records."""
    measured = [each for each in results if f"first {METRIC}" in each.per_query]
    if not measured:
        return None
    best = max(measured, key=lambda each: (each.main.n, each.main.value or 0.0))
    family = [each for each in measured if _reranking(each) == _reranking(best)]
    gain = rerank_differences(family, seed=seed)[family.index(best)]
    task, size = short_task(gain.task), f"{abs(gain.difference):.3f}"
    if not gain.significant(ALPHA):
        effect = f"makes no difference in {METRIC} that these {gain.n} queries show"
    elif gain.difference > 0:
        effect = f"lifts {METRIC} by {size} on {task}"
    else:
        effect = f"lowers {METRIC} by {size} on {task}: keep the first stage"
    return Finding(
        f"Reranking by {best.model.label} {effect}",
        f"{METRIC} on {task} against its first stage: {gain}.",
        (links or {}).get(best.run, ""),
    )


def _reranking(result: Result) -> tuple[str, str]:
    """Return the reranker and the first stage: what the records of one page share."""
    return result.model.identity, str(result.task.key).partition(".")[2]
