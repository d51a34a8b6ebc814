"""What all answers have in common: a sentence, a table, a figure and the numbers as data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.html import styled, unstyled
from qwen3nb.report.render.table import Conclusion, Sections, Table, TableChoice
from qwen3nb.utils.hints import missing_attribute
from qwen3nb.utils.imports import DataFrame

# What to write for attributes that one might guess.
_INSTEAD = {
    "df": ".to_frame()",
    "filter": "results.to_frame(per_query=True), a row per query with text, length and category",
    "frame": ".to_frame()",
    "p_value": '.to_frame()["corrected"]',
    "plot": ".figure()",
    "summary": ".conclusion",
    "text": ".conclusion.text",
    "worst": "results.worst(k)",
}

Tables: TypeAlias = Table | Sections | TableChoice


class Answer(ABC):
    """The answer to one question, which a notebook shows as sentence, table and figure.

    Answers are frozen dataclasses: the same data give the same answer. `to_frame` has the numbers
    behind it, unrounded.
    """

    @property
    @abstractmethod
    def conclusion(self) -> Conclusion:
        """The answer in one or two sentences."""

    @abstractmethod
    def table(self) -> Tables | None:
        """The table that the sentence is read from; None if there is nothing to list."""

    def figure(self) -> Figure | None:
        """The figure; None if there is nothing to draw."""
        return None

    @abstractmethod
    def to_frame(self) -> DataFrame:
        """The numbers as a pandas data frame."""

    if not TYPE_CHECKING:  # which knows the attributes

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(self, name, _INSTEAD)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.conclusion.text}>"

    def _repr_html_(self) -> str:
        views = (self.conclusion, self.table(), self.figure())
        fragments = [unstyled(view._repr_html_()) for view in views if view is not None]
        return styled("\n".join(fragments))
