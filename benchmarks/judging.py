"""How many grades does a choice between models need, and how often is it wrong?

    python -m benchmarks.judging --data PyDocsSampleRetrieval --runs 1000
    python -m benchmarks.judging --data ../data/cranfield --pairs bm25,random minilm,minilm@64
    python -m benchmarks.judging --equal 1 --runs 1000
    python -m benchmarks.judging --together 1 --models bm25 wordllama random

Judgements are hidden, and asked for one by one (`qwen3nb.analysis.judging`). A judge may err: then
another grade is given, drawn uniformly. For each pair of models the table has Student's t of the
paired differences of DCG@10 by all grades, the share of the pool that was graded, and how often the
other model was taken. Where a session does not decide, the model that is ahead counts as taken.
Below |t| = 2 either answer is right. Beside it stand the grades of the plain way: queries are
judged whole in random order, until the difference is 2.8 standard errors.

`--equal 1` swaps the two rankings on a random half of the queries, anew in each session. Then the
models are equally good, and a decision is false. `--together 1` chooses among all models at once.
Sessions are stored as they end, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.options import command
from qwen3nb import Model
from qwen3nb.analysis import judging
from qwen3nb.analysis.judging.pool import DEPTH, GradingPool, Ranking, grading_pool
from qwen3nb.analysis.judging.session import GradingSession
from qwen3nb.bench.harness import machine, table
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.custom.grades import HIGHEST_GRADE
from qwen3nb.metrics.intervals import Array
from qwen3nb.utils.progress import tqdm

_CLEAR = 2.0  # |t| from which an answer can be wrong
_PLAIN_LIMIT = 2.8  # standard errors after which the plain way stops
_PLAIN_LEAST = 5  # queries that it judges at least
_POWERFUL = 2.8  # normal quantiles of 0.975 and 0.8, added
_SHORT_NAMES = {"minilm": "all-MiniLM-L6-v2"}


@dataclass(frozen=True)
class Outcome:
    """How a session ended."""

    taken: str  # the model that is taken, or ahead if nothing was decided
    is_decided: bool  # whether one model is shown to be better than the other, or than others
    graded: int  # grades given
    pool: int  # pairs that can be graded
    queries_needed: int | None  # as the session says
    is_wrong: bool  # whether all grades clearly prefer another model
    plain_graded: int  # by the plain way; 0 for more than two models
    plain_is_wrong: bool


@dataclass(frozen=True)
class Curve:
    """What choosing between models of a collection took, over many sessions."""

    data: str
    models: tuple[str, ...]  # the model in use first
    t: float  # of the candidate's differences, by all grades without errors; the largest of several
    queries: int
    errors: float  # the share of wrong grades
    outcomes: tuple[Outcome, ...]

    @property
    def can_be_wrong(self) -> bool:
        """Whether all grades prefer one model clearly."""
        return abs(self.t) >= _CLEAR

    @property
    def shares(self) -> Array:
        """The share of the pool that each session graded."""
        return np.array([outcome.graded / outcome.pool for outcome in self.outcomes])

    @property
    def plain_shares(self) -> Array:
        """The share of the pool that the plain way graded."""
        return np.array([outcome.plain_graded / outcome.pool for outcome in self.outcomes])

    @property
    def wrong(self) -> float:
        """The share of sessions that took the other model."""
        return float(np.mean([outcome.is_wrong for outcome in self.outcomes]))

    @property
    def decided(self) -> float:
        """The share of sessions that decided."""
        return float(np.mean([outcome.is_decided for outcome in self.outcomes]))

    @property
    def needed_ratio(self) -> float | None:
        """How many queries undecided sessions ask for, relative to what all grades say: median."""
        ratios = []
        for outcome in self.outcomes:
            if not outcome.is_decided and outcome.queries_needed and self.t:
                ratios.append(outcome.queries_needed * (self.t / _POWERFUL) ** 2 / self.queries)
        if not ratios:
            return None
        return float(np.median(ratios))


@dataclass(frozen=True)
class JudgingCosts:
    """The curves of all collections, models, and shares of errors."""

    machine: str
    sessions: int
    is_equal: bool  # whether the models were made equally good
    curves: tuple[Curve, ...]


def model_of(name: str) -> Model:
    """Return the model of a name, such as ``minilm@64`` (dimensions) or ``minilm@int8``."""
    spec, _, option = name.partition("@")
    spec = _SHORT_NAMES.get(spec, spec)
    if option.isdigit():
        return Model(spec, dimensions=int(option))
    if option:
        return Model(spec, dtype=option)
    return Model(spec)


def rankings_of(name: str, collection: TestCollection) -> dict[str, list[str]]:
    """Return the first documents of each query by a model, of its candidates if it has any."""
    queries = list(collection.queries)
    documents = list(collection.documents)
    texts = list(collection.documents.values())
    depth = len(documents) if collection.candidates else DEPTH
    found = model_of(name).search(list(collection.queries.values()), texts, k=depth)
    rankings = {}
    for query, scores in zip(queries, found, strict=True):
        ranked = [documents[position] for position in scores]
        if collection.candidates:
            candidates = collection.candidates[query]
            candidate_names = set(candidates)
            ranked = [document for document in ranked if document in candidate_names]
            ranked_names = set(ranked)
            ranked += [document for document in candidates if document not in ranked_names]
        rankings[query] = ranked[:DEPTH]
    return rankings


def hidden_grades(pool: GradingPool, qrels: Mapping[str, Mapping[str, float]]) -> Array:
    """Return the grade of each pair (N,), a whole number; 0 without a judgement."""
    grades = [qrels.get(query, {}).get(document, 0) for query, document in pool.pairs]
    return np.rint(np.array(grades, dtype=float))


def student_t(pool: GradingPool, grades: Array, queries: Sequence[str]) -> float:
    """Return Student's t of the candidate's differences of DCG@10, over all queries."""
    return _t(_by_query(pool, pool.weights[0] * grades, queries))


def _by_query(pool: GradingPool, values: Array, queries: Sequence[str]) -> Array:
    """Return the sum of the values of pairs by query (Q,)."""
    position = {query: number for number, query in enumerate(queries)}
    rows = [position[query] for query in pool.queries]
    sums = np.bincount(rows, weights=values, minlength=len(queries))
    return np.asarray(sums, dtype=float)


def _t(differences: Array) -> float:
    """Return Student's t of differences; 0 if all are equal."""
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    if error == 0:
        return 0.0
    return float(differences.mean() / error)


