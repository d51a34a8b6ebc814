"""The texts behind a record of a search task: its queries, their judgements, its documents.

Records keep ids alone. The texts are read from the data that the task was evaluated on, if they are
in the package, in the mirror or in the hub's cache. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from qwen3nb.datasets.mirror import load_here
from qwen3nb.evaluation.mteb.per_query import Slice, task_slices
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.evaluation.run import SEARCH_TYPES
from qwen3nb.models.search.mteb_rows import joined_query
from qwen3nb.records.record import TaskInfo


class DocumentText(NamedTuple):
    """A document of a corpus; its title may be empty."""

    title: str
    text: str


class SearchTexts:
    """Texts and judgements by the ids that a record has."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._slices = tuple(slices)

    @classmethod
    def of_task(cls, task: TaskInfo) -> SearchTexts:
        """Read the splits and subsets of a task that a record is of.

        Raises:
            ValueError: an unknown task, one of another type, or data that are not at hand.
            OSError: the data cannot be read.
        """
        (selected,) = choose_tasks(tasks=[task.name], splits=task.splits, subsets=task.subsets)
        if selected.metadata.type not in SEARCH_TYPES:
            raise ValueError(f"{task.name} is of type {selected.metadata.type} and has no queries")
        load_here(selected)
        selected.convert_v1_dataset_format_to_v2(num_proc=None)
        return cls(task_slices(selected))

    def text(self, query: str) -> str:
        """Return the text of a query; empty if the data have none of this id."""
        part, name = self._located(query)
        return "" if part is None else self._queries[part.prefix].get(name, "")

    def grades(self, query: str) -> dict[str, int]:
        """Return the judged documents of a query with their grades."""
        part, name = self._located(query)
        judged = {} if part is None else part.data["relevant_docs"].get(name, {})
        return {str(document): int(grade) for document, grade in judged.items()}

    def documents(
        self, wanted: Mapping[str, Collection[str]]
    ) -> dict[str, dict[str, DocumentText]]:
        """Return the documents that are wanted for each query, in one pass over the corpus.

        A document that is not in the corpus is left out.
        """
        read: dict[str, dict[str, DocumentText]] = {query: {} for query in wanted}
        for part in self._slices:
            own = [query for query in wanted if self._located(query)[0] is part]
            ids = {document for query in own for document in wanted[query]}
            if not ids:
                continue
            corpus = part.data["corpus"]  # of other rows, only the id is read
            indices = [index for index, name in enumerate(corpus["id"]) if str(name) in ids]
            rows = {
                str(row["id"]): DocumentText(str(row.get("title") or ""), str(row["text"] or ""))
                for row in corpus.select(indices)
            }
            for query in own:
                read[query] = {name: rows[name] for name in wanted[query] if name in rows}
        return read

    def _located(self, query: str) -> tuple[Slice | None, str]:
        """Return the slice that a query is of, and its id there."""
        for part in self._slices:
            if query.startswith(part.prefix):
                return part, query.removeprefix(part.prefix)
        return None, query

    @cached_property
    def _queries(self) -> dict[str, dict[str, str]]:
        return {
            part.prefix: {str(row["id"]): joined_query(row) for row in part.data["queries"]}
            for part in self._slices
        }
