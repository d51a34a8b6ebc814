"""Data in memory: rows of data frames and lists of dictionaries, and the columns meant in them.

Every function that takes data accepts these forms, and `table_rows` reads them all:

    a list of dictionaries      or any iterable of mappings, such as a ``datasets.Dataset``
    a data frame                of pandas or polars, or a table of pyarrow
    a dictionary of columns     lists of equal length by name

Missing values (None, NaN, NaT) are left out of a row, also inside of nested values: a column of
structures lists the keys of all rows in each of them.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import Any
from uuid import UUID

from qwen3nb.datasets.rows import DataError, listed, shown_value

Row = dict[str, Any]
# Names of columns by their meaning, as published data sets spell them. The first is ours.
ID = ("id", "_id", "qid", "query_id", "doc_id", "docid", "docno", "pid", "corpus_id", "document_id")
TEXT = ("text", "query", "question", "document", "passage", "contents", "content", "body")
TITLE = ("title",)
QUERY_ID = ("query-id", "qid", "query")
# In lists of judgements, "query" is the text of a query.
JUDGED_QUERY_ID = ("query-id", "qid", "q_id", "topic", "topic_id", "topicid", "question_id")
QUERY_TEXT = (
    *("query", "question", "text", "query_text", "user_input"),
    *("keywords", "keyword", "search_term", "search_query", "query_string", "q"),
)
DOCUMENT_ID = (
    *("corpus-id", "doc_id", "docid", "docno", "document_id", "document", "doc", "pid"),
    *("passage_id", "doc_no", "did"),
)
JUDGED_DOCUMENT = (*DOCUMENT_ID, "id", "_id", "name", "path", "url")
GRADE = (
    *("score", "relevance", "rel", "grade", "label", "judgment", "judgement", "rating"),
    *("relevance_score", "relevance_grade", "qrel", "gain"),
)
FIRST = ("sentence1", "sentence_a", "text1", "text_a", "word1", "s1", "first")
SECOND = ("sentence2", "sentence_b", "text2", "text_b", "word2", "s2", "second")
GOLD = (
    *("score", "gold", "similarity", "similarity_score", "relatedness_score", "human (mean)"),
    *("human_mean", "simlex999", "rating", "label", "mean", "cosine"),
)
_METHODS_OF_TABLES = ("iterrows", "to_dicts", "to_pylist", "column_names", "fetchdf", "collect")
_MISSING = ("NAType", "NaTType")  # classes of pandas without a public name
_PUNCTUATION = re.compile(r"[\W_]+")


def table_rows(data: object, *, what: str) -> list[Row]:
    """Return the rows of a table in memory as dictionaries, without missing values.

    >>> table_rows({"id": ["a", "b"], "text": ["sort", None]}, what="documents")
    [{'id': 'a', 'text': 'sort'}, {'id': 'b'}]

    Args:
        data: a table, as above.
        what: what the rows are, for messages.

    Raises:
        DataError: ``data`` is none of these.
    """
    rows: list[Row] = []
    for number, row in enumerate(_plain_rows(data, what), start=1):
        if not isinstance(row, Mapping):
            raise DataError(
                f"{what}:{number}: expected a file, a data frame or a list of dictionaries; got "
                f"{type(row).__name__} {shown_value(row)}"
            )
        rows.append(_without_missing(row))
    return rows


def plain_content(data: object, *, what: str) -> object:
    """Return data in memory as JSON would hold them: rows, or dictionaries.

    Args:
        data: a table, a dictionary such as qrels, or an object with the attributes ``queries`` and
            ``relevant_docs``, such as LlamaIndex's EmbeddingQAFinetuneDataset.
        what: what they are, for messages.

    Raises:
        DataError: they are none of these.
    """
    parts = {name: getattr(data, name, None) for name in ("queries", "corpus", "relevant_docs")}
    if parts["queries"] is not None and parts["relevant_docs"] is not None:
        return {name: part for name, part in parts.items() if part is not None}
    if isinstance(data, Mapping) and not is_table(data):
        return dict(data)
    return table_rows(data, what=what)


def is_table(data: object) -> bool:
    """Return whether data are rows of named columns rather than a file, a text or plain values.

    >>> is_table([{"id": "a"}]), is_table(["a"]), is_table({"a": "text"}), is_table("file.csv")
    (True, False, False, False)
    """
    if isinstance(data, Mapping):
        return bool(data) and all(_is_list(values) for values in data.values())
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(row, Mapping) for row in data)
    if hasattr(data, "metadata"):  # a task of MTEB
        return False
    return any(hasattr(data, method) for method in _METHODS_OF_TABLES)


def find_column(columns: Iterable[str], names: Sequence[str]) -> str | None:
    """Return the column with the first of ``names``, whatever its case, blanks and hyphens.

    >>> find_column(["Word 1", "Word 2", "Human (mean)"], GOLD)
    'Human (mean)'
    """
    # "Human (mean)" and "human_mean" are the same by their letters: humanmean.
    column_by_letters: dict[str, str] = {}
    for column in columns:
        column_by_letters.setdefault(_only_letters(column), column)
    for name in names:
        column_of_name = column_by_letters.get(_only_letters(name))
        if column_of_name is not None:
            return column_of_name
    return None


def required_column(columns: Iterable[str], names: Sequence[str], *, place: str) -> str:
    """Return the column of `find_column`, or raise DataError with the expected names."""
    present = list(columns)
    column = find_column(present, names)
    if column is None:
        raise DataError(f"{place}: no column {names[0]!r}; columns: {listed(present)}")
    return column


def texts_by_id(data: object, *, what: str) -> dict[str, object]:
    """Return the text of each row by its id, with the title before it, if there is one.

    Without a column of ids, the position of a row is its id.

    Raises:
        DataError: no column of texts; an id is missing or given twice.
    """
    rows = table_rows(data, what=what)
    columns = _columns(rows)
    id_column = find_column(columns, ID)
    title_column = find_column(columns, TITLE)
    other_columns = [name for name in columns if name != id_column]
    text_column = find_column(other_columns, TEXT)
    if text_column is None:  # the id may also be the text, or the title
        text_column = required_column(columns, (*TEXT, *TITLE), place=what)
    texts: dict[str, object] = {}
    for number, row in enumerate(rows, start=1):
        name = str(number - 1)  # its position, unless there is a column of ids
        if id_column is not None:
            if id_column not in row:
                raise DataError(f"{what}:{number}: no value in the column {id_column!r} of ids")
            name = str(row[id_column])
        if name in texts:
            raise DataError(f"{what}:{number}: duplicate id {name!r:.60}")
        text = row.get(text_column, "")
        has_title = title_column is not None and title_column != text_column
        if has_title and isinstance(text, str):
            title = row.get(str(title_column), "")
            text = f"{title} {text}".strip()
        texts[name] = text
    return texts


def grades_by_query(data: object, *, what: str) -> dict[str, dict[str, object]]:
    """Return the grade per query and document of rows with a query, a document and a grade.

    Without a column of grades, each row is a relevant document of grade 1.

    Raises:
        DataError: a column, or a value of one, is missing.
    """
    rows = table_rows(data, what=what)
    columns = _columns(rows)
    query_column = required_column(columns, QUERY_ID, place=what)
    document_column = required_column(columns, DOCUMENT_ID, place=what)
    grade_column = find_column(columns, GRADE)
    required_values = [query_column, document_column]
    if grade_column is not None:
        required_values.append(grade_column)
    grades: dict[str, dict[str, object]] = {}
    for number, row in enumerate(rows, start=1):
        for column in required_values:
            if column not in row:
                raise DataError(f"{what}:{number}: no value in the column {column!r}")
        query = str(row[query_column])
        document = str(row[document_column])
        grade: object = 1  # without grades, each row is a relevant document
        if grade_column is not None:
            grade = row[grade_column]
        grades.setdefault(query, {})[document] = grade
    return grades


def _columns(rows: Iterable[Row]) -> list[str]:
    """Return the names of all columns, in the order of their first value."""
    columns: dict[str, None] = {}
    for row in rows:
        for name in row:
            columns[str(name)] = None
    return list(columns)


@lru_cache(maxsize=1024, typed=True)  # the names of columns come back with each row
def _only_letters(name: str) -> str:
    return _PUNCTUATION.sub("", str(name)).casefold()


def _is_list(values: object) -> bool:
    return isinstance(values, list | tuple) or hasattr(values, "tolist")


def _plain_rows(data: Any, what: str) -> Iterable[object]:
    """Return the rows of a table, with the values of its library."""
    if hasattr(data, "fetchdf"):  # a relation of DuckDB
        data = data.fetchdf()
    is_lazy_frame = hasattr(data, "collect") and not hasattr(data, "to_dicts")
    if is_lazy_frame:  # of polars
        data = data.collect()
    if hasattr(data, "to_dicts"):  # polars
        return list(data.to_dicts())
    if hasattr(data, "to_pylist"):  # pyarrow
        return list(data.to_pylist())
    if hasattr(data, "iterrows"):  # pandas
        return list(data.to_dict("records"))
    if isinstance(data, Mapping) and is_table(data):
        return _rows_of_columns(data, what)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return data
    return [data]


def _rows_of_columns(columns: Mapping[str, Sequence[object]], what: str) -> list[object]:
    """Return the rows of columns by name."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"{what}: expected columns of equal length; got {sorted(lengths)}")
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _without_missing(row: Mapping[object, object]) -> Row:
    """Return the values of a mapping that are there, as types of Python."""
    present: Row = {}
    for name, value in row.items():
        plain = _plain(value)
        if plain is not None:
            present[str(name)] = plain
    return present


def _plain(value: object) -> object:
    """Return a value as a type of Python; None for a missing one."""
    if isinstance(value, Mapping):
        return _without_missing(value)
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        return _plain(value.tolist())
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    if type(value).__name__ in _MISSING:  # NA and NaT of pandas
        return None
    if isinstance(value, date):
        return value.isoformat()
    return value
