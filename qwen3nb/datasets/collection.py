"""Test collections: documents, queries and qrels, from several sources.

    BEIR folder      corpus.jsonl, queries.jsonl, qrels/test.tsv (or .jsonl; or .gz)
    CQADupStack      a folder of BEIR folders: one collection each, averaged as a group
    MS MARCO dev     queries.dev.small.tsv, qrels.dev.small.tsv, top1000.dev or collection.tsv
    MTEB             any retrieval or reranking task, by name or object, including PyDocs

The revision of a collection is the digest of its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.datasets.judgements import (
    CONFLICTING,
    Grades,
    judgement_counts,
    keep_judgement,
    nonzero,
    read_grade,
    read_qrels,
    text_counts,
)
from qwen3nb.datasets.mirror import local_data
from qwen3nb.datasets.rows import DataError, json_rows, numbered_tsv_rows, tsv_rows, variant
from qwen3nb.datasets.trec import read_run
from qwen3nb.models.search.mteb_rows import (
    ENGLISH,
    joined_document,
    joined_query,
    task_languages,
)

__all__ = ["SKIP_SELF", "TestCollection", "find_collections", "from_msmarco", "from_mteb"]

# Data sets whose queries are documents too: MTEB removes a document with the query's own id
# from their rankings. By the name of their folders in BEIR and on the hub, in lower case.
SKIP_SELF = (
    "arguana",
    "fever",
    "fever_test_top_250_only_w_correct-v2",
    "fiqa",
    "msmarco",
    "quora",
)


@dataclass(frozen=True, repr=False)
class TestCollection:
    """Documents, queries and qrels.

    Attributes:
        name: name of the collection, safe in file names.
        documents: text per id, starting with the title if there is one.
        queries: text per id, for queries with at least one relevant document.
        qrels: grade per query and document.
        candidates: documents to rerank per query, if the data provide them.
        ordered: whether the candidates are sorted, best first.
        skip_self: whether to remove a document with the query's own id from its ranking.
        group: the group of collections this one is averaged with, or empty.
        language: three-letter code of the texts' language; `BM25` stems English only.
        counts: what is odd about the data, with its number: judged documents that are missing,
            queries without a relevant document, empty texts; only what there is.
    """

    name: str
    documents: Mapping[str, str]
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    candidates: Mapping[str, list[str]] | None = None
    ordered: bool = False
    skip_self: bool = False
    group: str = ""
    language: str = ENGLISH
    counts: Mapping[str, int] = field(default_factory=dict)

    __test__ = False  # keeps pytest from collecting the class

    @classmethod
    def from_texts(
        cls,
        queries: Mapping[str, str] | Sequence[str],
        documents: Mapping[str, str] | Sequence[str],
        relevant: Mapping[str, Mapping[str, int] | Iterable[str]] | Sequence[Iterable[int]],
        *,
        name: str = "custom",
    ) -> TestCollection:
        """Create a collection from queries, documents and qrels in memory.

        Args:
            queries: text per id, or a list of texts.
            documents: text per id, or a list of texts.
            relevant: for each query, a grade per document or a list of relevant documents; of
                lists, their positions, which are their ids.
            name: name of the collection, safe in file names.

        Raises:
            DataError: a judged query or document has no text, an id is not valid Unicode
                (a lone surrogate), or there is no relevant document.

        >>> TestCollection.from_texts({"q": "sort a list"}, {"d": "list.sort"}, {"q": ["d"]})
        TestCollection('custom', 1 documents, 1 queries)
        >>> TestCollection.from_texts(["sort a list"], ["str.join", "list.sort"], [[1]]).qrels
        {'0': {'1': 1}}

        The prefixes of a model belong to the model: `load_encoder` takes them as ``prompts``.
        """
        queries, documents = _named(queries), _named(documents)
        qrels = {
            query: {str(name): grade for name, grade in grades.items()}
            if isinstance(grades, Mapping)
            else dict.fromkeys(map(str, grades), 1)
            for query, grades in _named(relevant).items()
        }
        judged = {document for grades in qrels.values() for document in grades}
        for each in (*queries, *documents):
            if not each.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in each):
                raise DataError(f"the id {each!r} has a lone surrogate and cannot be saved")
        if lost := sorted(judged - documents.keys()):
            raise DataError(
                f"document {lost[0]!r} is judged but has no text ({len(lost)} in total)"
            )
        return _checked(cls(name, documents, queries, qrels), name)

    @classmethod
    def from_beir(
        cls, folder: Path | str, *, split: str = "test", skip_self: bool | None = None
    ) -> TestCollection:
        """Read a BEIR folder.

        A document with the query's own id is removed from its ranking only where MTEB's task
        says so: in ArguAna, FEVER, FiQA, MS MARCO and Quora (`SKIP_SELF`). BEIR's own code
        removes it everywhere, even if it is judged.

        Args:
            folder: with corpus.jsonl, queries.jsonl and qrels/<split>.tsv (or .jsonl; or .gz).
            split: split whose qrels to read.
            skip_self: whether to remove a document with the query's own id; by default decided
                by the name of the folder.

        Raises:
            DataError: a file is missing, or a row is malformed.
        """
        folder = Path(folder).expanduser()
        corpus, queries = (_file(folder, f"{part}.jsonl") for part in ("corpus", "queries"))
        rows = json_rows(corpus, {"_id": str, "title": (str, type(None)), "text": str})
        documents = _by_id(
            corpus, ((i, f"{title or ''} {text}".strip()) for i, title, text in rows)
        )
        texts = _by_id(queries, json_rows(queries, {"_id": str, "text": str}))
        qrels, conflicts = read_qrels(_file(folder, f"qrels/{split}.tsv", f"qrels/{split}.jsonl"))
        top_ranked = variant(folder, f"top_ranked/{split}.jsonl")
        candidates = None
        if top_ranked is not None:
            fields: dict[str, Any] = {"query-id": str, "corpus-ids": list}
            candidates = _by_id(top_ranked, json_rows(top_ranked, fields))
        if skip_self is None:
            skip_self = folder.name.lower() in SKIP_SELF
        collection = cls(folder.name, documents, texts, qrels, candidates, skip_self=skip_self)
        return _checked(collection, folder, conflicts=conflicts)

    def subset(self, *, documents: int, seed: int = 0) -> TestCollection:
        """Return a subset of the documents: all judged ones and a random sample of the rest.

        A subset makes search easier for every model: scores are comparable only on the same
        subset. The name of the subset includes its size.

        Raises:
            ValueError: ``documents`` is less than the number of judged documents.
        """
        judged = {d for grades in self.qrels.values() for d in grades} & set(self.documents)
        if documents < len(judged):
            raise ValueError(
                f"{self.name}: {len(judged)} documents are judged and must be kept; "
                f"got a limit of {documents}"
            )
        if documents >= len(self.documents):
            return self
        others = sorted(set(self.documents) - judged)
        drawn = np.random.default_rng(seed).choice(
            len(others), size=documents - len(judged), replace=False
        )
        keep = judged | {others[index] for index in drawn}
        texts = {name: text for name, text in self.documents.items() if name in keep}
        counts = nonzero({**self.counts, **text_counts(texts, self.queries)})
        return replace(self, name=f"{self.name}-{len(texts)}", documents=texts, counts=counts)

    def __repr__(self) -> str:
        odd = "".join(f"; {name}: {count:,}" for name, count in self.counts.items())
        return (
            f"TestCollection({self.name!r}, {len(self.documents)} documents, "
            f"{len(self.queries)} queries{odd})"
        )

    @cached_property
    def revision(self) -> str:
        """SHA-256 of documents, queries, qrels and candidates, and of how they are used."""
        digest = hashlib.sha256()
        for part in (self.documents, self.queries):
            for name in sorted(part):
                digest.update(f"{name}\0{part[name]}\1".encode("utf-8", "surrogatepass"))
            digest.update(b"\2")
        for query in sorted(self.qrels):
            digest.update(f"{query}\0{sorted(self.qrels[query].items())}\1".encode())
        for query in sorted(self.candidates or {}):
            digest.update(f"{query}\0{(self.candidates or {})[query]}\1".encode())
        digest.update(f"{self.ordered} {self.skip_self}".encode())
        if self.language != ENGLISH:
            digest.update(self.language.encode())
        return digest.hexdigest()


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
    queries = dict(tsv_rows(_file(folder, "queries.dev.small.tsv", "queries.dev.tsv"), 2))
    file = _file(folder, "qrels.dev.small.tsv", "qrels.dev.tsv")
    qrels: Grades = {}
    conflicts = 0
    for number, (query, _, document, grade) in numbered_tsv_rows(file, 4):
        value = read_grade(grade, where=f"{file}:{number}")
        conflicts += keep_judgement(qrels, query, document, value)
    top = variant(folder, "top1000.dev", "top1000.dev.tsv")
    run = variant(folder, "run.dev.small.tsv", "run.dev.small.trec")
    candidates: dict[str, list[str]] | None = None
    documents: dict[str, str] = {}
    if top is not None:
        candidates = {}
        for query, document, _, passage in tsv_rows(top, 4):
            candidates.setdefault(query, []).append(document)
            documents[document] = passage
    else:
        documents = dict(tsv_rows(_file(folder, "collection.tsv"), 2))
    if run is not None:
        ranked = read_run(run)
        candidates = {q: sorted(s, key=lambda d, s=s: -s[d]) for q, s in ranked.items()}  # type: ignore[misc]
    collection = TestCollection(
        "MSMARCO-dev", documents, queries, qrels, candidates, ordered=run is not None
    )
    return _checked(collection, folder, conflicts=conflicts)


def from_mteb(task: Any) -> list[TestCollection]:
    """Return the collections of an MTEB task, one per split and language, or part.

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
            task.load_data()
    task.convert_v1_dataset_format_to_v2(num_proc=None)
    parts = [(subset, split) for subset in task.hf_subsets for split in task.eval_splits]
    collections = []
    for subset, split in parts:
        data = task.dataset[subset][split]
        if task.metadata.type == "Reranking" and not data["top_ranked"]:
            raise DataError(f"{name}: the candidates of this reranking task did not load; offline?")
        label = name if len(parts) == 1 else f"{name}-{subset}-{split}"
        collection = TestCollection(
            label,
            {str(row["id"]): joined_document(row) for row in data["corpus"]},
            {str(row["id"]): joined_query(row) for row in data["queries"]},
            data["relevant_docs"],
            data["top_ranked"],
            skip_self=bool(task.ignore_identical_ids),
            group="" if len(parts) == 1 else name,
            language=_language(task.metadata, subset),
        )
        collections.append(_checked(collection, name))
    return collections


