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
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.options import command
from qwen3nb.bench.encode import neural_encoder
from qwen3nb.bench.harness import in_turn, machine, table, timed
from qwen3nb.bench.matrix_peak import MatrixPeak, encoder_work
from qwen3nb.bench.random_models import (
    QUERY,
    VOCABULARY,
    cross_encoder,
    documents,
    load_peer,
    peer_vectors,
    predict,
    qwen3_shape,
    save_random,
    write_random_reranker,
)
from qwen3nb.bench.rerank import SHAPES as RERANKERS
from qwen3nb.extraction.export import listed_modules
from qwen3nb.models.inference.token_budget import is_out_of_memory
from qwen3nb.models.modeling.runtime import pick_device
from qwen3nb.models.modeling.tiny_tokenizer import write_tokenizer
from qwen3nb.models.rerankers import load_reranker
from qwen3nb.models.types import torch_dtype
from qwen3nb.utils.atomic_files import write_json
from qwen3nb.utils.choices import check_choice

# hidden, intermediate, layers, heads, and of a Qwen3 (another is a BERT) key heads and head size
SHAPES: dict[str, tuple[int, ...]] = {
    "tiny": RERANKERS["tiny"],
    "MiniLM": (384, 1536, 6, 12),
    "bge-base": (768, 3072, 12, 12),
    "Qwen3-0.6B": RERANKERS["0.6B"],
    "Qwen3-4B": (2560, 9728, 36, 32, 8, 128),
}
LENGTHS = (50, 75, 512)  # tokens per text, on average
COSINE = 0.99  # least cosine in 16 bits that counts as right; what is measured is printed
_YES = 0.1  # largest difference of P(yes) in 16 bits that counts as right
_HITS = 1e-6  # largest difference of the scores of a search that counts as right
_MOST = 200_000  # texts
_SAMPLE = 64  # texts that warm up, and of which equality is tested
_COUNTED = 1000  # texts whose tokens are counted
_BATCHES = (32, 256)  # batch sizes of sentence-transformers
_ROUNDS = 2
_SHARE = 0.5  # of the time goes into timed rounds; the rest loads, warms up and compares

Encode = Callable[[list[str]], Any]


@dataclass(frozen=True)
class GpuBench:
    """All that was measured.

    A row of ``equality`` has, of a model's ``vectors`` or ``scores``, how it runs, the smallest
    cosine of a sample with float32 on the CPU (of scores the largest difference of P(yes), of
    the ``hits`` of a search the largest difference of a score, where the ids must be the same),
    the same of all texts together with one text at a time, and whether both are within the
    bounds. A row of ``speed`` has, of ``encode``, ``rerank`` or ``search`` (of 1,000 queries in
    vectors of 1,024 dimensions), tokens per text, texts, texts per second of ours and of the
    best method of sentence-transformers, and ours as a share of the peak.
    """

    device: str  # name of the GPU, or ``cpu``
    machine: str  # what else speed depends on
    dtype: str
    peak: float  # operations per second of a large matrix product
    equality: tuple[dict[str, Any], ...]
    speed: tuple[dict[str, Any], ...]
    left_out: tuple[str, ...]  # what did not fit in time or memory, and why

    def table(self) -> str:
        """The measurements as plain text."""
        equality = (
            "model: {model} | of: {what} | way: {way} | sample: {sample} | "
            "to float32: {to_float32:.6f} | across batches: {across_batches:.6f} | equal: {equal}"
        )
        speed = (
            "model: {model} | speed of: {what} | tokens: {tokens:.0f} | texts: {texts} | "
            "texts/s: {ours:.1f} | peer: {peer:.1f} | faster: {ratio:.2f}x | "
            "of peak: {share:.0%} | peer's method: {method}"
        )
        same = [{**each, "equal": "yes" if each["equal"] else "NO"} for each in self.equality]
        rows = [{**each, "ratio": each["ours"] / each["peer"]} for each in self.speed]
        first = (
            f"{self.device}, {self.machine}",
            f"matrix products in {self.dtype}: {self.peak / 1e12:.4g} TFLOP/s",
            "",
            "equality: cosine of vectors, difference of P(yes) of scores and of the scores of hits",
        )
        notes = [f"left out: {each}" for each in self.left_out]
        below = table("", rows=rows, shown=speed, notes=notes)
        return table(*first, rows=same, shown=equality, notes=[below])


