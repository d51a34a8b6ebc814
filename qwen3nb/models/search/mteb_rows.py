"""The texts of MTEB's corpora and queries, joined as MTEB joins them for an encoder; languages.

A search model gets the rows themselves, where a document may have a title, a query may have
an instruction, and a query may be a conversation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.abstasks.task_metadata import TaskMetadata

    Row: TypeAlias = Mapping[str, Any]  # of a corpus, or of queries
    MtebRows: TypeAlias = Sequence[Row] | Dataset

ENGLISH = "eng"
_BATCH = 1000  # rows


class ColumnValues(Collection[Any]):
    """A column of a data set or of a list of rows, which may be read more than once.

    A data set's own column decodes one row after the other. By batches that takes a fiftieth of
    the time, and little memory.

    >>> list(ColumnValues([{"id": "a"}, {"id": "b"}], "id"))
    ['a', 'b']
    """

    def __init__(self, rows: MtebRows, name: str) -> None:
        self._rows, self._name = rows, name

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._rows, Sequence):
            yield from (row[self._name] for row in self._rows)
            return
        for batch in self._rows.select_columns([self._name]).iter(_BATCH):
            yield from batch[self._name]

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, value: object) -> bool:
        return any(value == other for other in self)


def joined_document(row: Row) -> str:
    """Return the title, if there is one, and the text.

    >>> joined_document({"id": "d", "title": "list.sort", "text": "Sort in place."})
    'list.sort Sort in place.'
    """
    return f"{row.get('title') or ''} {row['text']}".strip()


def joined_documents(corpus: MtebRows) -> Iterator[str]:
    """Yield `joined_document` of each row of a data set or a list of rows.

    >>> list(joined_documents([{"id": "a", "text": " In place."}]))
    ['In place.']
    """
    if isinstance(corpus, Sequence):
        yield from map(joined_document, corpus)
        return
    # A data set yields columns many times as fast as rows.
    columns = [name for name in ("title", "text") if name in corpus.column_names]
    for batch in corpus.select_columns(columns).iter(_BATCH):
        texts = batch["text"]
        titles = batch.get("title", [""] * len(texts))
        for title, text in zip(titles, texts, strict=True):
            yield joined_document({"title": title, "text": text})


def named_documents(corpus: MtebRows) -> Iterator[tuple[str, str]]:
    """Yield the id of each row of a data set or a list of rows, with `joined_document`.

    >>> list(named_documents([{"id": "a", "text": "In place."}]))
    [('a', 'In place.')]
    """
    names = map(str, ColumnValues(corpus, "id"))
    return zip(names, joined_documents(corpus), strict=True)


def document_ids(corpus: MtebRows, positions: Sequence[int]) -> list[str]:
    """Return the ids of the rows at ``positions`` of a data set or a list of rows.

    >>> document_ids([{"id": "a", "text": ""}, {"id": "b", "text": ""}], [1])
    ['b']
    """
    if isinstance(corpus, Sequence):
        return [str(corpus[row]["id"]) for row in positions]
    return [str(name) for name in ColumnValues(corpus.select(positions), "id")]


def joined_query(row: Row) -> str:
    """Return the text of a query: its turns joined by a semicolon and a blank.

    An instruction follows a text and precedes a conversation.

    >>> joined_query({"text": ["Which sorts?", "In place?"]})
    'Which sorts?; In place?'
    >>> joined_query({"text": [{"role": "user", "content": "Which sorts?"}]})
    'user: Which sorts?'
    >>> joined_query({"text": "Which sorts?", "instruction": "Name a method."})
    'Which sorts? Name a method.'
    """
    text, instruction = row["text"], row.get("instruction")
    if not isinstance(text, list | tuple):
        return f"{text} {instruction}" if instruction is not None else str(text)
    turns = [
        turn if isinstance(turn, str) else f"{turn['role']}: {turn['content']}" for turn in text
    ]
    return "; ".join(turns if instruction is None else [f"{instruction} {turns[0]}", *turns[1:]])


def task_languages(task_metadata: TaskMetadata, subset: str) -> set[str]:
    """Return the three-letter codes of the languages of a task's subset."""
    spoken = task_metadata.eval_langs
    if isinstance(spoken, dict):
        spoken = spoken.get(subset) or [code for codes in spoken.values() for code in codes]
    return {code.split("-")[0] for code in spoken}