def _language(task_metadata: Any, subset: str) -> str:
    """Return English if it is one of the subset's languages, as BM25 treats it; else the first."""
    codes = task_languages(task_metadata, subset)
    return ENGLISH if ENGLISH in codes else min(codes)


def _named(values: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return values by id; the position is the id in a list."""
    if isinstance(values, Mapping):
        return {str(name): value for name, value in values.items()}
    return {str(index): value for index, value in enumerate(values)}


def _file(folder: Path, *names: str) -> Path:
    file = variant(folder, *names)
    if file is None:
        raise DataError(f"{folder}: no {' or '.join(names)} (or .gz)")
    return file


def _by_id(file: Path, rows: Iterator[Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in rows:
        if name in values:
            raise DataError(f"{file}: duplicate id {name!r}")
        values[name] = value
    return values


def _checked(collection: TestCollection, where: Any, *, conflicts: int = 0) -> TestCollection:
    """Keep the queries with a relevant document; each must have a text. Count what is odd.

    Judged documents may be missing from the corpus, as in some BEIR data sets, and count as
    not retrieved; most of them must be there. Candidates must not be missing.
    """
    judged = {
        query: dict(grades)
        for query, grades in collection.qrels.items()
        if any(grade > 0 for grade in grades.values())
    }
    if not judged:
        raise DataError(f"{where}: no query has a relevant document")
    if lost := sorted(judged.keys() - collection.queries.keys()):
        raise DataError(
            f"{where}: query {lost[0]!r} is judged but has no text ({len(lost)} in total)"
        )
    if not any(text.strip() for text in collection.documents.values()):
        raise DataError(f"{where}: expected documents with a text; all are empty")
    queries = {query: collection.queries[query] for query in sorted(judged)}
    counts = judgement_counts(
        collection.qrels, queries=collection.queries, documents=collection.documents, where=where
    )
    counts |= {CONFLICTING: conflicts} | text_counts(collection.documents, queries)
    return replace(
        collection,
        queries=queries,
        qrels=judged,
        candidates=_candidates(collection, judged, where),
        counts=nonzero(counts),
    )


def _candidates(
    collection: TestCollection, judged: Iterable[str], where: Any
) -> dict[str, list[str]] | None:
    if collection.candidates is None:
        return None
    candidates = {q: [str(d) for d in collection.candidates.get(q, [])] for q in judged}
    for query, names in candidates.items():
        if odd := next((d for d in names if d not in collection.documents), None):
            raise DataError(f"{where}: candidate {odd!r} of query {query!r} is not a document")
    return candidates
