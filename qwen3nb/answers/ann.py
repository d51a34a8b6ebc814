"""How much quality does faster or smaller search cost? Approximate indexes, compressed vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Unpack

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
        task = short_task(self.suite.task)
        text = (
            f"On {self.suite.documents:,} documents of {task}, {self._fastest_index()} "
            f"{self._smallest_vectors()}"
        )
        return Conclusion(text, data=self.data)

    def _fastest_index(self) -> str:
        """Name the fastest index with a good recall."""
        suite = self.suite
        exact = None
        approximate = []
        for point in suite.points:
            if point.family == "flat" and exact is None:
                exact = point
            elif _recall(point) >= _GOOD_RECALL:
                approximate.append(point)
        if not approximate:
            return f"no approximate index reaches a recall@{suite.k} of {_GOOD_RECALL:g}."
        fastest = max(approximate, key=lambda point: point.speeds[0].qps)
        speed = f"{fastest.speeds[0].qps:,.0f} queries/s"
        if exact is not None:
            speed += f", exact search {exact.speeds[0].qps:,.0f}"
        loss = _effect_text(self._difference(fastest.ndcg, suite.exact))
        return (
            f"the fastest index with a recall@{suite.k} of {_GOOD_RECALL:g} or more is "
            f"{fastest.name}: it answers {speed}, with {_METRIC} {loss} to exact search."
        )

    def _smallest_vectors(self) -> str:
        """Name the smallest vectors that are shown to lose less than the margin.

        The fewer queries, the wider the interval, and the more vectors are not shown to.
        """
        full, *compressed = self.suite.compressed
        sample = f"n = {self.suite.queries}"
        good = []
        for vectors in compressed:
            loss = self._difference(vectors.ndcg, full.ndcg)
            if no_worse(loss.interval, _MARGIN):
                good.append((vectors, loss))
        if not good:
            return (
                f"No smaller vectors are shown to lose less than {_MARGIN:g} in {_METRIC} "
                f"({sample}); whole ones take {full.size:,} bytes per document."
            )
        smallest, loss = min(good, key=lambda pair: pair[0].size)
        return (
            f"The smallest vectors that are shown to lose less than {_MARGIN:g} in {_METRIC} take "
            f"{smallest.size:,} bytes per document ({smallest.kind} of {smallest.dimension} "
            f"dimensions: {_effect_text(loss)}, {sample}); whole ones take {full.size:,}."
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
        best = set(frontier([_recall_and_speed(point) for point in suite.points]))
        calls = min(speed.singles for point in suite.points for speed in point.speeds)
        threads = plural(suite.points[0].speeds[0].threads, "thread")
        return Table.of(
            [self._row(point, is_best=_recall_and_speed(point) in best) for point in suite.points],
            note=f"{suite.label} on {suite.task}: {suite.documents:,} documents, "
            f"{suite.queries:,} queries, {suite.dimension} dimensions, {suite.similarity}. Recall "
            "counts documents at least as near as the k-th true neighbour. Timed after a warm-up, "
            f"with at least {calls} single queries each; queries/s with all queries in one batch. "
            f"MiB: size of the serialised index. Intervals: 95 %, {interval_words(['widened'])}, "
            f"over queries. Bold: no other index is both faster ({threads}, batch) and better.",
            name="ann",
            caption=f"Every index and setting: recall@{suite.k}, speed, size, and {_METRIC} with "
            f"its paired difference from exact search over n = {suite.queries:,} queries.",
            data=self.data,
        )

    def _row(self, point: AnnPoint, *, is_best: bool) -> dict[str, Any]:
        """Return a row of the table of indexes."""
        details = point.made if point.made.lower() != point.name else ""
        if details and point.device != "cpu":
            details = f"{details}, {point.device}"
        row: dict[str, Any] = {
            "index": (point.name, details),
            f"recall@{self.suite.k}": number(_mean(point.recall), strong=is_best),
        }
        for speed in point.speeds:
            threads = plural(speed.threads, "thread")
            latency = (f"{speed.p50:.3f}", f"{speed.p95:.3f}")
            row[f"single query, ms\n{threads}: median, 95 %"] = latency
            is_bold = is_best and speed is point.speeds[0]
            row[f"queries/s\n{threads}"] = Cell(f"{speed.qps:,.0f}", strong=is_bold)
        change = _effect_text(self._difference(point.ndcg, self.suite.exact))
        row["build s\n1 thread"] = f"{point.build_seconds:.2g}"
        row["MiB"] = f"{point.size / 2**20:.2f}"
        row[f"{_METRIC}\nΔ to exact"] = (f"{fmean(point.ndcg.values()):.3f}", change)
        return row

    def figure(self) -> Figure:
        """Recall against queries per second, a panel per number of threads, with the frontier."""
        suite = self.suite

        def draw(width: float) -> MplFigure:
            count = len(suite.points[0].speeds)
            is_wide = width > 5
            # Height for the labels of each row, and for the legend.
            height = 2.3 + 0.45 / (1 if is_wide else count)
            figure, axes, _ = panels(
                count, width, height=height, per_line=count, sharex=True, sharey=True
            )
            for index, axis in enumerate(axes):
                self._draw_panel(axis, index)
                axis.set_ylabel("queries per second, one batch")
                axis.label_outer()
            handles, labels = axes[0].get_legend_handles_labels()
            columns = 4 if is_wide else 2
            figure.legend(handles, labels, loc="outside lower center", ncols=columns)
            return figure

        words = [
            f"recall {recall:.3f} at {speed:,.0f} queries/s"
            for recall, speed in frontier([_recall_and_speed(point) for point in suite.points])
        ]
        return Figure(
            name=f"ann-{suite.task}",
            draw=draw,
            caption=f"{suite.label} on {suite.task}, {suite.documents:,} documents: "
            f"recall@{suite.k}, mean over n = {suite.queries:,} queries, against the throughput of "
            "one batch. Up and right is better; for points on the grey line, no other index is "
            f"both faster and better. Pale bars: 95 % intervals ({interval_words(['widened'])}) of "
            "the recall over queries.",
            alt="Recall against queries per second of approximate indexes. Frontier: "
            f"{'; '.join(words)}.",
            data=self.data,
        )

    def _draw_panel(self, axis: Axes, threads: int) -> None:
        """Draw recall and speed with the number of threads at this index."""
        suite = self.suite
        best = frontier([_recall_and_speed(point, threads) for point in suite.points])
        recalls, speeds = zip(*best, strict=True)
        # The marker makes a frontier of a single point visible.
        wide: dict[str, Any] = {"linewidth": 5, "markersize": 9, "markeredgewidth": 0, "alpha": 0.3}
        axis.plot(recalls, speeds, "o-", color=GREY, label="frontier", **wide)
        for index, family in enumerate(dict.fromkeys(point.family for point in suite.points)):
            points = [point for point in suite.points if point.family == family]
            color, marker = COLORS[index % len(COLORS)], _MARKERS[index % len(_MARKERS)]
            _draw_family(axis, points, threads, color=color, marker=marker)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(_speed_label)
        axis.set_xlabel(f"recall@{suite.k}")
        axis.set_title(plural(suite.points[0].speeds[threads].threads, "thread"))
        grid(axis, which="both")

    def compression(self) -> Table:
        """A row per number of dimensions, a column per kind: the loss in nDCG@10."""
        suite, full = self.suite, self.suite.compressed[0]
        rows: dict[int, dict[str, Any]] = {}
        for vectors in suite.compressed:
            row = rows.setdefault(vectors.dimension, {"dimensions": vectors.dimension})
            bits = plural(8 * vectors.size // vectors.dimension, "bit")
            row[f"{vectors.kind}\n{bits} per dimension"] = self._loss_cell(vectors, full)
        heads = list(dict.fromkeys(head for row in rows.values() for head in row))
        return Table.of(
            [[row.get(head) for head in heads] for row in rows.values()],
            heads,
            note=f"{suite.label} on {suite.task}, n = {suite.queries} queries; exact search. "
            "Vectors are truncated to their first dimensions and, for cosine similarity, "
            "normalised again; a model not trained for this loses more. int8: documents in 255 "
            f"steps per dimension. Intervals: 95 %, {interval_words(['widened'])}, of the paired "
            "difference over queries.",
            name="compression",
            caption=f"Fewer dimensions and fewer bits: {_METRIC} of the full vectors by exact "
            "search, and the paired difference of all others from it over n = "
            f"{suite.queries:,} queries.",
            data=self.data,
        )

    def _loss_cell(self, vectors: Compressed, full: Compressed) -> Cell:
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
        options: those of `qwen3nb.evaluation.retrieval.ann.ann_suite`: ``task``, ``indexes``,
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
    for recall, speed in sorted(set(points), reverse=True):
        if not best or speed > best[-1][1]:
            best.append((recall, speed))
    return best[::-1]


def _mean(scores: Mapping[str, float]) -> Aggregate:
    """Mean over queries with its interval."""
    return aggregate({"value": scores}, how="mean", columns=("value",))


def _recall(point: AnnPoint) -> float:
    return fmean(point.recall.values())


def _recall_and_speed(point: AnnPoint, threads: int = 0) -> tuple[float, float]:
    return _recall(point), point.speeds[threads].qps


def _effect_text(difference: PairedDifference) -> str:
    return f"{number_text(difference.difference, sign=True)} {difference.interval_text}"


def _speed_label(value: float, _: float) -> str:
    """Return the label of a tick on the axis of speeds."""
    if value >= 1:
        return f"{value:,.0f}"
    return f"{value:g}"


def _draw_family(
    axis: Axes, points: Sequence[AnnPoint], threads: int, *, color: str, marker: str
) -> None:
    """Draw the settings of one kind of index, with the intervals of their recall."""
    recalls, speeds = zip(*(_recall_and_speed(point, threads) for point in points), strict=True)
    name = points[0].family
    if points[0].parameter:
        name = f"{name} ({points[0].parameter})"
    axis.plot(recalls, speeds, c=color, marker=marker, ms=4.5, lw=1, label=plain(name))
    for point, speed in zip(points, speeds, strict=True):
        mean = _mean(point.recall)
        if mean.low is not None and mean.high is not None:
            axis.plot([mean.low, mean.high], [speed, speed], color=color, lw=1.2, alpha=0.45)
