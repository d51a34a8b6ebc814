"""Look before a run: are data and weights here, do memory and disk suffice, how long will it take?

`load_checked` loads a model and refuses in seconds if data or weights are missing. `preflight`
then encodes a batch of short, medium and the longest texts for real, and compares what the run
needs with what the machine has. Both come before the first task, which may be hours long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.datasets.needs import Need, hub_access, missing, missing_error, needs
from qwen3nb.evaluation.mteb.cost import Range, measure_encoding
from qwen3nb.evaluation.mteb.evaluate import Model
from qwen3nb.evaluation.mteb.plan import TO_RUN, Planned, plan, task_statuses, waiting
from qwen3nb.evaluation.mteb.select import suite_tasks, tier_tasks
from qwen3nb.hub.session import hub_problem
from qwen3nb.models.cache.segments import bytes_per_vector
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.encoders.encode_blocks import block_size
from qwen3nb.models.load import load_model
from qwen3nb.models.rerankers.yes_no import Reranker
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.sources.resolve import find_source
from qwen3nb.models.sources.source import Source
from qwen3nb.utils.hardware import available_memory, free_disk, peak_memory, resident_memory

__all__ = [
    "Preflight",
    "PreflightError",
    "ResourceCheck",
    "load_checked",
    "preflight",
    "weight_bytes",
]

_HITS = 1000  # of each query, as MTEB asks for
_HIT = 256  # bytes: its score by name, in MTEB's run and in the one read back
_COPIES = 4  # of a block of vectors: as encoded, in order, and scaled in float64
_GB = 1e9


class PreflightError(ValueError):
    """The machine lacks memory or disk for a run; the message has the numbers and a way out."""


@dataclass(frozen=True)
class ResourceCheck:
    """A need of the run beside what the machine has.

    Attributes:
        name: ``memory``, ``disk`` or ``device``.
        needed: the need, as text.
        available: what there is, as text.
        problem: why the run cannot be finished, with the way out; empty if it can.
    """

    name: str
    needed: str
    available: str
    problem: str = ""


@dataclass(frozen=True)
class Preflight:
    """What a run needs, found out before it starts.

    Attributes:
        planned: the tasks.
        checks: needs beside what the machine has.
        minutes: time to encode what is to run; None if nothing is, or its size is unknown.
        gpu_hours: the same on a GPU; None without one.
    """

    planned: tuple[Planned, ...]
    checks: tuple[ResourceCheck, ...]
    minutes: Range | None = None
    gpu_hours: Range | None = None

    def require(self) -> None:
        """Raise if the run cannot be finished.

        Raises:
            PreflightError: too little memory or disk.
        """
        if problems := [each.problem for each in self.checks if each.problem]:
            raise PreflightError("\n".join(problems))


def load_checked(
    checkpoint: str,
    tasks: Sequence[Any],
    *,
    tier: str = "",
    limit: int = 0,
    output: Path | str | None = None,
    runs: bool = False,
    **settings: Any,
) -> Model:
    """Load a model after a look for its weights and for the data of the tasks to run.

    The hub is asked at most once, for ten seconds. Tasks whose record is there need no data.

    Args:
        checkpoint: a model spec.
        tasks: the tasks to run.
        tier: the tier they were selected by, named in the message if they are all of it.
        limit: as in `evaluate`.
        output: folder of the records.
        runs: as in `evaluate`.
        settings: options of `load_model`.

    Raises:
        MirrorError: one list of all that is missing, and the command that fetches it.
        PreflightError: the weights are larger than the free memory.
    """
    command = _fetch_options(tasks, tier)
    problem = cache(hub_problem)
    absent = missing(needs(tasks, [checkpoint]), reachable=lambda: not problem())
    if any(each.kind == "model" for each in absent):
        command = command and f"{command} --model {checkpoint}"
        raise missing_error(absent, command=command, problem=problem())
    _check_weights(find_source(checkpoint), device=settings.get("device", "auto"))
    with hub_access(needs([], [checkpoint]), lambda: not problem()):
        model = load_model(checkpoint, **settings)
    if absent:
        seed = settings.get("seed", 0)
        left = waiting(model, tasks, limit=limit, output=output, seed=seed, runs=runs)
        absent = _of(needs(left), absent)
    if absent:
        raise missing_error(absent, command=command, problem=problem())
    return model


def _fetch_options(tasks: Sequence[Any], tier: str) -> str:
    """Return ``--tier x`` if the tasks need the same data as the whole tier, else nothing."""
    return f"--tier {tier}" if tier and needs(tasks) == needs(tier_tasks(tier)) else ""


def _of(needed: Iterable[Need], absent: Iterable[Need]) -> list[Need]:
    gone = {(each.kind, each.id, each.revision) for each in absent}
    return [each for each in needed if (each.kind, each.id, each.revision) in gone]


def _check_weights(source: Source, *, device: str) -> None:
    weights, free = weight_bytes(source), available_memory()
    if weights > free and not device.startswith("cuda"):
        raise PreflightError(
            f"{source.label}: the weights are {weights / _GB:.1f} GB, and {free / _GB:.1f} GB of "
            "memory are free; use a machine with more memory"
        )


def weight_bytes(source: Source) -> int:
    """Return the size of a model's weights on disk; 0 if it has none, or they are not here."""
    parts = [source, *source.parts]
    folders = [part.folder for part in parts if part.folder is not None]
    return sum(file.stat().st_size for each in folders for file in each.glob("*.safetensors"))


