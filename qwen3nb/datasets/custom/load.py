"""Join custom queries and documents into one task.

The grades of the query file are the ground truth. nDCG uses them as they are; for MRR, precision
and recall, grades of at least ``relevance_threshold`` are relevant. Grades for missing documents
are ignored and reported; if most are missing, the data is refused. Queries without a relevant
document are dropped and reported. A document which is the query itself is removed from its ranking
and reported, unless it is judged. Copies of a query are one cluster. An ``expected`` list that
contradicts the grades is reported, without effect. Irregularities are counted as in a
`TestCollection`, by the same rules.

Stars and recency may change scores: a cosine of 0 or more is multiplied by the document's factor
(`document_factors`); a negative one is divided by it. The factor is positive, so more stars or a
later change never lower a score, and the score is continuous at 0. (The original tool multiplies
negative scores too, which reverses the effect of every boost.)
"""

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property

from qwen3nb.datasets.custom.documents import DocumentLayout, Documents, read_documents
from qwen3nb.datasets.custom.generated import counted_kinds, kinds_text
from qwen3nb.datasets.custom.joined import join_judgements
from qwen3nb.datasets.custom.queries import Query, QueryFile, ScoringSettings, read_queries
from qwen3nb.datasets.equal_texts import documents_of_themselves, with_copies
from qwen3nb.datasets.judgements import (
    UNANSWERABLE,
    UNJUDGED,
    UNWINNABLE,
    binary_grades,
    highest_grade,
    in_corpus,
    judgement_counts,
    nonzero,
    spelling_hint,
    text_counts,
)
from qwen3nb.datasets.rows import DataError, listed
from qwen3nb.metrics.near_copies import plain_text
from qwen3nb.models.search.words import Words, with_parts_if_needed, words_of_texts
from qwen3nb.records.record import GENERATED
from qwen3nb.utils.atomic_files import canonical, sha256_json

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Domain:
    """A retrieval task from custom queries and documents."""

    # name of the task; ends in eight digits of the revision, so that two versions of the data, or
    # two dates, never share a record
    name: str
    revision: str  # SHA-256 of documents, queries, grades, threshold and boosts
    texts: Mapping[str, str]  # text per document
    factors: Mapping[str, float]  # factor per document's score; see `document_factors`
    recipe: Mapping[str, object]  # the parameters of the factors; ``{}`` without boosts
    queries: Mapping[str, str]  # text per scored query
    categories: Mapping[str, str]  # category per scored query
    # grade per query and document, of documents that exist
    grades: Mapping[str, Mapping[str, float]]
    threshold: float  # lowest grade that counts as relevant in binary metrics
    dropped: tuple[str, ...]  # queries without a relevant document, which no metric counts
    notes: tuple[str, ...]  # issues in the data, one line each
    # irregularities of the data and their numbers, without zeros
    counts: Mapping[str, int] = field(default_factory=dict)
    # cluster per scored query, by default its id; empty if no query names one and none are copies
    clusters: Mapping[str, str] = field(default_factory=dict)
    # per query, the documents which are the query itself and are removed from its ranking
    itself: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # whether a document without a grade is stated not to be relevant
    complete: bool = False
    # queries of which this is stated, where it is not of all
    complete_queries: frozenset[str] = frozenset()
    generated: Mapping[str, str] = field(default_factory=dict)  # how each generated query was made
    origins: tuple[Mapping[str, object], ...] = ()  # with which seed and model, from what
    understood: tuple[str, ...] = ()  # how the data were read, a line each; not recorded

    @cached_property
    def words(self) -> Words:
        """How `BM25` reads the texts: by their script, and by parts of words if need be."""
        queries, documents = self.queries.values(), self.texts.values()
        return with_parts_if_needed(words_of_texts(queries, documents), queries, documents)

    @property
    def relevant(self) -> dict[str, dict[str, float]]:
        """The grades as 0 or 1, by the threshold."""
        return binary_grades(self.grades, self.threshold)


@dataclass
class Boosts:
    """How stars and recency change the scores of documents."""

    factors: dict[str, float]  # by document
    recipe: dict[str, object] = field(default_factory=dict)  # the parameters of the factors
    notes: list[str] = field(default_factory=list)  # on missing values


