"""Files of test collections as they are published: folders of BEIR and MTEB, MS MARCO dev.

BEIR folder      corpus.jsonl, queries.jsonl, qrels/test.tsv (or .jsonl, .txt; or .gz)
MTEB folder      corpus/, queries/ and qrels/, default/ or data/, each with test-….parquet or .jsonl
CQADupStack      a folder of BEIR folders: one collection each, averaged as a group
MS MARCO dev     queries.dev.small.tsv, qrels.dev.small.tsv, top1000.dev or collection.tsv
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb.datasets.custom.formats import RowRequest, plain_suffix, rows_of_file
from qwen3nb.datasets.in_memory import GRADE, ID, TEXT, find_column, required_column
from qwen3nb.datasets.judgement_lists import (
    Judgement,
    JudgementList,
    id_text,
    judgements_of_rows,
    read_text_list,
)
from qwen3nb.datasets.judgements import CONFLICTING
from qwen3nb.datasets.rows import (
    DataError,
    Fields,
    checked_id,
    checked_rows,
    json_rows,
    listed,
    numbered_json_rows,
    numbered_tsv_rows,
    required,
    shown_value,
    variant,
)
from qwen3nb.datasets.trec import load_run

_BEIR_FILE = re.compile(r"(corpus|queries)\.jsonl|qrels")
_ARCHIVE = re.compile(r"\.(zip|tar|tgz)(\.\w+)?$", re.IGNORECASE)
_QRELS_FIELDS: Fields = {
    "query-id": (str, int),
    "corpus-id": (str, int),
    "score": (int, float),
}
_ANY_SPLIT = ""
_QRELS_FOLDERS = ("qrels", "default", "data")  # of MTEB
_ID = (str, int)  # types of an id in JSON
_SUFFIXES = (".parquet", ".jsonl", ".json", ".csv", ".tsv")


@dataclass(frozen=True)
class CollectionFiles:
    """What the files of a collection hold."""

    documents: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, float]]
    candidates: dict[str, list[str]] | None  # documents to rerank per query, if there are any
    ordered: bool  # whether the candidates are sorted, best first
    counts: dict[str, int]  # irregularities found while reading
    understood: str = ""  # how the judgements were read, in a few words


def is_beir(folder: Path) -> bool:
    """Return whether a folder is that of a BEIR collection."""
    return variant(folder, "corpus.jsonl") is not None


def is_msmarco(folder: Path) -> bool:
    """Return whether a folder is the MS MARCO dev set."""
    return variant(folder, "queries.dev.small.tsv", "queries.dev.tsv") is not None


def read_beir(folder: Path, split: str) -> CollectionFiles:
    """Read a BEIR folder with the qrels of a split.

    Raises:
        DataError: a file is missing, or a row is malformed.
    """
    # Each file may also be compressed.
    corpus_file = required(folder, "corpus.jsonl")
    queries_file = required(folder, "queries.jsonl")
    qrels_file = variant(folder, f"qrels/{split}.txt", f"qrels/{split}.csv")
    if qrels_file is None:
        qrels_file = required(folder, f"qrels/{split}.tsv", f"qrels/{split}.jsonl")
    documents = _values_by_id(corpus_file, _titled_texts(corpus_file))
    queries = _untitled_texts(queries_file)
    qrels, counts, understood = _read_qrels(qrels_file, queries)
    candidates = None
    candidates_file = variant(folder, f"top_ranked/{split}.jsonl")
    if candidates_file is not None:
        rows = numbered_json_rows(candidates_file, {"query-id": str, "corpus-ids": list})
        candidates = _values_by_id(candidates_file, rows)
    return CollectionFiles(
        documents,
        queries,
        qrels,
        candidates,
        ordered=False,
        counts=counts,
        understood=f"a folder of BEIR, {qrels_file.name}: {understood}",
    )


def is_mteb(folder: Path) -> bool:
    """Return whether a folder has the files of a data set of MTEB for retrieval, not of BEIR."""
    has_parts = all((folder / part).is_dir() for part in ("corpus", "queries"))
    return has_parts and not is_beir(folder)


def is_collection_folder(folder: Path) -> bool:
    """Return whether a folder is that of one collection of BEIR or MTEB."""
    return is_beir(folder) or is_mteb(folder)


def read_collection_folder(folder: Path, split: str = "") -> CollectionFiles:
    """Read a folder of BEIR or MTEB with the qrels of a split; by default as `split_of` says.

    Raises:
        DataError: a file is missing, or a row is malformed.
    """
    split = split or split_of(folder)
    if is_mteb(folder):
        return _read_mteb(folder, split)
    return read_beir(folder, split)


def folder_queries(folder: Path) -> dict[str, str]:
    """Return all queries of a folder of BEIR or MTEB, judged or not.

    Raises:
        DataError: the file is missing, or a row is malformed.
    """
    if is_mteb(folder):
        return _texts_of_files(_part_files(folder / "queries", _ANY_SPLIT), with_title=False)
    return _untitled_texts(required(folder, "queries.jsonl"))


def folder_documents(folder: Path) -> dict[str, str]:
    """Return the documents of a folder of BEIR or MTEB, each after its title.

    Raises:
        DataError: the file is missing, or a row is malformed.
    """
    if is_mteb(folder):
        return _texts_of_files(_part_files(folder / "corpus", _ANY_SPLIT), with_title=True)
    corpus_file = required(folder, "corpus.jsonl")
    return _values_by_id(corpus_file, _titled_texts(corpus_file))


def _untitled_texts(file: Path) -> dict[str, str]:
    """Return the text by id of BEIR's queries.jsonl."""
    rows = checked_rows(_with_ids(file), {"_id": _ID, "text": str}, file)
    return _values_by_id(file, rows)


