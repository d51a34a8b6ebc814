"""How many tokens go through a model in one pass: what memory holds, halved when it runs out.

On a CPU passes are fastest whose states stay in its cache, and several run side by side; in 8 bits,
where each spends as much on starting its products as on a hundred tokens, they are larger. On a GPU
a pass should be large, so its size follows from the free memory and the shape of the model. It is a
power of two with an upper bound, so that equal models on large GPUs have equal passes, whatever
else is in memory.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from qwen3nb.models.batching import batches_by_tokens
from qwen3nb.utils.hardware import available_memory

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

CPU_TOKENS = 1024  # at least; more if hidden states are small
_CPU_STATES = CPU_TOKENS * 384  # numbers of a hidden state of all tokens
INT8_TIMES = 2  # so many more tokens in 8 bits
_MOST_WORKERS = 8  # of more, Python would be the limit
_LEAST_TOKENS, _MOST_TOKENS = 1024, 65_536  # per pass on a GPU; more than the latter gain nothing
_OUT_OF_MEMORY = (  # of errors without a class of their own
    "DefaultCPUAllocator",
    "could not create a primitive",  # oneDNN
    "could not create a memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
)
_KEPT_BYTES = 32 << 20  # of the largest block that glibc keeps when freed; see `keep_memory`
_logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class TokenBudget:
    """Tokens per forward pass, padding included where there is any.

    Attributes:
        tokens: at most so many; halved when memory runs out, and never raised again.
    """

    def __init__(self, tokens: int, *, least: int | None = None) -> None:
        """Start with ``tokens``; with passes side by side, the last ones have ``least``."""
        self.tokens = tokens
        self._least = least or tokens

    def passes(
        self,
        lengths: Sequence[int],
        forward: Callable[[list[int]], _Result],
        *,
        error: type[Exception],
        padded: bool = False,
        size: int | None = None,
        parallel: bool = False,
    ) -> Iterator[tuple[list[int], _Result]]:
        """Yield the indices of each pass, the longest texts first, and what ``forward`` returns.

        If memory runs out, the budget is halved with a warning, and the pass is repeated; earlier
        ones are kept. If it runs out on a single text, that is an ``error``.

        Args:
            lengths: tokens per text.
            forward: runs the texts of these indices.
            error: a class of errors.
            padded: whether texts are padded to the longest of the pass.
            size: texts per pass at most; None for no limit.
            parallel: whether passes may run side by side in threads, which keeps all cores of a
                CPU busy between the products too.
        """
        waiting = list(range(len(lengths)))
        while waiting:
            finished: set[int] = set()
            batches = self._batches(lengths, waiting, padded=padded, size=size, parallel=parallel)
            workers = _workers(len(batches)) if parallel else 1
            # Not called yet: `in_order` does so, in threads or one at a time.
            calls = [partial(forward, batch) for batch in batches]
            with closing(in_order(calls, workers=workers)) as waits:
                for batch, wait_for_result in zip(batches, waits, strict=True):
                    try:
                        result = wait_for_result()
                    except RuntimeError as failure:
                        if not is_out_of_memory(failure):
                            raise
                        batch_lengths = [lengths[index] for index in batch]
                        self._halve(failure, batch_lengths, padded=padded, error=error)
                        break  # the texts that still wait are divided again
                    finished.update(batch)
                    yield batch, result
            waiting = [index for index in waiting if index not in finished]

    def _batches(
        self,
        lengths: Sequence[int],
        waiting: Sequence[int],
        *,
        padded: bool,
        size: int | None,
        parallel: bool,
    ) -> list[list[int]]:
        """Divide the texts that wait into passes, each a list of indices into ``lengths``."""
        batches = batches_by_tokens(
            [lengths[index] for index in waiting],
            budget=self.tokens,
            size=size,
            padded=padded,
            # Ever smaller passes at the end, so that all threads end at about the same time.
            shares=2 * torch.get_num_threads() if parallel else 0,
            least=self._least,
        )
        return [[waiting[position] for position in batch] for batch in batches]

    def _halve(
        self, failure: RuntimeError, lengths: Sequence[int], *, padded: bool, error: type[Exception]
    ) -> None:
        """Halve the budget after a pass of texts of ``lengths`` did not fit.

        A single text that does not fit is an ``error``.
        """
        reason = str(failure).splitlines()[0]
        # Those of the pass: with padding, each text is as long as the longest.
        tokens = len(lengths) * max(lengths) if padded else sum(lengths)
        if len(lengths) == 1:
            raise error(
                f"a text of {tokens} tokens does not fit in memory: {reason}; "
                f"{available_memory() / 1e9:.1f} GB of the machine's are free. Use a smaller "
                "--max-length, --dtype bfloat16, or a machine with more memory"
            ) from None
        self.tokens = max(1, min(self.tokens, tokens // 2))
        _logger.warning(
            "out of memory with %d tokens; continuing with %d per pass, which changes results by "
            "rounding at most",
            tokens,
            self.tokens,
        )
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def keep_memory() -> None:
    """Let the C library keep the memory of states, which each layer would fetch anew.

    By default, glibc gives freed blocks of megabytes back, and the next pass waits for the system
    to clear new ones: a third of the time in 8 bits. Once a larger block has been freed, it keeps
    those up to its size, and twice as much in all. Other C libraries are not changed.
    """
    torch.empty(_KEPT_BYTES - (1 << 16), dtype=torch.uint8)


def _workers(passes: int) -> int:
    """Return how many of ``passes`` run side by side: two, or as many as have two for each."""
    side_by_side = max(2, passes // 2)
    return max(1, min(torch.get_num_threads(), passes, side_by_side, _MOST_WORKERS))


def in_order(
    calls: Sequence[Callable[[], _Result]], *, workers: int
) -> Generator[Callable[[], _Result], None, None]:
    """Yield what returns the result of each call, in order, while ``workers`` threads run ahead.

    PyTorch's threads are divided among them. A single worker runs a call when it is wanted.
    """
    if workers == 1:
        yield from calls
        return
    all_threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(
        workers, initializer=torch.set_num_threads, initargs=(all_threads // workers,)
    )
    running: deque[Future[_Result]] = deque()
    try:
        for call in calls:
            running.append(pool.submit(call))
            if len(running) > workers:  # one more than can run waits in line, no more
                oldest = running.popleft()
                yield oldest.result  # the method: whoever calls it waits
        for call_at_work in running:
            yield call_at_work.result
    finally:
        pool.shutdown(cancel_futures=True)
        # A worker's number of threads would be that of later threads, too.
        torch.set_num_threads(all_threads)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether memory ran out; not every library has a class of errors for it."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return any(message in str(error) for message in _OUT_OF_MEMORY)


def tokens_per_pass(model: PreTrainedModel) -> int:
    """Return the tokens per pass of ``model``, which is on its device."""
    if model.device.type != "cuda":
        return max(CPU_TOKENS, _CPU_STATES // int(model.config.get_text_config().hidden_size))
    free, _ = torch.cuda.mem_get_info(model.device)
    free += torch.cuda.memory_reserved(model.device) - torch.cuda.memory_allocated(model.device)
    return fitting_tokens(free, model.config.get_text_config(), size=model.dtype.itemsize)


def fitting_tokens(free: int, config: PretrainedConfig, *, size: int) -> int:
    """Return how many tokens fit in half of ``free`` bytes: a power of two, 1,024 to 65,536.

    A token needs six states (input, residual, norms, output), three rows of the feed-forward
    layer, and its queries, keys and values twice (projected and rotated), all of ``size`` bytes
    a number, and two states in float32 to be pooled. What is left over is for padding, masks and
    fragmentation; where that is not enough, `TokenBudget` halves.
    """
    hidden_size = int(config.hidden_size)
    heads = int(config.num_attention_heads)
    head_size = getattr(config, "head_dim", None) or hidden_size // heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    inner_size = getattr(config, "intermediate_size", None) or 4 * hidden_size
    attention_numbers = head_size * (heads + 2 * key_heads)  # queries, keys and values
    # Six states, three rows of the feed-forward layer; attention's, projected and rotated.
    numbers_per_token = 6 * hidden_size + 3 * inner_size + 2 * attention_numbers
    pooled_bytes = 2 * 4 * hidden_size  # two states in float32
    bytes_per_token = size * numbers_per_token + pooled_bytes
    tokens = (free // 2) // bytes_per_token  # the other half is for masks and fragmentation
    power_of_two = 1 << max(0, tokens.bit_length() - 1)  # the largest of at most ``tokens``
    return min(_MOST_TOKENS, max(_LEAST_TOKENS, power_of_two))


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return ``tensor`` on ``device``; the host does not wait until a GPU has it."""
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    # Others than CUDA may read a tensor after its memory has been given back.
    return tensor.to(device, non_blocking=device.type in ("cuda", "meta"))
