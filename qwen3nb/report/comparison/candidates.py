"""Candidates against the model in use, on custom data: tables, a recommendation, a gate.

Reads the records of `qwen3nb domain`, or of any task with per-query scores of the tested metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from qwen3nb.analysis.comparison.by_category import Breakdown, breakdown
from qwen3nb.analysis.comparison.candidates import (
    QueryChange,
    Recommendation,
    largest_changes,
    recommend,
    rule,
    select_candidates,
    task_of,
)
from qwen3nb.analysis.comparison.compare import Comparison, compare
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.analysis.comparison.history import TrendPoint, trend
from qwen3nb.analysis.comparison.task_comparison import TaskComparison
from qwen3nb.analysis.stats.paired_tests import minimum_detectable_effect, t_test
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.records.record import Result
from qwen3nb.report.comparison.query_texts import query_text, top_documents
from qwen3nb.report.comparison.tables import difference_cells
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import interval_text, json_text, number_text, p_value_text
from qwen3nb.utils.markdown import escaped

__all__ = ["TESTED", "CandidateReport", "compare_candidates"]

SCHEMA = "qwen3nb.comparison/1"
TESTED = ("MRR@10", "nDCG@10")
_BEST = 5
_FEW = 9  # queries, below which coverage is not known to hold; see `analysis.calibration`


@dataclass(frozen=True)
class CandidateReport:
    """Candidates compared with the model in use, on one task.

    Attributes:
        comparison: the differences, metric by metric.
        tested: metrics whose p-values are shown; the first is the deciding one.
        runs: earlier and present runs of these models, on the deciding metric.
        most: number of queries listed per candidate.
        left_out: records that are not compared, each with the reason.
    """

    comparison: Comparison
    tested: tuple[str, ...]
    runs: tuple[TrendPoint, ...]
    most: int
    left_out: tuple[str, ...]

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.deciding.task

    @property
    def current(self) -> str:
        """Name of the model in use."""
        return self.comparison.baseline

    @property
    def records(self) -> Mapping[str, Result]:
        """The record of each model by name, the model in use first."""
        names = {name: record for (_, name), record in self.comparison.records.items()}
        return {self.current: names.pop(self.current), **names}

    @property
    def deciding(self) -> TaskComparison:
        """The comparison on the deciding metric."""
        (deciding,) = (task for task in self.comparison.tasks if task.metric == self.tested[0])
        return deciding

    @property
    def recommendations(self) -> tuple[Recommendation, ...]:
        """The recommendation for each candidate."""
        how = self.comparison.procedure
        return tuple(recommend(each, procedure=how) for each in self._decisive)

    @property
    def headline(self) -> str:
        """The decision in a sentence: ``Take Y`` if a candidate is better, else ``Keep X``."""
        by_gain = sorted(self._decisive, key=lambda each: -each.difference)
        verdicts = {each.model: each.verdict for each in self.recommendations}
        better = [each.first for each in by_gain if verdicts[each.first] == "better"]
        worse = [each.first for each in by_gain if verdicts[each.first] == "worse"]
        best = by_gain[0]
        numbers = (
            f"{best.metric} {best.means[0]:.3f} against {best.means[1]:.3f}, difference "
            f"{best.difference:+.3f} {interval_text(best.interval)}, corrected p "
            f"{p_value_text(best.corrected, relation=True)}, n = {best.n}"
        )
        if better:
            others = f"; {', '.join(better[1:])} would be better too" if better[1:] else ""
            return f"Take {best.first} instead of {self.current}: {numbers}{others}."
        if len(worse) == len(by_gain):
            return f"Keep {self.current}: {', '.join(worse)} worse ({best.first}: {numbers})."
        return f"Keep {self.current}: no candidate is better ({best.first}: {numbers})."

    @property
    def _decisive(self) -> tuple[PairedDifference, ...]:
        order = list(self.records)
        return tuple(sorted(self.deciding.with_baseline, key=lambda d: order.index(d.first)))

    @cached_property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """The differences by category of queries, per candidate; empty without categories."""
        categories = self.records[self.current].task.categories
        how = self.comparison.procedure
        return tuple(
            breakdown(
                self.deciding.columns[each.first], self.deciding.columns[self.current], categories,
                names=(each.first, self.current), n_resamples=how.draws, alpha=how.alpha,
                seed=how.seed,
            )
            for each in self._decisive
            if categories
        )  # fmt: skip

    @property
    def changes(self) -> tuple[QueryChange, ...]:
        """The queries that changed most on the deciding metric, per candidate."""
        matrices = (self.deciding.matrix(each.first, self.current) for each in self._decisive)
        return tuple(c for matrix in matrices for c in largest_changes(matrix, most=self.most))

    @property
    def regressions(self) -> tuple[str, ...]:
        """What a gate fails on: worse candidates, and runs worse than the previous one."""
        how = self.comparison.procedure
        worse = [
            f"{each.model}: {each.text}" for each in self.recommendations if each.verdict == "worse"
        ]
        worse += [
            f"{run.label}: its newest run is worse than the previous one ({self.tested[0]} "
            f"{run.change:+.3f}, corrected p {p_value_text(run.p_value, relation=True)}, "
            f"n = {run.n})"
            for run in _newest(self.runs)
            if run.change is not None and run.p_value is not None
            if run.p_value < how.alpha and run.change < -how.minimum
        ]
        return tuple(worse)

    @property
    def caution(self) -> str:
        """What these queries are too few to detect; empty if nothing."""
        minimum = self.comparison.procedure.minimum
        detectable = [self._detectable(each) for each in self._decisive]
        largest = max((value for value in detectable if value is not None), default=0.0)
        sentences = []
        if largest > minimum:
            sentences.append(
                f"With these queries, only differences of {largest:.3f} or more are detected with "
                f"a power of 0.8; smaller ones above {minimum:g} may be missed; use more "
                "queries."
            )
        if min((d.n for d in self._decisive), default=_FEW + 1) <= _FEW:
            sentences.append(f"Intervals from {_FEW} queries or fewer may be too narrow.")
        return " ".join(sentences)

    def _detectable(self, difference: PairedDifference) -> float | None:
        return minimum_detectable_effect(*self.comparison.matrix(difference).scores)

    def _t_test(self, difference: PairedDifference) -> float | None:
        return t_test(*self.comparison.matrix(difference).scores).p_value

    def tables(self) -> dict[str, Table]:
        """Return the tables by title, in the order of the report; empty ones are left out."""
        tables = {
            "Recommendation": self._recommendations(),
            "Models": self._models(),
            "Differences": self._differences(),
            "By category": self._categories(),
            "Queries that changed most": self._changes(),
            "Earlier runs": self._trend(),
        }
        return {title: table for title, table in tables.items() if table.rows}

    def _recommendations(self) -> Table:
        rows = tuple(
            (Cell(each.model), Cell(each.verdict, strong=each.verdict in ("better", "worse")),
             Cell(each.text.partition(": ")[2]))
            for each in self.recommendations
        )  # fmt: skip
        note = " ".join(filter(None, (rule(self.comparison, self.deciding), self.caution)))
        return Table((f"against {self.current}", "verdict", "why"), rows, note, "words")

    def _models(self) -> Table:
        rows = tuple(
            (
                Cell(name),
                Cell(record.model.spec, record.model.identity[:8]),
                Cell(str(record.config.get("dimensions") or "–")),
                Cell(_prompts(record)),
                Cell(f"{record.cost.seconds:.1f} s", _texts(record)),
            )
            for name, record in self.records.items()
        )
        return Table(("model", "loaded from", "dimensions", "prompts", "time"), rows, kind="words")

    def _differences(self) -> Table:
        how, order = self.comparison.procedure, list(self.records)
        rows = []
        for task in self.comparison.tasks:
            for each in sorted(task.with_baseline, key=lambda d: order.index(d.first)):
                delta, p = difference_cells(each, alpha=how.alpha)
                tested = each.metric in self.tested
                rows.append(
                    (
                        Cell(each.metric),
                        Cell(each.first),
                        Cell(f"{each.means[0]:.3f}", f"current {each.means[1]:.3f}"),
                        delta,
                        p if tested else Cell("–"),
                        Cell(number_text(self._t_test(each), digits=4) if tested else "–"),
                        Cell(number_text(each.d_z, sign=True, digits=2)),
                        Cell(f"{each.won} / {each.tied} / {each.lost}", f"n = {each.n}"),
                        Cell(number_text(self._detectable(each))),
                    )
                )
        heads = (
            "metric", "model", "value", "Δ\n95 % interval", "p\ncorrected", "t-test\np",
            "d_z", "won / tied / lost", "detectable\npower 0.8",
        )  # fmt: skip
        left_out = "".join(f" {note}." for note in (*self.left_out, *self.comparison.notes))
        family = self.comparison.family(self.deciding.task).replace("on each task", "per metric")
        note = (
            f"p: two-sided paired permutation test, {family}; below it the raw p-value. t-test: "
            f"paired, not corrected, for reference.{left_out}"
        )
        return Table(heads, tuple(rows), note)

    def _categories(self) -> Table:
        alpha = self.comparison.procedure.alpha
        rows = [
            (
                Cell(each.first),
                Cell(row.category),
                Cell(f"{row.first:.3f}", f"current {row.second:.3f}"),
                Cell(f"{row.difference:+.3f}", interval_text(row.interval)),
                Cell(p_value_text(row.p_value), strong=row.p_value < alpha),
                Cell(str(row.n)),
            )
            for each in self.breakdowns
            for row in each.rows
        ]
        reversals = [f"{b.first}: {each.text}." for b in self.breakdowns for each in b.reversals]
        note = f"{self.tested[0]}; p: Holm over the categories of a model. Reversals: "
        heads = ("model", "category", "value", "Δ\n95 % interval", "p\ncorrected", "queries")
        return Table(heads, tuple(rows), note + (" ".join(reversals) or "none."))

    def _changes(self) -> Table:
        current = self.records[self.current]
        rows = []
        for each in self.changes:
            ours = ", ".join(top_documents(self.records[each.model], each.query)[:_BEST])
            theirs = ", ".join(top_documents(current, each.query)[:_BEST])
            values = f"{each.score:.3f}, {each.current:.3f}"
            rows.append(
                (
                    Cell(each.model),
                    Cell(query_text(current, each.query)),
                    Cell(f"{each.difference:+.3f}", values),
                    Cell(ours or "not kept"),
                    Cell(theirs or "not kept"),
                )
            )
        heads = (
            "model", "query", f"Δ {self.tested[0]}\nmodel, current", f"top {_BEST}\nmodel",
            f"top {_BEST}\n{self.current}",
        )  # fmt: skip
        return Table(heads, tuple(rows), kind="words")

    def _trend(self) -> Table:
        alpha = self.comparison.procedure.alpha
        rows = tuple(
            (
                Cell(run.label),
                Cell(run.finished[:19], f"{run.identity[:8]}, data {run.revision[:8]}"),
                Cell(number_text(run.mean), interval_text(run.interval, sign=False)),
                Cell(number_text(run.change, sign=True), interval_text(run.change_interval)),
                Cell(p_value_text(run.p_value),
                     strong=run.p_value is not None and run.p_value < alpha),
                Cell(str(run.n)),
            )
            for run in self.runs
        )  # fmt: skip
        heads = ("model", "finished", f"{self.tested[0]}\n95 % interval",
                 "change\n95 % interval", "p\ncorrected", "queries")  # fmt: skip
        note = (
            "Each run is paired with the previous run on the same data; p: Holm over these changes."
        )
        return Table(heads, rows, note)

    def to_markdown(self) -> str:
        """Return the tables under their titles as Markdown, escaped."""
        title = f"{self.task}: models compared with {self.current}"
        parts = [f"# {escaped(self.headline.partition(':')[0])}", escaped(self.headline)]
        parts += [f"{escaped(title)}, {max(r.finished for r in self.records.values())[:10]}."]
        for name, table in self.tables().items():
            parts += [f"## {name}", table.to_markdown()]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> str:
        """Return the report as strict JSON, with the scores and top documents of every query."""
        how = self.comparison.procedure
        return json_text(
            {
                "schema": SCHEMA,
                "task": self.task,
                "headline": self.headline,
                "decides": self.tested[0],
                "alpha": how.alpha,
                "threshold": how.minimum,
                "comparison": {
                    "current": self.current,
                    "differences": [self._as_dict(each) for each in self.comparison.differences],
                    "recommendations": [asdict(each) for each in self.recommendations],
                    "breakdowns": [asdict(each) for each in self.breakdowns],
                    "changes": [asdict(each) for each in self.changes],
                    "rule": rule(self.comparison, self.deciding),
                    "notes": list(self.comparison.notes),
                },
                "runs": [asdict(run) for run in self.runs],
                "regressions": list(self.regressions),
                "caution": self.caution,
                "notes": list(self.left_out),
                "models": {name: _model(result) for name, result in self.records.items()},
            }
        )

    def _as_dict(self, difference: PairedDifference) -> dict[str, Any]:
        """Return a difference under the keys of the JSON schema."""
        value = asdict(difference)
        mean, current = value.pop("means")
        del value["first"], value["second"], value["task"]
        tested = difference.metric in self.tested
        p, adjusted = value.pop("p_value"), value.pop("corrected")
        return {
            "model": difference.first,
            "mean": mean,
            "current": current,
            "p_value": p if tested else None,
            "adjusted": adjusted if tested else None,
            "t_p_value": self._t_test(difference) if tested else None,
            "detectable": self._detectable(difference),
            **value,
        }


def _newest(runs: Sequence[TrendPoint]) -> list[TrendPoint]:
    return list({run.label: run for run in runs}.values())


def _prompts(result: Result) -> str:
    prompts = result.model.settings.get("prompts") or {}
    return ", ".join(f"{role}: {text!r}" for role, text in prompts.items()) or "none"


def _texts(result: Result) -> str:
    return f"{result.cost.encoded:,} texts encoded, {result.cost.cached:,} from the cache"


def _model(result: Result) -> dict[str, Any]:
    queries = next(iter(result.per_query.values()))
    return {
        "model": result.model,
        "task": result.task,
        "dimensions": result.config.get("dimensions"),
        "cost": result.cost,
        "finished": result.finished,
        "run": result.run,
        "metrics": {name: asdict(value) for name, value in result.metrics.items()},
        "per_query": result.scores.plain(),
        "top": {query: top_documents(result, query)[:_BEST] for query in sorted(queries)},
    }


def compare_candidates(
    results: Iterable[Result],
    *,
    current: str,
    task: str = "",
    models: Sequence[str] = (),
    tested: Sequence[str] = TESTED,
    alpha: float = 0.05,
    threshold: float = 0.05,
    most: int = 5,
    n_resamples: int = DRAWS,
    seed: int = 0,
) -> CandidateReport:
    """Compare candidates with the model in use, on one task.

    Args:
        results: any records.
        current: label of the model in use.
        task: name of the task or its data set; by default the only custom data set of the
            current model, else its only retrieval task, else its only task.
        models: labels of the candidates; by default all models with results on the task.
        tested: metrics whose p-values are shown; the first is the deciding one.
        alpha: level of the corrected tests.
        threshold: smallest difference that matters.
        most: number of queries listed per model.
        n_resamples: number of sign flips of the permutation test.
        seed: seed of the resampling.

    Raises:
        ValueError: an unknown task or model, or nothing to compare; lists those available.
    """
    results = list(results)
    name = task_of(results, current=current, task=task, tested=tested)
    records, left_out = select_candidates(
        results, task=name, current=current, models=models, tested=tested
    )
    used = records[0]
    metrics = [
        metric
        for metric, value in used.metrics.items()
        if value.how == "mean" and all(metric in each.per_query for each in records)
    ]
    comparison = compare(
        records, baseline=current, metric=metrics, tasks=[name], alpha=alpha, minimum=threshold,
        draws=n_resamples, seed=seed,
    )  # fmt: skip
    dataset = used.task.dataset or name
    labels = {result.model.label for result in records}
    earlier = [
        r for r in results
        if (r.task.dataset or r.task.key) == dataset and r.model.label in labels
        and r.task.type == used.task.type
    ]  # fmt: skip
    runs = trend(earlier, metric=tested[0], n_resamples=n_resamples, seed=seed)
    return CandidateReport(comparison, tuple(tested), runs, most, tuple(left_out))