def load_domain(
    queries: object,
    documents: object = None,
    *,
    judgements: object = None,
    layout: DocumentLayout | None = None,
    boost: bool = True,
    on: date | None = None,
    name: str | None = None,
    relevance_threshold: float | None = None,
    complete: bool = False,
) -> Domain:
    """Read, check and join queries and documents.

    Args:
        queries: a file in TOML (see `qwen3nb.datasets.custom.queries`), a golden set or a list of
            judgements of another program (see `qwen3nb.datasets.custom.golden_sets`), a folder of
            BEIR or MTEB, or queries as a list of dictionaries or a data frame:
            ``{"id": "q1", "query": "sort a list", "expected": ["list.sort"]}``.
        documents: a file of any format or a folder of texts (see
            `qwen3nb.datasets.custom.documents`), or rows as a list of dictionaries or a data frame:
            ``{"id": "list.sort", "text": …}``; or text by id. May be left out if the queries come
            with their documents.
        judgements: grades, if ``queries`` only has texts: a file of qrels or another list (see
            `qwen3nb.datasets.judgement_lists`), rows, or a dictionary ``{"q1": {"list.sort": 3}}``.
        layout: the columns that make up a document.
        boost: whether stars and recency change scores, if the layout has them.
        on: the reference date of recency.
        name: name of the task; by default the name of the document file.
        relevance_threshold: lowest grade that counts as relevant in binary metrics; None for the
            file's own, else 2, or 1 if no grade is as high as 2.
        complete: whether every relevant document has a grade, so that one without is not relevant;
            a file may say so, too.

    Raises:
        DataError: an invalid file, no query with a relevant document, most judged documents
            missing, or recency without a date.
    """
    query_file, documents = _read_inputs(queries, documents, judgements, layout)
    query_file, understood = _with_ids_of_texts(query_file, documents)
    boosts = Boosts(dict.fromkeys(documents.texts, 1.0))
    if boost:
        boosts = document_factors(documents, query_file.settings, on=on)
    threshold = relevance_threshold
    if threshold is None:
        threshold, reason = _threshold_of(query_file)
        understood += reason
    grades = _grades_of_scored(query_file, documents, threshold)
    scored_queries = [query for query in query_file.queries if query.id in grades]
    dropped_queries = [query for query in query_file.queries if query.id not in grades]
    texts = {query.id: query.text for query in scored_queries}
    own_documents, counts_of_itself = documents_of_themselves(texts, documents.texts, grades)
    counts = _counts(query_file, documents, dropped_queries, threshold)
    counts |= counts_of_itself
    counts |= text_counts("documents", documents.texts.values())
    counts |= text_counts("queries", texts.values())
    complete = complete or query_file.settings.complete
    is_complete, complete_queries = _completeness(scored_queries, complete)
    generated = _generated(scored_queries)
    content = [
        _document_digest(documents, boosts.factors),
        texts,
        grades,
        threshold,
        boosts.recipe,
    ]
    # Data without these have the digest that they had before these existed.
    content += [part for part in (own_documents, sorted(complete_queries), generated) if part]
    digest = sha256_json(content)
    stem = collection_stem(
        documents.name, name, generated=len(generated), queries=len(scored_queries)
    )
    revision = digest
    if generated:
        revision = f"{GENERATED}{digest}"
    return Domain(
        name=f"domain-{stem}-{digest[:8]}",
        revision=revision,
        texts=documents.texts,
        factors=boosts.factors,
        recipe=boosts.recipe,
        queries=texts,
        categories={query.id: query.category for query in scored_queries},
        grades=grades,
        threshold=threshold,
        dropped=tuple(query.id for query in dropped_queries),
        notes=(
            *_notes_on_generated(generated, scored_queries),
            *boosts.notes,
            *_notes_on_queries(query_file, documents.texts, threshold),
            *_notes_on_copies(own_documents),
        ),
        counts=nonzero(counts),
        clusters=with_copies(_clusters(scored_queries), texts),
        itself=own_documents,
        complete=is_complete,
        complete_queries=complete_queries,
        generated=generated,
        origins=tuple(origin.model_dump(exclude_defaults=True) for origin in query_file.origins),
        understood=(
            *_understood(query_file, documents),
            *understood,
            *_understood_gaps(grades, threshold, is_complete=is_complete),
        ),
    )


