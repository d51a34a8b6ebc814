"""Fusions of BM25 and encoders as one search model.

A spec joins the parts with plus signs. What follows says how they are fused::

    bm25+all-MiniLM-L6-v2             by rank: the sum of 1 / (60 + rank), nothing to choose
    bm25+all-MiniLM-L6-v2@cv          by score: a weighted sum of scores on a common scale
    bm25+all-MiniLM-L6-v2@cv-ranks    a weighted sum of 1 / (60 + rank)

The weights of the last two are chosen by the grades of own data, by cross-validation over queries:
see `qwen3nb.metrics.fusion_weights`. Without grades, they are equal.

The common scale is the theoretical min-max scale: (score - least) / (highest - least). The highest
score is that of the query. The least one is what the part can give: 0 of BM25 and of sparse
vectors, -1 of a cosine; without such a bound, it is the lowest that was returned. A document that
a part does not return has the least score if the part returned all that it found. Else it has the
lowest one that was returned, which is as much as it can have.

References:
    Cormack, Clarke and Buettcher 2009 (reciprocal rank fusion, k = 60); Bruch et al., ACM TOIS 42
    (2023), arXiv:2210.11934 (theoretical min-max scale, convex combination).
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.metrics.fusion_weights import (
    FEWEST,
    FOLDS,
    STEPS,
    Floats,
    equal_weights,
)
from qwen3nb.metrics.retrieval import rank_documents
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.source import FITTED_BY_SCORE, Source, fusion_label, mteb_meta
from qwen3nb.models.search.dense import as_searcher
from qwen3nb.models.search.searcher import Run, Searcher
from qwen3nb.models.types import Settings, Stats

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta

    from qwen3nb.models.search.mteb_rows import MtebRows

log = logging.getLogger(__name__)
FUSION = 60
# Each part searches this much deeper, because fusion can lift lower-ranked documents.
_DEPTH_FACTOR = 2
FITTED_METRIC = "nDCG@10"  # by which weights are chosen


def fuse(runs: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Fuse runs by reciprocal rank: sum 1 / (60 + rank) over the runs that contain a document.

    >>> fuse([{"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 9.0}}])["q"]["b"] == 1 / 62 + 1 / 61
    True
    """
    sums: dict[str, dict[str, float]] = {}
    for run in runs:
        for query, scores in run.items():
            query_sums = sums.setdefault(query, defaultdict(float))
            for document, score in reciprocal_ranks(scores).items():
                query_sums[document] += score
    return {query: dict(query_sums) for query, query_sums in sums.items()}


def reciprocal_ranks(scores: Mapping[str, float]) -> dict[str, float]:
    """Return 1 / (60 + rank) of each document.

    >>> reciprocal_ranks({"a": 2.0, "b": 9.0}) == {"b": 1 / 61, "a": 1 / 62}
    True
    """
    ranked = enumerate(rank_documents(scores), start=1)
    return {document: 1 / (FUSION + rank) for rank, document in ranked}


def scaled_scores(scores: Mapping[str, float], *, least: float | None) -> dict[str, float]:
    """Return scores on the theoretical min-max scale, on which the best document has 1.

    >>> scaled_scores({"a": 6.0, "b": 3.0}, least=0.0)
    {'a': 1.0, 'b': 0.5}

    Args:
        scores: those of the documents that were returned for one query.
        least: the lowest score that can be; None for the lowest of these.
    """
    if not scores:
        return {}
    highest = max(scores.values())
    lowest = min(scores.values()) if least is None else least
    span = highest - lowest
    if span <= 0:  # all are equal, and nothing tells them apart
        return dict.fromkeys(scores, 1.0)
    return {document: (score - lowest) / span for document, score in scores.items()}


@dataclass(frozen=True, eq=False)
class FusedQuery:
    """The documents that any part returns for a query, D of them, with their scores by P parts."""

    documents: tuple[str, ...]  # by id, from the last, as documents of equal score are ranked
    scores: Floats  # (P, D), on a common scale

    def weighted(self, weights: Floats) -> Floats:
        """Return the scores (G, D) of the documents for each of G combinations of weights."""
        products = weights[:, :, np.newaxis] * self.scores[np.newaxis]
        sums: Floats = products.sum(axis=1)
        return sums

    def fused(self, weights: Floats) -> dict[str, float]:
        """Return the score of each document by one combination of weights (P,)."""
        (scores,) = self.weighted(weights[np.newaxis])
        return dict(zip(self.documents, scores.tolist(), strict=True))


