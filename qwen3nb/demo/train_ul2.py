"""Train the demo's encoder-decoder by UL2 denoising, and a decoder, on docstrings.

The texts are PyDocs without the functions in the smoke tier's sample, with summaries and
descriptions as separate texts: the models see neither the test texts nor pairs of query and
document. The Trainer of transformers writes the checkpoints.

UL2 has three denoisers (Tay et al. 2022), marked by a mode token at the front:

    [R]  regular: 15 % of the tokens in spans of about 3
    [X]  extreme: 50 % of the tokens in spans of about 8
    [S]  sequential: everything after a random point

Each masked span is replaced by a sentinel in the source; the target lists the sentinels, each
followed by the masked tokens. Source and target end with the end-of-text token.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import Trainer, set_seed

from qwen3nb.datasets.pydocs.build import Entry, load_pydocs
from qwen3nb.demo.trainer import Schedule, describe, padded, quietly, toy_qwen3, toy_sizes, train
from qwen3nb.models.modeling.qwen3_seq2seq import IGNORED, Qwen3ForSeq2SeqLM, Qwen3Seq2SeqConfig
from qwen3nb.models.modeling.tiny_tokenizer import END, SENTINELS, write_tokenizer

# Denoisers: the mode token, the share of the examples, the share of masked tokens (None for
# everything after a random point), and the mean length of a masked span.
DENOISERS: tuple[dict[str, Any], ...] = (
    {"mode": "[R]", "share": 0.4, "rate": 0.15, "span": 3},
    {"mode": "[X]", "share": 0.3, "rate": 0.50, "span": 8},
    {"mode": "[S]", "share": 0.3, "rate": None, "span": 0},
)


@dataclass(frozen=True)
class Ul2Settings(Schedule):
    """Size and training of the models."""

    steps: int = 360
    save_every: int = 120
    batch: int = 16
    length: int = 64
    vocabulary: int = 4000  # size of the vocabulary without special tokens and sentinels
    hidden: int = 128  # hidden size
    layers: int = 2  # layers per stack
    # standard deviation of the initial weights, about 1/sqrt(hidden): rows of the tied embedding
    # start with length 1
    spread: float = 0.09


Example = tuple[list[int], list[int]]  # token ids of a source and of its target
UL2 = Ul2Settings()
DECODER = Ul2Settings(steps=120, save_every=60)


def unmeasured() -> tuple[list[Entry], set[str]]:
    """Return the entries of PyDocs outside the smoke tier's sample, and the texts of the tier.

    A text of the sample or of AuthorSTS may occur in another entry as well.
    """
    from qwen3nb.datasets.pydocs.mteb_tasks import author_sts, pydocs_sample

    sample = pydocs_sample().entries
    measured = {entry.name for entry in sample}
    texts: set[str] = set()
    for entry in sample:
        texts.update((entry.summary, entry.text))
    for first, second, _ in author_sts():
        texts.update((first, second))
    others = [entry for entry in load_pydocs().entries if entry.name not in measured]
    return others, texts


def training_texts() -> tuple[list[str], list[str]]:
    """Return the texts for training and those for the evaluation loss."""
    entries, texts_of_tier = unmeasured()
    texts = []
    for entry in entries:
        texts += [text for text in (entry.summary, entry.text) if text not in texts_of_tier]
    return [text for index, text in enumerate(texts) if index % 20], texts[::20]


def seq2seq_config(tokenizer: Tokenizer, settings: Ul2Settings) -> Qwen3Seq2SeqConfig:
    """Return the configuration of the encoder-decoder."""
    return Qwen3Seq2SeqConfig(
        **_sizes(tokenizer, settings),
        _head_dim=32,
        rope_theta=10000.0,
        num_sentinel_tokens=len(SENTINELS),
        sentinel_token_start_id=token_id(tokenizer, SENTINELS[0]),
        decoder_start_token_id=token_id(tokenizer, END),
    )


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Return the id of a required token."""
    number = tokenizer.token_to_id(token)
    if number is None:
        raise ValueError(f"the tokenizer has no token {token!r}")
    return number


def _sizes(tokenizer: Tokenizer, settings: Ul2Settings) -> dict[str, Any]:
    rows = tokenizer.get_vocab_size(with_added_tokens=True)
    end = token_id(tokenizer, END)
    return toy_sizes(rows, settings.hidden, settings.layers, settings.spread, end)


def train_seq2seq(folder: Path, settings: Ul2Settings = UL2) -> Path:
    """Train the encoder-decoder; write ``init`` and ``checkpoint-N`` to ``folder``."""
    texts, held_out = training_texts()
    tokenizer = write_tokenizer(texts, folder / "tokenizer", vocabulary=settings.vocabulary)
    set_seed(settings.seed)
    model = Qwen3ForSeq2SeqLM(seq2seq_config(tokenizer, settings))
    with quietly():
        model.save_pretrained(folder / "init")
    shutil.copytree(folder / "tokenizer", folder / "init", dirs_exist_ok=True)
    count = settings.steps * settings.batch
    examples = _denoised(texts, tokenizer, count=count, settings=settings, seed=settings.seed)
    check = _denoised(
        held_out,
        tokenizer,
        count=4 * settings.batch,
        settings=settings,
        seed=settings.seed + 1,
    )
    train(
        Trainer,
        folder,
        settings,
        name="UL2",
        model=model,
        train_dataset=examples,
        eval_dataset=check,
        data_collator=partial(_collate, pad=token_id(tokenizer, END)),
    )
    facts = {
        "objective": "UL2 denoising",
        "denoisers": DENOISERS,
        "data": "PyDocs without the functions of the smoke tier's sample",
        "texts": len(texts),
        "tokens_seen": sum(len(source) + len(target) for source, target in examples),
    }
    describe(folder, settings, facts)
    return folder


