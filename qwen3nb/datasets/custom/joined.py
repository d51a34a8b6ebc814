"""Queries and their judgements in two files: texts by id, and a list of judgements."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from qwen3nb.datasets.custom.formats import (
    DocumentFormat,
    RowRequest,
    SeparatedValues,
    find_format,
    placed_entries,
    plain_suffix,
)
from qwen3nb.datasets.custom.golden_sets import (
    GoldenSet,
    are_flat_judgements,
    golden_set_of,
    is_qrels,
)
from qwen3nb.datasets.custom.grades import is_grade_file
from qwen3nb.datasets.custom.queries import MOST, QueryFile, checked_queries, read_content
from qwen3nb.datasets.custom.query_texts import TextEntries, grades_of_query, read_entries
from qwen3nb.datasets.in_memory import DOCUMENT_ID, find_column, plain_content
from qwen3nb.datasets.judgement_lists import (
    JudgementList,
    judgements_of_mapping,
    judgements_of_rows,
    read_separated_list,
    read_text_list,
)
from qwen3nb.datasets.judgements import UNKNOWN, some_ids
from qwen3nb.datasets.rows import DataError


def join_judgements(queries: object, judgements: object) -> QueryFile:
    """Return queries with the grades of a list of judgements.

    Judgements name queries by id; by text, if no name is an id and some are texts. Grades that the
    queries have stay; for a document with two, that of the list counts.

    Args:
        queries: texts by id: a file of any format, a folder of BEIR or MTEB, or the same in memory.
        judgements: a file of `qwen3nb.datasets.judgement_lists`, rows in JSON or another table, or
            the same in memory, such as ``{"q1": {"d7": 2}}``.

    Raises:
        DataError: one of them cannot be read, or no judged query is among the queries.
    """
    entries = read_entries(queries)
    names = [str(entry["id"]) for entry in entries.queries]
    grades_list, place = read_judgements(judgements, names)
    grades_by_query = grades_list.by_query()
    known = set(names)
    key = "id"
    if known.isdisjoint(grades_by_query):
        known, key = {str(entry["query"]) for entry in entries.queries}, "query"
    unknown = [query for query in grades_by_query if query not in known]
    if len(unknown) == len(grades_by_query):
        raise DataError(
            f"{place}: no judged query is among the {len(names):,} queries of {entries.place}: "
            f"{some_ids(grades_by_query)}; ids of queries look like {some_ids(names)}"
        )
    joined: list[dict[str, object]] = []
    added = 0
    for entry in entries.queries:
        grades: dict[str, object] = dict(grades_by_query.get(str(entry[key]), {}))
        grades_before = grades_of_query(entry)
        added += len(grades_before.keys() - grades.keys())
        fields = {name: value for name, value in entry.items() if name != "expected"}
        joined.append({**fields, "relevance_grades": grades_before | grades})
    understood = _understood(entries, grades_list, unknown)
    if added:
        understood += f"; {added:,} more grades of {entries.place.name}"
    content = GoldenSet({**entries.tables, "queries": joined}, understood, foreign=True)
    return checked_queries(Path(str(place)), content, documents=entries.documents)


def _understood(entries: TextEntries, judgements: JudgementList, unknown: list[str]) -> str:
    understood = f"texts of {entries.place.name}; judgements: {judgements.summary}"
    if unknown:
        understood += f"; {UNKNOWN}: {len(unknown):,} ({some_ids(unknown)})"
    return understood


def read_judgements(source: object, queries: Collection[str]) -> tuple[JudgementList, object]:
    """Return the judgements of a file, or of data in memory, and the place of errors.

    Args:
        source: as for `join_judgements`.
        queries: the ids of the queries.

    Raises:
        DataError: they cannot be read.
    """
    query_ids = set(queries)
    if isinstance(source, Path | str):
        file = Path(source).expanduser()
        return _read_file(file, query_ids), file
    place = "judgements"
    # Lists by query are no table of columns, which would have names such as "doc_id".
    is_by_query = isinstance(source, Mapping) and find_column(source, DOCUMENT_ID) is None
    if isinstance(source, Mapping) and is_by_query:
        return _of_content(dict(source), place), place
    content = plain_content(_as_dictionaries(source), what=place)
    return _of_content(content, place), place


def _as_dictionaries(source: object) -> object:
    """Return named tuples, such as the Qrel of ir_measures, as dictionaries."""
    if isinstance(source, list | tuple) and source and hasattr(source[0], "_asdict"):
        return [row._asdict() for row in source]
    return source


def _read_file(file: Path, queries: Collection[str]) -> JudgementList:
    if not file.is_file():
        raise DataError(f"{file}: no such file, or not a regular file")
    if plain_suffix(file) == ".toml":
        return _of_golden_set(read_content(file), file)
    file_format = find_format(file)
    if file_format is None:
        return read_text_list(file, queries)
    if isinstance(file_format, SeparatedValues):
        return read_separated_list(file, queries)
    if isinstance(file_format, DocumentFormat):
        return _of_content(file_format.content(file, byte_limit=MOST), file)
    if not file_format.is_table and is_grade_file(file):
        return _of_golden_set(read_content(file), file)
    rows = list(file_format.rows(file, RowRequest(byte_limit=MOST)))
    content = [row for _, row in rows]
    if not file_format.is_table and not are_flat_judgements(content):
        return _of_golden_set(golden_set_of(content, place=file), file)
    return judgements_of_rows(rows, place=file)


def _is_lists(content: object) -> TypeGuard[Mapping[Any, Any]]:
    """Return whether a value has a list of relevant documents by query."""
    if not isinstance(content, Mapping) or not content or "queries" in content:
        return False
    for documents in content.values():
        if not isinstance(documents, list | tuple | set | frozenset):
            return False
        if any(isinstance(document, list | Mapping) for document in documents):
            return False
    return True


def _of_golden_set(content: GoldenSet, place: object) -> JudgementList:
    """Return the judgements of queries that are named by their texts."""
    grades_by_text: dict[str, object] = {}
    queries = content.tables.get("queries")
    for query in queries if isinstance(queries, list) else []:
        if isinstance(query, Mapping) and "query" in query:
            grades = query.get("relevance_grades", query.get("expected"))
            grades_by_text[str(query["query"])] = grades
    judgements = list(judgements_of_mapping(grades_by_text, place=place))
    return JudgementList(judgements, content.understood, by_text=True)


def _of_content(content: object, place: object) -> JudgementList:
    """Return the judgements of a document, such as parsed JSON."""
    if is_qrels(content) or _is_lists(content):
        judgements = list(judgements_of_mapping(content, place=place))
        return JudgementList(judgements, "a dictionary by query and document")
    if isinstance(content, Mapping) or not are_flat_judgements(content):
        return _of_golden_set(golden_set_of(content, place=place), place)
    return judgements_of_rows(placed_entries(place, content), place=place)
