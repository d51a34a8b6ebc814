"""The landing page: the best model, with a figure, and the findings of all pages.

Findings are derived only from records; unsupported ones are omitted.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import comparable, in_words
from qwen3nb.analysis.comparison.differences import ALPHA, PairedDifference
from qwen3nb.analysis.training.checkpoint_scores import trajectories
from qwen3nb.analysis.training.interference import SPECIALISTS
from qwen3nb.answers.comparison import Comparison
from qwen3nb.answers.interference import Interference, interference
from qwen3nb.answers.leaderboard import Leaderboard, lead_conclusion, lead_figure
from qwen3nb.answers.reranking import METRIC, rerank_differences
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.store import load_results
from qwen3nb.report.render.html import escaped_text
from qwen3nb.report.render.table import score_text, short_task

_MOST = 3  # findings on the landing page


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
    sentence = lead_conclusion(comparison, task=task, results=results)
    if comparison.records:
        sentence = replace(sentence, page=f"{folder}leaderboard.html")
    figure = lead_figure(comparison, task=task)
    drawn = figure._repr_html_() if figure is not None else ""
    banner = data_banner(comparison.data_used())
    return f'{banner}<div class="q-hero">{sentence._repr_html_()}{drawn}</div>'


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
    results: Iterable[Result] | None = None,
    *,
    task: str,
    links: Mapping[str, str] | None = None,
    folder: str = "",
) -> str:
    """Return findings on training, joint training, reranking and extracted encoders as HTML.

    Reranking is judged by ``results``, by default all records, those of adapters included. Pages
    of run ids, and the folder of all others, are relative to the landing page.
    """
    seed, pages = comparison.procedure.seed, links or {}
    own = findings(comparison, task=task, links=pages)
    records = list(results or load_results())
    joint = interference_finding(interference(records, seed=seed), folder=folder)
    more = [joint, rerank_finding(records, seed=seed, links=pages)]
    return findings_html([*own, *filter(None, more)][:_MOST])


def landing_page(
    everything: Iterable[Result], board: Leaderboard, *, folder: str = "runs/", most: int = 10
) -> dict[str, str]:
    """Return the parts of the landing page as HTML: the lead, the findings, and the best models.

    Args:
        everything: all records, those of adapters included.
        board: the leaderboard, with the page of each run.
        folder: that of all other pages, relative to the landing page.
        most: number of models in the table.
    """
    records = list(everything)
    comparison, task = board.comparison, board.task
    links = {run: f"{folder}{page}" for run, page in board.links.items()}
    scores = replace(board, links=links).headline_table(most=most)
    return {
        "lead": headline_lead(comparison, task=task, results=records, folder=folder),
        "findings": headline_findings(comparison, records, task=task, links=links, folder=folder),
        "headline": scores.to_html(),
    }


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
    others = list(results)
    every = [each for each in others if f"first {METRIC}" in each.per_query]
    measured = [each for each in every if not _is_control(each)]
    if not measured:
        return None
    by_task: dict[str, list[Result]] = {}
    for record in measured:
        by_task.setdefault(record.task.key, []).append(record)
    on_one = max(by_task.values(), key=lambda records: (len(records), records[0].main.n))
    best = max(on_one, key=_value)
    stage = best.task.key.partition(".")[2]
    own = [each for each in measured if each.model.identity == best.model.identity]
    family = [each for each in own if each.task.key.partition(".")[2] == stage]
    gain = rerank_differences(family, seed=seed, others=others)[family.index(best)]
    where = short_task(gain.task)
    chosen = f" Chosen as the best of {len(on_one)} rerankers there." if len(on_one) > 1 else ""
    return Finding(
        f"Reranking by {best.model.label} {_effect(gain, where, ALPHA)}",
        f"{METRIC} on {where} against its first stage: {gain}.{chosen}",
        (links or {}).get(best.run, ""),
    )


def _is_control(result: Result) -> bool:
    """Return whether a record is of an adapter that was trained, but not to rerank."""
    mode = ""
    if result.training is not None:
        mode = str(result.training.mode or "")
    return bool(mode) and mode != SPECIALISTS["reranking"] and not mode.startswith("joint")


def _effect(gap: PairedDifference, where: str, alpha: float) -> str:
    """Describe an effect on a metric, if it is significant."""
    if not gap.significant(alpha):
        return f"makes no difference in {gap.metric} that these {gap.n} queries show"
    verb = "lifts" if gap.difference > 0 else "lowers"
    return f"{verb} {gap.metric} by {abs(gap.difference):.3f} on {where}"


def findings(
    comparison: Comparison, *, task: str, links: Mapping[str, str] | None = None
) -> list[Finding]:
    """Return the findings on training and extraction, on one task or a benchmark's mean."""
    results = sorted(comparison.scored(task), key=_value, reverse=True)
    every, pages = (_training(comparison, results), _extracted(comparison, results)), links or {}
    return [replace(each, page=pages.get(best.run, "")) for each, best in filter(None, every)]


def _value(result: Result) -> float:
    return result.main.value or 0.0


def _against(
    comparison: Comparison, best: Result, other: Result
) -> tuple[str, PairedDifference] | None:
    """Describe two scores over the same queries, and return their paired difference."""
    gap = comparison.between(best, other) if comparable(best, other) else None
    if gap is None:
        return None
    scores = f"{score_text(best.main)}, against {score_text(other.main)}"
    return f"{comparison.name(best)} {scores} of {comparison.name(other)}: {gap}.", gap


def _training(comparison: Comparison, results: Sequence[Result]) -> tuple[Finding, Result] | None:
    """Compare the best later checkpoint of a training with its start.

    For several trainings, that of the best checkpoint. The p-value is corrected over a family that
    includes the other checkpoints.
    """
    keys = list(dict.fromkeys(result.task.key for result in results))
    series = [
        (max(later, key=_value), steps[min(steps)], each.training)
        for each in trajectories(results, tasks=keys)
        for steps in each.records.values()
        if (later := [record for step, record in steps.items() if step > min(steps)])
    ]
    if not series:
        return None
    best, first, training = max(series, key=lambda each: _value(each[0]))
    if (pair := _against(comparison, best, first)) is None:
        return None
    evidence, gap = pair
    name = "Contrastive training" if "contrastive" in training.lower() else f"Training {training}"
    effect = _effect(gap, short_task(best.task.key), comparison.procedure.alpha)
    return Finding(f"{name} {effect}", evidence), best


def _extracted(comparison: Comparison, results: Sequence[Result]) -> tuple[Finding, Result] | None:
    """Compare the best extracted encoder with the baseline."""
    own = [r for r in results if read_provenance(paths.root() / str(r.model.spec)) is not None]
    compared = comparison.on(own[0].task.key) if own else None
    others = [r for r in results if compared and comparison.name(r) == compared.baseline]
    if not others or (pair := _against(comparison, own[0], others[0])) is None:
        return None
    evidence, gap = pair
    verdict = "not significantly different from"
    if gap.significant(comparison.procedure.alpha):
        verdict = "above" if gap.difference > 0 else "below"
    what = f"The best extracted encoder, {comparison.name(own[0])}, is {verdict}"
    where = short_task(own[0].task.key)
    return Finding(f"{what} {in_words(gap.second)} on {where}", evidence), own[0]
