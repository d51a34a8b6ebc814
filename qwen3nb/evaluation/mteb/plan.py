"""Plan a run: its tasks, missing data and weights, and the resources it needs.

`load_checked` loads a model, or fails within seconds if data or weights are missing. `preflight`
then encodes short, medium and long texts, and compares the needs of the run with the machine.

Task sizes are MTEB's published statistics of the selected splits and subsets; texts of built-in
tasks are counted. Texts differ in tokens per character, so minutes are an estimate.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.datasets.mirror import (
    data_revision,
    hub_access,
    mirrored,
    missing,
    missing_error,
    needs,
)
from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.evaluation.mteb.evaluate import Model, TaskItem
from qwen3nb.evaluation.mteb.select import limited, task_key, tier_tasks
from qwen3nb.evaluation.run import Run, stored
from qwen3nb.hub import hub_problem
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.load import load_model
from qwen3nb.models.search.bm25 import BM25, build_index
from qwen3nb.models.types import EncoderError
from qwen3nb.utils.hardware import available_memory, cores, free_disk, peak_memory, resident_memory
from qwen3nb.vectors.cache import bytes_per_vector
from qwen3nb.vectors.encode_file import block_size

TO_RUN = "to run"  # status of a task that is neither done nor unsupported
_CHARACTERS = 4.5  # per token of English text, on average
_SURPLUS = 1.5  # factor of characters with which texts reach the maximum number of tokens
_LENGTHS = (60, 450)  # characters of a short and of a medium text
_LONGEST = 2300  # characters, for models without a maximum length
_WARM_UP = 8  # texts
_CHUNK = 512  # maximum number of texts encoded at once, as in `Encoder`
_ENOUGH = 0.2  # target seconds per sample
_COMPRESSION = 10  # a file holds at most this many characters per byte
_HITS = 1000  # of each query, as MTEB asks for
_HIT = 256  # bytes: its score by name, in MTEB's run and in the one read back
_COPIES = 4  # of a block of vectors: as encoded, in order, and scaled in float64
_INDEX = 5e8  # bytes that BM25 takes to index a corpus, whatever its size
_INDEXED = 1.5  # bytes per character, of which the index that is kept has 1
_PAIR = 3e-9  # seconds of a core for a query and a document, with BM25
_GB = 1e9
_SEARCHED = ("documents", "queries")  # names of columns


class PreflightError(ValueError):
    """The machine lacks memory or disk for a run; the message has numbers and a remedy."""


@dataclass(frozen=True)
class EncodingSpeed:
    """Seconds per text by length in characters, ascending, up to the maximum length."""

    characters: tuple[int, ...]
    seconds: tuple[float, ...]
    pair: float = 0.0  # seconds per query and document searched, with BM25

    def minutes(self, texts: Iterable[tuple[float, float]]) -> float:
        """Return the minutes for texts, given as pairs of their number and mean length."""
        each = (count * np.interp(mean, self.characters, self.seconds) for count, mean in texts)
        return float(sum(each)) / 60


@dataclass(frozen=True)
class Planned:
    """One task of a planned evaluation, with its estimated cost."""

    task: str  # name in records; also type, id of the data set and revision
    type: str
    dataset: str
    revision: str
    texts: int | None  # distinct texts to encode; None if MTEB does not publish it
    minutes: float | None  # time to encode them at the measured speed; None if either is unknown
    # ``to run``, ``there`` (its record exists), or why the model does not support it; empty without
    # a model
    status: str = ""
    documents: int = 0  # texts of the largest corpus searched; 0 for other tasks
    queries: int = 0  # queries to it
    characters: int = 0  # of its documents


@dataclass(frozen=True)
class ResourceCheck:
    """A need of the run compared with the machine."""

    name: str  # ``memory`` or ``disk``; with the needed and available amounts as text
    needed: str
    available: str
    problem: str = ""  # why the run cannot be finished, with a remedy; empty if it can


@dataclass(frozen=True)
class Preflight:
    """What a run needs, measured before it starts."""

    planned: tuple[Planned, ...]  # the tasks
    checks: tuple[ResourceCheck, ...]  # needs compared with the machine

    @property
    def minutes(self) -> float | None:
        """Minutes to encode the tasks to run; None if there are none, or a size is unknown."""
        known = [each.minutes for each in self.planned if each.minutes is not None]
        return sum(known) if known else None

    def require(self) -> None:
        """Raise PreflightError if memory or disk is too small for the run."""
        if problems := [each.problem for each in self.checks if each.problem]:
            raise PreflightError("\n".join(problems))


def load_checked(
    checkpoint: str,
    tasks: Sequence[Any],
    run: Run,
    *,
    tier: str = "",
    limit: int = 0,
    **settings: Any,
) -> Model:
    """Load a model after checking that weights and data of the tasks to run are available.

    Tasks with a record need no data. The error names ``tier`` if the tasks are all of it;
    ``settings`` are those of `load_model`.

    Raises:
        MirrorError: data or weights are missing; lists them with the command that fetches them.
        PreflightError: the weights are larger than the free memory.
    """
    whole = tier and needs(tasks) == needs(tier_tasks(tier))
    command = f"--tier {tier}" if whole else ""  # of `qwen3nb fetch`
    source = find_source(checkpoint, base=settings.get("base"))
    absent = missing(needs(tasks, [source]))
    if any(each.kind == "model" for each in absent):
        command = command and f"{command} --model {checkpoint}"
        raise missing_error(absent, command=command, problem=hub_problem())
    weights, free = weight_bytes(source), available_memory()
    if weights > free and not settings.get("device", "auto").startswith("cuda"):
        raise PreflightError(
            f"{source.label}: the weights are {weights / _GB:.1f} GB, and {free / _GB:.1f} GB of "
            "memory are free; use a machine with more memory"
        )
    with hub_access(needs([], [source])):
        model = load_model(checkpoint, **settings)
    if absent:
        statuses = task_statuses(model, tasks, run, limit=limit)
        left = [task for task, status in zip(tasks, statuses, strict=True) if status == TO_RUN]
        gone = {(each.kind, each.id, each.revision) for each in absent}
        absent = [each for each in needs(left) if (each.kind, each.id, each.revision) in gone]
    if absent:
        raise missing_error(absent, command=command, problem=hub_problem())
    return model


def weight_bytes(source: Source) -> int:
    """Return the size of a model's weights on disk; 0 if it has none locally."""
    folders = [part.folder for part in (source, *source.parts) if part.folder is not None]
    return sum(file.stat().st_size for each in folders for file in each.path.glob("*.safetensors"))


