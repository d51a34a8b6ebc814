"""Score the candidates of a run with a reranker, in blocks of queries.

A block depends on nothing but its queries: it can be scored anywhere, in any order. Each query
is journaled when it is scored, so an interrupted run loses one query at most. Memory holds the
log-odds of all pairs as one array, and the texts and scores of one query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.datasets.collection import TestCollection
from qwen3nb.metrics.run_arrays import RunArrays
from qwen3nb.models.rerankers.yes_no import Reranker
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.files.journal import Journal
from qwen3nb.utils.progress import tqdm

__all__ = ["ScoredCandidates", "score_candidates"]

BLOCK = 64  # queries
_COUNTS = ("cut", "saturated", "tied", "equal", "queries_cut")


@dataclass(frozen=True)
class ScoredCandidates:
    """A run of log-odds.

    Attributes:
        run: the log-odds of the candidates of each query, by document id.
        counts: number of pairs, and of truncations and ties among them.
        longest: the longest query that was cut, with its tokens; empty if none was.
    """

    run: RunArrays
    counts: dict[str, int]
    longest: dict[str, Any]


@dataclass(frozen=True)
class _Block:
    """Some queries of `ScoredCandidates`: their log-odds one after the other."""

    log_odds: NDArray[np.float64]
    counts: dict[str, int]
    longest: dict[str, Any]


def score_candidates(
    reranker: Reranker,
    collection: TestCollection,
    first: RunArrays,
    *,
    journal: Journal,
    fresh: bool = False,
    show_progress: bool = True,
    block: int = BLOCK,
) -> ScoredCandidates:
    """Return the log-odds of all candidates; they do not depend on the size of a block.

    Args:
        reranker: scores the pairs.
        collection: has the texts.
        first: the first stage's run.
        journal: has the scores of queries that were scored before, and gets the others.
        fresh: whether to score all queries again.
        show_progress: whether to show a progress bar.
        block: queries per block.
    """
    candidates = first.by_name()
    scorer = _CandidateScorer(reranker, collection, candidates, journal, fresh)
    log_odds = np.empty(len(candidates.scores))
    counts = dict.fromkeys(("pairs", *_COUNTS), 0)
    longest: dict[str, Any] = {}
    bar = tqdm(
        total=len(candidates), desc=f"{reranker.label}: {collection.name}", unit="query",
        disable=not show_progress, leave=False,
    )  # fmt: skip
    with bar:
        for start in range(0, len(candidates), block):
            queries = candidates.queries[start : start + block]
            done = _score_block(scorer, queries, bar)
            at = int(candidates.offsets[start])
            log_odds[at : at + len(done.log_odds)] = done.log_odds
            counts = {name: count + done.counts[name] for name, count in counts.items()}
            longest = max(longest, done.longest, key=_tokens)
    return ScoredCandidates(replace(candidates, scores=log_odds), counts, longest)


def _score_block(scorer: _CandidateScorer, queries: Sequence[str], bar: Any) -> _Block:
    log_odds: list[NDArray[np.float64]] = []
    counts = dict.fromkeys(("pairs", *_COUNTS), 0)
    longest: dict[str, Any] = {}
    for query in queries:
        done = scorer.of(query)
        log_odds.append(np.array(done["log_odds"], dtype=np.float64))
        counts["pairs"] += len(log_odds[-1])
        for each in _COUNTS:
            counts[each] += done.get(each, 0)
        if done.get("queries_cut"):
            longest = max(longest, scorer.length(query), key=_tokens)
        bar.update()
    return _Block(np.concatenate(log_odds), counts, longest)


@dataclass(frozen=True)
class _CandidateScorer:
    """Scores the candidates of a query, unless the journal has their scores."""

    reranker: Reranker
    collection: TestCollection
    candidates: RunArrays
    journal: Journal
    fresh: bool

    def of(self, query: str) -> dict[str, Any]:
        """Log-odds of the query's candidates in their order, and what was truncated or tied."""
        documents = self.candidates.listed(query)
        text = self.collection.queries[query]
        texts = [self.collection.documents[document] for document in documents]
        key = sha256_json([text, documents, texts])
        done: dict[str, Any] | None = None if self.fresh else self.journal.get(key)
        if done is None:
            done = self._now(text, texts)
            self.journal.add(key, done)
        return done

    def length(self, query: str) -> dict[str, Any]:
        """The query and the number of its tokens."""
        return {
            "query": query,
            "tokens": self.reranker.query_length(self.collection.queries[query]),
        }

    def _now(self, text: str, texts: list[str]) -> dict[str, Any]:
        stats = self.reranker.stats
        before = [getattr(stats, name) for name in _COUNTS]
        scores = self.reranker.score(text, texts)
        after = [getattr(stats, name) for name in _COUNTS]
        counted = {name: b - a for name, a, b in zip(_COUNTS, before, after, strict=True)}
        return {"log_odds": scores.log_odds.tolist(), **counted}


def _tokens(length: dict[str, Any]) -> int:
    return int(length.get("tokens", 0))
