"""Reciprocal rank fusion of BM25 and encoders as one search model.

A spec joins the parts with plus signs: ``bm25+all-MiniLM-L6-v2``. Ranks are fused, not
scores, so no calibration is needed.

References:
    Cormack, Clarke and Buettcher 2009 (reciprocal rank fusion, k = 60).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from qwen3nb.metrics.retrieval import rank_documents
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.source import Source, mteb_meta
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.dense import DenseSearch
from qwen3nb.models.types import Identified, Stats

FUSION = 60
_DEEPER = 2  # each part searches this much deeper, because fusion can lift lower-ranked documents


def fuse(runs: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Fuse runs by reciprocal rank: sum 1 / (60 + rank) over the runs that contain a document.

    >>> fuse([{"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 9.0}}])["q"]["b"] == 1 / 62 + 1 / 61
    True
    """
    fused: dict[str, dict[str, float]] = {}
    for run in runs:
        for query, scores in run.items():
            sums = fused.setdefault(query, {})
            for rank, document in enumerate(rank_documents(scores), start=1):
                sums[document] = sums.get(document, 0.0) + 1 / (FUSION + rank)
    return fused


class Fusion(Identified):
    """Several searches fused by rank into one MTEB search model, for retrieval and reranking."""

    searches_only = True

    def __init__(self, source: Source, parts: Sequence[Encoder | BM25]) -> None:
        self.label = "-plus-".join(part.label for part in parts)
        self.source = source
        self.parts = list(parts)
        self.nothing: Counter[str] = Counter()  # by part, queries for which it found nothing
        self.settings: dict[str, Any] = {
            "model": {"kind": "fusion"},
            "k": FUSION,
            "depth": _DEEPER,
            "of": [part.settings for part in self.parts],
        }
        self._searches: list[Any] = [
            part if isinstance(part, BM25) else DenseSearch(part) for part in self.parts
        ]

    @property
    def device(self) -> str:
        """The device that the last part runs on."""
        return self.parts[-1].device

    @property
    def stats(self) -> Stats:
        """Work done by all parts so far."""
        done = [vars(part.stats) for part in self.parts]
        return Stats(**{name: sum(each[name] for each in done) for name in done[0]})

    def index(self, corpus: Any, **options: Any) -> None:
        """Index MTEB's corpus with every part."""
        for part in self._searches:
            part.index(corpus, **options)

    def search(self, queries: Any, *, top_k: int, **options: Any) -> dict[str, dict[str, float]]:
        """Return the ``top_k`` best documents per query by the sum of reciprocal ranks."""
        runs = [part.search(queries, top_k=_DEEPER * top_k, **options) for part in self._searches]
        for part, run in zip(self.parts, runs, strict=True):
            self.nothing[part.label] += sum(not scores for scores in run.values())
        fused = fuse([{q: dict(scores) for q, scores in run.items()} for run in runs])
        return {
            query: {document: scores[document] for document in rank_documents(scores)[:top_k]}
            for query, scores in fused.items()
        }

    @property
    def mteb_model_meta(self) -> Any:
        """MTEB's description, with a name and revision unique to this combination."""
        return mteb_meta(self, dimension=None, kinds=["hybrid"], parts=self.parts)
