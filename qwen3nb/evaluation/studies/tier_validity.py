"""How hard PyDocs is, and how well a small tier predicts other tasks, from published scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.pydocs.build import PyDocs
from qwen3nb.evaluation.retrieval.first_stage import search_collection
from qwen3nb.metrics.aggregate import Aggregate, aggregate, means
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.load import load_model
from qwen3nb.tiers import TIERS


def pydocs_difficulty(
    pydocs: PyDocs, specs: Sequence[str] = ("bm25", "random")
) -> dict[str, Aggregate]:
    """Return `own_document_ndcg` of each model, by spec."""
    return {
        spec: own_document_ndcg(load_model(spec, show_progress=False), pydocs) for spec in specs
    }


def own_document_ndcg(model: Any, pydocs: PyDocs, *, queries: int = 500) -> Aggregate:
    """Mean nDCG@10, with its interval, of a loaded model on the whole corpus.

    The queries are a fixed draw; only a query's own document is relevant.
    """
    drawn = np.random.default_rng(0).choice(pydocs.query_names, size=queries, replace=False)
    texts = {str(query): pydocs.queries[query] for query in sorted(drawn)}
    qrels = {query: {query: 1} for query in texts}
    collection = TestCollection("PyDocs", dict(pydocs.corpus), texts, qrels)
    run = search_collection(collection, model, depth=10)
    return means(score_run(qrels, run, ["nDCG@10"]))["nDCG@10"]


@dataclass(frozen=True)
class Prediction:
    """Rank correlation, over models, of a tier's mean score with the mean of other tasks.

    Attributes:
        predictor: a tier, or one of its tasks; its tasks with published scores.
        target: description of the tasks to predict, and their names.
        correlation: Spearman correlation, with an interval over models.
    """

    predictor: str
    tasks: tuple[str, ...]
    target: str
    targets: tuple[str, ...]
    correlation: Aggregate


def published_table() -> dict[str, dict[str, float]]:
    """Published score by model and task; the file gives the sources."""
    file = Path(__file__).parent / "published_models.tsv"
    lines = [x for x in file.read_text(encoding="utf-8").splitlines() if not x.startswith("#")]
    head, *rows = (line.split("\t") for line in lines)
    return {row[0]: dict(zip(head[1:], map(float, row[1:]), strict=True)) for row in rows}


def predict_elsewhere(tier: str = "fast") -> list[Prediction]:
    """Correlate a tier, and each of its tasks alone, with the mean of all other tasks.

    The tier's own tasks are not among the tasks to predict, so nothing is correlated with
    itself.
    """
    table = published_table()
    known = list(next(iter(table.values())))
    own = tuple(task for task in TIERS[tier].task_keys if task in known)
    others = tuple(task for task in known if task not in own)
    target = {m: sum(s[t] for t in others) / len(others) for m, s in table.items()}
    predictions = []
    for name, tasks in ((tier, own), *((task, (task,)) for task in own)):
        mean = {m: sum(s[t] for t in tasks) / len(tasks) for m, s in table.items()}
        columns = {"predictor": mean, "target": target}
        correlation = aggregate(columns, how="spearman", columns=("predictor", "target"))
        words = f"mean of {len(others)} other tasks"
        predictions.append(Prediction(name, tasks, words, others, correlation))
    return predictions
