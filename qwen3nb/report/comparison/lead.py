"""Who leads on a task or a benchmark, by how much, and whether that is shown: text and figure."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from qwen3nb.analysis.comparison.alignment import comparable
from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.metrics.intervals import Interval
from qwen3nb.records.record import Result
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.forest_plot import ForestRow, forest_figure
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.model_styles import ModelStyle, model_styles
from qwen3nb.utils.format import interval_text

__all__ = ["Follower", "Lead", "find_lead", "lead_figure", "leaderboard_conclusion"]

SINGLE = "(a single query)"
NO_RESULTS = "No results yet; run `make demo` to make some."


@dataclass(frozen=True)
class Follower:
    """A model behind the best one.

    Attributes:
        name: of the model.
        behind: the best model's score minus its own, paired over the queries.
        interval: of that difference; None for a single query.
        significant: whether it is significant (see `analysis.comparison.differences`).
    """

    name: str
    behind: float
    interval: Interval | None
    significant: bool


@dataclass(frozen=True)
class Lead:
    """The best model on a task or benchmark, and the others that can be paired with it.

    Attributes:
        name: of the best model.
        value: its score.
        interval: of that score.
        where: the task or benchmark.
        measure: what the score is, such as the metric.
        queries: what was paired, such as ``200 queries``.
        test: how differences are tested.
        followers: the others, best first.
        unpaired: models whose scores cannot be paired with the best one's.
        unranked: why others are not ranked, a line each.
        caution: that there are too many models for a lead to be shown, if that is so.
    """

    name: str
    value: float
    interval: Interval | None
    where: str
    measure: str
    queries: str
    test: str
    followers: tuple[Follower, ...]
    unpaired: tuple[str, ...] = ()
    unranked: tuple[str, ...] = ()
    caution: str = ""


def find_lead(comparison: Comparison, *, task: str) -> Lead | None:
    """Return who leads; None without results.

    Args:
        comparison: the comparison that all pages show.
        task: the task to report on, or a benchmark, whose mean it then is.
    """
    records = comparison.scored(task)
    return _on_task(comparison, sorted(records, key=_score, reverse=True)) if records else None


def _score(result: Result) -> float:
    return result.main.value or 0.0


def _on_task(comparison: Comparison, records: list[Result]) -> Lead:
    best, *others = records
    names = {id(r): comparison.names[r.model.identity, r.seed] for r in records}
    alpha, task = comparison.procedure.alpha, best.task.key
    compared = comparison.on(task)
    left_out = compared.left_out if compared else ()
    followers, unpaired = [], []
    for each in others:
        gap = comparison.between(best, each) if comparable(best, each) else None
        if gap is None:
            unpaired.append(names[id(each)])
            continue
        shown = gap.significant(alpha)
        followers.append(Follower(names[id(each)], gap.difference, gap.interval, shown))
    main = best.main
    return Lead(
        name=names[id(best)],
        value=_score(best),
        interval=None if main.low is None or main.high is None else (main.low, main.high),
        where=short_task(task),
        measure=str(best.task.main_metric),
        queries=f"{main.n:,} {best.task.unit}",
        test=f"paired permutation test, {comparison.family(task)}, corrected p < {alpha:g}",
        followers=tuple(followers),
        unpaired=tuple(unpaired),
        unranked=tuple(line for line in left_out if " is not ranked: " in line),
        caution=comparison.caution,
    )


def leaderboard_conclusion(comparison: Comparison, *, task: str) -> Conclusion:
    """Say who leads, by how much, and whether these queries show it.

    Args:
        comparison: the comparison that all pages show.
        task: the task to report on, or a benchmark, whose mean it then is.
    """
    lead = find_lead(comparison, task=task)
    if lead is None:
        return Conclusion(NO_RESULTS)
    score = f"{lead.measure} {lead.value:.3f} {interval_text(lead.interval, sign=False, absent='')}"
    if not lead.followers:
        return Conclusion(
            f"{lead.name} scores highest on {lead.where}: {score.strip()}, over {lead.queries}. "
            f"{_nothing_paired(lead)}"
        )
    second = lead.followers[0]
    ahead = f"{second.behind:.3f} {interval_text(second.interval, sign=False, absent=SINGLE)}"
    if second.significant:
        text = (
            f"{lead.name} is best on {lead.where}: {score.strip()}, ahead of {second.name} by "
            f"{ahead}, a difference that these {lead.queries} show."
        )
    else:
        text = (
            f"{lead.name} scores highest on {lead.where}: {score.strip()}, ahead of {second.name} "
            f"by {ahead}, not a difference that these {lead.queries} can show. {_first_shown(lead)}"
        )
    return Conclusion(" ".join([text.strip(), *(f"{line}." for line in _few_of(lead.unranked))]))


def _few_of(lines: tuple[str, ...]) -> list[str]:
    """Return the lines, of many their number; the table of ranks has them all."""
    return list(lines) if len(lines) < 3 else [f"{len(lines)} other models lack a task"]


def _nothing_paired(lead: Lead) -> str:
    if lead.unpaired:
        return "No other model has scores on the same queries, so no difference is tested."
    return "There is no other model to compare it with."


def _first_shown(lead: Lead) -> str:
    """Name the best model that the leader is shown to be ahead of."""
    for each in lead.followers:
        if each.significant:
            by = f"{each.behind:.3f} {interval_text(each.interval, sign=False, absent=SINGLE)}"
            return f"It is ahead of {each.name} by {by}, which they do show."
    return f"They do not show it to be ahead of any other model.{lead.caution}"


def lead_figure(
    comparison: Comparison,
    *,
    task: str,
    most: int = 9,
) -> Figure | None:
    """Draw how far each model is behind the best one, the best on top; None for fewer than two.

    Args:
        comparison: the comparison that all pages show.
        task: the task to report on, or a benchmark, whose mean it then is.
        most: how many models to show.
    """
    lead = find_lead(comparison, task=task)
    if lead is None or not lead.followers:
        return None
    shown = lead.followers[: most - 1]
    left_out = len(lead.followers) - len(shown)
    styles = model_styles([lead.name, *(each.name for each in shown)])
    rows = [ForestRow(lead.name, 0.0, **asdict(styles[lead.name]))]
    rows += [_row(each, styles[each.name]) for each in shown]
    ends = "; ".join(
        f"{each.name}: {-each.behind:+.3f} {interval_text(_turned(each.interval), absent='')}"
        for each in shown
    )
    return forest_figure(
        rows,
        xlabel=f"{lead.measure} minus the best model's",
        name="lead",
        caption=f"{lead.where}: how far each model is from the best, {lead.name} ({lead.measure} "
        f"{lead.value:.3f}), paired over the same {lead.queries}, with the 95 % interval of "
        f"the difference. Filled: different by the test ({lead.test}) and by the interval; open: "
        f"not.{comparison.given(task)}" + (f" Not shown: {left_out} more." if left_out else ""),
        alt=f"Forest plot of differences from {lead.name} on {lead.where}. {ends}.",
        columns=1,
    )


def _row(each: Follower, style: ModelStyle) -> ForestRow:
    low, high = _turned(each.interval) or (None, None)
    return ForestRow(each.name, -each.behind, low, high, clear=each.significant, **asdict(style))


def _turned(interval: Interval | None) -> Interval | None:
    return None if interval is None else (-interval[1], -interval[0])
