"""Load a language model as a yes/no reranker.

Only the rows of ``yes`` and ``no`` of the output matrix are kept (it has one row per token,
151,936 for Qwen3). An adapter is merged in float32, before the weights are converted to the
dtype they run in.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.kinds.resolve import adapter_source, fetch_model, find_source
from qwen3nb.models.kinds.source import Source, fingerprint
from qwen3nb.models.rerankers.prompt_template import INSTRUCTION
from qwen3nb.models.rerankers.yes_no import MAX_LENGTH, Reranker, YesNoModel
from qwen3nb.models.types import SpecError, torch_dtype
from qwen3nb.utils.imports import load_library

_SCORED = {"true_token_id": "yes", "false_token_id": "no"}
_MARKS = ("<|im_start|>", "<|im_end|>")


def load_reranker(
    model: str | Path,
    *,
    adapter: str | Path | None = None,
    template: str | None = None,
    instruction: str | None = None,
    max_length: int = MAX_LENGTH,
    device: str = "auto",
    dtype: str = "float32",
    budget: int | None = None,
) -> Reranker:
    """Load the reranker that ``model`` names.

    Args:
        model: the folder or hub id of a causal language model such as a Qwen3-Reranker, or
            the folder of a LoRA adapter whose base model is available.
        adapter: folder of a LoRA adapter for ``model``.
        template: ``qwen3-reranker`` (from the model card) or ``double-newline``; None for
            the one used in training: the second for adapters, else the first.
        instruction: what makes a document relevant; None for `INSTRUCTION` (web search).
        max_length: tokens of a pair, template included; longer documents are truncated.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        dtype: ``float32``, or ``bfloat16`` or ``float16`` for speed at the cost of precision.
        budget: tokens per forward pass; changes the speed, not the scores.

    Raises:
        SpecError: no such model, or not a causal language model.
        RerankError: a tokenizer without ``yes`` and ``no``, or an invalid maximum length.
        ValueError: an unknown template, dtype or device.
    """
    if adapter is not None:
        source = adapter_source(Path(adapter), base=model)
    else:
        source = find_source(str(model))
        source = fetch_model(source) if source.on_hub else source
    load_library("transformers.modeling_utils")
    source.kind.check_causal(source)
    source = replace(source, content=fingerprint(source))
    loaded = load_yes_no(source, device=device, dtype=dtype)
    return Reranker(
        source,
        loaded,
        template=template or ("double-newline" if source.kind.adapts else "qwen3-reranker"),
        instruction=INSTRUCTION if instruction is None else instruction,
        max_length=max_length,
        budget=budget,
    )


def load_yes_no(
    source: Source, *, device: str = "auto", dtype: str = "float32", linears: str = "auto"
) -> YesNoModel:
    """Load a causal language model, which has been checked, split into backbone and head.

    ``linears`` is ``auto`` for whichever linear layers are faster, or ``torch``.
    """
    from qwen3nb.models.inference.fused_layers import fuse_layers
    from qwen3nb.models.inference.prefix_cache import check_causal
    from qwen3nb.models.modeling.runtime import load_tokenizer, pick_device

    where, folder = pick_device(device), source.model_folder
    model = source.kind.causal(source, torch_dtype(dtype)).to(where).eval()
    check_causal(model.config)
    tokenizer = load_tokenizer(folder, model.config)
    _check_tokens(tokenizer, model.config, folder)
    count = sum(parameter.numel() for parameter in model.parameters())  # tied ones count once
    head = model.get_output_embeddings().weight
    loaded = YesNoModel(model.model, head, tokenizer, dtype, count)
    if linears == "auto":
        fuse_layers(loaded.backbone)
    return loaded


def _check_tokens(tokenizer: Any, config: Any, folder: ModelFolder) -> None:
    """Check that a Qwen model has the marks of the template as tokens, and what its score is.

    As plain text the marks would be another prompt than in its training; other families have none.

    Raises:
        SpecError: no token for a mark, or a cross-encoder that scores others than yes and no.
    """
    for mark in _MARKS if config.model_type.startswith("qwen") else ():
        if len(tokenizer(mark, add_special_tokens=False)["input_ids"]) != 1:
            raise SpecError(
                f"{folder}: the tokenizer has no token {mark!r}, which the prompt of a Qwen "
                "reranker needs; copy the tokenizer again"
            )
    for module in folder.modules:
        for key, word in _SCORED.items():
            ids = tokenizer(word, add_special_tokens=False)["input_ids"]
            if module.name == "LogitScore" and [module.fields.get(key)] != ids:
                raise SpecError(
                    f"{module.file}: {key} is {module.fields.get(key)!r:.40}; expected {ids}, "
                    f"the token {word!r} of a yes/no reranker"
                )