def bench_gpu(
    *,
    shapes: tuple[str, ...] = tuple(SHAPES)[1:],
    lengths: tuple[int, ...] = LENGTHS,
    minutes: float = 10.0,
    device: str = "cuda",
    dtype: str = "bfloat16",
) -> GpuBench:
    """Encode and rerank on a GPU beside sentence-transformers; exits with 1 if results differ.

    Args:
        shapes: keys of `SHAPES`.
        lengths: tokens per text, up to 1,000.
        minutes: when to stop; models that have not been started by then are left out.
        device: ``cuda`` or ``cuda:1``; ``cpu`` to rehearse.
        dtype: ``bfloat16`` or ``float16``.

    Raises:
        ValueError: no such device, shape or dtype, or a length out of bounds.
    """
    if device != "cpu" and not torch.cuda.is_available():
        raise ValueError(
            "expected a GPU, and PyTorch finds none here; to rehearse without one: "
            "--device cpu --shapes tiny"
        )
    for name in shapes:
        check_choice("shape", name, SHAPES)
    check_choice("dtype", dtype, ("bfloat16", "float16"))
    if not lengths or min(lengths) < 1 or max(lengths) > 1000 or minutes <= 0:
        raise ValueError(f"expected lengths of 1 to 1000 and minutes > 0; got {lengths}, {minutes}")
    end = time.monotonic() + 60 * minutes
    size = 8192 if device != "cpu" else 512
    device = pick_device(device)
    peak = MatrixPeak({(size, size, size): 1}, dtype=dtype, device=device)
    for _ in range(2):
        peak.sample()
    row = 60 * minutes * _SHARE / (len(shapes) * len(lengths) + 1)  # seconds of all timed calls
    subject = _Subject(device, dtype, row, 1e9 * peak.gflops)
    measured: list[dict[str, Any]] = []
    left_out = []
    for name in shapes:
        if time.monotonic() > end:
            left_out.append(f"{name}: {minutes:g} minutes were over")
            continue
        print(f"{name}: a random model is compared with float32", file=sys.stderr)
        try:
            measured.extend(subject.measure(name, lengths))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            left_out.append(f"{name}, in part: {str(error).splitlines()[0]}")
        gc.collect()  # models hold each other in cycles
    measured.extend(_searched(device, 200_000 if device != "cpu" else 2_000))
    return GpuBench(
        device=torch.cuda.get_device_name(device) if device != "cpu" else "cpu",
        machine=machine(),
        dtype=dtype,
        peak=subject.peak,
        equality=tuple(each for each in measured if "equal" in each),
        speed=tuple(each for each in measured if "ours" in each),
        left_out=tuple(left_out),
    )


