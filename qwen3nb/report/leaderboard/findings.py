"""What came out, in a few sentences: differences with intervals, and what they allow to say.

A finding is made from records alone. One that the records do not support is not made.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import comparable, paired_scores
from qwen3nb.analysis.stats.paired_tests import paired_bootstrap, permutation_test
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.leaderboard.tables import model_names
from qwen3nb.report.render.format import short_task
from qwen3nb.tiers import TIERS

__all__ = ["Finding", "findings", "findings_html"]

_ALPHA = 0.05


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes:
        headline: what it comes to.
        evidence: the numbers it stands on.
        page: where they are, as the page that shows this reaches it; may be empty.
    """

    headline: str
    evidence: str
    page: str = ""


@dataclass(frozen=True)
class _Board:
    """The records of a tier's first task, one per model, best first."""

    results: Sequence[Result]
    names: Mapping[str, str]
    sources: Mapping[str, Mapping[str, Any]]  # of the extracted ones, by run's model identity
    links: Mapping[str, str]
    seed: int

    def source(self, result: Result) -> Mapping[str, Any] | None:
        """What an extracted model was taken from; None of any other."""
        return self.sources.get(result.model.identity)

    def name(self, result: Result) -> str:
        return self.names[result.model.identity]

    def page(self, result: Result) -> str:
        return self.links.get(result.run, "")


@dataclass(frozen=True)
class _Difference:
    value: float
    text: str
    real: bool


def findings(
    results: Iterable[Result],
    *,
    tier: str = "smoke",
    links: Mapping[str, str] | None = None,
    seed: int = 0,
    more: Sequence[Finding] = (),
    at_most: int = 3,
) -> list[Finding]:
    """The findings of a tier's first task: who leads, what extraction and averaging gave.

    Differences are paired over queries: 95 % percentile bootstrap interval and two-sided
    permutation test, each by itself (the leaderboard's table corrects over its comparisons).

    Args:
        results: any records.
        tier: whose first task is looked at.
        links: page per run id.
        seed: of the tests.
        more: findings of other pages; they come before that on averaging.
        at_most: how many to keep.
    """
    task = TIERS[tier].tasks[0]
    chosen = [
        each for each in latest(results) if each.task.name == task and each.main.value is not None
    ]
    chosen.sort(key=lambda each: -(each.main.value or 0.0))
    board = _Board(chosen, model_names(chosen), _sources(chosen), links or {}, seed)
    makers: Sequence[Callable[[_Board], Finding | None]] = (_leader, _own, _averaging)
    made = [found for make in makers if (found := make(board)) is not None]
    return [*made[:2], *more, *made[2:]][:at_most]


def _leader(board: _Board) -> Finding | None:
    if not board.results:
        return None
    best, *others = board.results
    shown = f"{_metric(best)} {_value(best)}, n = {best.main.n}"
    task = short_task(best.task.name)
    second = next((each for each in others if comparable(best, each)), None)
    if second is None:
        return Finding(f"{board.name(best)} leads on {task}", shown + ".", board.page(best))
    gap = _difference(best, second, seed=board.seed)
    if gap.real:
        headline = f"{board.name(best)} leads on {task}"
        says = f"ahead of {board.name(second)}, the second, by {gap.text}"
    else:
        headline = f"{board.name(best)} and {board.name(second)} cannot be told apart on {task}"
        says = f"the difference to {board.name(second)} is {gap.text}"
    return Finding(headline, f"{shown}; {says}.", board.page(best))


def _own(board: _Board) -> Finding | None:
    """The best extracted encoder beside the best of all others."""
    own = [each for each in board.results if board.source(each) is not None]
    others = [each for each in board.results if board.source(each) is None]
    if not own or not others or not comparable(own[0], others[0]):
        return None
    gap = _difference(own[0], others[0], seed=board.seed)
    way = "above" if gap.value > 0 else "below"
    known = f"{way} the best baseline" if gap.real else "not told apart from the best baseline"
    return Finding(
        f"The best extracted encoder, {board.name(own[0])}, is {known}",
        f"{_metric(own[0])} {_value(own[0])} beside {board.name(others[0])}'s "
        f"{_value(others[0])}: {gap.text}.",
        board.page(own[0]),
    )


def _averaging(board: _Board) -> Finding | None:
    """An average beside the best of the checkpoints that went into it."""
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
        if parts and comparable(result, parts[0]):
            gap = _difference(result, parts[0], seed=board.seed)
            helped = "helps" if gap.value > 0 else "hurts"
            headline = f"Averaging {averaging['num_checkpoints']} checkpoints "
            headline += helped if gap.real else "makes no difference that these queries show"
            return Finding(
                headline,
                f"{board.name(result)} against {board.name(parts[0])}, the best of them: "
                f"{gap.text}.",
                board.page(result),
            )
    return None


def _sources(results: Iterable[Result]) -> dict[str, Mapping[str, Any]]:
    """What the extracted models among them, those that are still there, were taken from."""
    found = {}
    for result in results:
        provenance = read_provenance(paths.root() / str(result.model.spec))
        if provenance is not None:
            found[result.model.identity] = provenance.get("source", {})
    return found


def _difference(one: Result, other: Result, *, seed: int) -> _Difference:
    a, b = paired_scores(one, other)
    found, p = paired_bootstrap(a, b, seed=seed), permutation_test(a, b, seed=seed).p_value
    if found.interval is None:
        return _Difference(found.difference, f"{found.difference:+.3f} ({found.undefined})", False)
    low, high = found.interval
    text = f"{found.difference:+.3f} [{low:+.3f}, {high:+.3f}], p = {p:.4f}"
    return _Difference(found.difference, text, p < _ALPHA and not low <= 0 <= high)


def _metric(result: Result) -> str:
    return str(result.task.main_metric)


def _value(result: Result) -> str:
    main = result.main
    ends = f" [{main.low:.3f}, {main.high:.3f}]" if main.low is not None else ""
    return f"{main.value:.3f}{ends}"


def findings_html(found: Sequence[Finding]) -> str:
    """Findings as cards, everything escaped."""
    if not found:
        return '<p class="q-note">No results yet: `make demo` makes some.</p>'
    return '<div class="q-findings">' + "".join(map(_card, found)) + "</div>"


def _card(finding: Finding) -> str:
    headline = html.escape(finding.headline)
    if finding.page:
        headline = f'<a href="{html.escape(finding.page, quote=True)}">{headline}</a>'
    return (
        f'<div class="q-finding"><p class="q-finding-head">{headline}</p>'
        f"<p>{html.escape(finding.evidence)}</p></div>"
    )
