"""May a change be merged? The model in use before and after it, on one's own data.

Both are scored on the queries and documents of the change. It fails if the model in use is shown to
be worse by more than the margin, as for `qwen3nb compare --gate`. `PullRequest.text` is a comment
of at most ten lines of Markdown. Texts from the data stand in code there: nothing in them is a
link, a heading, or a name that is called.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from qwen3nb.answers.candidate_rules import NothingFoundError
from qwen3nb.answers.candidates import Candidates, compare_candidates
from qwen3nb.answers.decision import short_evidence
from qwen3nb.answers.explored_task import query_text
from qwen3nb.datasets.custom.queries import QueryFile
from qwen3nb.datasets.rows import printable
from qwen3nb.records.record import Result
from qwen3nb.report.render.table import number
from qwen3nb.utils.format import code, escaped, interval_text, number_text

BEFORE = "before"  # label of the model in use before a change
_MOST_QUERIES = 3  # that changed most, in a comment
_LONGEST = 50  # characters of a query in a comment


class Rule(TypedDict, total=False):
    """Options of `compare_candidates`: what counts as worse."""

    tested: Sequence[str]
    alpha: float
    margin: float
    seed: int


@dataclass(frozen=True)
class PullRequest:
    """A change of the model in use, or of the data, and whether it may be merged."""

    before: Result  # record of the model in use before, on the data of the change
    after: Result  # record of the model in use now
    name_before: str
    candidates: Candidates | None  # the model now against the one before; None if it is the same
    reasons: tuple[str, ...]  # why it fails; empty if it passes
    data_changes: str  # what changed in the queries, in words; empty for nothing

    @property
    def is_same_model(self) -> bool:
        """Whether the model in use is the one before, with equal weights and settings."""
        return self.before.model.identity == self.after.model.identity

    @property
    def passes(self) -> bool:
        """Whether the model in use is not shown to be worse."""
        return not self.reasons

    @property
    def title(self) -> str:
        """``Passed: …`` or ``Failed: …``."""
        now = self.after.model.label
        if self.is_same_model:
            return f"Passed: the model in use is {now}, as before"
        unjudged = "" if self.candidates is None else self.candidates.decision.unjudged
        if not self.passes and unjudged:
            return f"Failed: no decision between {now} and {self.name_before}, as {unjudged}"
        if not self.passes:
            return f"Failed: {now} is worse than {self.name_before}, which was in use"
        return f"Passed: {now} may take the place of {self.name_before}"

    @property
    def text(self) -> str:
        """The verdict, both scores, what changed: at most ten lines of Markdown, escaped."""
        lines = [f"**{escaped(self.title)}.** {self._evidence()}".rstrip(), ""]
        lines += self._table()
        lines.append("")
        lines.append(f"Queries: {self.data_changes or 'as before'}.")
        queries = self._changed_queries()
        if queries:
            lines.append(f"Changed most: {'; '.join(queries)}.")
        return "\n".join(lines).rstrip() + "\n"

    def _evidence(self) -> str:
        """Say how large the difference is, and how sure."""
        if self.candidates is None:
            return escaped(" ".join(self.reasons))
        (difference,) = self.candidates.differences
        margin = self.candidates.comparison.procedure.margin
        sentence = f"{short_evidence(difference)}, n = {difference.n}."
        if self.passes:
            sentence += f" A loss of more than {margin:g} is not shown."
        return escaped(sentence)

    def _table(self) -> list[str]:
        """Return the scores of both models as lines of a table."""
        metric = self.after.task.main_metric
        lines = [f"| model in use | {metric} | 95 % interval |", "|---|---|---|"]
        rows = [("now", self.after, self.after.model.label)]
        if not self.is_same_model:
            rows.insert(0, (BEFORE, self.before, self.name_before))
        for when, record, name in rows:
            score = record.metrics[metric]
            interval = interval_text(number(score).interval, sign=False)
            lines.append(
                f"| {when}: {escaped(name)} | {number_text(score.value)} | {escaped(interval)} |"
            )
        return lines

    def _changed_queries(self) -> list[str]:
        """Return the queries that changed most, each with its scores."""
        if self.candidates is None:
            return []
        queries = []
        for change in self.candidates.changes[:_MOST_QUERIES]:
            text = code(_shortened(query_text(self.after, change.query)))
            queries.append(f"{text} {change.current:.3f} → {change.score:.3f}")
        return queries


def _shortened(text: str) -> str:
    """Return a text on one line of at most fifty characters, without control characters."""
    line = printable(" ".join(text.split()))
    if len(line) > _LONGEST:
        return f"{line[: _LONGEST - 1]}…"
    return line


def pull_request(
    before: Result,
    after: Result,
    *,
    name_before: str = "",
    data_changes: str = "",
    **rule: Unpack[Rule],
) -> PullRequest:
    """Compare the model in use now with the one before, on the data of the change.

    Args:
        before: its record.
        after: its record.
        name_before: what it was called.
        data_changes: what changed in the data, in words.
        rule: options of `compare_candidates`, such as ``margin``.
    """
    name = name_before or before.model.label
    candidates: Candidates | None = None
    reasons: Sequence[str] = ()
    if before.model.identity != after.model.identity:
        try:
            candidates = compare_candidates(
                [before, after],
                current=before.model.label,
                task=after.task.key,
                models=[after.model.label],
                **rule,
            )
            reasons = candidates.regressions
        except NothingFoundError as error:
            reasons = [f"{error}."]
    return PullRequest(before, after, name, candidates, tuple(reasons), data_changes)


def query_changes(before: QueryFile, after: QueryFile) -> str:
    """Say how many queries are new, gone or changed; empty if none is.

    >>> from pathlib import Path
    >>> from qwen3nb.datasets.custom.queries import Query
    >>> old = Query(id="a", query="sort", expected=["x"])
    >>> new = Query(id="b", query="sort", expected=["x"])
    >>> query_changes(QueryFile(Path("q"), (old,)), QueryFile(Path("q"), (old, new)))
    '1 new'
    """
    queries_before = {query.id: query for query in before.queries}
    queries_after = {query.id: query for query in after.queries}
    shared_ids = queries_before.keys() & queries_after.keys()
    counts = {
        "new": len(queries_after.keys() - shared_ids),
        "gone": len(queries_before.keys() - shared_ids),
        "changed": sum(queries_before[name] != queries_after[name] for name in shared_ids),
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def find_record(records: Iterable[Result], label: str) -> Result | None:
    """Return the record of a model by its label; None if it has none."""
    return next((record for record in records if record.model.label == label), None)
