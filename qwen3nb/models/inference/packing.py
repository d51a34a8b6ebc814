"""Run texts through a model without padding, concatenated into one row.

The texts of a batch are sorted by length and concatenated; positions restart with each
text. Attention is the only part of a transformer that looks beyond a single token, so it
runs per text: texts of equal length are viewed as (n, L, heads, head size) and go through
PyTorch's scaled dot product together, without a mask; where oneDNN's products are faster, texts
of similar length go through `qwen3nb.models.inference.product_attention`.

The layout of the texts is passed as an argument (`PackedLayout`) through transformers' own
attention interface; nothing is kept between forward passes. A model prepared by `prepare`
refuses to run without a layout, because padded batches would silently attend to padding.

Rule: a model is packed if its architecture is in `_FAMILIES`, it has no sliding windows,
and its rotary frequencies (if any) do not depend on the batch. Other models run padded.

Shapes: T tokens of all texts, N texts, L tokens of one text, H hidden size, D head size.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from qwen3nb.models.inference.product_attention import BucketLayout
from qwen3nb.models.inference.token_budget import sent
from qwen3nb.models.modeling.pooling import pool, pool_segments

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

ATTENTION = "qwen3nb_packed"
# Rotary frequencies that depend neither on the batch nor on its longest text.
FIXED_ROPES = ("default", "linear", "yarn", "llama3")
# Called with queries (T, heads, D), keys and values (T, key heads, D), the start of each text and
# the end of the last (N + 1, int32), the tokens of the longest text, and by name `scale` (None for
# 1 / sqrt(D)) and `causal`; returns attention (T, heads, D) within each text.
Kernel = Callable[..., Tensor]

_MAX_HEAD = 256  # the largest head size of FlashAttention
_OPTIONS = {"scale", "window_size", "enable_gqa", "num_splits"}
_logger = logging.getLogger(__name__)
# Positions of such an encoder begin after the id of its padding token.
_AFTER_PADDING = "encoder after padding"
# How an architecture treats the order of tokens.
_FAMILIES = {
    "qwen3nb.models.modeling.qwen3_encoder.Qwen3EncoderModel": "decoder",
    "transformers.models.bert.modeling_bert.BertModel": "encoder",
    "transformers.models.llama.modeling_llama.LlamaModel": "decoder",
    "transformers.models.qwen2.modeling_qwen2.Qwen2Model": "decoder",
    "transformers.models.qwen3.modeling_qwen3.Qwen3Model": "decoder",
    "transformers.models.roberta.modeling_roberta.RobertaModel": _AFTER_PADDING,
    "transformers.models.xlm_roberta.modeling_xlm_roberta.XLMRobertaModel": _AFTER_PADDING,
}


class TextGroup(NamedTuple):
    """Texts of equal length that follow each other in a packed row."""

    start: int  # their first token
    texts: int
    length: int  # L, the tokens of each

    def texts_in(self, states: Tensor) -> Tensor:
        """Return a view (texts, heads, L, D) of packed states (1, heads, T, D)."""
        end = self.start + self.texts * self.length
        group_states = states[0, :, self.start : end]
        return group_states.unflatten(1, (self.texts, self.length)).transpose(0, 1)


@dataclass(frozen=True)
class PackedLayout:
    """The positions of the texts in a packed row."""

    groups: tuple[TextGroup, ...]
    causal: bool  # whether a token attends only to earlier tokens of its own text
    limits: Tensor  # start of each text and end of the last: (N + 1), int32
    # attention over ragged texts in one call; None for one call per group
    kernel: Kernel | None = None
    # texts by similar length, for attention by products; None for PyTorch's own
    buckets: BucketLayout | None = None
    dtype: torch.dtype | None = None  # of attention; None for that of the states

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None) -> Tensor:
        """Return attention (1, T, heads, D) of (1, heads, T, D), within each text."""
        if self.kernel is not None:
            return self._attend_by_kernel(self.kernel, query, key, value, scale)
        if self.buckets is not None:
            if scale is None:
                scale = query.shape[-1] ** -0.5
            return self.buckets.attend(query, key, value, scale=scale)
        parts = []
        for group in self.groups:  # of texts with the same number of tokens: no mask is needed
            group_query = group.texts_in(query)
            group_key = group.texts_in(key)
            attended = scaled_dot_product_attention(
                group_query,
                group_key,
                group.texts_in(value),
                is_causal=self.causal and group.length > 1,  # a lone token sees itself
                scale=scale,
                enable_gqa=group_query.shape[1] != group_key.shape[1],
            )
            parts.append(attended.transpose(1, 2).flatten(0, 1))
        return torch.cat(parts).unsqueeze(0)

    def _attend_by_kernel(
        self, kernel: Kernel, query: Tensor, key: Tensor, value: Tensor, scale: float | None
    ) -> Tensor:
        """Return the same as `attend`, of all texts in one call."""
        longest = self.groups[0].length  # texts are sorted, the longest first
        attended = kernel(
            query[0].transpose(0, 1),  # from (1, heads, T, D) to (T, heads, D)
            key[0].transpose(0, 1),
            value[0].transpose(0, 1),
            self.limits,
            longest,
            scale=scale,
            causal=self.causal,
        )
        return attended.unsqueeze(0)


@dataclass(frozen=True)
class Packing:
    """How a model runs packed."""

    causal: bool  # whether its attention is causal
    first_position: int = 0  # of a text's first token
    kernel: Kernel | None = None  # see `PackedLayout`
    products: bool = False  # whether attention runs as matrix products
    dtype: torch.dtype | None = None  # see `PackedLayout`

    def states(
        self, model: PreTrainedModel, rows: Sequence[Sequence[int]]
    ) -> tuple[Tensor, PackedLayout]:
        """Return the token states (T, H) of ``rows``, and their layout.

        Rows must be sorted by length, the longest first.
        """
        lengths = torch.tensor([len(row) for row in rows])
        ends = lengths.cumsum(0)  # (N,): of each text, in the row of all tokens
        starts = ends - lengths
        layout = PackedLayout(
            _groups(lengths.tolist()),
            causal=self.causal,
            limits=sent(torch.cat([starts, ends[-1:]]).int(), model.device),
            kernel=self.kernel,
            buckets=self._buckets(model, lengths.tolist()),
            dtype=self.dtype,
        )
        ids = torch.tensor([list(chain.from_iterable(rows))])  # (1, T)
        # Positions begin anew with each text.
        text_start_of_token = starts.repeat_interleave(lengths)
        positions = torch.arange(ids.shape[1]) - text_start_of_token + self.first_position
        output = model(
            input_ids=sent(ids, model.device),
            position_ids=sent(positions.unsqueeze(0), model.device),
            packing=layout,
        )
        return output.last_hidden_state[0], layout

    def _buckets(self, model: PreTrainedModel, lengths: Sequence[int]) -> BucketLayout | None:
        """Return the layout of texts for attention by products; None for PyTorch's own."""
        if not self.products:
            return None
        heads = int(model.config.num_attention_heads)
        key_heads = int(getattr(model.config, "num_key_value_heads", None) or heads)
        dtype = self.dtype or model.dtype
        return BucketLayout.of(lengths, heads=(heads, key_heads), causal=self.causal, dtype=dtype)


