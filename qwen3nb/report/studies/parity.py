"""Table and conclusion of the comparison of a served model with the one that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwen3nb.report.render.table import Cell, Conclusion, Table

if TYPE_CHECKING:
    from qwen3nb.evaluation.parity import Parity


def parity_conclusion(found: Parity) -> Conclusion:
    """State whether it is the same model, why not, and what that changes in a search."""
    text = f"{found.where} is {'' if found.same else 'not '}the same as {found.model}"
    if found.causes:
        text += f": {'; '.join(map(str, found.causes))}"
        text += f". With that allowed for, cosines are {found.explained:.6f} or more"
    return Conclusion(f"{text}. {found.rankings}." if found.rankings else f"{text}.")


def parity_table(found: Parity) -> Table:
    """A row per text and role; cosines below the least are bold."""
    least = found.least
    return Table.of(
        (
            (name, Cell("no vector" if c is None else f"{c:.6f}", strong=c is None or c < least))
            for name, c in found.cosines.items()
        ),
        ("text", "cosine"),
        note=f"Bold: below {least}, or no vector.",
        name="parity",
        caption=f"Cosines of vectors of {found.where} to those of {found.model}.",
    )
