"""Should one model replace another, and what does the change take? Rehearsed on own data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.analysis.comparison.differences import PairedDifference, paired_difference
from qwen3nb.analysis.migration.mixed_index import Strategy
from qwen3nb.analysis.migration.relation import Relation
from qwen3nb.analysis.migration.thresholds import CarriedThreshold
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.candidate_rules import NothingFoundError
from qwen3nb.answers.candidates import compare_candidates
from qwen3nb.answers.decision import NO_VERDICT, Decision
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.paths import given_file
from qwen3nb.records.data_used import DataUsed
from qwen3nb.report.render.differences import difference_cell
from qwen3nb.report.render.figure import COLORS, GREY, Axes, Figure, MplFigure, grid, plain
from qwen3nb.report.render.table import Cell, Conclusion, Table, cut, number
from qwen3nb.utils.imports import DataFrame

if TYPE_CHECKING:
    from qwen3nb.evaluation.migration.maps import MappedSearch
    from qwen3nb.evaluation.migration.mixed import MixedPoint
    from qwen3nb.evaluation.migration.rehearse import Rehearsal
    from qwen3nb.evaluation.migration.sides import Side
    from qwen3nb.models.capabilities import LoadedModel
    from qwen3nb.models.model import Model
    from qwen3nb.models.options import OptionArguments

_METRIC = "nDCG@10"
_MOST_CHANGED = 6  # queries that are listed
_MOST_NAMED = 2  # documents of a query that left or came
_LONGEST_TEXT = 60  # characters of a document
_LONGEST_QUERY = 90
_ENOUGH = 0.01  # of overlap: a learning curve has ended when more documents add less
_ROUNDING = 1e-9
_MARKERS = "os^Dv"
_FEWEST_OF_UNIT = 1.5  # hours, below which a duration is in minutes; likewise others
# How a sentence says the ways to search a mixed index.
_PHRASES = {
    Strategy.OLD_QUERIES: "searching all by old queries",
    Strategy.NEW_QUERIES: "searching all by new queries",
    Strategy.RAW: "searching each part and merging by score",
    Strategy.NORMALISED: "searching each part and merging by normalised score",
    Strategy.RANKS: "searching each part and merging by rank",
}
_SIZES = ((4, "float32"), (2, "float16"), (1, "int8"))  # bytes per dimension


@dataclass(frozen=True, repr=False)
class Migration(Answer):
    """What changes on own documents and queries if one model replaces another."""

    rehearsal: Rehearsal
    documents_total: int  # of the whole collection, for hours and bytes
    alpha: float = 0.05
    margin: float = 0.05
    seed: int = 0

    @property
    def old(self) -> Side:
        """The model in use."""
        return self.rehearsal.old

    @property
    def new(self) -> Side:
        """Its successor."""
        return self.rehearsal.new

    @property
    def data(self) -> DataUsed:
        """The data of the scores."""
        return DataUsed.of(self.rehearsal.records)

    @cached_property
    def decision(self) -> Decision | None:
        """The house's decision between both models; None without grades or records."""
        records = self.rehearsal.records
        if len(records) < 2:
            return None
        try:
            compared = compare_candidates(
                records,
                current=self.old.label,
                task=records[0].task.key,
                alpha=self.alpha,
                margin=self.margin,
                seed=self.seed,
            )
        except NothingFoundError:
            return None
        return compared.decision

    @property
    def is_recommended(self) -> bool:
        """Whether the new model is shown to be better by more than the margin, on real queries."""
        if self.decision is None or self.rehearsal.data.is_generated:
            return False
        return self.decision.use == self.new.label

    @property
    def conclusion(self) -> Conclusion:
        """Whether to migrate, and what a map or encoding anew would take."""
        sentences = [self._first_sentence(), self._second_sentence()]
        text = " ".join(sentence for sentence in sentences if sentence)
        return Conclusion(text, data=self.data, strong=(self.old.label, self.new.label))

    def _first_sentence(self) -> str:
        """Return the decision with its reason."""
        old, new = self.old.label, self.new.label
        if self.rehearsal.is_same_model:
            return f"Nothing to migrate: {old} and {new} are the same model."
        if self.rehearsal.relation is Relation.RESCALED:
            return (
                f"Nothing to migrate by cosine: {old} and {new} give vectors that differ in length "
                "alone."
            )
        if self.rehearsal.relation is Relation.SAME:
            return f"Nothing to migrate: {old} and {new} give the same vectors."
        if not self.rehearsal.is_graded:
            return f"Not yet: {self._ungraded_words()}."
        decision = self.decision
        if decision is None or decision.outcome == NO_VERDICT:
            return "Not yet: documents that nobody has judged, or found, could turn the verdict."
        old_mean, new_mean = self._means(decision.best)
        scores = f"{decision.best.metric} {new_mean:.3f} against {old_mean:.3f}"
        if self.rehearsal.data.is_generated:
            return f"Not yet: {self._generated_words()}; on these, {new} has {scores}."
        evidence = f"{scores}, over {decision.best.n} queries"
        if self.is_recommended:
            return f"Migrate: {new} is better than {old}, {evidence}."
        if decision.best.significant(self.alpha) and decision.best.difference < 0:
            return f"Not yet: {new} is worse than {old}, {evidence}."
        return f"Not yet: {new} is not shown to be better by more than {self.margin:g}, {evidence}."

    def _means(self, best: PairedDifference) -> tuple[float, float]:
        """Return the means of the old and the new model of the deciding difference."""
        candidate_mean, current_mean = best.means
        return current_mean, candidate_mean

    def _ungraded_words(self) -> str:
        """Say what is known without grades, and how to get some."""
        depth = _depth_of_words(self.rehearsal.overlaps)
        share = fmean(self.rehearsal.overlaps[depth].values())
        text = (
            "without grades (`qwen3nb judge`) only rankings can be compared, which share "
            f"{share:.2f} of the first {depth} documents"
        )
        if self.rehearsal.data.is_generated:
            text += f"; {self._generated_words()}"
        return text

    def _second_sentence(self) -> str:
        """Say what would do instead of encoding all documents anew, and how long that takes."""
        relation = self.rehearsal.relation
        if self.rehearsal.is_same_model or relation is Relation.SAME:
            return ""
        if relation is Relation.RESCALED:
            return "A search by dot products ranks otherwise, as longer vectors win there."
        if relation is Relation.OLD_IS_PREFIX:
            return (
                f"The old vectors are the first {self.old.costs.dimension} dimensions of the new "
                f"ones: one new index serves both; {self._hours_words(lower=True)}."
            )
        if relation is Relation.NEW_IS_PREFIX:
            return (
                f"No re-encoding needed: its vectors are the first {self.new.costs.dimension} "
                f"dimensions of {self.old.label}'s, so cut the stored ones."
            )
        best = self.best_map
        if relation is Relation.ROTATED and best is not None:
            return (
                "The vectors are a rotation of each other: no re-encoding needed, apply this map "
                f"(error {best.document_error:.0e} on documents it has not seen)."
            )
        if best is None:
            return f"{self._hours_words()}."
        if not best.is_trusted:
            return f"{self._untrusted_words(best)} {self._hours_words()}."
        return f"A linear map would keep {self._kept_words(best)}; {self._hours_words(lower=True)}."

    def _untrusted_words(self, best: MappedSearch) -> str:
        return (
            f"A linear map cannot be trusted: {best.fitted:,} documents for {best.dimension:,} "
            "dimensions fit by chance."
        )

    def _kept_words(self, best: MappedSearch) -> str:
        """Return what a map keeps: of nDCG, or without grades of the first ten documents."""
        new_scores = self.rehearsal.ndcg["new"]
        if best.ndcg and fmean(new_scores.values()) > 0:
            share = fmean(best.ndcg.values()) / fmean(new_scores.values())
            kept = f"{share:.2f} of the new model's {_METRIC}"
            old_mean = fmean(self.rehearsal.ndcg["old"].values())
            if fmean(best.ndcg.values()) < old_mean - _ROUNDING:
                kept += ", less than the old one has"
            return kept
        return f"{fmean(best.overlap.values()):.2f} of the new model's first ten documents"

    def _hours_words(self, *, lower: bool = False) -> str:
        seconds = self.new.costs.seconds
        start = "re-encoding" if lower else "Re-encoding"
        if seconds is None:
            return f"{start} was not timed here"
        duration = long_duration_text(seconds * self.documents_total)
        return f"{start} {self.documents_total:,} documents takes {duration}"

    @property
    def best_map(self) -> MappedSearch | None:
        """The map of documents with the smallest error on those that it has not seen."""
        from qwen3nb.evaluation.migration.rehearse import best_document_map

        return best_document_map(self.rehearsal.maps)

    def table(self) -> Table:
        """How alike the rankings are: a row per depth, and rank-biased overlap."""
        rows = []
        for depth, by_query in self.rehearsal.overlaps.items():
            rows.append(_distribution_row(f"overlap@{depth}", by_query))
        rows.append(_distribution_row("rank-biased overlap", self.rehearsal.rank_biased))
        return Table.of(
            rows,
            name="migration-overlap",
            caption=f"How alike {self.old.label} and {self.new.label} rank the documents.",
            note=f"{self._data_words()} 1: the same documents, 0: none in common.",
            method="overlap@k: share of the first k documents that both have. Rank-biased overlap: "
            "(1 − p) Σ p^(d−1) X(d)/d, extrapolated, with X(d) documents among the first d of "
            "both and p = 0.9 (Webber, Moffat and Zobel 2010, eq. 32). Intervals: 95 %, "
            f"{interval_words(['widened'])}, over queries. Compared by cosine, "
            "as on all own data.",
            data=self.data,
        )

    def _generated_words(self) -> str:
        data = self.rehearsal.data
        return f"{data.generated:,} of {len(data.queries):,} queries are generated"

    def _data_words(self) -> str:
        data = self.rehearsal.data
        noun = "query" if len(data.queries) == 1 else "queries"
        text = f"{len(data.queries):,} {noun}, {len(data.documents):,} documents."
        if data.is_generated:
            text += f" {self._generated_words()}."
        for side in (self.old, self.new):
            if side.cut:
                text += f" {side.label} reads only the beginning of {side.cut:,} documents."
        return text

    def changes_table(self) -> Table | None:
        """The queries whose rankings change most, with what left and what came."""
        rows = []
        order = sorted(self.rehearsal.rank_biased.items(), key=lambda item: (item[1], item[0]))
        for query, overlap in order[:_MOST_CHANGED]:
            if overlap < 1 - _ROUNDING:
                rows.append(self._change_row(query, overlap))
        if not rows:
            return None
        return Table.of(
            rows,
            kind="words",
            name="migration-changes",
            caption="The queries whose first documents change most.",
            note="Left and came: of the first ten documents, best first.",
            data=self.data,
        )

    def _change_row(self, query: str, overlap: float) -> dict[str, object]:
        row_number = list(self.rehearsal.data.queries).index(query)
        old_ids = [int(number) for number in self.old.ranking[row_number, :10] if number >= 0]
        new_ids = [int(number) for number in self.new.ranking[row_number, :10] if number >= 0]
        row: dict[str, object] = {
            "query": cut(self.rehearsal.data.queries[query], _LONGEST_QUERY),
            "rank-biased\noverlap": number(overlap, ".2f"),
        }
        scores = self.rehearsal.ndcg
        if query in scores["old"] and query in scores["new"]:
            old_score, new_score = scores["old"][query], scores["new"][query]
            row[f"{_METRIC}\nold → new"] = Cell(
                f"{old_score:.2f} → {new_score:.2f}", value=new_score - old_score
            )
        row["left"] = self._documents_text([number for number in old_ids if number not in new_ids])
        row["came"] = self._documents_text([number for number in new_ids if number not in old_ids])
        return row

    def _documents_text(self, positions: Sequence[int]) -> str:
        data = self.rehearsal.data
        texts = []
        for position in positions[:_MOST_NAMED]:
            name = data.names[position]
            texts.append(f"{cut(name, 40)}: {cut(data.documents[name], _LONGEST_TEXT)}")
        if len(positions) > _MOST_NAMED:
            texts.append(f"{len(positions) - _MOST_NAMED} more")
        return "; ".join(texts)

    def scores_table(self) -> Table | None:
        """The scores of both models with their paired difference; None without grades."""
        if self.decision is None:
            return None
        best = self.decision.best
        old_mean, new_mean = self._means(best)
        row = {
            "metric": best.metric,
            self.old.label: number(old_mean),
            self.new.label: number(new_mean),
            "difference": difference_cell(best),
            "better": best.won,
            "worse": best.lost,
        }
        return Table.of(
            [row],
            name="migration-scores",
            caption="Both models on the graded queries.",
            note=f"n = {best.n} queries, {best.method}. {self.decision.title}.",
            method=self.decision.reason + ".",
            data=self.data,
        )

    def thresholds_table(self) -> Table | None:
        """The thresholds that stand for those of the old model; None without any."""
        rows = [self._threshold_row(value) for value in self.rehearsal.thresholds]
        if not rows:
            return None
        return Table.of(
            rows,
            name="migration-thresholds",
            caption=f"Thresholds of {self.old.label} carried over to {self.new.label}.",
            note="Change sides: results that are no longer shown, and others in their place.",
            method="Same number: quantiles of all similarities of queries and documents; the "
            "interval has the thresholds whose number of results per query does not differ by a "
            "paired t-test at 5 %. Same precision: the lowest threshold with the share of "
            "relevant results of the old one; documents without a grade count as not relevant; "
            "its interval is a percentile bootstrap over queries.",
            data=self.data,
        )

    def _threshold_row(self, value: CarriedThreshold) -> dict[str, object]:
        row: dict[str, object] = {
            "old threshold": f"{value.old:g}",
            "results": value.results,
            "if it stays:\nresults": value.results_unchanged,
        }
        if value.new is None:
            reason = "no results" if value.results == 0 else "too many results"
            row["new threshold,\nsame number"] = Cell("–", detail=reason)
            row["change\nsides"] = "–"
        else:
            row["new threshold,\nsame number"] = number(value.new, interval=value.interval)
            row["change\nsides"] = value.left + value.came
        if self.rehearsal.is_graded:
            row["precision"] = "–"
            row["new threshold,\nsame precision"] = "–"
            if value.by_precision is not None:
                found = value.by_precision
                row["precision"] = number(found.precision)
                row["new threshold,\nsame precision"] = number(found.new, interval=found.interval)
        return row

    @property
    def mixed_conclusion(self) -> Conclusion | None:
        """How search does while half of the documents are encoded anew."""
        if not self.rehearsal.mixed:
            return None
        measure = _METRIC if self.rehearsal.is_graded else "overlap@10 with the new model"
        worst_by_strategy = {}
        for strategy, points in self._mixed_by_strategy.items():
            worst_by_strategy[strategy] = min(point.mean for point in points)
        best = max(worst_by_strategy, key=lambda strategy: worst_by_strategy[strategy])
        text = (
            f"While documents are encoded anew, {_PHRASES[best]} does best: {measure} falls no "
            f"lower than {worst_by_strategy[best]:.3f}."
        )
        if self.rehearsal.is_graded:
            old_mean = fmean(self.rehearsal.ndcg["old"].values())
            text += f" A second, complete index keeps the old {old_mean:.3f} until the switch"
        else:
            text += " A second, complete index keeps the old rankings until the switch"
        size = self.new.costs.bytes(self.documents_total)
        return Conclusion(f"{text}; it takes {size_text(size)} more.", data=self.data)

    @property
    def _mixed_by_strategy(self) -> dict[Strategy, list[MixedPoint]]:
        """The points of each way to search a mixed index."""
        points_by_strategy: dict[Strategy, list[MixedPoint]] = {}
        for point in self.rehearsal.mixed:
            points_by_strategy.setdefault(point.strategy, []).append(point)
        return points_by_strategy

    def mixed_table(self) -> Table | None:
        """A row per way to search a mixed index, a column per share of new vectors."""
        if not self.rehearsal.mixed:
            return None
        rows = []
        for strategy, of_strategy in self._mixed_by_strategy.items():
            row: dict[str, object] = {"search": strategy.value}
            for point in of_strategy:
                spread = f"{min(point.draws):.3f} to {max(point.draws):.3f}"
                row[f"{point.share:.0%} new"] = number(point.mean, detail=spread)
            lowest = min(of_strategy, key=lambda point: point.mean)
            if self.rehearsal.is_graded:
                row["lowest,\nΔ to old"] = difference_cell(self._from(lowest.by_query, "old"))
            rows.append(row)
        measure = _METRIC if self.rehearsal.is_graded else "Overlap@10 with the new model"
        draws = len(self.rehearsal.mixed[0].draws)
        note = f"Second line: lowest and highest of {draws} random orders."
        if Strategy.OLD_QUERIES not in self._mixed_by_strategy:
            note += " Vectors of different lengths: each part needs its own query vector."
        return Table.of(
            rows,
            name="migration-mixed",
            caption=f"{measure} while a share of the documents has new vectors.",
            note=note,
            method="Each part is searched by its own query vector, and the lists are merged. "
            "Normalised: standard deviations from the mean of the query's scores over all "
            "documents of that model. By rank: 1 / (60 + rank). Δ: paired over queries, mean of "
            f"the orders. Intervals: 95 %, {interval_words(['paired'])}.",
            data=self.data,
        )

    def figure(self) -> Figure | None:
        """The quality of a mixed index against the share of new vectors."""
        points = self.rehearsal.mixed
        if not points:
            return None
        measure = _METRIC if self.rehearsal.is_graded else "overlap@10 with the new model"
        values = [
            f"{point.strategy.value}, {point.share:.0%} new: {point.mean:.3f}" for point in points
        ]
        return Figure(
            name="migration-mixed",
            draw=self._draw,
            caption=f"{measure} while documents are encoded anew, over "
            f"n = {len(self.rehearsal.data.queries):,} queries. Bands: lowest and highest of "
            f"{len(points[0].draws)} random orders.",
            alt=f"{measure} of a mixed index by share of new vectors. {'; '.join(values)}.",
            data=self.data,
        )

    def _draw(self, width: float) -> MplFigure:
        import matplotlib.pyplot as plt

        drawing, axis = plt.subplots(figsize=(width, 3.6))
        by_strategy = self._mixed_by_strategy.values()
        for of_strategy, color, marker in zip(by_strategy, COLORS, _MARKERS, strict=False):
            self._draw_strategy(axis, of_strategy, color=color, marker=marker)
        if self.rehearsal.is_graded:
            old_mean = fmean(self.rehearsal.ndcg["old"].values())
            axis.axhline(old_mean, color=GREY, linewidth=1, linestyle="--", label="old index alone")
        axis.set_xlabel("documents with new vectors, %")
        axis.set_ylabel(_METRIC if self.rehearsal.is_graded else "overlap@10")
        grid(axis, which="both")
        columns = 2 if width > 5 else 1
        drawing.legend(loc="outside lower center", ncols=columns)
        return drawing

    def _draw_strategy(
        self, axis: Axes, points: Sequence[MixedPoint], *, color: str, marker: str
    ) -> None:
        shares = [100 * point.share for point in points]
        axis.fill_between(
            shares,
            [min(point.draws) for point in points],
            [max(point.draws) for point in points],
            color=color,
            alpha=0.15,
            linewidth=0,
        )
        means = [point.mean for point in points]
        label = plain(points[0].strategy.value)
        axis.plot(shares, means, color=color, marker=marker, markersize=4.5, label=label)

    @property
    def map_conclusion(self) -> Conclusion | None:
        """Whether a linear map would be enough, and how many documents it needs."""
        best = self.best_map
        if best is None:
            return self._no_map_conclusion()
        if not best.is_trusted:
            return Conclusion(self._untrusted_words(best), data=self.data)
        text = (
            f"The best map of old documents keeps {self._kept_words(best)} ({best.kind}, error "
            f"{best.document_error:.2g})."
        )
        needed = self._documents_needed(best.kind)
        if needed:
            text += f" {needed:,} documents with both vectors are enough to fit it."
        return Conclusion(text, data=self.data)

    def _no_map_conclusion(self) -> Conclusion:
        """Say why nothing is mapped or mixed."""
        without_vectors = [
            side.label for side in (self.old, self.new) if side.costs.dimension is None
        ]
        if without_vectors:
            names = " and ".join(without_vectors)
            verb = "has" if len(without_vectors) == 1 else "have"
            text = f"{names} {verb} no vectors: nothing to map, and no index to mix."
        else:
            count = len(self.rehearsal.data.documents)
            text = f"{count:,} documents are too few to fit a map on."
        return Conclusion(text, data=self.data)

    def _documents_needed(self, kind: str) -> int:
        """Return the fewest documents beyond which overlap hardly grows; 0 if it still does."""
        points = [point for point in self.rehearsal.curve if point.kind == kind]
        if len(points) < 2:
            return 0
        last = points[-1]
        for point in points[:-1]:
            if point.overlap >= last.overlap - _ENOUGH:
                return point.documents
        return 0

    def map_table(self) -> Table | None:
        """A row per kind of map and direction; None without maps."""
        rows = [self._map_row(search) for search in self.rehearsal.maps]
        if not rows:
            return None
        return Table.of(
            rows,
            name="migration-maps",
            caption="Linear maps between the vectors, on texts they were not fitted on.",
            note=f"Each map was fitted on at least {self.rehearsal.maps[0].fitted:,} documents and "
            "on no query.",
            method="Rotation: orthogonal Procrustes with one scale; vectors of different lengths "
            "are padded with zeros. Ridge: least squares with an offset; the penalty is chosen on "
            "documents of another fold. A document is mapped by a map that was fitted without "
            "it. Error: root of the squared errors over the squares. Δ: paired over queries. "
            f"Intervals: 95 %, {interval_words(['paired'])}.",
            data=self.data,
        )

    def _map_row(self, search: MappedSearch) -> dict[str, object]:
        mapped = "new queries"
        if search.maps_documents:
            mapped = "old documents"
        row: dict[str, object] = {
            "map": f"{search.kind} of {mapped}",
            "error,\ndocuments": _error_cell(search.document_error),
            "error,\nqueries": _error_cell(search.query_error),
            "overlap@10\nwith new": _mean_cell(search.overlap),
        }
        if search.ndcg:
            row[_METRIC] = number(fmean(search.ndcg.values()))
            row["Δ to new"] = difference_cell(self._from(search.ndcg, "new"))
            row["Δ to old"] = difference_cell(self._from(search.ndcg, "old"))
        return row

    def _from(self, scores: Mapping[str, float], side: str) -> PairedDifference:
        """Return the paired difference of scores from those of the old or the new model."""
        return paired_difference(
            {"scores": scores, side: self.rehearsal.ndcg[side]},
            task=self.rehearsal.data.name,
            metric=_METRIC,
            clusters=self.rehearsal.data.clusters,
            seed=self.seed,
        )

    def curve_table(self) -> Table | None:
        """How many documents a map needs: a row per number; None without maps."""
        rows: dict[int, dict[str, object]] = {}
        for point in self.rehearsal.curve:
            row = rows.setdefault(point.documents, {"documents": f"{point.documents:,}"})
            row[f"{point.kind}:\nerror"] = _error_cell(point.error)
            row[f"{point.kind}:\noverlap@10"] = number(point.overlap)
        if not rows:
            return None
        return Table.of(
            list(rows.values()),
            name="migration-curve",
            caption="Maps that are fitted on more and more documents.",
            note="Checked on documents that no map has seen, searched by new queries.",
            data=self.data,
        )

    def costs_table(self) -> Table:
        """Hours to encode, and bytes of vectors and indexes, of both models."""
        total = self.documents_total
        rows = []
        for role, side in (("old", self.old), ("new", self.new)):
            costs = side.costs
            row: dict[str, object] = {"model": (side.label, role)}
            row["dimensions"] = costs.dimension
            row["time to encode"] = Cell("not timed")
            if costs.seconds is not None:
                duration = long_duration_text(costs.seconds * total)
                row["time to encode"] = Cell(
                    duration, detail=f"{1 / costs.seconds:,.0f} a second", value=costs.seconds
                )
            for width, name in _SIZES:
                row[name] = size_text(costs.bytes(total, per_dimension=width))
            for family, size in costs.index_bytes.items():
                row[f"FAISS\n{family}"] = size_text(round(size * total))
            rows.append(row)
        both = [side.costs.bytes(total) for side in (self.old, self.new)]
        note = f"{total:,} documents."
        if None not in both:
            together = sum(size for size in both if size is not None)
            note += f" Both complete indexes at once take {size_text(together)} in float32."
        return Table.of(
            _with_all_keys(rows),
            name="migration-costs",
            caption="What encoding all documents takes on this machine.",
            note=note,
            method=f"Timed on {self.new.costs.timed:,} documents of this collection, on "
            f"{self.new.costs.device}. Sizes of indexes are those of a sample of 1,000.",
            data=self.data,
        )

    def to_frame(self) -> DataFrame:
        """A row per query: overlap at each depth, rank-biased overlap, and scores if graded."""
        import pandas as pd

        columns: dict[str, Any] = {"text": dict(self.rehearsal.data.queries)}
        for depth, by_query in self.rehearsal.overlaps.items():
            columns[f"overlap@{depth}"] = dict(by_query)
        columns["rank-biased overlap"] = dict(self.rehearsal.rank_biased)
        if self.rehearsal.is_graded:
            columns[f"{_METRIC} old"] = dict(self.rehearsal.ndcg["old"])
            columns[f"{_METRIC} new"] = dict(self.rehearsal.ndcg["new"])
        return pd.DataFrame(columns)

    def save_map(self, file: Path | str) -> Path:
        """Write the best map of old documents; see `qwen3nb.evaluation.migration.map_file`.

        Raises:
            ValueError: there is no map that can be trusted, or another suffix than .safetensors.
        """
        from qwen3nb.evaluation.migration.map_file import write_map

        return write_map(Path(file), self.rehearsal)


