"""Tables of what is left to grade: sent to somebody, and read back.

A sheet is CSV or JSON Lines, with a row per document: query, document, text and grade. A file of
grades can be read as well, so that those of two people become one file. Excel's encodings are read:
a byte order mark, UTF-16, and semicolons or tabs between the cells.

A spreadsheet may change an id, such as ``007``. Its document is then found by the text.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from qwen3nb.datasets.custom.grades import (
    EXAMPLE,
    HIGHEST_GRADE,
    GradeFile,
    GradeLine,
    grade_line,
    is_grade_file,
    now,
)
from qwen3nb.datasets.rows import (
    UTF_16_MARKS,
    DataError,
    csv_header,
    json_rows,
    printable,
    read_text,
    separated_rows,
    stated_number,
)
from qwen3nb.utils.atomic_files import write_text
from qwen3nb.utils.format import inert_text, without_apostrophe

SHEET_COLUMNS = ("query", "document", "text", "grade")
_NEEDED = ("query", "document", "grade")
_LARGEST_SHEET = 256 << 20  # bytes
_MOST_PROBLEMS = 10  # reported at once
_SEPARATORS = (",", ";", "\t")
_JSON_SUFFIXES = (".jsonl", ".ndjson")


def is_json_sheet(file: Path) -> bool:
    """Return whether a sheet of this name is JSON Lines; any other is CSV."""
    return file.suffix.lower() in _JSON_SUFFIXES


class KnownTexts:
    """The queries and documents that can be graded."""

    def __init__(self, queries: Sequence[str], documents: Mapping[str, str]) -> None:
        self.queries = set(queries)
        self.documents = documents
        self._query_by_words = {_words(query): query for query in queries}
        self._id_by_words: dict[str, str] = {}  # of the documents, once needed

    def find_query(self, text: str) -> str | None:
        """Return the query that a cell names; None if there is none."""
        for spelling in (text, without_apostrophe(text)):
            if spelling in self.queries:
                return spelling
        return self._query_by_words.get(_words(without_apostrophe(text)))

    def find_document(self, name: str, text: str) -> str | None:
        """Return the id of the document that a row names by id or by text; None for none."""
        for spelling in (name, without_apostrophe(name)):
            if spelling in self.documents:
                return spelling
        if not text.strip():
            return None
        if not self._id_by_words:
            self._id_by_words = {_words(text): id for id, text in self.documents.items()}
        return self._id_by_words.get(_words(without_apostrophe(text)))

    def line(self, place: str, line: GradeLine, *, text: str = "") -> GradeLine:
        """Return a line with the query and the id as they are here.

        Raises:
            DataError: there is no such query or document.
        """
        query = self.find_query(line.query)
        if query is None:
            raise DataError(
                f"{place}: no query {printable(line.query)!r:.60}; expected one of the queries, as "
                f"in {self.example}"
            )
        document = self.find_document(line.document, text)
        if document is None:
            raise DataError(
                f"{place}: no document {printable(line.document)!r:.60}; expected an id of the "
                f"documents, as in {self.example}. Did a spreadsheet change it?"
            )
        return replace(line, query=query, document=document)

    @property
    def example(self) -> str:
        """A row that would be right."""
        query = next(iter(self.queries), "sort a list")
        document = next(iter(self.documents), "list.sort")
        return f"{printable(query):.40},{printable(document):.40},…,3"


def _words(text: str) -> str:
    """Return a text with single blanks: spreadsheets change line breaks."""
    return " ".join(text.split())


def write_sheet(file: Path, rows: Sequence[tuple[str, str, str]]) -> None:
    """Write queries, ids and texts of documents, with an empty grade each."""
    if is_json_sheet(file):
        lines = []
        for row in rows:
            fields = dict(zip(SHEET_COLUMNS, (*row, None), strict=True))
            lines.append(f"{json.dumps(fields, ensure_ascii=False)}\n")
        write_text(file, "".join(lines))
        return
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(SHEET_COLUMNS)
    for row in rows:
        # No text of a document becomes a formula.
        writer.writerow([*map(inert_text, row), ""])
    table = stream.getvalue()
    mark = ""
    if not table.isascii():
        mark = "\ufeff"  # by which Excel knows UTF-8
    write_text(file, f"{mark}{table}")


def read_sheet(file: Path, grader: str, known: KnownTexts) -> list[GradeLine]:
    """Return the grades of a sheet; rows without one are left out.

    Args:
        file: a sheet that came back, or a file of grades.
        grader: who graded the rows that do not say it; may be empty if all do.
        known: the queries and documents.

    Raises:
        DataError: a missing column, a cell that is no grade, an unknown query or document, a
            document graded twice, or no name of a grader. Names each line, and a right one.
    """
    lines, problems = _lines_and_problems(file, grader, known)
    if not all(line.grader for line in lines):
        problems.append(f"{file}: who gave these grades? Give a name: --grader NAME")
    _refuse(problems)
    return lines


def _lines_and_problems(
    file: Path, grader: str, known: KnownTexts
) -> tuple[list[GradeLine], list[str]]:
    """Return the grades of a sheet, and what is wrong with its other rows; see `read_sheet`."""
    lines: list[GradeLine] = []
    problems: list[str] = []
    grades: dict[tuple[str, str], int | None] = {}
    is_table = not (is_json_sheet(file) and file.is_file() and is_grade_file(file))
    for place, row in _placed_rows(file, is_table=is_table):
        try:
            line = _line_of(place, row, grader, known, is_table=is_table)
            if line is None:
                continue
            if is_table and grades.setdefault(line.pair, line.grade) != line.grade:
                raise DataError(f"{place}: {line.document!r:.60} is graded twice for its query")
            lines.append(line)
        except DataError as error:
            problems.append(str(error))
    return lines, problems


def check_may_be_replaced(
    file: Path, lines: Iterable[GradeLine], grader: str, known: KnownTexts
) -> None:
    """Check that a new sheet may be written to ``file``.

    A sheet may be there whose grades have all been read.

    Args:
        file: where the sheet goes.
        lines: the grades that have been read.
        grader: who filled the rows without a name; empty for anybody.
        known: the queries and documents.

    Raises:
        DataError: another file is there, or a sheet with grades that have not been read.
    """
    if not file.exists() or (file.is_file() and not file.stat().st_size):
        return
    read = set()
    for line in lines:
        read |= {(line.pair, line.grade, line.grader), (line.pair, line.grade, "")}
    try:
        filled, problems = _lines_and_problems(file, grader, known)
    except (DataError, OSError) as error:
        filled, problems = [], [str(error)]
    if problems:
        raise DataError(
            f"{file}: is there already, and cannot be read as a sheet of grades; name a new file. "
            f"{problems[0]}"
        )
    unread = sum((line.pair, line.grade, line.grader) not in read for line in filled)
    if unread:
        raise DataError(
            f"{file}: holds grades that have not been read ({unread:,}); read them first with "
            f"--read {file} --grader NAME, or name a new file"
        )


def _refuse(problems: list[str]) -> None:
    """Raise DataError if there are problems."""
    if not problems:
        return
    shown = problems[:_MOST_PROBLEMS]
    more = len(problems) - len(shown)
    if more:
        shown.append(f"… and {more:,} more")
    raise DataError("\n".join(shown))


def _line_of(
    place: str, row: Mapping[str, object], grader: str, known: KnownTexts, *, is_table: bool
) -> GradeLine | None:
    """Return the grade of a row; None for a row of a table without one."""
    if not is_table:
        return known.line(place, grade_line(place, row, str(row["grader"])))
    grade = row.get("grade")
    if grade is None or not str(grade).strip():
        return None
    name = str(row.get("grader") or grader)
    if isinstance(grade, str):
        grade = _stated_grade(grade.strip(), place=place)
    fields = {"query": row.get("query"), "document": row.get("document"), "grade": grade}
    line = grade_line(place, {**fields, "time": now()}, name)
    return known.line(place, line, text=str(row.get("text") or ""))


def _stated_grade(text: str, *, place: str) -> int:
    """Return the grade that a cell states.

    Raises:
        DataError: it is no whole number from 0 to `HIGHEST_GRADE`.
    """
    number = stated_number(text)
    if number is None or number not in range(HIGHEST_GRADE + 1):
        raise DataError(
            f"{place}: the grade is {text!r:.40}; expected a whole number from 0 to "
            f"{HIGHEST_GRADE}, or nothing"
        )
    return int(number)


def _placed_rows(file: Path, *, is_table: bool) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the place and the cells of each row of a table, or of each line of a grade file."""
    if not is_table:
        for place, line in GradeFile(file).read_with_places():
            yield place, asdict(line)
        return
    if is_json_sheet(file):
        for number, row in json_rows(file, byte_limit=_LARGEST_SHEET):
            yield f"{file}:{number}", _checked_object(f"{file}:{number}", row)
        return
    text = _sheet_text(file)
    rows, first_line = _csv_rows(file, text)
    header = csv_header(rows, file=file)
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        names = ",".join(SHEET_COLUMNS)
        raise DataError(f"{file}:1: no column {', '.join(missing)}; expected {names}")
    for number, cells in rows:
        place = f"{file}:{number + first_line}"
        if len(cells) > len(header):
            raise DataError(
                f"{place}: {len(cells)} cells under {len(header)} columns; is a text not in quotes?"
            )
        yield place, dict(zip(header, cells, strict=False))


