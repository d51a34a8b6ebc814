"""Estimate the encoding time of tasks before running them.

Task sizes are MTEB's published statistics; throughput is measured on this device, with the
model itself, on a short sample. Texts differ in tokens per character, so the result is
only an estimate.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from qwen3nb.models.encoders.base import Encoder

__all__ = ["Cost", "costs", "throughput"]

_SAMPLE = 128  # texts, at most
_ENOUGH = 5.0  # seconds of measuring, at most
_CHARACTERS = 4.5  # per token of English text, on average


@dataclass(frozen=True)
class Cost:
    """The estimated cost of one task.

    Attributes:
        task: name of the task.
        type: MTEB task type.
        revision: revision of its data.
        texts: distinct texts to encode; None if MTEB does not publish the number.
        minutes: time to encode them at the measured throughput; None if either is unknown.
    """

    task: str
    type: str
    revision: str
    texts: int | None
    minutes: float | None


def costs(
    tasks: Iterable[Any],
    *,
    characters_per_second: float | None = None,
    max_length: int | None = None,
) -> list[Cost]:
    """Estimate the cost of each task; aggregate tasks are split into their parts.

    Args:
        tasks: MTEB task objects.
        characters_per_second: from `throughput`.
        max_length: number of tokens after which texts are truncated.
    """
    estimates = []
    for task in tasks:
        for part in getattr(task.metadata, "tasks", None) or [task]:
            texts = characters = 0
            for count, total in _texts(part.metadata.descriptive_stats or {}, part.eval_splits):
                texts += count
                cut = total if max_length is None else min(total, count * max_length * _CHARACTERS)
                characters += int(cut)
            minutes = (
                characters / characters_per_second / 60 if characters_per_second and texts else None
            )
            data = part.metadata.dataset
            estimates.append(
                Cost(
                    part.metadata.name,
                    part.metadata.type,
                    str(data.get("revision"))[:12],
                    texts or None,
                    minutes,
                )
            )
    return estimates


def _texts(stats: Mapping[str, Any], splits: Iterable[str]) -> Iterator[tuple[int, float]]:
    """Yield the number of distinct texts and of characters, per column of the evaluated splits."""
    for split in splits:
        for name, column in (stats.get(split) or {}).items():
            if "statistics" in name and isinstance(column, dict) and column.get("unique_texts"):
                count = int(column["unique_texts"])
                average = column.get("average_text_length")
                total = count * average if average else column.get("total_text_length", 0)
                yield count, float(total)


def throughput(encoder: Encoder) -> float:
    """Measure encoded characters per second on a sample of PyDocs, after a warm-up."""
    from qwen3nb.datasets.pydocs.build import load_pydocs

    corpus = list(load_pydocs().corpus.values())
    sample = corpus[:: max(1, len(corpus) // _SAMPLE)][:_SAMPLE]
    encoder._embed(sample[:8])
    started, characters, taken = time.perf_counter(), 0, 0.0
    for start in range(0, len(sample), 32):
        part = sample[start : start + 32]
        encoder._embed(part)
        characters += sum(map(len, part))
        taken = time.perf_counter() - started
        if taken > _ENOUGH:
            break
    return characters / taken
