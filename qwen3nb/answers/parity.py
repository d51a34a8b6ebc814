"""Is a served model the one that was measured? Vectors text by text, and what changed them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from qwen3nb.answers.answer import Answer
from qwen3nb.evaluation.parity import Parity
from qwen3nb.evaluation.parity import parity as compare_vectors
from qwen3nb.models.model import Model
from qwen3nb.models.options import OptionArguments
from qwen3nb.report.render.table import Cell, Conclusion, Table
from qwen3nb.utils.imports import DataFrame

_MOST_CAUSES = 4  # in the conclusion


@dataclass(frozen=True, repr=False)
class ParityAnswer(Parity, Answer):
    """The comparison of a model with one that should be the same."""

    @property
    def conclusion(self) -> Conclusion:
        """Whether it is the same model, why not, and what that changes in a search."""
        relation = "the same as" if self.same else "not the same as"
        text = f"{self.where} is {relation} {self.model}"
        if self.causes:
            names = list(dict.fromkeys(cause.name for cause in self.causes))
            # `explained`: the lowest cosine once the causes are allowed for.
            text += (
                f": {', '.join(names[:_MOST_CAUSES])}. With that allowed for, cosines are "
                f"{self.explained:.6f} or more"
            )
        sentences = [f"{text}."]
        if self.rankings:
            sentences.append(
                f"In a search of PyDocs, nDCG@10 is {self.rankings.theirs:.3f} there, and "
                f"{self.rankings.ours:.3f} here."
            )
        return Conclusion(" ".join(sentences))

    def table(self) -> Table:
        """A row per text and role; cosines below the least are bold."""
        return Table.of(
            [(name, self._cell(cosine)) for name, cosine in self.cosines.items()],
            ("text", "cosine"),
            note=f"Bold: below {self.least}, or no vector.",
            method=self._details(),
            name="parity",
            caption=f"Cosines of vectors of {self.where} to those of {self.model}.",
        )

    def _details(self) -> str:
        """Return each cause with what was seen, and what changes in a search."""
        details = [f"{cause}." for cause in self.causes]
        if self.rankings:
            details.append(f"{self.rankings}.")
        return " ".join(details)

    def _cell(self, cosine: float | None) -> Cell:
        if cosine is None:
            return Cell("no vector", strong=True)
        return Cell(f"{cosine:.6f}", strong=cosine < self.least)

    def to_frame(self) -> DataFrame:
        """Return a row per text and role: the cosine, missing without a vector."""
        import pandas as pd

        return pd.DataFrame(list(self.cosines.items()), columns=["text", "cosine"])


class ParityOptions(OptionArguments, total=False):
    """Of the comparison, and of the model."""

    prompts_by: str  # who adds the prompts to a server's texts: ``client`` or ``server``
    least: float  # cosine of a text for the same model
    rankings: bool  # whether both also search PyDocs
    queries: int  # of PyDocs, each with four documents; 0 for all of it


def parity(model: Model | Path | str, where: Any, **options: Unpack[ParityOptions]) -> ParityAnswer:
    """Compare ``model`` with what should be the same model in another program.

    Args:
        model: the model that was measured, or its spec.
        where: a server's ``URL#MODEL``, a graph's file, a folder, another spec, or an object that
            encodes.
        options: ``prompts_by``, ``least``, ``rankings`` and ``queries``; for a spec, also
            the options of `Model`.

    Raises:
        SpecError: no such model, or ``where`` is none of these.
        EncoderError: the other program fails on a plain text.
    """
    return ParityAnswer(**vars(compare_vectors(model, where, **options)))
