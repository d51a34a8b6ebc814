"""Lists of judgements: a query, a document and a grade per line, as other programs write them.

    q1 0 d7 2                        TREC qrels: query, iteration, document, grade
    q1 d7 2                          three columns, by blanks, tabs or commas
    query-id  corpus-id  score       BEIR: columns found by their names, in any order
    query,docid,rating               Quepid and OpenSearch: the query by its text
    4 qid:1 # 7555 Rambo             Elasticsearch LTR and RankLib; texts in lines "# qid:1: rambo"

Without a header, the column of queries is the one with the ids of the queries, if they are known;
otherwise the order is that of TREC. `JudgementList.understood` says what was taken.

Sources: the README of trec_eval; BEIR's wiki "Load your custom dataset"; OpenSearch's documentation
of judgments and its dashboards' pull request 715; Quepid's export of ratings; the documentation of
elasticsearch-learning-to-rank, "Logging feature scores"; RankLib's wiki, "File format".
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qwen3nb.datasets.in_memory import (
    DOCUMENT_ID,
    GRADE,
    JUDGED_DOCUMENT,
    JUDGED_QUERY_ID,
    QUERY_TEXT,
    find_column,
)
from qwen3nb.datasets.judgements import read_grade
from qwen3nb.datasets.rows import (
    DataError,
    checked_id,
    csv_rows,
    listed,
    numbered_lines,
    shown_value,
    stated_number,
    unicode_text,
)
from qwen3nb.utils.format import without_apostrophe
from qwen3nb.utils.strict_json import first_duplicate

NumberedCells = tuple[int, list[str]]  # the number of a line, and its cells
_LTR_LINE = re.compile(r"(?P<grade>\S+)\s+qid:(?P<query>\S+)[^#]*(#\s*(?P<comment>.*))?")
_LTR_TEXT = re.compile(r"#\s*qid:\s*(?P<query>[^\s:]+)\s*:\s*(?P<text>.+?)(\*[\d.]+)?\s*")
_LTR_START = re.compile(r"\S+\s+qid:\S")
_DOCID = re.compile(r"docid\s*=\s*(\S+)")  # of LETOR
_QUEPID_COMMENT = re.compile(r'(?P<document>\S+?);\s*"(?P<text>.*)"')
_COLUMNS_OF_A_RUN = 6
_ID = ("id", "_id")
EXAMPLES = {
    "qrels": "q1 0 d7 2",
    "tabs": "q1<tab>d7<tab>2",
    "csv": '"sort a list",d7,2',
    "ltr": "2 qid:1 # d7 title",
    "rows": '{"query": "sort a list", "docid": "d7", "rating": 2}',
}


@dataclass(frozen=True)
class Judgement:
    """A line of a list."""

    place: str  # such as ``qrels.txt:7``
    query: str  # its id or text
    document: str  # empty if the line names none
    grade: float | None  # None if it has none


@dataclass(frozen=True)
class JudgementList:
    """The judgements of a file, in its order."""

    rows: Sequence[Judgement]
    understood: str  # how the file was read, in a few words
    by_text: bool = False  # whether queries are named by their texts
    texts: Mapping[str, str] = field(default_factory=dict)  # text by query, if the list has them
    # how a query was generated, by query; see `qwen3nb.datasets.custom.generated`
    generated: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """How the file was read, and how many lines have a document, but no grade."""
        ungraded = sum(row.grade is None and row.document != "" for row in self.rows)
        if not ungraded:
            return self.understood
        return f"{self.understood}; {ungraded:,} rows without a grade, left out"

    def by_query(self) -> dict[str, dict[str, float]]:
        """Return the grade per query and document; a query may have none.

        Raises:
            DataError: a document has two grades for a query; names both lines.
        """
        grades_by_query: dict[str, dict[str, float]] = {}
        places: dict[tuple[str, str], str] = {}
        for row in self.rows:
            grades = grades_by_query.setdefault(row.query, {})
            if row.grade is None:
                continue
            earlier_grade = grades.setdefault(row.document, row.grade)
            earlier_place = places.setdefault((row.query, row.document), row.place)
            if earlier_grade != row.grade:
                raise DataError(
                    f"{row.place}: {row.document!r:.60} is judged twice for the query "
                    f"{row.query!r:.60}: {row.grade} here, {earlier_grade} at {earlier_place}; "
                    "keep one of the two lines"
                )
        return grades_by_query


@dataclass(frozen=True)
class _Columns:
    """Where the parts of a judgement are; numbers of cells, or names of columns."""

    query: int
    document: int
    grade: int
    text: int | None = None  # of the query
    generated: int | None = None  # how the query was made


def read_text_list(file: Path, queries: Collection[str] = ()) -> JudgementList:
    """Read a text file: qrels of three or four columns, or a list of RankLib's form.

    Args:
        file: the file. Blank lines and comments (``#``) are left out.
        queries: the ids of the queries, if they are known.

    Raises:
        DataError: a line is none of these; names it, and shows one that is right.
    """
    lines = [(number, line.strip("\r\n")) for number, line in numbered_lines(file)]
    content = [line for _, line in lines if line.strip() and not line.startswith("#")]
    if content and _LTR_START.match(content[0].strip()):
        return _read_ltr(file, lines)
    has_tabs = any("\t" in line for line in content)
    numbered_cells: list[NumberedCells] = []
    for number, line in lines:
        text = line
        if line.startswith("#"):
            names = _split(line.lstrip("# "), has_tabs=has_tabs)
            if numbered_cells or _named_columns(names) is None:
                continue
            text = line.lstrip("# ")  # a header such as "# query 0 document grade"
        if text.strip():
            numbered_cells.append((number, _split(text, has_tabs=has_tabs)))
    separator = "tabs" if has_tabs else "blanks"
    example = EXAMPLES["tabs"] if has_tabs else EXAMPLES["qrels"]
    return judgements_of_cells(file, numbered_cells, queries, separator=separator, example=example)


def read_separated_list(file: Path, queries: Collection[str] = ()) -> JudgementList:
    """Read a CSV or TSV file with a row per judgement, with a header or without.

    Raises:
        DataError: as `read_text_list`.
    """
    numbered_cells = [(number, [cell.strip() for cell in row]) for number, row in csv_rows(file)]
    example = EXAMPLES["csv"]
    separator = "CSV"
    if ".tsv" in file.suffixes:
        separator, example = "TSV", EXAMPLES["tabs"]
    return judgements_of_cells(file, numbered_cells, queries, separator=separator, example=example)


def judgements_of_rows(
    rows: Iterable[tuple[str, Mapping[str, object]]], *, place: object
) -> JudgementList:
    """Return the judgements of rows with named columns, such as those of a data frame.

    Raises:
        DataError: a column is missing, or a grade is no number; names the row.
    """
    placed_rows = list(rows)
    names: dict[str, None] = {}
    for _, row in placed_rows:
        names |= dict.fromkeys(row)
    header = list(names)
    columns = _required_columns(header, place=place, example=EXAMPLES["rows"])
    placed_cells = ((place, [row.get(name) for name in header]) for place, row in placed_rows)
    understood = f"rows with {_stated(header, columns)}"
    return _list_of(placed_cells, columns, understood, example=EXAMPLES["rows"])


def judgements_of_cells(
    file: object,
    rows: Sequence[NumberedCells],
    queries: Collection[str] = (),
    *,
    separator: str,
    example: str,
) -> JudgementList:
    """Return the judgements of rows of cells, whose first may be a header.

    Args:
        file: the file, for errors.
        rows: number and cells of each line.
        queries: the ids of the queries, if they are known.
        separator: what separates cells, in a word.
        example: a line that would be right, for errors.

    Raises:
        DataError: as `read_text_list`.
    """
    if not rows:
        raise DataError(f"{file}: no judgements; expected lines such as {example}")
    header_number, header = rows[0]
    columns = _named_columns(header)
    if columns is not None or _is_header(header, rows):
        duplicate = first_duplicate(name for name in header if name)
        if duplicate is not None:
            raise DataError(f"{file}:{header_number}: duplicate column {duplicate!r:.60}")
        columns = _required_columns(header, place=f"{file}:{header_number}", example=example)
        rows = rows[1:]
        understood = f"{separator}, {_stated(header, columns)}"
        width = len(header)
    else:
        columns, names = _columns_by_content(file, rows, queries, example=example)
        understood = f"{separator}, no header, columns taken as {', '.join(names)}"
        width = len(names)
    if not rows:
        raise DataError(f"{file}: no judgements below the header; right: {example}")
    placed_cells = _placed_cells(file, rows, width, example=example)
    found = _list_of(placed_cells, columns, understood, example=example)
    if columns.text is None and not queries and are_texts(found.rows):
        return replace(found, by_text=True, understood=f"{understood}, queries by their text")
    return found


def are_texts(judgements: Iterable[Judgement]) -> bool:
    """Return whether queries are named by texts rather than ids: some have words in between."""
    return any(" " in judgement.query.strip() for judgement in judgements)


def _list_of(
    placed_cells: Iterable[tuple[str, Sequence[object]]],
    columns: _Columns,
    understood: str,
    *,
    example: str,
) -> JudgementList:
    """Return the judgements of rows of cells, each with its place."""
    judgements: list[Judgement] = []
    texts: dict[str, str] = {}
    generated: dict[str, str] = {}
    for place, cells in placed_cells:
        judgement = _judgement(cells, columns, place=place, example=example)
        judgements.append(judgement)
        _add_text(texts, judgement, cells, columns)
        _add_mark(generated, judgement, cells, columns)
    by_text = columns.text is not None and columns.text == columns.query
    return JudgementList(judgements, understood, by_text=by_text, texts=texts, generated=generated)


def _add_mark(
    generated: dict[str, str], judgement: Judgement, cells: Sequence[object], columns: _Columns
) -> None:
    """Keep how a judgement's query was generated, if a column says so."""
    if columns.generated is None:
        return
    kind = str(cells[columns.generated] or "").strip()
    if kind:
        generated[judgement.query] = kind


def _add_text(
    texts: dict[str, str], judgement: Judgement, cells: Sequence[object], columns: _Columns
) -> None:
    """Keep the text of a judgement's query, if a column has it."""
    if columns.text is None:
        return
    text = without_apostrophe(str(cells[columns.text] or "").strip())
    earlier_text = texts.setdefault(judgement.query, text)
    if text and earlier_text != text:
        raise DataError(
            f"{judgement.place}: the query {judgement.query!r:.60} is {text!r:.60} here, and "
            f"{earlier_text!r:.60} before; give each text an id of its own"
        )


def _split(line: str, *, has_tabs: bool) -> list[str]:
    if has_tabs:
        return [cell.strip() for cell in line.split("\t")]
    return line.split()


def _placed_cells(
    file: object, rows: Iterable[NumberedCells], width: int, *, example: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield the place of each row, and as many cells as there are columns."""
    for number, cells in rows:
        place = f"{file}:{number}"
        yield place, _of_width(cells, width, place=place, example=example)


def _of_width(cells: list[str], width: int, *, place: str, example: str) -> list[str]:
    """Return as many cells as a row has; those of a query without a document are empty."""
    if len(cells) == width:
        return cells
    is_only_query = len(cells) == 1 or not any(cells[1:])
    if is_only_query and len(cells) < width:
        return cells + [""] * (width - len(cells))
    hint = ""
    if len(cells) > width:
        hint = "; a text with a separator in it stands in quotes"
    raise DataError(f"{place}: {len(cells)} cells, expected {width}{hint}; right: {example}")


def _named_columns(header: Sequence[str]) -> _Columns | None:
    """Return the columns of a header; None if it names no query, or neither of the others."""
    names = list(header)
    text_name = find_column(names, QUERY_TEXT)
    names = [name for name in names if name != text_name]
    query_name = find_column(names, JUDGED_QUERY_ID)
    names = [name for name in names if name != query_name]
    document_name = find_column(names, JUDGED_DOCUMENT)
    names = [name for name in names if name != document_name]
    grade_name = find_column(names, GRADE)
    if query_name is None:
        query_name = find_column(names, _ID) or text_name  # an id beside that of the document
    if query_name is None or (document_name is None and grade_name is None):
        return None
    positions = {name: position for position, name in enumerate(header)}
    text = None
    if text_name is not None:
        text = positions[text_name]
    return _Columns(
        positions[query_name],
        positions.get(str(document_name), -1),
        positions.get(str(grade_name), -1),
        text,
        positions.get("generated"),
    )


def _required_columns(header: Sequence[str], *, place: object, example: str) -> _Columns:
    """Return the columns of a header; raise DataError if one is missing."""
    columns = _named_columns(header)
    if columns is None:
        raise DataError(
            f"{place}: no column {QUERY_TEXT[0]!r}; columns: {listed(header)}; right: a header "
            "such as query,docid,rating"
        )
    for name, position in ((DOCUMENT_ID[0], columns.document), (GRADE[0], columns.grade)):
        if position < 0:
            others = [title for title in header if title != header[columns.query]]
            raise DataError(
                f"{place}: no column {name!r}; columns: {listed(others)}; right: a header such as "
                "query,docid,rating"
            )
    return columns


def _stated(header: Sequence[str], columns: _Columns) -> str:
    """Return which columns were taken, such as ``columns query-id, corpus-id, score``."""
    positions = [columns.query, columns.document, columns.grade]
    if columns.text is not None and columns.text != columns.query:
        positions.insert(1, columns.text)
    return f"columns {listed(header[position] for position in positions)}"


def _is_header(first: Sequence[str], rows: Sequence[NumberedCells]) -> bool:
    """Return whether the first row has words where all other rows have numbers."""
    others = [cells for _, cells in rows[1:] if len(cells) == len(first)]
    if not others:
        return False
    for position, name in enumerate(first):
        is_number = stated_number(name) is not None
        are_numbers = all(stated_number(cells[position]) is not None for cells in others)
        if are_numbers and not is_number:
            return True
    return False


def _columns_by_content(
    file: object, rows: Sequence[NumberedCells], queries: Collection[str], *, example: str
) -> tuple[_Columns, list[str]]:
    """Return the columns of rows without a header, and what they were taken as.

    Raises:
        DataError: neither three nor four columns, or their order is not certain.
    """
    number, first = rows[0]
    place = f"{file}:{number}"
    width = len(first)
    if width == _COLUMNS_OF_A_RUN and first[1].upper() == "Q0":
        raise DataError(
            f"{place}: six columns are those of a run, not of judgements; right: {example}"
        )
    if width == 2 and queries and first[0] in queries:
        return _Columns(0, 1, -1), ["query", "document (relevant, of grade 1)"]
    if width not in (3, 4):
        raise DataError(f"{place}: {width} columns, expected 3 or 4; right: {example}")
    full_rows = [cells for _, cells in rows if len(cells) == width]
    query = _query_column(full_rows, width, queries)
    others = [position for position in range(width) if position != query]
    numeric = [
        position
        for position in others
        if all(stated_number(cells[position]) is not None for cells in full_rows)
    ]
    if query == 0 or not numeric:  # the order of TREC; a grade that is no number is refused later
        document, grade = width - 2, width - 1
        words_first = width - 1 not in numeric and len(numeric) == 1 and width == 3
        if words_first and queries:
            document, grade = grade, document
    else:
        texts = [position for position in others if position not in numeric]
        if len(texts) > 1 or (not texts and width == 4):
            raise DataError(
                f"{place}: the order of the columns is not certain; give a header such as "
                f"query-id corpus-id score, or the order of TREC: {example}"
            )
        grade = numeric[-1]
        document = texts[0] if texts else numeric[0]
    names = ["not used"] * width
    names[query], names[document], names[grade] = "query", "document", "grade"
    return _Columns(query, document, grade), names


def _query_column(rows: Sequence[list[str]], width: int, queries: Collection[str]) -> int:
    """Return the column with the most ids of queries; the first if no column has any."""
    if not queries:
        return 0
    counts: list[int] = []
    for position in range(width):
        counts.append(sum(cells[position] in queries for cells in rows))
    return counts.index(max(counts))


def _judgement(
    cells: Sequence[object], columns: _Columns, *, place: str, example: str
) -> Judgement:
    """Return the judgement of a row; raise DataError if it is none."""
    query = id_text(cells[columns.query])
    if columns.query == columns.text:
        query = without_apostrophe(query)
    if not query.strip() or not unicode_text(query):
        raise DataError(f"{place}: the query is {shown_value(query)}; right: {example}")
    document = id_text(cells[columns.document])
    value: object = 1  # in a list of relevant documents
    if columns.grade >= 0:
        value = cells[columns.grade]
    has_grade = value is not None and str(value).strip() != ""
    if not document and not has_grade:  # a query that nobody graded
        return Judgement(place, query, "", None)
    checked_id(document, place=place)
    if not has_grade:
        return Judgement(place, query, document, None)
    return Judgement(place, query, document, read_grade(value, place=place, example=example))


def id_text(value: object) -> str:
    """Return an id as text: a whole number, also 7.0 of a data frame, without its point.

    >>> id_text("007"), id_text(7), id_text(7.0), id_text("7.0"), id_text(None)
    ('007', '7', '7', '7.0', '')
    """
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _read_ltr(file: Path, lines: Iterable[tuple[int, str]]) -> JudgementList:
    """Read a list of RankLib's form, as written for Elasticsearch Learning to Rank or by Quepid."""
    judgements: list[Judgement] = []
    texts: dict[str, str] = {}
    titles: dict[str, set[str]] = {}
    for number, line in lines:
        place = f"{file}:{number}"
        text_line = _LTR_TEXT.fullmatch(line.strip())
        if text_line is not None:
            texts[text_line["query"]] = text_line["text"]
            continue
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LTR_LINE.fullmatch(line.strip())
        comment = "" if match is None else (match["comment"] or "")
        if match is None or not comment.strip():
            raise DataError(
                f"{place}: expected a grade, qid:ID, and # with the document; got {line!r:.60}; "
                f"right: {EXAMPLES['ltr']}"
            )
        document, title = _document_of_comment(comment)
        grade = read_grade(match["grade"], place=place, example=EXAMPLES["ltr"])
        judgements.append(
            Judgement(place, match["query"], checked_id(document, place=place), grade)
        )
        titles.setdefault(match["query"], set()).add(title)
    understood = "a list of RankLib's form (grade qid:ID # document)"
    if not texts:
        texts = _texts_of_titles(titles, len(judgements))
        if texts:
            understood += ", queries as in the comments"
    return JudgementList(judgements, understood, texts=texts)


def _document_of_comment(comment: str) -> tuple[str, str]:
    """Return the document's id and what follows it: a title, or the query's text."""
    docid = _DOCID.search(comment)
    if docid is not None:
        return docid[1], ""
    quepid = _QUEPID_COMMENT.fullmatch(comment.strip())
    if quepid is not None:
        return quepid["document"], quepid["text"]
    if "\t" in comment.strip():
        document, _, title = comment.strip().partition("\t")
    else:
        document, _, title = comment.strip().partition(" ")
    return document.strip(), title.strip()


def _texts_of_titles(titles: Mapping[str, set[str]], lines: int) -> dict[str, str]:
    """Return the text by query, if all lines of each query have one text; else empty."""
    is_text = all(len(texts) == 1 and "" not in texts for texts in titles.values())
    if not is_text or lines == len(titles):  # with a line each, it may be the document's title
        return {}
    return {query: next(iter(texts)) for query, texts in titles.items()}


def judgements_of_mapping(data: Mapping[Any, Any], *, place: object) -> Iterator[Judgement]:
    """Yield the judgements of a dictionary by query and document, as ranx and ir_measures take.

    A list of documents means that each is relevant, of grade 1.

    Raises:
        DataError: a grade is no number.
    """
    for query, documents in data.items():
        grades = documents
        if isinstance(documents, str):
            grades = {documents: 1}
        elif isinstance(documents, list | tuple | set | frozenset):
            grades = {id_text(document): 1 for document in documents}
        elif not isinstance(documents, Mapping):
            raise DataError(
                f"{place}: query {id_text(query)!r:.60}: expected grades by document; got "
                f'{shown_value(documents)}; right: {{"q1": {{"d7": 2}}}}'
            )
        for document, value in grades.items():
            place_of_grade = f"{place}: query {id_text(query)!r:.60}, document {document!r:.60}"
            name = checked_id(id_text(document), place=place_of_grade)
            grade = read_grade(value, place=place_of_grade, example='{"q1": {"d7": 2}}')
            yield Judgement(place_of_grade, id_text(query), name, grade)
