"""The landing page's findings, gathered from all that was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qwen3nb.records.record import Result
from qwen3nb.records.store import load_results
from qwen3nb.report.leaderboard.findings import Finding, findings, findings_html
from qwen3nb.report.render.format import short_task
from qwen3nb.report.studies.reranking import METRIC, compared, in_words
from qwen3nb.report.training.interference import InterferenceReport, interference_report

__all__ = ["headline_findings", "interference_finding", "rerank_finding"]


def headline_findings(
    results: Iterable[Result],
    *,
    tier: str,
    links: Mapping[str, str] | None = None,
    folder: str = "",
    seed: int = 0,
) -> str:
    """Three findings as HTML: on the leaderboard, the extracted encoders, and what else there is.

    Args:
        results: of the models on the leaderboard.
        tier: whose first task the models are compared on.
        links: page per run id, as the landing page reaches it.
        folder: where it reaches all other pages.
        seed: of the tests.
    """
    others = (
        interference_finding(interference_report(seed=seed)),
        rerank_finding(load_results(), seed=seed),
    )
    more = [Finding(each.headline, each.evidence, folder + each.page) for each in others if each]
    return findings_html(findings(results, tier=tier, links=links, seed=seed, more=more))


def interference_finding(report: InterferenceReport) -> Finding | None:
    """What joint training costs; None where no pair may be compared."""
    found = report.found
    groups = [group for group in found.groups if group.overall.tir is not None]
    if not groups:
        return None
    worst = max(groups, key=lambda group: group.overall.tir or 0.0).overall
    ends = worst.interval or worst.seed_interval
    shown = f" [{100 * ends[0]:+.1f}, {100 * ends[1]:+.1f}]" if ends else ""
    return Finding(
        f"Joint training: {found.verdict()} by point, {found.verdict(by='evidence')} by evidence",
        f"Task interference ratio {100 * (worst.tir or 0.0):+.1f} %{shown} over "
        f"{len(worst.seeds)} seeds (below 0 the joint adapters score higher); the gate passes at "
        f"{100 * found.gate.pass_at:g} %.",
        "interference.html",
    )


def rerank_finding(results: Iterable[Result], *, seed: int = 0) -> Finding | None:
    """What reranking gives on the data set it was measured on with most queries; or None."""
    measured = [each for each in results if f"first {METRIC}" in each.per_query]
    if not measured:
        return None
    best = max(measured, key=lambda each: (each.main.n, each.main.value or 0.0))
    found, p = compared(best, seed)
    ends = "[{:+.3f}, {:+.3f}]".format(*found.interval) if found.interval else found.undefined
    return Finding(
        f"Reranking by {best.model.label}: {in_words(found.difference, p)}",
        f"{METRIC} on {short_task(str(best.config['collection']))} {found.difference:+.3f} {ends} "
        f"against its first stage, p = {p:.4f}, n = {found.n}.",
    )
