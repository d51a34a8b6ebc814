"""Cut collections and tasks to the tier `nano`; the rule is that of `qwen3nb.datasets.nano`.

The hard negatives are BM25's first documents in the whole corpus.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from qwen3nb.datasets.collection import (
    TestCollection,
    collection_of_part,
    find_collections,
    named_parts,
)
from qwen3nb.datasets.nano import (
    HARD_NEGATIVES,
    NANO_SIZES,
    RULE,
    Sizes,
    drawn_queries,
    small_set,
)
from qwen3nb.evaluation.mteb.select import is_nano
from qwen3nb.evaluation.retrieval.first_stage import search_collection
from qwen3nb.models.search.mteb_rows import ColumnValues
from qwen3nb.records.details import NanoFacts
from qwen3nb.tiers import NANO
from qwen3nb.utils.atomic_files import sha256_json

if TYPE_CHECKING:
    from mteb import AbsTask

_MARK = f"-{NANO}-"  # between the revision of data and that of a small set


def nano_collection(
    collection: TestCollection, *, seed: int = 0, sizes: Sizes = NANO_SIZES
) -> TestCollection:
    """Return at most 50 queries and 5,000 documents of a collection; a small one stays as it is.

    Args:
        collection: the large collection.
        seed: of the draws. Records of the tier are of seed 0.
        sizes: other limits.

    Raises:
        DataError: no query has a relevant document.
    """
    if collection.nano is not None:
        return collection
    queries = drawn_queries(collection, seed=seed, sizes=sizes)
    with_these_queries = replace(
        collection,
        queries={query: collection.queries[query] for query in queries},
        qrels={query: collection.qrels[query] for query in queries},
    )
    run = search_collection(with_these_queries, "bm25", depth=HARD_NEGATIVES)
    rankings = {query: run.listed(query) for query in queries}
    part = small_set(collection, queries, rankings, seed=seed, sizes=sizes)
    return collection.part(part)


def find_collections_or_parts(data: Any, *, nano: bool = False) -> list[TestCollection]:
    """Return the collections of a folder or a task, cut to the tier `nano` if they are to be."""
    collections = find_collections(data)
    if nano or is_nano(data):
        return [nano_collection(collection) for collection in collections]
    return collections


@contextmanager
def nano_data(task: AbsTask) -> Iterator[list[NanoFacts]]:
    """Cut the loaded data of a task inside the block if it is to be cut; yield how.

    Each split of each subset is a set of its own.
    """
    if not is_nano(task):
        yield []
        return
    whole_data = task.dataset
    facts = []
    small_data = copy.copy(whole_data)
    for subset in task.hf_subsets:
        small_data[subset] = dict(whole_data[subset])
    for subset, split, name in named_parts(task):
        collection = nano_collection(collection_of_part(task, subset, split, name=name))
        small_data[subset][split] = _rows_of(small_data[subset][split], collection)
        facts += nano_facts(collection)
    task.dataset = small_data
    try:
        yield facts
    finally:
        task.dataset = whole_data


def _rows_of(data: dict[str, Any], collection: TestCollection) -> dict[str, Any]:
    """Return the rows of a split that are in a collection, in their order."""
    part = dict(data)
    for name, texts in (("queries", collection.queries), ("corpus", collection.documents)):
        ids = ColumnValues(data[name], "id")
        part[name] = data[name].select([row for row, id_ in enumerate(ids) if str(id_) in texts])
    part["relevant_docs"] = {query: dict(grades) for query, grades in collection.qrels.items()}
    candidates = data.get("top_ranked")
    if candidates:
        part["top_ranked"] = {
            query: documents
            for query, documents in candidates.items()
            if query in collection.queries
        }
    return part


def nano_revision(revision: str, facts: Sequence[NanoFacts]) -> str:
    """Return the revision of the small sets of a task whose data have this revision.

    Records of other sets of the same data are not compared with each other.

    >>> nano_revision("0123456789", [])
    '0123456789'
    """
    if not facts:
        return revision
    digest = sha256_json([part["sha256"] for part in facts])
    return f"{revision}{_MARK}{digest[:16]}"


def source_revision(revision: str) -> str:
    """Return the revision of the data of which small sets are a part.

    >>> source_revision("0123456789-nano-0123456789abcdef")
    '0123456789'
    """
    return revision.partition(_MARK)[0]


def nano_facts(collection: TestCollection) -> list[NanoFacts]:
    """Return how a collection was cut, for its record; nothing if it is whole."""
    part = collection.nano
    if part is None:
        return []
    return [
        NanoFacts(
            part=collection.name,
            rule=RULE,
            seed=part.seed,
            limits=[part.sizes.queries, part.sizes.documents],
            queries=[len(part.queries), part.all_queries],
            documents=[len(part.documents), part.all_documents],
            relevant=part.relevant,
            candidates=part.candidates,
            judged_zeros=part.judged_zeros,
            hard_negatives=part.hard_negatives,
            others=part.others,
            source=collection.source,
            sha256=collection.revision,
        )
    ]
