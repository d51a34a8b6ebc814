"""Are published scores reproduced? Scores of others next to ours, each with its tolerance."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from qwen3nb.analysis.forecasting.published_models import PublishedScore, published_models, source
from qwen3nb.answers.answer import Answer
from qwen3nb.evaluation.studies.reproduce import Published, Reproduction, published_scores
from qwen3nb.evaluation.studies.reproduce import reproduce as run_published
from qwen3nb.models.kinds.prompts import named_prompts
from qwen3nb.models.kinds.source import Registry, registry
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest, load_results
from qwen3nb.report.render.table import Cell, Conclusion, Table, number
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.imports import DataFrame

_TOLERANCE = 0.005  # between machines and libraries, as of most scores that are run again
_CHANGED = frozenset({"dimensions", "vectors", "int8"})  # settings that only a user's options make
# Options that change scores, and their values where they are not given.
_OPTIONS = ("pooling", "max_length", "prefix", "append_eos", "bidirectional", "limit")
_UNCHANGED = (None, "", 0, False, "auto")


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
        not_judged = counts["not judged"]
        remark = self._remark()
        if not judged_scores:
            verb = "judged" if not_judged else "run"
            text = f"No published score could be {verb} here, of {all_scores}.{remark}"
            return Conclusion(text, data=self.data)
        farthest, difference = max(self.differences, key=_distance_in_tolerances)
        published = farthest.published
        not_run = counts["not run"]
        return Conclusion(
            f"{counts['OK']} of {judged_scores} published scores are reproduced within their "
            f"tolerance, {counts['OKish']} more within five times it. The farthest is "
            f"{published.model} on {published.task}: {difference:+.4f}, tolerance "
            f"{published.tolerance:g}. {not_run} could not be run here.{remark}",
            data=self.data,
        )

    def _remark(self) -> str:
        """Say how many scores were run, but are not judged, and why."""
        on_substitutes, with_other_prompt = 0, 0
        for reproduction in self.reproductions:
            if reproduction.verdict != "not judged":
                continue
            if reproduction.is_on_substitute:
                on_substitutes += 1
            else:
                with_other_prompt += 1
        remark = ""
        if on_substitutes:
            remark += (
                f" {on_substitutes} are on a mirror's substitutes for MTEB's data, and not judged."
            )
        if with_other_prompt:
            remark += f" {with_other_prompt} were published with other prompts, and not judged."
        return remark

    def table(self) -> Table:
        """A row per published score: ours, the difference, the tolerance and the verdict."""
        return Table.of(
            [_row(reproduction) for reproduction in self.reproductions],
            note="Main scores as MTEB defines them. OK: within the tolerance; OKish: within five "
            "times the tolerance. mteb: MTEB's results repository; card: the model's card; stored: "
            "first measured here. A commit: of MTEB's repository, against a record of this study.",
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


def reproduce(*, models: str = "", tasks: str = "", measured: bool = False) -> Reproductions:
    """Compare what was measured here with published scores, then run what else was published.

    It runs where data and models are in the mirror or on the hub.

    Args:
        models: comma-separated names of models; empty for all.
        tasks: comma-separated names of tasks; empty for all.
        measured: run nothing, and only compare the study's own records.

    Raises:
        ValueError: no published score matches.
    """
    here = measured_reproductions(load_results(), models=models, tasks=tasks)
    if measured:
        return Reproductions(tuple(here))
    scores = published_scores(models=models, tasks=tasks)
    others = without_those_to_run(here, scores)
    return Reproductions((*others, *run_published(scores, show_progress=False)))


def without_those_to_run(
    measured: Iterable[Reproduction], scores: Iterable[Published]
) -> list[Reproduction]:
    """Return what was measured here, without the models and tasks of these scores."""
    to_run = {(score.model, score.task) for score in scores}
    return [
        reproduction
        for reproduction in measured
        if (reproduction.published.model, reproduction.published.task) not in to_run
    ]


def measured_reproductions(
    results: Iterable[Result], *, models: str = "", tasks: str = ""
) -> list[Reproduction]:
    """Compare records with MTEB's published scores of the same model, task and revisions.

    A record counts if its model was used as the registry has it, at full precision, on the same
    revision of the data. Nothing is run.

    Args:
        results: any records; of several of a model on a task, the newest counts.
        models: comma-separated names of models; empty for all.
        tasks: comma-separated keys of tasks; empty for all.
    """
    selected_models, selected_tasks = split_names(models), split_names(tasks)
    origin = f"MTEB at {source().commit[:12]}"
    registered = registry()
    reproductions = []
    for record in latest(results):
        name = _registered_name(record, registered)
        if not name or (models and name not in selected_models):
            continue
        if tasks and record.task.key not in selected_tasks:
            continue
        score = _published_score(registered[name], record)
        if score is None or record.task.mteb is None:
            continue
        published = Published(
            name, score.task, score.value, _TOLERANCE, origin, score.has_other_prompt
        )
        reason = "published with another prompt" if score.has_other_prompt else ""
        value = record.task.mteb.value
        reproductions.append(Reproduction(published, record, value, reason))
    return reproductions


def _published_score(entry: Mapping[str, Any], record: Result) -> PublishedScore | None:
    """Return the published score on the data of a record; None if there is none."""
    scores = published_models().get((entry.get("id", ""), entry.get("revision", "")), {})
    score = scores.get(record.task.key)
    if score is None or score.data_revision != record.task.revision:
        return None
    return score


def _registered_name(record: Result, registered: Registry) -> str:
    """Return the name of the registered model that a record used as registered; else nothing."""
    for name, entry in registered.items():
        if record.model.spec in (name, entry.get("id")):
            return name if _is_as_registered(record, entry) else ""
    return ""


def _is_as_registered(record: Result, entry: Mapping[str, Any]) -> bool:
    """Return whether a model had no options of the user's that change its scores."""
    settings = record.model.settings
    if record.prompt is not None or not _CHANGED.isdisjoint(settings):
        return False
    if settings.get("dtype", "float32") != "float32":
        return False
    if settings.get("prompts", {}) != named_prompts(entry.get("prompts", {})):
        return False
    longest = entry.get("max_length")
    if longest is not None and settings.get("max_length") != longest:
        return False
    return all(record.options.get(name) in _UNCHANGED for name in _OPTIONS)
