"""How good is each model in each language? Means over the tasks of a study, by language.

A language counts on every task that has it: with the subsets in it if the task has several, else
with the task's score. A mean needs a score on each of these tasks, as on MTEB's leaderboard.
Subsets between two languages, such as translations, count for the pair. A score on texts of more
languages, as of a task to tell languages apart, says nothing of one of them, and counts for none.
Scripts have means in the same way, over the subsets of which all texts are in one script.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import numpy as np

from qwen3nb.analysis.comparison.alignment import model_names
from qwen3nb.answers.board.grid import by_model
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.intervals import Interval, mean_of_intervals
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.table import (
    MANY,
    Cell,
    Head,
    Sections,
    Table,
    not_shown,
    number,
    plural,
    transposed,
)
from qwen3nb.utils.format import first_names

_MOST_MODELS = 8  # columns of a table with a row per language
_MOST_NAMED = 3  # models of which a note says what they lack
_HOW = "Their intervals, and those of subsets, add up in quadrature, as of independent scores."


@dataclass(frozen=True)
class Grouping:
    """How subsets are grouped, by their languages."""

    noun: str  # of a group
    title: str  # what the scores are by
    name: str  # of the table
    # Returns the group of a subset in these languages, such as ``deu-Latn``; empty for none.
    group: Callable[[Sequence[str]], str]


def _language(codes: Sequence[str]) -> str:
    languages = _languages(codes)
    return languages[0] if len(languages) == 1 else ""


def _pair(codes: Sequence[str]) -> str:
    languages = _languages(codes)
    return "-".join(languages) if len(languages) == 2 else ""


def _script(codes: Sequence[str]) -> str:
    scripts = {code.partition("-")[2] for code in codes}
    return scripts.pop() if len(scripts) == 1 else ""


def _languages(codes: Sequence[str]) -> list[str]:
    return sorted({code.partition("-")[0] for code in codes})


LANGUAGES = Grouping("language", "language", "languages", _language)
PAIRS = Grouping("pair", "pair of languages", "language-pairs", _pair)
SCRIPTS = Grouping("script", "script", "scripts", _script)


def grouped_scores(record: Result, grouping: Grouping) -> dict[str, list[Aggregate]]:
    """Return the scores of a record's subsets by their group; empty if it does not say which."""
    scores: dict[str, list[Aggregate]] = {}
    for part in record.parts:
        group = grouping.group(part.languages)
        if group and part.score.value is not None:
            scores.setdefault(group, []).append(part.score)
    if not record.parts and record.main.value is not None:
        group = grouping.group(record.task.languages)
        if group:
            scores[group] = [record.main]
    return scores


@dataclass(frozen=True)
class GroupMean:
    """The mean of one model over the tasks of a language or script."""

    scores: Mapping[str, Sequence[Aggregate]]  # of the subsets in it, by task
    tasks: Sequence[str]  # that have it, by the records of all models

    @property
    def missing(self) -> list[str]:
        """The tasks without a score."""
        return [task for task in self.tasks if task not in self.scores]

    @property
    def count(self) -> str:
        """The number of tasks; if some have no score, how many of them have one."""
        if not self.missing:
            return str(len(self.tasks))
        return f"{len(self.tasks) - len(self.missing)} of {len(self.tasks)}"

    @property
    def value(self) -> float | None:
        """The mean over the tasks; None if one has no score."""
        if self.missing:
            return None
        return fmean(
            fmean(score.value for score in of_subsets if score.value is not None)
            for of_subsets in self.scores.values()
        )

    @property
    def interval(self) -> Interval | None:
        """The interval of the mean; None without one, or if a score lacks its own."""
        if self.missing:
            return None
        values, ends, weights = [], [], []
        for of_subsets in self.scores.values():
            for score in of_subsets:
                if score.value is None or score.low is None or score.high is None:
                    return None
                values.append(score.value)
                ends.append((score.low, score.high))
                weights.append(1 / (len(self.scores) * len(of_subsets)))
        return mean_of_intervals(values, ends, weights=np.array(weights))

    @property
    def cell(self) -> Cell:
        """The mean with its interval, or how many of the tasks have a score."""
        if not self.missing:
            return number(self.value, interval=self.interval)
        if not self.scores:
            return Cell("not run")
        return Cell(self.count, "incomplete")


