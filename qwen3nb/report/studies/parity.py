"""Table and conclusion of the comparison of a served model with the one that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwen3nb.report.render.table import Cell, Conclusion, Table, effect_text

if TYPE_CHECKING:
    from qwen3nb.evaluation.parity import Parity


def parity_conclusion(found: Parity) -> Conclusion:
    """State whether it is the same model, why not, and what that changes in a search."""
    verdict = f"{found.where} is {'' if found.same else 'not '}the same as {found.model}"
    causes = "; ".join(f"{cause.name} ({cause.detail})" for cause in found.causes)
    text = f"{verdict}: {causes}." if causes else f"{verdict}."
    if causes:
        text += f" With that allowed for, cosines are {found.explained:.6f} or more."
    if (search := found.rankings) is not None:
        text += (
            f" For {search.queries:,} of the {search.of:,} queries of PyDocs, nDCG@10 is "
            f"{search.theirs:.3f} instead of {search.ours:.3f}, "
            f"{effect_text(search.difference, search.interval)}, n = {search.queries}; "
            f"{search.other_first:,} have another first document."
        )
    return Conclusion(text)


def parity_table(found: Parity) -> Table:
    """A row per text and role; cosines below the least are bold."""
    return Table.of(
        (
            {
                "text": name,
                "cosine": Cell("no vector", strong=True)
                if cosine is None
                else Cell(f"{cosine:.6f}", strong=cosine < found.least, value=cosine),
            }
            for name, cosine in found.cosines.items()
        ),
        note=f"Bold: below {found.least}, or no vector.",
        name="parity",
        caption=f"Cosines of vectors of {found.where} to those of {found.model}.",
    )
