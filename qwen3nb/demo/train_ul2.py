"""Train the demo's encoder-decoder and a decoder on docstrings.

The texts are PyDocs without the functions in the sample of the smoke tier, with summaries
and descriptions as separate texts: the models see neither the measured texts nor which
query belongs to which document. The Trainer of transformers writes the checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM, Trainer, set_seed

from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.demo.linear_training import faster_linear_layers
from qwen3nb.demo.trainer import (
    checkpoint_callbacks,
    copy_files,
    quietly,
    silence,
    training_arguments,
)
from qwen3nb.demo.ul2_denoising import DENOISERS, Example, denoise
from qwen3nb.models.modeling.qwen3_seq2seq import IGNORED, Qwen3ForSeq2SeqLM, Qwen3Seq2SeqConfig
from qwen3nb.models.modeling.tiny_tokenizer import END, SENTINELS, write_tokenizer
from qwen3nb.utils.atomic_files import write_json

__all__ = [
    "DECODER",
    "UL2",
    "Ul2Settings",
    "token_id",
    "train_decoder",
    "train_seq2seq",
    "training_texts",
]


@dataclass(frozen=True)
class Ul2Settings:
    """Size and training of the models.

    Attributes:
        steps: optimisation steps.
        save_every: steps between checkpoints; step 0 is saved separately.
        batch: texts per step.
        length: maximum tokens of a training text.
        learning_rate: peak of the learning rate; linear warm-up, then cosine.
        vocabulary: size of the vocabulary without special tokens and sentinels.
        hidden: hidden size.
        layers: layers per stack.
        spread: standard deviation of the initial weights; about 1/sqrt(hidden), so that
            the rows of the tied embedding start with length 1.
        seed: seed of everything random.
    """

    steps: int = 1200
    save_every: int = 400
    batch: int = 16
    length: int = 64
    learning_rate: float = 3e-3
    vocabulary: int = 4000
    hidden: int = 128
    layers: int = 2
    spread: float = 0.09
    seed: int = 0


UL2 = Ul2Settings()
DECODER = Ul2Settings(steps=600, save_every=300)


def training_texts() -> tuple[list[str], list[str]]:
    """Return the texts for training and those for the evaluation loss."""
    from qwen3nb.datasets.pydocs.mteb_tasks import pydocs_sample

    measured = {entry.name for entry in pydocs_sample().entries}
    # A text that also occurs in the sample under another name is measured as well.
    seen = {text for entry in pydocs_sample().entries for text in (entry.summary, entry.text)}
    texts = [
        text
        for entry in load_pydocs().entries
        if entry.name not in measured
        for text in (entry.summary, entry.text)
        if text not in seen
    ]
    return [t for i, t in enumerate(texts) if i % 20], texts[::20]


def seq2seq_config(tokenizer: Tokenizer, settings: Ul2Settings) -> Qwen3Seq2SeqConfig:
    """The configuration; the embedding is padded to a multiple of 64 rows."""
    end = token_id(tokenizer, END)
    return Qwen3Seq2SeqConfig(
        **_sizes(tokenizer, settings),
        _head_dim=32,
        max_position_embeddings=512,
        rope_theta=10000.0,
        num_sentinel_tokens=len(SENTINELS),
        sentinel_token_start_id=token_id(tokenizer, SENTINELS[0]),
        decoder_start_token_id=end,
        pad_token_id=end,
        eos_token_id=end,
    )


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a token that the tokenizer must have."""
    number = tokenizer.token_to_id(token)
    if number is None:
        raise ValueError(f"the tokenizer has no token {token!r}")
    return number


def _sizes(tokenizer: Tokenizer, settings: Ul2Settings) -> dict[str, Any]:
    rows = tokenizer.get_vocab_size(with_added_tokens=True)
    return {
        "vocab_size": rows + -rows % 64,
        "hidden_size": settings.hidden,
        "intermediate_size": settings.hidden * 3,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": settings.spread,
    }


