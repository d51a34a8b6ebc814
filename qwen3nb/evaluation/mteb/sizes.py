"""How large the tasks of MTEB are: published statistics, or counts of what is here.

Sizes are MTEB's published statistics of the selected splits and subsets. Texts of built-in tasks,
and of local copies smaller than published, are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, replace
from io import StringIO
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from qwen3nb import paths
from qwen3nb.datasets import mirror
from qwen3nb.datasets.nano import NANO_SIZES
from qwen3nb.evaluation.mteb.evaluate import load_task
from qwen3nb.evaluation.mteb.select import is_nano, limited, quiet
from qwen3nb.evaluation.retrieval.nano import nano_data
from qwen3nb.records.record import is_substitute
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json
from qwen3nb.utils.code_version import installed_version

if TYPE_CHECKING:
    from mteb import AbsTask

_BUILT_IN = "qwen3nb/"  # beginning of the paths of data sets that come with this package
_MAX_BYTES_CHECKED = 10**8  # bytes of a copy that is loaded before a run, or less
HITS = 1000  # documents of each query, as MTEB asks for
# Seconds of a core of an AMD EPYC (family 23, model 1); see `measure_slowdown` of others.
_SECONDS_PER_DOCUMENT = 1.5e-5  # to read it
_SECONDS_PER_HIT = 3.3e-6  # to score it
_SECONDS_PER_CANDIDATE = 5e-6  # likewise
_SECONDS_PER_CLUSTERING = 0.08
_SECONDS_PER_LABEL = 0.003  # in a clustering
# Of classifications.
_SECONDS_PER_TEXT = 1.6e-4  # to pass it on, once
_SECONDS_PER_EXPERIMENT = 0.065
_SECONDS_PER_TRAINING_ROW = 3e-7  # in an experiment, as the following
_SECONDS_PER_TEST_ROW = 8e-6
_SECONDS_PER_CLASS = 0.002


class Column(NamedTuple):
    """The texts of a column."""

    texts: float  # number of distinct texts
    length: float  # their mean number of characters

    @property
    def characters(self) -> float:
        """Characters of all texts."""
        return self.texts * self.length


_NO_TEXTS = Column(0.0, 0.0)


@dataclass(frozen=True)
class TaskPart:
    """The size of a split of a subset of a task, as published or counted."""

    task: AbsTask
    columns: Mapping[str, Column]  # its texts, by name
    queries: int = 0
    candidates: int = 0  # of all queries; 0 if they search the whole corpus
    rows: int = 0  # of other tasks
    trained: int = 0  # rows from which a classifier learns
    labels: int = 0

    def cut(self) -> TaskPart:
        """Return the size that the tier `nano` cuts it to, at most."""
        most = {"documents": NANO_SIZES.documents, "queries": NANO_SIZES.queries}
        columns = {}
        for name, column in self.columns.items():
            columns[name] = column._replace(texts=min(column.texts, most.get(name, column.texts)))
        queries = min(self.queries, NANO_SIZES.queries)
        candidates = 0
        if self.candidates:
            candidates = round(self.candidates * queries / self.queries)
        return replace(self, columns=columns, queries=queries, candidates=candidates)

    @property
    def documents(self) -> int:
        """Texts of the corpus that is searched; 0 if none is, or if it is of images."""
        if not self.queries:
            return 0
        return round(self.columns.get("documents", _NO_TEXTS).texts)

    @property
    def hits(self) -> int:
        """Documents in the run of all queries; 0 if nothing is searched."""
        return self.candidates or self.queries * min(self.documents, HITS)

    @property
    def characters(self) -> float:
        """Characters of all texts, encoded or not."""
        columns = list(self.columns.values())
        evaluated = sum(column.characters for column in columns)
        return evaluated + self.trained * columns[0].length

    @property
    def encoded(self) -> list[Column]:
        """The texts that MTEB encodes: of a share of the rows to cluster, and those to learn from.

        A classifier learns from some rows of each label, drawn again for each experiment.
        """
        if self.task.metadata.type == "Clustering":
            return self._clustered
        columns = list(self.columns.values())
        if self.trained:
            columns.append(self._learned)
        return columns

    @property
    def _clustered(self) -> list[Column]:
        """The texts of a share of the rows."""
        share_of_rows = getattr(self.task, "max_fraction_of_documents_to_embed", None) or 1.0
        left_out = 1 - share_of_rows
        columns = []
        for column in self.columns.values():
            # A text is encoded unless all rows that have it are left out.
            rows_per_text = self.rows / column.texts
            share_of_texts = 1 - left_out**rows_per_text
            columns.append(Column(column.texts * share_of_texts, column.length))
        return columns

    @property
    def _learned(self) -> Column:
        """The texts that a classifier learns from in any of its experiments."""
        sampled = min(1.0, self.task.samples_per_label * self.labels / self.trained)
        ever_sampled = 1 - (1 - sampled) ** self.task.n_experiments
        length = next(iter(self.columns.values())).length
        return Column(self.trained * ever_sampled, length)

    @property
    def seconds_beside(self) -> float:
        """Seconds of one core to read, score, cluster or learn."""
        task = self.task
        if self.queries:
            seconds_per_hit = _SECONDS_PER_CANDIDATE if self.candidates else _SECONDS_PER_HIT
            return _SECONDS_PER_DOCUMENT * self.documents + seconds_per_hit * self.hits
        if self.trained:
            seconds_per_experiment = (
                _SECONDS_PER_EXPERIMENT
                + _SECONDS_PER_TRAINING_ROW * self.trained
                + _SECONDS_PER_TEST_ROW * self.rows
                + _SECONDS_PER_CLASS * self.labels
            )
            experiments = float(task.n_experiments * seconds_per_experiment)
            return experiments + _SECONDS_PER_TEXT * self.rows
        if task.metadata.type == "Clustering":
            seconds_per_clustering = _SECONDS_PER_CLUSTERING + _SECONDS_PER_LABEL * self.labels
            return float(getattr(task, "n_clusters", 1) * seconds_per_clustering)
        return 0.0


def task_parts(task: AbsTask, limit: int, *, read: bool, recorded: bool = False) -> list[TaskPart]:
    """Return the sizes of the evaluated splits and subsets; none if they are unknown.

    If ``read``, loaded and built-in data are counted, and local copies that are no published
    revision and smaller than the published data. Other such copies are loaded if they are small,
    to find what is missing. Copies of tasks that are ``recorded`` are not loaded: they need not
    run again, and hundreds of subsets take minutes.

    Raises:
        MirrorError: such a copy cannot be loaded.
        EvaluationError: it lacks the candidates of a reranking task.
    """
    path, revision = task.metadata.dataset["path"], mirror.data_revision(task)
    published = list(_sizes(task, task.metadata.descriptive_stats or {}))
    # Loaded data are at hand, and built-in data have no published sizes.
    must_count = must_load = task.data_loaded or path.startswith(_BUILT_IN)
    copy = mirror.mirrored(path)
    if copy and not must_load and is_substitute(revision):
        size = sum(file.stat().st_size for file in copy.rglob("*") if file.is_file())
        # Smaller than its texts: a part of the published data, of which no size is known.
        must_count = size < sum(part.characters for part in published)
        # A small copy is loaded all the same, to find out whether it lacks something.
        must_load = must_count or size < _MAX_BYTES_CHECKED
        if recorded:
            if must_count:
                return []
            must_load = False
    if read and must_load:
        with quiet(), mirror.local_data(task):
            load_task(task, revision)
    if read and must_count:
        return list(_sizes(task, _statistics(task, limit, revision)))
    if limit:  # published sizes do not apply
        return []
    if is_nano(task):
        return [part.cut() for part in published]
    return published


def _statistics(task: AbsTask, limit: int, revision: str) -> Mapping[str, Any]:
    """Return the statistics of loaded data by split; those of built-in data are counted once.

    The revision of built-in data is a digest of their content, so that counts are kept in the
    cache.
    """
    if not task.metadata.dataset["path"].startswith(_BUILT_IN):
        return _counted(task, limit)
    selected = [list(task.eval_splits), list(task.hf_subsets), limit, is_nano(task)]
    key = sha256_json([task.metadata.name, revision, selected, installed_version("mteb")])
    file = paths.cache() / "sizes" / f"{key[:32]}.json"
    with suppress(OSError, ValueError):  # not there yet, or damaged
        statistics: dict[str, Any] = read_json(file)
        return statistics
    counted = _counted(task, limit)
    with suppress(OSError):  # the disk is full, or may not be written to
        write_json(file, counted)
    return counted


def _sizes(task: AbsTask, statistics: Mapping[str, Any]) -> Iterator[TaskPart]:
    """Yield the size of each selected split and subset, from MTEB's statistics by split."""
    numbers_trained: list[int] = []
    if _learns(task):
        for subset in _selected(task, statistics.get("train")):
            numbers_trained.append(subset.get("num_samples", 0))
    for split in task.eval_splits:
        subsets = _selected(task, statistics.get(split))
        # Subsets of the split to learn from are in the same order; 0 where nothing is learned.
        for subset, trained in zip(subsets, chain(numbers_trained, repeat(0))):  # noqa: B905
            columns = _columns(subset)
            if columns:
                yield _part(task, subset, columns, trained)


