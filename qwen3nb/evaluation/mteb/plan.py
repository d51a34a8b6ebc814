"""Plan a run: its tasks, missing data and weights, and the resources it needs.

`load_checked` loads a model, or fails within seconds if data or weights are missing. `preflight`
then encodes short, medium and long texts, and compares the needs of the run with the machine.

Task sizes are MTEB's published statistics of the selected splits and subsets; texts of built-in
tasks, and of local copies smaller than published, are counted. Encoding, search and indexing are
timed on this machine. The other constants were measured on an AMD EPYC (family 25, model 17).
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.datasets import mirror
from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.evaluation.mteb.evaluate import TaskItem, load_task
from qwen3nb.evaluation.mteb.select import limited, quiet, task_key, tier_tasks
from qwen3nb.evaluation.run import EvaluationError, Run, stored
from qwen3nb.hub import hub_problem
from qwen3nb.models.capabilities import LoadedModel, encodes, searches
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.api import RefusedError
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.model import Model as NamedModel
from qwen3nb.models.search.dense import search_options
from qwen3nb.models.search.exact import search
from qwen3nb.models.search.searcher import Searcher
from qwen3nb.models.types import EncoderError
from qwen3nb.records.record import is_substitute
from qwen3nb.utils.hardware import available_memory, cores, free_disk, peak_memory, resident_memory
from qwen3nb.vectors.cache import bytes_per_vector, cache_folder, cache_limit
from qwen3nb.vectors.encode_file import block_size

TO_RUN, _THERE = "to run", "there"  # status of a task to evaluate, or with a record
_CHARACTERS = 4.5  # per token of English text, on average
_SURPLUS = 1.5  # factor of characters with which texts reach the maximum number of tokens
_LENGTHS = (20, 450)  # characters of a short and of a medium text
_LONGEST = 2300  # characters, for models without a maximum length
_WARM_UP = 8  # texts
_SEARCHED = 256, 16_384  # queries and documents of a search that is timed
_AT_ONCE = 10_000  # characters of texts encoded at once, or more
_CHUNK = 512  # maximum number of texts encoded at once, as in `Encoder`
_ENOUGH = 0.2  # seconds of a sample that is large enough; of one text, if it takes a second
_CHECKED = 10**8  # bytes of a copy that is loaded before a run, or less
_HITS = 1000  # of each query, as MTEB asks for
_GB = 1e9
# Bytes of memory.
_HIT = 256  # the score of a document by name, in MTEB's run and in a copy of it
_CANDIDATE = 320  # a candidate of a query, and its judgement
_QUERY = 4096  # a query with its scores
_NAME = 130  # the id of a document
_COPIES = 4  # of a block of vectors: as encoded, in order, and scaled in float64
# Bytes of disk: data sets prepared by the library `datasets`, per character and candidate.
_PREPARED, _PREPARED_HIT = 1.5, 100
# Seconds of a core.
_RERANKED = 2.5e-4  # a query with candidates, by vectors
_TASK = 1.0  # any task: loading and saving
_READ = 1.5e-5  # a document
_SCORED = 5e-6  # a hit or a candidate
_TRAINED, _TESTED = 5e-5, 2.1e-4  # a training or test row in one of a classifier's experiments
_CLUSTERED = (0.08, 0.002)  # a clustering, and each of its labels
Column = tuple[float, float]  # number of distinct texts, and their mean number of characters


class PreflightError(ValueError):
    """The machine lacks memory or disk for a run; the message has numbers and a remedy."""


@dataclass(frozen=True)
class _Part:
    """The size of a split of a subset of a task, as published or counted."""

    task: Any
    columns: Mapping[str, Column]  # its texts, by name
    queries: int = 0
    candidates: int = 0  # of all queries; 0 if they search the whole corpus
    rows: int = 0  # of other tasks
    trained: int = 0  # rows from which a classifier learns
    labels: int = 0

    @property
    def documents(self) -> int:
        """Texts of the corpus that is searched; 0 if none is, or if it is of images."""
        texts, _ = self.columns.get("documents", (0.0, 0.0))
        return round(texts) if self.queries else 0

    @property
    def characters(self) -> float:
        """Characters of all texts, encoded or not."""
        columns = [*self.columns.values()]
        return sum(n * mean for n, mean in columns) + self.trained * columns[0][1]

    @property
    def encoded(self) -> list[Column]:
        """The texts that MTEB encodes: of a share of the rows to cluster, and those to learn from.

        A classifier learns from some rows of each label, drawn again for each experiment.
        """
        task, columns = self.task, [*self.columns.values()]
        if task.metadata.type == "Clustering":
            left = 1 - (getattr(task, "max_fraction_of_documents_to_embed", None) or 1.0)
            return [(n * (1 - left ** (self.rows / n)), mean) for n, mean in columns]
        if self.trained:
            drawn = min(1.0, task.samples_per_label * self.labels / self.trained)
            columns.append((self.trained * (1 - (1 - drawn) ** task.n_experiments), columns[0][1]))
        return columns

    @property
    def beside(self) -> float:
        """Seconds of one core to read, score, cluster or learn."""
        if self.queries:
            hits = self.candidates or self.queries * min(self.documents, _HITS)
            return _READ * self.documents + _SCORED * hits
        if self.trained:
            return float(self.task.n_experiments * (_TRAINED * self.trained + _TESTED * self.rows))
        if self.task.metadata.type == "Clustering":
            one = _CLUSTERED[0] + _CLUSTERED[1] * self.labels
            return float(getattr(self.task, "n_clusters", 1) * one)
        return 0.0


@dataclass(frozen=True)
class EncodingSpeed:
    """Seconds per text by length in characters, ascending, up to the maximum length."""

    characters: tuple[int, ...]
    seconds: tuple[float, ...]
    pair: float = 0.0  # seconds per query and document compared
    query: float = 0.0  # seconds per query with candidates

    def on(self, part: _Part) -> float:
        """Return the seconds to encode or index the texts of a part, and to search its corpus."""
        each = (n * np.interp(mean, self.characters, self.seconds) for n, mean in part.encoded)
        pairs = 0 if part.candidates else part.queries * part.documents
        reranked = part.queries if part.candidates else 0
        return float(sum(each)) + self.pair * pairs + self.query * reranked


@dataclass(frozen=True)
class Planned:
    """One task of a planned evaluation, with its estimated cost."""

    task: str  # name in records; also type, id of the data set and revision
    type: str
    dataset: str
    revision: str
    texts: int | None  # distinct texts to encode; None if MTEB does not publish it
    minutes: float | None  # time of the task; None if speed or size is unknown
    # ``to run``, ``there`` (its record exists), or why it is not run; empty without a model
    status: str = ""
    documents: int = 0  # texts of the largest corpus searched; 0 for other tasks
    queries: int = 0  # queries to it
    characters: int = 0  # of its texts
    candidates: int = 0  # of all queries; 0 if they search the whole corpus
    prepared: int = 0  # bytes of disk that the library `datasets` takes for its copy
    beside: float = 0.0  # minutes of ``minutes`` on one core, beside the model
    problem: str = ""  # why its data cannot be loaded, or empty

    @property
    def hits(self) -> int:
        """Documents in the run of all queries."""
        return self.candidates or self.queries * min(self.documents, _HITS)


@dataclass(frozen=True)
class ResourceCheck:
    """A need of the run compared with the machine."""

    name: str  # ``memory`` or ``disk``; with the needed and available amounts as text
    needed: str
    available: str
    problem: str = ""  # why the run cannot be finished, with a remedy; empty if it can
    parts: Mapping[str, float] = field(default_factory=dict)  # bytes by what they are for


@dataclass(frozen=True)
class Preflight:
    """What a run needs, measured before it starts."""

    planned: tuple[Planned, ...]  # the tasks
    checks: tuple[ResourceCheck, ...]  # needs compared with the machine
    gpu: bool = False  # whether the model runs on a GPU
    left_out: Mapping[str, str] = field(default_factory=dict)  # why, by task: too little memory

    @property
    def hours(self) -> tuple[float, float]:
        """Hours of a GPU, and of cores of the processor; the model uses all that there are."""
        beside = sum(each.beside for each in self.planned if each.minutes is not None) / 60
        own = (self.minutes or 0) / 60 - beside
        return (own, own + beside) if self.gpu else (0.0, cores() * own + beside)

    @property
    def unreadable(self) -> dict[str, str]:
        """Why tasks to run cannot be run, by task: their data cannot be loaded."""
        return {task.task: task.problem for task in self.planned if task.problem}

    @property
    def minutes(self) -> float | None:
        """Minutes of the tasks to run; None if there are none, or no size is known."""
        known = [each.minutes for each in self.planned if each.minutes is not None]
        return sum(known) if known else None

    def require_readable(self) -> None:
        """Raise MirrorError if data of tasks to run cannot be loaded; names them."""
        if self.unreadable:
            names = ", ".join(self.unreadable)
            raise mirror.MirrorError(
                f"{len(self.unreadable)} of {len(self.planned)} tasks cannot be run: {names}. "
                "Their copies of the data cannot be loaded; the reasons stand above"
            )

    def require(self) -> None:
        """Raise PreflightError if memory or disk is too small for the run."""
        if problems := [each.problem for each in self.checks if each.problem]:
            raise PreflightError("\n".join(problems))


def load_checked(
    model: NamedModel,
    tasks: Sequence[Any],
    run: Run,
    *,
    tier: str = "",
    limit: int = 0,
    data: bool = True,
) -> LoadedModel:
    """Load a model after checking that weights and data of the tasks to run are available.

    Tasks with a record need no data; without ``data``, none does. The error names ``tier`` if the
    tasks are all of it.

    Raises:
        MirrorError: data or weights are missing; lists them with the command that fetches them.
        PreflightError: the weights are larger than the free memory.
    """
    source = find_source(model.spec, base=model.base)
    absent = mirror.missing(mirror.needs(tasks, [source]))
    if any(each.kind == "model" for each in absent):
        command = f"{of_tier} --model {model.spec}" if (of_tier := _fetch(tasks, tier)) else ""
        raise mirror.missing_error(absent, command=command, problem=hub_problem())
    weights, free = weight_bytes(source), available_memory()
    if weights > free and not model.device.startswith("cuda"):
        raise PreflightError(
            f"{source.label}: the weights are {weights / _GB:.1f} GB, and {free / _GB:.1f} GB of "
            "memory are free; use a machine with more memory"
        )
    with mirror.hub_access(mirror.needs([], [source])):
        loaded = model.load()
    if absent and data:
        require_data(loaded, tasks, run, tier=tier, limit=limit)
    return loaded


def require_data(
    model: LoadedModel, tasks: Sequence[Any], run: Run, *, tier: str = "", limit: int = 0
) -> None:
    """Raise MirrorError if data of tasks to run are missing; see `load_checked`."""
    statuses = task_statuses(model, tasks, run, limit=limit)
    left = [task for task, status in zip(tasks, statuses, strict=True) if status == TO_RUN]
    if absent := mirror.missing(mirror.needs(left)):
        raise mirror.missing_error(absent, command=_fetch(tasks, tier), problem=hub_problem())


def _fetch(tasks: Sequence[Any], tier: str) -> str:
    """Return the option of `qwen3nb fetch` for a whole tier; empty for other tasks."""
    whole = tier and mirror.needs(tasks) == mirror.needs(tier_tasks(tier))
    return f"--tier {tier}" if whole else ""


def weight_bytes(source: Source) -> int:
    """Return the size of a model's weights on disk; 0 if it has none locally."""
    folders = [part.folder for part in (source, *source.parts) if part.folder is not None]
    return sum(file.stat().st_size for each in folders for file in each.path.glob("*.safetensors"))


