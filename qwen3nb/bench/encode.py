"""Benchmark encoding against sentence-transformers at its best batch size, and in 16 bits.

The methods take turns in one process (`qwen3nb.bench.harness`); times include tokenising. A ratio
is the median time of sentence-transformers over that of a method. The vectors are compared in the
same run. The limit is the matrix peak, measured once in every round: the rate at which the same
matrix products run alone, in the same shapes and precision and with the same threads, so that other
work on the machine slows both. The share of the peak counts the work that the result needs, so
padding lowers it.

The texts are short sentences (AuthorSTS and the summaries of PyDocs), mixed lengths (as many
summaries as documents) and long documents (neighbours joined, about 200 to 256 tokens). All texts
are distinct, so that encoding duplicates only once does not count as speed.

In each precision, ours and sentence-transformers take turns. The vectors are compared with ours in
float32, and both search PyDocs: the paired difference of nDCG@10 counts as smaller than a margin if
its interval lies within it. The sample of PyDocs has too few queries to show a small margin; all of
it takes minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qwen3nb.analysis.stats.paired_tests import equivalence
from qwen3nb.bench.harness import in_turn, table, timed
from qwen3nb.bench.random_models import QWEN3, load_peer, model_folder, peer_vectors, unit
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.encoders.sentence_transformer import SentenceTransformerEncoder
from qwen3nb.models.encoders.transformer import TransformerEncoder
from qwen3nb.models.inference.onednn_linear import prepack
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.runtime import pick_device
from qwen3nb.models.search.exact import search
from qwen3nb.models.types import DTYPES, Vectors, torch_dtype
from qwen3nb.utils.choices import one_of

if TYPE_CHECKING:
    from qwen3nb.datasets.pydocs.build import PyDocs

COSINE, DIFFERENCE = 0.99999, 1e-5  # bounds within which float32 vectors count as equal
_BATCH_SIZES = (8, 16, 32, 64)
_LONG = 1000  # characters of a long document: about 200 to 256 tokens
MARGIN = 0.005  # differences of nDCG@10 below this do not matter
_METRIC = "nDCG@10"


@dataclass(frozen=True)
class EncodeBench:
    """Results for one model and one set of texts.

    A timing has, of each method, that of sentence-transformers at its best batch size first: median
    ``seconds`` and ``cpu`` seconds of all threads, the ``ratio`` and ``cpu_ratio`` of the first to
    them, the smallest ``cosine`` and the largest ``difference`` of a component of its unit vectors
    and the first's, whether they are ``equal`` up to rounding, and the ``peak_share``.
    """

    model: str
    texts: str
    count: int
    tokens: int  # number of tokens
    rounds: int
    batch_size: int  # the best batch size of sentence-transformers
    timings: tuple[dict[str, Any], ...]
    gflop: float  # 10⁹ operations of matrix products that the vectors need
    # 10⁹ operations per second of the linear layers alone, at their best in the same rounds, in
    # the shapes and the precision of the last method
    peak_gflops: float

    def table(self) -> str:
        """The timings as plain text."""
        return table(
            f"{self.model}, {self.texts}: {self.count} texts, {self.tokens} tokens, medians of "
            f"{self.rounds} rounds; {self.gflop:.3g} GFLOP, matrix peak "
            f"{self.peak_gflops:.0f} GFLOP/s",
            rows=[
                {
                    **each,
                    "speed": self.count / each["seconds"],
                    "same": "yes" if each["equal"] else "no",
                }
                for each in self.timings
            ],
            shown="method: {name} | s: {seconds:.2f} | texts/s: {speed:.0f} | "
            "faster: {ratio:.2f}x | CPU s: {cpu:.2f} | less CPU: {cpu_ratio:.2f}x | "
            "max difference: {difference:.0e} | equal: {same} | of peak: {peak_share:.0%}",
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
        ValueError: an unknown model, device or dtype.
    """
    texts = texts if texts is not None else bench_texts(256)
    where = {"device": pick_device(device), "dtype": dtype}
    with model_folder(model, [text for each in texts.values() for text in each]) as folder:
        peer = load_peer(folder, **where)
        ours = neural_encoder(folder if model == QWEN3 else model, **where)
        for name, each in texts.items():
            yield _measured(model, name, each, peer, ours, rounds=rounds, dtype=dtype)


