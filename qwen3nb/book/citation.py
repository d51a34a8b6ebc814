"""A BibTeX entry for a page of the book."""

from __future__ import annotations

import re

from qwen3nb.report.render.latex import latex_text
from qwen3nb.utils.book_settings import BookSettings

__all__ = ["citation"]


def citation(settings: BookSettings, *, title: str = "", commit: str = "", date: str = "") -> str:
    """Return the entry, with every value escaped for LaTeX.

    Args:
        settings: the book's own title, authors, year and address.
        title: title of the page; empty for the whole book.
        commit: the commit that the page was made at.
        date: the day it was made, in words.
    """
    year = re.search(r"\d{4}", settings.year) or re.search(r"\d{4}", date)
    made = [f"commit {commit}"] * bool(commit) + [f"made on {date}"] * bool(date)
    page = f"page “{title}”" if title and title != settings.title else ""
    note = ", ".join(filter(None, [page, *made]))
    fields = {
        "title": f"{{{latex_text(settings.title)}}}",
        "author": _authors(settings.author),
        "year": year[0] if year else "",
        "url": _address(settings.url),
        "note": latex_text(note[:1].upper() + note[1:]),
    }
    key = re.sub(r"[^A-Za-z0-9]+", "", settings.title.split(" ")[0]).lower() or "book"
    lines = [f"  {name:<6} = {{{value}}}" for name, value in fields.items() if value]
    return f"@misc{{{key}{fields['year']},\n" + ",\n".join(lines) + "\n}"


def _authors(author: str) -> str:
    """Separate persons by ``and``; a group, such as *The developers*, is one name in braces."""
    if author.lower().startswith("the "):
        return f"{{{latex_text(author)}}}"
    return " and ".join(latex_text(each) for each in re.split(r"\s*,\s*|\s+and\s+", author) if each)


def _address(url: str) -> str:
    """Return an address for a ``url`` field: without spaces, and with its braces encoded."""
    return re.sub(r"[{}\\\s]", lambda match: f"%{ord(match[0]):02X}", url)
