"""What would more steps of a training bring? A curve through its checkpoints, and its error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, join
from qwen3nb.analysis.training.checkpoint_scores import (
    Trajectory,
    common_steps,
    names_by_seed,
    tokens_by_step,
)
from qwen3nb.analysis.training.forecast import (
    FEWEST,
    TEST_ALPHA,
    Band,
    Forecast,
    Refusal,
    band,
    forecast,
    reach,
    round_distance,
)
from qwen3nb.answers.answer import Answer
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import (
    ACCENT,
    GREY,
    Axes,
    Figure,
    MplFigure,
    grid,
    is_wide,
    panels,
    plain,
)
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural, short_task
from qwen3nb.utils.format import number_text
from qwen3nb.utils.imports import DataFrame

if TYPE_CHECKING:
    from matplotlib.artist import Artist

_SENTENCES = 2  # trainings in the conclusion
_MOST_DRAWN = 3  # panels
_MILLION = 1_000_000
_BILLION = 1_000 * _MILLION
_SHORT_REASONS = {
    Refusal.FEW_CHECKPOINTS: "too few checkpoints",
    Refusal.FEW_QUERIES: "too few queries",
    Refusal.SAME_SCORES: "all score the same",
    Refusal.TOO_FAR: "farther than tested",
    Refusal.MISSED: "missed the last ones",
    Refusal.TURNS: "the curve turns",
    Refusal.NO_CURVE: "no curve fits",
}


@dataclass(frozen=True)
class CourseForecast:
    """The forecast of one training on one task, or on the mean of several."""

    training: str  # with the number of its seed if it has several
    tasks: tuple[str, ...]
    metric: str
    steps: tuple[int, ...]  # of the checkpoints
    more_steps: int
    is_in_tokens: bool  # whether the curve is of tokens instead of steps
    forecast: Forecast
    band: Band | None  # None if nothing could be fitted

    @property
    def task(self) -> str:
        """The task, or how many the mean is of."""
        if len(self.tasks) == 1:
            return short_task(self.tasks[0])
        return f"mean of {len(self.tasks)} tasks"

    @property
    def where(self) -> str:
        """The task, for a sentence."""
        if len(self.tasks) == 1:
            return self.task
        return f"the {self.task}"

    @property
    def further(self) -> str:
        """The further steps in words, and their tokens if these are known."""
        words = f"{self.more_steps:,} {_noun(self.more_steps)}"
        if self.is_in_tokens:
            return f"{words} ({tokens_text(self.forecast.more)})"
        return words

    @property
    def tested_words(self) -> str:
        """The checkpoints that tested the curve, as ``last 3 checkpoints``."""
        return f"last {plural(len(self.forecast.tested), 'checkpoint')}"


@dataclass(frozen=True, repr=False)
class TrainingForecasts(Answer):
    """What more steps would bring to each training, and what was foreseen of its last ones."""

    courses: tuple[CourseForecast, ...]  # per training: the mean of its tasks, then each task
    data: DataUsed

    @property
    def conclusion(self) -> Conclusion:
        """What more steps would bring to each training, or why that is not said."""
        if not self.courses:
            text = "Nothing is forecast: no training has two evaluated checkpoints."
            return Conclusion(text, data=self.data)
        # The first course of a training is that of the mean of its tasks.
        first_by_training: dict[str, CourseForecast] = {}
        for course in self.courses:
            first_by_training.setdefault(course.training, course)
        firsts = _stated_first(first_by_training.values())
        if len(firsts) == 1:
            return Conclusion(" ".join(_in_words(firsts[0])), data=self.data)
        # Of several trainings, the table says how the tests went.
        sentences = [_in_words(course)[0] for course in firsts[:_SENTENCES]]
        if len(firsts) > _SENTENCES:
            sentences.append(f"The table has {len(firsts) - _SENTENCES} more.")
        return Conclusion(" ".join(sentences), data=self.data)

    def table(self) -> Table:
        """A row per training and task: the gain, or the reason why there is none."""
        return Table.of(
            [_row(course) for course in self.courses],
            note="The gain is that of the curve. A single checkpoint scatters around it, as the "
            "last column says.",
            method="Exponential, power, logarithmic and S-shaped curves are fitted by generalised "
            "least squares, also with a drift, a second rise or a bend. An interval is the union "
            "of the 95 % intervals of all curves that a likelihood-ratio test leaves. Its error "
            "has two parts: by queries, and what checkpoints scatter beyond that. Errors of "
            "neighbouring checkpoints may be correlated. The test: the best saturating curve "
            f"through the earlier checkpoints must foresee the last ones. It takes {FEWEST} "
            "checkpoints. A forecast reaches no farther than its test did.",
            empty="No training has two evaluated checkpoints with scores per query.",
            name="forecast",
            caption="What more steps would bring: gain by the curve, with its 95 % interval.",
            data=self.data,
        )

    def figure(self) -> Figure | None:
        """Scores by step with the curve and its band; None if no curve could be tested."""
        tested = [course for course in self.courses if course.forecast.tested]
        if not tested:
            return None
        drawn = _stated_first(tested)[:_MOST_DRAWN]
        words = " ".join(" ".join(_in_words(course)) for course in drawn)
        return Figure(
            name="forecast",
            draw=partial(_draw, drawn),
            caption="Mean score of each checkpoint. Open squares tested the curve: it did not see "
            "them, and their bars are what it foresaw. The band holds all adequate curves, 95 %.",
            alt=f"Scores by step, and curves through them. {words}",
            data=self.data,
        )

    def to_frame(self) -> DataFrame:
        """Return a row per training and task: the forecast, unrounded, or why there is none."""
        import pandas as pd

        return pd.DataFrame([_record(course) for course in self.courses])


def _stated_first(courses: Iterable[CourseForecast]) -> list[CourseForecast]:
    """Return those first of which something can be said."""
    return sorted(courses, key=lambda course: not course.forecast.is_stated)


def _record(course: CourseForecast) -> dict[str, object]:
    """Return the numbers of a forecast by name."""
    found = course.forecast
    low, high = found.interval or (None, None)
    score_low, score_high = found.score_interval or (None, None)
    foreseen = [checkpoint.is_inside for checkpoint in found.tested]
    return {
        "training": course.training,
        "tasks": ", ".join(course.tasks),
        "metric": course.metric,
        "checkpoints": len(course.steps),
        "queries": found.queries,
        "unit": "tokens" if course.is_in_tokens else "steps",
        "more_steps": course.more_steps,
        "more": found.more,
        "is_stated": found.is_stated,
        "refusal": found.refusal.value if found.refusal else "",
        "score": found.scores[-1],
        "gain": found.gain,
        "low": low,
        "high": high,
        "score_low": score_low,
        "score_high": score_high,
        "tested": len(foreseen),
        "foreseen": sum(foreseen),
        "p_value_of_test": found.p_value_of_test,
    }


def tokens_text(tokens: float) -> str:
    """Say a number of tokens with its unit.

    >>> tokens_text(131_000_000), tokens_text(2_500_000_000), tokens_text(8_000)
    ('131 million tokens', '2.5 billion tokens', '8,000 tokens')
    """
    if tokens >= _BILLION:
        return f"{tokens / _BILLION:.3g} billion tokens"
    if tokens >= _MILLION:
        return f"{tokens / _MILLION:.3g} million tokens"
    return f"{round(tokens):,} tokens"


def _noun(count: int) -> str:
    return "step" if count == 1 else "steps"


def _in_words(course: CourseForecast) -> list[str]:
    """Say what more steps would bring to a training, or why that is not said."""
    found = course.forecast
    if found.refusal is not None:
        return [f"Nothing is forecast for {course.training} on {course.where}: {_reason(course)}."]
    low, high = _ends(found)
    return [
        f"Another {course.further} of {course.training} would bring {low} to {high} "
        f"{course.metric} on {course.where}.",
        f"The curve foresaw the {course.tested_words}, which it had not seen.",
    ]


def _ends(found: Forecast) -> tuple[str, str]:
    """Return both ends of the gain with their signs; 0.000 also has one, as it was rounded."""
    if found.interval is None:
        return "–", "–"
    low, high = found.interval
    return f"{low:+.3f}", f"{high:+.3f}"


def _reason(course: CourseForecast) -> str:
    """Say why nothing is forecast, for the end of a sentence."""
    found = course.forecast
    steps = course.steps
    if found.refusal is Refusal.FEW_CHECKPOINTS:
        return (
            f"it has {plural(len(steps), 'checkpoint')} with scores, and a curve with its test "
            f"needs {FEWEST}"
        )
    if found.refusal is Refusal.FEW_QUERIES:
        return "a task has a single query, which does not show how far a score is off"
    if found.refusal is Refusal.SAME_SCORES:
        return "all its checkpoints score the same"
    if found.refusal is Refusal.TOO_FAR:
        ahead = round(reach(course.steps))
        return f"its test looks {ahead:,} steps ahead, and {course.more_steps:,} were asked for"
    if found.refusal is Refusal.MISSED:
        return f"the curve through its other checkpoints missed the {course.tested_words}"
    if found.refusal is Refusal.TURNS:
        return f"its scores turn near step {_step_at(course, found.turn):,}"
    return "no saturating curve fits its scores"


def _step_at(course: CourseForecast, place: float | None) -> int:
    """Return the step of a checkpoint from its place on the curve."""
    if place is None:
        return course.steps[-1]
    return course.steps[course.forecast.places.index(place)]


def _row(course: CourseForecast) -> dict[str, object]:
    """Return a row of the table."""
    found = course.forecast
    scores = ""
    if found.refusal is not None:
        gain = Cell("not said", _SHORT_REASONS[found.refusal])
    else:
        gain = number(found.gain, "+.3f", interval=found.interval)
        low, high = found.score_interval or (0.0, 0.0)
        scores = f"{number_text(low)} to {number_text(high)}"
    return {
        "task": (course.task, course.metric),
        "training": (course.training, plural(len(course.steps), "checkpoint")),
        "last step": (found.scores[-1], f"step {course.steps[-1]:,}"),
        "further": course.further,
        "gain\n95 % interval": gain,
        "test": _test_words(course),
        "a checkpoint there\nwould score": scores,
    }


def _test_words(course: CourseForecast) -> Cell:
    """Say how the test on the last checkpoints went."""
    found = course.forecast
    if found.p_value_of_test is None:
        return Cell("–")
    verdict = "missed" if found.p_value_of_test < TEST_ALPHA else "foreseen"
    return Cell(verdict, course.tested_words)


def _draw(courses: Sequence[CourseForecast], width: float) -> MplFigure:
    """Draw a panel per course."""
    from matplotlib.ticker import EngFormatter

    figure, axes, _ = panels(len(courses), width, height=2.3)
    artists_by_label: dict[str, Artist] = {}
    for axis, course in zip(axes, courses, strict=True):
        artists_by_label |= _draw_course(axis, course)
        axis.set(title=plain(f"{course.training}: {course.where}"), ylabel=course.metric)
        axis.set_xlabel("training tokens" if course.is_in_tokens else "training step")
        axis.xaxis.set_major_formatter(EngFormatter() if course.is_in_tokens else "{x:,.0f}")
        axis.locator_params(axis="x", nbins=3)  # room for long numbers
        grid(axis, which="y")
    figure.legend(
        artists_by_label.values(),
        artists_by_label,
        loc="outside lower center",
        ncols=4 if is_wide(width) else 2,
    )
    return figure


def _draw_course(axis: Axes, course: CourseForecast) -> dict[str, Artist]:
    """Draw the checkpoints, those that tested, and the curve with its band; return the legend."""
    found = course.forecast
    seen = len(found.places) - len(found.tested)
    (points,) = axis.plot(found.places[:seen], found.scores[:seen], "o", color=GREY, ms=4)
    artists: dict[str, Artist] = {"checkpoint": points}
    for checkpoint in found.tested:
        axis.plot([checkpoint.place] * 2, checkpoint.interval, color=GREY, lw=1)
    (tests,) = axis.plot(
        found.places[seen:], found.scores[seen:], "s", color=GREY, markerfacecolor="none", ms=5
    )
    artists["tested the curve"] = tests
    if not found.is_stated or course.band is None:
        return artists
    places = course.band.places
    lows, highs = zip(*course.band.intervals, strict=True)
    artists["95 % band"] = axis.fill_between(
        places, lows, highs, color=ACCENT, alpha=0.18, linewidth=0
    )
    (curve,) = axis.plot(places, course.band.curve, color=ACCENT, lw=1.6)
    artists["best curve"] = curve
    axis.axvline(found.places[-1], color=GREY, lw=0.8, ls=":")
    return artists


def training_forecasts(
    trajectories: Sequence[Trajectory],
    *,
    more_steps: int = 0,
) -> TrainingForecasts:
    """Forecast each training on each task, and on the mean of its tasks.

    The mean is over the tasks of one metric, that of most tasks, at the steps that all of them
    have. The axis is in tokens where every checkpoint states how many it had read.

    Args:
        trajectories: scores by step; trainings with one step are left out.
        more_steps: how far to look ahead; by default about a tenth of each training.

    Raises:
        ValueError: a negative number of steps.
    """
    if more_steps < 0:
        raise ValueError(f"more_steps: expected 0 or more; got {more_steps}")
    by_training: dict[tuple[str, int], list[Trajectory]] = {}
    for trajectory in trajectories:
        for seed, by_step in trajectory.scores.items():
            if len(by_step) > 1:
                by_training.setdefault((trajectory.training, seed), []).append(trajectory)
    names = names_by_seed(trajectories)
    courses = []
    records: list[Result] = []
    for (training, seed), on_tasks in by_training.items():
        courses += _courses(names[training, seed], seed, on_tasks, more_steps)
        for trajectory in on_tasks:
            records += trajectory.records[seed].values()
    return TrainingForecasts(tuple(courses), DataUsed.of(records))


def _courses(
    name: str, seed: int, on_tasks: Sequence[Trajectory], more_steps: int
) -> list[CourseForecast]:
    """Return the forecast on the mean of a training's tasks, if there are several, and on each."""
    groups = [[trajectory] for trajectory in on_tasks]
    averaged = _of_commonest_metric(on_tasks)
    if len(averaged) > 1:
        groups.insert(0, averaged)
    courses = []
    for group in groups:
        course = _course(name, seed, group, more_steps)
        if course is not None:
            courses.append(course)
    return courses


