"""The encoder-decoder of a UL2 training, built on stock Qwen3 layers.

It is used to train the demo's checkpoints and to verify extractions. Weights and configuration
fields have the names of such trainings (one shared embedding, tied to both stacks and the output):

    model.shared.weight
    model.{encoder,decoder}.layers.N....      as in Qwen3Model
    model.{encoder,decoder}.norm.weight

The encoder is `Qwen3Model` run bidirectionally. The decoder's attention is merged,
as in T5Gemma 2 (Zhang et al. 2025): one softmax over its own earlier positions and
over the encoder's states, with one set of projections for both. Rotary positions
apply to the decoder's queries and own keys, not to the encoder's keys.

Shapes: B texts, S source tokens, T target tokens, H hidden size, V vocabulary rows.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel, Qwen3Config, Qwen3Model
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from qwen3nb.checkpoints.names import EMBEDDINGS
from qwen3nb.models.modeling.configuration import encoder_config

IGNORED = -100  # the label that cross entropy skips, as in transformers


class Qwen3Seq2SeqConfig(PreTrainedConfig):
    """The configuration stored with such a checkpoint.

    ``vocab_size`` is the number of embedding rows, which may exceed the tokenizer's
    vocabulary; ``_head_dim`` is the size of an attention head.
    """

    model_type = "qwen3_encdec"

    vocab_size: int = 152036
    hidden_size: int = 1024
    intermediate_size: int = 3072
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    num_key_value_heads: int = 8
    _head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 32768
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    attention_dropout: float = 0.0
    use_merged_attention: bool = True
    num_sentinel_tokens: int = 100
    sentinel_token_start_id: int | None = None
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True
    use_cache: bool = False
    decoder_start_token_id: int | None = None
    pad_token_id: int | None = None
    eos_token_id: int | None = None

    def stack_config(self, *, causal: bool) -> Qwen3Config:
        """Return the stock configuration of one stack."""
        config = encoder_config(self.to_dict())
        config.is_causal = causal
        config._attn_implementation = "sdpa"
        return config


class _MergedAttention(qwen3.Qwen3Attention):
    """Self- and cross-attention in one softmax, sharing every projection."""

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor,
        encoder_hidden_states: Tensor,
        **_: object,
    ) -> tuple[Tensor, None]:
        """Attend from (B, T, H) to itself and to (B, S, H); the mask is (B, 1, T, T + S)."""

        def heads(projected: Tensor) -> Tensor:  # (B, T, heads, D)
            return projected.unflatten(-1, (-1, self.head_dim))

        query = self.q_norm(heads(self.q_proj(hidden_states))).transpose(1, 2)
        own_key = self.k_norm(heads(self.k_proj(hidden_states))).transpose(1, 2)
        query, own_key = qwen3.apply_rotary_pos_emb(query, own_key, *position_embeddings)
        # Tokens of the source get no rotary positions: their order is in their states.
        source_key = self.k_norm(heads(self.k_proj(encoder_hidden_states))).transpose(1, 2)
        all_states = torch.cat([hidden_states, encoder_hidden_states], dim=1)
        attended = F.scaled_dot_product_attention(
            query,
            torch.cat([own_key, source_key], dim=2),
            heads(self.v_proj(all_states)).transpose(1, 2),
            attn_mask=attention_mask,
            dropout_p=self.attention_dropout if self.training else 0.0,
            scale=self.scaling,
            enable_gqa=True,
        )
        return self.o_proj(attended.transpose(1, 2).flatten(2)), None


class _Decoder(nn.Module):
    """Stock Qwen3 layers with merged attention."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        layers = [
            qwen3.Qwen3DecoderLayer(config, index) for index in range(config.num_hidden_layers)
        ]
        # Stock layers, whose attention also sees the encoder's states.
        for index, layer in enumerate(layers):
            layer.self_attn = _MergedAttention(config, index)
        self.layers = nn.ModuleList(layers)
        self.norm = qwen3.Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = qwen3.Qwen3RotaryEmbedding(config=config)

    def forward(self, ids: Tensor, source: Tensor, source_mask: Tensor) -> Tensor:
        """Decode (B, T) ids with encoder states (B, S, H) and their mask (B, S) to (B, T, H)."""
        states = self.embed_tokens(ids)
        texts, length = ids.shape
        position_ids = torch.arange(length, device=ids.device).unsqueeze(0)
        rotary = self.rotary_emb(states, position_ids)
        # A token sees itself, earlier tokens (B, 1, T, T) and the whole source (B, 1, T, S).
        sees_earlier = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
        sees_earlier = sees_earlier.expand(texts, 1, length, length)
        sees_source = (source_mask != 0)[:, None, None, :].expand(-1, 1, length, -1)
        mask = torch.cat([sees_earlier, sees_source], dim=-1)
        for layer in self.layers:
            states = layer(
                states,
                attention_mask=mask,
                position_embeddings=rotary,
                encoder_hidden_states=source,
            )
        return self.norm(states)


class _Stacks(nn.Module):
    """The shared embedding, the encoder and the decoder."""

    def __init__(self, config: Qwen3Seq2SeqConfig) -> None:
        super().__init__()
        self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder = Qwen3Model(config.stack_config(causal=False))
        self.decoder = _Decoder(config.stack_config(causal=True))


def shift_right(labels: Tensor, *, start: int, pad: int) -> Tensor:
    """Return decoder inputs for ``labels`` (B, T): shifted right after ``start``, without -100."""
    shifted = labels.new_full(labels.shape, start)
    shifted[:, 1:] = labels[:, :-1]
    return shifted.masked_fill(shifted == IGNORED, pad)


class Qwen3ForSeq2SeqLM(PreTrainedModel):
    """Qwen3 encoder-decoder with a tied, shared embedding."""

    config_class = Qwen3Seq2SeqConfig
    config: Qwen3Seq2SeqConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = False
    _supports_sdpa = True
    _tied_weights_keys = dict.fromkeys(EMBEDDINGS[1:], EMBEDDINGS[0])

    def __init__(self, config: Qwen3Seq2SeqConfig) -> None:
        super().__init__(config)
        self.model = _Stacks(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the shared embedding."""
        return self.model.shared

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the shared embedding; call `tie_weights` afterwards."""
        self.model.shared = value

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return encoder states (B, S, H) of (B, S) ids."""
        return self.model.encoder(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False
        ).last_hidden_state

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        **_: object,
    ) -> Seq2SeqLMOutput:
        """Compute logits (B, T, V) from (B, S) ids and (B, T) labels or decoder ids.

        The loss is the mean cross entropy over labels that are not -100.

        Raises:
            ValueError: neither labels nor decoder ids, or no start or padding token.
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("expected labels or decoder_input_ids; got neither")
            decoder_input_ids = self._decoder_inputs(labels)
        source = self.encode(input_ids, attention_mask)
        states = self.model.decoder(decoder_input_ids, source, attention_mask)
        logits = self.lm_head(states)
        loss = None
        if labels is not None:
            predictions = logits.flatten(0, 1).float()  # (B * T, V)
            loss = F.cross_entropy(predictions, labels.flatten(), ignore_index=IGNORED)
        return Seq2SeqLMOutput(loss=loss, logits=logits, encoder_last_hidden_state=source)

    def _decoder_inputs(self, labels: Tensor) -> Tensor:
        """Return the labels (B, T), each one token later, after the token that starts a text."""
        start = self.config.decoder_start_token_id
        pad = self.config.pad_token_id
        if start is None or pad is None:
            raise ValueError("config lacks decoder_start_token_id or pad_token_id")
        return shift_right(labels, start=start, pad=pad)
