"""Candidates against the model in use, on custom data: tables, a recommendation, a gate.

Reads the records of `qwen3nb domain`, or of any task with per-query scores of the tested metrics.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from qwen3nb.analysis.comparison import candidates, doubts
from qwen3nb.analysis.comparison.alignment import system_names
from qwen3nb.analysis.comparison.compare import Comparison, compare
from qwen3nb.analysis.comparison.decision import Decision, decide, evidence, model_costs
from qwen3nb.analysis.comparison.differences import (
    HOLM,
    PairedDifference,
    TaskComparison,
    significant,
)
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.analysis.stats.paired_tests import t_test
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.metrics.retrieval import JUDGED, NOTHING_FOUND, PART_FOUND_NOTHING
from qwen3nb.records.record import Environment, Result
from qwen3nb.report.comparison.compare import difference_cells, p_cell
from qwen3nb.report.comparison.explorer import query_text, top_documents
from qwen3nb.report.render.table import Cell, Conclusion, Table, number
from qwen3nb.utils.format import duration_text, escaped, json_text, number_text, p_value_text

_BEST = 5  # documents listed per ranking
_ALSO_TESTED = ("MRR@10", "nDCG@10")  # next to a task's main metric
_FEW = 9  # number of queries up to which coverage is not guaranteed; see `analysis.calibration`


@dataclass(frozen=True)
class CandidateReport:
    """Candidates compared with the model in use, as tables, Markdown and JSON."""

    comparison: Comparison  # the differences, metric by metric
    tested: tuple[str, ...]  # metrics whose p-values are shown; the first one decides
    runs: tuple[candidates.TrendPoint, ...]  # earlier and current runs, on that metric
    most: int  # number of queries listed per candidate
    left_out: tuple[str, ...]  # records that are not compared, each with the reason

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.deciding.task

    @property
    def current(self) -> str:
        """Name of the model in use."""
        return self.comparison.baseline

    @cached_property
    def records(self) -> Mapping[str, Result]:
        """The record of each model by name, the model in use first."""
        names = {name: record for (_, name), record in self.comparison.records.items()}
        return {self.current: names.pop(self.current), **names}

    @cached_property
    def deciding(self) -> TaskComparison:
        """The comparison on the deciding metric."""
        return next(task for task in self.comparison.tasks if task.metric == self.tested[0])

    @cached_property
    def differences(self) -> tuple[PairedDifference, ...]:
        """Every candidate against the model in use by the deciding metric."""
        return self._in_order(self.deciding)

    @cached_property
    def recommendations(self) -> tuple[candidates.Recommendation, ...]:
        """The recommendation for each candidate."""
        return tuple(
            candidates.recommend(
                difference,
                comparison=self.comparison,
                doubt=self.undecided.get(difference.first, ""),
            )
            for difference in self.differences
        )

    @cached_property
    def _doubts(self) -> Mapping[str, tuple[Sequence[doubts.Doubt], Sequence[doubts.Doubt]]]:
        """By candidate, why its verdict could turn: nothing found, and unjudged documents."""
        return {
            difference.first: doubts.doubts_of(difference, self.comparison, self.records)
            for difference in self.differences
        }

    @cached_property
    def undecided(self) -> Mapping[str, str]:
        """By candidate without a verdict, what could turn it: not found, or without a judgement."""
        texts = {}
        for difference in self.differences:
            model = difference.first
            empty, unjudged = self._doubts[model]
            if empty:
                found = " and ".join(doubt.text for doubt in empty)
                texts[model] = f"{found}, on which the difference rests"
            elif unjudged and doubts.is_claim(difference, self.comparison):
                found = " and ".join(doubt.text for doubt in unjudged)
                texts[model] = f"it could turn by {found}"
        return texts

    @cached_property
    def saturation(self) -> doubts.Saturation | None:
        """Whether the deciding metric is at its ceiling or floor for every model."""
        return doubts.saturation(self.deciding)

    @cached_property
    def decision(self) -> Decision:
        """Which model to use, and what limits that verdict."""
        decision = decide(
            self.deciding,
            self.differences,
            comparison=self.comparison,
            costs=model_costs(self.records),
            doubts=self.undecided,
        )
        remarks = [*self._of_saturation(), *self._of_other_metrics(decision)]
        remarks += [*self._of_nothing_found(), *self._of_judgements()]
        return replace(decision, remarks=tuple(remarks))

    def _of_saturation(self) -> Iterator[str]:
        """Name a deciding metric at its end, and the next one to look at."""
        if self.saturation is None:
            return
        yield self.saturation.text
        for task in self.comparison.tasks:
            if task.metric in (self.tested[0], JUDGED) or doubts.saturation(task) is not None:
                continue
            best = max(task.with_baseline, key=lambda difference: abs(difference.difference))
            if not best.identical:
                yield f"Look at {task.metric} instead: {best.first}: {evidence(best)}"
                return
        yield "No other metric tells the models apart"

    def _of_other_metrics(self, decision: Decision) -> Iterator[str]:
        """Name tested metrics that disagree with the decision."""
        how = self.comparison.procedure
        for metric in self.tested[1:]:
            task = next(each for each in self.comparison.tasks if each.metric == metric)
            differences = {each.first: each for each in task.with_baseline}
            taken = differences.get(decision.use)
            if taken is not None:
                if not taken.significant(how.alpha):
                    yield f"The metrics disagree: it is not shown to be better by {evidence(taken)}"
                elif taken.difference < 0:
                    yield f"The metrics disagree: it is worse by {evidence(taken)}"
                continue
            better = [
                difference
                for name, difference in differences.items()
                if name not in self.undecided and difference.significant(how.alpha)
                if difference.difference > how.minimum
            ]
            if better:
                best = max(better, key=lambda difference: difference.difference)
                yield f"The metrics disagree: {best.first} is better by {evidence(best)}"

    def _of_nothing_found(self) -> Iterator[str]:
        """Count the queries for which a model, or a part of a fusion, found nothing."""
        for name, record in self.records.items():
            for what, count in record.task.counts.items():
                if what == NOTHING_FOUND:
                    size = record.metrics[self.tested[0]].n
                    yield f"{name} found nothing for {count} of {size} queries"
                elif what.endswith(PART_FOUND_NOTHING):
                    yield f"{name}: {what}: {count}"

    def _of_judgements(self) -> Iterator[str]:
        """Say what the verdicts would be if no document without a judgement were relevant."""
        turned = [
            difference
            for difference in self.differences
            if difference.first in self.undecided and not self._doubts[difference.first][0]
        ]
        if not turned:
            return
        names = [*(difference.first for difference in turned), self.current]
        shares = {name: doubts.judged_share(self.records[name]) or 0.0 for name in names}
        yield f"Judged@10: {', '.join(f'{share:.2f} ({name})' for name, share in shares.items())}"
        for difference in turned:
            word = self.comparison.verdict(difference)
            yield (
                f"If what has no judgement is not relevant, {difference.first} is {word}: "
                f"{evidence(difference)}"
            )
        yield "If that is so, write complete = true under [settings] of the queries"

    @property
    def headline(self) -> str:
        """The decision in a sentence: ``Take Y …`` or ``Keep X …``."""
        return str(self.decision)

    @cached_property
    def breakdowns(self) -> tuple[candidates.Breakdown, ...]:
        """The differences by category of queries, per candidate; empty without categories."""
        categories, how = self.records[self.current].task.categories, self.comparison.procedure
        return tuple(
            candidates.breakdown(matrix, categories, draws=how.draws, seed=how.seed)
            for matrix in map(self.comparison.matrix, self.differences)
            if categories
        )

    @cached_property
    def changes(self) -> tuple[candidates.QueryChange, ...]:
        """The queries that changed most on the deciding metric, per candidate."""
        matrices = (self.deciding.matrix(each.first, self.current) for each in self.differences)
        changed = (candidates.largest_changes(matrix, most=self.most) for matrix in matrices)
        return tuple(itertools.chain.from_iterable(changed))

    @property
    def regressions(self) -> tuple[str, ...]:
        """Reasons for a gate to fail: worse candidates, and runs worse than the previous one.

        So does a candidate without a verdict because nothing was found. Documents without a
        judgement count as not relevant here, as in the scores.
        """
        how, newest = self.comparison.procedure, {run.label: run for run in self.runs}
        worse = []
        for difference, advice in zip(self.differences, self.recommendations, strict=True):
            nothing_found, _ = self._doubts[difference.first]
            if nothing_found or doubts.is_worse(difference, self.comparison):
                worse.append(f"{advice.model}: {advice.text}")
        worse += [
            f"{run.label}: its newest run is worse than the previous one ({self.tested[0]} "
            f"{run.change:+.3f}, corrected p {p_value_text(run.p_value, relation=True)}, "
            f"n = {run.n})"
            for run in newest.values()
            if run.change is not None and run.change < -how.minimum
            if significant(run.p_value, run.change_interval, alpha=how.alpha)
        ]
        return tuple(worse)

    @property
    def caution(self) -> str:
        """Caveats on the power of these queries; may be empty."""
        how, comparison = self.comparison.procedure, self.comparison
        open_ = ("no worse", "not shown")
        undecided = [each for each in self.differences if comparison.verdict(each) in open_]
        largest = max((comparison.detectable(each) or 1.0 for each in undecided), default=0.0)
        sentences = []
        if largest > how.minimum and self.saturation is None:
            sentences.append(
                f"These queries detect only differences of {largest:.3f} or more with a power of "
                f"0.8; smaller ones above {how.minimum:g} may be missed; use more queries."
            )
        for each in self.differences:
            if each.significant(how.alpha) and comparison.could_turn(each):
                sentences.append(
                    f"{each.first}: rare queries missing in this sample could turn the sign of "
                    "its difference."
                )
        if any(each.n <= _FEW for each in self.differences):
            sentences.append(f"Intervals from {_FEW} queries or fewer may be too narrow.")
        return " ".join(sentences)

    def _in_order(self, task: TaskComparison) -> tuple[PairedDifference, ...]:
        """The differences from the model in use by one metric, in the order of the records."""
        order = list(self.records)
        return tuple(sorted(task.with_baseline, key=lambda each: order.index(each.first)))

    def _t_test(self, difference: PairedDifference) -> float | None:
        """The p-value of the paired t-test, not corrected; None without a spread or if untested."""
        if difference.metric not in self.tested:
            return None
        matrix = self.comparison.matrix(difference)
        return t_test(*matrix.scores, cluster=matrix.clusters or None).p_value

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
        data = self.comparison.data_used()
        return {title: replace(table, data=data) for title, table in tables.items() if table.rows}

    def _recommendations(self) -> Table:
        how = self.comparison.procedure
        judged = {each.first: self._judged_cell(each) for each in self.differences}
        rows = []
        for each, advice in zip(self.differences, self.recommendations, strict=True):
            row: dict[str, Any] = {
                f"against {self.current}": each.first,
                "verdict": Cell(advice.verdict, strong=advice.matters),
                f"Δ {each.metric}": number(each.difference, "+.3f", interval=each.interval),
                "p": p_cell(each.corrected, each.interval, alpha=how.alpha),
            }
            if any(judged.values()):
                row["judged\nfirst ten"] = judged[each.first]
            rows.append(row | {"queries": each.n})
        rule = candidates.rule(self.comparison, self.deciding)
        return Table.of(rows, note=" ".join(filter(None, (rule, self.caution))))

    def _judged_cell(self, difference: PairedDifference) -> tuple[str, str] | None:
        """Judged@10 of a candidate and of the model in use; None if all are judged, or unknown."""
        ours, theirs = (
            doubts.judged_share(self.records[name])
            for name in (difference.first, difference.second)
        )
        if ours is None or theirs is None or ours == theirs == 1:
            return None
        return f"{ours:.2f}", f"against {theirs:.2f}"

    def _models(self) -> Table:
        rows = (
            {
                "model": name,
                "loaded from": (record.model.spec, record.model.identity[:8]),
                "dimensions": record.config.get("dimensions") or None,
                "judged\nfirst ten": number_text(doubts.judged_share(record)),
                "prompts": ", ".join(f"{role}: {text!r}" for role, text in prompts.items())
                or "none",
                "time": times_text(record),
            }
            for name, record in self.records.items()
            for prompts in [record.model.settings.get("prompts") or {}]
        )
        note = (
            "Judged: the share of the first ten documents that have a judgement; others count as "
            "not relevant. Per query: the median time from a text to its vector, or with BM25 to "
            "its ranking."
        )
        return Table.of(rows, note=note, kind="words")

    def _differences(self) -> Table:
        how = self.comparison.procedure
        rows = (
            {
                "metric": each.metric,
                "model": each.first,
                "value": (f"{each.means[0]:.3f}", f"against {each.means[1]:.3f}"),
                "Δ\n95 % interval": delta,
                "p\ncorrected": p if each.metric in self.tested else None,
                "t-test\np": number_text(self._t_test(each), digits=4),
                "d_z": number_text(each.d_z, sign=True, digits=2),
                "won / tied / lost": (f"{each.won} / {each.tied} / {each.lost}", f"n = {each.n}"),
                "detectable\npower 0.8": number_text(self.comparison.detectable(each)),
            }
            for task in self.comparison.tasks
            for each in self._in_order(task)
            for delta, p in [difference_cells(each, alpha=how.alpha)]
        )
        left_out = "".join(f" {note}." for note in (*self.left_out, *self.comparison.notes))
        note = (
            f"p: {self.comparison.test}, {self.comparison.family(self.task)}; below it "
            "the raw p-value. t-test: paired, not corrected. Detectable: the smallest difference "
            f"that these queries show in 80 % of samples, by test and interval.{left_out}"
        )
        return Table.of(rows, note=note)

    def _categories(self) -> Table:
        alpha = self.comparison.procedure.alpha
        rows = (
            {
                "model": each.first,
                "category": row.category,
                "value": (f"{row.first:.3f}", f"against {row.second:.3f}"),
                "Δ\n95 % interval": number(row.difference, "+.3f", interval=row.interval),
                "p\ncorrected": p_cell(row.p_value, row.interval, alpha=alpha),
                "queries": row.n,
            }
            for each in self.breakdowns
            for row in each.rows
        )
        note = f"{self.tested[0]}; p: {NAMES[HOLM]} over the categories of a model."
        return Table.of(rows, note=note)

    def _changes(self) -> Table:
        current = self.records[self.current]
        rows = (
            (
                each.model,
                query_text(current, each.query),
                (f"{each.difference:+.3f}", f"{each.score:.3f} against {each.current:.3f}"),
                _top_text(self.records[each.model], each.query),
                _top_text(current, each.query),
            )
            for each in self.changes
        )
        tops = [f"top {_BEST}\n{name}" for name in ("model", self.current)]
        return Table.of(rows, ("model", "query", f"Δ {self.tested[0]}", *tops), kind="words")

    def _trend(self) -> Table:
        alpha = self.comparison.procedure.alpha
        rows = (
            {
                "model": run.label,
                "finished": (run.finished[:19], f"{run.identity[:8]}, data {run.revision[:8]}"),
                f"{self.tested[0]}\n95 % interval": number(run.mean, interval=run.interval),
                "change\n95 % interval": number(run.change, "+.3f", interval=run.change_interval),
                "p\ncorrected": p_cell(run.p_value, run.change_interval, alpha=alpha),
                "queries": run.n,
            }
            for run in self.runs
        )
        note = "Each run is paired with the one before on the same data; p: "
        note += f"{NAMES[HOLM]} over the changes."
        return Table.of(rows, note=note)

    def to_markdown(self) -> str:
        """Return the tables under their titles as Markdown, escaped."""
        record = self.records[self.current]
        dropped = len(record.config.get("dropped") or ())
        size = [f"{count:,} {what}" for what, count in record.task.size.items()]
        size += [f"{dropped} queries dropped"] * bool(dropped)
        finished = max(each.finished for each in self.records.values())
        data = f"{self.task}: {', '.join([*size, f'revision {record.task.revision[:8]}'])}"
        parts = [f"# {escaped(self.decision.title)}", escaped(self.headline)]
        parts.append(f"{escaped(data)}, {finished[:10]}.")
        for name, table in self.tables().items():
            parts += [f"## {name}", table.to_markdown()]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> str:
        """Return the report as strict JSON, with the scores and top documents of every query."""
        how, current = self.comparison.procedure, self.records[self.current]
        categories = current.task.categories
        return json_text(
            {
                "schema": "qwen3nb.comparison/1",
                "task": self.task,
                "headline": self.headline,
                "decision": {
                    "use": self.decision.use,
                    "current": self.decision.current,
                    "reason": self.decision.reason,
                    "rivals": [difference.second for difference in self.decision.rivals],
                    "undecided": list(self.decision.undecided),
                },
                "decides": self.tested[0],
                "alpha": how.alpha,
                "threshold": how.minimum,
                "procedure": asdict(how),
                "environment": asdict(Environment.current()),
                "queries": {
                    query: {"text": query_text(current, query), "category": categories.get(query)}
                    for query in sorted(next(iter(current.per_query.values())))
                },
                "comparison": {
                    "current": self.current,
                    "differences": [self._as_dict(each) for each in self.comparison.differences],
                    "recommendations": [asdict(each) for each in self.recommendations],
                    "breakdowns": [asdict(each) for each in self.breakdowns],
                    "changes": [asdict(each) for each in self.changes],
                    "rule": candidates.rule(self.comparison, self.deciding),
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
        shown = ("first", "second", "task", "means", "p_value", "corrected")
        tested = difference.metric in self.tested
        return {
            "model": difference.first,
            "mean": difference.means[0],
            "current": difference.means[1],
            "p_value": difference.p_value if tested else None,
            "adjusted": difference.corrected if tested else None,
            "t_p_value": self._t_test(difference),
            "detectable": self.comparison.detectable(difference),
            **{name: value for name, value in asdict(difference).items() if name not in shown},
        }


def _top_text(result: Result, query: str) -> str:
    """Return the best documents of a query; distinguishes no hits from rankings not kept."""
    none = "none" if isinstance(result.config.get("top"), Mapping) else "not kept"
    return ", ".join(top_documents(result, query)[:_BEST]) or none


def times_text(result: Result, *, reused: bool = False) -> str:
    """Describe the cost of a record: seconds, texts encoded and cached, seconds per query."""
    texts = f"{result.cost.encoded:,} texts, {result.cost.cached:,} vectors from the cache"
    took = f"{duration_text(result.cost.seconds)} for {texts}"
    seconds = result.config.get("seconds_per_query")
    per_query = "" if seconds is None else f"; {duration_text(seconds)} per query"
    return (f"record reused, nothing encoded; it took {took}" if reused else took) + per_query


def _model(result: Result) -> dict[str, Any]:
    per_query = ("top", "queries")  # settings of a record with a row per query
    queries = next(iter(result.per_query.values()))
    return {
        "model": result.model,
        "task": result.task,
        "dimensions": result.config.get("dimensions"),
        "settings": {k: v for k, v in result.config.items() if k not in per_query},
        "seed": result.seed,
        "cost": result.cost,
        "seconds_per_query": result.config.get("seconds_per_query"),
        "environment": result.environment,
        "finished": result.finished,
        "run": result.run,
        "metrics": {name: asdict(value) for name, value in result.metrics.items()},
        "per_query": dict(result.scores),
        "top": {query: top_documents(result, query)[:_BEST] for query in sorted(queries)},
    }


def compare_candidates(
    results: Iterable[Result],
    *,
    current: str,
    task: str = "",
    models: Sequence[str] = (),
    tested: Sequence[str] = (),
    alpha: float = 0.05,
    threshold: float = 0.05,
    most: int = 5,
    n_resamples: int = DRAWS,
    seed: int = 0,
) -> CandidateReport:
    """Compare candidates with the model in use, on one task.

    Models are given by label or name, by default all with results on the task; the task by its name
    or its data set, by default the only custom data set of the current model, else its only task.
    The first of the ``tested`` metrics, those with p-values, decides; by default, the task's main
    metric, as on all pages, then MRR@10 and nDCG@10 where every model has them. ``alpha`` is the
    level of the corrected tests of ``n_resamples`` sign flips, ``threshold`` the smallest
    difference that matters; ``most`` queries are listed per model.

    Raises:
        ValueError: an unknown task or model, or nothing to compare; lists what is available.
    """
    results = list(results)
    records, left_out = candidates.select_candidates(
        results, current=current, task=task, models=models, tested=tested
    )
    if not tested:
        main = records[0].task.main_metric
        records, left_out = candidates.select_candidates(
            results, current=current, task=task, models=models, tested=[main]
        )
        others = [metric for metric in _ALSO_TESTED if metric != main]
        shared = [m for m in others if all(m in record.per_query for record in records)]
        tested = [main, *shared]
    used, name = records[0], records[0].task.key
    metrics = [
        metric
        for metric, value in used.metrics.items()
        if value.how == "mean" and all(metric in each.per_query for each in records)
        if metric != JUDGED or metric in tested
    ]
    comparison = compare(
        records,
        baseline=system_names(records)[used.model.identity, used.seed],
        metric=metrics,
        tasks=[name],
        alpha=alpha,
        minimum=threshold,
        draws=n_resamples,
        seed=seed,
    )
    labels, data = {result.model.label for result in records}, used.task.dataset or name
    given = (r for r in results if r.model.label in labels and r.task.type == used.task.type)
    earlier = [each for each in given if (each.task.dataset or each.task.key) == data]
    runs = candidates.trend(earlier, metric=tested[0], n_resamples=n_resamples, seed=seed)
    return CandidateReport(comparison, tuple(tested), runs, most, tuple(left_out))


def candidates_conclusion(results: Iterable[Result], *, current: str, **options: Any) -> Conclusion:
    """Recommend whether a candidate should replace the model in use: ``Keep X`` or ``Take Y``.

    The options are those of `compare_candidates`, such as ``tested``, ``alpha`` and ``threshold``.
    """
    return Conclusion(compare_candidates(results, current=current, **options).headline)