def preflight(
    model: LoadedModel,
    tasks: Sequence[Any],
    run: Run,
    *,
    limit: int = 0,
    tokens_per_second: float = 0,
) -> Preflight:
    """Estimate what `evaluate` needs to run MTEB task objects with a loaded model.

    With ``tokens_per_second`` of a GPU, encoders are planned for that GPU instead of being timed.

    Raises:
        EncoderError: a batch does not fit into memory, or a vector is not finite.
    """
    encoders: list[Encoder] = [part for part in model.parts if encodes(part)]
    searchers: list[Searcher] = [part for part in model.parts if searches(part)]
    loaded = resident_memory()
    statuses = task_statuses(model, tasks, run, limit=limit)
    speeds = []
    if TO_RUN in statuses:
        speeds = measure_speeds(
            model, batch_size=run.batch_size, tokens_per_second=tokens_per_second
        )
    encodes_texts = encoders or not all(part.source.kind.weightless for part in searchers)
    batch = max(0, peak_memory() - loaded) if encodes_texts and speeds else 0
    planned = costs(tasks, statuses, limit=limit, speeds=speeds)
    free = available_memory() + max(0, resident_memory() - loaded)
    needs = {each.task: _task_memory(each, encoders, batch, searchers) for each in planned}
    left_out = _too_large(planned, needs, free)
    planned = [
        replace(each, status=left_out[each.task], minutes=None) if each.task in left_out else each
        for each in planned
    ]
    to_run = [each for each in planned if each.status == TO_RUN]
    largest = max(((needs[each.task], each.task) for each in to_run), default=(batch, "a batch"))
    checks = (
        _memory(*largest, loaded=loaded, free=free),
        _disk(to_run, encoders, searchers, fresh=run.fresh),
    )
    gpu = tokens_per_second > 0 or any(part.device.startswith("cuda") for part in model.parts)
    return Preflight(tuple(planned), checks, gpu=gpu, left_out=left_out)