def _groups(lengths: Sequence[int]) -> tuple[TextGroup, ...]:
    """Return first token, number and length of the texts of each run of equal length."""
    groups = []
    start = 0
    for length, equal_lengths in groupby(lengths):
        texts = len(list(equal_lengths))
        groups.append(TextGroup(start, texts, length))
        start += texts * length
    return tuple(groups)


def packing_of(model: PreTrainedModel, *, kernel: Kernel | None = None) -> Packing | None:
    """Return how ``model`` runs packed, or None if it must be padded (see the rule above)."""
    config = model.config
    model_class = type(model)
    # By the full name, because another author's class may have the same short one.
    family = _FAMILIES.get(f"{model_class.__module__}.{model_class.__qualname__}")
    if family is None or other_layers(config) or rope_type(config) not in FIXED_ROPES:
        return None
    if family == "decoder":
        return Packing(causal=bool(getattr(config, "is_causal", True)), kernel=kernel)
    if getattr(config, "is_decoder", False):  # a BERT that reads in one direction
        return None
    first_position = 0
    if family == _AFTER_PADDING:  # as in RoBERTa
        first_position = config.pad_token_id + 1
    return Packing(causal=False, first_position=first_position, kernel=kernel)


def prepare(model: PreTrainedModel) -> None:
    """Make ``model`` attend by layout; afterwards it runs packed only."""
    attend_with(model, ATTENTION, _attention)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    packing: PackedLayout | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it in each layer.

    ``module.is_causal`` is ignored: it is True in Qwen3's layers even if the configuration
    says otherwise. The layout decides.
    """
    if packing is None:
        raise ValueError("this model was prepared for packed texts and needs their layout")
    dtype = query.dtype
    if packing.dtype is not None:
        query, key, value = (states.to(packing.dtype) for states in (query, key, value))
    return packing.attend(query, key, value, scale=scaling).to(dtype), None


def pool_packed(states: Tensor, layout: PackedLayout, *, pooling: str, normalize: bool) -> Tensor:
    """Pool packed ``states`` (T, H) to float32 vectors (N, H); see `modeling.pooling.pool`.

    One sum per group is fastest on a CPU, and the same for a text alone. A GPU reduces ragged texts
    in one call, in which the host never waits for it.
    """
    if layout.kernel is not None:
        return pool_segments(states, layout.limits, pooling=pooling, normalize=normalize)
    vectors = []
    for group in layout.groups:
        end = group.start + group.texts * group.length
        # (texts, L, H): all texts of a group have the same length.
        group_states = states[group.start : end].unflatten(0, (group.texts, group.length))
        without_padding = torch.ones(
            group.texts, group.length, dtype=torch.long, device=states.device
        )
        vectors.append(pool(group_states, without_padding, pooling=pooling, normalize=normalize))
    return torch.cat(vectors)


def attend_with(model: PreTrainedModel, name: str, attention: Callable[..., Any]) -> None:
    """Register ``attention`` with transformers as ``name``; every layer of ``model`` calls it.

    No mask is registered, so transformers passes None. Registering a function that returns None
    would do the same, but transformers would first look whether positions restart, which makes
    the host wait for a GPU.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(name, attention)
    model.set_attn_implementation(name)


