"""Do tests and intervals hold their level? Simulated shares of errors, and what they show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from qwen3nb.analysis.calibration import Share, read_calibration
from qwen3nb.answers.answer import Answer
from qwen3nb.report.render.table import Cell, Conclusion, Table, plural
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
_SKEWED = ("large wins", "noisy wins")
_TEST_OF_PAGES = ("false positives", "permutation test")
_METHODS_OF_PAGES = {
    _TEST_OF_PAGES,
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
_FAMILIES_NOTE = (
    "None differ, 16 differ: the share of families with a false difference, nominally "
    "at most 0.05; more than chance explains is in bold. Power: the share of the 16 found."
)
_FAMILIES_METHOD = (
    "Where 16 differ, four systems are better than the others by three standard errors, on every "
    "query by as much, which breaks ties and favours ranks. False: the mean share of those found "
    "that is false. BH: Benjamini and Hochberg."
)


@dataclass(frozen=True, repr=False)
class Calibration(Answer):
    """Simulated shares of errors of tests and intervals."""

    shares: tuple[Share, ...]

    @property
    def conclusion(self) -> Conclusion:
        """Whether the test and the intervals shown on every page hold their level."""
        on_pages = [share for share in self.shares if _is_on_pages(share)]
        if not on_pages:
            return Conclusion("Nothing was simulated, so nothing is known about the calibration.")
        symmetric = [share for share in on_pages if share.process not in _SKEWED]
        holding = [share for share in symmetric if not share.is_anti_conservative]
        sentences = [
            f"The tests and intervals of these pages err no more than they say in {len(holding)} "
            f"of {plural(len(symmetric), 'simulated setting')}."
        ]
        tests = [share for share in on_pages if (share.kind, share.method) == _TEST_OF_PAGES]
        sentences += _sentences_on_test(tests)
        return Conclusion(" ".join(sentences))

    @property
    def wilcoxon(self) -> Conclusion:
        """How Wilcoxon's test, with Benjamini and Hochberg's correction, did in simulations."""
        rates = _ErrorRates(self.shares)
        # Each text has the share of Wilcoxon's test, and in brackets that of ours.
        share_at_20 = rates.beside_permutation_test("false positives", process="large wins", n="20")
        share_at_200 = rates.beside_permutation_test(
            "false positives", process="large wins", n="200"
        )
        powers = []
        for process in ("normal", "accuracy", "noisy wins", "PyDocs"):
            power = rates.beside_permutation_test("power", process=process, n="200")
            powers.append(f"{power} ({process})")
        sentences = [
            "Where differences are symmetric, Wilcoxon's p-value is below 0.05 in at most "
            f"{rates.largest('false positives', 'Wilcoxon')} of samples.",
            "Where rare large wins balance many small losses, so that the mean difference is 0, "
            f"it is in {share_at_20} of samples of 20 queries and {share_at_200} of samples of 200 "
            "queries.",
            f"Of 200 queries, it finds the true difference in {', '.join(powers)}.",
            "With Benjamini and Hochberg's correction, it finds a false difference in at most "
            f"{rates.beside_max_t('complete')} of families of 28 pairs of which none differ, and "
            f"in up to {rates.beside_max_t('partial')} where 16 do; of all that it finds there, "
            f"up to {rates.largest('false discoveries', 'Wilcoxon, BH')} is false on average.",
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
        sizes = sorted({share.n for share in shares}, key=_first_number)
        name = kind.replace(" ", "-")
        heads = [f"n = {size}" for size in sizes]
        if is_over_seeds:
            name = f"{name}-over-seeds"
            heads = [f"{size}\nseeds x queries" for size in sizes]
        # A row per method and process, a column per size.
        cells_by_row: dict[tuple[str, str], dict[str, Cell]] = {}
        for share in shares:
            cell_by_size = cells_by_row.setdefault((share.method, share.process), {})
            text = f"{share.share:.3f}"
            cell_by_size[share.n] = Cell(text, share.verdict, strong=share.is_anti_conservative)
        rows = []
        for method_and_process, cell_by_size in cells_by_row.items():
            rows.append([method_and_process, *(cell_by_size.get(size) for size in sizes)])
        return Table.of(
            rows,
            ("method", *heads),
            note=_note(kind, shares),
            method=_method(kind, shares),
            empty="Not simulated.",
            name=name,
            caption=f"Simulated: the {MEANINGS[kind]}, by method, data-generating process and "
            f"number of {over}.",
        )

    def families(self) -> Table:
        """Simulated errors and power of tests of all pairs of eight systems, by correction.

        A row per data-generating process and number of queries.
        """
        heads = []
        for name in _FAMILY_HEADS.values():
            heads += [f"{name}\n{method}" for method in _CORRECTIONS]
        # A row per process and number of queries, a column per head.
        cells_by_row: dict[tuple[str, str], dict[str, Cell]] = {}
        for share in self.shares:
            # Such as "PyDocs, complete": the null hypothesis of a family is behind the comma.
            process, _, null_hypothesis = share.process.partition(", ")
            name = _FAMILY_HEADS.get((share.kind, null_hypothesis), "")
            if name:  # of a column
                cell_by_head = cells_by_row.setdefault((process, f"n = {share.n}"), {})
                cell = Cell(f"{share.share:.3f}", strong=share.is_anti_conservative)
                cell_by_head[f"{name}\n{share.method}"] = cell
        rows = []
        for systems, cell_by_head in cells_by_row.items():
            rows.append([systems, *(cell_by_head.get(head) for head in heads)])
        return Table.of(
            rows,
            ("systems", *heads),
            note=_FAMILIES_NOTE,
            method=_FAMILIES_METHOD,
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


def _is_on_pages(share: Share) -> bool:
    """Whether a share is that of a method whose results pages show."""
    return (share.kind, share.method) in _METHODS_OF_PAGES and not share.is_over_seeds


def _sentences_on_test(shares: list[Share]) -> list[str]:
    """Say how often the test errs at worst, and how often where it may not be used."""
    sentences = []
    symmetric = [share for share in shares if share.process not in _SKEWED]
    if symmetric:
        sentences.append(
            "The permutation test finds a difference where there is none in at most "
            f"{_worst_text(symmetric)}."
        )
    skewed = [share for share in shares if share.process in _SKEWED]
    if skewed:
        sentences.append(
            "Where rare large wins balance many small losses, it does so in up to "
            f"{_worst_text(skewed)}."
        )
    return sentences


def _worst_text(shares: list[Share]) -> str:
    worst = max(shares, key=lambda share: share.share)
    return f"{100 * worst.share:.1f} % of samples ({worst.process}, n = {worst.n})"


def _first_number(size: str) -> int:
    """Return the number to sort a size by: 20 of ``20``, and 5 of ``5 x 200``."""
    return int(size.split(" x ")[0])


def _note(kind: str, shares: list[Share]) -> str:
    """Explain the shares by the first one for which a share is expected."""
    example = _example(shares)
    if example is None:
        return ""
    effect = ""
    if kind == "power":
        effect = " of the minimum detectable effect"
    return (
        f"The share{effect} is nominally {example.expected:g}. Bold: anti-conservative, more "
        "errors than that. Conservative: fewer."
    )


def _method(kind: str, shares: list[Share]) -> str:
    """Say what the shares are, and which of them chance explains."""
    example = _example(shares)
    if example is None:
        return ""
    return (
        f"The {MEANINGS[kind]}. A share between {example.low:.3f} and {example.high:.3f} is "
        f"consistent with {example.expected:g} ({example.simulations:,} simulations, 99 %)."
    )


def _example(shares: list[Share]) -> Share | None:
    """Return a share for which one is expected; none of power at a given difference has one."""
    return next((share for share in shares if share.expected), None)


@dataclass(frozen=True)
class _ErrorRates:
    """Shares of Wilcoxon's test next to those of the methods that pages use."""

    shares: Iterable[Share]

    def largest(self, kind: str, method: str, process: str = "", n: str = "") -> str:
        """The largest share of the processes with this part in their names, in percent.

        Without a process, of all that are symmetric.
        """
        shares = []
        for share in self.shares:
            if process:
                has_process = process in share.process  # "complete" in "PyDocs, complete"
            else:
                has_process = share.process not in _SKEWED  # symmetric
            has_size = n in ("", share.n)
            if (share.kind, share.method) == (kind, method) and has_process and has_size:
                shares.append(share.share)
        return f"{100 * max(shares):.1f} %"

    def beside_permutation_test(self, kind: str, process: str, n: str) -> str:
        """Shares of Wilcoxon's test and of the permutation test."""
        wilcoxon = self.largest(kind, "Wilcoxon", process, n)
        permutation_test = self.largest(kind, "permutation test", process, n)
        return f"{wilcoxon} (permutation test: {permutation_test})"

    def beside_max_t(self, null_hypothesis: str) -> str:
        """Family-wise errors with Benjamini and Hochberg's correction, and by MaxT."""
        wilcoxon = self.largest("family-wise error", "Wilcoxon, BH", null_hypothesis)
        max_t = self.largest("family-wise error", "MaxT", null_hypothesis)
        return f"{wilcoxon} (step-down MaxT: {max_t})"
