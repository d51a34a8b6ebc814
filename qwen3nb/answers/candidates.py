"""Which model should be used? Candidates against the model in use, on custom data.

Reads the records of `qwen3nb domain`, or of any task with per-query scores of the tested metrics.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from qwen3nb.analysis.comparison.alignment import system_names
from qwen3nb.analysis.comparison.differences import (
    HOLM,
    PairedDifference,
    Procedure,
    TaskComparison,
    Verdict,
    significant,
)
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.analysis.stats.paired_tests import t_test
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.answers import candidate_rules, doubts
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.candidate_rules import (
    Breakdown,
    QueryChange,
    Recommendation,
    TrendPoint,
)
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.answers.decision import Decision, decide, evidence, model_costs
from qwen3nb.answers.doubts import Doubt, Saturation
from qwen3nb.answers.explorer import query_text, top_documents
from qwen3nb.metrics.retrieval import JUDGED, NOTHING_FOUND, PART_FOUND_NOTHING
from qwen3nb.records.record import Environment, Result
from qwen3nb.report.render.differences import difference_cells, p_cell
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.table import Cell, Conclusion, Table, number
from qwen3nb.utils.format import duration_text, escaped, json_text, number_text, p_value_text
from qwen3nb.utils.imports import DataFrame

_BEST = 5  # documents listed per ranking
_ALSO_TESTED = ("MRR@10", "nDCG@10")  # next to a task's main metric
_FEW = 9  # number of queries up to which coverage is not guaranteed; see `analysis.calibration`
_ROWS = ("top", "queries")  # settings of a record with a row per query


@dataclass(frozen=True, repr=False)
class Candidates(Answer):
    """Candidates compared with the model in use, as tables, Markdown and JSON."""

    comparison: Comparison  # the differences, metric by metric
    tested: tuple[str, ...]  # metrics whose p-values are shown; the first one decides
    runs: tuple[TrendPoint, ...]  # earlier and current runs, on that metric
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
        by_name = {name: record for (_, name), record in self.comparison.records.items()}
        return {self.current: by_name.pop(self.current), **by_name}

    @cached_property
    def deciding(self) -> TaskComparison:
        """The comparison on the deciding metric."""
        return self._by(self.tested[0])

    def _by(self, metric: str) -> TaskComparison:
        (compared,) = (task for task in self.comparison.tasks if task.metric == metric)
        return compared

    @cached_property
    def differences(self) -> tuple[PairedDifference, ...]:
        """Every candidate against the model in use by the deciding metric."""
        return self._in_order(self.deciding)

    @cached_property
    def recommendations(self) -> tuple[Recommendation, ...]:
        """The recommendation for each candidate."""
        return tuple(
            candidate_rules.recommend(
                difference,
                comparison=self.comparison,
                doubt=self.undecided.get(difference.first, ""),
            )
            for difference in self.differences
        )

    @cached_property
    def _doubts(self) -> Mapping[str, tuple[Sequence[Doubt], Sequence[Doubt]]]:
        """By candidate, why its verdict could turn: nothing found, and unjudged documents."""
        return {
            difference.first: doubts.doubts_of(difference, self.comparison, self.records)
            for difference in self.differences
        }

    @cached_property
    def undecided(self) -> Mapping[str, str]:
        """By candidate without a verdict, what could turn it: not found, or without a judgement."""
        reasons = {}
        for difference in self.differences:
            model = difference.first
            nothing_found, unjudged = self._doubts[model]
            if nothing_found:
                texts = " and ".join(doubt.text for doubt in nothing_found)
                reasons[model] = f"{texts}, on which the difference rests"
            elif unjudged and doubts.is_claim(difference, self.comparison):
                texts = " and ".join(doubt.text for doubt in unjudged)
                reasons[model] = f"it could turn by {texts}"
        return reasons

    @cached_property
    def saturation(self) -> Saturation | None:
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
        remarks = [*self._saturation_remarks(), *self._metric_remarks(decision)]
        remarks += [*self._nothing_found_remarks(), *self._judgement_remarks()]
        return replace(decision, remarks=tuple(remarks))

    def _saturation_remarks(self) -> Iterator[str]:
        """Name a deciding metric at its end, and the next one to look at."""
        if self.saturation is None:
            return
        yield self.saturation.text
        for task in self.comparison.tasks:
            if task.metric in (self.tested[0], JUDGED) or doubts.saturation(task) is not None:
                continue
            largest = max(task.with_baseline, key=lambda difference: abs(difference.difference))
            if not largest.identical:
                yield f"Look at {task.metric} instead: {largest.first}: {evidence(largest)}"
                return
        yield "No other metric tells the models apart"

    def _metric_remarks(self, decision: Decision) -> Iterator[str]:
        """Name tested metrics that disagree with the decision."""
        for metric in self.tested[1:]:
            by_model = {pair.first: pair for pair in self._by(metric).with_baseline}
            if decision.use in by_model:
                remark = self._disagreement(by_model[decision.use])
            else:
                remark = self._better_by_metric(by_model.values())
            if remark:
                yield f"The metrics disagree: {remark}"

    def _disagreement(self, difference: PairedDifference) -> str:
        """Say why a metric does not support the model that is taken; empty if it does."""
        if not difference.significant(self.comparison.procedure.alpha):
            return f"it is not shown to be better by {evidence(difference)}"
        if difference.difference < 0:
            return f"it is worse by {evidence(difference)}"
        return ""

    def _better_by_metric(self, differences: Iterable[PairedDifference]) -> str:
        """Name the best candidate that a metric would take; empty if there is none."""
        procedure = self.comparison.procedure
        better = [
            difference
            for difference in differences
            if difference.first not in self.undecided
            and difference.significant(procedure.alpha)
            and difference.difference > procedure.margin
        ]
        if not better:
            return ""
        best = max(better, key=lambda difference: difference.difference)
        return f"{best.first} is better by {evidence(best)}"

    def _nothing_found_remarks(self) -> Iterator[str]:
        """Count the queries for which a model, or a part of a fusion, found nothing."""
        for name, record in self.records.items():
            for noun, count in record.task.counts.items():
                if noun == NOTHING_FOUND:
                    size = record.metrics[self.tested[0]].n
                    yield f"{name} found nothing for {count} of {size} queries"
                elif noun.endswith(PART_FOUND_NOTHING):
                    yield f"{name}: {noun}: {count}"

    def _judgement_remarks(self) -> Iterator[str]:
        """Say what the verdicts would be if no document without a judgement were relevant."""
        turned = [
            difference
            for difference in self.differences
            if difference.first in self.undecided and not self._doubts[difference.first][0]
        ]
        if not turned:
            return
        shares = []
        for name in (*(difference.first for difference in turned), self.current):
            share = doubts.judged_share(self.records[name]) or 0.0
            shares.append(f"{share:.2f} ({name})")
        yield f"Judged@10: {', '.join(shares)}"
        for difference in turned:
            yield (
                f"If what has no judgement is not relevant, {difference.first} is "
                f"{self.comparison.verdict(difference)}: {evidence(difference)}"
            )
        yield (
            "If that is so, evaluate with --complete, or write complete = true under [settings] of "
            "the queries"
        )

    @property
    def headline(self) -> str:
        """The decision in a sentence: ``Take Y …`` or ``Keep X …``."""
        return self.decision.text

    @property
    def conclusion(self) -> Conclusion:
        """Whether a candidate should replace the model in use: ``Keep X`` or ``Take Y``."""
        return Conclusion(self.headline)

    def table(self) -> Table:
        """The verdict on each candidate."""
        return replace(self._recommendations(), data=self.comparison.data_used())

    def figure(self) -> Figure | None:
        """The differences from the model in use, a panel per metric."""
        return self.comparison.figure()

    def to_frame(self) -> DataFrame:
        """The differences from the model in use as numbers, a row per metric and candidate."""
        return self.comparison.to_frame()

    @cached_property
    def breakdowns(self) -> tuple[Breakdown, ...]:
        """The differences by category of queries, per candidate; empty without categories."""
        categories = self.records[self.current].task.categories
        if not categories:
            return ()
        procedure = self.comparison.procedure
        breakdowns = []
        for difference in self.differences:
            matrix = self.deciding.matrix(difference.first, self.current)
            breakdowns.append(
                candidate_rules.breakdown(
                    matrix, categories, draws=procedure.draws, seed=procedure.seed
                )
            )
        return tuple(breakdowns)

    @cached_property
    def changes(self) -> tuple[QueryChange, ...]:
        """The queries that changed most on the deciding metric, per candidate."""
        changes = []
        for difference in self.differences:
            matrix = self.deciding.matrix(difference.first, self.current)
            changes += candidate_rules.largest_changes(matrix, most=self.most)
        return tuple(changes)

    @property
    def regressions(self) -> tuple[str, ...]:
        """Reasons for a gate to fail: worse candidates, and runs worse than the previous one.

        So does a candidate without a verdict because nothing was found. Documents without a
        judgement count as not relevant here, as in the scores.
        """
        reasons = []
        for difference, advice in zip(self.differences, self.recommendations, strict=True):
            nothing_found, _ = self._doubts[difference.first]
            if nothing_found or doubts.is_worse(difference, self.comparison):
                reasons.append(f"{advice.model}: {advice.text}")
        newest = {run.label: run for run in self.runs}
        for run in newest.values():
            if run.change is not None and self._is_regression(run):
                reasons.append(
                    f"{run.label}: its newest run is worse than the previous one "
                    f"({self.tested[0]} {run.change:+.3f}, corrected p "
                    f"{p_value_text(run.p_value, relation=True)}, n = {run.n})"
                )
        return tuple(reasons)

    def _is_regression(self, run: TrendPoint) -> bool:
        """Whether a run is shown to be worse than the one before, by more than the margin."""
        procedure = self.comparison.procedure
        if run.change is None or run.change >= -procedure.margin:
            return False
        return significant(run.p_value, run.change_interval, alpha=procedure.alpha)

    @property
    def caution(self) -> str:
        """Caveats on the power of these queries; may be empty."""
        comparison, procedure = self.comparison, self.comparison.procedure
        detectable = [0.0]
        for difference in self.differences:
            if comparison.find_verdict(difference) in (Verdict.NO_WORSE, Verdict.NOT_SHOWN):
                detectable.append(comparison.detectable(difference) or 1.0)
        largest = max(detectable)
        sentences = []
        if largest > procedure.margin and self.saturation is None:
            sentences.append(
                f"These queries detect only differences of {largest:.3f} or more with a power of "
                f"0.8; smaller ones above {procedure.margin:g} may be missed; use more queries."
            )
        for difference in self.differences:
            if difference.significant(procedure.alpha) and comparison.could_turn(difference):
                sentences.append(
                    f"{difference.first}: rare queries missing in this sample could turn the sign "
                    "of its difference."
                )
        if any(difference.n <= _FEW for difference in self.differences):
            sentences.append(f"Intervals from {_FEW} queries or fewer may be too narrow.")
        return " ".join(sentences)

    def _in_order(self, task: TaskComparison) -> tuple[PairedDifference, ...]:
        """The differences from the model in use by one metric, in the order of the records."""
        order = list(self.records)
        return tuple(sorted(task.with_baseline, key=lambda pair: order.index(pair.first)))

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
        alpha = self.comparison.procedure.alpha
        judged = {pair.first: self._judged_cell(pair) for pair in self.differences}
        has_judged = any(judged.values())
        rows = []
        for difference, advice in zip(self.differences, self.recommendations, strict=True):
            row: dict[str, object] = {
                f"against {self.current}": difference.first,
                "verdict": Cell(advice.verdict, strong=advice.matters),
                f"Δ {difference.metric}": number(
                    difference.difference, "+.3f", interval=difference.interval
                ),
                "p": p_cell(difference.corrected, difference.interval, alpha=alpha),
            }
            if has_judged:
                row["judged\nfirst ten"] = judged[difference.first]
            row["queries"] = difference.n
            rows.append(row)
        note = candidate_rules.rule(self.comparison, self.deciding)
        if self.caution:
            note += f" {self.caution}"
        return Table.of(rows, note=note)

    def _judged_cell(self, difference: PairedDifference) -> tuple[str, str] | None:
        """Judged@10 of a candidate and of the model in use; None if all are judged, or unknown."""
        candidate = doubts.judged_share(self.records[difference.first])
        current = doubts.judged_share(self.records[difference.second])
        if candidate is None or current is None or candidate == current == 1:
            return None
        return f"{candidate:.2f}", f"against {current:.2f}"

    def _models(self) -> Table:
        rows = []
        for name, record in self.records.items():
            prompts = record.model.settings.get("prompts") or {}
            texts = ", ".join(f"{role}: {text!r}" for role, text in prompts.items())
            rows.append(
                {
                    "model": name,
                    "loaded from": (record.model.spec, record.model.identity[:8]),
                    "dimensions": record.dimensions or None,
                    "judged\nfirst ten": number_text(doubts.judged_share(record)),
                    "prompts": texts or "none",
                    "time": times_text(record),
                }
            )
        return Table.of(
            rows,
            note="Judged: the share of the first ten documents that have a judgement; others count "
            "as not relevant. Per query: the median time from a text to its vector, or with BM25 "
            "to its ranking.",
            kind="words",
        )

    def _differences(self) -> Table:
        rows = []
        for task in self.comparison.tasks:
            rows += [self._difference_row(difference) for difference in self._in_order(task)]
        note = (
            f"p: {self.comparison.test}, {self.comparison.family(self.task)}; below it "
            "the raw p-value. t-test: paired, not corrected. Detectable: the smallest difference "
            "that these queries show in 80 % of samples, by test and interval."
        )
        for reason in (*self.left_out, *self.comparison.notes):
            note += f" {reason}."
        return Table.of(rows, note=note)

    def _difference_row(self, difference: PairedDifference) -> dict[str, object]:
        delta, corrected = difference_cells(difference, alpha=self.comparison.procedure.alpha)
        candidate, current = difference.means
        is_tested = difference.metric in self.tested
        counts = f"{difference.won} / {difference.tied} / {difference.lost}"
        return {
            "metric": difference.metric,
            "model": difference.first,
            "value": (f"{candidate:.3f}", f"against {current:.3f}"),
            "Δ\n95 % interval": delta,
            "p\ncorrected": corrected if is_tested else None,
            "t-test\np": number_text(self._t_test(difference), digits=4),
            "d_z": number_text(difference.d_z, sign=True, digits=2),
            "won / tied / lost": (counts, f"n = {difference.n}"),
            "detectable\npower 0.8": number_text(self.comparison.detectable(difference)),
        }

    def _categories(self) -> Table:
        alpha = self.comparison.procedure.alpha
        rows = [
            {
                "model": breakdown.first,
                "category": row.category,
                "value": (f"{row.first:.3f}", f"against {row.second:.3f}"),
                "Δ\n95 % interval": number(row.difference, "+.3f", interval=row.interval),
                "p\ncorrected": p_cell(row.p_value, row.interval, alpha=alpha),
                "queries": row.n,
            }
            for breakdown in self.breakdowns
            for row in breakdown.rows
        ]
        note = f"{self.tested[0]}; p: {NAMES[HOLM]} over the categories of a model."
        return Table.of(rows, note=note)

    def _changes(self) -> Table:
        current = self.records[self.current]
        rows = [
            (
                change.model,
                query_text(current, change.query),
                (f"{change.difference:+.3f}", f"{change.score:.3f} against {change.current:.3f}"),
                _top_text(self.records[change.model], change.query),
                _top_text(current, change.query),
            )
            for change in self.changes
        ]
        heads = [
            "model",
            "query",
            f"Δ {self.tested[0]}",
            f"top {_BEST}\nmodel",
            f"top {_BEST}\n{self.current}",
        ]
        return Table.of(rows, heads, kind="words")

    def _trend(self) -> Table:
        alpha = self.comparison.procedure.alpha
        rows = [
            {
                "model": run.label,
                "finished": (run.finished[:19], f"{run.identity[:8]}, data {run.revision[:8]}"),
                f"{self.tested[0]}\n95 % interval": number(run.mean, interval=run.interval),
                "change\n95 % interval": number(run.change, "+.3f", interval=run.change_interval),
                "p\ncorrected": p_cell(run.p_value, run.change_interval, alpha=alpha),
                "queries": run.n,
            }
            for run in self.runs
        ]
        note = (
            f"Each run is paired with the one before on the same data; p: {NAMES[HOLM]} over the "
            "changes."
        )
        return Table.of(rows, note=note)

    def to_markdown(self) -> str:
        """Return the tables under their titles as Markdown, escaped."""
        record = self.records[self.current]
        size = [f"{count:,} {noun}" for noun, count in record.task.size.items()]
        dropped = len(record.data.dropped or ())
        if dropped:
            size.append(f"{dropped} queries dropped")
        size.append(f"revision {record.task.revision[:8]}")
        finished = max(record.finished for record in self.records.values())
        data = f"{self.task}: {', '.join(size)}"
        parts = [
            f"# {escaped(self.decision.title)}",
            escaped(self.headline),
            f"{escaped(data)}, {finished[:10]}.",
        ]
        for name, table in self.tables().items():
            parts += [f"## {name}", table.to_markdown()]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> str:
        """Return the report as strict JSON, with the scores and top documents of every query."""
        procedure, current = self.comparison.procedure, self.records[self.current]
        categories = current.task.categories
        queries = {}
        for query in sorted(next(iter(current.per_query.values()))):
            queries[query] = {
                "text": query_text(current, query),
                "category": categories.get(query),
            }
        decision = {
            "use": self.decision.use,
            "current": self.decision.current,
            "reason": self.decision.reason,
            "rivals": [difference.second for difference in self.decision.rivals],
            "undecided": list(self.decision.undecided),
        }
        comparison = {
            "current": self.current,
            "differences": [self._as_dict(pair) for pair in self.comparison.differences],
            "recommendations": [asdict(advice) for advice in self.recommendations],
            "breakdowns": [asdict(breakdown) for breakdown in self.breakdowns],
            "changes": [asdict(change) for change in self.changes],
            "rule": candidate_rules.rule(self.comparison, self.deciding),
            "notes": list(self.comparison.notes),
        }
        return json_text(
            {
                "schema": "qwen3nb.comparison/1",
                "task": self.task,
                "headline": self.headline,
                "decision": decision,
                "decides": self.tested[0],
                "alpha": procedure.alpha,
                "threshold": procedure.margin,
                "procedure": _exported(procedure),
                "environment": asdict(Environment.current()),
                "queries": queries,
                "comparison": comparison,
                "runs": [asdict(run) for run in self.runs],
                "regressions": list(self.regressions),
                "caution": self.caution,
                "notes": list(self.left_out),
                "models": {name: _model(record) for name, record in self.records.items()},
            }
        )

    def _as_dict(self, difference: PairedDifference) -> dict[str, object]:
        """Return a difference under the keys of the JSON schema."""
        is_tested = difference.metric in self.tested
        candidate, current = difference.means
        value: dict[str, object] = {
            "model": difference.first,
            "mean": candidate,
            "current": current,
            "p_value": difference.p_value if is_tested else None,
            "adjusted": difference.corrected if is_tested else None,
            "t_p_value": self._t_test(difference),
            "detectable": self.comparison.detectable(difference),
        }
        renamed = ("first", "second", "task", "means", "p_value", "corrected")
        for name, field in asdict(difference).items():
            if name not in renamed:
                value[name] = field
        return value


def _top_text(result: Result, query: str) -> str:
    """Return the best documents of a query; distinguishes no hits from rankings not kept."""
    documents = top_documents(result, query)[:_BEST]
    if documents:
        return ", ".join(documents)
    return "none" if result.top is not None else "not kept"


def times_text(result: Result, *, reused: bool = False) -> str:
    """Describe the cost of a record: seconds, texts encoded and cached, seconds per query."""
    cost = result.cost
    text = (
        f"{duration_text(cost.seconds)} for {cost.encoded:,} texts, {cost.cached:,} vectors from "
        "the cache"
    )
    if reused:
        text = f"record reused, nothing encoded; it took {text}"
    seconds = result.search.seconds_per_query
    if seconds is not None:
        text += f"; {duration_text(seconds)} per query"
    return text


def _model(result: Result) -> dict[str, object]:
    """Return a record under the keys of the JSON schema."""
    queries = sorted(next(iter(result.per_query.values())))
    return {
        "model": result.model,
        "task": result.task,
        "dimensions": result.dimensions,
        "settings": {name: value for name, value in result.config.items() if name not in _ROWS},
        "seed": result.seed,
        "cost": result.cost,
        "seconds_per_query": result.search.seconds_per_query,
        "environment": result.environment,
        "finished": result.finished,
        "run": result.run,
        "metrics": {name: asdict(value) for name, value in result.metrics.items()},
        "per_query": dict(result.scores),
        "top": {query: top_documents(result, query)[:_BEST] for query in queries},
    }


def _exported(procedure: Procedure) -> dict[str, object]:
    """Return the procedure with the names of earlier reports."""
    fields = asdict(procedure)
    return {"minimum" if name == "margin" else name: value for name, value in fields.items()}


def compare_candidates(
    results: Iterable[Result],
    *,
    current: str,
    task: str = "",
    models: Sequence[str] = (),
    tested: Sequence[str] = (),
    alpha: float = 0.05,
    margin: float = 0.05,
    most: int = 5,
    n_resamples: int = DRAWS,
    seed: int = 0,
) -> Candidates:
    """Compare candidates with the model in use, on one task.

    Models are given by label or name, by default all with results on the task; the task by its name
    or its data set, by default the only custom data set of the current model, else its only task.
    The first of the ``tested`` metrics, those with p-values, decides; by default, the task's main
    metric, as on all pages, then MRR@10 and nDCG@10 where every model has them. ``alpha`` is the
    level of the corrected tests of ``n_resamples`` sign flips, ``margin`` the smallest
    difference that matters; ``most`` queries are listed per model.

    Raises:
        ValueError: an unknown task or model, or nothing to compare; lists what is available.
    """
    results = list(results)

    def select(metrics: Sequence[str]) -> tuple[list[Result], list[str]]:
        return candidate_rules.select_candidates(
            results, current=current, task=task, models=models, tested=metrics
        )

    records, left_out = select(tested)
    if not tested:
        main = records[0].task.main_metric
        records, left_out = select([main])
        tested = [main]
        for metric in _ALSO_TESTED:
            if metric != main and all(metric in record.per_query for record in records):
                tested.append(metric)
    used = records[0]
    comparison = compare(
        records,
        baseline=system_names(records)[used.model.identity, used.seed],
        metric=_shared_means(records, tested),
        tasks=[used.task.key],
        alpha=alpha,
        margin=margin,
        draws=n_resamples,
        seed=seed,
    )
    runs = candidate_rules.trend(
        _same_data(results, records), metric=tested[0], n_resamples=n_resamples, seed=seed
    )
    return Candidates(comparison, tuple(tested), runs, most, tuple(left_out))


def _shared_means(records: Sequence[Result], tested: Sequence[str]) -> list[str]:
    """Return the metrics that are means over queries and that every record has per query.

    The share of judged documents is among them only if it is tested.
    """
    metrics = []
    for metric, value in records[0].metrics.items():
        is_shared = all(metric in record.per_query for record in records)
        is_quality = metric != JUDGED or metric in tested
        if value.how == "mean" and is_shared and is_quality:
            metrics.append(metric)
    return metrics


def _same_data(results: Iterable[Result], records: Sequence[Result]) -> list[Result]:
    """Return all runs of the compared models on the data set, in any of its revisions."""
    task = records[0].task
    data = task.dataset or task.key
    labels = {record.model.label for record in records}
    return [
        result
        for result in results
        if result.model.label in labels
        and result.task.type == task.type
        and (result.task.dataset or result.task.key) == data
    ]
