"""Train the tiny base model of the demo's adapters.

An adapter brings out what its base model can do. A model that was only trained to continue
docstrings for a minute cannot rank: yes and no stay at chance (a loss of 0.69), however
long an adapter is trained. Therefore all weights of this base model are trained a little
on both tasks, on functions that are not measured; the adapters add to that.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qwen3nb.demo.linear_training import faster_linear_layers
from qwen3nb.demo.objectives import (
    TEMPLATE,
    Batch,
    batches,
    embedding_loss,
    ranking_loss,
    words,
)
from qwen3nb.demo.train_ul2 import training_texts
from qwen3nb.models.modeling.tiny_tokenizer import END, write_tokenizer
from qwen3nb.models.rerankers.prompt_template import INSTRUCTION
from qwen3nb.utils.atomic_files import write_json
from qwen3nb.utils.progress import tqdm

__all__ = ["BASE", "BaseSettings", "train_base"]


@dataclass(frozen=True)
class BaseSettings:
    """Size and training of the base model.

    Attributes:
        steps: optimisation steps.
        batch: queries per step.
        learning_rate: peak of the learning rate; linear warm-up, then cosine.
        temperature: temperature of the contrastive loss.
        window: maximum tokens of a pair.
        length: maximum tokens of an embedded text.
        vocabulary: size of the vocabulary without special tokens.
        hidden: hidden size.
        layers: number of layers.
        seed: seed of everything random.
    """

    steps: int = 500
    batch: int = 16
    learning_rate: float = 3e-3
    temperature: float = 0.05
    window: int = 192
    length: int = 64
    vocabulary: int = 4000
    hidden: int = 64
    layers: int = 2
    seed: int = 0


BASE = BaseSettings()


def train_base(folder: Path, settings: BaseSettings = BASE) -> Path:
    """Train the base model; its tokenizer covers the template and words of the reranker."""
    prompt = TEMPLATE.prefix + TEMPLATE.head(INSTRUCTION, "") + TEMPLATE.suffix
    texts, _ = training_texts()
    write_tokenizer([*texts, *[prompt, "yes", "no"] * 50], folder, vocabulary=settings.vocabulary)
    training = batches(
        folder, steps=settings.steps, size=settings.batch, window=settings.window,
        length=settings.length, seed=settings.seed,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model, tokenizer = _fresh(folder, settings)
    with faster_linear_layers():
        losses = _train(model, words(tokenizer), training, settings)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
        model.save_pretrained(folder)
    write_json(
        folder / "training.json",
        {
            "objective": "yes or no about a pair, and InfoNCE, added",
            "data": "PyDocs without the functions of the smoke tier's sample",
            "settings": asdict(settings),
            "last losses": losses,
            "hardware": "CPU",
            "toy": True,
        },
        indent=2,
    )
    return folder


def _fresh(folder: Path, settings: BaseSettings) -> tuple[Any, Any]:
    """Return the model with random weights, and its tokenizer."""
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows, end = len(tokenizer), tokenizer.convert_tokens_to_ids(END)
    config = Qwen3Config(
        vocab_size=rows + -rows % 64,
        hidden_size=settings.hidden,
        intermediate_size=3 * settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        initializer_range=settings.hidden**-0.5,
        pad_token_id=end,
        eos_token_id=end,
    )
    return Qwen3ForCausalLM(config), tokenizer


def _train(
    model: Any, ids: list[int], training: Sequence[Batch], settings: BaseSettings
) -> dict[str, float]:
    """Train all weights; return the mean losses of the last tenth of the steps."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: warm_cosine(step, len(training))
    )
    seen: list[tuple[float, float]] = []
    bar = tqdm(training, desc="training: base model of the adapters", unit="step")
    for batch in bar:
        rows = model.get_output_embeddings().weight[ids]
        ranked = ranking_loss(model.model, rows, batch)
        embedded = embedding_loss(model.model, batch, temperature=settings.temperature)
        optimiser.zero_grad()
        (ranked + embedded).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        seen.append((float(ranked.detach()), float(embedded.detach())))
        last = np.mean(seen[-max(1, len(training) // 10) :], axis=0).tolist()
        bar.set_postfix(yes_no=f"{last[0]:.2f}", embedding=f"{last[1]:.2f}", refresh=False)
    return dict(zip(("ranking", "embedding"), last, strict=True))


def warm_cosine(step: int, steps: int) -> float:
    """Share of the peak learning rate: linear over a tenth of the steps, then cosine."""
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + float(np.cos(np.pi * (step - warm) / max(1, steps - warm))))
