"""The mark of queries that were generated from documents, and not asked by people.

It stands on each query, twice: the field ``generated`` says how it was made, and its id begins with
``generated-``. So it stays when queries are copied, edited, merged with others, or converted. A
table ``[[generated]]`` of the file says with which seed, by which model, and from which documents.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

ID_PREFIX = "generated-"
UNKNOWN_KIND = "unknown"  # of a query that is marked, without saying how it was made


def query_id(kind: str, document: str, text: str) -> str:
    """Return the id of a generated query, which depends on its kind, document and text alone.

    >>> query_id("title", "d1", "Sort a list")
    'generated-title-3e13b3a59c'
    """
    digest = hashlib.sha256(f"{kind}\0{document}\0{text}".encode("utf-8", "surrogatepass"))
    return f"{ID_PREFIX}{kind}-{digest.hexdigest()[:10]}"


def kind_of(query: str, stated: str = "") -> str:
    """Return how a query was generated; empty for one that people asked.

    Args:
        query: its id.
        stated: what its field ``generated`` says; empty without one.

    >>> kind_of("generated-title-3e13b3a59c"), kind_of("q1", "masked"), kind_of("q1")
    ('title', 'masked', '')
    """
    if stated:
        return stated
    if not query.startswith(ID_PREFIX):
        return ""
    kind, _, digest = query.removeprefix(ID_PREFIX).partition("-")
    return kind if kind and digest else UNKNOWN_KIND


def counted_kinds(kinds: Iterable[str]) -> dict[str, int]:
    """Return how many queries were generated in each way.

    >>> counted_kinds(["title", "", "title", "masked"])
    {'masked': 1, 'title': 2}
    """
    return dict(sorted(Counter(kind for kind in kinds if kind).items()))


def kinds_text(counts: Mapping[str, int]) -> str:
    """Return how many queries were generated in each way, in words.

    >>> kinds_text({"masked": 1, "title": 2})
    '1 masked, 2 title'
    """
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items())


def stated_kind(value: object) -> object:
    """Return the kind that a field ``generated`` states; True is a mark without a kind."""
    if value is True:
        return UNKNOWN_KIND
    if value is False or value is None:
        return ""
    return value
