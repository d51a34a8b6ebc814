"""A Sphinx extension that adapts Jupyter Book to this book.

Directives show the reading path, the banner of toy models and a paragraph of simulated numbers.
The code of a page of results is in one fold at its end (`qwen3nb.book.code_fold`).
Every page has a footer with date, commit and versions: from the metadata of pages of runs,
otherwise those of the build. The book contains no remote resources.

Formulas become MathML, which browsers render natively without MathJax. The remote scripts of thebe,
which the book does not use, are removed from every page. Plotly's script (5 MB) is copied into the
book once and loaded only by pages that need it.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from qwen3nb import paths
from qwen3nb.answers.board.models import is_toy
from qwen3nb.answers.calibration import calibration
from qwen3nb.book.build import REFRESHED, BookError, refresh_pages
from qwen3nb.book.catalog import OWN_PART, PageKind, pages_of, read_catalog
from qwen3nb.book.pages import copy_linked_records, finish_pages
from qwen3nb.execution.notebook import NotebookError
from qwen3nb.execution.page_names import page_command
from qwen3nb.execution.parameters import ParameterError, read_parameters
from qwen3nb.records.store import load_results
from qwen3nb.utils.atomic_files import read_json, write_text
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.code_version import git_commit

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.config import Config

PageContext: TypeAlias = dict[str, Any]  # what Sphinx gives to the template of a page
Part: TypeAlias = dict[str, Any]  # of the contents: ``caption`` and ``chapters``
_MOST_LISTED = 12  # pages that answer one question of the reading path
_commit = cache(git_commit)  # called once for the footers of all pages


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    from qwen3nb.book.code_fold import CodeFold  # imports docutils, which only a build needs

    app.add_post_transform(CodeFold)
    for name, directive in _directives().items():
        app.add_directive(name, directive)
    # Of formulas in a line and in blocks: what is called before a node, and none after it.
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_math, None))
    # Listeners of one event are called in the order of their priorities.
    app.connect("config-inited", _refresh, priority=100)
    app.connect("config-inited", _list_pages, priority=850)  # the contents are read at 900
    app.connect("html-page-context", _add_footer, priority=600)
    app.connect("html-page-context", _drop_remote, priority=900)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _refresh(app: Sphinx, config: Config) -> None:
    """Update the pages that read results, for any way of building the book.

    Each page that fails is a warning.
    """
    from sphinx.util.logging import getLogger

    _enter_study(app)
    is_refreshed = bool(os.environ.get(REFRESHED))
    if is_refreshed or not _is_book_of_study(app):  # only the study's own
        return
    log = getLogger(__name__)
    log.info("updating the pages that read results")
    os.environ[REFRESHED] = "1"  # for pages that build a book themselves
    try:
        for failure in refresh_pages():
            log_file = paths.shown(failure.log)
            log.warning("the page %s failed: %s; see %s", failure.name, failure.reason, log_file)
    except (BookError, NotebookError) as error:
        log.warning("the pages are not up to date: %s", error)
    finally:
        del os.environ[REFRESHED]


def _enter_study(app: Sphinx) -> None:
    """Make the study that the book is in the current one, until the build is finished."""
    folder = Path(app.srcdir).parent
    until_finished = ExitStack()
    until_finished.enter_context(paths.within(folder if paths.is_study(folder) else None))
    app.connect("build-finished", lambda *_: until_finished.close(), priority=999)


def _is_book_of_study(app: Sphinx) -> bool:
    """Return whether the book is that of the current study: no copy, and no other book."""
    if paths.find_root() is None:
        return False
    return paths.book().resolve() == Path(app.srcdir).resolve()


def _list_pages(app: Sphinx, config: Config) -> None:
    """Add the pages of runs to the parts of the contents that their notebooks name.

    A page that ``_toc.yml`` lists stays where it is.
    """
    import yaml

    toc = Path(app.srcdir) / config.external_toc_path
    contents = yaml.safe_load(toc.read_text(encoding="utf-8"))
    if "parts" not in contents:  # a book of chapters only has no place for pages of runs
        return
    is_listed = _listed_by(toc)
    catalog = read_catalog()
    place_of_part: dict[str, int] = {}  # by caption
    for kind in catalog:
        place_of_part.setdefault(kind.part, kind.place)
    for kind, pages in pages_of(catalog, Path(app.srcdir) / "runs"):
        names = [f"runs/{page.stem}" for page in pages]
        chapters = [{"file": name} for name in names if not is_listed(name)]
        if chapters:
            part = _part_with_caption(kind, contents["parts"], place_of_part)
            part["chapters"] += chapters
    # Sphinx reads the contents with the pages from a copy; the user's file stays as it is.
    file = Path(app.doctreedir) / "_toc.yml"
    config["external_toc_path"] = str(write_text(file, yaml.safe_dump(contents)))


def _listed_by(toc: Path) -> Callable[[str], bool]:
    """Return what tells whether a table of contents lists a page, by its name."""
    from sphinx.util.matching import patmatch
    from sphinx_external_toc.parsing import parse_toc_yaml

    site_map = parse_toc_yaml(toc)
    patterns = list(site_map.globs())  # such as ``runs/eval-*``

    def is_listed(name: str) -> bool:
        if any(name + suffix in site_map for suffix in ("", ".ipynb", ".md")):
            return True
        return any(patmatch(name, pattern) for pattern in patterns)

    return is_listed


def _part_with_caption(kind: PageKind, parts: list[Part], place_of_part: Mapping[str, int]) -> Part:
    """Return the part of the contents with the caption of a page; a new one if there is none.

    New parts stand in the order of their places, and before the reference, which is the last part;
    that of the owner's notebooks comes after it.
    """
    for part in parts:
        if part.get("caption") == kind.part:
            return part
    new_part: Part = {"caption": kind.part, "chapters": []}
    if kind.part == OWN_PART:  # after everything else
        parts.append(new_part)
        return new_part
    position = len(parts) - 1  # before the last part
    # Before the first part that stands further back.
    for index, part in enumerate(parts):
        place = place_of_part.get(part.get("caption", ""), 0)
        if place > kind.place:
            position = index
            break
    parts.insert(position, new_part)
    return new_part


def _finish(app: Sphinx, exception: Exception | None) -> None:
    """Copy linked records, finish the pages, and warn about dead links.

    In a strict build, warnings are failures.
    """
    if exception is not None or app.builder.format != "html":
        return
    from sphinx.util.logging import getLogger

    # Before links are checked, some of which lead to records.
    copy_linked_records(Path(app.outdir))
    for problem in finish_pages(Path(app.outdir)):
        getLogger(__name__).warning(problem)


def _visit_math(translator: Any, node: nodes.Element) -> None:
    from docutils.nodes import SkipNode, math_block
    from latex2mathml.converter import convert

    if isinstance(node, math_block):
        formula = convert(node.astext(), display="block")
        translator.body.append(f'<div class="math">{formula}</div>')
    else:
        translator.body.append(convert(node.astext()))
    raise SkipNode  # its text is written already


def _drop_remote(
    app: Sphinx, page: str, template: str, context: PageContext, doctree: object
) -> None:
    """Remove scripts of other hosts from a page."""
    # Thebe runs code on a remote server; its scripts come from unpkg.com.
    scripts = context.get("script_files", [])
    context["script_files"] = [script for script in scripts if not _is_of_thebe(script)]
    for key in ("body", "metatags"):
        if isinstance(context.get(key), str):
            context[key] = context[key].replace("https://unpkg.com", "")


def _is_of_thebe(script: object) -> bool:
    """Return whether a script, a name or an object of Sphinx, is one of thebe's."""
    file = getattr(script, "filename", script)
    attributes = getattr(script, "attributes", {})
    return "thebe" in str(file) or "thebe" in str(attributes.get("body", ""))


