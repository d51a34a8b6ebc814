"""Choose the weights of a fusion by the grades of own data, and score each query held out.

The weights of a query are chosen on the queries of all other folds, as
`qwen3nb.metrics.fusion_weights` says. Its ranking, and so each of its scores, follows from these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qwen3nb.metrics.fusion_weights import (
    FEWEST,
    Floats,
    best_row,
    equal_weights,
    folds_of_queries,
    rows_for_folds,
    totals_by_fold,
    weight_grid,
)
from qwen3nb.metrics.near_copies import with_near_copies
from qwen3nb.metrics.retrieval import JudgedRanking, Measure, Qrels, Run
from qwen3nb.models.search.fusion import FITTED_METRIC, FittedFusion, FusedQuery
from qwen3nb.records.details import FittedWeights

Hits = dict[str, dict[str, float]]


@dataclass(frozen=True)
class FittedRun:
    """The rankings of a fusion, each by weights that other queries chose, and these weights."""

    hits: Hits
    fitted: FittedWeights


def fit_fusion(
    model: FittedFusion,
    runs: Sequence[Run],
    qrels: Qrels,
    *,
    texts: Mapping[str, str],
    clusters: Mapping[str, str],
    depth: int,
    seed: int = 0,
) -> FittedRun:
    """Fuse the runs of the parts of a model by weights that grades choose.

    With too few clusters of queries, all weights are equal.

    Args:
        model: the fusion.
        runs: scores by query and document of each part, in order.
        qrels: grade by query and document; every query has a relevant document.
        texts: text by query; near-copies stay in one fold.
        clusters: the cluster of a query, if others depend on it.
        depth: how many documents each part was asked for.
        seed: of the folds.
    """
    names = list(qrels)
    queries = [
        model.fused_query([run.get(name, {}) for run in runs], depth=depth) for name in names
    ]
    parts = [part.label for part in model.parts]
    texts_of_scored = {name: texts[name] for name in names}
    folds = folds_of_queries(texts_of_scored, clusters, seed=seed)
    if not folds.any():  # one fold alone: there are too few to choose by
        equal = equal_weights(len(runs))
        hits = {name: query.fused(equal) for name, query in zip(names, queries, strict=True)}
        units = len(set(with_near_copies(clusters, texts_of_scored).values()))
        reason = f"{units} independent queries are fewer than {FEWEST}"
        return FittedRun(hits, _facts(parts, equal, reason=reason))
    grid = weight_grid(len(runs))
    scores = np.array(
        [_scores(query, grid, qrels[name]) for name, query in zip(names, queries, strict=True)]
    )
    totals = totals_by_fold(scores, folds)
    rows = rows_for_folds(totals, grid)
    hits = {}
    for name, query, fold in zip(names, queries, folds.tolist(), strict=True):
        hits[name] = query.fused(grid[rows[fold]])
    sum_of_all = totals.sum(axis=0)
    chosen_row = best_row(sum_of_all, grid)
    facts = _facts(parts, grid[chosen_row])
    facts["folds"] = grid[rows].tolist()
    facts["totals"] = totals.tolist()
    facts["same_queries"] = float(sum_of_all[chosen_row] / len(names))
    return FittedRun(hits, facts)


def _facts(parts: Sequence[str], weights: Floats, *, reason: str = "") -> FittedWeights:
    return {
        "parts": list(parts),
        "metric": FITTED_METRIC,
        "weights": weights.tolist(),
        "folds": [],
        "totals": [],
        "same_queries": None,
        "reason": reason,
    }


def _scores(query: FusedQuery, grid: Floats, grades: Mapping[str, float]) -> list[float]:
    """Return the score of a query for each combination of weights (G, P)."""
    measure = Measure(FITTED_METRIC)
    # As `rank_documents` compares scores: by 32 bits, and equal ones by id, from the last.
    scores_by_weights = query.weighted(grid).astype(np.float32)
    best_first = np.argsort(-scores_by_weights, axis=1, kind="stable")[:, : measure.depth]
    score_by_ranking: dict[bytes, float] = {}  # many weights give one ranking
    scores = []
    for rows in best_first:
        key = rows.tobytes()
        if key not in score_by_ranking:
            documents = [query.documents[row] for row in rows.tolist()]
            ranking = JudgedRanking.of(grades, documents)
            score_by_ranking[key] = measure.score(ranking.grades, ranking.ideal)
        scores.append(score_by_ranking[key])
    return scores
