"""Queries with their relevant documents, as other tools write them.

A golden set is a list of queries in JSON, JSON Lines, YAML or memory, or an object with the key
``queries``. Other names of our fields are read, too:

    {"query": "whats new", "judgments": [{"doc": "b", "grade": 3}]}
    {"question": "whats new", "relevant_docs": ["b"]}
    {"qid": 7, "text": "whats new", "qrels": {"b": 3}}

A CSV or TSV has a row per judgement, with columns such as ``query``, ``docid`` and ``rating``.

A query without an id is called by its position: ``q1``, ``q2``, …
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qwen3nb.datasets.in_memory import DOCUMENT_ID, GRADE, find_column, required_column
from qwen3nb.datasets.rows import (
    DataError,
    csv_rows,
    json_rows,
    read_settings,
    read_text,
    stated_number,
)
from qwen3nb.utils.strict_json import parse_json

LINES = (".jsonl", ".ndjson")
YAML = (".yaml", ".yml")
JUDGEMENTS = (".csv", ".tsv")
FORMATS = (".toml", ".json", *LINES, *YAML, *JUDGEMENTS)
_TEXT = ("query", "question", "text", "query_text")
_ID = ("id", "_id", "query_id", "qid")
_JUDGED = (
    *("relevance_grades", "expected", "expected_repos", "judgments", "judgements", "qrels"),
    *("grades", "relevance", "relevances", "relevant_docs", "relevant_documents", "relevant"),
    *("relevant_ids", "relevant_doc_ids", "expected_docs", "expected_documents", "expected_ids"),
    *("positives", "positive_ids", "gold", "gold_ids", "targets"),
)
_DOCUMENT = (*DOCUMENT_ID, "id", "_id", "name", "path", "url")


def read_golden_set(file: Path, *, most: int) -> dict[str, Any]:
    """Return the tables of a file in JSON, JSON Lines, YAML, CSV or TSV, with our names of fields.

    Args:
        file: its name ends in one of `FORMATS` but ``.toml``.
        most: bytes to read at most.

    Raises:
        DataError: it cannot be read, or holds no list of queries.
    """
    suffix = Path(file.name.removesuffix(".gz")).suffix.lower()
    content: Any
    if suffix in JUDGEMENTS:
        content = _judgement_list(file, most=most)
    elif suffix in LINES:
        content = [row for _, row in json_rows(file, most=most)]
    elif suffix in YAML:
        content = read_settings(file)
    else:
        try:
            content = parse_json(read_text(file, most=most))
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{file}: not JSON ({error}); expected a list of queries") from None
    tables = dict(content) if isinstance(content, Mapping) else {"queries": content}
    queries = tables.get("queries")
    if not isinstance(queries, list):
        raise DataError(
            f"{file}: expected a list of queries, such as "
            '[{"query": "sort a list", "expected": ["list.sort"]}], or an object with "queries"'
        )
    return tables | {"queries": with_our_names(queries)}


def _judgement_list(file: Path, *, most: int) -> list[dict[str, Any]]:
    """Return the queries of a table with a row per judgement, as Quepid and OpenSearch write it.

    Raises:
        DataError: no column of queries, documents or grades; a grade that is no whole number; or
            a document that is judged twice for a query.
    """
    rows = csv_rows(file, most=most)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    text_column = required_column(header, _TEXT, where=f"{file}:1")
    others = [name for name in header if name != text_column]
    document_column = required_column(others, _DOCUMENT, where=f"{file}:1")
    grade_column = required_column(others, GRADE, where=f"{file}:1")
    grades_of: dict[str, dict[str, int]] = {}
    for number, cells in rows:
        if len(cells) != len(header):
            raise DataError(f"{file}:{number}: {len(cells)} cells, expected {len(header)}")
        row = dict(zip(header, cells, strict=True))
        grades = grades_of.setdefault(row[text_column], {})
        document = row[document_column]
        if document in grades:
            raise DataError(f"{file}:{number}: {document!r:.60} is judged twice for its query")
        grades[document] = _whole_number(row[grade_column], where=f"{file}:{number}")
    return [{"query": text, "relevance_grades": grades} for text, grades in grades_of.items()]


def _whole_number(text: str, *, where: str) -> int:
    number = stated_number(text.strip())
    if number is None or number != int(number):
        raise DataError(f"{where}: the grade is {text!r:.40}; expected a whole number such as 2")
    return int(number)


def with_our_names(queries: list[Any]) -> list[Any]:
    """Return queries with the fields ``id``, ``query`` and ``relevance_grades`` or ``expected``.

    What is not understood stays as it is, for the checks that follow.

    >>> with_our_names([{"question": "why", "relevant_docs": ["d"]}])
    [{'id': 'q1', 'query': 'why', 'expected': ['d']}]
    """
    return [
        _with_our_names(query, number) if isinstance(query, Mapping) else query
        for number, query in enumerate(queries, start=1)
    ]


def _with_our_names(query: Mapping[str, Any], number: int) -> dict[str, Any]:
    row = dict(query)
    id_column = find_column(row, _ID)
    name = f"q{number}" if id_column is None else row.pop(id_column)
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    renamed: dict[str, Any] = {"id": name}
    text_column = find_column(row, _TEXT)
    if text_column is not None:
        renamed["query"] = row.pop(text_column)
    if not {"relevance_grades", "expected", "expected_repos"} & {*row}:
        judged_column = find_column(row, _JUDGED)
        if judged_column is not None:
            renamed |= _judged(judged_column, row.pop(judged_column))
    return renamed | row


def _judged(column: str, value: Any) -> dict[str, Any]:
    """Return grades per document, or a list of relevant documents, under our names."""
    if isinstance(value, Mapping):
        return {"relevance_grades": dict(value)}
    documents = [value] if isinstance(value, str) else value
    if not isinstance(documents, list | tuple):
        return {column: value}
    if not all(isinstance(document, Mapping) for document in documents):
        return {"expected": [str(d) if type(d) is int else d for d in documents]}
    grades: dict[str, Any] = {}
    names: list[str] = []
    for document in documents:
        name, grade = find_column(document, _DOCUMENT), find_column(document, GRADE)
        if name is None:
            return {column: value}
        names.append(str(document[name]))
        if grade is not None:
            grades[names[-1]] = document[grade]
    return {"relevance_grades": grades} if len(grades) == len(names) else {"expected": names}
