"""Tables of the simulated calibration of tests and intervals, and what they show."""

from collections.abc import Iterable
from typing import Any

from qwen3nb.report.render.table import Cell, Conclusion, Table

WORDS = {
    "false positives": "share of p-values below 0.05 where there is no difference",
    "false equivalence": "share of samples called equivalent where the true difference is the "
    "margin",
    "coverage": "share of 95 % intervals of a difference that contain the true one",
    "score coverage": "share of 95 % intervals of a score that contain the true one",
    "condition errors": "share of families without a difference in which one is found, where an "
    "assumption of the method fails",
    "condition coverage": "share of 95 % intervals that contain the true value, where an "
    "assumption of the usual method fails",
    "condition power": "share of new samples of the promised number of queries that show it",
    "condition shown": "share of samples for which there is an interval",
    "power": "share of samples in which a test finds the true difference, which is stated",
}
# The methods that pages use, and what is said of them.
_CLAIMS = {
    "false positives": "The permutation test finds a difference where there is none in at most",
    "skewed": "Where rare large wins balance many small losses, differences are not symmetric, as "
    "it assumes, and it does so in up to",
    "false equivalence": "Models whose difference is the margin are called equivalent in at most",
    "coverage": "The 95 % intervals of differences contain the true one in at least",
    "score coverage": "Those of scores contain the true one in at least",
    "family-wise error": "Of all pairs of eight models, step-down MaxT finds a false difference in "
    "at most",
}
_SKEWED = ("large wins", "noisy wins")
_SHOWN = {
    ("false positives", "permutation test"),
    ("false equivalence", "widened Student's"),
    ("coverage", "widened Student's"),
    ("score coverage", "widened Student's"),
    ("score coverage", "Fisher's z"),
    ("family-wise error", "MaxT"),
}
# By the kind and the null hypothesis of shares of families: the head of a column, in this order.
_FAMILY_HEADS = {
    ("family-wise error", "complete"): "none differ",
    ("family-wise error", "partial"): "16 differ",
    ("family power", "partial"): "power",
    ("false discoveries", "partial"): "false",
}


def calibration_table(shares: Iterable[Any], *, kind: str, over: str = "queries") -> Table:
    """Simulated shares of one kind: a row per method and process, a column per size.

    For ``shares`` and their ``kind`` see `qwen3nb.analysis.calibration`; ``over`` is ``queries``,
    or ``seeds`` for the intervals over seeds and queries.
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
    of = "of the minimum detectable effect, " if kind == "power" else ""
    return Table.of(
        ((name, *map(by_size.get, sizes)) for name, by_size in rows.items()),
        ("method", *heads),
        note="".join(
            f"The {WORDS[kind]}: {of}nominally {first.expected:g}; a share between "
            f"{first.low:.3f} and {first.high:.3f} is consistent with that "
            f"({first.simulations:,} simulations, 99 %). Conservative: fewer errors than nominal; "
            "anti-conservative (in bold): more."
            for first in [share for share in selected if share.expected][:1]
        ),
        empty="Not simulated.",
        name=f"{kind.replace(' ', '-')}{where}",
        caption=f"Simulated: the {WORDS[kind]}, by method, data-generating process and number "
        f"of {over}.",
    )


def family_table(shares: Iterable[Any]) -> Table:
    """Simulated errors and power of tests of all pairs of eight systems, by correction.

    A row per data-generating process and number of queries; ``shares`` as in `calibration_table`.
    """
    by_row: dict[tuple[str, str], dict[str, Cell]] = {}
    for each in shares:
        process, _, null = each.process.partition(", ")
        if head := _FAMILY_HEADS.get((each.kind, null)):
            cell = Cell(f"{each.share:.3f}", strong=each.verdict == "anti-conservative")
            by_row.setdefault((process, f"n = {each.n}"), {})[f"{head}\n{each.method}"] = cell
    corrections = ("MaxT", "Holm", "Wilcoxon, BH")
    heads = [f"{head}\n{method}" for head in _FAMILY_HEADS.values() for method in corrections]
    return Table.of(
        ((name, *map(cells.get, heads)) for name, cells in by_row.items()),
        ("systems", *heads),
        note="None differ, 16 differ: the share of families with a false difference, nominally at "
        "most 0.05; more than chance explains is in bold. Where 16 differ, four systems are better "
        "than the others by three standard errors, on every query by as much, which breaks ties "
        "and favours ranks. Power: the share of the 16 found. False: the mean share of those found "
        "that is false. BH: Benjamini and Hochberg.",
        empty="Not simulated.",
        name="families",
        caption="Simulated: errors and power of tests of all 28 pairs of eight systems, by "
        "correction, data-generating process and number of queries.",
    )


def wilcoxon_conclusion(shares: Iterable[Any]) -> Conclusion:
    """Say how Wilcoxon's test, with Benjamini and Hochberg's correction, did in simulations."""
    given = list(shares)

    def share(kind: str, method: str, process: str = "", n: str = "") -> str:
        """The largest share of the processes whose name has this part."""
        found = max(
            each.share
            for each in given
            if (each.kind, each.method) == (kind, method)
            and (process in each.process if process else each.process not in _SKEWED)
            and n in ("", each.n)
        )
        return f"{100 * found:.1f} %"

    def both(kind: str, process: str, n: str) -> str:
        ours = share(kind, "permutation test", process, n)
        return f"{share(kind, 'Wilcoxon', process, n)} (permutation test: {ours})"

    def corrected(null: str) -> str:
        ours = share("family-wise error", "MaxT", null)
        return f"{share('family-wise error', 'Wilcoxon, BH', null)} (step-down MaxT: {ours})"

    skewed = [
        f"{both('false positives', 'large wins', n)} of samples of {n} queries"
        for n in ("20", "200")
    ]
    shifted = ("normal", "accuracy", "noisy wins", "PyDocs")
    power = [f"{both('power', each, '200')} ({each})" for each in shifted]
    return Conclusion(
        "Where differences are symmetric, Wilcoxon's p-value is below 0.05 in at most "
        f"{share('false positives', 'Wilcoxon')} of samples. Where rare large wins balance many "
        f"small losses, so that the mean difference is 0, it is in {' and '.join(skewed)}. Of 200 "
        f"queries, it finds the true difference in {', '.join(power)}. With Benjamini and "
        f"Hochberg's correction, it finds a false difference in at most {corrected('complete')} "
        f"of families of 28 pairs of which none differ, and in up to {corrected('partial')} where "
        f"16 do; of all that it finds there, up to {share('false discoveries', 'Wilcoxon, BH')} "
        f"is false on average."
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
        if not own:
            continue
        worst = (min if "coverage" in claim else max)(own, key=lambda each: each.share)
        bold = sum(each.verdict == "anti-conservative" for each in own)
        sentences.append(
            f"{_CLAIMS[claim]} {100 * worst.share:.1f} % of samples ({worst.process}, n = "
            f"{worst.n}): anti-conservative in {bold} of {len(own)} settings."
        )
    return Conclusion(" ".join(sentences))
