"""Would a linear map of the vectors do instead of encoding all documents again?

Two ways are tried. Old document vectors are mapped into the new space, where new queries search
them. Or new query vectors are mapped into the old space, where they search the old documents.

Every map is fitted on documents alone. Documents are dealt into folds, and those of a fold are
mapped by a map that was fitted on the others, so no document is mapped by a map that has seen it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.migration.linear_map import (
    LinearMap,
    Moments,
    fit_ridge,
    fit_rotation,
    squared_errors,
    total_of,
    with_unit_length,
)
from qwen3nb.analysis.migration.overlap import overlap_at
from qwen3nb.analysis.migration.thresholds import Compared
from qwen3nb.evaluation.migration.data import MigrationData
from qwen3nb.evaluation.migration.sides import KEPT, Side, searched
from qwen3nb.models.search.exact import Floats, Ids
from qwen3nb.utils.progress import tqdm
from qwen3nb.vectors.vector_store import VectorStore

KINDS = ("rotation", "ridge")
MOST_FITTED = 20_000  # documents
FEWEST_DOCUMENTS = 10
_FOLDS = 5
_FOLDS_OF_LONG_VECTORS = 3  # the sums of a fold take memory
_LONG = 1024  # dimensions
_BLOCK = 8192
_CURVE = (0.5, 1, 2, 5, 10, 20, 50)  # documents of the learning curve, per dimension
_MOST_CHECKED = 2000  # documents of the learning curve that no map was fitted on


@dataclass(frozen=True)
class MappedSearch:
    """A search with mapped vectors, by maps that have not seen what they map."""

    kind: str  # ``rotation`` or ``ridge``
    maps_documents: bool  # old documents into the new space; else new queries into the old space
    fitted: int  # documents that each map was fitted on, at least
    dimension: int  # of the vectors that are mapped
    # root of the squared errors over the squares: of documents that were not fitted on, and of
    # queries, none of which was
    document_error: float
    query_error: float
    overlap: dict[str, float]  # @10 with the new model, by query
    ndcg: dict[str, float]  # by query; empty without grades

    @property
    def is_trusted(self) -> bool:
        """Whether there were more documents than dimensions; else a map fits by chance."""
        return self.fitted > self.dimension


@dataclass(frozen=True)
class LearningPoint:
    """How well maps do that are fitted on so many documents."""

    kind: str
    documents: int
    error: float  # relative, of documents that were not fitted on
    overlap: float  # mean overlap@10 of new queries on those documents


@dataclass(frozen=True)
class CheckedMap:
    """A map to use, which was checked on documents that it was not fitted on."""

    map: LinearMap
    fitted: int
    checked: int
    error: float


@dataclass(frozen=True)
class LearningCurve:
    """Maps that are fitted on more and more documents; empty if there are none."""

    points: tuple[LearningPoint, ...] = ()
    # by kind, those that are fitted on the most documents
    maps: Mapping[str, CheckedMap] = field(default_factory=dict)


@dataclass(frozen=True)
class _Folds:
    """Which documents a map may be fitted on."""

    folds: Ids  # fold of each document (N,)
    is_sampled: NDArray[np.bool_]  # whether maps may be fitted on it (N,)
    count: int

    @classmethod
    def deal(cls, documents: int, dimension: int, *, seed: int) -> _Folds:
        count = _FOLDS if dimension <= _LONG else _FOLDS_OF_LONG_VECTORS
        order = np.random.default_rng(seed).permutation(documents)
        return cls(order % count, order < MOST_FITTED, count)

    def fitted(self) -> int:
        """Return the least number of documents that a map is fitted on."""
        sizes = np.bincount(self.folds[self.is_sampled], minlength=self.count)
        return int(sizes.sum() - sizes.max())


def mapped_searches(
    old: Side, new: Side, data: MigrationData, *, seed: int = 0
) -> tuple[MappedSearch, ...]:
    """Search with every map, in both directions; empty without vectors, or of few documents."""
    if old.vectors is None or new.vectors is None or len(data.documents) < FEWEST_DOCUMENTS:
        return ()
    longest = max(old.vectors.documents.shape[1], new.vectors.documents.shape[1])
    folds = _Folds.deal(len(data.documents), longest, seed=seed)
    with tqdm(total=2 * folds.count, desc="linear maps", unit=" folds", leave=False) as bar:
        forwards = _fitted_maps(old.vectors.documents, new.vectors.documents, folds, bar)
        backwards = _fitted_maps(new.vectors.documents, old.vectors.documents, folds, bar)
    searches = []
    for kind in KINDS:
        of_documents = _mapped_search(forwards[kind], old, new, data, folds, maps_documents=True)
        of_queries = _mapped_search(backwards[kind], old, new, data, folds, maps_documents=False)
        searches += [of_documents, of_queries]
    return tuple(searches)


def _fitted_maps(
    source: VectorStore, target: VectorStore, folds: _Folds, bar: tqdm
) -> dict[str, list[LinearMap]]:
    """Return by kind the map of each fold, fitted on the sampled documents of the others."""
    parts = _moments_of_folds(source, target, folds)
    maps: dict[str, list[LinearMap]] = {kind: [] for kind in KINDS}
    for fold in range(folds.count):
        others = [parts[other] for other in range(folds.count) if other != fold]
        maps["rotation"].append(fit_rotation(total_of(others)))
        # One of the other folds chooses the penalty.
        maps["ridge"].append(fit_ridge(total_of(others[1:]), others[0]))
        bar.update()
    return maps


def _moments_of_folds(source: VectorStore, target: VectorStore, folds: _Folds) -> list[Moments]:
    parts: list[list[Moments]] = [[] for _ in range(folds.count)]
    start = 0
    for x, y in zip(source.blocks(_BLOCK), target.blocks(_BLOCK), strict=True):
        rows = slice(start, start + len(x))
        for fold in range(folds.count):
            is_of_fold = folds.is_sampled[rows] & (folds.folds[rows] == fold)
            parts[fold] = [total_of([*parts[fold], Moments.of(x[is_of_fold], y[is_of_fold])])]
        start += len(x)
    return [total_of(part) for part in parts]


def _mapped_search(
    maps: Sequence[LinearMap],
    old: Side,
    new: Side,
    data: MigrationData,
    folds: _Folds,
    *,
    maps_documents: bool,
) -> MappedSearch:
    """Search old documents in the new space, or by new queries in the old space."""
    if maps_documents:
        source, target = _vectors(old), _vectors(new)
        blocks = _mapped_blocks(maps, source.documents, folds)
        hits = searched(target.queries, blocks, data, k=KEPT)
    else:
        source, target = _vectors(new), _vectors(old)
        hits = searched(maps[0].apply(source.queries), target.documents, data, k=KEPT)
    return MappedSearch(
        kind=maps[0].kind,
        maps_documents=maps_documents,
        fitted=folds.fitted(),
        dimension=source.documents.shape[1],
        document_error=_document_error(maps, source, target, folds),
        query_error=_error(maps[0], source.queries, target.queries),
        overlap=data.by_query(new.overlap(hits)),
        ndcg=data.ndcg_or_nothing(hits),
    )


def _document_error(
    maps: Sequence[LinearMap], source: Compared, target: Compared, folds: _Folds
) -> float:
    """Return the relative error of documents, each mapped by a map that has not seen it."""
    error = square = 0.0
    mapped_blocks = _mapped_blocks(maps, source.documents, folds)
    for mapped, block in zip(mapped_blocks, target.documents.blocks(_BLOCK), strict=True):
        error += float(((mapped.astype(np.float64) - block) ** 2).sum())
        square += float((block.astype(np.float64) ** 2).sum())
    return _relative(error, square)


def _mapped_blocks(
    maps: Sequence[LinearMap], source: VectorStore, folds: _Folds
) -> Iterator[Floats]:
    """Yield blocks of mapped vectors, each by a map that was not fitted on it."""
    start = 0
    for block in source.blocks(_BLOCK):
        fold_of_row = folds.folds[start : start + len(block)]
        mapped = np.empty((len(block), maps[0].matrix.shape[1]), dtype=np.float32)
        for fold, fitted in enumerate(maps):
            is_of_fold = fold_of_row == fold
            mapped[is_of_fold] = fitted.apply(block[is_of_fold])
        start += len(block)
        yield with_unit_length(mapped)


def _error(fitted: LinearMap, x: Floats, y: Floats) -> float:
    return _relative(*squared_errors(fitted, x, y))


def _relative(error: float, square: float) -> float:
    return math.sqrt(error / max(square, 1e-300))


def _vectors(side: Side) -> Compared:
    if side.vectors is None:
        raise ValueError(f"{side.label} has no vectors to map")
    return side.vectors


def learning_curve(old: Side, new: Side, data: MigrationData, *, seed: int = 0) -> LearningCurve:
    """Fit maps of old documents on more and more of them, and check them on others."""
    if old.vectors is None or new.vectors is None or len(data.documents) < FEWEST_DOCUMENTS:
        return LearningCurve()
    old_documents, new_documents = old.vectors.documents, new.vectors.documents
    order = np.random.default_rng(seed).permutation(len(data.documents))
    checked = order[: min(_MOST_CHECKED, len(order) // _FOLDS)]
    fitted = order[len(checked) :][:MOST_FITTED]
    checked_x, checked_y = old_documents.rows(checked), new_documents.rows(checked)
    fitted_x, fitted_y = old_documents.rows(fitted), new_documents.rows(fitted)
    true_hits = searched_rows(new.vectors.queries, checked_y)
    points = []
    maps = {}
    for count in _curve_sizes(old_documents.shape[1], len(fitted)):
        for kind in KINDS:
            found = _fit(kind, fitted_x[:count], fitted_y[:count])
            mapped = with_unit_length(found.apply(checked_x))
            hits = searched_rows(new.vectors.queries, mapped)
            error = _error(found, checked_x, checked_y)
            overlap = float(overlap_at(hits, true_hits, 10).mean())
            points.append(LearningPoint(kind, count, error, overlap))
            maps[kind] = CheckedMap(found, count, len(checked), error)
    return LearningCurve(tuple(points), maps)


def searched_rows(queries: Floats, documents: Floats) -> Ids:
    """Return the rows of the ten best documents (n, D) of each query (Q, 10)."""
    count = min(10, len(documents))
    order = np.argsort(-(queries @ documents.T), axis=1, kind="stable")
    best: Ids = order[:, :count]
    return best


def _curve_sizes(dimension: int, largest: int) -> list[int]:
    sizes = [round(factor * dimension) for factor in _CURVE]
    return sorted({size for size in sizes if 5 <= size < largest} | {largest})


def _fit(kind: str, x: Floats, y: Floats) -> LinearMap:
    """Return a map of either kind; a fifth of the documents chooses the penalty of ridge."""
    if kind == "rotation":
        return fit_rotation(Moments.of(x, y))
    checking = max(1, len(x) // _FOLDS)
    return fit_ridge(Moments.of(x[checking:], y[checking:]), Moments.of(x[:checking], y[:checking]))
