"""Train the encoder of the demo's UL2 checkpoint to embed: the contrastive phase.

A step takes pairs of summary and body from docstrings outside the benchmarks
(`qwen3nb.datasets.pydocs.training_pairs`) and raises the cosine of each summary with its own body
above those with all other bodies of the batch (InfoNCE, van den Oord et al. 2018). The checkpoints
are encoder-decoders as before: the decoder's layers keep their weights, and only the embedding,
which both stacks share, changes.

The settings and the checkpoint were chosen on development pairs, from libraries outside the
training data: each checkpoint logs its loss and nDCG@10 there.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F
from transformers import Trainer, set_seed

from qwen3nb import paths
from qwen3nb.checkpoints.averaging import average_checkpoints, select_checkpoints
from qwen3nb.checkpoints.folder import step_of
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.pydocs.training_pairs import DEVELOPMENT, DocstringPair, TrainingPairs
from qwen3nb.demo.train_ul2 import token_id
from qwen3nb.demo.trainer import Schedule, describe, padded, quietly, train
from qwen3nb.evaluation.training import TrainingEvaluator
from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM
from qwen3nb.models.modeling.tiny_tokenizer import END

METRIC = "eval_ndcg_at_10"  # on the development pairs
_SIDES = ("summary", "text")
_TOGETHER = 32  # texts that go through the model at once
_Row = Mapping[str, list[int]]


@dataclass(frozen=True)
class ContrastiveSettings(Schedule):
    """The contrastive phase."""

    steps: int = 240
    save_every: int = 60
    batch: int = 64
    length: int = 48
    temperature: float = 0.05  # divides the cosines
    development: int = 400  # development pairs: nDCG@10 at full length, the loss as in training
    averaged: int = 2  # number of checkpoints to average, the best on the development pairs


CONTRASTIVE = ContrastiveSettings()


def train_contrastive(
    folder: Path, start: Path, pairs: TrainingPairs, settings: ContrastiveSettings = CONTRASTIVE
) -> Path:
    """Train from the checkpoint ``start``; write ``checkpoint-N`` and ``average`` to ``folder``."""
    shutil.copytree(start.parent / "tokenizer", folder / "tokenizer", dirs_exist_ok=True)
    tokenizer = Tokenizer.from_file(str(start / "tokenizer.json"))
    development = _spread(pairs.development, settings.development)
    evaluator = TrainingEvaluator(_search_of(development), name=METRIC, tokenizer=start)
    set_seed(settings.seed)
    with quietly():
        model = Qwen3ForSeq2SeqLM.from_pretrained(start)
    trainer = train(
        partial(_ContrastiveTrainer, settings),
        folder,
        settings,
        name="contrastive",
        callbacks=[evaluator],
        model=model,
        examples=_tokenized(tokenizer, pairs.train, length=settings.length),
        held_out=_tokenized(tokenizer, development, length=settings.length),
        collate=partial(_collate, pad=token_id(tokenizer, END)),
    )
    best = select_checkpoints(folder, best=settings.averaged, metric=METRIC, lower_is_better=False)
    average_checkpoints(best, folder / "average")
    libraries = [name for name in pairs.versions if name not in DEVELOPMENT]
    facts = {
        "objective": "InfoNCE on (summary, body) pairs",
        "start": paths.shown(start),
        "start_step": step_of(start),
        "data": f"docstrings of {len(libraries)} installed libraries that are in no benchmark",
        "libraries": {name: pairs.versions[name] for name in libraries},
        "pairs": len(pairs.train),
        "dropped": pairs.dropped,
        "development libraries": {name: pairs.versions.get(name) for name in DEVELOPMENT},
        "tokens_seen": trainer.tokens,
    }
    describe(folder, settings, facts)
    return folder


def _search_of(pairs: Sequence[DocstringPair]) -> TestCollection:
    """Return a search in which each summary should retrieve its own text."""
    return TestCollection.from_texts(
        [pair.summary for pair in pairs],
        [pair.text for pair in pairs],
        [[index] for index in range(len(pairs))],
        name="development",
    )


def _tokenized(tokenizer: Tokenizer, pairs: Sequence[DocstringPair], *, length: int) -> list[_Row]:
    """Return token ids of both sides of each pair, at most ``length``."""
    summaries = tokenizer.encode_batch([pair.summary for pair in pairs])
    texts = tokenizer.encode_batch([pair.text for pair in pairs])
    rows: list[_Row] = []
    for summary, text in zip(summaries, texts, strict=True):
        rows.append({"summary": summary.ids[:length], "text": text.ids[:length]})
    return rows


def _spread(pairs: Sequence[DocstringPair], most: int) -> list[DocstringPair]:
    """Return at most this many pairs, evenly spread."""
    count = min(most, len(pairs))
    return [pairs[index * len(pairs) // count] for index in range(count)]


def _collate(rows: Sequence[_Row], *, pad: int) -> dict[str, Tensor]:
    """Collate right-padded ids (B, T) and masks of both sides."""
    batch = {}
    for side in _SIDES:
        batch[side] = padded([row[side] for row in rows], pad)
        batch[f"{side}_mask"] = padded([[1] * len(row[side]) for row in rows], 0)
    return batch


class _ContrastiveTrainer(Trainer):
    """The Trainer with InfoNCE as its loss, in training and on the development pairs."""

    def __init__(self, settings: ContrastiveSettings, **options: object) -> None:
        super().__init__(**options)
        self._settings = settings
        self.tokens = 0

    def compute_loss(
        self, model: Qwen3ForSeq2SeqLM, inputs: dict[str, Tensor], *_: object, **__: object
    ) -> Tensor:
        """InfoNCE over the batch."""
        queries = _embed(model, inputs, "summary")
        documents = _embed(model, inputs, "text")
        for side in _SIDES:
            self.tokens += int(inputs[f"{side}_mask"].sum())
        return self._info_nce(queries, documents)

    def evaluate(self, *_: object, **__: object) -> dict[str, float]:
        """Log the mean loss on the development pairs, with batches and length as in training.

        Callbacks add their own metrics.
        """
        rows = list(self.eval_dataset)
        losses = []
        self.model.eval()
        with torch.inference_mode():
            for start in range(0, len(rows), self._settings.batch):
                batch = self.data_collator(rows[start : start + self._settings.batch])
                queries = _embed(self.model, batch, "summary")
                documents = _embed(self.model, batch, "text")
                losses.append(float(self._info_nce(queries, documents)))
        self.model.train()
        metrics = {"eval_loss": sum(losses) / len(losses)}
        self.log(metrics)
        # As Trainer.evaluate does: callbacks add their metrics.
        self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _info_nce(self, queries: Tensor, documents: Tensor) -> Tensor:
        scores = queries @ documents.T / self._settings.temperature
        return F.cross_entropy(scores, torch.arange(len(scores)))


def _embed(model: Qwen3ForSeq2SeqLM, batch: dict[str, Tensor], side: str) -> Tensor:
    """Return unit vectors (B, H): the mean of the encoder's states over the tokens.

    Texts of similar length are batched, to reduce padding.
    """
    ids = batch[side]
    mask = batch[f"{side}_mask"]
    by_length = mask.sum(dim=1).argsort()
    sums = []
    for rows in by_length.split(_TOGETHER):  # indices of texts of similar length
        longest = int(mask[rows].sum(dim=1).max())
        mask_of_rows = mask[rows, :longest]
        states = model.encode(ids[rows, :longest], mask_of_rows)
        states = states * mask_of_rows.unsqueeze(-1)  # padding becomes 0
        sums.append(states.sum(dim=1))
    original_order = by_length.argsort()
    # As vectors of length 1, the sums are the means.
    return F.normalize(torch.cat(sums)[original_order], dim=-1)
