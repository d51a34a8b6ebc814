"""How much quality does faster or smaller search cost? Approximate indexes, compressed vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Unpack

from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    Procedure,
    paired_difference,
)
from qwen3nb.answers.answer import Answer
from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.metrics.intervals import interval_words, no_worse
from qwen3nb.records.data_used import DataUsed
from qwen3nb.report.render.differences import difference_cell
from qwen3nb.report.render.figure import COLORS, GREY, Axes, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural, short_task
from qwen3nb.utils.format import number_text
from qwen3nb.utils.imports import DataFrame

if TYPE_CHECKING:
    from qwen3nb.evaluation.retrieval.ann import AnnOptions, AnnPoint, AnnSuite, Compressed
    from qwen3nb.models.encoders.base import Encoder
    from qwen3nb.models.model import Model

_MARKERS = "os^DvP"
_GOOD_RECALL = 0.95  # of an index that replaces exact search
_MARGIN = Procedure().margin  # a loss that matters, as on the pages of comparisons
_METRIC = "nDCG@10"


@dataclass(frozen=True, repr=False)
class ApproximateSearch(Answer):
    """The quality, speed and size of every index and compression of a model's vectors."""

    suite: AnnSuite  # what was measured

    @property
    def data(self) -> DataUsed:
        """The data of the task."""
        return self.suite.data

    @property
    def conclusion(self) -> Conclusion:
        """The fastest good index compared with exact search, and the smallest good vectors."""
        return Conclusion(f"{self._fastest_index()} {self._smallest_vectors()}", data=self.data)

    def _fastest_index(self) -> str:
        """Name the fastest index with a good recall."""
        suite = self.suite
        # A flat index compares with every vector: exact search.
        exact = next((point for point in suite.points if point.family == "flat"), None)
        good = [
            point for point in suite.points if point is not exact and _recall(point) >= _GOOD_RECALL
        ]
        where = f"On {suite.documents:,} documents of {short_task(suite.task)}"
        if not good:
            return f"{where}, no approximate index reaches a recall@{suite.k} of {_GOOD_RECALL:g}."
        fastest = max(good, key=_queries_per_second)
        speed = f"{_queries_per_second(fastest):,.0f} queries per second"
        if exact is not None:
            speed += f", exact search {_queries_per_second(exact):,.0f}"
        change = self._difference(fastest.ndcg, suite.exact).difference
        return (
            f"{where}, {fastest.name} is the fastest index with a recall@{suite.k} of "
            f"{_GOOD_RECALL:g}. It answers {speed}; {_METRIC} changes by "
            f"{number_text(change, sign=True)}."
        )

    def _smallest_vectors(self) -> str:
        """Name the smallest vectors that are shown to lose less than the margin.

        The fewer queries, the wider the interval, and the more vectors are not shown to.
        """
        full = self.suite.compressed[0]  # the uncompressed vectors
        good = []
        for vectors in self.suite.compressed[1:]:
            loss = self._difference(vectors.ndcg, full.ndcg)
            if no_worse(loss.interval, _MARGIN):
                good.append(vectors)
        if not good:
            return (
                f"No smaller vectors are shown to lose less than {_MARGIN:g} in {_METRIC}; whole "
                f"ones take {full.size:,} bytes per document."
            )
        smallest = min(good, key=lambda vectors: vectors.size)
        return (
            f"The smallest vectors shown to lose less than {_MARGIN:g} take "
            f"{smallest.size:,} bytes per document ({smallest.kind}, {smallest.dimension} "
            f"dimensions); whole ones take {full.size:,}."
        )

    def _difference(
        self, scores: Mapping[str, float], reference: Mapping[str, float]
    ) -> PairedDifference:
        return paired_difference(
            {"scores": scores, "reference": reference},
            task=self.suite.task,
            metric=_METRIC,
            clusters=self.suite.clusters,
            seed=0,
        )

    def table(self) -> Table:
        """A row per index and setting; those on the frontier at the first thread count are bold."""
        suite = self.suite
        best = frontier([_recall_and_speed(point) for point in suite.points])
        rows = []
        # Queries were timed one by one (singles), and all in one batch.
        numbers_of_singles = []
        for point in suite.points:
            rows.append(self._row(point, is_best=_recall_and_speed(point) in best))
            numbers_of_singles += [speed.singles for speed in point.speeds]
        fewest_timed = min(numbers_of_singles)
        threads = plural(suite.points[0].speeds[0].threads, "thread")
        return Table.of(
            rows,
            note=f"{suite.label} on {suite.task}: {suite.documents:,} documents, "
            f"{suite.queries:,} queries, {suite.dimension} dimensions, {suite.similarity}. Bold: "
            f"no other index is both faster ({threads}, batch) and better.",
            method="Recall counts documents at least as near as the k-th true neighbour. Timed "
            f"after a warm-up, with at least {fewest_timed} single queries each; queries/s with "
            "all queries in one batch. MiB: size of the serialised index. Intervals: 95 %, "
            f"{interval_words(['widened'])}, over queries.",
            name="ann",
            caption=f"Every index and setting: recall@{suite.k}, speed, size, and {_METRIC} with "
            f"its paired difference from exact search over n = {suite.queries:,} queries.",
            data=self.data,
        )

    def _row(self, point: AnnPoint, *, is_best: bool) -> dict[str, object]:
        """Return a row of the table of indexes."""
        # A pair is a cell with a second line.
        row: dict[str, object] = {
            "index": (point.name, _details(point)),
            f"recall@{self.suite.k}": number(_mean(point.recall), strong=is_best),
        }
        for index, speed in enumerate(point.speeds):
            threads = plural(speed.threads, "thread")
            latency = (f"{speed.p50:.3f}", f"{speed.p95:.3f}")
            # The best indexes are the best with the first number of threads.
            is_bold = is_best and index == 0
            row[f"single query, ms\n{threads}: median, 95 %"] = latency
            row[f"queries/s\n{threads}"] = Cell(f"{speed.qps:,.0f}", strong=is_bold)
        mebibytes = point.size / 2**20
        ndcg = fmean(point.ndcg.values())
        loss = _effect_text(self._difference(point.ndcg, self.suite.exact))
        row["build s\n1 thread"] = f"{point.build_seconds:.2g}"
        row["MiB"] = f"{mebibytes:.2f}"
        row[f"{_METRIC}\nΔ to exact"] = (f"{ndcg:.3f}", loss)
        return row

    def figure(self) -> Figure:
        """Recall against queries per second, a panel per number of threads, with the frontier."""
        suite = self.suite
        best = frontier([_recall_and_speed(point) for point in suite.points])
        points_of_frontier = [
            f"recall {recall:.3f} at {speed:,.0f} queries/s" for recall, speed in best
        ]
        return Figure(
            name=f"ann-{suite.task}",
            draw=self._draw,
            caption=f"{suite.label} on {suite.task}, {suite.documents:,} documents: "
            f"recall@{suite.k} over n = {suite.queries:,} queries, and speed in one batch. Up and "
            "right is better; on the grey line, no other index is both. Pale bars: 95 % "
            "intervals.",
            alt="Recall against queries per second of approximate indexes. Frontier: "
            f"{'; '.join(points_of_frontier)}.",
            data=self.data,
        )

    def _draw(self, width: float) -> MplFigure:
        """Draw a panel per number of threads, in a row if the figure is wide."""
        panel_count = len(self.suite.points[0].speeds)
        is_wide = width > 5
        rows = 1 if is_wide else panel_count
        # The legend, 0.45 inches high, is shared by the rows of panels, each 2.3 inches.
        height_of_legend = 0.45 / rows
        figure, axes, _ = panels(
            panel_count,
            width,
            height=2.3 + height_of_legend,
            per_line=panel_count,
            sharex=True,
            sharey=True,
        )
        for panel, axis in enumerate(axes):
            self._draw_panel(axis, panel)
            axis.set_ylabel("queries per second, one batch")
            axis.label_outer()
        handles, labels = axes[0].get_legend_handles_labels()
        columns = 4 if is_wide else 2
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)
        return figure

    def _draw_panel(self, axis: Axes, thread_index: int) -> None:
        """Draw recall and speed with the number of threads at this index."""
        points = self.suite.points
        best = frontier([_recall_and_speed(point, thread_index) for point in points])
        axis.plot(
            [recall for recall, _ in best],
            [speed for _, speed in best],
            "o-",  # the marker makes a frontier of a single point visible
            color=GREY,
            label="frontier",
            linewidth=5,
            markersize=9,
            markeredgewidth=0,
            alpha=0.3,
        )
        families = dict.fromkeys(point.family for point in points)
        styles = zip(cycle(COLORS), cycle(_MARKERS), strict=False)
        for family, (color, marker) in zip(families, styles, strict=False):
            of_family = [point for point in points if point.family == family]
            _draw_family(axis, of_family, thread_index, color=color, marker=marker)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(_speed_label)
        axis.yaxis.set_minor_formatter(_speed_label_between)
        axis.set_xlabel(f"recall@{self.suite.k}")
        axis.set_title(plural(points[0].speeds[thread_index].threads, "thread"))
        grid(axis, which="both")

    def compression(self) -> Table:
        """A row per number of dimensions, a column per kind: the loss in nDCG@10."""
        suite = self.suite
        heads = ["dimensions"]
        rows: dict[int, dict[str, object]] = {}
        for vectors in suite.compressed:
            # A size is in bytes.
            bits = plural(8 * vectors.size // vectors.dimension, "bit")
            head = f"{vectors.kind}\n{bits} per dimension"
            if head not in heads:
                heads.append(head)
            row = rows.setdefault(vectors.dimension, {"dimensions": vectors.dimension})
            row[head] = self._loss_cell(vectors)
        return Table.of(
            [[row.get(head) for head in heads] for row in rows.values()],
            heads,
            note=f"{suite.label} on {suite.task}, n = {suite.queries} queries; exact search. A "
            "model that was not trained for fewer dimensions loses more.",
            method="Vectors are truncated to their first dimensions and, for cosine similarity, "
            "normalised again. int8: documents in 255 steps per dimension. Intervals: 95 %, "
            f"{interval_words(['widened'])}, of the paired difference over queries.",
            name="compression",
            caption=f"Fewer dimensions and fewer bits: {_METRIC} of the full vectors by exact "
            "search, and the paired difference of all others from it over n = "
            f"{suite.queries:,} queries.",
            data=self.data,
        )

    def _loss_cell(self, vectors: Compressed) -> Cell:
        """Return the difference from the full vectors, which come first."""
        full = self.suite.compressed[0]
        if vectors is full:
            return Cell(f"{fmean(full.ndcg.values()):.3f}", "itself", strong=True)
        return difference_cell(self._difference(vectors.ndcg, full.ndcg))

    def to_frame(self) -> DataFrame:
        """Return a row per query: the recall of each index and setting."""
        import pandas as pd

        return pd.DataFrame({point.name: point.recall for point in self.suite.points})


def ann(model: Model | Encoder | Path | str, **options: Unpack[AnnOptions]) -> ApproximateSearch:
    """Measure every index at every setting, and every compression, on a retrieval task.

    Args:
        model: the model, its encoder, or its spec.
        options: as in `qwen3nb.evaluation.retrieval.ann.ann_suite`: ``task``, ``indexes``,
            ``grids``, ``dimensions``, ``k``, ``threads``, ``seed`` and ``device``.

    Raises:
        ValueError: unknown index or parameter, or a value out of range.
        DataError: the task cannot be used.
    """
    from qwen3nb.evaluation.retrieval.ann import ann_suite
    from qwen3nb.models.load import loaded

    return ApproximateSearch(ann_suite(loaded(model), **options))


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The Pareto frontier of (recall, queries per second) points, by increasing recall.

    A point is dominated by one that is at least as good in both and better in one.

    >>> frontier([(0.9, 10), (0.8, 5), (0.5, 20), (1.0, 1)])
    [(0.5, 20), (0.9, 10), (1.0, 1)]
    """
    best: list[tuple[float, float]] = []
    fastest = -math.inf
    # From the best recall down, only a faster point is not dominated.
    for recall, speed in sorted(set(points), reverse=True):
        if speed > fastest:
            best.append((recall, speed))
            fastest = speed
    best.reverse()
    return best


def _mean(scores: Mapping[str, float]) -> Aggregate:
    """Mean over queries with its interval."""
    return aggregate({"value": scores}, how="mean", columns=("value",))


def _recall(point: AnnPoint) -> float:
    return fmean(point.recall.values())


def _queries_per_second(point: AnnPoint, thread_index: int = 0) -> float:
    """Return the throughput with the number of threads at this index."""
    return point.speeds[thread_index].qps


def _recall_and_speed(point: AnnPoint, thread_index: int = 0) -> tuple[float, float]:
    return _recall(point), _queries_per_second(point, thread_index)


def _details(point: AnnPoint) -> str:
    """Return how an index was made, with its device, unless its name says it."""
    if point.made.lower() == point.name:
        return ""
    if point.made and point.device != "cpu":
        return f"{point.made}, {point.device}"
    return point.made


def _effect_text(difference: PairedDifference) -> str:
    return f"{number_text(difference.difference, sign=True)} {difference.interval_text}"


def _speed_label(value: float, _: float) -> str:
    """Return the label of a tick on the axis of speeds."""
    if value >= 1:
        return f"{value:,.0f}"
    return f"{value:g}"


def _speed_label_between(speed: float, position: float = 0) -> str:
    """Label 2 and 5 times a power of ten; other ticks between powers have no label."""
    leading_digit = f"{speed:e}"[0]
    if leading_digit in "25":
        return _speed_label(speed, position)
    return ""


def _draw_family(
    axis: Axes, points: Sequence[AnnPoint], thread_index: int, *, color: str, marker: str
) -> None:
    """Draw the settings of one kind of index, with the intervals of their recall."""
    recalls = [_recall(point) for point in points]
    speeds = [_queries_per_second(point, thread_index) for point in points]
    name = points[0].family
    if points[0].parameter:
        name = f"{name} ({points[0].parameter})"
    axis.plot(recalls, speeds, c=color, marker=marker, ms=4.5, lw=1, label=plain(name))
    for point, speed in zip(points, speeds, strict=True):
        # A horizontal bar: the interval of the recall.
        mean_recall = _mean(point.recall)
        low, high = mean_recall.low, mean_recall.high
        if low is not None and high is not None:
            axis.plot([low, high], [speed, speed], color=color, lw=1.2, alpha=0.45)
