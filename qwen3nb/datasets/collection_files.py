"""Files of test collections as they are published: BEIR folders, groups of them, MS MARCO dev.

BEIR folder      corpus.jsonl, queries.jsonl, qrels/test.tsv (or .jsonl; or .gz)
CQADupStack      a folder of BEIR folders: one collection each, averaged as a group
MS MARCO dev     queries.dev.small.tsv, qrels.dev.small.tsv, top1000.dev or collection.tsv
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb.datasets.in_memory import GRADE, find_column
from qwen3nb.datasets.judgements import CONFLICTING, read_grade
from qwen3nb.datasets.rows import (
    DataError,
    Fields,
    checked_id,
    listed,
    numbered_json_rows,
    numbered_tsv_rows,
    required,
    variant,
)
from qwen3nb.datasets.trec import load_run

_BEIR_FILE = re.compile(r"(corpus|queries)\.jsonl|qrels")
_ARCHIVE = re.compile(r"\.(zip|tar|tgz)(\.\w+)?$", re.IGNORECASE)
_QRELS_FIELDS: Fields = {"query-id": str, "corpus-id": str, "score": (int, float)}
_TREC_COLUMNS = 4


@dataclass(frozen=True)
class CollectionFiles:
    """What the files of a collection hold."""

    documents: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    candidates: dict[str, list[str]] | None  # documents to rerank per query, if there are any
    ordered: bool  # whether the candidates are sorted, best first
    counts: dict[str, int]  # irregularities found while reading


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
    qrels_file = required(folder, f"qrels/{split}.tsv", f"qrels/{split}.jsonl")
    documents = _values_by_id(corpus_file, _titled_texts(corpus_file))
    query_rows = numbered_json_rows(queries_file, {"_id": str, "text": str})
    queries = _values_by_id(queries_file, query_rows)
    qrels, counts = _read_qrels(qrels_file)
    candidates = None
    candidates_file = variant(folder, f"top_ranked/{split}.jsonl")
    if candidates_file is not None:
        rows = numbered_json_rows(candidates_file, {"query-id": str, "corpus-ids": list})
        candidates = _values_by_id(candidates_file, rows)
    return CollectionFiles(documents, queries, qrels, candidates, ordered=False, counts=counts)


def _titled_texts(corpus: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the id of each document with its text, after its title."""
    fields: Fields = {"_id": str, "title": (str, type(None)), "text": str}
    for number, (name, title, text) in numbered_json_rows(corpus, fields):
        yield number, (name, f"{title or ''} {text}".strip())


def _values_by_id(file: Path, rows: Iterable[tuple[int, Sequence[Any]]]) -> dict[str, Any]:
    """Return values by id from numbered rows; refuse invalid and duplicate ids."""
    values: dict[str, Any] = {}
    for number, (name, value) in rows:
        name = checked_id(name, place=f"{file}:{number}")
        if name in values:
            raise DataError(f"{file}:{number}: duplicate id {name!r:.60}")
        values[name] = value
    return values


def _read_qrels(
    file: Path,
    *,
    columns: int = 3,
) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Read grades per query and document from BEIR's TSV or JSONL, or from TREC qrels.

    The last of several grades for a pair counts, as in BEIR and MTEB; TREC qrels have 4
    ``columns``. Also returns the count of `CONFLICTING`.
    """
    qrels: dict[str, dict[str, int]] = {}
    conflict_count = 0
    for number, (query, document, value) in _judgement_rows(file, columns):
        place = f"{file}:{number}"
        grades = qrels.setdefault(checked_id(query, place=place), {})
        grade = read_grade(value, place=place)
        checked_id(document, place=place)
        if document in grades and grades[document] != grade:
            conflict_count += 1
        grades[document] = grade  # the last one counts, as in BEIR and MTEB
    return qrels, {CONFLICTING: conflict_count}


def _judgement_rows(file: Path, columns: int) -> Iterator[tuple[int, tuple[str, str, object]]]:
    """Yield query, document and grade of each row; a header is left out."""
    if ".jsonl" in file.name:
        for number, (query, document, grade) in numbered_json_rows(file, _QRELS_FIELDS):
            yield number, (query, document, grade)
        return
    for number, fields in numbered_tsv_rows(file, columns):
        query = fields[0]
        document, grade = fields[-2:]  # the column that TREC has before them is not used
        # A first row with "score" for a grade is a header.
        is_header = number == 1 and find_column([grade], GRADE) is not None
        if not is_header:
            yield number, (query, document, grade)


def split_of(folder: Path) -> str:
    """Return the split of a BEIR folder's qrels: ``test``, or the only one that is there."""
    qrels = folder / "qrels"
    splits: set[str] = set()
    if qrels.is_dir():
        # The split of test.tsv and of test.tsv.gz is test; hidden files have none.
        splits = {file.name.split(".")[0] for file in qrels.glob("*")}
        splits.discard("")
    if "test" in splits or not splits:
        return "test"
    if len(splits) > 1:
        raise DataError(
            f"{qrels}: no test.tsv, and several other splits: {listed(sorted(splits))}; give one "
            "as `split` of from_beir, or leave one there"
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
    qrels, counts = _read_qrels(qrels_file, columns=_TREC_COLUMNS)
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
