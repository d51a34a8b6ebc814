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
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from qwen3nb import paths
from qwen3nb.records.record import Result
from qwen3nb.records.side_files import ResultError
from qwen3nb.utils.atomic_files import write_json, write_text

# A link such as ``href="../records/m/seed_0/SciFact.json"``, in HTML, and in that of a notebook's
# output, where quotes are escaped.
_RECORD = re.compile(r'href=\\?"(?:\.\./)*records/([^"\\]+\.json)\\?"')

_MARKS = re.compile(
    r'<span class="q-number">[^<]*</span> |<span class="q-see-number">[^<]*</span>'
    r'| <a class="q-permalink"[^>]*>#</a>'
)
# The start of a figure or table, such as ``<div class="q-table" id="tab-scores">``.
_START = re.compile(
    r'<(?P<tag>figure|div)\b(?P<attributes>[^>]*\bclass="q-(?:figure|table)"[^>]*)>'
)
_CAPTION = {
    "figure": re.compile(r"<figcaption[^>]*>(.*?)</figcaption>", re.DOTALL),
    "div": re.compile(r'<p class="q-caption">(.*?)</p>', re.DOTALL),
}
_KINDS = {"figure": ("Figure", "fig"), "div": ("Table", "tab")}
_ID = re.compile(r'(?<=[\s"])id="([^"]*)"')
# A link, or the text of one that an earlier build disabled by ``data-href``.
_LINK = re.compile(
    r'(?P<opening><a\b(?P<before>[^>]*?\s)(?:data-)?href="(?P<target>[^"]*)"(?P<behind>[^>]*)>)'
    r"(?P<text>.*?)</a>",
    re.DOTALL,
)
_SEE = re.compile(r'\bclass="[^"]*\bq-see\b')
_FOREIGN = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)  # such as ``https:``
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
_HIDDEN_LABEL = re.compile(
    r'(<button class="btn search-button-field[^>]*?) aria-label="[^"]*"'
    r'|(<summary) aria-label="Toggle hidden content"'
)
# The arrow that unfolds entries of the contents has no name.
_ARROW = re.compile(r'<summary(?=>\s*<span class="toctree-toggle")')
_ICON_TITLE = re.compile(r'(<i class="theme-switch [^>]*?)\s*title="[^"]*"')
# The home link is outside all landmarks.
_HOME_LINK = re.compile(r'<a class="navbar-brand logo".*?</a>', re.DOTALL)
# Deprecated ARIA roles, and a list whose children are not items.
_WRONG_ROLES = re.compile(
    r' role="doc-(?:biblioentry|endnote)"|(?<=<div) role="list"(?= class="citation)'
)
_EMPTY_TABLE_HEAD = re.compile(
    r"<thead>\s*<tr[^>]*>\s*(?:<th[^>]*>\s*(?:<p>\s*</p>)?\s*</th>\s*)+</tr>\s*</thead>"
)
_EMPTY_HEADER_CELL = re.compile(r"<th\b[^>]*>(\s*(?:<p>\s*</p>)?\s*)</th>")
# A negative number of a data frame, which pandas writes with a hyphen.
_NEGATIVE = re.compile(r"(?<=<td>)-(?=[.\d])")
_IMAGE = re.compile(r'(?P<opening><image\b[^>]*?) id="(?P<id>[^"]*)"')


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
    page_of_record: dict[str, str] = {}
    for file in sorted(paths.book_runs().glob("*.ipynb")):
        for record in linked_records(file.read_text(encoding="utf-8")):
            page_of_record.setdefault(f"../records/{record}", f"{file.stem}.html")
    return page_of_record