def neural_encoder(
    spec: str | Path, *, device: str, dtype: str
) -> SentenceTransformerEncoder | TransformerEncoder:
    """Load with this package a model whose forward passes it runs itself; nothing is cached."""
    ours = load_encoder(spec, device=device, dtype=dtype, cache=False, show_progress=False)
    known = SentenceTransformerEncoder | TransformerEncoder
    if not isinstance(ours, known) or ours.runner is None:
        raise ValueError(f"{spec}: expected an encoder that this package runs itself")
    return ours


def best_batch_size(peer: Any, texts: list[str]) -> int:
    """Return the batch size at which sentence-transformers is fastest on ``texts``."""
    peer_vectors(peer, texts[:64], batch_size=32)  # warm

    def seconds(size: int) -> float:
        call = partial(peer_vectors, peer, texts, batch_size=size)
        return min(timed(call)[1].seconds for _ in range(2))

    return min(_BATCH_SIZES, key=seconds)


def _measured(
    model: str,
    name: str,
    texts: list[str],
    peer: Any,
    ours: SentenceTransformerEncoder | TransformerEncoder,
    *,
    rounds: int,
    dtype: str,
) -> EncodeBench:
    """Compare times and vectors of each method with those of sentence-transformers."""
    best, rows = best_batch_size(peer, texts), ours._tokenise(texts)
    work, peak = encoder_limit(ours.runner, rows, dtype=dtype)
    first = f"sentence-transformers, batch {best}"
    methods: dict[str, Callable[[], Vectors]] = {
        first: partial(peer_vectors, peer, texts, batch_size=best),
        "load_encoder(...).encode": partial(ours.encode, texts),
    }
    medians, vectors = in_turn(methods, rounds=rounds, after=peak.sample)
    timings = []
    for way, took in medians.items():
        pair = unit(vectors[way]), unit(vectors[first])
        cosine = float(np.multiply(*pair).sum(axis=1).min())
        difference = float(np.abs(np.subtract(*pair)).max())
        timings.append(
            {
                "name": way,
                **vars(took),
                "ratio": medians[first].seconds / took.seconds,
                "cpu_ratio": medians[first].cpu / took.cpu,
                "cosine": cosine,
                "difference": difference,
                "equal": cosine >= COSINE and difference <= DIFFERENCE,
                "peak_share": peak.share(work, took.seconds),
            }
        )
    return EncodeBench(
        model=model,
        texts=name,
        count=len(texts),
        tokens=sum(map(len, rows)),
        rounds=rounds,
        batch_size=best,
        timings=tuple(timings),
        gflop=work,
        peak_gflops=peak.gflops,
    )


@dataclass(frozen=True)
class PrecisionBench:
    """Results for one model.

    A timing has, of each ``dtype``, float32 first: ``texts_per_second`` of this package, its speed
    relative to float32 (``float32_ratio``) and to sentence-transformers in the same dtype
    (``peer_ratio``) at its best batch size, the ``peak_share``, smallest and mean cosine of a
    vector with that in float32, ``ndcg`` on PyDocs, the mean difference from float32
    (``ndcg_difference``) with the 95 % ``interval`` (None for float32 and a single query), whether
    it shows that the difference is within the margin (``equivalent``), and how many queries that
    differ like these would (``queries_needed``, or None).
    """

    model: str
    queries: int  # number of queries of PyDocs
    margin: float  # see `MARGIN`
    timings: tuple[dict[str, Any], ...]

    @staticmethod
    def shown(timing: Mapping[str, Any]) -> tuple[str, str]:
        """Whether equivalence with float32 is shown, and if not, how many queries would show it."""
        if timing["dtype"] == "float32":
            return "is the reference", ""
        needed = timing["queries_needed"] and f"{timing['queries_needed']:,} queries would"
        return ("yes", "") if timing["equivalent"] else ("not shown", needed or "")


