"""Tables of the simulated calibration of tests and intervals, and what they show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.table import Table

_WORDS = {
    "false positives": "share of p-values below 0.05 where there is no difference",
    "false equivalence": "share of samples called equivalent where the true difference is the "
    "margin",
    "coverage": "share of 95 % intervals of a difference that contain the true one",
    "score coverage": "share of 95 % intervals of a score that contain the true one",
    "power": "share of samples in which the t-test detects the minimum detectable effect",
}
# The methods that pages use, and what is said of them.
_CLAIMS = {
    "false positives": "The permutation test finds a difference where there is none in at most",
    "skewed": "Where rare large wins balance many small losses, differences are not symmetric, as "
    "it assumes, and it does so in up to",
    "false equivalence": "Models whose difference is the margin are called equivalent in at most",
    "coverage": "The 95 % intervals of differences contain the true one in at least",
    "score coverage": "Those of scores contain the true one in at least",
}
_SKEWED = ("large wins", "noisy wins")
_SHOWN = {
    ("false positives", "permutation test"),
    ("false equivalence", "widened Student's"),
    ("coverage", "widened Student's"),
    ("score coverage", "widened Student's"),
    ("score coverage", "Fisher's z"),
}


def calibration_table(shares: Iterable[Any], *, kind: str, over: str = "queries") -> Table:
    """Simulated shares of one kind: a row per method and process, a column per size.

    Args:
        shares: from `qwen3nb.analysis.calibration.read_calibration`.
        kind: see `qwen3nb.analysis.calibration.Share`.
        over: ``queries``, or ``seeds`` for the intervals over seeds and queries.
    """
    selected = [s for s in shares if s.kind == kind and (" x " in s.n) == (over == "seeds")]
    sizes = sorted({share.n for share in selected}, key=lambda n: int(n.split(" x ")[0]))
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    for each in selected:
        bold = each.verdict == "anti-conservative"
        cell = Cell(f"{each.share:.3f}", each.verdict, strong=bold)
        rows.setdefault((each.method, each.process), {})[each.n] = cell
    heads = [f"n = {size}" if over == "queries" else f"{size}\nseeds x queries" for size in sizes]
    where = "-over-seeds" if over == "seeds" else ""
    return Table.of(
        ((name, *map(by_size.get, sizes)) for name, by_size in rows.items()),
        ("method", *heads),
        note="".join(
            f"The {_WORDS[kind]}: nominally {first.expected:g}; a share between {first.low:.3f} "
            f"and {first.high:.3f} is consistent with that ({first.simulations:,} simulations, "
            "99 %). Conservative: fewer errors than nominal; anti-conservative (in bold): more."
            for first in selected[:1]
        ),
        empty="Not simulated.",
        name=f"{kind.replace(' ', '-')}{where}",
        caption=f"Simulated: the {_WORDS[kind]}, by method, data-generating process and number "
        f"of {over}.",
    )


def calibration_conclusion(shares: Iterable[Any]) -> Conclusion:
    """Say whether the test and the intervals shown on every page hold their level."""
    shown = [s for s in shares if " x " not in s.n and (s.kind, s.method) in _SHOWN]
    if not shown:
        return Conclusion("Nothing was simulated, so nothing is known about the calibration.")
    by_claim: dict[str, list[Any]] = {claim: [] for claim in _CLAIMS}
    for share in shown:
        skewed = share.kind == "false positives" and share.process in _SKEWED
        by_claim["skewed" if skewed else share.kind].append(share)
    sentences = []
    for claim, own in by_claim.items():
        worst = (min if "coverage" in claim else max)(own, key=lambda each: each.share)
        bold = sum(each.verdict == "anti-conservative" for each in own)
        sentences.append(
            f"{_CLAIMS[claim]} {100 * worst.share:.1f} % of samples ({worst.process}, n = "
            f"{worst.n}): anti-conservative in {bold} of {len(own)} settings."
        )
    return Conclusion(" ".join(sentences))