def copy_linked_records(outdir: Path) -> int:
    """Copy the records that built pages link to into ``records``; return their number.

    Only files below ``results`` are copied: as one file with the scores of every query, readable in
    a browser; of more than `_MOST_WHOLE` records, which would be gigabytes, as they are, which the
    footers of the pages that link to them say.
    """
    results = paths.results().resolve()
    pages = []  # those with links to records
    sources: set[Path] = set()
    for page in built_pages(outdir):
        names = set(linked_records(page.read_text(encoding="utf-8")))
        if names:
            pages.append(page)
            sources.update((results / name).resolve() for name in names)
    # A link may lead out of the folder of results, or to nothing.
    records = []
    for source in sorted(sources):
        if source.is_relative_to(results) and source.is_file():
            records.append(source)
    with_scores = len(records) <= _MOST_WHOLE
    if not with_scores:
        for page in pages:
            _say_without_scores(page)
    for record in records:
        copy = outdir / "records" / record.relative_to(results)
        _copy_record(record, copy, with_scores=with_scores)
    return len(records)


def _say_without_scores(page: Path) -> None:
    """Say in the footer of a page that its records are copied without the scores of queries."""
    text = page.read_text(encoding="utf-8")
    text = text.replace(_WITHOUT_SCORES, "")  # of an earlier build
    write_text(page, text.replace(_FOOTER, _FOOTER + _WITHOUT_SCORES))


def _copy_record(record: Path, copy: Path, *, with_scores: bool) -> None:
    """Copy a record, in one file with the scores of every query if these are wanted."""
    if with_scores:
        try:
            write_json(copy, Result.load(record).in_one_file())
            return
        except ResultError:
            pass  # an unreadable record is copied as it is
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(record, copy)


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
    texts_before = {file: file.read_text(encoding="utf-8") for file in built_pages(outdir)}
    # All pages first: a link names the number of a table on another page.
    pages = {file: _numbered(file, text) for file, text in texts_before.items()}
    problems = []
    for file, page in pages.items():
        problems += _resolve_links(page, pages, outdir)
        text = mend_page(page.text)
        if text != texts_before[file]:
            write_text(file, text)
    return problems


@dataclass
class _Ids:
    """The ids of a page: all that it has, and those of figures and tables so far."""

    page: set[str]
    used: set[str] = field(default_factory=set)

    def unique(self, name: str, *, is_new: bool) -> str:
        """Return ``name``, with a number if another element of the page has it."""
        candidate, number = name, 2  # the second is ``name-2``
        while self._is_taken(candidate, name, is_new):
            candidate = f"{name}-{number}"
            number += 1
        self.used.add(candidate)
        self.page.add(candidate)
        return candidate

    def _is_taken(self, candidate: str, name: str, is_new: bool) -> bool:
        if candidate in self.used:
            return True
        is_own_id = candidate == name and not is_new
        return candidate in self.page and not is_own_id


def _numbered(file: Path, text: str) -> _BuiltPage:
    """Return a page with its figures and tables numbered."""
    text = _MARKS.sub("", text)  # numbers of an earlier build
    ids = _Ids(set(_ID.findall(text)))
    counts: Counter[str] = Counter()
    numbers: dict[str, str] = {}
    parts = []
    copied_to = 0  # position in the text up to which parts hold it
    for start in _START.finditer(text):
        kind, prefix = _KINDS[start["tag"]]  # such as "Table" and "tab"
        caption = _caption(text, start)
        if caption is not None:
            counts[kind] += 1  # only what has a caption is numbered
        stated_id = _ID.search(f" {start['attributes']}")  # the pattern wants a blank before it
        name = ""
        if stated_id:
            name = stated_id[1]
        elif caption is not None:
            name = f"{prefix}-{counts[kind]}"
        opening = start[0]
        if name:
            name = ids.unique(name, is_new=stated_id is None)
            opening = _opening_tag(start, name)
        parts += [text[copied_to : start.start()], opening]
        copied_to = start.end()
        if caption is not None:
            number = f"{kind} {counts[kind]}"
            numbers[html.unescape(name)] = number  # links have unescaped names
            parts.append(text[copied_to : caption.start(1)])
            parts.append(_numbered_caption(caption[1], number, name))
            copied_to = caption.end(1)
    parts.append(text[copied_to:])
    return _BuiltPage(file, "".join(parts), numbers, ids.page)


def _opening_tag(start: re.Match[str], name: str) -> str:
    """Return the opening tag of a figure or table with this id."""
    attributes = re.sub(r'\s*\bid="[^"]*"', "", start["attributes"])
    return f'<{start["tag"]}{attributes} id="{name}">'