def erring(grades: Array, *, highest: int, errors: float, seed: int) -> Array:
    """Return the grades by a judge who gives another grade, drawn uniformly, to a share of them."""
    draws = np.random.default_rng([seed, 1])
    is_wrong = draws.random(len(grades)) < errors
    steps = draws.integers(1, highest + 1, len(grades))
    return np.asarray(np.where(is_wrong, (grades + steps) % (highest + 1), grades))


def run_session(pool: GradingPool, grades: Array, *, highest: int, seed: int) -> GradingSession:
    """Grade until the session ends, and return it."""
    session = GradingSession(pool, seed=seed, highest_grade=highest)
    while True:
        pair = session.next_pair()
        if pair is None:
            return session
        session.grade(pair, int(grades[pair]))


def plain_way(differences: Array, counts: Array, *, seed: int) -> tuple[bool, int]:
    """Judge whole queries in random order, until the difference is 2.8 standard errors.

    Args:
        differences: by query (Q,).
        counts: documents to grade, by query (Q,).
        seed: of the order.

    Returns:
        Whether the candidate is taken, and the grades given.
    """
    order = np.random.default_rng([seed, 2]).permutation(len(differences))
    seen = np.arange(1, len(order) + 1)
    sums = np.cumsum(differences[order])
    squares = np.cumsum(differences[order] ** 2)
    means = sums / seen
    variances = np.maximum(squares / seen - means**2, 0.0) * seen / np.maximum(seen - 1, 1)
    is_clear = np.abs(means) > _PLAIN_LIMIT * np.sqrt(variances / seen)
    is_clear[: _PLAIN_LEAST - 1] = False
    is_clear[-1] = True
    last = int(np.argmax(is_clear))
    return bool(sums[last] > 0), int(counts[order][: last + 1].sum())


