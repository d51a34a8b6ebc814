"""Attention on a CPU as two large matrix products, for packed texts of similar length together.

PyTorch's attention multiplies small tiles in MKL, which runs at a quarter of the rate of a linear
layer on an AMD processor, and in bfloat16 at a seventh unless the processor has AMX. Here the
scores of all heads are one batched product in oneDNN, then a softmax, then the second product.
Texts are padded to a multiple of 16 tokens and masked, and those of one padded length share a
batch; so the products of all passes have few shapes, for each of which oneDNN compiles a kernel.
Queries, keys and values are gathered once each, heads first. The scores are kept in memory, so
very long texts are left to PyTorch's attention, which keeps none.

The softmax is a power of 2, whose base is part of the scale, and a division of the result by the
sums: half the time of PyTorch's, which first finds the largest score of each row. Without that,
powers may overflow; sums show if they did, and only those rows get PyTorch's softmax.

PyTorch itself calls oneDNN for batched products in float32 only if a setting of the whole process
lets oneDNN round their inputs to bfloat16. Other products follow that setting too, those of other
threads included, and the two libraries differ in the last bits; so it is left alone. Its function
is called directly, through C's interface: no operator reaches it. Processors on which the setting
could round anything, those with AMX, are excluded, and the function is checked before the first
use. Where there is none, `torch.baddbmm` takes its place.

Shapes: N texts, T tokens of all, L positions of a padded text, h heads, k heads for keys, D head
size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ctypes import CDLL, byref, c_float, c_void_p
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from math import e, log2
from typing import Any

import torch
from torch import Tensor
from torch.autograd.profiler import record_function

from qwen3nb.models.inference.onednn_linear import PrepackedLinear
from qwen3nb.models.inference.token_budget import CPU_TOKENS

_STEP = 16  # positions of a text are a multiple of it: a row of a vector register in float32
_POSITIONS = 128  # a bucket of short texts is filled up to a multiple of it: few shapes
_SCORES = 3 << 20  # of the texts that share a product: 12 MB in float32
_MOST = 1 << 24  # scores at a time: 64 MB in float32
_GRAIN = 1 << 15  # numbers that PyTorch leaves to one thread
_SUMS = (2.0**-90, 2.0**112)  # of powers of 2 of which none that matters over- or underflowed
_EXACT = 1e-4  # of a product of 64 numbers of size 1; in bfloat16 it would be off by 1e-2


@dataclass(frozen=True)
class _Bucket:
    """Texts of one padded length."""

    texts: int  # N, including copies of the first that fill up the bucket
    length: int  # L
    # 0 where a token is attended to, minus infinity elsewhere: (N, 1, L, L) if attention is
    # causal, otherwise of the last positions only: (N, 1, 1, 16); None if every position is
    # attended to
    bias: Tensor | None

    def fill(self, scores: Tensor, query: Tensor, key: Tensor, scale: float) -> None:
        """Write the scores (N * k, h / k * L, L) of queries and keys (N * k, ..., D)."""
        _product(query, key.mT, out=scores, scale=scale)
        if self.bias is not None:
            by_head = scores.view(self.texts, -1, self.length, self.length)
            by_head[..., -self.bias.shape[-1] :].add_(self.bias)


@dataclass(frozen=True)
class BucketLayout:
    """Where the tokens of a packed row go, and come back from."""

    parts: tuple[_Bucket, ...]  # the buckets, in the order of their rows
    heads: tuple[int, int]  # h and k
    queries: Tensor  # rows of (T * h, D) that the buckets read as queries
    keys: Tensor  # rows of (T * k, D) that they read as keys and values
    results: Tensor  # rows of the buckets' output that are those of (T * h, D)
    # for the scores of one bucket, of which no layer needs those of another: fresh memory would
    # cost as much as the softmax
    space: Tensor

    @classmethod
    def of(
        cls, lengths: Sequence[int], *, heads: tuple[int, int], causal: bool, dtype: torch.dtype
    ) -> BucketLayout | None:
        """Lay out texts of ``lengths``, the longest first, which follow each other in a row.

        Returns None if the scores of the longest need too much memory. Those of `CPU_TOKENS` or
        fewer share a pass, so they never do: a text is computed as it is alone.
        """
        h, k = heads
        longest = _padded(lengths[0])
        if longest > CPU_TOKENS and not has_room(longest * h, longest):
            return None
        buckets, tokens, results = [], [], []
        first = 0
        rows = 0
        for length, counts in _pieces(lengths, h):
            bucket = _bucket(counts, length, causal=causal, dtype=dtype)
            positions = torch.arange(length)
            starts = first + counts.cumsum(0) - counts
            ends = counts.unsqueeze(1)
            places = starts.unsqueeze(1) + torch.minimum(positions, ends - 1)
            copies = places[:1].expand(bucket.texts - len(counts), -1)
            tokens.append(torch.cat([places, copies]))
            row = torch.arange(rows, rows + len(counts) * h * length).view(-1, h, length).mT
            results.append(row[positions < ends].flatten())
            buckets.append(bucket)
            first += int(counts.sum())
            rows += bucket.texts * h * length
        space = max(bucket.texts * h * bucket.length**2 for bucket in buckets)
        return cls(
            tuple(buckets),
            heads,
            queries=torch.cat([_rows(places, h) for places in tokens]),
            keys=torch.cat([_rows(places, k) for places in tokens]),
            results=torch.cat(results),
            space=torch.empty(space, dtype=dtype),
        )

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float) -> Tensor:
        """Return attention (1, T, h, D) of queries (1, h, T, D), keys and values (1, k, T, D)."""
        h, k = self.heads
        size = query.shape[-1]
        queries = _gathered(query, self.queries)
        keys = _gathered(key, self.keys)
        values = _gathered(value, self.keys)
        out = torch.empty_like(queries)
        start = 0
        for bucket in self.parts:
            groups = bucket.texts * k
            end = start + bucket.texts * bucket.length
            of_queries = slice(start * h, end * h)
            of_keys = slice(start * k, end * k)
            numbers = (end - start) * h * bucket.length
            scores = self.space[:numbers].view(groups, -1, bucket.length)
            left = queries[of_queries].view(groups, -1, size)
            right = keys[of_keys].view(groups, -1, size)
            sums = _weights(partial(bucket.fill, scores, left, right), scores, scale)
            summed = values[of_keys].view(groups, -1, size)
            _product(scores, summed, out=out[of_queries].view(groups, -1, size)).div_(sums)
            start = end
        return out.index_select(0, self.results).view(1, -1, h, size)


def _gathered(states: Tensor, rows: Tensor) -> Tensor:
    """Return rows of (T * heads, D) of states (1, heads, T, D)."""
    size = states.shape[-1]
    return states[0].transpose(0, 1).reshape(-1, size).index_select(0, rows)


def has_room(queries: int, keys: int) -> bool:
    """Return whether the scores of all pairs of queries and keys may be in memory at once."""
    return queries * keys <= _MOST


def attend_after(
    prefix: tuple[Tensor, Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias: Tensor,
    scale: float,
    space: Tensor,
) -> Tensor:
    """Return attention (N, R, h, D) of N texts to a prefix that they share, and to themselves.

    The prefix is read where it is: the queries (N, h, R, D) of all texts meet its keys and values
    (1, k, P, D) in one product. ``key`` and ``value`` are those of the texts (N, k, T, D), ``bias``
    (R, T) or (N, 1, R, T) is added to the scores of their own tokens, and ``space`` of at least
    N * h * R * (P + T) numbers is overwritten with scores.
    """
    texts, heads, rows, size = query.shape
    k, tokens = key.shape[1], key.shape[2]
    prefix_keys, prefix_values = prefix[0][0], prefix[1][0]
    start = prefix_keys.shape[1]  # of the scores of a text's own tokens
    queries = query.unflatten(1, (k, -1)).permute(1, 0, 2, 3, 4).reshape(k, -1, size)
    keys = key.transpose(0, 1).reshape(-1, tokens, size)
    values = value.transpose(0, 1).reshape(-1, tokens, size)
    width = start + tokens
    scores = space[: texts * heads * rows * width].view(k, -1, width)
    to_prefix = scores[..., :start]
    to_text = scores[..., start:].unflatten(1, (texts, -1))

    def fill(scale: float) -> None:
        _product(queries, prefix_keys.mT, out=to_prefix, scale=scale)
        by_text = queries.reshape(k * texts, -1, size)
        _product(by_text, keys.mT, out=to_text.flatten(0, 1), scale=scale)
        to_text.unflatten(2, (-1, rows)).add_(bias)

    sums = _weights(fill, scores, scale)
    out = _product(to_prefix, prefix_values, out=queries.new_empty(queries.shape))
    _product(to_text.flatten(0, 1), values, out=out.view(k * texts, -1, size), plus=1.0)
    by_group = out.div_(sums).view(k, texts, -1, rows, size)  # (k, N, h / k, R, D)
    return by_group.permute(1, 3, 0, 2, 4).flatten(2, 3)


def _product(
    left: Tensor, right: Tensor, *, out: Tensor, scale: float = 1.0, plus: float = 0.0
) -> Tensor:
    """Write ``scale * left @ right + plus * out`` to ``out`` (B, R, L), and return it."""
    product = _onednn_product() if out.dtype == torch.float32 else None  # else PyTorch calls it
    if product is None:
        return torch.baddbmm(out, left, right, beta=plus, alpha=scale, out=out)
    references = [byref(c_void_p(tensor._cdata)) for tensor in (left, right, out)]
    with record_function("bmm"):  # as a profiler knows the product, which is not an operator
        product(*references, plus, scale)
    return out


@cache
def _onednn_product() -> Any:
    """Return PyTorch's batched product in oneDNN, or None if this machine cannot run it.

    Its C++ name spells out its arguments, so one that takes others is not found. It takes
    references to tensors, which are pointers to pointers, and aborts where it would raise; so it
    is not returned for a processor that it refuses.
    """
    try:
        if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return None
        product = CDLL(torch._C.__file__)._ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff
    except (AttributeError, OSError):
        return None
    product.argtypes, product.restype = [c_void_p, c_void_p, c_void_p, c_float, c_float], None
    return product


def _weights(fill: Callable[[float], None], scores: Tensor, scale: float) -> Tensor:
    """Turn scores (B, R, L) into weights; return what (B, R, 1) the weighted sums are divided by.

    Args:
        fill: writes the scores, multiplied by what it is given.
        scores: where it writes them; the weights afterwards.
        scale: multiplied with the scores.
    """
    fill(scale * log2(e))
    _to_powers(scores.view(-1))
    sums = scores.sum(-1, keepdim=True)
    lowest, highest = _SUMS
    smallest, largest = map(float, sums.aminmax())
    if lowest < smallest and largest < highest:
        return sums
    usable = (sums > lowest) & (sums < highest)
    powers = scores.clone()
    fill(scale)
    torch.softmax(scores, -1, out=scores)
    torch.where(usable, powers, scores, out=scores)  # no row depends on another
    return sums.where(usable, 1)


def _to_powers(exponents: Tensor) -> None:
    """Replace numbers (n,) by the powers of 2, the same whatever the number of threads.

    A thread's last numbers, if they fill no vector, are rounded in another way. So each gets as
    many whole grains as any other, and one thread the rest.
    """
    start = 0
    for size in (torch.get_num_threads() * _GRAIN, _GRAIN, 1):
        end = start + (len(exponents) - start) // size * size
        exponents[start:end].exp2_()
        start = end


def _padded(length: int) -> int:
    return -(-length // _STEP) * _STEP


def _pieces(lengths: Sequence[int], heads: int) -> Iterator[tuple[int, Tensor]]:
    """Yield the padded length and the lengths of texts that share a product."""
    for length, group in groupby(lengths, key=_padded):
        fill = max(1, _POSITIONS // length)
        texts = max(1, _SCORES // (heads * length**2 * fill)) * fill
        for counts in torch.tensor(list(group)).split(texts):
            yield length, counts


def _rows(tokens: Tensor, heads: int) -> Tensor:
    """Return the rows (N * heads * L,) of (T * heads, D) for tokens (N, L)."""
    return (tokens.unsqueeze(1) * heads + torch.arange(heads).view(-1, 1)).flatten()


def _bucket(lengths: Tensor, length: int, *, causal: bool, dtype: torch.dtype) -> _Bucket:
    fill = max(1, _POSITIONS // length)
    texts = -(-len(lengths) // fill) * fill
    if not causal and bool((lengths == length).all()):
        return _Bucket(texts, length, None)
    positions = torch.arange(length)
    copies = lengths[:1].expand(texts - len(lengths))
    is_token = positions < torch.cat([lengths, copies]).unsqueeze(1)
    mask = is_token[:, None, None]
    if causal:
        mask = mask & (positions <= positions.unsqueeze(1))
    else:  # texts of a bucket differ in their last positions only
        mask = mask[..., -_STEP:]
    bias = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, -torch.inf)
    return _Bucket(texts, length, bias)


def runs_as_products(model: Any) -> bool:
    """Return whether attention of ``model`` is faster as products: where it runs in oneDNN."""
    prepacked = any(isinstance(layer, PrepackedLinear) for layer in model.modules())
    return prepacked and has_fast_products(model.dtype)


@cache
def has_fast_products(dtype: torch.dtype) -> bool:
    """Return whether batched products in oneDNN are faster here than PyTorch's attention.

    Of a processor with AMX, PyTorch's own attention uses the matrix unit.
    """
    if torch.cpu._is_amx_tile_supported() or dtype not in (torch.float32, torch.bfloat16):
        return False
    if dtype == torch.bfloat16:
        return bool(torch.cpu._is_avx512_bf16_supported())
    random = torch.Generator().manual_seed(0)  # does not touch the global generator
    left = torch.randn(24, 64, 64, generator=random)
    right = torch.randn(24, 64, 64, generator=random)
    with torch.inference_mode():
        product = _product(left, right, out=torch.empty_like(left))
    expected = left.double() @ right.double()
    return torch.allclose(product.double(), expected, rtol=0, atol=_EXACT)
