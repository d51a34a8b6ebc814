"""A Sphinx extension that adapts Jupyter Book to this book.

Directives show the reading path, the banner of toy models and a paragraph of simulated numbers.
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
import shutil
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb import paths
from qwen3nb.answers.calibration import calibration
from qwen3nb.book.build import REFRESHED, BookError, refresh_pages
from qwen3nb.book.pages import copy_linked_records, finish_pages
from qwen3nb.execution.notebook import NotebookError
from qwen3nb.execution.page_names import page_command
from qwen3nb.execution.parameters import ParameterError, read_parameters
from qwen3nb.records.record import Result
from qwen3nb.records.store import load_results
from qwen3nb.utils.atomic_files import read_json, write_text
from qwen3nb.utils.book_settings import book_settings
from qwen3nb.utils.code_version import git_commit

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.config import Config

_PAGES = (".ipynb", ".md")  # suffixes of pages of runs
_MOST_LISTED = 12  # pages that answer one question of the reading path
_commit = cache(git_commit)  # called once for the footers of all pages

# Questions of readers, and pages in ``book/runs`` with the answers.
QUESTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Which model is best, and how certain is that?", ("leaderboard",)),
    ("How do two models compare, query by query?", ("compare*", "explorer*")),
    ("Is the extracted encoder correct?", ("extract-*",)),
    ("Which pooling? Does averaging help?", ("ablation-*",)),
    ("What does the choice of a prompt change?", ("prompts*",)),
    ("How did training go?", ("training*",)),
    ("Does the reranker help, and where?", ("rerank-*",)),
    ("Is there interference between tasks?", ("interference*",)),
    ("What do approximate indexes and smaller vectors cost?", ("ann-*",)),
    ("What are the vectors good for besides search?", ("probes-*",)),
    ("How fast is it?", ("speed*",)),
    ("How does one model perform in detail?", ("eval-*",)),
    ("What is the model, and what are its limitations?", ("card",)),
    ("What is measured, and are published scores reproduced?", ("data", "reproduce*")),
    ("Can the statistics be trusted?", ("calibration*",)),
    ("Which runs are in this book, and did any fail?", ("status*",)),
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    for name, directive in _directives().items():
        app.add_directive(name, directive)
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_math, None))
    app.connect("config-inited", _refresh, priority=100)
    app.connect("config-inited", _list_own_pages, priority=850)  # the contents are read at 900
    app.connect("html-page-context", _add_plotly, priority=400)
    app.connect("html-page-context", _add_footer, priority=600)
    app.connect("html-page-context", _drop_remote, priority=900)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _refresh(app: Sphinx, config: Config) -> None:
    """Update the pages that read results, for any way of building the book.

    Each page that fails is a warning.
    """
    from sphinx.util.logging import getLogger

    study, stack = Path(app.srcdir).parent, ExitStack()
    app.connect("build-finished", lambda *_: stack.close(), priority=999)
    stack.enter_context(paths.within(study if paths.is_study(study) else None))
    if os.environ.get(REFRESHED) or paths.find_root() is None:
        return
    if paths.book().resolve() != Path(app.srcdir).resolve():  # a copy, or another book
        return
    log = getLogger(__name__)
    log.info("updating the pages that read results")
    os.environ[REFRESHED] = "1"  # for pages that build a book themselves
    try:
        for failed in refresh_pages():
            where = paths.shown(failed.log)
            log.warning("the page %s failed: %s; see %s", failed.name, failed.reason, where)
    except (BookError, NotebookError) as error:
        log.warning("the pages are not up to date: %s", error)
    finally:
        del os.environ[REFRESHED]


def _list_own_pages(app: Sphinx, config: Config) -> None:
    """Add a part to the contents for pages of runs that ``_toc.yml`` does not list."""
    import yaml
    from sphinx.util.matching import patmatch
    from sphinx_external_toc.parsing import parse_toc_yaml

    toc = Path(app.srcdir) / config.external_toc_path
    contents, own = yaml.safe_load(toc.read_text(encoding="utf-8")), parse_toc_yaml(toc)
    runs = (each for each in (Path(app.srcdir) / "runs").glob("*") if each.suffix in _PAGES)
    names = sorted(f"runs/{file.stem}" for file in runs)
    globs = list(own.globs())
    missing = [
        name
        for name in names
        if not any(name + end in own for end in ("", *_PAGES))
        and not any(patmatch(name, pattern) for pattern in globs)
    ]
    if not missing or "parts" not in contents:
        return
    chapters = [{"file": name} for name in missing]
    contents["parts"].append({"caption": "Your own notebooks", "chapters": chapters})
    listed = Path(app.doctreedir) / "_toc.yml"
    config["external_toc_path"] = str(write_text(listed, yaml.safe_dump(contents)))


def _finish(app: Sphinx, exception: Exception | None) -> None:
    """Copy linked records, finish the pages, and warn about dead links.

    In a strict build, warnings are failures.
    """
    if exception is not None or app.builder.format != "html":
        return
    from sphinx.util.logging import getLogger

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
    raise SkipNode


def _add_plotly(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Add Plotly's script to the pages that use it."""
    if 'class="q-explorer"' not in context.get("body", ""):
        return
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    with as_file(files("plotly") / "package_data" / "plotly.min.js") as script:
        if not (static / script.name).is_file():
            shutil.copyfile(script, static / script.name)
        app.add_js_file(script.name)


