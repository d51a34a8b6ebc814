"""Merge a notebook that its owner has changed with the one of this release, cell by cell.

Cells are matched by their ids. A cell that was once copied is ours, so the one of this release
takes its place. Any other cell is the owner's, and stays: a new cell where it is, a changed one in
the place of ours. If this release has changed the same cell, the notebook cannot be merged.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from qwen3nb.study.copies import (
    Cell,
    Copies,
    Metadata,
    Notebook,
    cell_id,
    cell_part,
    digest,
    id_part,
    is_parameters,
    name_part,
    notebook_parts,
    parameter_nodes,
    parameter_values,
    value_part,
)

_PUBLIC_NAME = re.compile(r"\bq\.(\w+(?:\.\w+)?)")


@dataclass(frozen=True)
class Merge:
    """A merged notebook, what it has of its owner, and where both sides have changed a cell."""

    notebook: Notebook
    changes: tuple[str, ...]  # of the owner, such as "tier" or "cell 4f1c"; all carried over
    conflicts: tuple[str, ...]  # cells that the owner and this release have changed
    advice: tuple[str, ...]  # what the owner should change in his cells


@dataclass
class _Merging:
    """A merge in progress; parts of the notebook are known by their digests."""

    before: frozenset[str]  # parts that may have been copied into this study
    copied: frozenset[str]  # parts that certainly were
    released: frozenset[str]  # parts of the notebook of this release
    cells: list[Cell]  # of the merged notebook
    changes: list[str]
    conflicts: list[str]
    owners_cells: list[Cell]  # those of the merged notebook that are the owner's

    def is_ours(self, part: str) -> bool:
        """Return whether a part is a copy, also one by an update that was stopped."""
        return digest(part) in self.before | self.released

    def position(self, name: str) -> int | None:
        """Return where the cell with this id is in the merged notebook."""
        for position, cell in enumerate(self.cells):
            if name and cell_id(cell) == name:
                return position
        return None


def merge_notebook(
    owners: Notebook,
    released: Notebook,
    *,
    path: str,
    before: Copies,
    manifest: Copies,
    new_names: Mapping[str, str],
) -> Merge:
    """Merge the owner's notebook with the one of this release.

    Args:
        owners: the notebook in the study.
        released: the notebook of this release.
        path: its path in the study.
        before: what may have been copied: see ``manifest``, or all versions if that is empty.
        manifest: what was copied into this study; empty if that is unknown.
        new_names: what to write instead of names of earlier versions, without ``q.``.
    """
    merging = _Merging(
        before=before.digests.get(path, frozenset()),
        copied=manifest.digests.get(path, frozenset()),
        released=frozenset(digest(part) for part in notebook_parts(released)),
        cells=list(released["cells"]),
        changes=[],
        conflicts=[],
        owners_cells=[],
    )
    _leave_out_deleted(merging, owners)
    place = 0  # behind the last cell of the owner that is in the merged notebook
    for cell in owners["cells"]:
        position = merging.position(cell_id(cell))
        if position is not None:
            place = position + 1
        if merging.is_ours(cell_part(cell)):
            continue
        if position is not None:
            _merge_cell(merging, position, cell)
        elif merging.is_ours(id_part(cell_id(cell))):
            merging.conflicts.append(f"cell {cell_id(cell)}, which is gone")
        else:
            merging.cells.insert(place, cell)
            merging.owners_cells.append(cell)
            merging.changes.append(f"cell {cell_id(cell) or place + 1}")
            place += 1
    notebook = released.copy()
    notebook["cells"] = merging.cells
    notebook["metadata"] = _merged_metadata(owners, released)
    if notebook["metadata"] != released["metadata"]:
        merging.changes.append("kernel")
    advice: list[str] = []
    for cell in merging.owners_cells:
        advice += _advice(cell, before=owners, after=notebook, new_names=new_names)
    return Merge(notebook, tuple(merging.changes), tuple(merging.conflicts), tuple(advice))


def _leave_out_deleted(merging: _Merging, owners: Notebook) -> None:
    """Drop the cells that were copied into this study, and that its owner has deleted."""
    present = {cell_id(cell) for cell in owners["cells"]}
    for cell in list(merging.cells):
        name = cell_id(cell)
        if name not in present and digest(id_part(name)) in merging.copied:
            merging.cells.remove(cell)
            merging.changes.append(f"no cell {name}")


def _merge_cell(merging: _Merging, position: int, cell: Cell) -> None:
    """Put what the owner has changed in a cell of ours into the merged notebook."""
    ours = merging.cells[position]
    if cell_part(cell) == cell_part(ours):
        return
    if is_parameters(cell) and is_parameters(ours) and parameter_nodes(cell["source"]):
        merging.cells[position] = _merge_parameters(merging, ours, cell)
    elif digest(cell_part(ours)) in merging.before:  # this release has not changed it
        merging.cells[position] = cell
        merging.owners_cells.append(cell)
        merging.changes.append(f"cell {cell_id(cell)}")
    else:
        merging.conflicts.append(f"cell {cell_id(cell)}")


def _merge_parameters(merging: _Merging, ours: Cell, owners: Cell) -> Cell:
    """Return our parameters with the values that the owner has set, and his own parameters."""
    source = ours["source"]
    values = parameter_values(source)
    additions = []
    for name, value in parameter_values(owners["source"]).items():
        if values.get(name) == value or digest(value_part(name, value)) in merging.copied:
            continue
        if name in values:
            source = _with_value(source, name, value)
            merging.changes.append(name)
        elif merging.is_ours(name_part(name)):
            merging.conflicts.append(f"parameter {name}, which is gone")
        else:
            additions.append("\n" + _statement(owners["source"], name))
            merging.changes.append(name)
    merged = ours.copy()
    merged["source"] = source.rstrip("\n") + "".join(additions)
    return merged


def _with_value(source: str, name: str, value: str) -> str:
    """Replace the value of a parameter in the source of its cell, and nothing else."""
    node = parameter_nodes(source)[name]
    text = ast.get_source_segment(source, node) or ""
    old_value = ast.get_source_segment(source, node.value) if node.value else ""
    start = text.removesuffix(old_value or "")
    return source.replace(text, start + value, 1)


def _statement(source: str, name: str) -> str:
    """Return the lines that declare a parameter, with the comment behind it."""
    node = parameter_nodes(source)[name]
    return "\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno])


def _merged_metadata(owners: Notebook, released: Notebook) -> Metadata:
    """Return the metadata of this release, with the owner's kernel if it is another one."""
    metadata = released["metadata"].copy()
    kernel = owners["metadata"].get("kernelspec")
    if kernel and kernel.get("name") != metadata["kernelspec"]["name"]:
        metadata["kernelspec"] = kernel
    return metadata


def _advice(
    cell: Cell, *, before: Notebook, after: Notebook, new_names: Mapping[str, str]
) -> Iterator[str]:
    """Yield what the owner should change in a cell of his, in a notebook of this release."""
    if cell["cell_type"] != "code":
        return
    name = f"cell {cell_id(cell)}"
    for old_name in _PUBLIC_NAME.findall(cell["source"]):
        if old_name in new_names:
            yield f"{name}: q.{old_name} is now {new_names[old_name]}"
    variables = _variables(before) - _variables(after)
    for variable in sorted(_names(cell["source"], ast.Load) & variables):
        yield f"{name}: no cell sets {variable} any more"


def _variables(notebook: Notebook) -> set[str]:
    """Return the variables that the cells of a notebook set."""
    variables: set[str] = set()
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            variables |= _names(cell["source"], ast.Store)
    return variables


def _names(source: str, context: type[ast.expr_context]) -> set[str]:
    """Return the names that a cell reads or sets; empty if it is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, context):
            names.add(node.id)
    return names
