"""The page of reranking: gains, queries that changed, and how reliable the scores are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from qwen3nb.analysis.comparison.differences import (
    ALPHA,
    PairedDifference,
    corrected,
    paired_differences,
)
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.trec import load_run
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.metrics.retrieval import Run, ranking
from qwen3nb.records.record import Result
from qwen3nb.records.side_files import first_run_file, reranked_run_file
from qwen3nb.report.evaluation.by_hand import shortened
from qwen3nb.report.render.cell import Cell, number
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import COLORS, GREY, Figure, panels, plain
from qwen3nb.report.render.format import effect_text, short_task
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import p_value_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure
    from pandas import DataFrame

    from qwen3nb.models.rerankers.yes_no import Reranker

METRIC = "nDCG@10"
_BINS = 10


@dataclass(frozen=True)
class Reranked:
    """A reranked data set: its record and its two runs."""

    result: Result  # the record
    collection: TestCollection  # the test collection
    first: Run  # run of the first-stage retriever
    run: Run  # log-odds per query and document

    @property
    def name(self) -> str:
        """Name of the data set."""
        return str(self.result.config["collection"])

    def to_frame(self) -> DataFrame:
        """Return a row per query and candidate: log-odds, P(yes), and whether it is relevant."""
        from pandas import DataFrame

        from qwen3nb.models.rerankers.yes_no import sigmoid

        rows = [
            (query, document, odds, self.collection.qrels[query].get(document, 0) > 0)
            for query, scores in self.run.items()
            for document, odds in scores.items()
        ]
        frame = DataFrame(rows, columns=["query", "document", "log-odds", "relevant"])
        return frame.assign(**{"P(yes)": sigmoid(frame["log-odds"].to_numpy(dtype=float))})

    def order(self) -> dict[str, float]:
        """Per query, the share of (relevant, not relevant) candidate pairs in the right order.

        Ties count one half; queries without both kinds of candidates are left out.
        """
        shares = {}
        for query, candidates in self.run.items():
            scores = np.array(list(candidates.values()), dtype=np.float64)
            grades = self.collection.qrels[query]
            labels = np.array([grades.get(each, 0) > 0 for each in candidates], dtype=bool)
            above = scores[labels][:, None] - scores[~labels][None, :]
            if above.size:
                shares[query] = float((above > 0).mean() + (above == 0).mean() / 2)
        return shares


def reranked(
    results: Iterable[Result], data: Iterable[Any], *, folder: Path | str | None = None
) -> list[Reranked]:
    """Load the runs of the records of `rerank`.

    Args:
        results: records of `rerank`.
        data: the data passed to `rerank`.
        folder: folder of the records; by default `paths.results`.

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


def reranker_table(reranker: Reranker, results: Sequence[Result]) -> Table:
    """The reranker, its settings, and counts of the scored pairs."""

    def count(name: str) -> str:
        return f"{sum(result.config['counts'].get(name, 0) for result in results):,}"

    longest = [
        (cut["tokens"], cut["query"], str(each.config["collection"]))
        for each in results
        if (cut := each.config.get("longest_query"))
    ]
    queries_cut = count("queries_cut")
    for tokens, query, name in sorted(longest)[-1:]:
        queries_cut += (
            f"; the longest, {query} of {name}, takes {tokens:,} tokens with its template"
        )
    base = reranker.source.base
    facts = {
        "model": reranker.label,
        "adapter": reranker.source.spec if base else "none",
        "base": base.spec if base else reranker.source.spec,
        "parameters": f"{reranker.parameters:,}",
        "instruction": reranker.instruction,
        "template": str(reranker.settings["template"][0]),
        "tokens of a pair": f"at most {reranker.max_length}",
        "first stage": ", ".join(sorted({r.task.key.split(".", 1)[1] for r in results})),
        "pairs": count("pairs"),
        "documents cut to fit": count("cut"),
        "queries cut to leave them room": queries_cut,
        "P(yes) exactly 0 or 1": count("saturated"),
        "P(yes) tied within a query": count("tied"),
        "log-odds tied within a query": count("equal"),
        "device": f"{reranker.device}, {reranker.settings['dtype']}",
    }
    return Table.of(
        facts.items(),
        ("setting", "value"),
        note="Ties are between documents with different tokens. Documents are ranked by log-odds.",
        kind="facts",
        name="reranker",
        caption=f"The reranker {reranker.label}, its settings and what it scored.",
    )


def rerank_table(results: Sequence[Result], *, seed: int = 0) -> Table:
    """Scores before and after reranking per data set, with paired difference and upper bounds."""
    gains = rerank_differences(results, seed=seed)
    return Table.of(
        map(_row, results, gains),
        note=f"Intervals: 95 %, {interval_words(['widened'])}, over queries; p: two-sided paired "
        f"permutation test, corrected by Holm over these {len(gains)} data sets, with the raw "
        "p-value below. A reranker cannot recover what the first stage missed: the best order of "
        "its documents (by an oracle) is the upper bound.",
        name="rerank",
        caption=f"{METRIC} before and after reranking, over all queries of each data set, with "
        "the paired difference.",
    )


def _row(result: Result, gain: PairedDifference) -> dict[str, Any]:
    metrics, words = result.metrics, _in_words(gain)
    raw = f"raw {p_value_text(gain.p_value)}, {words}"
    clear = gain.significant(ALPHA)
    return {
        "data set": (short_task(gain.task), f"{result.main.n} queries"),
        f"first stage\n{METRIC}": metrics[f"first {METRIC}"],
        f"reranked\n{METRIC}": number(metrics[METRIC], strong=words == "helps"),
        "Δ\nreranked − first": number(
            gain.difference, "+.3f", interval=gain.interval, detail="a single query"
        ),
        "p\ncorrected": Cell(p_value_text(gain.corrected), raw, strong=clear, value=gain.corrected),
        "won, tied, lost": f"{gain.won}, {gain.tied}, {gain.lost}",
        f"best order\n{METRIC}": metrics[f"oracle {METRIC}"],
    }