def _read_inputs(
    queries: object,
    documents: object,
    judgements: object,
    layout: DocumentLayout | None,
) -> tuple[QueryFile, Documents]:
    """Read what is not read yet; the queries may bring their documents."""
    if judgements is not None:
        queries = join_judgements(queries, judgements)
    if not isinstance(queries, QueryFile):
        queries = read_queries(queries)
    if documents is None:
        documents = queries.documents
    if documents is None:
        raise DataError(
            f"{queries.file}: has no documents; give them, too, such as --documents docs.jsonl"
        )
    if not isinstance(documents, Documents):
        documents = read_documents(documents, layout)
    return queries, documents


def _completeness(queries: Sequence[Query], complete: bool) -> tuple[bool, frozenset[str]]:
    """Return whether the grades of all queries are complete, and else of which they are."""
    complete_queries = frozenset(query.id for query in queries if query.complete)
    if complete or len(complete_queries) == len(queries):
        return True, frozenset()
    return False, complete_queries


def _generated(queries: Sequence[Query]) -> dict[str, str]:
    """Return how each generated query was made, by its id."""
    kinds = {query.id: query.generated_kind for query in queries}
    return {query: kind for query, kind in kinds.items() if kind}


def _mark_of_generated(generated: int, queries: int) -> str:
    """Return what the name of a collection says on how many of its queries are generated."""
    if not generated:
        return ""
    if generated == queries:
        return "-generated"
    return "-part-generated"


def _notes_on_generated(generated: Mapping[str, str], queries: Sequence[Query]) -> Iterator[str]:
    """Say how many queries were generated, and not asked by people."""
    if generated:
        kinds = kinds_text(counted_kinds(generated.values()))
        yield f"{len(generated):,} of {len(queries):,} queries are generated: {kinds}"


def _understood(queries: QueryFile, documents: Documents) -> Iterator[str]:
    """Yield how queries and documents were read, and which ids are spelt in two ways."""
    grades = [grade for query in queries.queries for grade in query.grades.values()]
    scale = "no grades"
    if grades:
        count = _counted(len(grades), "grade", "grades")
        scale = f"{count} from {min(grades):g} to {max(grades):g}"
    how = f" ({queries.understood})" if queries.understood else ""
    yield f"{queries.file.name}: {_counted(len(queries.queries), 'query', 'queries')}, {scale}{how}"
    how = f" ({documents.understood})" if documents.understood else ""
    yield f"{documents.name}: {_counted(len(documents.texts), 'document', 'documents')}{how}"
    hint = _spelling_of_judged(queries, documents)
    if hint:
        yield hint


def _spelling_of_judged(queries: QueryFile, documents: Documents) -> str:
    """Return which judged document is there in another spelling; empty if none is."""
    missing = queries.judged_documents.difference(documents.texts)
    return spelling_hint(sorted(missing), documents.texts)


def _understood_gaps(
    grades: Mapping[str, Mapping[str, float]], threshold: float, *, is_complete: bool
) -> Iterator[str]:
    """Yield what a document without a grade counts as, and how to say that none is missing."""
    if is_complete:
        yield "what has no grade is not relevant, as the grades are stated to be complete"
        return
    yield "what has no grade is unjudged: no verdict is given that its grades could turn"
    for grades_of_query in grades.values():
        if any(grade < threshold for grade in grades_of_query.values()):
            return
    yield (
        "only relevant documents have grades; if they are all that are relevant, say so by "
        "--complete, or complete = true under [settings]"
    )


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _threshold_of(queries: QueryFile) -> tuple[float, tuple[str, ...]]:
    """Return the lowest relevant grade, and why it is not the default, a line each."""
    if queries.threshold is not None:
        return queries.threshold, ()
    default = queries.settings.relevance_threshold
    highest = max((highest_grade(query.grades) for query in queries.queries), default=0)
    if 1 <= highest < default:
        reason = (
            f"no grade is above {highest:g}, so relevant from grade 1; relevance_threshold or "
            "--relevance-threshold sets another"
        )
        return 1, (reason,)
    return default, ()


