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
from math import ceil, e, log2
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.autograd.profiler import record_function

from qwen3nb.models.inference.onednn_linear import PrepackedLinear
from qwen3nb.models.inference.token_budget import CPU_TOKENS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_STEP = 16  # positions of a text are a multiple of it: a row of a vector register in float32
_POSITIONS = 128  # a bucket of short texts is filled up to a multiple of it: few shapes
_SCORES_PER_PRODUCT = 3 << 20  # of the texts that share a product: 12 MB in float32
_MOST_SCORES = 1 << 24  # scores at a time: 64 MB in float32
_GRAIN = 1 << 15  # numbers that PyTorch leaves to one thread
# Between these sums of powers of 2, no power that matters under- or overflowed.
_UNDERFLOW = 2.0**-90
_OVERFLOW = 2.0**112
_EXACT_TOLERANCE = 1e-4  # of a product of 64 numbers of size 1; in bfloat16 it would be off by 1e-2


class KeysAndValues(NamedTuple):
    """What queries attend to, (N, k, T, D) each."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class _Bucket:
    """Texts of one padded length."""

    texts: int  # N, including copies of the first that fill up the bucket
    length: int  # L
    # 0 where a token is attended to, minus infinity elsewhere: (N, 1, L, L) if attention is
    # causal, otherwise of the last positions only: (N, 1, 1, 16); None if every position is
    # attended to
    bias: Tensor | None

    def write_scores(self, scores: Tensor, query: Tensor, key: Tensor, scale: float) -> None:
        """Write the scores (N * k, h / k * L, L) of queries and keys (N * k, ..., D)."""
        _product(query, key.mT, out=scores, scale=scale)
        if self.bias is not None:
            scores_of_heads = scores.view(self.texts, -1, self.length, self.length)
            biased_keys = self.bias.shape[-1]
            scores_of_heads[..., -biased_keys:].add_(self.bias)


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
        query_heads, key_heads = heads
        longest = _padded(lengths[0])  # the longest text comes first
        # All scores of a very long one would not fit in memory.
        if longest > CPU_TOKENS and not has_room(longest * query_heads, longest):
            return None
        buckets = []
        tokens = []  # by bucket: the token of the packed row at each of its positions, (N, L)
        result_rows = []  # by bucket: the rows of its output that are no padding
        first_token = 0  # of the bucket, in the packed row
        first_row = 0  # of the bucket, in the output of all
        for padded_length, text_lengths in _split_by_padded_length(lengths, query_heads):
            bucket = _bucket(text_lengths, padded_length, causal=causal, dtype=dtype)
            buckets.append(bucket)
            tokens.append(first_token + _tokens_of_bucket(text_lengths, bucket))
            result_rows.append(
                first_row + _rows_of_tokens(text_lengths, padded_length, query_heads)
            )
            first_token += int(text_lengths.sum())
            first_row += bucket.texts * query_heads * padded_length
        most_scores = max(bucket.texts * query_heads * bucket.length**2 for bucket in buckets)
        return cls(
            parts=tuple(buckets),
            heads=heads,
            queries=torch.cat([_rows_of_heads(of_bucket, query_heads) for of_bucket in tokens]),
            keys=torch.cat([_rows_of_heads(of_bucket, key_heads) for of_bucket in tokens]),
            results=torch.cat(result_rows),
            space=torch.empty(most_scores, dtype=dtype),
        )

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float) -> Tensor:
        """Return attention (1, T, h, D) of queries (1, h, T, D), keys and values (1, k, T, D)."""
        query_heads, key_heads = self.heads
        head_size = query.shape[-1]
        # Rows of D numbers, ordered by bucket, text, head and position.
        queries = _gathered(query, self.queries)
        keys = _gathered(key, self.keys)
        values = _gathered(value, self.keys)
        results = torch.empty_like(queries)
        start = 0  # positions in the buckets before
        for bucket in self.parts:
            end = start + bucket.texts * bucket.length
            query_rows = slice(start * query_heads, end * query_heads)
            key_rows = slice(start * key_heads, end * key_heads)
            self._attend_in_bucket(
                bucket,
                queries[query_rows],
                keys[key_rows],
                values[key_rows],
                scale=scale,
                out=results[query_rows],
            )
            start = end
        without_padding = results.index_select(0, self.results)
        return without_padding.view(1, -1, query_heads, head_size)

    def _attend_in_bucket(
        self,
        bucket: _Bucket,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        scale: float,
        out: Tensor,
    ) -> None:
        """Write to ``out`` the attention of queries (N * h * L, D) to keys (N * k * L, D)."""
        _, key_heads = self.heads
        head_size = queries.shape[-1]
        # A group is what shares a key head in one text: (N * k, h / k * L, D) for queries.
        groups = bucket.texts * key_heads
        queries = queries.view(groups, -1, head_size)
        keys = keys.view(groups, -1, head_size)
        values = values.view(groups, -1, head_size)
        score_count = groups * queries.shape[1] * bucket.length
        scores = self.space[:score_count].view(groups, -1, bucket.length)
        write_scores = partial(bucket.write_scores, scores, queries, keys)
        divisors = _turn_into_weights(scores, write_scores, scale)
        # The scores have become weights, which do not sum to 1 yet.
        weighted_sums = _product(scores, values, out=out.view(groups, -1, head_size))
        weighted_sums.div_(divisors)


def _gathered(states: Tensor, rows: Tensor) -> Tensor:
    """Return rows of (T * heads, D) of states (1, heads, T, D)."""
    size = states.shape[-1]
    return states[0].transpose(0, 1).reshape(-1, size).index_select(0, rows)


def has_room(queries: int, keys: int) -> bool:
    """Return whether the scores of all pairs of queries and keys may be in memory at once."""
    return queries * keys <= _MOST_SCORES


def attend_after(
    prefix: KeysAndValues,
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
    texts, heads, rows, head_size = query.shape  # (N, h, R, D): R queries of each text
    key_heads, tokens = key.shape[1], key.shape[2]
    prefix_keys, prefix_values = prefix.keys[0], prefix.values[0]
    prefix_tokens = prefix_keys.shape[1]
    # Queries that share a key head, of all texts for the prefix: (k, N * h / k * R, D).
    grouped = query.unflatten(1, (key_heads, -1)).permute(1, 0, 2, 3, 4)
    queries = grouped.reshape(key_heads, -1, head_size)
    # The same by text, for its own tokens: (k * N, h / k * R, D).
    queries_of_texts = queries.reshape(key_heads * texts, -1, head_size)
    keys = key.transpose(0, 1).reshape(-1, tokens, head_size)
    values = value.transpose(0, 1).reshape(-1, tokens, head_size)  # as the keys: (k * N, T, D)
    # A row of scores: those of the prefix's tokens, then those of the text's own.
    row_length = prefix_tokens + tokens
    scores = space[: texts * heads * rows * row_length].view(key_heads, -1, row_length)
    # Three views of the same memory, to be written to.
    prefix_scores = scores[..., :prefix_tokens]  # (k, N * h / k * R, P)
    text_scores = scores[..., prefix_tokens:].unflatten(1, (texts, -1))  # (k, N, h / k * R, T)
    scores_of_texts = text_scores.flatten(0, 1)  # (k * N, h / k * R, T)

    def write_scores(scale: float) -> None:
        _product(queries, prefix_keys.mT, out=prefix_scores, scale=scale)
        _product(queries_of_texts, keys.mT, out=scores_of_texts, scale=scale)
        text_scores.unflatten(2, (-1, rows)).add_(bias)  # (k, N, h / k, R, T)

    # The sum of each row's weights, (k, N * h / k * R, 1).
    divisors = _turn_into_weights(scores, write_scores, scale)
    # Weighted sums of values: those of the prefix, then those of each text added to them.
    sums = _product(prefix_scores, prefix_values, out=queries.new_empty(queries.shape))
    sums_of_texts = sums.view(key_heads * texts, -1, head_size)
    _product(scores_of_texts, values, out=sums_of_texts, add=True)
    by_group = sums.div_(divisors).view(key_heads, texts, -1, rows, head_size)
    return by_group.permute(1, 3, 0, 2, 4).flatten(2, 3)  # (N, R, h, D)


def _product(
    first: Tensor, second: Tensor, *, out: Tensor, scale: float = 1.0, add: bool = False
) -> Tensor:
    """Write ``scale * first @ second`` to ``out`` (B, R, L), and return it; ``add`` adds it."""
    multiply = None
    if out.dtype == torch.float32:  # PyTorch itself calls oneDNN for other dtypes
        multiply = _onednn_product()
    share_of_out = float(add)
    if multiply is None:
        return torch.baddbmm(out, first, second, beta=share_of_out, alpha=scale, out=out)
    # C++ takes a `const Tensor&`: the address of a pointer to what PyTorch holds in `_cdata`.
    references = [byref(c_void_p(tensor._cdata)) for tensor in (first, second, out)]
    with record_function("bmm"):  # as a profiler knows the product, which is not an operator
        multiply(*references, share_of_out, scale)
    return out


@cache
def _onednn_product() -> Callable[..., None] | None:
    """Return PyTorch's batched product in oneDNN, or None if this machine cannot run it.

    Its C++ name spells out its arguments, so one that takes others is not found. It takes
    references to tensors, which are pointers to pointers, and aborts where it would raise; so it
    is not returned for a processor that it refuses.
    """
    try:
        # On other processors, the function would end the whole process.
        if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return None
        # at::native::mkldnn_matmul(const Tensor&, const Tensor&, const Tensor&, float, float)
        product = CDLL(torch._C.__file__)._ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff
    except (AttributeError, OSError):
        return None
    product.argtypes = [c_void_p, c_void_p, c_void_p, c_float, c_float]
    product.restype = None
    return product


def _turn_into_weights(
    scores: Tensor, write_scores: Callable[[float], None], scale: float
) -> Tensor:
    """Write attention weights (B, R, L), not yet normalised; return their divisors (B, R, 1).

    Args:
        scores: where the scores are written; the weights afterwards.
        write_scores: writes the scores, multiplied by what it is given.
        scale: multiplied with the scores.
    """
    write_scores(scale * log2(e))  # 2 ** (score * log2(e)) is e ** score
    _raise_2_to(scores.view(-1))
    sums = scores.sum(-1, keepdim=True)
    smallest, largest = map(float, sums.aminmax())
    if smallest > _UNDERFLOW and largest < _OVERFLOW:
        return sums
    # Rows whose powers over- or underflowed get PyTorch's softmax; no row depends on another.
    is_usable = (sums > _UNDERFLOW) & (sums < _OVERFLOW)
    powers = scores.clone()  # as the scores are written once more, over them
    write_scores(scale)  # without log2(e), as this softmax takes powers of e
    torch.softmax(scores, -1, out=scores)
    torch.where(is_usable, powers, scores, out=scores)
    return sums.where(is_usable, 1)  # a softmax is divided already


def _raise_2_to(exponents: Tensor) -> None:
    """Replace numbers (n,) by the powers of 2, the same whatever the number of threads.

    A thread's last numbers, if they fill no vector, are rounded in another way. So each gets as
    many whole grains as any other, and one thread the rest.
    """
    start = 0
    # Whole grains, as many for each thread; then the other whole grains; then single numbers.
    for size in (torch.get_num_threads() * _GRAIN, _GRAIN, 1):
        sizes_left = (len(exponents) - start) // size
        end = start + sizes_left * size
        exponents[start:end].exp2_()
        start = end


def _padded(length: int) -> int:
    return ceil(length / _STEP) * _STEP


def _split_by_padded_length(lengths: Sequence[int], heads: int) -> Iterator[tuple[int, Tensor]]:
    """Yield the padded length and the lengths of texts that share a product."""
    for padded_length, group in groupby(lengths, key=_padded):
        full_texts = _texts_that_fill(padded_length)
        scores_of_full = heads * padded_length**2 * full_texts
        most_texts = max(1, _SCORES_PER_PRODUCT // scores_of_full) * full_texts
        for text_lengths in torch.tensor(list(group)).split(most_texts):
            yield padded_length, text_lengths


def _texts_that_fill(padded_length: int) -> int:
    """Return how many short texts fill up `_POSITIONS`; 1 for longer texts."""
    return max(1, _POSITIONS // padded_length)


def _tokens_of_bucket(lengths: Tensor, bucket: _Bucket) -> Tensor:
    """Return the token at each position of a bucket, (N, L), counted from its first text.

    Positions after the end of a text repeat its last token, and the first text fills up the bucket.
    """
    positions = torch.arange(bucket.length)
    starts = lengths.cumsum(0) - lengths
    last_positions = lengths.unsqueeze(1) - 1
    tokens = starts.unsqueeze(1) + torch.minimum(positions, last_positions)
    copies = tokens[:1].expand(bucket.texts - len(lengths), -1)
    return torch.cat([tokens, copies])


def _rows_of_tokens(lengths: Tensor, padded_length: int, heads: int) -> Tensor:
    """Return the rows of results (N * h * L,) that are no padding, ordered by token and head."""
    rows = torch.arange(len(lengths) * heads * padded_length)
    by_token = rows.view(-1, heads, padded_length).mT  # (N, L, h)
    is_token = torch.arange(padded_length) < lengths.unsqueeze(1)
    return by_token[is_token].flatten()


def _rows_of_heads(tokens: Tensor, heads: int) -> Tensor:
    """Return the rows (N * heads * L,) of (T * heads, D) for tokens (N, L)."""
    first_rows = tokens.unsqueeze(1) * heads
    rows = first_rows + torch.arange(heads).view(-1, 1)
    return rows.flatten()


def _bucket(lengths: Tensor, padded_length: int, *, causal: bool, dtype: torch.dtype) -> _Bucket:
    full_texts = _texts_that_fill(padded_length)
    texts = ceil(len(lengths) / full_texts) * full_texts  # rounded up, so that shapes are few
    is_unpadded = bool((lengths == padded_length).all())
    if is_unpadded and not causal:
        return _Bucket(texts, padded_length, None)
    # Copies of the first text fill up the bucket.
    copied_lengths = lengths[:1].expand(texts - len(lengths))
    all_lengths = torch.cat([lengths, copied_lengths]).unsqueeze(1)
    positions = torch.arange(padded_length)
    is_token = positions < all_lengths  # (N, L)
    is_visible = is_token[:, None, None]  # (N, 1, 1, L)
    if causal:
        is_earlier = positions <= positions.unsqueeze(1)  # (L, L): a row for each query
        is_visible = is_visible & is_earlier
    else:  # texts of a bucket differ in their last positions only
        is_visible = is_visible[..., -_STEP:]
    bias = torch.zeros(is_visible.shape, dtype=dtype).masked_fill_(~is_visible, -torch.inf)
    return _Bucket(texts, padded_length, bias)


def runs_as_products(model: PreTrainedModel) -> bool:
    """Return whether attention of ``model`` is faster as products: where it runs in oneDNN."""
    prepacked = any(isinstance(layer, PrepackedLinear) for layer in model.modules())
    return prepacked and has_fast_products(model.dtype)


@cache
def has_fast_products(dtype: torch.dtype) -> bool:
    """Return whether batched products in oneDNN are faster here than PyTorch's attention.

    Of a processor with AMX, PyTorch's own attention uses the matrix unit.
    """
    if torch.cpu._is_amx_tile_supported():
        return False
    if dtype == torch.bfloat16:
        return bool(torch.cpu._is_avx512_bf16_supported())
    return dtype == torch.float32 and _multiplies_exactly()


def _multiplies_exactly() -> bool:
    """Return whether a product in float32 is not rounded to bfloat16."""
    random = torch.Generator().manual_seed(0)  # does not touch the global generator
    left_factor = torch.randn(24, 64, 64, generator=random)
    right_factor = torch.randn(24, 64, 64, generator=random)
    with torch.inference_mode():
        product = _product(left_factor, right_factor, out=torch.empty_like(left_factor))
    expected = left_factor.double() @ right_factor.double()
    return torch.allclose(product.double(), expected, rtol=0, atol=_EXACT_TOLERANCE)
