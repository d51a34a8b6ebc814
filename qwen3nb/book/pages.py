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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
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


def _numbered(file: Path, text: str) -> _BuiltPage:
    """Return a page with its figures and tables numbered."""
    text = _MARKS.sub("", text)
    ids, taken, counts = set(_ID.findall(text)), set[str](), Counter[str]()
    numbers: dict[str, str] = {}
    parts, end = [], 0
    for start in _START.finditer(text):
        tag, attributes = start[1], start[2]
        caption = _caption(text, start)
        kind, prefix = _KINDS[tag]
        own = _ID.search(f" {attributes}")
        counts[kind] += caption is not None
        name = own[1] if own else (f"{prefix}-{counts[kind]}" if caption else "")
        name = _unique(name, taken=taken, ids=ids, new=own is None)
        bare = re.sub(r'\s*\bid="[^"]*"', "", attributes)
        parts += [text[end : start.start()], f'<{tag}{bare} id="{name}">' if name else start[0]]
        end = start.end()
        if caption is not None:
            label = numbers[html.unescape(name)] = f"{kind} {counts[kind]}"
            parts.append(
                f'{text[end : caption.start(1)]}<span class="q-number">{label}.</span> {caption[1]}'
                f' <a class="q-permalink" href="#{name}" aria-label="Link to {label}">#</a>'
            )
            end = caption.end(1)
    return _BuiltPage(file, "".join([*parts, text[end:]]), numbers, ids)


def _caption(text: str, start: re.Match[str]) -> re.Match[str] | None:
    """Return the caption of the figure or table that begins at ``start``."""
    pattern = _CAPTION[start[1]]
    if start[1] == "div":
        return pattern.match(text, start.end())  # the first element in the box
    closed = text.find("</figure>", start.end())
    begins = text.find("<figcaption", start.end(), closed)
    return None if begins < 0 else pattern.match(text, begins)


def _unique(name: str, *, taken: set[str], ids: set[str], new: bool) -> str:
    """Return ``name``, with a number if another element of the page has it."""
    other, number = name, 2
    while name and (other in taken or (other in ids and (new or other != name))):
        other, number = f"{name}-{number}", number + 1
    if other:
        taken.add(other)
        ids.add(other)
    return other


def _resolve_links(page: _BuiltPage, pages: dict[Path, _BuiltPage], outdir: Path) -> list[str]:
    """Complete the references of a page, and return problems with links."""
    problems: list[str] = []
    exists: dict[Path, bool] = {}

    def problem(target: str, what: str) -> None:
        name = page.file.relative_to(outdir)
        problems.append(f"{name}: the link to {html.unescape(target)!r}: {what}")

    def resolved(match: re.Match[str]) -> str:
        before, _, target, behind, text = match.groups()
        if _FOREIGN.match(target):
            return match[0]
        parts = urlsplit(html.unescape(target))
        see = bool(_SEE.search(match[0][: match.start(5) - match.start()]))
        path = page.file.parent / unquote(parts.path)
        file = Path(os.path.normpath(path)) if parts.path else page.file
        # Pages of runs omit empty tables.
        made = file.is_relative_to(outdir) and file.relative_to(outdir).parts[0] in _MADE
        if file not in exists:
            exists[file] = file in pages or file.exists()
        if not exists[file]:
            if not made:
                problem(target, "no such page")
            return f'<a{before}data-href="{target}"{behind}>{text}</a>'
        name, other = unquote(parts.fragment), pages.get(file)
        label = other.numbers.get(name, "") if see and other is not None else ""
        if see and name and not made and other is not None and name not in other.ids:
            problem(target, "no such anchor on that page")
        number = f'<span class="q-see-number"> ({label})</span>' if label else ""
        return f'<a{before}href="{target}"{behind}>{text}{number}</a>'

    page.text = _LINK.sub(resolved, page.text)
    return problems


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
