"""Does reranking help? Gains over the first stage, and the queries that changed most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.analysis.comparison import differences
from qwen3nb.analysis.comparison.alignment import clusters_of
from qwen3nb.analysis.comparison.differences import ALPHA, PairedDifference
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.one_query import shortened
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.trec import load_run
from qwen3nb.metrics.intervals import Array, interval_words
from qwen3nb.metrics.retrieval import Run, ranking
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.side_files import first_run_file, reranked_run_file
from qwen3nb.records.store import load_results
from qwen3nb.report.render.differences import difference_cell, difference_text
from qwen3nb.report.render.figure import COLORS, GREY, Figure, MplFigure, panels, plain
from qwen3nb.report.render.table import Cell, Conclusion, Table, short_task
from qwen3nb.utils.format import p_value_text
from qwen3nb.utils.imports import DataFrame

METRIC = "nDCG@10"
_GAIN = f"gain {METRIC}"
_FIRST_STAGE = f"first {METRIC}"
_CASES = 2  # queries that gained most, and as many that lost most


@dataclass(frozen=True)
class RerankedData:
    """A reranked data set: its record and its two runs."""

    result: Result  # the record
    collection: TestCollection  # the test collection
    first: Run  # run of the first-stage retriever
    run: Run  # log-odds per query and document


@dataclass(frozen=True, repr=False)
class Reranking(Answer):
    """The gains of a reranker over its first stage."""

    results: tuple[Result, ...]  # one per data set
    gains: tuple[PairedDifference, ...]  # of each, over the first stage, corrected as one family
    data_sets: tuple[Any, ...] = ()  # what was passed to `rerank`; for the runs
    folder: Path | None = None  # of records and runs

    @property
    def data(self) -> DataUsed:
        """The data of the scores."""
        return DataUsed.of(self.results)

    @property
    def conclusion(self) -> Conclusion:
        """On how many data sets reranking significantly helps or hurts, and by how much."""
        if not self.results:
            return Conclusion("Nothing was reranked.")
        label = self.results[0].model.label
        significant = [gain for gain in self.gains if gain.significant(ALPHA)]
        helped = sum(gain.difference > 0 for gain in significant)
        largest = max(significant or self.gains, key=lambda gain: abs(gain.difference))
        reranked, first = largest.means
        effect = (
            f"{short_task(largest.task)}: {METRIC} goes from {first:.3f} to {reranked:.3f}, "
            f"{difference_text(largest, noun='data sets')}, n = {largest.n}."
        )
        if significant:
            text = (
                f"Reranking with {label} helps on {helped} of {len(self.gains)} data sets and "
                f"hurts on {len(significant) - helped}, by a significant paired difference. The "
                f"largest of these is on {effect}"
            )
        else:
            text = (
                f"Reranking with {label} is not shown to help or to hurt on any of "
                f"{len(self.gains)} data sets. The largest difference is on {effect}"
            )
        return Conclusion(text, data=self.data)

    def table(self) -> Table:
        """Scores before and after reranking per data set, with paired difference and bounds."""
        family = differences.family_words(self.gains, "data sets")
        return Table.of(
            map(_row, self.results, self.gains),
            note=f"Intervals: 95 %, {interval_words(['widened'])}, over queries; p: {family}; "
            "significant differences in bold. Documents missed by the first stage cannot be "
            "recovered: the best order of its candidates is the upper bound.",
            name="rerank",
            caption=f"{METRIC} before and after reranking, over all queries of each data set, with "
            "the paired difference.",
            data=self.data,
        )

    def figure(self) -> Figure:
        """Sorted gains of all queries, one panel per data set."""
        names = [short_task(str(result.data.collection)) for result in self.results]
        sorted_gains = [_sorted_gains(result) for result in self.results]
        counts = [_counts_text(gains) for gains in sorted_gains]

        def draw(width: float) -> MplFigure:
            figure, axes, left_axes = panels(len(names), width, height=2.2, sharey=True)
            for axis, name, gains, count in zip(axes, names, sorted_gains, counts, strict=True):
                positions = np.arange(1, len(gains) + 1)
                for selected, color in ((gains > 0, COLORS[0]), (gains < 0, COLORS[1])):
                    axis.bar(positions[selected], gains[selected], width=1.0, color=color)
                axis.axhline(0, color=GREY, linewidth=0.8)
                axis.set(title=plain(name), xlabel=plain(count), xlim=(0, len(gains) + 1))
            for axis in left_axes:
                axis.set_ylabel(f"gain in {METRIC}")
            return figure

        parts = [
            f"{name}: {count} of n = {len(gains)}"
            for name, gains, count in zip(names, sorted_gains, counts, strict=True)
        ]
        summary = "; ".join(parts)
        return Figure(
            name="gains",
            draw=draw,
            caption=f"Gain of reranking in {METRIC}, one bar per query, sorted. {summary}. The "
            "mean gain, its interval and its test are in the table above.",
            alt=f"Sorted gains per query. {summary}.",
            data=self.data,
        )

    @cached_property
    def runs(self) -> list[RerankedData]:
        """The data sets with the runs before and after reranking.

        Raises:
            DataError: a run cannot be read.
        """
        collections = {}
        for spec in self.data_sets:
            for collection in find_collections(spec):
                collections[collection.name] = collection
        loaded = []
        for result in self.results:
            file = result.path(self.folder)
            first = load_run(first_run_file(file, result.files))
            run = load_run(reranked_run_file(file, result.files))
            collection = collections[str(result.data.collection)]
            loaded.append(RerankedData(result, collection, first, run))
        return loaded

    def cases(self) -> Table:
        """The queries that gained and lost most, two each, with the first document of both runs."""
        return cases_table(self.runs)

    def to_frame(self) -> DataFrame:
        """Return a row per query: the metric before and after reranking, and the gain."""
        import pandas as pd

        frames = []
        for result in self.results:
            columns = {
                "data set": str(result.data.collection),
                "first stage": pd.Series(result.per_query[_FIRST_STAGE]),
                "reranked": pd.Series(result.per_query[METRIC]),
                "gain": pd.Series(result.per_query[_GAIN]),
            }
            frames.append(pd.DataFrame(columns).rename_axis("query").reset_index())
        if not frames:
            return pd.DataFrame()
        return pd.concat(frames, ignore_index=True)

    def pairs(self) -> DataFrame:
        """Return a row per query and candidate: log-odds, P(yes), and whether it is relevant."""
        import pandas as pd

        from qwen3nb.models.rerankers import sigmoid

        rows = []
        for data in self.runs:
            for query, scores in data.run.items():
                grades = data.collection.qrels[query]
                for document, odds in scores.items():
                    is_relevant = grades.get(document, 0) > 0
                    rows.append((data.collection.name, query, document, odds, is_relevant))
        columns = ["data set", "query", "document", "log-odds", "relevant"]
        frame = pd.DataFrame(rows, columns=columns)
        frame["P(yes)"] = sigmoid(frame["log-odds"].to_numpy(dtype=float))
        return frame


def reranking(
    results: Iterable[Result],
    data_sets: Iterable[Any] = (),
    *,
    folder: Path | str | None = None,
    seed: int = 0,
) -> Reranking:
    """Compare the records of `rerank` with their first stage.

    Args:
        results: of one reranker; records without reranking are left out.
        data_sets: what was passed to `rerank`; for the texts of `Reranking.cases`.
        folder: of records and runs; by default `paths.results`.
        seed: of the draws.
    """
    records = tuple(result for result in results if _FIRST_STAGE in result.per_query)
    gains = rerank_differences(records, seed=seed)
    path = Path(folder) if folder else None
    return Reranking(records, tuple(gains), tuple(data_sets), path)


def rerank_differences(
    results: Sequence[Result], *, seed: int = 0, others: Iterable[Result] | None = None
) -> list[PairedDifference]:
    """Reranked − first stage, one difference per record, corrected as one family.

    Records without clusters of queries have those of the ``others`` on the same data, by default
    all records.
    """
    if others is None:
        others = []
        if any(not result.task.clusters for result in results):
            others = load_results()
    searched = [other for other in others if other.task.clusters]
    gains = []
    for result in results:
        columns = {
            "reranked": result.per_query[METRIC],
            "first stage": result.per_query[_FIRST_STAGE],
        }
        gain = differences.paired_difference(
            columns,
            task=str(result.data.collection),
            metric=METRIC,
            clusters=clusters_of(result, searched),
            seed=seed,
        )
        gains.append(gain)
    return differences.corrected(gains)


def _row(result: Result, gain: PairedDifference) -> dict[str, Any]:
    """Return a row of the table of gains."""
    return {
        "data set": (short_task(gain.task), f"{result.main.n} queries"),
        f"first stage\n{METRIC}": result.metrics[_FIRST_STAGE],
        f"reranked\n{METRIC}": result.metrics[METRIC],
        "Δ\nreranked − first": difference_cell(gain, strong=gain.significant(ALPHA)),
        "p\ncorrected": Cell(
            p_value_text(gain.corrected), f"raw {p_value_text(gain.p_value)}", value=gain.corrected
        ),
        "won, tied, lost": f"{gain.won}, {gain.tied}, {gain.lost}",
        f"best order\n{METRIC}": result.metrics[f"oracle {METRIC}"],
    }


def _sorted_gains(result: Result) -> Array:
    return np.sort(list(result.per_query[_GAIN].values()))[::-1]


def _counts_text(gains: Array) -> str:
    won, lost = int((gains > 0).sum()), int((gains < 0).sum())
    return f"{won} won, {len(gains) - won - lost} tied, {lost} lost"


def cases_table(runs: Sequence[RerankedData]) -> Table:
    """The queries that gained and lost most, two each, with the first document of both runs."""
    changed = []
    for data in runs:
        for query, gain in data.result.per_query[_GAIN].items():
            changed.append((gain, query, data))
    changed.sort(key=lambda case: (-abs(case[0]), case[1]))
    won = [case for case in changed if case[0] > 0]
    lost = [case for case in changed if case[0] < 0]
    return Table.of(
        [_case_row(*case) for case in won[:_CASES] + lost[:_CASES]],
        note="Relevant documents in bold.",
        empty="No query changed.",
        kind="words",
        name="rerank-cases",
        caption="The queries that gained and lost most, with the first document before and after.",
        data=DataUsed.of(data.result for data in runs),
    )


def _case_row(gain: float, query: str, data: RerankedData) -> dict[str, Any]:
    """Return a row on one query, with the first document before and after."""
    collection = data.collection
    row: dict[str, Any] = {
        "query": (
            shortened(collection.queries[query]),
            f"{short_task(collection.name)}, {METRIC} {gain:+.3f}",
        )
    }
    for name, run in (("first stage", data.first), ("reranked", data.run)):
        (document,) = ranking(run, query, 1)
        is_relevant = collection.qrels[query].get(document, 0) > 0
        row[name] = Cell(shortened(collection.documents[document]), strong=is_relevant)
    return row
