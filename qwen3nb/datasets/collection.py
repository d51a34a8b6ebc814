"""Test collections: documents, queries and qrels, in memory or from folders and MTEB tasks.

Folders are those of `qwen3nb.datasets.collection_files`. MTEB tasks are any of retrieval or
reranking, by name or object, including PyDocs.

The revision of a collection is the digest of its content. Irregularities are counted in
`TestCollection.counts`, which is stored in the record and shown on the page. A collection that
lacks most of its judged documents is refused, because its scores would be meaningless.
`book/guide/what-is-refused.md` lists the rules.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal

from qwen3nb.datasets.collection_files import (
    folder_label,
    group_folders,
    is_collection_folder,
    is_msmarco,
    read_collection_folder,
    read_msmarco,
    split_of,
)
from qwen3nb.datasets.equal_texts import documents_of_themselves, with_copies
from qwen3nb.datasets.in_memory import (
    QUERY_ID,
    find_column,
    grades_by_query,
    is_table,
    texts_by_id,
)
from qwen3nb.datasets.judgements import (
    DUPLICATES,
    UNKNOWN,
    UNWINNABLE,
    WITHOUT_CANDIDATES,
    binary_grades,
    highest_grade,
    in_corpus,
    judgement_counts,
    nonzero,
    read_grade,
    shared_documents,
    some_ids,
    text_counts,
)
from qwen3nb.datasets.mirror import load_data, local_data, substitute_of
from qwen3nb.datasets.nano import SmallSet
from qwen3nb.datasets.rows import DataError, checked_id, listed, unicode_text
from qwen3nb.models.search.mteb_rows import ENGLISH, joined_query, named_documents, task_languages
from qwen3nb.models.search.words import Words, words_of_languages, words_of_texts
from qwen3nb.tiers import NANO
from qwen3nb.utils.strict_json import first_duplicate

log = logging.getLogger(__name__)
_SEARCH_TYPES = ("Retrieval", "Reranking")
# Separators in what the revision is a digest of.
_END_OF_ID = "\0"
_END_OF_ENTRY = "\1"
_END_OF_PART = "\2"


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
        nano: how the collection was cut from a large one, if it was; see `qwen3nb.datasets.nano`.
        source: revision of this large one, or empty.
    """

    name: str
    documents: Mapping[str, str]
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, float]]
    candidates: Mapping[str, list[str]] | None = None
    ordered: bool = False
    skip_self: bool = False
    itself: Mapping[str, Sequence[str]] = field(default_factory=dict)
    group: str = ""
    language: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    substitute: str = ""
    relevance_threshold: float = 1
    nano: SmallSet | None = None
    source: str = ""

    __test__ = False  # keeps pytest from collecting the class

    @classmethod
    def from_texts(
        cls,
        queries: object,
        documents: object,
        relevant: object,
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
                perhaps ``score``, as in BEIR's qrels. Each of the three may be a file, too; see
                `qwen3nb.datasets.custom.load.load_domain`.
            name: name of the collection, safe in file names.

        Raises:
            DataError: a judged query or document has no text; an id is blank, a duplicate or has
                control characters or lone surrogates; a text is not a string or has a lone
                surrogate; a grade is not a number; or there is no relevant document.

        >>> TestCollection.from_texts({"q": "sort a list"}, {"d": "list.sort"}, {"q": ["d"]})
        TestCollection('custom', 1 documents, 1 queries)
        >>> TestCollection.from_texts(["sort a list"], ["str.join", "list.sort"], [[1]]).qrels
        {'0': {'1': 1}}
        >>> rows = [{"query-id": "0", "corpus-id": "1", "score": 2}]
        >>> TestCollection.from_texts(["sort a list"], ["str.join", "list.sort"], rows).qrels
        {'0': {'1': 2}}

        Prompts of a model are not part of a collection: pass them to `load_encoder`.
        """
        if isinstance(queries, Path | str):
            queries = _texts_of_queries(queries)
        if isinstance(documents, Path | str):
            documents = _texts_of_documents(documents)
        query_texts = _texts(name, queries)
        if isinstance(relevant, Path | str):
            relevant = _grades_of_file(relevant, query_texts)
        document_texts = _texts(name, documents)
        qrels = {
            query: _grades(judgements, place=f"{name}: query {query!r:.60}")
            for query, judgements in _judgements(name, relevant).items()
        }
        judged_ids: set[str] = set()
        for grades in qrels.values():
            judged_ids.update(grades)
        missing_ids = sorted(judged_ids - document_texts.keys())
        if missing_ids:
            raise DataError(
                f"document {missing_ids[0]!r:.60} is judged but has no text "
                f"({len(missing_ids)} in total)"
            )
        return cls(name, document_texts, query_texts, qrels).checked(name)

    @classmethod
    def from_beir(cls, folder: Path | str, *, split: str = "") -> TestCollection:
        """Read a BEIR folder.

        Own data follow the same two rules. A document which is the query itself is removed from its
        ranking, unless it is judged for it (`documents_of_themselves`); BEIR's own code removes
        every document with the query's id. A judged document that is not in the corpus is left out
        of the judgements, and a query without another relevant document with it; trec_eval counts
        it as not retrieved, which lowers the score of every model alike.

        Args:
            folder: with corpus.jsonl, queries.jsonl and qrels/<split>.tsv (or .jsonl, .txt; or
                .gz); or of MTEB, with corpus/, queries/ and qrels/ or default/.
            split: split whose qrels to read; empty for ``test``, or for the only one there. A name
                other than ``test`` is part of the collection's name.

        Raises:
            DataError: a file is missing, or a row is malformed.
        """
        folder = Path(folder).expanduser()
        split = split or split_of(folder)
        files = read_collection_folder(folder, split)
        name = folder_label(folder)
        if split != "test":
            name = f"{name}-{split}"
        collection = cls(name, files.documents, files.queries, files.qrels, files.candidates)
        return collection.checked(folder, counted=files.counts, missing_documents="left out")

    def checked(
        self,
        place: object,
        *,
        counted: Mapping[str, int] | None = None,
        zeros: bool = False,
        missing_documents: Literal["left out", "not retrieved"] = "not retrieved",
    ) -> TestCollection:
        """Return the collection with only its scored queries, and count irregularities.

        Judged documents may be missing from the corpus, as in some BEIR data sets; most of them
        must be there. Candidates must not be missing.

        Args:
            place: location, for error messages.
            counted: irregularities counted while reading the data.
            zeros: as MTEB, keep queries whose judgements are all zero, which score 0, and duplicate
                candidates. Otherwise these queries are left out, and such candidates are refused.
            missing_documents: what judged documents count as that are not in the corpus.

        Raises:
            DataError: no query has a relevant document, a judged query or a candidate has no
                text, a candidate is given twice, all documents are empty, or most judged
                documents are missing.
        """
        relevant = self._queries_with_relevant(place, missing_documents)
        scored_qrels = relevant
        if zeros:
            scored_qrels = {query: dict(grades) for query, grades in self.qrels.items() if grades}
        self._check_texts(place, scored_qrels)
        counts = judgement_counts(
            self.qrels,
            queries=self.queries,
            documents=self.documents,
            place=place,
            zeros=zeros,
        )
        for name, count in (counted or {}).items():
            counts[name] = counts.get(name, 0) + count
        if missing_documents == "left out":
            unwinnable = self._unwinnable(relevant)
            counts[UNWINNABLE] = len(unwinnable)
            if unwinnable:
                log.warning("%s: %s: %s", place, UNWINNABLE, listed(unwinnable))
        queries = {query: self.queries[query] for query in sorted(scored_qrels)}
        clusters = self.clusters
        own_documents: Mapping[str, Sequence[str]] = {}
        if not zeros:
            clusters = with_copies(clusters or shared_documents(scored_qrels), queries)
            own_documents, counts_of_itself = documents_of_themselves(
                queries, self.documents, scored_qrels
            )
            counts |= counts_of_itself
        counts |= text_counts("documents", self.documents.values())
        counts |= text_counts("queries", queries.values())
        candidates = self._checked_candidates(place, scored_qrels, allow_duplicates=zeros)
        if candidates is not None:
            counts[WITHOUT_CANDIDATES] = sum(not names for names in candidates.values())
        return replace(
            self,
            queries=queries,
            qrels=scored_qrels,
            candidates=candidates,
            itself=own_documents,
            clusters=clusters,
            counts=nonzero(counts),
        )

    def _queries_with_relevant(
        self,
        place: object,
        missing_documents: str,
    ) -> dict[str, dict[str, float]]:
        """Return the grades of the queries that have a relevant document."""
        grades_by_query: dict[str, dict[str, float]] = {}
        for query, all_grades in self.qrels.items():
            grades = dict(all_grades)
            if missing_documents == "left out":
                grades = in_corpus(all_grades, self.documents)
            has_relevant = highest_grade(grades) > 0
            if has_relevant:
                grades_by_query[query] = grades
        if not grades_by_query:
            raise DataError(
                f"{place}: no query has a relevant document; {len(self.qrels)} are judged"
            )
        return grades_by_query

    def _unwinnable(self, answerable: Collection[str]) -> list[str]:
        """Return the queries whose relevant documents are all missing from the corpus."""
        unwinnable: list[str] = []
        for query, grades in self.qrels.items():
            if query in answerable or query not in self.queries:
                continue
            if highest_grade(grades) > 0:
                unwinnable.append(query)
        return sorted(unwinnable)

    def _check_texts(self, place: object, scored_queries: Collection[str]) -> None:
        """Refuse scored queries without a text, and documents that are all empty."""
        without_text = sorted(set(scored_queries) - self.queries.keys())
        if without_text:
            raise DataError(
                f"{place}: query {without_text[0]!r:.60} is judged but has no text "
                f"({len(without_text)} in total); ids of queries look like {some_ids(self.queries)}"
            )
        has_text = any(text.strip() for text in self.documents.values())
        if not has_text:
            raise DataError(
                f"{place}: expected documents with a text; all {len(self.documents)} are empty"
            )

    def _checked_candidates(
        self,
        place: object,
        queries: Iterable[str],
        *,
        allow_duplicates: bool,
    ) -> dict[str, list[str]] | None:
        """Return the candidates of the queries; refuse unknown ones, and perhaps duplicates."""
        if self.candidates is None:
            return None
        candidates: dict[str, list[str]] = {}
        for query in queries:
            documents = [str(document) for document in self.candidates.get(query, [])]
            for document in documents:
                if document not in self.documents:
                    raise DataError(
                        f"{place}: candidate {document!r:.60} of query {query!r:.60} is unknown"
                    )
            duplicate = first_duplicate(documents)
            if duplicate is not None and not allow_duplicates:
                raise DataError(
                    f"{place}: candidate {duplicate!r:.60} of query {query!r:.60} is given twice"
                )
            candidates[query] = documents
        return candidates

    def removed(self, query: str) -> Collection[str]:
        """Return the documents that are removed from the ranking of a query."""
        if self.skip_self:
            return {query}
        return self.itself.get(query, ())

    def part(self, part: SmallSet) -> TestCollection:
        """Return a small part of the collection, with its texts, judgements and candidates.

        Judgements of documents that were left out go with them; none of these is relevant. Those
        of documents that this collection lacks, too, stay as they are.
        """
        qrels = {}
        own_documents = {}
        for query in sorted(part.queries):
            qrels[query] = {
                document: grade
                for document, grade in self.qrels[query].items()
                if document in part.documents or document not in self.documents
            }
            itself = [name for name in self.itself.get(query, ()) if name in part.documents]
            if itself:
                own_documents[query] = itself
        candidates = None
        if self.candidates is not None:
            candidates = {query: self.candidates.get(query, []) for query in qrels}
        return replace(
            self,
            documents=_texts_of(self.documents, part.documents),
            queries={query: self.queries[query] for query in qrels},
            qrels=qrels,
            candidates=candidates,
            itself=own_documents,
            clusters=_texts_of(self.clusters, part.queries),
            # not one of the means over the whole collections of its group
            group=f"{self.group}-{NANO}" if self.group else "",
            counts={},  # those of the whole collection do not apply
            nano=part,
            source=self.revision,
        )

    def __repr__(self) -> str:
        parts = [
            f"TestCollection({self.name!r}, {len(self.documents)} documents, "
            f"{len(self.queries)} queries"
        ]
        parts += [f"{name}: {count:,}" for name, count in self.counts.items()]
        return f"{'; '.join(parts)})"

    @property
    def key(self) -> str:
        """Its name in records, as in ``cranfield-nano``, which says if it was cut."""
        return f"{self.name}-{NANO}" if self.nano else self.name

    @property
    def relevant(self) -> dict[str, dict[str, float]]:
        """The grades as 0 or 1, by the threshold."""
        return binary_grades(self.qrels, self.relevance_threshold)

    @cached_property
    def revision(self) -> str:
        """SHA-256 of documents, queries, qrels, candidates and the settings of their use."""
        digest = hashlib.sha256()
        for part in self._content():
            digest.update(part.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def _content(self) -> Iterator[str]:
        """Yield everything that the revision depends on, with separators."""
        # Separators tell the id "ab" of the text "c" from "a" of "bc".
        for texts in (self.documents, self.queries):
            for name in sorted(texts):
                text = texts[name]
                if _END_OF_ENTRY in text:  # its length tells where it ends
                    yield f"{len(text)}{_END_OF_PART}"
                yield f"{name}{_END_OF_ID}{text}{_END_OF_ENTRY}"
            yield _END_OF_PART
        for query in sorted(self.qrels):
            grades = sorted(self.qrels[query].items())
            yield f"{query}{_END_OF_ID}{grades}{_END_OF_ENTRY}"
        candidates = self.candidates or {}
        for query in sorted(candidates):
            yield f"{query}{_END_OF_ID}{candidates[query]}{_END_OF_ENTRY}"
        yield f"{self.ordered} {self.skip_self}"
        for query in sorted(self.itself):
            yield f"{query}{_END_OF_ID}{sorted(self.itself[query])}{_END_OF_ENTRY}"
        # Defaults add nothing, so that revisions from before these fields remain.
        if self.language not in ("", ENGLISH):
            yield self.language
        if self.relevance_threshold != 1:
            yield f"relevant from {self.relevance_threshold}"

    @cached_property
    def words(self) -> Words:
        """How `BM25` reads the texts: by their language, else by their script."""
        if self.language:
            return words_of_languages({self.language})
        return words_of_texts(self.queries.values(), self.documents.values())


def _texts_of(texts: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name in names}


def _by_id(place: str, values: Any) -> dict[str, object]:
    """Return values by id; the position is the id in a list."""
    if isinstance(values, Mapping):
        value_of = values
    elif hasattr(values, "items"):  # a series of pandas, by its index
        value_of = dict(values.items())
    else:
        return {str(position): value for position, value in enumerate(values)}
    by_id: dict[str, object] = {}
    for name, value in value_of.items():
        by_id[checked_id(str(name), place=place)] = value
    # Ids such as 1 and "1" differ, but are the same as text.
    if len(by_id) < len(value_of):
        duplicate = first_duplicate(map(str, value_of))
        raise DataError(f"{place}: duplicate id {duplicate!r:.60}")
    return by_id


def _texts_of_queries(file: Path | str) -> dict[str, str]:
    from qwen3nb.datasets.custom.query_texts import read_entries

    entries = read_entries(file)
    return {str(entry["id"]): str(entry["query"]) for entry in entries.queries}


def _texts_of_documents(file: Path | str) -> Mapping[str, str]:
    from qwen3nb.datasets.custom.documents import read_documents

    return read_documents(Path(file)).texts


def _grades_of_file(file: Path | str, queries: Collection[str]) -> dict[str, dict[str, float]]:
    from qwen3nb.datasets.custom.joined import read_judgements

    return read_judgements(file, queries)[0].by_query()


def _judgements(place: str, relevant: object) -> Mapping[str, object]:
    """Return what is relevant to each query; see `TestCollection.from_texts`."""
    if isinstance(relevant, Mapping):  # relevant documents by query, not a table of columns
        return _by_id(place, relevant)
    if not is_table(relevant):
        return _by_id(place, relevant)
    if isinstance(relevant, list) and find_column(relevant[0], QUERY_ID) is None:
        return _by_id(place, relevant)  # a dictionary of grades for each query
    return grades_by_query(relevant, what=f"{place}: judgements")


def _grades(judgements: Any, *, place: str) -> dict[str, float]:
    """Return the grade of each document; those of a list are relevant, of grade 1."""
    grades = judgements
    if not isinstance(judgements, Mapping):
        grades = dict.fromkeys(judgements, 1)
    return {str(document): read_grade(grade, place=place) for document, grade in grades.items()}


def _texts(place: str, values: object) -> dict[str, str]:
    """Return the text of each id; refuse what is no valid text."""
    if is_table(values):
        values = texts_by_id(values, what=place)
    texts: dict[str, str] = {}
    for name, text in _by_id(place, values).items():
        if not isinstance(text, str) or not unicode_text(text):
            raise DataError(
                f"{place}: {name!r:.60} is {text!r:.60}; expected a text of valid Unicode"
            )
        texts[name] = text
    return texts


def query_clusters(collection: TestCollection) -> dict[str, str]:
    """Return the cluster of each query: as the data define them, else its only relevant document.

    Empty if queries were sampled one by one.
    """
    if collection.clusters:
        return {query: collection.clusters[query] for query in collection.queries}
    return shared_documents(collection.qrels)


def find_collections(spec: object) -> list[TestCollection]:
    """Return the collections of a folder or an MTEB task; a collection is returned as it is.

    Raises:
        DataError: ``spec`` is none of these.
    """
    if isinstance(spec, TestCollection):
        return [spec]
    if not isinstance(spec, str | Path):
        return from_mteb(spec)  # a task of MTEB
    folder = Path(spec).expanduser()
    if not folder.is_dir():
        return _of_task_name(str(spec))
    if is_msmarco(folder):
        return [_from_msmarco(folder)]
    if is_collection_folder(folder):
        return [TestCollection.from_beir(folder)]
    # A folder of BEIR folders, as of CQADupStack: one collection each, and a mean over them.
    group = folder_label(folder)
    collections: list[TestCollection] = []
    for part in group_folders(folder):
        collection = TestCollection.from_beir(part)
        collections.append(replace(collection, name=f"{group}-{collection.name}", group=group))
    return collections


def _of_task_name(name: str) -> list[TestCollection]:
    """Return the collections of an MTEB task by its name."""
    try:
        if name.startswith(("PyDocs", "AuthorSTS")):
            from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

            return from_mteb(embedded_task(name))
        import mteb

        return from_mteb(mteb.get_task(name))
    except KeyError as error:  # raised by both look-ups for an unknown name
        # MTEB repeats the name of the error in its message.
        reason = str(error.args[0]).removeprefix("KeyError: ").rstrip(".")
        if Path(name).expanduser().is_file():
            raise DataError(
                f"{name}: expected a folder of BEIR or MTEB; a file of queries is read by qwen3nb "
                f"domain --queries {name}"
            ) from None
        raise DataError(f"{name!r} is neither a folder nor an MTEB task ({reason})") from None


def _from_msmarco(folder: Path) -> TestCollection:
    files = read_msmarco(folder)
    collection = TestCollection(
        "MSMARCO-dev",
        files.documents,
        files.queries,
        files.qrels,
        files.candidates,
        ordered=files.ordered,
        language=ENGLISH,
    )
    return collection.checked(folder, counted=files.counts)


def from_mteb(task: Any) -> list[TestCollection]:
    """Return the collections of an MTEB task, one per split and language, or part.

    The queries are those that MTEB scores: a query whose judgements are all zero scores 0.

    Raises:
        DataError: the task has no corpus, or it is a reranking task whose candidates did
            not load (MTEB would then search the whole corpus).
    """
    name = task.metadata.name
    collections: list[TestCollection] = []
    # A task that aggregates others, such as CQADupstack, is a group of their collections.
    for part in getattr(task.metadata, "tasks", None) or []:
        for collection in from_mteb(part):
            collections.append(replace(collection, group=name))
    if collections:
        return collections
    if task.metadata.type not in _SEARCH_TYPES:
        raise DataError(f"{name}: expected type Retrieval or Reranking; got {task.metadata.type}")
    if not task.data_loaded:
        with local_data(task):
            load_data(task)
    # Data of older tasks get the form that is read below.
    task.convert_v1_dataset_format_to_v2(num_proc=None)
    parts = named_parts(task)
    for subset, split, part_name in parts:
        collection = collection_of_part(task, subset, split, name=part_name)
        if len(parts) > 1:
            collection = replace(collection, group=name)
        collections.append(collection)
    return collections


def named_parts(task: Any) -> list[tuple[str, str, str]]:
    """Return subset, split and name of each collection of a task.

    The only one has the task's own name; of several, each is named by its part.
    """
    name = task.metadata.name
    parts = list(product(task.hf_subsets, task.eval_splits))
    if len(parts) == 1:
        return [(subset, split, name) for subset, split in parts]
    return [(subset, split, f"{name}-{subset}-{split}") for subset, split in parts]


def collection_of_part(
    task: Any,
    subset: str,
    split: str,
    *,
    name: str,
) -> TestCollection:
    """Return the collection of one subset and split of a task whose data are loaded."""
    data = task.dataset[subset][split]
    if task.metadata.type == "Reranking" and not data["top_ranked"]:
        raise DataError(
            f"{task.metadata.name}: the candidates of this reranking task did not load; offline?"
        )
    queries = {str(row["id"]): joined_query(row) for row in data["queries"]}
    documents = dict(named_documents(data["corpus"]))
    judgements = data["relevant_docs"]
    rows = len(data["queries"]) + len(data["corpus"])
    irregularities = {
        UNKNOWN: len(judgements.keys() - queries.keys()),
        # A later row replaces an earlier one of the same id.
        DUPLICATES: rows - len(queries) - len(documents),
    }
    collection = TestCollection(
        name,
        documents,
        queries,
        # In the order of the queries: MTEB has judgements in another one each time.
        qrels={query: judgements[query] for query in queries if query in judgements},
        candidates=data["top_ranked"],
        skip_self=bool(task.ignore_identical_ids),
        language=_language(task_languages(task.metadata, subset)),
        clusters=_clusters_of(task, queries),
        substitute=substitute_of(task),
    )
    # As in MTEB, queries whose grades are all zero count, and score 0.
    return collection.checked(task.metadata.name, counted=irregularities, zeros=True)


def _language(languages: Collection[str]) -> str:
    """Return the language by which BM25 stems: English if it is among them."""
    if ENGLISH in languages:
        return ENGLISH
    return min(languages)


def _clusters_of(task: Any, queries: Mapping[str, str]) -> dict[str, str]:
    """Return the cluster of each query by a task that defines them; else empty."""
    cluster_of = getattr(task, "clusters", None)
    if cluster_of is None:
        return {}
    return {query: cluster_of(query) for query in queries}
