"""A Sphinx extension: what this book adds to Jupyter Book, and what it takes away.

Directives show the reading path and the banner of toy models, and every page ends with what it
was made with. The book is kept free of remote resources.

Formulas become MathML, which browsers render natively, so that MathJax is not fetched. The remote
scripts of thebe, which the book does not use, are removed from every page. Plotly's script (5 MB)
is copied into the book once and loaded only by the pages that need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.book.mending import mend_pages
from qwen3nb.book.numbering import finish_pages
from qwen3nb.book.page_footer import Footers
from qwen3nb.book.toy_banner import toy_labels, toy_text
from qwen3nb.records.store import load_results

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

__all__ = ["QUESTIONS", "setup"]

# Readers' questions, and the pages in ``book/runs`` that answer them.
QUESTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Which model is best, and how certain is that?", ("leaderboard",)),
    ("How do two models compare, query by query?", ("compare*", "explorer*")),
    ("Is the extracted encoder correct?", ("extract-*",)),
    ("Which pooling? Does averaging help?", ("ablation-*",)),
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
    app.add_directive("reading-path", _directive())
    app.add_directive("toy-banner", _toy_banner())
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    app.connect("html-page-context", _add_plotly, priority=400)
    app.connect("html-page-context", Footers().add, priority=600)
    app.connect("html-page-context", _drop_remote, priority=900)
    app.connect("build-finished", finish_pages)
    app.connect("build-finished", mend_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _visit_inline(translator: Any, node: nodes.Element) -> None:
    from docutils.nodes import SkipNode
    from latex2mathml.converter import convert

    translator.body.append(convert(node.astext()))
    raise SkipNode


def _visit_block(translator: Any, node: nodes.Element) -> None:
    from docutils.nodes import SkipNode
    from latex2mathml.converter import convert

    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def _add_plotly(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Add Plotly's script to the pages that use it."""
    if 'class="q-explorer"' not in context.get("body", ""):
        return
    import shutil
    from importlib.resources import as_file, files

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


def _directive() -> type:
    """Return the directive's class; a function, so that docutils is imported only in a build."""
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class ReadingPath(Directive):
        """A definition list of questions and the pages that answer them."""

        def run(self) -> list[nodes.Node]:
            env = self.state.document.settings.env
            env.note_reread()  # the set of pages may change while this page does not
            entries = []
            for question, patterns in QUESTIONS:
                pages = _pages(Path(env.srcdir), patterns)
                if pages:
                    entry = nodes.definition_list_item("", nodes.term(text=question))
                    entry += nodes.definition("", _links(pages))
                    entries.append(entry)
            return [nodes.definition_list("", *entries, classes=["q-path"])]

    return ReadingPath


def _toy_banner() -> type:
    """Return the directive's class, as `_directive` does."""
    from docutils import nodes
    from docutils.parsers.rst import Directive

    class ToyBanner(Directive):
        """An admonition that names the toys among the models with results; nothing without."""

        def run(self) -> list[nodes.Node]:
            self.state.document.settings.env.note_reread()  # the results may change
            results = load_results(adapters=False, whole=False)
            toys = toy_labels(results)
            if not toys:
                return []
            text = toy_text(toys, models=len({result.model.label for result in results}))
            title = nodes.title(text="Some of these models are toys")
            body = nodes.paragraph(text=text)
            return [nodes.admonition("", title, body, classes=["important", "q-toys"])]

    return ToyBanner


def _pages(book: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    """Return the titles of the matching pages, by path without suffix."""
    titles = {}
    for pattern in patterns:
        for suffix in (".ipynb", ".md"):
            for file in sorted((book / "runs").glob(pattern + suffix)):
                titles[f"runs/{file.stem}"] = _title(file)
    return titles


def _title(file: Path) -> str:
    """Return the first heading of a page, or its name."""
    import json

    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "markdown"]
        text = "".join(cells[0]["source"]) if cells else ""
    first = text.lstrip().split("\n")[0]
    return first.removeprefix("# ").replace("\\", "") if first.startswith("# ") else file.stem


def _links(pages: dict[str, str]) -> nodes.paragraph:
    from docutils import nodes

    line = nodes.paragraph()
    for index, (page, title) in enumerate(pages.items()):
        if index:
            line += nodes.Text(" · ")
        line += nodes.reference("", title, refuri=f"{page}.html", internal=True)
    return line
