"""Accessibility checks of built pages."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

__all__ = ["images_without_alt"]


def images_without_alt(html: Path) -> list[tuple[str, str]]:
    """Page and source of every picture without an alternative text.

    The file's name does not count as one; a drawing hidden from screen readers needs none.
    """
    silent = []
    for page in sorted(html.rglob("*.html")):
        pictures = _Pictures()
        pictures.feed(page.read_text(encoding="utf-8"))
        silent += [(str(page.relative_to(html)), source) for source in pictures.silent]
    return silent


class _Pictures(HTMLParser):
    """Collects pictures without an alternative text."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at an ``img``, or an ``svg`` with the role of a picture."""
        given = {name: value or "" for name, value in attrs}
        if tag == "img":
            text, source = given.get("alt", "").strip(), given.get("src", "")
            if not text or text in (source, Path(source).name):
                self.silent.append(source)
        elif tag == "svg" and given.get("role") == "img" and not given.get("aria-label"):
            self.silent.append("svg")
