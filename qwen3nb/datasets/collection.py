"""Test collections: documents, queries and qrels, in memory or from folders and MTEB tasks.

BEIR folder      corpus.jsonl, queries.jsonl, qrels/test.tsv (or .jsonl; or .gz)
CQADupStack      a folder of BEIR folders: one collection each, averaged as a group
MS MARCO dev     queries.dev.small.tsv, qrels.dev.small.tsv, top1000.dev or collection.tsv
MTEB             any retrieval or reranking task, by name or object, including PyDocs

The revision of a collection is the digest of its content. Irregularities are counted in
`TestCollection.counts`, which is stored in the record and shown on the page. A collection that
lacks most of its judged documents is refused, because its scores would be meaningless.
`book/guide/what-is-refused.md` lists the rules.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import unicodedata
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from qwen3nb.datasets.in_memory import (
    GRADE,
    QUERY_ID,
    find_column,
    grades_by_query,
    is_table,
    texts_by_id,
)
from qwen3nb.datasets.mirror import load_data, local_data, substitute_of
from qwen3nb.datasets.rows import (
    CONTROL,
    LARGEST_GRADE,
    DataError,
    Fields,
    checked_id,
    listed,
    numbered_json_rows,
    numbered_tsv_rows,
    required,
    stated_number,
    unicode_text,
    variant,
)
from qwen3nb.datasets.trec import load_run
from qwen3nb.metrics.retrieval import PART_FOUND_NOTHING
from qwen3nb.models.search.mteb_rows import ENGLISH, joined_document, joined_query, task_languages
from qwen3nb.models.search.words import Words, words_of_languages, words_of_texts
from qwen3nb.utils.strict_json import first_duplicate

log = logging.getLogger(__name__)
CONFLICTING = "judgements given twice with different grades, the last one counts"
NEGATIVE = "judgements with a negative grade, counted as 0"
MISSING = "judged documents not in the corpus"
UNANSWERABLE = "queries without a relevant document, left out"
ZERO = "queries without a relevant document, counted as 0"
UNWINNABLE = "queries whose relevant documents are not in the corpus, left out"
UNJUDGED = "queries without judgements, left out"
UNKNOWN = "judged queries that are not among the queries, left out"
DUPLICATES = "texts with the id of an earlier one, which they replace"
TWINS = "documents whose id is another's in a second Unicode form"
WITHOUT_CANDIDATES = "queries without candidates, counted as 0"
_BEIR_FILE = re.compile(r"(corpus|queries)\.jsonl|qrels")
_ARCHIVE = re.compile(r"\.(zip|tar|tgz)(\.\w+)?$", re.IGNORECASE)
_MOST = 0.5  # refuse when more than this share of the judged documents is missing

ITSELF = "queries that are also documents, which are left out of their own ranking"
JUDGED_ITSELF = "queries that are also documents with a judgement, which counts"
SAME_TEXT = "queries whose text is also a document of another id, which is ranked"
_PREFIX = 8  # characters by which most documents are told from a query


@dataclass(frozen=True, repr=False)
class TestCollection:
    """Documents, queries and qrels.

    Attributes:
        name: name of the collection, safe in file names.
        documents: text per id, starting with the title if there is one.
        queries: text per id of the scored queries: those with a relevant document; for MTEB tasks,
            all that are judged.
        qrels: grade per query and document.
        candidates: documents to rerank per query, if the data provide them.
        ordered: whether the candidates are sorted, best first.
        skip_self: whether to remove a document with the query's own id from its ranking, as MTEB
            does for some tasks.
        itself: per query, the documents which are the query itself and are removed from its
            ranking; see `documents_of_themselves`. Empty for MTEB tasks, which have a rule.
        group: the group of collections this one is averaged with, or empty.
        language: three-letter code of the texts' language, if the data declare it; `BM25` reads
            other texts by their script.
        counts: irregularities of the data and their numbers, such as missing judged documents,
            queries without a relevant document, empty texts; without zeros.
        clusters: cluster per query id, if the data define any, such as an MTEB task's; see
            `query_clusters`.
        relevance_threshold: lowest grade that counts as relevant in binary metrics, such as MRR;
            2 for the judgements of TREC's deep learning tracks.
        substitute: revision of a mirror's substitute for the data of an MTEB task, or empty.
    """

    name: str
    documents: Mapping[str, str]
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    candidates: Mapping[str, list[str]] | None = None
    ordered: bool = False
    skip_self: bool = False
    itself: Mapping[str, Sequence[str]] = field(default_factory=dict)
    group: str = ""
    language: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    substitute: str = ""
    relevance_threshold: int = 1

    __test__ = False  # keeps pytest from collecting the class

    @classmethod
    def from_texts(
        cls,
        queries: Any,
        documents: Any,
        relevant: Any,
        *,
        name: str = "custom",
    ) -> TestCollection:
        """Create a collection from queries, documents and qrels in memory.

        Args:
            queries: text per id, or a list of texts; or rows with the columns ``id`` and ``text``
                (or ``query``), as a list of dictionaries, a data frame or a ``datasets.Dataset``.
            documents: text per id, or a list of texts; or rows with ``id``, ``text`` and perhaps
                ``title``.
            relevant: for each query, a grade per document or a list of relevant documents;
                positions if the documents are a list. Or rows with ``query-id``, ``corpus-id`` and
                perhaps ``score``, as in BEIR's qrels.
            name: name of the collection, safe in file names.

        Raises:
            DataError: a judged query or document has no text; an id is blank, a duplicate or has
                control characters or lone surrogates; a text is not a string or has a lone
                surrogate; a grade is not an integer; or there is no relevant document.

        >>> TestCollection.from_texts({"q": "sort a list"}, {"d": "list.sort"}, {"q": ["d"]})
        TestCollection('custom', 1 documents, 1 queries)
        >>> TestCollection.from_texts(["sort a list"], ["str.join", "list.sort"], [[1]]).qrels
        {'0': {'1': 1}}
        >>> rows = [{"query-id": "0", "corpus-id": "1", "score": 2}]
        >>> TestCollection.from_texts(["sort a list"], ["str.join", "list.sort"], rows).qrels
        {'0': {'1': 2}}

        Prompts of a model are not part of a collection: pass them to `load_encoder`.
        """
        queries, documents = _texts(name, queries), _texts(name, documents)
        qrels = {
            query: {
                str(document): _read_grade(grade, where=f"{name}: query {query!r:.60}")
                for document, grade in (
                    grades if isinstance(grades, Mapping) else dict.fromkeys(grades, 1)
                ).items()
            }
            for query, grades in _judgements(name, relevant).items()
        }
        judged = {document for grades in qrels.values() for document in grades}
        if lost := sorted(judged - documents.keys()):
            raise DataError(
                f"document {lost[0]!r:.60} is judged but has no text ({len(lost)} in total)"
            )
        return cls(name, documents, queries, qrels).checked(name)

    @classmethod
    def from_beir(cls, folder: Path | str, *, split: str = "") -> TestCollection:
        """Read a BEIR folder.

        Own data follow the same two rules. A document which is the query itself is removed from its
        ranking, unless it is judged for it (`documents_of_themselves`); BEIR's own code removes
        every document with the query's id. A judged document that is not in the corpus is left out
        of the judgements, and a query without another relevant document with it; trec_eval counts
        it as not retrieved, which lowers the score of every model alike.

        Args:
            folder: with corpus.jsonl, queries.jsonl and qrels/<split>.tsv (or .jsonl; or .gz).
            split: split whose qrels to read; empty for ``test``, or for the only one there. A name
                other than ``test`` is part of the collection's name.

        Raises:
            DataError: a file is missing, or a row is malformed.
        """
        folder = Path(folder).expanduser()
        split = split or _split(folder)
        corpus, queries = (required(folder, f"{part}.jsonl") for part in ("corpus", "queries"))
        rows = numbered_json_rows(corpus, {"_id": str, "title": (str, type(None)), "text": str})
        joined = ((n, (i, f"{title or ''} {text}".strip())) for n, (i, title, text) in rows)
        documents = _by_id(corpus, joined)
        texts = _by_id(queries, numbered_json_rows(queries, {"_id": str, "text": str}))
        qrels, counts = _read_qrels(required(folder, f"qrels/{split}.tsv", f"qrels/{split}.jsonl"))
        top_ranked = variant(folder, f"top_ranked/{split}.jsonl")
        candidates = None
        if top_ranked is not None:
            rows = numbered_json_rows(top_ranked, {"query-id": str, "corpus-ids": list})
            candidates = _by_id(top_ranked, rows)
        name = _label(folder) if split == "test" else f"{_label(folder)}-{split}"
        collection = cls(name, documents, texts, qrels, candidates)
        return collection.checked(folder, counted=counts, lost="left out")

    def checked(
        self,
        where: Any,
        *,
        counted: Mapping[str, int] | None = None,
        zeros: bool = False,
        lost: Literal["left out", "not retrieved"] = "not retrieved",
    ) -> TestCollection:
        """Return the collection with only its scored queries, and count irregularities.

        Judged documents may be missing from the corpus, as in some BEIR data sets; most of them
        must be there. Candidates must not be missing.

        Args:
            where: location, for error messages.
            counted: irregularities counted while reading the data.
            zeros: as MTEB, keep queries whose judgements are all zero, which score 0, and duplicate
                candidates. Otherwise these queries are left out, and such candidates are refused.
            lost: what judged documents count as that are not in the corpus.

        Raises:
            DataError: no query has a relevant document, a judged query or a candidate has no
                text, a candidate is given twice, all documents are empty, or most judged
                documents are missing.
        """
        qrels = self.qrels
        if lost == "left out":
            qrels = {query: in_corpus(each, self.documents) for query, each in qrels.items()}
        relevant = {q: dict(each) for q, each in qrels.items() if max([0, *each.values()])}
        if not relevant:
            raise DataError(
                f"{where}: no query has a relevant document; {len(self.qrels)} are judged"
            )
        scored = {q: dict(each) for q, each in self.qrels.items() if each} if zeros else relevant
        if without_text := sorted(scored.keys() - self.queries.keys()):
            raise DataError(
                f"{where}: query {without_text[0]!r:.60} is judged but has no text "
                f"({len(without_text)} in total); ids of queries look like {_some(self.queries)}"
            )
        if not any(text.strip() for text in self.documents.values()):
            raise DataError(
                f"{where}: expected documents with a text; all {len(self.documents)} are empty"
            )
        counts = judgement_counts(
            self.qrels, queries=self.queries, documents=self.documents, where=where, zeros=zeros
        )
        for name, count in (counted or {}).items():
            counts[name] = counts.get(name, 0) + count
        if lost == "left out":
            unwinnable = sorted(
                query
                for query, each in self.qrels.items()
                if query not in relevant and max([0, *each.values()]) and query in self.queries
            )
            counts[UNWINNABLE] = len(unwinnable)
            if unwinnable:
                log.warning("%s: %s: %s", where, UNWINNABLE, listed(unwinnable))
        queries = {query: self.queries[query] for query in sorted(scored)}
        itself: dict[str, list[str]] = {}  # by query
        clusters = self.clusters
        if not zeros:
            clusters = with_copies(clusters or shared_documents(scored), queries)
            itself, counted_itself = documents_of_themselves(queries, self.documents, scored)
            counts |= counted_itself
        counts |= text_counts("documents", self.documents.values())
        counts |= text_counts("queries", queries.values())
        candidates = None
        if (given := self.candidates) is not None:
            candidates = {query: list(map(str, given.get(query, []))) for query in scored}
            for query, names in candidates.items():
                odd = next((each for each in names if each not in self.documents), None)
                cause = "is unknown"
                if odd is None and not zeros:
                    odd, cause = first_duplicate(names), "is given twice"
                if odd is not None:
                    of_query = f"of query {query!r:.60}"
                    raise DataError(f"{where}: candidate {odd!r:.60} {of_query} {cause}")
            counts[WITHOUT_CANDIDATES] = sum(not each for each in candidates.values())
        return replace(
            self,
            queries=queries,
            qrels=scored,
            candidates=candidates,
            itself=itself,
            clusters=clusters,
            counts=nonzero(counts),
        )

    def removed(self, query: str) -> Collection[str]:
        """Return the documents that are removed from the ranking of a query."""
        return {query} if self.skip_self else self.itself.get(query, ())

    def __repr__(self) -> str:
        odd = "".join(f"; {name}: {count:,}" for name, count in self.counts.items())
        return (
            f"TestCollection({self.name!r}, {len(self.documents)} documents, "
            f"{len(self.queries)} queries{odd})"
        )

    @property
    def relevant(self) -> dict[str, dict[str, int]]:
        """The grades as 0 or 1, by the threshold."""
        return {
            query: {name: int(grade >= self.relevance_threshold) for name, grade in grades.items()}
            for query, grades in self.qrels.items()
        }

    @cached_property
    def revision(self) -> str:
        """SHA-256 of documents, queries, qrels, candidates and the settings of their use."""
        digest = hashlib.sha256()
        for part in (self.documents, self.queries):
            for name in sorted(part):
                text = part[name]
                if "\1" in text:  # the separator of texts below
                    digest.update(f"{len(text)}\2".encode())
                digest.update(f"{name}\0{text}\1".encode("utf-8", "surrogatepass"))
            digest.update(b"\2")
        for query in sorted(self.qrels):
            digest.update(f"{query}\0{sorted(self.qrels[query].items())}\1".encode())
        for query in sorted(self.candidates or {}):
            digest.update(f"{query}\0{(self.candidates or {})[query]}\1".encode())
        digest.update(f"{self.ordered} {self.skip_self}".encode())
        for query in sorted(self.itself):
            digest.update(f"{query}\0{sorted(self.itself[query])}\1".encode())
        if self.language not in ("", ENGLISH):
            digest.update(self.language.encode())
        if self.relevance_threshold != 1:
            digest.update(f"relevant from {self.relevance_threshold}".encode())
        return digest.hexdigest()

    @cached_property
    def words(self) -> Words:
        """How `BM25` reads the texts: by their language, else by their script."""
        if self.language:
            return words_of_languages({self.language})
        return words_of_texts(self.queries.values(), self.documents.values())


def _by_name(where: str, values: Any) -> dict[str, Any]:
    """Return values by id; the position is the id in a list."""
    if not isinstance(values, Mapping) and hasattr(values, "items"):
        values = dict(values.items())  # a series of pandas, by its index
    if not isinstance(values, Mapping):
        return {str(index): value for index, value in enumerate(values)}
    named = {checked_id(str(name), where=where): value for name, value in values.items()}
    if len(named) < len(values):
        raise DataError(f"{where}: duplicate id {first_duplicate(map(str, values))!r:.60}")
    return named


def _judgements(where: str, relevant: Any) -> dict[str, Any]:
    """Return what is relevant to each query; see `TestCollection.from_texts`."""
    columns_of_lists = isinstance(relevant, Mapping)  # relevant documents by query, no table
    if is_table(relevant) and not columns_of_lists:
        rows_of_queries = isinstance(relevant, list) and find_column(relevant[0], QUERY_ID) is None
        if not rows_of_queries:
            return grades_by_query(relevant, what=f"{where}: judgements")
    return _by_name(where, relevant)


def _texts(where: str, values: Any) -> dict[str, str]:
    texts = texts_by_id(values, what=where) if is_table(values) else values
    texts = _by_name(where, texts)
    for name, text in texts.items():
        if not isinstance(text, str) or not unicode_text(text):
            raise DataError(
                f"{where}: {name!r:.60} is {text!r:.60}; expected a text of valid Unicode"
            )
    return texts


def _by_id(file: Path, rows: Iterable[tuple[int, Sequence[Any]]]) -> dict[str, Any]:
    """Return values by id from numbered rows; refuse invalid and duplicate ids."""
    values: dict[str, Any] = {}
    for number, (name, value) in rows:
        if name in values:
            raise DataError(f"{file}:{number}: duplicate id {name!r:.60}")
        values[checked_id(name, where=f"{file}:{number}")] = value
    return values


def _read_qrels(
    file: Path, *, columns: int = 3
) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Read grades per query and document from BEIR's TSV or JSONL, or from TREC qrels.

    The last of several grades for a pair counts, as in BEIR and MTEB; TREC qrels have 4
    ``columns``. Also returns the count of `CONFLICTING`.
    """
    rows: Iterator[tuple[int, Any]]
    if ".jsonl" in file.name:
        fields: Fields = {"query-id": str, "corpus-id": str, "score": (int, float)}
        rows = numbered_json_rows(file, fields)
    else:
        rows = numbered_tsv_rows(file, columns)
    qrels: dict[str, dict[str, int]] = {}
    conflicting = 0
    for number, (query, *_, document, grade) in rows:
        if number == 1 and isinstance(grade, str) and find_column([grade], GRADE):
            continue  # a header
        where = f"{file}:{number}"
        grades = qrels.setdefault(checked_id(query, where=where), {})
        value = _read_grade(grade, where=where)
        conflicting += grades.get(document, value) != value
        grades[checked_id(document, where=where)] = value
    return qrels, {CONFLICTING: conflicting}