def rope_type(config: PretrainedConfig) -> str:
    """Return the type of the model's rotary positions; ``default`` if unset."""
    return str((getattr(config, "rope_parameters", None) or {}).get("rope_type", "default"))


def other_layers(config: PretrainedConfig) -> set[str]:
    """Return the kinds of layers without full attention, such as sliding windows."""
    return set(getattr(config, "layer_types", None) or ()) - {"full_attention"}


def varlen_kernel(model: PreTrainedModel) -> Kernel | None:
    """Return FlashAttention over texts of different lengths in one call, for a GPU in 16 bits.

    None if device, dtype or head size do not allow it; without PyTorch's kernel, a GPU runs padded
    batches, and says so.
    """
    if model.device.type != "cuda" or model.dtype == torch.float32:
        return None
    config = model.config.get_text_config()
    head_size = getattr(config, "head_dim", None)
    if not head_size:
        head_size = config.hidden_size // config.num_attention_heads
    if head_size > _MAX_HEAD:
        return None
    attention = _varlen_attention()
    if attention is None:
        _logger.warning(
            "PyTorch %s has no attention over ragged texts that fits: texts are padded, which is "
            "slower",
            torch.__version__,
        )
        return None

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        limits: Tensor,
        longest: int,
        *,
        scale: float | None,
        causal: bool,
    ) -> Tensor:
        # Tokens to the left and to the right that a token attends to; -1 for all.
        window = (-1, 0) if causal else (-1, -1)
        return attention(
            query,
            key,
            value,
            limits,  # of the queries
            limits,  # of the keys
            longest,
            longest,
            scale=scale,
            window_size=window,
            enable_gqa=query.shape[1] != key.shape[1],
            num_splits=1,  # keys in one piece: else how many depends on the batch
        )

    return attend


def _varlen_attention() -> Callable[..., Tensor] | None:
    """Return PyTorch's attention over ragged texts; None without it, or without an option."""
    try:
        attention: Callable[..., Tensor]
        attention = import_module("torch.nn.attention.varlen").varlen_attn
    except (ImportError, AttributeError):
        return None
    options = set(inspect.signature(attention).parameters)
    return attention if options >= _OPTIONS else None
