"""Result records: their cost, their environment, the runs next to them, and when one is reused."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from qwen3nb.datasets.trec import qrels_bytes, run_digest, write_run
from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.metrics.retrieval import Qrels
from qwen3nb.metrics.retrieval import Run as Ranked
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
from qwen3nb.records.runs import run_problems
from qwen3nb.records.side_files import run_path
from qwen3nb.records.verification import unchanged_record
from qwen3nb.utils.atomic_files import write_bytes
from qwen3nb.utils.hardware import peak_memory

log = logging.getLogger(__name__)


class Work:
    """Measure the work of a model for a record, from the creation of this object."""

    def __init__(self, model: Any = None) -> None:
        """Start measuring; ``model`` counts its work in ``stats``, None counts nothing."""
        self.model = model
        self._before = self._counts()
        self._started = time.perf_counter()

    def _counts(self) -> dict[str, float]:
        return asdict(self.model.stats if self.model is not None else Stats())

    def _done(self) -> dict[str, float]:
        return {name: value - self._before[name] for name, value in self._counts().items()}

    def cost(self) -> RunCost:
        """Seconds, texts, throughput and peak memory since the start."""
        done = self._done()
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
        done = self._done()
        named = {
            "texts cut to the maximum length": done["cut"],
            "long texts from the cache, not checked for cuts": done["unchecked"],
            "empty texts": done["empty"],
            "texts with a special token of the tokenizer": done["special"],
        }
        return {text: int(count) for text, count in named.items() if count}


def assemble(
    work: Work,
    task: TaskInfo,
    per_query: dict[str, dict[str, float]],
    *,
    config: dict[str, Any],
    seed: int,
    run: str = "",
    metrics: dict[str, Aggregate] | None = None,
    parts: tuple[Part, ...] = (),
) -> Result:
    """Assemble the record of one model on one task, without saving it.

    Args:
        work: of the model, created before the evaluation started.
        task: the evaluated task.
        per_query: column -> query id -> value.
        config: parameters to store in the record.
        seed: seed of the confidence intervals.
        run: id shared by all records of one evaluation.
        metrics: aggregate of each metric; by default the mean of every column.
        parts: splits and subsets that the metrics are means over, if there are several.
    """
    model = work.model
    info = ModelInfo(
        label=model.label,
        identity=model.identity,
        spec=model.source.spec,
        settings=model.settings,
        parameters=getattr(model, "parameters", None),
    )
    return Result(
        model=info,
        task=task,
        metrics=means(per_query, seed=seed) if metrics is None else metrics,
        per_query=per_query,
        seed=seed,
        config=config,
        environment=_environment(info, model.device, str(model.settings.get("dtype", "float32"))),
        cost=work.cost(),
        run=run,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        parts=parts,
    )


def _environment(model: ModelInfo, device: str, precision: str) -> Environment:
    """Name what rounding depends on: the library of matrix products, or the GPU and TF32."""
    linear = ""
    if model.parameters and device == "cpu" and precision == "float32":
        from qwen3nb.models.inference.onednn_linear import linear_library

        linear = linear_library()
    elif model.parameters and device.startswith("cuda"):
        import torch

        tf32 = "without" if torch.get_float32_matmul_precision() == "highest" else "with"
        linear = f"{torch.cuda.get_device_name(device)}, {tf32} TF32"
    return Environment.current(device=device, precision=precision, linear=linear)


def record_path(model: Any, task: str, *, folder: Path, seed: int) -> Path:
    """Path of the record of a model on a task."""
    return result_path(folder, f"{model.label}-{model.identity[:8]}", seed, task)


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
    try:
        result = unchanged_record(file) if file.is_file() else None
    except ResultError:
        return None
    if (
        result is None
        or result.model.identity != identity
        or result.environment.versions != Environment.current().versions
        or not same(result)
    ):
        return None
    if lacks := [name for name in metrics if name not in result.metrics]:
        log.warning("%s: evaluated again, as it was recorded without %s", file, ", ".join(lacks))
        return None
    return result


# Runs and qrels of searches, in TREC format, for programs that score runs. The record names them
# with their digests (`qwen3nb.records.runs`). They hold the queries of the record under its ids, so
# that a program with the definitions of trec_eval gets the record's score of every query. A query
# for which nothing was retrieved has no line in a run, and scores 0.


def has_runs(result: Result, folder: Path) -> bool:
    """Whether a record names its run and its qrels, and they are there as they were written."""
    named = result.config.get("runs") and result.config.get("qrels")
    return bool(named) and not any(run_problems(result.path(folder), result))


def with_runs(result: Result, folder: Path, *, run: Ranked, qrels: Qrels) -> Result:
    """Write the run and the qrels of a search; return the record that names them, to be saved.

    Raises:
        DataError: an id is empty or has white space, which TREC's formats cannot express.
    """
    named = with_qrels(result, folder, qrels)
    file, tag = result.path(folder), result.model.label
    digest = run_digest(file, run, tag=tag, distinct=True)
    written = write_run(run_path(file, digest), run, tag=tag, distinct=True)
    return replace(named, config=named.config | {"runs": {written.name: digest}})


def with_qrels(result: Result, folder: Path, qrels: Qrels) -> Result:
    """Write the qrels of a search; return the record that names them, as `with_runs`."""
    file = result.path(folder)
    data = qrels_bytes(file, qrels)
    digest = sha256(data).hexdigest()
    written = write_bytes(run_path(file, digest, kind="qrels"), data)
    return replace(result, config=result.config | {"qrels": {written.name: digest}})
