"""The end of every page: when, from which commit and with what it was made; how to cite it.

Pages of runs say so themselves, in their metadata; the others are as old as the build.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb import paths
from qwen3nb.book.citation import citation
from qwen3nb.execution.page_names import page_command
from qwen3nb.execution.parameters import ParameterError, read_parameters
from qwen3nb.utils.atomic_files import read_json
from qwen3nb.utils.book_settings import BookSettings, book_settings
from qwen3nb.utils.code_version import git_commit

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["Footers", "Made", "footer_html", "made"]


@dataclass(frozen=True)
class Made:
    """How a page was made.

    Attributes:
        date: the day, in words.
        commit: the commit of the checkout; empty if it has none.
        versions: versions of the main packages; empty for a page that no run made.
        command: the command that makes it again.
        whole: whether the run finished.
    """

    date: str
    commit: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    command: str = "qwen3nb book"
    whole: bool = True


def made(file: Path, *, build: Made) -> Made:
    """Return how the page in ``file`` was made; ``build`` for one that no run made."""
    if file.suffix != ".ipynb":
        return build
    try:
        ours = read_json(file)["metadata"]["qwen3nb"]
        moment = str(ours.get("finished") or ours["failed"])
    except (ValueError, KeyError, TypeError):  # a notebook of the reader's own
        return build
    versions = ours.get("versions", {})
    return Made(
        date=_day(moment),
        commit=str(ours.get("commit", "")),
        versions=tuple(
            (str(name), str(versions[name]))
            for name in sorted(versions, key=lambda name: (name != "qwen3nb", name))
        ),
        command=_command(str(ours.get("notebook", "")), dict(ours.get("parameters", {}))),
        whole="finished" in ours,
    )


def _day(moment: str) -> str:
    """Format an ISO 8601 time as ``21 November 2026``; empty if it is none."""
    try:
        day = datetime.fromisoformat(moment)
    except ValueError:
        return ""
    return f"{day.day} {day:%B %Y}"


def _command(notebook: str, parameters: dict[str, Any]) -> str:
    try:
        declared = read_parameters(paths.find_notebook(notebook))
    except (FileNotFoundError, ParameterError, OSError):  # renamed since, or not ours
        return ""
    return page_command(notebook, parameters, declared)


def footer_html(page: Made, *, title: str, settings: BookSettings) -> str:
    """Return the footer, with every value escaped."""
    entry = html.escape(citation(settings, title=title, commit=page.commit, date=page.date))
    rights = f"<p>Licence: {html.escape(settings.license)}</p>" if settings.license else ""
    # The theme's script adds a button that copies what is in a `div.highlight`.
    return (
        f'<footer class="q-footer"><p>{_line(page)}</p><details><summary>Cite this</summary>'
        f'<div class="highlight-bibtex notranslate"><div class="highlight"><pre>{entry}\n</pre>'
        f"</div></div></details>{rights}</footer>"
    )


def _line(page: Made) -> str:
    parts = [
        ("Made" if page.whole else "Failed")
        + (f" on {html.escape(page.date)}" if page.date else "")
    ]
    if page.commit:
        parts.append(f"at commit <code>{html.escape(page.commit)}</code>")
    if page.versions:
        named = ", ".join(f"{name}\u00a0{version}" for name, version in page.versions)
        parts.append(f"with {html.escape(named)}")
    again = f" Again: <code>{html.escape(page.command)}</code>" if page.command else ""
    return f"{' '.join(parts)}.{again}"


class Footers:
    """Puts a footer at the end of each page; what all pages share is read once per build."""

    @cached_property
    def _build(self) -> Made:
        return Made(date=_day(datetime.now(UTC).isoformat()), commit=git_commit(paths.root()))

    @cached_property
    def _settings(self) -> BookSettings:
        return book_settings()

    def add(
        self, app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
    ) -> None:
        """Add the footer to a page of the book; an index or the search has none."""
        if doctree is None or "body" not in context:
            return
        own = made(Path(app.env.doc2path(page)), build=self._build)
        title = _plain(str(context.get("title", "")))
        context["body"] += footer_html(own, title=title, settings=self._settings)


def _plain(title: str) -> str:
    """Return a page's title as text; Sphinx renders it as HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", title))
