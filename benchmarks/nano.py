"""How well small sets order models as the large ones do.

NanoBEIR: the models with published scores on all of NanoBEIR and of BEIR.

    python -m benchmarks.nano --published FOLDER

The rule of the tier `nano`: models of this machine, on collections and tasks of this machine. Small
sets are drawn with many seeds. As these collections are smaller than the rule's 5,000 documents,
the limit is a share of their documents. Two models are told apart if a paired t test of their
scores per query has p below 0.05, without a correction for several pairs.

    python -m benchmarks.nano --data DIR/cranfield PyDocsRetrieval --models bm25 all-MiniLM-L6-v2
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm, rankdata, spearmanr, ttest_rel
from tqdm import tqdm

from benchmarks.options import command
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.nano import HARD_NEGATIVES, NANO_SIZES, Sizes, drawn_queries, small_set
from qwen3nb.evaluation.retrieval.first_stage import search_collection
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.load import load_model
from qwen3nb.models.search.dense import as_searcher

METRIC = "nDCG@10"
_TOP = 10
_ALPHA = 0.05
_SHARES = (1.0, 0.5, 0.25)  # of the documents
_EDGES = (0.0, 0.01, 0.02, 0.05, 1.0)  # of differences of means on BEIR

Ranking = Mapping[str, Mapping[str, float]]
Scores = Mapping[str, np.ndarray]  # by model, per query


@dataclass(frozen=True)
class Agreement:
    """How small sets order models, against the large ones."""

    data: str
    limit: int  # of documents; 0 for published scores
    seeds: int
    models: int
    queries: float  # mean over seeds
    documents: float
    spearman: float  # of the models' means, mean over seeds
    lowest: float  # over seeds, or the lower end of the interval
    highest: float
    pairs: int  # that the large set tells apart
    alike: float  # share of these with the same order of means
    told: float  # share of these that the small set tells apart, too
    wrong: float  # share of these that it tells apart the other way round
    bm25: float  # by how much its mean rises on the small set, less that of the other models


def spearman_interval(value: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of Spearman's rho of Bonett and Wright (2000).

    Args:
        value: rho.
        count: of models, which are taken to be independent.
    """
    deviation = math.sqrt((1 + value**2 / 2) / (count - 3))
    half_width = float(norm.ppf(0.975)) * deviation
    return math.tanh(math.atanh(value) - half_width), math.tanh(math.atanh(value) + half_width)


def of_published(folder: Path) -> list[Agreement]:
    """Compare the means of NanoBEIR and BEIR over the models that have both.

    Scores of queries are not published, so that pairs are told apart by their difference on BEIR:
    a row for each range.
    """
    benchmarks = json.loads((folder / "benchmarks.json").read_text())
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    text = gzip.decompress((folder / "scores.tsv.gz").read_bytes()).decode()
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        scores[row["model"]][row["task"]] = float(row["score"])
    needed = {*benchmarks["BEIR"], *benchmarks["NanoBEIR"]}
    models = sorted(model for model, by_task in scores.items() if needed <= by_task.keys())
    large = [np.mean([scores[model][task] for task in benchmarks["BEIR"]]) for model in models]
    small = [np.mean([scores[model][task] for task in benchmarks["NanoBEIR"]]) for model in models]
    rho = float(spearmanr(large, small).statistic)
    low, high = spearman_interval(rho, len(models))
    rows = []
    for least, most in [(0.0, 1.0), *itertools.pairwise(_EDGES)]:
        is_alike = []
        for one, other in itertools.combinations(range(len(models)), 2):
            difference = large[one] - large[other]
            if least <= abs(difference) < most:
                is_alike.append(difference * (small[one] - small[other]) > 0)
        rows.append(
            Agreement(
                data=f"NanoBEIR, BEIR {least:g} to {most:g} apart",
                limit=0,
                seeds=1,
                models=len(models),
                queries=math.nan,
                documents=math.nan,
                spearman=rho,
                lowest=low,
                highest=high,
                pairs=len(is_alike),
                alike=float(np.mean(is_alike)),
                told=math.nan,
                wrong=math.nan,
                bm25=math.nan,
            )
        )
    return rows


class Field:
    """The models on one large collection."""

    def __init__(self, collection: TestCollection, models: Sequence[str]) -> None:
        self.collection = collection
        self.names = list(models)
        self.documents = list(collection.documents)
        self.rows = {query: row for row, query in enumerate(collection.queries)}
        self.bm25 = search_collection(collection, "bm25", depth=HARD_NEGATIVES)
        self.similarities = {}  # (Q, D), by model
        for name in tqdm(self.names, desc=collection.name, unit="model"):
            if name != "bm25":
                self.similarities[name] = self._similarities(name)
        self.large = self.scores(collection)

    def _similarities(self, name: str) -> np.ndarray:
        searcher: Any = as_searcher(load_model(name, show_progress=False))
        queries = list(self.collection.queries.values())
        documents = list(self.collection.documents.values())
        hits = searcher.best_documents(queries, documents, k=len(documents))
        similarities = np.full((len(queries), len(documents)), -np.inf, dtype=np.float32)
        np.put_along_axis(similarities, hits.ids, hits.scores, axis=1)
        return similarities

    def scores(self, part: TestCollection) -> dict[str, np.ndarray]:
        """Return the scores of the queries of a part, by model, in the order of the queries."""
        scores = {}
        for name in self.names:
            if name == "bm25":  # how rare a word is depends on the documents
                run: Ranking = search_collection(part, "bm25", depth=_TOP)
            else:
                run = self._run(name, part)
            by_query = score_run(part.qrels, run, [METRIC], zeros=True)[METRIC]
            scores[name] = np.array([by_query[query] for query in part.queries])
        return scores

    def _run(self, name: str, part: TestCollection) -> Ranking:
        columns = [place for place, id_ in enumerate(self.documents) if id_ in part.documents]
        run = {}
        for query in part.queries:
            row = self.similarities[name][self.rows[query], columns]
            best = np.argsort(-row, kind="stable")[: _TOP + 1]
            removed = part.removed(query)
            found = {self.documents[columns[place]]: float(row[place]) for place in best}
            run[query] = {id_: score for id_, score in found.items() if id_ not in removed}
        return run

    def part(self, seed: int, sizes: Sizes) -> TestCollection:
        """Return the small set of a seed."""
        queries = drawn_queries(self.collection, seed=seed, sizes=sizes)
        rankings = {query: self.bm25.listed(query) for query in queries}
        chosen = small_set(self.collection, queries, rankings, seed=seed, sizes=sizes)
        return self.collection.part(chosen)


