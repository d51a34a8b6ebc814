"""Parse YAML of other programs strictly: ambiguous documents, and those that grow, are errors.

An alias stands for a part of the document. A few lines of aliases can stand for billions of parts,
or for themselves, and then every reader of the value takes hours.
"""

import math
import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from qwen3nb.utils.strict_json import MOST_BITS

_MOST_ALIASED = 10_000  # parts that aliases stand for
_LIMIT_OF_PYTHON = re.compile(r";? use sys\.\w+\(\) to increase the limit")
_MERGE = "tag:yaml.org,2002:merge"  # of the key `<<`


def parse_yaml(text: str, *, nan: bool = False) -> Any:
    """Parse a document of plain values; a key may occur once in an object.

    Args:
        text: a whole document.
        nan: whether NaN and infinities are allowed.

    Raises:
        ValueError: not YAML, a key twice, aliases that stand for themselves or for more than
            10,000 parts, nested too deeply, or a number of too many digits. Names the line.

    >>> parse_yaml("a: 1\\na: 2")
    Traceback (most recent call last):
    ...
    ValueError: the key 'a' occurs twice in an object (line 2)
    """
    loader = _Loader(text)
    loader.nan = nan
    try:
        return loader.get_single_data()
    except ConstructorError as error:
        raise ValueError(_reason(error)) from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    finally:
        loader.dispose()


def _reason(error: ConstructorError) -> str:
    """Return the problem of an error with its line."""
    problem = _LIMIT_OF_PYTHON.sub("", str(error.problem))
    if error.problem_mark is None:
        return problem
    return f"{problem} (line {error.problem_mark.line + 1})"


class _Loader(yaml.SafeLoader):
    """A loader of plain values that checks a document before it makes values of it."""

    nan = False

    def get_single_node(self) -> yaml.Node | None:
        """Return the document; raise ConstructorError for one that is ambiguous, or grows."""
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            self._sizes: dict[yaml.Node, int] = {}
            size = self._size(node)
            if size - len(self._sizes) > _MOST_ALIASED:
                raise _problem(
                    f"aliases stand for more than {_MOST_ALIASED:,} parts; write a part out where "
                    "it is needed",
                    node,
                )
        return node

    def _size(self, node: yaml.Node) -> int:
        """Return how many parts a node has with those that its aliases stand for."""
        if node in self._sizes:
            size = self._sizes[node]
            if not size:  # a node that is not complete yet
                raise _problem("an alias stands for a part that it is in itself", node)
            return size
        self._sizes[node] = 0
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node)
            for pair in node.value:
                children.extend(pair)
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        size = 1 + sum(map(self._size, children))
        self._sizes[node] = size
        return size

    def _check_keys(self, node: yaml.MappingNode) -> None:
        """Raise ConstructorError if a key occurs twice in an object."""
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            key = key_node.value
            if key_node.tag != _MERGE:
                key = self.construct_object(key_node)
            if key in keys:
                raise _problem(f"the key {key!r:.60} occurs twice in an object", key_node)
            keys.add(key)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node; raise ConstructorError for a number that is none."""
        try:
            value = super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:  # such as the month 99
            raise _problem(str(error), node) from None
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise _problem("a number of too many digits", node)
        if isinstance(value, float) and not self.nan and not math.isfinite(value):
            raise _problem(f"{value} is no number", node)
        return value


def _problem(text: str, node: yaml.Node) -> ConstructorError:
    """Return an error about a node."""
    return ConstructorError(None, None, text, node.start_mark)
