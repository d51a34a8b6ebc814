"""Read your own documents: a file of any format, a data frame, or a list of dictionaries.

The formats are those of `qwen3nb.datasets.custom.formats`. Errors name file, line (or row) and
cause. `book/guide/what-is-refused.md` lists the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypedDict, Unpack
from uuid import UUID

from qwen3nb.datasets import rows as reader
from qwen3nb.datasets.custom.formats import (
    MOST,
    PlacedRow,
    Row,
    RowRequest,
    find_format,
    rows_of_file,
)
from qwen3nb.datasets.in_memory import table_rows
from qwen3nb.datasets.rows import DataError, listed, printable
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.strict_json import parse_json

_FIELD = re.compile(r"\{(\w[\w -]*)\}")
_MOST_STARS = 1e15


@dataclass(frozen=True)
class DocumentLayout:
    """Columns of a row that make up a document."""

    id_column: str = "id"  # the column of ids
    text: str = "{text}"  # a `TextTemplate`
    table: str | None = None  # the table of a database; None for its only table
    # column per name in the template, if different
    columns: Mapping[str, str] = field(default_factory=dict)
    # names in the template that hold a list (or JSON of one); joined by spaces
    lists: tuple[str, ...] = ()
    stars: str | None = None  # column of the star count, or None
    updated: str | None = None  # column of the date of the last change, or None

    def column_of(self, name: str) -> str:
        """Return the column of a name in the template."""
        return self.columns.get(name, name)


class LayoutChanges(TypedDict, total=False):
    """Fields of a `DocumentLayout` that a command changes; None for those that stay."""

    id_column: str | None
    text: str | None
    table: str | None
    stars: str | None
    updated: str | None


PRESETS = {
    "gh-star-search": DocumentLayout(
        id_column="full_name",
        text="{full_name}. {purpose}. {description}. {topics}",
        table="repositories",
        columns={"topics": "topics_array"},
        lists=("topics",),
        stars="stargazers_count",
        updated="updated_at",
    )
}


@dataclass(frozen=True)
class Documents:
    """Documents by id."""

    name: str  # the file name, without its folder
    texts: Mapping[str, str]  # text per id; some may be empty
    # star count per id, None where it is missing; empty without such a column
    stars: Mapping[str, int | None]
    updated: Mapping[str, date | None]  # date of the last change (UTC), likewise


@dataclass(frozen=True)
class TextTemplate:
    """A template for the text of a document: ``{full_name}. {purpose}. {description}``.

    A template consists of literal text and field names in braces, without code. An empty field is
    dropped with the text between it and the previous field; the text before the first and after the
    last field is always kept.

    >>> TextTemplate.parse("{name}. {purpose}. {topics}").fill({"name": "a", "topics": "x y"})
    'a. x y'
    """

    parts: tuple[tuple[str, str], ...]  # fields in order, each with the literal text before it
    after: str  # the literal text after the last field

    @classmethod
    def parse(cls, text: str) -> TextTemplate:
        """Parse a template; raise DataError unless it has fields, all plain names in braces."""
        *parts, after = _FIELD.split(text)
        literals, names = parts[::2], parts[1::2]
        literal_text = "".join([*literals, after])
        if not names or "{" in literal_text or "}" in literal_text:
            raise DataError(
                f"text template {text!r}: expected text with names of fields in braces, as in "
                "'{title}. {text}'"
            )
        return cls(tuple(zip(literals, names, strict=True)), after)

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text for ``values``; empty if all fields are empty."""
        text = ""
        for literal, name in self.parts:
            value = values.get(name, "").strip()
            if not value:
                continue
            if text:
                text += literal
            text += value
        if not text:
            return ""
        before = self.parts[0][0]
        return f"{before}{text}{self.after}"


def find_layout(preset: str | None = None, **changes: Unpack[LayoutChanges]) -> DocumentLayout:
    """Return the layout of ``preset`` (or the default), with ``changes`` that are not None."""
    layout = DocumentLayout()
    if preset:
        layout = PRESETS[check_choice("preset", preset, PRESETS)]
    fields: dict[str, Any] = {}
    for name, value in changes.items():
        if value is not None:
            fields[name] = value
    return replace(layout, **fields)


def read_documents(source: object, layout: DocumentLayout | None = None) -> Documents:
    """Read every document of a file, of a data frame, or of a list of dictionaries.

    Raises:
        DataError: the file cannot be read in its format; an id is missing, repeated or not
            text; a text is of another type or not valid Unicode, or all are empty; a star count
            is negative; a date is invalid; or the file is too large.
    """
    layout = layout or DocumentLayout()
    template = TextTemplate.parse(layout.text)
    columns = _columns(layout, template)
    if isinstance(source, Path | str):
        file = Path(source)
        rows = _rows_of_file(file, columns, layout.table)
    else:
        file = Path("documents")
        rows = _rows_in_memory(source, columns)
    texts: dict[str, str] = {}
    stars: dict[str, int | None] = {}
    updated: dict[str, date | None] = {}
    for place, row in rows:
        name = _id(row[layout.id_column], place=f"{place}: field {layout.id_column!r}")
        if name in texts:
            raise DataError(f"{place}: duplicate id {name!r:.60}")
        texts[name] = _text(place, layout, template, row)
        if layout.stars:
            stars[name] = _count(place, layout.stars, row[layout.stars])
        if layout.updated:
            updated[name] = _day(place, layout.updated, row[layout.updated])
    if not any(text.strip() for text in texts.values()):
        raise DataError(f"{file}: expected documents with a text; got {len(texts)} without")
    return Documents(file.name, texts, stars, updated)