@dataclass(frozen=True)
class GroupMeans:
    """The means of all models of a study, by language, pair of languages or script."""

    records: Sequence[Result]
    grouping: Grouping

    @property
    def is_of_one(self) -> bool:
        """Whether the groups are no pairs."""
        return self.grouping is not PAIRS

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of the models by identity, in alphabetical order."""
        names = model_names(self.records)
        return {
            identity: names[identity]
            for identity in sorted(self._scores, key=lambda identity: names[identity])
        }

    @cached_property
    def _scores(self) -> dict[str, dict[str, dict[str, list[Aggregate]]]]:
        """The scores by identity of the model, then group, then task."""
        scores: dict[str, dict[str, dict[str, list[Aggregate]]]] = {}
        for identity, record_by_task in by_model(self.records).items():
            of_model = scores.setdefault(identity, {})
            for task, record in record_by_task.items():
                for group, of_subsets in grouped_scores(record, self.grouping).items():
                    of_model.setdefault(group, {})[task] = of_subsets
        return scores

    @cached_property
    def tasks(self) -> dict[str, list[str]]:
        """The tasks that have each group, the group with most of them first."""
        tasks: dict[str, dict[str, None]] = {}
        for of_model in self._scores.values():
            for group, by_task in of_model.items():
                tasks.setdefault(group, {}).update(dict.fromkeys(by_task))
        groups = sorted(tasks, key=lambda group: (-len(tasks[group]), group))
        return {group: sorted(tasks[group]) for group in groups}

    def mean(self, identity: str, group: str) -> GroupMean:
        """Return the mean of a model in a group."""
        of_model = self._scores.get(identity, {})
        return GroupMean(of_model.get(group, {}), self.tasks[group])

    def _in_order(self, first: Sequence[str]) -> list[str]:
        """Return the identities of all models, some of them first."""
        listed = [identity for identity in first if identity in self.names]
        return [*listed, *(identity for identity in self.names if identity not in listed)]

    def missing(self, groups: Iterable[str], models: Iterable[str]) -> dict[str, list[str]]:
        """Return the tasks of these groups that a model lacks, by its name; none if it has all.

        ``models`` are identities: those that a table shows.
        """
        shown_groups = list(groups)
        missing = {}
        for identity in models:
            tasks: dict[str, None] = {}
            for group in shown_groups:
                tasks |= dict.fromkeys(self.mean(identity, group).missing)
            if tasks:
                missing[self.names[identity]] = sorted(tasks)
        return missing

    def table(self, *, most: int | None = None, models: Sequence[str] = ()) -> Table | None:
        """Return the means with what is missing; None for fewer than two groups.

        Few groups have a column each, many a row each.

        Args:
            most: number of groups that are shown, those with most tasks.
            models: identities of the models that come first; the others follow by name.
        """
        if len(self.tasks) < 2:
            return None
        groups = list(self.tasks)[:most]
        identities = self._in_order(models)
        is_long = len(self.tasks) > MANY
        left_out = max(0, len(identities) - _MOST_MODELS) if is_long else 0
        if left_out:
            identities = identities[:_MOST_MODELS]
        heads = ["model"]
        for group in groups:
            count = len(self.tasks[group])
            heads.append(Head(f"{group}\n{plural(count, 'task')}", count))
        missing = self.missing(groups, identities)
        rows = []
        for identity in identities:
            cells = [self.mean(identity, group).cell for group in groups]
            rows.append([self.names[identity], *cells])
        table = Table.of(
            rows,
            heads,
            best=True,
            name=self.grouping.name,
            caption=f"Means of the main scores by {self.grouping.title}, over the tasks of this "
            "study.",
            note=self._note(groups, missing, left_out),
            method=" ".join([*_missing_sentences(missing), _HOW]),
            data=DataUsed.of(self.records),
        )
        return transposed(table, first=self.grouping.noun) if is_long else table

    def _note(
        self, groups: Sequence[str], missing: Mapping[str, Sequence[str]], left_out: int
    ) -> str:
        noun = self.grouping.noun
        text = f"Best of each {noun} in bold. A mean needs a score on each of its tasks."
        if len(groups) < len(self.tasks):
            text += f" The {len(groups)} with most tasks of {plural(len(self.tasks), noun)}."
        for model in list(missing)[:_MOST_NAMED]:
            text += f" {model} lacks {first_names(missing[model], most=2)}."
        if len(missing) > _MOST_NAMED:
            text += f" {plural(len(missing) - _MOST_NAMED, 'more model')} lack scores, too."
        return text + not_shown(left_out)


def _missing_sentences(missing: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what each model lacks, in full."""
    return [f"{model} has no score on {', '.join(tasks)}." for model, tasks in missing.items()]


def group_means(results: Iterable[Result], grouping: Grouping) -> GroupMeans:
    """Return the means of all models by language, pair of languages or script."""
    return GroupMeans(latest(results), grouping)


def overview_of_languages(results: Iterable[Result], *, models: Sequence[str] = ()) -> list[Table]:
    """Return the tables of a first page: the languages with most tasks, and scripts if many.

    Args:
        results: any records.
        models: identities of the models that come first.
    """
    tables = [
        means.table(most=MANY, models=models) for means in _groupings(results) if means.is_of_one
    ]
    return [table for table in tables if table is not None]


def language_sections(results: Iterable[Result], *, models: Sequence[str] = ()) -> Sections | None:
    """Return all means by script, by language and by pair of languages; None if there are none.

    Args:
        results: any records.
        models: identities of the models that come first.
    """
    sections = []
    for means in _groupings(results):
        table = means.table(models=models)
        if table is not None:
            title = f"By {means.grouping.title} ({len(means.tasks)})"
            sections.append((title, replace(table, name=f"all-{table.name}")))
    return Sections(tuple(sections)) if sections else None


def _groupings(results: Iterable[Result]) -> list[GroupMeans]:
    """Return the means by language and by pair; first by script, where languages are many."""
    records = latest(results)
    languages = GroupMeans(records, LANGUAGES)
    groupings = [languages, GroupMeans(records, PAIRS)]
    if len(languages.tasks) > MANY:
        groupings.insert(0, GroupMeans(records, SCRIPTS))
    return groupings
