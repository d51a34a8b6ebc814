"""Is one training better than another, or was it the seed? Trainings of several seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from qwen3nb import paths
from qwen3nb.analysis.comparison.arm_differences import (
    ArmDifference,
    ArmProcedure,
    Claim,
    PromptRole,
    compare_arms,
)
from qwen3nb.analysis.comparison.arms import Arm, choose_arm, find_arms, last_steps
from qwen3nb.analysis.comparison.differences import (
    ALPHA,
    Verdict,
    correction_words,
    find_verdict,
    verdict_words,
)
from qwen3nb.analysis.comparison.promises import ComparedArms, Promise, find_promises
from qwen3nb.analysis.comparison.prompt_effects import read_prompt_records
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.answers.answer import Answer
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.records.data_used import NO_SCORES, DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import (
    ACCENT,
    QUIET,
    Axes,
    Figure,
    MplFigure,
    grid,
    name_rows,
    panels,
    plain,
    row_height,
)
from qwen3nb.report.render.table import (
    Cell,
    Conclusion,
    Table,
    number,
    plural,
    short_task,
)
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.format import first_names, interval_text, json_text, number_text, p_value_text
from qwen3nb.utils.imports import DataFrame

_NONE = (
    "No training was evaluated with two seeds. Train with another seed, and name its folder or "
    "label by it, such as `encoder-seed_2`."
)
_MOST_PANELS = 6
_MOSTLY = 0.5  # share of the doubt


@dataclass(frozen=True, repr=False)
class SeedComparison(Answer):
    """Trainings of several seeds, compared for new seeds and new queries."""

    arms: tuple[Arm, ...]
    differences: tuple[ArmDifference, ...]
    procedure: ArmProcedure
    alpha: float = ALPHA
    margin: float = 0.05
    notes: tuple[str, ...] = ()  # on what is not compared
    promises: tuple[Promise, ...] = ()  # of plans
    data: DataUsed = NO_SCORES

    @property
    def is_refused(self) -> bool:
        """Whether a plan promises seeds or prompts that have no records: there is no verdict."""
        return any(promise.is_broken for promise in self.promises)

    @property
    def conclusion(self) -> Conclusion:
        """Whether the first training is better, for which seeds, and what causes the doubt."""
        if not self.differences:
            return Conclusion(self._nothing)
        if self.is_refused:
            broken = [promise.text for promise in self.promises if promise.is_broken]
            return Conclusion(" ".join(broken), data=self.data)
        leading = self._leading
        sentences = [self._in_words(leading), self._limit(leading)]
        others = len(self.differences) - 1
        if others:
            shown = sum(self._is_shown(difference) for difference in self.differences)
            count = str(shown) if shown else "none"
            verb = "show" if shown > 1 else "shows"
            sentences.append(f"Of {others + 1} comparisons, {count} {verb} a difference.")
        sentences += [promise.text for promise in self.promises]
        return Conclusion(
            " ".join(sentences), data=self.data, strong=(leading.first, leading.second)
        )

    @property
    def _nothing(self) -> str:
        """Say why nothing was compared."""
        if len(self.arms) < 2 and not self.notes:
            return _NONE
        names = first_names([arm.name for arm in self.arms])
        reason = "they share no task"
        if self.notes:
            reason = first_names(self.notes, separator="; ")
        elif self.procedure.prompts is not PromptRole.OWN:
            reason = "none was evaluated with a set of prompts (`qwen3nb eval --prompts 15`)"
        return f"Nothing was compared of {names}: {reason}."

    @property
    def _leading(self) -> ArmDifference:
        """The difference that the first sentence is about: the largest shown, else the first."""
        shown = [difference for difference in self.differences if self._is_shown(difference)]
        return max(
            shown,
            key=lambda difference: abs(difference.difference),
            default=self.differences[0],
        )

    def find_verdict(self, difference: ArmDifference) -> Verdict:
        """What a difference shows, as for two models; see `differences.find_verdict`."""
        return find_verdict(
            difference.difference,
            difference.corrected,
            difference.interval,
            alpha=self.alpha,
            margin=self.margin,
        )

    def _is_shown(self, difference: ArmDifference) -> bool:
        return self.find_verdict(difference) in (Verdict.BETTER, Verdict.WORSE)

    def _in_words(self, difference: ArmDifference) -> str:
        """Say which arm is better, and for which seeds."""
        verdict = self.find_verdict(difference)
        text = {
            Verdict.BETTER: f"{difference.first} is better than {difference.second}",
            Verdict.WORSE: f"{difference.second} is better than {difference.first}",
            Verdict.EQUIVALENT: f"{difference.first} and {difference.second} differ by less than "
            f"{self.margin:g}",
            Verdict.NO_WORSE: f"{difference.first} is at most {self.margin:g} worse than "
            f"{difference.second}",
            Verdict.NOT_SHOWN: f"{difference.first} is not shown to differ from "
            f"{difference.second}",
        }[verdict]
        change = number_text(difference.difference, sign=True)
        ends = interval_text(difference.interval, absent="(a single query)")
        return f"{text} on {short_task(difference.task)}: {change} {ends}."

    def _limit(self, difference: ArmDifference) -> str:
        """Say for which seeds the difference holds, and where the doubt comes from."""
        if difference.claim is Claim.MODELS:
            return "Each has one seed, so this is about these two models: other seeds may turn it."
        scope = _scope(difference)
        share = difference.from_seeds or 0.0
        if share > _MOSTLY:
            advice = "" if self._is_shown(difference) else ", so train more of them"
            return f"That is for {scope}; most doubt is from the seeds{advice}."
        return f"That is for {scope}; most doubt is from the queries."

    @property
    def regressions(self) -> tuple[ArmDifference, ...]:
        """The differences that show a first training to be worse, by more than the margin."""
        if self.is_refused:
            return ()
        return tuple(
            difference
            for difference in self.differences
            if self.find_verdict(difference) is Verdict.WORSE
            and abs(difference.difference) > self.margin
        )

    def to_markdown(self) -> str:
        """Return the sentence and the table as Markdown."""
        return f"{self.conclusion.text}\n\n{self.table().to_markdown()}\n"

    def to_json(self) -> str:
        """Return the sentence, and a row per difference, as strict JSON."""
        rows = json.loads(self.to_frame().to_json(orient="records"))  # which has null for NaN
        return json_text(
            {
                "conclusion": self.conclusion.text,
                "refused": self.is_refused,
                "trainings": {arm.name: list(arm.seeds) for arm in self.arms},
                "prompts": str(self.procedure.prompts),
                "differences": rows,
                "notes": list(self.notes),
            }
        )

    def table(self) -> Table:
        """A row per pair of arms and task; without p-values where a plan's promise is broken."""
        return Table.of(
            [self._row(difference) for difference in self.differences],
            note=self._note(),
            method=self._method(),
            empty=self._nothing,
            name="seeds",
            caption="Differences between trainings, over their seeds and the same queries.",
            data=self.data,
        )

    def _row(self, difference: ArmDifference) -> dict[str, object]:
        names = f"{difference.first} − {difference.second}"
        p_value = Cell(
            p_value_text(difference.corrected),
            f"raw {p_value_text(difference.p_value)}",
            strong=self._is_shown(difference),
            value=difference.corrected,
        )
        change = number(
            difference.difference, "+.3f", interval=difference.interval, detail="a single query"
        )
        verdict = verdict_words(
            self.find_verdict(difference), difference.interval, margin=self.margin
        )
        if self.is_refused:
            p_value, verdict = Cell("–"), "no verdict"
            change = number(difference.difference, "+.3f")
        counts = f"{len(difference.first_seeds)} and {len(difference.second_seeds)}"
        freedom = "these models"
        if difference.freedom is not None:
            freedom = f"{difference.freedom:.1f} degrees of freedom"
        return {
            "first − second\ntask, metric": (
                names,
                f"{short_task(difference.task)}, {difference.metric}",
            ),
            "Δ\n95 % interval": change,
            "p\ncorrected": p_value,
            "verdict": verdict,
            "seeds": (counts, freedom),
            "queries\nalone: p": (
                number(difference.n, ",d"),
                "" if self.is_refused else p_value_text(difference.of_queries),
            ),
        }

    def _note(self) -> str:
        sentences = ["Bold: shown for new seeds and new queries."]
        if any(difference.claim is Claim.MODELS for difference in self.differences):
            sentences = ["Bold: shown. With one seed each, that is about these models only."]
        sentences.append("By the queries alone, p is of these very models, and smaller.")
        if self.notes:
            sentences.append(f"Not compared: {first_names(self.notes, separator='; ')}.")
        return " ".join(sentences)

    def _method(self) -> str:
        """How the differences are tested."""
        family = max((difference.family for difference in self.differences), default=1)
        correction = correction_words("holm", family, "pairs of trainings")
        sentences = [
            f"95 % intervals over the queries ({interval_words(['paired'])}) and the seeds, "
            "whose lengths add up in quadrature (MOVER).",
            "Seeds: Student's, with Welch's degrees of freedom; of unequal numbers, each "
            "training by its own.",
            "p: where this interval touches 0, or the permutation test over queries, if larger"
            f"{'; ' + correction if correction else ''}.",
            "Seeds count as independent"
            + (", or as pairs where both have the same." if self.procedure.paired else "."),
        ]
        if any(difference.units for difference in self.differences):
            sentences.append("Queries of a cluster count together.")
        sentences += self._method_of_prompts()
        return " ".join(sentences)

    def _method_of_prompts(self) -> list[str]:
        """Say what the prompts stand for."""
        if self.procedure.prompts is PromptRole.OWN or not self.differences:
            return ["Each model has its own prompts."]
        count = plural(len(self.differences[0].prompts), "prompt")
        if self.procedure.prompts is PromptRole.FIXED:
            return [f"Means over {count}: the difference is about these."]
        return [f"Means over {count}, which count as a sample: others like them may be used."]

    def figure(self) -> Figure | None:
        """A panel per task: each seed as a line, each training's mean as a point."""
        tasks = list(dict.fromkeys(difference.task for difference in self.differences))
        if not tasks:
            return None
        words = []
        for task in tasks[:_MOST_PANELS]:
            for name, scores in self._scores_on(task).items():
                seeds = ", ".join(f"{score:.3f}" for score in scores)
                words.append(f"{name} on {short_task(task)}: {seeds}")
        caption = "Mean score of each seed (lines) and of each training (points)."
        if len(tasks) > _MOST_PANELS:
            caption += f" {len(tasks) - _MOST_PANELS} tasks are not shown."
        return Figure(
            "seeds",
            partial(self._draw, tasks[:_MOST_PANELS]),
            caption=caption,
            alt=f"Scores by training and seed. {'; '.join(words)}.",
            data=self.data,
        )

    def _scores_on(self, task: str) -> dict[str, tuple[float, ...]]:
        """Return the mean score of each seed, by training."""
        scores: dict[str, tuple[float, ...]] = {}
        for difference in self.differences:
            if difference.task == task:
                scores[difference.first], scores[difference.second] = difference.by_seed
        return scores

    def _draw(self, tasks: Sequence[str], width: float) -> MplFigure:
        """Draw a panel per task, and in it a row per training, the first at the top."""
        names = [arm.name for arm in self.arms]
        labels = [plain(name, longest=26) for name in names]
        height = 0.9 + len(names) * row_height(labels, one_line=0.3)
        figure, axes, left_axes = panels(len(tasks), width, height=height, per_line=2, sharey=True)
        metrics = {difference.task: difference.metric for difference in self.differences}
        for axis, task in zip(axes, tasks, strict=True):
            for name, scores in self._scores_on(task).items():
                _draw_seeds(axis, names.index(name), scores)
            axis.set_xlabel(plain(f"mean {metrics[task]}, {short_task(task)}", longest=40))
            axis.set_ylim(len(names) - 0.4, -0.6)
            grid(axis)
        for axis in left_axes:
            name_rows(axis, labels)
            axis.set_ylim(len(names) - 0.4, -0.6)
        return figure

    def to_frame(self) -> DataFrame:
        """A row per pair of arms and task, with every number unrounded."""
        import pandas as pd

        rows = []
        for difference in self.differences:
            low, high = difference.interval or (None, None)
            row = {
                "task": difference.task,
                "metric": difference.metric,
                "first": difference.first,
                "second": difference.second,
                "first_seeds": len(difference.first_seeds),
                "second_seeds": len(difference.second_seeds),
                "prompts": len(difference.prompts),
                "n": difference.n,
                "difference": difference.difference,
            }
            if not self.is_refused:
                row |= {
                    "low": low,
                    "high": high,
                    "p_value": difference.p_value,
                    "corrected": difference.corrected,
                    "family": difference.family,
                    "p_of_queries": difference.of_queries,
                    "freedom": difference.freedom,
                    "from_seeds": difference.from_seeds,
                    "claim": str(difference.claim),
                    "verdict": str(self.find_verdict(difference)),
                }
            rows.append(row)
        return pd.DataFrame(rows)


