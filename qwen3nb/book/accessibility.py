"""Accessibility checks of built pages."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

__all__ = ["images_without_alt"]


def images_without_alt(html: Path) -> list[tuple[str, str]]:
    """Return the page and source of every image without alternative text.

    A file name does not count as alternative text; a drawing hidden from screen readers needs none.
    """
    missing = []
    for page in sorted(html.rglob("*.html")):
        images = _Images()
        images.feed(page.read_text(encoding="utf-8"))
        missing += [(str(page.relative_to(html)), source) for source in images.missing]
    return missing


class _Images(HTMLParser):
    """Collects images without alternative text."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check an ``img``, or an ``svg`` with the role of an image."""
        attributes = {name: value or "" for name, value in attrs}
        if tag == "img":
            text, source = attributes.get("alt", "").strip(), attributes.get("src", "")
            if not text or text in (source, Path(source).name):
                self.missing.append(source)
        elif tag == "svg" and attributes.get("role") == "img" and not attributes.get("aria-label"):
            self.missing.append("svg")
