"""Which data scores are on: those that MTEB pins, or substitutes of a mirror.

A folder of the mirror that is not a true copy of a revision is identified by its content, as
``local-`` and a digest. Scores on it say that a run works; they are not those of the task, so each
page, table, card and paper that shows them says so. The same holds for own queries that were
generated from documents: scores on them do not say what people find.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from qwen3nb.records.record import Result, is_generated, is_substitute

_MAX_NAMED = 3  # tasks named in the sentence


class DataWarning(NamedTuple):
    """What a page says above scores that are not what they seem."""

    name: str  # of its place on the page
    title: str
    text: str


@dataclass(frozen=True)
class DataUsed:
    """The tasks of some scores, by key.

    Among them are those whose data are substitutes, and those with generated queries.
    """

    tasks: frozenset[str] = frozenset()
    substitutes: frozenset[str] = frozenset()
    generated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, results: Iterable[Result | None]) -> DataUsed:
        """Return the data of records; None is skipped. The parts of a task count as one."""
        infos = [result.task for result in results if result is not None]
        replaced = frozenset(info.whole for info in infos if info.is_substitute)
        generated = frozenset(info.whole for info in infos if info.is_generated)
        return cls(frozenset(info.whole for info in infos), replaced, generated)

    @classmethod
    def of_revisions(cls, revisions: Iterable[tuple[str, str]]) -> DataUsed:
        """Return the data of pairs of a task and the revision of its data."""
        pairs = [*revisions]
        replaced = frozenset(task for task, revision in pairs if is_substitute(revision))
        generated = frozenset(task for task, revision in pairs if is_generated(revision))
        return cls(frozenset(task for task, _ in pairs), replaced, generated)

    def __or__(self, other: DataUsed) -> DataUsed:
        """Return the data of both."""
        return DataUsed(
            self.tasks | other.tasks,
            self.substitutes | other.substitutes,
            self.generated | other.generated,
        )

    @property
    def text(self) -> str:
        """What a table or figure says on its data; empty for plain ones."""
        return " ".join(text for text in (self.substitutes_text, self.generated_text) if text)

    @property
    def substitutes_text(self) -> str:
        """A sentence on the substitutes; empty without any.

        >>> DataUsed(frozenset({"SciFact", "FiQA2018"}), frozenset({"SciFact"})).substitutes_text
        "1 of 2 tasks on other data than MTEB's: SciFact."
        """
        if not self.substitutes:
            return ""
        text = f"{self._share(self.substitutes)} on other data than MTEB's"
        return f"{text}{_names(self.substitutes)}."

    @property
    def generated_text(self) -> str:
        """A sentence on generated queries; empty without any.

        >>> DataUsed(frozenset({"notes"}), generated=frozenset({"notes"})).generated_text
        'On generated queries.'
        >>> DataUsed(frozenset({"notes", "NQ"}), generated=frozenset({"notes"})).generated_text
        '1 of 2 tasks on generated queries: notes.'
        """
        if not self.generated:
            return ""
        if self.generated == self.tasks:
            return "On generated queries."
        return f"{self._share(self.generated)} on generated queries{_names(self.generated)}."

    def _share(self, tasks: frozenset[str]) -> str:
        """Return how many of the tasks these are, in words."""
        noun = "task" if len(self.tasks) == 1 else "tasks"
        return f"{len(tasks)} of {len(self.tasks)} {noun}"

    @property
    def banner(self) -> str:
        """That sentence, and what it means for a reader; empty without substitutes."""
        if not self.substitutes:
            return ""
        return (
            f"{self.substitutes_text} The mirror holds substitutes for them. Their scores show "
            "that a run works; do not compare them with published ones, and do not publish them "
            "as scores on these tasks."
        )

    @property
    def warnings(self) -> list[DataWarning]:
        """What a page says above its scores; empty for plain data."""
        warnings = []
        if self.substitutes:
            warnings.append(DataWarning("data", "Not on MTEB's data", self.banner))
        if self.generated:
            warnings.append(DataWarning("generated", "Generated queries", self.generated_banner))
        return warnings

    @property
    def generated_banner(self) -> str:
        """The sentence on generated queries, and what it means; empty without any."""
        if not self.generated:
            return ""
        return (
            f"{self.generated_text} They were made from the documents, and nobody asked them. "
            "They can prefer another model than what people ask. The guide says how to measure it."
        )


def counted_queries(record: Result, count: int, noun: str = "queries") -> str:
    """Return a number of a record's queries in words, and how many of them were generated.

    Such as ``200 queries``, ``200 generated queries``, or ``200 queries, 30 of them generated``.
    """
    if count == 1:
        noun = {"queries": "query"}.get(noun, noun.removesuffix("s"))
    facts = record.data.generated
    if not record.task.is_generated or facts is None:
        return f"{count:,} {noun}"
    if facts["queries"] >= count:
        return f"{count:,} generated {noun}"
    return f"{count:,} {noun}, {facts['queries']:,} of them generated"


def generated_mark(record: Result) -> str:
    """Return words that follow a verdict on generated queries; empty for plain ones."""
    facts = record.data.generated
    if not record.task.is_generated or facts is None:
        return ""
    if facts["queries"] >= record.main.n:
        return "on generated queries"
    return "on partly generated queries"


def _names(tasks: frozenset[str]) -> str:
    """Return the names of a few tasks after a colon; empty for many."""
    if len(tasks) > _MAX_NAMED:
        return ""
    return f": {', '.join(sorted(tasks))}"


NO_SCORES = DataUsed()  # of what shows no scores
