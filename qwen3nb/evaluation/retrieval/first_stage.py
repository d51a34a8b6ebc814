"""First-stage retrievers, which provide the candidates of a reranker.

    "bm25"                    BM25 over the documents
    "given"                   the candidates that come with the data
    a path                    a run in TREC format
    an encoder                its nearest documents
    a list of these           reciprocal rank fusion (Cormack et al. 2009, k = 60)

Runs are cached in TREC format with their recipe, under the digest of recipe and data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.rows import DataError
from qwen3nb.datasets.trec import cut_run, read_run, write_run
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.dense import search_texts
from qwen3nb.models.search.fusion import FUSION, fuse
from qwen3nb.models.sources.resolve import find_source
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json, write_json

__all__ = ["First", "FirstStage", "first_stage", "load_first", "stored_run"]

First = Any  # "bm25", "given", a path, an Encoder, or a list of these
Run = dict[str, dict[str, float]]


@dataclass(frozen=True)
class FirstStage:
    """A first-stage retriever and its run.

    Attributes:
        label: name of the retriever, safe in file names.
        run: query id -> document id -> score, at most ``depth`` documents per query.
        recipe: everything the run depends on, as JSON.
    """

    label: str
    run: Run
    recipe: dict[str, Any]


def load_first(*names: str) -> First:
    """Load a first stage: ``bm25``, ``given``, a file or an encoder; several are fused.

    Raises:
        SpecError: unknown encoder.
    """
    from qwen3nb.models.load import load_encoder

    stages = [
        name if name in ("bm25", "given") or Path(name).is_file() else load_encoder(name)
        for name in names
    ]
    return stages if len(stages) > 1 else stages[0]


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
    run = stored_run(recipe, collection.queries)
    if run is None:
        run = _search(collection, first, depth)
        if not any(run.values()):
            raise DataError(f"{collection.name}: the first stage {label} found no documents")
        _store(recipe, run, tag=label)
    return FirstStage(label, run, recipe)


def stored_run(recipe: dict[str, Any], queries: Iterable[str]) -> Run | None:
    """Return the run of ``queries`` that ``recipe`` made; None if it is not kept, or changed.

    A query for which nothing was retrieved has an empty ranking.
    """
    file, note = _files(recipe)
    if not (note.is_file() and file.is_file()):
        return None
    kept = read_json(note)
    if kept.get("recipe") != recipe or kept.get("digest") != sha256_file(file):
        return None
    run = read_run(file)
    return {query: run.get(query, {}) for query in queries}


def _store(recipe: dict[str, Any], run: Run, *, tag: str) -> None:
    file, note = _files(recipe)
    write_run(file, run, tag=tag)
    write_json(note, {"recipe": recipe, "digest": sha256_file(file)})


def _files(recipe: dict[str, Any]) -> tuple[Path, Path]:
    """Return the files of a run and of its recipe."""
    stem = paths.cache() / "first-stage" / sha256_json(recipe)[:32]
    return stem.with_suffix(".trec"), stem.with_suffix(".json")


def describe(first: First) -> tuple[str, dict[str, Any]]:
    """Return the label and the recipe of a first stage, independent of the data.

    Raises:
        DataError: not a first stage; the message lists the choices.
    """
    if isinstance(first, Encoder):
        return first.label, {"kind": "dense", "identity": first.identity}
    if isinstance(first, list | tuple) and first:
        parts = [describe(each) for each in first]
        recipe = {"kind": "fusion", "k": FUSION, "of": [part for _, part in parts]}
        return "rrf-" + "-".join(name for name, _ in parts), recipe
    if first == "bm25":
        return "bm25", {"kind": "bm25", "recipe": _bm25().settings}
    if first == "given":
        return "given", {"kind": "given", "order": _bm25().settings}
    if isinstance(first, str | Path) and Path(first).is_file():
        return Path(first).name.split(".")[0], {"kind": "run", "digest": sha256_file(Path(first))}
    raise DataError(
        f"unknown first stage {first!r}; expected bm25, given, a TREC run file, an encoder, or "
        "a list of these to fuse"
    )


def _search(collection: TestCollection, first: First, depth: int) -> Run:
    if isinstance(first, list | tuple):
        # Each part is cached as well, and deeper: fusion can lift documents from below the cutoff.
        parts = [first_stage(collection, each, depth=2 * depth).run for each in first]
        return cut_run(fuse(parts), depth)
    deeper = depth + 1 if collection.skip_self else depth
    if isinstance(first, Encoder):
        run = _dense(collection, first, deeper)
    elif first == "bm25":
        run = _sparse(collection, deeper)
    elif first == "given":
        run = _given(collection)
    else:
        run = _from_file(collection, Path(first))
    if collection.skip_self:
        run = {q: {d: s for d, s in scores.items() if d != q} for q, scores in run.items()}
    return cut_run(run, depth)


def _bm25() -> BM25:
    return BM25(find_source("bm25"))


def _index(collection: TestCollection) -> BM25:
    model = _bm25()
    rows = [{"id": name, "text": text} for name, text in collection.documents.items()]
    model.index(rows, language=collection.language)
    return model


def _sparse(collection: TestCollection, depth: int) -> Run:
    queries = [{"id": name, "text": text} for name, text in collection.queries.items()]
    return _index(collection).search(queries, top_k=depth)


def _given(collection: TestCollection) -> Run:
    """Return the data's candidates in their order, or ranked by BM25 if unordered."""
    if collection.candidates is None:
        raise DataError(f"{collection.name}: the data have no candidates; use bm25 instead")
    if collection.ordered:
        return {
            query: {document: -float(rank) for rank, document in enumerate(listed)}
            for query, listed in collection.candidates.items()
        }
    model = _index(collection)
    return {
        query: dict(zip(listed, model.score(collection.queries[query], listed), strict=True))
        for query, listed in collection.candidates.items()
    }


def _dense(collection: TestCollection, encoder: Encoder, depth: int) -> Run:
    hits = search_texts(
        encoder, list(collection.queries.values()), collection.documents.values(),
        total=len(collection.documents), k=depth, cosine=encoder.similarity_name == "cosine",
        zeros=True,
    )  # fmt: skip
    return hits.run(collection.queries, list(collection.documents))


def _from_file(collection: TestCollection, file: Path) -> Run:
    run = read_run(file)
    kept = {query: run.get(query, {}) for query in collection.queries}
    for query, scores in kept.items():
        if odd := next((name for name in scores if name not in collection.documents), None):
            raise DataError(
                f"{file}: document {odd!r} of query {query!r} is not in {collection.name}"
            )
    if not any(kept.values()):
        raise DataError(f"{file}: has no query of {collection.name}; is it for another data set?")
    return kept
