"""Are published scores reproduced? Scores of others next to ours, each with its tolerance."""

from collections import Counter
from dataclasses import dataclass

from qwen3nb.answers.answer import Answer
from qwen3nb.evaluation.studies.reproduce import Reproduction, published_scores
from qwen3nb.evaluation.studies.reproduce import reproduce as run_published
from qwen3nb.records.data_used import DataUsed
from qwen3nb.report.render.table import Cell, Conclusion, Table, number
from qwen3nb.utils.imports import DataFrame


@dataclass(frozen=True, repr=False)
class Reproductions(Answer):
    """Published scores next to ours, or the reason why a score could not be run."""

    reproductions: tuple[Reproduction, ...]

    @property
    def data(self) -> DataUsed:
        """The data of our scores."""
        return DataUsed.of(reproduction.result for reproduction in self.reproductions)

    @property
    def differences(self) -> list[tuple[Reproduction, float]]:
        """The scores that can be judged, each with ours - published."""
        pairs = []
        for reproduction in self.reproductions:
            if reproduction.value is not None and reproduction.is_judged:
                pairs.append((reproduction, reproduction.value - reproduction.published.value))
        return pairs

    @property
    def conclusion(self) -> Conclusion:
        """How many published scores are reproduced, and the largest deviation."""
        counts = Counter(reproduction.verdict for reproduction in self.reproductions)
        all_scores, judged_scores = len(self.reproductions), len(self.differences)
        scores_on_substitutes = counts["not judged"]
        remark = ""
        if scores_on_substitutes:
            remark = (
                f" {scores_on_substitutes} are on a mirror's substitutes for MTEB's data, and not "
                "judged."
            )
        if not judged_scores:
            verb = "judged" if scores_on_substitutes else "run"
            text = f"No published score could be {verb} here, of {all_scores}.{remark}"
            return Conclusion(text, data=self.data)
        farthest, difference = max(self.differences, key=_distance_in_tolerances)
        published = farthest.published
        not_run = all_scores - judged_scores - scores_on_substitutes
        return Conclusion(
            f"{counts['OK']} of {judged_scores} published scores are reproduced within their "
            f"tolerance, {counts['OKish']} more within five times it. The farthest is "
            f"{published.model} on {published.task}: {difference:+.4f}, tolerance "
            f"{published.tolerance:g}. {not_run} could not be run here.{remark}",
            data=self.data,
        )

    def table(self) -> Table:
        """A row per published score: ours, the difference, the tolerance and the verdict."""
        return Table.of(
            [_row(reproduction) for reproduction in self.reproductions],
            note="Main scores as MTEB defines them. OK: within the tolerance; OKish: within five "
            "times the tolerance. mteb: MTEB's results repository; card: the model's card; stored: "
            "first measured here.",
            kind="words",
            name="reproduction",
            caption="Published main scores next to ours, with their difference and tolerance.",
            data=self.data,
        )

    def to_frame(self) -> DataFrame:
        """A row per score that was run: task, published, measured and the difference."""
        import pandas as pd

        columns = ["model", "task", "published", "measured", "difference", "verdict"]
        rows = []
        for reproduction in self.reproductions:
            published, value = reproduction.published, reproduction.value
            if value is not None:
                scores = (published.value, value, value - published.value)
                rows.append((published.model, published.task, *scores, reproduction.verdict))
        return pd.DataFrame(rows, columns=columns)


def _distance_in_tolerances(judged_score: tuple[Reproduction, float]) -> float:
    reproduction, difference = judged_score
    return abs(difference) / reproduction.published.tolerance


def _row(reproduction: Reproduction) -> dict[str, object]:
    published, value = reproduction.published, reproduction.value
    # As if it had not been run; replaced below where there is a value.
    row: dict[str, object] = {
        "model": published.model,
        "task": published.task,
        "published": (f"{published.value:.4f}", published.source),
        "ours": (reproduction.verdict, reproduction.reason),
        "difference": "not run",
        "tolerance": f"{published.tolerance:g}",
        "verdict": None,
    }
    if value is None:
        return row
    row["ours"] = number(value, ".4f", detail=reproduction.reason)
    row["difference"] = Cell("not judged")
    if reproduction.is_judged:
        row["difference"] = number(value - published.value, "+.4f")
    row["verdict"] = Cell(reproduction.verdict, strong=reproduction.verdict == "FAIL")
    return row


def reproduce(*, models: str = "", tasks: str = "") -> Reproductions:
    """Run what was published, where data and models are in the mirror or on the hub.

    Args:
        models: comma-separated names of models; empty for all.
        tasks: comma-separated names of tasks; empty for all.

    Raises:
        ValueError: no published score matches.
    """
    scores = published_scores(models=models, tasks=tasks)
    return Reproductions(tuple(run_published(scores, show_progress=False)))
