"""Read your own documents: a file of any format, a data frame, or a list of dictionaries.

The formats are those of `qwen3nb.datasets.custom.formats`. Errors name file, line (or row) and
cause. `book/guide/what-is-refused.md` lists the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack
from uuid import UUID

from qwen3nb.datasets import rows as reader
from qwen3nb.datasets.collection_files import folder_documents, is_collection_folder
from qwen3nb.datasets.custom.formats import (
    MOST,
    DocumentFormat,
    PlacedRow,
    Row,
    RowRequest,
    find_format,
    placed_entries,
    plain_suffix,
    rows_of_file,
)
from qwen3nb.datasets.in_memory import ID, TEXT, TITLE, find_column, table_rows
from qwen3nb.datasets.rows import DataError, listed, printable, shown_value
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.strict_json import parse_json

_FIELD = re.compile(r"\{(\w[\w -]*)\}")  # such as {full_name}
_MOST_STARS = 1e15
_TEXT_SUFFIXES = (".txt", ".md")  # of the documents in a folder


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
    understood: str = ""  # how they were read, in a few words


class TemplatePart(NamedTuple):
    """A field of a template, with the literal text between the previous field and it."""

    text_before: str
    name: str


@dataclass(frozen=True)
class TextTemplate:
    """A template for the text of a document: ``{full_name}. {purpose}. {description}``.

    A template consists of literal text and field names in braces, without code. An empty field is
    dropped with the text between it and the previous field; the text before the first and after the
    last field is always kept.

    >>> TextTemplate.parse("{name}. {purpose}. {topics}").fill({"name": "a", "topics": "x y"})
    'a. x y'
    """

    parts: tuple[TemplatePart, ...]
    after: str  # the literal text after the last field

    @classmethod
    def parse(cls, text: str) -> TextTemplate:
        """Parse a template; raise DataError unless it has fields, all plain names in braces."""
        parts: list[TemplatePart] = []
        literal_text = ""
        end_of_field = 0
        for match in _FIELD.finditer(text):
            text_before = text[end_of_field : match.start()]
            parts.append(TemplatePart(text_before, name=match[1]))
            literal_text += text_before
            end_of_field = match.end()
        text_after = text[end_of_field:]
        literal_text += text_after
        # A brace outside of the fields is a mistake in the template.
        if not parts or "{" in literal_text or "}" in literal_text:
            raise DataError(
                f"text template {text!r}: expected text with names of fields in braces, as in "
                "'{title}. {text}'"
            )
        return cls(tuple(parts), text_after)

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text for ``values``; empty if all fields are empty."""
        text = ""
        for part in self.parts:
            value = values.get(part.name, "").strip()
            # An empty field is left out with the text before it.
            if not value:
                continue
            if text:
                text += part.text_before
            text += value
        if not text:
            return ""
        return f"{self.parts[0].text_before}{text}{self.after}"


def find_layout(preset: str | None = None, **changes: Unpack[LayoutChanges]) -> DocumentLayout:
    """Return the layout of ``preset`` (or the default), with ``changes`` that are not None."""
    layout = DocumentLayout()
    if preset:
        check_choice("preset", preset, PRESETS)
        layout = PRESETS[preset]
    new_fields: dict[str, Any] = {}
    for name, value in changes.items():
        if value is not None:
            new_fields[name] = value
    return replace(layout, **new_fields)


def read_documents(source: object, layout: DocumentLayout | None = None) -> Documents:
    """Read every document of a file, of a folder, of a data frame, or of a list of dictionaries.

    A folder is one of BEIR or MTEB, or holds texts (.txt, .md), whose paths are the ids. Without a
    layout, a file that has no column ``id`` is read by the usual names of columns.

    Raises:
        DataError: the file cannot be read in its format; an id is missing, repeated or not
            text; a text is of another type or not valid Unicode, or all are empty; a star count
            is negative; a date is invalid; or the file is too large.
    """
    if isinstance(source, Path | str):
        table = _read_path(Path(source))
    else:
        table = _read_memory(source)
    if isinstance(table, Documents):
        return table
    understood = ""
    if layout is None or layout == DocumentLayout():
        layout, understood = _layout_of_columns(table)
    file = table.file
    template = TextTemplate.parse(layout.text)
    rows = table.complete_rows(_columns(layout, template), layout.table)
    texts: dict[str, str] = {}
    stars: dict[str, int | None] = {}
    days_of_update: dict[str, date | None] = {}
    for place, row in rows:
        name = _id(row[layout.id_column], place=f"{place}: field {layout.id_column!r}")
        if name in texts:
            raise DataError(f"{place}: duplicate id {name!r:.60}")
        texts[name] = _text(place, layout, template, row)
        if layout.stars:
            stars[name] = _count(place, layout.stars, row[layout.stars])
        if layout.updated:
            days_of_update[name] = _day(place, layout.updated, row[layout.updated])
    has_text = any(text.strip() for text in texts.values())
    if not has_text:
        raise DataError(f"{file}: expected documents with a text; got {len(texts)} without")
    return Documents(file.name, texts, stars, days_of_update, understood)


