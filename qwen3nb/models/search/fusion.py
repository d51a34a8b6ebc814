"""Reciprocal rank fusion of BM25 and encoders as one search model.

A spec joins the parts with plus signs: ``bm25+all-MiniLM-L6-v2``. Ranks are fused, not
scores, so no calibration is needed.

References:
    Cormack, Clarke and Buettcher 2009 (reciprocal rank fusion, k = 60).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qwen3nb.metrics.retrieval import rank_documents
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.source import Source, mteb_meta
from qwen3nb.models.search.dense import as_searcher
from qwen3nb.models.search.searcher import Run, Searcher
from qwen3nb.models.types import Settings, Stats

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta

    from qwen3nb.models.search.mteb_rows import MtebRows

FUSION = 60
# Each part searches this much deeper, because fusion can lift lower-ranked documents.
_DEPTH_FACTOR = 2


def fuse(runs: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Fuse runs by reciprocal rank: sum 1 / (60 + rank) over the runs that contain a document.

    >>> fuse([{"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 9.0}}])["q"]["b"] == 1 / 62 + 1 / 61
    True
    """
    sums: dict[str, dict[str, float]] = {}
    for run in runs:
        for query, scores in run.items():
            query_sums = sums.setdefault(query, defaultdict(float))
            for rank, document in enumerate(rank_documents(scores), start=1):
                query_sums[document] += 1 / (FUSION + rank)
    return {query: dict(query_sums) for query, query_sums in sums.items()}


class Fusion(Searcher):
    """Several searches fused by rank into one MTEB search model, for retrieval and reranking."""

    def __init__(self, source: Source, parts: Sequence[Encoder | Searcher]) -> None:
        self.label = "-plus-".join(part.label for part in parts)
        self.source = source
        self._parts = list(parts)
        self.nothing: Counter[str] = Counter()  # by part, queries for which it found nothing
        self.settings: Settings = {
            "model": {"kind": "fusion"},
            "k": FUSION,
            "depth": _DEPTH_FACTOR,
            "of": [part.settings for part in self._parts],
        }
        self._searchers = [as_searcher(part) for part in self._parts]

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
        """Return the ``top_k`` best documents per query by the sum of reciprocal ranks."""
        runs = []
        for part, searcher in zip(self._parts, self._searchers, strict=True):
            # Deeper than `top_k`: what two parts rank low may be high in the fusion.
            run = searcher.search(queries, top_k=_DEPTH_FACTOR * top_k, **options)
            for scores in run.values():
                if not scores:
                    self.nothing[part.label] += 1
            runs.append(run)
        best: Run = {}
        for query, scores in fuse(runs).items():
            best_documents = rank_documents(scores)[:top_k]
            best[query] = {document: scores[document] for document in best_documents}
        return best

    def seconds_per_query(self, queries: Sequence[str]) -> float:
        """Return the sum of its parts' times."""
        return sum(searcher.seconds_per_query(queries) for searcher in self._searchers)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description, with a name and revision unique to this combination."""
        return mteb_meta(self, dimension=None, kinds=["hybrid"], parts=self._parts)
