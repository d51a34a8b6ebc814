"""How fast documents are re-ordered, against three ways others do it on the same weights.

The peers: left-padded batches with the logits of every position (the first code one finds
for Qwen3-Reranker), the same with ``logits_to_keep=1``, and sentence-transformers'
CrossEncoder. All take turns in one process, round after round; a ratio is the median of the
peer's CPU seconds over the median of ours, because a busy machine stretches wall time.
Scores are compared in the same run. Peak memory is measured in a process per way.

The weights are random, the output matrix has the rows of Qwen3's real vocabulary, and the
passages are docstrings, cut to the lengths asked for.
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

from qwen3nb.bench.rerank_baselines import (
    QUERY,
    SHAPES,
    VOCABULARY,
    cross_encoder,
    ours,
    padded,
    plain_model,
    predict,
    write_random_reranker,
)
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.hardware import peak_memory, resident_memory

if TYPE_CHECKING:
    from qwen3nb.models.rerankers.yes_no import Floats, Reranker

__all__ = ["PASSAGES", "SHAPES", "RerankBench", "RerankWay", "bench_rerank"]

PASSAGES = {"60-80": (60, 80), "250": (240, 260)}  # tokens, from and to


@dataclass(frozen=True)
class RerankWay:
    """One way of scoring the same documents.

    Attributes:
        name: what it is.
        cpu: median of CPU seconds, of all threads.
        seconds: median of seconds.
        ratio: CPU seconds of the first reference over this way's.
        difference: the largest difference in P(yes) to the first reference.
        peak: peak memory of a process that only does this, bytes; None if not measured.
        above: how much of it came after the model was loaded.
    """

    name: str
    cpu: float
    seconds: float
    ratio: float
    difference: float
    peak: int | None = None
    above: int | None = None


@dataclass(frozen=True)
class RerankBench:
    """What was measured at one size and one length of passages.

    Attributes:
        size: key of `SHAPES`.
        passages: key of `PASSAGES`.
        documents: how many documents the query has.
        rounds: how often each way ran.
        prefix: tokens before the document.
        ways: the references first, ours last.
        rest: where our CPU seconds go: part to share.
    """

    size: str
    passages: str
    documents: int
    rounds: int
    prefix: int
    ways: tuple[RerankWay, ...]
    rest: dict[str, float]

    def ratio(self, peer: str, way: str = "qwen3nb") -> float:
        """How many times less CPU ``way`` takes than ``peer``."""
        found = {each.name: each.cpu for each in self.ways}
        return found[peer] / found[way]

    def lines(self) -> list[str]:
        """The ways as a plain table, and where the rest goes."""
        size, passages = f"{self.size} parameters", f"passages of {self.passages} tokens"
        text = [
            f"{size}, {passages}: {self.documents} documents, {self.prefix} tokens before "
            f"each, medians of {self.rounds} rounds in turn",
            f"{'':34} {'CPU s':>8} {'s':>8} {'faster':>8} {'max dP':>8} {'peak MB':>8} {'+MB':>7}",
        ]
        for way in self.ways:
            peak, above = (
                "-" if each is None else f"{each / 1e6:.0f}" for each in (way.peak, way.above)
            )
            text.append(
                f"{way.name:34} {way.cpu:8.2f} {way.seconds:8.2f} {way.ratio:7.2f}x "
                f"{way.difference:8.0e} {peak:>8} {above:>7}"
            )
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.rest.items())
        return [*text, f"where ours goes: {shares}"]


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
        size: one of `SHAPES`; ``0.6B`` is the shape of Qwen3-0.6B (8 GB of memory for the
            references).
        passages: of `PASSAGES`.
        documents: per query.
        rounds: how often each way is timed, after one untimed round.
        memory: whether peak memory is measured, too, in processes of their own.
        folder: where the model is written; by default a temporary folder. Removed afterwards.
        say: takes each line of the report.

    Raises:
        ValueError: an unknown size or length, or no rounds.
        RuntimeError: a way does not give the reference's scores.
    """
    one_of("size", size, SHAPES)
    for name in passages:
        one_of("length of passages", name, PASSAGES)
    if rounds < 1 or documents < 1:
        raise ValueError(f"expected rounds and documents; got {rounds} and {documents}")
    found = []
    with tempfile.TemporaryDirectory(prefix="qwen3nb-bench-", dir=folder) as work:
        say(f"writing a random model of {size} parameters, {VOCABULARY:,} rows, to {work}")
        write_random_reranker(Path(work), size)
        subject = _Subject(Path(work))
        for name in passages:
            texts = subject.passages(*PASSAGES[name], documents)
            (Path(work) / f"{name}.json").write_text(json.dumps(texts))
            bench = subject.measure(size, name, texts, rounds=rounds)
            found.append(_with_memory(bench, Path(work)) if memory else bench)
            for line in [*found[-1].lines(), ""]:
                say(line)
    return found


