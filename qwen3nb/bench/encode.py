"""Benchmark encoding against sentence-transformers and other runtimes, and in 16 and 8 bits.

The methods take turns in one process (`qwen3nb.bench.harness`), each peer at its best batch size;
times include tokenising. A ratio is the median time of sentence-transformers over that of a method.
The vectors are compared in the same run with those in float32. The limit is the matrix peak,
measured once in every round: the rate at which the same matrix products run alone, in the same
shapes and precision and with the same threads, so that other work on the machine slows both. The
share of the peak counts the work that the result needs, so padding lowers it.

The texts are short sentences (AuthorSTS and the summaries of PyDocs), mixed lengths (as many
summaries as documents) and long documents (neighbours joined, about 200 to 256 tokens), or texts of
files and of tasks. All texts are distinct, so that encoding duplicates only once does not count as
speed. Ratios depend on the lengths, so each set says its own and no mean over sets is made.

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
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qwen3nb.analysis.stats.paired_tests import equivalence
from qwen3nb.bench.harness import in_turn, table, timed
from qwen3nb.bench.peers import PEERS, load_graph
from qwen3nb.bench.random_models import QWEN3, load_peer, model_folder, peer_vectors, unit
from qwen3nb.datasets.rows import DataError, numbered_json_rows, numbered_lines
from qwen3nb.evaluation.contamination import task_texts
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.encoders.sentence_transformer import SentenceTransformerEncoder
from qwen3nb.models.encoders.transformer import TransformerEncoder
from qwen3nb.models.inference.int8_linear import Codes, Int8Linear, runs_in_int8, to_codes
from qwen3nb.models.inference.onednn_linear import prepack
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.runtime import pick_device
from qwen3nb.models.search.exact import search
from qwen3nb.models.types import DTYPES, Vectors, torch_dtype
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.choices import one_of

if TYPE_CHECKING:
    from qwen3nb.datasets.pydocs.build import PyDocs

COSINE, DIFFERENCE = 0.99999, 1e-5  # bounds within which float32 vectors count as equal
_BATCH_SIZES = (8, 16, 32, 64)
_LONG = 1000  # characters of a long document: about 200 to 256 tokens
LEVEL = 1.1  # ratios of times below this are no difference
OURS = "load_encoder(...).encode"
MARGIN = 0.005  # differences of nDCG@10 below this do not matter
_METRIC = "nDCG@10"


@dataclass(frozen=True)
class EncodeBench:
    """Results for one model and one set of texts.

    A timing has, of each method, that of sentence-transformers first and ours last: its ``way``,
    and its ``name`` with the batch size; median ``seconds`` and ``cpu`` seconds of all threads, the
    ``ratio`` and ``cpu_ratio`` of the first to them; the smallest ``cosine``, its ``cosine_mean``
    and the largest ``difference`` of a component of its unit vectors and those in float32, whether
    they are ``equal`` up to rounding; and the ``peak_share``.
    """

    model: str
    texts: str
    count: int
    tokens: int  # number of tokens, after truncation
    lengths: dict[str, float]  # tokens of a text: mean, median, p90, max
    rounds: int
    batch_size: int  # the best batch size of sentence-transformers
    timings: tuple[dict[str, Any], ...]
    gflop: float  # 10⁹ operations of matrix products that the vectors need
    # 10⁹ operations per second of the linear layers alone, at their best in the same rounds, in
    # the shapes and the precision of the last method; float32 if that has 8 bits
    peak_gflops: float
    identity: str = ""  # of the model
    digest: str = ""  # of the texts

    @property
    def verdict(self) -> str:
        """Which method is fastest, and which of those with the vectors of float32."""
        equal = [each for each in self.timings if each["equal"]]
        found: dict[str, str] = {}
        for kind, timings in (("equal vectors", equal), ("fastest", self.timings)):
            ahead = sorted(timings, key=lambda each: each["seconds"])
            if len(ahead) > 1:
                lead = ahead[1]["seconds"] / ahead[0]["seconds"]
                how = f"{lead:.2f}x as fast as" if lead > LEVEL else "level with"
                found[f"{ahead[0]['name']}, {how} {ahead[1]['name']}"] = kind
        return "; ".join(f"{kind}: {what}" for what, kind in reversed(found.items()))

    def table(self) -> str:
        """The timings as plain text."""
        spread = ", ".join(f"{name} {tokens:.0f}" for name, tokens in self.lengths.items())
        return table(
            f"{self.model}, {self.texts}: {self.count} texts, {self.tokens} tokens ({spread}), "
            f"medians of {self.rounds} rounds; {self.gflop:.3g} GFLOP, matrix peak "
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
            "cosine: {cosine_mean:.5f} | least: {cosine:.5f} | equal: {same} | "
            "of peak: {peak_share:.0%}",
            notes=[self.verdict],
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
    found: dict[str, list[str]] = {}
    for each in chain.from_iterable(map(task_texts, choose_tasks(tasks=tasks))):
        found.setdefault(each.task, []).extend(text for _, text in each.read())
    return {name: _distinct(texts, count, of=name) for name, texts in found.items()}


def _distinct(texts: Sequence[str], count: int, *, of: str) -> list[str]:
    distinct = [text for text in dict.fromkeys(texts) if text.strip()]
    if not distinct:
        raise DataError(f"{of}: no texts to encode")
    return _spread(distinct, count)


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
    for each in peers:
        one_of("peer", each, PEERS)
    sets = texts if texts is not None else bench_texts(256)
    every = [text for each in sets.values() for text in each]
    device, floats = pick_device(device), "float32" if dtype == "int8" else dtype
    with model_folder(model, every) as folder:
        loaded = {"sentence-transformers": load_peer(folder, device=device, dtype=floats)}
        loaded |= {name: load_graph(name, folder, texts=every) for name in dict.fromkeys(peers)}
        spec = folder if model == QWEN3 else model
        ours = {
            each: neural_encoder(spec, device=device, dtype=each)
            for each in dict.fromkeys(("float32", dtype))
        }
        for name, chosen in sets.items():
            yield _measured(model, name, chosen, loaded, ours, rounds=rounds, floats=floats)


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
    peers: Mapping[str, Any],
    ours: Mapping[str, SentenceTransformerEncoder | TransformerEncoder],
    *,
    rounds: int,
    floats: str,
) -> EncodeBench:
    """Compare times and vectors of peers and of ours, by dtype from float32 on."""
    best = {way: best_batch_size(peer, texts) for way, peer in peers.items()}
    exact, encoder = ours["float32"], list(ours.values())[-1]
    rows = exact._tokenise(texts)
    work, peak = encoder_limit(ours.get(floats, exact).runner, rows, dtype=floats)
    methods: dict[str, Callable[[], Vectors]] = {
        way: partial(peer_vectors, peer, texts, batch_size=best[way]) for way, peer in peers.items()
    }
    own = {f"{OURS}, {dtype}" if len(ours) > 1 else OURS: each for dtype, each in ours.items()}
    methods |= {way: partial(each.encode, texts) for way, each in own.items()}
    medians, vectors = in_turn(methods, rounds=rounds, after=peak.sample)
    first, reference = medians[next(iter(peers))], unit(vectors[next(iter(own))])
    timings = []
    for way, took in medians.items():
        pair = unit(vectors[way]), reference
        cosines = np.multiply(*pair).sum(axis=1)
        difference = float(np.abs(np.subtract(*pair)).max())
        timings.append(
            {
                "name": f"{way}, batch {best[way]}" if way in best else way,
                "way": way,
                **vars(took),
                "ratio": first.seconds / took.seconds,
                "cpu_ratio": first.cpu / took.cpu,
                "cosine": float(cosines.min()),
                "cosine_mean": float(cosines.mean()),
                "difference": difference,
                "equal": float(cosines.min()) >= COSINE and difference <= DIFFERENCE,
                "peak_share": peak.share(work, took.seconds),
            }
        )
    counts = list(map(len, rows))
    lengths = [sum(counts) / len(counts), *np.quantile(counts, (0.5, 0.9, 1)).tolist()]
    return EncodeBench(
        model=model,
        texts=name,
        count=len(texts),
        tokens=sum(counts),
        lengths=dict(zip(("mean", "median", "p90", "max"), lengths, strict=True)),
        rounds=rounds,
        batch_size=best["sentence-transformers"],
        timings=tuple(timings),
        gflop=work,
        peak_gflops=peak.gflops,
        identity=encoder.identity,
        digest=sha256_json(texts),
    )


@dataclass(frozen=True)
class PrecisionBench:
    """Results for one model.

    A timing has, of each ``dtype``, float32 first: ``texts_per_second`` of this package, its speed
    relative to float32 (``float32_ratio``) and to sentence-transformers in the same dtype, or
    float32 for int8 (``peer_ratio``), at its best batch size, the ``peak_share``, smallest and mean
    cosine of a vector with that in float32, ``ndcg`` on PyDocs, the mean difference from float32
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
    dtypes: Sequence[str] | None = None,
    texts: int = 128,
    rounds: int = 3,
) -> PrecisionBench:
    """Measure each dtype on the CPU.

    Args:
        model: as for `qwen3nb.bench.encode.bench_encode`.
        pydocs: what is searched, PyDocs or a sample of it.
        dtypes: besides float32; None for bfloat16, and int8 where the CPU has VNNI.
        texts: number of timed texts.
        rounds: number of timed rounds, after an untimed one.

    Raises:
        ValueError: an unknown model or dtype.
    """
    if dtypes is None:
        dtypes = ("bfloat16", "int8") if runs_in_int8() else ("bfloat16",)
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
        rows = inputs[0].shape[:-1].numel()
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
        self._device, self._dtype = torch.device(device), dtype
        self._products: list[tuple[Shape, int, Tensor | Codes, list[nn.Module]]] = []
        layers: dict[tuple[int, int], Counter[int]] = {}
        for (size, inputs, outputs), count in shapes.items():
            layers.setdefault((inputs, outputs), Counter())[size] += count
        for (inputs, outputs), counts in layers.items():
            sizes = sorted(counts)
            rows = np.cumsum([size * counts[size] for size in sizes])
            shape = (sizes[int(np.searchsorted(rows, rows[-1] / 2))], inputs, outputs)
            flop = 2 * int(rows[-1]) * inputs * outputs
            self._products.append((shape, flop, *self._layers(shape)))
        self._best = {shape: float("inf") for shape, *_ in self._products}

    def _layers(self, shape: Shape) -> tuple[Tensor | Codes, list[nn.Module]]:
        """Return an input and a layer per library; in 8 bits there is one."""
        rows, inputs, outputs = shape
        random = torch.Generator().manual_seed(0)  # does not touch the global generator
        layers: list[nn.Module] = []
        weight = torch.randn(outputs, inputs, generator=random) * inputs**-0.5
        states = torch.randn(rows, inputs, generator=random)
        if self._dtype == "int8":
            return to_codes(states), [Int8Linear(weight, None)]
        dtype = torch_dtype(self._dtype)
        for fast in (False, True):
            linear = nn.Linear(inputs, outputs, bias=False, device="meta")
            linear.weight = nn.Parameter(weight.to(self._device, dtype), requires_grad=False)
            layer = nn.Sequential(linear)
            if not fast or prepack(layer, force=True):
                layers.append(layer)
        return states.to(self._device, dtype), layers

    @torch.inference_mode()
    def sample(self) -> None:
        """Time each product a few times; the best time of all samples counts."""
        for shape, _, states, layers in self._products:
            for layer in layers:
                call = partial(layer, states)
                times = (timed(call, device=self._device)[1].seconds for _ in range(_REPEATS))
                self._best[shape] = min(self._best[shape], *times)

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
