"""The best documents of each query, loaded when they are needed.

They are stored beside the record (`qwen3nb.records.side_files`): a row per query with its id and
the ids of its best documents, best first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.records.side_files import DOCUMENTS, QUERY_ID, SideFile, encode_table, string_column

__all__ = ["StoredTop", "encode_top"]

_RECENT = 32  # tables that stay in memory: about 10 MB of 6,980 queries each


class StoredTop(Mapping[str, list[str]]):
    """Query id to the ids of its best documents, in the file beside a record."""

    def __init__(self, file: SideFile, queries: int) -> None:
        """Name the file and its number of queries; nothing is read."""
        self.file = file
        self._number = queries

    @classmethod
    def named(cls, record: Path, entry: dict[str, Any]) -> StoredTop:
        """Return what an entry of a record's JSON names."""
        return cls(SideFile.of(record, entry), int(entry["queries"]))

    def __getitem__(self, query: str) -> list[str]:
        return list(_stored_lists(self.file)[query])

    def __iter__(self) -> Iterator[str]:
        return iter(_stored_lists(self.file))

    def __len__(self) -> int:
        return self._number

    def __deepcopy__(self, memo: Any) -> StoredTop:
        return self  # nothing in it can change

    def __repr__(self) -> str:
        return f"<StoredTop: {self._number} queries>"


@lru_cache(maxsize=_RECENT)
def _stored_lists(file: SideFile) -> dict[str, list[str]]:
    queries = file.column(QUERY_ID).to_pylist()
    return dict(zip(queries, file.column(DOCUMENTS).to_pylist(), strict=True))


def encode_top(top: Mapping[str, Sequence[str]]) -> bytes:
    """Return the best documents of each query as the bytes of a Parquet file.

    Raises:
        ResultError: an id is not a string of valid Unicode.
    """
    import pyarrow as pa

    if isinstance(top, StoredTop):
        return top.file.read()
    lists = [list(each) for each in top.values()]
    ends = np.cumsum([0, *map(len, lists)])
    documents = string_column(chain.from_iterable(lists), what="document id")
    return encode_table(
        {
            QUERY_ID: string_column(top, what="query id"),
            DOCUMENTS: pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), documents),
        }
    )