class Choice:
    """The choice between some models of a collection, the first of which is in use."""

    def __init__(
        self, collection: TestCollection, rankings: Mapping[str, Ranking], models: Sequence[str]
    ) -> None:
        self.collection = collection
        self.models = tuple(models)
        self.queries = list(collection.queries)
        self.rankings = {model: rankings[model] for model in models}
        self.pool, self.grades = self._pool(self.rankings)
        self.highest = max(1, int(self.grades.max()))
        self.t_of = self._all_t(self.pool, self.grades)

    @property
    def t(self) -> float:
        """Student's t of the candidate whose difference is the clearest."""
        return max((self.t_of[self.models[0], model] for model in self.models[1:]), key=abs)

    def _pool(self, rankings: Mapping[str, Ranking]) -> tuple[GradingPool, Array]:
        """Return what can be graded, and its hidden grades."""
        pool = grading_pool(rankings, current=self.models[0])
        return pool, hidden_grades(pool, self.collection.qrels)

    def _all_t(self, pool: GradingPool, grades: Array) -> dict[tuple[str, str], float]:
        """Return Student's t of the second model against the first, for each two models."""
        weights = dict(zip(pool.candidates, pool.weights, strict=True))
        weights[pool.current] = np.zeros(len(pool))
        t_of = {}
        for first in self.models:
            for second in self.models:
                values = (weights[second] - weights[first]) * grades
                t_of[first, second] = _t(_by_query(pool, values, self.queries))
        return t_of

    def _swapped(self, seed: int) -> dict[str, Ranking]:
        """Return the rankings with those of two models swapped on a random half of the queries."""
        first, second = self.models
        swaps = np.random.default_rng([seed, 3]).random(len(self.queries)) < 0.5
        swapped: dict[str, dict[str, Sequence[str]]] = {first: {}, second: {}}
        for query, is_swapped in zip(self.queries, swaps, strict=True):
            one, other = self.rankings[first][query], self.rankings[second][query]
            if is_swapped:
                one, other = other, one
            swapped[first][query], swapped[second][query] = one, other
        return dict(swapped)

    def outcome(self, *, errors: float, seed: int, is_equal: bool = False) -> Outcome:
        """Run a session, and the plain way on the same grades."""
        pool, grades, t_of = self.pool, self.grades, self.t_of
        if is_equal:
            pool, grades = self._pool(self._swapped(seed))
            t_of = self._all_t(pool, grades)
        given = erring(grades, highest=self.highest, errors=errors, seed=seed)
        session = run_session(pool, given, highest=HIGHEST_GRADE, seed=seed)
        standings = session.standings()
        better = [standing for standing in standings if not standing.is_beaten]
        best = max(better or standings, key=lambda standing: standing.estimate)
        taken = pool.current
        if best.estimate > 0:
            taken = best.candidate
        plain_is_wrong, plain_graded = False, 0
        if len(standings) == 1:
            differences = _by_query(pool, pool.weights[0] * given, self.queries)
            counts = _by_query(pool, np.ones(len(pool)), self.queries)
            takes_candidate, plain_graded = plain_way(differences, counts, seed=seed)
            t = t_of[self.models[0], self.models[1]]
            plain_is_wrong = abs(t) >= _CLEAR and takes_candidate != (t > 0)
        return Outcome(
            taken=taken,
            is_decided=any(standing.is_better or standing.is_worse for standing in standings),
            graded=len(session.grades),
            pool=len(pool),
            queries_needed=best.queries_needed,
            is_wrong=any(t_of[taken, model] >= _CLEAR for model in self.models),
            plain_graded=plain_graded,
            plain_is_wrong=plain_is_wrong,
        )

    def key(self, errors: float, *, is_equal: bool) -> str:
        """Return a digest of all that the outcomes of sessions depend on."""
        digest = hashlib.sha256()
        for file in sorted(Path(judging.__file__).parent.glob("*.py")):
            digest.update(file.read_bytes())
        digest.update(json.dumps([self.models, self.rankings, errors, is_equal]).encode())
        digest.update(self.grades.tobytes())
        return digest.hexdigest()


