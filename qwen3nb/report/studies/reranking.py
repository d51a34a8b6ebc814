"""The page of reranking: gains, queries that changed, and calibration of P(yes)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
from qwen3nb.report.evaluation.by_hand import shortened, typical_query
from qwen3nb.report.render.cell import Cell, number
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.figure import COLORS, GREY, SMALL, Figure, grid, panels, plain
from qwen3nb.report.render.format import effect_text, short_task
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import p_value_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.models.rerankers.yes_no import Reranker

METRIC = "nDCG@10"
_BINS = 10
# Log-odds above which P(yes) rounds to 1, from half the spacing of numbers below 1.
_FULL = {"bfloat16": np.log(2.0**9 - 1), "float32": np.log(2.0**25 - 1)}
Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]


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

    def pairs(self) -> tuple[Floats, Labels]:
        """Log-odds (N,) of all scored pairs, and whether each is relevant."""
        parts = [(np.empty(0), np.empty(0, dtype=bool)), *map(self._labelled, self.run)]
        scores, labels = zip(*parts, strict=True)
        return np.concatenate(scores), np.concatenate(labels)

    def order(self) -> dict[str, float]:
        """Per query, the share of (relevant, not relevant) candidate pairs in the right order.

        Ties count one half; queries without both kinds of candidates are left out.
        """
        shares = {}
        for query in self.run:
            scores, labels = self._labelled(query)
            above = scores[labels][:, None] - scores[~labels][None, :]
            if above.size:
                shares[query] = float((above > 0).mean() + (above == 0).mean() / 2)
        return shares

    def _labelled(self, query: str) -> tuple[Floats, Labels]:
        """Log-odds of a query's candidates, and whether each is relevant."""
        scores, grades = self.run[query], self.collection.qrels[query]
        labels = [grades.get(document, 0) > 0 for document in scores]
        return np.array(list(scores.values()), dtype=np.float64), np.array(labels, dtype=bool)


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
    recall = next(name for name in metrics if name.startswith("first Recall@"))
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
        "recall\nfirst stage: the ceiling": metrics[recall],
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
        scores, labels = page.pairs()
        chance = _probability(scores)
        order = aggregate({"order": page.order()}, how="mean", columns=("order",))
        words = order.undefined
        if order.low is not None and order.high is not None:
            below = "chance is in the interval" if order.high >= 0.5 else "below chance"
            words = "above chance" if order.low > 0.5 else below
        ends = f"[{scores.min():+.2f}, {scores.max():+.2f}]"
        rows.append(
            {
                "data set": (short_task(page.name), f"{len(scores):,} pairs"),
                "relevant above others\n0.5 is chance": order,
                "in words": words,
                "relevant\nshare": f"{labels.mean():.3f}",
                "P(yes)\nmean": f"{chance.mean():.3f}",
                "calibration error\n10 bins": f"{expected_error(chance, labels):.3f}",
                "Brier score": f"{((chance - labels) ** 2).mean():.3f}",
                "log-odds\nmedian, range": (f"{float(np.median(scores)):+.2f}", ends),
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


def _probability(log_odds: Floats) -> Floats:
    """P(yes) for log-odds (N,)."""
    from qwen3nb.models.rerankers.yes_no import sigmoid

    return sigmoid(log_odds)


def reliability(chance: Floats, labels: Labels) -> list[tuple[float, float, int]]:
    """Mean P(yes), share of relevant pairs and number of pairs, per non-empty bin."""
    bin_of = np.minimum((chance * _BINS).astype(int), _BINS - 1)
    return [
        (float(chance[inside].mean()), float(labels[inside].mean()), int(inside.sum()))
        for inside in (bin_of == each for each in range(_BINS))
        if inside.any()
    ]


def expected_error(chance: Floats, labels: Labels) -> float:
    """Expected calibration error (Guo et al. 2017, https://arxiv.org/abs/1706.04599)."""
    bins = reliability(chance, labels)
    return sum(n * abs(mean - share) for mean, share, n in bins) / len(labels)


def cases_table(pages: Sequence[Reranked], *, helped: bool, count: int = 3, top: int = 3) -> Table:
    """The queries that changed most: top documents of both runs, relevant ones in bold."""
    changed = [
        (-abs(gain), query, f"{page.name}, {METRIC} {gain:+.3f}", page)
        for page in pages
        for query, gain in page.result.per_query[f"gain {METRIC}"].items()
        if gain and (gain > 0) == helped
    ]
    cases = sorted(changed, key=lambda case: case[:2])[:count]
    rows: list[dict[str, Any]] = []
    for _, query, what, page in cases:
        head: Any = (shortened(page.collection.queries[query]), what)
        for rank, documents in enumerate(_documents(page, query, top), start=1):
            rows.append({"query": head if rank == 1 else "", "rank": rank, **documents})
    return Table.of(
        rows,
        note="Relevant documents in bold.",
        empty="There is no such query.",
        kind="words",
        name=f"rerank-{'gains' if helped else 'losses'}",
        caption=f"The {len(cases)} queries that {'gained' if helped else 'lost'} most, with the "
        f"first {top} documents before and after.",
    )


def _documents(page: Reranked, query: str, top: int) -> list[dict[str, Cell | None]]:
    """Per rank, its document before and after reranking; relevant ones are strong."""
    grades: Mapping[str, int] = page.collection.qrels[query]
    columns = {
        name: [
            Cell(shortened(page.collection.documents[each]), strong=grades.get(each, 0) > 0)
            for each in ranking(run, query, top)
        ]
        for name, run in (("first stage", page.first), ("reranked", page.run))
    }
    ranks = zip_longest(*columns.values())
    return [dict(zip(columns, cells, strict=True)) for cells in ranks]


def reranked_query_table(pages: Sequence[Reranked], *, query: str = "", top: int = 5) -> Table:
    """Return the first documents of one query before and after reranking.

    Args:
        pages: reranked data sets.
        query: its id in one of them; by default, in the first one, the query whose gain is
            nearest to the mean.
        top: number of documents.

    Raises:
        ValueError: no data set has this query; names some of the first.
    """
    page = next((each for each in pages if not query or query in each.run), None)
    if page is None:
        known = ", ".join(sorted(pages[0].run)[:5])
        raise ValueError(f"unknown query {query!r}; such as: {known}")
    gains = page.result.per_query[f"gain {METRIC}"]
    name = query or typical_query(gains)
    log_odds = [page.run[name][each] for each in ranking(page.run, name, top)]
    chances = _probability(np.array(log_odds)).tolist()
    odds = [(f"{p:.3f}", f"{each:+.2f}") for p, each in zip(chances, log_odds, strict=True)]
    text = shortened(page.collection.queries[name])
    ranks = enumerate(zip_longest(_documents(page, name, top), odds), start=1)
    return Table.of(
        (
            {"rank": rank, **(documents or {}), "P(yes)\nlog-odds": shown}
            for rank, (documents, shown) in ranks
        ),
        note="Relevant documents in bold."
        + ("" if query else " The query whose gain is nearest to the mean."),
        kind="words",
        name="rerank-query",
        caption=f"Query {name} of {short_task(page.name)}, “{text}”: the first {top} documents "
        f"before and after reranking, {METRIC} {gains[name]:+.3f}.",
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


def calibration_figure(pages: Sequence[Reranked]) -> Figure:
    """Reliability diagram of P(yes) and histograms of log-odds, one row per data set."""
    pairs = [(short_task(page.name), *page.pairs()) for page in pages]

    def draw(width: float) -> MplFigure:
        figure, axes, _ = panels(2 * len(pairs), width, height=2.5, most=2)
        for left, right, (name, scores, labels) in zip(axes[::2], axes[1::2], pairs, strict=True):
            _reliability(left, _probability(scores), labels)
            _spread(right, scores, labels)
            left.set_title(plain(name, most=40))
        return figure

    summary = "; ".join(
        f"{name}: n = {len(labels):,} pairs, {int(labels.sum()):,} relevant"
        for name, _, labels in pairs
    )
    return Figure(
        name="calibration",
        draw=draw,
        caption=f"{summary}. Left: share of relevant pairs per bin of P(yes) with its 95 % "
        "Wilson interval; the diagonal is perfect calibration. Right: log-odds of relevant pairs "
        "and of others; beyond a dashed line, P(yes) is exactly 0 or 1 in that precision, which "
        "causes ties.",
        alt=f"Reliability of P(yes), and two histograms of log-odds. {summary}.",
    )


def _reliability(axis: Axes, chance: Floats, labels: Labels) -> None:
    from scipy.stats import binomtest

    axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    bins = reliability(chance, labels)
    for mean, share, count in bins:
        ends = binomtest(round(share * count), count).proportion_ci(method="wilson")
        axis.plot([mean, mean], [ends.low, ends.high], color=COLORS[0], linewidth=1.4)
        where: dict[str, Any] = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center"}
        axis.annotate(f"{count:,}", (mean, ends.high), fontsize=SMALL, **where)
    means, shares = [each[0] for each in bins], [each[1] for each in bins]
    axis.plot(means, shares, "o-", color=COLORS[0], markersize=4, linewidth=1)
    axis.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.15), ylabel="share of relevant pairs")
    axis.set_xlabel("mean P(yes) of the bin, labelled with its pairs")
    grid(axis, which="both")


def _spread(axis: Axes, scores: Floats, labels: Labels) -> None:
    edges = np.linspace(scores.min(), scores.max() + 1e-9, 41).tolist()
    look: dict[str, Any] = {"density": True, "histtype": "stepfilled", "alpha": 0.5}
    kinds = ((~labels, "not relevant", COLORS[1]), (labels, "relevant", COLORS[0]))
    for inside, name, color in kinds:
        label = f"{name}, {inside.sum():,}"
        axis.hist(scores[inside], bins=edges, color=color, label=label, **look)
    for end in _FULL.values():
        for edge in (-end, end):
            if scores.min() < edge < scores.max():
                axis.axvline(edge, color=GREY, linewidth=0.8, linestyle="--")
    axis.set(xlabel="log-odds of yes", ylabel="density")
    axis.legend()
