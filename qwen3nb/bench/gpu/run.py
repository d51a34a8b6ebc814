"""Benchmark encoding and reranking on a GPU, in 16 bits, against sentence-transformers.

First equality: a sample of texts against float32 on the CPU, and against itself one text at a
time, because a GPU's kernels depend on the size of a pass (see
`qwen3nb.models.inference.runner`). Then speed: texts are tokenised, encoded and written to disk,
with sentence-transformers in turn at its best attention and batch size, beside the rate of matrix
products that was measured just before. Weights are random, of the shapes of real models.

The number of texts follows from the time there is, so that the whole table ends in time.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from qwen3nb.bench.encode import machine, peer_vectors
from qwen3nb.bench.gpu.random_models import (
    SHAPES,
    Texts,
    load_peers,
    load_random,
    write_encoder,
)
from qwen3nb.bench.gpu.results import GpuBench, GpuEquality, GpuSpeed
from qwen3nb.bench.machine_limits import MatrixPeak, encoder_work
from qwen3nb.bench.rerank_baselines import QUERY, cross_encoder, predict, write_random_reranker
from qwen3nb.models.inference.token_budget import is_out_of_memory
from qwen3nb.models.modeling.runtime import pick_device
from qwen3nb.models.rerankers.load import load_reranker
from qwen3nb.models.types import Vectors
from qwen3nb.utils.atomic_files import write_json
from qwen3nb.utils.choices import one_of

__all__ = ["LENGTHS", "bench_gpu"]

LENGTHS = (50, 75, 512)  # tokens per text, on average
COSINE = 0.99  # least cosine in 16 bits that counts as right; what is measured is printed
_YES = 0.1  # largest difference of P(yes) in 16 bits that counts as right
_MOST = 200_000  # texts
_SAMPLE = 64  # texts that warm up, and of which equality is tested
_COUNTED = 1000  # texts whose tokens are counted
_BATCHES = (32, 256)  # batch sizes of sentence-transformers
_ROUNDS = 2
_SHARE = 0.5  # of the time goes into timed rounds; the rest loads, warms up and compares


def bench_gpu(
    *,
    shapes: Sequence[str] = tuple(SHAPES)[1:],
    lengths: Sequence[int] = LENGTHS,
    minutes: float = 10.0,
    device: str = "cuda",
    dtype: str = "bfloat16",
    out: Path | None = None,
    say: Callable[[str], Any] = print,
) -> GpuBench:
    """Measure equality, then speed.

    Args:
        shapes: keys of `SHAPES`.
        lengths: tokens per text, up to 1,000.
        minutes: when to stop; models that have not been started by then are left out.
        device: ``cuda`` or ``cuda:1``; ``cpu`` to rehearse.
        dtype: ``bfloat16`` or ``float16``.
        out: JSON file to write.
        say: called with a line per step.

    Raises:
        ValueError: no such device, shape or dtype, or a length out of bounds.
    """
    if device != "cpu" and not torch.cuda.is_available():
        raise ValueError(
            "expected a GPU, and PyTorch finds none here; to rehearse without one: "
            "--device cpu --shape tiny"
        )
    for name in shapes:
        one_of("shape", name, SHAPES)
    one_of("dtype", dtype, ("bfloat16", "float16"))
    if not lengths or min(lengths) < 1 or max(lengths) > 1000 or minutes <= 0:
        raise ValueError(f"expected lengths of 1 to 1000 and minutes > 0; got {lengths}, {minutes}")
    timer = _Timer(minutes, len(shapes) * len(lengths) + 1, pick_device(device), dtype)
    peak = _peak(timer.device, dtype)
    measured: list[GpuEquality | GpuSpeed] = []
    left_out = []
    for name in shapes:
        if timer.over():
            left_out.append(f"{name}: {minutes:g} minutes were over")
            continue
        say(f"{name}: a random model is written, loaded and compared with float32")
        try:
            measured.extend(_measured(name, lengths, timer, peak))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            left_out.append(f"{name}, in part: {str(error).splitlines()[0]}")
        gc.collect()  # models hold each other in cycles
    bench = GpuBench(
        device=torch.cuda.get_device_name(timer.device) if device != "cpu" else "cpu",
        machine=machine(),
        dtype=dtype,
        peak=peak,
        equality=tuple(each for each in measured if isinstance(each, GpuEquality)),
        speed=tuple(each for each in measured if isinstance(each, GpuSpeed)),
        left_out=tuple(left_out),
    )
    if out is not None:
        write_json(out, asdict(bench))
    return bench


class _Timer:
    """Divides the time there is among the rows of the table."""

    def __init__(self, minutes: float, rows: int, device: str, dtype: str) -> None:
        self.device, self.dtype = device, dtype
        self._end = time.monotonic() + 60 * minutes
        self._row = 60 * minutes * _SHARE / rows  # seconds of all timed calls of a row

    def over(self) -> bool:
        return time.monotonic() > self._end

    def count(self, rates: Sequence[float]) -> int:
        """How many texts all methods, at these rates in texts per second, can time in a row."""
        texts = self._row / (_ROUNDS * sum(1 / rate for rate in rates))
        return max(_SAMPLE, min(_MOST, int(texts)))

    def seconds(self, call: Callable[[], object]) -> float:
        started = time.perf_counter()
        call()
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - started

    def in_turn(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        """Median seconds of each call; they take turns."""
        rounds = [[self.seconds(call) for call in calls] for _ in range(_ROUNDS)]
        return [median(column) for column in zip(*rounds, strict=True)]


def _peak(device: str, dtype: str) -> float:
    """Operations per second of the best of six large matrix products."""
    size = 8192 if device != "cpu" else 512
    peak = MatrixPeak({(size, size, size): 1}, dtype=dtype, device=device)
    for _ in range(2):
        peak.sample()
    return 1e9 * peak.gflops


def _measured(
    name: str, lengths: Sequence[int], timer: _Timer, peak: float
) -> Iterator[GpuEquality | GpuSpeed]:
    """Measure one shape: equality first, then each length, then its reranker."""
    shape = SHAPES[name]
    with tempfile.TemporaryDirectory(prefix="qwen3nb-bench-") as work:
        folder = Path(work) / "encoder"
        write_encoder(folder, shape, device=timer.device, dtype=timer.dtype)
        ours = load_random(folder, timer.device, timer.dtype)
        texts = Texts(ours)
        sample = texts.draw(64, _SAMPLE if shape.hidden < 2048 else 8)
        yield _equality(name, ours, load_random(folder, "cpu", "float32"), sample)
        peers = load_peers(folder, device=timer.device, dtype=timer.dtype)
        for length in lengths:
            yield _speed(name, length, ours, peers, texts, timer, peak, Path(work) / "v.npy")
        del ours, peers
        if shape.reranker:
            yield from _reranked(name, Path(work) / "reranker", texts, timer)


def _equality(name: str, ours: Any, exact: Any, sample: list[str]) -> GpuEquality:
    together = ours.encode(sample)
    alone = np.concatenate([ours.encode([text]) for text in sample])
    first, second = (
        float((together * each).sum(1).min()) for each in (exact.encode(sample), alone)
    )
    equal = min(first, second) >= COSINE
    return GpuEquality(name, "vectors", ours.runner.way, len(sample), first, second, equal)


def _speed(
    name: str, length: int, ours: Any, peers: dict[str, Any], texts: Texts, timer: _Timer,
    peak: float, file: Path,
) -> GpuSpeed:  # fmt: skip
    """Encode and write, ours and the fastest of theirs in turn."""
    few = texts.draw(length, 4 * _SAMPLE if timer.device != "cpu" else _SAMPLE)
    theirs = {
        f"{way}, batch {size}": partial(peer_vectors, model, batch_size=size)
        for way, model in peers.items()
        for size in _BATCHES
    }
    for call in (ours.encode, *theirs.values()):  # warm
        call(few)
    rates = {which: len(few) / timer.seconds(partial(call, few)) for which, call in theirs.items()}
    method = max(rates, key=lambda which: rates[which])
    rate = len(few) / timer.seconds(partial(ours.encode, few))
    drawn = texts.draw(length, timer.count([rate, rates[method]]))
    own, other = (
        len(drawn) / seconds
        for seconds in timer.in_turn(
            [partial(_written, call, drawn, file) for call in (ours.encode, theirs[method])]
        )
    )
    counts = texts.tokens(drawn[:_COUNTED])
    each = 1e9 * encoder_work(ours.runner.model, counts).gflop / len(counts)
    tokens, share = sum(counts) / len(counts), each * own / peak
    return GpuSpeed(name, "encode", tokens, len(drawn), own, other, method, share)


def _written(call: Callable[[list[str]], Vectors], texts: list[str], file: Path) -> None:
    np.save(file, call(texts))


def _reranked(
    name: str, folder: Path, texts: Texts, timer: _Timer
) -> Iterator[GpuEquality | GpuSpeed]:
    """Rerank the documents of one query with ours and with a CrossEncoder in turn."""
    folder.mkdir()
    write_random_reranker(folder, SHAPES[name].reranker)
    few = texts.draw(70, 16)
    exact = load_reranker(folder, device="cpu").score(QUERY, few).p_yes
    ours = load_reranker(folder, device=timer.device, dtype=timer.dtype)
    together = ours.score(QUERY, few).p_yes
    alone = np.array(list(chain.from_iterable(ours.score(QUERY, [each]).p_yes for each in few)))
    first, second = (float(abs(together - each).max()) for each in (exact, alone))
    yield GpuEquality(name, "scores", "", len(few), first, second, max(first, second) <= _YES)
    peer = cross_encoder(folder, device=timer.device, dtype=timer.dtype)
    calls: list[Callable[[list[str]], object]] = [
        partial(ours.score, QUERY),
        partial(predict, peer),
    ]
    for call in calls:
        call(few)
    rates = [len(few) / timer.seconds(partial(call, few)) for call in calls]
    drawn = texts.draw(70, timer.count(rates))
    seconds = timer.in_turn([partial(call, drawn) for call in calls])
    own, other = (len(drawn) / each for each in seconds)
    counts = texts.tokens(drawn[:_COUNTED])
    tokens = sum(counts) / len(counts)
    yield GpuSpeed(name, "rerank", tokens, len(drawn), own, other, "CrossEncoder", None)
