"""A Sphinx extension that keeps the book on this machine.

Formulas become MathML, which browsers draw themselves, so that MathJax need not be
fetched; the scripts of thebe, whose addresses lie elsewhere and which the book does not
use, are taken off every page. Plotly's script, 5 MB, is copied into the book once and
loaded by the pages that have a figure for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

__all__ = ["setup"]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    app.connect("html-page-context", _add_plotly, priority=400)
    app.connect("html-page-context", _drop_remote, priority=900)
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
    """Plotly's own script, on the pages that draw with it."""
    if 'class="q-explorer"' not in context.get("body", ""):
        return
    import shutil
    from importlib.resources import as_file, files
    from pathlib import Path

    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    with as_file(files("plotly") / "package_data" / "plotly.min.js") as script:
        if not (static / script.name).is_file():
            shutil.copyfile(script, static / script.name)
        app.add_js_file(script.name)


def _drop_remote(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Take scripts that are not the book's own off the page."""
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if "thebe" not in str(getattr(script, "filename", script))
        and "thebe" not in str(getattr(script, "attributes", {}).get("body", ""))
    ]
    for key in ("body", "metatags"):
        if isinstance(context.get(key), str):
            context[key] = context[key].replace("https://unpkg.com", "")