def rerank_differences(results: Sequence[Result], *, seed: int = 0) -> list[PairedDifference]:
    """Reranked − first stage, one difference per record, corrected as one family."""
    matrices = [
        join(
            {"reranked": each.per_query[METRIC], "first stage": each.per_query[f"first {METRIC}"]},
            task=str(each.config["collection"]),
            metric=METRIC,
        )
        for each in results
    ]
    return corrected([d for matrix in matrices for d in paired_differences(matrix, seed=seed)])


def _in_words(gain: PairedDifference) -> str:
    """Whether the reranker helps: whether the difference is significant."""
    if not gain.significant(ALPHA):
        return "no significant difference"
    return "helps" if gain.difference > 0 else "hurts"


def rerank_conclusion(results: Sequence[Result], *, seed: int = 0) -> Conclusion:
    """Say whether reranking helps, on how many data sets, and by how much."""
    if not results:
        return Conclusion("Nothing was reranked.")
    label, gains = results[0].model.label, rerank_differences(results, seed=seed)
    words = [_in_words(each) for each in gains]
    gain = max(gains, key=lambda each: abs(each.difference))
    effect = effect_text(gain.difference, gain.interval, gain.corrected, absent="(a single query)")
    effect += f", n = {gain.n}"
    if len(gains) == 1:
        verb = f"makes {words[0]}" if words[0].startswith("no ") else words[0]
        best = results[0].metrics[f"oracle {METRIC}"].value or 0.0
        return Conclusion(
            f"Reranking with {label} {verb} on {short_task(gain.task)}: {METRIC} goes from "
            f"{gain.means[1]:.3f} to {gain.means[0]:.3f}, a paired difference of {effect}. The "
            f"best order of the same candidates would reach {best:.3f}."
        )
    counts = [f"{verb} on {words.count(verb) or 'none'}" for verb in ("helps", "hurts")]
    return Conclusion(
        f"Of {len(gains)} data sets, reranking with {label} {' and '.join(counts)} by a "
        f"significant paired difference (the largest, on {short_task(gain.task)}: {effect})."
    )


def order_table(pages: Sequence[Reranked]) -> Table:
    """Ordering of relevant candidates above others, and calibration of P(yes)."""
    rows: list[dict[str, Any]] = []
    for page in pages:
        frame = page.to_frame()
        chance, labels = frame["P(yes)"], frame["relevant"]
        order = aggregate({"order": page.order()}, how="mean", columns=("order",))
        words = order.undefined
        if order.low is not None and order.high is not None:
            below = "chance is in the interval" if order.high >= 0.5 else "below chance"
            words = "above chance" if order.low > 0.5 else below
        rows.append(
            {
                "data set": (short_task(page.name), f"{len(frame):,} pairs"),
                "relevant above others\n0.5 is chance": order,
                "in words": words,
                "relevant\nshare": number(float(labels.mean())),
                "P(yes)\nmean": number(float(chance.mean())),
                "calibration error\n10 bins": number(expected_error(chance, labels)),
            }
        )
    return Table.of(
        rows,
        note="Relevant above others: how often a relevant candidate of a query scores higher than "
        "one that is not; mean over queries with both kinds. Calibration error: mean distance of "
        "P(yes) from the share of relevant pairs, over ten bins weighted by their pairs.",
        name="rerank-order",
        caption="How well log-odds order the candidates of a query, and how far P(yes) is from "
        "the share of relevant pairs.",
    )


def expected_error(chance: ArrayLike, labels: ArrayLike) -> float:
    """Expected calibration error of P(yes) (N,) and whether each pair is relevant (N,).

    See Guo et al. 2017, https://arxiv.org/abs/1706.04599.
    """
    given, relevant = np.asarray(chance, dtype=float), np.asarray(labels, dtype=float)
    bin_of = np.minimum((given * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bin_of, weights=given - relevant, minlength=_BINS)
    return float(np.abs(gaps).sum() / len(given))


def cases_table(pages: Sequence[Reranked]) -> Table:
    """The queries that gained and lost most, two each, with the first document of both runs."""
    changed = sorted(
        (
            (gain, query, page)
            for page in pages
            for query, gain in page.result.per_query[f"gain {METRIC}"].items()
            if gain
        ),
        key=lambda case: (-abs(case[0]), case[1]),
    )
    cases = [case for case in changed if case[0] > 0][:2]
    cases += [case for case in changed if case[0] < 0][:2]
    rows: list[dict[str, Any]] = []
    for gain, query, page in cases:
        what = f"{short_task(page.name)}, {METRIC} {gain:+.3f}"
        head: Any = (shortened(page.collection.queries[query]), what)
        rows.append({"query": head, **_first_documents(page, query)})
    return Table.of(
        rows,
        note="Relevant documents in bold.",
        empty="No query changed.",
        kind="words",
        name="rerank-cases",
        caption="The queries that gained and lost most, with the first document before and after.",
    )


def _first_documents(page: Reranked, query: str) -> dict[str, Cell | None]:
    """The first document before and after reranking; a relevant one is strong."""
    grades, texts = page.collection.qrels[query], page.collection.documents
    return {
        name: Cell(shortened(texts[each]), strong=grades.get(each, 0) > 0)
        for name, run in (("first stage", page.first), ("reranked", page.run))
        for each in ranking(run, query, 1)
    }


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
            axis.set(title=plain(name, most=40), xlabel=plain(count), xlim=(0, len(gains) + 1))
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
    )