class Store:
    """The outcomes of sessions in a file of JSON lines, by key and seed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._outcomes: dict[tuple[str, int], Outcome] = {}
        if file.is_file():
            for key, seed, outcome in self._lines():
                self._outcomes[key, seed] = Outcome(**outcome)

    def _lines(self) -> Iterator[list[Any]]:
        for line in self.file.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # the last line of an interrupted run
                continue

    def get(self, key: str, seed: int) -> Outcome | None:
        """Return a stored outcome; None if there is none."""
        return self._outcomes.get((key, seed))

    def add(self, key: str, seed: int, outcome: Outcome) -> None:
        """Append an outcome to the file."""
        self._outcomes[key, seed] = outcome
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps([key, seed, asdict(outcome)]) + "\n")


def curve(
    choice: Choice, store: Store, *, errors: float, runs: int, is_equal: bool = False
) -> Curve:
    """Run many sessions of a choice, but those that are stored."""
    key = choice.key(errors, is_equal=is_equal)
    outcomes = []
    title = f"{choice.collection.name}: {' or '.join(choice.models)}, {errors:.0%} errors"
    for seed in tqdm(range(runs), desc=title, leave=False):
        outcome = store.get(key, seed)
        if outcome is None:
            outcome = choice.outcome(errors=errors, seed=seed, is_equal=is_equal)
            store.add(key, seed, outcome)
        outcomes.append(outcome)
    return Curve(
        data=choice.collection.name,
        models=choice.models,
        t=choice.t,
        queries=len(choice.queries),
        errors=errors,
        outcomes=tuple(outcomes),
    )


def bench(
    *,
    data: tuple[str, ...] = ("PyDocsSampleRetrieval",),
    models: tuple[str, ...] = ("bm25", "wordllama", "minilm", "random"),
    pairs: tuple[str, ...] = ("",),
    errors: tuple[float, ...] = (0.0, 0.1),
    runs: int = 100,
    equal: bool = False,
    together: bool = False,
    store: str = "results/judging.jsonl",
) -> JudgingCosts:
    """Measure how many grades a choice needs, by simulated sessions with hidden judgements."""
    choices = [pair.split(",") for pair in pairs if pair]
    if together:
        choices = [list(models)]
    elif not choices:
        choices = [list(pair) for pair in combinations(models, 2)]
    names = list(dict.fromkeys(name for choice in choices for name in choice))
    sessions = Store(Path(store))
    curves = []
    for spec in data:
        for collection in find_collections(spec):
            rankings = {name: rankings_of(name, collection) for name in names}
            for choice_models in choices:
                choice = Choice(collection, rankings, choice_models)
                for share in errors:
                    row = curve(choice, sessions, errors=share, runs=runs, is_equal=equal)
                    curves.append(row)
    return JudgingCosts(machine(), runs, equal, tuple(curves))


def shown(costs: JudgingCosts) -> str:
    """Return the curves as a table, the clearest differences first."""
    rows = []
    for row in sorted(costs.curves, key=lambda row: (row.errors, -abs(row.t))):
        low, median, high = np.quantile(row.shares, [0.1, 0.5, 0.9])
        can_be_wrong = row.can_be_wrong and not costs.is_equal
        is_pair = len(row.models) == 2
        plain_wrong = float(np.mean([outcome.plain_is_wrong for outcome in row.outcomes]))
        rows.append(
            {
                "data": row.data,
                "models": " or ".join(row.models),
                "errors": row.errors,
                "t": 0.0 if costs.is_equal else abs(row.t),
                "pool": row.outcomes[0].pool,
                "median": median,
                "range": f"{low:.1%} to {high:.1%}",
                "wrong": row.wrong if can_be_wrong else None,
                "decided": row.decided,
                "needed": None if costs.is_equal else row.needed_ratio,
                "plain": float(np.median(row.plain_shares)) if is_pair else None,
                "plain_wrong": plain_wrong if can_be_wrong and is_pair else None,
            }
        )
    return table(
        f"{costs.machine}; {costs.sessions} sessions each",
        rows=rows,
        shown="data: {data} | models: {models} | errors: {errors:.0%} | t: {t:.1f} | "
        "pool: {pool:,} | graded: {median:.1%} | 10 to 90 %: {range} | wrong: {wrong:.3f} | "
        "decided: {decided:.1%} | queries needed, of true: {needed:.2f} | plain: {plain:.1%} | "
        "plain wrong: {plain_wrong:.3f}",
    )


if __name__ == "__main__":
    command(bench, shown)
