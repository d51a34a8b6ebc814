"""Number the figures and tables of built pages, and check the links between pages.

Numbers are given when the book is built, in the order of each HTML page: a caption in a notebook
says none. Every captioned figure and table has its number as text and a permalink; a reference,
``<a class="q-see" href="leaderboard.html#tab-scores">the scores</a>``, gets the number of its
target. Pages that an incremental build leaves as they are stay right: marks of an earlier build
are removed first.
"""

from __future__ import annotations

import html
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from qwen3nb.book.built_pages import built_pages
from qwen3nb.book.linked_records import copy_linked_records
from qwen3nb.utils.atomic_files import write_text

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["finish_pages", "number_pages"]

_MARKS = re.compile(
    r'<span class="q-number">[^<]*</span> |<span class="q-see-number">[^<]*</span>'
    r'| <a class="q-permalink"[^>]*>#</a>'
)
_START = re.compile(r'<(figure|div)\b([^>]*\bclass="q-(?:figure|table)"[^>]*)>')
_CAPTION = {
    "figure": re.compile(r"<figcaption[^>]*>(.*?)</figcaption>", re.DOTALL),
    "div": re.compile(r'<p class="q-caption">(.*?)</p>', re.DOTALL),
}
_KINDS = {"figure": ("Figure", "fig"), "div": ("Table", "tab")}
_ID = re.compile(r'(?<=[\s"])id="([^"]*)"')
_LINK = re.compile(r'<a\b([^>]*?\s)(data-)?href="([^"]*)"([^>]*)>(.*?)</a>', re.DOTALL)
_SEE = re.compile(r'\bclass="[^"]*\bq-see\b')
_FOREIGN = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
# Folders whose pages and files are made by runs: what is not there has not been made yet.
_MADE = ("runs", "guide", "records")


@dataclass
class _BuiltPage:
    """A built page: its file, its text, and the number of each of its figures and tables."""

    file: Path
    text: str
    before: str
    numbers: dict[str, str] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)


def finish_pages(app: Sphinx, exception: Exception | None) -> None:
    """Copy the records that pages link to, number the pages, and warn about dead links.

    Sphinx calls it at the end of a build; in a strict build its warnings are failures.
    """
    if exception is not None or app.builder.format != "html":
        return
    from sphinx.util.logging import getLogger

    copy_linked_records(Path(app.outdir))
    for problem in number_pages(Path(app.outdir)):
        getLogger(__name__).warning(problem)


def number_pages(outdir: Path) -> list[str]:
    """Number the figures and tables of all pages below ``outdir``; return what is wrong.

    A link to a page below ``runs`` or ``guide`` that has not been made becomes plain text, and a
    reference to a table that such a page does not have leads to the page. Any other link to a
    page, and any other reference to an anchor, that is not there is a problem.
    """
    pages = {file: _numbered(file) for file in built_pages(outdir)}
    problems = []
    for page in pages.values():
        problems += _resolve_links(page, pages, outdir)
        if page.text != page.before:
            write_text(page.file, page.text)
    return problems


def _numbered(file: Path) -> _BuiltPage:
    """Return a page with its figures and tables numbered."""
    before = file.read_text(encoding="utf-8")
    page = _BuiltPage(file, _MARKS.sub("", before), before)
    page.ids = set(_ID.findall(page.text))
    parts, end = [], 0
    for first, last, text in _captioned(page):
        parts += [page.text[end:first], text]
        end = last
    page.text = "".join([*parts, page.text[end:]])
    return page


def _captioned(page: _BuiltPage) -> Iterator[tuple[int, int, str]]:
    """Yield the range of each figure's or table's start and caption, and what to write there."""
    counts: Counter[str] = Counter()
    taken: set[str] = set()
    for start in _START.finditer(page.text):
        tag, attributes = start[1], start[2]
        caption = _caption(page.text, start)
        kind, prefix = _KINDS[tag]
        own = _ID.search(f" {attributes}")
        counts[kind] += caption is not None
        name = own[1] if own else (f"{prefix}-{counts[kind]}" if caption else "")
        name = _unique(name, taken=taken, ids=page.ids, new=own is None)
        bare = re.sub(r'\s*\bid="[^"]*"', "", attributes)
        opened = f'<{tag}{bare} id="{name}">' if name else start[0]
        if caption is None:
            yield start.start(), start.end(), opened
            continue
        label = f"{kind} {counts[kind]}"
        page.numbers[html.unescape(name)] = label
        between = page.text[start.end() : caption.start(1)]
        yield (
            start.start(),
            caption.end(1),
            f'{opened}{between}<span class="q-number">{label}.</span> {caption[1]}'
            f' <a class="q-permalink" href="#{name}" aria-label="Link to {label}">#</a>',
        )


def _caption(text: str, start: re.Match[str]) -> re.Match[str] | None:
    """Return the caption of the figure or table that begins at ``start``."""
    pattern = _CAPTION[start[1]]
    if start[1] == "div":
        return pattern.match(text, start.end())  # it is the first thing in the box
    closed = text.find("</figure>", start.end())
    begins = text.find("<figcaption", start.end(), closed)
    return None if begins < 0 else pattern.match(text, begins)


def _unique(name: str, *, taken: set[str], ids: set[str], new: bool) -> str:
    """Return ``name``, or with a number where another element of the page has it."""
    other, number = name, 2
    while name and (other in taken or (other in ids and (new or other != name))):
        other, number = f"{name}-{number}", number + 1
    if other:
        taken.add(other)
        ids.add(other)
    return other


def _resolve_links(page: _BuiltPage, pages: dict[Path, _BuiltPage], outdir: Path) -> list[str]:
    """Complete the references of a page, and return the links that lead nowhere."""
    problems: list[str] = []
    exists: dict[Path, bool] = {}

    def resolved(match: re.Match[str]) -> str:
        before, _, target, behind, text = match.groups()
        if _FOREIGN.match(target):
            return match[0]
        parts = urlsplit(html.unescape(target))
        see = bool(_SEE.search(match[0][: match.start(5) - match.start()]))
        file = _target(page.file, parts.path)
        if file not in exists:
            exists[file] = file in pages or file.exists()
        if not exists[file]:
            if not _may_be_missing(file, outdir):
                problems.append(_problem(page, outdir, target, "no such page"))
            return f'<a{before}data-href="{target}"{behind}>{text}</a>'
        name, other = unquote(parts.fragment), pages.get(file)
        label = other.numbers.get(name, "") if see and other is not None else ""
        # On a page made by a run, a table that has nothing to show is not there.
        expected = see and name and not _may_be_missing(file, outdir)
        if expected and other is not None and name not in other.ids:
            problems.append(_problem(page, outdir, target, "no such anchor on that page"))
        number = f'<span class="q-see-number"> ({label})</span>' if label else ""
        return f'<a{before}href="{target}"{behind}>{text}{number}</a>'

    page.text = _LINK.sub(resolved, page.text)
    return problems


def _target(file: Path, path: str) -> Path:
    """Return the file that a relative path on a page leads to."""
    return Path(os.path.normpath(file.parent / unquote(path))) if path else file


def _may_be_missing(file: Path, outdir: Path) -> bool:
    return file.is_relative_to(outdir) and file.relative_to(outdir).parts[0] in _MADE


def _problem(page: _BuiltPage, outdir: Path, target: str, what: str) -> str:
    return f"{page.file.relative_to(outdir)}: the link to {html.unescape(target)!r}: {what}"
