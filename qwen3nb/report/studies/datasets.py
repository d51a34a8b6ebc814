"""Tables of the data sets: tiers, PyDocs, sentence pairs."""

from __future__ import annotations

from collections.abc import Mapping

from qwen3nb.datasets.mirror import data_revision
from qwen3nb.datasets.pydocs.build import OWN, PyDocs
from qwen3nb.datasets.pydocs.mteb_tasks import author_sts
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import number
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS

__all__ = [
    "difficulty_table",
    "examples_table",
    "pairs_table",
    "prediction_table",
    "pydocs_table",
    "tier_table",
]


def tier_table(tier: str) -> Table:
    """The tasks of a tier, with descriptions and the revisions of the data in use.

    Raises:
        ValueError: an unknown tier.
    """
    from qwen3nb.evaluation.mteb.select import tier_tasks

    rows = [
        (
            Cell(task.metadata.name),
            Cell(task.metadata.type),
            Cell(task.metadata.description),
            Cell(data_revision(task)[:12]),
        )
        for task in tier_tasks(tier)
    ]
    columns = ("task", "type", "description", "data")
    return Table(columns, tuple(rows), TIERS[tier].about, kind="words")


def pydocs_table(sets: Mapping[str, PyDocs]) -> Table:
    """Sizes and identity of PyDocs and its sample."""
    rows = []
    for name, pydocs in sets.items():
        judged = sum(len(grades) for grades in pydocs.qrels.values())
        rows.append(
            (
                Cell(name),
                Cell(f"{len(pydocs.entries):,}"),
                Cell(f"{len(pydocs.query_names):,}"),
                Cell(f"{judged:,}"),
                Cell(pydocs.identity[:12]),
            )
        )
    versions = ", ".join(f"{name} {v}" for name, v in next(iter(sets.values())).versions.items())
    columns = ("set", "documents", "queries", "judgements", "identity")
    return Table(columns, tuple(rows), f"Built from {versions}.")


def difficulty_table(scores: Mapping[str, Aggregate]) -> Table:
    """Scores of models on all of PyDocs, with only a query's own document relevant.

    Args:
        scores: per model, from `pydocs_difficulty`.
    """
    rows = tuple(
        (Cell(model), number(score), Cell(f"{score.n} queries")) for model, score in scores.items()
    )
    return Table(
        ("model", "whole, own document\nnDCG@10", "n"),
        rows,
        "Not comparable with scores on the sample, which has fewer documents and graded "
        "judgements.",
    )


def prediction_table(tier: str = "fast") -> Table:
    """Rank correlation of a tier with other tasks over models, from published scores."""
    from qwen3nb.evaluation.studies.tier_validity import predict_elsewhere

    predictions = predict_elsewhere(tier)
    rows = [
        (
            Cell(each.predictor, f"{len(each.tasks)} tasks" if len(each.tasks) > 1 else ""),
            number(each.correlation, strong=each is predictions[0]),
            Cell(str(each.correlation.n)),
        )
        for each in predictions
    ]
    return Table(
        ("predictor", "rank correlation", "models"),
        tuple(rows),
        f"Spearman over models with the {predictions[0].target} "
        f"({', '.join(predictions[0].targets)}); "
        "95 % interval (Fisher's z) over models. Scores: embeddings-benchmark/results at f4cc6c8.",
    )


def examples_table(pydocs: PyDocs, *, count: int = 5) -> Table:
    """Evenly spaced queries with the start of their own documents."""
    step = max(1, len(pydocs.query_names) // count)
    rows = []
    for name in pydocs.query_names[::step][:count]:
        related = sum(grade < OWN for grade in pydocs.qrels[name].values())
        text = pydocs.corpus[name]
        rows.append(
            (
                Cell(pydocs.queries[name]),
                Cell(f"{text[:160]}…" if len(text) > 160 else text, name),
                Cell(str(related)),
            )
        )
    return Table(("query", "document", "related"), tuple(rows), kind="words")


def pairs_table() -> Table:
    """The first author-written pair of each grade."""
    first: dict[float, tuple[str, str]] = {}
    for one, other, gold in author_sts():
        first.setdefault(gold, (one, other))
    rows = tuple(
        (Cell(f"{gold:.0f}"), Cell(one), Cell(other))
        for gold, (one, other) in sorted(first.items(), reverse=True)
    )
    return Table(("gold", "one", "other"), rows, kind="words")