def _read_grade(grade: Any, *, where: str) -> int:
    """Return a grade as an integer; refuse anything but integers from -1,000 to 1,000.

    >>> _read_grade("2.0", where="test.tsv:7")
    2
    """
    value = stated_number(grade.item() if isinstance(grade, np.generic) else grade)
    if value is None or not value.is_integer():
        raise DataError(f"{where}: expected a whole number as grade; got {grade!r:.60}")
    if abs(value) > LARGEST_GRADE:
        raise DataError(
            f"{where}: expected a grade of at most {LARGEST_GRADE:,}; got {grade!r:.60}"
        )
    return int(value)


def judgement_counts(
    qrels: Mapping[str, Mapping[str, int]],
    *,
    queries: Iterable[str],
    documents: Collection[str],
    where: Any,
    zeros: bool,
) -> dict[str, int]:
    """Count missing judged documents and queries without a relevant document.

    With ``zeros``, such queries count as 0, else they are left out; errors name ``where``.

    Raises:
        DataError: most of the judged documents are missing, or, unless ``zeros``, one is there in
            another Unicode form only; names some of them.
    """
    judged = {document for grades in qrels.values() for document in grades}
    lost = sorted(judged.difference(documents))
    composed = _composed(documents)
    forms = {*composed}
    if not zeros and (other := [name for name in lost if not forms.isdisjoint(_composed([name]))]):
        raise DataError(
            f"{where}: judged document {other[0]!a:.60} is in the corpus only in another Unicode "
            f"form ({len(other)} in total); write ids alike, as NFC or as NFD"
        )
    if len(lost) > _MOST * len(judged):
        raise DataError(
            f"{where}: {len(lost)} of {len(judged)} judged documents are not in the corpus "
            f"({listed(lost[:10])}, ...); its ids look like {_some(documents)}. Do the qrels "
            "belong to this corpus?"
        )
    known = set(queries)
    given = [qrels.get(query, {}).values() for query in known]
    unanswerable = sum(bool(grades) and max(grades) <= 0 for grades in given)
    return {
        MISSING: len(lost),
        ZERO if zeros else UNANSWERABLE: unanswerable,
        UNJUDGED: sum(not grades for grades in given),
        UNKNOWN: len(qrels.keys() - known),
        NEGATIVE: sum(grade < 0 for grades in qrels.values() for grade in grades.values()),
        TWINS: len(composed) - len(forms),
    }


