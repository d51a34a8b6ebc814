"""Grades that are given one after the other, in a file that only grows.

Each line is a JSON object, such as

    {"query": "sort a list", "document": "list.sort", "grade": 3, "grader": "ann", "time": "…"}

The grade ``null`` says that the grader could not tell. A language model's line also has ``model``:
its spec, its identity, and a digest of the prompt. ``{"undo": true, "grader": "ann"}`` takes back
the last line of a grader. A line is written with one system call and flushed to disk, so that a
kill loses nothing, and several people can share a file.

If a document is graded twice for a query, a person's grade counts before a language model's. Of
two persons, or of two models, the later counts.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO

from qwen3nb.datasets.custom.generated import stated_kind
from qwen3nb.datasets.rows import (
    LINE,
    DataError,
    raised_limit,
    shown_value,
    size_limit,
    unicode_text,
)
from qwen3nb.utils.atomic_files import append_durably, exclusive_lock
from qwen3nb.utils.strict_json import parse_json

HIGHEST_GRADE = 3
EXAMPLE = '{"query": "sort a list", "document": "list.sort", "grade": 3, "grader": "ann"}'
_MOST = 256 << 20  # bytes of a file of grades
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CUT_TEXT = "Unterminated string"  # how JSON calls a text that a kill has cut


@dataclass(frozen=True)
class LanguageModel:
    """The language model that gave a grade."""

    spec: str  # as named on the command line
    identity: str  # of the model
    prompt: str  # SHA-256 of the prompt, without query and document


@dataclass(frozen=True)
class GradeLine:
    """One grade by one grader."""

    query: str  # its text
    document: str  # its id
    grade: int | None  # None: the grader could not tell
    grader: str
    time: str  # ISO 8601
    model: LanguageModel | None = None  # None: a person
    generated: str = ""  # how the query was made; empty for one that people asked

    @property
    def pair(self) -> tuple[str, str]:
        """The query and the document."""
        return self.query, self.document

    def yields_to(self, counted: "GradeLine") -> bool:
        """Whether the grade that counts so far stays: a person's, if this is a model's."""
        return self.model is not None and counted.model is None


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
            DataError: a line is no grade (names the line, and shows one that is right), or the
                file is too large.
        """
        return [line for _, line in self.read_with_places()]

    def read_with_places(self) -> list[tuple[str, GradeLine]]:
        """Return the grades of `read`, each with its place, such as ``grades.jsonl:7``."""
        lines: dict[int, tuple[str, GradeLine]] = {}
        numbers_of: dict[str, list[int]] = {}  # of the lines that a grader has not taken back
        for number, (place, row) in enumerate(self._rows()):
            grader = _grader(place, row)
            numbers = numbers_of.setdefault(grader, [])
            if not row.get("undo"):
                lines[number] = place, grade_line(place, row, grader)
                numbers.append(number)
            elif numbers:
                del lines[numbers.pop()]
        return list(lines.values())

    def add(self, *lines: GradeLine) -> None:
        """Write grades durably before returning."""
        rows = []
        for line in lines:
            row = asdict(line)
            if line.model is None:
                del row["model"]
            if not line.generated:
                del row["generated"]
            rows.append(row)
        with exclusive_lock(self.file):
            self._append(rows)

    def undo(self, grader: str) -> GradeLine | None:
        """Take back the last grade of a grader and return it; None if there is none."""
        with exclusive_lock(self.file):
            by_grader = [line for line in self.read() if line.grader == grader]
            if not by_grader:
                return None
            self._append([{"undo": True, "grader": grader, "time": now()}])
        return by_grader[-1]

    def _rows(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield the place and the object of each line."""
        if not self.file.exists():
            return
        if not self.file.is_file():
            raise DataError(f"{self.file}: not a file; expected lines such as {EXAMPLE}")
        most = size_limit(_MOST)
        if self.file.stat().st_size > most:
            raise DataError(f"{self.file}: expected at most {raised_limit(most)}")
        with self.file.open("rb") as stream:
            for place, line in _placed_lines(stream, self.file):
                row = _object(line.strip(), place=place)
                if row is not None:
                    yield place, row

    def _append(self, rows: Sequence[Mapping[str, object]]) -> None:
        # The break before a line ends one that a kill has cut.
        texts = [f"\n{json.dumps(row, ensure_ascii=False)}\n" for row in rows]
        append_durably(
            self.file,
            "".join(texts).encode(),
            if_cut="only a part of a grade was written; is the disk full?",
        )


def _placed_lines(stream: IO[bytes], file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the place and the bytes of each line; one that is too long is not read as a whole.

    Raises:
        DataError: a line is longer than 16 MiB, or than the raised limit.
    """
    longest = size_limit(LINE)
    read_line = partial(stream.readline, longest + 1)
    for number, line in enumerate(iter(read_line, b""), start=1):  # b"" is the end
        place = f"{file}:{number}"
        if len(line) > longest:
            raise DataError(f"{place}: the line is longer than {raised_limit(longest)}")
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        yield place, line


def _object(line: bytes, *, place: str) -> dict[str, object] | None:
    """Return the object of a line; None for a blank one, or one that a kill has cut.

    Raises:
        DataError: anything else.
    """
    if not line:
        return None
    try:
        row = parse_json(line.decode("utf-8"))
    except ValueError as error:
        is_cut = not line.endswith(b"}") or str(error).startswith(_CUT_TEXT)
        if line.startswith(b"{") and is_cut:
            return None
        raise DataError(f"{place}: not JSON ({error}); expected {EXAMPLE}") from None
    if not isinstance(row, dict):
        raise DataError(f"{place}: expected an object such as {EXAMPLE}")
    return row


def _grader(place: str, row: Mapping[str, object]) -> str:
    """Return the name of the grader of a line; raise DataError if it has none."""
    grader = row.get("grader", "")
    if not isinstance(grader, str):
        raise DataError(
            f"{place}: the grader is {shown_value(grader)}; expected a name, as in {EXAMPLE}"
        )
    return grader


def grade_line(place: str, row: Mapping[str, object], grader: str) -> GradeLine:
    """Return the grade of an object; raise DataError if it has none."""
    query, document = row.get("query"), row.get("document")
    if not isinstance(query, str) or not isinstance(document, str):
        raise DataError(f"{place}: expected a query and a document, such as {EXAMPLE}")
    if not unicode_text(query) or not unicode_text(document):
        raise DataError(f"{place}: the query or the document is not valid Unicode")
    return GradeLine(
        query,
        document,
        grade=_grade(place, row.get("grade")),
        grader=grader,
        time=str(row.get("time", "")),
        model=_language_model(place, row.get("model")),
        generated=str(stated_kind(row.get("generated"))),
    )


def _grade(place: str, grade: object) -> int | None:
    """Return a grade, or None; raise DataError for anything else."""
    if grade is None:
        return None
    is_whole = isinstance(grade, int) and not isinstance(grade, bool)
    if not is_whole or grade not in range(HIGHEST_GRADE + 1):
        raise DataError(
            f"{place}: the grade is {shown_value(grade)}; expected a whole number from 0 to "
            f"{HIGHEST_GRADE}, or null"
        )
    return int(str(grade))


def _language_model(place: str, fields: object) -> LanguageModel | None:
    """Return the language model of a line; None for a person's."""
    if fields is None:
        return None
    if isinstance(fields, Mapping) and set(fields) == {"spec", "identity", "prompt"}:
        return LanguageModel(**{name: str(value) for name, value in fields.items()})
    raise DataError(
        f"{place}: the model is {shown_value(fields)}; expected spec, identity and prompt, or none"
    )


def is_grade_file(file: Path) -> bool:
    """Return whether a file holds grades: its first line names a document and a grader."""
    with file.open(encoding="utf-8-sig", errors="replace") as stream:
        # A part of a line that is too long is no JSON.
        read_line = partial(stream.readline, size_limit(LINE))
        lines = (line for line in iter(read_line, "") if line.strip())
        first_line = next(lines, "")
    try:
        row = json.loads(first_line)
    except (ValueError, RecursionError):  # the reader of the file says what is wrong
        return False
    return isinstance(row, dict) and {"query", "document", "grader"} <= row.keys()


def counted_lines(lines: Iterable[GradeLine]) -> dict[tuple[str, str], GradeLine]:
    """Return the line that counts for each pair of query and document that has a grade.

    A person's counts before a language model's; else the later counts.
    """
    counted: dict[tuple[str, str], GradeLine] = {}
    for line in lines:
        if line.grade is None:
            continue
        earlier = counted.get(line.pair)
        if earlier is None or not line.yields_to(earlier):
            counted[line.pair] = line
    return counted


def counted_grades(lines: Iterable[GradeLine]) -> dict[tuple[str, str], int]:
    """Return the grade that counts for each pair of query and document; see `counted_lines`."""
    grades = {}
    for pair, line in counted_lines(lines).items():
        if line.grade is not None:
            grades[pair] = line.grade
    return grades


def graders_of(lines: Iterable[GradeLine]) -> list[str]:
    """Return who graded, in the order of their first lines; a language model is marked as one."""
    names: dict[str, None] = {}
    for line in lines:
        name = line.grader or "somebody"
        if line.model is not None:
            name += " (a language model)"
        names[name] = None
    return list(names)
