"""Tables of the simulated calibration of tests and intervals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table

__all__ = ["calibration_table"]

_WORDS = {
    "false positives": "share of p-values below 0.05 where there is no difference",
    "coverage": "share of 95 % intervals of a difference that contain the true one",
    "score coverage": "share of 95 % intervals of a score that contain the true one",
    "power": "share of samples in which the t-test detects the minimum detectable effect",
}


def calibration_table(shares: Iterable[Any], *, kind: str, over: str = "queries") -> Table:
    """Simulated shares of one kind, a row per method and world, a column per size.

    Args:
        shares: from `read_calibration` or `calibrate` of `qwen3nb.analysis.calibration.simulate`.
        kind: ``false positives``, ``coverage``, ``score coverage`` or ``power``.
        over: ``queries``, or ``seeds`` for the intervals over seeds and queries.
    """
    selected = [s for s in shares if s.kind == kind and (" x " in s.n) == (over == "seeds")]
    sizes = sorted({share.n for share in selected}, key=lambda n: int(n.split(" x ")[0]))
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for share in selected:
        rows.setdefault((share.method, share.world), {})[share.n] = share
    cells = tuple(
        (Cell(method, world), *(_cell(by_size.get(size)) for size in sizes))
        for (method, world), by_size in rows.items()
    )
    heads = [f"n = {size}" if over == "queries" else f"{size}\nseeds x queries" for size in sizes]
    return Table(("method", *heads), cells, _note(kind, selected))


def _cell(share: Any) -> Cell:
    if share is None:
        return Cell("–")
    return Cell(f"{share.share:.3f}", share.verdict, strong=share.verdict == "too bold")


def _note(kind: str, shares: list[Any]) -> str:
    if not shares:
        return "Not simulated."
    first = shares[0]
    return (
        f"The {_WORDS[kind]}: nominally {first.expected:g}; a share between {first.low:.3f} and "
        f"{first.high:.3f} is consistent with that ({first.simulations:,} simulations, 99 %). "
        "Cautious: fewer errors than nominal; too bold (in bold): more."
    )
