"""How a file that `new` has copied is recognised later, also after its study was edited.

A study has a manifest with the digests of what was copied: of each file, and of each cell and
parameter of a notebook. ``copies.txt`` next to this module has those of every version that was
copied before there were manifests, from the history of the repository.
"""

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

MANIFEST = ".qwen3nb-copies.txt"
_HISTORY = Path(__file__).with_name("copies.txt")
_DIGITS = 10  # of a digest: enough to tell a few thousand texts apart


class Metadata(TypedDict, total=False):
    """Metadata of a notebook or of a cell, as far as a study reads them."""

    kernelspec: dict[str, str]
    tags: list[str]


class Cell(TypedDict, total=False):
    """A cell of a notebook."""

    id: str
    cell_type: str
    metadata: Metadata
    source: str


class Notebook(TypedDict, total=False):
    """A notebook of format 4."""

    cells: list[Cell]
    metadata: Metadata


class NotANotebookError(ValueError):
    """A file is no notebook of format 4."""


@dataclass(frozen=True)
class Copies:
    """The files that were copied: by path in the study, the digests of their parts.

    The parts of a notebook are listed by `notebook_parts`; any other file is one part.
    """

    digests: Mapping[str, frozenset[str]]

    def __or__(self, other: "Copies") -> "Copies":
        """Return the copies of both."""
        merged = dict(self.digests)
        for path, digests in other.digests.items():
            merged[path] = merged.get(path, frozenset()) | digests
        return Copies(merged)

    def has(self, path: str, part: bytes | str) -> bool:
        """Return whether a file was copied with this part."""
        return digest(part) in self.digests.get(path, frozenset())

    @property
    def text(self) -> str:
        """A line per file: its path and the digests, sorted."""
        lines = []
        for path, digests in sorted(self.digests.items()):
            lines.append(f"{path}\t{' '.join(sorted(digests))}\n")
        return "".join(lines)


def read_copies(file: Path) -> Copies:
    """Read what `Copies.text` wrote; empty if there is no such file."""
    if not file.is_file():
        return Copies({})
    digests = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        path, _, digest_list = line.partition("\t")
        digests[path] = frozenset(digest_list.split())
    return Copies(digests)


def released_copies() -> Copies:
    """Return the copies of all versions before there were manifests."""
    return read_copies(_HISTORY)


def copies_of(contents: Mapping[str, bytes]) -> Copies:
    """Return the digests of files, by path in the study."""
    digests = {}
    for path, content in contents.items():
        digests[path] = frozenset(digest(part) for part in copy_parts(path, content))
    return Copies(digests)


def digest(part: bytes | str) -> str:
    """Return a short digest of a part of a file."""
    content = part.encode() if isinstance(part, str) else part
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def copy_parts(path: str, content: bytes) -> Iterator[bytes | str]:
    """Yield the parts of a file that are recognised one by one."""
    if path.endswith(".ipynb"):
        yield from notebook_parts(parse_notebook(content))
    else:
        yield content


def parse_notebook(content: bytes) -> Notebook:
    """Return a notebook; the source of each cell is one text.

    Raises:
        NotANotebookError: it is no JSON, or not of format 4.
    """
    try:
        notebook = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotANotebookError(f"it is no JSON ({error})") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise NotANotebookError("it has no cells")
    notebook.setdefault("metadata", {})
    if not isinstance(notebook["metadata"], dict):
        raise NotANotebookError("its metadata are no object")
    for cell in notebook["cells"]:
        if not isinstance(cell, dict):
            raise NotANotebookError("a cell is no object")
        cell.setdefault("metadata", {})
        if not isinstance(cell["metadata"], dict):
            raise NotANotebookError("a cell is no object")
        source = cell.get("source", "")
        if not isinstance(source, str):  # a list of lines
            source = "".join(source)
        cell["source"] = source
    return cast(Notebook, notebook)


def notebook_bytes(notebook: Notebook) -> bytes:
    """Return a notebook as Jupyter writes it: sources are lists of lines."""
    cells = []
    for cell in notebook["cells"]:
        cells.append({**cell, "source": cell["source"].splitlines(keepends=True)})
    content = {**notebook, "cells": cells}
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def notebook_parts(notebook: Notebook) -> Iterator[str]:
    """Yield what identifies each cell, its id, and each parameter."""
    for cell in notebook["cells"]:
        yield cell_part(cell)
        yield id_part(cell_id(cell))
        if is_parameters(cell):
            for name, value in parameter_values(cell["source"]).items():
                yield name_part(name)
                yield value_part(name, value)


def cell_part(cell: Cell) -> str:
    """Return what is compared of a cell: its type, tags and source, but no output."""
    tags = " ".join(cell_tags(cell))
    return f"{cell['cell_type']}\n{tags}\n{cell['source']}"


def id_part(name: str) -> str:
    """Return what marks the id of a cell as one of ours."""
    return f"id {name}"


def name_part(parameter: str) -> str:
    """Return what marks a parameter as one of ours."""
    return f"parameter {parameter}"


def value_part(parameter: str, value: str) -> str:
    """Return what marks the value of a parameter as one of our defaults."""
    return f"parameter {parameter} = {value}"


def cell_id(cell: Cell) -> str:
    """Return the id of a cell; empty for a cell of an old format."""
    return cell.get("id", "")


def cell_tags(cell: Cell) -> list[str]:
    """Return the tags of a cell, sorted."""
    return sorted(cell["metadata"].get("tags", []))


def is_parameters(cell: Cell) -> bool:
    """Return whether a cell declares the parameters of its notebook."""
    return "parameters" in cell_tags(cell)


def parameter_nodes(source: str) -> dict[str, ast.AnnAssign]:
    """Return the statement of each parameter in a cell; empty if it is not Python."""
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return {}
    nodes = {}
    for node in statements:
        # Such as: tier: str = "smoke".
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            nodes[node.target.id] = node
    return nodes


def parameter_values(source: str) -> dict[str, str]:
    """Return the Python text of each parameter's value."""
    values = {}
    for name, node in parameter_nodes(source).items():
        if node.value is not None:
            values[name] = ast.unparse(node.value)
    return values
