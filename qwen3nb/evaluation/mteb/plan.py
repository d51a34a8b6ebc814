"""Look before a run: what will run, are data and weights here, what does it take?

`load_checked` loads a model and refuses in seconds if data or weights are missing. `preflight`
then encodes short, medium and the longest texts, and compares what the run needs with what the
machine has.

Task sizes are MTEB's published statistics of the selected splits and subsets; texts of built-in
tasks are counted. Texts differ in tokens per character and in length, so an estimate is a range.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from qwen3nb.hub.session import hub_problem
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.load import load_model
from qwen3nb.models.types import EncoderError
from qwen3nb.utils.hardware import available_memory, free_disk, peak_memory, resident_memory
from qwen3nb.vectors.cache import bytes_per_vector
from qwen3nb.vectors.encode_file import block_size

TO_RUN = "to run"  # the status of a task that is neither done nor unsuited
_CHARACTERS = 4.5  # per token of English text, on average
_SURPLUS = 1.5  # factor of characters that makes a text reach its maximum number of tokens
_LENGTHS = (60, 450)  # characters of a short and of a medium text
_LONGEST = 2300  # characters, for models without a maximum length
_WARM_UP = 8  # texts
_CHUNK = 512  # texts encoded at once, at most, as by `Encoder`
_ENOUGH = 0.2  # seconds that one sample should take
_REPEATS = 5  # samples per length, at most
_BUDGET = 1.0  # seconds per length after the first sample
_SHARE = 0.02  # of all texts that a sample may be, to be repeated
_COMPRESSION = 10  # a file holds at most this many characters per byte
_HITS = 1000  # of each query, as MTEB asks for
_HIT = 256  # bytes: its score by name, in MTEB's run and in the one read back
_COPIES = 4  # of a block of vectors: as encoded, in order, and scaled in float64
_GB = 1e9


class PreflightError(ValueError):
    """The machine lacks memory or disk for a run; the message has the numbers and a way out."""


class Range(NamedTuple):
    """An estimate, from its lowest to its highest value."""

    low: float
    high: float

    def times(self, factor: float) -> Range:
        """Return the range multiplied by ``factor``."""
        return Range(self.low * factor, self.high * factor)

    @staticmethod
    def total(ranges: Iterable[Range]) -> Range:
        """Return the sum of ranges."""
        every = list(ranges)
        return Range(sum(each.low for each in every), sum(each.high for each in every))

    def text(self, digits: int = 0) -> str:
        """Return ``low–high``, or one number if they round to the same.

        >>> Range(9.8, 12.1).text(), Range(0.96, 1.04).text(1)
        ('10–12', '1.0')
        """
        low, high = (f"{value:,.{digits}f}" for value in self)
        return low if low == high else f"{low}–{high}"


@dataclass(frozen=True)
class EncodingSpeed:
    """Seconds per text of the fastest and the slowest repeat, by length, ascending."""

    characters: tuple[int, ...]
    fastest: tuple[float, ...]
    slowest: tuple[float, ...]

    def seconds(self, length: float) -> Range:
        """Return the seconds for a text of ``length`` characters, between those measured."""
        ends = (np.interp(length, self.characters, each) for each in (self.fastest, self.slowest))
        return Range(*map(float, ends))


@dataclass(frozen=True)
class Planned:
    """One task of a planned evaluation, with its estimated cost."""

    task: str  # its name in records; with its type, the id of its data set and their revision
    type: str
    dataset: str
    revision: str
    texts: int | None  # distinct texts to encode; None if MTEB does not publish the number
    minutes: Range | None  # time to encode them at the measured speed; None if either is unknown
    # ``to run``, ``there`` (its record exists), or why the model does not support it; empty if no
    # model is known
    status: str = ""
    documents: int = 0  # texts of the largest corpus searched; 0 for other tasks
    queries: int = 0  # queries to it


@dataclass(frozen=True)
class ResourceCheck:
    """A need of the run next to what the machine has."""

    name: str  # ``memory``, ``disk`` or ``device``; what is needed and available of it, as text
    needed: str
    available: str
    problem: str = ""  # why the run cannot be finished, with the way out; empty if it can


@dataclass(frozen=True)
class Preflight:
    """What a run needs, measured before it starts."""

    planned: tuple[Planned, ...]  # the tasks
    checks: tuple[ResourceCheck, ...]  # needs next to what the machine has
    # time to encode what is to run; None if nothing is, or its size is unknown
    minutes: Range | None = None
    gpu_hours: Range | None = None  # the same on a GPU; None without one

    def require(self) -> None:
        """Raise PreflightError if there is too little memory or disk for the run."""
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
    """Load a model after a look for its weights and for the data of the tasks to run.

    Tasks whose record is there need no data. The error names ``tier`` if the tasks are all of it;
    ``settings`` are those of `load_model`.

    Raises:
        MirrorError: one list of all that is missing, and the command that fetches it.
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
    """Return the size of a model's weights on disk; 0 if it has none, or they are not here."""
    folders = [part.folder for part in (source, *source.parts) if part.folder is not None]
    return sum(file.stat().st_size for each in folders for file in each.path.glob("*.safetensors"))


