"""Several tables under one another, each below its title and folded until it is opened."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from qwen3nb.report.render.html import escaped_text, styled, unstyled
from qwen3nb.utils.markdown import escaped

MANY = 12  # tasks; of more, tables and figures are split by type and folded
MOST_MODELS = 30  # in a figure; of more, the best are shown


@dataclass(frozen=True, repr=False)
class Sections:
    """Titled tables; on a page all but the first are folded, in Markdown each has a heading."""

    tables: tuple[tuple[str, Any], ...]  # each a `Table`
    about: str = ""  # shown above them

    def to_markdown(self) -> str:
        """Return the tables below headings, escaped."""
        parts = [escaped(self.about)] if self.about else []
        for title, table in self.tables:
            parts += [f"### {escaped(title)}", table.to_markdown()]
        return "\n\n".join(parts)

    def __len__(self) -> int:
        return len(self.tables)

    def __bool__(self) -> bool:
        return True  # without tables it still says why

    def __repr__(self) -> str:
        titles = "".join(f"\n  {title}: {len(table)} rows" for title, table in self.tables)
        return f"<Sections: {len(self)} tables>{titles}"

    def _repr_html_(self) -> str:
        about = f'<p class="q-note">{escaped_text(self.about)}</p>' if self.about else ""
        folded = "".join(
            f'<details class="q-section"{"" if index else " open"}>'
            f"<summary>{html.escape(title)}</summary>{unstyled(table._repr_html_())}</details>"
            for index, (title, table) in enumerate(self.tables)
        )
        return styled(f"<div>{about}{folded}</div>")
