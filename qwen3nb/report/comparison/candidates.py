"""Models on one's own data against the one in use: tables, a recommendation, a gate.

For the records of `qwen3nb domain`, or of any task with the metrics that are tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from qwen3nb.analysis.comparison.alignment import model_names
from qwen3nb.analysis.comparison.candidates import TESTED, Comparison, Difference, compare_models
from qwen3nb.analysis.comparison.history import TrendPoint, trend
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.comparison.tables import query_text, top_documents
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table
from qwen3nb.utils.markdown import escaped, interval_text, json_text, number_text

__all__ = ["CandidateReport", "compare_candidates"]

SCHEMA = "qwen3nb.comparison/1"
OWN_DATA = "domain-"  # how the data sets of `qwen3nb domain` begin
_BEST = 5
_FEW = 30  # queries; see `bench.calibration`


@dataclass(frozen=True)
class CandidateReport:
    """Candidates against the model in use.

    Attributes:
        task: name of the task.
        found: differences, recommendations, breakdowns, changed queries.
        records: record per model, by the name used in the tables.
        runs: earlier and present runs of these models, on the metric that decides.
        decides: that metric.
        alpha: level of the corrected tests.
        threshold: smallest difference that matters.
        notes: what is not compared.
    """

    task: str
    found: Comparison
    records: dict[str, Result]
    runs: tuple[TrendPoint, ...]
    decides: str
    alpha: float
    threshold: float
    notes: tuple[str, ...]

    @property
    def regressions(self) -> tuple[str, ...]:
        """What a gate fails on: candidates that are worse, and runs worse than the one before."""
        worse = [
            f"{each.model}: {each.text}"
            for each in self.found.recommendations
            if each.verdict == "worse"
        ]
        worse += [
            f"{run.label}: its newest run is worse than the one before ({self.decides} "
            f"{run.change:+.3f}, corrected p = {run.p_value:.4f}, {run.n} queries)"
            for run in _newest(self.runs)
            if run.change is not None and run.p_value is not None
            if run.p_value < self.alpha and run.change < -self.threshold
        ]
        return tuple(worse)

    @property
    def caution(self) -> str:
        """What these queries would miss, or empty."""
        found = [d.detectable for d in self._deciding() if d.detectable is not None]
        said = []
        if found and max(found) > self.threshold:
            said.append(
                f"These queries show a difference with a power of 0.8 from {max(found):.3f} on "
                f"only; a smaller one, though more than {self.threshold:g}, may pass unseen: more "
                "queries would help."
            )
        if min((d.n for d in self._deciding()), default=_FEW + 1) <= _FEW:
            said.append(f"Bootstrap intervals of {_FEW} queries or fewer are somewhat too narrow.")
        return " ".join(said)

    def _deciding(self) -> list[Difference]:
        return [d for d in self.found.differences if d.metric == self.decides]

    def tables(self) -> dict[str, Table]:
        """Title and table, in the order of the report; empty ones are left out."""
        found = {
            "Recommendation": self._recommendations(),
            "Differences": self._differences(),
            "By category": self._categories(),
            "Queries that changed most": self._changes(),
            "Earlier runs": self._trend(),
        }
        return {title: table for title, table in found.items() if table.rows}

    def _recommendations(self) -> Table:
        rows = tuple(
            (Cell(each.model), Cell(each.verdict, strong=each.verdict in ("better", "worse")),
             Cell(each.text.partition(": ")[2]))
            for each in self.found.recommendations
        )  # fmt: skip
        heads = (f"against {self.found.current}", "verdict", "why")
        return Table(heads, rows, " ".join(filter(None, (self.found.rule, self.caution))), "words")

    def _differences(self) -> Table:
        rows = tuple(
            (
                Cell(each.metric),
                Cell(each.model),
                Cell(f"{each.mean:.3f}", f"current {each.current:.3f}"),
                Cell(f"{each.difference:+.3f}", interval_text(each.interval)),
                Cell(number_text(each.adjusted, digits=4), _t_test(each),
                     strong=each.adjusted is not None and each.adjusted < self.alpha),
                Cell(number_text(each.d_z, sign=True, digits=2)),
                Cell(f"{each.won} / {each.tied} / {each.lost}", f"{each.n} queries"),
                Cell(number_text(each.detectable)),
            )
            for each in sorted(self.found.differences, key=lambda d: self._order(d.metric))
        )  # fmt: skip
        heads = (
            "metric", "model", "value", "Δ\n95 % interval", "p\nadjusted", "d_z",
            "won / tied / lost", "detectable\npower 0.8",
        )  # fmt: skip
        notes = "".join(f" {note}." for note in (*self.notes, *self.found.notes))
        note = "p: paired permutation test, of the metrics that are tested; t: paired t-test, not"
        return Table(heads, rows, f"{note} adjusted, for comparison.{notes}")

    def _order(self, metric: str) -> int:
        return list(self.records[self.found.current].metrics).index(metric)

    def _categories(self) -> Table:
        rows = [
            (
                Cell(each.first),
                Cell(row.category),
                Cell(f"{row.first:.3f}", f"current {row.second:.3f}"),
                Cell(f"{row.difference:+.3f}", interval_text(row.interval)),
                Cell(f"{row.p_value:.4f}", strong=row.p_value < self.alpha),
                Cell(str(row.n)),
            )
            for each in self.found.breakdowns
            for row in each.rows
        ]
        turned = [f"{b.first}: {each.text}." for b in self.found.breakdowns for each in b.reversals]
        note = f"{self.decides}; Holm over the categories of a model. Orders that turn round: "
        heads = ("model", "category", "value", "Δ\n95 % interval", "p\nHolm", "queries")
        return Table(heads, tuple(rows), note + (" ".join(turned) or "none."))

    def _changes(self) -> Table:
        current = self.records[self.found.current]
        rows = []
        for each in self.found.changes:
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
            "model", "query", f"Δ {self.decides}\nmodel, current", f"best {_BEST}\nmodel",
            f"best {_BEST}\n{self.found.current}",
        )  # fmt: skip
        return Table(heads, tuple(rows), kind="words")

    def _trend(self) -> Table:
        rows = tuple(
            (
                Cell(run.label),
                Cell(run.finished[:19], f"{run.identity[:8]}, data {run.revision[:8]}"),
                Cell(number_text(run.mean), interval_text(run.interval, sign=False)),
                Cell(number_text(run.change, sign=True), interval_text(run.change_interval)),
                Cell(number_text(run.p_value, digits=4),
                     strong=run.p_value is not None and run.p_value < self.alpha),
                Cell(str(run.n)),
            )
            for run in self.runs
        )  # fmt: skip
        heads = ("model", "finished", f"{self.decides}\n95 % interval", "change\n95 % interval",
                 "p\nHolm", "queries")  # fmt: skip
        return Table(heads, rows, "Paired with the run before, if that had the same data.")

    def to_markdown(self) -> str:
        """The tables under their titles, everything escaped."""
        parts = [f"# {escaped(self.task)}: models compared with {escaped(self.found.current)}"]
        for title, table in self.tables().items():
            parts += [f"## {title}", table.to_markdown()]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> str:
        """All of it as strict JSON, with the scores and best documents of every query."""
        return json_text(
            {
                "schema": SCHEMA,
                "task": self.task,
                "decides": self.decides,
                "alpha": self.alpha,
                "threshold": self.threshold,
                "comparison": asdict(self.found),
                "runs": [asdict(run) for run in self.runs],
                "regressions": list(self.regressions),
                "caution": self.caution,
                "notes": list(self.notes),
                "models": {name: _model(result) for name, result in self.records.items()},
            }
        )


def _newest(runs: Sequence[TrendPoint]) -> list[TrendPoint]:
    return list({run.label: run for run in runs}.values())


def _t_test(difference: Difference) -> str:
    return "" if difference.t_p_value is None else f"t: {difference.t_p_value:.4f}"


def _model(result: Result) -> dict[str, Any]:
    queries = next(iter(result.per_query.values()))
    return {
        "model": result.model,
        "task": result.task,
        "finished": result.finished,
        "run": result.run,
        "metrics": {name: asdict(value) for name, value in result.metrics.items()},
        "per_query": result.per_query,
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
    n_resamples: int = 10_000,
    seed: int = 0,
) -> CandidateReport:
    """Compare models with the one in use, on one task.

    Args:
        results: any records.
        current: label of the model in use.
        task: name of the task or its data set; empty: the current model's one data set of
            one's own, else its one task.
        models: labels of the candidates; all that have the task by default.
        tested: metrics whose p-values make the family; the first one decides.
        alpha: level of the corrected tests.
        threshold: smallest difference that matters.
        most: queries listed per model.
        n_resamples: of bootstrap and permutation.
        seed: of the draws.

    Raises:
        ValueError: no such task or model, or nothing to compare; says what there is.
    """
    given = list(results)
    name = _task(given, task, current, tested)
    records, notes = _records(given, name, current, models, tested)
    used = next(n for n, r in records.items() if r.model.label == current)
    shared = [
        metric
        for metric, value in records[used].metrics.items()
        if value.how == "mean" and all(metric in r.per_query for r in records.values())
    ]
    scores = {n: {metric: r.per_query[metric] for metric in shared} for n, r in records.items()}
    found = compare_models(
        scores, current=used, categories=records[used].task.categories, tested=tested,
        decides=tested[0], alpha=alpha, threshold=threshold, n_resamples=n_resamples, most=most,
        seed=seed,
    )  # fmt: skip
    dataset = records[used].task.dataset or name
    labels = {result.model.label for result in records.values()}
    earlier = [
        r for r in given
        if (r.task.dataset or r.task.name) == dataset and r.model.label in labels
        and r.task.type == records[used].task.type
    ]  # fmt: skip
    runs = trend(earlier, metric=tested[0], n_resamples=n_resamples, seed=seed)
    return CandidateReport(name, found, records, runs, tested[0], alpha, threshold, tuple(notes))


def _task(results: Sequence[Result], task: str, current: str, tested: Sequence[str]) -> str:
    """The name of the task that is meant; of several revisions the one finished last."""
    fit = [r for r in results if all(metric in r.per_query for metric in tested)]
    if task:
        fit = [r for r in fit if task in (r.task.name, r.task.dataset, _own_data(r))]
    mine = sorted((r for r in fit if r.model.label == current), key=lambda r: r.finished)
    if not task:
        mine = [r for r in mine if _own_data(r)] or mine
    names = {r.task.name for r in mine}
    if not mine:
        labels = ", ".join(sorted({r.model.label for r in fit})) or "none"
        raise ValueError(
            f"no record of {current!r} with {' and '.join(tested)} per query"
            f"{f' on {task!r}' if task else ''}; models that have: {labels}"
        )
    if not task and len({r.task.dataset or r.task.name for r in mine}) > 1:
        raise ValueError(f"choose a task: {', '.join(sorted(names))}")
    if len(names) > 1 and task not in names and len({r.task.type for r in mine}) > 1:
        raise ValueError(f"choose a task: {', '.join(sorted(names))}")
    return str(task if task in names else mine[-1].task.name)


def _own_data(result: Result) -> str:
    """The name of one's own data that a record is of, without its prefix; or empty."""
    dataset = result.task.dataset or ""
    return dataset.removeprefix(OWN_DATA) if dataset.startswith(OWN_DATA) else ""


def _records(
    results: Sequence[Result], task: str, current: str, models: Sequence[str], tested: Sequence[str]
) -> tuple[dict[str, Result], list[str]]:
    """The newest record per model, the current one's first; and what is left out."""
    chosen = [result for result in latest(results) if result.task.name == task]
    labels = sorted({result.model.label for result in chosen})
    if unknown := [label for label in models if label not in labels]:
        raise ValueError(f"no record of {unknown[0]!r} on {task}; there are: {', '.join(labels)}")
    wanted = [r for r in chosen if not models or r.model.label in (current, *models)]
    used = next(r for r in wanted if r.model.label == current)
    names = model_names(wanted)
    records, notes = {names[used.model.identity]: used}, []
    for result in wanted:
        name = names[result.model.identity]
        lacking = [metric for metric in tested if metric not in result.per_query]
        if result.task.revision != used.task.revision:
            notes.append(f"{name} was run on another revision of the data")
        elif lacking:
            notes.append(f"{name} has no {lacking[0]} per query")
        elif result is not used:
            records[name] = result
    if len(records) < 2:
        raise ValueError(f"no other model than {current!r} on {task}: {'; '.join(notes) or task}")
    return records, notes
