"""The pages of a built book."""

from __future__ import annotations

from pathlib import Path

__all__ = ["built_pages"]


def built_pages(outdir: Path) -> list[Path]:
    """Return the HTML pages below ``outdir``, sorted, without templates of the theme."""
    pages = sorted(outdir.rglob("*.html"))
    return [page for page in pages if "_static" not in page.relative_to(outdir).parts]
