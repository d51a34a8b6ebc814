"""Whether this machine has the memory and the disk that a run needs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from qwen3nb import paths
from qwen3nb.evaluation.mteb.availability import GB, RECORDED, TO_RUN
from qwen3nb.evaluation.mteb.costs import Planned
from qwen3nb.evaluation.mteb.sizes import HITS
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.search.searcher import Searcher
from qwen3nb.utils.hardware import free_disk
from qwen3nb.vectors.cache import bytes_per_vector, cache_folder, cache_limit
from qwen3nb.vectors.encode_file import block_size

# Bytes of memory.
_BYTES_PER_HIT = 256  # the score of a document by name, in MTEB's run and in a copy of it
_BYTES_PER_KEPT_HIT = 40  # a hit as numbers, in the run of its part and in that of the task
_BYTES_PER_CANDIDATE = 320  # a candidate of a query, and its judgement
_BYTES_PER_QUERY = 4096  # a query with its scores
_BYTES_PER_ID = 130  # the id of a document
_COPIES_OF_TEXTS = 3  # of the vectors of all texts, or of all queries
_COPIES_OF_BLOCK = 4  # of a block of vectors: as encoded, in order, and scaled in float64


@dataclass(frozen=True)
class ResourceCheck:
    """A need of the run compared with the machine."""

    name: str  # ``memory`` or ``disk``; with the needed and available amounts as text
    needed: str
    available: str
    problem: str = ""  # why the run cannot be finished, with a remedy; empty if it can
    parts: Mapping[str, float] = field(default_factory=dict)  # bytes by what they are for


def task_memory(task: Planned, width: int, batch: int, searchers: Sequence[Searcher]) -> int:
    """Return the bytes for a task and a batch, besides the loaded model.

    ``width`` is that of a vector, 0 without an encoder.
    """
    vector = 4 * width  # bytes, 4 of each float32
    if not task.documents:
        return batch + vector * _COPIES_OF_TEXTS * (task.texts or 0)
    vectors_at_once = min(task.documents, block_size(width))
    vectors = vector * (_COPIES_OF_BLOCK * vectors_at_once + _COPIES_OF_TEXTS * task.queries)
    # Of several parts, one is in MTEB's hands at a time, and the others are kept as numbers.
    number_of_hits = max(task.part_hits, default=task.hits)
    number_kept = sum(task.part_hits)
    if searchers and not width:  # which give no score to some documents
        number_of_hits = int(number_of_hits * _scored_share(task, searchers))
    hits = _BYTES_PER_HIT * number_of_hits + _BYTES_PER_KEPT_HIT * number_kept
    ids = (
        _BYTES_PER_CANDIDATE * task.candidates
        + _BYTES_PER_QUERY * task.queries
        + _BYTES_PER_ID * task.documents
    )
    index = sum(searcher.index_memory(task.characters) for searcher in searchers)
    return batch + vectors + hits + ids + index


def _scored_share(task: Planned, searchers: Sequence[Searcher]) -> float:
    """Return how much of its candidates or hits a query gets, by the searcher with the most."""
    if task.candidates:
        return max(searcher.matched_share for searcher in searchers)
    return max(searcher.found_share(task.documents, HITS) for searcher in searchers)


def too_large(tasks: Iterable[Planned], needs: Mapping[str, int], free: int) -> dict[str, str]:
    """Return why tasks are left out for lack of memory; none if no other task remains."""
    possible = [task for task in tasks if task.status in (TO_RUN, RECORDED)]
    reasons = {}
    for task in possible:
        if task.status == TO_RUN and needs[task.task] > free:
            reasons[task.task] = (
                f"it needs about {needs[task.task] / GB:.1f} GB of memory, and "
                f"{free / GB:.1f} GB are free; run it with --tasks on a larger machine"
            )
    # Nothing else could be run: leave all in, and let `memory_check` refuse the run.
    if len(reasons) == len(possible):
        return {}
    return reasons


def memory_check(needed: int, task: str, *, loaded: int, free: int) -> ResourceCheck:
    """Compare the bytes of the largest task with the free memory."""
    text = f"{needed / GB:.1f} GB next to {loaded / GB:.1f} GB loaded"
    problem = ""
    if needed > free:
        problem = (
            f"{task} needs about {needed / GB:.1f} GB of memory, and {free / GB:.1f} GB are "
            "free; use a larger machine, or a smaller part with --limit"
        )
    parts = {"loaded": loaded, "needed": needed}
    return ResourceCheck("memory", text, f"{free / GB:.1f} GB", problem, parts)


def disk_check(
    tasks: Sequence[Planned],
    encoders: Sequence[Encoder],
    searchers: Sequence[Searcher],
    *,
    fresh: bool = False,
) -> ResourceCheck:
    """Compare vectors and indexes to be kept, and prepared data, with the free disk."""
    folder = paths.cache()
    free = free_disk(folder)
    indexes = 0
    for searcher in searchers:
        indexes += sum(searcher.index_disk(task.documents, task.characters) for task in tasks)
    parts = {
        "vectors": _vector_bytes(tasks, encoders, fresh=fresh),
        "indexes of BM25": indexes,
        "prepared data": _prepared_bytes(tasks),
    }
    limit = cache_limit(cache_folder())
    not_stored = max(0, parts["vectors"] - limit)
    size = sum(parts.values()) - not_stored
    text = _disk_text(size, parts)
    if not_stored:
        text += f"; --cache-limit keeps {limit / GB:,.1f} of vectors"
    problem = ""
    if size > free:
        problem = (
            f"the run needs {size / GB:,.1f} GB of disk in {folder}, and {free / GB:.1f} GB are "
            "free; run with --no-cache, or set QWEN3NB_CACHE to a folder on a larger disk, or "
            "--cache-limit to what may be kept"
        )
    return ResourceCheck("disk", text, f"{free / GB:.1f} GB", problem, parts)


def _disk_text(size: int, parts: Mapping[str, int]) -> str:
    """Return the needed gigabytes, and what they are for."""
    text = f"{size / GB:,.1f} GB"
    amounts = [f"{part / GB:,.1f} of {name}" for name, part in parts.items() if part]
    if amounts:
        text += f": {', '.join(amounts)}"
    return text


def _vector_bytes(tasks: Sequence[Planned], encoders: Sequence[Encoder], *, fresh: bool) -> int:
    """Return the bytes of vectors to be cached; each data set counts once."""
    number_of_texts = _distinct_texts(tasks)
    size = 0
    for encoder in encoders:
        if encoder.cache is None:
            continue
        number_to_store = number_of_texts
        if not fresh:
            number_to_store = max(0, number_of_texts - len(encoder.cache))
        size += number_to_store * bytes_per_vector(encoder.width, half=encoder.cache.half)
    return size


def _distinct_texts(tasks: Sequence[Planned]) -> int:
    """Return the number of texts of all data sets."""
    names = {task.task for task in tasks}
    texts_by_data_set: dict[str, int] = {}
    for task in tasks:
        # Hard negatives are part of the full corpus, which has another id.
        full_task = task.task.removesuffix("HardNegatives")
        is_part_of_another = full_task != task.task and full_task in names
        if not is_part_of_another:
            texts = texts_by_data_set.get(task.dataset, 0)
            texts_by_data_set[task.dataset] = max(texts, task.texts or 0)
    return sum(texts_by_data_set.values())


def _prepared_bytes(tasks: Sequence[Planned]) -> int:
    """Return the bytes of prepared data; each data set counts once."""
    prepared = {task.dataset: task.prepared for task in tasks}
    return sum(prepared.values())