@dataclass(frozen=True)
class _Table:
    """Rows that documents are made of; what is read as a whole is read once."""

    file: Path  # for errors
    content: object = None  # of a document; None for a file that is read row by row
    memory: Sequence[Row] | None = None  # the rows of a table in memory

    def rows(self, request: RowRequest) -> Iterator[PlacedRow]:
        """Yield place and values of each row."""
        if self.memory is not None:
            numbered_rows = enumerate(self.memory, start=1)
            return ((f"documents:{number}", row) for number, row in numbered_rows)
        if self.content is not None:
            return placed_entries(self.file, self.content)
        return rows_of_file(self.file, request)

    def complete_rows(self, columns: list[str], table: str | None) -> Iterator[PlacedRow]:
        """Yield place and values of each row, with every column."""
        rows = self.rows(RowRequest(tuple(columns), table, byte_limit=MOST))
        if self.memory is not None:  # where null fields are omitted
            return _with_all_columns(self.file, rows, columns, needs_text=False)
        file_format = find_format(self.file)
        if file_format is None or file_format.is_table:
            return rows
        return _with_all_columns(self.file, rows, columns, needs_text=True)

    def first_row(self) -> Row:
        """Return the first row; empty if there is none, or it cannot be read."""
        try:
            return next(self.rows(RowRequest(byte_limit=MOST)), ("", {}))[1]
        except DataError:  # the reader itself says what is wrong
            return {}


def _read_path(file: Path) -> Documents | _Table:
    """Return the documents of a folder, or of a document with texts by id; else rows.

    Raises:
        DataError: a folder without texts, or a text is not valid.
    """
    location = file.expanduser()
    if location.is_dir():
        if is_collection_folder(location):
            return _of_texts(location.name, folder_documents(location), "the corpus of a folder")
        return _of_texts(location.name, *_texts_of_folder(location))
    file_format = find_format(location)
    if not isinstance(file_format, DocumentFormat):
        return _Table(file)
    content = file_format.content(location, byte_limit=MOST)
    texts = _plain_texts(content)
    if texts is not None:
        return _of_texts(file.name, texts, "texts by id")
    return _Table(file, content)


def _read_memory(source: object) -> Documents | _Table:
    """Return the documents of texts by id; else the rows of a table.

    Raises:
        DataError: no table, or a text is not valid.
    """
    texts = _plain_texts(source)
    if texts is not None:
        return _of_texts("documents", texts, "texts by id")
    return _Table(Path("documents"), memory=table_rows(source, what="documents"))


def _plain_texts(content: object) -> Mapping[Any, str] | None:
    """Return texts by id; None for rows with columns."""
    if isinstance(content, Mapping) and isinstance(content.get("corpus"), Mapping):
        content = content["corpus"]  # of LlamaIndex
    if not isinstance(content, Mapping) or not content:
        return None
    is_texts = all(isinstance(text, str) for text in content.values())
    if not is_texts:
        return None
    return content


def _of_texts(name: str, texts: Mapping[Any, str], understood: str) -> Documents:
    checked: dict[str, str] = {}
    for key, text in texts.items():
        document = _id(key, place=name)
        if not reader.unicode_text(text):
            raise DataError(
                f"{name}: {document!r:.60}: the text is not valid Unicode: {text!r:.60}"
            )
        checked[document] = text
    if not any(text.strip() for text in checked.values()):
        raise DataError(f"{name}: expected documents with a text; got {len(checked)} without")
    return Documents(name, checked, {}, {}, understood)


def _texts_of_folder(folder: Path) -> tuple[dict[str, str], str]:
    """Return the text of each file below a folder by its path, and which files were not read.

    Hidden files and links are left out.

    Raises:
        DataError: there are none, or one is not UTF-8.
    """
    texts: dict[str, str] = {}
    other_count = 0
    size = 0
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in path.parts)
        if is_hidden or file.is_symlink() or not file.is_file():
            continue
        if plain_suffix(file) not in _TEXT_SUFFIXES or file.suffix == ".gz":
            other_count += 1
            continue
        text = reader.read_text(file, byte_limit=MOST)
        size += len(text)
        if size > reader.size_limit(MOST):
            raise DataError(f"{folder}: expected at most {reader.raised_limit(MOST)} of text")
        texts[path.as_posix()] = text
    if not texts:
        raise DataError(
            f"{folder}: expected files that end in {listed(_TEXT_SUFFIXES)}, or a folder of BEIR "
            f"or MTEB; got {other_count} others"
        )
    understood = f"files that end in {listed(_TEXT_SUFFIXES)}; their paths are the ids"
    if other_count:
        understood += f"; {other_count:,} other files not read"
    return texts, understood


