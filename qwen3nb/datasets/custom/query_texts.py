"""Texts of queries by id, from any file: with judgements, which are not checked, or without.

queries.txt       a query per line; or an id, a tab and a query
queries.tsv       the same, or columns by their names, such as those of a log of searches
queries.jsonl     {"_id": "q1", "text": "sort a list"}, and every other form of queries
a folder          of BEIR or MTEB
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qwen3nb.datasets.collection_files import folder_queries, is_collection_folder
from qwen3nb.datasets.custom.formats import (
    DocumentFormat,
    RowRequest,
    SeparatedValues,
    find_format,
    plain_suffix,
    rows_of_file,
)
from qwen3nb.datasets.custom.generated import kind_of, stated_kind
from qwen3nb.datasets.custom.golden_sets import golden_set_of, with_our_names
from qwen3nb.datasets.custom.grades import HIGHEST_GRADE
from qwen3nb.datasets.custom.queries import MOST, read_content
from qwen3nb.datasets.in_memory import QUERY_TEXT, find_column, plain_content
from qwen3nb.datasets.judgement_lists import id_text, read_separated_list
from qwen3nb.datasets.rows import DataError, checked_id, csv_rows, listed, read_text, stated_number
from qwen3nb.utils.format import without_apostrophe

_ID = ("id", "_id", "query_id", "qid", "query-id", "topic")
_QRELS_LINE = re.compile(r"\S+\s+(Q?\d+)\s+\S+\s+-?[\d.]+")
_KEPT = ("id", "query", "category", "cluster", "generated", "relevance_grades", "expected")


@dataclass(frozen=True)
class TextEntries:
    """Queries, whose judgements may be elsewhere."""

    place: Path
    queries: Sequence[Mapping[str, object]]  # ``id`` and ``query``, perhaps others of `_KEPT`
    tables: Mapping[str, object] = field(default_factory=dict)  # models and settings
    documents: Path | Mapping[str, str] | None = None  # if they came with the queries

    @property
    def texts(self) -> list[str]:
        """The texts of the queries, whether they have judgements or not."""
        return [str(entry["query"]) for entry in self.queries]

    @property
    def generated(self) -> dict[str, str]:
        """How each generated query was made, by its text."""
        kinds: dict[str, str] = {}
        for entry in self.queries:
            kind = kind_of(str(entry["id"]), str(stated_kind(entry.get("generated"))))
            if kind:
                kinds[str(entry["query"])] = kind
        return kinds

    @property
    def grades(self) -> dict[tuple[str, str], int]:
        """The grades by text of the query and document.

        Without those that `qwen3nb judge` does not give, such as fractions.
        """
        grades: dict[tuple[str, str], int] = {}
        for entry in self.queries:
            for document, grade in grades_of_query(entry).items():
                if not isinstance(grade, int | float) or isinstance(grade, bool):
                    continue
                if grade in range(HIGHEST_GRADE + 1):
                    grades[str(entry["query"]), document] = int(grade)
        return grades


def grades_of_query(entry: Mapping[str, object]) -> dict[str, object]:
    """Return the grades that a query has in its own file, by document, not checked."""
    grades = entry.get("relevance_grades")
    if isinstance(grades, Mapping):
        return dict(grades)
    expected = entry.get("expected")
    if isinstance(expected, list):
        return dict.fromkeys(map(str, expected), HIGHEST_GRADE)
    return {}


def read_entries(source: object) -> TextEntries:
    """Return the texts of queries by id, from a file, a folder, or in memory.

    Raises:
        DataError: they cannot be read, there are none, or an id is given twice.
    """
    if isinstance(source, Path | str):
        entries = _of_path(Path(source).expanduser())
    else:
        content = plain_content(source, what="queries")
        entries = TextEntries(Path("queries"), _of_content(content, Path("queries")))
    if not entries.queries:
        raise DataError(
            f"{entries.place}: no queries; expected a .txt file with one per line, for example"
        )
    seen: set[str] = set()
    for entry in entries.queries:
        name = checked_id(entry["id"], place=str(entries.place))
        if name in seen:
            raise DataError(f"{entries.place}: two queries have the id {name!r:.60}")
        seen.add(name)
    return entries


def _of_path(file: Path) -> TextEntries:
    if file.is_dir():
        if not is_collection_folder(file):
            raise DataError(f"{file}: expected a file of queries, or a folder of BEIR or MTEB")
        queries = _of_content(folder_queries(file), file)
        return TextEntries(file, queries, documents=file)
    if plain_suffix(file) == ".txt":
        lines = read_text(file, byte_limit=MOST).splitlines()
        rows = [line.strip() for line in lines if line.strip()]
        if rows and all(_QRELS_LINE.fullmatch(row) for row in rows):
            raise DataError(
                f"{file}:1: these are judgements, not queries: {rows[0]!r:.60}; give the texts of "
                "queries, one a line"
            )
        if not _are_judgements(rows):
            return TextEntries(file, _of_lines(rows))
    file_format = find_format(file)
    if isinstance(file_format, SeparatedValues):
        return TextEntries(file, _of_cells(file))
    if file_format is not None and file_format.is_table:
        rows_of_table = [row for _, row in rows_of_file(file, RowRequest(byte_limit=MOST))]
        return TextEntries(file, _distinct(_of_rows(rows_of_table, file)))
    if isinstance(file_format, DocumentFormat):
        content = file_format.content(file, byte_limit=MOST)
        if isinstance(content, Mapping) and "queries" not in content:
            return TextEntries(file, _of_content(content, file))
        golden_set = golden_set_of(content, place=file)
    else:
        golden_set = read_content(file)
    tables = {name: table for name, table in golden_set.tables.items() if name != "queries"}
    queries = _kept(golden_set.tables.get("queries"))
    return TextEntries(file, queries, tables=tables, documents=golden_set.documents)


def _are_judgements(lines: Sequence[str]) -> bool:
    """Return whether lines are of RankLib's form, which names texts of queries in comments."""
    content = [line for line in lines if not line.startswith("#")]
    return bool(content) and all(" qid:" in line.replace("\t", " ") for line in content)


