"""How fast a model encodes, searches and indexes on this machine.

`measure_speeds` encodes short, medium and long texts, searches random vectors and indexes texts.
The other constants hold for one core of an AMD EPYC (family 23, model 1); `measure_slowdown` says
how much longer, or shorter, work takes on a core of this machine.

Beside other programs, a short sample is served at once or waits for long, and neither tells how
long a run of minutes takes. So a sample counts by its processor time, which others hardly change;
`Clock` then says how long a second of that takes here and now.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.evaluation.mteb.sizes import HITS, TaskPart
from qwen3nb.models.capabilities import LoadedModel, encodes, searches
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.api import RefusedError
from qwen3nb.models.search.dense import search_options
from qwen3nb.models.search.exact import search
from qwen3nb.models.search.searcher import Searcher
from qwen3nb.models.types import EncoderError
from qwen3nb.utils.hardware import cores

_CHARACTERS_PER_TOKEN = 4.5  # of English text, on average
_SURPLUS = 1.5  # factor of characters with which texts reach the maximum number of tokens
_SHORT_TEXT, _MEDIUM_TEXT = 20, 450  # characters
_LONGEST_BY_DEFAULT = 2300  # characters, for models without a maximum length
_WARM_UP_TEXTS = 8
_SEARCH_QUERIES, _SEARCH_DOCUMENTS = 256, 16_384  # of a search that is timed
_CHARACTERS_AT_ONCE = 10_000  # of texts encoded at once, or more
_MAX_TEXTS = 512  # encoded at once, as in `Encoder`
_ENOUGH_SECONDS = 0.2  # of the processor, for a sample that is large enough
_ENOUGH_SECONDS_FOR_ONE = 1.0  # of one text, if no more need be timed
_MOST_INDEXINGS = 8  # of the texts of a sample
_SLICES, _DOCUMENTS_OF_SLICE = 8, 10_000  # of work on one core, and the documents ranked in one
_REFERENCE_SECONDS = 0.014  # of a slice, on the processor of the constants
_LEAST_CPU = 1e-9  # seconds of a sample, which may wait only
_SECONDS_PER_RERANKED_QUERY = 1.2e-3  # of a core, by vectors


@dataclass(frozen=True)
class EncodingSpeed:
    """Seconds per text by length in characters, ascending, up to the maximum length."""

    characters: tuple[int, ...]
    seconds: tuple[float, ...]
    pair: float = 0.0  # seconds per query and document compared
    query: float = 0.0  # seconds per query with candidates
    slowdown: float = 1.0  # times as long as a core takes that the constants were measured on

    def on(self, part: TaskPart) -> float:
        """Return the seconds to encode or index the texts of a part, and to search its corpus."""
        encoding = 0.0
        for column in part.encoded:
            seconds_per_text = float(np.interp(column.length, self.characters, self.seconds))
            encoding += column.texts * seconds_per_text
        if part.candidates:
            return encoding + self.query * part.queries
        return encoding + self.pair * part.queries * part.documents


class Clock:
    """Times samples of a model's work.

    Attributes:
        on_cpu: whether the processor does the work; else the time of a GPU or server counts.
    """

    def __init__(self, *, on_cpu: bool = True) -> None:
        self.on_cpu = on_cpu
        self._samples: list[tuple[float, float]] = []  # seconds, and those of the processor

    def cost(self, work: Callable[[], object]) -> float:
        """Do some work, and return its seconds of the processor (of all threads), or of a wait."""
        started = time.perf_counter()
        cpu_started = time.process_time()
        work()
        cpu = max(_LEAST_CPU, time.process_time() - cpu_started)
        seconds = time.perf_counter() - started
        self._samples.append((seconds, cpu))
        return cpu if self.on_cpu else seconds

    @property
    def stretch(self) -> float:
        """Seconds that a unit of `cost` takes: the median of all samples, by their weight.

        Two busy threads take half a second for one of the processor, and more beside others. A
        median is not moved by a sample that stalls.
        """
        if not self.on_cpu:
            return 1.0
        ratios = sorted((seconds / cpu, cpu) for seconds, cpu in self._samples)
        half = sum(cpu for _, cpu in ratios) / 2
        weight = 0.0
        for ratio, cpu in ratios:
            weight += cpu
            if weight >= half:
                return ratio
        return 1.0


def measure_speeds(
    model: LoadedModel, *, batch_size: int = 32, tokens_per_second: float = 0
) -> list[EncodingSpeed]:
    """Measure the parts of a model that encode or index texts.

    With ``tokens_per_second`` of a GPU, encoders are planned for that GPU instead of being timed.

    Raises:
        EncoderError: a batch does not fit into memory, or a vector is not finite.
    """
    speeds = []
    for part in model.parts:
        if encodes(part):
            if tokens_per_second:
                speeds.append(_speed_on_gpu(part, tokens_per_second))
            else:
                speeds.append(measure_encoding(part, batch_size=batch_size))
        elif searches(part):
            speeds.append(measure_indexing(part))
    return speeds


def _speed_on_gpu(encoder: Encoder, tokens_per_second: float) -> EncodingSpeed:
    """Return the speed of a GPU, whose time grows with the length of a text."""
    longest = _longest(encoder)
    seconds = longest / _CHARACTERS_PER_TOKEN / tokens_per_second
    return EncodingSpeed((0, longest), (0, seconds), query=_SECONDS_PER_RERANKED_QUERY)


def measure_encoding(encoder: Encoder, *, batch_size: int = 32) -> EncodingSpeed:
    """Encode short, medium and long texts, for about half a second each, and search vectors.

    Raises:
        EncoderError: the texts do not fit into memory, or a vector is not finite.
    """
    longest = _longest(encoder)
    lengths = sorted({min(length, longest) for length in (_SHORT_TEXT, _MEDIUM_TEXT, longest)})
    clock = Clock(on_cpu=encoder.device == "cpu")
    # Warms up, and tells nothing of the time.
    time_encoding(encoder, _sample(_SHORT_TEXT, _WARM_UP_TEXTS), Clock())
    costs: list[float] = []  # of a text of each length
    for length in lengths:
        characters = length
        if length == longest:
            # With a surplus, every text surely reaches the maximum number of tokens.
            characters = int(length * _SURPLUS)
        texts = _sample(characters, _MAX_TEXTS)
        try:
            costs.append(_cost_per_text(encoder, texts, batch_size, clock))
        except RefusedError:  # longer than a server takes
            break
    measured_lengths = lengths[: len(costs)]
    pair = _seconds_per_pair(encoder)
    slowdown = measure_slowdown()
    return EncodingSpeed(
        tuple(measured_lengths),
        tuple(clock.stretch * cost for cost in costs),
        pair=pair,
        query=_SECONDS_PER_RERANKED_QUERY * slowdown,
        slowdown=slowdown,
    )


def measure_slowdown() -> float:
    """Return how many times as long work on one core takes now as the constants say.

    Another processor is quicker or slower, and other programs take their share of it.
    """
    clock = Clock()
    costs = [clock.cost(_rank_documents) for _ in range(_SLICES)]
    return min(costs) / _REFERENCE_SECONDS * max(1.0, clock.stretch)


def _rank_documents() -> list[str]:
    """Do a slice of work like that on a run: scores by name, and their order."""
    scores = {f"document-{n}": 0.618 * n % 1 for n in range(_DOCUMENTS_OF_SLICE)}
    return sorted(scores, key=lambda name: (scores[name], name))


def _cost_per_text(encoder: Encoder, texts: Sequence[str], batch_size: int, clock: Clock) -> float:
    """Return the cost of encoding one of many texts of equal length.

    As many are encoded at once as fill passes: a few would take longer than their share. One that
    takes a second is enough.
    """
    # A long text may take so long that it is enough.
    cost = time_encoding(encoder, texts[:1], clock)
    if cost >= _ENOUGH_SECONDS_FOR_ONE:
        return cost
    characters_per_text = len(texts[0])
    count = max(batch_size, _CHARACTERS_AT_ONCE // characters_per_text)
    count = min(count, len(texts))
    cost = time_encoding(encoder, texts[:count], clock)
    while cost < _ENOUGH_SECONDS and count < len(texts):
        count = min(4 * count, len(texts))
        cost = time_encoding(encoder, texts[:count], clock)
    return cost / count


def _longest(encoder: Encoder) -> int:
    """Return the number of characters that fill the maximum length of an encoder."""
    tokens = getattr(encoder, "max_length", None) or 0
    return int(tokens * _CHARACTERS_PER_TOKEN) or _LONGEST_BY_DEFAULT


def _seconds_per_pair(encoder: Encoder) -> float:
    """Return the seconds for a query and a document of a large corpus, by exact search."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((_SEARCH_DOCUMENTS, encoder.dimension), dtype=np.float32)
    # On a GPU, the host waits for the search.
    clock = Clock(on_cpu=not encoder.device.startswith("cuda"))
    options = search_options(encoder)
    cost = clock.cost(lambda: search(vectors[:_SEARCH_QUERIES], vectors, k=HITS, **options))
    return clock.stretch * cost / (_SEARCH_QUERIES * _SEARCH_DOCUMENTS)


