"""Which model should be used? Candidates against the model in use, on custom data.

Reads the records of `qwen3nb domain`, or of any task with per-query scores of the tested metrics.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial

from qwen3nb.analysis.comparison.alignment import system_name, system_names
from qwen3nb.analysis.comparison.differences import (
    HOLM,
    PairedDifference,
    Procedure,
    TaskComparison,
    Verdict,
    significant,
)
from qwen3nb.analysis.comparison.trend import TrendPoint, trend
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.analysis.stats.paired_tests import FURTHER_TESTS
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.answers import candidate_rules
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.candidate_rules import (
    Breakdown,
    CategoryRow,
    QueryChange,
    Recommendation,
)
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.answers.decision import Decision, decide, document_bytes, evidence, model_costs
from qwen3nb.answers.doubts import Saturation, is_worse, judged_share, not_found_doubts
from qwen3nb.answers.doubts import saturation as saturation_of
from qwen3nb.answers.explored_task import query_text, top_documents
from qwen3nb.answers.fusions import fitted_sentence, fusion_table
from qwen3nb.answers.long_documents import long_documents_table
from qwen3nb.answers.unjudged import ScoreRange, UnjudgedRange, score_range
from qwen3nb.datasets.custom.generated import kinds_text
from qwen3nb.metrics.retrieval import JUDGED, NOTHING_FOUND, PART_FOUND_NOTHING
from qwen3nb.models.search.words import words_read
from qwen3nb.records.data_used import counted_queries, generated_mark
from qwen3nb.records.record import Environment, Result, short_revision
from qwen3nb.report.render.differences import difference_cells, p_cell
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.table import Cell, Conclusion, Table, number
from qwen3nb.utils.format import (
    duration_text,
    escaped,
    interval_text,
    json_text,
    number_text,
    p_value_text,
)
from qwen3nb.utils.imports import DataFrame

_VECTOR_BYTES = "vector bytes\nper document"
_TOP_DOCUMENTS = 5  # documents listed per ranking
_ALSO_TESTED = ("MRR@10", "nDCG@10")  # next to a task's main metric
_FEW_QUERIES = (
    9  # number of queries up to which coverage is not guaranteed; see `analysis.calibration`
)
_SETTINGS_BY_QUERY = ("top", "queries")  # settings of a record, with a row per query


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
        return self._comparison_by(self._deciding_metric)

    @property
    def _deciding_metric(self) -> str:
        """The metric that decides: the first one that is tested."""
        return self.tested[0]

    def _comparison_by(self, metric: str) -> TaskComparison:
        (comparison,) = (task for task in self.comparison.tasks if task.metric == metric)
        return comparison

    @cached_property
    def differences(self) -> tuple[PairedDifference, ...]:
        """Every candidate against the model in use by the deciding metric."""
        return self._in_order(self.deciding)

    @cached_property
    def recommendations(self) -> tuple[Recommendation, ...]:
        """The recommendation for each candidate."""
        recommendations = []
        for difference in self.differences:
            doubt = self.undecided.get(difference.first, "")
            recommendations.append(
                candidate_rules.recommend(difference, comparison=self.comparison, doubt=doubt)
            )
        return tuple(recommendations)

    @cached_property
    def _not_found(self) -> Mapping[str, tuple[str, ...]]:
        """By candidate, why its verdict rests on queries for which a model found nothing."""
        return {
            difference.first: not_found_doubts(difference, self.comparison, self.records)
            for difference in self.differences
        }

    @cached_property
    def unjudged_ranges(self) -> Mapping[str, UnjudgedRange]:
        """By candidate, the range of its difference over the grades of unjudged documents.

        Without the candidates whose documents, and those of the model in use, are all judged.
        """
        ranges = {}
        for difference in self.differences:
            found = self.comparison.unjudged(difference)
            if found is not None:
                ranges[difference.first] = found
        return ranges

    @cached_property
    def _score_ranges(self) -> Mapping[str, ScoreRange]:
        """By model, the range of its score over the grades of its unjudged documents.

        Without the models whose documents are all judged.
        """
        ranges = {}
        for model, record in self.records.items():
            found = score_range(record, self._deciding_metric)
            if found is not None:
                ranges[model] = found
        return ranges

    @cached_property
    def undecided(self) -> Mapping[str, str]:
        """By candidate without a verdict, what could turn it: not found, or without a judgement."""
        reasons = {}
        for difference in self.differences:
            candidate = difference.first
            not_found = self._not_found[candidate]
            if not_found:
                causes = " and ".join(not_found)
                reasons[candidate] = f"{causes}, on which the difference rests"
            elif candidate in self._turned_by_grades:
                reasons[candidate] = self.unjudged_ranges[candidate].reason
        return reasons

    @cached_property
    def _turned_by_grades(self) -> tuple[str, ...]:
        """The candidates without a verdict because of unjudged documents alone."""
        return tuple(
            candidate
            for candidate, found in self.unjudged_ranges.items()
            if found.turns and not self._not_found[candidate]
        )

    @cached_property
    def saturation(self) -> Saturation | None:
        """Whether the deciding metric is at its ceiling or floor for every model."""
        return saturation_of(self.deciding)

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
        remarks = (
            *self._generated_remarks(),
            *self._saturation_remarks(),
            *self._metric_remarks(decision),
            *self._nothing_found_remarks(),
            *self._judgement_remarks(),
            *self._fusion_remarks(),
        )
        current_record = self.records[self.current]
        questions = ""
        if current_record.task.is_generated:
            questions = counted_queries(current_record, decision.best.n)
        mark = generated_mark(current_record)
        unjudged = ""
        if decision.best.first in self._turned_by_grades:
            unjudged = self.unjudged_ranges[decision.best.first].share_text
        return replace(decision, remarks=remarks, questions=questions, mark=mark, unjudged=unjudged)

    def _generated_remarks(self) -> Iterator[str]:
        """Say how many queries were generated from the documents, and how."""
        facts = self.records[self.current].data.generated
        if facts is None:
            return
        count = self.records[self.current].main.n
        yield (
            f"{facts['queries']:,} of {count:,} queries were generated from the documents: "
            f"{kinds_text(facts['kinds'])}. People may ask otherwise"
        )

    def _saturation_remarks(self) -> list[str]:
        """Name a deciding metric at its end, and the next one to look at."""
        if self.saturation is None:
            return []
        difference = self._difference_by_another_metric()
        if difference is None:
            return [self.saturation.text, "No other metric tells the models apart"]
        advice = f"Look at {difference.metric} instead: {difference.first}: {evidence(difference)}"
        return [self.saturation.text, advice]

    def _difference_by_another_metric(self) -> PairedDifference | None:
        """Return the largest difference by the next metric that tells the models apart."""
        for task in self.comparison.tasks:
            if task.metric in (self._deciding_metric, JUDGED):
                continue
            if saturation_of(task) is not None:
                continue
            largest = max(task.with_baseline, key=lambda difference: abs(difference.difference))
            if not largest.identical:
                return largest
        return None

    def _metric_remarks(self, decision: Decision) -> Iterator[str]:
        """Name tested metrics that disagree with the decision."""
        for metric in self.tested[1:]:  # the first one decides
            by_candidate = {}
            for difference in self._comparison_by(metric).with_baseline:
                by_candidate[difference.first] = difference
            if decision.use in by_candidate:
                remark = self._disagreement(by_candidate[decision.use])
            else:
                remark = self._better_by_metric(by_candidate.values())
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
                    size = record.metrics[self._deciding_metric].n
                    yield f"{name} found nothing for {count} of {size} queries"
                elif noun.endswith(PART_FOUND_NOTHING):
                    yield f"{name}: {noun}: {count}"

    def _judgement_remarks(self) -> Iterator[str]:
        """Say what the verdicts would be if no document without a judgement were relevant."""
        could_turn = [
            difference
            for difference in self.differences
            if difference.first in self._turned_by_grades
        ]
        if not could_turn:
            return
        shares = []
        for model in (*(difference.first for difference in could_turn), self.current):
            share = judged_share(self.records[model]) or 0.0
            shares.append(f"{share:.2f} ({model})")
        yield f"Judged@10: {', '.join(shares)}"
        for difference in could_turn:
            verdict = self.comparison.verdict(difference)
            yield (
                f"If what has no judgement is not relevant, {difference.first} is {verdict}: "
                f"{evidence(difference)}"
            )
        yield (
            "If that is so, evaluate with --complete, or write complete = true under [settings] of "
            "the queries"
        )
        yield "If it is not known, judge more: qwen3nb judge asks for the grades that matter"

    def _fusion_remarks(self) -> Iterator[str]:
        """Name the weights of fusions that the grades have chosen, and the held-out score."""
        for name, record in self.records.items():
            if record.search.fitted is not None:
                yield fitted_sentence(name, record)

    @property
    def headline(self) -> str:
        """The decision with all its reasons: ``Take Y …`` or ``Keep X …``."""
        return self.decision.text

    @property
    def conclusion(self) -> Conclusion:
        """Whether a candidate should replace the model in use, in two short sentences."""
        return Conclusion(self.decision.brief)

    def table(self) -> Table:
        """The verdict on each candidate."""
        return replace(self._recommendations(), data=self.comparison.data_used())

    def figure(self) -> Figure | None:
        """The scores by the deciding metric, with brackets that join models which tie."""
        if not self.deciding.with_baseline:
            return None
        return self.comparison.figure_of(self.deciding)

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
            breakdown = candidate_rules.breakdown(
                self.deciding.matrix(difference.first, self.current),
                categories,
                draws=procedure.draws,
                seed=procedure.seed,
            )
            breakdowns.append(breakdown)
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
        for difference, recommendation in zip(self.differences, self.recommendations, strict=True):
            # A candidate that found nothing has no verdict, but fails a gate.
            has_nothing_found = bool(self._not_found[difference.first])
            if has_nothing_found or is_worse(difference, self.comparison):
                reasons.append(f"{recommendation.model}: {recommendation.text}")
        newest_runs = {run.label: run for run in self.runs}  # a later run replaces an earlier one
        for run in newest_runs.values():
            if self._is_regression(run):
                reasons.append(
                    f"{run.label}: its newest run is worse than the previous one "
                    f"({self._deciding_metric} {run.change:+.3f}, corrected p "
                    f"{p_value_text(run.p_value, relation=True)}, n = {run.n})"
                )
        return tuple(reasons)

    def _is_regression(self, run: TrendPoint) -> bool:
        """Whether a run is shown to be worse than the one before, by more than the margin.

        A run on other data is not: the data may have become harder.
        """
        procedure = self.comparison.procedure
        if run.data_changed or run.change is None or run.change >= -procedure.margin:
            return False
        return significant(run.p_value, run.change_interval, alpha=procedure.alpha)

    @property
    def caution(self) -> str:
        """Caveats on the power of these queries; may be empty."""
        procedure = self.comparison.procedure
        sentences = []
        detectable = self._detectable_where_not_shown()
        # A saturated metric has its own remark: more queries would not help.
        if detectable > procedure.margin and self.saturation is None:
            sentences.append(
                f"These queries detect only differences of {detectable:.3f} or more (power 0.8). "
                f"Smaller ones above {procedure.margin:g} may be missed; use more queries."
            )
        for difference in self.differences:
            is_significant = difference.significant(procedure.alpha)
            if is_significant and self.comparison.could_turn(difference):
                sentences.append(
                    f"{difference.first}: rare queries missing in this sample could turn the sign "
                    "of its difference."
                )
        if any(difference.n <= _FEW_QUERIES for difference in self.differences):
            sentences.append(f"Intervals from {_FEW_QUERIES} queries or fewer may be too narrow.")
        return " ".join(sentences)

    def _detectable_where_not_shown(self) -> float:
        """Return the largest detectable difference of the candidates that may be better unseen."""
        largest = 0.0
        for difference in self.differences:
            verdict = self.comparison.find_verdict(difference)
            # Such a candidate may be better, but not shown to be.
            if verdict in (Verdict.NO_WORSE, Verdict.NOT_SHOWN):
                detectable = self.comparison.detectable(difference)
                if detectable is None:
                    detectable = 1.0  # no difference of scores is larger
                largest = max(largest, detectable)
        return largest

    def _in_order(self, task: TaskComparison) -> tuple[PairedDifference, ...]:
        """The differences from the model in use by one metric, in the order of the records."""
        order = list(self.records)
        return tuple(sorted(task.with_baseline, key=lambda pair: order.index(pair.first)))

    def _further_p_values(self, difference: PairedDifference) -> dict[str, float | None]:
        """The p-values of `FURTHER_TESTS`, not corrected; None without a spread or if untested."""
        if difference.metric not in self.tested:
            return dict.fromkeys(FURTHER_TESTS)
        matrix = self.comparison.matrix(difference)
        clusters = matrix.clusters or None
        p_values = {}
        for name, test in FURTHER_TESTS.items():
            # The scores (2, n) are those of the candidate and of the model in use.
            p_values[name] = test(*matrix.scores, cluster=clusters).p_value
        return p_values

    def tables(self) -> dict[str, Table]:
        """Return the tables by title, in the order of the report; empty ones are left out."""
        tables = {
            "Recommendation": self._recommendations(),
            "Models": self.models_table(),
            "Unjudged documents": self.unjudged_ranges_table(),
            "Long documents": self.long_documents_table(),
            "Differences": self._differences(),
            "Fusions": fusion_table(self.records),
            "By category": self.category_table(),
            "Queries that changed most": self.changes_table(),
            "Over time": self.trend_table(),
        }
        data = self.comparison.data_used()
        return {
            title: replace(table, data=data)
            for title, table in tables.items()
            if table is not None and table.rows
        }

    def long_documents_table(self) -> Table | None:
        """What models did with documents longer than they take; None if all fit."""
        return long_documents_table(self.records.values())

    def _recommendations(self) -> Table:
        # By candidate; None where all documents are judged, or it is unknown.
        judged = {pair.first: self._judged_cell(pair) for pair in self.differences}
        has_unjudged = any(judged.values())
        rows = []
        for difference, recommendation in zip(self.differences, self.recommendations, strict=True):
            verdict = Cell(recommendation.verdict, strong=recommendation.matters)
            effect = number(difference.difference, "+.3f", interval=difference.interval)
            alpha = self.comparison.procedure.alpha
            candidate_mean, current_mean = difference.means
            row: dict[str, object] = {
                "candidate": difference.first,
                "verdict": verdict,
                f"{difference.metric}\n{self.current}": (
                    f"{candidate_mean:.3f}",
                    f"against {current_mean:.3f}",
                ),
                "Δ": effect,
                "p": p_cell(difference.corrected, difference.interval, alpha=alpha),
            }
            if has_unjudged:
                row["judged\nfirst ten"] = judged[difference.first]
            if self.unjudged_ranges:
                metrics = {found.metric for found in self.unjudged_ranges.values()}
                # Of another metric, where that which decides has no range.
                head = f"Δ by unjudged\n{' '.join(sorted(metrics))}"
                row[head] = self._range_cell(difference.first)
            row["queries"] = difference.n
            rows.append(row)
        rule = candidate_rules.rule(self.comparison, self.deciding)
        return Table.of(rows, note=self.caution, method=rule)

    def _judged_cell(self, difference: PairedDifference) -> tuple[str, str] | None:
        """Judged@10 of a candidate and of the model in use; None if all are judged, or unknown."""
        candidate_share = judged_share(self.records[difference.first])
        current_share = judged_share(self.records[difference.second])
        if candidate_share is None or current_share is None:
            return None
        if candidate_share == current_share == 1:
            return None
        return f"{candidate_share:.2f}", f"against {current_share:.2f}"

    def _range_cell(self, candidate: str) -> tuple[str, str] | None:
        """The lowest and the highest difference of a candidate; None if all is judged."""
        found = self.unjudged_ranges.get(candidate)
        if found is None:
            return None
        low, _, high = found.text.partition(" ")
        return low, high

    def unjudged_ranges_table(self) -> Table:
        """The ranges of scores and differences over grades of unjudged documents; may be empty."""
        rows = []
        for difference in self.differences:
            found = self.unjudged_ranges.get(difference.first)
            if found is None:
                continue
            rows.append(
                {
                    "candidate": difference.first,
                    "unjudged": (f"{found.unjudged:,}", f"of {found.results:,}"),
                    f"{found.metric}\n{self.current}": (
                        self._score_range_text(difference.first, found.metric),
                        f"against {self._score_range_text(self.current, found.metric)}",
                    ),
                    "Δ": found.text,
                    "verdict": self._verdict_at_worst(difference, found),
                }
            )
        note = (
            "What a document without a judgement may do: it has any grade that the judgements use, "
            "the same in both rankings. Scores and differences lie in these ranges. A verdict "
            "that the worst grades would turn is not given."
        )
        return Table.of(rows, note=note)

    def _verdict_at_worst(
        self, difference: PairedDifference, found: UnjudgedRange
    ) -> str | tuple[str, str]:
        """Say whether a verdict holds with the grades that are worst for it."""
        if found.worst is None:
            return "nothing shown"
        verdict = self.comparison.verdict(difference)
        outcome = f"{verdict}: could turn" if found.turns else f"{verdict}: holds"
        interval = interval_text(found.worst.interval)
        return outcome, f"at worst {found.worst.difference:+.3f} {interval}"

    def _score_range_text(self, model: str, metric: str) -> str:
        found = self._score_ranges.get(model)
        if found is None:  # all is judged
            return number_text(self.records[model].metrics[metric].value)
        return found.text

    def models_table(self) -> Table:
        """What each model is, with its prompts and its time."""
        # Sparse ones, or one per token, whose size the dimensions do not say.
        has_other_vectors = any(
            record.search.bytes_per_document is not None for record in self.records.values()
        )
        rows = []
        for name, record in self.records.items():
            prompts = record.model.settings.get("prompts") or {}
            prompt_texts = [f"{role}: {prompt!r}" for role, prompt in prompts.items()]
            row: dict[str, object] = {
                "model": name,
                "loaded from": (record.model.spec, record.model.identity[:8]),
                "dimensions": record.dimensions or None,
                _VECTOR_BYTES: document_bytes(record) or None,
                "judged\nfirst ten": number_text(judged_share(record)),
                "prompts": ", ".join(prompt_texts) or "none",
                "time": times_text(record),
            }
            if not has_other_vectors:  # the dimensions say it
                del row[_VECTOR_BYTES]
            rows.append(row)
        return Table.of(
            rows,
            note=f"{self._words_note()}Judged: the share of the first ten documents that have a "
            "judgement; others count as not relevant. Per query: the median time from a text to "
            "its vector, or with BM25 to its ranking.",
            kind="words",
        )

    def _words_note(self) -> str:
        """Say how BM25 read the texts; empty without BM25."""
        words = {
            words_read(record.model.settings, record.search.words)
            for record in self.records.values()
        }
        return "".join(f"BM25 reads {text}. " for text in sorted(words - {""}))

    def _differences(self) -> Table:
        rows = []
        for task in self.comparison.tasks:
            rows += [self._difference_row(difference) for difference in self._in_order(task)]
        note = (
            f"p: {self.comparison.test}, {self.comparison.family(self.task)}; below it "
            f"the raw p-value. {', '.join(FURTHER_TESTS)}: paired, not corrected. Detectable: the "
            "smallest difference that these queries show in 80 % of samples, by test and interval."
        )
        for reason in (*self.left_out, *self.comparison.notes):
            note += f" {reason}."
        return Table.of(rows, note=note)

    def _difference_row(self, difference: PairedDifference) -> dict[str, object]:
        delta, corrected = difference_cells(difference, alpha=self.comparison.procedure.alpha)
        candidate, current = difference.means
        is_tested = difference.metric in self.tested
        counts = f"{difference.won} / {difference.tied} / {difference.lost}"
        further_cells = {
            f"{name}\np": number_text(p_value, digits=4)
            for name, p_value in self._further_p_values(difference).items()
        }
        # A pair is a cell with a second line.
        return {
            "metric": difference.metric,
            "model": difference.first,
            "value": (f"{candidate:.3f}", f"against {current:.3f}"),
            "Δ\n95 % interval": delta,
            "p\ncorrected": corrected if is_tested else None,
            **further_cells,
            "d_z": number_text(difference.d_z, sign=True, digits=2),
            "won / tied / lost": (counts, f"n = {difference.n}"),
            "detectable\npower 0.8": number_text(self.comparison.detectable(difference)),
        }

    def category_table(self) -> Table:
        """The differences by category of queries; no rows without categories."""
        rows = []
        for breakdown in self.breakdowns:
            for category in breakdown.rows:
                rows.append(self._category_row(breakdown.first, category))
        note = f"{self._deciding_metric}; p: {NAMES[HOLM]} over the categories of a model."
        return Table.of(rows, note=note)

    def _category_row(self, candidate: str, category: CategoryRow) -> dict[str, object]:
        """Return a candidate on a category of queries; in it, the model in use is the second."""
        alpha = self.comparison.procedure.alpha
        # A pair is a cell with a second line.
        return {
            "model": candidate,
            "category": category.category,
            "value": (f"{category.first:.3f}", f"against {category.second:.3f}"),
            "Δ\n95 % interval": number(category.difference, "+.3f", interval=category.interval),
            "p\ncorrected": p_cell(category.p_value, category.interval, alpha=alpha),
            "queries": category.n,
        }

    def changes_table(self) -> Table:
        """The queries that changed most, with the best documents of both models."""
        current = self.records[self.current]
        rows = []
        for change in self.changes:
            scores = f"{change.score:.3f} against {change.current:.3f}"
            # A pair is a cell with a second line.
            row = (
                change.model,
                query_text(current, change.query),
                (f"{change.difference:+.3f}", scores),
                _top_text(self.records[change.model], change.query),
                _top_text(current, change.query),
            )
            rows.append(row)
        heads = [
            "model",
            "query",
            f"Δ {self._deciding_metric}",
            f"top {_TOP_DOCUMENTS}\nmodel",
            f"top {_TOP_DOCUMENTS}\n{self.current}",
        ]
        return Table.of(rows, heads, kind="words")

    def trend_table(self) -> Table:
        """The runs of each model over time; no rows if each ran once."""
        rows = [self._run_row(run) for run in self.runs]
        note = (
            "Each run is paired with the one before, on the queries that both have. "
            f"p: {NAMES[HOLM]} over the changes."
        )
        return Table.of(rows, note=note)

    def _run_row(self, run: TrendPoint) -> dict[str, object]:
        alpha = self.comparison.procedure.alpha
        finished = run.finished[:19]  # 2026-01-31T12:30:00, without fractions and time zone
        versions = f"{run.identity[:8]}, data {short_revision(run.revision)}"
        mean_head = f"{self._deciding_metric}\n95 % interval"
        # A pair is a cell with a second line.
        return {
            "model": run.label,
            "finished": (finished, versions),
            mean_head: number(run.mean, interval=run.interval),
            "change\n95 % interval": number(run.change, "+.3f", interval=run.change_interval),
            "p\ncorrected": p_cell(run.p_value, run.change_interval, alpha=alpha),
            "queries\nshared": (f"{run.n:,}", _shared_text(run)),
            "since then": _what_changed(run),
        }

    def to_markdown(self) -> str:
        """Return the tables under their titles as Markdown, escaped."""
        record = self.records[self.current]
        # Such as "120 queries".
        facts = [f"{count:,} {noun}" for noun, count in record.task.size.items()]
        if record.data.dropped:
            facts.append(f"{len(record.data.dropped)} queries dropped")
        if record.data.relevance_threshold is not None:
            facts.append(f"relevant from grade {record.data.relevance_threshold:g}")
        facts.append(f"revision {record.task.short_revision}")
        data = f"{self.task}: {', '.join(facts)}"
        finished = max(record.finished for record in self.records.values())
        parts = [
            f"# {escaped(self.decision.title)}",
            escaped(self.decision.brief),
            f"{escaped(data)}, {finished[:10]}.",
            "\n".join(f"- {escaped(sentence)}." for sentence in self.decision.sentences),
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
            "unjudged": [self._range_as_dict(pair) for pair in self.differences],
            "rule": candidate_rules.rule(self.comparison, self.deciding),
            "notes": list(self.comparison.notes),
        }
        return json_text(
            {
                "schema": "qwen3nb.comparison/1",
                "task": self.task,
                "headline": self.headline,
                "generated": current.data.generated,
                "decision": decision,
                "decides": self._deciding_metric,
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

    def _range_as_dict(self, difference: PairedDifference) -> dict[str, object]:
        """Return the range of a difference under the keys of the JSON schema."""
        found = self.unjudged_ranges.get(difference.first)
        if found is None:
            return {"model": difference.first, "unjudged": 0}
        ranges = {}
        for model in (difference.first, self.current):
            scores = self._score_ranges.get(model)
            if scores is not None:
                ranges[model] = [scores.lowest, scores.highest]
        return {"model": difference.first, **asdict(found), "scores": ranges}

    def _as_dict(self, difference: PairedDifference) -> dict[str, object]:
        """Return a difference under the keys of the JSON schema."""
        is_tested = difference.metric in self.tested
        candidate_mean, current_mean = difference.means
        fields = asdict(difference)
        # These have other keys below, or none.
        for renamed in ("first", "second", "task", "means", "p_value", "corrected"):
            del fields[renamed]
        further_p_values = self._further_p_values(difference)
        return {
            "model": difference.first,
            "mean": candidate_mean,
            "current": current_mean,
            "p_value": difference.p_value if is_tested else None,
            "adjusted": difference.corrected if is_tested else None,
            "t_p_value": further_p_values["t-test"],
            "further_p_values": further_p_values,
            "detectable": self.comparison.detectable(difference),
            **fields,
        }


def _shared_text(run: TrendPoint) -> str:
    """Return how many queries a run shares with the previous one; empty for a first run."""
    if run.change is None:
        return ""
    return f"{run.shared:,}"


def _what_changed(run: TrendPoint) -> str:
    """Say what a run has that the previous one had not: another model, or other data.

    Empty for a first run, and where nothing changed.
    """
    changes = []
    if run.model_changed:
        changes.append("model")
    if run.data_changed:
        changes.append("data")
    return " and ".join(changes)


def _top_text(result: Result, query: str) -> str:
    """Return the best documents of a query; distinguishes no hits from rankings not kept."""
    if result.top is None:
        return "not kept"
    documents = top_documents(result, query)[:_TOP_DOCUMENTS]
    return ", ".join(documents) or "none"


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
    queries = sorted(next(iter(result.per_query.values())))  # the same by every metric
    settings = {
        name: value for name, value in result.config.items() if name not in _SETTINGS_BY_QUERY
    }
    return {
        "model": result.model,
        "task": result.task,
        "dimensions": result.dimensions,
        "settings": settings,
        "seed": result.seed,
        "cost": result.cost,
        "seconds_per_query": result.search.seconds_per_query,
        "environment": result.environment,
        "finished": result.finished,
        "run": result.run,
        "metrics": {name: asdict(value) for name, value in result.metrics.items()},
        "per_query": dict(result.scores),
        "top": {query: top_documents(result, query)[:_TOP_DOCUMENTS] for query in queries},
    }


def _exported(procedure: Procedure) -> dict[str, object]:
    """Return the procedure with the names of earlier reports."""
    exported = {}
    for name, value in asdict(procedure).items():
        if name == "margin":
            name = "minimum"
        exported[name] = value
    return exported


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
    every_run = list(results)
    select = partial(
        candidate_rules.select_candidates, every_run, current=current, task=task, models=models
    )
    # Which metrics are tested by default depends on the task of the model in use.
    records, left_out = select(tested=tested)
    if not tested:
        main_metric = records[0].task.main_metric
        # Candidates without that metric are left out now.
        records, left_out = select(tested=[main_metric])
        tested = tested_by_default(records)
    in_use = records[0]
    comparison = compare(
        records,
        baseline=system_name(in_use, system_names(records)),
        metric=_shared_means(records, tested),
        tasks=[in_use.task.key],
        alpha=alpha,
        margin=margin,
        draws=n_resamples,
        seed=seed,
    )
    runs = trend(
        candidate_rules.same_data(every_run, records),
        metric=tested[0],
        n_resamples=n_resamples,
        seed=seed,
    )
    return Candidates(
        comparison=comparison,
        tested=tuple(tested),
        runs=runs,
        most=most,
        left_out=tuple(left_out),
    )


def tested_by_default(records: Sequence[Result]) -> list[str]:
    """Return the task's main metric, then those of `_ALSO_TESTED` that every record has."""
    tested = [record.task.main_metric for record in records[:1]]
    for metric in _ALSO_TESTED:
        if metric not in tested and all(metric in record.per_query for record in records):
            tested.append(metric)
    return tested


def _shared_means(records: Sequence[Result], tested: Sequence[str]) -> list[str]:
    """Return the metrics that are means over queries and that every record has per query.

    The share of judged documents is among them only if it is tested.
    """
    metrics = []
    for metric, score in records[0].metrics.items():
        if score.how != "mean":  # such as a correlation
            continue
        if metric == JUDGED and metric not in tested:  # says nothing of the model's quality
            continue
        if all(metric in record.per_query for record in records):
            metrics.append(metric)
    return metrics
