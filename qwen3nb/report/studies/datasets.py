"""The page of data sets: tables of tiers and PyDocs, and their ability to separate models."""

from collections.abc import Mapping

from qwen3nb.datasets.mirror import data_revision
from qwen3nb.datasets.pydocs.build import PyDocs
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.report.render.table import Conclusion, Table, score_text
from qwen3nb.tiers import TIERS

_FULL = 0.9  # scores above this leave little to gain


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
    """State whether PyDocs separates models, and leaves room above the best.

    ``scores`` are by model, from `pydocs_difficulty`.
    """
    known = {name: score for name, score in scores.items() if score.value is not None}
    if len(known) < 2:
        return Conclusion("Without scores of two models, the difficulty of PyDocs is unknown.")
    ranked = sorted(known, key=lambda name: (-(known[name].value or 0.0), name))
    best, worst = known[ranked[0]], known[ranked[-1]]
    separates = (best.low or 0.0) > (worst.high or 1.0)
    verb = "separates good models from bad ones" if separates else "is not shown to separate models"
    room = "leaves room above" if (best.high or 1.0) < _FULL else "leaves little room above"
    return Conclusion(
        f"PyDocs {verb}, and {room}: {ranked[0]} scores {score_text(best)} nDCG@10 and "
        f"{ranked[-1]} {score_text(worst)}, each over {best.n} queries."
    )
