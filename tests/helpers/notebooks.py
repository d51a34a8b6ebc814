"""Small notebooks, saved and run by papermill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine

from qwen3nb import paths

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
        [PAPERMILL, *map(str, arguments)], cwd=folder, env=environment, text=True,
        capture_output=True, check=False, timeout=300, **options,
    )  # fmt: skip
