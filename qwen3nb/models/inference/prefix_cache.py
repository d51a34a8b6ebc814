"""Prefix cache: a prefix shared by many texts goes through the model once.

A causal model computes a key and a value per token and layer, which depend only on earlier
tokens. Cached, they stand in for the shared prefix of all texts that start with the same
tokens, so that only the rest of each text is computed.

Rests are padded on the right: no token attends to the padding after it, and the states of
padding are never read. Only the state of the last token is returned, so the last layer
computes keys and values for all tokens, but everything else for that token alone.

Shapes: N texts, T tokens of the longest rest, P tokens of the prefix, H hidden size,
D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from qwen3nb.models.inference.fused_layers import heads_of, rotated
from qwen3nb.models.inference.packing import FIXED_ROPES, attend_with, other_layers, rope_type
from qwen3nb.models.inference.product_attention import (
    KeysAndValues,
    attend_after,
    has_room,
    runs_as_products,
)
from qwen3nb.models.inference.token_budget import sent
from qwen3nb.models.types import SpecError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

ATTENTION = "qwen3nb_prefix"
_FAMILIES = ("qwen3", "qwen2", "llama")


class Rotary(NamedTuple):
    """Cosines and sines of the angles of positions, (1, T, D) each."""

    cosines: Tensor
    sines: Tensor


@dataclass(frozen=True)
class Prefix:
    """Tokens with the keys and values that a model computed for them."""

    ids: tuple[int, ...] = ()  # the P tokens
    # keys and values per layer, each (1, key heads, P, D); empty for no tokens
    layers: tuple[KeysAndValues, ...] = ()

    def cut(self, length: int) -> Prefix:
        """Return the first ``length`` tokens, without copying."""
        if length == 0:
            return Prefix()
        layers = []
        for keys, values in self.layers:
            layers.append(KeysAndValues(keys[:, :, :length], values[:, :, :length]))
        return Prefix(self.ids[:length], tuple(layers))


class _Memory:
    """The prefix that a forward pass attends to; keeps new keys and values on request."""

    def __init__(self, prefix: Prefix, *, keep: bool = False, products: bool = False) -> None:
        self.prefix = prefix
        self.new_pairs: dict[int, KeysAndValues] | None = {} if keep else None
        self._products = products and bool(prefix.layers)
        self._mask: Tensor | None = None
        self._space: Tensor | None = None

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        last: Tensor | None = None,
    ) -> Tensor:
        """Return attention (N, R, heads, D) of queries (N, heads, R, D).

        Each token attends to the prefix and to its text so far. With ``last`` (N,), R is 1: the
        queries are those of these tokens.
        """
        if self._products:
            return self._attend_by_products(layer, query, key, value, scale=scale, last=last)
        prefix_tokens = len(self.prefix.ids)
        key, value = self.with_prefix(layer, key, value)
        all_tokens = key.shape[2]
        if last is None:  # a query for each token
            mask = self._visible(query, all_tokens)
        else:  # one query for each text, of its token ``last``
            mask = _up_to(prefix_tokens + last, all_tokens, dtype=query.dtype)
        return _attend(query, key, value, mask=mask, scale=scale).transpose(1, 2)

    def _attend_by_products(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        last: Tensor | None,
    ) -> Tensor:
        """Return the same as `attend`, without a copy of the prefix for each text."""
        # The mask is for a text's own tokens: every query sees the whole prefix.
        tokens = key.shape[2]
        if last is None:
            mask = self._visible(query, tokens)
        else:
            mask = _up_to(last, tokens, dtype=query.dtype)
        if self._space is None:  # enough for every layer; the last one needs least
            queries = query[..., 0].numel()  # of all texts and heads
            keys = len(self.prefix.ids) + tokens
            self._space = query.new_empty(queries * keys)
        prefix = self.prefix.layers[layer]
        return attend_after(prefix, query, key, value, bias=mask, scale=scale, space=self._space)

    def with_prefix(self, layer: int, key: Tensor, value: Tensor) -> KeysAndValues:
        """Return keys and values (N, key heads, P + T, D); store them if ``keep`` is set."""
        if self.prefix.layers:  # (1, key heads, P, D) each, repeated for every text
            prefix_keys, prefix_values = self.prefix.layers[layer]
            key = torch.cat([prefix_keys.expand(len(key), -1, -1, -1), key], dim=2)
            value = torch.cat([prefix_values.expand(len(value), -1, -1, -1), value], dim=2)
        extended = KeysAndValues(key, value)
        if self.new_pairs is not None:
            self.new_pairs[layer] = extended
        return extended

    def _visible(self, query: Tensor, keys: int) -> Tensor:
        """Return the mask (T, keys): 0 where a token attends, minus infinity elsewhere."""
        if self._mask is None:
            tokens = query.shape[2]
            mask = torch.full((tokens, keys), -torch.inf, dtype=query.dtype, device=query.device)
            self._mask = mask.triu(keys - tokens + 1)
        return self._mask


def _up_to(last: Tensor, keys: int, *, dtype: torch.dtype) -> Tensor:
    """Return the mask (N, 1, 1, keys) of each text's token ``last`` (N,)."""
    beyond = torch.arange(keys, device=last.device) > last.unsqueeze(1)
    mask = torch.zeros_like(beyond, dtype=dtype).masked_fill(beyond, -torch.inf)
    return mask[:, None, None]