def _scope(difference: ArmDifference) -> str:
    """Say for which seeds and queries a difference holds."""
    if difference.claim is Claim.TRAININGS:
        return "new seeds and new queries"
    several, single = difference.first, difference.second
    if difference.claim is Claim.SECOND:
        several, single = single, several
    return f"new seeds of {several}, and {single} as it is"


def _draw_seeds(axis: Axes, row: int, scores: Sequence[float]) -> None:
    """Draw the seeds of a training as lines, and their mean as a point."""
    axis.plot(scores, [row] * len(scores), "|", color=QUIET, markersize=11)
    axis.plot([float(np.mean(scores))], [row], "o", color=ACCENT, markersize=5)


def over_seeds(
    results: Iterable[Result],
    *arms: str,
    baseline: str = "",
    tasks: Sequence[str] = (),
    metric: str = "",
    prompts: str = "own",
    paired: bool = False,
    alpha: float = ALPHA,
    margin: float = 0.05,
    draws: int = DRAWS,
    seed: int = 0,
) -> SeedComparison:
    """Compare trainings of several seeds for new seeds and new queries.

    Args:
        results: any records.
        arms: trainings by name, patterns of labels, or labels joined by ``+``; by default all
            trainings with two seeds or more, at their last step. One may be a single model, which
            is taken as it is.
        baseline: the arm that the others are compared with; by default every two are compared.
        tasks: by default all that two arms have.
        metric: by default the main metric of each task.
        prompts: ``own``, each model's; or those of a set (`qwen3nb eval --prompts`), averaged:
            ``fixed``, the claim is about these prompts, or ``sample``, it is about others, too.
        paired: whether one seed moves the models of two arms alike, as if it were a pair. Say so
            before looking: with few seeds, there are fewer degrees of freedom.
        alpha: level of the tests.
        margin: smallest difference that matters.
        draws: of the permutation test over queries.
        seed: of these draws.

    Raises:
        ValueError: an unknown arm or task, a model in two arms, or a single arm.
    """
    records = list(results)
    for task in tasks:
        check_choice("task", task, sorted({record.task.key for record in records}))
    role = PromptRole(check_choice("prompts", prompts, list(PromptRole)))
    chosen = _chosen_arms(records, arms, baseline)
    procedure = ArmProcedure(metric=metric, prompts=role, paired=paired, draws=draws, seed=seed)
    prompt_records: list[Result] = []
    if role is not PromptRole.OWN:
        prompt_records = read_prompt_records(paths.results())
    differences, notes = compare_arms(
        records, chosen, procedure, tasks=tasks, prompt_records=prompt_records
    )
    compared = ComparedArms(chosen, differences, procedure, alpha, margin)
    promises = find_promises(compared, [*records, *prompt_records])
    if baseline:
        last = chosen[-1].name
        differences = [difference for difference in differences if difference.second == last]
    used = [record for record in records if any(arm.has(record) for arm in chosen)]
    return SeedComparison(
        arms=tuple(chosen),
        differences=tuple(differences),
        procedure=procedure,
        alpha=alpha,
        margin=margin,
        notes=tuple(notes),
        promises=tuple(promises),
        data=DataUsed.of(used),
    )


def _chosen_arms(records: Sequence[Result], names: Sequence[str], baseline: str) -> list[Arm]:
    """Return the arms that are named, or all trainings with two seeds; the baseline comes last.

    Raises:
        ValueError: an unknown arm, or a single one.
    """
    arms = [choose_arm(records, name) for name in names]
    if not names:
        arms = last_steps(find_arms(records).values())
    if baseline:
        last = choose_arm(records, baseline)
        arms = [*(arm for arm in arms if arm.name != last.name), last]
    if names and len(arms) < 2:
        others = first_names(list(find_arms(records))) or "none with two seeds"
        raise ValueError(f"expected two trainings or more; got {names[0]}; there are: {others}")
    return arms
