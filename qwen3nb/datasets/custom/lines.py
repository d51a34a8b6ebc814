"""Where a field of a document stands: the line, for errors."""

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import yaml

from qwen3nb.datasets.custom.formats import plain_suffix
from qwen3nb.datasets.custom.golden_sets import JUDGEMENTS
from qwen3nb.datasets.in_memory import find_column
from qwen3nb.datasets.rows import DataError, read_text

_MOST = 1 << 20  # bytes of a document in which a line is looked for
_TABLE = re.compile(r"\s*\[")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # of C, if it is there


class FieldLines:
    """The lines of a document's fields; it is read once, when the first one is looked for."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def of(self, path: Sequence[int | str]) -> str:
        """Return ``:LINE`` or ``:LINE:COLUMN`` of a field; empty if it is not found.

        Args:
            path: keys and positions that lead to the field, such as ``("queries", 0, "id")``.
        """
        if plain_suffix(self._file) == ".toml":
            return _line_in_toml(self._text, path)
        if plain_suffix(self._file) in (".json", ".yaml", ".yml"):
            return _line_in_yaml(self._node, path)
        return ""

    @cached_property
    def _text(self) -> str:
        """The text of the file; empty if it cannot be read."""
        try:
            return read_text(self._file, byte_limit=_MOST)
        except DataError:
            return ""

    @cached_property
    def _node(self) -> yaml.Node | None:
        """The document in YAML, or in JSON, which YAML includes; None if it is neither."""
        try:
            return yaml.compose(self._text, Loader=_LOADER)
        except (yaml.YAMLError, RecursionError):
            return None


def _line_in_yaml(node: yaml.Node | None, path: Sequence[int | str]) -> str:
    """Return the place of a field below a node."""
    steps = list(path)
    if isinstance(node, yaml.MappingNode) and _part(node, steps[0]) is None:
        # Another program has the list of queries under a name of its own.
        lists = [value for _, value in node.value if isinstance(value, yaml.SequenceNode)]
        node = next(iter(lists), node)
    if isinstance(node, yaml.SequenceNode):  # the list of queries itself
        steps = steps[1:]
    for step in steps:
        part = _part(node, step)
        if part is None:
            break
        node = part
    if node is None:
        return ""
    return f":{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _part(node: yaml.Node | None, step: int | str) -> yaml.Node | None:
    """Return the value of a key, or an element of a list; None if there is none."""
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        elements: list[yaml.Node] = node.value
        if step < len(elements):
            return elements[step]
    if isinstance(node, yaml.MappingNode):
        values: dict[str, yaml.Node] = {key.value: value for key, value in node.value}
        name = str(step)
        if name not in values and name in JUDGEMENTS:  # under another name in the file
            name = find_column(values, JUDGEMENTS) or name
        return values.get(name)
    return None


def _line_in_toml(text: str, path: Sequence[int | str]) -> str:
    """Return the line of a key below ``[[table]]`` or ``[table.name]``, or that of the table."""
    lines = text.splitlines()
    table, *steps = [str(step) for step in path]
    start = 0
    if steps and steps[0].isdigit():
        header = re.compile(rf"\s*\[\[\s*{re.escape(table)}\s*\]\]")
        starts = [number for number, line in enumerate(lines, start=1) if header.match(line)]
        position = int(steps.pop(0))
        if position < len(starts):
            start = starts[position]
    else:
        names = [table]
        if table == "models" and steps:
            names.append(steps.pop(0))
        header = re.compile(rf"\s*\[\s*{re.escape('.'.join(names))}\s*\]")
        starts = [number for number, line in enumerate(lines, start=1) if header.match(line)]
        start = next(iter(starts), 0)
    if not start:
        return ""
    for number, line in enumerate(lines[start:], start=start + 1):
        if _TABLE.match(line):
            break
        if steps and re.match(rf"\s*\"?{re.escape(steps[0])}\"?\s*=", line):
            return f":{number}"
    return f":{start}"