def _of_lines(lines: Sequence[str]) -> list[dict[str, object]]:
    """Return a query per line; an id before it, if every line has one and a tab."""
    with_ids = [line.split("\t") for line in lines]
    have_ids = all(len(cells) == 2 and cells[1].strip() for cells in with_ids)
    if have_ids:
        return [{"id": name.strip(), "query": text.strip()} for name, text in with_ids]
    return _numbered([{"query": line} for line in dict.fromkeys(lines)])


def _of_cells(file: Path) -> list[dict[str, object]]:
    """Return the queries of a CSV or TSV file, with a header or without."""
    rows = [cells for _, cells in csv_rows(file)]
    if not rows:
        return []
    header = [cell.strip() for cell in rows[0]]
    if find_column(header, QUERY_TEXT) is not None:
        named_rows = [dict(zip(header, cells, strict=False)) for cells in rows[1:]]
        return _distinct(_of_rows(named_rows, file))
    if len(header) == 1:
        return _numbered([{"query": cells[0]} for cells in rows])
    is_judged = len(header) in (3, 4) and all(
        stated_number(cells[-1]) is not None for cells in rows
    )
    if is_judged:  # query, document and grade
        names = [judgement.query for judgement in read_separated_list(file).rows]
        return _numbered([{"query": text} for text in dict.fromkeys(names)])
    if len(header) == 2:
        return [{"id": cells[0].strip(), "query": cells[-1].strip()} for cells in rows]
    raise DataError(
        f"{file}:1: no column {QUERY_TEXT[0]!r}; columns: {listed(header)}; right: a header such "
        "as id,query"
    )


def _of_rows(rows: Sequence[Mapping[str, object]], file: Path) -> list[dict[str, object]]:
    queries: list[dict[str, object]] = []
    for number, row in enumerate(rows, start=1):
        text_column = find_column(row, QUERY_TEXT)
        if text_column is None:
            raise DataError(
                f"{file}: row {number}: no column {QUERY_TEXT[0]!r}; columns: {listed(row)}; "
                "right: a header such as id,query"
            )
        text = without_apostrophe(str(row[text_column] or "").strip())
        query: dict[str, object] = {"query": text}
        id_column = find_column([name for name in row if name != text_column], _ID)
        if id_column is not None:
            query["id"] = id_text(row[id_column])
        if row.get("generated"):
            query["generated"] = row["generated"]
        if text:
            queries.append(query)
    return queries


def _distinct(queries: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Return each query once: a list of judgements or a log has a row for each document."""
    first: dict[object, dict[str, object]] = {}
    for query in queries:
        first.setdefault(query.get("id", query["query"]), query)
    return _numbered(list(first.values()))


def _numbered(queries: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    return [{"id": f"q{number}", **query} for number, query in enumerate(queries, start=1)]


def _of_content(content: object, place: Path) -> list[dict[str, object]]:
    """Return the queries of a document, such as parsed JSON."""
    if isinstance(content, Mapping):
        texts = content.get("queries", content)
        has_texts = isinstance(texts, Mapping) and all(
            isinstance(text, str) for text in texts.values()
        )
        if has_texts:
            return [{"id": id_text(name), "query": text} for name, text in texts.items()]
        return _kept(golden_set_of(content, place=place).tables.get("queries"))
    if isinstance(content, list):
        rows = [{"query": row} if isinstance(row, str) else row for row in content]
        return _kept(with_our_names(rows))
    return []


def _kept(queries: object) -> list[dict[str, object]]:
    """Return the fields of queries that are of use here; those without a text are left out."""
    entries: list[dict[str, object]] = []
    for query in queries if isinstance(queries, list) else []:
        if isinstance(query, str):
            query = {"id": f"q{len(entries) + 1}", "query": query}
        text = query.get("query") if isinstance(query, Mapping) else None
        if isinstance(text, str) and text.strip():
            entries.append({name: query[name] for name in _KEPT if name in query})
    return entries
