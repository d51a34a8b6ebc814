"""Figures of reranking: gains per query, and calibration of P(yes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import COLORS, GREY, SMALL, Figure, grid, plain
from qwen3nb.report.render.format import short_task
from qwen3nb.report.studies.reranking import METRIC, Reranked, probability, reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

__all__ = ["calibration_figure", "gain_figure"]

# Log-odds above which P(yes) rounds to 1, from half the spacing of numbers below 1.
_FULL = {"bfloat16": np.log(2.0**9 - 1), "float32": np.log(2.0**25 - 1)}
Floats = NDArray[np.float64]


def gain_figure(results: Sequence[Result]) -> Figure:
    """Sorted gains of all queries, one panel per data set."""
    summary = "; ".join(f"{_name(each)}: {_counts(each)}" for each in results)
    return Figure(
        name="gains",
        draw=lambda width: _panels(results, width),
        caption=f"Gain of reranking in {METRIC}, one bar per query, sorted. {summary}. The mean "
        "gain, its interval and its test are in the table above.",
        alt=f"Sorted gains per query. {summary}.",
    )


def _name(result: Result) -> str:
    return short_task(str(result.config["collection"]))


def _gains(result: Result) -> Floats:
    return np.sort(np.array(list(result.per_query[f"gain {METRIC}"].values())))[::-1]


def _counts(result: Result) -> str:
    gains = _gains(result)
    won, lost = int((gains > 0).sum()), int((gains < 0).sum())
    return f"{won} won, {len(gains) - won - lost} tied, {lost} lost of n = {len(gains)}"


def _panels(results: Sequence[Result], width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    columns = min(3, len(results))
    lines = -(-len(results) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(width, 2.2 * lines), sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    panels = list(axes.flat)
    for axis, result in zip(panels, results, strict=False):
        gains = _gains(result)
        positions = np.arange(1, len(gains) + 1)
        for inside, color in ((gains > 0, COLORS[0]), (gains < 0, COLORS[1])):
            axis.bar(positions[inside], gains[inside], width=1.0, color=color)
        axis.axhline(0, color=GREY, linewidth=0.8)
        axis.set_title(plain(_name(result), most=40))
        axis.set_xlabel(plain(_counts(result).partition(" of ")[0]))
        axis.set_xlim(0, len(gains) + 1)
    for axis in panels[len(results) :]:
        axis.remove()
    for line in axes:
        line[0].set_ylabel(f"gain in {METRIC}")
    return figure


def calibration_figure(pages: Sequence[Reranked]) -> Figure:
    """Reliability diagram of P(yes) and histograms of log-odds, one row per data set."""
    pairs = [(short_task(page.name), *page.pairs()) for page in pages]
    summary = "; ".join(
        f"{name}: n = {len(labels):,} pairs, {int(labels.sum()):,} relevant"
        for name, _, labels in pairs
    )
    return Figure(
        name="calibration",
        draw=lambda width: _calibration(pairs, width),
        caption=f"{summary}. Left: share of relevant pairs per bin of P(yes) with its 95 % "
        "Wilson interval; the diagonal is perfect calibration. Right: log-odds of relevant pairs "
        "and of others; beyond a dashed line, P(yes) is exactly 0 or 1 in that precision, which "
        "causes ties.",
        alt=f"Reliability of P(yes), and two histograms of log-odds. {summary}.",
    )


def _calibration(pairs: Sequence[tuple[str, Floats, NDArray[np.bool_]]], width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(pairs), 2, figsize=(width, 2.5 * len(pairs)), squeeze=False, layout="constrained"
    )
    for (left, right), (name, scores, labels) in zip(axes, pairs, strict=True):
        _reliability(left, probability(scores), labels)
        _spread(right, scores, labels)
        left.set_title(plain(name, most=40))
    return figure


def _reliability(axis: Axes, chance: Floats, labels: NDArray[np.bool_]) -> None:
    from scipy.stats import binomtest

    axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    bins = reliability(chance, labels)
    for mean, share, count in bins:
        ends = binomtest(round(share * count), count).proportion_ci(method="wilson")
        axis.plot([mean, mean], [ends.low, ends.high], color=COLORS[0], linewidth=1.4)
        axis.annotate(
            f"{count:,}", (mean, ends.high), xytext=(0, 3), textcoords="offset points",
            fontsize=SMALL, ha="center",
        )  # fmt: skip
    axis.plot([each[0] for each in bins], [each[1] for each in bins], "o-", color=COLORS[0],
              markersize=4, linewidth=1)  # fmt: skip
    axis.set_xlabel("mean P(yes) of the bin, labelled with its pairs")
    axis.set_ylabel("share of relevant pairs")
    axis.set_xlim(-0.05, 1.05)
    axis.set_ylim(-0.05, 1.15)
    grid(axis, which="both")


def _spread(axis: Axes, scores: Floats, labels: NDArray[np.bool_]) -> None:
    edges = np.linspace(scores.min(), scores.max() + 1e-9, 41).tolist()
    kinds = ((~labels, "not relevant", COLORS[1]), (labels, "relevant", COLORS[0]))
    for inside, name, color in kinds:
        axis.hist(
            scores[inside], bins=edges, density=True, histtype="stepfilled", alpha=0.5,
            color=color, label=f"{name}, {inside.sum():,}",
        )  # fmt: skip
    for end in _FULL.values():
        for edge in (-end, end):
            if scores.min() < edge < scores.max():
                axis.axvline(edge, color=GREY, linewidth=0.8, linestyle="--")
    axis.set_xlabel("log-odds of yes")
    axis.set_ylabel("density")
    axis.legend()
