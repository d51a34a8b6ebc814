"""Queries with their relevant documents, as other tools write them.

A golden set is a list of queries, or an object with the key ``queries``, in memory or in a file of
any of `qwen3nb.datasets.custom.formats`. Other names of our fields are read, too:

    {"query": "whats new", "judgments": [{"doc": "b", "grade": 3}]}
    {"question": "whats new", "relevant_docs": ["b"]}
    {"qid": 7, "text": "whats new", "qrels": {"b": 3}}

A table has a row per judgement, with columns such as ``query``, ``docid`` and ``rating``. A file of
`qwen3nb judge` has a line per grade; the last one of a document counts.

A query without an id is called by its position: ``q1``, ``q2``, …
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from qwen3nb.datasets.custom.formats import Format, PlacedRow, RowRequest
from qwen3nb.datasets.custom.grades import GradeFile, is_grade_file, newest_grades
from qwen3nb.datasets.in_memory import DOCUMENT_ID, GRADE, find_column, required_column
from qwen3nb.datasets.rows import DataError, stated_number

_TEXT = ("query", "question", "text", "query_text")
_ID = ("id", "_id", "query_id", "qid")
_OUR_JUDGEMENTS = ("relevance_grades", "expected", "expected_repos")
_JUDGEMENTS = (
    *_OUR_JUDGEMENTS,
    *("judgments", "judgements", "qrels", "grades", "relevance", "relevances"),
    *("relevant_docs", "relevant_documents", "relevant", "relevant_ids", "relevant_doc_ids"),
    *("expected_docs", "expected_documents", "expected_ids"),
    *("positives", "positive_ids", "gold", "gold_ids", "targets"),
)
_DOCUMENT = (*DOCUMENT_ID, "id", "_id", "name", "path", "url")


def read_golden_set(file: Path, file_format: Format, *, byte_limit: int) -> dict[str, object]:
    """Return the tables of a query file, with our names of fields.

    Args:
        file: the file.
        file_format: its format.
        byte_limit: bytes to read at most.

    Raises:
        DataError: it cannot be read, or holds no list of queries.
    """
    if not file_format.is_table and is_grade_file(file):
        return {"queries": with_our_names(_queries_of_grades(GradeFile(file)))}
    if file_format.is_table:
        rows = file_format.rows(file, RowRequest(byte_limit=byte_limit))
        return {"queries": with_our_names(_queries_of_judgements(rows, file))}
    content = file_format.content(file, byte_limit=byte_limit)
    # A list is that of the queries; an object may also hold models and settings.
    tables: dict[str, object] = {"queries": content}
    if isinstance(content, Mapping):
        tables = dict(content)
    queries = tables.get("queries")
    if not isinstance(queries, list):
        raise DataError(
            f"{file}: expected a list of queries, such as "
            '[{"query": "sort a list", "expected": ["list.sort"]}], or an object with "queries"'
        )
    return tables | {"queries": with_our_names(queries)}


def _queries_of_grades(file: GradeFile) -> list[dict[str, object]]:
    """Return the queries of a file of grades."""
    grades_by_query: dict[str, dict[str, int]] = {}
    for (query, document), grade in newest_grades(file.read()).items():
        grades_by_query.setdefault(query, {})[document] = grade
    queries: list[dict[str, object]] = []
    for text, grades in grades_by_query.items():
        queries.append({"query": text, "relevance_grades": grades})
    return queries


def _queries_of_judgements(rows: Iterator[PlacedRow], file: Path) -> list[dict[str, object]]:
    """Return the queries of a table with a row per judgement, as Quepid and OpenSearch write it.

    Raises:
        DataError: no column of queries, documents or grades; a grade that is no whole number; or
            a document that is judged twice for a query.
    """
    grades_by_query: dict[str, dict[str, int]] = {}
    for place, row in rows:
        columns = list(row)
        # A missing column is a problem of the header, the first line.
        text_column = required_column(columns, _TEXT, place=f"{file}:1")
        columns.remove(text_column)  # a column has one meaning only
        document_column = required_column(columns, _DOCUMENT, place=f"{file}:1")
        grade_column = required_column(columns, GRADE, place=f"{file}:1")
        grades = grades_by_query.setdefault(_cell(row[text_column]), {})
        document = _cell(row[document_column])
        if document in grades:
            raise DataError(f"{place}: {document!r:.60} is judged twice for its query")
        grades[document] = _whole_number(_cell(row[grade_column]), place=place)
    queries: list[dict[str, object]] = []
    for text, grades in grades_by_query.items():
        queries.append({"query": text, "relevance_grades": grades})
    return queries


def _cell(value: object) -> str:
    if value is None:
        return ""
    return str(value)


def _whole_number(text: str, *, place: str) -> int:
    number = stated_number(text.strip())
    if number is None or number != int(number):
        raise DataError(f"{place}: the grade is {text!r:.40}; expected a whole number such as 2")
    return int(number)


def with_our_names(queries: Sequence[object]) -> list[object]:
    """Return queries with the fields ``id``, ``query`` and ``relevance_grades`` or ``expected``.

    What is not understood stays as it is, for the checks that follow.

    >>> with_our_names([{"question": "why", "relevant_docs": ["d"]}])
    [{'id': 'q1', 'query': 'why', 'expected': ['d']}]
    """
    renamed_queries: list[object] = []
    for number, query in enumerate(queries, start=1):
        if isinstance(query, Mapping):
            renamed_queries.append(_query_with_our_names(query, number))
        else:
            renamed_queries.append(query)
    return renamed_queries


def _query_with_our_names(query: Mapping[str, object], number: int) -> dict[str, object]:
    """Return the fields of a query, those that are known under our names, before the others."""
    other_fields = dict(query)
    our_fields: dict[str, object] = {"id": f"q{number}"}  # unless it has an id
    id_column = find_column(other_fields, _ID)
    if id_column is not None:
        our_fields["id"] = _text_of_number(other_fields.pop(id_column))
    text_column = find_column(other_fields, _TEXT)
    if text_column is not None:
        our_fields["query"] = other_fields.pop(text_column)
    # Judgements under our names stay as they are.
    has_our_judgements = any(name in other_fields for name in _OUR_JUDGEMENTS)
    judgements_column = find_column(other_fields, _JUDGEMENTS)
    if judgements_column is not None and not has_our_judgements:
        value = other_fields.pop(judgements_column)
        our_fields |= _judgements_with_our_names(judgements_column, value)
    return our_fields | other_fields


def _judgements_with_our_names(column: str, value: object) -> dict[str, object]:
    """Return grades per document, or a list of relevant documents, under our names."""
    if isinstance(value, Mapping):  # {"doc": 3}
        return {"relevance_grades": dict(value)}
    if isinstance(value, str):  # a single document
        return {"expected": [value]}
    # What is not understood stays as it is, and is refused later.
    if not isinstance(value, list | tuple):
        return {column: value}
    are_objects = all(isinstance(document, Mapping) for document in value)
    if not are_objects:
        return {"expected": [_text_of_number(document) for document in value]}
    # Such as [{"doc": "b", "grade": 3}].
    documents: list[str] = []
    grades: dict[str, object] = {}
    for fields in value:
        document_column = find_column(fields, _DOCUMENT)
        if document_column is None:
            return {column: value}
        document = str(fields[document_column])
        documents.append(document)
        grade_column = find_column(fields, GRADE)
        if grade_column is not None:
            grades[document] = fields[grade_column]
    have_grades = len(grades) == len(documents)
    if have_grades:
        return {"relevance_grades": grades}
    return {"expected": documents}


def _text_of_number(value: object) -> object:
    """Return a whole number as text, and anything else as it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value