def bench_precision(
    model: str,
    *,
    pydocs: PyDocs,
    dtypes: Sequence[str] = ("bfloat16",),
    texts: int = 128,
    rounds: int = 3,
) -> PrecisionBench:
    """Measure each dtype on the CPU.

    Args:
        model: as for `qwen3nb.bench.encode.bench_encode`.
        pydocs: what is searched, PyDocs or a sample of it.
        dtypes: besides float32.
        texts: number of timed texts.
        rounds: number of timed rounds, after an untimed one.

    Raises:
        ValueError: an unknown model or dtype.
    """
    for each in dtypes:
        one_of("dtype", each, DTYPES)
    names = tuple(dict.fromkeys(("float32", *dtypes)))
    encoded = bench_texts(texts)["mixed lengths"]
    calls: dict[str, Any] = {}
    limits: dict[str, tuple[float, MatrixPeak]] = {}
    with model_folder(model, encoded) as folder:
        spec = folder if model == QWEN3 else model
        for dtype in names:
            ours = neural_encoder(spec, device="cpu", dtype=dtype)
            peer = load_peer(folder, device="cpu", dtype=dtype)
            size, rows = best_batch_size(peer, encoded), ours._tokenise(encoded)
            limits[dtype] = encoder_limit(ours.runner, rows, dtype=dtype)
            calls[dtype] = partial(ours.encode, encoded)
            calls[f"{dtype} peer"] = partial(peer_vectors, peer, encoded, batch_size=size)
        peaks = [peak for _, peak in limits.values()]
        medians, _ = in_turn(calls, rounds=rounds, after=lambda: [each.sample() for each in peaks])
        searched = {dtype: _searched(spec, dtype, pydocs) for dtype in names}
    exact_vectors, exact_scores = searched["float32"]
    timings = []
    for dtype in names:
        (vectors, scores), (work, peak) = searched[dtype], limits[dtype]
        cosines = (unit(exact_vectors) * unit(vectors)).sum(axis=1)
        exact, own, theirs = (medians[e].seconds for e in ("float32", dtype, f"{dtype} peer"))
        test = equivalence(scores, exact_scores, margin=MARGIN)
        timings.append(
            {
                "dtype": dtype,
                "texts_per_second": len(encoded) / own,
                "float32_ratio": exact / own,
                "peer_ratio": theirs / own,
                "peak_share": peak.share(work, own),
                "cosine_min": float(cosines.min()),
                "cosine_mean": float(cosines.mean()),
                "ndcg": float(scores.mean()),
                "ndcg_difference": test.difference,
                "interval": None if dtype == "float32" else test.interval,
                "equivalent": test.equivalent,
                "queries_needed": test.queries_needed,
            }
        )
    return PrecisionBench(model, len(pydocs.queries), MARGIN, tuple(timings))


def _searched(spec: Any, dtype: str, pydocs: PyDocs) -> tuple[Vectors, NDArray[np.float64]]:
    """Return the vectors of documents and queries, and nDCG@10 per query."""
    documents, queries = pydocs.corpus, pydocs.queries
    # Nothing is timed here, so vectors may come from the cache.
    encoder = load_encoder(spec, device="cpu", dtype=dtype, show_progress=False)
    vectors = encoder.encode([*documents.values(), *queries.values()])
    corpus, sought = vectors[: len(documents)], vectors[len(documents) :]
    run = search(sought, corpus, k=10).run(queries, list(documents))
    scores = score_run(pydocs.qrels, run, [_METRIC])[_METRIC]
    return vectors, np.array([scores[query] for query in queries])


Shape = tuple[int, int, int]  # rows, inputs, outputs: 2 · rows · inputs · outputs operations
_REPEATS = 3  # of each product per sample; the best counts


