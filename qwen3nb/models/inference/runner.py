"""Run token rows through a model as fast as the model and the machine allow.

A model runs in one of three ways: ``packed`` on a CPU, ``varlen`` (packed, FlashAttention) on a
GPU in 16 bits, ``padded`` otherwise; see `qwen3nb.models.inference.packing` for which models
can be packed. The results agree up to rounding.

If memory runs out, the number of tokens per forward pass is halved, with a warning, and the
pass is repeated. Vectors do not depend on the batch, so they do not change.

Shapes: N texts, H hidden size.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from qwen3nb.models.batching import batches_by_tokens
from qwen3nb.models.inference.flash_varlen import varlen_kernel
from qwen3nb.models.inference.onednn_linear import prepack
from qwen3nb.models.inference.packing import packing_of, pool_packed, prepare
from qwen3nb.models.modeling.pooling import pool
from qwen3nb.models.modeling.qwen3_encoder import pad_rows
from qwen3nb.models.types import EncoderError, Vectors
from qwen3nb.utils.choices import one_of

__all__ = ["Runner"]

_BUDGET = {"cpu": 1024, "cuda": 16_384}  # tokens per forward pass
_LINEARS = ("auto", "onednn", "torch")
_logger = logging.getLogger(__name__)
Rows = Sequence[Sequence[int]]


class Runner:
    """Runs a model and pools its states.

    Attributes:
        way: how the model runs: ``packed``, ``varlen`` or ``padded``.
        onednn: whether its linear layers run in oneDNN.
        budget: tokens per forward pass; halved when memory runs out.
    """

    def __init__(
        self,
        model: Any,
        *,
        pooling: str,
        normalize: bool,
        batch_size: int | None = None,
        budget: int | None = None,
        packed: bool = True,
        linear: str = "auto",
    ) -> None:
        """Take over ``model``, which must not be used elsewhere afterwards.

        Args:
            model: a transformers model, on its device, in evaluation mode.
            pooling: one of `qwen3nb.models.modeling.pooling.POOLINGS`.
            normalize: whether vectors have length 1.
            batch_size: maximum number of texts per forward pass, if texts are padded.
            budget: tokens per forward pass; None for the default of the device.
            packed: whether to pack if the model can be packed.
            linear: ``auto`` (what is faster on this processor), ``onednn`` or ``torch``.

        Raises:
            ValueError: an unknown ``linear``.
        """
        one_of("linear", linear, _LINEARS)
        self.model, self.pooling, self.normalize = model, pooling, normalize
        self.batch_size = batch_size
        model.config.use_cache = False  # encoding does not need cached keys and values
        device = model.device.type
        self.budget = budget or _BUDGET.get(device, _BUDGET["cpu"])
        kernel = varlen_kernel(model)
        usable = packed and (device == "cpu" or kernel is not None)
        self._packing = packing_of(model, kernel=kernel) if usable else None
        self.way = "padded" if self._packing is None else "varlen" if kernel else "packed"
        # An unknown model may access the insides of its linear layers, so only known ones change.
        self.onednn = (
            self._packing is not None
            and linear != "torch"
            and prepack(model, force=linear == "onednn")
        )
        if self._packing is not None:
            prepare(model)

    def vectors(self, rows: Rows, *, done: Callable[[int], None] | None = None) -> Vectors:
        """Return vectors (N, H), float32, of N rows of token ids; zeros for a row without any.

        ``done`` is called with the number of rows after each forward pass.

        Raises:
            EncoderError: memory runs out on a single text.
        """
        result = np.zeros(
            (len(rows), int(self.model.config.get_text_config().hidden_size)), dtype=np.float32
        )
        waiting = [index for index, row in enumerate(rows) if len(row)]
        while waiting:
            finished: set[int] = set()
            for batch in self._batches(rows, waiting):
                vectors = self._attempt([rows[index] for index in batch])
                if vectors is None:
                    break
                result[batch] = vectors
                finished.update(batch)
                if done is not None:
                    done(len(batch))
            waiting = [index for index in waiting if index not in finished]
        return result

    def _batches(self, rows: Rows, waiting: Sequence[int]) -> Iterator[list[int]]:
        full = self._packing is None  # padding counts
        lengths = [len(rows[index]) for index in waiting]
        size = self.batch_size if full else None
        for batch in batches_by_tokens(lengths, budget=self.budget, size=size, padded=full):
            yield [waiting[index] for index in batch]

    def _attempt(self, rows: Rows) -> Vectors | None:
        """Return the vectors of one pass, or None if it did not fit and the budget was halved."""
        try:
            return self._forward(rows)
        except RuntimeError as error:
            if not _is_memory(error):
                raise
            reason = str(error).splitlines()[0]
        tokens = sum(map(len, rows)) if self._packing else len(rows) * max(map(len, rows))
        if len(rows) == 1:
            raise EncoderError(f"a text of {tokens} tokens does not fit in memory: {reason}")
        self.budget = max(1, tokens // 2)
        _logger.warning(
            "out of memory with %d tokens; continuing with %d per pass, which changes no vector",
            tokens, self.budget,
        )  # fmt: skip
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    @torch.inference_mode()
    def _forward(self, rows: Rows) -> Vectors:
        """Return vectors (N, H) of N rows, the longest first."""
        if self._packing is None:
            ids, mask = pad_rows(rows, device=self.model.device)
            states = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            pooled = pool(states, mask, how=self.pooling, normalize=self.normalize)
        else:
            states, layout = self._packing.states(self.model, rows)
            pooled = pool_packed(states, layout, how=self.pooling, normalize=self.normalize)
        vectors: Vectors = pooled.cpu().numpy()
        return vectors


def _is_memory(error: RuntimeError) -> bool:
    """Return whether memory ran out: PyTorch raises a class for it on a GPU, a message on a CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