def _directives() -> dict[str, type]:
    """Return the directives' classes; a function, so that docutils is imported only in a build."""
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class ReadingPath(Directive):
        """A definition list of questions and the pages that answer them."""

        def run(self) -> list[nodes.Node]:
            env = self.state.document.settings.env
            env.note_reread()  # the set of pages may change while this page does not
            answers: dict[str, list[Path]] = {}
            for kind, pages in pages_of(read_catalog(), Path(env.srcdir) / "runs"):
                if kind.question:
                    answers.setdefault(kind.question, []).extend(pages)
            entries = []  # each question as a term, defined by its pages
            for question, pages in answers.items():
                entry = nodes.definition_list_item("", nodes.term(text=question))
                entry += nodes.definition("", _links_line(pages))
                entries.append(entry)
            return [nodes.definition_list("", *entries, classes=["q-path"])]

    class ToyBanner(Directive):
        """An admonition that names toy models with results; empty without any."""

        def run(self) -> list[nodes.Node]:
            self.state.document.settings.env.note_reread()  # the results may change
            results = load_results(adapters=False, whole=False)
            toys = sorted({result.model.label for result in results if is_toy(result)})
            if not toys:
                return []
            text = (
                "Trained in minutes on a few thousand docstrings, to show the way from a "
                f"checkpoint to this book: {', '.join(toys)}. The files and the numbers are real, "
                "but these are not models to use. Read their pages for the method."
            )
            title = nodes.title(text="Some of these models are toys")
            body = nodes.paragraph(text=text)
            return [
                nodes.admonition("", title, body, classes=["important", "q-toys"], ids=["toys"])
            ]

    class WilcoxonSentence(Directive):
        """The conclusion on Wilcoxon's test from stored simulations."""

        def run(self) -> list[nodes.Node]:
            return [nodes.paragraph(text=calibration().wilcoxon.text)]

    return {"wilcoxon": WilcoxonSentence, "reading-path": ReadingPath, "toy-banner": ToyBanner}