def train_seq2seq(folder: Path, settings: Ul2Settings = UL2) -> Path:
    """Train the encoder-decoder; write ``init`` and ``checkpoint-N`` to ``folder``."""
    train, held_out = training_texts()
    tokenizer = write_tokenizer(train, folder / "tokenizer", vocabulary=settings.vocabulary)
    set_seed(settings.seed)
    model = Qwen3ForSeq2SeqLM(seq2seq_config(tokenizer, settings))
    with quietly():
        model.save_pretrained(folder / "init")
    copy_files(folder / "tokenizer", folder / "init")
    examples = [
        _denoised(texts, tokenizer, count=count, settings=settings, seed=settings.seed + offset)
        for offset, (texts, count) in enumerate(
            [(train, settings.steps * settings.batch), (held_out, 4 * settings.batch)]
        )
    ]
    _run_trainer(model, folder, tokenizer, train=examples[0], held_out=examples[1], name="UL2",
                 settings=settings, checkpoints=True)  # fmt: skip
    write_json(
        folder / "training.json",
        {
            "objective": "UL2 denoising",
            "denoisers": [vars(denoiser) for denoiser in DENOISERS],
            "data": "PyDocs without the functions of the smoke tier's sample",
            "texts": len(train),
            "tokens_seen": sum(len(e.source) + len(e.target) for e in examples[0]),
            "settings": vars(settings),
            "hardware": "CPU",
            "language": ["en"],
            "toy": True,
        },
        indent=2,
    )
    return folder


def train_decoder(folder: Path, settings: Ul2Settings = DECODER) -> Path:
    """Train a tiny Qwen3 language model on the same texts."""
    train, held_out = training_texts()
    tokenizer = write_tokenizer(train, folder, vocabulary=settings.vocabulary)
    end = token_id(tokenizer, END)
    set_seed(settings.seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            **_sizes(tokenizer, settings),
            head_dim=32,
            max_position_embeddings=512,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=True,
            pad_token_id=end,
            eos_token_id=end,
            use_cache=False,
        )
    )
    ids = [_ids(tokenizer, texts, settings.length - 1) for texts in (train, held_out)]
    generator = np.random.default_rng(settings.seed)
    picks = generator.integers(0, len(ids[0]), size=settings.steps * settings.batch)
    rows = [Example([*ids[0][pick], end], [*ids[0][pick], end]) for pick in picks]
    check = [Example([*row, end], [*row, end]) for row in ids[1][: 4 * settings.batch]]
    _run_trainer(model, folder, tokenizer, train=rows, held_out=check, name="causal LM",
                 settings=settings, checkpoints=False)  # fmt: skip
    with quietly():
        model.save_pretrained(folder)
    return folder


def _ids(tokenizer: Tokenizer, texts: Sequence[str], length: int) -> list[list[int]]:
    return [
        encoding.ids[:length]
        for encoding in tokenizer.encode_batch(list(texts))
        if len(encoding.ids) >= 4
    ]


def _denoised(
    texts: Sequence[str], tokenizer: Tokenizer, *, count: int, settings: Ul2Settings, seed: int
) -> list[Example]:
    generator = np.random.default_rng(seed)
    ids = _ids(tokenizer, texts, settings.length)
    modes = {each.mode: tokenizer.encode(f"{each.mode} ").ids for each in DENOISERS}
    sentinels = [token_id(tokenizer, name) for name in SENTINELS]
    end = token_id(tokenizer, END)
    return [
        denoise(ids[pick], modes=modes, sentinels=sentinels, end=end, generator=generator)
        for pick in generator.integers(0, len(ids), size=count)
    ]


def _run_trainer(
    model: Any,
    folder: Path,
    tokenizer: Tokenizer,
    *,
    train: Sequence[Example],
    held_out: Sequence[Example],
    name: str,
    settings: Ul2Settings,
    checkpoints: bool,
) -> None:
    end = token_id(tokenizer, END)
    trainer = Trainer(
        model=model,
        args=training_arguments(
            folder, steps=settings.steps, save_every=settings.save_every, batch=settings.batch,
            learning_rate=settings.learning_rate, seed=settings.seed, checkpoints=checkpoints,
        ),
        train_dataset=list(train),
        eval_dataset=list(held_out),
        data_collator=lambda examples: _collate(examples, pad=end),
        callbacks=checkpoint_callbacks(name, folder / "tokenizer"),
    )  # fmt: skip
    silence(trainer)
    with quietly(), faster_linear_layers():
        trainer.train()


def _collate(examples: Sequence[Example], *, pad: int) -> dict[str, torch.Tensor]:
    """Collate right-padded (B, T) source ids, mask, and labels with -100 on padding."""

    def padded(rows: Sequence[Sequence[int]], fill: int) -> torch.Tensor:
        width = max(map(len, rows))
        return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])

    sources = [example.source for example in examples]
    return {
        "input_ids": padded(sources, pad),
        "attention_mask": padded([[1] * len(row) for row in sources], 0),
        "labels": padded([example.target for example in examples], IGNORED),
    }
