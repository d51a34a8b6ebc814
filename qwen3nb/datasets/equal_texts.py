"""Texts that are equal: copies of queries, and queries that are documents.

Differences of width, composition, case and blanks do not count.
"""

import unicodedata
from collections.abc import Iterator, Mapping

ITSELF = "queries that are also documents, which are left out of their own ranking"
JUDGED_ITSELF = "queries that are also documents with a judgement, which counts"
SAME_TEXT = "queries whose text is also a document of another id, which is ranked"
_PREFIX = 8  # characters by which most documents are told from a query


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
    judged: set[str] = set()
    ranked: set[str] = set()
    for query, text in texts.items():
        if not text or query not in documents:
            continue
        if not _is_titled(plain_text(documents[query]), text):
            continue
        if query in qrels.get(query, {}):
            judged.add(query)
        else:
            removed[query] = [query]
    for document, query in _equal_texts(texts, documents):
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
    queries: Mapping[str, str],
    documents: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """Yield each document and query of equal text; those of queries are `plain_text` already."""
    queries_of: dict[str, list[str]] = {}
    for query, text in queries.items():
        if text:
            queries_of.setdefault(text, []).append(query)
    prefixes = {text[:_PREFIX] for text in queries_of}
    for document, text in documents.items():
        beginning = plain_text(text.lstrip()[: 8 * _PREFIX])
        if beginning[:_PREFIX] not in prefixes:
            continue
        for query in queries_of.get(plain_text(text), ()):
            yield document, query


def with_copies(clusters: Mapping[str, str], queries: Mapping[str, str]) -> dict[str, str]:
    """Return a cluster per query in which copies of a query are together; empty without any.

    Copies have the same `plain_text`. Clusters that share a copy become one.

    >>> with_copies({}, {"q1": "Sort a list", "q2": "sort a  list", "q3": "sort"})
    {'q1': 'q1', 'q2': 'q1', 'q3': 'q3'}
    """
    cluster_of = {query: clusters.get(query, query) for query in queries}
    merged_into: dict[str, str] = {}  # by cluster

    def final(cluster: str) -> str:
        while cluster in merged_into:
            cluster = merged_into[cluster]
        return cluster

    cluster_of_text: dict[str, str] = {}
    for query, text in queries.items():
        plain = plain_text(text)
        if not plain:
            continue
        cluster = final(cluster_of[query])
        first_cluster = final(cluster_of_text.setdefault(plain, cluster_of[query]))
        if first_cluster != cluster:
            merged_into[cluster] = first_cluster
    merged = {query: final(cluster) for query, cluster in cluster_of.items()}
    has_copies = len(set(merged.values())) < len(merged)
    if clusters or has_copies:
        return merged
    return {}
