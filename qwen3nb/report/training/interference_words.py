"""What joint training costs, in words: good news as good news, few seeds as few seeds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from qwen3nb.analysis.training.tir_estimate import seeds_needed
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.utils.format import number_text

if TYPE_CHECKING:
    from qwen3nb.analysis.training.tir_estimate import Estimate, Gate
    from qwen3nb.report.training.interference import InterferenceReport

__all__ = ["interference_conclusion"]


def interference_conclusion(report: InterferenceReport) -> Conclusion:
    """Say what joint training costs, and what the kill gate's words mean.

    The first sentence is the finding, and can stand alone. Of several joint configurations, it is
    about the one that costs most.
    """
    estimates = report.interference
    groups = [group for group in estimates.groups if group.overall.tir is not None]
    if not groups:
        return Conclusion(_no_result(report))
    worst = max(groups, key=lambda group: group.overall.tir or 0.0)
    each = worst.overall
    several = f" (the worst of {len(groups)} configurations, {worst.system})"
    subject = "Joint training" + (several if len(groups) > 1 else "")
    left_out = [note for note in each.notes if note.startswith("without ")]
    parts = [f"{subject} {_cost(each, estimates.gate)}.", _gate_words(each, estimates.gate)]
    parts += [f"This is {'; '.join(left_out)}."] if left_out else []
    return Conclusion(" ".join(parts))


def _no_result(report: InterferenceReport) -> str:
    if not report.runs:
        return "No trained adapters have been evaluated, so the cost of joint training is unknown."
    if not report.interference.groups:
        return (
            f"None of the {report.runs} adapters was trained jointly, so the cost of joint "
            "training is unknown."
        )
    refused = sum(len(group.refused) for group in report.interference.groups)
    why = f": {refused} pair{'s were' if refused > 1 else ' was'} refused" if refused else ""
    hint = f" {report.hint}" if report.hint else ""
    return f"No joint adapter can be compared with its specialist{why}.{hint}"


def _cost(each: Estimate, gate: Gate) -> str:
    """What follows "Joint training": the cost in words, the TIR, its interval and the seeds."""
    tir = each.tir or 0.0
    seeds = f"{len(each.seeds)} seed{'s' if len(each.seeds) > 1 else ''}"
    numbers = f"TIR {_percent(tir)} %{_ends(each.interval)} over {seeds}"
    low, high = each.interval if each.interval and len(each.seeds) > 1 else (-math.inf, math.inf)
    if low > 0:
        if tir < gate.pass_at:
            return f"costs a little: {numbers}"
        return f"costs {_percent(tir)} % of the specialist's score: {numbers}"
    if high < 0:
        return f"costs nothing, it helps: {numbers}"
    if high < gate.fail_below:
        return f"costs nothing measurable: {numbers}"
    return f"is not shown to cost anything: {numbers}"


def _gate_words(each: Estimate, gate: Gate) -> str:
    """The gate's verdicts, what they mean, and what would settle them."""
    high, low = f"{100 * gate.pass_at:g} %", f"{100 * gate.fail_below:g} %"
    meaning = {
        "PASS": f"a loss of {high} or more, enough interference to go on and treat it",
        "FAIL": f"a loss below {low}, so there is no interference to treat",
        "MARGINAL": f"a loss between {low} and {high}",
    }[each.by_point]
    if each.by_evidence == each.by_point:
        return f"The kill gate says {each.by_evidence}, by evidence and by point: {meaning}."
    return (
        f"The kill gate says {each.by_evidence} by evidence: {_missing(each, gate)}. By point, "
        f"the rule on the mean alone, it says {each.by_point} ({meaning})."
    )


def _missing(each: Estimate, gate: Gate) -> str:
    """Why the evidence settles nothing, and how many seeds could."""
    if len(each.seeds) < 2:
        return "one seed cannot show how much trainings vary; two or more are needed"
    if each.interval is None:
        return "there is no interval"
    if gate.evidence(each.tir, each.seed_interval) == "INCONCLUSIVE":
        needed = seeds_needed(each, gate)
        many = "more seeds than are practical" if needed is None else f"about {needed} seeds"
        return f"the seeds differ too much; at this spread {many} would be needed"
    if gate.evidence(each.tir, each.interval) == "INCONCLUSIVE":
        return "the seeds agree, but the interval over seeds and queries needs more queries"
    return "not every task could be compared"


def _percent(share: float) -> str:
    return number_text(100 * share, digits=1)


def _ends(interval: tuple[float, float] | None) -> str:
    return f" [{_percent(interval[0])}, {_percent(interval[1])}]" if interval else ""
