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
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from qwen3nb.models.inference.fused_layers import heads_of, rotated
from qwen3nb.models.inference.packing import FIXED_ROPES, attend_with, other_layers, rope_type
from qwen3nb.models.inference.product_attention import attend_after, has_room, runs_as_products
from qwen3nb.models.inference.token_budget import sent
from qwen3nb.models.types import SpecError

ATTENTION = "qwen3nb_prefix"
_FAMILIES = ("qwen3", "qwen2", "llama")
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Prefix:
    """Tokens with the keys and values that a model computed for them."""

    ids: tuple[int, ...] = ()  # the P tokens
    # keys and values per layer, each (1, key heads, P, D); empty for no tokens
    layers: tuple[Pair, ...] = ()

    def cut(self, length: int) -> Prefix:
        """Return the first ``length`` tokens, without copying."""
        if length == 0:
            return Prefix()
        layers = tuple((key[:, :, :length], value[:, :, :length]) for key, value in self.layers)
        return Prefix(self.ids[:length], layers)


class _Memory:
    """The prefix that a forward pass attends to; keeps new keys and values on request."""

    def __init__(self, prefix: Prefix, *, keep: bool = False, products: bool = False) -> None:
        self.prefix = prefix
        self.new_pairs: dict[int, Pair] | None = {} if keep else None
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
        tokens = key.shape[2]
        if not self._products:
            key, value = self.with_prefix(layer, key, value)
        keys = key.shape[2]
        if last is None:
            mask = self._visible(query, keys)
        else:
            mask = _up_to(last + keys - tokens, keys, dtype=query.dtype)
        if not self._products:
            return _attend(query, key, value, mask=mask, scale=scale).transpose(1, 2)
        if self._space is None:  # scores of every layer; the last one needs least
            rows = query[..., 0].numel()
            self._space = query.new_empty(rows * (len(self.prefix.ids) + keys))
        prefix = self.prefix.layers[layer]
        return attend_after(prefix, query, key, value, bias=mask, scale=scale, space=self._space)

    def with_prefix(self, layer: int, key: Tensor, value: Tensor) -> Pair:
        """Return keys and values (N, key heads, P + T, D); store them if ``keep`` is set."""
        if self.prefix.layers:
            prefix_key, prefix_value = self.prefix.layers[layer]
            key = torch.cat([prefix_key.expand(len(key), -1, -1, -1), key], dim=2)
            value = torch.cat([prefix_value.expand(len(value), -1, -1, -1), value], dim=2)
        if self.new_pairs is not None:
            self.new_pairs[layer] = (key, value)
        return key, value

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
    groups = query.shape[1] // key.shape[1]
    in_groups = groups > 1 and query.device.type == "cpu"
    if groups > 1 and not in_groups:
        key = key.repeat_interleave(groups, dim=1)
        value = value.repeat_interleave(groups, dim=1)
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=in_groups
    )


@dataclass(frozen=True)
class _LastLayer:
    """The last decoder layer and the final norm, for the last token of each text."""

    layer: Any
    norm: Any
    index: int

    def remember(self, states: Tensor, rotary: Pair, memory: _Memory) -> None:
        """Store the keys and values of all tokens; nothing else of this layer is needed."""
        memory.with_prefix(self.index, *self._keys(self.layer.input_layernorm(states), rotary))

    def states(self, states: Tensor, rotary: Pair, memory: _Memory, last: Tensor) -> Tensor:
        """Return the state (N, H) of token ``last`` (N,) of each text in ``states`` (N, T, H)."""
        attention = self.layer.self_attn
        rows = torch.arange(len(states), device=states.device)
        normed = self.layer.input_layernorm(states)
        key, value = self._keys(normed, rotary)
        cos, sin = rotary
        query = heads_of(attention, "q", normed[rows, last].unsqueeze(1))
        query = rotated(query, cos[0, last].unsqueeze(1), sin[0, last].unsqueeze(1))
        scale = attention.scaling
        out = memory.attend(self.index, query, key, value, scale=scale, last=last)
        residual = states[rows, last] + attention.o_proj(out.flatten(1))
        mlp = self.layer.mlp(self.layer.post_attention_layernorm(residual))
        result: Tensor = self.norm(residual + mlp)
        return result

    def _keys(self, normed: Tensor, rotary: Pair) -> Pair:
        """Return keys and values (N, key heads, T, D)."""
        attention = self.layer.self_attn
        return rotated(heads_of(attention, "k", normed), *rotary), heads_of(attention, "v", normed)


