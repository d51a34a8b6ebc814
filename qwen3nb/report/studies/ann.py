"""Tables and figures of approximate search and compressed vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    Procedure,
    paired_difference,
)
from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.metrics.intervals import interval_words, no_worse
from qwen3nb.report.render import table
from qwen3nb.report.render.differences import difference_cell
from qwen3nb.report.render.figure import COLORS, GREY, Axes, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.table import Cell, Conclusion, Table
from qwen3nb.utils.format import number_text

if TYPE_CHECKING:
    from qwen3nb.evaluation.retrieval.ann import AnnPoint, AnnSuite

_MARKERS = "os^DvP"
_ENOUGH = 0.95  # recall of an index that replaces exact search
_MARGIN = Procedure().minimum  # a loss that matters, as on the pages of comparisons


def _mean_of(values: Mapping[str, float]) -> Aggregate:
    """Mean over queries with its interval."""
    return aggregate({"value": values}, how="mean", columns=("value",))


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The Pareto frontier of (recall, queries per second) points, by increasing recall.

    A point is dominated by one that is at least as good in both and better in one.

    >>> frontier([(0.9, 10), (0.8, 5), (0.5, 20), (1.0, 1)])
    [(0.5, 20), (0.9, 10), (1.0, 1)]
    """
    kept: list[tuple[float, float]] = []
    for recall, speed in sorted(set(points), reverse=True):
        if not kept or speed > kept[-1][1]:
            kept.append((recall, speed))
    return kept[::-1]


def _recall_and_speed(point: AnnPoint, which: int = 0) -> tuple[float, float]:
    return fmean(point.recall.values()), point.speeds[which].qps


def ann_table(suite: AnnSuite) -> Table:
    """A row per index and setting; those on the frontier at the first thread count are bold."""
    best = set(frontier([_recall_and_speed(point) for point in suite.points]))
    singles = min(s.singles for point in suite.points for s in point.speeds)
    threads = table.plural(suite.points[0].speeds[0].threads, "thread")
    return Table.of(
        (_row(point, suite, _recall_and_speed(point) in best) for point in suite.points),
        note=f"{suite.label} on {suite.task}: {suite.documents:,} documents, {suite.queries:,} "
        f"queries, {suite.dimension} dimensions, {suite.similarity}. Recall counts documents at "
        "least as near as the k-th true neighbour. Timed after a warm-up, with at least "
        f"{singles} single queries each; queries/s with all queries in one batch. MiB: size of the "
        f"serialised index. Intervals: 95 %, {interval_words(['widened'])}, over queries. Bold: "
        f"no other index is both faster ({threads}, batch) and better.",
        name="ann",
        caption=f"Every index and setting: recall@{suite.k}, speed, size, and nDCG@10 with its "
        f"paired difference from exact search over n = {suite.queries:,} queries.",
        data=suite.data,
    )


def _row(point: AnnPoint, suite: AnnSuite, best: bool) -> dict[str, Any]:
    where = "" if point.device == "cpu" else f", {point.device}"
    made = f"{point.made}{where}" if point.made.lower() != point.name else ""
    speeds: dict[str, Any] = {}
    for speed in point.speeds:
        on = table.plural(speed.threads, "thread")
        speeds[f"single query, ms\n{on}: median, 95 %"] = (f"{speed.p50:.3f}", f"{speed.p95:.3f}")
        bold = best and speed is point.speeds[0]
        speeds[f"queries/s\n{on}"] = Cell(f"{speed.qps:,.0f}", strong=bold)
    change = _effect(_paired(suite, point.ndcg, suite.exact))
    return {
        "index": (point.name, made),
        f"recall@{suite.k}": table.number(_mean_of(point.recall), strong=best),
        **speeds,
        "build s\n1 thread": f"{point.build_seconds:.2g}",
        "MiB": f"{point.size / 2**20:.2f}",
        "nDCG@10\nΔ to exact": (f"{fmean(point.ndcg.values()):.3f}", change),
    }


def _paired(
    suite: AnnSuite, ours: Mapping[str, float], theirs: Mapping[str, float]
) -> PairedDifference:
    columns = {"ours": ours, "theirs": theirs}
    return paired_difference(
        columns, task=suite.task, metric="nDCG@10", clusters=suite.clusters, seed=0
    )


def _effect(paired: PairedDifference) -> str:
    return f"{number_text(paired.difference, sign=True)} {paired.interval_text}"


def ann_figure(suite: AnnSuite) -> Figure:
    """Recall against queries per second, one panel per number of threads, with the frontier."""

    def draw(width: float) -> MplFigure:
        count = len(suite.points[0].speeds)
        # Height for the labels of each row, and for the legend.
        height = 2.3 + 0.45 / (1 if width > 5 else count)
        figure, axes, _ = panels(count, width, height=height, most=count, sharex=True, sharey=True)
        for which, axis in enumerate(axes):
            _panel(axis, suite, which)
            axis.set_ylabel("queries per second, one batch")
            axis.label_outer()
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4 if width > 5 else 2)
        return figure

    best = frontier([_recall_and_speed(point) for point in suite.points])
    summary = "; ".join(f"recall {recall:.3f} at {speed:,.0f} queries/s" for recall, speed in best)
    return Figure(
        name=f"ann-{suite.task}",
        draw=draw,
        caption=f"{suite.label} on {suite.task}, {suite.documents:,} documents: recall@{suite.k}, "
        f"mean over n = {suite.queries:,} queries, against the throughput of one batch. Up and "
        "right is better; for points on the grey line, no other index is both faster and better. "
        f"Pale bars: 95 % intervals ({interval_words(['widened'])}) of the recall over queries.",
        alt=f"Recall against queries per second of approximate indexes. Frontier: {summary}.",
        data=suite.data,
    )


