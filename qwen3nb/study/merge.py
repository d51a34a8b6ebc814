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

# A public name in code: compare of q.compare(…), or stats.holm of q.stats.holm(…).
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

    def was_copied(self, part: str) -> bool:
        """Return whether a part was certainly copied into this study."""
        return digest(part) in self.copied

    def was_released_before(self, part: str) -> bool:
        """Return whether a part may have been copied into this study by an earlier release."""
        return digest(part) in self.before

    def is_ours(self, part: str) -> bool:
        """Return whether a part is a copy, also one by an update that was stopped."""
        return self.was_released_before(part) or digest(part) in self.released

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
        # Digests of parts: cells, their ids, and parameters.
        before=before.digests.get(path, frozenset()),
        copied=manifest.digests.get(path, frozenset()),
        released=frozenset(digest(part) for part in notebook_parts(released)),
        cells=list(released["cells"]),
        changes=[],
        conflicts=[],
        owners_cells=[],
    )
    _leave_out_deleted(merging, owners)
    _merge_cells(merging, owners)
    notebook = released.copy()
    notebook["cells"] = merging.cells
    notebook["metadata"] = _merged_metadata(owners, released)
    if notebook["metadata"] != released["metadata"]:
        merging.changes.append("kernel")
    advice: list[str] = []
    for cell in merging.owners_cells:
        advice += _advice(cell, before=owners, after=notebook, new_names=new_names)
    return Merge(notebook, tuple(merging.changes), tuple(merging.conflicts), tuple(advice))


def _merge_cells(merging: _Merging, owners: Notebook) -> None:
    """Put the cells that the owner has changed or added into the merged notebook."""
    next_position = 0  # behind the last cell of the owner that is in the merged notebook
    for cell in owners["cells"]:
        name = cell_id(cell)
        position = merging.position(name)
        if position is not None:
            next_position = position + 1
        if merging.is_ours(cell_part(cell)):  # a copy: the cell of this release replaces it
            continue
        if position is not None:  # changed by the owner
            _merge_cell(merging, position, cell)
        elif merging.is_ours(id_part(name)):  # changed, but this release has no such cell
            merging.conflicts.append(f"cell {name}, which is gone")
        else:  # added by the owner
            merging.cells.insert(next_position, cell)
            merging.owners_cells.append(cell)
            next_position += 1
            merging.changes.append(f"cell {name or next_position}")  # an old format has no ids


def _leave_out_deleted(merging: _Merging, owners: Notebook) -> None:
    """Drop the cells that were copied into this study, and that its owner has deleted."""
    ids_of_owner = {cell_id(cell) for cell in owners["cells"]}
    for cell in list(merging.cells):
        name = cell_id(cell)
        if name not in ids_of_owner and merging.was_copied(id_part(name)):
            merging.cells.remove(cell)
            merging.changes.append(f"no cell {name}")


def _merge_cell(merging: _Merging, position: int, owners_cell: Cell) -> None:
    """Put what the owner has changed in a cell of ours into the merged notebook."""
    our_cell = merging.cells[position]
    name = cell_id(owners_cell)
    if cell_part(owners_cell) == cell_part(our_cell):  # type, tags and source
        return
    if _both_have_parameters(our_cell, owners_cell):
        merging.cells[position] = _merge_parameters(merging, our_cell, owners_cell)
    elif merging.was_released_before(cell_part(our_cell)):  # only the owner has changed it
        merging.cells[position] = owners_cell
        merging.owners_cells.append(owners_cell)
        merging.changes.append(f"cell {name}")
    else:  # this release has changed it, too
        merging.conflicts.append(f"cell {name}")


def _both_have_parameters(our_cell: Cell, owners_cell: Cell) -> bool:
    """Return whether both cells declare parameters, the owner's in Python."""
    if not (is_parameters(our_cell) and is_parameters(owners_cell)):
        return False
    return bool(parameter_nodes(owners_cell["source"]))


def _merge_parameters(merging: _Merging, our_cell: Cell, owners_cell: Cell) -> Cell:
    """Return our parameters with the values that the owner has set, and his own parameters."""
    source = our_cell["source"]
    our_values = parameter_values(source)
    owners_source = owners_cell["source"]
    statements_added = []
    for name, value in parameter_values(owners_source).items():
        is_earlier_default = merging.was_copied(value_part(name, value))
        if is_earlier_default or our_values.get(name) == value:  # not set by the owner
            continue
        if name in our_values:
            source = _with_value(source, name, value)
            merging.changes.append(name)
        elif merging.is_ours(name_part(name)):  # set, but this release has no such parameter
            merging.conflicts.append(f"parameter {name}, which is gone")
        else:  # a parameter of the owner's own
            statements_added.append(_statement(owners_source, name))
            merging.changes.append(name)
    merged = our_cell.copy()
    merged["source"] = "\n".join([source.rstrip("\n"), *statements_added])
    return merged


def _with_value(source: str, name: str, value: str) -> str:
    """Replace the value of a parameter in the source of its cell, and nothing else."""
    node = parameter_nodes(source)[name]
    statement = ast.get_source_segment(source, node) or ""
    old_value = ""
    if node.value is not None:
        old_value = ast.get_source_segment(source, node.value) or ""
    declaration = statement.removesuffix(old_value)  # such as "tier: str = "
    return source.replace(statement, declaration + value, 1)


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
    source = cell["source"]
    place = f"cell {cell_id(cell)}"
    for old_name in _PUBLIC_NAME.findall(source):
        if old_name in new_names:
            yield f"{place}: q.{old_name} is now {new_names[old_name]}"
    no_longer_set = _variables_set(before) - _variables_set(after)
    variables_read = _names(source, ast.Load)
    for variable in sorted(variables_read & no_longer_set):
        yield f"{place}: no cell sets {variable} any more"


def _variables_set(notebook: Notebook) -> set[str]:
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
        # The context of a name is Load where it is read, and Store where it is set.
        if isinstance(node, ast.Name) and isinstance(node.ctx, context):
            names.add(node.id)
    return names