def _columns(layout: DocumentLayout, template: TextTemplate) -> list[str]:
    """Return the columns that a layout reads, each once, the id first."""
    columns = [layout.id_column]
    columns += [layout.column_of(name) for _, name in template.parts]
    columns += [column for column in (layout.stars, layout.updated) if column]
    return list(dict.fromkeys(columns))


def _rows_of_file(file: Path, columns: list[str], table: str | None) -> Iterator[PlacedRow]:
    """Yield place and values of each row, with every column."""
    rows = rows_of_file(file, RowRequest(tuple(columns), table, byte_limit=MOST))
    file_format = find_format(file)
    if file_format is None or file_format.is_table:
        return rows
    return _with_all_columns(file, rows, columns, needs_text=True)


def _rows_in_memory(source: object, columns: list[str]) -> Iterator[PlacedRow]:
    """Yield place and values of each row of a table in memory, where null fields are omitted."""
    numbered = enumerate(table_rows(source, what="documents"), start=1)
    rows = ((f"documents:{number}", row) for number, row in numbered)
    return _with_all_columns(Path("documents"), rows, columns, needs_text=False)


def _with_all_columns(
    file: Path,
    rows: Iterable[PlacedRow],
    columns: list[str],
    *,
    needs_text: bool,
) -> Iterator[PlacedRow]:
    """Yield objects with every column; a key may be absent from some of them, but not from all.

    An object with a similarly spelt key instead is refused. So is one with only an id, if each
    ``needs_text``: its text would be empty.
    """
    id_column, *other_columns = columns
    seen: set[str] = set()
    for place, row in rows:
        seen |= row.keys()
        if id_column not in row:
            raise DataError(f"{place}: no field {id_column!r}; fields: {listed(row)}")
        for name in columns:
            if name not in row:
                _refuse_misspelt(place, name, row, columns)
        if needs_text and row.keys().isdisjoint(other_columns or columns):
            raise DataError(f"{place}: no field {other_columns[0]!r}; fields: {listed(row)}")
        yield place, {name: row.get(name) for name in columns}
    missing_fields = [name for name in columns if name not in seen]
    if seen and missing_fields:
        raise DataError(
            f"{file}: no line has the field {missing_fields[0]!r}; fields: {listed(sorted(seen))}"
        )


def _refuse_misspelt(
    place: str,
    name: str,
    row: Row,
    columns: list[str],
) -> None:
    """Refuse an object that has a key like ``name`` in its place."""
    similar = get_close_matches(name, row.keys() - set(columns), 1, cutoff=0.75)
    if similar:
        raise DataError(
            f"{place}: no field {name!r}, but {printable(similar[0])!r:.60}; correct the key, "
            "or add the field"
        )


def _id(value: object, *, place: str) -> str:
    """Return an id; one that is a whole number or a UUID as text."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number or isinstance(value, UUID):
        value = str(value)
    return reader.checked_id(value, place=place)


def _text(
    place: str,
    layout: DocumentLayout,
    template: TextTemplate,
    row: Row,
) -> str:
    values = {}
    for _, name in template.parts:
        column = layout.column_of(name)
        field_place = f"{place}: field {column!r}"
        if name in layout.lists:
            values[name] = _joined_list(field_place, row[column])
        else:
            values[name] = _plain_text(field_place, row[column])
    text = template.fill(values)
    if not reader.unicode_text(text):
        raise DataError(f"{place}: the text is not valid Unicode: {text!r:.60}")
    return text


def _plain_text(place: str, value: object) -> str:
    """Return a field as text; empty for null."""
    if value is None:
        return ""
    if isinstance(value, list):
        return _joined_texts(place, value, expected="a text")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _unexpected(place, value, expected="a text")
    return str(value)


def _joined_list(place: str, value: object) -> str:
    """Return a list, or JSON of one, as its texts joined by spaces; empty for null."""
    if value is None:
        return ""
    if isinstance(value, str):
        if not value.strip():
            return ""
        try:
            value = parse_json(value)
        except ValueError:
            raise DataError(f"{place} is {value!r:.60}, expected a JSON list") from None
    if not isinstance(value, list):
        raise _unexpected(place, value, expected="a list of texts")
    return _joined_texts(place, value, expected="a list of texts")


def _joined_texts(place: str, values: list[object], *, expected: str) -> str:
    texts: list[str] = []
    for value in values:
        if not isinstance(value, str):
            raise _unexpected(place, values, expected=expected)
        if value.strip():
            texts.append(value.strip())
    return " ".join(texts)


def _unexpected(place: str, value: object, *, expected: str) -> DataError:
    return DataError(f"{place} is {type(value).__name__} {value!r:.40}, expected {expected}")


def _count(place: str, column: str, value: object) -> int | None:
    """Return a count of 0 or more; None for null."""
    if value is None:
        return None
    number = reader.stated_number(value)
    if number is None or not number.is_integer() or not 0 <= number < _MOST_STARS:
        raise DataError(f"{place}: {column!r} is {value!r:.40}, expected a count of 0 or more")
    return int(number)


def _day(place: str, column: str, value: object) -> date | None:
    """Return a day in UTC; None for null."""
    if value is None or value == "":
        return None
    try:
        day = _as_day(value)
    except (ValueError, OverflowError):
        day = None
    if day is None:
        raise DataError(f"{place}: {column!r} is {value!r:.40}, expected a date such as 2026-01-31")
    return day


def _as_day(value: object) -> date | None:
    """Return a text, a time or a day as a day in UTC; None for anything else."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip())
    if isinstance(value, datetime):
        if value.tzinfo:
            value = value.astimezone(UTC)
        return value.date()
    if isinstance(value, date):
        return value
    return None
