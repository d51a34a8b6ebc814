"""Several views of one answer, of which a page shows one: a row of names, and what they show.

They are radio buttons, so that they work without a script and by keyboard. A link to something in
a view shows that view. Print has all of them, one below the other.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from qwen3nb.report.render.html import styled, unstyled


@dataclass(frozen=True)
class View:
    """One view: its name, and what it shows."""

    name: str
    parts: Sequence[object]  # each with HTML

    def to_html(self) -> str:
        """Return the parts, one below the other."""
        return "".join(unstyled(part._repr_html_()) for part in self.parts)  # type: ignore[attr-defined]


@dataclass(frozen=True, repr=False)
class Views:
    """Views of one answer; the first is shown until the reader chooses another."""

    name: str  # unique on a page
    views: Sequence[View]

    def __repr__(self) -> str:
        names = ", ".join(view.name for view in self.views)
        return f"<Views {self.name}: {names}>"

    def _repr_html_(self) -> str:
        name = html.escape(self.name, quote=True)
        buttons = []
        shown = []
        for number, view in enumerate(self.views):
            checked = "" if number else " checked"
            buttons.append(
                f'<input type="radio" name="{name}" id="{name}-{number}"{checked}>'
                f'<label for="{name}-{number}">{html.escape(view.name)}</label>'
            )
            shown.append(
                f'<section class="q-view" aria-label="{html.escape(view.name, quote=True)}">'
                f"{view.to_html()}</section>"
            )
        return styled(f'<div class="q-views">{"".join(buttons)}{"".join(shown)}</div>')
