"""What each training changed, from its first step to its last, as a table and in words."""

from __future__ import annotations

from collections.abc import Sequence

from qwen3nb.analysis.comparison.differences import ALPHA, significant
from qwen3nb.analysis.training.courses import Course
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.table import Table
from qwen3nb.report.training.tables import Trainings
from qwen3nb.utils.format import interval_text, number_text, p_value_text

__all__ = ["gains_table", "training_conclusion"]

_MOST = 3  # trainings in the conclusion
_COURSE = {
    "rising": ", rising at every checkpoint",
    "falling": ", falling at every checkpoint",
    "uneven": ", with ups and downs on the way",
    "": "",
}


def gains_table(trainings: Trainings) -> Table:
    """A row per task and training: the last step against the first, tested."""
    courses = trainings.courses
    rows = tuple(_row(each) for each in courses)
    note = (
        f"95 % intervals ({interval_words(['paired'])}) and two-sided paired permutation tests "
        f"over the queries, p by Holm over these {len(rows)}; p < {ALPHA:g}, and an "
        "interval that leaves out 0, in bold. First and "
        "last are not selected by score, so the difference is not biased; training again gives "
        "another model, which a single training cannot show."
    )
    return Table(
        (
            "task", "training", "first step", "last step", "last − first\n95 % interval",
            "p\nHolm", "queries",
        ),
        rows,
        note if rows else "No training has two or more evaluated steps with scores per query.",
        name="gains",
        caption="What each training changed: its last step against its first, on the same queries.",
    )  # fmt: skip


def _row(each: Course) -> tuple[Cell, ...]:
    change = each.gain
    return (
        Cell(short_task(each.task), each.metric),
        Cell(each.name),
        Cell(number_text(change.first_mean), f"step {change.first}", value=change.first_mean),
        Cell(number_text(change.last_mean), f"step {change.last}", value=change.last_mean),
        Cell(
            number_text(change.difference, sign=True),
            interval_text(change.interval, absent="no interval"),
            value=change.difference,
            interval=change.interval,
        ),
        Cell(p_value_text(change.p_value), strong=_is_shown(each), value=change.p_value),
        Cell(str(change.n), value=change.n),
    )


def training_conclusion(trainings: Trainings) -> Conclusion:
    """Say what each training changed on the first task, and whether one checkpoint is the best."""
    courses = trainings.courses
    if not courses:
        return Conclusion(
            "No training has two evaluated checkpoints with scores per query, so nothing can be "
            "said about its course: extract and evaluate several checkpoints of one training."
        )
    own = [each for each in courses if each.task == courses[0].task]
    sentences = [_change(each, courses) + " " + _best(each) for each in own[:_MOST]]
    if len(own) > _MOST:
        sentences.append(f"{len(own) - _MOST} more trainings are in the tables.")
    return Conclusion(" ".join(sentences))


def _change(each: Course, courses: Sequence[Course]) -> str:
    """What one training changed on its task, and on which others."""
    change = each.gain
    of = f"{each.metric} on {short_task(each.task)}"
    numbers = (
        f"{_signed(change.difference)}{_ends(change.interval)}, "
        f"p {p_value_text(change.p_value, relation=True)}"
    )
    start = f"{number_text(change.first_mean)} at step {change.first}"
    end = f"{number_text(change.last_mean)} at step {change.last}"
    if _is_shown(each):
        verb = "raised" if change.difference > 0 else "lowered"
        text = f"Training {each.name} {verb} {of} from {start} to {end} ({numbers})"
    else:
        text = f"Training {each.name} shows no effect on {of}: {start}, {end} ({numbers})"
    return text + _COURSE[change.course] + _elsewhere(each, courses) + "."


def _elsewhere(each: Course, courses: Sequence[Course]) -> str:
    """Return the other tasks on which the training shows an effect."""
    others = [c for c in courses if c.name == each.name and c.task != each.task and _is_shown(c)]
    if not others:
        return ""
    named = [f"{short_task(c.task)} by {_signed(c.gain.difference)}" for c in others]
    return f"; it also changed {' and '.join(named)}"


def _best(each: Course) -> str:
    """Say which step is the best, and whether that is more than noise."""
    best = each.best
    above = (
        f"{_signed(best.difference or 0.0)}{_ends(best.interval)} above step {best.next_step}, "
        f"the next best"
    )
    p = f"p {p_value_text(best.p_value, relation=True)}"
    if best.separable:
        return f"Step {best.step} scores best, and that is more than noise: {above} ({p})."
    return f"Step {best.step} scores best, but that is not more than noise: {above} ({p})."


def _is_shown(course: Course) -> bool:
    """Whether the last step differs significantly from the first."""
    return significant(course.gain.p_value, course.gain.interval)


def _signed(value: float) -> str:
    return number_text(value, sign=True)


def _ends(interval: tuple[float, float] | None) -> str:
    return f" {interval_text(interval)}" if interval else ""