def preflight(model: Model, tasks: Sequence[Any], run: Run, *, limit: int = 0) -> Preflight:
    """Estimate what `evaluate` needs to run MTEB task objects with a loaded model.

    Raises:
        EncoderError: a batch does not fit into memory, or a vector is not finite.
    """
    parts = [model] if isinstance(model, Encoder) else getattr(model, "parts", ())
    encoders = [part for part in parts if isinstance(part, Encoder)]
    before, batch, speed = resident_memory(), 0, None
    statuses = task_statuses(model, tasks, run, limit=limit)
    if encoders and TO_RUN in statuses:
        speed = measure_encoding(encoders[0], batch_size=run.batch_size)
        batch = max(0, (peak_memory() or 0) - before)
    elif TO_RUN in statuses and isinstance(model, BM25):
        speed = measure_indexing(model)
    planned = costs(tasks, statuses, limit=limit, speed=speed)
    to_run = [each for each in planned if each.status == TO_RUN]
    words = any(isinstance(part, BM25) for part in getattr(model, "parts", (model,)))
    checks = (_memory(to_run, encoders, batch, words=words), _disk(to_run, encoders, words=words))
    return Preflight(tuple(planned), checks)


def task_statuses(model: Model, tasks: Iterable[Any], run: Run, *, limit: int = 0) -> list[str]:
    """Return the status of each task, as in `Planned`, from the stored records."""

    def status(item: TaskItem) -> str:
        if reason := item.unsuited(model):
            return reason
        return TO_RUN if stored(model, item, run) is None else "there"

    return [status(TaskItem(task, limit)) for task in tasks]


