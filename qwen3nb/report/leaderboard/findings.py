"""The main findings in a few sentences, each with its paired difference.

Findings are derived from records alone; one that the records do not support is omitted.
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
from qwen3nb.analysis.comparison.ranking import Ranking
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.record import Result
from qwen3nb.report.render.format import short_task
from qwen3nb.utils.format import interval_text

__all__ = ["Finding", "findings", "findings_html"]


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        headline: the finding in one sentence.
        evidence: the numbers behind it.
        page: link to these numbers, relative to the page that shows the finding; may be empty.
    """

    headline: str
    evidence: str
    page: str = ""


@dataclass(frozen=True)
class _FirstTask:
    """The records on the task that the findings are about, one per model, best first."""

    results: Sequence[Result]
    comparison: Comparison
    sources: Mapping[str, Mapping[str, Any]]  # the source of each extracted model, by identity
    links: Mapping[str, str]
    where: str = ""  # the task, if the first finding is about something else

    def source(self, result: Result) -> Mapping[str, Any] | None:
        """Return the source of an extracted model; None for any other model."""
        return self.sources.get(result.model.identity)

    def name(self, result: Result) -> str:
        return self.comparison.names[result.model.identity, result.seed]

    def page(self, result: Result) -> str:
        return self.links.get(result.run, "")

    def gap(self, one: Result, other: Result) -> PairedDifference | None:
        """Return the paired difference; None unless both scores are over the same queries."""
        return self.comparison.between(one, other) if comparable(one, other) else None

    def significant(self, gap: PairedDifference) -> bool:
        return gap.corrected < self.comparison.procedure.alpha


def findings(
    comparison: Comparison,
    *,
    task: str,
    board: Ranking | None = None,
    links: Mapping[str, str] | None = None,
    more: Sequence[Finding] = (),
    at_most: int = 3,
) -> list[Finding]:
    """Return the findings on one task: who leads, what extraction and averaging give.

    Args:
        comparison: comparison of the models, the same as on every other page.
        task: the task to report on.
        board: a ranking on a benchmark, which then says who leads.
        links: page of each run id.
        more: findings of other pages; they come before the one on averaging.
        at_most: how many findings to keep.
    """
    results = [
        record
        for (name, _), record in comparison.records.items()
        if name == task and record.main.value is not None
    ]
    results.sort(key=lambda each: -(each.main.value or 0.0))
    where = "" if board is None else f" on {short_task(task)}"
    first = _FirstTask(results, comparison, _sources(results), links or {}, where)
    makers: Sequence[Callable[[_FirstTask], Finding | None]] = (_leader, _extracted, _averaging)
    if board is not None:
        makers = (lambda _: _leader_of(board), *makers[1:])
    made = [finding for make in makers if (finding := make(first)) is not None]
    return [*made[:2], *more, *made[2:]][:at_most]


def _leader(first: _FirstTask) -> Finding | None:
    if not first.results:
        return None
    best, *others = first.results
    score = f"{_metric(best)} {_value(best)}, n = {best.main.n}"
    task = short_task(best.task.key)
    gaps = ((each, first.gap(best, each)) for each in others)
    second, gap = next(((each, gap) for each, gap in gaps if gap is not None), (None, None))
    if second is None or gap is None:
        return Finding(f"{first.name(best)} leads on {task}", score + ".", first.page(best))
    if first.significant(gap):
        headline = f"{first.name(best)} leads on {task}"
        reason = f"ahead of the second, {first.name(second)}, by {gap}"
    else:
        headline = (
            f"{first.name(best)} and {first.name(second)} are not significantly different on {task}"
        )
        reason = f"the difference from {first.name(second)} is {gap}"
    return Finding(headline, f"{score}; {reason}.", first.page(best))


def _leader_of(board: Ranking) -> Finding:
    """Say who leads on a benchmark, by its ranking."""
    best, second = board.standings[:2]
    tied = bool(set(best.groups) & set(second.groups))
    headline = f"{best.system} leads on {board.name}"
    if tied:
        both = f"{best.system} and {second.system}"
        headline = f"{both} are not significantly different on {board.name}"
    scores = [
        f"{each.mean:.3f} {interval_text(each.interval, sign=False)}" for each in (best, second)
    ]
    return Finding(
        headline,
        f"Mean over the tasks that every ranked model has: {scores[0]}, against {scores[1]} of "
        f"{second.system}; it ranks first in {100 * best.best:.0f} % of resamples.",
        "leaderboard.html",
    )


def _extracted(first: _FirstTask) -> Finding | None:
    """Compare the best extracted encoder with the best other model."""
    own = [each for each in first.results if first.source(each) is not None]
    others = [each for each in first.results if first.source(each) is None]
    gap = first.gap(own[0], others[0]) if own and others else None
    if gap is None:
        return None
    verdict = "not significantly different from"
    if first.significant(gap):
        verdict = "above" if gap.difference > 0 else "below"
    return Finding(
        f"The best extracted encoder, {first.name(own[0])}, is {verdict} the best baseline"
        + first.where,
        f"{_metric(own[0])} {_value(own[0])}, against {_value(others[0])} of "
        f"{first.name(others[0])}: {gap}.",
        first.page(own[0]),
    )


def _averaging(first: _FirstTask) -> Finding | None:
    """Compare an averaged model with the best of the checkpoints that went into it."""
    for result in first.results:
        averaging = (first.source(result) or {}).get("averaging")
        if not averaging:
            continue
        digests = set(averaging.get("digests", {}).values())
        parts = [
            each
            for each in first.results
            if (source := first.source(each)) and source.get("digest") in digests
        ]
        gap = first.gap(result, parts[0]) if parts else None
        if gap is None:
            continue
        verdict = "makes no significant difference"
        if first.significant(gap):
            verdict = "helps" if gap.difference > 0 else "hurts"
        return Finding(
            f"Averaging {averaging['num_checkpoints']} checkpoints {verdict}{first.where}",
            f"{first.name(result)} against {first.name(parts[0])}, the best of them: {gap}.",
            first.page(result),
        )
    return None


def _sources(results: Iterable[Result]) -> dict[str, Mapping[str, Any]]:
    """Return the sources of the extracted models that are still on disk."""
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


def findings_html(findings: Sequence[Finding]) -> str:
    """Return findings as HTML cards, escaped."""
    if not findings:
        return '<p class="q-note">No results yet; run `make demo` to make some.</p>'
    return '<div class="q-findings">' + "".join(map(_card, findings)) + "</div>"


def _card(finding: Finding) -> str:
    headline = html.escape(finding.headline)
    if finding.page:
        headline = f'<a href="{html.escape(finding.page, quote=True)}">{headline}</a>'
    return (
        f'<div class="q-finding"><p class="q-finding-head">{headline}</p>'
        f"<p>{html.escape(finding.evidence)}</p></div>"
    )