def _read_mteb(folder: Path, split: str) -> CollectionFiles:
    """Read a folder of MTEB."""
    documents = _texts_of_files(_part_files(folder / "corpus", split), with_title=True)
    queries = _texts_of_files(_part_files(folder / "queries", split), with_title=False)
    qrels_files = _part_files(_qrels_folder(folder), split)
    rows: list[tuple[str, Mapping[str, object]]] = []
    for file in qrels_files:
        rows.extend(rows_of_file(file, RowRequest()))
    has_grades = any(find_column(row, GRADE) is not None for _, row in rows[:1])
    if not has_grades:  # each row is a relevant document
        rows = [(place, {**row, GRADE[0]: 1}) for place, row in rows]
    judgements = judgements_of_rows(rows, place=qrels_files[0])
    qrels, conflict_count = _last_grades(judgements.rows)
    return CollectionFiles(
        documents,
        queries,
        qrels,
        None,
        ordered=False,
        counts={CONFLICTING: conflict_count},
        understood=f"a folder of MTEB, split {split}: {judgements.understood}",
    )


def _qrels_folder(folder: Path) -> Path:
    for name in _QRELS_FOLDERS:
        if (folder / name).is_dir():
            return folder / name
    raise DataError(f"{folder}: no qrels/, default/ or data/ with the judgements")


def _part_files(folder: Path, split: str) -> list[Path]:
    """Return the files of a part: those of the split, or all if no name has it."""
    files = sorted(file for file in folder.glob("*") if plain_suffix(file) in _SUFFIXES)
    if not files:
        raise DataError(f"{folder}: no file that ends in {listed(_SUFFIXES)}")
    return [file for file in files if _split_of_file(file) == split] or files


def _split_of_file(file: Path) -> str:
    """Return the split of a file.

    >>> _split_of_file(Path("test-00000-of-00001.parquet")), _split_of_file(Path("dev.tsv.gz"))
    ('test', 'dev')
    """
    return re.split(r"-\d|\.", file.name)[0]


def _texts_of_files(files: Iterable[Path], *, with_title: bool) -> dict[str, str]:
    """Return the text of each id, after its title; refuse invalid and duplicate ids."""
    texts: dict[str, str] = {}
    for file in files:
        for place, row in rows_of_file(file, RowRequest()):
            name = checked_id(id_text(row[required_column(row, ID, place=place)]), place=place)
            text = row.get(required_column(row, TEXT, place=place))
            title = row.get("title") if with_title else None
            if name in texts:
                raise DataError(f"{place}: duplicate id {name!r:.60}")
            if not isinstance(text, str):
                raise DataError(f"{place}: field 'text' is {shown_value(text)}; expected str")
            texts[name] = f"{title or ''} {text}".strip()
    return texts


