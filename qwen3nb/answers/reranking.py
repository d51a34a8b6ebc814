"""Does reranking help? Gains over the first stage, and the queries that changed most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

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
from qwen3nb.report.render.differences import difference_cell
from qwen3nb.report.render.figure import GREY, QUIET, Axes, Figure, MplFigure, panels, plain
from qwen3nb.report.render.table import Cell, Conclusion, Table, plural, short_task
from qwen3nb.utils.format import number_text, p_value_text
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
        significant_gains = [gain for gain in self.gains if gain.significant(ALPHA)]
        sentences = [f"Reranking with {label} {self._effect()}."]
        sentences.append(_largest_effect(significant_gains or self.gains))
        return Conclusion(" ".join(sentences), data=self.data)

    def _effect(self) -> str:
        """Say on how many data sets reranking is shown to help or to hurt."""
        significant_gains = [gain for gain in self.gains if gain.significant(ALPHA)]
        improvements = sum(gain.difference > 0 for gain in significant_gains)
        losses = len(significant_gains) - improvements
        if not significant_gains:
            return f"is not shown to help or to hurt ({plural(len(self.gains), 'data set')})"
        if len(self.gains) == 1:
            return "helps" if improvements else "hurts"
        return f"helps on {improvements} of {len(self.gains)} data sets, and hurts on {losses}"

    def table(self) -> Table:
        """Scores before and after reranking per data set, with paired difference and bounds."""
        family = differences.family_words(self.gains, "data sets")
        return Table.of(
            [_row(result, gain) for result, gain in zip(self.results, self.gains, strict=True)],
            note="Significant differences in bold. Documents that the first stage misses are lost: "
            "the best order of its candidates is the upper bound.",
            method=f"Intervals: 95 %, {interval_words(['widened'])}, over queries; p: {family}.",
            name="rerank",
            caption=f"{METRIC} before and after reranking, over all queries of each data set, with "
            "the paired difference.",
            data=self.data,
        )

    def figure(self) -> Figure:
        """Sorted gains of all queries, one panel per data set."""
        parts = []
        for result in self.results:
            gains = _sorted_gains(result)
            parts.append(f"{_short_name(result)}: {_counts_text(gains)} of n = {len(gains)}")
        summary = "; ".join(parts)
        return Figure(
            name="gains",
            draw=self._draw,
            caption=f"Gain of reranking in {METRIC}, one bar per query, sorted; the table above "
            "has the mean gain.",
            alt=f"Sorted gains per query. {summary}.",
            data=self.data,
        )

    def _draw(self, width: float) -> MplFigure:
        figure, axes, left_axes = panels(len(self.results), width, height=2.2, sharey=True)
        for axis, result in zip(axes, self.results, strict=True):
            _draw_gains(axis, result)
        for axis in left_axes:
            axis.set_ylabel(f"gain in {METRIC}")
        return figure

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
        runs = []
        for result in self.results:
            file = result.path(self.folder)
            first_run = load_run(first_run_file(file, result.files))
            reranked_run = load_run(reranked_run_file(file, result.files))
            collection = collections[str(result.data.collection)]
            runs.append(RerankedData(result, collection, first_run, reranked_run))
        return runs

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
            # Series are aligned by query, which becomes a column.
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
        # All records are only read if a result lacks clusters of its queries.
        lacks_clusters = any(not result.task.clusters for result in results)
        if lacks_clusters:
            others = load_results()
    records_with_clusters = [record for record in others if record.task.clusters]
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
            clusters=clusters_of(result, records_with_clusters),
            seed=seed,
        )
        gains.append(gain)
    return differences.corrected(gains)


def _largest_effect(gains: Sequence[PairedDifference]) -> str:
    """Describe the largest gain or loss: its data set, both scores and the difference."""
    gain = max(gains, key=lambda gain: abs(gain.difference))
    reranked_score, first_score = gain.means
    return (
        f"On {short_task(gain.task)}, {METRIC} goes from {first_score:.3f} to "
        f"{reranked_score:.3f} ({number_text(gain.difference, sign=True)})."
    )


def _row(result: Result, gain: PairedDifference) -> dict[str, object]:
    """Return a row of the table of gains."""
    raw_p_value = f"raw {p_value_text(gain.p_value)}"
    return {
        "data set": (short_task(gain.task), f"{result.main.n} queries"),
        f"first stage\n{METRIC}": result.metrics[_FIRST_STAGE],
        f"reranked\n{METRIC}": result.metrics[METRIC],
        "Δ\nreranked − first": difference_cell(gain, strong=gain.significant(ALPHA)),
        "p\ncorrected": Cell(p_value_text(gain.corrected), raw_p_value, value=gain.corrected),
        "won, tied, lost": f"{gain.won}, {gain.tied}, {gain.lost}",
        # The best order of the same candidates: an upper bound.
        f"best order\n{METRIC}": result.metrics[f"oracle {METRIC}"],
    }


def _short_name(result: Result) -> str:
    return short_task(str(result.data.collection))


def _sorted_gains(result: Result) -> Array:
    """Return the gain of each query, the largest first."""
    return np.sort(list(result.per_query[_GAIN].values()))[::-1]


def _counts_text(gains: Array) -> str:
    wins, losses = int(np.sum(gains > 0)), int(np.sum(gains < 0))
    return f"{wins} won, {len(gains) - wins - losses} tied, {losses} lost"


def _draw_gains(axis: Axes, result: Result) -> None:
    """Draw a bar per query, the largest gain on the left, losses lighter."""
    gains = _sorted_gains(result)
    positions = np.arange(1, len(gains) + 1)
    # Gains are darker than losses; queries without a change have no bar.
    axis.bar(positions[gains > 0], gains[gains > 0], width=1.0, color=GREY)
    axis.bar(positions[gains < 0], gains[gains < 0], width=1.0, color=QUIET, alpha=0.6)
    axis.axhline(0, color=GREY, linewidth=0.8)
    axis.set(
        title=plain(_short_name(result)),
        xlabel=plain(_counts_text(gains)),
        xlim=(0, len(gains) + 1),
    )


class _Case(NamedTuple):
    """A query and what reranking gained on it."""

    gain: float
    query: str
    data: RerankedData


def cases_table(runs: Sequence[RerankedData]) -> Table:
    """The queries that gained and lost most, two each, with the first document of both runs."""
    cases = []
    for data in runs:
        for query, gain in data.result.per_query[_GAIN].items():
            cases.append(_Case(gain, query, data))
    # The largest change first, gain or loss.
    cases.sort(key=lambda case: (-abs(case.gain), case.query))
    gains = [case for case in cases if case.gain > 0]
    losses = [case for case in cases if case.gain < 0]
    return Table.of(
        [_case_row(case) for case in gains[:_CASES] + losses[:_CASES]],
        note="Relevant documents in bold.",
        empty="No query changed.",
        kind="words",
        name="rerank-cases",
        caption="The queries that gained and lost most, with the first document before and after.",
        data=DataUsed.of(data.result for data in runs),
    )


def _case_row(case: _Case) -> dict[str, object]:
    """Return a row on one query, with the first document before and after."""
    collection = case.data.collection
    gain = f"{short_task(collection.name)}, {METRIC} {case.gain:+.3f}"
    return {
        "query": (shortened(collection.queries[case.query]), gain),
        "first stage": _first_document(case.data.first, case.query, collection),
        "reranked": _first_document(case.data.run, case.query, collection),
    }


def _first_document(run: Run, query: str, collection: TestCollection) -> Cell:
    (document,) = ranking(run, query, 1)
    is_relevant = collection.qrels[query].get(document, 0) > 0
    return Cell(shortened(collection.documents[document]), strong=is_relevant)
