"""Postprocess the pages of a built book: linked records, numbers, links, accessibility.

Figures and tables are numbered when the book is built, in the order of each HTML page. Every
captioned figure and table gets its number as text and a permalink; a reference, ``<a class="q-see"
href="leaderboard.html#tab-scores">the scores</a>``, gets the number of its target. Marks of an
earlier, incremental build are removed first.
"""

import html
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from qwen3nb import paths
from qwen3nb.records.record import Result
from qwen3nb.records.side_files import ResultError
from qwen3nb.utils.atomic_files import write_json, write_text

# In HTML, and in the HTML of a notebook's output, where quotes are escaped.
_RECORD = re.compile(r'href=\\?"(?:\.\./)*records/([^"\\]+\.json)\\?"')

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
_MOST_WHOLE = 500
_FOOTER = '<footer class="q-footer">'
_WITHOUT_SCORES = (
    f"<p>This book links to more than {_MOST_WHOLE} records: its copies of them lack the score of "
    "every query, which is in the file that each record names, next to it in the study.</p>"
)
# Folders of pages and files created by runs, which may not exist yet.
_MADE = ("runs", "guide", "records")

# Accessibility defects of the theme and its tools, as reported by axe.
# Labels that differ from the visible text of an element, which voice control needs.
_MISNAMED = re.compile(
    r'(<button class="btn search-button-field[^>]*?) aria-label="[^"]*"'
    r'|(<summary) aria-label="Toggle hidden content"'
)
# The arrow that unfolds entries of the contents has no name.
_UNNAMED = re.compile(r'<summary(?=>\s*<span class="toctree-toggle")')
_ICON = re.compile(r'(<i class="theme-switch [^>]*?)\s*title="[^"]*"')
# The home link is outside all landmarks.
_BRAND = re.compile(r'<a class="navbar-brand logo".*?</a>', re.DOTALL)
# Deprecated ARIA roles, and a list whose children are not items.
_ROLES = re.compile(
    r' role="doc-(?:biblioentry|endnote)"|(?<=<div) role="list"(?= class="citation)'
)
_EMPTY_HEADS = re.compile(
    r"<thead>\s*<tr[^>]*>\s*(?:<th[^>]*>\s*(?:<p>\s*</p>)?\s*</th>\s*)+</tr>\s*</thead>"
)
_EMPTY_HEAD = re.compile(r"<th\b[^>]*>(\s*(?:<p>\s*</p>)?\s*)</th>")
_IMAGE = re.compile(r'(<image\b[^>]*?) id="([^"]*)"')


def built_pages(outdir: Path) -> list[Path]:
    """Return the HTML pages below ``outdir``, sorted, without templates of the theme."""
    pages = sorted(outdir.rglob("*.html"))
    return [page for page in pages if "_static" not in page.relative_to(outdir).parts]


def linked_records(text: str) -> Iterator[str]:
    """Yield the records that a page links to, each as its path below ``results``."""
    for match in _RECORD.finditer(text):
        yield unquote(html.unescape(match[1]))


def pages_with_records() -> dict[str, str]:
    """Return the first published page that links to each record, by the link."""
    pages: dict[str, str] = {}
    for file in sorted(paths.book_runs().glob("*.ipynb")):
        for name in linked_records(file.read_text(encoding="utf-8")):
            pages.setdefault(f"../records/{name}", f"{file.stem}.html")
    return pages


def copy_linked_records(outdir: Path) -> int:
    """Copy the records that built pages link to into ``records``; return their number.

    Only files below ``results`` are copied: as one file with the scores of every query, readable in
    a browser; of more than `_MOST_WHOLE` records, which would be gigabytes, as they are, which the
    footers of the pages that link to them say.
    """
    results = paths.results().resolve()
    linked = {
        page: {*linked_records(page.read_text(encoding="utf-8"))} for page in built_pages(outdir)
    }
    sources = sorted((results / name).resolve() for name in set().union(*linked.values()))
    kept = [each for each in sources if each.is_relative_to(results) and each.is_file()]
    for page in (each for each, names in linked.items() if names and len(kept) > _MOST_WHOLE):
        text = page.read_text(encoding="utf-8").replace(_WITHOUT_SCORES, "")  # of an earlier build
        write_text(page, text.replace(_FOOTER, _FOOTER + _WITHOUT_SCORES))
    for source in kept:
        copy = outdir / "records" / source.relative_to(results)
        with suppress(ResultError):  # an unreadable record is copied as it is
            if len(kept) <= _MOST_WHOLE:
                write_json(copy, Result.load(source).in_one_file())
                continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, copy)
    return len(kept)


@dataclass
class _BuiltPage:
    """A built page: its text, and the number of each of its figures and tables."""

    file: Path
    text: str
    numbers: dict[str, str]
    ids: set[str]


def finish_pages(outdir: Path) -> list[str]:
    """Number and mend all pages below ``outdir``, and return problems with links.

    A link to a missing page below ``runs`` or ``guide`` becomes plain text, and a reference to a
    missing table on such a page leads to the page. Any other broken link is a problem.
    """
    before = {file: file.read_text(encoding="utf-8") for file in built_pages(outdir)}
    pages = {file: _numbered(file, text) for file, text in before.items()}
    problems = []
    for file, page in pages.items():
        problems += _resolve_links(page, pages, outdir)
        if (text := mend_page(page.text)) != before[file]:
            write_text(file, text)
    return problems