def costs(
    tasks: Sequence[Any],
    statuses: Sequence[str] | None = None,
    *,
    limit: int = 0,
    speed: EncodingSpeed | None = None,
) -> list[Planned]:
    """Estimate the cost of tasks: distinct texts, and the minutes to encode them.

    Args:
        tasks: MTEB task objects; without statuses, groups are split into their parts.
        statuses: status of each task, from `task_statuses`; only tasks to run take time.
        limit: as in `qwen3nb.evaluate`; published sizes do not apply with a limit.
        speed: from `measure_encoding`; None to skip the minutes.
    """
    if statuses is None:
        tasks = [part for task in tasks for part in getattr(task.metadata, "tasks", None) or [task]]
        statuses = [""] * len(tasks)
    planned = []
    for task, status in zip(tasks, statuses, strict=True):
        columns = _columns(task, limit, read=bool(status))
        minutes = None
        texts = {name: round(sum(n for own, n, _ in columns if own == name)) for name in _SEARCHED}
        if columns and speed is not None and status in ("", TO_RUN):
            minutes = speed.minutes((count, mean) for _, count, mean in columns)
            minutes += speed.pair * texts["documents"] * texts["queries"] / 60
        one = Planned(
            task=task_key(task, limit=limit) if status else task.metadata.name,
            type=task.metadata.type,
            dataset=task.metadata.dataset["path"],
            revision=data_revision(task)[:12],
            texts=round(sum(count for _, count, _ in columns)) or None,
            minutes=minutes,
            status=status,
            characters=round(sum(n * mean for own, n, mean in columns if own == "documents")),
            **texts,
        )
        planned.append(one)
    return planned


def _columns(task: Any, limit: int, *, read: bool) -> list[tuple[str, float, float]]:
    """Return name, distinct texts and mean characters of each column of texts; none if unknown.

    They are counted in loaded data, and in built-in data if ``read``; otherwise they are MTEB's
    statistics of the selected splits and subsets, bounded by the size of a local copy.
    """
    data = task.metadata.dataset["path"]
    if read and (task.data_loaded or data.startswith("qwen3nb/")):
        if not task.data_loaded:
            task.load_data()
        with limited(task, limit):
            return [("", 1, len(text)) for text in set(_strings(task.dataset))]
    if limit:
        return []
    columns = list(_published(task))
    folder, characters = mirrored(data), sum(count * mean for _, count, mean in columns)
    scale = 1.0
    if folder is not None and characters:  # the copy may be a small sample
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        scale = min(scale, _COMPRESSION * size / characters)
    return [(name, scale * count, mean) for name, count, mean in columns]


def _published(task: Any) -> Iterator[tuple[str, int, float]]:
    """Yield name, distinct texts and characters per text of each published column of texts."""
    every = task.metadata.descriptive_stats or {}
    for split in task.eval_splits:
        whole = every.get(split) or {}
        subsets = whole.get("hf_subset_descriptive_stats") or {}
        selected = [subsets[name] for name in task.hf_subsets if name in subsets]
        if not selected or set(task.hf_subsets) == set(task.metadata.hf_subsets):
            selected = [whole]
        for name, column in (pair for stats in selected for pair in stats.items()):
            if "statistics" in name and isinstance(column, dict) and column.get("unique_texts"):
                texts = int(column["unique_texts"])
                mean = (
                    column.get("average_text_length") or column.get("total_text_length", 0) / texts
                )
                yield name.partition("_")[0], texts, float(mean)


def _strings(data: Any) -> Iterator[str]:
    """Yield every text in loaded data, without ids and labels."""
    import datasets

    if isinstance(data, str):
        yield data
    elif isinstance(data, list):
        for each in data:
            yield from _strings(each)
    elif isinstance(data, datasets.Dataset):
        for name in data.column_names:
            if name not in ("id", "label", "labels", "lang"):
                yield from _strings(list(data[name]))
    elif isinstance(data, Mapping):
        for name, part in data.items():
            if name not in ("relevant_docs", "top_ranked"):
                yield from _strings(part)


def measure_encoding(encoder: Encoder, *, batch_size: int = 32) -> EncodingSpeed:
    """Encode short, medium and long texts, for about a fifth of a second each.

    On a GPU, at least ``batch_size`` texts are encoded at once, because memory is the limit there.

    Raises:
        EncoderError: the texts do not fit into memory, or a vector is not finite.
    """
    limit = getattr(encoder, "max_length", None)
    longest = int(limit * _CHARACTERS) if limit else _LONGEST
    lengths = sorted({min(each, longest) for each in (*_LENGTHS, longest)})
    _timed(encoder, _sample(_LENGTHS[0], _WARM_UP))
    seconds = []
    for length in lengths:
        chunk = _sample(int(length * _SURPLUS) if length == longest else length, _CHUNK)
        count = 1 if encoder.device == "cpu" else min(batch_size, len(chunk))
        while (taken := _timed(encoder, chunk[:count])) < _ENOUGH and count < len(chunk):
            count = min(4 * count, len(chunk))
        seconds.append(taken / count)
    return EncodingSpeed(tuple(lengths), tuple(seconds))


