"""Text, ids and style sheets of pages.

On a page of the book, the book's style sheet applies. Elsewhere, such as in JupyterLab, tables and
figures include a small style sheet (`styled`), which publication removes (`unstyled`).

What shows scores also names their tasks in an attribute (`data_attribute`), from which a page
learns whether any of its scores are on substitutes for MTEB's data, or on generated queries
(`data_shown`).
"""

import functools
import html
import json
import re
from pathlib import Path

from qwen3nb.records.data_used import DataUsed
from qwen3nb.utils.format import typeset

_TAG = "<style data-q>"
_WORDS = 8  # words of a caption used as an id


def anchor(prefix: str, name: str, caption: str = "") -> str:
    """Return an id made from a name, else from the first words of a caption; may be empty.

    >>> anchor("tab", "scores", ""), anchor("tab", "", "All models, n = 3"), anchor("tab", "")
    ('tab-scores', 'tab-all-models-n-3', '')
    """
    words = " ".join(caption.lower().split()[:_WORDS])
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", name or words).strip("-.")
    return f"{prefix}-{slug}" if slug else ""


def escaped_text(text: str) -> str:
    """Return text for a page: escaped, with typeset numbers (see `typeset`)."""
    return html.escape(typeset(text))


_DATA = re.compile(r'\bdata-q-used="([^"]*)"')


def data_attribute(data: DataUsed) -> str:
    """Return the attribute of an element whose scores are on these data; may be empty."""
    if not data.tasks:
        return ""
    names = {"tasks": sorted(data.tasks), "substitutes": sorted(data.substitutes)}
    if data.generated:
        names["generated"] = sorted(data.generated)
    return f' data-q-used="{html.escape(json.dumps(names), quote=True)}"'


def data_shown(page: str) -> DataUsed:
    """Return the data of all scores in HTML, from these attributes."""
    data = DataUsed()
    for match in _DATA.finditer(page):
        names = json.loads(html.unescape(match[1]))
        data |= DataUsed(
            tasks=frozenset(names["tasks"]),
            substitutes=frozenset(names["substitutes"]),
            generated=frozenset(names.get("generated", ())),
        )
    return data


def styled(page: str) -> str:
    """Add the style sheet to HTML that is shown outside the book."""
    return f"{_TAG}{_style()}</style>{page}"


def unstyled(page: str) -> str:
    """Remove the style sheets added by `styled`."""
    return re.sub(rf"{_TAG}.*?</style>", "", page, flags=re.DOTALL) if _TAG in page else page


@functools.cache
def _style() -> str:
    return Path(__file__).with_name("notebook.css").read_text(encoding="utf-8")