class _Texts:
    """Distinct texts of about so many tokens: words of docstrings, from random places."""

    def __init__(self, tokenise: Callable[[list[str]], Sequence[Sequence[int]]]) -> None:
        from qwen3nb.datasets.pydocs.build import load_pydocs

        self._words = [word for entry in load_pydocs().entries for word in entry.text.split()]
        self._tokenise = tokenise
        sample = " ".join(self._words[:2000])[:4000]
        self._tokens_per_word = sum(self.tokens([sample])) / len(sample.split())

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each text."""
        return list(map(len, self._tokenise(list(texts))))

    def draw(self, tokens: int, count: int) -> list[str]:
        """``count`` texts, half to one and a half times as long as ``tokens``."""
        draw = np.random.default_rng(0)
        words = draw.uniform(0.5, 1.5, count) * tokens / self._tokens_per_word
        starts = draw.integers(0, len(self._words) // 2, count)
        return [
            " ".join([str(index), *self._words[start : start + max(1, int(some))]])
            for index, (start, some) in enumerate(zip(starts, words, strict=True))
        ]


@dataclass(frozen=True)
class _Subject:
    """Where models run, how many seconds a row of the table may take, and the peak."""

    device: str
    dtype: str
    row_seconds: float
    peak: float

    def measure(self, name: str, lengths: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Measure one shape: equality first, then each length, then its reranker."""
        from transformers import BertConfig, Qwen3Config

        hidden, where = SHAPES[name][0], {"device": self.device, "dtype": self.dtype}
        own = qwen3_shape(*SHAPES[name], max_position_embeddings=1024)
        own["initializer_range"] = hidden**-0.5
        rows = {"vocab_size": 8_448 if name == "tiny" else VOCABULARY}
        config = Qwen3Config(**own, **rows) if len(SHAPES[name]) > 4 else BertConfig(**own)
        with tempfile.TemporaryDirectory(prefix="qwen3nb-bench-") as work:
            folder, file = Path(work) / "encoder", Path(work) / "v.npy"
            _write_encoder(folder, config, **where)
            ours: Any = neural_encoder(folder, **where)
            texts = _Texts(ours._tokenise)
            sample = texts.draw(64, _SAMPLE if hidden < 2048 else 8)
            exact = neural_encoder(folder, device="cpu", dtype="float32")
            together = ours.encode(sample)
            alone = np.concatenate([ours.encode([text]) for text in sample])
            others = (exact.encode(sample), alone)
            near, same = (float((together * each).sum(1).min()) for each in others)
            way, equal = ours.runner.way, min(near, same) >= COSINE
            yield _equality(name, "vectors", way, len(sample), near, same, equal)
            ways = ["sdpa"]
            if self.device != "cpu" and importlib.util.find_spec("flash_attn"):
                ways.append("flash_attention_2")
            theirs: dict[str, Encode] = {}
            for attention in ways:
                peer = load_peer(folder, attention=attention, **where)
                for size in _BATCHES:
                    call = partial(peer_vectors, peer, batch_size=size)
                    theirs[f"{attention}, batch {size}"] = call
            few = 4 * _SAMPLE if self.device != "cpu" else _SAMPLE
            for length in lengths:
                row = self._speed(texts, length, few, ours.encode, theirs, file)
                counts = texts.tokens(texts.draw(length, row["texts"])[:_COUNTED])
                flop = 1e9 * encoder_work(ours.runner.model, counts) / len(counts)
                share = flop * row["ours"] / self.peak
                yield {"model": name, "what": "encode", **row, "share": share}
            del ours, exact, peer, theirs
            if SHAPES[name] in RERANKERS.values():
                yield from self._reranked(name, Path(work) / "reranker", texts)

    def _reranked(self, name: str, folder: Path, texts: _Texts) -> Iterator[dict[str, Any]]:
        """Rerank the documents of one query with ours and with a CrossEncoder in turn."""
        folder.mkdir()
        write_random_reranker(folder, SHAPES[name])
        few = texts.draw(70, 16)
        exact = load_reranker(folder, device="cpu").score(QUERY, few).p_yes
        ours = load_reranker(folder, device=self.device, dtype=self.dtype)
        together = ours.score(QUERY, few).p_yes
        alone = np.array([ours.score(QUERY, [each]).p_yes[0] for each in few])
        far, apart = (float(abs(together - each).max()) for each in (exact, alone))
        yield _equality(name, "scores", "", len(few), far, apart, max(far, apart) <= _YES)
        peer = cross_encoder(folder, device=self.device, dtype=self.dtype)
        theirs: dict[str, Encode] = {"CrossEncoder": partial(predict, peer)}
        row = self._speed(texts, 70, 16, partial(ours.score, QUERY), theirs)
        yield {"model": name, "what": "rerank", **row, "share": None}

    def _speed(
        self,
        texts: _Texts,
        length: int,
        few: int,
        ours: Encode,
        theirs: dict[str, Encode],
        file: Path | None = None,
    ) -> dict[str, Any]:
        """Warm up, then time ours and the fastest of theirs on as many texts as there is time."""
        sample, calls = texts.draw(length, few), {"ours": ours, **theirs}
        for call in calls.values():
            call(sample)
        rates = {
            name: few / timed(partial(call, sample), device=self.device)[1].seconds
            for name, call in calls.items()
        }
        method = max(theirs, key=lambda name: rates[name])
        most = self.row_seconds / (_ROUNDS * (1 / rates["ours"] + 1 / rates[method]))
        drawn = texts.draw(length, max(_SAMPLE, min(_MOST, int(most))))

        def encode(call: Encode) -> None:
            result = call(drawn)
            if file is not None:
                np.save(file, result)
            if self.device != "cpu":
                torch.cuda.synchronize(self.device)

        both = {name: partial(encode, calls[name]) for name in ("ours", method)}
        medians, _ = in_turn(both, rounds=_ROUNDS, warm=True)
        counts = texts.tokens(drawn[:_COUNTED])
        return {
            "tokens": sum(counts) / len(counts),
            "texts": len(drawn),
            "ours": len(drawn) / medians["ours"].seconds,
            "peer": len(drawn) / medians[method].seconds,
            "method": method,
        }


