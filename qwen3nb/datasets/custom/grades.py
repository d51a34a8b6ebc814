"""Grades that people give one after the other, in a file that only grows.

Each line is a JSON object, such as

    {"query": "sort a list", "document": "list.sort", "grade": 3, "grader": "ann", "time": "…"}

The grade ``null`` says that the grader could not tell. ``{"undo": true, "grader": "ann"}`` takes
back the last line of a grader. A line is written with one system call and flushed to disk, so that
a kill loses nothing, and two people can share a file.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from qwen3nb.datasets.rows import DataError, csv_header, csv_rows, stated_number
from qwen3nb.utils.format import without_apostrophe

HIGHEST_GRADE = 3
SHEET_COLUMNS = ("query", "document", "text", "grade")
_LARGEST_SHEET = 256 << 20  # bytes
_EXAMPLE = '{"query": "sort a list", "document": "list.sort", "grade": 3, "grader": "ann"}'


@dataclass(frozen=True)
class GradeLine:
    """One grade by one grader."""

    query: str  # its text
    document: str  # its id
    grade: int | None  # None: the grader could not tell
    grader: str
    time: str  # ISO 8601

    @property
    def pair(self) -> tuple[str, str]:
        """The query and the document."""
        return self.query, self.document


def now() -> str:
    """Return the time of a grade that is given now."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class GradeFile:
    """The grades of a file, which others may write to at the same time."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> list[GradeLine]:
        """Return all grades in their order, without those that were taken back.

        A line that was cut by a kill is left out.

        Raises:
            DataError: a line is no grade; names the line, and shows one that is right.
        """
        lines: list[GradeLine] = []
        for place, row in self._rows():
            grader = str(row.get("grader", ""))
            if row.get("undo"):
                _take_back(lines, grader)
            else:
                lines.append(_grade_line(place, row, grader))
        return lines

    def add(self, line: GradeLine) -> None:
        """Write a grade durably before returning."""
        self._append(asdict(line))

    def undo(self, grader: str) -> GradeLine | None:
        """Take back the last grade of a grader and return it; None if there is none."""
        by_grader = [line for line in self.read() if line.grader == grader]
        if not by_grader:
            return None
        self._append({"undo": True, "grader": grader, "time": now()})
        return by_grader[-1]

    def _rows(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield the place and the object of each line."""
        if not self.file.exists():
            return
        for number, text in enumerate(self.file.read_text(encoding="utf-8").split("\n"), start=1):
            if not text.strip():
                continue
            place = f"{self.file}:{number}"
            try:
                row = json.loads(text)
            except ValueError:
                if not text.rstrip().endswith("}"):  # cut by a kill
                    continue
                raise DataError(f"{place}: not JSON; expected {_EXAMPLE}") from None
            if not isinstance(row, dict):
                raise DataError(f"{place}: expected an object such as {_EXAMPLE}")
            yield place, row

    def _append(self, row: dict[str, object]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # The break before the line ends one that a kill has cut.
            os.write(handle, f"\n{json.dumps(row, ensure_ascii=False)}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)


def read_sheet(sheet: Path, grader: str) -> list[GradeLine]:
    """Return the grades of a CSV file with `SHEET_COLUMNS`; rows without one are left out.

    Raises:
        DataError: a column is missing, or a cell is no grade.
    """
    rows = csv_rows(sheet, byte_limit=_LARGEST_SHEET)
    header = csv_header(rows, file=sheet)
    missing = [name for name in SHEET_COLUMNS if name not in header and name != "text"]
    if missing:
        names = ",".join(SHEET_COLUMNS)
        raise DataError(f"{sheet}:1: no column {', '.join(missing)}; expected {names}")
    lines = []
    for number, cells in rows:
        row = dict(zip(header, cells, strict=False))
        cell = row.get("grade", "").strip()
        if not cell:
            continue
        grade = stated_grade(cell, place=f"{sheet}:{number}")
        query, document = without_apostrophe(row["query"]), without_apostrophe(row["document"])
        lines.append(GradeLine(query, document, grade, grader, now()))
    return lines


def stated_grade(text: str, *, place: str) -> int:
    """Return the grade that a cell states.

    Raises:
        DataError: it is no whole number from 0 to `HIGHEST_GRADE`.
    """
    number = stated_number(text)
    is_grade = number is not None and number == int(number) and 0 <= number <= HIGHEST_GRADE
    if number is None or not is_grade:
        raise DataError(
            f"{place}: the grade is {text!r:.40}; expected a whole number from 0 to "
            f"{HIGHEST_GRADE}, or nothing"
        )
    return int(number)


def _take_back(lines: list[GradeLine], grader: str) -> None:
    """Remove the last line of a grader."""
    for position in reversed(range(len(lines))):
        if lines[position].grader == grader:
            del lines[position]
            return


def _grade_line(place: str, row: dict[str, object], grader: str) -> GradeLine:
    """Return the grade of a line; raise DataError if it has none."""
    query, document, grade = row.get("query"), row.get("document"), row.get("grade")
    if not isinstance(query, str) or not isinstance(document, str):
        raise DataError(f"{place}: expected a query and a document, such as {_EXAMPLE}")
    time = str(row.get("time", ""))
    if grade is None:
        return GradeLine(query, document, None, grader, time)
    if not isinstance(grade, int) or isinstance(grade, bool) or not 0 <= grade <= HIGHEST_GRADE:
        raise DataError(
            f"{place}: the grade is {grade!r:.40}; expected a whole number from 0 to "
            f"{HIGHEST_GRADE}, or null"
        )
    return GradeLine(query, document, grade, grader, time)


def is_grade_file(file: Path) -> bool:
    """Return whether a file holds grades: its first line names a document and a grader."""
    with file.open(encoding="utf-8", errors="replace") as stream:
        lines = (line for line in stream if line.strip())
        first_line = next(lines, "")
    try:
        row = json.loads(first_line)
    except ValueError:
        return False
    return isinstance(row, dict) and {"query", "document", "grader"} <= row.keys()


def newest_grades(lines: Iterable[GradeLine]) -> dict[tuple[str, str], int]:
    """Return the last grade of each pair of query and document, by any grader."""
    grades: dict[tuple[str, str], int] = {}
    for line in lines:
        if line.grade is not None:
            grades[line.pair] = line.grade
    return grades


def agreement(lines: Sequence[GradeLine], first: str, second: str) -> tuple[float | None, int]:
    """Return Cohen's kappa of two graders with quadratic weights, and the pairs that both graded.

    None if it is not defined: fewer than two pairs, or each gave one and the same grade to all.
    Source: Cohen, "Weighted kappa" (Psychological Bulletin, 1968).
    """
    from sklearn.metrics import cohen_kappa_score

    first_grades = newest_grades(line for line in lines if line.grader == first)
    second_grades = newest_grades(line for line in lines if line.grader == second)
    pairs = sorted(first_grades.keys() & second_grades.keys())
    first_values = [first_grades[pair] for pair in pairs]
    second_values = [second_grades[pair] for pair in pairs]
    has_one_grade = len({*first_values, *second_values}) < 2
    if len(pairs) < 2 or has_one_grade:
        return None, len(pairs)
    labels = list(range(HIGHEST_GRADE + 1))
    kappa = cohen_kappa_score(first_values, second_values, weights="quadratic", labels=labels)
    return float(kappa), len(pairs)
