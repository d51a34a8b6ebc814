"""Tables of reranking: gains over the first stage, ordering, calibration; what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.collection_formats import find_collections
from qwen3nb.datasets.trec import load_run
from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.metrics.retrieval import Run
from qwen3nb.records.record import Result
from qwen3nb.records.runs import first_run_file, reranked_run_file
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.format import number, short_task
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import interval_text, p_value_text

if TYPE_CHECKING:
    from qwen3nb.models.rerankers.yes_no import Reranker

__all__ = [
    "Reranked",
    "in_words",
    "order_table",
    "probability",
    "reliability",
    "rerank_conclusion",
    "rerank_differences",
    "rerank_table",
    "reranked",
    "reranker_table",
]

METRIC = "nDCG@10"
_BINS = 10
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reranked:
    """A reranked data set: its record and its two runs.

    Attributes:
        result: the record.
        collection: the test collection.
        first: run of the first-stage retriever.
        run: log-odds per query and document.
    """

    result: Result
    collection: TestCollection
    first: Run
    run: Run

    @property
    def name(self) -> str:
        """Name of the data set."""
        return str(self.result.config["collection"])

    def pairs(self) -> tuple[Floats, NDArray[np.bool_]]:
        """Log-odds (N,) of all scored pairs, and whether each is relevant."""
        parts = [self._labelled(query) for query in self.run]
        if not parts:
            return np.empty(0), np.empty(0, dtype=bool)
        scores, labels = zip(*parts, strict=True)
        return np.concatenate(scores), np.concatenate(labels)

    def order(self) -> dict[str, float]:
        """Per query, the share of (relevant, not relevant) candidate pairs in the right order.

        Ties count one half; queries without both kinds of candidates are left out.
        """
        shares = {}
        for query in self.run:
            scores, labels = self._labelled(query)
            good, bad = scores[labels], scores[~labels]
            if len(good) and len(bad):
                above = good[:, None] - bad[None, :]
                shares[query] = float((above > 0).mean() + (above == 0).mean() / 2)
        return shares

    def _labelled(self, query: str) -> tuple[Floats, NDArray[np.bool_]]:
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
    counts = {
        name: sum(result.config["counts"].get(name, 0) for result in results)
        for name in ("pairs", "cut", "queries_cut", "saturated", "tied", "equal")
    }
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
        "pairs": f"{counts['pairs']:,}",
        "documents cut to fit": f"{counts['cut']:,}",
        "queries cut to leave them room": f"{counts['queries_cut']:,}{_longest(results)}",
        "P(yes) exactly 0 or 1": f"{counts['saturated']:,}",
        "P(yes) tied within a query": f"{counts['tied']:,}",
        "log-odds tied within a query": f"{counts['equal']:,}",
        "device": f"{reranker.device}, {reranker.settings['dtype']}",
    }
    rows = tuple((Cell(name), Cell(value)) for name, value in facts.items())
    note = "Ties are between documents with different tokens. Documents are ranked by log-odds."
    caption = f"The reranker {reranker.label}, its settings and what it scored."
    return Table(("setting", "value"), rows, note, "facts", name="reranker", caption=caption)


def _longest(results: Sequence[Result]) -> str:
    """Name the longest query that was cut, if any was."""
    cut = [
        (each.config.get("longest_query") or {}, str(each.config["collection"])) for each in results
    ]
    lengths = [(one["tokens"], one["query"], name) for one, name in cut if one]
    if not lengths:
        return ""
    tokens, query, name = max(lengths)
    return f"; the longest, {query} of {name}, takes {tokens:,} tokens with its template"


def rerank_table(results: Sequence[Result], *, seed: int = 0) -> Table:
    """Scores before and after reranking per data set, with paired difference and upper bounds."""
    differences = rerank_differences(results, seed=seed)
    rows = [_row(result, each) for result, each in zip(results, differences, strict=True)]
    columns = (
        "data set", f"first stage\n{METRIC}", f"reranked\n{METRIC}", "Δ\nreranked − first",
        "p\ncorrected", "won, tied, lost", "recall\nfirst stage: the ceiling",
        f"best order\n{METRIC}",
    )  # fmt: skip
    return Table(
        columns,
        tuple(rows),
        f"Intervals: 95 %, {interval_words(['widened'])}, over queries; p: two-sided paired "
        f"permutation test, corrected by Holm over these {len(rows)} data sets, with the raw "
        "p-value below. A reranker cannot recover what the first stage missed: the best order of "
        "its documents (by an oracle) is the upper bound.",
        name="rerank",
        caption=f"{METRIC} before and after reranking, over all queries of each data set, with "
        "the paired difference.",
    )


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


def _row(result: Result, gain: PairedDifference) -> tuple[Cell, ...]:
    ends = "a single query" if gain.interval is None else interval_text(gain.interval)
    recall = next(name for name in result.metrics if name.startswith("first Recall@"))
    significant = gain.significant(ALPHA)
    return (
        Cell(short_task(gain.task), f"{result.main.n} queries"),
        number(result.metrics[f"first {METRIC}"]),
        number(result.metrics[METRIC], strong=significant and gain.difference > 0),
        Cell(f"{gain.difference:+.3f}", ends, value=gain.difference, interval=gain.interval),
        Cell(
            p_value_text(gain.corrected),
            f"raw {p_value_text(gain.p_value)}, {in_words(gain)}",
            strong=significant,
            value=gain.corrected,
        ),
        Cell(f"{gain.won}, {gain.tied}, {gain.lost}"),
        number(result.metrics[recall]),
        number(result.metrics[f"oracle {METRIC}"]),
    )


def in_words(gain: PairedDifference) -> str:
    """Whether the reranker helps: whether the difference is significant."""
    if not gain.significant(ALPHA):
        return "no significant difference"
    return "helps" if gain.difference > 0 else "hurts"


def rerank_conclusion(results: Sequence[Result], *, seed: int = 0) -> Conclusion:
    """Say whether reranking helps, on how many data sets, and by how much."""
    if not results:
        return Conclusion("Nothing was reranked.")
    label, gains = results[0].model.label, rerank_differences(results, seed=seed)
    largest = max(range(len(gains)), key=lambda index: abs(gains[index].difference))
    effect = _effect(gains[largest])
    if len(gains) == 1:
        best = results[0].metrics[f"oracle {METRIC}"].value or 0.0
        before, after = (f"{gains[0].means[i]:.3f}" for i in (1, 0))
        return Conclusion(
            f"Reranking with {label} {_VERBS[in_words(gains[0])]} on {short_task(gains[0].task)}: "
            f"{METRIC} goes from {before} to {after}, a paired difference of {effect}. The best "
            f"order of the same candidates would reach {best:.3f}."
        )
    words = [in_words(each) for each in gains]
    counts = [f"{verb} on {words.count(verb) or 'none'}" for verb in ("helps", "hurts")]
    return Conclusion(
        f"Of {len(gains)} data sets, reranking with {label} {' and '.join(counts)} by a "
        f"significant paired difference (the largest, on {short_task(gains[largest].task)}: "
        f"{effect})."
    )


_VERBS = {
    "helps": "helps",
    "hurts": "hurts",
    "no significant difference": "makes no significant difference",
}


def _effect(gain: PairedDifference) -> str:
    ends = interval_text(gain.interval, absent="(a single query)")
    p = p_value_text(gain.corrected, relation=True)
    return f"{gain.difference:+.3f} {ends}, p {p}, n = {gain.n}"


def order_table(pages: Sequence[Reranked], *, seed: int = 0) -> Table:
    """Ordering of relevant candidates above others, and calibration of P(yes)."""
    rows = []
    for page in pages:
        scores, labels = page.pairs()
        chance = probability(scores)
        order = aggregate({"order": page.order()}, how="mean", columns=("order",), seed=seed)
        middle = float(np.median(scores))
        rows.append(
            (
                Cell(short_task(page.name), f"{len(scores):,} pairs"),
                number(order),
                Cell(_against_chance(order)),
                Cell(f"{labels.mean():.3f}"),
                Cell(f"{chance.mean():.3f}"),
                Cell(f"{expected_error(chance, labels):.3f}"),
                Cell(f"{((chance - labels) ** 2).mean():.3f}"),
                Cell(f"{middle:+.2f}", f"[{scores.min():+.2f}, {scores.max():+.2f}]"),
            )
        )
    columns = (
        "data set", "relevant above others\n0.5 is chance", "in words", "relevant\nshare",
        "P(yes)\nmean", "calibration error\n10 bins", "Brier score", "log-odds\nmedian, range",
    )  # fmt: skip
    return Table(
        columns,
        tuple(rows),
        "Relevant above others: how often a relevant candidate of a query scores higher than one "
        "that is not; mean over queries with both kinds. Calibration error: mean distance of "
        "P(yes) from the share of relevant pairs, over ten bins weighted by their pairs.",
        name="rerank-order",
        caption="How well log-odds order the candidates of a query, and how far P(yes) is from "
        "the share of relevant pairs.",
    )


def _against_chance(order: Aggregate) -> str:
    if order.low is None or order.high is None:
        return order.undefined
    if order.low <= 0.5 <= order.high:
        return "chance is in the interval"
    return "above chance" if order.low > 0.5 else "below chance"


def probability(log_odds: Floats) -> Floats:
    """P(yes) for log-odds (N,)."""
    from qwen3nb.models.rerankers.yes_no import sigmoid

    return sigmoid(log_odds)


def reliability(chance: Floats, labels: NDArray[np.bool_]) -> list[tuple[float, float, int]]:
    """Mean P(yes), share of relevant pairs and number of pairs, per non-empty bin."""
    bin_of = np.minimum((chance * _BINS).astype(int), _BINS - 1)
    return [
        (float(chance[inside].mean()), float(labels[inside].mean()), int(inside.sum()))
        for inside in (bin_of == each for each in range(_BINS))
        if inside.any()
    ]


def expected_error(chance: Floats, labels: NDArray[np.bool_]) -> float:
    """Expected calibration error (Guo et al. 2017, https://arxiv.org/abs/1706.04599)."""
    bins = reliability(chance, labels)
    return sum(n * abs(mean - share) for mean, share, n in bins) / len(labels)