def differences(scores: Scores) -> dict[tuple[str, str], tuple[float, bool]]:
    """Return, for each pair of models, the difference of means, and whether it is shown."""
    found = {}
    for one, other in itertools.combinations(scores, 2):
        difference = scores[one] - scores[other]
        is_shown = False
        if np.ptp(difference) > 0:
            is_shown = bool(ttest_rel(scores[one], scores[other]).pvalue < _ALPHA)
        found[one, other] = (float(difference.mean()), is_shown)
    return found


def agreement(field: Field, seeds: int, share: float) -> Agreement:
    """Return how the small sets of many seeds order the models of a field."""
    limit = min(NANO_SIZES.documents, round(share * len(field.documents)))
    sizes = replace(NANO_SIZES, documents=limit)
    of_large = differences(field.large)
    shown_pairs = {pair: mean for pair, (mean, is_shown) in of_large.items() if is_shown}
    means_of_large = [scores.mean() for scores in field.large.values()]
    correlations, alike, told, wrong, rises, queries, documents = [], [], [], [], [], [], []
    for seed in tqdm(range(seeds), desc=f"{field.collection.name}, {limit}", unit="seed"):
        part = field.part(seed, sizes)
        scores = field.scores(part)
        of_small = differences(scores)
        for pair, mean in shown_pairs.items():
            difference, is_shown = of_small[pair]
            has_same_order = difference * mean > 0
            alike.append(has_same_order)
            told.append(is_shown and has_same_order)
            wrong.append(is_shown and not has_same_order)
        means = [values.mean() for values in scores.values()]
        correlations.append(np.corrcoef(rankdata(means), rankdata(means_of_large))[0, 1])
        rises.append(_rise_of_bm25(field, part, scores))
        queries.append(len(part.queries))
        documents.append(len(part.documents))
    return Agreement(
        data=field.collection.name,
        limit=limit,
        seeds=seeds,
        models=len(field.names),
        queries=float(np.mean(queries)),
        documents=float(np.mean(documents)),
        spearman=float(np.mean(correlations)),
        lowest=float(np.min(correlations)),
        highest=float(np.max(correlations)),
        pairs=len(shown_pairs),
        alike=float(np.mean(alike)),
        told=float(np.mean(told)),
        wrong=float(np.mean(wrong)),
        bm25=float(np.mean(rises)),
    )


def _rise_of_bm25(field: Field, part: TestCollection, scores: Scores) -> float:
    """Return how much more BM25 gains by the smaller corpus than the others, on the same queries.

    Hard negatives are documents that BM25 ranks high, so that it may gain less.
    """
    if "bm25" not in scores:
        return math.nan
    rows = [field.rows[query] for query in part.queries]
    gains = {}
    for name, values in scores.items():
        gains[name] = float((values - field.large[name][rows]).mean())
    others = [gain for name, gain in gains.items() if name != "bm25"]
    return gains["bm25"] - float(np.mean(others))


def nano(
    published: str = "",
    data: tuple[str, ...] = ("PyDocsSampleRetrieval",),
    models: tuple[str, ...] = ("bm25", "all-MiniLM-L6-v2", "wordllama", "random"),
    seeds: int = 50,
) -> list[Agreement]:
    """Compare the order of models on small and on large sets; see the top of the file."""
    if published:
        return of_published(Path(published))
    rows = []
    for source in data:
        for collection in find_collections(source):
            field = Field(collection, models)
            rows += [agreement(field, seeds, share) for share in _SHARES]
    return rows


def shown(rows: list[Agreement]) -> str:
    """Return the table."""
    lines = [
        "| data | queries × documents | Spearman | pairs | same order | told apart | wrongly "
        "| BM25 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        size = "" if not row.limit else f"{row.queries:.0f} × {row.documents:.0f}"
        told, wrong, bm25 = "", "", ""
        if row.limit:
            told, wrong, bm25 = f"{row.told:.1%}", f"{row.wrong:.1%}", f"{row.bm25:+.3f}"
        lines.append(
            f"| {row.data} | {size} | {row.spearman:.3f} ({row.lowest:.3f} to {row.highest:.3f}) | "
            f"{row.pairs} | {row.alike:.1%} | {told} | {wrong} | {bm25} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    command(nano, shown)
