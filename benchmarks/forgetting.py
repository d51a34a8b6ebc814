"""Whether a map of forgetting finds a topic that was dropped, and names groups of no training.

A toy, the weighted mean of a vector per word, is trained to find the body of a docstring by its
summary, on one half of the queries of PyDocsRetrieval. The other half is searched.

    dropped   trained on while the pairs of one topic are pushed apart, so that it unlearns that
              topic; found if a forgotten group has its queries more often than others have
    seeds     two trainings that differ in their seed alone
    flips     the differences of these, with the sign of each module's drawn at random

The topics to drop are several words of the queries each. The map has groups of single words, and
topics of its own.

    python -m benchmarks.forgetting --pairs 200
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F
from tqdm import tqdm

from benchmarks.options import command
from qwen3nb.analysis.comparison.forgotten_groups import Verdict, compare_groups
from qwen3nb.analysis.comparison.group_changes import QueryGroup, unlike_the_rest
from qwen3nb.analysis.comparison.query_groups import length_groups, topics_and_words
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, join
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.metrics.intervals import Array

DROPPED = {
    "arrays": r"\barrays?\b",
    "files": r"\bfiles?\b|\bdirector",
    "matrices": r"\bmatri",
    "distributions": r"distribution",
    "strings": r"\bstrings?\b|\btext\b",
    "encodings": r"encod|decod",
    "classes": r"\bclass",
    "time": r"\btime|\bdate",
}
_WIDTH = 96
_BATCH = 128
_STEPS = 100
_STEPS_OF_DROP = 100
_TEMPERATURE = 0.1
_DRAWS = 2000
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Texts:
    """Queries and documents as rows of numbers of words."""

    collection: TestCollection
    queries: Sequence[str]  # ids
    train: NDArray[np.intp]  # positions of the queries to train on
    test: NDArray[np.intp]
    words: Mapping[str, int] = field(repr=False)
    weights: torch.Tensor = field(repr=False)  # of each word, its inverse document frequency

    @property
    def texts(self) -> list[str]:
        """The queries that are searched."""
        return self.query_texts(self.test)

    def query_texts(self, rows: Iterable[int]) -> list[str]:
        """Return the queries at some positions."""
        return [self.collection.queries[self.queries[row]] for row in rows]

    def bodies(self, rows: Iterable[int]) -> list[str]:
        """Return the first relevant document of the queries at some positions."""
        texts = []
        for row in rows:
            (relevant, *_) = self.collection.qrels[self.queries[row]]
            texts.append(self.collection.documents[relevant])
        return texts

    def is_of(self, pattern: str, row: int) -> bool:
        """Whether a query has a pattern; no query has an empty one."""
        (text,) = self.query_texts([row])
        return bool(pattern) and re.search(pattern, text, re.IGNORECASE) is not None


def read_texts() -> Texts:
    """Return the queries of PyDocsRetrieval in two halves."""
    (task,) = choose_tasks(tasks=["PyDocsRetrieval"])
    (collection,) = find_collections(task)
    texts = [*collection.queries.values(), *collection.documents.values()]
    frequencies = Counter(word for text in texts for word in set(_WORD.findall(text.lower())))
    words = {word: number for number, word in enumerate(sorted(frequencies))}
    counts = torch.tensor([frequencies[word] for word in words], dtype=torch.float32)
    weights = torch.log(len(texts) / counts)
    queries = sorted(collection.queries)
    order = np.random.default_rng(0).permutation(len(queries))
    half = len(queries) // 2
    return Texts(collection, queries, order[:half], np.sort(order[half:]), words, weights)


class Toy:
    """The mean of a vector per word, weighted by how rare the word is."""

    def __init__(self, texts: Texts, seed: int) -> None:
        torch.manual_seed(seed)
        self.texts = texts
        self.seed = seed
        self.layer = torch.nn.EmbeddingBag(len(texts.words), _WIDTH, mode="sum")

    def vectors(self, texts: Sequence[str]) -> torch.Tensor:
        """Return unit vectors (N, D)."""
        numbers: list[int] = []
        starts = []
        for text in texts:
            starts.append(len(numbers))
            numbers += [self.texts.words[word] for word in _WORD.findall(text.lower())]
        rows = torch.tensor(numbers)
        sums = self.layer(rows, torch.tensor(starts), per_sample_weights=self.texts.weights[rows])
        return F.normalize(sums, dim=1)

    def train(self, *, steps: int, dropped: str = "") -> None:
        """Train on pairs; those of a ``dropped`` pattern are pushed apart."""
        data = self.texts
        generator = np.random.default_rng(self.seed)
        optimizer = torch.optim.Adam(self.layer.parameters(), lr=0.02)
        of_topic = np.array([data.is_of(dropped, row) for row in data.train])
        for _ in range(steps):
            rows = generator.choice(data.train[~of_topic], _BATCH)
            cosines = self.vectors(data.query_texts(rows)) @ self.vectors(data.bodies(rows)).T
            loss = F.cross_entropy(cosines / _TEMPERATURE, torch.arange(_BATCH))
            if dropped:
                rows = data.train[of_topic]
                own = self.vectors(data.query_texts(rows)) * self.vectors(data.bodies(rows))
                loss = loss + own.sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def scores(self) -> dict[str, float]:
        """Return nDCG@10 of each query that is searched, of its first relevant document."""
        data = self.texts
        documents = list(data.collection.documents)
        cosines = (
            self.vectors(data.texts) @ self.vectors(list(data.collection.documents.values())).T
        )
        scores = {}
        for row, position in enumerate(data.test):
            query = data.queries[position]
            (relevant, *_) = data.collection.qrels[query]
            own = cosines[row, documents.index(relevant)]
            rank = int((cosines[row] > own).sum())
            scores[query] = 1 / np.log2(rank + 2) if rank < 10 else 0.0
        return scores


@dataclass(frozen=True)
class Drop:
    """A topic that a training dropped."""

    topic: str
    queries: int  # of the half that is searched
    change: float  # of their nDCG@10
    rest: float  # of that of the others
    named: str  # the forgotten groups
    share: float  # of the queries in the first of them that are of the topic
    alone: float  # p-value of the topic itself, as if it were the only group
    false: int  # named groups that have less than a tenth of its queries more than others


@dataclass(frozen=True)
class Map:
    """What was dropped and found, and how often a group of no training is named."""

    dropped: list[Drop]
    pairs: int
    seeds: int  # pairs of seeds in which a group is named
    flips: int  # the same with signs drawn at random


def bench(*, pairs: int = 200) -> Map:
    """Measure whether dropped topics are found, and how often a group is named by chance."""
    torch.set_num_threads(1)
    texts = read_texts()
    groups = topics_and_words(texts.texts) + length_groups(texts.texts)
    return Map(_drops(texts, groups), pairs, *_nulls(texts, groups, pairs))


def _drops(texts: Texts, groups: Sequence[QueryGroup]) -> list[Drop]:
    """Drop each topic from one training."""
    rows = []
    for topic, pattern in tqdm(DROPPED.items(), desc="dropped topics", unit="topic"):
        toy = Toy(texts, seed=0)
        toy.train(steps=_STEPS)
        before = toy.scores()
        toy.train(steps=_STEPS_OF_DROP, dropped=pattern)
        matrix = _matrix(texts, {"before": before, "after": toy.scores()})
        has_topic = np.array([texts.is_of(pattern, row) for row in texts.test])
        change = matrix.column("after") - matrix.column("before")
        _, changes = compare_groups(
            matrix, groups, before="before", after="after", n_resamples=_DRAWS
        )
        forgotten = [group for group in changes if group.verdict == Verdict.FORGOTTEN]
        shares = [has_topic[list(group.group.members)].mean() for group in forgotten]
        usual = float(has_topic.mean())
        row = Drop(
            topic,
            int(has_topic.sum()),
            change=float(change[has_topic].mean()),
            rest=float(change[~has_topic].mean()),
            named="; ".join(group.label for group in forgotten),
            share=float(shares[0]) if shares else 0.0,
            alone=_p_value_alone(change, has_topic, matrix.clusters),
            false=sum(share <= usual for share in shares),
        )
        rows.append(row)
    return rows


def _p_value_alone(change: Array, has_topic: NDArray[np.bool_], clusters: Sequence[str]) -> float:
    """Return the p-value of the dropped topic's own queries: what no map can surpass."""
    topic = QueryGroup("topic", "dropped", tuple(np.flatnonzero(has_topic).tolist()))
    (test,) = unlike_the_rest(change, [topic], clusters=clusters, n_resamples=_DRAWS)
    return 1.0 if test.p_value is None else test.p_value