def _of_commonest_metric(on_tasks: Sequence[Trajectory]) -> list[Trajectory]:
    """Return the tasks of the metric that most have; unlike metrics have no mean."""
    ((metric, _),) = Counter(trajectory.metric for trajectory in on_tasks).most_common(1)
    return [trajectory for trajectory in on_tasks if trajectory.metric == metric]


def _course(
    name: str, seed: int, group: Sequence[Trajectory], more_steps: int
) -> CourseForecast | None:
    """Return the forecast on the mean of some tasks; None without two common steps."""
    scores_by_task = [trajectory.scores[seed] for trajectory in group]
    steps = common_steps(scores_by_task)
    if len(steps) < 2:
        return None
    matrices: list[ScoreMatrix] = []
    for trajectory, by_step in zip(group, scores_by_task, strict=True):
        columns = {f"step {step}": by_step[step] for step in steps}
        matrix = join(
            columns,
            task=trajectory.task,
            metric=trajectory.metric,
            clusters=trajectory.clusters,
        )
        matrices.append(matrix)
    records = {step: group[0].records[seed][step] for step in steps}
    tokens = tokens_by_step(records)
    places = [float(step) for step in steps]
    more_steps = more_steps or round(round_distance(steps)) or 1
    more = float(more_steps)
    if tokens is not None:
        places = [float(tokens[step]) for step in steps]
        # At the rate of the last interval.
        more *= (places[-1] - places[-2]) / (steps[-1] - steps[-2])
    found = forecast(matrices, places, more=more)
    drawn: Band | None = None
    if found.interval is not None:
        drawn = band(matrices, places, more=more)
    return CourseForecast(
        training=name,
        tasks=tuple(trajectory.task for trajectory in group),
        metric=group[0].metric,
        steps=tuple(steps),
        more_steps=more_steps,
        is_in_tokens=tokens is not None,
        forecast=found,
        band=drawn,
    )
