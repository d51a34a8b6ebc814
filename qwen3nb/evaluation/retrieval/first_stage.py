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
from contextlib import suppress
from dataclasses import dataclass
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
from qwen3nb.models.capabilities import is_model
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.dense import as_searcher
from qwen3nb.models.search.fusion import FUSION, fuse
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json, write_json

First = Any  # "bm25", "given", a path, a model, or a list of these
Scored = Iterator[tuple[str, Mapping[str, float]]]  # a query and the scores of its documents
_TIES = "neighbours of a run with equal scores and no ranks, ordered by id"
_STRAY = "queries of a run that are not among the queries, left out"


@dataclass(frozen=True)
class FirstStage:
    """A first-stage retriever and its run."""

    label: str  # name of the retriever, safe in file names
    run: RunArrays  # at most ``depth`` documents per query
    recipe: dict[str, Any]  # everything the run depends on, as JSON
    digest: str  # SHA-256 of the run in TREC format; empty if that cannot express its ids
    counts: Mapping[str, int]  # irregularities of the run and their numbers, without zeros


def load_first(*names: str, prompts: str = "") -> First:
    """Load a first stage: ``bm25``, ``given``, a file or an encoder; several are fused.

    ``prompts`` are for encoders; empty for each encoder's own.

    Raises:
        SpecError: unknown encoder.
    """
    from qwen3nb.models.load import load_encoder

    stages: list[First] = []
    for name in names:
        stage: First = name
        if name not in ("bm25", "given") and not Path(name).is_file():
            stage = load_encoder(name, prompts=prompts)
        stages.append(stage)
    if len(stages) == 1:
        return stages[0]
    return stages


def first_stage(
    collection: TestCollection, first: First = "bm25", *, depth: int = 100
) -> FirstStage:
    """Return the ``depth`` best documents per query, from the cache if available.

    Raises:
        DataError: an unknown first stage, or ``given`` for data without candidates.
        ValueError: ``depth`` is below 1.
    """
    if depth < 1:
        raise ValueError(f"expected a depth of at least 1; got {depth}")
    label, recipe = describe(first)
    recipe = {**recipe, "depth": depth, "data": collection.revision}
    if _reads_words(recipe) and collection.words.name:
        recipe["words"] = collection.words.name
    stem = paths.cache() / "first-stage" / sha256_json(recipe)[:32]
    file, note = stem.with_suffix(".trec"), stem.with_suffix(".json")
    if (stage := _kept(file, note, label, recipe, collection.queries)) is not None:
        return stage
    counts: Counter[str] = Counter()
    run = search_collection(collection, first, depth=depth, counts=counts)
    if not len(run.scores):
        raise DataError(f"{collection.name}: the first stage {label} found no documents")
    counts[NOTHING_FOUND] = int(np.sum(np.diff(run.offsets) == 0))
    kept = nonzero(counts)
    digest = ""
    with suppress(DataError):  # an id with white space
        digest = sha256_file(write_run(file, run, tag=label))
        write_json(note, {"recipe": recipe, "digest": digest, "counts": kept})
    return FirstStage(label, run, recipe, digest, kept)


def _kept(
    file: Path, note: Path, label: str, recipe: dict[str, Any], queries: Iterable[str]
) -> FirstStage | None:
    """Return the first stage with the cached run of ``recipe``; None if missing or damaged.

    A query without retrieved documents has an empty ranking.
    """
    try:
        description = dict(read_json(note))
        if description.get("recipe") != recipe or description.get("digest") != sha256_file(file):
            return None
    except (OSError, ValueError, TypeError):
        return None  # searched again
    run = load_run(file).of_queries(queries)
    return FirstStage(label, run, recipe, description["digest"], description.get("counts", {}))


