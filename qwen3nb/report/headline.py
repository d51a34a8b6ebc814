"""The landing page: who leads, with a figure, and the findings of all pages.

Findings are derived from records alone; one that the records do not support is omitted.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import comparable
from qwen3nb.analysis.comparison.baseline import in_words
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import ALPHA, PairedDifference
from qwen3nb.analysis.training.checkpoint_scores import trajectories
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.record import Result
from qwen3nb.records.store import load_results
from qwen3nb.report.comparison.compare import lead_figure, leaderboard_conclusion
from qwen3nb.report.render.cell import score_text
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.html import escaped_text
from qwen3nb.report.studies.reranking import METRIC, rerank_differences
from qwen3nb.report.training.interference import (
    InterferenceReport,
    interference_conclusion,
    interference_report,
)


@dataclass(frozen=True)
class Finding:
    """One finding in a sentence, and the numbers behind it."""

    headline: str
    evidence: str
    page: str = ""  # link to these numbers, relative to the page that shows the finding


def headline_lead(comparison: Comparison, *, task: str, folder: str = "") -> str:
    """Return who leads and how far the others are behind, as HTML: a sentence and a figure.

    On a task or benchmark; ``folder`` has all other pages, relative to the landing page.
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

    The page of each run id, and the folder of all others, are relative to the landing page.
    """
    seed = comparison.procedure.seed
    joint = interference_finding(interference_report(seed=seed))
    if joint is not None:
        joint = replace(joint, page=folder + joint.page)
    more = [joint, rerank_finding(load_results(), seed=seed, links=links)]
    shown = findings(comparison, task=task, links=links, more=list(filter(None, more)))
    return findings_html(shown)


def findings_html(findings: Sequence[Finding]) -> str:
    """Return findings as HTML cards, escaped."""
    cards = []
    for each in findings:
        headline = escaped_text(each.headline)
        if each.page:
            headline = f'<a href="{html.escape(each.page, quote=True)}">{headline}</a>'
        cards.append(
            f'<div class="q-finding"><p class="q-finding-head">{headline}</p>'
            f"<p>{escaped_text(each.evidence)}</p></div>"
        )
    return f'<div class="q-findings">{"".join(cards)}</div>'


def interference_finding(report: InterferenceReport) -> Finding | None:
    """Return what joint training costs; None if no pair can be compared.

    The headline is the finding of `interference_conclusion`, below it are its numbers, and what
    the kill gate's words mean.
    """
    if all(group.overall.tir is None for group in report.interference.groups):
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

    def page(result: Result) -> tuple[str, str]:  # the reranker and the first stage
        return result.model.identity, str(result.task.key).partition(".")[2]

    best = max(measured, key=lambda each: (each.main.n, each.main.value or 0.0))
    family = [each for each in measured if page(each) == page(best)]
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


def findings(
    comparison: Comparison,
    *,
    task: str,
    links: Mapping[str, str] | None = None,
    more: Sequence[Finding] = (),
) -> list[Finding]:
    """Return three findings on one task or mean: what training, extraction and averaging give.

    Who leads is said above them, by `leaderboard_conclusion`. The task may be a benchmark, whose
    mean it then is; findings of other pages come after the one on training.
    """
    results = sorted(comparison.scored(task), key=_value, reverse=True)
    sources = {}
    for result in results:
        provenance = read_provenance(paths.root() / str(result.model.spec))
        if provenance is not None:
            sources[result.model.identity] = provenance.get("source", {})
    on_task = _OnTask(results, comparison, sources, links or {}, short_task(task))
    every = [on_task.training(), *more, on_task.extracted(), on_task.averaging()]
    return [each for each in every if each is not None][:3]


def _value(result: Result) -> float:
    return result.main.value or 0.0


@dataclass(frozen=True)
class _OnTask:
    """The records on the task that the findings are about, one per model, the best first."""

    results: Sequence[Result]
    comparison: Comparison
    sources: Mapping[str, Mapping[str, Any]]  # of each extracted model on disk, by identity
    links: Mapping[str, str]
    where: str  # the task

    def name(self, result: Result) -> str:
        return self.comparison.names[result.model.identity, result.seed]

    def gap(self, one: Result, other: Result) -> PairedDifference | None:
        """Return the paired difference; None unless both scores are over the same queries."""
        return self.comparison.between(one, other) if comparable(one, other) else None

    def verdict(self, gap: PairedDifference, up: str, down: str, neither: str) -> str:
        if not gap.significant(self.comparison.procedure.alpha):
            return neither
        return up if gap.difference > 0 else down

    def training(self) -> Finding | None:
        """Compare the best later checkpoint of a training with its start.

        Of several trainings, that of the best checkpoint. The p-value is corrected, as everywhere,
        over a family of comparisons that has those of the other checkpoints, too.
        """
        keys = list(dict.fromkeys(result.task.key for result in self.results))
        series = [
            (max(later, key=_value), steps[min(steps)], each.training)
            for each in trajectories(self.results, tasks=keys)
            for steps in each.records.values()
            if (later := [record for step, record in steps.items() if step > min(steps)])
        ]
        if not series:
            return None
        best, first, training = max(series, key=lambda each: _value(each[0]))
        gap = self.gap(best, first)
        if gap is None:
            return None
        contrastive = "contrastive" in training.lower()
        name = "Contrastive training" if contrastive else f"Training {training}"
        change = f"{gap.metric} by {abs(gap.difference):.3f} on {self.where}"
        none = f"makes no difference in {gap.metric} that these {gap.n} queries show"
        return Finding(
            f"{name} {self.verdict(gap, f'lifts {change}', f'lowers {change}', none)}",
            f"{self.name(best)} {score_text(best.main)}, against {score_text(first.main)} of "
            f"{self.name(first)}, its start: {gap}.",
            self.links.get(best.run, ""),
        )

    def extracted(self) -> Finding | None:
        """Compare the best extracted encoder with the baseline."""
        own = [each for each in self.results if each.model.identity in self.sources]
        compared = self.comparison.on(own[0].task.key) if own else None
        others = [
            each for each in self.results if compared and self.name(each) == compared.baseline
        ]
        gap = self.gap(own[0], others[0]) if own and others else None
        if gap is None:
            return None
        verdict = self.verdict(gap, "above", "below", "not significantly different from")
        return Finding(
            f"The best extracted encoder, {self.name(own[0])}, is {verdict} "
            f"{in_words(gap.second)} on {self.where}",
            f"{own[0].task.main_metric} {score_text(own[0].main)}, against "
            f"{score_text(others[0].main)} of {self.name(others[0])}: {gap}.",
            self.links.get(own[0].run, ""),
        )

    def averaging(self) -> Finding | None:
        """Compare an averaged model with the best of the checkpoints that went into it."""
        for result in self.results:
            averaging = self.sources.get(result.model.identity, {}).get("averaging") or {}
            digests = set(averaging.get("digests", {}).values())
            parts = [
                each
                for each in self.results
                if self.sources.get(each.model.identity, {}).get("digest", "") in digests
            ]
            gap = self.gap(result, parts[0]) if parts else None
            if gap is not None:
                verdict = self.verdict(gap, "helps", "hurts", "makes no significant difference")
                count = averaging["num_checkpoints"]
                return Finding(
                    f"Averaging {count} checkpoints {verdict} on {self.where}",
                    f"{self.name(result)} against {self.name(parts[0])}, the best of them: {gap}.",
                    self.links.get(result.run, ""),
                )
        return None