def _attend(query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor, scale: float) -> Tensor:
    """Return attention of grouped heads with a mask.

    The fast kernels of a GPU take either groups or a mask, so heads are repeated there; the
    slow one that takes both would store every weight.
    """
    queries_per_key = query.shape[1] // key.shape[1]
    is_grouped = queries_per_key > 1
    on_cpu = query.device.type == "cpu"
    # The fast kernels of a GPU take groups or a mask, not both.
    if is_grouped and not on_cpu:
        key = key.repeat_interleave(queries_per_key, dim=1)
        value = value.repeat_interleave(queries_per_key, dim=1)
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=is_grouped and on_cpu
    )


@dataclass(frozen=True)
class _LastLayer:
    """The last decoder layer and the final norm, for the last token of each text."""

    layer: Any
    norm: Any
    index: int

    def remember(self, states: Tensor, rotary: Rotary, memory: _Memory) -> None:
        """Store the keys and values of all tokens; nothing else of this layer is needed."""
        normed = self.layer.input_layernorm(states)
        memory.with_prefix(self.index, *self._keys_and_values(normed, rotary))

    def states(self, states: Tensor, rotary: Rotary, memory: _Memory, last: Tensor) -> Tensor:
        """Return the state (N, H) of token ``last`` (N,) of each text in ``states`` (N, T, H)."""
        attention = self.layer.self_attn
        normed = self.layer.input_layernorm(states)
        key, value = self._keys_and_values(normed, rotary)
        # Keys and values of all tokens, but the query of the last token of each text alone.
        texts = torch.arange(len(states), device=states.device)
        query = self._queries(normed[texts, last], rotary, last)
        attended = memory.attend(self.index, query, key, value, scale=attention.scaling, last=last)
        # The rest of a decoder layer: two residual sums, each with a norm before its layer.
        residual = states[texts, last] + attention.o_proj(attended.flatten(1))
        mlp_states = self.layer.mlp(self.layer.post_attention_layernorm(residual))
        result: Tensor = self.norm(residual + mlp_states)
        return result

    def _queries(self, normed: Tensor, rotary: Rotary, tokens: Tensor) -> Tensor:
        """Return queries (N, heads, 1, D) of normed states (N, H) at ``tokens`` (N,)."""
        heads = heads_of(self.layer.self_attn, "q", normed.unsqueeze(1))
        cosines = rotary.cosines[0, tokens].unsqueeze(1)
        sines = rotary.sines[0, tokens].unsqueeze(1)
        return rotated(heads, cosines, sines)

    def _keys_and_values(self, normed: Tensor, rotary: Rotary) -> KeysAndValues:
        """Return keys and values (N, key heads, T, D)."""
        attention = self.layer.self_attn
        keys = rotated(heads_of(attention, "k", normed), *rotary)
        return KeysAndValues(keys, heads_of(attention, "v", normed))