def describe(first: First) -> tuple[str, dict[str, Any]]:
    """Return the label and the recipe of a first stage, independent of the data.

    Raises:
        DataError: not a first stage; the message lists the choices.
    """
    if is_model(first):
        parts = list(first.parts)
        if len(parts) == 1:
            return as_searcher(first).first_stage()
        first = parts
    if isinstance(first, list | tuple) and first:
        stages = [describe(stage) for stage in first]
        labels = [label for label, _ in stages]
        recipe = {"kind": "fusion", "k": FUSION, "of": [recipe for _, recipe in stages]}
        return "rrf-" + "-".join(labels), recipe
    if first == "bm25":
        return _bm25().first_stage()
    if first == "given":
        return "given", {"kind": "given", "order": _bm25().settings}
    if isinstance(first, str | Path) and Path(first).is_file():
        return Path(first).name.split(".")[0], _run_recipe(Path(first))
    raise DataError(
        f"unknown first stage {first!r}; expected bm25, given, a TREC run file, an encoder, or "
        "a list of these to fuse"
    )


def _run_recipe(file: Path) -> dict[str, Any]:
    """Return the recipe of a run, which says where its ranks decide and not its scores alone."""
    recipe = {"kind": "run", "digest": sha256_file(file)}
    if ranks_decide(file):
        recipe["ties"] = "by rank"
    return recipe


def _reads_words(recipe: Mapping[str, Any]) -> bool:
    """Return whether BM25 is part of a first stage."""
    parts = recipe.get("of", ())
    return recipe["kind"] in ("bm25", "given") or any(_reads_words(part) for part in parts)


def search_collection(
    collection: TestCollection, first: First, *, depth: int, counts: Counter[str] | None = None
) -> RunArrays:
    """Return the ``depth`` best documents per query, without the cache of runs.

    Irregularities of its source runs are added to ``counts``.
    """
    counts = Counter() if counts is None else counts
    builder = RunBuilder()
    for query, scores in _scored(collection, first, depth, counts):
        removed = collection.removed(query)
        others = {name: score for name, score in scores.items() if name not in removed}
        builder.add(query, {name: others[name] for name in rank_documents(others)[:depth]})
    return builder.run().of_queries(collection.queries)


def _scored(collection: TestCollection, first: First, depth: int, counts: Counter[str]) -> Scored:
    """Yield each query with its best documents, at least ``depth`` of them if available."""
    if is_model(first) and len(first.parts) > 1:
        first = first.parts
    if isinstance(first, list | tuple):
        # Parts are cached as well, and deeper: fusion can lift documents from below the cutoff.
        parts = [first_stage(collection, stage, depth=2 * depth) for stage in first]
        for part in parts:
            for name, count in part.counts.items():
                if name == NOTHING_FOUND:
                    name = nothing_found_by(part.label)
                counts[name] += count
        for query in collection.queries:
            yield from fuse([{query: part.run[query]} for part in parts]).items()
        return
    deeper = depth + max(
        (len(collection.removed(query)) for query in collection.queries), default=0
    )
    if first == "bm25":
        first = _bm25()
    if is_model(first):
        yield from as_searcher(first).rank(collection, k=deeper)
    elif first == "given":
        yield from _given(collection)
    else:
        yield from _from_file(collection, Path(first), counts).items()


def _bm25() -> BM25:
    return BM25(find_source("bm25"))


def _index(collection: TestCollection) -> BM25:
    model = _bm25()
    rows = [{"id": name, "text": text} for name, text in collection.documents.items()]
    model.index(rows, words=collection.words)
    return model


def _given(collection: TestCollection) -> Scored:
    """Yield the data's candidates in their order, or ranked by BM25 if unordered."""
    if collection.candidates is None:
        raise DataError(f"{collection.name}: the data have no candidates; use bm25 instead")
    if collection.ordered:
        for query, documents in collection.candidates.items():
            yield query, {document: -float(rank) for rank, document in enumerate(documents)}
        return
    model = _index(collection)
    for query, documents in collection.candidates.items():
        scores = model.score(collection.queries[query], documents)
        yield query, dict(zip(documents, scores, strict=True))


def _from_file(collection: TestCollection, file: Path, counts: Counter[str]) -> RunArrays:
    run, ties = load_run_with_ties(file)
    counts[_TIES] += ties
    counts[_STRAY] += len(run.keys() - collection.queries.keys())
    run = run.of_queries(collection.queries)
    for query, scores in run.items():
        for document in scores:
            if document not in collection.documents:
                raise DataError(
                    f"{file}: document {document!r:.60} of query {query!r:.60} is not in "
                    f"{collection.name}"
                )
    if not len(run.scores):
        raise DataError(f"{file}: has no query of {collection.name}; is it for another data set?")
    return run