@dataclass
class _Ids:
    """The ids of a page: all that it has, and those of figures and tables so far."""

    page: set[str]
    used: set[str] = field(default_factory=set)

    def unique(self, name: str, *, is_new: bool) -> str:
        """Return ``name``, with a number if another element of the page has it."""
        candidate, number = name, 2
        while name and self._is_taken(candidate, name, is_new):
            candidate = f"{name}-{number}"
            number += 1
        if candidate:
            self.used.add(candidate)
            self.page.add(candidate)
        return candidate

    def _is_taken(self, candidate: str, name: str, is_new: bool) -> bool:
        if candidate in self.used:
            return True
        return candidate in self.page and (is_new or candidate != name)


def _numbered(file: Path, text: str) -> _BuiltPage:
    """Return a page with its figures and tables numbered."""
    text = _MARKS.sub("", text)
    ids = _Ids(set(_ID.findall(text)))
    counts: Counter[str] = Counter()
    numbers: dict[str, str] = {}
    parts, end = [], 0
    for start in _START.finditer(text):
        tag, attributes = start[1], start[2]
        kind, prefix = _KINDS[tag]
        caption = _caption(text, start)
        if caption is not None:
            counts[kind] += 1
        stated = _ID.search(f" {attributes}")
        name = stated[1] if stated else ""
        if not name and caption is not None:
            name = f"{prefix}-{counts[kind]}"
        name = ids.unique(name, is_new=stated is None)
        parts.append(text[end : start.start()])
        end = start.end()
        if name:
            others = re.sub(r'\s*\bid="[^"]*"', "", attributes)
            parts.append(f'<{tag}{others} id="{name}">')
        else:
            parts.append(start[0])
        if caption is not None:
            label = f"{kind} {counts[kind]}"
            numbers[html.unescape(name)] = label
            parts.append(text[end : caption.start(1)] + _numbered_caption(caption[1], label, name))
            end = caption.end(1)
    parts.append(text[end:])
    return _BuiltPage(file, "".join(parts), numbers, ids.page)


def _numbered_caption(caption: str, label: str, name: str) -> str:
    return (
        f'<span class="q-number">{label}.</span> {caption}'
        f' <a class="q-permalink" href="#{name}" aria-label="Link to {label}">#</a>'
    )


def _caption(text: str, start: re.Match[str]) -> re.Match[str] | None:
    """Return the caption of the figure or table that begins at ``start``."""
    pattern = _CAPTION[start[1]]
    if start[1] == "div":
        return pattern.match(text, start.end())  # the first element in the box
    closed = text.find("</figure>", start.end())
    begins = text.find("<figcaption", start.end(), closed)
    return None if begins < 0 else pattern.match(text, begins)


@dataclass
class _Links:
    """The links of one page, to be completed; keeps the problems that it finds."""

    page: _BuiltPage
    pages: Mapping[Path, _BuiltPage]
    outdir: Path
    problems: list[str] = field(default_factory=list)
    existing: dict[Path, bool] = field(default_factory=dict)

    def resolved(self, match: re.Match[str]) -> str:
        """Return a link with the number of its target, or plain text for a page that is missing."""
        before, _, target, behind, text = match.groups()
        if _FOREIGN.match(target):
            return match[0]
        parts = urlsplit(html.unescape(target))
        file = self._file(unquote(parts.path))
        is_of_run = self._is_of_run(file)
        if not self._exists(file):
            if not is_of_run:
                self._add_problem(target, "no such page")
            return f'<a{before}data-href="{target}"{behind}>{text}</a>'
        opening = match[0][: match.start(5) - match.start()]
        number = ""
        if _SEE.search(opening) and file in self.pages:
            linked, name = self.pages[file], unquote(parts.fragment)
            if name in linked.numbers:
                number = f'<span class="q-see-number"> ({linked.numbers[name]})</span>'
            elif name and not is_of_run and name not in linked.ids:
                self._add_problem(target, "no such anchor on that page")
        return f'<a{before}href="{target}"{behind}>{text}{number}</a>'

    def _file(self, path: str) -> Path:
        if not path:
            return self.page.file
        return Path(os.path.normpath(self.page.file.parent / path))

    def _is_of_run(self, file: Path) -> bool:
        """Whether a page is made by runs, which omit empty tables and may not be there."""
        return file.is_relative_to(self.outdir) and file.relative_to(self.outdir).parts[0] in _MADE

    def _exists(self, file: Path) -> bool:
        if file not in self.existing:
            self.existing[file] = file in self.pages or file.exists()
        return self.existing[file]

    def _add_problem(self, target: str, problem: str) -> None:
        name = self.page.file.relative_to(self.outdir)
        self.problems.append(f"{name}: the link to {html.unescape(target)!r}: {problem}")


def _resolve_links(page: _BuiltPage, pages: dict[Path, _BuiltPage], outdir: Path) -> list[str]:
    """Complete the references of a page, and return problems with links."""
    links = _Links(page, pages, outdir)
    page.text = _LINK.sub(links.resolved, page.text)
    return links.problems


def mend_page(text: str) -> str:
    """Return a page with corrected names, landmarks, roles and table heads, for accessibility."""
    text = _MISNAMED.sub(lambda match: match[1] or match[2], text)
    text = _UNNAMED.sub('<summary aria-label="Pages below it"', text)
    text = _ICON.sub(r"\1", text)
    if '<nav class="q-home"' not in text:
        text = _BRAND.sub(r'<nav class="q-home" aria-label="Home">\g<0></nav>', text)
    text = _ROLES.sub("", text)
    text = _EMPTY_HEAD.sub(r"<td>\1</td>", _EMPTY_HEADS.sub("", text))
    seen: set[str] = set()

    def once(match: re.Match[str]) -> str:
        """Remove the duplicate id of a repeated image; nothing refers to it."""
        repeated = match[2] in seen
        seen.add(match[2])
        return match[1] if repeated else match[0]

    return _IMAGE.sub(once, text)