def train_decoder(folder: Path, settings: Ul2Settings = DECODER) -> Path:
    """Train a tiny Qwen3 language model on the same texts."""
    texts, held_out = training_texts()
    tokenizer = write_tokenizer(texts, folder, vocabulary=settings.vocabulary)
    end = token_id(tokenizer, END)
    set_seed(settings.seed)
    model = toy_qwen3(_sizes(tokenizer, settings), use_cache=False)
    ids = _ids(tokenizer, texts, settings.length - 1)
    held_out_ids = _ids(tokenizer, held_out, settings.length - 1)
    generator = np.random.default_rng(settings.seed)
    picks = generator.integers(0, len(ids), size=settings.steps * settings.batch)
    rows = [_example(ids[pick], end) for pick in picks]
    check = [_example(row, end) for row in held_out_ids[: 4 * settings.batch]]
    train(
        Trainer,
        folder,
        settings,
        name="causal LM",
        checkpoints=False,
        model=model,
        train_dataset=rows,
        eval_dataset=check,
        data_collator=partial(_collate, pad=end),
    )
    with quietly():
        model.save_pretrained(folder)
    return folder


def _example(row: list[int], end: int) -> Example:
    """Return an example of a language model, whose target is its source."""
    return [*row, end], [*row, end]


def _ids(tokenizer: Tokenizer, texts: Sequence[str], length: int) -> list[list[int]]:
    """Return at most ``length`` token ids of each text with at least four."""
    rows = []
    for encoding in tokenizer.encode_batch(list(texts)):
        if len(encoding.ids) >= 4:
            rows.append(encoding.ids[:length])
    return rows


def _denoised(
    texts: Sequence[str], tokenizer: Tokenizer, *, count: int, settings: Ul2Settings, seed: int
) -> list[Example]:
    generator = np.random.default_rng(seed)
    ids = _ids(tokenizer, texts, settings.length)
    modes = {mode: tokenizer.encode(f"{mode} ").ids for mode in (e["mode"] for e in DENOISERS)}
    sentinels = [token_id(tokenizer, name) for name in SENTINELS]
    end = token_id(tokenizer, END)
    return [
        denoise(ids[pick], modes=modes, sentinels=sentinels, end=end, generator=generator)
        for pick in generator.integers(0, len(ids), size=count)
    ]


def _collate(examples: Sequence[Example], *, pad: int) -> dict[str, torch.Tensor]:
    """Collate right-padded (B, T) source ids, mask, and labels with -100 on padding."""
    sources = [source for source, _ in examples]
    return {
        "input_ids": padded(sources, pad),
        "attention_mask": padded([[1] * len(row) for row in sources], 0),
        "labels": padded([target for _, target in examples], IGNORED),
    }


def denoise(
    ids: Sequence[int],
    *,
    modes: dict[str, list[int]],
    sentinels: Sequence[int],
    end: int,
    generator: np.random.Generator,
) -> Example:
    """Create a training example from a text of at least four tokens."""
    shares = [denoiser["share"] for denoiser in DENOISERS]
    denoiser = DENOISERS[generator.choice(len(DENOISERS), p=shares)]
    if denoiser["rate"] is None:
        source, target = hide_suffix(ids, sentinel=sentinels[0], generator=generator)
    else:
        source, target = hide_spans(
            ids,
            rate=denoiser["rate"],
            span=denoiser["span"],
            sentinels=sentinels,
            generator=generator,
        )
    return [*modes[denoiser["mode"]], *source, end], [*target, end]


def hide_suffix(
    ids: Sequence[int], *, sentinel: int, generator: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Mask everything after a random point, with at least a quarter on each side."""
    quarter = max(1, len(ids) // 4)
    point = int(generator.integers(quarter, len(ids) - quarter + 1))
    return [*ids[:point], sentinel], [sentinel, *ids[point:]]


def hide_spans(
    ids: Sequence[int],
    *,
    rate: float,
    span: int,
    sentinels: Sequence[int],
    generator: np.random.Generator,
) -> tuple[list[int], list[int]]:
    """Mask ``rate`` of the tokens in spans of about ``span``, never the first token."""
    masked = min(max(1, round(len(ids) * rate)), len(ids) - 1)
    count = min(max(1, round(masked / span)), len(sentinels), len(ids) - masked)
    masked_lengths = _parts(masked, count, generator)
    visible_lengths = _parts(len(ids) - masked, count, generator)
    source: list[int] = []
    target: list[int] = []
    start = 0
    for sentinel, visible_length, masked_length in zip(
        sentinels, visible_lengths, masked_lengths, strict=False
    ):
        middle = start + visible_length
        end = middle + masked_length
        source += [*ids[start:middle], sentinel]
        target += [sentinel, *ids[middle:end]]
        start = end
    return source, target


def _parts(total: int, count: int, generator: np.random.Generator) -> list[int]:
    """Split ``total`` into ``count`` positive numbers, all splits equally likely."""
    cuts = np.sort(generator.choice(total - 1, size=count - 1, replace=False)) + 1
    edges = [0, *cuts.tolist(), total]
    return [right - left for left, right in pairwise(edges)]
