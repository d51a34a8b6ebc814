"""A table in several variants, of which the reader of a page chooses one."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass

from qwen3nb.report.render.table import Table


@dataclass(frozen=True, repr=False)
class TableChoice:
    """Variants of a table with the same caption and note; without a script, the first is shown.

    All of them are made with the page and lie in it: the book's script shows the one that is
    chosen, and computes nothing. Tables that ask for the same thing change together.
    """

    variants: Mapping[str, Table]  # by what is chosen, the default first
    label: str  # what is chosen, such as ``Baseline``

    @property
    def first(self) -> Table:
        """The variant that is shown without a choice."""
        return next(iter(self.variants.values()))

    def to_markdown(self) -> str:
        """Return the first variant as Markdown."""
        return self.first.to_markdown()

    def __len__(self) -> int:
        return len(self.first)

    def __bool__(self) -> bool:
        return True  # a table without rows still says why in its note

    def __repr__(self) -> str:
        return f"{self.first!r}\n{self.label}: {', '.join(self.variants)}"

    def _repr_html_(self) -> str:
        page = self.first._repr_html_()
        if len(self.variants) < 2:
            return page
        # As JSON, so that nothing of it is read before it is chosen. Text in it is escaped, and no
        # ``<`` is left: with ``<!--<script>`` among the names, the element would not end.
        data = json.dumps({name: each.grid_html() for name, each in self.variants.items()})
        data = data.replace("<", r"\u003c")
        script = (
            f'<script type="application/json" class="q-variants" '
            f'data-label="{html.escape(self.label)}">{data}</script>'
        )
        table = self.first.to_html()
        return page.replace(table, table.removesuffix("</div>") + script + "</div>")
