"""Estimate the encoding time of tasks before running them.

Task sizes are MTEB's published statistics of the selected splits and subsets. Speed is measured
on this device with the model itself, at three lengths of text, each several times after a
warm-up. Texts differ in tokens per character and in length, so an estimate is a range.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from qwen3nb.datasets.mirror import data_revision, mirrored
from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.types import EncoderError

__all__ = ["Cost", "EncodingSpeed", "Range", "costs", "measure_encoding"]

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


class Range(NamedTuple):
    """An estimate, from its lowest to its highest value."""

    low: float
    high: float

    def times(self, factor: float) -> Range:
        """Return the range multiplied by ``factor``."""
        return Range(self.low * factor, self.high * factor)

    @staticmethod
    def total(ranges: Iterable[Range]) -> Range:
        """Return the sum of ranges.

        >>> Range.total([Range(1, 2), Range(3, 5)])
        Range(low=4, high=7)
        """
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
    """Measured seconds per text by length.

    Attributes:
        characters: lengths in characters, ascending.
        fastest: seconds per text in the fastest repeat, per length.
        median: median of the repeats.
        slowest: slowest repeat.
    """

    characters: tuple[int, ...]
    fastest: tuple[float, ...]
    median: tuple[float, ...]
    slowest: tuple[float, ...]

    def seconds(self, length: float) -> Range:
        """Return the seconds for a text of ``length`` characters, between those measured."""
        return Range(
            _interpolated(length, self.characters, self.fastest),
            _interpolated(length, self.characters, self.slowest),
        )


@dataclass(frozen=True)
class Cost:
    """The estimated cost of one task.

    Attributes:
        task: name of the task.
        type: MTEB task type.
        revision: revision of its data.
        texts: distinct texts to encode; None if MTEB does not publish the number.
        minutes: time to encode them at the measured speed; None if either is unknown.
        documents: texts of the largest corpus searched; 0 for other tasks.
        queries: queries to it.
    """

    task: str
    type: str
    revision: str
    texts: int | None
    minutes: Range | None
    documents: int = 0
    queries: int = 0


def costs(
    tasks: Iterable[Any], *, speed: EncodingSpeed | None = None, max_length: int | None = None
) -> list[Cost]:
    """Estimate the cost of each task; aggregate tasks are split into their parts.

    Args:
        tasks: MTEB task objects.
        speed: from `measure_encoding`.
        max_length: number of tokens after which texts are truncated.
    """
    parts = (part for task in tasks for part in getattr(task.metadata, "tasks", None) or [task])
    return [_cost(part, speed, max_length) for part in parts]


def _cost(task: Any, speed: EncodingSpeed | None, max_length: int | None) -> Cost:
    columns = [each for stats in _selected(task) for each in _columns(stats)]
    scale = _scale(task, sum(each.texts * each.average for each in columns))
    counts = {each.name: round(each.texts * scale) for each in columns}
    texts = round(sum(each.texts for each in columns) * scale)
    minutes = None
    if speed is not None and texts:
        ranges = (_seconds(each, speed, max_length) for each in columns)
        minutes = Range.total(ranges).times(scale / 60)
    return Cost(
        task=task.metadata.name,
        type=task.metadata.type,
        revision=data_revision(task)[:12],
        texts=texts or None,
        minutes=minutes,
        documents=counts.get("documents", 0),
        queries=counts.get("queries", 0),
    )


class _Column(NamedTuple):
    """The published statistics of one column of texts."""

    name: str
    texts: int
    average: float  # characters per text


def _selected(task: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the published statistics of the evaluated splits, by subset if not all are."""
    every = task.metadata.descriptive_stats or {}
    for split in task.eval_splits:
        stats = every.get(split) or {}
        subsets = stats.get("hf_subset_descriptive_stats") or {}
        selected = [subsets[name] for name in task.hf_subsets if name in subsets]
        if selected and set(task.hf_subsets) != set(task.metadata.hf_subsets):
            yield from selected
        elif stats:
            yield stats


def _columns(stats: Mapping[str, Any]) -> Iterator[_Column]:
    for name, column in stats.items():
        if "statistics" in name and isinstance(column, dict) and column.get("unique_texts"):
            texts = int(column["unique_texts"])
            total = column.get("total_text_length", 0)
            yield _Column(
                name.partition("_")[0],
                texts,
                float(column.get("average_text_length") or total / texts),
            )


def _scale(task: Any, characters: float) -> float:
    """Return which share of the published size a local copy can hold, by its bytes.

    A miniature of a data set has neither its size nor its cost.
    """
    folder = mirrored(task.metadata.dataset["path"])
    if folder is None or not characters:
        return 1.0
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return min(1.0, _COMPRESSION * size / characters)


def _seconds(column: _Column, speed: EncodingSpeed, max_length: int | None) -> Range:
    length = column.average
    if max_length is not None:
        length = min(length, max_length * _CHARACTERS)
    return speed.seconds(length).times(column.texts)


def _interpolated(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return y at ``x`` on the line through the points, constant outside them."""
    for (left, low), (right, high) in pairwise(zip(xs, ys, strict=True)):
        if x <= right:
            share = max(0.0, (x - left) / (right - left))
            return low + share * (high - low)
    return ys[-1]


def measure_encoding(
    encoder: Encoder, *, batch_size: int = 32, texts: int | None = None
) -> EncodingSpeed:
    """Encode short, medium and the longest texts, several times each.

    On a GPU, at least ``batch_size`` texts of each length are encoded at once; on the CPU,
    where memory is not the limit, as many as take about a second.

    Args:
        encoder: the model.
        batch_size: texts per batch.
        texts: how many are to be encoded, if that is known; a few that are quick are not worth
            repeats.

    Raises:
        EncoderError: the texts do not fit into memory, or a vector is not finite.
    """
    limit = getattr(encoder, "max_length", None)
    longest = int(limit * _CHARACTERS) if limit else _LONGEST
    lengths = sorted({min(each, longest) for each in (*_LENGTHS, longest)})
    stream = " ".join(load_pydocs().corpus.values())
    least = 1 if encoder.device == "cpu" else batch_size
    _timed(encoder, _sample(stream, _LENGTHS[0], _WARM_UP))
    samples = []
    for length in lengths:
        characters = int(length * _SURPLUS) if length == longest else length
        chunk = _sample(stream, characters, _CHUNK)
        samples.append(_repeats(encoder, chunk, least=least, all_texts=texts))
    return EncodingSpeed(
        characters=tuple(lengths),
        fastest=tuple(min(each) for each in samples),
        median=tuple(statistics.median(each) for each in samples),
        slowest=tuple(max(each) for each in samples),
    )


def _sample(stream: str, characters: int, count: int) -> list[str]:
    """Return distinct texts of one length from a long text."""
    step = max(1, (len(stream) - characters) // count)
    return [stream[i * step : i * step + characters] for i in range(count)]


def _repeats(
    encoder: Encoder, texts: Sequence[str], *, least: int, all_texts: int | None
) -> list[float]:
    """Return the seconds per text of several repeats, on as many texts as take long enough."""
    count = min(least, len(texts))
    taken = _timed(encoder, texts[:count])
    while taken < _ENOUGH and count < len(texts):
        count = min(4 * count, len(texts))
        taken = _timed(encoder, texts[:count])
    samples, started = [taken / count], time.perf_counter()
    repeats = _REPEATS if all_texts is None or count <= _SHARE * all_texts else 1
    while len(samples) < repeats and time.perf_counter() - started < _BUDGET:
        samples.append(_timed(encoder, texts[:count]) / count)
    return samples[1:] or samples  # the first call of a shape is a warm-up


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
