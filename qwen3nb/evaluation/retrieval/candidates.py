"""What a reranker needs of a data set: its queries, its qrels, and the candidates' texts.

The candidates of MTEB tasks are kept on disk, by the revision of the data and the recipe of
the first stage. A second reranker neither loads the data set nor searches it, and needs
memory for the candidates only, not for millions of other documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.mirror import MirrorError, data_revision, explain, hub_access, needs
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.mteb.evaluate import quiet
from qwen3nb.evaluation.mteb.select import drawn, select_tasks, split_groups, task_key
from qwen3nb.evaluation.retrieval.first_stage import (
    First,
    FirstStage,
    describe,
    first_stage,
    stored_stage,
)
from qwen3nb.hub.session import hub_reachable
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json
from qwen3nb.utils.code_version import installed_version

_PLAIN = ("revision", "size", "limit", "parts")
_LOADED = 2 << 30  # bytes of candidates in memory
_STRING = 64  # bytes of a string besides its characters
_FORMAT = 1  # increase when the content of the kept files changes


@dataclass(frozen=True)
class DataSet:
    """What is loaded at a time.

    Attributes:
        data: a test collection, a folder or an MTEB task.
        name: its name in messages.
        group: the MTEB task that it is part of, or empty.
        parts: number of parts of that task, or 0.
    """

    data: Any
    name: str
    group: str = ""
    parts: int = 0

    @property
    def is_task(self) -> bool:
        """Whether it is an MTEB task."""
        return hasattr(self.data, "metadata")

    @property
    def own_id(self) -> int:
        """What tells data that exist only in memory from others of the same name; else 0."""
        loaded = self.is_task and self.data.data_loaded
        return id(self.data) if loaded or isinstance(self.data, TestCollection) else 0


@dataclass(frozen=True)
class Candidates:
    """A test collection without the documents that the first stage did not retrieve.

    Attributes:
        collection: queries, qrels, and the texts of the candidates.
        first: the first stage with its run.
        revision: revision of the whole collection.
        size: numbers of documents and queries of the whole collection.
        limit: the limit that the collection was reduced by, or 0.
        parts: number of collections in its group, or 0.
    """

    collection: TestCollection
    first: FirstStage
    revision: str
    size: dict[str, int]
    limit: int = 0
    parts: int = 0


def load_candidates(
    part: DataSet,
    first: First = "bm25",
    *,
    depth: int = 100,
    limit: int = 0,
    reachable: Callable[[], bool] = hub_reachable,
) -> list[Candidates]:
    """Load and search one part, unless its candidates are kept; one item per collection.

    Args:
        part: from `split_data`.
        first: the first-stage retriever.
        depth: candidates per query.
        limit: see `limited_collection`; 0 for no limit.
        reachable: `hub_reachable`, perhaps remembered.

    Raises:
        DataError: no such first stage, or data that are malformed.
        MirrorError: the data are neither in the mirror nor on the hub.
    """
    file = None  # data that are read whenever they are needed
    if part.is_task and not part.data.data_loaded:
        key = {
            "format": _FORMAT,
            "task": part.name,
            "group": [part.group, part.parts],
            "data": data_revision(part.data),
            "mteb": installed_version("mteb"),
            "first": describe(first)[1],
            "depth": depth,
            "limit": limit,
        }
        file = paths.cache() / "candidates" / f"{sha256_json(key)[:32]}.json"
        if (kept := _read(file)) is not None:
            return kept
    with hub_access(needs([part.data]) if part.is_task else [], reachable):
        searched = _search(part, first, depth=depth, limit=limit)
    if file is not None:
        _write(file, searched)
    return searched


class LoadedCandidates:
    """Candidates in memory, so that several rerankers load each data set once.

    Those that no longer fit into ``limit`` bytes of texts and runs are loaded each time.
    """

    def __init__(self, limit: int = _LOADED) -> None:
        self._left = limit
        self._kept: dict[str, tuple[DataSet, list[Candidates]]] = {}

    def load(
        self, part: DataSet, first: First = "bm25", *, depth: int = 100, limit: int = 0, **how: Any
    ) -> list[Candidates]:
        """Do as `load_candidates`, unless the candidates are in memory."""
        recipe = describe(first)[1]
        key = sha256_json([part.name, part.group, part.own_id, recipe, depth, limit])
        if key in self._kept:
            return self._kept[key][1]
        loaded = load_candidates(part, first, depth=depth, limit=limit, **how)
        size = 0  # in bytes, roughly
        for each in loaded:
            texts, run = each.collection.documents.values(), each.first.run
            size += sum(len(text) + _STRING for text in texts)
            size += run.documents.nbytes + run.scores.nbytes
        if size <= self._left:
            self._left -= size
            self._kept[key] = part, loaded  # the part too, so that its id stays its own
        return loaded


def limited_collection(collection: TestCollection, limit: int) -> TestCollection:
    """Return at most ``limit`` queries, and as many documents besides their judged ones.

    The draw is the same for every model. A document that is a candidate in the data stays.
    """
    if not limit:
        return collection
    names = sorted(collection.queries)
    queries = [names[index] for index in drawn(len(names), limit)]
    qrels = {query: collection.qrels[query] for query in queries}
    candidates = None
    if collection.candidates is not None:
        candidates = {query: collection.candidates[query] for query in queries}
    needed = {document for grades in qrels.values() for document in grades}
    needed |= {document for listed in (candidates or {}).values() for document in listed}
    others = sorted(collection.documents.keys() - needed)
    needed |= {others[index] for index in drawn(len(others), limit)}
    if len(queries) == len(names) and collection.documents.keys() <= needed:
        return collection
    return replace(
        collection,
        queries={query: collection.queries[query] for query in queries},
        qrels=qrels,
        candidates=candidates,
        documents={name: text for name, text in collection.documents.items() if name in needed},
        counts={},  # those of the whole do not hold here
    )


def split_data(data: Any) -> list[DataSet]:
    """Split a group of MTEB tasks into its parts; anything else is one part.

    Raises:
        DataError: neither a folder nor an MTEB task.
    """
    if isinstance(data, TestCollection):
        return [DataSet(data, data.name)]
    if isinstance(data, str | Path) and Path(data).expanduser().is_dir():
        return [DataSet(data, str(data))]
    try:
        tasks = select_tasks(names=[str(data)]) if isinstance(data, str | Path) else [data]
    except ValueError as error:
        raise DataError(f"{str(data)!r} is neither a folder nor an MTEB task ({error})") from None
    split = split_groups(tasks)
    group, parts = (tasks[0].metadata.name, len(split)) if len(split) > 1 else ("", 0)
    return [DataSet(task, task_key(task), group, parts) for task in split]


def _search(part: DataSet, first: First, *, depth: int, limit: int) -> list[Candidates]:
    """Load the collections, search them, and keep only the documents that are retrieved."""
    collections = _loaded(part) if part.is_task else find_collections(part.data)
    parts = part.parts or (len(collections) if collections[0].group else 0)
    searched = []
    for whole in collections:
        collection = limited_collection(whole, limit)
        stage = first_stage(collection, first, depth=depth)
        size = {"documents": len(collection.documents), "queries": len(collection.queries)}
        texts = {name: collection.documents[name] for name in stage.run.retrieved()}
        cut = replace(collection, documents=texts, candidates=None)
        searched.append(Candidates(cut, stage, collection.revision, size, limit, parts))
    return searched


def _loaded(part: DataSet) -> list[TestCollection]:
    """Load the collections of a task without progress bars, and let go of MTEB's own copy."""
    task, own = part.data, not part.data.data_loaded
    try:
        with quiet():
            collections = find_collections(task)
    except (DataError, MirrorError):
        raise
    except Exception as error:  # a loader may raise anything
        if task.metadata.dataset["path"].startswith("qwen3nb/"):
            raise
        raise explain(task, error) from error
    if own:
        task.unload_data()
    return [replace(each, group=part.group or each.group) for each in collections]


def _write(file: Path, kept: list[Candidates]) -> None:
    """Write the candidates; their runs are kept by `first_stage`."""
    names = [each.name for each in fields(TestCollection)]
    rows = [
        {
            "collection": {name: getattr(each.collection, name) for name in names},
            "label": each.first.label,
            "recipe": each.first.recipe,
            **{name: getattr(each, name) for name in _PLAIN},
        }
        for each in kept
    ]
    write_json(file, {"digest": sha256_json(rows), "collections": rows}, indent=None)


def _read(file: Path) -> list[Candidates] | None:
    """Read the candidates; None if they are damaged, or without their run."""
    try:
        content = read_json(file)
        rows: list[dict[str, Any]] = content["collections"]
        if content["digest"] != sha256_json(rows):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # loaded and searched again
    kept = []
    for row in rows:
        collection = TestCollection(**row["collection"])
        stage = stored_stage(row["label"], row["recipe"], collection.queries)
        if stage is None:
            return None
        kept.append(Candidates(collection, stage, **{name: row[name] for name in _PLAIN}))
    return kept