def _searched(device: str, documents: int) -> Iterator[dict[str, Any]]:
    """Search random vectors on the device and by NumPy; their ids are the same, or it is wrong."""
    from qwen3nb.models.search.exact import search

    draw = np.random.default_rng(0)
    queries = draw.standard_normal((1000, 1024), dtype=np.float32)
    corpus = draw.standard_normal((documents, 1024), dtype=np.float32)
    corpus[documents // 2 :] = corpus[: documents - documents // 2]  # ties
    calls = {
        "ours": partial(search, queries, corpus, k=100, device=device),
        "numpy on the CPU": partial(search, queries, corpus, k=100),
        "blocks": partial(search, queries, corpus, k=100, device=device, block=999),
    }
    calls["ours"]()
    done = {name: timed(call, device=device) for name, call in calls.items()}
    ours, numpy, blocks = (hits for hits, _ in done.values())
    far, apart = (float(abs(ours.scores - each.scores).max()) for each in (numpy, blocks))
    same = bool((ours.ids == numpy.ids).all() and (ours.ids == blocks.ids).all())
    equal = same and max(far, apart) <= _HITS
    yield _equality("vectors", "hits", "torch", len(queries), far, apart, equal)
    rates = [documents / took.seconds for _, took in done.values()]
    row = {"tokens": 1024, "texts": documents, "ours": rates[0], "peer": rates[1]}
    yield {"model": "vectors", "what": "search", **row, "method": "numpy on the CPU", "share": None}


def _write_encoder(folder: Path, config: Any, *, device: str, dtype: str) -> None:
    """Write a random model in the format of sentence-transformers: mean pooling, length 1."""
    from transformers import AutoModel

    write_tokenizer(documents(), folder, vocabulary=8_000)
    save_random(AutoModel.from_config, folder, config, device=device, dtype=torch_dtype(dtype))
    pooling = {"word_embedding_dimension": config.hidden_size, "pooling_mode_mean_tokens": True}
    write_json(folder / "modules.json", listed_modules(["Transformer", "Pooling", "Normalize"]))
    write_json(folder / "1_Pooling" / "config.json", pooling)
    write_json(folder / "2_Normalize" / "config.json", {})
    limits = {"max_seq_length": 1024, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", limits)


def _equality(
    model: str, what: str, way: str, sample: int, far: float, apart: float, equal: bool
) -> dict[str, Any]:
    row = {"model": model, "what": what, "way": way, "sample": sample}
    return {**row, "to_float32": far, "across_batches": apart, "equal": equal}


def shown(bench: GpuBench) -> str:
    """Return the tables; they end the program with 1 if results differ."""
    print(bench.table())
    raise SystemExit(int(not all(each["equal"] for each in bench.equality)))


if __name__ == "__main__":
    command(bench_gpu, shown)
