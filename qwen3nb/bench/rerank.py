"""Benchmark reranking against three other implementations on the same weights.

The peers are left-padded batches with the logits of every position (the code in the model
card of Qwen3-Reranker), the same with ``logits_to_keep=1``, and the CrossEncoder of
sentence-transformers. All take turns in one process. A ratio is the median of the peer's
CPU seconds over the median of ours, because load on the machine inflates wall time. Scores
are compared in the same run. Peak memory is measured in a separate process per method. The
limit is the matrix peak (`qwen3nb.bench.machine_limits`), measured once in every round.

The weights are random, the output matrix has as many rows as Qwen3's real vocabulary, and
the passages are docstrings, truncated to the requested lengths.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.bench.machine_limits import (
    MatrixPeak,
    MatrixWork,
    limit_text,
    product_shapes,
    reranker_work,
    shares_table,
    time_shares,
)
from qwen3nb.bench.rerank_baselines import (
    QUERY,
    SHAPES,
    VOCABULARY,
    cross_encoder,
    ours,
    padded_scores,
    plain_model,
    predict,
    write_random_reranker,
)
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.hardware import peak_memory, resident_memory

if TYPE_CHECKING:
    from qwen3nb.models.rerankers.yes_no import Floats

__all__ = ["PASSAGES", "RerankBench", "RerankTiming", "bench_rerank"]

PASSAGES = {"60-80": (60, 80), "250": (240, 260)}  # tokens, from and to


@dataclass(frozen=True)
class RerankTiming:
    """One method of scoring the same documents.

    Attributes:
        name: name of the method.
        cpu: median CPU seconds of all threads.
        seconds: median seconds.
        ratio: CPU seconds of the first reference over those of this method.
        difference: largest difference in P(yes) from the first reference.
        peak_share: share of the matrix peak, by wall-clock time; see `RerankBench.peak_gflops`.
        peak: peak memory in bytes of a process that only does this; None if not measured.
        above: the part of the peak above the memory after loading the model.
    """

    name: str
    cpu: float
    seconds: float
    ratio: float
    difference: float
    peak_share: float
    peak: int | None = None
    above: int | None = None


@dataclass(frozen=True)
class RerankBench:
    """Results for one size of model and one length of passages.

    Attributes:
        size: key of `SHAPES`.
        passages: key of `PASSAGES`.
        documents: number of documents of the query.
        rounds: number of rounds.
        prefix: tokens before the document.
        timings: the references first, ours last.
        work: operations that the scores need, the prefix computed once.
        peak_gflops: 10⁹ operations per second of the linear layers alone, at their best in the
            same rounds, in the shapes that our forward passes have.
        time_shares: share of our time by part.
    """

    size: str
    passages: str
    documents: int
    rounds: int
    prefix: int
    timings: tuple[RerankTiming, ...]
    work: MatrixWork
    peak_gflops: float
    time_shares: dict[str, float]

    def ratio(self, peer: str, method: str = "qwen3nb") -> float:
        """CPU seconds of ``peer`` over those of ``method``."""
        seconds = {each.name: each.cpu for each in self.timings}
        return seconds[peer] / seconds[method]

    def lines(self) -> list[str]:
        """The timings as a plain table, and the shares of our time."""
        size, passages = f"{self.size} parameters", f"passages of {self.passages} tokens"
        text = [
            f"{size}, {passages}: {self.documents} documents, {self.prefix} tokens before "
            f"each, medians of {self.rounds} rounds in turn",
            limit_text(self.work, self.peak_gflops),
            f"{'':34} {'CPU s':>8} {'s':>8} {'faster':>8} {'max dP':>8} {'of peak':>8} "
            f"{'peak MB':>8} {'+MB':>7}",
        ]
        for timing in self.timings:
            peak, above = (
                "-" if each is None else f"{each / 1e6:.0f}" for each in (timing.peak, timing.above)
            )
            text.append(
                f"{timing.name:34} {timing.cpu:8.2f} {timing.seconds:8.2f} {timing.ratio:7.2f}x "
                f"{timing.difference:8.0e} {timing.peak_share:8.0%} {peak:>8} {above:>7}"
            )
        return [*text, *shares_table(self.time_shares, of="qwen3nb")]


def bench_rerank(
    *,
    size: str = "100M",
    passages: Sequence[str] = tuple(PASSAGES),
    documents: int = 100,
    rounds: int = 3,
    memory: bool = True,
    folder: Path | None = None,
    say: Callable[[str], Any] = print,
) -> list[RerankBench]:
    """Measure, print a table per length of passages, and return what was measured.

    Args:
        size: one of `SHAPES`; ``0.6B`` is the shape of Qwen3-0.6B (the references need 8 GB
            of memory).
        passages: keys of `PASSAGES`.
        documents: documents per query.
        rounds: number of timed rounds, after an untimed one.
        memory: whether to also measure peak memory, in separate processes.
        folder: where to write the model; by default a temporary folder. Removed afterwards.
        say: called with each line of the report.

    Raises:
        ValueError: an unknown size or length, or no rounds.
        RuntimeError: the scores of a method differ from those of the reference.
    """
    one_of("size", size, SHAPES)
    for name in passages:
        one_of("length of passages", name, PASSAGES)
    if rounds < 1 or documents < 1:
        raise ValueError(f"expected rounds and documents > 0; got {rounds} and {documents}")
    benches = []
    with tempfile.TemporaryDirectory(prefix="qwen3nb-bench-", dir=folder) as work:
        say(f"writing a random model of {size} parameters, {VOCABULARY:,} rows, to {work}")
        write_random_reranker(Path(work), size)
        subject = _RerankSubject(Path(work))
        for name in passages:
            texts = subject.passages(*PASSAGES[name], documents)
            (Path(work) / f"{name}.json").write_text(json.dumps(texts))
            bench = subject.measure(size, name, texts, rounds=rounds)
            benches.append(_with_memory(bench, Path(work)) if memory else bench)
            for line in [*benches[-1].lines(), ""]:
                say(line)
    return benches


class _RerankSubject:
    """One model, loaded once per method, so that the methods can take turns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ours = ours(folder, onednn=False)
        self._fast = ours(folder, onednn=True)
        self._model, self._tokenizer = plain_model(folder)
        self._words = self._tokenizer.convert_tokens_to_ids(["no", "yes"])
        self._peer = cross_encoder(folder)

    def passages(self, least: int, most: int, count: int) -> list[str]:
        """Return passages of ``least`` to ``most`` tokens, from concatenated docstrings."""
        from qwen3nb.datasets.pydocs.build import load_pydocs

        words = [word for entry in load_pydocs().entries for word in entry.text.split()]
        generator = np.random.default_rng(0)
        texts = []
        for _ in range(count):
            wanted, start = generator.integers(least, most + 1), generator.integers(len(words) // 2)
            text = " ".join(words[start : start + wanted])
            ids = self._tokenizer(text, add_special_tokens=False).input_ids[:wanted]
            texts.append(self._tokenizer.decode(ids))
        return texts

    def measure(self, size: str, name: str, texts: list[str], *, rounds: int) -> RerankBench:
        methods: dict[str, Callable[[], Floats]] = {
            "reference, all logits": lambda: padded_scores(
                self._model, self._words, self._rows(texts), keep=0
            ),
            "reference, logits_to_keep=1": lambda: padded_scores(
                self._model, self._words, self._rows(texts), keep=1
            ),
            "sentence-transformers CrossEncoder": lambda: predict(self._peer, texts),
            "qwen3nb, PyTorch's linears": lambda: self.ours.score(QUERY, texts).p_yes,
        }
        if self._fast is not None:
            fast = self._fast
            methods["qwen3nb"] = lambda: fast.score(QUERY, texts).p_yes
        else:
            methods["qwen3nb"] = methods.pop("qwen3nb, PyTorch's linears")
        best = self._fast or self.ours
        rows = best._pairs.rows(QUERY, texts)
        shapes = product_shapes(best._model.model, lambda: best.score(QUERY, texts))
        peak = MatrixPeak(shapes)
        times, scores = _in_turn(methods, rounds, peak)
        work = reranker_work(best, rows.shared, rows.rests)
        return RerankBench(
            size, name, len(texts), rounds, len(rows.shared),
            timings=tuple(_timings(times, scores, work, peak)),
            work=work,
            peak_gflops=peak.gflops,
            time_shares=time_shares(
                lambda: best._pairs.rows(QUERY, texts),
                lambda: best._log_odds(rows.shared, rows.rests),
            ),
        )  # fmt: skip

    def _rows(self, texts: list[str]) -> list[list[int]]:
        tokens = self.ours._pairs.rows(QUERY, texts)
        return [[*tokens.shared, *rest] for rest in tokens.rests]


def _in_turn(
    methods: dict[str, Callable[[], Floats]], rounds: int, peak: MatrixPeak
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, Floats]]:
    """Return CPU seconds and seconds of each method per round, and its scores."""
    scores = {name: call() for name, call in methods.items()}  # untimed: warms up
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, call in methods.items():
            cpu, seconds = time.process_time(), time.perf_counter()
            call()
            times[name].append((time.process_time() - cpu, time.perf_counter() - seconds))
        peak.sample()
    return times, scores