def _layout_of_columns(table: _Table) -> tuple[DocumentLayout, str]:
    """Return the layout by the usual names of columns, if there is no column ``id``.

    The second value says which were taken; empty for the default.
    """
    default = DocumentLayout()
    first = table.first_row()
    if not first or default.id_column in first:
        return default, ""
    id_column = find_column(first, ID)
    text_column = find_column([name for name in first if name != id_column], TEXT)
    if id_column is None or text_column is None:
        return default, ""
    columns = {"text": text_column}
    template, taken = "{text}", [id_column, text_column]
    title_column = find_column(first, TITLE)
    if title_column is not None:
        template = "{title} {text}"
        columns["title"] = title_column
        taken.insert(1, title_column)
    layout = DocumentLayout(id_column=id_column, text=template, columns=columns)
    return layout, f"columns {listed(taken)}"


def _columns(layout: DocumentLayout, template: TextTemplate) -> list[str]:
    """Return the columns that a layout reads, each once, the id first."""
    columns = [layout.id_column]
    columns += [layout.column_of(part.name) for part in template.parts]
    columns += [column for column in (layout.stars, layout.updated) if column]
    return list(dict.fromkeys(columns))


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
    id_column, *text_columns = columns
    if not text_columns:  # the id is the text, too
        text_columns = [id_column]
    present: set[str] = set()
    for place, row in rows:
        present.update(row.keys())
        if id_column not in row:
            raise DataError(f"{place}: no field {id_column!r}; fields: {listed(row)}")
        for column in columns:
            if column not in row:
                _check_spelling(place, column, row, columns)
        has_text = any(column in row for column in text_columns)
        if needs_text and not has_text:
            raise DataError(f"{place}: no field {text_columns[0]!r}; fields: {listed(row)}")
        yield place, {column: row.get(column) for column in columns}
    # A field may be absent from some rows, but not from all.
    missing_columns = [column for column in columns if column not in present]
    if present and missing_columns:
        raise DataError(
            f"{file}: no line has the field {missing_columns[0]!r}; "
            f"fields: {listed(sorted(present))}"
        )


def _check_spelling(
    place: str,
    column: str,
    row: Row,
    columns: list[str],
) -> None:
    """Refuse an object that has a key like the missing ``column`` in its place."""
    other_keys = row.keys() - set(columns)
    similar_keys = get_close_matches(column, other_keys, 1, cutoff=0.75)
    if similar_keys:
        raise DataError(
            f"{place}: no field {column!r}, but {printable(similar_keys[0])!r:.60}; correct the "
            "key, or add the field"
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
    """Return the text of a document: the template, filled with the values of a row."""
    values: dict[str, str] = {}
    for part in template.parts:
        column = layout.column_of(part.name)
        place_of_value = f"{place}: field {column!r}"
        if part.name in layout.lists:
            values[part.name] = _joined_list(place_of_value, row[column])
        else:
            values[part.name] = _plain_text(place_of_value, row[column])
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
    is_empty = value is None or (isinstance(value, str) and not value.strip())
    if is_empty:
        return ""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            raise DataError(f"{place} is {shown_value(value)}, expected a JSON list") from None
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
    return DataError(f"{place} is {type(value).__name__} {shown_value(value)}, expected {expected}")


def _count(place: str, column: str, value: object) -> int | None:
    """Return a count of 0 or more; None for null."""
    if value is None:
        return None
    number = reader.stated_number(value)
    is_count = number is not None and number.is_integer() and 0 <= number < _MOST_STARS
    if number is None or not is_count:
        raise DataError(
            f"{place}: {column!r} is {shown_value(value)}, expected a count of 0 or more"
        )
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
        raise DataError(
            f"{place}: {column!r} is {shown_value(value)}, expected a date such as 2026-01-31"
        )
    return day


def _as_day(value: object) -> date | None:
    """Return a text, a time or a day as a day in UTC; None for anything else."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip())
    if isinstance(value, datetime):  # which is also a date
        if value.tzinfo is not None:
            value = value.astimezone(UTC)
        return value.date()
    if isinstance(value, date):
        return value
    return None