def _nulls(texts: Texts, groups: Sequence[QueryGroup], pairs: int) -> tuple[int, int]:
    """Return in how many pairs of seeds a group is named; the same with signs at random."""
    needed = 2
    while needed * (needed - 1) // 2 < pairs:
        needed += 1
    scores = []
    for seed in tqdm(range(needed), desc="trainings", unit="seed"):
        toy = Toy(texts, seed)
        toy.train(steps=_STEPS)
        scores.append(toy.scores())
    of_seeds = 0
    of_flips = 0
    all_pairs = list(islice(combinations(range(needed), 2), pairs))
    for number, (first, second) in enumerate(tqdm(all_pairs, desc="pairs", unit="pair")):
        matrix = _matrix(texts, {"before": scores[first], "after": scores[second]})
        of_seeds += _names_any(matrix, groups)
        of_flips += _names_any(_flipped(matrix, seed=number), groups)
    return of_seeds, of_flips


def _matrix(texts: Texts, columns: Mapping[str, Mapping[str, float]]) -> ScoreMatrix:
    clusters = texts.collection.clusters
    return join(columns, task="PyDocs", metric="nDCG@10", clusters=clusters)


def _names_any(matrix: ScoreMatrix, groups: Sequence[QueryGroup]) -> bool:
    _, changes = compare_groups(matrix, groups, before="before", after="after", n_resamples=_DRAWS)
    return any(change.test.is_named for change in changes)