def migration(
    old: Model | Path | str | Any,
    new: Model | Path | str | Any,
    *,
    queries: Path | str,
    documents: Path | str,
    id_column: str = "",
    text: str = "",
    relevance_threshold: int = 0,
    complete: bool = False,
    thresholds: Sequence[float] = (),
    depths: Sequence[int] = (1, 10, 100),
    draws: int = 10,
    documents_total: int = 0,
    map_file: Path | str | None = None,
    alpha: float = 0.05,
    margin: float = 0.05,
    seed: int = 0,
    old_dimensions: int = 0,
    new_dimensions: int = 0,
    batch_size: int = 32,
    device: str = "auto",
) -> Migration:
    """Rehearse the change from one model to another on own documents and queries.

    Args:
        old: the model in use: a model, its spec, ``LABEL=SPEC``, or a loaded one.
        new: its successor.
        queries: a query a line (.txt), or a query file with grades.
        documents: JSONL, CSV, SQLite or DuckDB.
        id_column: of the documents; empty for ``id``.
        text: template of a document's text; empty for ``{text}``.
        relevance_threshold: lowest relevant grade; 0 for the file's.
        complete: whether a document without a grade is not relevant.
        thresholds: similarities of the old model to carry over.
        depths: numbers of first documents whose overlap is measured.
        draws: random orders in which documents are encoded anew.
        documents_total: number of documents of the whole collection; 0 for these.
        map_file: write the best linear map of old documents to this file; see `Migration.save_map`.
        alpha: level of the test.
        margin: smallest difference that matters.
        seed: of orders, folds and tests.
        old_dimensions: leading dimensions of the old model to keep, given as a spec; 0 for all.
        new_dimensions: likewise of the new one.
        batch_size: texts per batch, for speed alone, of models given as specs.
        device: of models given as specs.

    Raises:
        DataError: a file that cannot be read, or thresholds for a model without vectors.
        ValueError: a depth or a number of draws below 1, or a map that is not written.
    """
    from qwen3nb.evaluation.migration.data import read_migration_data
    from qwen3nb.evaluation.migration.map_file import check_map_file
    from qwen3nb.evaluation.migration.rehearse import rehearse

    if draws < 1 or min(depths, default=0) < 1:
        raise ValueError(f"expected draws and depths of at least 1; got {draws} and {depths}")
    _check_named({"old": old, "new": new, "queries": queries, "documents": documents})
    queries, documents = given_file(queries), given_file(documents)
    if map_file:
        check_map_file(Path(map_file))
    options: OptionArguments = {"batch_size": batch_size, "device": device}
    old_model = _loaded_model(old, {**options, "dimensions": old_dimensions or None})
    new_model = _loaded_model(new, {**options, "dimensions": new_dimensions or None})
    data = read_migration_data(
        queries,
        documents,
        id_column=id_column or None,
        text=text or None,
        relevance_threshold=relevance_threshold or None,
        complete=complete,
    )
    rehearsal = rehearse(
        old_model, new_model, data, depths=depths, thresholds=thresholds, draws=draws, seed=seed
    )
    found = Migration(
        rehearsal,
        documents_total or len(data.documents),
        alpha=alpha,
        margin=margin,
        seed=seed,
    )
    if map_file:
        found.save_map(map_file)
    return found


