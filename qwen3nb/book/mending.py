"""Mend on built pages what the theme and the tools below it do wrong for assistive technology.

Everything here was a violation that axe reports; the pages of this package have none of their own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3nb.book.built_pages import built_pages
from qwen3nb.utils.atomic_files import write_text

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["mend_page", "mend_pages"]

# Names that hide the visible text of an element, which then has no name to speak to it by.
_MISNAMED = re.compile(
    r'(<button class="btn search-button-field[^>]*?) aria-label="[^"]*"'
    r'|(<summary) aria-label="Toggle hidden content"'
)
_ICON = re.compile(r'(<i class="theme-switch [^>]*?)\s*title="[^"]*"')
# The link home is outside all landmarks.
_BRAND = re.compile(r'<a class="navbar-brand logo".*?</a>', re.DOTALL)
# Roles that ARIA has withdrawn, and a list whose children are no items.
_ROLES = re.compile(
    r' role="doc-(?:biblioentry|endnote)"|(?<=<div) role="list"(?= class="citation)'
)
_EMPTY_HEADS = re.compile(
    r"<thead>\s*<tr[^>]*>\s*(?:<th[^>]*>\s*(?:<p>\s*</p>)?\s*</th>\s*)+</tr>\s*</thead>"
)
_EMPTY_HEAD = re.compile(r"<th\b[^>]*>(\s*(?:<p>\s*</p>)?\s*)</th>")
_IMAGE = re.compile(r'(<image\b[^>]*?) id="([^"]*)"')


def mend_pages(app: Sphinx, exception: Exception | None) -> None:
    """Mend all pages at the end of a build."""
    if exception is not None or app.builder.format != "html":
        return
    for file in built_pages(Path(app.outdir)):
        text = file.read_text(encoding="utf-8")
        if (mended := mend_page(text)) != text:
            write_text(file, mended)


def mend_page(text: str) -> str:
    """Return a page with names, landmarks, roles and table heads as they should be."""
    text = _MISNAMED.sub(lambda match: match[1] or match[2], text)
    text = _ICON.sub(r"\1", text)
    if '<nav class="q-home"' not in text:
        text = _BRAND.sub(r'<nav class="q-home" aria-label="Home">\g<0></nav>', text)
    text = _ROLES.sub("", text)
    text = _EMPTY_HEAD.sub(r"<td>\1</td>", _EMPTY_HEADS.sub("", text))
    return _without_repeated_ids(text)


def _without_repeated_ids(text: str) -> str:
    """Remove the id of a drawing's second copy of the same image; nothing refers to it."""
    seen: set[str] = set()

    def once(match: re.Match[str]) -> str:
        repeated = match[2] in seen
        seen.add(match[2])
        return match[1] if repeated else match[0]

    return _IMAGE.sub(once, text)
