"""Records that pages link to: which pages they are on, and their copies in the built book."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from qwen3nb import paths
from qwen3nb.book.built_pages import built_pages
from qwen3nb.records.errors import ResultError
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import write_json

__all__ = ["copy_linked_records", "pages_with_records"]

# In HTML, and in the HTML of a notebook's output, where quotes are escaped.
_LINK = re.compile(r'href=\\?"(?:\.\./)*records/([^"\\]+\.json)\\?"')


def linked_records(text: str) -> Iterator[str]:
    """Yield the records that a page links to, each as its path below ``results``."""
    for match in _LINK.finditer(text):
        yield unquote(html.unescape(match[1]))


def copy_linked_records(outdir: Path) -> int:
    """Copy the records that built pages link to into ``records``; return how many there are.

    Only files below ``results`` are copied, whatever a page links to.
    """
    results = paths.results().resolve()
    wanted = {
        name
        for page in built_pages(outdir)
        for name in linked_records(page.read_text(encoding="utf-8"))
    }
    count = 0
    for name in sorted(wanted):
        source = (results / name).resolve()
        if not source.is_relative_to(results) or not source.is_file():
            continue
        _copy(source, outdir / "records" / source.relative_to(results))
        count += 1
    return count


def _copy(source: Path, copy: Path) -> None:
    """Copy a record as one file, with its per-query scores; a browser shows it."""
    try:
        write_json(copy, Result.load(source).in_one_file())
    except ResultError:  # not a record that can be read: it is shown as it is
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, copy)


def pages_with_records() -> dict[str, str]:
    """Return the first published page that links to each record, by the link."""
    pages: dict[str, str] = {}
    for file in sorted(paths.book_runs().glob("*.ipynb")):
        for name in linked_records(file.read_text(encoding="utf-8")):
            pages.setdefault(f"../records/{name}", f"{file.stem}.html")
    return pages