def _with_ids(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the object of each line; an ``id`` also as ``_id``."""
    for number, row in json_rows(file):
        if "_id" not in row and "id" in row:
            row["_id"] = row["id"]
        yield number, row


def _titled_texts(corpus: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the id of each document with its text, after its title."""
    fields: Fields = {"_id": _ID, "title": (str, type(None)), "text": str}
    for number, (name, title, text) in checked_rows(_with_ids(corpus), fields, corpus):
        yield number, (name, f"{title or ''} {text}".strip())


def _values_by_id(file: Path, rows: Iterable[tuple[int, Sequence[Any]]]) -> dict[str, Any]:
    """Return values by id from numbered rows; refuse invalid and duplicate ids."""
    values: dict[str, Any] = {}
    for number, (name, value) in rows:
        name = checked_id(id_text(name), place=f"{file}:{number}")
        if name in values:
            raise DataError(f"{file}:{number}: duplicate id {name!r:.60}")
        values[name] = value
    return values


def _read_qrels(
    file: Path, queries: Collection[str]
) -> tuple[dict[str, dict[str, float]], dict[str, int], str]:
    """Read grades per query and document from BEIR's TSV or JSONL, or from TREC qrels.

    The last of several grades for a pair counts, as in BEIR and MTEB. Also returns the count of
    `CONFLICTING`, and how the file was read.
    """
    if ".jsonl" in file.name:
        judgements = _judgements_in_json(file)
    else:
        judgements = read_text_list(file, queries)
    qrels, conflict_count = _last_grades(judgements.rows)
    return qrels, {CONFLICTING: conflict_count}, judgements.understood


def _judgements_in_json(file: Path) -> JudgementList:
    """Return the judgements of lines such as ``{"query-id": "q1", "corpus-id": "d7", …}``."""
    rows: list[tuple[str, Mapping[str, object]]] = []
    for number, values in numbered_json_rows(file, _QRELS_FIELDS):
        rows.append((f"{file}:{number}", dict(zip(_QRELS_FIELDS, values, strict=True))))
    return judgements_of_rows(rows, place=file)


def _last_grades(rows: Iterable[Judgement]) -> tuple[dict[str, dict[str, float]], int]:
    """Return the last grade per query and document, and how many earlier ones differ from it."""
    qrels: dict[str, dict[str, float]] = {}
    conflict_count = 0
    for row in rows:
        grades = qrels.setdefault(checked_id(row.query, place=row.place), {})
        if row.grade is None:
            continue
        if row.document in grades and grades[row.document] != row.grade:
            conflict_count += 1
        grades[row.document] = row.grade
    return qrels, conflict_count


def split_of(folder: Path) -> str:
    """Return the split of a folder's qrels: ``test``, or the only one that is there.

    Raises:
        DataError: several others.
    """
    qrels = folder / "qrels"
    if is_mteb(folder):
        qrels = _qrels_folder(folder)
    splits: set[str] = set()
    if qrels.is_dir():
        # The split of test.tsv and of test.tsv.gz is test; hidden files have none.
        splits = {_split_of_file(file) for file in qrels.glob("*")}
        splits.discard("")
    if "test" in splits or not splits:
        return "test"
    if len(splits) > 1:
        raise DataError(
            f"{qrels}: no test.tsv, and several other splits: {listed(sorted(splits))}; give one "
            "as `split` of from_beir, or its file as --judgements, or leave one there"
        )
    return splits.pop()


def folder_label(folder: Path) -> str:
    """Return the name of a folder, or one that is safe in file names and as distinct.

    >>> folder_label(Path("scifact")), folder_label(Path("my data"))
    ('scifact', 'my-data-b2167b0a')
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("-._")[:100]
    if plain == folder.name:
        return plain
    digest = hashlib.sha256(os.fsencode(folder.name)).hexdigest()[:8]
    return f"{plain or 'data'}-{digest}"


def group_folders(folder: Path) -> list[Path]:
    """Return the BEIR folders in a folder, whose scores are averaged.

    Raises:
        DataError: no part, or one that is incomplete: a mean without it would be another one.
    """
    try:
        entries = sorted(folder.iterdir())
        # Neither hidden files nor __MACOSX, which macOS adds to archives.
        visible = [entry for entry in entries if not entry.name.startswith((".", "__"))]
        folders = [entry for entry in visible if entry.is_dir()]
        incomplete = [part for part in folders if not _has_beir_file(part)]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from None
    if len(incomplete) == len(folders):  # there is no BEIR folder at all
        raise DataError(
            f"{folder}: expected a BEIR folder (corpus.jsonl), a folder of BEIR folders, or "
            "the MS MARCO dev set (queries.dev.small.tsv)"
        )
    incomplete += _packed_parts(visible, folders)  # archives that nobody unpacked
    if incomplete:
        raise DataError(
            f"{incomplete[0]}: no BEIR folder (corpus.jsonl, queries.jsonl, qrels/), beside "
            f"{len(folders)} folders of one mean ({len(incomplete)} such in total); complete it, "
            "or move it away"
        )
    _check_splits(folders)
    return folders


def _has_beir_file(folder: Path) -> bool:
    return any(_BEIR_FILE.match(file.name) for file in folder.iterdir())


def _packed_parts(entries: Sequence[Path], parts: Sequence[Path]) -> list[Path]:
    """Return the archives that were not unpacked."""
    names = {part.name for part in parts}
    archives = [entry for entry in entries if _ARCHIVE.search(entry.name)]
    return [archive for archive in archives if _ARCHIVE.sub("", archive.name) not in names]


def _check_splits(parts: Sequence[Path]) -> None:
    """Refuse parts with different splits."""
    first_part = parts[0]
    split = split_of(first_part)
    for part in parts[1:]:
        if split_of(part) != split:
            raise DataError(
                f"{part}: has the split {split_of(part)!r}, and {first_part.name} has {split!r}; "
                "expected one split in all folders of a mean"
            )


def read_msmarco(folder: Path) -> CollectionFiles:
    """Read the MS MARCO dev set: 6,980 queries, their qrels, and the official top 1,000.

    ``top1000.dev`` includes its passages. The order of its lines is not a ranking;
    ``run.dev.small.tsv`` (query, passage, rank), if it exists, gives the order. Without
    ``top1000.dev``, the documents are ``collection.tsv`` (8.8 million passages).
    """
    # Each file may also be compressed.
    queries_file = required(folder, "queries.dev.small.tsv", "queries.dev.tsv")
    queries = _values_by_id(queries_file, numbered_tsv_rows(queries_file, columns=2))
    qrels_file = required(folder, "qrels.dev.small.tsv", "qrels.dev.tsv")
    qrels, counts, _ = _read_qrels(qrels_file, queries)
    candidates: dict[str, list[str]] | None = None
    top_1000_file = variant(folder, "top1000.dev", "top1000.dev.tsv")
    if top_1000_file is not None:
        documents, candidates = _read_top_1000(top_1000_file)
    else:
        corpus_file = required(folder, "collection.tsv")
        documents = _values_by_id(corpus_file, numbered_tsv_rows(corpus_file, columns=2))
    # The lines of top1000.dev are in no order; a run gives the ranks.
    run_file = variant(folder, "run.dev.small.tsv", "run.dev.small.trec")
    has_order = run_file is not None
    if run_file is not None:
        candidates = _ranked_candidates(run_file)
    return CollectionFiles(
        documents,
        queries,
        qrels,
        candidates,
        ordered=has_order,
        counts=counts,
    )


def _read_top_1000(file: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the passages by id, and the ids of each query's."""
    documents: dict[str, str] = {}
    candidates: dict[str, list[str]] = {}
    for number, (query, document, _, passage) in numbered_tsv_rows(file, columns=4):
        candidates.setdefault(query, []).append(document)
        # A passage is repeated for each query that it is a candidate of.
        earlier_passage = documents.setdefault(document, passage)
        if passage != earlier_passage:
            raise DataError(f"{file}:{number}: document {document!r:.60} has another text before")
    for name in [*candidates, *documents]:
        checked_id(name, place=str(file))
    return documents, candidates


def _ranked_candidates(run: Path) -> dict[str, list[str]]:
    """Return the documents of each query of a run, best first."""
    candidates: dict[str, list[str]] = {}
    for query, scores in load_run(run).items():
        candidates[query] = sorted(scores, key=scores.__getitem__, reverse=True)
    return candidates