def measure_indexing(model: BM25) -> EncodingSpeed:
    """Index texts of medium length, after a warm-up; the time is that of their characters."""
    build_index(_sample(_LENGTHS[1], _WARM_UP), english=True, settings=model.settings)
    texts = _sample(_LENGTHS[1], _CHUNK)
    started = time.perf_counter()
    build_index(texts, english=True, settings=model.settings)
    seconds = (time.perf_counter() - started) / (_CHUNK * _LENGTHS[1])
    most = 10**6
    return EncodingSpeed((0, most), (0, most * seconds), pair=_PAIR / cores())


def _sample(characters: int, count: int) -> list[str]:
    """Return texts of so many characters from PyDocs."""
    stream = " ".join(load_pydocs().corpus.values())
    step = max(1, (len(stream) - characters) // count)
    return [stream[i * step : i * step + characters] for i in range(count)]


def _timed(encoder: Encoder, texts: Sequence[str]) -> float:
    started = time.perf_counter()
    try:
        encoder._checked(range(len(texts)), texts, range(len(texts)))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error).lower():
            raise
        raise EncoderError(
            f"{encoder.label}: {len(texts)} texts of {len(texts[0]):,} characters do not fit into "
            f"the memory of {encoder.device}; use a smaller --batch-size or --max-length, or "
            "--dtype bfloat16"
        ) from error
    return time.perf_counter() - started


def _memory(
    planned: Sequence[Planned], encoders: Sequence[Encoder], batch: int, *, words: bool
) -> ResourceCheck:
    """Compare the needs of the largest search and a batch with the free memory."""
    free = available_memory()
    floats = max((each.dimension for each in encoders), default=0)
    needed, task = batch, ""
    for each in planned:  # a block of vectors, the queries' vectors, and the hits
        vectors = _COPIES * min(each.documents, block_size(floats)) + each.queries
        hits = each.queries * min(each.documents, _HITS)
        one = batch + 4 * floats * vectors + _HIT * hits
        if words and each.documents:
            one += int(_INDEX + _INDEXED * each.characters)
        needed, task = max((needed, task), (one, each.task))
    text = f"{needed / _GB:.1f} GB next to {resident_memory() / _GB:.1f} GB loaded"
    problem = ""
    if needed > free:
        problem = (
            f"searching {task} needs about {needed / _GB:.1f} GB of memory, and "
            f"{free / _GB:.1f} GB are free; run fewer tasks with --tasks, or use a larger machine"
        )
    return ResourceCheck("memory", text, f"{free / _GB:.1f} GB", problem)


def _disk(planned: Sequence[Planned], encoders: Sequence[Encoder], *, words: bool) -> ResourceCheck:
    """Compare the vectors and indexes to be kept with the free disk; each data set counts once."""
    folder = paths.cache()
    free = free_disk(folder)
    names, texts = {task.task for task in planned}, dict[str, int]()
    for task in planned:
        # Hard negatives are part of the full corpus, which has another id.
        if task.task.removesuffix("HardNegatives") not in names - {task.task}:
            texts[task.dataset] = max(texts.get(task.dataset, 0), task.texts or 0)
    caches = [(each.cache, each.width) for each in encoders if each.cache is not None]
    if not caches:
        needed = "nothing: no vectors are kept"
        if words and planned:
            largest = max(each.characters for each in planned) / _GB
            needed = f"{largest:,.1f} GB for the largest index of BM25, kept if there is room"
        return ResourceCheck("disk", needed, f"{free / _GB:.1f} GB")
    size = sum(
        max(0, sum(texts.values()) - len(cache)) * bytes_per_vector(width)
        for cache, width in caches
    )
    if (limit := caches[0][0].limit) is not None:
        size = min(size, limit)
    problem = ""
    if size > free:
        problem = (
            f"keeping the vectors needs {size / _GB:,.0f} GB in {folder}, and {free / _GB:.1f} GB "
            "are free; run with --no-cache, or set QWEN3NB_CACHE to a folder on a larger disk, or "
            "--cache-limit to what may be kept"
        )
    needed, available = f"{size / _GB:,.1f} GB of vectors", f"{free / _GB:.1f} GB"
    return ResourceCheck("disk", needed, available, problem)
