"""The bidirectional Qwen3 encoder: stock layers, stock weight names, pooled output.

`Qwen3EncoderModel` is `transformers.Qwen3Model` with ``is_causal: false`` in its
configuration, which makes transformers build the bidirectional mask itself, plus
a ``pooler_output``. A directory it saves loads in plain ``AutoModel``, and the
other way round: the weight names are the same.

Shapes: B texts, T tokens, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3Model
from transformers.utils import ModelOutput

from qwen3nb.choices import one_of
from qwen3nb.models.pooling import POOLINGS, pool

__all__ = [
    "Qwen3EncoderConfig",
    "Qwen3EncoderModel",
    "Qwen3EncoderOutput",
    "causal_leak",
    "encoder_config",
]


class Qwen3EncoderConfig(Qwen3Config):
    """A stock ``qwen3`` configuration that is bidirectional and knows its pooling.

    Args:
        pooling_mode: one of `POOLINGS`; ``mean`` by default.
        normalize: whether ``pooler_output`` has length 1.
    """

    pooling_mode: str = "mean"
    normalize: bool = True
    is_causal: bool = False
    # What text-embeddings-inference reads for the same thing.
    use_bidirectional_attention: bool = True


@dataclass
class Qwen3EncoderOutput(ModelOutput):
    """What the encoder returns.

    Attributes:
        last_hidden_state: (B, T, H).
        pooler_output: (B, H) float32, pooled and, if configured so, normalised.
        hidden_states: T-long states after the embedding and each layer, when asked for.
        attentions: (B, heads, T, T) per layer, when asked for.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class Qwen3EncoderModel(Qwen3Model):
    """`Qwen3Model`, bidirectional, with a ``pooler_output``."""

    config_class = Qwen3EncoderConfig
    config: Qwen3EncoderConfig

    def __init__(self, config: Qwen3EncoderConfig) -> None:
        if getattr(config, "is_causal", True):
            raise ValueError(
                "Qwen3EncoderModel needs a configuration with is_causal: false; "
                "with is_causal: true this is an ordinary Qwen3Model"
            )
        one_of("pooling_mode", config.pooling_mode, POOLINGS)
        super().__init__(config)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Qwen3EncoderOutput | tuple[Tensor, ...]:
        """Encode (B, T) token ids, or (B, T, H) ``inputs_embeds``.

        ``attention_mask`` (B, T) is 1 on real tokens; without one, all are real.
        ``output_hidden_states`` and ``output_attentions`` work as in any transformers
        model; ``return_dict=False`` gives the tuple of what is not None.
        """
        outputs = super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            use_cache=False,
            return_dict=True,
            **kwargs,
        )
        states = outputs.last_hidden_state
        mask = attention_mask
        if mask is None:
            mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
        result = Qwen3EncoderOutput(
            last_hidden_state=states,
            pooler_output=pool(
                states, mask, how=self.config.pooling_mode, normalize=self.config.normalize
            ),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
        if return_dict is None:
            return_dict = self.config.return_dict
        return result if return_dict else result.to_tuple()


def encoder_config(
    fields: dict[str, Any], *, pooling: str = "mean", normalize: bool = True
) -> Qwen3EncoderConfig:
    """The encoder's configuration from an encoder-decoder's, or from a Qwen3's.

    Reads the three spellings in use: ``encoder_hidden_size``, ``hidden_size``, and
    for the head size ``_head_dim``, ``head_dim``, else hidden size / heads. The rope
    theta is copied, never defaulted: a wrong one changes every vector in silence.

    Args:
        fields: the checkpoint's ``config.json``.
        pooling: stored as ``pooling_mode``.
        normalize: stored as ``normalize``.

    Raises:
        ValueError: a field that is needed is missing, or a token id beyond the
            embedding; the message names it.
    """

    def field(name: str) -> Any:
        for key in (f"encoder_{name}", name):
            if fields.get(key) is not None:
                return fields[key]
        raise ValueError(f"config.json lacks {name!r} (or 'encoder_{name}')")

    hidden, heads = field("hidden_size"), field("num_attention_heads")
    head_dim = next(
        (fields[k] for k in ("encoder_head_dim", "_head_dim", "head_dim") if fields.get(k)),
        hidden // heads,
    )
    rope = fields.get("rope_parameters") or {}
    theta = fields.get("encoder_rope_theta") or fields.get("rope_theta") or rope.get("rope_theta")
    if theta is None:
        raise ValueError("config.json lacks 'rope_theta' (or rope_parameters.rope_theta)")
    rows = field("vocab_size")
    for name in ("pad_token_id", "eos_token_id"):
        token = fields.get(name)
        if isinstance(token, int) and not 0 <= token < rows:
            raise ValueError(f"{name} is {token} but the embedding has {rows} rows")
    return Qwen3EncoderConfig(
        vocab_size=rows,
        hidden_size=hidden,
        intermediate_size=field("intermediate_size"),
        num_hidden_layers=field("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=field("num_key_value_heads"),
        head_dim=head_dim,
        max_position_embeddings=field("max_position_embeddings"),
        rms_norm_eps=field("rms_norm_eps"),
        initializer_range=fields.get("initializer_range", 0.02),
        rope_parameters={"rope_type": "default", "rope_theta": float(theta)},
        rope_theta=float(theta),  # the older spelling, which other engines read
        hidden_act="silu",
        attention_bias=False,
        attention_dropout=0.0,
        use_sliding_window=False,
        tie_word_embeddings=False,
        use_cache=False,
        pad_token_id=fields.get("pad_token_id"),
        eos_token_id=fields.get("eos_token_id"),
        pooling_mode=pooling,
        normalize=normalize,
        is_causal=False,
        use_bidirectional_attention=True,
    )


@torch.inference_mode()
def causal_leak(model: torch.nn.Module, *, vocab_size: int) -> float:
    """How much the first token's state moves when only the last token changes.

    Zero for a model that runs causally; clearly above zero for a bidirectional one.
    transformers before 5.2 runs ``is_causal: false`` models causally without a word,
    so `load_encoder` and the extraction look instead of trusting the configuration.
    """
    device = next(model.parameters()).device
    ids = torch.arange(1, 7, device=device).remainder(vocab_size).unsqueeze(0)
    other = ids.clone()
    other[0, -1] = (other[0, -1] + vocab_size // 2) % vocab_size
    first, second = (
        model(input_ids=each, attention_mask=torch.ones_like(each)).last_hidden_state[0, 0].float()
        for each in (ids, other)
    )
    return float((first - second).abs().max())
