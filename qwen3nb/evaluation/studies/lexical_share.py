"""How often a lexical search finds the document of a generated query first."""

from collections.abc import Mapping, Sequence

from qwen3nb.datasets.generated.queries import GeneratedQuery
from qwen3nb.models.model import Model


def found_first(queries: Sequence[GeneratedQuery], documents: Mapping[str, str]) -> dict[str, bool]:
    """Return, by id of the query, whether BM25 ranks its document first of all documents."""
    if not queries:
        return {}
    names = list(documents)
    texts = list(documents.values())
    bm25 = Model("bm25", show_progress=False)
    found = bm25.search([query.text for query in queries], texts, k=1)
    firsts = {}
    for query, scores in zip(queries, found, strict=True):
        first_names = [names[position] for position in scores]
        firsts[query.id] = query.document in first_names[:1]
    return firsts