def _drop_remote(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Remove scripts of other hosts from a page."""
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if "thebe" not in str(getattr(script, "filename", script))
        and "thebe" not in str(getattr(script, "attributes", {}).get("body", ""))
    ]
    for key in ("body", "metatags"):
        if isinstance(context.get(key), str):
            context[key] = context[key].replace("https://unpkg.com", "")


def _directives() -> dict[str, type]:
    """Return the directives' classes; a function, so that docutils is imported only in a build."""
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class ReadingPath(Directive):
        """A definition list of questions and the pages that answer them."""

        def run(self) -> list[nodes.Node]:
            env = self.state.document.settings.env
            env.note_reread()  # the set of pages may change while this page does not
            entries = []
            for question, patterns in QUESTIONS:
                line, runs = nodes.paragraph(), Path(env.srcdir) / "runs"
                names = [each + end for each in patterns for end in _PAGES]
                listed = [file for name in names for file in sorted(runs.glob(name))]
                for file in listed[:_MOST_LISTED]:
                    line += [nodes.Text(" · ")] * bool(line.children)
                    uri = f"runs/{file.stem}.html"
                    line += nodes.reference("", _title(file), refuri=uri, internal=True)
                if more := len(listed[_MOST_LISTED:]):
                    line += nodes.Text(f" · and {more} more, in the ")
                    uri = "runs/leaderboard.html"
                    line += nodes.reference("", "leaderboard", refuri=uri, internal=True)
                if line.children:
                    entry = nodes.definition_list_item("", nodes.term(text=question))
                    entry += nodes.definition("", line)
                    entries.append(entry)
            return [nodes.definition_list("", *entries, classes=["q-path"])]

    class ToyBanner(Directive):
        """An admonition that names toy models with results; empty without any."""

        def run(self) -> list[nodes.Node]:
            self.state.document.settings.env.note_reread()  # the results may change
            results = load_results(adapters=False, whole=False)
            toys = sorted({each.model.label for each in results if _is_toy(each)})
            if not toys:
                return []
            text = (
                "Trained in minutes on a few thousand docstrings, to show the way from a "
                f"checkpoint to this book: {', '.join(toys)}. The files and the numbers are real, "
                "but these are not models to use. Read their pages for the method."
            )
            title = nodes.title(text="Some of these models are toys")
            body = nodes.paragraph(text=text)
            return [nodes.admonition("", title, body, classes=["important", "q-toys"])]

    class WilcoxonSentence(Directive):
        """The conclusion on Wilcoxon's test from stored simulations."""

        def run(self) -> list[nodes.Node]:
            return [nodes.paragraph(text=calibration().wilcoxon.text)]

    return {"wilcoxon": WilcoxonSentence, "reading-path": ReadingPath, "toy-banner": ToyBanner}


def _title(file: Path) -> str:
    """Return the first heading of a page, or its name."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "markdown"]
        text = "".join(cells[0]["source"]) if cells else ""
    first = text.lstrip().split("\n")[0]
    return first.removeprefix("# ").replace("\\", "") if first.startswith("# ") else file.stem


def _is_toy(result: Result) -> bool:
    """Return whether a model is from the demo: ``demo-…`` below ``runs/demo``."""
    folder = (paths.root() / result.model.spec).resolve()
    demo = (paths.runs() / "demo").resolve()
    return result.model.label.startswith("demo-") and folder.is_relative_to(demo)


def page_footer(file: Path, *, commit: str, license: str) -> str:
    """Return the footer of a page as HTML: date, commit, versions and command.

    Facts missing in the metadata of the page's source, ``file``, are those of the build.
    """
    ours: dict[str, Any] = {}
    with suppress(ValueError, KeyError, TypeError):  # a page of text, or a custom notebook
        own = read_json(file)["metadata"]["qwen3nb"] if file.suffix == ".ipynb" else {}
        if own.get("finished") or own["failed"]:
            ours = own
    line = "Failed" if ours and "finished" not in ours else "Made"
    with suppress(ValueError):
        moment = datetime.now(UTC).isoformat()
        day = datetime.fromisoformat(str(ours.get("finished") or ours.get("failed", moment)))
        line += f" on {day.day} {day:%B %Y}"
    if at := ours.get("commit", "") if ours else commit:
        line += f" at commit <code>{html.escape(str(at))}</code>"
    if versions := ours.get("versions"):
        line += html.escape(" with " + ", ".join(f"{k}\u00a0{v}" for k, v in versions.items()))
    command = "" if ours else "qwen3nb book"
    with suppress(FileNotFoundError, ParameterError, OSError):  # renamed, or not ours
        if ours:
            notebook = str(ours.get("notebook", ""))
            declared = read_parameters(paths.find_notebook(notebook))
            command = page_command(notebook, dict(ours.get("parameters", {})), declared)
    again = f" Again: <code>{html.escape(command)}</code>" if command else ""
    rights = f"<p>Licence: {html.escape(license)}</p>" if license else ""
    return f'<footer class="q-footer"><p>{line}.{again}</p>{rights}</footer>'


def _add_footer(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Add the footer to a page of the book, except for indexes and the search."""
    if doctree is None or "body" not in context:
        return
    commit, license = _commit(paths.root()), book_settings().license
    context["body"] += page_footer(Path(app.env.doc2path(page)), commit=commit, license=license)
