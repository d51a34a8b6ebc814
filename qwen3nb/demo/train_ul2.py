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
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import Trainer, set_seed

from qwen3nb.datasets.pydocs.build import Entry, load_pydocs
from qwen3nb.demo.trainer import (
    Schedule,
    ToySizes,
    describe,
    padded,
    quietly,
    toy_qwen3,
    toy_sizes,
    train,
)
from qwen3nb.models.modeling.qwen3_seq2seq import IGNORED, Qwen3ForSeq2SeqLM, Qwen3Seq2SeqConfig
from qwen3nb.models.modeling.tiny_tokenizer import END, SENTINELS, write_tokenizer


@dataclass(frozen=True)
class Denoiser:
    """How texts are masked; see the beginning of this module."""

    mode: str  # the token at the front
    share: float  # of the examples
    rate: float | None  # share of masked tokens; None for everything after a random point
    span: int  # mean length of a masked span


DENOISERS = (
    Denoiser("[R]", share=0.4, rate=0.15, span=3),
    Denoiser("[X]", share=0.3, rate=0.5, span=8),
    Denoiser("[S]", share=0.3, rate=None, span=0),
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
_HELD_OUT = 20  # one of so many texts is held out
_HELD_OUT_BATCHES = 4  # of which the evaluation loss is computed


def entries_outside_sample() -> list[Entry]:
    """Return the entries of PyDocs that are not in the smoke tier's sample."""
    from qwen3nb.datasets.pydocs.mteb_tasks import pydocs_sample

    sample = {entry.name for entry in pydocs_sample().entries}
    return [entry for entry in load_pydocs().entries if entry.name not in sample]


def texts_of_tier() -> set[str]:
    """Return the texts of the smoke tier, which may occur in an entry outside its sample, too."""
    from qwen3nb.datasets.pydocs.mteb_tasks import author_sts, pydocs_sample

    texts: set[str] = set()
    for entry in pydocs_sample().entries:
        texts.update((entry.summary, entry.text))
    for first_text, second_text, _ in author_sts():
        texts.update((first_text, second_text))
    return texts


def training_texts() -> tuple[list[str], list[str]]:
    """Return the texts for training and those for the evaluation loss."""
    test_texts = texts_of_tier()
    texts = []
    for entry in entries_outside_sample():
        texts += [text for text in (entry.summary, entry.text) if text not in test_texts]
    held_out = texts[::_HELD_OUT]
    training = [text for index, text in enumerate(texts) if index % _HELD_OUT != 0]
    return training, held_out


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


def _sizes(tokenizer: Tokenizer, settings: Ul2Settings) -> ToySizes:
    return toy_sizes(
        vocabulary=tokenizer.get_vocab_size(with_added_tokens=True),
        hidden=settings.hidden,
        layers=settings.layers,
        spread=settings.spread,
        end=token_id(tokenizer, END),
    )


def train_seq2seq(folder: Path, settings: Ul2Settings = UL2) -> Path:
    """Train the encoder-decoder; write ``init`` and ``checkpoint-N`` to ``folder``."""
    texts, held_out_texts = training_texts()
    tokenizer = write_tokenizer(texts, folder / "tokenizer", vocabulary=settings.vocabulary)
    set_seed(settings.seed)
    model = Qwen3ForSeq2SeqLM(seq2seq_config(tokenizer, settings))
    with quietly():
        model.save_pretrained(folder / "init")
    shutil.copytree(folder / "tokenizer", folder / "init", dirs_exist_ok=True)
    examples = _denoised(
        texts,
        tokenizer,
        count=settings.steps * settings.batch,
        settings=settings,
        seed=settings.seed,
    )
    held_out = _denoised(
        held_out_texts,
        tokenizer,
        count=_HELD_OUT_BATCHES * settings.batch,
        settings=settings,
        seed=settings.seed + 1,
    )
    train(
        Trainer,
        folder,
        settings,
        name="UL2",
        model=model,
        examples=examples,
        held_out=held_out,
        collate=partial(_collate, pad=token_id(tokenizer, END)),
    )
    facts = {
        "objective": "UL2 denoising",
        "denoisers": [asdict(denoiser) for denoiser in DENOISERS],
        "data": "PyDocs without the functions of the smoke tier's sample",
        "texts": len(texts),
        "tokens_seen": sum(len(source) + len(target) for source, target in examples),
    }
    describe(folder, settings, facts)
    return folder


def train_decoder(folder: Path, settings: Ul2Settings = DECODER) -> Path:
    """Train a tiny Qwen3 language model on the same texts."""
    texts, held_out_texts = training_texts()
    tokenizer = write_tokenizer(texts, folder, vocabulary=settings.vocabulary)
    end = token_id(tokenizer, END)
    set_seed(settings.seed)
    model = toy_qwen3(_sizes(tokenizer, settings), use_cache=False)
    most_tokens = settings.length - 1  # without the end
    rows = _token_ids(tokenizer, texts, most_tokens)
    held_out_rows = _token_ids(tokenizer, held_out_texts, most_tokens)
    generator = np.random.default_rng(settings.seed)
    drawn_indices = generator.integers(0, len(rows), size=settings.steps * settings.batch)
    held_out_count = _HELD_OUT_BATCHES * settings.batch
    train(
        Trainer,
        folder,
        settings,
        name="causal LM",
        checkpoints=False,
        model=model,
        examples=[_example(rows[index], end) for index in drawn_indices],
        held_out=[_example(row, end) for row in held_out_rows[:held_out_count]],
        collate=partial(_collate, pad=end),
    )
    with quietly():
        model.save_pretrained(folder)
    return folder


def _example(row: list[int], end: int) -> Example:
    """Return an example of a language model, whose target is its source."""
    return [*row, end], [*row, end]


def _token_ids(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[list[int]]:
    """Return at most so many token ids of each text, without texts of fewer than four."""
    rows = []
    for encoding in tokenizer.encode_batch(list(texts)):
        if len(encoding.ids) >= 4:
            rows.append(encoding.ids[:most])
    return rows


def _denoised(
    texts: Sequence[str], tokenizer: Tokenizer, *, count: int, settings: Ul2Settings, seed: int
) -> list[Example]:
    """Return so many examples from randomly drawn texts."""
    generator = np.random.default_rng(seed)
    rows = _token_ids(tokenizer, texts, settings.length)
    modes = {}
    for denoiser in DENOISERS:
        modes[denoiser.mode] = tokenizer.encode(f"{denoiser.mode} ").ids  # such as of "[R] "
    sentinels = [token_id(tokenizer, name) for name in SENTINELS]
    end = token_id(tokenizer, END)
    examples = []
    for index in generator.integers(0, len(rows), size=count):
        example = denoise(
            rows[index], modes=modes, sentinels=sentinels, end=end, generator=generator
        )
        examples.append(example)
    return examples


def _collate(examples: Sequence[Example], *, pad: int) -> dict[str, torch.Tensor]:
    """Collate right-padded (B, T) source ids, mask, and labels with -100 on padding."""
    sources = [source for source, _ in examples]
    targets = [target for _, target in examples]
    return {
        "input_ids": padded(sources, pad),
        "attention_mask": padded([[1] * len(source) for source in sources], 0),
        "labels": padded(targets, IGNORED),
    }


def denoise(
    ids: Sequence[int],
    *,
    modes: dict[str, list[int]],
    sentinels: Sequence[int],
    end: int,
    generator: np.random.Generator,
) -> Example:
    """Create a training example from a text of at least four tokens.

    ``modes`` are the token ids of each mode token.
    """
    shares = [denoiser.share for denoiser in DENOISERS]
    denoiser = DENOISERS[generator.choice(len(DENOISERS), p=shares)]
    # [S] hides everything after a random point, [R] and [X] hide spans.
    if denoiser.rate is None:
        source, target = hide_suffix(ids, sentinel=sentinels[0], generator=generator)
    else:
        source, target = hide_spans(
            ids,
            rate=denoiser.rate,
            span=denoiser.span,
            sentinels=sentinels,
            generator=generator,
        )
    # The model reads the mode and what is visible, and writes what is hidden.
    return [*modes[denoiser.mode], *source, end], [*target, end]


def hide_suffix(ids: Sequence[int], *, sentinel: int, generator: np.random.Generator) -> Example:
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
) -> Example:
    """Mask ``rate`` of the tokens in spans of about ``span``, never the first token."""
    # At least one token is masked, and one is visible.
    masked = _within(round(len(ids) * rate), 1, len(ids) - 1)
    visible = len(ids) - masked
    span_count = _within(round(masked / span), 1, min(len(sentinels), visible))
    masked_lengths = _random_lengths(masked, span_count, generator)
    visible_lengths = _random_lengths(visible, span_count, generator)
    source: list[int] = []
    target: list[int] = []
    position = 0
    # Each visible part is followed by a masked span; there may be more sentinels than spans.
    for sentinel, visible_length, masked_length in zip(
        sentinels, visible_lengths, masked_lengths, strict=False
    ):
        span_start = position + visible_length
        span_end = span_start + masked_length
        source += [*ids[position:span_start], sentinel]
        target += [sentinel, *ids[span_start:span_end]]
        position = span_end
    return source, target


def _within(value: int, least: int, most: int) -> int:
    """Return the nearest number between two."""
    return min(max(least, value), most)


def _random_lengths(total: int, count: int, generator: np.random.Generator) -> list[int]:
    """Split ``total`` into ``count`` positive numbers, all splits equally likely."""
    cuts = np.sort(generator.choice(total - 1, size=count - 1, replace=False)) + 1
    edges = [0, *cuts.tolist(), total]
    return [right_edge - left_edge for left_edge, right_edge in pairwise(edges)]
