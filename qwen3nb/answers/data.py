"""What is measured? The tasks of a tier, and whether PyDocs separates models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from qwen3nb.answers.answer import Answer
from qwen3nb.datasets.mirror import data_revision
from qwen3nb.datasets.pydocs.build import PyDocs
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.report.render.table import Conclusion, Table, score_text
from qwen3nb.tiers import TIERS
from qwen3nb.utils.imports import DataFrame

if TYPE_CHECKING:
    from mteb import AbsTask

_SATURATED = 0.9  # scores above this leave little to gain


@dataclass(frozen=True, repr=False)
class Data(Answer):
    """The tasks of a tier, and the difficulty of PyDocs."""

    tier: str
    pydocs: Mapping[str, PyDocs]  # PyDocs and its sample, by name
    scores: Mapping[str, Aggregate]  # on PyDocs, by model

    @cached_property
    def tasks(self) -> list[AbsTask]:
        """The tasks of the tier."""
        from qwen3nb.evaluation.mteb.select import tier_tasks

        return list(tier_tasks(self.tier))

    @property
    def conclusion(self) -> Conclusion:
        """Whether PyDocs separates models, and leaves room above the best."""
        means = {}
        for model, score in self.scores.items():
            if score.value is not None:
                means[model] = score.value
        if len(means) < 2:
            return Conclusion("Without scores of two models, the difficulty of PyDocs is unknown.")
        best_first = sorted(means, key=lambda model: (-means[model], model))
        best, worst = best_first[0], best_first[-1]
        best_score, worst_score = self.scores[best], self.scores[worst]
        separates = "is not shown to separate models"
        if _lower_end(best_score) > _upper_end(worst_score):
            separates = "separates good models from bad ones"
        leaves_room = "leaves little room above"
        if _upper_end(best_score) < _SATURATED:
            leaves_room = "leaves room above"
        return Conclusion(
            f"PyDocs {separates}, and {leaves_room}. {best} scores {means[best]:.3f} nDCG@10, "
            f"{worst} {means[worst]:.3f}, each over {best_score.n} queries."
        )

    def table(self) -> Table:
        """The tasks of the tier, with descriptions and the revisions of the data in use."""
        rows = self._rows()
        return Table.of(
            rows,
            note=TIERS[self.tier].about,
            kind="words",
            name="tier",
            caption=f"The {len(rows)} tasks of the tier {self.tier}, with the revision of their "
            "data.",
        )

    def pydocs_table(self) -> Table:
        """Sizes and identity of PyDocs and its sample."""
        # All sets are built from the same libraries.
        versions = next(iter(self.pydocs.values())).versions
        libraries = ", ".join(f"{name} {version}" for name, version in versions.items())
        rows = []
        for name, pydocs in self.pydocs.items():
            judgements = sum(len(documents) for documents in pydocs.qrels.values())
            row = {
                "set": name,
                "documents": f"{len(pydocs.entries):,}",
                "queries": f"{len(pydocs.query_names):,}",
                "judgements": f"{judgements:,}",
                "identity": pydocs.identity[:12],
            }
            rows.append(row)
        return Table.of(
            rows,
            note=f"Built from {libraries}.",
            method=self._scores_text(),
            name="pydocs",
            caption="Size and identity of PyDocs as built from the libraries of this machine.",
        )

    def _scores_text(self) -> str:
        """Return the scores on PyDocs with their intervals."""
        scores = [f"{model} {score_text(score)}" for model, score in self.scores.items()]
        return f"nDCG@10 on PyDocs, with 95 % intervals over queries: {', '.join(scores)}."

    def _rows(self) -> list[dict[str, str]]:
        """Return name, type, description and data of each task."""
        from qwen3nb.evaluation.mteb.select import whole_or_nano_name

        rows = []
        for task in self.tasks:
            row = {
                "task": whole_or_nano_name(task),
                "type": task.metadata.type,
                "description": task.metadata.description,
                "data": data_revision(task)[:12],
            }
            rows.append(row)
        return rows

    def to_frame(self) -> DataFrame:
        """Return a row per task: type, description, and the revision of its data."""
        import pandas as pd

        return pd.DataFrame(self._rows())


def data(tier: str = "smoke", *, models: Sequence[str] = ("bm25", "random")) -> Data:
    """Return the tasks of a tier, and how hard PyDocs is for some ``models``.

    Raises:
        ValueError: an unknown tier.
    """
    from qwen3nb.datasets.pydocs.build import load_pydocs
    from qwen3nb.datasets.pydocs.mteb_tasks import pydocs_sample
    from qwen3nb.evaluation.studies.reproduce import pydocs_difficulty
    from qwen3nb.utils.choices import check_choice

    tier = check_choice("tier", tier, TIERS)
    pydocs = load_pydocs()
    sets = {"whole": pydocs, "sample of tier smoke": pydocs_sample()}
    return Data(tier, sets, pydocs_difficulty(pydocs, models))


def _lower_end(score: Aggregate) -> float:
    """Return the lower end of an interval; that of all scores if it is unknown."""
    return score.low or 0.0


def _upper_end(score: Aggregate) -> float:
    """Return the upper end of an interval; that of all scores if it is unknown."""
    return score.high or 1.0