class _Subject:
    """One model in every way, so that the ways can take turns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ours = ours(folder, onednn=False)
        self._fast = ours(folder, onednn=True)
        self._model, self._tokenizer = plain_model(folder)
        self._words = self._tokenizer.convert_tokens_to_ids(["no", "yes"])
        self._peer = cross_encoder(folder)

    def passages(self, least: int, most: int, count: int) -> list[str]:
        """Docstrings of ``least`` to ``most`` tokens, run together where one is too short."""
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
        ways: dict[str, Callable[[], Floats]] = {
            "reference, all logits": lambda: padded(
                self._model, self._words, self._rows(texts), keep=0
            ),
            "reference, logits_to_keep=1": lambda: padded(
                self._model, self._words, self._rows(texts), keep=1
            ),
            "sentence-transformers CrossEncoder": lambda: predict(self._peer, texts),
            "qwen3nb, PyTorch's linears": lambda: self.ours.score(QUERY, texts).p_yes,
        }
        if self._fast is not None:
            fast = self._fast
            ways["qwen3nb"] = lambda: fast.score(QUERY, texts).p_yes
        else:
            ways["qwen3nb"] = ways.pop("qwen3nb, PyTorch's linears")
        times, scores = _in_turn(ways, rounds)
        rows = self.ours._pairs.rows(QUERY, texts)
        return RerankBench(
            size, name, len(texts), rounds, len(rows.shared),
            ways=tuple(_ways(times, scores)),
            rest=_where(self._fast or self.ours, texts),
        )  # fmt: skip

    def _rows(self, texts: list[str]) -> list[list[int]]:
        tokens = self.ours._pairs.rows(QUERY, texts)
        return [[*tokens.shared, *rest] for rest in tokens.rests]


def _in_turn(
    ways: dict[str, Callable[[], Floats]], rounds: int
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, Floats]]:
    """CPU seconds and seconds of each way per round, and its scores."""
    scores = {name: call() for name, call in ways.items()}  # untimed: warms up
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, call in ways.items():
            cpu, seconds = time.process_time(), time.perf_counter()
            call()
            times[name].append((time.process_time() - cpu, time.perf_counter() - seconds))
    return times, scores


def _ways(
    times: dict[str, list[tuple[float, float]]], scores: dict[str, Floats]
) -> Iterator[RerankWay]:
    first = next(iter(times))
    base = median(cpu for cpu, _ in times[first])
    for name, each in times.items():
        cpu, seconds = (median(column) for column in zip(*each, strict=True))
        difference = float(abs(scores[name] - scores[first]).max())
        if difference > 1e-4:
            raise RuntimeError(f"{name}: P(yes) differs from the reference by {difference:.1e}")
        yield RerankWay(name, cpu, seconds, base / cpu, difference)


def _where(reranker: Reranker, texts: list[str]) -> dict[str, float]:
    """Shares of our CPU seconds: tokens, what documents share, linear layers, everything else."""
    started = time.process_time()
    rows = reranker._pairs.rows(QUERY, texts)
    tokenised = time.process_time()
    reranker._prefix(rows.shared)
    shared = time.process_time()
    with _timed_linears(reranker._model.model) as linears:
        reranker._log_odds(rows.shared, rows.rests)
    done = time.process_time()
    whole = (tokenised - started) + (done - shared)
    parts = {
        "tokenising": tokenised - started,
        "the query's prefix": shared - tokenised,
        "linear layers of the documents": linears[0] - linears[0] * (
            (shared - tokenised) / (done - shared)
        ),
    }  # fmt: skip
    parts["attention, norms, activations, padding"] = whole - sum(parts.values())
    return {name: seconds / whole for name, seconds in parts.items()}


class _timed_linears:  # noqa: N801 - used as a function
    """CPU seconds spent in a model's linear layers while the block runs, in a list of one."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._hooks: list[Any] = []

    def __enter__(self) -> list[float]:
        total = [0.0]

        def before(*_: Any) -> None:
            total[0] -= time.process_time()

        def after(*_: Any) -> None:
            total[0] += time.process_time()

        for module in self._model.modules():
            if hasattr(module, "in_features"):
                self._hooks += [
                    module.register_forward_pre_hook(before),
                    module.register_forward_hook(after),
                ]
        return total

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()


def _with_memory(bench: RerankBench, folder: Path) -> RerankBench:
    from dataclasses import replace

    code = "import sys; from qwen3nb.bench.rerank import _child; _child(*sys.argv[1:])"
    ways = []
    for way in bench.ways:
        arguments = [sys.executable, "-c", code, way.name, str(folder), bench.passages]
        done = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True)
        peak, above = json.loads(done.stdout.splitlines()[-1])
        ways.append(replace(way, peak=peak, above=above))
    return replace(bench, ways=tuple(ways))


def _child(way: str, folder: str, passages: str) -> None:
    """Score once in this process, and print its peak memory, in all and above the model's."""
    texts = json.loads((Path(folder) / f"{passages}.json").read_text())
    if way.startswith("qwen3nb"):
        reranker = ours(Path(folder), onednn=way == "qwen3nb") or ours(Path(folder), onednn=False)
        call: Callable[[], object] = lambda: reranker.score(QUERY, texts)  # noqa: E731
    elif way.startswith("sentence"):
        peer = cross_encoder(Path(folder))
        call = lambda: predict(peer, texts)  # noqa: E731
    else:
        rows_of = ours(Path(folder), onednn=False)._pairs.rows(QUERY, texts)
        rows = [[*rows_of.shared, *rest] for rest in rows_of.rests]
        model, tokenizer = plain_model(Path(folder))
        words = tokenizer.convert_tokens_to_ids(["no", "yes"])
        keep = 1 if "keep" in way else 0
        call = lambda: padded(model, words, rows, keep=keep)  # noqa: E731
    before = resident_memory()
    call()
    peak = peak_memory() or resident_memory()
    print(json.dumps([peak, peak - before]))
