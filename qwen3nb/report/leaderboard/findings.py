"""The main findings in a few sentences, each with its paired difference.

A finding is derived from records alone; one that they do not support is not made.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import comparable
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.record import Result
from qwen3nb.report.render.format import short_task

__all__ = ["Finding", "findings", "findings_html"]


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        headline: the finding in one sentence.
        evidence: the numbers behind it.
        page: link to these numbers, relative to the page that shows this; may be empty.
    """

    headline: str
    evidence: str
    page: str = ""


@dataclass(frozen=True)
class _FirstTask:
    """The records of one task, one per model, best first."""

    results: Sequence[Result]
    comparison: Comparison
    sources: Mapping[str, Mapping[str, Any]]  # of the extracted models, by identity
    links: Mapping[str, str]

    def source(self, result: Result) -> Mapping[str, Any] | None:
        """What an extracted model was taken from; None for any other."""
        return self.sources.get(result.model.identity)

    def name(self, result: Result) -> str:
        return self.comparison.names[result.model.identity, result.seed]

    def page(self, result: Result) -> str:
        return self.links.get(result.run, "")

    def gap(self, one: Result, other: Result) -> PairedDifference | None:
        """The paired difference, if both scores are over the same queries."""
        return self.comparison.between(one, other) if comparable(one, other) else None

    def significant(self, gap: PairedDifference) -> bool:
        return gap.corrected < self.comparison.procedure.alpha


def findings(
    comparison: Comparison,
    *,
    task: str,
    links: Mapping[str, str] | None = None,
    more: Sequence[Finding] = (),
    at_most: int = 3,
) -> list[Finding]:
    """The findings on one task: who leads, what extraction and averaging gave.

    Args:
        comparison: of the models; its differences are those of every other page.
        task: the task to look at.
        links: page per run id.
        more: findings of other pages; they come before that on averaging.
        at_most: how many to keep.
    """
    results = [
        record
        for (name, _), record in comparison.records.items()
        if name == task and record.main.value is not None
    ]
    results.sort(key=lambda each: -(each.main.value or 0.0))
    board = _FirstTask(results, comparison, _sources(results), links or {})
    makers: Sequence[Callable[[_FirstTask], Finding | None]] = (_leader, _extracted, _averaging)
    made = [finding for make in makers if (finding := make(board)) is not None]
    return [*made[:2], *more, *made[2:]][:at_most]


def _leader(board: _FirstTask) -> Finding | None:
    if not board.results:
        return None
    best, *others = board.results
    score = f"{_metric(best)} {_value(best)}, n = {best.main.n}"
    task = short_task(best.task.name)
    gaps = ((each, board.gap(best, each)) for each in others)
    second, gap = next(((each, gap) for each, gap in gaps if gap is not None), (None, None))
    if second is None or gap is None:
        return Finding(f"{board.name(best)} leads on {task}", score + ".", board.page(best))
    if board.significant(gap):
        headline = f"{board.name(best)} leads on {task}"
        reason = f"ahead of the second, {board.name(second)}, by {gap}"
    else:
        headline = (
            f"{board.name(best)} and {board.name(second)} are not significantly different on {task}"
        )
        reason = f"the difference from {board.name(second)} is {gap}"
    return Finding(headline, f"{score}; {reason}.", board.page(best))


def _extracted(board: _FirstTask) -> Finding | None:
    """The best extracted encoder compared with the best of all others."""
    own = [each for each in board.results if board.source(each) is not None]
    others = [each for each in board.results if board.source(each) is None]
    gap = board.gap(own[0], others[0]) if own and others else None
    if gap is None:
        return None
    verdict = "not significantly different from"
    if board.significant(gap):
        verdict = "above" if gap.difference > 0 else "below"
    return Finding(
        f"The best extracted encoder, {board.name(own[0])}, is {verdict} the best baseline",
        f"{_metric(own[0])} {_value(own[0])}, against {_value(others[0])} of "
        f"{board.name(others[0])}: {gap}.",
        board.page(own[0]),
    )


def _averaging(board: _FirstTask) -> Finding | None:
    """An average compared with the best of the checkpoints that went into it."""
    for result in board.results:
        averaging = (board.source(result) or {}).get("averaging")
        if not averaging:
            continue
        digests = set(averaging.get("digests", {}).values())
        parts = [
            each
            for each in board.results
            if (source := board.source(each)) and source.get("digest") in digests
        ]
        gap = board.gap(result, parts[0]) if parts else None
        if gap is None:
            continue
        verdict = "makes no significant difference"
        if board.significant(gap):
            verdict = "helps" if gap.difference > 0 else "hurts"
        return Finding(
            f"Averaging {averaging['num_checkpoints']} checkpoints {verdict}",
            f"{board.name(result)} against {board.name(parts[0])}, the best of them: {gap}.",
            board.page(result),
        )
    return None


def _sources(results: Iterable[Result]) -> dict[str, Mapping[str, Any]]:
    """What the extracted models, of those still on disk, were taken from."""
    sources = {}
    for result in results:
        provenance = read_provenance(paths.root() / str(result.model.spec))
        if provenance is not None:
            sources[result.model.identity] = provenance.get("source", {})
    return sources


def _metric(result: Result) -> str:
    return str(result.task.main_metric)


def _value(result: Result) -> str:
    main = result.main
    ends = f" [{main.low:.3f}, {main.high:.3f}]" if main.low is not None else ""
    return f"{main.value:.3f}{ends}"


def findings_html(given: Sequence[Finding]) -> str:
    """Findings as cards, everything escaped."""
    if not given:
        return '<p class="q-note">No results yet: `make demo` makes some.</p>'
    return '<div class="q-findings">' + "".join(map(_card, given)) + "</div>"


def _card(finding: Finding) -> str:
    headline = html.escape(finding.headline)
    if finding.page:
        headline = f'<a href="{html.escape(finding.page, quote=True)}">{headline}</a>'
    return (
        f'<div class="q-finding"><p class="q-finding-head">{headline}</p>'
        f"<p>{html.escape(finding.evidence)}</p></div>"
    )