def _timings(
    times: dict[str, list[tuple[float, float]]],
    scores: dict[str, Floats],
    work: MatrixWork,
    peak: MatrixPeak,
) -> Iterator[RerankTiming]:
    first = next(iter(times))
    base = median(cpu for cpu, _ in times[first])
    for name, each in times.items():
        cpu, seconds = (median(column) for column in zip(*each, strict=True))
        difference = float(abs(scores[name] - scores[first]).max())
        if difference > 1e-4:
            raise RuntimeError(f"{name}: P(yes) differs from the reference by {difference:.1e}")
        share = peak.share(work, seconds)
        yield RerankTiming(name, cpu, seconds, base / cpu, difference, share)


def _with_memory(bench: RerankBench, folder: Path) -> RerankBench:
    from dataclasses import replace

    code = "import sys; from qwen3nb.bench.rerank import _child; _child(*sys.argv[1:])"
    timings = []
    for timing in bench.timings:
        arguments = [sys.executable, "-c", code, timing.name, str(folder), bench.passages]
        done = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True)
        peak, above = json.loads(done.stdout.splitlines()[-1])
        timings.append(replace(timing, peak=peak, above=above))
    return replace(bench, timings=tuple(timings))


def _child(method: str, folder: str, passages: str) -> None:
    """Score once, and print the peak memory of this process, in total and above the model's."""
    texts = json.loads((Path(folder) / f"{passages}.json").read_text())
    if method.startswith("qwen3nb"):
        reranker = ours(Path(folder), onednn=method == "qwen3nb") or ours(
            Path(folder), onednn=False
        )
        call: Callable[[], object] = lambda: reranker.score(QUERY, texts)  # noqa: E731
    elif method.startswith("sentence"):
        peer = cross_encoder(Path(folder))
        call = lambda: predict(peer, texts)  # noqa: E731
    else:
        rows_of = ours(Path(folder), onednn=False)._pairs.rows(QUERY, texts)
        rows = [[*rows_of.shared, *rest] for rest in rows_of.rests]
        model, tokenizer = plain_model(Path(folder))
        words = tokenizer.convert_tokens_to_ids(["no", "yes"])
        keep = 1 if "keep" in method else 0
        call = lambda: padded_scores(model, words, rows, keep=keep)  # noqa: E731
    before = resident_memory()
    call()
    peak = peak_memory() or resident_memory()
    print(json.dumps([peak, peak - before]))