def _numbered_caption(caption: str, number: str, name: str) -> str:
    return (
        f'<span class="q-number">{number}.</span> {caption}'
        f' <a class="q-permalink" href="#{name}" aria-label="Link to {number}">#</a>'
    )


def _caption(text: str, start: re.Match[str]) -> re.Match[str] | None:
    """Return the caption of the figure or table that begins at ``start``."""
    tag = start["tag"]
    if tag == "div":  # a table: ``<div class="q-table"><p class="q-caption">…</p>``
        return _CAPTION[tag].match(text, start.end())
    # A figure may have its caption anywhere: ``<figure><img><figcaption>…</figcaption></figure>``.
    end_of_figure = text.find("</figure>", start.end())
    start_of_caption = text.find("<figcaption", start.end(), end_of_figure)
    if start_of_caption < 0:  # `find` found none
        return None
    return _CAPTION[tag].match(text, start_of_caption)


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
        # ``<a{before}href="{target}"{behind}>{text}</a>``
        before, target, behind, text = match.group("before", "target", "behind", "text")
        if _FOREIGN.match(target):
            return match[0]
        parts = urlsplit(html.unescape(target))
        file = self._file(unquote(parts.path))
        if not self._exists(file):
            if not self._is_of_run(file):
                self._add_problem(target, "no such page")
            # Browsers ignore ``data-href``; a later build restores the link from it.
            return f'<a{before}data-href="{target}"{behind}>{text}</a>'
        number = ""
        is_reference = _SEE.search(match["opening"])  # to a figure or table, by its class
        if is_reference and file in self.pages:
            number = self._number(target, file, unquote(parts.fragment))
        return f'<a{before}href="{target}"{behind}>{text}{number}</a>'

    def _number(self, target: str, file: Path, name: str) -> str:
        """Return the number of the figure or table that a reference is to, as HTML."""
        page = self.pages[file]
        if name in page.numbers:
            return f'<span class="q-see-number"> ({page.numbers[name]})</span>'
        if name and name not in page.ids and not self._is_of_run(file):
            self._add_problem(target, "no such anchor on that page")
        return ""

    def _file(self, path: str) -> Path:
        if not path:
            return self.page.file
        return Path(os.path.normpath(self.page.file.parent / path))

    def _is_of_run(self, file: Path) -> bool:
        """Whether a page is made by runs, which omit empty tables and may not be there."""
        if not file.is_relative_to(self.outdir):
            return False
        folder = file.relative_to(self.outdir).parts[0]
        return folder in _MADE

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
    """Return a page with corrected names, landmarks, roles and table heads, for accessibility.

    Negative numbers of data frames have the minus sign of all others.
    """
    text = _HIDDEN_LABEL.sub(_without_label, text)
    text = _ARROW.sub('<summary aria-label="Pages below it"', text)
    text = _ICON_TITLE.sub(r"\1", text)
    has_home_landmark = '<nav class="q-home"' in text  # of an earlier build
    if not has_home_landmark:
        text = _HOME_LINK.sub(r'<nav class="q-home" aria-label="Home">\g<0></nav>', text)
    text = _WRONG_ROLES.sub("", text)
    text = _EMPTY_TABLE_HEAD.sub("", text)
    text = _EMPTY_HEADER_CELL.sub(r"<td>\1</td>", text)
    text = _NEGATIVE.sub("−", text)
    return _without_repeated_image_ids(text)


def _without_label(match: re.Match[str]) -> str:
    """Return the tag of a button or a summary without its label."""
    button, summary = match.groups()
    return button or summary


def _without_repeated_image_ids(text: str) -> str:
    """Remove the id of an image that another has before it; nothing refers to it."""
    seen_ids: set[str] = set()

    def first_with_id(match: re.Match[str]) -> str:
        if match["id"] in seen_ids:
            return match["opening"]  # the tag up to its id
        seen_ids.add(match["id"])
        return match[0]

    return _IMAGE.sub(first_with_id, text)
