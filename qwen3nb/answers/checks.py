"""Is the model sound? Sanity checks that take seconds and find what is broken."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qwen3nb.answers.answer import Answer
from qwen3nb.evaluation.embeddings import sanity_check as intrinsic
from qwen3nb.evaluation.embeddings.sanity_check import Check, SanityCheck
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.render.table import Cell, Conclusion, Table, plural
from qwen3nb.utils.format import first_names
from qwen3nb.utils.imports import DataFrame

_NOT_PASSED = ("FAILED", "WARNING")


@dataclass(frozen=True, repr=False)
class Checks(Answer):
    """The sanity checks of one model, in the order of the page; iterates over them."""

    sanity: SanityCheck

    def __iter__(self) -> Iterator[Check]:
        return iter(self.sanity)

    def __repr__(self) -> str:
        return repr(self.sanity)

    @property
    def verdict(self) -> str:
        """The worst verdict of the checks: ``FAILED``, ``WARNING`` or ``PASSED``."""
        return self.sanity.verdict

    @property
    def conclusion(self) -> Conclusion:
        """How many checks the model passes, and the names of those that it fails."""
        passed = sum(check.verdict == "PASSED" for check in self)
        not_passed = [check for check in self if check.verdict in _NOT_PASSED]
        judged = passed + len(not_passed)  # others inform, or are not applicable
        if judged == 1 and passed:
            return Conclusion(f"{self.sanity.model} passes its one sanity check.")
        if not not_passed:
            return Conclusion(f"{self.sanity.model} passes all {judged} sanity checks.")
        text = f"{self.sanity.model} passes {passed} of {judged} sanity checks"
        failed = [check.name for check in not_passed if check.verdict == "FAILED"]
        warnings = len(not_passed) - len(failed)
        if warnings:
            text += f"; {plural(warnings, 'warning')}"
        text += "."
        if failed:
            text += f" FAILED: {first_names(failed, most=2, separator='; ')}."
        return Conclusion(text)

    def table(self) -> Table:
        """A row per check: what was observed, what is expected, and the verdict."""
        return Table.of(
            [_check_row(check) for check in self],
            note="FAILED: the model is broken or badly undertrained, whatever its scores. WARNING: "
            "a missed target.",
            method=f"Intervals: 95 %, {interval_words(['widened', 'fisher'])} (correlations), over "
            "queries or pairs. On substitutes for the data a target was set for, a missed target "
            "only warns, unless the interval includes chance.",
            kind="words",
            name="checks",
            caption="Sanity checks: what was observed, what is expected, and the verdict.",
        )

    def to_frame(self) -> DataFrame:
        """A row per check with its verdict and, if it is a number, the value and its interval."""
        import pandas as pd

        columns = ["name", "verdict", "value", "low", "high", "observed", "expected", "n"]
        rows = [[getattr(check, column) for column in columns] for check in self]
        return pd.DataFrame(rows, columns=columns)


def _check_row(check: Check) -> dict[str, object]:
    interval = ""
    if check.low is not None:
        interval = f"[{check.low:.3f}, {check.high:.3f}]"
    # A pair is a cell with a second line.
    return {
        "check": check.name,
        "verdict": Cell(check.verdict, strong=check.verdict in _NOT_PASSED),
        "observed": (check.observed, interval),
        "expected": (check.expected, check.remark),
        "n": check.n or None,
    }


def sanity_check(model: Any) -> Checks:
    """Check in seconds whether a model can be an encoder: vectors, directions, similarities.

    Args:
        model: a `Model`, a loaded one, or the folder or name of one.

    Raises:
        SpecError: no such model.
    """
    return Checks(intrinsic.sanity_check(model))
