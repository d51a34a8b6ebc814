"""Queries with their relevant documents, as other tools write them.

A golden set is a list of queries, or an object with the key ``queries``, in memory or in a file of
any of `qwen3nb.datasets.custom.formats`. Other names of our fields are read, too:

    {"query": "whats new", "judgments": [{"doc": "b", "grade": 3}]}
    {"question": "whats new", "relevant_docs": ["b"]}
    {"qid": 7, "text": "whats new", "qrels": {"b": 3}}

These documents of other programs are recognised by their keys; what else they hold is not read:

    OpenSearch       {"judgmentRatings": [{"query": "new", "ratings": [{"docId": "b", …}]}]}
    Quepid           {"queries": [{"query_text": "new", "ratings": {"b": 3}}]}; also RRE's form
    LlamaIndex       {"queries": {"7": "new"}, "relevant_docs": {"7": ["b"]}, "corpus": {"b": …}}
    Ragas            [{"user_input": "new", "reference_context_ids": ["b"]}]

A table has a row per judgement, with columns such as ``query``, ``docid`` and ``rating``; see
`qwen3nb.datasets.judgement_lists`. A file of `qwen3nb judge` has a line per grade; the last one of
a document counts.

A query without an id is called by its position: ``q1``, ``q2``, …

Sources: OpenSearch's documentation of judgments; the views of Quepid's API below ``export``; the
README of the Rated Ranking Evaluator; LlamaIndex's ``EmbeddingQAFinetuneDataset.save_json``; the
``InformationRetrievalEvaluator`` of sentence-transformers; Ragas' ``SingleTurnSample``.
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeGuard

from qwen3nb.datasets.custom.formats import (
    DocumentFormat,
    Format,
    RowRequest,
    SeparatedValues,
    placed_entries,
)
from qwen3nb.datasets.custom.grades import (
    GradeFile,
    GradeLine,
    counted_grades,
    counted_lines,
    graders_of,
    is_grade_file,
)
from qwen3nb.datasets.in_memory import (
    DOCUMENT_ID,
    GRADE,
    JUDGED_DOCUMENT,
    JUDGED_QUERY_ID,
    QUERY_TEXT,
    find_column,
)
from qwen3nb.datasets.judgement_lists import (
    JudgementList,
    are_texts,
    id_text,
    judgements_of_mapping,
    judgements_of_rows,
    read_separated_list,
)
from qwen3nb.datasets.rows import DataError, csv_rows, listed

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # of a category, or a model
_ID = ("id", "_id", "query_id", "qid")
_OUR_JUDGEMENTS = ("relevance_grades", "expected", "expected_repos")
JUDGEMENTS = (
    *_OUR_JUDGEMENTS,
    *("judgments", "judgements", "qrels", "grades", "relevance", "relevances", "ratings"),
    *("relevant_docs", "relevant_documents", "relevant", "relevant_ids", "relevant_doc_ids"),
    *("expected_docs", "expected_documents", "expected_ids"),
    *("positives", "positive_ids", "gold", "gold_ids", "targets"),
    *("reference_context_ids", "reference_contexts", "reference_ids", "reference_doc_ids"),
    *("reference_document_ids", "expected_chunk_ids", "relevant_chunk_ids", "pos_chunk_ids"),
    *("positive_doc_ids", "gold_doc_ids", "ground_truth_ids", "ground_truth_doc_ids"),
    *("ground_truth_sources", "expected_sources", "expected_file_ids", "relevant_chunks"),
)
# Keys of an object under which programs keep the list of queries.
_LISTS = ("queries", "questions", "samples", "examples", "items", "cases", "test_cases", "data")
_OUR_FIELDS = ("id", "query", "category", "cluster", "complete", "generated")
EXAMPLE = '{"query": "sort a list", "relevance_grades": {"list.sort": 3}}'
# Keys of entries by which other programs are recognised: their other keys are not read.
_FOREIGN_KEYS = {
    "query_text": "Quepid's export of a case",
    "ratings": "a list of ratings",
    "placeholders": "a list of the Rated Ranking Evaluator",
    "user_input": "a test set of Ragas",
    "reference_contexts": "a test set of Ragas",
    "queryText": "a query set of OpenSearch",
}


@dataclass(frozen=True)
class GoldenSet:
    """The content of a query file, with our names of fields."""

    tables: Mapping[str, object]  # ``queries``, and perhaps ``models`` and ``settings``
    understood: str  # how it was read, in a few words
    places: Sequence[str] = ()  # where each query is; empty if the file says it
    documents: Mapping[str, str] | None = None  # text by id, if the file has them, too
    foreign: bool = False  # written by another program, with a scale of its own


def golden_set_of_list(judgements: JudgementList, *, place: object) -> GoldenSet:
    """Return the queries of a list of judgements that has their texts.

    Raises:
        DataError: a query has no text, or a document two grades.
    """
    grades_by_query = judgements.by_query()
    places: dict[str, str] = {}
    for row in judgements.rows:
        places.setdefault(row.query, row.place)
    queries: list[dict[str, object]] = []
    for number, (query, grades) in enumerate(grades_by_query.items(), start=1):
        name, text = query, judgements.texts.get(query, "")
        if judgements.by_text:
            name, text = f"q{number}", query
        if not text:
            raise DataError(
                f"{places[query]}: the query {query!r:.60} has no text here; give the texts of "
                f"queries, and this file as the judgements: --queries queries.jsonl "
                f"--judgements {place}"
            )
        entry: dict[str, object] = {"id": name, "query": text, "relevance_grades": grades}
        if query in judgements.generated:
            entry["generated"] = judgements.generated[query]
        queries.append(entry)
    return GoldenSet(
        {"queries": queries},
        judgements.summary,
        places=[places[query] for query in grades_by_query],
        foreign=True,
    )


def read_golden_set(file: Path, file_format: Format, *, byte_limit: int) -> GoldenSet:
    """Return the content of a query file.

    Args:
        file: the file.
        file_format: its format.
        byte_limit: bytes to read at most.

    Raises:
        DataError: it cannot be read, or holds no list of queries.
    """
    request = RowRequest(byte_limit=byte_limit)
    if not file_format.is_table and is_grade_file(file):
        lines = GradeFile(file).read()
        queries = with_our_names(_queries_of_grades(lines))
        return GoldenSet({"queries": queries}, _grades_sentence(lines))
    if isinstance(file_format, SeparatedValues):
        rows = _rows_with_lists(file)
        if rows is not None:
            return golden_set_of(rows, place=file)
        return golden_set_of_list(read_separated_list(file), place=file)
    if file_format.is_table:
        judgements = judgements_of_rows(file_format.rows(file, request), place=file)
        return golden_set_of_list(judgements, place=file)
    if isinstance(file_format, DocumentFormat):
        return golden_set_of(file_format.content(file, byte_limit=byte_limit), place=file)
    placed_rows = list(file_format.rows(file, request))
    content = [row for _, row in placed_rows]
    return golden_set_of(content, place=file, places=[place for place, _ in placed_rows])


def golden_set_of(content: object, *, place: object, places: Sequence[str] = ()) -> GoldenSet:
    """Return the queries of a document, such as parsed JSON.

    Raises:
        DataError: it holds no queries.
    """
    understood = "queries with their judgements"
    if isinstance(content, Mapping):
        content, understood = _plain_content(content, place)
    if isinstance(content, Mapping) and isinstance(content.get("queries"), Mapping):
        return _of_dictionaries(content, place)
    if is_qrels(content):
        rows = list(judgements_of_mapping(content, place=place))
        understood = "a dictionary by query and document"
        judgements = JudgementList(rows, understood, by_text=are_texts(rows))
        return golden_set_of_list(judgements, place=place)
    # A list is that of the queries; an object may also hold models and settings.
    tables: dict[str, object] = {"queries": content}
    if isinstance(content, Mapping):
        tables = {str(name): value for name, value in content.items()}
    queries = tables.get("queries")
    if queries is None:
        queries, understood = _list_under_another_key(tables, understood)
        tables = {}
    if not isinstance(queries, list):
        raise DataError(
            f'{place}: expected a list of queries, such as [{EXAMPLE}], or an object with "queries"'
        )
    if are_flat_judgements(queries):
        placed_rows = placed_entries(place, queries)
        if places:
            placed_rows = zip(places, queries, strict=False)
        return golden_set_of_list(judgements_of_rows(placed_rows, place=place), place=place)
    program = _foreign_program(queries)
    if program:
        queries = [_without_other_keys(query) for query in queries]
        tables, understood = {}, program
    renamed = with_our_names(queries, place=f"{place}: ")
    renamed, unread = _without_unknown_fields(renamed)
    if unread:
        understood += f"; fields not read: {listed(unread)}"
    return GoldenSet(
        tables | {"queries": renamed},
        understood,
        places=places,
        foreign=bool(program) or understood.startswith("OpenSearch"),
    )


def _list_under_another_key(tables: Mapping[str, object], understood: str) -> tuple[object, str]:
    """Return the list of queries that an object has under a usual name, and what says so."""
    for name in _LISTS:
        value = tables.get(name)
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            return value, f"{understood}, under {name!r}"
    return None, understood


def _without_unknown_fields(queries: Sequence[object]) -> tuple[list[object], list[str]]:
    """Return queries without the fields of other programs, and the names of those.

    A field that is spelt like one of ours stays, and so do all fields of a query without
    judgements: they are refused later.
    """
    known = (*_OUR_FIELDS, *_OUR_JUDGEMENTS)
    plain_queries: list[object] = []
    unread: dict[str, None] = {}
    for query in queries:
        is_judged = isinstance(query, Mapping) and any(name in query for name in _OUR_JUDGEMENTS)
        if not isinstance(query, Mapping) or not is_judged:
            plain_queries.append(query)
            continue
        plain: dict[str, object] = {}
        others = [own for own in known if own not in query]
        for name, value in query.items():
            if name in known or get_close_matches(str(name), others, 1, cutoff=0.85):
                plain[name] = value
            else:
                unread[str(name)] = None
        category = plain.get("category")
        if isinstance(category, str) and NAME.fullmatch(category) is None:
            unread["category"] = None
            del plain["category"]
        plain_queries.append(plain)
    return plain_queries, list(unread)


def _rows_with_lists(file: Path) -> list[dict[str, object]] | None:
    """Return the rows of a table with a column of lists of documents, as Ragas writes them.

    None for a table with a row per judgement.
    """
    rows = csv_rows(file)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    list_column = find_column(header, JUDGEMENTS)
    text_column = find_column(header, QUERY_TEXT)
    has_documents = find_column(header, DOCUMENT_ID) is not None
    is_one_of_ours = list_column is not None and find_column([list_column], GRADE) is not None
    if list_column is None or text_column is None or has_documents or is_one_of_ours:
        return None
    entries: list[dict[str, object]] = []
    for number, cells in rows:
        if len(cells) != len(header):
            raise DataError(f"{file}:{number}: {len(cells)} cells, expected {len(header)}")
        row: dict[str, object] = dict(zip(header, cells, strict=True))
        row[list_column] = _listed_ids(str(row[list_column]))
        entries.append(row)
    return entries


def _listed_ids(cell: str) -> list[object]:
    """Return the ids of a cell: a list of JSON or Python, or separated by ``|`` or ``;``.

    >>> _listed_ids("['d1', 'd2']"), _listed_ids("d1; d2"), _listed_ids("d1, d2")
    (['d1', 'd2'], ['d1', 'd2'], ['d1, d2'])
    """
    text = cell.strip()
    if text.startswith("["):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            value = None
        if isinstance(value, list):
            return value
    parts = [part.strip() for part in re.split(r"[|;]", text)]
    return [part for part in parts if part]


def is_qrels(content: object) -> TypeGuard[Mapping[Any, Any]]:
    """Return whether a value is a dictionary of grades by query and document, as of ranx."""
    if not isinstance(content, Mapping) or not content or "queries" in content:
        return False
    return all(
        isinstance(grades, Mapping)
        and bool(grades)
        and not any(isinstance(grade, list | Mapping) for grade in grades.values())
        for grades in content.values()
    )


def _plain_content(content: Mapping[str, object], place: object) -> tuple[object, str]:
    """Return the list of queries of an object of OpenSearch; other objects as they are."""
    hits = content.get("hits")
    if isinstance(hits, Mapping) and isinstance(hits.get("hits"), list):  # an answer to a search
        sources = [hit.get("_source", {}) for hit in hits["hits"] if isinstance(hit, Mapping)]
        if len(sources) != 1:
            raise DataError(f"{place}: expected one judgment list; got {len(sources)}")
        content = sources[0]
    for name in ("judgmentRatings", "judgmentScores"):
        ratings = content.get(name)
        if isinstance(ratings, Mapping):  # of earlier versions
            ratings = [{"query": query, "ratings": rated} for query, rated in ratings.items()]
        if isinstance(ratings, list):
            return ratings, "OpenSearch's judgment list"
    query_set = content.get("querySetQueries")
    if isinstance(query_set, list):
        return query_set, "OpenSearch's query set"
    return content, "queries with their judgements"


def _of_dictionaries(content: Mapping[object, object], place: object) -> GoldenSet:
    """Return the queries of an object with a dictionary of texts by id, as LlamaIndex writes it.

    Raises:
        DataError: there are no judgements.
    """
    texts = content["queries"]
    judgements = content.get("relevant_docs", content.get("qrels"))
    if not isinstance(texts, Mapping) or not isinstance(judgements, Mapping):
        raise DataError(
            f'{place}: expected "relevant_docs" beside "queries", such as {{"queries": '
            '{"q1": "sort a list"}, "relevant_docs": {"q1": ["list.sort"]}}'
        )
    rows = list(judgements_of_mapping(judgements, place=place))
    grades_by_query = JudgementList(rows, "").by_query()
    are_lists = not any(isinstance(documents, Mapping) for documents in judgements.values())
    queries: list[object] = []
    for query, text in texts.items():
        grades = grades_by_query.get(id_text(query), {})
        judged: dict[str, object] = {"relevance_grades": grades}
        if are_lists:
            judged = {"expected": list(grades)}
        queries.append({"id": id_text(query), "query": text, **judged})
    documents = content.get("corpus")
    if not isinstance(documents, Mapping):
        documents = None
    return GoldenSet(
        {"queries": queries},
        "queries, relevant_docs and corpus, as LlamaIndex writes them",
        documents=documents,
        foreign=True,
    )


def are_flat_judgements(queries: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    """Return whether each entry is one judgement, such as a query, a docid and a rating."""
    if not isinstance(queries, list):
        return False
    names: dict[str, None] = {}
    for query in queries:
        if not isinstance(query, Mapping):
            return False
        names |= dict.fromkeys(query)
    if find_column(names, _OUR_JUDGEMENTS) is not None:
        return False
    others = [
        name for name in names if find_column([name], (*QUERY_TEXT, *JUDGED_QUERY_ID)) is None
    ]
    document, grade = find_column(others, DOCUMENT_ID), find_column(others, GRADE)
    if document is None or grade is None:
        return False
    # Here, too, a list or a dictionary under such a name holds all judgements of a query.
    return not any(isinstance(query.get(grade), list | Mapping) for query in queries)


def _foreign_program(queries: Iterable[object]) -> str:
    """Return what wrote a list of queries, by its keys; empty for our own."""
    for query in queries:
        if isinstance(query, Mapping):
            for name, program in _FOREIGN_KEYS.items():
                if name in query:
                    return program
    return ""


def _without_other_keys(query: object) -> object:
    """Return the id, the text and the judgements of an entry of another program."""
    if not isinstance(query, Mapping):
        return query
    placeholders = query.get("placeholders")
    if isinstance(placeholders, Mapping):  # of the Rated Ranking Evaluator
        text = next(iter(placeholders.values()), "")
        grades = _grades_by_gain(query.get("relevant_documents"))
        return {"query": text, "relevance_grades": grades}
    plain: dict[str, object] = {}
    for names in (_ID, QUERY_TEXT, JUDGEMENTS):
        column = find_column(query, names)
        if column is not None:
            plain[column] = query[column]
    if "generated" in query:
        plain["generated"] = query["generated"]
    if find_column(plain, JUDGEMENTS) is None:
        plain["relevance_grades"] = {}  # nobody graded it yet
    return plain


def _grades_by_gain(relevant: object) -> dict[str, object]:
    """Return the grade per document of ``{"2": ["d7"]}``, or of ``{"d7": {"gain": 2}}``."""
    grades: dict[str, object] = {}
    if not isinstance(relevant, Mapping):
        return grades
    for name, value in relevant.items():
        if isinstance(value, Mapping):
            grades[str(name)] = value.get("gain")
        elif isinstance(value, list):
            grades |= {id_text(document): name for document in value}
    return grades


def _grades_sentence(lines: Sequence[GradeLine]) -> str:
    """Say whose grades a file of grades has, and what a document without one counts."""
    graders = graders_of(counted_lines(lines).values())
    return (
        f"grades of qwen3nb judge by {', '.join(graders)}; a document without a grade counts as "
        "not judged"
    )


def _queries_of_grades(lines: Sequence[GradeLine]) -> list[dict[str, object]]:
    """Return the queries of a file of grades; generated ones are marked (see `kind_of`)."""
    grades_by_query: dict[str, dict[str, int]] = {}
    for (text, document), grade in counted_grades(lines).items():
        grades_by_query.setdefault(text, {})[document] = grade
    kinds = {line.query: line.generated for line in lines if line.generated}
    queries: list[dict[str, object]] = []
    for text, grades in grades_by_query.items():
        query: dict[str, object] = {"query": text, "relevance_grades": grades}
        if text in kinds:
            query["generated"] = kinds[text]
        queries.append(query)
    return queries


def with_our_names(queries: Sequence[object], *, place: str = "") -> list[object]:
    """Return queries with the fields ``id``, ``query`` and ``relevance_grades`` or ``expected``.

    What is not understood stays as it is, for the checks that follow. Errors begin with ``place``.

    >>> with_our_names([{"question": "why", "relevant_docs": ["d"]}])
    [{'id': 'q1', 'query': 'why', 'expected': ['d']}]
    """
    renamed_queries: list[object] = []
    for number, query in enumerate(queries, start=1):
        if isinstance(query, Mapping):
            renamed_queries.append(_query_with_our_names(query, number, place))
        else:
            renamed_queries.append(query)
    return renamed_queries


def _query_with_our_names(
    query: Mapping[str, object], number: int, place: str
) -> dict[str, object]:
    """Return the fields of a query, those that are known under our names, before the others."""
    other_fields = dict(query)
    our_fields: dict[str, object] = {"id": f"q{number}"}  # unless it has an id
    id_column = find_column(other_fields, _ID)
    if id_column is not None:
        our_fields["id"] = _text_of_number(other_fields.pop(id_column))
    text_column = find_column(other_fields, QUERY_TEXT)
    if text_column is not None:
        our_fields["query"] = other_fields.pop(text_column)
    # Judgements under our names stay as they are.
    has_our_judgements = any(name in other_fields for name in _OUR_JUDGEMENTS)
    judgements_column = find_column(other_fields, JUDGEMENTS)
    if judgements_column is not None and not has_our_judgements:
        value = other_fields.pop(judgements_column)
        place_of_query = f"{place}query {number}"
        our_fields |= _judgements_with_our_names(judgements_column, value, place=place_of_query)
    for name in _OUR_JUDGEMENTS:
        if name in other_fields:
            our_fields[name] = _with_ids_as_texts(other_fields.pop(name))
    return our_fields | other_fields


def _with_ids_as_texts(judgements: object) -> object:
    """Return our own judgements, in which YAML and Python may have whole numbers as ids."""
    if isinstance(judgements, Mapping):
        return {_text_of_number(document): grade for document, grade in judgements.items()}
    if isinstance(judgements, list):
        return [_text_of_number(document) for document in judgements]
    return judgements


def _judgements_with_our_names(column: str, value: object, *, place: str) -> dict[str, object]:
    """Return grades per document, or a list of relevant documents, under our names.

    Raises:
        DataError: a document has two grades.
    """
    if isinstance(value, Mapping):  # {"doc": 3}
        return {"relevance_grades": _with_text_ids(value)}
    if isinstance(value, str):  # a single document
        return {"expected": [value]}
    # What is not understood stays as it is, and is refused later.
    if not isinstance(value, list | tuple):
        return {column: value}
    are_objects = all(isinstance(document, Mapping) for document in value)
    if not are_objects:
        return {"expected": _distinct([_text_of_number(document) for document in value])}
    # Such as [{"doc": "b", "grade": 3}].
    documents: list[str] = []
    grades: dict[str, object] = {}
    for fields in value:
        document_column = find_column(fields, JUDGED_DOCUMENT)
        if document_column is None:
            return {"relevance_grades": value}
        document = id_text(fields[document_column])
        documents.append(document)
        grade_column = find_column(fields, GRADE)
        if grade_column is None:
            continue
        grade = fields[grade_column]
        if grades.setdefault(document, grade) != grade:
            raise DataError(
                f"{place}: {document!r:.60} is judged twice: {grades[document]!r:.20}, and then "
                f"{grade!r:.20}; keep one of the two"
            )
    have_grades = len(grades) == len(set(documents))
    if have_grades:
        return {"relevance_grades": _with_text_ids(grades)}
    return {"expected": list(dict.fromkeys(documents))}


def _distinct(values: Sequence[object]) -> list[object]:
    """Return each value once; values need not be hashable, as they are not checked yet."""
    distinct: list[object] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return distinct


def _with_text_ids(grades: Mapping[Any, object]) -> dict[object, object]:
    """Return the grades that are there; ids may be whole numbers."""
    named: dict[object, object] = {}
    for document, grade in grades.items():
        if grade is not None:
            named[_text_of_number(document)] = grade
    return named


def _text_of_number(value: object) -> object:
    """Return a whole number as text, and anything else as it is."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and value == value and float(value).is_integer():  # type: ignore[arg-type]
        return id_text(value)
    return value