def _too_large(planned: Iterable[Planned], needs: Mapping[str, int], free: int) -> dict[str, str]:
    """Return why tasks are left out for lack of memory; none if no other task remains."""
    wanted = [each for each in planned if each.status in (TO_RUN, _THERE)]
    reasons = {
        each.task: f"it needs about {needs[each.task] / _GB:.1f} GB of memory, and "
        f"{free / _GB:.1f} GB are free; run it with --tasks on a larger machine"
        for each in wanted
        if each.status == TO_RUN and needs[each.task] > free
    }
    return reasons if len(reasons) < len(wanted) else {}


def task_statuses(
    model: LoadedModel, tasks: Iterable[Any], run: Run, *, limit: int = 0
) -> list[str]:
    """Return the status of each task, as in `Planned`, from the stored records."""

    def status(item: TaskItem) -> str:
        if reason := item.unsuited(model):
            return reason
        return TO_RUN if run.fresh or stored(model, item, run) is None else _THERE

    return [status(TaskItem(task, limit)) for task in tasks]


def costs(
    tasks: Sequence[Any],
    statuses: Sequence[str] | None = None,
    *,
    limit: int = 0,
    speeds: Sequence[EncodingSpeed] = (),
) -> list[Planned]:
    """Estimate the cost of tasks: distinct texts, and the minutes to evaluate a model on them.

    With statuses from `task_statuses`, only tasks to run take time; without, groups of tasks are
    split into their parts. Published sizes do not apply with a limit. The minutes are those of
    encoders and search models with these ``speeds``, if any.
    """
    if statuses is None:
        tasks = [part for task in tasks for part in getattr(task.metadata, "tasks", None) or [task]]
        statuses = [""] * len(tasks)
    planned = []
    for task, status in zip(tasks, statuses, strict=True):
        problem, minutes, beside = "", None, 0.0
        try:
            parts = _parts(task, limit, read=bool(status))
        except (mirror.MirrorError, EvaluationError) as error:
            parts = []
            if status == TO_RUN:
                problem = str(error)
        if parts and speeds and status in ("", TO_RUN):
            beside = (_TASK + sum(part.beside for part in parts)) / 60
            minutes = beside + sum(speed.on(part) for speed in speeds for part in parts) / 60
        encoded = [column for part in parts for column in part.encoded]
        candidates = sum(part.candidates for part in parts)
        prepared = sum(_PREPARED * part.characters for part in parts) + _PREPARED_HIT * candidates
        one = Planned(
            task=task_key(task, limit=limit) if status else task.metadata.name,
            type=task.metadata.type,
            dataset=task.metadata.dataset["path"],
            revision=mirror.data_revision(task)[:12],
            texts=round(sum(n for n, _ in encoded)) or None,
            minutes=minutes,
            status=status,
            documents=sum(part.documents for part in parts),
            queries=sum(part.queries for part in parts),
            characters=round(sum(n * mean for n, mean in encoded)),
            candidates=candidates,
            prepared=0 if mirror.is_prepared(task) else round(prepared),
            beside=beside,
            problem=problem,
        )
        planned.append(one)
    return planned