class PrefixModel:
    """A causal transformer without its output matrix that runs texts after a cached prefix."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Take over a model without a head that passes `check_causal`, in evaluation mode."""
        check_causal(model.config)
        attend_with(model, ATTENTION, _attention)
        self._has_fast_products = runs_as_products(model)
        *first_layers, last_layer = model.layers
        self._last_layer = _LastLayer(last_layer, model.norm, len(first_layers))
        # The model itself ends before its last layer, which runs for one token of each text.
        model.layers = torch.nn.ModuleList(first_layers)
        model.norm = torch.nn.Identity()
        model.config.num_hidden_layers = len(first_layers)
        self.model = model

    @torch.inference_mode()
    def extend(self, prefix: Prefix, ids: Sequence[int]) -> Prefix:
        """Return ``prefix`` extended by ``ids``."""
        if not ids:
            return prefix
        memory = _Memory(prefix, keep=True)
        states, rotary = self._run(torch.tensor([list(ids)]), memory)
        self._last_layer.remember(states, rotary, memory)  # those before have filled `memory`
        new_pairs = memory.new_pairs or {}
        layers = [new_pairs[layer] for layer in sorted(new_pairs)]
        return Prefix((*prefix.ids, *ids), tuple(layers))

    @torch.inference_mode()
    def last_states(self, prefix: Prefix, rests: Sequence[Sequence[int]]) -> Tensor:
        """Return the state (N, H) of each text's last token; no rest may be empty."""
        # Padded on the right with 0, which no token before it attends to.
        ids = pad_sequence([torch.tensor(rest) for rest in rests], batch_first=True)
        texts, longest = ids.shape
        queries = texts * longest * int(self.model.config.num_attention_heads)
        keys = len(prefix.ids) + longest
        memory = _Memory(prefix, products=self._has_fast_products and has_room(queries, keys))
        states, rotary = self._run(ids, memory)
        last_tokens = torch.tensor([len(rest) - 1 for rest in rests])
        return self._last_layer.states(states, rotary, memory, sent(last_tokens, states.device))

    def _run(self, ids: Tensor, memory: _Memory) -> tuple[Tensor, Rotary]:
        """Return states (N, T, H) before the last layer, and cosines and sines of the positions."""
        offset = len(memory.prefix.ids)  # positions continue after the prefix
        device = self.model.device
        positions = torch.arange(offset, offset + ids.shape[1], device=device).unsqueeze(0)
        output = self.model(
            input_ids=sent(ids, device), position_ids=positions, use_cache=False, memory=memory
        )
        states: Tensor = output.last_hidden_state
        return states, Rotary(*self.model.rotary_emb(states, positions))


def check_causal(config: PretrainedConfig) -> None:
    """Refuse a model whose prefix cannot be cached, with a `SpecError` that says why."""
    problem = _why_not_cached(config)
    if problem:
        raise SpecError(f"this model {problem}")


def _why_not_cached(config: PretrainedConfig) -> str:
    """Return why the prefix of a model cannot be cached; an empty text if it can."""
    if config.model_type not in _FAMILIES:
        return f"is of type {config.model_type!r}, expected one of {', '.join(_FAMILIES)}"
    if getattr(config, "is_causal", True) is False:
        return "is bidirectional; a reranker is a causal language model"
    windows = other_layers(config)
    if windows:
        return f"has layers with {', '.join(sorted(windows))}, expected full attention only"
    rope = rope_type(config)
    if rope not in FIXED_ROPES:
        return f"has {rope!r} rotary positions, expected one of {', '.join(FIXED_ROPES)}"
    return ""


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    memory: _Memory | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it in each layer: (N, T, heads, D)."""
    if memory is None:
        raise ValueError("this model was prepared for cached prefixes; run it through PrefixModel")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    states = memory.attend(module.layer_idx, query, key, value, scale=scale)
    return states.contiguous(), None
