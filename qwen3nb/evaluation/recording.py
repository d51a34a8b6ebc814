"""Assemble result records from model, task, scores and cost; look up stored ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.models.counters import Stats
from qwen3nb.records.errors import ResultError
from qwen3nb.records.record import (
    Environment,
    ModelInfo,
    Part,
    Result,
    RunCost,
    TaskInfo,
    result_path,
)
from qwen3nb.records.verification import unchanged_record
from qwen3nb.utils.files.turns import turn
from qwen3nb.utils.hardware import peak_memory

log = logging.getLogger(__name__)
__all__ = ["Work", "assemble", "evaluating", "means", "model_info", "record_path", "stored"]


class Work:
    """Measure the cost of a record, from the creation of this object."""

    def __init__(self, model: Any = None) -> None:
        """Start measuring; ``model`` counts its work in ``stats``, None counts nothing."""
        self._model = model
        self._before = self._counts()
        self._started = time.perf_counter()

    def _counts(self) -> dict[str, float]:
        return asdict(self._model.stats if self._model is not None else Stats())

    def cost(self) -> RunCost:
        """Seconds, texts, throughput and peak memory since the start."""
        done = {name: value - self._before[name] for name, value in self._counts().items()}
        return RunCost(
            seconds=time.perf_counter() - self._started,
            texts=int(done["texts"]),
            encoded=int(done["encoded"]),
            cached=int(done["cached"]),
            texts_per_second=done["encoded"] / done["seconds"] if done["seconds"] else None,
            peak_memory_bytes=peak_memory(),
        )

    def counts(self) -> dict[str, int]:
        """Texts cut, empty or with special tokens since the start, if any.

        Only encoded texts are seen to be cut: long ones from the cache are counted as such.
        """
        done = self._counts()
        named = {
            "texts cut to the maximum length": "cut",
            "long texts from the cache, not checked for cuts": "unchecked",
            "empty texts": "empty",
            "texts with a special token of the tokenizer": "special",
        }
        since = {text: int(done[name] - self._before[name]) for text, name in named.items()}
        return {text: count for text, count in since.items() if count}


def assemble(
    *,
    model: ModelInfo,
    task: TaskInfo,
    per_query: dict[str, dict[str, float]],
    work: Work,
    seed: int,
    run: str,
    config: dict[str, Any],
    metrics: dict[str, Aggregate] | None = None,
    parts: tuple[Part, ...] = (),
    device: str = "cpu",
    precision: str = "float32",
) -> Result:
    """Assemble the record of one model on one task, without saving it.

    Args:
        model: from `model_info`.
        task: the evaluated task.
        per_query: column -> query id -> value.
        work: created before the evaluation started; measures its cost.
        seed: seed of the confidence intervals.
        run: id shared by all records of one evaluation.
        config: parameters to store in the record.
        metrics: aggregate of each metric; by default the mean of every column.
        parts: splits and subsets that the metrics are means over, if there are several.
        device: where the model ran.
        precision: data type of its weights.
    """
    return Result(
        model=model,
        task=task,
        metrics=means(per_query, seed=seed) if metrics is None else metrics,
        per_query=per_query,
        seed=seed,
        config=config,
        environment=_environment(model, device=device, precision=precision),
        cost=work.cost(),
        run=run,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        parts=parts,
    )


def _environment(model: ModelInfo, *, device: str, precision: str) -> Environment:
    linear = ""
    if model.parameters and device == "cpu" and precision == "float32":
        from qwen3nb.models.inference.onednn_linear import linear_library

        linear = linear_library()
    elif model.parameters and device.startswith("cuda"):
        linear = _gpu_products(device)
    return Environment.current(device=device, precision=precision, linear=linear)


def _gpu_products(device: str) -> str:
    """Return the GPU, on which rounding depends, and whether float32 is rounded to TF32."""
    import torch

    tf32 = "without" if torch.get_float32_matmul_precision() == "highest" else "with"
    return f"{torch.cuda.get_device_name(device)}, {tf32} TF32"


def model_info(model: Any) -> ModelInfo:
    """Label, identity, spec, settings and size of a loaded model."""
    return ModelInfo(
        label=model.label,
        identity=model.identity,
        spec=model.source.spec,
        settings=model.settings,
        parameters=getattr(model, "parameters", None),
    )


def record_path(model: Any, task: str, *, folder: Path, seed: int) -> Path:
    """Path of the record of a loaded model on a task."""
    return result_path(folder, f"{model.label}-{model.identity[:8]}", seed, task)


def evaluating(file: Path) -> AbstractContextManager[None]:
    """Let no other process make the same record during a block; it finds what this one saves."""
    return turn(file, what="evaluates")


def means(
    per_query: Mapping[str, Mapping[str, float]], names: Iterable[str] | None = None, *, seed: int
) -> dict[str, Aggregate]:
    """Mean of each column in ``names`` (by default all), with its confidence interval."""
    return {
        name: aggregate(per_query, how="mean", columns=(name,), seed=seed)
        for name in (per_query if names is None else names)
    }


def stored(
    file: Path, *, identity: str, metrics: Iterable[str], same: Callable[[Result], bool]
) -> Result | None:
    """Return the record in ``file`` if it can be reused, else None.

    A record is reused if it belongs to the model with ``identity``, was made with the
    installed versions, has all ``metrics``, and ``same`` accepts it. A record that cannot be
    read, or that was changed after it was written, counts as missing: the task runs again and it
    is replaced.
    """
    if not file.is_file():
        return None
    try:
        result = unchanged_record(file)
    except ResultError:
        return None
    own = (
        result.model.identity == identity
        and result.environment.versions == Environment.current().versions
    )
    if not (own and same(result)):
        return None
    if lacks := [name for name in metrics if name not in result.metrics]:
        log.warning("%s: evaluated again, as it was recorded without %s", file, ", ".join(lacks))
        return None
    return result
