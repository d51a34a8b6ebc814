"""What are generated queries worth? How well they stand for the queries of people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    TaskComparison,
)
from qwen3nb.analysis.comparison.query_worth import (
    RESAMPLES,
    DecisionAgreement,
    Estimate,
    Means,
    decision_agreement,
    lexical_shift,
    order_agreement,
    resample,
)
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, system_scores
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.datasets.generated.queries import BY_RULE, DEFAULT_NUMBER
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.figure import GREY, Axes, Figure, MplFigure, grid, panels, plain
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural, short_task
from qwen3nb.utils.format import interval_text, number_text
from qwen3nb.utils.imports import DataFrame

if TYPE_CHECKING:
    from qwen3nb.datasets.custom.documents import DocumentLayout
    from qwen3nb.evaluation.studies.query_worth import WorthScores
    from qwen3nb.models.model import Model

_METRIC = "nDCG@10"
ALL_KINDS = "all kinds"
_GOOD_TAU = 0.8  # from which an order is called nearly the same
_LEXICAL = "bm25"
# What a sentence calls the queries of a kind.
_KINDS = {
    "title": "titles",
    "phrases": "key phrases",
    "masked": "masked sentences",
    "question": "questions by templates",
}


@dataclass(frozen=True)
class KindWorth:
    """What the queries of one kind are worth."""

    kind: str
    queries: int
    scores: tuple[float, ...]  # the mean of each model
    order: Estimate  # Kendall's tau-b with the order on real queries
    decisions: DecisionAgreement
    shift: Estimate  # by how much they favour lexical search


@dataclass(frozen=True, repr=False)
class QueryWorth(Answer):
    """How generated queries order models, and decide between them, against real queries."""

    name: str  # of the data
    real: TaskComparison  # of the models on real queries
    generated: TaskComparison  # on all generated queries
    categories: Mapping[str, str]  # kind by generated query
    lexical: tuple[str, ...]  # models that search by words alone
    others: tuple[str, ...]  # models that use vectors alone
    data: DataUsed
    seed: int = 0

    @property
    def models(self) -> tuple[str, ...]:
        """The models, in the order in which they were named."""
        return tuple(self.real.columns)

    @property
    def real_queries(self) -> int:
        """How many real queries there are."""
        return len(self._real_matrix.queries)

    @cached_property
    def _real_matrix(self) -> ScoreMatrix:
        return self.real.matrix(*self.models)

    @cached_property
    def _real_means(self) -> Means:
        return resample(self._real_matrix, seed=self.seed)

    @cached_property
    def kinds(self) -> tuple[KindWorth, ...]:
        """The worth of each kind, and of all kinds together if there are several."""
        names = list(dict.fromkeys(self.categories.values()))
        worths = [self._worth(kind) for kind in names]
        if len(names) > 1:
            worths.append(self._worth(ALL_KINDS))
        return tuple(worths)

    @property
    def _single_kinds(self) -> list[KindWorth]:
        """The worth of each kind, without that of all kinds together."""
        return [worth for worth in self.kinds if worth.kind != ALL_KINDS]

    def _worth(self, kind: str) -> KindWorth:
        """Return what the queries of a kind are worth."""
        comparison = self.generated
        if kind != ALL_KINDS:
            comparison = _on_kind(self.generated, self.categories, kind)
        matrix = comparison.matrix(*self.models)
        means = resample(matrix, seed=self.seed)
        return KindWorth(
            kind=kind,
            queries=len(matrix.queries),
            scores=tuple(means.sample.tolist()),
            order=order_agreement(self._real_means, means),
            decisions=decision_agreement(
                self.real_differences,
                comparison.among(self.models),
                alpha=self.real.procedure.alpha,
            ),
            shift=lexical_shift(
                self._real_means,
                means,
                lexical=self._positions(self.lexical),
                others=self._positions(self.others),
            ),
        )

    @cached_property
    def real_differences(self) -> list[PairedDifference]:
        """The tested difference of each pair of models on real queries."""
        return self.real.among(self.models)

    def _positions(self, names: Iterable[str]) -> list[int]:
        return [self.models.index(name) for name in names]

    @cached_property
    def best(self) -> KindWorth | None:
        """The kind whose order is nearest to that on real queries; None if none is defined."""
        defined = [worth for worth in self._single_kinds if worth.order.value is not None]
        if not defined:
            return None
        return max(defined, key=lambda worth: worth.order.value or 0.0)

    @property
    def conclusion(self) -> Conclusion:
        """Which kind stands best for real queries, and how well, in two sentences."""
        return Conclusion(f"{self._first_sentence()} {self._second_sentence()}", data=self.data)

    def _first_sentence(self) -> str:
        models = plural(len(self.models), "model")
        if self.best is None:
            return f"On {self.name}, real and generated queries give no order of {models}."
        value = self.best.order.value or 0.0
        kind = _KINDS.get(self.best.kind, f"{self.best.kind} queries")
        interval = interval_text(self.best.order.interval, sign=False, digits=2)
        tau = f"Kendall's tau-b {number_text(value, digits=2)} {interval}"
        if value < _GOOD_TAU:
            return f"On {self.name}, {kind} come nearest to the real order of {models}: {tau}."
        return f"On {self.name}, {kind} order {models} nearly as real queries do: {tau}."

    def _second_sentence(self) -> str:
        if self.best is None:
            return "All models score alike on one of the two."
        counts = self.best.decisions
        if not counts.decided:
            return "Real queries decide between no two of them."
        pairs = "one pair" if counts.decided == 1 else f"{counts.decided} pairs"
        return (
            f"Of {pairs} that real queries decide, they decide {counts.same} alike and "
            f"{counts.opposite} the other way; {counts.undecided} stay open."
        )

    def table(self) -> Table:
        """A row per kind: how it orders models, and decides between them."""
        rows = [self._row(worth) for worth in self.kinds]
        decided = self.kinds[0].decisions
        return Table.of(
            rows,
            name="query-worth",
            caption=f"Generated queries against {self.real_queries:,} real ones of "
            f"{short_task(self.name)}, by {_METRIC} of {len(self.models)} models.",
            note=f"Real queries decide {decided.decided} of {decided.pairs} pairs of models; "
            f"{self._highest(self._real_means.sample.tolist())} scores highest on them. "
            "Favours BM25: its lead over models with vectors, minus that on real queries.",
            method="Kendall's tau-b of the mean scores; 1 is the same order. Intervals: 95 %, "
            f"percentile bootstrap of {RESAMPLES:,} resamples over the queries of both sets, those "
            "of one document together. They hold for these models. A pair is decided as on the "
            f"page of comparisons: {self._test_words()}.",
            data=self.data,
        )

    def _test_words(self) -> str:
        if not self.real_differences:
            return "no pair"
        return self.real_differences[0].method

    def _row(self, worth: KindWorth) -> dict[str, object]:
        counts = worth.decisions
        return {
            "queries": Cell(worth.kind, f"n = {worth.queries:,}"),
            "tau-b\nwith real": _estimate_cell(worth.order, ".2f"),
            "decided\nalike": _share_cell(counts.same, counts.decided),
            "the other\nway": _share_cell(counts.opposite, counts.decided),
            "not\ndecided": _share_cell(counts.undecided, counts.decided),
            "only by\ngenerated": Cell(str(counts.only_generated), value=counts.only_generated),
            "favours\nBM25": _estimate_cell(worth.shift, "+.3f"),
            "highest\nscore": self._highest(worth.scores),
        }

    def _highest(self, scores: Sequence[float]) -> str:
        """Return the model of the highest score."""
        return max(zip(scores, self.models, strict=True), key=lambda pair: pair[0])[1]

    def scores_table(self) -> Table:
        """The mean of each model on real queries and on those of each kind, the best first."""
        real_scores = self._real_means.sample.tolist()
        rows: list[dict[str, object]] = []
        for position in sorted(range(len(self.models)), key=lambda index: -real_scores[index]):
            row: dict[str, object] = {
                "model": self.models[position],
                "real": number(real_scores[position]),
            }
            for worth in self.kinds:
                row[worth.kind] = number(worth.scores[position])
            rows.append(row)
        return Table.of(
            rows,
            name="query-worth-scores",
            caption=f"Mean {_METRIC} on real and on generated queries of {short_task(self.name)}.",
            note=f"n = {self.real_queries:,} real queries.",
            data=self.data,
        )

    def figure(self) -> Figure:
        """The mean of each model on generated queries against that on real ones, a panel a kind."""
        orders = [
            f"{worth.kind} {number_text(worth.order.value, digits=2)}"
            for worth in self._single_kinds
            if worth.order.value is not None
        ]
        return Figure(
            name="query-worth",
            draw=self._draw,
            caption=f"Mean {_METRIC} of each model on generated queries, against that on "
            f"{self.real_queries:,} real ones. On a rising line, both order models alike. Square: "
            "BM25; diamond: the best model on real queries.",
            alt=f"Scores on generated against real queries. Kendall's tau-b: {', '.join(orders)}.",
            data=self.data,
        )

    def _draw(self, width: float) -> MplFigure:
        kinds = self._single_kinds
        figure, axes, firsts = panels(
            len(kinds), width, height=2.6, per_line=2, sharex=True, sharey=True
        )
        for axis, worth in zip(axes, kinds, strict=True):
            self._draw_panel(axis, worth)
        for axis in firsts:
            axis.set_ylabel("generated queries")
        return figure

    def _draw_panel(self, axis: Axes, worth: KindWorth) -> None:
        """Draw a point per model, without names, which would overlap; the table has them."""
        axis.plot([0, 1], [0, 1], color=GREY, lw=1, alpha=0.4)
        real_scores = self._real_means.sample.tolist()
        best = self._highest(real_scores)
        for position, model in enumerate(self.models):
            marker = "D" if model == best else "o"
            if model in self.lexical:
                marker = "s"
            point = (float(real_scores[position]), worth.scores[position])
            axis.plot(*point, marker=marker, ms=4.5, color="C0")
        axis.set_title(plain(worth.kind))
        axis.set_xlabel("real queries")
        axis.set_xlim(-0.03, 1.03)
        axis.set_ylim(-0.03, 1.03)
        grid(axis, which="both")

    def to_frame(self) -> DataFrame:
        """A row per kind: numbers of the tables, unrounded."""
        import pandas as pd

        rows = []
        for worth in self.kinds:
            low, high = worth.order.interval or (None, None)
            shift_low, shift_high = worth.shift.interval or (None, None)
            rows.append(
                {
                    "kind": worth.kind,
                    "queries": worth.queries,
                    "tau_b": worth.order.value,
                    "low": low,
                    "high": high,
                    **vars(worth.decisions),
                    "favours_bm25": worth.shift.value,
                    "favours_bm25_low": shift_low,
                    "favours_bm25_high": shift_high,
                }
            )
        return pd.DataFrame(rows)


def query_worth(
    models: Iterable[Model | str],
    data: object,
    *,
    documents: object = None,
    layout: DocumentLayout | None = None,
    titles: Mapping[str, str] | None = None,
    kinds: Sequence[str] = BY_RULE,
    number: int = DEFAULT_NUMBER,
    dimensions: Sequence[int] = (),
    output: Path | None = None,
    seed: int = 0,
) -> QueryWorth:
    """Generate queries, and measure what they are worth against real queries on the same documents.

    Args:
        models: three or more; values of `Model`, or specs.
        data: a query file with grades, if there are ``documents``; else a BEIR folder, an MTEB
            retrieval task, or a `TestCollection`.
        documents: a file or rows of documents.
        layout: the columns that make up a document.
        titles: title by document; by default those of a BEIR folder.
        kinds: how queries are made: ``title``, ``phrases``, ``masked``, ``question``.
        number: how many of each kind.
        dimensions: leading dimensions with which encoders are also taken.
        output: folder of the records; by default ``results/worth``.
        seed: which documents are drawn, and the seed of the resampling.

    Raises:
        DataError: unreadable data, no real query, or fewer than three models.
    """
    from qwen3nb.evaluation.studies.query_worth import read_worth_data, score_worth

    read = read_worth_data(data, documents, layout=layout, titles=titles)
    scores = score_worth(
        models,
        read,
        dimensions=dimensions,
        output=output,
        kinds=kinds,
        number=number,
        seed=seed,
    )
    return worth_of(scores, seed=seed)


def worth_of(scores: WorthScores, *, seed: int = 0) -> QueryWorth:
    """Return what generated queries are worth, from the records of models on both."""
    real = compare(scores.real, metric=_METRIC, seed=seed)
    generated = compare(scores.generated, metric=_METRIC, seed=seed)
    lexical = []
    others = []
    for record in scores.real:
        settings = record.model.settings
        kind = settings.get("model", {}).get("kind")
        if kind == _LEXICAL:
            lexical.append(real.name(record))
        elif "of" not in settings and record.model.spec != "random":  # "of": a fusion
            others.append(real.name(record))
    return QueryWorth(
        name=scores.name,
        real=_by_main_metric(real, scores.real),
        generated=_renamed(
            _by_main_metric(generated, scores.generated), [real.name(one) for one in scores.real]
        ),
        categories=dict(scores.generated[0].task.categories),
        lexical=tuple(lexical),
        others=tuple(others),
        data=DataUsed.of([*scores.real, *scores.generated]),
        seed=seed,
    )


def _by_main_metric(comparison: Comparison, records: Sequence[Result]) -> TaskComparison:
    """Return the comparison by the metric that the answer reads."""
    found = comparison.on(records[0].task.key, _METRIC)
    if found is None:
        raise ValueError(f"{records[0].task.key}: no {_METRIC} per query")
    # In the order in which the models were named.
    names = [comparison.name(record) for record in records]
    columns = {name: found.columns[name] for name in names}
    return replace(found, columns=columns)


def _renamed(comparison: TaskComparison, names: Sequence[str]) -> TaskComparison:
    """Return a comparison whose models have other names; some are labelled by what they split."""
    columns = dict(zip(names, comparison.columns.values(), strict=True))
    return replace(comparison, columns=columns, baseline="")


def _on_kind(
    comparison: TaskComparison, categories: Mapping[str, str], kind: str
) -> TaskComparison:
    """Return a comparison on the queries of a kind."""
    columns = {}
    for name, column in comparison.columns.items():
        positions = [
            position for position, query in enumerate(column.queries) if categories[query] == kind
        ]
        queries = tuple(column.queries[position] for position in positions)
        columns[name] = system_scores(queries, column.scores[positions])
    return replace(comparison, columns=columns)


def _estimate_cell(estimate: Estimate, spec: str) -> Cell:
    return number(estimate.value, spec, interval=estimate.interval)


def _share_cell(count: int, total: int) -> Cell:
    if not total:
        return Cell("–")
    return Cell(f"{count} of {total}", value=count)