def _composed(names: Iterable[str]) -> list[str]:
    """Return the names that are not ASCII, in Unicode's composed form (NFC)."""
    return [unicodedata.normalize("NFC", name) for name in names if not name.isascii()]


def _some(names: Iterable[str]) -> str:
    return ", ".join(f"{name!r:.60}" for name in islice(names, 3)) or "none"


def query_clusters(collection: TestCollection) -> dict[str, str]:
    """Return the cluster of each query: as the data define them, else its only relevant document.

    Empty if queries were sampled one by one.
    """
    if collection.clusters:
        return {query: collection.clusters[query] for query in collection.queries}
    return shared_documents(collection.qrels)


def shared_documents(qrels: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Return the relevant document of each query, as clusters of queries.

    Empty unless each query has exactly one, and some share it.

    >>> shared_documents({"q1": {"a": 1, "b": 0}, "q2": {"a": 1}, "q3": {"c": 2}})
    {'q1': 'a', 'q2': 'a', 'q3': 'c'}
    """
    relevant = {
        query: [document for document, grade in grades.items() if grade > 0]
        for query, grades in qrels.items()
    }
    if any(len(each) != 1 for each in relevant.values()):
        return {}
    clusters = {query: document for query, (document,) in relevant.items()}
    return clusters if len({*clusters.values()}) < len(clusters) else {}


def in_corpus(grades: Mapping[str, int], documents: Collection[str]) -> dict[str, int]:
    """Return the grades of documents that are there."""
    return {document: grade for document, grade in grades.items() if document in documents}


def plain_text(text: str) -> str:
    """Return a text without differences of width, composition, case and blanks.

    >>> plain_text(" Sort  a List ") == plain_text("sort a list")
    True
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def documents_of_themselves(
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return the documents which are a query itself, to remove from its ranking, and counts.

    A document is the query itself if it has its id and, after a title that is no longer than the
    rest, the same `plain_text`. It is removed from the ranking of that query, where it would be
    first, unless it has a judgement. A document of another id with the query's text may be an
    answer: it is ranked, and counted.
    """
    texts = {query: plain_text(text) for query, text in queries.items()}
    removed: dict[str, list[str]] = {}
    judged, ranked = set(), set()
    for query, text in texts.items():
        if text and query in documents and _is_titled(plain_text(documents[query]), text):
            if query in qrels.get(query, {}):
                judged.add(query)
            else:
                removed[query] = [query]
    for document, equal in _equal_texts(texts, documents):
        for query in equal:
            if document in qrels.get(query, {}):
                judged.add(query)
            elif document != query:
                ranked.add(query)
    counts = {ITSELF: len(removed), JUDGED_ITSELF: len(judged), SAME_TEXT: len(ranked)}
    return removed, counts


def _is_titled(document: str, text: str) -> bool:
    """Return whether a document is a text, perhaps after a title that is no longer."""
    return document.endswith(text) and len(document) <= 2 * len(text)


def _equal_texts(
    queries: Mapping[str, str], documents: Mapping[str, str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each document with the text of queries, and these; queries are `plain_text`."""
    by_text: dict[str, list[str]] = {}
    for query, text in queries.items():
        if text:
            by_text.setdefault(text, []).append(query)
    prefixes = {text[:_PREFIX] for text in by_text}
    for document, text in documents.items():
        beginning = plain_text(text.lstrip()[: 8 * _PREFIX])
        if beginning[:_PREFIX] in prefixes and (equal := by_text.get(plain_text(text))):
            yield document, equal


def with_copies(clusters: Mapping[str, str], queries: Mapping[str, str]) -> dict[str, str]:
    """Return a cluster per query in which copies of a query are together; empty without any.

    Copies have the same `plain_text`. Clusters that share a copy become one.

    >>> with_copies({}, {"q1": "Sort a list", "q2": "sort a  list", "q3": "sort"})
    {'q1': 'q1', 'q2': 'q1', 'q3': 'q3'}
    """
    merged: dict[str, str] = {}  # of clusters

    def first(cluster: str) -> str:
        while cluster in merged:
            cluster = merged[cluster]
        return cluster

    by_text: dict[str, str] = {}
    together = {query: clusters.get(query, query) for query in queries}
    for query, text in queries.items():
        if not (plain := plain_text(text)):
            continue
        earlier = first(by_text.setdefault(plain, together[query]))
        if earlier != first(together[query]):
            merged[first(together[query])] = earlier
    together = {query: first(cluster) for query, cluster in together.items()}
    return together if clusters or len({*together.values()}) < len(together) else {}


def text_counts(kind: str, texts: Iterable[str]) -> dict[str, int]:
    """Count texts that are empty, have control characters or are duplicates; counts may be 0.

    >>> text_counts("documents", ["a", "", "a"])  # doctest: +NORMALIZE_WHITESPACE
    {'empty documents': 1, 'documents with control characters': 0,
     'documents equal to another': 1}
    """
    empty, control, hashes = 0, 0, array("q")  # of hashes, millions fit into memory
    for text in texts:
        control += CONTROL.search(text) is not None
        if text.strip():
            hashes.append(hash(text))
        else:
            empty += 1
    equal = len(hashes) - len(np.unique(hashes))
    return {
        f"empty {kind}": empty,
        f"{kind} with control characters": control,
        f"{kind} equal to another": equal,
    }


def nothing_found_by(part: str) -> str:
    """Return the name of the count of queries for which a part of a fusion found nothing."""
    return f"queries for which {part}{PART_FOUND_NOTHING}"


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {name: count for name, count in counts.items() if count}


def find_collections(spec: Any) -> list[TestCollection]:
    """Return the collections of a folder or an MTEB task; a collection is returned as it is.

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
            return [_from_msmarco(folder)]
        if variant(folder, "corpus.jsonl"):
            return [TestCollection.from_beir(folder)]
        return _group(folder)
    try:
        if str(spec).startswith(("PyDocs", "AuthorSTS")):
            from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

            return from_mteb(embedded_task(str(spec)))
        import mteb

        return from_mteb(mteb.get_task(str(spec)))
    except KeyError as error:
        why = str(error.args[0]).removeprefix("KeyError: ").rstrip(".")
        raise DataError(f"{str(spec)!r} is neither a folder nor an MTEB task ({why})") from None


def _group(folder: Path) -> list[TestCollection]:
    """Return the collections of a folder of BEIR folders, whose scores are averaged.

    Raises:
        DataError: no part, or one that is incomplete: a mean without it would be another one.
    """
    try:
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith((".", "__")))
        parts = [each for each in inside if each.is_dir()]
        unlike = [part for part in parts if not any(map(_is_beir_file, part.iterdir()))]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from None
    if len(unlike) == len(parts):
        raise DataError(
            f"{folder}: expected a BEIR folder (corpus.jsonl), a folder of BEIR folders, or "
            "the MS MARCO dev set (queries.dev.small.tsv)"
        )
    packed = [each for each in inside if _ARCHIVE.search(each.name)]
    names = {part.name for part in parts}
    lost = unlike + [each for each in packed if _ARCHIVE.sub("", each.name) not in names]
    if lost:
        raise DataError(
            f"{lost[0]}: no BEIR folder (corpus.jsonl, queries.jsonl, qrels/), beside {len(parts)} "
            f"folders of one mean ({len(lost)} such in total); complete it, or move it away"
        )
    splits = {part: _split(part) for part in parts}
    if len({*splits.values()}) > 1:
        first, *others = splits
        other = next(part for part in others if splits[part] != splits[first])
        raise DataError(
            f"{other}: has the split {splits[other]!r}, and {first.name} has {splits[first]!r}; "
            "expected one split in all folders of a mean"
        )
    top = _label(folder)
    collections = [TestCollection.from_beir(part) for part in parts]
    return [replace(each, name=f"{top}-{each.name}", group=top) for each in collections]


def _is_beir_file(file: Path) -> bool:
    return _BEIR_FILE.match(file.name) is not None


def _split(folder: Path) -> str:
    """Return the split of a BEIR folder's qrels: ``test``, or the only one that is there."""
    qrels = folder / "qrels"
    names = {file.name.split(".")[0] for file in qrels.glob("*")} if qrels.is_dir() else set()
    names = {name for name in names if name}
    if "test" in names or not names:
        return "test"
    if len(names) > 1:
        raise DataError(
            f"{qrels}: no test.tsv, and several other splits: {listed(sorted(names))}; give one as "
            "`split` of from_beir, or leave one there"
        )
    return names.pop()


def _label(folder: Path) -> str:
    """Return the name of a folder, or one that is safe in file names and as distinct.

    >>> _label(Path("scifact")), _label(Path("my data"))
    ('scifact', 'my-data-b2167b0a')
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("-._")[:100]
    digest = hashlib.sha256(os.fsencode(folder.name)).hexdigest()[:8]
    return plain if plain == folder.name else f"{plain or 'data'}-{digest}"


def _from_msmarco(folder: Path) -> TestCollection:
    """Read the MS MARCO dev set: 6,980 queries, their qrels, and the official top 1,000.

    ``top1000.dev`` includes its passages. The order of its lines is not a ranking;
    ``run.dev.small.tsv`` (query, passage, rank), if it exists, gives the order. Without
    ``top1000.dev``, the documents are ``collection.tsv`` (8.8 million passages).
    """
    file = required(folder, "queries.dev.small.tsv", "queries.dev.tsv")
    queries = _by_id(file, numbered_tsv_rows(file, 2))
    qrels, counts = _read_qrels(required(folder, "qrels.dev.small.tsv", "qrels.dev.tsv"), columns=4)
    top = variant(folder, "top1000.dev", "top1000.dev.tsv")
    run = variant(folder, "run.dev.small.tsv", "run.dev.small.trec")
    documents: dict[str, str] = {}
    candidates: dict[str, list[str]] | None = None
    if top is None:
        file = required(folder, "collection.tsv")
        documents = _by_id(file, numbered_tsv_rows(file, 2))
    else:
        candidates = {}
        for number, (query, name, _, passage) in numbered_tsv_rows(top, 4):
            candidates.setdefault(query, []).append(name)
            if documents.setdefault(name, passage) != passage:
                raise DataError(f"{top}:{number}: document {name!r:.60} has another text before")
        for name in (*candidates, *documents):
            checked_id(name, where=str(top))
    if run is not None:
        ranked = load_run(run)
        candidates = {q: sorted(s, key=lambda d, s=s: -s[d]) for q, s in ranked.items()}  # type: ignore[misc]
    collection = TestCollection(
        "MSMARCO-dev",
        documents,
        queries,
        qrels,
        candidates,
        ordered=run is not None,
        language=ENGLISH,
    )
    return collection.checked(folder, counted=counts)


def from_mteb(task: Any) -> list[TestCollection]:
    """Return the collections of an MTEB task, one per split and language, or part.

    The queries are those that MTEB scores: a query whose judgements are all zero scores 0.

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
        languages = task_languages(task.metadata, subset)
        cluster_of = getattr(task, "clusters", None)
        collection = TestCollection(
            name if len(parts) == 1 else f"{name}-{subset}-{split}",
            documents,
            queries,
            {query: each for query, each in data["relevant_docs"].items() if query in queries},
            data["top_ranked"],
            skip_self=bool(task.ignore_identical_ids),
            group="" if len(parts) == 1 else name,
            language=ENGLISH
            if ENGLISH in languages
            else min(languages),  # BM25 stems English if present
            clusters={query: cluster_of(query) for query in queries} if cluster_of else {},
            substitute=substitute_of(task),
        )
        collections.append(collection.checked(name, counted=counted, zeros=True))
    return collections
