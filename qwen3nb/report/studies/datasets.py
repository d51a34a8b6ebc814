"""The data sets: tables of tiers, PyDocs and sentence pairs, and what they can tell."""

from __future__ import annotations

from collections.abc import Mapping

from qwen3nb.datasets.mirror import data_revision
from qwen3nb.datasets.pydocs.build import OWN, PyDocs
from qwen3nb.datasets.pydocs.mteb_tasks import author_sts
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.format import number
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS
from qwen3nb.utils.format import interval_text, number_text

__all__ = [
    "data_conclusion",
    "difficulty_table",
    "examples_table",
    "pairs_table",
    "prediction_table",
    "pydocs_table",
    "tier_table",
]

_FULL = 0.9  # a score above it leaves little to gain


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
    return Table(
        columns,
        tuple(rows),
        TIERS[tier].about,
        kind="words",
        name="tier",
        caption=f"The {len(rows)} tasks of the tier {tier}, with the revision of their data.",
    )


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
    return Table(
        columns,
        tuple(rows),
        f"Built from {versions}.",
        name="pydocs",
        caption="Size and identity of PyDocs as built from the libraries of this machine.",
    )


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
        name="difficulty",
        caption="How hard PyDocs is: nDCG@10 on the whole corpus, 95 % intervals over queries.",
    )


def data_conclusion(scores: Mapping[str, Aggregate]) -> Conclusion:
    """Say whether PyDocs separates models, and leaves room above the best of them.

    Args:
        scores: per model, from `pydocs_difficulty`.
    """
    ranked = sorted(
        ((value.value, name, value) for name, value in scores.items() if value.value is not None),
        key=lambda each: (-each[0], each[1]),
    )
    if not ranked:
        return Conclusion("No model was measured on PyDocs, so its difficulty is unknown.")
    best, worst = ranked[0], ranked[-1]
    first = _scored(*best[1:])
    if best is worst:
        return Conclusion(
            f"On PyDocs, {first}; one model cannot show whether PyDocs tells models apart."
        )
    both = f"{first} and {_scored(*worst[1:])}, each over {best[2].n} queries"
    if (best[2].low or 0.0) <= (worst[2].high or 1.0):
        return Conclusion(
            f"Whether PyDocs tells these models apart is not shown: {both}; the intervals overlap."
        )
    room = "leaves room above" if (best[2].high or 1.0) < _FULL else "leaves little room above"
    return Conclusion(f"PyDocs tells good models from bad ones, and {room}: {both}.")


def _scored(name: str, value: Aggregate) -> str:
    ends = None if value.low is None or value.high is None else (value.low, value.high)
    return f"{name} scores {number_text(value.value)} {interval_text(ends, sign=False)} nDCG@10"


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
        name="prediction",
        caption=f"Rank correlation over models of the tier {tier}, and of its parts, with other "
        "tasks.",
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
    return Table(
        ("query", "document", "related"),
        tuple(rows),
        kind="words",
        name="examples",
        caption="Some queries of PyDocs, the start of the document to find, and the number of "
        "other documents judged related.",
    )


def pairs_table() -> Table:
    """The first author-written pair of each grade."""
    first: dict[float, tuple[str, str]] = {}
    for one, other, gold in author_sts():
        first.setdefault(gold, (one, other))
    rows = tuple(
        (Cell(f"{gold:.0f}"), Cell(one), Cell(other))
        for gold, (one, other) in sorted(first.items(), reverse=True)
    )
    return Table(
        ("gold", "one", "other"),
        rows,
        kind="words",
        name="pairs",
        caption="One author-written sentence pair of each grade of similarity.",
    )
