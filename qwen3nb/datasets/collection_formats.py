"""Find the test collections that a folder, an MTEB task or a name specifies.

BEIR folder      corpus.jsonl, queries.jsonl, qrels/test.tsv (or .jsonl; or .gz)
CQADupStack      a folder of BEIR folders: one collection each, averaged as a group
MS MARCO dev     queries.dev.small.tsv, qrels.dev.small.tsv, top1000.dev or collection.tsv
MTEB             any retrieval or reranking task, by name or object, including PyDocs
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from qwen3nb.datasets.collection import TestCollection, values_by_id
from qwen3nb.datasets.judgements import (
    DUPLICATES,
    UNKNOWN,
    read_qrels,
)
from qwen3nb.datasets.mirror import load_data, local_data
from qwen3nb.datasets.rows import DataError, numbered_tsv_rows, required, variant
from qwen3nb.datasets.trec import load_run
from qwen3nb.datasets.values import checked_id
from qwen3nb.models.search.mteb_rows import (
    ENGLISH,
    joined_document,
    joined_query,
    task_languages,
)

__all__ = ["find_collections", "from_msmarco", "from_mteb"]


def find_collections(spec: Any) -> list[TestCollection]:
    """Return the collections specified by a folder, an MTEB task or a collection.

    Raises:
        DataError: ``spec`` is none of these.
    """
    if isinstance(spec, TestCollection):
        return [spec]
    if not isinstance(spec, str | Path):
        return from_mteb(spec)
    folder = Path(spec).expanduser()
    if folder.is_dir():
        if variant(folder, "queries.dev.small.tsv", "queries.dev.tsv"):
            return [from_msmarco(folder)]
        if variant(folder, "corpus.jsonl"):
            return [TestCollection.from_beir(folder)]
        parts = sorted(each for each in folder.iterdir() if variant(each, "corpus.jsonl"))
        if parts:
            named = [(f"{folder.name}-{each.name}", each) for each in parts]
            return [
                replace(TestCollection.from_beir(each), name=name, group=folder.name)
                for name, each in named
            ]
        raise DataError(
            f"{folder}: expected a BEIR folder (corpus.jsonl), a folder of BEIR folders, or the "
            "MS MARCO dev set (queries.dev.small.tsv)"
        )
    if str(spec).startswith(("PyDocs", "AuthorSTS")):
        from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

        return from_mteb(embedded_task(str(spec)))
    import mteb

    try:
        return from_mteb(mteb.get_task(str(spec)))
    except KeyError as error:
        raise DataError(f"{str(spec)!r} is neither a folder nor an MTEB task ({error})") from None


def from_msmarco(folder: Path) -> TestCollection:
    """Read the MS MARCO dev set: 6,980 queries, their qrels, and the official top 1,000.

    ``top1000.dev`` includes its passages. The order of its lines is not a ranking; a run
    ``run.dev.small.tsv`` (query, passage, rank) orders them, if it exists. Without
    ``top1000.dev``, the documents are ``collection.tsv`` (8.8 million passages).

    Raises:
        DataError: a file is missing, or a row is malformed.
    """
    queries = _two_columns(required(folder, "queries.dev.small.tsv", "queries.dev.tsv"))
    qrels, counts = read_qrels(required(folder, "qrels.dev.small.tsv", "qrels.dev.tsv"), columns=4)
    top = variant(folder, "top1000.dev", "top1000.dev.tsv")
    run = variant(folder, "run.dev.small.tsv", "run.dev.small.trec")
    candidates: dict[str, list[str]] | None = None
    if top is not None:
        documents, candidates = _top_ranked(top)
    else:
        documents = _two_columns(required(folder, "collection.tsv"))
    if run is not None:
        ranked = load_run(run)
        candidates = {q: sorted(s, key=lambda d, s=s: -s[d]) for q, s in ranked.items()}  # type: ignore[misc]
    collection = TestCollection(
        "MSMARCO-dev", documents, queries, qrels, candidates, ordered=run is not None
    )
    return collection.checked(folder, counted=counts)


def _two_columns(file: Path) -> dict[str, str]:
    return values_by_id(file, numbered_tsv_rows(file, 2))


def _top_ranked(file: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the passages, and the candidates of each query.

    Raises:
        DataError: an id is unfit, or one passage has two texts.
    """
    documents: dict[str, str] = {}
    candidates: dict[str, list[str]] = {}
    for number, (query, document, _, passage) in numbered_tsv_rows(file, 4):
        candidates.setdefault(query, []).append(document)
        if documents.setdefault(document, passage) != passage:
            raise DataError(f"{file}:{number}: document {document!r:.60} has another text before")
    for name in (*candidates, *documents):
        checked_id(name, where=str(file))
    return documents, candidates


def from_mteb(task: Any) -> list[TestCollection]:
    """Return the collections of an MTEB task, one per split and language, or part.

    The queries are those that MTEB scores: one whose judgements are all zero counts as 0.

    Raises:
        DataError: the task has no corpus, or it is a reranking task whose candidates did
            not load (MTEB would then search the whole corpus).
    """
    name = task.metadata.name
    if inner := getattr(task.metadata, "tasks", None):
        return [replace(each, group=name) for part in inner for each in from_mteb(part)]
    if task.metadata.type not in ("Retrieval", "Reranking"):
        raise DataError(f"{name}: expected type Retrieval or Reranking; got {task.metadata.type}")
    if not task.data_loaded:
        with local_data(task):
            load_data(task)
    task.convert_v1_dataset_format_to_v2(num_proc=None)
    parts = [(subset, split) for subset in task.hf_subsets for split in task.eval_splits]
    collections = []
    for subset, split in parts:
        data = task.dataset[subset][split]
        if task.metadata.type == "Reranking" and not data["top_ranked"]:
            raise DataError(f"{name}: the candidates of this reranking task did not load; offline?")
        queries = {str(row["id"]): joined_query(row) for row in data["queries"]}
        documents = {str(row["id"]): joined_document(row) for row in data["corpus"]}
        counted = {
            UNKNOWN: len(data["relevant_docs"].keys() - queries.keys()),
            DUPLICATES: len(data["queries"]) + len(data["corpus"]) - len(queries) - len(documents),
        }
        label = name if len(parts) == 1 else f"{name}-{subset}-{split}"
        collection = TestCollection(
            label,
            documents,
            queries,
            {query: each for query, each in data["relevant_docs"].items() if query in queries},
            data["top_ranked"],
            skip_self=bool(task.ignore_identical_ids),
            group="" if len(parts) == 1 else name,
            language=_language(task.metadata, subset),
        )
        collections.append(collection.checked(name, counted=counted, zeros=True))
    return collections


def _language(task_metadata: Any, subset: str) -> str:
    """Return English if it is one of the subset's languages, as BM25 treats it; else the first."""
    codes = task_languages(task_metadata, subset)
    return ENGLISH if ENGLISH in codes else min(codes)
