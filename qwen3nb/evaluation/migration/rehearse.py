"""Rehearse a migration: everything that is measured of an old and a new model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np

from qwen3nb.analysis.migration.overlap import overlap_at, rank_biased_overlap
from qwen3nb.analysis.migration.relation import TOLERANCE, Relation, find_relation
from qwen3nb.analysis.migration.thresholds import (
    CarriedThreshold,
    RelevantPairs,
    carried_threshold,
    changed_sides,
    threshold_of_precision,
    top_scores,
)
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.migration.data import MigrationData
from qwen3nb.evaluation.migration.maps import (
    CheckedMap,
    LearningCurve,
    LearningPoint,
    MappedSearch,
    learning_curve,
    mapped_searches,
)
from qwen3nb.evaluation.migration.mixed import DRAWS, SHARES, MixedPoint, mixed_points
from qwen3nb.evaluation.migration.sides import Side, measured_side
from qwen3nb.evaluation.retrieval.custom import evaluate_domain
from qwen3nb.models.capabilities import LoadedModel, encodes
from qwen3nb.models.search.chunks import CUT
from qwen3nb.models.search.exact import Floats
from qwen3nb.records.record import Result
from qwen3nb.vectors.vector_store import VectorStore

DEPTHS = (1, 10, 100)
_ROTATED = 1e-3  # relative error of a map below which vectors are a rotation of each other
_RELATED = 500  # documents whose vectors are compared one by one


class RehearsalOptions(TypedDict, total=False):
    """The options of `rehearse`."""

    depths: Sequence[int]
    thresholds: Sequence[float]
    shares: Sequence[float]
    draws: int
    seed: int


@dataclass(frozen=True)
class Rehearsal:
    """What changes if the new model replaces the old one; empty where it does not apply."""

    data: MigrationData
    old: Side  # without its vectors
    new: Side
    overlaps: Mapping[int, Mapping[str, float]]  # by depth, of each query
    rank_biased: Mapping[str, float]  # rank-biased overlap of each query
    thresholds: tuple[CarriedThreshold, ...]
    mixed: tuple[MixedPoint, ...]
    maps: tuple[MappedSearch, ...]
    curve: tuple[LearningPoint, ...]
    relation: Relation
    map_to_write: CheckedMap | None  # None if there is none that can be trusted
    records: tuple[Result, ...]  # of both models on the graded task
    ndcg: Mapping[str, Mapping[str, float]]  # nDCG@10 of each query: ``old`` and ``new``

    @property
    def is_graded(self) -> bool:
        """Whether the queries have grades."""
        return self.data.domain is not None

    @property
    def has_vectors(self) -> bool:
        """Whether both models have vectors."""
        return self.old.costs.dimension is not None and self.new.costs.dimension is not None

    @property
    def is_same_model(self) -> bool:
        """Whether both are one model with the same settings."""
        return self.old.identity == self.new.identity


def rehearse(
    old: LoadedModel,
    new: LoadedModel,
    data: MigrationData,
    *,
    depths: Sequence[int] = DEPTHS,
    thresholds: Sequence[float] = (),
    shares: Sequence[float] = SHARES,
    draws: int = DRAWS,
    seed: int = 0,
) -> Rehearsal:
    """Measure what changes if ``new`` replaces ``old`` on own documents and queries.

    Args:
        old: the model in use, loaded.
        new: its successor, loaded.
        data: from `read_migration_data`.
        depths: numbers of first documents whose overlap is measured.
        thresholds: similarities of the old model to carry over.
        shares: of the documents that have new vectors, between 0 and 1.
        draws: random orders in which documents are encoded anew.
        seed: of these orders, of the folds of the maps, and of the tests.

    Raises:
        DataError: two different models of one label, or thresholds for a model without vectors.
        EncoderError: a text that cannot be encoded.
    """
    if old.label == new.label and old.identity != new.identity:
        raise DataError(f"both models are called {old.label!r}; name one: NAME=MODEL")
    _check_thresholds(thresholds, old, new)
    with (
        measured_side(old, data, seed=seed) as old_side,
        measured_side(new, data, seed=seed) as new_side,
    ):
        maps = mapped_searches(old_side, new_side, data, seed=seed)
        curve = learning_curve(old_side, new_side, data, seed=seed)
        return Rehearsal(
            data=data,
            old=replace(old_side, vectors=None),
            new=replace(new_side, vectors=None),
            overlaps=_overlaps(old_side, new_side, data, depths),
            rank_biased=data.by_query(rank_biased_overlap(old_side.ranking, new_side.ranking)),
            thresholds=_thresholds(old_side, new_side, data, thresholds, seed=seed),
            mixed=mixed_points(old_side, new_side, data, shares=shares, draws=draws, seed=seed),
            maps=maps,
            curve=curve.points,
            relation=_relation(old_side, new_side, maps),
            map_to_write=_map_to_write(maps, curve),
            records=_records([old, new], data, seed=seed),
            ndcg={
                "old": data.ndcg_or_nothing(old_side.hits),
                "new": data.ndcg_or_nothing(new_side.hits),
            },
        )


def _check_thresholds(thresholds: Sequence[float], *models: LoadedModel) -> None:
    for threshold in thresholds:
        if not -1 <= threshold <= 1:
            raise DataError(f"expected a cosine from -1 to 1 as a threshold; got {threshold:g}")
    for model in models:
        if thresholds and not encodes(model):
            raise DataError(
                f"a threshold is carried from one similarity to another; {model.label} has none: "
                "leave out --threshold"
            )


def _overlaps(
    old: Side, new: Side, data: MigrationData, depths: Sequence[int]
) -> dict[int, dict[str, float]]:
    """Return the overlap at each depth; at most at the number of documents."""
    overlaps = {}
    for depth in depths:
        k = min(depth, len(data.documents))
        overlaps[k] = data.by_query(overlap_at(old.ranking, new.ranking, k))
    return overlaps


def _thresholds(
    old: Side, new: Side, data: MigrationData, thresholds: Sequence[float], *, seed: int
) -> tuple[CarriedThreshold, ...]:
    """Carry thresholds over, by the number of results and, with grades, by precision."""
    if old.vectors is None or new.vectors is None or not thresholds:
        return ()
    old_scores = top_scores(old.vectors.queries, old.vectors.documents)
    new_scores = top_scores(new.vectors.queries, new.vectors.documents)
    carried = [carried_threshold(value, old_scores, new_scores) for value in thresholds]
    pairs = [(value.old, value.new) for value in carried if value.new is not None]
    changes = dict(zip(pairs, changed_sides(old.vectors, new.vectors, pairs), strict=True))
    relevant = _relevant_pairs(old, new, data)
    complete = []
    for threshold in carried:
        left, came = 0, 0
        if threshold.new is not None:
            left, came = changes[threshold.old, threshold.new]
        by_precision = None
        if relevant is not None:
            by_precision = threshold_of_precision(
                threshold.old, old_scores, new_scores, relevant, seed=seed
            )
        complete.append(replace(threshold, left=left, came=came, by_precision=by_precision))
    return tuple(complete)


def _relevant_pairs(old: Side, new: Side, data: MigrationData) -> RelevantPairs | None:
    """Return the similarities of all relevant pairs; None without grades."""
    if data.domain is None or old.vectors is None or new.vectors is None:
        return None
    rows, positions = [], []
    for row, query in enumerate(data.queries):
        for document, grade in data.domain.grades[query].items():
            if grade >= data.domain.threshold:
                rows.append(row)
                positions.append(data.positions[document])
    query_rows, document_rows = np.array(rows), np.array(positions)
    return RelevantPairs(
        queries=query_rows,
        old=_similarities(old.vectors.queries[query_rows], old.vectors.documents, document_rows),
        new=_similarities(new.vectors.queries[query_rows], new.vectors.documents, document_rows),
    )


def _similarities(queries: Floats, documents: VectorStore, rows: Any) -> Floats:
    """Return the products of queries (J, D) with the documents at ``rows`` (J,)."""
    similarities: Floats = np.einsum("jd,jd->j", queries, documents.rows(rows))
    return similarities


def _relation(old: Side, new: Side, maps: Sequence[MappedSearch]) -> Relation:
    """Return how the vectors of documents and queries are related."""
    if old.vectors is None or new.vectors is None:
        return Relation.UNRELATED
    count = min(_RELATED, len(old.vectors.documents))
    old_rows = np.concatenate([next(old.vectors.documents.blocks(count)), old.vectors.queries])
    new_rows = np.concatenate([next(new.vectors.documents.blocks(count)), new.vectors.queries])
    relation = find_relation(old_rows, new_rows)
    has_same_lengths = np.allclose(old.query_lengths, new.query_lengths, rtol=TOLERANCE)
    if relation is Relation.SAME and not has_same_lengths:
        return Relation.RESCALED
    if relation is not Relation.UNRELATED:
        return relation
    for search in maps:
        is_exact = max(search.document_error, search.query_error) <= _ROTATED
        if search.kind == "rotation" and search.maps_documents and search.is_trusted and is_exact:
            return Relation.ROTATED
    return Relation.UNRELATED


def best_document_map(maps: Sequence[MappedSearch]) -> MappedSearch | None:
    """Return the map of documents with the smallest error; None without any.

    The error decides and not nDCG, so that the queries of the test do not choose.
    """
    of_documents = [search for search in maps if search.maps_documents]
    if not of_documents:
        return None
    return min(of_documents, key=lambda search: search.document_error)


def _map_to_write(maps: Sequence[MappedSearch], curve: LearningCurve) -> CheckedMap | None:
    best = best_document_map(maps)
    if best is None or not best.is_trusted:
        return None
    found = curve.maps[best.kind]
    if found.fitted <= best.dimension:  # fewer documents are left when some are held out
        return None
    return found


def _records(
    models: Sequence[LoadedModel], data: MigrationData, *, seed: int
) -> tuple[Result, ...]:
    """Return the records of both models on the graded task, which are not kept.

    A document has one vector, as in an index: one that is longer than the model takes is cut.
    """
    if data.domain is None or models[0].identity == models[1].identity:
        return ()
    with tempfile.TemporaryDirectory() as folder:
        run = evaluate_domain(
            models, data.domain, output=folder, seed=seed, strict=True, chunks=CUT
        )
    return tuple(run.results)