def _with_ids_of_texts(
    queries: QueryFile, documents: Documents
) -> tuple[QueryFile, tuple[str, ...]]:
    """Return queries with ids of documents where they have their texts, as sets of Ragas do.

    Only if no judged document is one of the ids. The second value says so, in a line.
    """
    judged = queries.judged_documents
    if not judged or not judged.isdisjoint(documents.texts):
        return queries, ()
    id_by_text = {plain_text(text): name for name, text in documents.texts.items()}
    found = {text: id_by_text.get(plain_text(text), text) for text in judged}
    count = sum(text != name for text, name in found.items())
    if not count:
        return queries, ()
    renamed: list[Query] = []
    for query in queries.queries:
        grades = {found[text]: grade for text, grade in query.grades.items()}
        expected = [found.get(text, text) for text in query.expected]
        renamed.append(query.model_copy(update={"grades": grades, "expected": expected}))
    note = f"{count:,} of {len(judged):,} judged documents found by their text, not their id"
    return replace(queries, queries=tuple(renamed)), (note,)


def _notes_on_copies(itself: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line for each query that is itself a document."""
    for query, documents in itself.items():
        yield f"query {query!r}: is itself a document, left out of its ranking: {listed(documents)}"


def _grades_of_scored(
    queries: QueryFile,
    documents: Documents,
    threshold: float,
) -> dict[str, Mapping[str, float]]:
    """Return the grades of documents that exist, of each query with a relevant one.

    Raises:
        DataError: there is no such query.
    """
    grades_by_query: dict[str, Mapping[str, float]] = {}
    highest_of_all: float = 0
    for query in queries.queries:
        grades = in_corpus(query.grades, documents.texts)
        highest = highest_grade(grades)
        highest_of_all = max(highest_of_all, highest)
        if highest >= threshold:
            grades_by_query[query.id] = grades
    if grades_by_query:
        return grades_by_query
    advice = "check the id column"
    if highest_of_all > 0:
        lower = min(1, highest_of_all)
        advice = (
            f"the highest grade is {highest_of_all:g}: set relevance_threshold = {lower:g} under "
            f"[settings], or give --relevance-threshold {lower:g}"
        )
    else:
        hint = _spelling_of_judged(queries, documents)
        if hint:
            advice += f": {hint}"
    raise DataError(
        f"{queries.file}: no query has a document of grade {threshold:g} or higher among the "
        f"{len(documents.texts)} documents of {documents.name}; {advice}"
    )


def _counts(
    queries: QueryFile,
    documents: Documents,
    dropped: Sequence[Query],
    threshold: float,
) -> dict[str, int]:
    """Count judged documents that are missing, and queries by why they are dropped."""
    qrels = {query.id: query.grades for query in queries.queries}
    counts = judgement_counts(
        qrels,
        queries=qrels.keys(),
        documents=documents.texts,
        place=queries.file,
        zeros=False,
    )
    # Their relevant documents are missing, or else they would not be dropped.
    unwinnable = [query for query in dropped if highest_grade(query.grades) >= threshold]
    counts[UNWINNABLE] = len(unwinnable)
    # All others have judgements, but none of the threshold or above.
    counts[UNANSWERABLE] = len(dropped) - counts[UNJUDGED] - len(unwinnable)
    return counts


def _clusters(queries: Sequence[Query]) -> dict[str, str]:
    """Return the cluster of each query, by default its id; empty if none names one."""
    if not any(query.cluster for query in queries):
        return {}
    return {query.id: query.cluster or query.id for query in queries}


def _document_digest(documents: Documents, factors: Mapping[str, float]) -> str:
    """Return the SHA-256 of all documents with their factors."""
    digest = hashlib.sha256()
    for name, text in sorted(documents.texts.items()):
        digest.update(canonical([name, text, factors[name]]) + b"\n")
    return digest.hexdigest()


def collection_stem(
    documents: str, name: str | None = None, *, generated: int, queries: int
) -> str:
    """Return the name of a collection, without the digits of its revision.

    Args:
        documents: name of the file of documents.
        name: name of the collection; by default that of the documents.
        generated: how many queries were generated.
        queries: how many there are.
    """
    stem = _safe_name(name or documents.split(".")[0])
    return stem + _mark_of_generated(generated, queries)


def _safe_name(name: str) -> str:
    """Return a name that is safe in file names."""
    plain = _UNSAFE.sub("-", name).strip("-._") or "data"
    return plain[:60]


def _notes_on_queries(
    queries: QueryFile,
    documents: Collection[str],
    threshold: float,
) -> Iterator[str]:
    """Yield a line for each query that is dropped or whose list contradicts its grades."""
    for query in queries.queries:
        place = f"{queries.file.name}: query {query.id!r}"
        judged_documents = dict.fromkeys([*query.grades, *query.expected])  # each once, in order
        unknown = [document for document in judged_documents if document not in documents]
        if unknown:
            yield f"{place}: not among the documents, ignored: {listed(unknown)}"
        relevant = {document for document, grade in query.grades.items() if grade >= threshold}
        # The expected list should name the relevant documents; if it does not, the grades count.
        in_one_only = sorted(relevant.symmetric_difference(query.expected))
        if query.expected and in_one_only:
            yield f"{place}: the grades count, not the expected list: {listed(in_one_only)}"
        has_relevant = any(document in documents for document in relevant)
        if not has_relevant:
            yield f"{place}: no document of grade {threshold:g} or higher, query dropped"


def document_factors(
    documents: Documents,
    settings: ScoringSettings,
    *,
    on: date | None,
) -> Boosts:
    """Return the factor of each document, the parameters, and notes on missing values.

    The factor is above 0, and 1 if the data has neither stars nor dates.

        factor = (1 + a · log10(stars + 1) / 6) · (1 - b · min(1, days / d))

    with a = 0.1, b = 0.2, d = 365 by default, as in `gh star-search`. Days are whole days from the
    last change to the given date, never to today, which keeps scores reproducible.

    A document without a star count has 0 stars, one without a date counts as oldest, and
    one changed after ``on`` counts as changed on that day.

    Raises:
        DataError: the data has dates, but ``on`` is None.
    """
    boosts = Boosts(dict.fromkeys(documents.texts, 1.0))
    if documents.stars and settings.star_boost_coefficient:
        _add_star_boost(boosts, documents, settings)
    if documents.updated and settings.recency_coefficient:
        _add_recency(boosts, documents, settings, _reference_date(documents, on))
    return boosts


def _add_star_boost(boosts: Boosts, documents: Documents, settings: ScoringSettings) -> None:
    """Raise the factors of documents with stars; a million of them gives the whole gain."""
    gain = settings.star_boost_coefficient
    boosts.recipe["star_boost_coefficient"] = gain
    for document, count in documents.stars.items():
        # A million stars, of magnitude 6, give the whole gain.
        magnitude = math.log10((count or 0) + 1)
        boosts.factors[document] *= 1.0 + gain * magnitude / 6.0
    uncounted = sum(count is None for count in documents.stars.values())
    if uncounted:
        boosts.notes.append(f"{uncounted} documents have no star count: counted as 0")


def _add_recency(
    boosts: Boosts,
    documents: Documents,
    settings: ScoringSettings,
    reference_date: date,
) -> None:
    """Lower the factors of documents by their age."""
    loss = settings.recency_coefficient
    oldest = settings.recency_days
    boosts.recipe["recency_coefficient"] = loss
    boosts.recipe["recency_days"] = oldest
    boosts.recipe["date"] = reference_date.isoformat()
    for document, day in documents.updated.items():
        # After recency_days without a change, the loss is complete.
        share_of_loss = min(1.0, _age(day, reference_date, oldest) / oldest)
        boosts.factors[document] *= 1.0 - loss * share_of_loss
    boosts.notes += _notes_on_dates(documents, reference_date)


def _reference_date(documents: Documents, on: date | None) -> date:
    """Return the given date; refuse data with dates without one."""
    if on is not None:
        return on
    days = [day for day in documents.updated.values() if day is not None]
    last_change = ""
    if days:
        last_change = f"; the last change in the data is of {max(days)}"
    raise DataError(
        "recency needs a reference date, so that results stay reproducible: "
        f"give one (--date YYYY-MM-DD), or disable the boosts (--no-boost){last_change}"
    )


def _age(day: date | None, reference_date: date, oldest: int) -> int:
    """Return the days from the last change; ``oldest`` if that is not known."""
    if day is None:
        return oldest
    return max(0, (reference_date - day).days)


def _notes_on_dates(documents: Documents, reference_date: date) -> Iterator[str]:
    days = [day for day in documents.updated.values() if day is not None]
    undated = len(documents.updated) - len(days)
    if undated:
        yield f"{undated} documents have no date: counted as oldest"
    changed_later = sum(day > reference_date for day in days)
    if changed_later:
        yield f"{changed_later} documents changed after {reference_date}: counted as of that day"