def _check_named(values: Mapping[str, object]) -> None:
    """Refuse models and files that are left empty, as in a notebook without parameters."""
    missing = [name for name, value in values.items() if value in ("", None)]
    if missing:
        raise ValueError(
            f"expected two models, queries and documents; missing: {', '.join(missing)}. Write: "
            "qwen3nb migrate OLD NEW --queries queries.txt --documents docs.jsonl"
        )


def _loaded_model(model: Any, options: OptionArguments) -> LoadedModel:
    """Return a loaded model; one given by its spec, or by LABEL=SPEC, with these options."""
    from qwen3nb.datasets.custom.queries import label_and_spec
    from qwen3nb.models.load import loaded, named

    if isinstance(model, str):
        label, model = label_and_spec(model)
        options = {**options, "name": label}
    found: LoadedModel = loaded(named(model, **options))
    return found


def long_duration_text(seconds: float) -> str:
    """Format a duration in seconds, minutes, hours or days.

    >>> long_duration_text(12), long_duration_text(600), long_duration_text(11_160)
    ('12 seconds', '10 minutes', '3.1 hours')
    """
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        amount = seconds / length
        if amount >= _FEWEST_OF_UNIT:
            return f"{_short_number(amount)} {unit}"
    if seconds < 1:
        return "less than a second"
    return f"{seconds:.0f} seconds"


