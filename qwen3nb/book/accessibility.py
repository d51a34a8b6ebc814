"""Checks of built pages: what a reader who does not see the pictures gets."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

__all__ = ["images_without_alt"]


def images_without_alt(html: Path) -> list[tuple[str, str]]:
    """Page and source of every picture without a text in its place.

    A file's name is no text; a drawing that is hidden from screen readers needs none.
    """
    found = []
    for page in sorted(html.rglob("*.html")):
        pictures = _Pictures()
        pictures.feed(page.read_text(encoding="utf-8"))
        found += [(str(page.relative_to(html)), source) for source in pictures.silent]
    return found


class _Pictures(HTMLParser):
    """Collects pictures that say nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at an ``img``, or an ``svg`` that is said to be a picture."""
        given = {name: value or "" for name, value in attrs}
        if tag == "img":
            said, source = given.get("alt", "").strip(), given.get("src", "")
            if not said or said in (source, Path(source).name):
                self.silent.append(source)
        elif tag == "svg" and given.get("role") == "img" and not given.get("aria-label"):
            self.silent.append("svg")
