"""Small notebooks, saved and run by papermill."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine

from qwen3nb import paths

# A parameter that changes nothing on a page, and so does not name it.
VERIFY = "verify: bool = True  # whether to verify"
PAPERMILL = str(Path(sys.executable).with_name("papermill"))


def notebook_of(*cells, parameters="x: int = 1  # a number", **metadata):
    node = nbformat.v4.new_notebook(metadata={"qwen3nb": {}, **metadata})
    node.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    node.cells = [nbformat.v4.new_markdown_cell("# A page"), nbformat.v4.new_code_cell(parameters)]
    node.cells[1].metadata["tags"] = ["parameters"]
    node.cells += [nbformat.v4.new_code_cell(source) for source in cells]
    return node


def save(node, name):
    path = paths.notebooks() / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(node, path)
    return path


def call(*arguments, folder, **options):
    environment = {**os.environ, "PYTHONWARNINGS": ""}
    return subprocess.run(
        [PAPERMILL, *map(str, arguments)],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
        **options,
    )


def execute_here(notebook, partial, parameters, *, name="", once=None, output=None, **_):
    """Run a notebook's code cells in this process, as a kernel would; the names they define.

    As in a kernel, figures that a cell leaves open are closed after it.
    """
    node = nbformat.read(notebook, as_version=4)
    names = {"display": lambda *shown: [_drawn(each) for each in shown], "__name__": "__main__"}
    for cell in node.cells:
        if cell.cell_type != "code":
            continue
        body = ast.parse(cell.source).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        code = compile(ast.Module(body, []), notebook.name, "exec")
        exec(code, names)  # noqa: S102 - the repository's own notebook
        if last is not None:
            code = compile(ast.Expression(last.value), notebook.name, "eval")
            _drawn(eval(code, names))  # noqa: S307 - likewise
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")
        if "parameters" in cell.metadata.get("tags", ()):
            names.update(parameters)
    return names


def _drawn(shown):
    """Draw as a notebook's front end does."""
    draw = getattr(shown, "_repr_html_", None) or getattr(shown, "_repr_markdown_", None)
    return draw() if draw else repr(shown)
