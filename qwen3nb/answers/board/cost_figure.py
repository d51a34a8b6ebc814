"""Quality against cost: the score of each model against its speed, or its size.

Speed is shown if at least as many models have it as have a size: seconds per thousand texts, as
measured on one device. Texts from a cache were not timed, and a fusion costs what its parts do.
"""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qwen3nb.answers.board.grid import Grid
from qwen3nb.answers.board.models import facts_by_model, kind_of
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import ACCENT, QUIET, Axes, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.labels import PointLabel, place_labels
from qwen3nb.report.render.table import plural
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.format import number_text

_THOUSAND = 1000
_ALL_NAMED = 12  # with more models, only those of the front and the best are named


@dataclass(frozen=True)
class CostPoint:
    """One model: what it scores, and what it costs."""

    model: str
    score: float
    cost: float  # 0 for a model without parameters
    is_best: bool  # whether it is first, or not told apart from the first


@dataclass(frozen=True)
class CostMeasure:
    """What is shown as cost."""

    label: str  # of the axis
    words: str  # in the caption
    by_model: Mapping[str, float]  # by identity


def cost_figure(
    scores: Mapping[str, float],
    models: Grid,
    *,
    best: Iterable[str],
    title: str,
    data: DataUsed,
) -> Figure | None:
    """Draw the score of each model against its cost; None if fewer than two have both.

    Args:
        scores: on one task or mean, by identity.
        models: all models, with their records.
        best: names of the first model and of those not told apart from it.
        title: of the task or mean.
        data: that of the scores.
    """
    measure = _measure(scores, models)
    names_of_best = set(best)
    points = [
        CostPoint(
            models.names[identity],
            score,
            measure.by_model[identity],
            models.names[identity] in names_of_best,
        )
        for identity, score in scores.items()
        if identity in models.names and identity in measure.by_model
    ]
    if len(points) < 2:
        return None
    words = "; ".join(f"{point.model} {number_text(point.score, digits=2)}" for point in points)
    without_cost = len(scores) - len(points)
    not_drawn = f" Not drawn: {plural(without_cost, 'model')} without it." if without_cost else ""
    return Figure(
        name="cost",
        draw=functools.partial(_draw, points, measure.label, title),
        caption=f"{title} against {measure.words}. Blue: first, or not shown "
        f"to differ from it. Line: no model is both cheaper and better.{not_drawn}",
        alt=f"Scores against {measure.words}. {words}.",
        data=data,
    )


def front(points: Iterable[CostPoint]) -> list[CostPoint]:
    """Return the points that no other one beats in cost and score, the cheapest first.

    >>> cheap, worse = CostPoint("cheap", 0.5, 1, False), CostPoint("worse", 0.4, 2, False)
    >>> best = CostPoint("best", 0.9, 9, True)
    >>> [point.model for point in front([best, worse, cheap])]
    ['cheap', 'best']
    """
    on_front: list[CostPoint] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.score)):
        if not on_front or point.score > on_front[-1].score:
            on_front.append(point)
    return on_front


def _measure(scores: Mapping[str, float], models: Grid) -> CostMeasure:
    """Return the cost that most models have: their speed, or their size."""
    speed = seconds_per_thousand(models)
    facts = facts_by_model(models.records)
    size = {
        identity: float(known.parameters)
        for identity, known in facts.items()
        if known.parameters is not None
    }
    if len(speed.keys() & scores.keys()) >= len(size.keys() & scores.keys()):
        return CostMeasure("seconds per 1,000 texts", "seconds per 1,000 texts", speed)
    return CostMeasure("parameters", "the number of parameters", size)


def seconds_per_thousand(models: Grid) -> dict[str, float]:
    """Return the seconds that models take for a thousand texts, by identity.

    Only those on the device of most models: seconds of different devices do not compare.
    """
    timed: dict[str, Result] = {}
    for identity, by_task in models.records.items():
        record = _timed_record(by_task.values())
        if record is not None:
            timed[identity] = record
    devices = Counter(record.environment.device for record in timed.values())
    seconds = {}
    for identity, record in timed.items():
        speed = record.cost.texts_per_second
        if speed and record.environment.device == devices.most_common(1)[0][0]:
            seconds[identity] = _THOUSAND / speed
    for identity in models.records:
        of_fusion = _seconds_of_fusion(models.example(identity), seconds)
        if of_fusion is not None:
            seconds[identity] = of_fusion
    return seconds


def _timed_record(records: Iterable[Result]) -> Result | None:
    """Return the record with most texts among those that were encoded without a cache."""
    timed = [
        record
        for record in records
        if record.cost.texts_per_second and not record.cost.cached and kind_of(record) != "fusion"
    ]
    return max(timed, key=lambda record: record.cost.encoded, default=None)