def encoder_work(model: Any, lengths: Sequence[int]) -> float:
    """Return the 10⁹ operations of matrix products in one forward pass per text, without padding.

    A linear layer takes 2 · tokens · inputs · outputs (Kaplan et al. 2020, table 1); attention
    takes 4 · heads · head size for each pair of a token and one that it attends to, 2 for the
    scores and 2 for the weighted sum (as `torch.utils.flop_counter` counts them).
    """
    from qwen3nb.models.inference.packing import packing_of

    config, packing = model.config.get_text_config(), packing_of(model)
    causal = packing is not None and packing.causal  # a token attends to earlier ones only
    pairs = sum(each * (each + 1) // 2 if causal else each**2 for each in lengths)
    weights = sum(each.in_features * each.out_features for each in _linear_layers(model))
    heads = int(config.num_attention_heads)
    width = heads * int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    attention = 4 * pairs * width * int(config.num_hidden_layers)
    return (2 * sum(lengths) * weights + attention) / 1e9


def _linear_layers(module: Any) -> list[Any]:
    """Linear layers that see every token: all but the pooler's."""
    every = (each for name, each in module.named_modules() if not name.startswith("pooler"))
    return [each for each in every if hasattr(each, "in_features")]


def product_shapes(model: Any, call: Callable[[], object]) -> Counter[Shape]:
    """Run ``call`` and count the shapes of the products in ``model``'s linear layers."""
    shapes: Counter[Shape] = Counter()

    def note(layer: Any, inputs: tuple[Tensor, ...]) -> None:
        rows = inputs[0].numel() // layer.in_features
        shapes[rows, layer.in_features, layer.out_features] += 1

    hooks = [layer.register_forward_pre_hook(note) for layer in _linear_layers(model)]
    try:
        call()
    finally:
        for hook in hooks:
            hook.remove()
    return shapes


class MatrixPeak:
    """Measures the rate of matrix products alone, in the faster of PyTorch's libraries."""

    def __init__(
        self, shapes: Mapping[Shape, int], *, dtype: str = "float32", device: str = "cpu"
    ) -> None:
        """Prepare the products of the ``shapes``, by how often each occurs.

        Of the shapes of one layer, the one with the median row is measured.
        """
        self._device, kind = torch.device(device), torch_dtype(dtype)
        self._products: list[tuple[Shape, int, Tensor, list[nn.Module]]] = []
        layers: dict[tuple[int, int], Counter[int]] = {}
        for (size, inputs, outputs), count in shapes.items():
            layers.setdefault((inputs, outputs), Counter())[size] += count
        for (inputs, outputs), counts in layers.items():
            sizes = sorted(counts)
            rows = np.cumsum([size * counts[size] for size in sizes])
            shape = (sizes[int(np.searchsorted(rows, rows[-1] / 2))], inputs, outputs)
            flop = 2 * int(rows[-1]) * inputs * outputs
            self._products.append((shape, flop, *self._layers(shape, kind)))
        self._best = {shape: float("inf") for shape, *_ in self._products}

    def _layers(self, shape: Shape, dtype: torch.dtype) -> tuple[Tensor, list[nn.Module]]:
        """Return an input and a layer per library."""
        rows, inputs, outputs = shape
        random = torch.Generator().manual_seed(0)  # does not touch the global generator
        layers: list[nn.Module] = []
        weight = torch.randn(outputs, inputs, generator=random) * inputs**-0.5
        for fast in (False, True):
            linear = nn.Linear(inputs, outputs, bias=False, device="meta")
            linear.weight = nn.Parameter(weight.to(self._device, dtype), requires_grad=False)
            layer = nn.Sequential(linear)
            if not fast or prepack(layer, force=True):
                layers.append(layer)
        states = torch.randn(rows, inputs, generator=random)
        return states.to(self._device, dtype), layers

    @torch.inference_mode()
    def sample(self) -> None:
        """Time each product a few times; the best time of all samples counts."""
        for shape, _, states, layers in self._products:
            for layer in layers:
                times = [self._seconds(layer, states) for _ in range(_REPEATS)]
                self._best[shape] = min(self._best[shape], *times)

    def _seconds(self, layer: nn.Module, states: Tensor) -> float:
        return timed(partial(layer, states), device=self._device)[1].seconds

    @property
    def gflops(self) -> float:
        """10⁹ operations per second, over all products by their part of the work."""
        seconds = 0.0
        for (rows, inputs, outputs), flop, *_ in self._products:
            seconds += flop / (2 * rows * inputs * outputs) * self._best[rows, inputs, outputs]
        return sum(flop for _, flop, *_ in self._products) / seconds / 1e9

    def share(self, gflop: float, seconds: float) -> float:
        """The share of the peak that ``gflop`` in ``seconds`` reach."""
        return gflop / seconds / self.gflops


def encoder_limit(
    runner: Runner, rows: Sequence[Sequence[int]], *, dtype: str
) -> tuple[float, MatrixPeak]:
    """Return the work of encoding rows of tokens, and what measures the peak in their shapes."""
    model = runner.model
    shapes = product_shapes(model, lambda: runner.vectors(rows))
    peak = MatrixPeak(shapes, dtype=dtype, device=str(model.device))
    return encoder_work(model, list(map(len, rows))), peak