def _parts(task: Any, limit: int, *, read: bool) -> list[_Part]:
    """Return the sizes of the evaluated splits and subsets; none if they are unknown.

    If ``read``, loaded and built-in data are counted, and local copies that are no published
    revision and smaller than the published data. Other such copies are loaded if they are small,
    to find what is missing.

    Raises:
        MirrorError: such a copy cannot be loaded.
        EvaluationError: it lacks the candidates of a reranking task.
    """
    path, revision = task.metadata.dataset["path"], mirror.data_revision(task)
    published = list(_sizes(task, task.metadata.descriptive_stats or {}))
    counted = task.data_loaded or path.startswith("qwen3nb/")
    checked = counted
    if not counted and is_substitute(revision) and (folder := mirror.mirrored(path)):
        copied = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        counted = copied < sum(part.characters for part in published)
        checked = counted or copied < _CHECKED
    if read and checked:
        with quiet(), mirror.local_data(task):
            load_task(task, revision)
    if not (read and counted):
        return [] if limit else published
    with limited(task, limit), quiet(), redirect_stderr(StringIO()):  # MTEB shows bars
        return list(_sizes(task, _counted(task)))


def _sizes(task: Any, every: Mapping[str, Any]) -> Iterator[_Part]:
    """Yield the size of each selected split and subset, from MTEB's statistics by split."""
    for split in task.eval_splits:
        for number, stats in enumerate(_selected(task, every.get(split))):
            columns, labels = {}, 0
            for name, column in stats.items():
                if "statistics" not in name or not isinstance(column, dict):
                    continue
                labels = column.get("unique_labels") or labels
                if texts := column.get("unique_texts"):
                    mean = column.get("average_text_length") or column["total_text_length"] / texts
                    columns[name.partition("_")[0]] = float(texts), float(mean)
            training = _selected(task, every.get("train")) if _learns(task) else []
            top = stats.get("top_ranked_statistics") or {}
            if columns:
                yield _Part(
                    task,
                    columns,
                    queries=stats.get("num_queries") or round(columns.get("queries", (0, 0))[0]),
                    candidates=top.get("num_top_ranked", 0),
                    rows=stats.get("num_samples", 0),
                    trained=training[number].get("num_samples", 0) if number < len(training) else 0,
                    labels=labels,
                )


