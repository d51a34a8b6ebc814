"""Benchmark encoding against sentence-transformers and other runtimes.

The methods take turns in one process (`qwen3nb.bench.harness`), each peer at its best batch size;
times include tokenising. A ratio is the median time of sentence-transformers over that of a method.
The vectors are compared in the same run with those in float32. The limit is the matrix peak,
measured once in every round: the rate at which the same matrix products run alone, in the same
shapes and precision and with the same threads, so that other work on the machine slows both. Each
precision has a peak of its own. The share of the peak counts the work that the result needs, so
padding lowers it. What other programs did meanwhile is measured, too, and a busy machine is named.

The texts are what users encode: short queries (those of PyDocs), mixed lengths (as many queries as
documents) and long passages (neighbours joined, about 200 to 256 tokens), or texts of files and of
tasks. All texts are distinct, so that encoding duplicates only once does not count as
speed. Ratios depend on the lengths, so each set says its own and no mean over sets is made.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from qwen3nb.bench.harness import OtherWork, Row, in_turn, other_work, table, timed
from qwen3nb.bench.matrix_peak import MatrixPeak, encoder_limit, sample_all
from qwen3nb.bench.peers import PEERS, load_graph
from qwen3nb.bench.random_models import QWEN3, load_peer, model_folder, peer_vectors, unit
from qwen3nb.datasets.rows import DataError, numbered_json_rows, numbered_lines
from qwen3nb.evaluation.contamination import task_texts
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.models.encoders.sentence_transformer import SentenceTransformerEncoder
from qwen3nb.models.encoders.transformer import TransformerEncoder
from qwen3nb.models.inference.int8_linear import runs_in_int8
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.runtime import pick_device
from qwen3nb.models.types import Vectors
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.choices import check_choice

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

COSINE, DIFFERENCE = 0.99999, 1e-5  # bounds within which float32 vectors count as equal
_BATCH_SIZES = (8, 16, 32, 64)
_LONG = 1000  # characters of a long passage: about 200 to 256 tokens
LEVEL = 1.1  # ratios of times below this are no difference
OURS = "load_encoder(...).encode"
PEER = "sentence-transformers"
OurEncoder: TypeAlias = SentenceTransformerEncoder | TransformerEncoder


class Closeness(TypedDict):
    """How close unit vectors are to those in float32."""

    cosine: float  # the smallest
    cosine_mean: float
    difference: float  # the largest of a component
    equal: bool  # up to rounding


class EncodeTiming(Closeness):
    """What one method took for a set of texts, and how its vectors differ."""

    name: str  # with the batch size
    way: str  # the method
    seconds: float  # median
    cpu: float  # seconds of all threads, median
    ratio: float  # seconds of sentence-transformers to them
    cpu_ratio: float
    dtype: str  # in which it multiplies matrices
    peak_share: float | None  # of the peak of that dtype; None where it cannot be measured


@dataclass(frozen=True)
class EncodeBench:
    """Results for one model and one set of texts.

    There is a timing of each method: of sentence-transformers first, of ours last.
    """

    model: str
    texts: str
    count: int
    tokens: int  # number of tokens, after truncation
    lengths: dict[str, float]  # tokens of a text: mean, median, p90, max
    rounds: int
    batch_size: int  # the best batch size of sentence-transformers
    timings: tuple[EncodeTiming, ...]
    gflop: float  # 10⁹ operations of matrix products that the vectors need
    # 10⁹ operations per second of the linear layers alone by dtype, at their best in the same
    # rounds and shapes
    peak_gflops: dict[str, float]
    identity: str = ""  # of the model
    digest: str = ""  # of the texts
    others: OtherWork = field(default_factory=OtherWork)  # while it was measured

    @property
    def verdict(self) -> str:
        """Which method is fastest, and which of those with the vectors of float32."""
        fastest = _fastest(self.timings)
        if not fastest:
            return ""
        fastest_equal = _fastest([timing for timing in self.timings if timing["equal"]])
        if not fastest_equal or fastest_equal == fastest:
            return f"fastest: {fastest}"
        return f"fastest: {fastest}; equal vectors: {fastest_equal}"

    @property
    def peaks_text(self) -> str:
        """The peak of each dtype, such as "float32 95, int8 310"."""
        return ", ".join(f"{dtype} {gflops:,.0f}" for dtype, gflops in self.peak_gflops.items())

    def table(self) -> str:
        """The timings as plain text."""
        lengths = ", ".join(f"{name} {tokens:.0f}" for name, tokens in self.lengths.items())
        rows: list[Row] = []
        for timing in self.timings:
            speed = self.count / timing["seconds"]
            agreement = "yes" if timing["equal"] else "no"  # to float32, within tolerances
            rows.append({**timing, "speed": speed, "same": agreement})
        return table(
            f"{self.model}, {self.texts}: {self.count} texts, {self.tokens} tokens ({lengths}), "
            f"medians of {self.rounds} rounds; {self.gflop:.3g} GFLOP, matrix peak "
            f"in GFLOP/s: {self.peaks_text}",
            rows=rows,
            shown="method: {name} | s: {seconds:.2f} | texts/s: {speed:.0f} | "
            "faster: {ratio:.2f}x | CPU s: {cpu:.2f} | less CPU: {cpu_ratio:.2f}x | "
            "cosine: {cosine_mean:.5f} | least: {cosine:.5f} | equal: {same} | "
            "of peak: {peak_share:.0%}",
            notes=[note for note in (self.verdict, self.others.warning) if note],
        )


def _fastest(timings: Sequence[EncodeTiming]) -> str:
    """Say which method is fastest, and by how much; empty for fewer than two."""
    if len(timings) < 2:
        return ""
    fastest, next_fastest, *_ = sorted(timings, key=lambda timing: timing["seconds"])
    ratio = next_fastest["seconds"] / fastest["seconds"]
    if ratio > LEVEL:
        return f"{fastest['name']}, {ratio:.2f}x as fast as {next_fastest['name']}"
    return f"{fastest['name']}, level with {next_fastest['name']}"


def bench_texts(count: int) -> dict[str, list[str]]:
    """Return distinct texts: ``count`` short, as many of mixed lengths, a quarter as many long.

    A long passage has as many tokens as eighteen short queries or three texts of mixed lengths.
    """
    from qwen3nb.datasets.pydocs.build import load_pydocs

    entries = load_pydocs().entries
    # A set of texts has each only once; `dict.fromkeys` keeps their order.
    queries = list(dict.fromkeys(entry.summary for entry in entries))
    documents = list(dict.fromkeys(entry.text for entry in entries))
    half = count // 2
    sets = {
        "short queries": _spread(queries, count),
        "mixed lengths": [*_spread(queries, half), *_spread(documents, count - half)],
        "long passages": _spread(list(_joined_to_long(documents)), math.ceil(count / 4)),
    }
    return {name: texts for name, texts in sets.items() if texts}


def texts_of_file(file: Path, count: int) -> list[str]:
    """Return ``count`` distinct texts of a file, evenly spread.

    Args:
        file: one text per line, or JSON Lines with ``text``, if its name has ``.jsonl``.
        count: how many, at most.

    Raises:
        DataError: it cannot be read, or has no text.
    """
    if ".jsonl" in file.suffixes:
        texts = [text for _, (text,) in numbered_json_rows(file, {"text": str})]
    else:
        texts = [line.strip() for _, line in numbered_lines(file)]
    return _distinct(texts, count, of=str(file))


def texts_of_tasks(tasks: Sequence[str], count: int) -> dict[str, list[str]]:
    """Return, of each task, ``count`` distinct texts: queries and documents, evenly spread.

    Raises:
        DataError: a task without texts.
        MirrorError: its data are not at hand; nothing is downloaded.
    """
    texts_by_task: dict[str, list[str]] = {}
    for task in choose_tasks(tasks=tasks):
        for texts in task_texts(task):
            texts_by_task.setdefault(texts.task, []).extend(text for _, text in texts.read())
    return {name: _distinct(texts, count, of=name) for name, texts in texts_by_task.items()}


def _distinct(texts: Sequence[str], count: int, *, of: str) -> list[str]:
    distinct = [text for text in dict.fromkeys(texts) if text.strip()]
    if not distinct:
        raise DataError(f"{of}: no texts to encode")
    return _spread(distinct, count)


def _joined_to_long(documents: Sequence[str]) -> Iterator[str]:
    """Join neighbours to texts of `_LONG` characters."""
    text = ""
    for document in documents:
        text = f"{text}\n\n{document}" if text else document
        if len(text) >= _LONG:
            yield text[:_LONG]
            text = ""


def _spread(texts: Sequence[str], count: int) -> list[str]:
    """``count`` texts, evenly spread over the list."""
    step = max(1, len(texts) // count)
    return list(texts[::step][:count])


def bench_encode(
    model: str,
    *,
    texts: dict[str, list[str]] | None = None,
    rounds: int = 5,
    device: str = "cpu",
    dtype: str = "float32",
    peers: Sequence[str] = (),
) -> Iterator[EncodeBench]:
    """Measure each set of texts on one model.

    Args:
        model: a registry name or the folder of a sentence-transformers model, or
            ``qwen3-60M-random``, a random bidirectional Qwen3.
        texts: named sets; None for those of ``bench_texts(256)``.
        rounds: number of timed rounds, after an untimed one.
        device: the device.
        dtype: dtype of the weights; with fewer than 32 bits, vectors are close, not equal, and ours
            in float32 are timed, too. sentence-transformers has no 8 bits, and is in float32 then.
        peers: of `qwen3nb.bench.peers.PEERS`, besides sentence-transformers.

    Raises:
        ValueError: an unknown model, device, dtype or peer.
        ImportError: the library of a peer is not installed.
    """
    for peer in peers:
        check_choice("peer", peer, PEERS)
    if texts is None:
        texts = bench_texts(256)
    all_texts = list(itertools.chain.from_iterable(texts.values()))
    device = pick_device(device)
    float_dtype = "float32" if dtype == "int8" else dtype  # sentence-transformers has no 8 bits
    with model_folder(model, all_texts) as folder:
        peer_models = {PEER: load_peer(folder, device=device, dtype=float_dtype)}
        for name in dict.fromkeys(peers):
            peer_models[name] = load_graph(name, folder, texts=all_texts)
        # Only the random model has no name that this package can load it by.
        spec = folder if model == QWEN3 else model
        our_encoders = {}
        for our_dtype in dict.fromkeys(("float32", dtype)):
            our_encoders[our_dtype] = neural_encoder(spec, device=device, dtype=our_dtype)
        methods = _Methods(peer_models, our_encoders, float_dtype)
        for name, set_of_texts in texts.items():
            yield _compare_methods(model, name, set_of_texts, methods, rounds=rounds)


def neural_encoder(spec: str | Path, *, device: str, dtype: str) -> OurEncoder:
    """Load with this package a model whose forward passes it runs itself; nothing is cached."""
    our_encoder = load_encoder(spec, device=device, dtype=dtype, cache=False, show_progress=False)
    if not isinstance(our_encoder, OurEncoder) or our_encoder.runner is None:
        raise ValueError(f"{spec}: expected an encoder that this package runs itself")
    return our_encoder


def best_batch_size(peer: SentenceTransformer, texts: list[str]) -> int:
    """Return the batch size at which sentence-transformers is fastest on ``texts``."""
    peer_vectors(peer, texts[:64], batch_size=32)  # untimed: the first call is slower

    def best_seconds(size: int) -> float:
        call = partial(peer_vectors, peer, texts, batch_size=size)
        seconds = []
        for _ in range(2):
            _, timing = timed(call)
            seconds.append(timing.seconds)
        return min(seconds)

    return min(_BATCH_SIZES, key=best_seconds)


@dataclass(frozen=True)
class _Methods:
    """What is compared, in the order of the table."""

    peers: Mapping[str, SentenceTransformer]  # sentence-transformers first
    ours: Mapping[str, OurEncoder]  # by dtype, float32 first
    float_dtype: str  # of sentence-transformers

    def our_name(self, dtype: str) -> str:
        """Name of this package in a table; with the dtype if there are several."""
        if len(self.ours) == 1:
            return OURS
        return f"{OURS}, {dtype}"

    @property
    def exact(self) -> OurEncoder:
        """Ours in float32, whose vectors are the reference."""
        return self.ours["float32"]

    @property
    def identity(self) -> str:
        """That of the model in the dtype that is measured, the last."""
        *_, last = self.ours.values()
        return last.identity

    def dtype_of(self, way: str) -> str:
        """Return the dtype in which a method of `calls` multiplies matrices."""
        for dtype in self.ours:
            if way == self.our_name(dtype):
                return dtype
        if way == PEER:
            return self.float_dtype
        return "int8" if way.endswith("-int8") else "float32"  # graphs of other runtimes

    def limits(self, rows: Sequence[Sequence[int]]) -> tuple[float, dict[str, MatrixPeak]]:
        """Return the work of encoding rows of tokens, and what measures the peak of each dtype.

        8 bits have none on a processor on which this package does not run in them.
        """
        ways = [*self.peers, *map(self.our_name, self.ours)]
        dtypes = list(dict.fromkeys(map(self.dtype_of, ways)))
        peaks = {}
        for dtype in dtypes:
            if dtype != "int8" or runs_in_int8():
                # The shapes are those of the encoder in that dtype, if there is one.
                runner = self.ours.get(dtype, self.exact).runner
                gflop, peaks[dtype] = encoder_limit(runner, rows, dtype=dtype)
        return gflop, peaks

    def calls(
        self, texts: list[str], batch_sizes: Mapping[str, int]
    ) -> dict[str, Callable[[], Vectors]]:
        """Return what encodes the texts by each method, each peer at its batch size."""
        calls: dict[str, Callable[[], Vectors]] = {}
        for name, peer in self.peers.items():
            calls[name] = partial(peer_vectors, peer, texts, batch_size=batch_sizes[name])
        for dtype, encoder in self.ours.items():
            calls[self.our_name(dtype)] = partial(encoder.encode, texts)
        return calls


def _compare_methods(
    model: str, name: str, texts: list[str], methods: _Methods, *, rounds: int
) -> EncodeBench:
    """Compare times and vectors of peers and of ours on a set of texts."""
    rows = methods.exact._tokenise(texts)
    gflop, peaks = methods.limits(rows)
    batch_sizes = {way: best_batch_size(peer, texts) for way, peer in methods.peers.items()}
    calls = methods.calls(texts, batch_sizes)
    sample_peaks = partial(sample_all, peaks.values())
    with other_work() as others:
        medians, vectors = in_turn(calls, rounds=rounds, after=sample_peaks)
    reference = unit(vectors[methods.our_name("float32")])
    timings = []
    for way, timing in medians.items():
        label = way
        if way in batch_sizes:
            label = f"{way}, batch {batch_sizes[way]}"
        dtype = methods.dtype_of(way)
        peak = peaks.get(dtype)
        timings.append(
            EncodeTiming(
                name=label,
                way=way,
                seconds=timing.seconds,
                cpu=timing.cpu,
                ratio=medians[PEER].seconds / timing.seconds,
                cpu_ratio=medians[PEER].cpu / timing.cpu,
                dtype=dtype,
                **_closeness(unit(vectors[way]), reference),
                peak_share=peak.share(gflop, timing.seconds) if peak else None,
            )
        )
    counts = [len(row) for row in rows]
    return EncodeBench(
        model=model,
        texts=name,
        count=len(texts),
        tokens=sum(counts),
        lengths=_lengths(counts),
        rounds=rounds,
        batch_size=batch_sizes[PEER],
        timings=tuple(timings),
        gflop=gflop,
        peak_gflops={dtype: peak.gflops for dtype, peak in peaks.items()},
        identity=methods.identity,
        digest=sha256_json(texts),
        others=others,
    )


def _lengths(counts: Sequence[int]) -> dict[str, float]:
    """Return what the tokens of a text are on average, and at most."""
    median, p90, largest = np.quantile(counts, (0.5, 0.9, 1)).tolist()
    mean = sum(counts) / len(counts)
    return {"mean": mean, "median": median, "p90": p90, "max": largest}


def _closeness(vectors: NDArray[np.float64], reference: NDArray[np.float64]) -> Closeness:
    """Return how close unit vectors (N, D) are to those in float32."""
    cosines = np.multiply(vectors, reference).sum(axis=1)  # of unit vectors, row by row
    lowest_cosine = float(cosines.min())
    difference = float(np.abs(vectors - reference).max())
    return {
        "cosine": lowest_cosine,
        "cosine_mean": float(cosines.mean()),
        "difference": difference,
        "equal": lowest_cosine >= COSINE and difference <= DIFFERENCE,
    }
