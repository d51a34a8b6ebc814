"""First-stage retrievers, which provide the candidates of a reranker.

    "bm25"                    BM25 over the documents
    "given"                   the candidates that come with the data
    a path                    a run in TREC format; its ranks decide where scores tie
    an encoder                its nearest documents
    a list of these           reciprocal rank fusion (Cormack et al. 2009, k = 60)

A loaded BM25 or fusion is treated as ``bm25`` or the list of its parts. Runs are cached in TREC
format with their recipe, under the digest of recipe and data.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.judgements import nonzero, nothing_found_by
from qwen3nb.datasets.rows import DataError
from qwen3nb.datasets.trec import load_run, load_run_with_ties, ranks_decide, write_run
from qwen3nb.metrics.retrieval import NOTHING_FOUND, rank_documents
from qwen3nb.metrics.run_arrays import RunArrays, RunBuilder
from qwen3nb.models.capabilities import fits_weights, is_model
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.dense import as_searcher
from qwen3nb.models.search.fusion import FUSION, fuse
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json, write_json

Retriever = Any  # "bm25", "given", a path, a model, or a list of these
ScoredQuery = tuple[str, Mapping[str, float]]  # a query and the scores of its documents
_TIES = "neighbours of a run with equal scores and no ranks, ordered by id"
_UNKNOWN_QUERIES = "queries of a run that are not among the queries, left out"


@dataclass(frozen=True)
class FirstStage:
    """A first-stage retriever and its run."""

    label: str  # name of the retriever, safe in file names
    run: RunArrays  # at most ``depth`` documents per query
    recipe: dict[str, object]  # everything the run depends on, as JSON
    digest: str  # SHA-256 of the run in TREC format; empty if that cannot express its ids
    counts: Mapping[str, int]  # irregularities of the run and their numbers, without zeros


def load_retriever(*names: str, prompts: str = "") -> Retriever:
    """Load a first stage: ``bm25``, ``given``, a file or an encoder; several are fused.

    ``prompts`` are for encoders; empty for each encoder's own.

    Raises:
        SpecError: unknown encoder.
    """
    from qwen3nb.models.load import load_encoder

    retrievers: list[Retriever] = []
    for name in names:
        if name in ("bm25", "given") or Path(name).is_file():
            retrievers.append(name)
        else:
            retrievers.append(load_encoder(name, prompts=prompts))
    if len(retrievers) == 1:
        return retrievers[0]
    return retrievers


def first_stage(
    collection: TestCollection, retriever: Retriever = "bm25", *, depth: int = 100
) -> FirstStage:
    """Return the ``depth`` best documents per query, from the cache if available.

    Raises:
        DataError: an unknown first stage, or ``given`` for data without candidates.
        ValueError: ``depth`` is below 1.
    """
    if depth < 1:
        raise ValueError(f"expected a depth of at least 1; got {depth}")
    label, recipe = describe(retriever)
    recipe = {**recipe, "depth": depth, "data": collection.revision}
    # How BM25 splits texts of this language into words.
    if _reads_words(recipe) and collection.words.name:
        recipe["words"] = collection.words.name
    cached_run = _CachedRun(label, recipe)
    cached_stage = cached_run.load(collection.queries)
    if cached_stage is not None:
        return cached_stage
    counts: Counter[str] = Counter()
    run = search_collection(collection, retriever, depth=depth, counts=counts)
    if len(run.scores) == 0:
        raise DataError(f"{collection.name}: the first stage {label} found no documents")
    # Offsets (queries + 1,) say where the documents of each query begin.
    documents_per_query = np.diff(run.offsets)
    counts[NOTHING_FOUND] = int(np.count_nonzero(documents_per_query == 0))
    return cached_run.save(run, nonzero(counts))


@dataclass(frozen=True)
class _CachedRun:
    """The run of a recipe in the cache, with a note that says what it is."""

    label: str
    recipe: dict[str, object]

    @property
    def file(self) -> Path:
        """The run in TREC format."""
        return paths.cache() / "first-stage" / f"{sha256_json(self.recipe)[:32]}.trec"

    @property
    def note(self) -> Path:
        """Recipe and digest of the run, and its irregularities."""
        return self.file.with_suffix(".json")

    def load(self, queries: Iterable[str]) -> FirstStage | None:
        """Return the first stage with the cached run; None if missing or damaged.

        A query without retrieved documents has an empty ranking.
        """
        try:
            note = dict(read_json(self.note))
            has_recipe = note.get("recipe") == self.recipe
            is_whole = has_recipe and note.get("digest") == sha256_file(self.file)
        except (OSError, ValueError, TypeError):
            return None
        if not is_whole:
            return None
        run = load_run(self.file).of_queries(queries)
        return FirstStage(
            self.label, run, self.recipe, digest=note["digest"], counts=note.get("counts", {})
        )

    def save(self, run: RunArrays, counts: dict[str, int]) -> FirstStage:
        """Write a run and its note; return the first stage."""
        stage = FirstStage(self.label, run, self.recipe, digest="", counts=counts)
        try:
            digest = sha256_file(write_run(self.file, run, tag=self.label))
        except DataError:  # an id with white space, which TREC's format cannot express
            return stage
        write_json(self.note, {"recipe": self.recipe, "digest": digest, "counts": counts})
        return replace(stage, digest=digest)


def describe(retriever: Retriever) -> tuple[str, dict[str, object]]:
    """Return the label and the recipe of a first stage, independent of the data.

    Raises:
        DataError: not a first stage; the message lists the choices.
    """
    if is_model(retriever) and len(retriever.parts) == 1:
        return as_searcher(retriever).first_stage()
    fused = _fused_retrievers(retriever)
    if fused:
        descriptions = [describe(part) for part in fused]
        labels = [label for label, _ in descriptions]
        recipes = [recipe for _, recipe in descriptions]
        # Reciprocal rank fusion.
        return "rrf-" + "-".join(labels), {"kind": "fusion", "k": FUSION, "of": recipes}
    if retriever == "bm25":
        return _bm25().first_stage()
    if retriever == "given":
        # Candidates without an order are ranked by BM25.
        return "given", {"kind": "given", "order": _bm25().settings}
    if isinstance(retriever, str | Path) and Path(retriever).is_file():
        file = Path(retriever)
        label, *_ = file.name.split(".")  # ``dense`` of ``dense.scifact.trec``
        return label, _run_recipe(file)
    raise DataError(
        f"unknown first stage {retriever!r}; expected bm25, given, a TREC run file, an encoder, or "
        "a list of these to fuse"
    )


def _fused_retrievers(retriever: Retriever) -> list[Retriever]:
    """Return the retrievers that are fused; empty for a single one."""
    if fits_weights(retriever):
        raise DataError(
            f"{retriever.label} has weights that the grades of own data choose; expected a first "
            "stage without grades, such as a fusion by rank: A+B"
        )
    if is_model(retriever) and len(retriever.parts) > 1:
        return list(retriever.parts)
    if isinstance(retriever, list | tuple):
        return list(retriever)
    return []


def _run_recipe(file: Path) -> dict[str, object]:
    """Return the recipe of a run, which says where its ranks decide and not its scores alone."""
    recipe: dict[str, object] = {"kind": "run", "digest": sha256_file(file)}
    if ranks_decide(file):
        recipe["ties"] = "by rank"
    return recipe


def _reads_words(recipe: Mapping[str, Any]) -> bool:
    """Return whether BM25 is part of a first stage."""
    parts = recipe.get("of", ())
    return recipe["kind"] in ("bm25", "given") or any(_reads_words(part) for part in parts)


def search_collection(
    collection: TestCollection,
    retriever: Retriever,
    *,
    depth: int,
    counts: Counter[str] | None = None,
) -> RunArrays:
    """Return the ``depth`` best documents per query, without the cache of runs.

    Irregularities of its source runs are added to ``counts``.
    """
    if counts is None:
        counts = Counter()
    builder = RunBuilder()
    for query, scores in _search(collection, retriever, depth, counts):
        removed_documents = collection.removed(query)
        remaining_scores = {
            name: score for name, score in scores.items() if name not in removed_documents
        }
        best = rank_documents(remaining_scores)[:depth]
        builder.add(query, {name: remaining_scores[name] for name in best})
    # In the order of the collection; a query without documents gets an empty ranking.
    return builder.run().of_queries(collection.queries)


def _search(
    collection: TestCollection, retriever: Retriever, depth: int, counts: Counter[str]
) -> Iterable[ScoredQuery]:
    """Yield each query with its best documents, at least ``depth`` of them if available."""
    fused = _fused_retrievers(retriever)
    if fused:
        return _search_and_fuse(collection, fused, depth, counts)
    if retriever == "bm25":
        retriever = _bm25()
    if is_model(retriever):
        # A query's own document is removed later, so as many more are asked for.
        numbers_removed = [len(collection.removed(query)) for query in collection.queries]
        return as_searcher(retriever).rank(collection, k=depth + max(numbers_removed, default=0))
    if retriever == "given":
        return _given_candidates(collection)
    return _read_run(collection, Path(retriever), counts).items()


def _search_and_fuse(
    collection: TestCollection, retrievers: list[Retriever], depth: int, counts: Counter[str]
) -> Iterator[ScoredQuery]:
    """Yield each query with its fused documents.

    Each search is cached, and deeper: fusion can lift documents from below the cutoff.
    """
    # Deeper, as fusion can lift documents from below the cutoff.
    stages = [first_stage(collection, part, depth=2 * depth) for part in retrievers]
    for stage in stages:
        for name, count in stage.counts.items():
            # Say which of the retrievers found nothing.
            if name == NOTHING_FOUND:
                name = nothing_found_by(stage.label)
            counts[name] += count
    for query in collection.queries:
        runs_of_query = [{query: stage.run[query]} for stage in stages]
        yield from fuse(runs_of_query).items()


def _bm25() -> BM25:
    return BM25(find_source("bm25"))


def _index(collection: TestCollection) -> BM25:
    bm25 = _bm25()
    rows = [{"id": name, "text": text} for name, text in collection.documents.items()]
    bm25.index(rows, words=collection.words)
    return bm25


def _given_candidates(collection: TestCollection) -> Iterator[ScoredQuery]:
    """Yield the data's candidates in their order, or ranked by BM25 if unordered."""
    if collection.candidates is None:
        raise DataError(f"{collection.name}: the data have no candidates; use bm25 instead")
    if collection.ordered:
        for query, documents in collection.candidates.items():
            # A score is higher, the earlier a candidate comes.
            yield query, {document: -float(rank) for rank, document in enumerate(documents)}
        return
    bm25 = _index(collection)
    for query, documents in collection.candidates.items():
        scores = bm25.score(collection.queries[query], documents)
        yield query, dict(zip(documents, scores, strict=True))


def _read_run(collection: TestCollection, file: Path, counts: Counter[str]) -> RunArrays:
    run, ties = load_run_with_ties(file)
    # Irregularities are counted by their descriptions.
    counts[_TIES] += ties
    counts[_UNKNOWN_QUERIES] += len(run.keys() - collection.queries.keys())
    # A run may have queries of another split, too.
    run = run.of_queries(collection.queries)
    for query, scores in run.items():
        for document in scores:
            if document not in collection.documents:
                raise DataError(
                    f"{file}: document {document!r:.60} of query {query!r:.60} is not in "
                    f"{collection.name}"
                )
    if len(run.scores) == 0:
        raise DataError(f"{file}: has no query of {collection.name}; is it for another data set?")
    return run
