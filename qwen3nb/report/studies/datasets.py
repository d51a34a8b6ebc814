"""The data sets: tables of tiers, PyDocs and sentence pairs, and what they can tell."""

from __future__ import annotations

from collections.abc import Mapping

from qwen3nb.datasets.mirror import data_revision
from qwen3nb.datasets.pydocs.build import PyDocs
from qwen3nb.datasets.pydocs.mteb_tasks import author_sts
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.report.render.cell import number
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS

_FULL = 0.9  # a score above it leaves little to gain


def tier_table(tier: str) -> Table:
    """The tasks of a tier, with descriptions and the revisions of the data in use.

    Raises:
        ValueError: an unknown tier.
    """
    from qwen3nb.evaluation.mteb.select import tier_tasks

    rows = [
        {
            "task": task.metadata.name,
            "type": task.metadata.type,
            "description": task.metadata.description,
            "data": data_revision(task)[:12],
        }
        for task in tier_tasks(tier)
    ]
    return Table.of(
        rows,
        note=TIERS[tier].about,
        kind="words",
        name="tier",
        caption=f"The {len(rows)} tasks of the tier {tier}, with the revision of their data.",
    )


def pydocs_table(sets: Mapping[str, PyDocs]) -> Table:
    """Sizes and identity of PyDocs and its sample."""
    versions = next(iter(sets.values())).versions.items()
    return Table.of(
        (
            {
                "set": name,
                "documents": f"{len(pydocs.entries):,}",
                "queries": f"{len(pydocs.query_names):,}",
                "judgements": f"{sum(map(len, pydocs.qrels.values())):,}",
                "identity": pydocs.identity[:12],
            }
            for name, pydocs in sets.items()
        ),
        note=f"Built from {', '.join(f'{name} {version}' for name, version in versions)}.",
        name="pydocs",
        caption="Size and identity of PyDocs as built from the libraries of this machine.",
    )


def data_conclusion(scores: Mapping[str, Aggregate]) -> Conclusion:
    """Say whether PyDocs separates models, and leaves room above the best of them.

    Args:
        scores: per model, from `pydocs_difficulty`.
    """
    known = {name: score for name, score in scores.items() if score.value is not None}
    ranked = sorted(known, key=lambda name: (-(known[name].value or 0.0), name))
    if not ranked:
        return Conclusion("No model was measured on PyDocs, so its difficulty is unknown.")
    cells = [(name, number(known[name])) for name in (ranked[0], ranked[-1])]
    first, last = (f"{name} scores {c.text} {c.detail or '–'} nDCG@10" for name, c in cells)
    if len(ranked) == 1:
        return Conclusion(
            f"On PyDocs, {first}; one model cannot show whether PyDocs tells models apart."
        )
    best, worst = known[ranked[0]], known[ranked[-1]]
    both = f"{first} and {last}, each over {best.n} queries"
    if (best.low or 0.0) <= (worst.high or 1.0):
        return Conclusion(
            f"Whether PyDocs tells these models apart is not shown: {both}; the intervals overlap."
        )
    room = "leaves room above" if (best.high or 1.0) < _FULL else "leaves little room above"
    return Conclusion(f"PyDocs tells good models from bad ones, and {room}: {both}.")


def prediction_table(tier: str = "fast") -> Table:
    """Rank correlation of a tier with other tasks over models, from published scores."""
    from qwen3nb.evaluation.studies.reproduce import predict_elsewhere

    predictions = predict_elsewhere(tier)
    return Table.of(
        (
            {
                "predictor": (
                    each.predictor,
                    f"{len(each.tasks)} tasks" if len(each.tasks) > 1 else "",
                ),
                "rank correlation": number(each.correlation, strong=each is predictions[0]),
            }
            for each in predictions
        ),
        note=f"Spearman over {predictions[0].correlation.n} models with the "
        f"{predictions[0].target} ({', '.join(predictions[0].targets)}); "
        "95 % interval (Fisher's z) over models. Scores: embeddings-benchmark/results at f4cc6c8.",
        name="prediction",
        caption=f"Rank correlation over models of the tier {tier}, and of its parts, with other "
        "tasks.",
    )


def pairs_table() -> Table:
    """The first author-written pair of each grade."""
    first = {gold: (one, other) for one, other, gold in reversed(author_sts())}
    return Table.of(
        ((f"{gold:.0f}", *pair) for gold, pair in sorted(first.items(), reverse=True)),
        ("gold", "one", "other"),
        kind="words",
        name="pairs",
        caption="One author-written sentence pair of each grade of similarity.",
    )