def _selected(task: Any, stats: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the statistics of the selected subsets in those of a split."""
    subsets = (stats or {}).get("hf_subset_descriptive_stats") or {}
    return [subsets[name] for name in task.hf_subsets if name in subsets] or [stats or {}]


def _learns(task: Any) -> bool:
    return bool(task.metadata.type == "Classification")


def _counted(task: Any) -> dict[str, Any]:
    """Return the statistics of a loaded task by split, as MTEB publishes them."""
    count = task._calculate_descriptive_statistics_from_split
    subsets = {name: name if name in task.dataset else None for name in task.hf_subsets}
    return {
        split: {
            "hf_subset_descriptive_stats": {
                name: count(split, hf_subset=subset) for name, subset in subsets.items()
            }
        }
        for split in [*task.eval_splits, *(["train"] if _learns(task) else [])]
    }


def measure_speeds(
    model: LoadedModel, *, batch_size: int = 32, tokens_per_second: float = 0
) -> list[EncodingSpeed]:
    """Measure the parts of a model that encode or index texts; see `preflight`."""
    speeds = []
    for part in model.parts:
        if encodes(part) and tokens_per_second:
            longest = _longest(part)
            seconds = longest / _CHARACTERS / tokens_per_second
            speeds.append(EncodingSpeed((0, longest), (0, seconds), 0, _RERANKED))
        elif encodes(part):
            speeds.append(measure_encoding(part, batch_size=batch_size))
        elif searches(part):
            speeds.append(measure_indexing(part))
    return speeds


def measure_encoding(encoder: Encoder, *, batch_size: int = 32) -> EncodingSpeed:
    """Encode short, medium and long texts, for about half a second each, and search vectors.

    As many texts are encoded at once as fill passes: a few would take longer than their share.

    Raises:
        EncoderError: the texts do not fit into memory, or a vector is not finite.
    """
    longest = _longest(encoder)
    lengths = sorted({min(each, longest) for each in (*_LENGTHS, longest)})
    _timed(encoder, _sample(_LENGTHS[0], _WARM_UP))
    seconds = []
    for length in lengths:
        chunk = _sample(int(length * _SURPLUS) if length == longest else length, _CHUNK)
        many = max(batch_size, _AT_ONCE // len(chunk[0]))
        try:
            taken, count = _timed(encoder, chunk[:1]), 1
        except RefusedError:  # longer than a server takes
            break
        while taken < (_ENOUGH if count > 1 else 1) and count < len(chunk):
            count = min(len(chunk), max(many, 4 * count))
            taken = _timed(encoder, chunk[:count])
        seconds.append(taken / count)
    taken = _measure_search(encoder)
    return EncodingSpeed(tuple(lengths[: len(seconds)]), tuple(seconds), taken, _RERANKED)


def _longest(encoder: Encoder) -> int:
    return int((getattr(encoder, "max_length", None) or 0) * _CHARACTERS) or _LONGEST


def _measure_search(encoder: Encoder) -> float:
    """Return the seconds for a query and a document of a large corpus, by exact search."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((_SEARCHED[1], encoder.dimension), dtype=np.float32)
    started = time.perf_counter()
    search(vectors[: _SEARCHED[0]], vectors, k=_HITS, **search_options(encoder))
    return (time.perf_counter() - started) / (_SEARCHED[0] * _SEARCHED[1])


def measure_indexing(model: Searcher) -> EncodingSpeed:
    """Index texts of medium length, after a warm-up; the time is that of their characters."""
    model.index_texts(_sample(_LENGTHS[1], _WARM_UP))
    texts = _sample(_LENGTHS[1], _CHUNK)
    started = time.perf_counter()
    model.index_texts(texts)
    seconds = (time.perf_counter() - started) / (_CHUNK * _LENGTHS[1])
    pair = model.seconds_per_pair / cores()
    return EncodingSpeed((0, 10**6), (0, 1e6 * seconds), pair, model.seconds_per_candidates)


def _sample(characters: int, count: int) -> list[str]:
    """Return texts of so many characters from PyDocs."""
    stream = " ".join(load_pydocs().corpus.values())
    step = max(1, (len(stream) - characters) // count)
    return [stream[i * step : i * step + characters] for i in range(count)]


def _timed(encoder: Encoder, texts: Sequence[str]) -> float:
    """Return the seconds to encode texts: the least of two, as a busy machine may stall.

    A server, where tokens may be paid, encodes them once.
    """
    times = [time.perf_counter()]
    try:
        for _ in range(1 if encoder.device == "server" else 2):
            encoder._checked(range(len(texts)), texts, range(len(texts)))
            times.append(time.perf_counter())
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error).lower():
            raise
        raise EncoderError(
            f"{encoder.label}: {len(texts)} texts of {len(texts[0]):,} characters do not fit into "
            f"the memory of {encoder.device}; use a smaller --batch-size or --max-length, or "
            "--dtype bfloat16"
        ) from error
    return float(np.diff(times).min())


def _task_memory(
    each: Planned, encoders: Sequence[Encoder], batch: int, searchers: Sequence[Searcher]
) -> int:
    """Return the bytes for a task and a batch, besides the loaded model."""
    floats = 4 * max((encoder.dimension for encoder in encoders), default=0)
    if not each.documents:
        return batch + 3 * floats * (each.texts or 0)
    # A block of vectors, the queries' vectors, their hits, and the ids.
    vectors = _COPIES * min(each.documents, block_size(floats // 4)) + 3 * each.queries
    hits = each.hits
    if each.candidates and not encoders:
        hits = int(hits * max(searcher.matched_share for searcher in searchers))
    index = sum(searcher.index_memory(each.characters) for searcher in searchers)
    named = _CANDIDATE * each.candidates + _QUERY * each.queries + _NAME * each.documents
    return batch + floats * vectors + _HIT * hits + named + index


def _memory(needed: int, task: str, *, loaded: int, free: int) -> ResourceCheck:
    text = f"{needed / _GB:.1f} GB next to {loaded / _GB:.1f} GB loaded"
    problem = ""
    if needed > free:
        problem = (
            f"{task} needs about {needed / _GB:.1f} GB of memory, and {free / _GB:.1f} GB are "
            "free; use a larger machine, or a smaller part with --limit"
        )
    parts = {"loaded": loaded, "needed": needed}
    return ResourceCheck("memory", text, f"{free / _GB:.1f} GB", problem, parts)


def _disk(
    planned: Sequence[Planned],
    encoders: Sequence[Encoder],
    searchers: Sequence[Searcher],
    *,
    fresh: bool = False,
) -> ResourceCheck:
    """Compare vectors and indexes to be kept, and prepared data, with the free disk.

    Each data set counts once.
    """
    folder = paths.cache()
    free = free_disk(folder)
    names, largest = {task.task for task in planned}, dict[str, Planned]()
    for task in planned:
        # Hard negatives are part of the full corpus, which has another id.
        if task.task.removesuffix("HardNegatives") not in names - {task.task}:
            known = largest.setdefault(task.dataset, task)
            largest[task.dataset] = max(known, task, key=lambda each: each.texts or 0)
    texts = sum(each.texts or 0 for each in largest.values())
    data = {each.dataset: each.prepared for each in planned}
    indexes = 0
    for searcher in searchers:
        indexes += sum(searcher.index_disk(task.documents, task.characters) for task in planned)
    parts = {
        "vectors": sum(
            max(0, texts - (0 if fresh else len(each.cache)))
            * bytes_per_vector(each.width, half=each.cache.half)
            for each in encoders
            if each.cache is not None
        ),
        "indexes of BM25": indexes,
        "prepared data": sum(data.values()),
    }
    limit = cache_limit(cache_folder())
    size = sum(parts.values()) - max(0, parts["vectors"] - limit)
    listed = ", ".join(f"{n / _GB:,.1f} of {name}" for name, n in parts.items() if n)
    if parts["vectors"] > limit:
        listed += f"; --cache-limit keeps {limit / _GB:,.1f} of vectors"
    problem = ""
    if size > free:
        problem = (
            f"the run needs {size / _GB:,.1f} GB of disk in {folder}, and {free / _GB:.1f} GB are "
            "free; run with --no-cache, or set QWEN3NB_CACHE to a folder on a larger disk, or "
            "--cache-limit to what may be kept"
        )
    needed = f"{size / _GB:,.1f} GB" + f": {listed}" * bool(listed)
    return ResourceCheck("disk", needed, f"{free / _GB:.1f} GB", problem, parts)
