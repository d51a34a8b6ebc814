"""Run token rows through a model as fast as the model and the machine allow.

A model runs in one of three ways: ``packed`` on a CPU, ``varlen`` (packed, FlashAttention) on a
GPU in 16 bits, ``padded`` otherwise; see `qwen3nb.models.inference.packing` for which models
can be packed. The results agree up to rounding.

If memory runs out, the number of tokens per forward pass is halved, with a warning, and the
pass is repeated.

Does a vector depend on its neighbours? Where a packed model runs in oneDNN in float32 or int8, on
one processor model with the same versions of all libraries, no bit of it does: neither on the
texts, passes, threads and shards beside it nor on other work. Elsewhere on a CPU in float32 (MKL,
or a model that is padded) the same texts in the same parts with the same number of threads give the
same bits; in other parts, with other threads or on another processor no component of a unit vector
changes by more than 1e-6. In bfloat16, oneDNN chooses a kernel by the number of tokens of a pass,
so a text alone and among others agree to its rounding only, 1e-3 per component. On a GPU the
libraries choose kernels by the size of a pass, so equal texts of different passes agree to the
rounding of the dtype only; PyTorch's attention, of which each text has its own, is asked for the
same order of sums in every pass. `benchmarks/gpu.py` measures the cosine on the GPU at hand, and
fails below 0.99 in 16 bits; a record names the GPU.

On a GPU the host prepares and starts a pass while the one before it still runs; it waits once
per pass, for vectors of the one before.

Shapes: N texts, H hidden size.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from qwen3nb.models.inference.fused_layers import fuse_layers
from qwen3nb.models.inference.int8_linear import attention_dtype, no_int8
from qwen3nb.models.inference.onednn_memory import bound_products
from qwen3nb.models.inference.packing import (
    Packing,
    packing_of,
    pool_packed,
    prepare,
    varlen_kernel,
)
from qwen3nb.models.inference.product_attention import has_fast_products, runs_as_products
from qwen3nb.models.inference.token_budget import (
    INT8_TIMES,
    TokenBudget,
    keep_memory,
    tokens_per_pass,
)
from qwen3nb.models.modeling.pooling import pool
from qwen3nb.models.modeling.qwen3_encoder import pad_rows
from qwen3nb.models.types import EncoderError, SpecError, Vectors
from qwen3nb.utils.choices import check_choice

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LINEARS = ("auto", "onednn", "torch", "int8")
_BLOCK = 2048  # texts that are tokenised at once on a GPU
Rows = Sequence[Sequence[int]]
_Item = TypeVar("_Item")


class Runner:
    """Runs a model and pools its states.

    Attributes:
        way: how the model runs: ``packed``, ``varlen`` or ``padded``.
        padding: whether texts of different lengths may share a pass, where they are padded.
        onednn: whether its linear layers run in oneDNN.
        attention: what about attention changes vectors beyond rounding: ``varlen``, ``bfloat16``
            if the rest is in ``int8``, or None.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        pooling: str,
        normalize: bool,
        batch_size: int | None = None,
        budget: int | None = None,
        packed: bool = True,
        linear: str = "auto",
        examples: Rows = (),
    ) -> None:
        """Take over a transformers ``model`` on its device, not to be used elsewhere afterwards.

        Args:
            model: in evaluation mode.
            pooling: one of `qwen3nb.models.modeling.pooling.POOLINGS`.
            normalize: whether vectors have length 1.
            batch_size: maximum number of texts per forward pass, if texts are padded.
            budget: tokens per forward pass; None for what suits the device and fits.
            packed: whether to pack if the model can be packed.
            linear: ``auto`` (what is faster on this processor), ``onednn``, ``torch``, or ``int8``
                for linear layers in 8 bits.
            examples: for ``int8``; see `qwen3nb.models.inference.fused_layers.fuse_layers`.

        Raises:
            SpecError: ``int8`` on a machine, or for a model, that it does not fit.
        """
        check_choice("linear", linear, _LINEARS)
        in_int8 = linear == "int8"
        self.model = model
        self.pooling = pooling
        self.normalize = normalize
        self.batch_size = batch_size
        self.padding = True
        model.config.use_cache = False  # encoding does not need cached keys and values
        on_cpu = model.device.type == "cpu"
        if on_cpu:
            bound_products()
        tokens = budget or tokens_per_pass(model)
        times = INT8_TIMES if in_int8 and not budget else 1
        self._budget = TokenBudget(times * tokens, least=tokens)
        kernel = varlen_kernel(model)
        self._packing = None
        if packed and (on_cpu or kernel is not None):
            self._packing = packing_of(model, kernel=kernel)
        self.way = _way_of(self._packing)
        if in_int8 and self.way != "packed":
            raise SpecError(no_int8(model))
        self.attention = "varlen" if self.way == "varlen" else None
        # An unknown model may access the insides of its linear layers, so only known ones change.
        self.onednn = False
        if self._packing is not None and linear != "torch":
            force = linear == "onednn"
            self.onednn = fuse_layers(model, force=force, int8=in_int8, examples=examples)
        if on_cpu:
            keep_memory()
        if self._packing is not None:
            self._packing = _with_products(self._packing, model, in_int8=in_int8)
            if self._packing.dtype is not None:
                self.attention = "bfloat16"
            prepare(model)

    @property
    def causal(self) -> bool | None:
        """Whether a token attends to earlier ones only; None if the model itself decides."""
        return None if self._packing is None else self._packing.causal

    def variant(self, *, pooling: str, causal: bool | None) -> Runner:
        """Return the same model, not loaded again, with another pooling and attention.

        Its vectors keep their lengths. ``causal`` is None, or is `causal`, if it is not packed.
        """
        variant = copy.copy(self)
        variant.pooling = pooling
        variant.normalize = False
        if self._packing is not None and causal is not None:
            variant._packing = replace(self._packing, causal=causal)
        return variant

    def encode(
        self,
        texts: Sequence[str],
        tokenise: Callable[[Sequence[str]], Rows],
        *,
        done: Callable[[int], None] | None = None,
    ) -> Vectors:
        """Return vectors (N, H) of N texts, those of similar length next to each other.

        On a GPU the texts go through in blocks, and a thread tokenises the next one. On a CPU
        the thread would only take a core from the model. See `vectors`.
        """
        size = len(texts) if self.model.device.type == "cpu" else _BLOCK
        parts = [self.vectors(rows, done=done) for rows in _in_advance(texts, tokenise, size=size)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def vectors(self, rows: Rows, *, done: Callable[[int], None] | None = None) -> Vectors:
        """Return vectors (N, H), float32, of N rows of token ids; zeros for a row without any.

        ``done`` is called with the number of rows after each forward pass.

        Raises:
            EncoderError: memory runs out on a single text.
        """
        if self.padding:
            return self._vectors(rows, done)
        # Padding would change vectors of this model, so only rows of one length share a pass.
        indices_by_length: dict[int, list[int]] = {}
        for index, row in enumerate(rows):
            indices_by_length.setdefault(len(row), []).append(index)
        vectors = np.zeros((len(rows), self._hidden), dtype=np.float32)
        for length in sorted(indices_by_length, reverse=True):
            indices = indices_by_length[length]
            vectors[indices] = self._vectors([rows[index] for index in indices], done)
        return vectors

    @property
    def _hidden(self) -> int:
        """H, the length of a vector."""
        return int(self.model.config.get_text_config().hidden_size)

    def _vectors(self, rows: Rows, done: Callable[[int], None] | None) -> Vectors:
        """Return the vectors of rows that may be padded; see `vectors`."""
        vectors = np.zeros((len(rows), self._hidden), dtype=np.float32)
        # A row without tokens keeps the vector zero.
        rows_with_tokens = [index for index, row in enumerate(rows) if len(row)]
        is_padded = self._packing is None

        # A batch has positions in `rows_with_tokens`.
        def start(batch: list[int]) -> Callable[[], Vectors]:
            return self._start([rows[rows_with_tokens[position]] for position in batch])

        started = self._budget.passes(
            [len(rows[index]) for index in rows_with_tokens],
            start,
            error=EncoderError,
            padded=is_padded,
            size=self.batch_size if is_padded else None,
            parallel=self.way == "packed",
        )
        # One behind, so that a GPU already runs the next pass while the host waits for this one.
        for batch, wait_for_vectors in _one_behind(started):
            indices = [rows_with_tokens[position] for position in batch]
            vectors[indices] = wait_for_vectors()
            if done is not None:
                done(len(batch))
        return vectors

    @property
    def budget(self) -> int:
        """Tokens per forward pass; halved when memory runs out."""
        return self._budget.tokens

    @budget.setter
    def budget(self, tokens: int) -> None:
        self._budget.tokens = tokens

    @torch.inference_mode()
    def _start(self, rows: Rows) -> Callable[[], Vectors]:
        """Start a pass of N rows, the longest first; return what waits for their vectors (N, H)."""
        pooled = self._pooled(rows)
        if pooled.device.type != "cuda":
            return pooled.cpu().numpy  # the method, as there is nothing to wait for
        on_host = pooled.to("cpu", non_blocking=True)
        has_arrived = torch.cuda.Event()
        has_arrived.record()

        def wait_for_vectors() -> Vectors:
            has_arrived.synchronize()
            return on_host.numpy()

        return wait_for_vectors

    def _pooled(self, rows: Rows) -> Tensor:
        """Return vectors (N, H) of N rows, the longest first, on the model's device."""
        if self._packing is None:
            return self._pooled_with_padding(rows)
        tokens = sum(map(len, rows))
        if tokens == 1:  # oneDNN multiplies a single row in another order
            return self._pooled([*rows, *rows])[:1]
        states, layout = self._packing.states(self.model, rows)
        return pool_packed(states, layout, pooling=self.pooling, normalize=self.normalize)

    def _pooled_with_padding(self, rows: Rows) -> Tensor:
        ids, mask = pad_rows(rows, device=self.model.device)
        states = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        if states.shape[-1] != self._hidden:  # as of Reformer, which returns pairs
            raise ValueError(
                f"its states have {states.shape[-1]} numbers per token, where config.json "
                f"states {self._hidden} (hidden_size); such a model is not supported"
            )
        return pool(states, mask, pooling=self.pooling, normalize=self.normalize)


def _way_of(packing: Packing | None) -> str:
    """Return how a model runs: ``padded``, ``varlen`` or ``packed``."""
    if packing is None:
        return "padded"
    return "packed" if packing.kernel is None else "varlen"


def _with_products(packing: Packing, model: PreTrainedModel, *, in_int8: bool) -> Packing:
    """Return how a model runs packed, with the faster of two kinds of attention."""
    dtype = attention_dtype() if in_int8 else None
    if dtype is None:
        return replace(packing, products=runs_as_products(model))
    return replace(packing, products=has_fast_products(dtype), dtype=dtype)


def _one_behind(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield each item after the next one has been taken, so that work on that one has begun."""
    waiting: deque[_Item] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > 1:
            yield waiting.popleft()
    yield from waiting


def _in_advance(
    texts: Sequence[str], tokenise: Callable[[Sequence[str]], Rows], *, size: int
) -> Iterator[Rows]:
    """Yield the rows of ``size`` texts after the other; a thread tokenises one block ahead."""
    if len(texts) <= size:
        yield tokenise(texts)
        return
    with ThreadPoolExecutor(max_workers=1) as thread:
        next_block = thread.submit(tokenise, texts[:size])
        for start in range(size, len(texts), size):
            rows = next_block.result()
            next_block = thread.submit(tokenise, texts[start : start + size])
            yield rows
        yield next_block.result()
