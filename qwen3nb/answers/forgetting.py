"""What did a training forget? The groups of queries that changed unlike the others.

Two models are compared on the queries that both answered: two checkpoints of a training, or a base
and what was trained from it. What a group must show to be named stands in
`qwen3nb.analysis.comparison.forgotten_groups`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from qwen3nb.analysis.comparison.differences import ALPHA, PairedDifference
from qwen3nb.analysis.comparison.forgotten_groups import GroupChange, Verdict, compare_groups
from qwen3nb.analysis.comparison.group_changes import (
    FEWEST_CLUSTERS,
    FEWEST_QUERIES,
    QueryGroup,
)
from qwen3nb.analysis.comparison.query_groups import (
    groups_by_value,
    language_groups,
    length_groups,
    script_groups,
    topics_and_words,
)
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.explorer import Explorer, explore
from qwen3nb.answers.trained_pair import find_pair
from qwen3nb.evaluation.mteb.per_query import SearchTexts
from qwen3nb.metrics.intervals import Array
from qwen3nb.models.model import Model
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.differences import difference_cell, difference_text
from qwen3nb.report.render.figure import ACCENT, QUIET, Figure, ForestRow, forest_figure
from qwen3nb.report.render.table import (
    Cell,
    Conclusion,
    Table,
    cut,
    number,
    plural,
    short_task,
)
from qwen3nb.utils.format import first_names, json_text, number_text, p_value_text
from qwen3nb.utils.imports import DataFrame

_LONGEST = 200  # characters of a query in a list


@dataclass(frozen=True, eq=False, repr=False)
class Forgetting(Answer):
    """Groups of queries before and after, the named ones first."""

    before: str  # name of the earlier model
    after: str
    overall: PairedDifference  # after minus before, on all queries
    groups: tuple[GroupChange, ...]
    explorer: Explorer  # of the two models on the task
    vectors: str = ""  # label of the model whose vectors make the topics; empty for words
    n_resamples: int = DRAWS
    unlisted: int = 0  # groups that were compared, too, and are as the rest

    def named(self, *verdicts: Verdict) -> list[GroupChange]:
        """Return the groups with one of some verdicts, by default all that are named."""
        if not verdicts:
            return [change for change in self.groups if change.test.is_named]
        return [change for change in self.groups if change.verdict in verdicts]

    @property
    def conclusion(self) -> Conclusion:
        """What was forgotten or learned, and the change over all queries, in two sentences."""
        words = f"{self._first_sentence()} {self._second_sentence()}"
        return Conclusion(words, data=self.explorer.data)

    def _first_sentence(self) -> str:
        forgotten = self.named(Verdict.FORGOTTEN)
        if forgotten:
            return f"{self.after} forgot {_in_words(forgotten)}."
        for verdict in (Verdict.LEARNED, Verdict.LEFT_BEHIND, Verdict.SPARED):
            found = self.named(verdict)
            if found:
                return (
                    f"No group of queries is shown to be forgotten; {verdict}: {_in_words(found)}."
                )
        if not any(change.test.p_value is not None for change in self.groups):
            return "No group of queries is large enough to be compared with the others."
        return "No group of queries changed unlike the others."

    def _second_sentence(self) -> str:
        change = self.overall
        return (
            f"Over all {change.n:,} queries of {short_task(change.task)}, {change.metric} changed "
            f"by {difference_text(change, p_value=False)}."
        )

    def table(self) -> Table:
        """A row per group: its scores before and after, its change, and that against the rest."""
        compared = [change for change in self.groups if change.test.p_value is not None]
        too_small = len(self.groups) - len(compared)
        rows = [self._row(change) for change in compared]
        notes = [
            f"Over all {self.overall.n:,} queries: {number_text(self.overall.means[1])} before, "
            f"{number_text(self.overall.means[0])} after."
        ]
        if self._missing_texts:
            notes.append(self._missing_texts.strip())
        if too_small:
            notes.append(
                f"{plural(too_small, 'group')} of fewer than {FEWEST_QUERIES} queries or "
                f"{FEWEST_CLUSTERS} clusters of queries not compared."
            )
        return Table.of(
            rows,
            note=" ".join(notes),
            method=self._method(len(compared)),
            empty=f"No group has enough queries. {self._missing_texts}{self.explorer.note}",
            name="forgetting",
            caption=f"{self.overall.metric} on {short_task(self.overall.task)}, before "
            f"({self.before}) and after ({self.after}), by groups of queries.",
            data=self.explorer.data,
        )

    @property
    def _missing_texts(self) -> str:
        """Say that texts are not known; empty if one is."""
        if any(self.explorer.words):
            return ""
        return "The texts of these queries are not known here: no topics and lengths without them. "

    def _row(self, change: GroupChange) -> dict[str, object]:
        """Return a row of the table."""
        is_named = change.test.is_named
        after, before = change.change.means
        return {
            "group": Cell(change.group.name, change.group.facet, strong=is_named),
            "verdict": Cell(str(change.verdict), strong=is_named),
            "change\n95 % interval": difference_cell(change.change),
            "p\ncorrected": Cell(
                p_value_text(change.test.p_value), value=change.test.p_value, strong=is_named
            ),
            "less\nthe rest": number(change.test.difference, "+.3f"),
            "before": number(before),
            "after": number(after),
            "queries": Cell(
                f"{change.change.n:,}",
                f"{change.change.won} won, {change.change.lost} lost",
                value=change.change.n,
            ),
        }

    def _method(self, compared: int) -> str:
        """Say how groups were made and tested."""
        compared += self.unlisted
        others = ""
        if self.unlisted:
            others = (
                f"Not listed: {plural(self.unlisted, 'group')} that are as the rest. These are "
                "half and twice as many topics, and queries that share a word or begin with one. "
            )
        topics = "the queries' own words (tf-idf, reduced to 50 dimensions)"
        if self.vectors:
            topics = f"the queries' vectors by {self.vectors}"
        return (
            f"Topics: clusters of {topics}, named by the words of highest log-odds. {others}p: the "
            "share "
            f"of {self.n_resamples:,} shuffles of the differences in which any of "
            f"{plural(compared, 'group')} is as far from the rest. A named group leaves before the "
            "next is looked for, so the rest is what no group above has. Intervals are of each "
            "group alone."
        )

    def figure(self) -> Figure | None:
        """The change of each group with its interval; filled where it is unlike the rest."""
        rows = [_forest_row("all queries", self.overall, is_filled=False)]
        for change in self.groups:
            if change.test.p_value is None:
                continue
            label = f"{change.group.name} ({change.group.facet})"
            rows.append(_forest_row(label, change.change, is_filled=change.test.is_named))
        return forest_figure(
            rows,
            xlabel=f"change of {self.overall.metric}, from {self.before} to {self.after}",
            name="forgetting",
            caption=f"Change of {self.overall.metric} by group of queries, with 95 % intervals. "
            "Filled: groups that changed unlike the rest.",
            data=self.explorer.data,
        )

    def queries_table(self, most: int = 6) -> Table:
        """The queries that were lost and won most: of each named group, else of all."""
        rows = []
        for change in self.named():
            rows += self._query_rows(change.group.members, change.group.name, most)
        if not rows:
            rows = self._query_rows(range(self.overall.n), "all queries", most)
        return Table.of(
            rows,
            ("query", "group", "before", "after", "change"),
            note=f"Of each group, up to {most} queries with the largest changes.",
            empty="No score changed.",
            kind="words",
            name="forgetting-queries",
            caption="Queries that were lost or won.",
            data=self.explorer.data,
        )

    def _query_rows(self, members: Iterable[int], name: str, most: int) -> list[list[object]]:
        """Return rows of the queries with the largest changes, losses first."""
        matrix = self.explorer.matrix
        before, after = matrix.column(self.before), matrix.column(self.after)
        changes = after - before
        changed = [member for member in members if changes[member] != 0]
        largest = sorted(changed, key=lambda member: (-abs(changes[member]), member))[:most]
        rows: list[list[object]] = []
        for member in sorted(largest, key=lambda member: (changes[member], member)):
            query = matrix.queries[member]
            text = Cell(cut(self.explorer.text(query), _LONGEST), query)
            scores = [number(float(before[member])), number(float(after[member]))]
            rows.append([text, name, *scores, number(float(changes[member]), "+.3f")])
        return rows

    def to_json(self) -> str:
        """Return the numbers as strict JSON: over all queries, and of each group."""
        groups = []
        for change in self.groups:
            after, before = change.change.means
            group = {
                "facet": change.group.facet,
                "name": change.group.name,
                "queries": change.change.n,
                "won": change.change.won,
                "lost": change.change.lost,
                "before": before,
                "after": after,
                "change": change.change.difference,
                "interval": change.change.interval,
                "less_the_rest": change.test.difference,
                "p_value": change.test.p_value,
                "verdict": str(change.verdict),
            }
            groups.append(group)
        return json_text(
            {
                "task": self.overall.task,
                "metric": self.overall.metric,
                "before": self.before,
                "after": self.after,
                "queries": self.overall.n,
                "groups_not_listed": self.unlisted,
                "change": self.overall.difference,
                "interval": self.overall.interval,
                "groups": groups,
            }
        )

    def to_frame(self) -> DataFrame:
        """Return a row per query: text, its group of each facet, both scores and the change."""
        import pandas as pd

        matrix = self.explorer.matrix
        before, after = matrix.column(self.before), matrix.column(self.after)
        names: dict[str, list[str]] = {}  # of each query's group, by facet
        for change in self.groups:
            of_facet = names.setdefault(change.group.facet, [""] * len(matrix.queries))
            for member in change.group.members:
                of_facet[member] = change.group.name
        columns = {
            "text": [self.explorer.text(query) for query in matrix.queries],
            **names,
            "before": before,
            "after": after,
            "change": after - before,
        }
        index = pd.Index(matrix.queries, name="query")
        return pd.DataFrame(columns, index=index).sort_values("change", kind="stable")


@dataclass(frozen=True)
class NoForgetting(Answer):
    """The reason why there is no map, shown instead."""

    why: str

    @property
    def conclusion(self) -> Conclusion:
        """The reason."""
        return Conclusion(self.why)

    def table(self) -> Table:
        """An empty table that gives the reason."""
        return Table(("group",), (), self.why)

    def queries_table(self, most: int = 6) -> Table:
        """An empty table that gives the reason."""
        return self.table()

    def to_frame(self) -> DataFrame:
        """Return an empty data frame."""
        import pandas as pd

        return pd.DataFrame({"text": [], "change": []})


def _in_words(changes: Sequence[GroupChange]) -> str:
    """Name groups, the first with its change."""
    first = changes[0]
    text = f"the {first.label} ({difference_text(first.change, p_value=False)})"
    others = [change.label for change in changes[1:]]
    if others:
        text += f", and {first_names(others, most=2)}"
    return text


def _forest_row(label: str, change: PairedDifference, *, is_filled: bool) -> ForestRow:
    return ForestRow(
        label=label,
        value=change.difference,
        interval=change.interval,
        color=ACCENT if is_filled else QUIET,
        note=f"n = {change.n:,}",
        clear=is_filled,
    )


def forgetting(
    results: Iterable[Result],
    before: str = "",
    after: str = "",
    *,
    task: str = "",
    topics: int = 0,
    vectors: str = "",
    alpha: float = ALPHA,
    n_resamples: int = DRAWS,
    seed: int = 0,
) -> Forgetting | NoForgetting:
    """Return which groups of queries a training forgot or learned.

    Args:
        results: records with scores per query.
        before: the earlier model: a label, a spec, or the first digits of an identity.
        after: the later model. By default, both are the first and the last step of the training
            that was evaluated last.
        task: a search or reranking; by default that of most queries which both have.
        topics: how many topics; by default one per 30 queries, from 2 to 20. Half and twice as many
            are compared, too, and queries that share a word or begin with one.
        vectors: a model whose vectors of the queries make the topics; by default their words do.
            Better no model that is compared: its weak places would make the groups.
        alpha: the family-wise error rate of naming a group.
        n_resamples: number of shuffles and of sign flips.
        seed: of the topics and the draws.

    Raises:
        ValueError: an unknown model or task, models without a search in common, or a name that
            several models have.
    """
    pair = find_pair(latest(results), before, after, task=task)
    if isinstance(pair, str):
        return NoForgetting(pair)
    explorer = explore(
        pair.records,
        task=pair.task,
        metric=pair.metric,
        texts=_texts_of_collection(pair.records[1]),
    )
    if not isinstance(explorer, Explorer):
        return NoForgetting(explorer.conclusion.text)
    texts = known_texts(explorer)
    query_vectors, label = None, ""
    if vectors:
        model = Model(vectors)
        query_vectors = np.asarray(model.encode(texts, role="query"))
        label = model.label
    groups = query_groups(explorer, texts, topics=topics, vectors=query_vectors, seed=seed)
    overall, changes = compare_groups(
        explorer.matrix,
        groups,
        before=pair.before,
        after=pair.after,
        alpha=alpha,
        n_resamples=n_resamples,
        seed=seed,
    )
    return Forgetting(
        before=pair.before,
        after=pair.after,
        overall=overall,
        groups=tuple(changes),
        explorer=explorer,
        vectors=label,
        n_resamples=n_resamples,
        unlisted=len(groups) - len(changes),
    )


def _texts_of_collection(record: Result) -> SearchTexts | None:
    """Return the texts of the data set whose documents are reranked; None for another record."""
    name = record.data.collection
    if not name or name == record.task.name or record.data.queries:
        return None
    with suppress(ValueError, OSError):  # own data, or data that are not available here
        return SearchTexts.of_task(replace(record.task, name=name))
    return None


def known_texts(explorer: Explorer) -> list[str]:
    """Return the text of each query; empty where it is not known."""
    texts = []
    for query, words in zip(explorer.matrix.queries, explorer.words, strict=True):
        texts.append("" if words is None else explorer.text(query))
    return texts


def query_groups(
    explorer: Explorer,
    texts: Sequence[str],
    *,
    topics: int = 0,
    vectors: Array | None = None,
    seed: int = 0,
) -> list[QueryGroup]:
    """Return all groups of the queries: by topic, word, length, category, language and script."""
    groups = groups_by_value("category", explorer.categories)
    if not any(texts):
        return groups + groups_by_value("language", explorer.languages)
    groups += topics_and_words(texts, vectors=vectors, topics=topics, seed=seed)
    groups += length_groups(texts)
    groups += language_groups(texts, explorer.languages)
    groups += script_groups(texts)
    return groups