def size_text(size: int | None) -> str:
    """Format a number of bytes, or a dash for None.

    >>> size_text(1536), size_text(1_400_000_000), size_text(None)
    ('1.5 kB', '1.4 GB', '–')
    """
    if size is None:
        return "–"
    if size < 1000:
        return f"{size} bytes"
    units = ("kB", "MB", "GB", "TB")
    power = min(len(units), int(math.log10(size) // 3))
    amount = size / 1000**power
    return f"{_short_number(amount)} {units[power - 1]}"


def _short_number(amount: float) -> str:
    """Return a number with two digits, or all of a larger one."""
    if amount >= 10:
        return f"{amount:,.0f}"
    return f"{amount:.1f}"


def _depth_of_words(overlaps: Mapping[int, Mapping[str, float]]) -> int:
    """Return the depth that a sentence names: ten if it was measured."""
    return min(overlaps, key=lambda depth: abs(depth - 10))


def _mean_cell(by_query: Mapping[str, float]) -> Cell:
    return number(aggregate({"value": by_query}, how="mean", columns=("value",)))


def _distribution_row(name: str, by_query: Mapping[str, float]) -> dict[str, object]:
    values = np.array(list(by_query.values()))
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9]).tolist()
    return {
        "measure": name,
        "mean": _mean_cell(by_query),
        "10 % of queries\nbelow": number(low, ".2f"),
        "median": number(middle, ".2f"),
        "10 % of queries\nabove": number(high, ".2f"),
        "nothing\nin common": int(np.count_nonzero(values == 0)),
        "all the same": int(np.count_nonzero(values > 1 - 1e-9)),
    }


def _error_cell(error: float) -> Cell:
    """Return a relative error, with an exponent if it is tiny."""
    text = f"{error:.0e}" if error < 0.0005 else f"{error:.3f}"
    return Cell(text, value=error)


def _with_all_keys(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Return rows with the same keys; a missing value is None."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return [{key: row.get(key) for key in keys} for row in rows]
