"""Queries that are near-copies of each other, in any language.

Two texts are near-copies if they share 80 % of their threes of letters: of all that either has.
Rare threes come first in each text. Two texts of that share have a common one among the first
fifth, so only these are looked up (prefix filtering), and the result is exact.

References:
    Chaudhuri, Ganti and Kaushik, ICDE 2006 (prefix filtering); Broder 1997 (resemblance of texts).
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping

SHARE = 0.8  # of the threes of letters of two texts


def plain_text(text: str) -> str:
    """Return a text without differences of width, composition, case and blanks.

    >>> plain_text(" Sort  a List ") == plain_text("sort a list")
    True
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def with_near_copies(clusters: Mapping[str, str], texts: Mapping[str, str]) -> dict[str, str]:
    """Return the cluster of each query, in which near-copies are together.

    >>> texts = {"a": "How do I sort a list?", "b": "how do I sort a  list", "c": "read a file"}
    >>> with_near_copies({}, texts)
    {'a': 'a', 'b': 'a', 'c': 'c'}

    Args:
        clusters: of queries that belong together; any other is a cluster of its own.
        texts: text by query.
    """
    threes = {query: _threes(text) for query, text in texts.items()}
    counts = Counter[str]()
    for of_query in threes.values():
        counts.update(of_query)
    cluster_of = {query: clusters.get(query, query) for query in texts}
    merged_into: dict[str, str] = {}
    queries_by_three: dict[str, list[str]] = {}
    for query, of_query in threes.items():
        rarest_first = sorted(of_query, key=lambda three: (counts[three], three))
        prefix = rarest_first[: len(of_query) - math.ceil(SHARE * len(of_query)) + 1]
        others = {other for three in prefix for other in queries_by_three.get(three, ())}
        for other in sorted(others):
            shared = len(of_query & threes[other])
            if shared >= SHARE * len(of_query | threes[other]):
                _merge(cluster_of[query], cluster_of[other], merged_into)
        for three in prefix:
            queries_by_three.setdefault(three, []).append(query)
    return {query: final_cluster(cluster, merged_into) for query, cluster in cluster_of.items()}


def _threes(text: str) -> frozenset[str]:
    """Return the threes of letters of a text without differences of case, width and blanks."""
    plain = f" {plain_text(text)} "
    return frozenset(plain[start : start + 3] for start in range(len(plain) - 2))


def _merge(first: str, second: str, merged_into: dict[str, str]) -> None:
    """Make two clusters one, under the name that sorts first."""
    ends = (final_cluster(first, merged_into), final_cluster(second, merged_into))
    first, second = sorted(ends)
    if first != second:
        merged_into[second] = first


def final_cluster(cluster: str, merged_into: Mapping[str, str]) -> str:
    """Return the cluster that a cluster is a part of after all mergers."""
    while cluster in merged_into:
        cluster = merged_into[cluster]
    return cluster
