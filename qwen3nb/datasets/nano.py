"""A small set from a large one: at most 50 queries and 5,000 documents, by a seeded rule.

The order in which ids are drawn is the order of SHA-256 over the seed, the kind of id and the id.
So a set depends on the ids, the judgements and the rankings that are given, and on nothing else:
not on the order of files, a generator of random numbers or other ids that are drawn.

1. Queries with a relevant document in the corpus are drawn. Relevant documents may take at most
   half of the documents, and with the candidates that come with the data at most all of them. The
   first query that no longer fits ends the draw, so that no query is chosen for being easy.
2. The documents that these queries need come first: the relevant ones and the candidates.
3. Room that is left is filled with documents judged not to be relevant, with hard negatives, which
   are the first documents of a ranking of the whole corpus, and with any others.

A relevant document of a chosen query is never left out. If the first query alone has too many, the
set is larger than the limit: half of its documents are relevant.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Protocol

from qwen3nb.datasets.rows import DataError

RULE = 1  # number of this rule; another one makes other sets, and has another number
HARD_NEGATIVES = 50  # first documents of a ranking, per query

Rankings = Mapping[str, Sequence[str]]


class LargeSet(Protocol):
    """What the rule reads of a collection; see `qwen3nb.datasets.collection.TestCollection`."""

    @property
    def name(self) -> str: ...  # noqa: D102 - see there
    @property
    def documents(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def queries(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def qrels(self) -> Mapping[str, Mapping[str, float]]: ...  # noqa: D102
    @property
    def candidates(self) -> Mapping[str, list[str]] | None: ...  # noqa: D102


@dataclass(frozen=True)
class Sizes:
    """The largest numbers of queries and documents of a small set."""

    queries: int = 50
    documents: int = 5_000


NANO_SIZES = Sizes()


@dataclass(frozen=True)
class SmallSet:
    """Ids of a small set, how they were drawn, and where its documents come from."""

    queries: frozenset[str]
    documents: frozenset[str]
    seed: int
    sizes: Sizes  # the limits
    all_queries: int  # of the large set, with a relevant document
    all_documents: int  # of the large set
    # numbers of documents, in the order in which they were taken
    relevant: int
    candidates: int
    judged_zeros: int
    hard_negatives: int
    others: int


def drawn(names: Iterable[str], count: int, *, kind: str, seed: int) -> list[str]:
    """Return the first ``count`` ids in the order of the digests of seed, kind and id.

    >>> drawn(["a", "b", "c"], 2, kind="query", seed=0)
    ['a', 'c']
    """

    def place(name: str) -> bytes:
        text = f"{seed}\0{kind}\0{name}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    return heapq.nsmallest(count, names, key=place)


def drawn_queries(large: LargeSet, *, seed: int = 0, sizes: Sizes = NANO_SIZES) -> list[str]:
    """Return the queries of the small set of a collection, in the order in which they are drawn.

    Raises:
        DataError: no query has a relevant document in the corpus.
    """
    relevant_by_query = _relevant_documents(large)
    if not relevant_by_query:
        raise DataError(f"{large.name}: no query has a relevant document in the corpus")
    chosen: list[str] = []
    relevant: set[str] = set()
    needed: set[str] = set()
    for query in drawn(relevant_by_query, sizes.queries, kind="query", seed=seed):
        relevant |= relevant_by_query[query]
        needed |= relevant_by_query[query] | _candidates(large, query)
        fits = len(relevant) <= sizes.documents // 2 and len(needed) <= sizes.documents
        if chosen and not fits:
            break
        chosen.append(query)
    return chosen


def small_set(
    large: LargeSet,
    queries: Sequence[str],
    rankings: Rankings,
    *,
    seed: int = 0,
    sizes: Sizes = NANO_SIZES,
) -> SmallSet:
    """Return the small set of a collection with these queries.

    Args:
        large: the large set.
        queries: those of `drawn_queries`.
        rankings: for each query, documents of the whole corpus, the nearest first. The first
            `HARD_NEGATIVES` are used.
        seed: of the draws.
        sizes: the largest numbers of queries and documents.
    """
    relevant_by_query = _relevant_documents(large)
    relevant: set[str] = set()
    needed: set[str] = set()
    judged: set[str] = set()
    for query in queries:
        relevant |= relevant_by_query[query]
        needed |= _candidates(large, query)
        judged |= large.qrels[query].keys() & large.documents.keys()
    needed |= relevant
    limit = max(sizes.documents, len(needed), 2 * len(relevant))
    documents = set(needed)
    zeros = _with_room(documents, _drawn_documents(judged, seed), limit)
    hard = _with_room(documents, _by_rank(queries, rankings), limit)
    room = limit - len(documents)
    others = drawn(large.documents.keys() - documents, room, kind="document", seed=seed)
    documents.update(others)
    return SmallSet(
        queries=frozenset(queries),
        documents=frozenset(documents),
        seed=seed,
        sizes=sizes,
        all_queries=len(relevant_by_query),
        all_documents=len(large.documents),
        relevant=len(relevant),
        candidates=len(needed) - len(relevant),
        judged_zeros=zeros,
        hard_negatives=hard,
        others=len(others),
    )


def _relevant_documents(large: LargeSet) -> dict[str, set[str]]:
    """Return the relevant documents in the corpus, of each query that has one."""
    documents_by_query: dict[str, set[str]] = {}
    for query, grades in large.qrels.items():
        relevant = {document for document, grade in grades.items() if grade > 0}
        relevant &= large.documents.keys()
        if relevant and query in large.queries:
            documents_by_query[query] = relevant
    return documents_by_query


def _candidates(large: LargeSet, query: str) -> set[str]:
    if large.candidates is None:
        return set()
    return set(large.candidates.get(query, ()))


def _drawn_documents(names: set[str], seed: int) -> list[str]:
    return drawn(names, len(names), kind="document", seed=seed)


def _by_rank(queries: Sequence[str], rankings: Rankings) -> Iterable[str]:
    """Return the first documents of all queries, then the second ones, and so on."""
    first_documents = [rankings.get(query, ())[:HARD_NEGATIVES] for query in queries]
    ranks = zip_longest(*first_documents)
    return (document for document in chain.from_iterable(ranks) if document is not None)


def _with_room(documents: set[str], names: Iterable[str], limit: int) -> int:
    """Add documents in their order until there are ``limit``; return how many were new."""
    before = len(documents)
    for name in names:
        if len(documents) >= limit:
            break
        documents.add(name)
    return len(documents) - before