def measure_indexing(model: Searcher) -> EncodingSpeed:
    """Index texts of medium length, after a warm-up; the time is that of their characters."""
    model.index_texts(_sample(_MEDIUM_TEXT, _WARM_UP_TEXTS))  # warms up
    texts = _sample(_MEDIUM_TEXT, _MAX_TEXTS)
    clock = Clock()
    costs: list[float] = []
    while sum(costs) < _ENOUGH_SECONDS and len(costs) < _MOST_INDEXINGS:
        costs.append(clock.cost(lambda: model.index_texts(texts)))
    seconds_per_character = clock.stretch * min(costs) / (_MAX_TEXTS * _MEDIUM_TEXT)
    slowdown = measure_slowdown()
    # Its time grows with the number of characters: two lengths tell the time of any other.
    million = 10**6
    return EncodingSpeed(
        (0, million),
        (0, million * seconds_per_character),
        pair=slowdown * model.seconds_per_pair / cores(),
        query=slowdown * model.seconds_per_candidates,
        slowdown=slowdown,
    )


def _sample(characters: int, count: int) -> list[str]:
    """Return texts of so many characters from PyDocs."""
    stream = " ".join(load_pydocs().corpus.values())
    step = max(1, (len(stream) - characters) // count)
    starts = [number * step for number in range(count)]
    return [stream[start : start + characters] for start in starts]


def time_encoding(encoder: Encoder, texts: Sequence[str], clock: Clock) -> float:
    """Return the cost of encoding texts: the least of two, as a busy machine may stall.

    A server, where tokens may be paid, encodes them once.

    Raises:
        EncoderError: the texts do not fit into memory.
    """
    repetitions = 2
    if encoder.device == "server":
        repetitions = 1
    rows = range(len(texts))
    costs = []
    for _ in range(repetitions):
        try:
            # Encodes them past the cache: all rows, each the text at its own position.
            costs.append(clock.cost(lambda: encoder._checked(rows, texts, rows)))
        except (MemoryError, RuntimeError) as error:
            # PyTorch raises a RuntimeError that says so.
            is_out_of_memory = isinstance(error, MemoryError) or "memory" in str(error).lower()
            if not is_out_of_memory:
                raise
            raise EncoderError(
                f"{encoder.label}: {len(texts)} texts of {len(texts[0]):,} characters do not fit "
                f"into the memory of {encoder.device}; use a smaller --batch-size or "
                "--max-length, or --dtype bfloat16"
            ) from error
    return min(costs)