def _links_line(pages: list[Path]) -> nodes.paragraph:
    """Return links to pages in a line; the leaderboard has those that find no room."""
    from docutils import nodes

    line = nodes.paragraph()
    for file in pages[:_MOST_LISTED]:
        if line.children:
            line += nodes.Text(" · ")
        line += nodes.reference("", _title(file), refuri=f"runs/{file.stem}.html", internal=True)
    number_of_others = len(pages) - _MOST_LISTED
    if number_of_others > 0:
        line += nodes.Text(f" · and {number_of_others} more, in the ")
        leaderboard = "runs/leaderboard.html"
        line += nodes.reference("", "leaderboard", refuri=leaderboard, internal=True)
    return line


def _title(file: Path) -> str:
    """Return the first heading of a page, or its name."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        text = _first_markdown(json.loads(text))
    first_line = text.lstrip().split("\n")[0]
    if not first_line.startswith("# "):
        return file.stem
    return first_line.removeprefix("# ").replace("\\", "")  # without Markdown's escapes


def _first_markdown(notebook: Mapping[str, Any]) -> str:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            return "".join(cell["source"])
    return ""


def page_footer(file: Path, *, commit: str, license: str) -> str:
    """Return the footer of a page as HTML: date, commit, versions and command.

    Facts missing in the metadata of the page's source, ``file``, are those of the build.
    """
    run = _run_metadata(file)
    verb = "Made"
    moment = datetime.now(UTC).isoformat()
    command = "qwen3nb book"
    if run:  # a notebook of ours; other pages are made by the build itself
        verb = "Made" if "finished" in run else "Failed"
        moment = str(run.get("finished") or run.get("failed"))
        command = _command_of(run)
        commit = str(run.get("commit", ""))
    line = f"{verb}{_date_text(moment)}"
    if commit:
        line += f" at commit <code>{html.escape(commit)}</code>"
    # With a no-break space.
    versions = [f"{name}\u00a0{version}" for name, version in run.get("versions", {}).items()]
    if versions:
        line += html.escape(f" with {', '.join(versions)}")
    line += "."
    if command:
        line += f" Again: <code>{html.escape(command)}</code>"
    footer = f"<p>{line}</p>"
    if license:
        footer += f"<p>Licence: {html.escape(license)}</p>"
    return f'<footer class="q-footer">{footer}</footer>'


def _run_metadata(file: Path) -> dict[str, Any]:
    """Return the metadata of a page's run; empty for a page of text, or a custom notebook."""
    if file.suffix != ".ipynb":
        return {}
    try:
        metadata: dict[str, Any] = read_json(file)["metadata"]["qwen3nb"]
        has_ended = bool(metadata.get("finished") or metadata["failed"])
    except (ValueError, KeyError, TypeError):  # no notebook of ours
        return {}
    return metadata if has_ended else {}


def _date_text(moment: str) -> str:
    """Return `` on 3 March 2026``; empty if the moment cannot be read."""
    try:
        day = datetime.fromisoformat(moment)
    except ValueError:
        return ""
    return f" on {day.day} {day:%B %Y}"


def _command_of(run: Mapping[str, Any]) -> str:
    """Return the command that makes a page again; empty if its notebook is not there."""
    notebook = str(run.get("notebook", ""))
    try:
        parameters = read_parameters(paths.find_notebook(notebook))
        return page_command(notebook, dict(run.get("parameters", {})), parameters)
    except (FileNotFoundError, ParameterError, OSError):  # renamed, or not ours
        return ""


def _add_footer(
    app: Sphinx, page: str, template: str, context: PageContext, doctree: object
) -> None:
    """Add the footer to a page of the book, except for indexes and the search."""
    if doctree is None or "body" not in context:
        return
    commit, license = _commit(paths.root()), book_settings().license
    context["body"] += page_footer(Path(app.env.doc2path(page)), commit=commit, license=license)
