"""How many grades does a choice between two models need, and how often is it wrong?

    python -m benchmarks.judging --data PyDocsSampleRetrieval --runs 1000
    python -m benchmarks.judging --data PyDocsSampleRetrieval ../data/cranfield --errors 0 0.1

Judgements are hidden, and asked for one by one (`qwen3nb.analysis.judging`). A judge may err: then
another grade is given, drawn uniformly. For each pair of models the table has Student's t of the
paired differences of DCG@10 by all grades, the share of the pool that was graded, and how often the
other model was taken. Below |t| = 2 either answer is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from benchmarks.options import command
from qwen3nb import Model
from qwen3nb.analysis.judging.pool import DEPTH, GradingPool, Ranking, grading_pool
from qwen3nb.analysis.judging.session import GradingSession
from qwen3nb.bench.harness import machine, table
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.metrics.intervals import Array

_CLEAR = 2.0  # |t| from which an answer can be wrong


@dataclass(frozen=True)
class Curve:
    """What choosing between two models of a collection took, over many sessions."""

    data: str
    current: str
    candidate: str
    t: float  # of the candidate's differences, by all grades without errors
    errors: float  # the share of wrong grades
    pool: int  # pairs that can be graded
    median_share: float  # of the pool that was graded
    high_share: float  # the same, of the session at 90 %
    wrong: float  # the share of sessions that took the other model

    @property
    def can_be_wrong(self) -> bool:
        """Whether all grades prefer one model clearly."""
        return abs(self.t) >= _CLEAR


@dataclass(frozen=True)
class JudgingCosts:
    """The curves of all collections, pairs of models, and shares of errors."""

    machine: str
    sessions: int
    curves: tuple[Curve, ...]


def rankings_of(model: str, collection: TestCollection) -> dict[str, list[str]]:
    """Return the first documents of each query by a model, of its candidates if it has any."""
    queries = list(collection.queries)
    documents = list(collection.documents)
    texts = list(collection.documents.values())
    depth = len(documents) if collection.candidates else DEPTH
    found = Model(model).search(list(collection.queries.values()), texts, k=depth)
    rankings = {}
    for query, scores in zip(queries, found, strict=True):
        ranked = [documents[position] for position in scores]
        if collection.candidates:
            candidates = collection.candidates[query]
            ranked = [document for document in ranked if document in set(candidates)]
            ranked += [document for document in candidates if document not in set(ranked)]
        rankings[query] = ranked[:DEPTH]
    return rankings


def hidden_grades(pool: GradingPool, qrels: Mapping[str, Mapping[str, int]]) -> Array:
    """Return the grade of each pair (N,); 0 without a judgement."""
    grades = [qrels.get(query, {}).get(document, 0) for query, document in pool.pairs]
    return np.array(grades, dtype=int)


def student_t(pool: GradingPool, grades: Array, queries: Sequence[str]) -> float:
    """Return Student's t of the candidate's differences of DCG@10, over all queries."""
    position = {query: number for number, query in enumerate(queries)}
    rows = [position[query] for query in pool.queries]
    differences = np.bincount(rows, weights=pool.weights[0] * grades, minlength=len(queries))
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return float(differences.mean() / error)


def run_session(
    pool: GradingPool, grades: Array, *, highest: int, errors: float, seed: int
) -> tuple[bool, int]:
    """Grade until the session ends; return whether the candidate is taken, and the grades given."""
    draws = np.random.default_rng([seed, 1])
    session = GradingSession(pool, seed=seed, highest_grade=highest)
    while True:
        pair = session.next_pair()
        if pair is None:
            break
        grade = int(grades[pair])
        if draws.random() < errors:
            other_grades = [other for other in range(highest + 1) if other != grade]
            grade = int(draws.choice(other_grades))
        session.grade(pair, grade)
    (standing,) = session.standings()
    takes_candidate = standing.is_better()
    if not standing.is_better() and not standing.is_worse():  # all is graded
        takes_candidate = standing.total > 0
    return takes_candidate, len(session.grades)


def curve(
    collection: TestCollection,
    rankings: Mapping[str, Ranking],
    *,
    current: str,
    candidate: str,
    errors: float,
    runs: int,
) -> Curve:
    """Run many sessions of one pair of models."""
    both = {current: rankings[current], candidate: rankings[candidate]}
    pool = grading_pool(both, current=current)
    grades = hidden_grades(pool, collection.qrels)
    t = student_t(pool, grades, list(collection.queries))
    highest = max(1, int(grades.max()))
    outcomes = [
        run_session(pool, grades, highest=highest, errors=errors, seed=seed) for seed in range(runs)
    ]
    shares = np.array([graded for _, graded in outcomes]) / len(pool)
    wrong = np.mean([takes_candidate != (t > 0) for takes_candidate, _ in outcomes])
    return Curve(
        data=collection.name,
        current=current,
        candidate=candidate,
        t=t,
        errors=errors,
        pool=len(pool),
        median_share=float(np.median(shares)),
        high_share=float(np.quantile(shares, 0.9)),
        wrong=float(wrong),
    )


def bench(
    *,
    data: tuple[str, ...] = ("PyDocsSampleRetrieval",),
    models: tuple[str, ...] = ("bm25", "wordllama", "all-MiniLM-L6-v2", "random"),
    errors: tuple[float, ...] = (0.0, 0.1),
    runs: int = 100,
) -> JudgingCosts:
    """Measure how many grades a choice needs, by simulated sessions with hidden judgements."""
    curves = []
    for spec in data:
        for collection in find_collections(spec):
            rankings = {model: rankings_of(model, collection) for model in models}
            for current, candidate in combinations(models, 2):
                for share in errors:
                    row = curve(
                        collection,
                        rankings,
                        current=current,
                        candidate=candidate,
                        errors=share,
                        runs=runs,
                    )
                    curves.append(row)
    return JudgingCosts(machine(), runs, tuple(curves))


def shown(costs: JudgingCosts) -> str:
    """Return the curves as a table, the clearest differences first."""
    rows = []
    for row in sorted(costs.curves, key=lambda row: (row.errors, -abs(row.t))):
        rows.append(
            {
                "data": row.data,
                "models": f"{row.current} or {row.candidate}",
                "errors": row.errors,
                "t": abs(row.t),
                "pool": row.pool,
                "median": row.median_share,
                "high": row.high_share,
                "wrong": row.wrong if row.can_be_wrong else None,
            }
        )
    return table(
        f"{costs.machine}; {costs.sessions} sessions each",
        rows=rows,
        shown="data: {data} | models: {models} | errors: {errors:.0%} | t: {t:.1f} | "
        "pool: {pool:,} | graded, median: {median:.1%} | at 90 %: {high:.1%} | wrong: {wrong:.3f}",
    )


if __name__ == "__main__":
    command(bench, shown)