def _panel(axis: Axes, suite: AnnSuite, which: int) -> None:
    recalls, speeds = zip(
        *frontier([_recall_and_speed(p, which) for p in suite.points]), strict=True
    )
    # The marker makes a frontier of a single point visible.
    wide: dict[str, Any] = {"linewidth": 5, "markersize": 9, "markeredgewidth": 0, "alpha": 0.3}
    axis.plot(recalls, speeds, "o-", color=GREY, label="frontier", **wide)
    for index, family in enumerate(dict.fromkeys(point.family for point in suite.points)):
        points = [point for point in suite.points if point.family == family]
        recalls, speeds = zip(*(_recall_and_speed(point, which) for point in points), strict=True)
        color, marker = COLORS[index % len(COLORS)], _MARKERS[index % len(_MARKERS)]
        name = plain(f"{family} ({points[0].parameter})" if points[0].parameter else family)
        axis.plot(recalls, speeds, c=color, marker=marker, ms=4.5, lw=1, label=name)
        for point, speed in zip(points, speeds, strict=True):
            mean = _mean_of(point.recall)
            if mean.low is not None and mean.high is not None:
                axis.plot([mean.low, mean.high], [speed] * 2, color=color, lw=1.2, alpha=0.45)
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axis.set_xlabel(f"recall@{suite.k}")
    axis.set_title(table.plural(suite.points[0].speeds[which].threads, "thread"))
    grid(axis, which="both")


def compression_table(suite: AnnSuite) -> Table:
    """A row per number of dimensions, a column per kind: the loss in nDCG@10."""
    full, rows = suite.compressed[0], dict[int, dict[str, Any]]()
    for each in suite.compressed:
        lost = _paired(suite, each.ndcg, full.ndcg)
        bits = table.plural(8 * each.size // each.dimension, "bit")
        row = rows.setdefault(each.dimension, {"dimensions": each.dimension})
        row[f"{each.kind}\n{bits} per dimension"] = (
            Cell(f"{fmean(full.ndcg.values()):.3f}", "itself", strong=True)
            if each is full
            else difference_cell(lost)
        )
    heads = list(dict.fromkeys(head for row in rows.values() for head in row))
    return Table.of(
        ([row.get(head) for head in heads] for row in rows.values()),
        heads,
        note=f"{suite.label} on {suite.task}, n = {suite.queries} queries; exact search. Vectors "
        "are truncated to their first dimensions and, for cosine similarity, normalised again; a "
        "model not trained for this loses more. int8: documents in 255 steps per dimension. "
        f"Intervals: 95 %, {interval_words(['widened'])}, of the paired difference over queries.",
        name="compression",
        caption="Fewer dimensions and fewer bits: nDCG@10 of the full vectors by exact search, and "
        f"the paired difference of all others from it over n = {suite.queries:,} queries.",
        data=suite.data,
    )


def ann_conclusion(suite: AnnSuite) -> Conclusion:
    """Compare the fastest good index with exact search; name the smallest good vectors."""
    text = f"On {suite.documents:,} documents of {table.short_task(suite.task)}, "
    exact = next((each for each in suite.points if each.family == "flat"), None)
    others = (each for each in suite.points if each is not exact)
    if good := [each for each in others if fmean(each.recall.values()) >= _ENOUGH]:
        best = max(good, key=lambda each: each.speeds[0].qps)
        against = f", exact search {exact.speeds[0].qps:,.0f}" if exact else ""
        text += (
            f"the fastest index with a recall@{suite.k} of {_ENOUGH:g} or more is {best.name}: it "
            f"answers {best.speeds[0].qps:,.0f} queries/s{against}, with nDCG@10 "
            f"{_effect(_paired(suite, best.ndcg, suite.exact))} to exact search."
        )
    else:
        text += f"no approximate index reaches a recall@{suite.k} of {_ENOUGH:g}."
    return Conclusion(f"{text} {_smallest(suite)}", data=suite.data)


def _smallest(suite: AnnSuite) -> str:
    """Name the smallest vectors that are shown to lose less than the margin.

    The fewer queries, the wider the interval, and the more vectors are not shown to.
    """
    full, *compressed = suite.compressed
    losses = [(each, _paired(suite, each.ndcg, full.ndcg)) for each in compressed]
    shown = [(each, loss) for each, loss in losses if no_worse(loss.interval, _MARGIN)]
    if not shown:
        return (
            f"No smaller vectors are shown to lose less than {_MARGIN:g} in nDCG@10 (n = "
            f"{suite.queries}); whole ones take {full.size:,} bytes per document."
        )
    smallest, loss = min(shown, key=lambda pair: pair[0].size)
    return (
        f"The smallest vectors that are shown to lose less than {_MARGIN:g} in nDCG@10 take "
        f"{smallest.size:,} bytes per document ({smallest.kind} of {smallest.dimension} "
        f"dimensions: {_effect(loss)}, n = {suite.queries}); whole ones take {full.size:,}."
    )