class PrefixModel:
    """A causal transformer without its output matrix that runs texts after a cached prefix."""

    def __init__(self, model: Any) -> None:
        """Take over a model without a head that passes `check_causal`, in evaluation mode."""
        check_causal(model.config)
        attend_with(model, ATTENTION, _attention)
        self._products = runs_as_products(model)
        *layers, last = model.layers
        self._last = _LastLayer(last, model.norm, len(layers))
        model.layers = torch.nn.ModuleList(layers)
        model.norm = torch.nn.Identity()
        model.config.num_hidden_layers = len(layers)
        self.model = model

    @torch.inference_mode()
    def extend(self, prefix: Prefix, ids: Sequence[int]) -> Prefix:
        """Return ``prefix`` extended by ``ids``."""
        if not ids:
            return prefix
        memory = _Memory(prefix, keep=True)
        states, rotary = self._run(torch.tensor([list(ids)]), memory)
        self._last.remember(states, rotary, memory)
        pairs = memory.new_pairs or {}
        return Prefix((*prefix.ids, *ids), tuple(pairs[layer] for layer in sorted(pairs)))

    @torch.inference_mode()
    def last_states(self, prefix: Prefix, rests: Sequence[Sequence[int]]) -> Tensor:
        """Return the state (N, H) of each text's last token; no rest may be empty."""
        lengths = torch.tensor([len(rest) for rest in rests])
        ids = torch.zeros(len(rests), int(lengths.max()), dtype=torch.long)
        for row, rest in zip(ids, rests, strict=True):
            row[: len(rest)] = torch.tensor(rest)
        queries = ids.numel() * int(self.model.config.num_attention_heads)
        fits = has_room(queries, len(prefix.ids) + ids.shape[1])
        memory = _Memory(prefix, products=self._products and fits)
        states, rotary = self._run(ids, memory)
        return self._last.states(states, rotary, memory, sent(lengths, states.device) - 1)

    def _run(self, ids: Tensor, memory: _Memory) -> tuple[Tensor, Pair]:
        """Return states (N, T, H) before the last layer, and cosine and sine per position."""
        start = len(memory.prefix.ids)
        device = self.model.device
        positions = torch.arange(start, start + ids.shape[1], device=device).unsqueeze(0)
        output = self.model(
            input_ids=sent(ids, device), position_ids=positions, use_cache=False, memory=memory
        )
        states: Tensor = output.last_hidden_state
        return states, self.model.rotary_emb(states, positions)


def check_causal(config: Any) -> None:
    """Refuse a model whose prefix cannot be cached, with a `SpecError` that says why."""
    rope = rope_type(config)
    windows = other_layers(config)
    if config.model_type not in _FAMILIES:
        why = f"is of type {config.model_type!r}, expected one of {', '.join(_FAMILIES)}"
    elif getattr(config, "is_causal", True) is False:
        why = "is bidirectional; a reranker is a causal language model"
    elif windows:
        why = f"has layers with {', '.join(sorted(windows))}, expected full attention only"
    elif rope not in FIXED_ROPES:
        why = f"has {rope!r} rotary positions, expected one of {', '.join(FIXED_ROPES)}"
    else:
        return
    raise SpecError(f"this model {why}")


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    memory: _Memory | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it in each layer: (N, T, heads, D)."""
    if memory is None:
        raise ValueError("this model was prepared for cached prefixes; run it through PrefixModel")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    states = memory.attend(module.layer_idx, query, key, value, scale=scale)
    return states.contiguous(), None
