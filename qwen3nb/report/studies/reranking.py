"""The page of reranking: gains, and queries that changed most."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.analysis.comparison import differences
from qwen3nb.analysis.comparison.alignment import clusters_of
from qwen3nb.analysis.comparison.differences import ALPHA, PairedDifference
from qwen3nb.answers.one_query import shortened
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.trec import load_run
from qwen3nb.metrics.intervals import interval_words
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


@dataclass(frozen=True)
class Reranked:
    """A reranked data set: its record and its two runs."""

    result: Result  # the record
    collection: TestCollection  # the test collection
    first: Run  # run of the first-stage retriever
    run: Run  # log-odds per query and document

    def to_frame(self) -> DataFrame:
        """Return a row per query and candidate: log-odds, P(yes), and whether it is relevant."""
        import pandas as pd

        from qwen3nb.models.rerankers import sigmoid

        rows = [
            (query, document, odds, self.collection.qrels[query].get(document, 0) > 0)
            for query, scores in self.run.items()
            for document, odds in scores.items()
        ]
        frame = pd.DataFrame(rows, columns=["query", "document", "log-odds", "relevant"])
        return frame.assign(**{"P(yes)": sigmoid(frame["log-odds"].to_numpy(dtype=float))})


def reranked(
    results: Iterable[Result], data: Iterable[Any], *, folder: Path | str | None = None
) -> list[Reranked]:
    """Load the runs of the records of `rerank` in ``folder``, with the data passed to it.

    Raises:
        DataError: a run cannot be read.
    """
    collections = {each.name: each for spec in data for each in find_collections(spec)}
    pages = []
    for result in results:
        file = result.path(Path(folder) if folder else None)
        first = load_run(first_run_file(file, result.config))
        run = load_run(reranked_run_file(file, result.config))
        pages.append(Reranked(result, collections[result.config["collection"]], first, run))
    return pages


def rerank_table(results: Sequence[Result], *, seed: int = 0) -> Table:
    """Scores before and after reranking per data set, with paired difference and upper bounds."""
    gains = rerank_differences(results, seed=seed)
    return Table.of(
        (
            {
                "data set": (short_task(gain.task), f"{each.main.n} queries"),
                f"first stage\n{METRIC}": each.metrics[f"first {METRIC}"],
                f"reranked\n{METRIC}": each.metrics[METRIC],
                "Δ\nreranked − first": difference_cell(gain, strong=gain.significant(ALPHA)),
                "p\ncorrected": Cell(
                    p_value_text(gain.corrected),
                    f"raw {p_value_text(gain.p_value)}",
                    value=gain.corrected,
                ),
                "won, tied, lost": f"{gain.won}, {gain.tied}, {gain.lost}",
                f"best order\n{METRIC}": each.metrics[f"oracle {METRIC}"],
            }
            for each, gain in zip(results, gains, strict=True)
        ),
        note=f"Intervals: 95 %, {interval_words(['widened'])}, over queries; p: "
        f"{differences.family_words(gains, 'data sets')}; significant differences in bold. "
        "Documents missed by the first stage cannot be recovered: the best order of its candidates "
        "is the upper bound.",
        name="rerank",
        caption=f"{METRIC} before and after reranking, over all queries of each data set, with "
        "the paired difference.",
        data=DataUsed.of(results),
    )


def rerank_differences(
    results: Sequence[Result], *, seed: int = 0, others: Iterable[Result] | None = None
) -> list[PairedDifference]:
    """Reranked − first stage, one difference per record, corrected as one family.

    Records without clusters of queries have those of the ``others`` on the same data, by default
    all records.
    """
    if others is None:
        lacking = any(not result.task.clusters for result in results)
        others = load_results() if lacking else ()
    searched = [other for other in others if other.task.clusters]
    gains = [
        differences.paired_difference(
            {
                "reranked": result.per_query[METRIC],
                "first stage": result.per_query[f"first {METRIC}"],
            },
            task=str(result.config["collection"]),
            metric=METRIC,
            clusters=clusters_of(result, searched),
            seed=seed,
        )
        for result in results
    ]
    return differences.corrected(gains)


def rerank_conclusion(results: Sequence[Result], *, seed: int = 0) -> Conclusion:
    """State on how many data sets reranking significantly helps or hurts, and by how much."""
    if not results:
        return Conclusion("Nothing was reranked.")
    label, gains = results[0].model.label, rerank_differences(results, seed=seed)
    clear = [gain for gain in gains if gain.significant(ALPHA)]
    helped = sum(gain.difference > 0 for gain in clear)
    largest = max(clear or gains, key=lambda gain: abs(gain.difference))
    metric = f"{METRIC} goes from {largest.means[1]:.3f} to {largest.means[0]:.3f}"
    effect = f"{difference_text(largest, noun='data sets')}, n = {largest.n}"
    where = short_task(largest.task)
    data = DataUsed.of(results)
    if not clear:
        return Conclusion(
            f"Reranking with {label} is not shown to help or to hurt on any of {len(gains)} data "
            f"sets. The largest difference is on {where}: {metric}, {effect}.",
            data=data,
        )
    return Conclusion(
        f"Reranking with {label} helps on {helped} of {len(gains)} data sets and hurts on "
        f"{len(clear) - helped}, by a significant paired difference. The largest of these is on "
        f"{where}: {metric}, {effect}.",
        data=data,
    )


def cases_table(pages: Sequence[Reranked]) -> Table:
    """The queries that gained and lost most, two each, with the first document of both runs."""
    changed = [
        (gain, query, page)
        for page in pages
        for query, gain in page.result.per_query[f"gain {METRIC}"].items()
    ]
    cases = sorted(changed, key=lambda case: (-abs(case[0]), case[1]))
    won = [case for case in cases if case[0] > 0]
    lost = [case for case in cases if case[0] < 0]
    rows: list[dict[str, Any]] = []
    for gain, query, page in (*won[:2], *lost[:2]):
        what = f"{short_task(page.collection.name)}, {METRIC} {gain:+.3f}"
        row: dict[str, Any] = {"query": (shortened(page.collection.queries[query]), what)}
        grades, texts = page.collection.qrels[query], page.collection.documents
        for name, run in (("first stage", page.first), ("reranked", page.run)):
            (first,) = ranking(run, query, 1)
            row[name] = Cell(shortened(texts[first]), strong=grades.get(first, 0) > 0)
        rows.append(row)
    return Table.of(
        rows,
        note="Relevant documents in bold.",
        empty="No query changed.",
        kind="words",
        name="rerank-cases",
        caption="The queries that gained and lost most, with the first document before and after.",
        data=DataUsed.of(page.result for page in pages),
    )


def gain_figure(results: Sequence[Result]) -> Figure:
    """Sorted gains of all queries, one panel per data set."""
    drawn = []
    for each in results:
        gains = np.sort(list(each.per_query[f"gain {METRIC}"].values()))[::-1]
        won, lost = int((gains > 0).sum()), int((gains < 0).sum())
        count = f"{won} won, {len(gains) - won - lost} tied, {lost} lost"
        drawn.append((short_task(str(each.config["collection"])), gains, count))

    def draw(width: float) -> MplFigure:
        figure, axes, firsts = panels(len(drawn), width, height=2.2, sharey=True)
        for axis, (name, gains, count) in zip(axes, drawn, strict=True):
            positions = np.arange(1, len(gains) + 1)
            for inside, color in ((gains > 0, COLORS[0]), (gains < 0, COLORS[1])):
                axis.bar(positions[inside], gains[inside], width=1.0, color=color)
            axis.axhline(0, color=GREY, linewidth=0.8)
            axis.set(title=plain(name), xlabel=plain(count), xlim=(0, len(gains) + 1))
        for axis in firsts:
            axis.set_ylabel(f"gain in {METRIC}")
        return figure

    summary = "; ".join(f"{name}: {count} of n = {len(gains)}" for name, gains, count in drawn)
    return Figure(
        name="gains",
        draw=draw,
        caption=f"Gain of reranking in {METRIC}, one bar per query, sorted. {summary}. The mean "
        "gain, its interval and its test are in the table above.",
        alt=f"Sorted gains per query. {summary}.",
        data=DataUsed.of(results),
    )
