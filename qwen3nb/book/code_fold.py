"""Move the code of a page of results into one fold at its end.

A reader of results sees sentences, tables and figures; the code that made them is one click away.
In JupyterLab, each cell has its code. Lessons, below ``guide``, keep theirs: code is their subject.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

_LESSONS = "guide/"
_OPENING = '<details class="q-code">\n<summary>Code of this page</summary>\n'
_CLOSING = "</details>\n"


class CodeFold(SphinxPostTransform):
    """Gather the code of a notebook's cells at the end of its page."""

    default_priority = 150  # before MyST-NB, at 199, folds each cell that is hidden
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Move the code of each cell; a cell without outputs disappears."""
        if self.env.docname.startswith(_LESSONS):
            return
        sources = []
        for cell in list(self.document.findall(_is_code_cell)):
            if not cell.children or cell.children[0].get("nb_element") != "cell_code_source":
                continue
            sources.append(cell.children[0])
            cell.remove(cell.children[0])
            # Outputs that a cell hides stay folded where they are.
            cell["prompt_show"] = "Show"
            cell["prompt_hide"] = "Hide"
            if not cell.children:
                cell.parent.remove(cell)
        if sources:
            place = _end_of_page(self.document)
            place += nodes.raw("", _OPENING, format="html")
            place.extend(sources)
            place += nodes.raw("", _CLOSING, format="html")


def _is_code_cell(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def _end_of_page(document: nodes.document) -> nodes.Element:
    """Return the section of the page's title, after whose last part the fold stands."""
    for section in document.findall(nodes.section):
        return section
    return document
