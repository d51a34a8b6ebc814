"""Which data scores are on: those that MTEB pins, or substitutes of a mirror.

A folder of the mirror that is not a true copy of a revision is identified by its content, as
``local-`` and a digest. Scores on it say that a run works; they are not those of the task, so each
page, table, card and paper that shows them says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qwen3nb.records.record import Result, is_substitute

_MAX_NAMED = 3  # tasks named in the sentence


@dataclass(frozen=True)
class DataUsed:
    """The tasks of some scores, by key, and the tasks among them whose data are substitutes."""

    tasks: frozenset[str] = frozenset()
    substitutes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, results: Iterable[Result | None]) -> DataUsed:
        """Return the data of records; None is skipped."""
        infos = [result.task for result in results if result is not None]
        replaced = frozenset(info.key for info in infos if info.is_substitute)
        return cls(frozenset(info.key for info in infos), replaced)

    @classmethod
    def of_revisions(cls, revisions: Iterable[tuple[str, str]]) -> DataUsed:
        """Return the data of pairs of a task and the revision of its data."""
        pairs = [*revisions]
        replaced = frozenset(task for task, revision in pairs if is_substitute(revision))
        return cls(frozenset(task for task, _ in pairs), replaced)

    def __or__(self, other: DataUsed) -> DataUsed:
        """Return the data of both."""
        return DataUsed(self.tasks | other.tasks, self.substitutes | other.substitutes)

    @property
    def text(self) -> str:
        """A sentence on the substitutes; empty without any.

        >>> DataUsed(frozenset({"SciFact", "FiQA2018"}), frozenset({"SciFact"})).text
        "1 of 2 tasks on other data than MTEB's: SciFact."
        """
        if not self.substitutes:
            return ""
        noun = "tasks"
        if len(self.tasks) == 1:
            noun = "task"
        text = f"{len(self.substitutes)} of {len(self.tasks)} {noun} on other data than MTEB's"
        if len(self.substitutes) <= _MAX_NAMED:
            text += f": {', '.join(sorted(self.substitutes))}"
        return f"{text}."

    @property
    def banner(self) -> str:
        """That sentence, and what it means for a reader; empty without substitutes."""
        if not self.substitutes:
            return ""
        return (
            f"{self.text} The mirror holds substitutes for them. Their scores show that a run "
            "works; do not compare them with published ones, and do not publish them as scores "
            "on these tasks."
        )


NO_SCORES = DataUsed()  # of what shows no scores