def _part(
    task: AbsTask, subset: Mapping[str, Any], columns: Mapping[str, Column], trained: int
) -> TaskPart:
    queries = columns.get("queries", _NO_TEXTS).texts
    candidates = subset.get("top_ranked_statistics") or {}
    return TaskPart(
        task,
        columns,
        queries=subset.get("num_queries") or round(queries),  # else its distinct ones
        candidates=candidates.get("num_top_ranked", 0),
        rows=subset.get("num_samples", 0),
        trained=trained,
        labels=_labels(subset),
    )


def _text_statistics(subset: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the statistics of each column of a subset, by the names that MTEB gives them."""
    return {
        name: column
        for name, column in subset.items()
        if "statistics" in name and isinstance(column, dict)
    }


def _columns(subset: Mapping[str, Any]) -> dict[str, Column]:
    columns = {}
    for name, column in _text_statistics(subset).items():
        texts = column.get("unique_texts")
        if texts:
            length = column.get("average_text_length") or column["total_text_length"] / texts
            # ``queries`` of ``queries_text_statistics``.
            columns[name.partition("_")[0]] = Column(float(texts), float(length))
    return columns


def _labels(subset: Mapping[str, Any]) -> int:
    labels = 0
    for column in _text_statistics(subset).values():
        labels = column.get("unique_labels") or labels
    return labels


def _selected(task: AbsTask, statistics: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the statistics of the selected subsets in those of a split."""
    split = statistics or {}
    subsets = split.get("hf_subset_descriptive_stats") or {}
    selected = [subsets[name] for name in task.hf_subsets if name in subsets]
    return selected or [split]


def _learns(task: AbsTask) -> bool:
    return bool(task.metadata.type == "Classification")


def _counted(task: AbsTask, limit: int) -> dict[str, Any]:
    """Return the statistics of a loaded task by split, as MTEB publishes them.

    MTEB has no public method that counts without writing to its own folder.
    """
    # MTEB shows bars.
    with nano_data(task), limited(task, limit), quiet(), redirect_stderr(StringIO()):
        return _statistics_of_loaded(task)


def _statistics_of_loaded(task: AbsTask) -> dict[str, Any]:
    count = task._calculate_descriptive_statistics_from_split
    splits = list(task.eval_splits)
    if _learns(task):
        splits.append("train")
    statistics = {}
    for split in splits:
        subsets = {}
        for name in task.hf_subsets:
            # Data of a single subset may have no level of subsets.
            subset = name if name in task.dataset else None
            subsets[name] = count(split, hf_subset=subset)
        statistics[split] = {"hf_subset_descriptive_stats": subsets}
    return statistics