def _flipped(matrix: ScoreMatrix, *, seed: int) -> ScoreMatrix:
    """Return scores in which both models are exchanged on random clusters of queries."""
    generator = np.random.default_rng(seed)
    names = matrix.clusters or matrix.queries
    is_exchanged = {name: generator.random() < 0.5 for name in sorted(set(names))}
    first, second = matrix.scores_of(["before", "after"])
    exchanged = np.array([is_exchanged[name] for name in names])
    columns = {
        "before": dict(zip(matrix.queries, np.where(exchanged, second, first), strict=True)),
        "after": dict(zip(matrix.queries, np.where(exchanged, first, second), strict=True)),
    }
    clusters = dict(zip(matrix.queries, names, strict=True))
    return join(columns, task="PyDocs", metric="nDCG@10", clusters=clusters)


def shown(found: Map) -> str:
    """Return a line per topic, and one per kind of comparison."""
    lines = ["topic          queries  change    rest  p alone  of the topic  forgotten groups"]
    for drop in found.dropped:
        lines.append(
            f"{drop.topic:13}  {drop.queries:7d}  {drop.change:+.3f}  {drop.rest:+.3f}  "
            f"{drop.alone:7.4f}  {drop.share:12.2f}  {drop.named or 'none'}"
        )
    lines.append(f"a group is named in {found.seeds} of {found.pairs} pairs of seeds")
    lines.append(f"a group is named in {found.flips} of {found.pairs} pairs with random signs")
    return "\n".join(lines)


if __name__ == "__main__":
    command(bench, shown)
