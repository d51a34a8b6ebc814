"""Compose the text of a document from its fields: ``{full_name}. {purpose}. {description}``.

A template consists of literal text and field names in braces. Attributes, indices,
conversions and formats are refused, so that a template cannot run code. An empty field is
dropped together with the text between it and the field before it; the text before the
first and after the last field always stays.

>>> TextTemplate.parse("{name}. {purpose}. {topics}").fill({"name": "a", "topics": "x y"})
'a. x y'
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass

from qwen3nb.datasets.rows import DataError

__all__ = ["TextTemplate"]

_FIELD = re.compile(r"\w[\w -]*")


@dataclass(frozen=True)
class TextTemplate:
    """A parsed template.

    Attributes:
        fields: field names in order; a name may be repeated.
        before: the literal text before each field.
        after: the literal text after the last field.
    """

    fields: tuple[str, ...]
    before: tuple[str, ...]
    after: str

    @classmethod
    def parse(cls, text: str) -> TextTemplate:
        """Parse a template.

        Raises:
            DataError: unbalanced braces, no field, or anything but a field name in braces.
        """
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise DataError(f"text template {text!r}: {error}") from None
        fields, before, after = [], [], ""
        for literal, field, spec, conversion in parts:
            if field is None:
                after += literal
                continue
            if spec or conversion or not _FIELD.fullmatch(field):
                shown = (
                    f"{field}{'!' + conversion if conversion else ''}{':' + spec if spec else ''}"
                )
                raise DataError(
                    f"text template {text!r}: expected a field name in braces, got {{{shown}}}"
                )
            fields.append(field)
            before.append(after + literal)
            after = ""
        if not fields:
            raise DataError(
                f"text template {text!r}: expected a field, as in '{{title}}. {{text}}'"
            )
        return cls(tuple(fields), tuple(before), after)

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text for ``values``; empty if all fields are empty."""
        text = ""
        for field, literal in zip(self.fields, self.before, strict=True):
            value = values.get(field, "").strip()
            if value:
                text += (literal if text else "") + value
        return f"{self.before[0]}{text}{self.after}" if text else ""
