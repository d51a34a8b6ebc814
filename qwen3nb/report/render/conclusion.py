"""A sentence that says what came out, made from the results it speaks of."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from qwen3nb.report.render.html import escaped_text, styled

_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, repr=False)
class Conclusion:
    """One or two plain sentences with their numbers; ``str`` and a page show the same words."""

    text: str  # plain; what is between backticks is code on a page
    page: str = ""  # with the numbers behind them, relative to the page that shows it

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        text = _CODE.sub(r"<code>\1</code>", escaped_text(self.text))
        if self.page:
            text += f' <a href="{html.escape(self.page, quote=True)}">The numbers</a>'
        return styled(f'<p class="q-conclusion">{text}</p>')