def preflight(
    model: Model,
    *,
    tier: str = "smoke",
    tasks: Iterable[Any] | str | None = None,
    limit: int = 0,
    output: Path | str | None = None,
    seed: int = 0,
    runs: bool = False,
    batch_size: int = 32,
) -> Preflight:
    """Measure and compare what `evaluate` needs with the same arguments.

    Args:
        model: a loaded model.
        tier: as in `evaluate`, like the other arguments.
        tasks: tasks to run instead of the tier's.
        limit: maximum number of queries, rows and unjudged documents.
        output: folder of the records.
        seed: seed of the records.
        runs: whether searches keep their runs.
        batch_size: texts per batch.

    Raises:
        EncoderError: a batch does not fit into memory, or a vector is not finite.
    """
    selected = suite_tasks(tier=tier, tasks=tasks)
    options: dict[str, Any] = {"limit": limit, "output": output, "seed": seed, "runs": runs}
    encoders = _encoders(model)
    before = resident_memory()
    statuses = task_statuses(model, selected, **options)
    planned_at = partial(plan, model, tasks=selected, statuses=statuses, **options)
    planned, batch = planned_at(), 0
    if encoders and TO_RUN in statuses:
        speed = measure_encoding(encoders[0], batch_size=batch_size, texts=_texts(planned))
        batch = max(0, (peak_memory() or 0) - before)
        planned = planned_at(speed=speed)
    to_run = [each for each in planned if each.status == TO_RUN]
    known = [each.minutes for each in to_run if each.minutes is not None]
    minutes = Range.total(known) if known else None
    on_gpu = model.device.startswith("cuda")
    return Preflight(
        planned=tuple(planned),
        checks=(
            _memory(to_run, encoders, batch=batch),
            _disk(to_run, encoders),
            _device(model.device),
        ),
        minutes=minutes,
        gpu_hours=minutes.times(1 / 60) if minutes and on_gpu else None,
    )


def _texts(planned: Iterable[Planned]) -> int | None:
    """Return how many texts are to be encoded; None if a task does not say."""
    counts = [each.texts for each in planned if each.status == TO_RUN]
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


def _encoders(model: Model) -> list[Encoder]:
    if isinstance(model, Encoder):
        return [model]
    if isinstance(model, BM25 | Reranker):
        return []
    return [part for part in model.parts if isinstance(part, Encoder)]


def _memory(
    planned: Sequence[Planned], encoders: Sequence[Encoder], *, batch: int
) -> ResourceCheck:
    """Compare the largest search and a batch with the free memory; the model is loaded already."""
    free = available_memory()
    search, task = max(
        ((_search_bytes(each, encoders), each.task) for each in planned), default=(0, "")
    )
    needed = search + batch
    model = resident_memory() / _GB
    text = f"{needed / _GB:.1f} GB beside {model:.1f} GB loaded"
    problem = ""
    if needed > free:
        problem = (
            f"searching {task} needs about {needed / _GB:.1f} GB of memory, and "
            f"{free / _GB:.1f} GB are free; run fewer tasks with --tasks, or use a larger machine"
        )
    return ResourceCheck("memory", text, f"{free / _GB:.1f} GB", problem)


def _search_bytes(planned: Planned, encoders: Sequence[Encoder]) -> int:
    """Return the bytes of a block of vectors, of those of the queries, and of the hits."""
    floats = max((each.dimension for each in encoders), default=0)
    block = min(planned.documents, block_size(floats))
    vectors = 4 * floats * (_COPIES * block + planned.queries)
    return vectors + _HIT * planned.queries * min(planned.documents, _HITS)


def _disk(planned: Sequence[Planned], encoders: Sequence[Encoder]) -> ResourceCheck:
    """Compare the vectors to be kept with the free disk; refuse only if the least do not fit."""
    folder = paths.cache()
    free = free_disk(folder)
    kept = [each.cache for each in encoders if each.cache is not None]
    if not kept:
        return ResourceCheck("disk", "nothing: no vectors are kept", f"{free / _GB:.1f} GB")
    size = Range.total(_vector_bytes(planned, each) for each in encoders if each.cache is not None)
    if (limit := kept[0].limit) is not None:
        size = Range(min(size.low, limit), min(size.high, limit))
    problem = ""
    if size.low > free:
        problem = (
            f"keeping the vectors needs {size.times(1 / _GB).text()} GB in {folder}, and "
            f"{free / _GB:.1f} GB are free; run with --no-cache, or set QWEN3NB_CACHE to a folder "
            "on a larger disk, or --cache-limit to what may be kept"
        )
    return ResourceCheck(
        "disk", f"{size.times(1 / _GB).text(1)} GB of vectors", f"{free / _GB:.1f} GB", problem
    )


def _vector_bytes(planned: Sequence[Planned], encoder: Encoder) -> Range:
    """Return the bytes of the vectors of all texts that are not stored yet."""
    each = bytes_per_vector(encoder.width)
    stored = len(encoder.cache) if encoder.cache is not None else 0
    high = sum(task.texts or 0 for task in planned)
    low = sum(_distinct(planned))
    return Range(max(0, low - stored) * each, high * each)


def _distinct(planned: Sequence[Planned]) -> Iterator[int]:
    """Yield the texts of each task that no other planned task surely has as well."""
    names = {each.task for each in planned}
    largest: dict[str, int] = {}
    for each in planned:
        if each.task.removesuffix("HardNegatives") in names - {each.task}:
            continue  # a part of that corpus
        largest[each.dataset] = max(largest.get(each.dataset, 0), each.texts or 0)
    yield from largest.values()


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