def preflight(model: Model, tasks: Sequence[Any], run: Run, *, limit: int = 0) -> Preflight:
    """Measure and compare what `evaluate` needs to run MTEB task objects with a loaded model.

    Raises:
        EncoderError: a batch does not fit into memory, or a vector is not finite.
    """
    parts = [model] if isinstance(model, Encoder) else getattr(model, "parts", ())
    encoders = [part for part in parts if isinstance(part, Encoder)]
    before, batch = resident_memory(), 0
    statuses = task_statuses(model, tasks, run, limit=limit)
    planned = plan(model, tasks, statuses, limit=limit)
    if encoders and TO_RUN in statuses:
        counts = [each.texts for each in planned if each.status == TO_RUN]
        texts = None if None in counts else sum(filter(None, counts))
        speed = measure_encoding(encoders[0], batch_size=run.batch_size, texts=texts)
        batch = max(0, (peak_memory() or 0) - before)
        planned = plan(model, tasks, statuses, limit=limit, speed=speed)
    to_run = [each for each in planned if each.status == TO_RUN]
    known = [each.minutes for each in to_run if each.minutes is not None]
    minutes = Range.total(known) if known else None
    checks = (_memory(to_run, encoders, batch), _disk(to_run, encoders), _device(model.device))
    gpu_hours = minutes.times(1 / 60) if minutes and model.device.startswith("cuda") else None
    return Preflight(tuple(planned), checks, minutes, gpu_hours)


def task_statuses(model: Model, tasks: Iterable[Any], run: Run, *, limit: int = 0) -> list[str]:
    """Return the status of each task, as in `Planned`; reads the records that are there."""

    def status(item: TaskItem) -> str:
        if reason := item.unsuited(model):
            return reason
        there = stored(model, item, run)
        return "there" if there is not None and run.is_complete(there) else TO_RUN

    return [status(TaskItem(task, limit)) for task in tasks]


def plan(
    model: Model,
    tasks: Sequence[Any],
    statuses: Sequence[str],
    *,
    limit: int = 0,
    speed: EncodingSpeed | None = None,
) -> list[Planned]:
    """Return what `evaluate` would do with a model and tasks of these `task_statuses`."""
    cut = getattr(model, "max_length", None)
    return [
        _planned(task, status, limit, speed if status == TO_RUN else None, cut)
        for task, status in zip(tasks, statuses, strict=True)
    ]


def costs(
    tasks: Iterable[Any], *, speed: EncodingSpeed | None = None, max_length: int | None = None
) -> list[Planned]:
    """Estimate the cost of each task from MTEB's statistics; groups are split into their parts.

    ``max_length`` is the number of tokens after which texts are truncated.
    """
    parts = (part for task in tasks for part in getattr(task.metadata, "tasks", None) or [task])
    return [_planned(part, "", 0, speed, max_length) for part in parts]


def _planned(
    task: Any, status: str, limit: int, speed: EncodingSpeed | None, max_length: int | None
) -> Planned:
    """Count the texts of built-in or loaded data, or estimate from MTEB's published sizes.

    Under a limit, published sizes say nothing. A row of `costs` has no status.
    """
    data, counts = task.metadata.dataset["path"], {}
    texts, minutes = None, None
    built_in = status and data.startswith("qwen3nb/")
    if built_in or (status and task.data_loaded):
        if not task.data_loaded:
            task.load_data()
        with limited(task, limit):
            strings = set(_strings(task.dataset))
        texts = len(strings)
        if speed is not None:
            minutes = Range.total(speed.seconds(len(each)) for each in strings).times(1 / 60)
    elif not limit:
        columns = list(_columns(task))
        scale = _scale(task, sum(count * average for _, count, average in columns))
        counts = {name: round(count * scale) for name, count, _ in columns}
        texts = round(sum(count for _, count, _ in columns) * scale) or None
        if speed is not None and texts:
            most = float("inf") if max_length is None else max_length * _CHARACTERS
            ranges = (speed.seconds(min(mean, most)).times(count) for _, count, mean in columns)
            minutes = Range.total(ranges).times(scale / 60)
    return Planned(
        task=task_key(task, limit=limit) if status else task.metadata.name,
        type=task.metadata.type,
        dataset=data,
        revision=data_revision(task)[:12],
        texts=texts,
        minutes=minutes,
        status=status,
        documents=counts.get("documents", 0),
        queries=counts.get("queries", 0),
    )


def _columns(task: Any) -> Iterator[tuple[str, int, float]]:
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


def _scale(task: Any, characters: float) -> float:
    """Return which share of the published size a local copy, perhaps a miniature, can hold."""
    folder = mirrored(task.metadata.dataset["path"])
    if folder is None or not characters:
        return 1.0
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return min(1.0, _COMPRESSION * size / characters)


def _strings(data: Any) -> Iterator[str]:
    """Yield every text in loaded data, but no ids or labels."""
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


