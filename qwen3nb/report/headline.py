"""The findings on the landing page, collected from all pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.ranking_by_type import CategoryBoards
from qwen3nb.records.record import Result
from qwen3nb.records.store import load_results
from qwen3nb.report.leaderboard.findings import Finding, findings, findings_html
from qwen3nb.report.render.format import short_task
from qwen3nb.report.studies.reranking import METRIC, in_words, rerank_differences
from qwen3nb.report.training.interference import InterferenceReport, interference_report

__all__ = ["headline_findings", "interference_finding", "rerank_finding"]


def headline_findings(
    comparison: Comparison,
    *,
    task: str,
    boards: CategoryBoards | None = None,
    links: Mapping[str, str] | None = None,
    folder: str = "",
) -> str:
    """Return three findings as HTML: on the leaderboard, extracted encoders, and other pages.

    Args:
        comparison: comparison of the models on the leaderboard.
        task: task the models are compared on.
        boards: rankings of the tier; of a tier with benchmarks, the first says who leads.
        links: page of each run id, relative to the landing page.
        folder: folder of all other pages, relative to the landing page.
    """
    seed = comparison.procedure.seed
    others = (
        interference_finding(interference_report(seed=seed)),
        rerank_finding(load_results(), seed=seed),
    )
    more = [Finding(each.headline, each.evidence, folder + each.page) for each in others if each]
    board = boards.overall if boards is not None and boards.overall.name else None
    made = findings(comparison, task=task, board=board, links=links, more=more)
    if board is not None:
        made[0] = replace(made[0], page=folder + made[0].page)
    return findings_html(made)


def interference_finding(report: InterferenceReport) -> Finding | None:
    """Return what joint training costs; None if no pair can be compared."""
    interference = report.interference
    groups = [group for group in interference.groups if group.overall.tir is not None]
    if not groups:
        return None
    worst = max(groups, key=lambda group: group.overall.tir or 0.0).overall
    ends = worst.interval or worst.seed_interval
    interval = f" [{100 * ends[0]:+.1f}, {100 * ends[1]:+.1f}]" if ends else ""
    return Finding(
        f"Joint training: {interference.verdict()} by point, "
        f"{interference.verdict(by='evidence')} by evidence",
        f"Task interference ratio {100 * (worst.tir or 0.0):+.1f} %{interval} over "
        f"{len(worst.seeds)} seeds (below 0 the joint adapters score higher); the gate passes at "
        f"{100 * interference.gate.pass_at:g} %.",
        "interference.html",
    )


def rerank_finding(results: Iterable[Result], *, seed: int = 0) -> Finding | None:
    """Return what reranking gains on the data set with the most queries; None without records."""
    measured = [each for each in results if f"first {METRIC}" in each.per_query]
    if not measured:
        return None
    best = max(measured, key=lambda each: (each.main.n, each.main.value or 0.0))
    family = [each for each in measured if _reranking(each) == _reranking(best)]
    gain = rerank_differences(family, seed=seed)[family.index(best)]
    return Finding(
        f"Reranking by {best.model.label}: {in_words(gain)}",
        f"{METRIC} on {short_task(gain.task)} against its first stage: {gain}.",
    )


def _reranking(result: Result) -> tuple[str, str]:
    """Return the reranker and the first stage: what the records of one page share."""
    return result.model.identity, str(result.task.key).partition(".")[2]
