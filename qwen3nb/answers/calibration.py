"""Do tests and intervals hold their level? Simulated shares of errors, and what they show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from qwen3nb.analysis.calibration import Share, read_calibration
from qwen3nb.answers.answer import Answer
from qwen3nb.report.render.table import Cell, Conclusion, Table
from qwen3nb.utils.imports import DataFrame

# What a share of each kind is a share of.
MEANINGS = {
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
_METHODS_OF_PAGES = {
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
_CORRECTIONS = ("MaxT", "Holm", "Wilcoxon, BH")


@dataclass(frozen=True, repr=False)
class Calibration(Answer):
    """Simulated shares of errors of tests and intervals."""

    shares: tuple[Share, ...]

    @property
    def conclusion(self) -> Conclusion:
        """Whether the test and the intervals shown on every page hold their level."""
        by_claim: dict[str, list[Share]] = {claim: [] for claim in _CLAIMS}
        for share in self.shares:
            if (share.kind, share.method) in _METHODS_OF_PAGES and not share.is_over_seeds:
                is_skewed = share.kind == "false positives" and share.process in _SKEWED
                by_claim["skewed" if is_skewed else share.kind].append(share)
        sentences = [_sentence(claim, shares) for claim, shares in by_claim.items() if shares]
        if not sentences:
            sentences.append("Nothing was simulated, so nothing is known about the calibration.")
        return Conclusion(" ".join(sentences))

    @property
    def wilcoxon(self) -> Conclusion:
        """How Wilcoxon's test, with Benjamini and Hochberg's correction, did in simulations."""
        rates = _ErrorRates(self.shares)
        skewed = [
            f"{rates.compared('false positives', 'large wins', n)} of samples of {n} queries"
            for n in ("20", "200")
        ]
        power = [
            f"{rates.compared('power', process, '200')} ({process})"
            for process in ("normal", "accuracy", "noisy wins", "PyDocs")
        ]
        sentences = [
            "Where differences are symmetric, Wilcoxon's p-value is below 0.05 in at most "
            f"{rates.largest('false positives', 'Wilcoxon')} of samples.",
            "Where rare large wins balance many small losses, so that the mean difference is 0, "
            f"it is in {' and '.join(skewed)}.",
            f"Of 200 queries, it finds the true difference in {', '.join(power)}.",
            "With Benjamini and Hochberg's correction, it finds a false difference in at most "
            f"{rates.corrected('complete')} of families of 28 pairs of which none differ, and in "
            f"up to {rates.corrected('partial')} where 16 do; of all that it finds there, up to "
            f"{rates.largest('false discoveries', 'Wilcoxon, BH')} is false on average.",
        ]
        return Conclusion(" ".join(sentences))

    def table(self, kind: str = "false positives", *, over: str = "queries") -> Table:
        """Simulated shares of one kind: a row per method and process, a column per size.

        Args:
            kind: of the shares; see `qwen3nb.analysis.calibration`.
            over: ``queries``, or ``seeds`` for the intervals over seeds and queries.
        """
        is_over_seeds = over == "seeds"
        shares = [
            share
            for share in self.shares
            if share.kind == kind and share.is_over_seeds == is_over_seeds
        ]
        sizes = sorted({share.n for share in shares}, key=lambda n: int(n.split(" x ")[0]))
        rows: dict[tuple[str, str], dict[str, Cell]] = {}
        for share in shares:
            cell = Cell(f"{share.share:.3f}", share.verdict, strong=share.is_anti_conservative)
            rows.setdefault((share.method, share.process), {})[share.n] = cell
        heads = [f"n = {size}" for size in sizes]
        name = kind.replace(" ", "-")
        if is_over_seeds:
            heads = [f"{size}\nseeds x queries" for size in sizes]
            name = f"{name}-over-seeds"
        return Table.of(
            [(method, *map(cells.get, sizes)) for method, cells in rows.items()],
            ("method", *heads),
            note=_note(kind, shares),
            empty="Not simulated.",
            name=name,
            caption=f"Simulated: the {MEANINGS[kind]}, by method, data-generating process and "
            f"number of {over}.",
        )

    def families(self) -> Table:
        """Simulated errors and power of tests of all pairs of eight systems, by correction.

        A row per data-generating process and number of queries.
        """
        rows: dict[tuple[str, str], dict[str, Cell]] = {}
        for share in self.shares:
            process, _, null = share.process.partition(", ")
            head = _FAMILY_HEADS.get((share.kind, null))
            if head:
                cell = Cell(f"{share.share:.3f}", strong=share.is_anti_conservative)
                rows.setdefault((process, f"n = {share.n}"), {})[f"{head}\n{share.method}"] = cell
        heads = [f"{head}\n{method}" for head in _FAMILY_HEADS.values() for method in _CORRECTIONS]
        return Table.of(
            [(systems, *map(cells.get, heads)) for systems, cells in rows.items()],
            ("systems", *heads),
            note="None differ, 16 differ: the share of families with a false difference, nominally "
            "at most 0.05; more than chance explains is in bold. Where 16 differ, four systems are "
            "better than the others by three standard errors, on every query by as much, which "
            "breaks ties and favours ranks. Power: the share of the 16 found. False: the mean "
            "share of those found that is false. BH: Benjamini and Hochberg.",
            empty="Not simulated.",
            name="families",
            caption="Simulated: errors and power of tests of all 28 pairs of eight systems, by "
            "correction, data-generating process and number of queries.",
        )

    def to_frame(self) -> DataFrame:
        """Return a row per simulated share."""
        import pandas as pd

        return pd.DataFrame([asdict(share) for share in self.shares])


def calibration(file: Path | str = "") -> Calibration:
    """Read the shares of a run of ``qwen3nb bench calibration``, by default the stored one."""
    return Calibration(tuple(read_calibration(file)))


def _sentence(claim: str, shares: list[Share]) -> str:
    """Return a claim with the worst share, and in how many settings it is too high or low."""
    worst = max(shares, key=lambda share: share.share)
    if "coverage" in claim:
        worst = min(shares, key=lambda share: share.share)
    wrong = sum(share.is_anti_conservative for share in shares)
    return (
        f"{_CLAIMS[claim]} {100 * worst.share:.1f} % of samples ({worst.process}, n = {worst.n}): "
        f"anti-conservative in {wrong} of {len(shares)} settings."
    )


def _note(kind: str, shares: list[Share]) -> str:
    """Explain the shares by the first one for which a share is expected."""
    nominal = [share for share in shares if share.expected]
    if not nominal:
        return ""
    first = nominal[0]
    of_effect = "of the minimum detectable effect, " if kind == "power" else ""
    return (
        f"The {MEANINGS[kind]}: {of_effect}nominally {first.expected:g}; a share between "
        f"{first.low:.3f} and {first.high:.3f} is consistent with that "
        f"({first.simulations:,} simulations, 99 %). Conservative: fewer errors than nominal; "
        "anti-conservative (in bold): more."
    )


@dataclass(frozen=True)
class _ErrorRates:
    """Shares of Wilcoxon's test next to those of the methods that pages use."""

    shares: Iterable[Share]

    def largest(self, kind: str, method: str, process: str = "", n: str = "") -> str:
        """The largest share of the processes with this part in their names, in percent.

        Without a process, of all that are symmetric.
        """
        found = []
        for share in self.shares:
            is_process = process in share.process if process else share.process not in _SKEWED
            if (share.kind, share.method) == (kind, method) and is_process and n in ("", share.n):
                found.append(share.share)
        return f"{100 * max(found):.1f} %"

    def compared(self, kind: str, process: str, n: str) -> str:
        """Shares of Wilcoxon's test and of the permutation test."""
        permutation = self.largest(kind, "permutation test", process, n)
        wilcoxon = self.largest(kind, "Wilcoxon", process, n)
        return f"{wilcoxon} (permutation test: {permutation})"

    def corrected(self, null: str) -> str:
        """Family-wise errors with Benjamini and Hochberg's correction, and by MaxT."""
        max_t = self.largest("family-wise error", "MaxT", null)
        wilcoxon = self.largest("family-wise error", "Wilcoxon, BH", null)
        return f"{wilcoxon} (step-down MaxT: {max_t})"
