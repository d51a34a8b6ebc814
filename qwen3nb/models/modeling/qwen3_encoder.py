"""The bidirectional Qwen3 encoder: stock layers, stock weight names, pooled output.

`Qwen3EncoderModel` is `transformers.Qwen3Model` with ``is_causal: false`` in its
configuration, which makes transformers build the bidirectional mask itself, plus a
``pooler_output``. The weight names are the same, so a directory saved by one of the two classes
loads in the other, and in ``AutoModel``.

Shapes: B texts, T tokens, H hidden size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, Qwen3Model
from transformers.utils import ModelOutput

from qwen3nb.models.batching import batches_by_tokens
from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig
from qwen3nb.models.modeling.pooling import POOLINGS, pool
from qwen3nb.models.types import SpecError
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.progress import tqdm


@dataclass
class Qwen3EncoderOutput(ModelOutput):
    """The output of the encoder."""

    last_hidden_state: Tensor | None = None  # (B, T, H)
    pooler_output: Tensor | None = None  # (B, H) float32, pooled and optionally normalised
    # (B, T, H) after the embedding and after each layer, on request
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None  # (B, heads, T, T) per layer, on request


class Qwen3EncoderPooler(torch.nn.Module):
    """Pools hidden states (B, T, H) under a mask (B, T) to vectors (B, H), see `pool`.

    It follows its configuration; ``pooling_mode`` may also be set here.

    Raises:
        ValueError: an unknown pooling mode.
    """

    def __init__(self, config: Qwen3EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.pooling_mode = config.pooling_mode

    @property
    def pooling_mode(self) -> str:
        """One of `POOLINGS`."""
        return self.config.pooling_mode

    @pooling_mode.setter
    def pooling_mode(self, mode: str) -> None:
        self.config.pooling_mode = check_choice("pooling_mode", mode, POOLINGS)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the vectors (B, H), float32, normalised if configured."""
        config = self.config
        return pool(
            hidden_states,
            attention_mask,
            pooling=config.pooling_mode,
            normalize=config.normalize,
        )


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
        pooler = Qwen3EncoderPooler(config)
        super().__init__(config)
        self.pooler = pooler

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

        ``attention_mask`` (B, T) is 1 on real tokens; without a mask, all tokens are real.
        ``output_hidden_states`` and ``output_attentions`` work as in any transformers
        model; ``return_dict=False`` gives the tuple of what is not None. Packed texts
        (`qwen3nb.models.inference.packing`) have no ``pooler_output``: they are pooled one by one.
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
        pooled = None
        is_packed = kwargs.get("packing") is not None
        if not is_packed:
            if attention_mask is None:
                attention_mask = torch.ones(
                    states.shape[:2], dtype=torch.long, device=states.device
                )
            pooled = self.pooler(states, attention_mask)
        result = Qwen3EncoderOutput(
            last_hidden_state=states,
            pooler_output=pooled,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
        if return_dict is None:
            return_dict = self.config.return_dict
        if return_dict:
            return result
        return result.to_tuple()

    @torch.inference_mode()
    def encode(
        self,
        texts: str | Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int = 32,
        max_length: int = 512,
        show_progress: bool = False,
        device: str | torch.device | None = None,
    ) -> Tensor:
        """Return vectors (N, H), float32 on the CPU, in the order of ``texts``; N = 1 for a string.

        The model is switched to evaluation mode. Texts of similar length share a batch, padded on
        the right.

        Args:
            texts: a text or a list of them.
            tokenizer: any tokenizer for the model's vocabulary that returns ``input_ids`` and
                ``attention_mask``, such as the model's ``AutoTokenizer``.
            batch_size: texts per batch.
            max_length: tokens after which a text is truncated; tokens that the tokenizer
                appends are kept.
            show_progress: whether to show a progress bar.
            device: device to run on; None for the model's current device.

        Raises:
            ValueError: a text without any token.
        """
        if isinstance(texts, str):
            texts = [texts]
        self.eval()
        if device is not None:
            self.to(device)
        if not texts:
            return torch.empty(0, self.config.hidden_size)
        options = {"truncation": True, "max_length": max_length, "padding": False}
        encoded = tokenizer(list(texts), **options)
        rows = []
        for ids, mask in zip(encoded["input_ids"], encoded["attention_mask"], strict=True):
            rows.append([token for token, is_real in zip(ids, mask, strict=True) if is_real])
        empty = [index for index, row in enumerate(rows) if not row]
        if empty:
            raise ValueError(f"texts {empty[:5]} have no token; drop empty texts before encoding")
        vectors = torch.empty(len(rows), self.config.hidden_size)
        lengths = [len(row) for row in rows]
        with tqdm(total=len(rows), unit="text", disable=not show_progress) as bar:
            for batch in batches_by_tokens(lengths, size=batch_size):
                ids, mask = pad_rows([rows[index] for index in batch], device=self.device)
                vectors[batch] = self(input_ids=ids, attention_mask=mask).pooler_output.cpu()
                bar.update(len(batch))
        return vectors


def pad_rows(
    rows: Sequence[Sequence[int]], *, side: str = "right", device: Any = None
) -> tuple[Tensor, Tensor]:
    """Return ids and mask (B, T) of B rows of token ids, padded with 0 on ``side``."""
    width = max(map(len, rows))
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        start = 0
        if side == "left":
            start = width - len(row)
        columns = slice(start, start + len(row))
        ids[index, columns] = torch.as_tensor(row)
        mask[index, columns] = 1
    return ids.to(device), mask.to(device)


def states_of(model: torch.nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what runs a model: ids and mask (B, T) to states (B, T, H)."""
    device = next(model.parameters()).device
    return lambda ids, mask: (
        model(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state
    )


def check_direction(model: torch.nn.Module, folder: object) -> None:
    """Refuse a model that runs causally although it should be bidirectional, by its ``folder``."""
    vocabulary = model.config.get_text_config().vocab_size  # type: ignore[operator, union-attr]
    if not causal_leak(states_of(model), vocabulary) > 0:
        raise SpecError(
            f"{folder}: this transformers release runs the model causally although it should be "
            "bidirectional, so its vectors would be wrong. Install transformers 5.2 or newer; not "
            "every architecture can be made bidirectional"
        )


@torch.inference_mode()
def causal_leak(
    run: Callable[[Tensor, Tensor], Tensor], vocabulary: int, *, of: int = -1, on: int = 0
) -> float:
    """Return how much the state at position ``on`` changes when only the token at ``of`` changes.

    Of the first by the last, zero for a model that runs causally; clearly above zero for a
    bidirectional one. transformers before 5.2 silently runs ``is_causal: false`` models causally,
    so `load_encoder` and the extraction measure this instead of trusting the configuration.
    """
    ids = torch.arange(1, 7).remainder(vocabulary).unsqueeze(0)
    changed_ids = ids.clone()
    changed_ids[0, of] = (changed_ids[0, of] + vocabulary // 2) % vocabulary
    mask = torch.ones_like(ids)
    before = run(ids, mask)[0, on].float()
    after = run(changed_ids, mask)[0, on].float()
    return float((before - after).abs().max())
