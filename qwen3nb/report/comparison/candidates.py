"""Candidates against the model in use, on custom data: tables, a recommendation, a gate.

Reads the records of `qwen3nb domain`, or of any task with per-query scores of the tested metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from qwen3nb.analysis.comparison.candidates import rule, select_candidates, task_of
from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.analysis.comparison.differences import PairedDifference, significant
from qwen3nb.analysis.comparison.history import trend
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.records.record import Environment, Result
from qwen3nb.report.comparison.candidate_comparison import CandidateComparison, query_seconds
from qwen3nb.report.comparison.query_texts import query_text, top_documents
from qwen3nb.report.comparison.tables import difference_cells
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table
from qwen3nb.utils.format import (
    duration_text,
    interval_text,
    json_text,
    number_text,
    p_value_text,
)
from qwen3nb.utils.markdown import escaped

__all__ = ["TESTED", "CandidateReport", "compare_candidates", "times_text"]

SCHEMA = "qwen3nb.comparison/1"
TESTED = ("MRR@10", "nDCG@10")
_BEST = 5
_ROWS = ("top", "queries")  # of a record's settings, what has a row per query


_TIMES = (
    "Time: of the run that made the record, with what it encoded. Per query: from a text to its "
    "vector, one query at a time and without the cache; with BM25, to its ranking; median."
)


@dataclass(frozen=True)
class CandidateReport(CandidateComparison):
    """The comparison of candidates with the model in use, as tables, Markdown and JSON."""

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
            (Cell(each.model), Cell(each.verdict, strong=each.matters),
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
                Cell(duration_text(record.cost.seconds), f"for {_texts_done(record)}"),
                Cell(duration_text(query_seconds(record))),
            )
            for name, record in self.records.items()
        )
        heads = ("model", "loaded from", "dimensions", "prompts", "time", "per query")
        return Table(heads, rows, _TIMES, "words")

    def _differences(self) -> Table:
        how = self.comparison.procedure
        rows = []
        for task in self.comparison.tasks:
            for each in self.in_order(task):
                delta, p = difference_cells(each, alpha=how.alpha)
                tested = each.metric in self.tested
                rows.append(
                    (
                        Cell(each.metric),
                        Cell(each.first),
                        Cell(f"{each.means[0]:.3f}", f"against {each.means[1]:.3f}"),
                        delta,
                        p if tested else Cell("–"),
                        Cell(number_text(self.t_test(each), digits=4) if tested else "–"),
                        Cell(number_text(each.d_z, sign=True, digits=2)),
                        Cell(f"{each.won} / {each.tied} / {each.lost}", f"n = {each.n}"),
                        Cell(number_text(self.comparison.detectable(each))),
                    )
                )
        heads = (
            "metric", "model", "value", "Δ\n95 % interval", "p\ncorrected", "t-test\np",
            "d_z", "won / tied / lost", "detectable\npower 0.8",
        )  # fmt: skip
        left_out = "".join(f" {note}." for note in (*self.left_out, *self.comparison.notes))
        over = self.comparison.family(self.task)
        note = (
            f"p: two-sided paired permutation test, {over}; below it the raw p-value. t-test: "
            "paired, not corrected, for reference. Detectable: the smallest difference that these "
            f"queries show in 80 % of samples, at {how.alpha:g} over the number of pairs and by "
            "the interval."
            f"{left_out}"
        )
        return Table(heads, tuple(rows), note)

    def _categories(self) -> Table:
        alpha = self.comparison.procedure.alpha
        rows = [
            (
                Cell(each.first),
                Cell(row.category),
                Cell(f"{row.first:.3f}", f"against {row.second:.3f}"),
                Cell(f"{row.difference:+.3f}", interval_text(row.interval)),
                Cell(
                    p_value_text(row.p_value),
                    strong=significant(row.p_value, row.interval, alpha=alpha),
                ),
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
            ours, theirs = (
                _top_text(record, each.query) for record in (self.records[each.model], current)
            )
            values = f"{each.score:.3f} against {each.current:.3f}"
            rows.append(
                (
                    Cell(each.model),
                    Cell(query_text(current, each.query)),
                    Cell(f"{each.difference:+.3f}", values),
                    Cell(ours),
                    Cell(theirs),
                )
            )
        heads = (
            "model", "query", f"Δ {self.tested[0]}", f"top {_BEST}\nmodel",
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
                     strong=significant(run.p_value, run.change_interval, alpha=alpha)),
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

    @property
    def _data(self) -> str:
        """The task and its size."""
        record = self.records[self.current]
        size = [f"{count:,} {what}" for what, count in record.task.size.items()]
        dropped = len(record.config.get("dropped") or ())
        size += [f"{dropped} queries dropped"] * bool(dropped)
        return f"{self.task}: {', '.join([*size, f'revision {record.task.revision[:8]}'])}"

    def to_markdown(self) -> str:
        """Return the tables under their titles as Markdown, escaped."""
        parts = [f"# {escaped(self.decision.title)}", escaped(self.headline)]
        finished = max(each.finished for each in self.records.values())
        parts += [f"{escaped(self._data)}, {finished[:10]}."]
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
                "decision": asdict(self.decision),
                "decides": self.tested[0],
                "alpha": how.alpha,
                "threshold": how.minimum,
                "procedure": asdict(how),
                "environment": asdict(Environment.current()),
                "queries": self._queries(),
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

    def _queries(self) -> dict[str, dict[str, Any]]:
        """The text and category of every query."""
        current = self.records[self.current]
        categories = current.task.categories
        return {
            query: {"text": query_text(current, query), "category": categories.get(query)}
            for query in sorted(next(iter(current.per_query.values())))
        }

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
            "t_p_value": self.t_test(difference) if tested else None,
            "detectable": self.comparison.detectable(difference),
            **value,
        }


def _top_text(result: Result, query: str) -> str:
    """The best documents of a query; a search that finds none is not one that kept none."""
    none = "none" if isinstance(result.config.get("top"), Mapping) else "not kept"
    return ", ".join(top_documents(result, query)[:_BEST]) or none


def _prompts(result: Result) -> str:
    prompts = result.model.settings.get("prompts") or {}
    return ", ".join(f"{role}: {text!r}" for role, text in prompts.items()) or "none"


_WORK = {"bm25": "indexed or searched", "fusion": "indexed or encoded"}  # else encoded


def _texts_done(result: Result) -> str:
    """How many texts a run encoded or indexed, and how many vectors it had from the cache."""
    kind = str((result.model.settings.get("model") or {}).get("kind"))
    count = result.cost.encoded
    work = f"{count:,} text{'s' * (count != 1)} {_WORK.get(kind, 'encoded')}"
    return work if kind == "bm25" else f"{work}, {result.cost.cached:,} from the cache"


def times_text(result: Result, *, reused: bool = False) -> str:
    """What a record took: seconds, texts encoded and cached, seconds per query."""
    took = f"{duration_text(result.cost.seconds)} for {_texts_done(result)}"
    seconds = query_seconds(result)
    per_query = "" if seconds is None else f"; {duration_text(seconds)} per query"
    return (f"record reused, nothing encoded; it took {took}" if reused else took) + per_query


def _model(result: Result) -> dict[str, Any]:
    queries = next(iter(result.per_query.values()))
    return {
        "model": result.model,
        "task": result.task,
        "dimensions": result.config.get("dimensions"),
        "settings": {k: v for k, v in result.config.items() if k not in _ROWS},
        "seed": result.seed,
        "cost": result.cost,
        "seconds_per_query": query_seconds(result),
        "environment": result.environment,
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
