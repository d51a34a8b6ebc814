"""Benchmark encoding against sentence-transformers at its best batch size.

All methods take turns in one process; times include tokenizing. A ratio is the median time
of sentence-transformers over that of a method. The vectors are compared in the same run.
CPU seconds are reported besides seconds, because load on the machine hardly affects them.
The limit is the matrix peak (`qwen3nb.bench.machine_limits`), measured once in every round.

The texts are short sentences (AuthorSTS and the summaries of PyDocs), mixed lengths (as many
summaries as documents) and long documents (neighbours joined, about 200 to 256 tokens). All texts
are distinct, so that encoding duplicates only once does not count as speed.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qwen3nb.bench.machine_limits import (
    MatrixPeak,
    MatrixWork,
    encoder_limit,
    limit_text,
    shares_table,
    time_shares,
)
from qwen3nb.models.encoders.sentence_transformer import SentenceTransformerEncoder, known_pooling
from qwen3nb.models.encoders.transformer import TransformerEncoder
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.configuration import encoder_config
from qwen3nb.models.modeling.dtypes import torch_dtype
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel
from qwen3nb.models.modeling.runtime import pick_device
from qwen3nb.models.sources.resolve import find_source
from qwen3nb.models.types import Vectors
from qwen3nb.utils.format import aligned
from qwen3nb.utils.hardware import processor

__all__ = [
    "COSINE",
    "DIFFERENCE",
    "EncodeBench",
    "EncodeTiming",
    "bench_encode",
    "bench_texts",
    "best_batch_size",
    "load_peer",
    "machine",
    "model_folder",
    "peer_vectors",
]

COSINE, DIFFERENCE = 0.99999, 1e-5  # bounds within which float32 vectors count as equal
QWEN3 = "qwen3-60M-random"
_BATCH_SIZES = (8, 16, 32, 64)
_LONG = 1000  # characters of a long document: about 200 to 256 tokens
_SHAPE: dict[str, Any] = {
    "vocab_size": 8448,
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 10,
    "num_attention_heads": 10,
    "num_key_value_heads": 5,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
}
# Intermediate methods: name, options of the engine.
_STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("padded, sorted, by tokens", {"packed": False, "linear": "torch"}),
    ("packed", {"linear": "torch"}),
    ("packed, oneDNN", {"linear": "onednn"}),
)


@dataclass(frozen=True)
class EncodeTiming:
    """One method of encoding.

    Attributes:
        name: name of the method.
        seconds: median seconds of the rounds.
        cpu: median CPU seconds of all threads.
        ratio: speed relative to sentence-transformers at its best batch size.
        cpu_ratio: the same in CPU seconds.
        cosine: smallest cosine with the vectors of sentence-transformers.
        difference: largest difference of a component of the unit vectors.
        peak_share: share of the matrix peak; see `EncodeBench.peak_gflops`.
    """

    name: str
    seconds: float
    cpu: float
    ratio: float
    cpu_ratio: float
    cosine: float
    difference: float
    peak_share: float

    @property
    def equal(self) -> bool:
        """Whether the vectors equal those of sentence-transformers up to rounding."""
        return self.cosine >= COSINE and self.difference <= DIFFERENCE


@dataclass(frozen=True)
class EncodeBench:
    """Results for one model and one set of texts.

    Attributes:
        model: label of the model.
        texts: name of the set of texts.
        count: number of texts.
        tokens: number of tokens.
        rounds: number of rounds.
        batch_size: the best batch size of sentence-transformers.
        onednn: whether `load_encoder` chooses oneDNN on this machine, as in the last method.
        timings: sentence-transformers first.
        work: operations that the vectors need.
        peak_gflops: 10⁹ operations per second of the linear layers alone, at their best in the
            same rounds, in the shapes and the precision of the last method.
        time_shares: share of the last method's time by part; empty on a GPU.
    """

    model: str
    texts: str
    count: int
    tokens: int
    rounds: int
    batch_size: int
    onednn: bool
    timings: tuple[EncodeTiming, ...]
    work: MatrixWork
    peak_gflops: float
    time_shares: dict[str, float] = field(default_factory=dict)

    def table(self) -> str:
        """The timings as plain text."""
        head = ("method", "s", "texts/s", "faster", "CPU s", "less CPU", "min cosine",
                "max difference", "equal", "of peak")  # fmt: skip
        rows = [
            (
                timing.name,
                f"{timing.seconds:.2f}",
                f"{self.count / timing.seconds:.0f}",
                f"{timing.ratio:.2f}x",
                f"{timing.cpu:.2f}",
                f"{timing.cpu_ratio:.2f}x",
                f"{timing.cosine:.6f}",
                f"{timing.difference:.0e}",
                "yes" if timing.equal else "no",
                f"{timing.peak_share:.0%}",
            )
            for timing in self.timings
        ]
        title = (
            f"{self.model}, {self.texts}: {self.count} texts, {self.tokens} tokens, medians of "
            f"{self.rounds} rounds; a load chooses {'oneDNN' if self.onednn else 'PyTorch'}"
        )
        limit = limit_text(self.work, self.peak_gflops)
        parts = shares_table(self.time_shares, of=self.timings[-1].name)
        return "\n".join([title, limit, *aligned([head, *rows]), *parts])


def machine() -> str:
    """Describe what speed depends on besides the code."""
    waiting = os.environ.get("OMP_WAIT_POLICY", "not set")
    return (
        f"{processor()}, {torch.get_num_threads()} threads, OMP_WAIT_POLICY {waiting}, "
        f"load {os.getloadavg()[0]:.1f}, PyTorch {torch.__version__}"
    )


def bench_texts(count: int) -> dict[str, list[str]]:
    """Return distinct texts: ``count`` short, as many of mixed lengths, a quarter as many long.

    A long document has as many tokens as eighteen short sentences or three texts of mixed lengths.
    """
    from qwen3nb.datasets.pydocs.build import load_pydocs
    from qwen3nb.datasets.pydocs.mteb_tasks import author_sts

    entries = load_pydocs().entries
    summaries = list(dict.fromkeys(entry.summary for entry in entries))
    documents = list(dict.fromkeys(entry.text for entry in entries))
    pairs = [text for first, second, _ in author_sts() for text in (first, second)]
    short = list(dict.fromkeys([*pairs[: count // 2], *_spread(summaries, count)]))
    mixed = [*_spread(summaries, count // 2), *_spread(documents, count - count // 2)]
    long = _spread(list(_joined(documents)), -(-count // 4))
    sets = {"short sentences": short[:count], "mixed lengths": mixed, "long documents": long}
    return {name: each for name, each in sets.items() if each}


def _joined(documents: Sequence[str]) -> Iterator[str]:
    """Join neighbours to texts of `_LONG` characters."""
    text = ""
    for document in documents:
        text = f"{text}\n\n{document}" if text else document
        if len(text) >= _LONG:
            yield text[:_LONG]
            text = ""


def _spread(texts: Sequence[str], count: int) -> list[str]:
    """``count`` texts, evenly spread over the list."""
    return list(texts[:: max(1, len(texts) // count)][:count])


def bench_encode(
    model: str,
    *,
    texts: dict[str, list[str]] | None = None,
    rounds: int = 5,
    device: str = "cpu",
    dtype: str = "float32",
) -> Iterator[EncodeBench]:
    """Measure each set of texts on one model.

    Args:
        model: a registry name or the folder of a sentence-transformers model, or
            ``qwen3-60M-random``, a random bidirectional Qwen3.
        texts: named sets; None for those of ``bench_texts(256)``.
        rounds: number of timed rounds, after an untimed one.
        device: the device.
        dtype: dtype of the weights; with 16 bits, vectors are close, not equal.

    Raises:
        ValueError: no rounds, or an unknown model, device or dtype.
    """
    if rounds < 1:
        raise ValueError(f"expected at least 1 round; got {rounds}")
    texts = texts if texts is not None else bench_texts(256)
    with model_folder(model, [text for each in texts.values() for text in each]) as folder:
        subject = _EncodeSubject(model, folder, device=pick_device(device), dtype=dtype)
        for name, each in texts.items():
            yield subject.measure(name, each, rounds=rounds)


@contextmanager
def model_folder(model: str, texts: Sequence[str]) -> Iterator[Path]:
    """Yield the folder of the model; a random model is written first and removed afterwards.

    Args:
        model: as for `bench_encode`.
        texts: for the tokenizer of a random model.

    Raises:
        ValueError: the model is not on this machine.
    """
    if model != QWEN3:
        source = find_source(model)
        if source.folder is None:
            raise ValueError(f"{model}: not on this machine; expected a folder or a registry name")
        yield source.folder
        return
    with tempfile.TemporaryDirectory() as folder:
        write_random_encoder(Path(folder), texts)
        yield Path(folder)


def write_random_encoder(
    folder: Path, texts: Sequence[str], *, shape: dict[str, Any] | None = None
) -> None:
    """Write a random bidirectional Qwen3 and a tokenizer trained on ``texts``."""
    from qwen3nb.extraction.export import ExportOptions, write_model_files
    from qwen3nb.models.modeling.tiny_tokenizer import write_tokenizer

    shape = shape or _SHAPE
    tokenizer = write_tokenizer(texts, folder, vocabulary=shape["vocab_size"] - 256)
    end = tokenizer.token_to_id("<|endoftext|>")
    config = encoder_config({**shape, "pad_token_id": end, "eos_token_id": end})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen3EncoderModel(config).save_pretrained(folder)
    write_model_files(folder, config, ExportOptions())


def load_peer(folder: Path, *, device: str, dtype: str, attention: str | None = None) -> Any:
    """Load the model in sentence-transformers, with weights in ``dtype``.

    ``attention`` is one of transformers' implementations, such as ``sdpa``; None for its choice.
    """
    from sentence_transformers import SentenceTransformer

    kwargs: dict[str, Any] = {"dtype": torch_dtype(dtype)}
    kwargs |= {"attn_implementation": attention} if attention else {}
    return SentenceTransformer(str(folder), device=device, model_kwargs=kwargs).eval()


def peer_vectors(peer: Any, texts: list[str], *, batch_size: int) -> Vectors:
    """Return the unit vectors (N, D) of sentence-transformers."""
    vectors: Vectors = peer.encode(
        texts, batch_size=batch_size, show_progress_bar=False, normalize_embeddings=True
    )
    return vectors


def best_batch_size(peer: Any, texts: list[str]) -> int:
    """Return the batch size at which sentence-transformers is fastest on ``texts``."""
    times = {}
    peer_vectors(peer, texts[:64], batch_size=32)  # warm
    for size in _BATCH_SIZES:
        call = partial(peer_vectors, peer, texts, batch_size=size)
        times[size] = min(_timed(call)[0] for _ in range(2))
    return min(times, key=lambda size: times[size])


class _EncodeSubject:
    """One model, loaded once per method."""

    def __init__(self, name: str, folder: Path, *, device: str, dtype: str) -> None:
        self.name, self._dtype = name, dtype
        self._reference = load_peer(folder, device=device, dtype=dtype)
        pooling = known_pooling(self._reference)
        if pooling is None:
            raise ValueError(f"{name}: only sentence-transformers can run this model")
        self._runners = {
            step: Runner(
                load_peer(folder, device=device, dtype=dtype)[0].model,
                pooling=pooling,
                normalize=True,
                **options,
            )
            for step, options in _STEPS
        }
        spec = name if name != QWEN3 else folder
        ours = load_encoder(spec, device=device, dtype=dtype, cache=False, show_progress=False)
        if not isinstance(ours, SentenceTransformerEncoder | TransformerEncoder):
            raise ValueError(f"{name}: expected a neural encoder to compare")
        self._ours = ours

    def measure(self, name: str, texts: list[str], *, rounds: int) -> EncodeBench:
        best, rows = best_batch_size(self._reference, texts), self._tokenise(texts)
        runner = self._ours.runner or self._runners["packed"]
        work, peak = encoder_limit(runner, rows, dtype=self._dtype)
        methods: dict[str, Callable[[], Vectors]] = {
            f"sentence-transformers, batch {size}": partial(
                peer_vectors, self._reference, texts, batch_size=size
            )
            for size in dict.fromkeys((best, 32))
        }
        for step, engine in self._runners.items():
            methods[step] = partial(self._step, engine, texts)
        methods["load_encoder(...).encode"] = partial(self._ours.encode, texts)
        return EncodeBench(
            model=self.name,
            texts=name,
            count=len(texts),
            tokens=sum(map(len, rows)),
            rounds=rounds,
            batch_size=best,
            onednn=self._ours.runner is not None and self._ours.runner.onednn,
            timings=_compare(methods, rounds=rounds, work=work, peak=peak),
            work=work,
            peak_gflops=peak.gflops,
            time_shares=self._time_shares(texts),
        )

    def _time_shares(self, texts: list[str]) -> dict[str, float]:
        runner = self._ours.runner
        if runner is None or runner.model.device.type != "cpu":
            return {}
        rows = self._tokenise(texts)
        return time_shares(lambda: self._ours._tokenise(texts), lambda: runner.vectors(rows))

    def _step(self, runner: Runner, texts: list[str]) -> Vectors:
        return runner.vectors(self._tokenise(texts))

    def _tokenise(self, texts: list[str]) -> list[list[int]]:
        features = self._reference.preprocess(texts)
        mask = features["attention_mask"].bool()
        return [row[real].tolist() for row, real in zip(features["input_ids"], mask, strict=True)]


def _timed(call: Callable[[], Vectors]) -> tuple[float, float]:
    seconds, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - seconds, time.process_time() - cpu


def _unit(vectors: Vectors) -> NDArray[np.float64]:
    """Return vectors of length 1; those of 16 bits are so to their rounding only."""
    wide = vectors.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


def _compare(
    methods: dict[str, Callable[[], Vectors]], *, rounds: int, work: MatrixWork, peak: MatrixPeak
) -> tuple[EncodeTiming, ...]:
    """Compare times and vectors of each method with the first; all take turns, and so the peak."""
    vectors = {name: _unit(call()) for name, call in methods.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, call in methods.items():
            times[name].append(_timed(call))
        peak.sample()
    medians = {
        name: (median(wall for wall, _ in each), median(cpu for _, cpu in each))
        for name, each in times.items()
    }
    first = next(iter(methods))
    return tuple(
        EncodeTiming(
            name=name,
            seconds=wall,
            cpu=cpu,
            ratio=medians[first][0] / wall,
            cpu_ratio=medians[first][1] / cpu,
            cosine=float((vectors[name] * vectors[first]).sum(axis=1).min()),
            difference=float(np.abs(vectors[name] - vectors[first]).max()),
            peak_share=peak.share(work, wall),
        )
        for name, (wall, cpu) in medians.items()
    )
