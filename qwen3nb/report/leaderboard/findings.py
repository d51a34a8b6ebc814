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
from qwen3nb.analysis.training.checkpoint_scores import trajectories
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.record import Result
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.html import escaped_text

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
class _OnTask:
    """The records on the task that the findings are about, one per model, best on_task."""

    results: Sequence[Result]
    comparison: Comparison
    sources: Mapping[str, Mapping[str, Any]]  # the source of each extracted model, by identity
    links: Mapping[str, str]
    where: str  # the task

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
        return gap.significant(self.comparison.procedure.alpha)


def findings(
    comparison: Comparison,
    *,
    task: str,
    links: Mapping[str, str] | None = None,
    more: Sequence[Finding] = (),
    at_most: int = 3,
) -> list[Finding]:
    """Return the findings on one task or mean: what training, extraction and averaging give.

    Who leads is said above them, by `leaderboard_conclusion`.

    Args:
        comparison: comparison of the models, the same as on every other page.
        task: the task to report on, or a benchmark, whose mean it then is.
        links: page of each run id.
        more: findings of other pages; they come after the one on training.
        at_most: how many findings to keep.
    """
    results = sorted(comparison.scored(task), key=_value_of, reverse=True)
    on_task = _OnTask(results, comparison, _sources(results), links or {}, short_task(task))
    makers: Sequence[Callable[[_OnTask], Finding | None]] = (_training, _extracted, _averaging)
    training, *others = [make(on_task) for make in makers]
    return [each for each in (training, *more, *others) if each is not None][:at_most]


def _training(on_task: _OnTask) -> Finding | None:
    """Compare the best later checkpoint of a training with its start.

    Of several trainings, that of the best checkpoint. The p-value is corrected, as everywhere,
    over a family of comparisons that has those of the other checkpoints, too.
    """
    series = [
        (each, steps)
        for each in trajectories(on_task.results, tasks=_keys(on_task.results))
        for steps in each.records.values()
        if len(steps) > 1
    ]
    if not series:
        return None
    training, steps = max(series, key=lambda pair: _value_of(_best_later(pair[1])))
    best, first = _best_later(steps), steps[min(steps)]
    gap = on_task.gap(best, first)
    if gap is None:
        return None
    name, metric = _training_name(training.training), gap.metric
    if not on_task.significant(gap):
        headline = f"{name} makes no difference in {metric} that these {gap.n} queries show"
    else:
        verb = "lifts" if gap.difference > 0 else "lowers"
        headline = f"{name} {verb} {metric} by {abs(gap.difference):.3f} on {on_task.where}"
    return Finding(
        headline,
        f"{on_task.name(best)} {_value(best)}, against {_value(first)} of {on_task.name(first)}, "
        f"its start: {gap}.",
        on_task.page(best),
    )


def _keys(results: Iterable[Result]) -> list[str]:
    return list(dict.fromkeys(result.task.key for result in results))


def _best_later(steps: Mapping[int, Result]) -> Result:
    """Return the best checkpoint after the first."""
    start = min(steps)
    return max((each for step, each in steps.items() if step > start), key=_value_of)


def _value_of(result: Result) -> float:
    return result.main.value or 0.0


def _training_name(training: str) -> str:
    """Return what a training is called: its objective if its name says so, else its name."""
    if "contrastive" in training.lower():
        return "Contrastive training"
    return f"Training {training}"


def _extracted(on_task: _OnTask) -> Finding | None:
    """Compare the best extracted encoder with the best other model."""
    own = [each for each in on_task.results if on_task.source(each) is not None]
    others = [each for each in on_task.results if on_task.source(each) is None]
    gap = on_task.gap(own[0], others[0]) if own and others else None
    if gap is None:
        return None
    verdict = "not significantly different from"
    if on_task.significant(gap):
        verdict = "above" if gap.difference > 0 else "below"
    return Finding(
        f"The best extracted encoder, {on_task.name(own[0])}, is {verdict} the best baseline on "
        + on_task.where,
        f"{_metric(own[0])} {_value(own[0])}, against {_value(others[0])} of "
        f"{on_task.name(others[0])}: {gap}.",
        on_task.page(own[0]),
    )


def _averaging(on_task: _OnTask) -> Finding | None:
    """Compare an averaged model with the best of the checkpoints that went into it."""
    for result in on_task.results:
        averaging = (on_task.source(result) or {}).get("averaging")
        if not averaging:
            continue
        digests = set(averaging.get("digests", {}).values())
        parts = [
            each
            for each in on_task.results
            if (source := on_task.source(each)) and source.get("digest") in digests
        ]
        gap = on_task.gap(result, parts[0]) if parts else None
        if gap is None:
            continue
        verdict = "makes no significant difference"
        if on_task.significant(gap):
            verdict = "helps" if gap.difference > 0 else "hurts"
        return Finding(
            f"Averaging {averaging['num_checkpoints']} checkpoints {verdict} on {on_task.where}",
            f"{on_task.name(result)} against {on_task.name(parts[0])}, the best of them: {gap}.",
            on_task.page(result),
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
        return '<p class="q-note">These records support no further finding.</p>'
    return '<div class="q-findings">' + "".join(map(_card, findings)) + "</div>"


def _card(finding: Finding) -> str:
    headline = escaped_text(finding.headline)
    if finding.page:
        headline = f'<a href="{html.escape(finding.page, quote=True)}">{headline}</a>'
    return (
        f'<div class="q-finding"><p class="q-finding-head">{headline}</p>'
        f"<p>{escaped_text(finding.evidence)}</p></div>"
    )