def _seconds_of_fusion(record: Result, seconds: Mapping[str, float]) -> float | None:
    """Return the sum over the parts of a fusion; None for another model, or without a part."""
    if kind_of(record) != "fusion":
        return None
    total = 0.0
    for settings in record.model.settings.get("of", ()):
        part = sha256_json(settings)
        if part not in seconds:
            return None
        total += seconds[part]
    return total


def _draw(points: Sequence[CostPoint], label: str, title: str, width: float) -> MplFigure:
    figure, (axis,), _ = panels(1, width, height=3.4)
    floor = _place_of_none(points)
    places = {point.model: point.cost or floor for point in points}
    corners = _corners(front(points), places)
    axis.plot(*zip(*corners, strict=True), color=ACCENT, linewidth=1, alpha=0.6)
    for point in points:
        color = ACCENT if point.is_best else QUIET
        axis.plot(places[point.model], point.score, "o", color=color, markersize=6)
    axis.set_xlabel(label)
    axis.set_ylabel(f"score: {plain(title)}")
    _set_limits(axis, [point.score for point in points], list(places.values()))
    _set_ticks(axis, [point.cost for point in points], floor)
    grid(axis, which="both")
    place_labels(
        axis,
        _labels(points, places),
        points=[(places[point.model], point.score) for point in points],
        steps=corners,
    )
    return figure


def _set_limits(axis: Axes, scores: Sequence[float], places: Sequence[float]) -> None:
    """Leave room for the names beside the outermost points."""
    axis.set_xscale("log")
    lowest = min(0.0, *scores)
    height = max(scores) - lowest or 1.0  # all scores may be 0
    axis.set_ylim(lowest - 0.06 * height, max(scores) + 0.12 * height)
    margin = _margin(min(places), max(places))
    axis.set_xlim(min(places) / margin, max(places) * margin**2)


def _margin(left: float, right: float) -> float:
    """Return the factor that leaves room beside the outermost points."""
    return max(1.4, (right / left) ** 0.12)


def _place_of_none(points: Sequence[CostPoint]) -> float:
    """Return where models without parameters stand: a decade left of all others."""
    costs = [point.cost for point in points if point.cost > 0]
    return min(costs, default=1.0) / 10


def _corners(
    on_front: Sequence[CostPoint], places: Mapping[str, float]
) -> list[tuple[float, float]]:
    """Return the corners of the line below which every model is beaten."""
    corners: list[tuple[float, float]] = []
    for point in on_front:
        place = places[point.model]
        if corners:
            corners.append((place, corners[-1][1]))
        corners.append((place, point.score))
    return corners


def _set_ticks(axis: Axes, costs: Sequence[float], floor: float) -> None:
    """Name round costs, and the place of models without parameters, the ``floor``."""
    measured = [cost for cost in costs if cost > 0]
    if not measured:
        return
    ticks = round_numbers(min(measured), max(measured))
    names = [_count_text(tick) for tick in ticks]
    if len(measured) < len(costs):
        ticks = [floor, *ticks]
        names = ["none", *names]
    axis.set_xticks(ticks, names)
    axis.minorticks_off()


def round_numbers(low: float, high: float) -> list[float]:
    """Return the powers of ten from ``low`` to ``high``; fewer than two need 2 and 5 as well.

    >>> round_numbers(0.9e6, 23e6), round_numbers(3, 9), round_numbers(7, 7)
    ([1000000.0, 10000000.0], [2.0, 5.0, 10.0], [5.0, 10.0])
    """
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
    powers = [10.0**power for power in range(first, last + 1)]
    inside = [power for power in powers if low <= power <= high]
    if len(inside) > 1:
        return inside
    numbers = [factor * power for power in powers for factor in (1, 2, 5)]
    below = [number for number in numbers if number <= low]
    above = [number for number in numbers if number >= high]
    return [number for number in numbers if below[-1] <= number <= above[0]]


def _count_text(count: float) -> str:
    """Return a round number, of parameters or of seconds.

    >>> _count_text(1e6), _count_text(1e9), _count_text(1e5), _count_text(0.5)
    ('1 M', '1 B', '0.1 M', '0.5')
    """
    if count >= 1e9:
        return f"{count / 1e9:g} B"
    if count >= 1e5:
        return f"{count / 1e6:g} M"
    return f"{count:,g}"


def _labels(points: Sequence[CostPoint], places: Mapping[str, float]) -> list[PointLabel]:
    named = list(points)
    if len(points) > _ALL_NAMED:
        on_front = front(points)
        named = [point for point in points if point.is_best or point in on_front]
    labels = []
    for point in sorted(named, key=lambda point: -point.score):
        text = plain(point.model, longest=32)
        labels.append(PointLabel(text, places[point.model], point.score, strong=point.is_best))
    return labels