def _checked_object(place: str, row: Mapping[str, object]) -> Mapping[str, object]:
    """Return a row of JSON with query, document and grade; raise DataError if it lacks one."""
    missing = [name for name in _NEEDED if name not in row]
    if missing:
        raise DataError(f"{place}: no {', '.join(missing)}; expected an object such as {EXAMPLE}")
    return row


def _csv_rows(file: Path, text: str) -> tuple[Iterator[tuple[int, list[str]]], int]:
    """Return the rows of a table, and how many lines stand before it.

    The separator is the one of the header, or the one that Excel's first line names: ``sep=;``.
    """
    lines = io.StringIO(text, newline=None).readlines()
    skipped = 0
    if lines and lines[0].lower().startswith("sep="):
        skipped = 1
    header = lines[skipped] if len(lines) > skipped else ""
    separator = max(_SEPARATORS, key=header.count)
    return separated_rows(lines[skipped:], separator, place=file), skipped


def _sheet_text(file: Path) -> str:
    """Return the text of a sheet in UTF-8 or UTF-16.

    Raises:
        DataError: it is a workbook, in another encoding, or too large.
    """
    if not file.is_file():
        raise DataError(f"{file}: no such file, or not a regular file")
    with file.open("rb") as stream:
        start = stream.read(4)
    if start.startswith(b"PK\x03\x04"):
        raise DataError(f"{file}: a workbook; save it as CSV UTF-8")
    if start.startswith(UTF_16_MARKS):
        return _utf_16_text(file)
    try:
        return read_text(file, byte_limit=_LARGEST_SHEET)
    except DataError as error:
        if "not UTF-8" not in str(error):
            raise
        raise DataError(f"{error}. In Excel, save as CSV UTF-8") from None


def _utf_16_text(file: Path) -> str:
    """Return the text of a file in UTF-16, as Excel's "Unicode text"."""
    if file.stat().st_size > _LARGEST_SHEET:
        raise DataError(f"{file}: expected at most {_LARGEST_SHEET >> 20} MiB")
    try:
        return file.read_bytes().decode("utf-16")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: cannot be read (not UTF-16: {error.reason})") from None
