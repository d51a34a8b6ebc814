"""Texts that are equal: copies of queries, and queries that are documents.

Differences of width, composition, case and blanks do not count.
"""

from collections.abc import Iterator, Mapping

from qwen3nb.metrics.near_copies import final_cluster, plain_text

ITSELF = "queries that are also documents, which are left out of their own ranking"
JUDGED_ITSELF = "queries that are also documents with a judgement, which counts"
SAME_TEXT = "queries whose text is also a document of another id, which is ranked"
_PREFIX_LENGTH = 8  # characters by which most documents are told from a query
# Characters of a document whose plain text has a prefix of that length.
_BEGINNING_LENGTH = 8 * _PREFIX_LENGTH


def documents_of_themselves(
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, float]],
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return the documents which are a query itself, to remove from its ranking, and counts.

    A document is the query itself if it has its id and, after a title that is no longer than the
    rest, the same `plain_text`. It is removed from the ranking of that query, where it would be
    first, unless it has a judgement. A document of another id with the query's text may be an
    answer: it is ranked, and counted.
    """
    query_texts = {query: plain_text(text) for query, text in queries.items()}
    removed_documents: dict[str, list[str]] = {}
    queries_with_judged_copy: set[str] = set()
    queries_with_ranked_copy: set[str] = set()
    for query, query_text in query_texts.items():
        document = query  # the one of the same id
        if not query_text or document not in documents:
            continue
        is_itself = _is_text_after_title(plain_text(documents[document]), query_text)
        if not is_itself:
            continue
        # A judged document stays in the ranking: its judgement counts.
        is_judged = document in qrels.get(query, {})
        if is_judged:
            queries_with_judged_copy.add(query)
        else:
            removed_documents[query] = [document]
    # Documents of other ids may have the text of a query, too.
    for query, document in _equal_texts(query_texts, documents):
        if document in qrels.get(query, {}):
            queries_with_judged_copy.add(query)
        elif document != query:
            queries_with_ranked_copy.add(query)
    counts = {
        ITSELF: len(removed_documents),
        JUDGED_ITSELF: len(queries_with_judged_copy),
        SAME_TEXT: len(queries_with_ranked_copy),
    }
    return removed_documents, counts


def _is_text_after_title(document: str, text: str) -> bool:
    """Return whether a document is a text, perhaps after a title that is no longer."""
    return document.endswith(text) and len(document) <= 2 * len(text)


def _equal_texts(
    query_texts: Mapping[str, str],
    documents: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """Yield each query and document of equal text; those of queries are `plain_text` already."""
    queries_by_text: dict[str, list[str]] = {}
    for query, text in query_texts.items():
        if text:
            queries_by_text.setdefault(text, []).append(query)
    prefixes = {text[:_PREFIX_LENGTH] for text in queries_by_text}
    for document, text in documents.items():
        # Most documents begin in another way, and need not become plain text as a whole.
        beginning = plain_text(text.lstrip()[:_BEGINNING_LENGTH])
        if beginning[:_PREFIX_LENGTH] not in prefixes:
            continue
        for query in queries_by_text.get(plain_text(text), []):
            yield query, document


def with_copies(clusters: Mapping[str, str], queries: Mapping[str, str]) -> dict[str, str]:
    """Return a cluster per query in which copies of a query are together; empty without any.

    Copies have the same `plain_text`. Clusters that share a copy become one.

    >>> with_copies({}, {"q1": "Sort a list", "q2": "sort a  list", "q3": "sort"})
    {'q1': 'q1', 'q2': 'q1', 'q3': 'q3'}
    """
    cluster_of = {query: clusters.get(query, query) for query in queries}
    # Union-find: a cluster that became a part of an earlier one points to it.
    merged_into: dict[str, str] = {}
    cluster_by_text: dict[str, str] = {}
    for query, text in queries.items():
        plain = plain_text(text)
        if not plain:
            continue
        # The first query with a text decides; clusters of its copies are merged into its cluster.
        cluster = final_cluster(cluster_of[query], merged_into)
        first_cluster = cluster_by_text.setdefault(plain, cluster)
        earlier_cluster = final_cluster(first_cluster, merged_into)
        if earlier_cluster != cluster:
            merged_into[cluster] = earlier_cluster
    final_clusters: dict[str, str] = {}
    for query, cluster in cluster_of.items():
        final_clusters[query] = final_cluster(cluster, merged_into)
    has_copies = len(set(final_clusters.values())) < len(final_clusters)
    if clusters or has_copies:
        return final_clusters
    return {}
