"""Device, library versions and tokenizer of a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.gate.tokenizer import check_loaded, check_tokenizer
from qwen3nb.models.types import SpecError, refusing

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

_TEXTS_AT_ONCE = 1024  # tokenised to be counted


def pick_device(device: str) -> str:
    """Return ``device``; for ``auto``, the GPU if there is one.

    Raises:
        ValueError: a device that this machine does not have.
    """
    import torch

    if device == "auto" and torch.cuda.is_available():
        return "cuda"
    if device == "auto":
        return "cpu"
    try:
        torch.empty(0, device=device)  # raises if there is no such device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device {device!r} is not usable here ({reason}); choose auto, cpu or cuda"
        ) from None
    return device


def library_versions() -> dict[str, str]:
    """Return major versions of the libraries that compute vectors."""
    import torch
    import transformers

    return {
        "torch": torch.__version__.split(".")[0],
        "transformers": transformers.__version__.split(".")[0],
    }


def load_tokenizer(folder: ModelFolder, config: PretrainedConfig) -> PreTrainedTokenizerBase:
    """Load the tokenizer in ``folder`` for the model with ``config``, without running its code.

    Raises:
        SpecError: no tokenizer, one that cannot be loaded, or one that does not fit the model.
    """
    from transformers import AutoTokenizer

    check_tokenizer(folder)
    with refusing(folder, "the tokenizer cannot be loaded"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, config=config, trust_remote_code=False
        )
    check_loaded(tokenizer, rows=config.get_text_config().vocab_size, folder=folder)
    return tokenizer


def check_room(tokenizer: Any, max_length: int | None, name: str) -> None:
    """Refuse a maximum length that leaves no room besides the tokens added to every text.

    ``name`` is the name of the length in errors; tokenizers of other libraries are not checked.
    """
    count_added_tokens = getattr(tokenizer, "num_special_tokens_to_add", None)
    if count_added_tokens is None or max_length is None:
        return
    added_tokens = count_added_tokens(False)  # to a single text
    if max_length <= added_tokens:
        raise SpecError(
            f"{name} is {max_length:,}, which leaves no room for a text: the tokenizer adds "
            f"{added_tokens} tokens to each; expected at least {added_tokens + 1}"
        )


def special_tokens(tokenizer: Any) -> re.Pattern[str] | None:
    """Return a pattern of the special tokens of a tokenizer; None if it has none."""
    # By id; the library tokenizers has a method where transformers has an attribute.
    added_tokens = getattr(tokenizer, "added_tokens_decoder", None)
    if added_tokens is None and hasattr(tokenizer, "get_added_tokens_decoder"):
        added_tokens = tokenizer.get_added_tokens_decoder()
    texts = set()
    for token in (added_tokens or {}).values():
        if token.special and token.content:
            texts.add(token.content)
    if not texts:
        return None
    # A pattern takes the first alternative that fits: "<eos2>" has to come before "<eos".
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))


def token_counts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[int]:
    """Return how many tokens each text has, however long it is, with those that are added."""
    counts: list[int] = []
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        batch = list(texts[start : start + _TEXTS_AT_ONCE])
        encoded = tokenizer(
            batch, truncation=False, padding=False, return_attention_mask=False, verbose=False
        )
        counts += [len(row) for row in encoded["input_ids"]]
    return counts


def token_rows(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, max_length: int | None
) -> tuple[list[list[int]], int]:
    """Return the token ids of each text, at most ``max_length``, and the number of truncated texts.

    Special tokens inside a text are tokenised as such, as in sentence-transformers.
    """
    if not texts:
        return [], 0
    options = {"truncation": True, "max_length": max_length, "return_attention_mask": False}
    encoded = tokenizer(list(texts), **options)
    truncated = sum(bool(encoding.overflowing) for encoding in encoded.encodings or ())
    return [list(row) for row in encoded["input_ids"]], truncated
