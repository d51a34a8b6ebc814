"""What a parameter accepts: declared once, checked for Python, notebooks and the command line."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypedDict

from qwen3nb.utils.choices import check_choice, split_names


@dataclass(frozen=True)
class Option:
    """The declaration of a parameter."""

    help: str = ""  # one line for readers, with what its default means
    # what a notebook or a command, whose parameters have one type, writes for an option not given
    plain: str | int | None = None
    choices: Collection[str] = ()  # the allowed texts; empty: any
    minimum: int | None = None  # the smallest allowed number
    takes_list: bool = False  # whether a text may name several values, separated by commas
    check: Callable[[Any], object] | None = None  # raises ValueError or OSError if invalid

    @property
    def plain_choices(self) -> tuple[str, ...]:
        """The allowed texts in a notebook or a command."""
        if self.choices and isinstance(self.plain, str):
            return (*self.choices, self.plain)
        return tuple(self.choices)

    def validate(self, name: str, value: object) -> None:
        """Raise ValueError or OSError unless ``value`` is allowed for the parameter ``name``."""
        if value == self.plain:
            return
        values: list[object] = [value]
        if self.takes_list and isinstance(value, str):
            values = [*split_names(value)] or [value]
        for entry in values:
            self._validate_one(name, entry)

    def _validate_one(self, name: str, value: Any) -> None:
        if self.choices:
            check_choice(name, value, self.choices)
        if self.minimum is not None and int(value) < self.minimum:
            raise ValueError(f"{name} is {value}; expected at least {self.minimum}")
        if self.check is not None:
            self.check(value)


class OptionFields(TypedDict, total=False):
    """The fields of `Option` besides its help."""

    plain: str | int | None
    choices: Collection[str]
    minimum: int | None
    takes_list: bool
    check: Callable[[Any], object] | None
