"""A document's text from its fields: ``{full_name}. {purpose}. {description}``.

A template is literal text and names in braces, nothing else: no attributes, no indices, no
conversions, no formats, so that data can never make it run anything. A field that is empty
is dropped together with the text between it and the field before it; what stands before
the first field and after the last one always stays.

>>> Template.parse("{name}. {purpose}. {topics}").fill({"name": "a", "topics": "x y"})
'a. x y'
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass

from qwen3nb.datasets.rows import DataError

__all__ = ["Template"]

_FIELD = re.compile(r"\w[\w -]*")


@dataclass(frozen=True)
class Template:
    """A parsed template.

    Attributes:
        fields: names, in order; a name may come twice.
        before: the literal text before each field.
        after: the literal text after the last one.
    """

    fields: tuple[str, ...]
    before: tuple[str, ...]
    after: str

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read a template.

        Raises:
            DataError: unbalanced braces, no field, or anything but a name in braces.
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
                    f"text template {text!r}: {{{shown}}} is not the name of a field; only "
                    "names may stand in braces"
                )
            fields.append(field)
            before.append(after + literal)
            after = ""
        if not fields:
            raise DataError(f"text template {text!r}: no field, as in '{{title}}. {{text}}'")
        return cls(tuple(fields), tuple(before), after)

    def fill(self, values: Mapping[str, str]) -> str:
        """The text; empty if all fields are."""
        text = ""
        for field, literal in zip(self.fields, self.before, strict=True):
            value = values.get(field, "").strip()
            if value:
                text += (literal if text else "") + value
        return f"{self.before[0]}{text}{self.after}" if text else ""
