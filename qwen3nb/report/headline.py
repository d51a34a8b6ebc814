"""What the landing page says: who leads, with a figure, and the findings of all pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.ranking_by_type import CategoryBoards
from qwen3nb.records.record import Result
from qwen3nb.records.store import load_results
from qwen3nb.report.comparison.lead import lead_figure, leaderboard_conclusion
from qwen3nb.report.leaderboard.findings import Finding, findings, findings_html
from qwen3nb.report.render.format import short_task
from qwen3nb.report.studies.reranking import ALPHA, METRIC, rerank_differences
from qwen3nb.report.training.interference import InterferenceReport, interference_report

if TYPE_CHECKING:
    from qwen3nb.analysis.training.tir_estimate import Estimate, Gate

__all__ = ["headline_findings", "headline_lead", "interference_finding", "rerank_finding"]


def headline_lead(
    comparison: Comparison,
    *,
    task: str,
    boards: CategoryBoards | None = None,
    folder: str = "",
) -> str:
    """Return who leads and how far the others are behind, as HTML: a sentence and a figure.

    Args:
        comparison: comparison of the models on the leaderboard.
        task: task the models are compared on.
        boards: rankings of the tier; of a tier with benchmarks, the first is reported.
        folder: folder of all other pages, relative to the landing page.
    """
    sentence = leaderboard_conclusion(comparison, task=task, boards=boards)
    if comparison.records:
        sentence = replace(sentence, page=f"{folder}leaderboard.html")
    figure = lead_figure(comparison, task=task, boards=boards)
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

    Of several joint configurations, the one that costs most.
    """
    estimates = report.interference
    groups = [group for group in estimates.groups if group.overall.tir is not None]
    if not groups:
        return None
    worst = max(groups, key=lambda group: group.overall.tir or 0.0).overall
    ends = worst.interval or worst.seed_interval
    interval = f" [{100 * ends[0]:+.1f}, {100 * ends[1]:+.1f}]" if ends else ""
    seeds = f"{len(worst.seeds)} seed{'s' if len(worst.seeds) > 1 else ''}"
    return Finding(
        f"Joint training {_cost(worst, estimates.gate)}",
        f"Share of the specialist's score that it loses: {100 * (worst.tir or 0.0):+.1f} %"
        f"{interval} over {seeds}. "
        f"{_gate_words(worst, estimates.gate)}",
        "interference.html",
    )


def _cost(estimate: Estimate, gate: Gate) -> str:
    """Say what joint training costs; a cost only if all intervals are above 0."""
    known = [ends for ends in (estimate.interval, estimate.seed_interval) if ends is not None]
    tir = 100 * (estimate.tir or 0.0)
    if len(estimate.seeds) < 2 or not known:
        return "was measured with one seed, which cannot show its cost"
    if min(low for low, _ in known) > 0:
        little = "" if tir >= 100 * gate.pass_at else ", less than the gate asks for"
        return f"costs {tir:.1f} %{little}"
    if max(high for _, high in known) < 0:
        return f"costs nothing: it gains {-tir:.1f} %"
    return "costs nothing measurable"


def _gate_words(estimate: Estimate, gate: Gate) -> str:
    """Return the gate's verdicts, and what its words mean to a newcomer."""
    return (
        f"The kill gate, which asks whether interference is worth treating (PASS from "
        f"{100 * gate.pass_at:g} %, FAIL below {100 * gate.fail_below:g} %), says "
        f"{estimate.by_point} by point, {estimate.by_evidence} by evidence."
    )


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
    if gain.corrected >= ALPHA:
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