def measure_encoding(
    encoder: Encoder, *, batch_size: int = 32, texts: int | None = None
) -> EncodingSpeed:
    """Encode short, medium and the longest texts, several times each.

    On a GPU, at least ``batch_size`` texts are encoded at once, as memory is the limit there. If
    only a few ``texts`` are to be encoded, and quickly, there are no repeats.

    Raises:
        EncoderError: the texts do not fit into memory, or a vector is not finite.
    """
    limit = getattr(encoder, "max_length", None)
    longest = int(limit * _CHARACTERS) if limit else _LONGEST
    lengths = sorted({min(each, longest) for each in (*_LENGTHS, longest)})
    stream = " ".join(load_pydocs().corpus.values())
    least = 1 if encoder.device == "cpu" else batch_size

    def sample(characters: int, count: int) -> list[str]:
        step = max(1, (len(stream) - characters) // count)
        return [stream[i * step : i * step + characters] for i in range(count)]

    _timed(encoder, sample(_LENGTHS[0], _WARM_UP))
    samples = []
    for length in lengths:
        characters = int(length * _SURPLUS) if length == longest else length
        chunk = sample(characters, _CHUNK)
        count = min(least, len(chunk))
        taken = _timed(encoder, chunk[:count])
        while taken < _ENOUGH and count < len(chunk):  # as many texts as take long enough
            count = min(4 * count, len(chunk))
            taken = _timed(encoder, chunk[:count])
        seconds, started = [taken / count], time.perf_counter()
        repeats = _REPEATS if texts is None or count <= _SHARE * texts else 1
        while len(seconds) < repeats and time.perf_counter() - started < _BUDGET:
            seconds.append(_timed(encoder, chunk[:count]) / count)
        samples.append(seconds[1:] or seconds)  # the first call of a shape is a warm-up
    return EncodingSpeed(tuple(lengths), tuple(map(min, samples)), tuple(map(max, samples)))


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


def _memory(planned: Sequence[Planned], encoders: Sequence[Encoder], batch: int) -> ResourceCheck:
    """Compare the largest search and a batch with the free memory; the model is loaded already."""
    free = available_memory()
    floats = max((each.dimension for each in encoders), default=0)
    needed, task = batch, ""
    for each in planned:  # a block of vectors, those of the queries, and the hits
        vectors = _COPIES * min(each.documents, block_size(floats)) + each.queries
        hits = each.queries * min(each.documents, _HITS)
        needed, task = max((needed, task), (batch + 4 * floats * vectors + _HIT * hits, each.task))
    text = f"{needed / _GB:.1f} GB beside {resident_memory() / _GB:.1f} GB loaded"
    problem = ""
    if needed > free:
        problem = (
            f"searching {task} needs about {needed / _GB:.1f} GB of memory, and "
            f"{free / _GB:.1f} GB are free; run fewer tasks with --tasks, or use a larger machine"
        )
    return ResourceCheck("memory", text, f"{free / _GB:.1f} GB", problem)


def _disk(planned: Sequence[Planned], encoders: Sequence[Encoder]) -> ResourceCheck:
    """Compare the vectors to be kept with the free disk; refuse only if the least do not fit."""
    folder = paths.cache()
    free = free_disk(folder)
    kept = [each for each in encoders if each.cache is not None]
    if not kept:
        return ResourceCheck("disk", "nothing: no vectors are kept", f"{free / _GB:.1f} GB")
    names, largest = {task.task for task in planned}, dict[str, int]()
    for task in planned:
        # The least counts those that no other planned task surely has as well.
        if task.task.removesuffix("HardNegatives") not in names - {task.task}:
            largest[task.dataset] = max(largest.get(task.dataset, 0), task.texts or 0)
    low, high = sum(largest.values()), sum(task.texts or 0 for task in planned)
    size = Range.total(
        Range(max(0, low - len(cache)), high).times(bytes_per_vector(each.width))
        for each in kept
        if (cache := each.cache) is not None
    )
    if (limit := kept[0].cache.limit) is not None:  # type: ignore[union-attr]
        size = Range(min(size.low, limit), min(size.high, limit))
    problem = ""
    if size.low > free:
        problem = (
            f"keeping the vectors needs {size.times(1 / _GB).text()} GB in {folder}, and "
            f"{free / _GB:.1f} GB are free; run with --no-cache, or set QWEN3NB_CACHE to a folder "
            "on a larger disk, or --cache-limit to what may be kept"
        )
    text = f"{size.times(1 / _GB).text(1)} GB of vectors"
    return ResourceCheck("disk", text, f"{free / _GB:.1f} GB", problem)


def _device(device: str) -> ResourceCheck:
    if not device.startswith("cuda"):
        return ResourceCheck("device", device, "no GPU is used")
    import torch

    free, total = torch.cuda.mem_get_info(device)
    peak = torch.cuda.max_memory_reserved(device)
    name = torch.cuda.get_device_name(device)
    return ResourceCheck(
        "device",
        f"{peak / _GB:.1f} GB for the model and its largest batch",
        f"{name}: {free / _GB:.1f} of {total / _GB:.1f} GB are free beside them",
    )
