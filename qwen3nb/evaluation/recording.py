"""What every record has in common, whatever was measured: whose, what it cost, is it there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.models.counters import Stats
from qwen3nb.records.record import Environment, ModelInfo, Result, ResultError, RunCost
from qwen3nb.utils.hardware import peak_memory

__all__ = ["Work", "finished", "means", "model_info", "stored"]


class Work:
    """What a record costs, from the moment this is made."""

    def __init__(self, model: Any = None) -> None:
        """Start; ``model`` counts in its ``stats``; None for what counts nothing."""
        self._model = model
        self._before = self._counts()
        self._started = time.perf_counter()

    def _counts(self) -> dict[str, float]:
        return asdict(self._model.stats if self._model is not None else Stats())

    def cost(self) -> RunCost:
        """Seconds, texts, speed and memory since then."""
        done = {name: value - self._before[name] for name, value in self._counts().items()}
        return RunCost(
            seconds=time.perf_counter() - self._started,
            texts=int(done["texts"]),
            encoded=int(done["encoded"]),
            cached=int(done["cached"]),
            texts_per_second=done["encoded"] / done["seconds"] if done["seconds"] else None,
            peak_memory_bytes=peak_memory(),
        )


def model_info(model: Any) -> ModelInfo:
    """Whose record it is."""
    return ModelInfo(
        label=model.label,
        identity=model.identity,
        spec=model.source.spec,
        settings=model.settings,
        parameters=getattr(model, "parameters", None),
    )


def means(
    per_query: Mapping[str, Mapping[str, float]], names: Iterable[str] | None = None, *, seed: int
) -> dict[str, Aggregate]:
    """The mean of each column, with its interval; of all columns unless ``names`` says which."""
    return {
        name: aggregate(per_query, how="mean", columns=(name,), seed=seed)
        for name in (per_query if names is None else names)
    }


def stored(file: Path, *, identity: str, same: Callable[[Result], bool]) -> Result | None:
    """The record in ``file``, if it is this model's, made with this software, and the ``same``.

    An unreadable one is None, like none at all: it is made again and the file replaced.
    """
    if not file.is_file():
        return None
    try:
        result = Result.load(file)
    except ResultError:
        return None
    own = (
        result.model.identity == identity
        and result.environment.versions == Environment.current().versions
    )
    return result if own and same(result) else None


def finished() -> str:
    """Now, as a record has it: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
