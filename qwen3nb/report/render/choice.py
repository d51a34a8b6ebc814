"""A table in several variants, of which the reader of a page chooses one."""

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass

from qwen3nb.report.render.table import Table


@dataclass(frozen=True, repr=False)
class TableChoice:
    """Variants of a table with the same caption and note; without a script, the first is shown.

    All of them are made with the page and lie in it: the book's script shows the one that is
    chosen, and computes nothing.
    """

    variants: Mapping[str, Table]  # by what is chosen, the default first
    label: str  # what is chosen, such as ``Baseline``

    @property
    def first(self) -> Table:
        """The variant that is shown without a choice."""
        return next(iter(self.variants.values()))

    def __repr__(self) -> str:
        return repr(self.first)

    def _repr_html_(self) -> str:
        # As JSON, so that nothing of it is read before it is chosen. Text in it is escaped, and no
        # ``<`` is left: with ``<!--<script>`` among the names, the element would not end.
        data = json.dumps({name: each.to_html() for name, each in self.variants.items()})
        script = (
            f'<script type="application/json" class="q-variants" data-label='
            f'"{html.escape(self.label)}">{data.replace("<", chr(92) + "u003c")}</script>'
        )
        table = self.first.to_html()
        page = self.first._repr_html_()
        return page.replace(table, table.removesuffix("</div>") + script + "</div>")