class Fusion(Searcher):
    """Several searches fused by rank into one MTEB search model, for retrieval and reranking."""

    def __init__(self, source: Source, parts: Sequence[Encoder | Searcher]) -> None:
        self.label = fusion_label([part.label for part in parts], source)
        self.source = source
        self._parts = list(parts)
        self.nothing: Counter[str] = Counter()  # by part, queries for which it found nothing
        self._searchers = [as_searcher(part) for part in self._parts]
        self.settings = self._settings()

    def _settings(self) -> Settings:
        return {
            "model": {"kind": "fusion"},
            "k": FUSION,
            "depth": _DEPTH_FACTOR,
            "of": [part.settings for part in self._parts],
        }

    @property
    def parts(self) -> Sequence[Encoder | Searcher]:
        """The fused models."""
        return self._parts

    @property
    def device(self) -> str:  # type: ignore[override]
        """The device that the last part runs on."""
        return self._parts[-1].device

    @property
    def stats(self) -> Stats:  # type: ignore[override]
        """Work done by all parts so far."""
        total = Counter[str]()
        for part in self._parts:
            total.update(vars(part.stats))
        return Stats(**total)

    def index(self, corpus: MtebRows, **options: Any) -> None:
        """Index MTEB's corpus with every part."""
        for part in self._searchers:
            part.index(corpus, **options)

    def search(self, queries: MtebRows, *, top_k: int, **options: Any) -> Run:
        """Return the ``top_k`` best documents per query by the sum of their scores."""
        runs = []
        # Deeper than `top_k`: what two parts rank low may be high in the fusion.
        depth = _DEPTH_FACTOR * top_k
        for part, searcher in zip(self._parts, self._searchers, strict=True):
            run = searcher.search(queries, top_k=depth, **options)
            for scores in run.values():
                if not scores:
                    self.nothing[part.label] += 1
            runs.append(run)
        best: Run = {}
        for query, scores in self._fused(runs, depth).items():
            best_documents = rank_documents(scores)[:top_k]
            best[query] = {document: scores[document] for document in best_documents}
        return best

    def _fused(self, runs: Sequence[Run], depth: int) -> Run:
        """Return the fused scores of runs of the parts, each of at most ``depth`` documents."""
        return fuse(runs)

    def seconds_per_query(self, queries: Sequence[str]) -> float:
        """Return the sum of its parts' times."""
        return sum(searcher.seconds_per_query(queries) for searcher in self._searchers)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description, with a name and revision unique to this combination."""
        return mteb_meta(self, dimension=None, kinds=["hybrid"], parts=self._parts)


class FittedFusion(Fusion):
    """Several searches fused by weights, which the grades of own data choose.

    Without grades, the weights are equal.
    """

    fits_weights = True

    def _settings(self) -> Settings:
        return {
            "model": {"kind": "fusion"},
            "weights": "cross-validated over queries",
            "scale": self.scale,
            "metric": FITTED_METRIC,
            "folds": FOLDS,
            "steps": STEPS[len(self._parts)],
            "fewest": FEWEST,
            "of": [part.settings for part in self._parts],
        }

    @property
    def scale(self) -> str:
        """The scale on which the scores of the parts are added."""
        if self.source.fitted == FITTED_BY_SCORE:
            return "theoretical min-max"
        return f"1 / ({FUSION} + rank)"

    def fused_query(self, rankings: Sequence[Mapping[str, float]], *, depth: int) -> FusedQuery:
        """Return the documents of a query with their scores by all parts.

        Args:
            rankings: of each part, the scores of the documents that it returned.
            depth: how many documents a part was asked for; with fewer, it has found no others.
        """
        # From the last id, as `rank_documents` ranks documents of equal score.
        documents = sorted(set().union(*rankings), reverse=True)
        table = np.zeros((len(rankings), len(documents)))
        for row, scores in enumerate(rankings):
            scaled, otherwise = self._scaled(scores, row, depth)
            table[row] = [scaled.get(document, otherwise) for document in documents]
        return FusedQuery(tuple(documents), table)

    def _scaled(
        self, scores: Mapping[str, float], part: int, depth: int
    ) -> tuple[dict[str, float], float]:
        """Return the scores of a part on the common scale, and that of all other documents."""
        if self.source.fitted != FITTED_BY_SCORE:
            return reciprocal_ranks(scores), 0.0
        scaled = scaled_scores(scores, least=self._searchers[part].least_score)
        if len(scores) < depth:  # it has found no other document
            return scaled, 0.0
        return scaled, min(scaled.values())

    def _fused(self, runs: Sequence[Run], depth: int) -> Run:
        """Return the scores by equal weights."""
        log.warning("%s: without grades, its weights are equal", self.label)
        weights = equal_weights(len(runs))
        fused: Run = {}
        for query in runs[0]:
            rankings = [run[query] for run in runs]
            fused[query] = self.fused_query(rankings, depth=depth).fused(weights)
        return fused


def fusion_of(source: Source, parts: Sequence[Encoder | Searcher]) -> Fusion:
    """Return the fusion of loaded parts that a source describes."""
    if source.fitted:
        return FittedFusion(source, parts)
    return Fusion(source, parts)
