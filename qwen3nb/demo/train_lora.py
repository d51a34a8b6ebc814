"""Train LoRA adapters for ranking, embedding or both on PyDocs, and their base model.

::

    base/                                            the base model
    outputs/<mode>_r<rank>/seed_<n>/checkpoints/final    an adapter in PEFT's format
                                    config.yaml, train_log.jsonl
                                    gradient_conflicts.jsonl   only joint training

A batch has queries of PyDocs, each with its own document and that of the next query. Ranking:
classify whether query and document match, by the logits of yes and no at the last token (the
objective of Qwen3-Reranker). Embedding: queries and their documents against the others of the batch
(InfoNCE, van den Oord et al. 2018), last token, cosine. The common prefix of all pairs is computed
once per batch, including gradients: the template makes up a third of a pair.

An adapter builds on its base model. With a base trained for a minute to continue docstrings,
ranking stays at chance (a loss of 0.69), however long an adapter is trained. All weights of the
base model are therefore trained briefly on both tasks, on functions outside the test data.

All adapters take the same steps on the same examples. A joint step adds the gradients of the two
losses, which are computed separately to measure their cosine.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from qwen3nb import paths
from qwen3nb.datasets.pydocs.build import Entry
from qwen3nb.demo import trainer
from qwen3nb.demo.train_ul2 import entries_outside_sample, texts_of_tier, training_texts
from qwen3nb.models.modeling.tiny_tokenizer import END, write_tokenizer
from qwen3nb.models.rerankers import TEMPLATES, PairTokens, common_start
from qwen3nb.models.types import INSTRUCTION
from qwen3nb.utils.atomic_files import read_json, write_json, write_text
from qwen3nb.utils.progress import tqdm

if TYPE_CHECKING:
    from peft import PeftModel

# The losses of each mode.
_MODES = {
    "rank_only": ("loss_rerank",),
    "emb_only": ("loss_emb",),
    "joint": ("loss_emb", "loss_rerank"),
}
_TEMPLATE = TEMPLATES["double-newline"]
_WORDS = ["no", "yes"]
_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class PairSettings:
    """Common settings of trainings on pairs."""

    steps: int  # optimisation steps
    batch: int  # queries per step
    learning_rate: float = 3e-3  # peak of the learning rate; linear warm-up, then cosine
    temperature: float = 0.05  # temperature of the contrastive loss
    window: int = 128  # maximum tokens of a pair
    length: int = 64  # maximum tokens of an embedded text


@dataclass(frozen=True)
class BaseSettings(PairSettings):
    """Size and training of the base model."""

    steps: int = 340
    batch: int = 16
    vocabulary: int = 4000  # size of the vocabulary without special tokens
    hidden: int = 64  # hidden size
    layers: int = 2  # number of layers
    spread: float = 0.02  # standard deviation of the layers' initial weights, as in Qwen3
    seed: int = 0  # seed of everything random


@dataclass(frozen=True)
class LoraSettings(PairSettings):
    """Training of the demo's adapters; all modes have the same steps."""

    steps: int = 30
    batch: int = 8
    rank: int = 8  # rank of the adapters
    alpha: int = 16  # scale of the adapters, multiplied by 1/rank
    log_every: int = 5  # steps between entries of the log and of the gradient conflicts
    seeds: tuple[int, ...] = (42, 123)  # one adapter is trained per mode and seed


BASE = BaseSettings()
LORA = LoraSettings()


@dataclass(frozen=True)
class Batch:
    """Rows of token ids: pairs with their label, queries and their documents."""

    pairs: list[list[int]]
    labels: list[int]
    queries: list[list[int]]
    documents: list[list[int]]


def _batches(folder: Path, settings: PairSettings, *, seed: int) -> list[Batch]:
    """Draw the batches of a training, without texts of the smoke tier's sample."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    pairs = PairTokens(
        tokenizer, template=_TEMPLATE, instruction=INSTRUCTION, max_length=settings.window
    )
    test_texts = texts_of_tier()
    entries = []
    for entry in entries_outside_sample():
        if entry.summary not in test_texts and entry.text not in test_texts:
            entries.append(entry)
    generator = np.random.default_rng(seed)
    batches = []
    # A row of indices per step.
    for drawn_indices in generator.integers(0, len(entries), size=(settings.steps, settings.batch)):
        entries_of_batch = [entries[index] for index in drawn_indices]
        batches.append(_batch(tokenizer, pairs, entries_of_batch, settings.length))
    return batches


def _batch(
    tokenizer: PreTrainedTokenizerBase, pairs: PairTokens, entries: Sequence[Entry], length: int
) -> Batch:
    """Pair each summary with its own text and with that of the next entry."""
    # The next text is a wrong answer to a summary; the last entry gets the first text.
    next_entries = [*entries[1:], entries[0]]
    rows: list[list[int]] = []
    labels = []
    for entry, next_entry in zip(entries, next_entries, strict=True):
        tokens = pairs.rows(entry.summary, [entry.text, next_entry.text])
        # Both pairs begin with the same tokens: the template and the summary.
        rows += [[*tokens.shared, *rest] for rest in tokens.rests]
        has_same_text = next_entry.text == entry.text
        labels += [1, int(has_same_text)]
    queries = [f"Instruct: {INSTRUCTION}\nQuery:{entry.summary}" for entry in entries]
    documents = [entry.text for entry in entries]
    return Batch(
        pairs=rows,
        labels=labels,
        queries=_token_ids(tokenizer, queries, length),
        documents=_token_ids(tokenizer, documents, length),
    )


def _token_ids(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], length: int
) -> list[list[int]]:
    """Return at most ``length`` token ids of each text, the last one the end of the text."""
    rows = tokenizer(texts, truncation=True, max_length=length - 1).input_ids
    return [[*row, tokenizer.eos_token_id] for row in rows]


@dataclass(frozen=True)
class _Losses:
    """The losses of a language model on batches."""

    model: PreTrainedModel
    words: list[int]  # token ids of no and yes
    temperature: float

    def loss(self, name: str, batch: Batch) -> Tensor:
        """Return a loss by its name in the log."""
        if name == "loss_rerank":
            return self._ranking(batch)
        return self._embedding(batch)

    def _ranking(self, batch: Batch) -> Tensor:
        """Cross-entropy of the logits of the two words."""
        word_vectors = self.model.get_output_embeddings().weight[self.words]
        logits = last_states(self.model.model, batch.pairs) @ word_vectors.T
        return F.cross_entropy(logits, torch.tensor(batch.labels))

    def _embedding(self, batch: Batch) -> Tensor:
        """InfoNCE over the batch."""
        queries = F.normalize(last_states(self.model.model, batch.queries), dim=-1)
        documents = F.normalize(last_states(self.model.model, batch.documents), dim=-1)
        scores = queries @ documents.T / self.temperature
        return F.cross_entropy(scores, torch.arange(len(scores)))


def last_states(backbone: PreTrainedModel, rows: Sequence[Sequence[int]]) -> Tensor:
    """Return states (B, H) of the last token of B rows; computes their common prefix once."""
    prefix_length = _common_prefix_length(rows)
    cache = None
    if prefix_length > 0:
        cache = DynamicCache(config=backbone.config)
        prefix = torch.tensor([rows[0][:prefix_length]])
        # Fills the cache. By position, as its name depends on the release.
        backbone(prefix, None, None, cache, use_cache=True)
        cache.batch_repeat_interleave(len(rows))  # a copy for each row
    rests = [row[prefix_length:] for row in rows]
    # Right padding does not affect earlier tokens of a causal model.
    ids = trainer.padded(rests, 0)
    states = backbone(ids, None, None, cache, use_cache=cache is not None).last_hidden_state
    last_positions = torch.tensor([len(rest) - 1 for rest in rests])
    every_row = torch.arange(len(rows))
    last: Tensor = states[every_row, last_positions]  # (B, H) of (B, T, H)
    return last


def _common_prefix_length(rows: Sequence[Sequence[int]]) -> int:
    """Return how many tokens all rows begin with, without the last token of a row."""
    shortest = min(len(row) for row in rows)
    common = min(common_start(rows[0], row) for row in rows)
    return min(common, shortest - 1)


@dataclass(frozen=True)
class _Step:
    """A step of a training."""

    learning_rate: float
    losses: dict[str, float]


def _train(
    weights: Iterable[Tensor],
    training: Iterable[Batch],
    settings: PairSettings,
    backward: Callable[[Batch], dict[str, float]],
) -> Iterator[_Step]:
    """Take a step of AdamW per batch.

    ``backward`` returns the losses, and stores gradients in the weights.
    """
    trained = list(weights)
    optimiser = torch.optim.AdamW(trained, lr=settings.learning_rate, weight_decay=0.01)
    share_of_peak = partial(_share_of_peak, steps=settings.steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, share_of_peak)
    with trainer.faster_linear_layers():
        for batch in training:
            losses = backward(batch)  # stores the gradients in the weights
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimiser.step()
            learning_rate = float(schedule.get_last_lr()[0])
            yield _Step(learning_rate, losses)
            schedule.step()


def _share_of_peak(step: int, *, steps: int) -> float:
    """Return the learning rate of a step as a share of its peak.

    It rises linearly over a tenth of the steps, then follows a cosine.
    """
    warm_up = max(1, steps // 10)
    if step < warm_up:
        return (step + 1) / warm_up
    progress = (step - warm_up) / max(1, steps - warm_up)
    return 0.5 * (1 + float(np.cos(np.pi * progress)))


def train_base(folder: Path, settings: BaseSettings = BASE) -> Path:
    """Train the base model; its tokenizer covers the template and words of the reranker."""
    _write_tokenizer(folder, settings)
    training = _batches(folder, settings, seed=settings.seed)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = _new_model(tokenizer, settings)
    words = tokenizer.convert_tokens_to_ids(_WORDS)
    losses_of_model = _Losses(model, words, settings.temperature)

    def backward(batch: Batch) -> dict[str, float]:
        ranking = losses_of_model.loss("loss_rerank", batch)
        embedding = losses_of_model.loss("loss_emb", batch)
        model.zero_grad()
        (ranking + embedding).backward()
        return {"loss_rerank": float(ranking.detach()), "loss_emb": float(embedding.detach())}

    bar = tqdm(training, desc="training: base model of the adapters", unit="step")
    history = [step.losses for step in _train(model.parameters(), bar, settings, backward)]
    with trainer.quietly():
        model.save_pretrained(folder)
    last_tenth = max(1, len(history) // 10)
    facts = {
        "objective": "yes or no about a pair, and InfoNCE, added",
        "data": "PyDocs without the functions of the smoke tier's sample",
        "last losses": _means(history[-last_tenth:]),
    }
    trainer.describe(folder, settings, facts)
    return folder


def _write_tokenizer(folder: Path, settings: BaseSettings) -> None:
    prompt = _TEMPLATE.prefix + _TEMPLATE.head(INSTRUCTION, "") + _TEMPLATE.suffix
    texts, _ = training_texts()
    # Repeated, as only frequent words become tokens.
    texts_of_reranker = [prompt, "yes", "no"] * 50
    write_tokenizer([*texts, *texts_of_reranker], folder, vocabulary=settings.vocabulary)


def _new_model(tokenizer: PreTrainedTokenizerBase, settings: BaseSettings) -> PreTrainedModel:
    """Return the base model with random weights.

    The layers start as small as Qwen3's. Large ones hardly change in so few steps: the vectors of
    the second layer are then a random function of those of the first, and it is not needed.
    """
    length = settings.hidden**-0.5  # rows of the embedding start with length 1
    sizes = trainer.toy_sizes(
        vocabulary=len(tokenizer),
        hidden=settings.hidden,
        layers=settings.layers,
        spread=settings.spread,
        end=tokenizer.convert_tokens_to_ids(END),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = trainer.toy_qwen3(sizes)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(length / settings.spread)
    return model


def train_adapters(
    base: Path,
    outputs: Path,
    *,
    settings: LoraSettings = LORA,
    say: Callable[[str], object] = print,
) -> list[Path]:
    """Train one adapter per mode and seed, and return their folders."""
    folders = []
    for seed in settings.seeds:
        training = _batches(base, settings, seed=seed)
        for mode in _MODES:
            started = time.perf_counter()
            folder = outputs / f"{mode}_r{settings.rank}" / f"seed_{seed}"
            losses = _train_adapter(base, folder, mode, seed, settings, training)
            seconds = time.perf_counter() - started
            losses_text = ", ".join(f"{name} {loss:.2f}" for name, loss in losses.items())
            say(f"{folder.parent.name} seed {seed}: {losses_text}, {seconds:.0f} s")
            folders.append(folder / "checkpoints" / "final")
    return folders


def _train_adapter(
    base: Path,
    folder: Path,
    mode: str,
    seed: int,
    settings: LoraSettings,
    batches: Sequence[Batch],
) -> dict[str, float]:
    """Train, write all files, and return the mean losses of the last steps."""
    from peft import LoraConfig, get_peft_model

    # Ids of no and yes, whose logits rank a pair.
    words = AutoTokenizer.from_pretrained(base).convert_tokens_to_ids(_WORDS)
    lora = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=_TARGETS)
    # The caller's random numbers are not affected by the seed.
    with trainer.quietly(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        adapter = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
    losses = _Losses(adapter.get_base_model(), words, settings.temperature)
    training = _AdapterTraining(adapter, losses, _MODES[mode], settings)
    training.run(batches)
    _save_adapter(adapter, folder / "checkpoints" / "final", base)
    _write_config(folder / "config.yaml", base, mode, seed, settings)
    _write_rows(folder / "train_log.jsonl", training.log)
    _write_rows(folder / "gradient_conflicts.jsonl", training.conflicts)
    return training.recent_losses


class _AdapterTraining:
    """The training of an adapter: its steps, and what is logged of them."""

    def __init__(
        self,
        adapter: "PeftModel",
        losses: _Losses,
        loss_names: Sequence[str],
        settings: LoraSettings,
    ) -> None:
        self._losses = losses
        self._loss_names = loss_names
        self._settings = settings
        self._weights: dict[str, Tensor] = {}  # those that are trained, by name
        for name, weight in adapter.named_parameters():
            if weight.requires_grad:
                self._weights[name] = weight
        self._gradients: dict[str, Sequence[Tensor]] = {}  # by loss, of the last step
        self._history: list[dict[str, float]] = []
        self.log: list[dict[str, float]] = []
        self.conflicts: list[dict[str, object]] = []

    @property
    def recent_losses(self) -> dict[str, float]:
        """Mean losses of the last 50 steps."""
        return _means(self._history[-50:])

    def run(self, batches: Iterable[Batch]) -> None:
        """Take a step per batch."""
        steps = _train(self._weights.values(), batches, self._settings, self._backward)
        for number, step in enumerate(steps, start=1):
            self._history.append(step.losses)
            if number % self._settings.log_every == 0:
                self._log_step(number, step.learning_rate)

    def _log_step(self, number: int, learning_rate: float) -> None:
        losses = self.recent_losses
        total = sum(losses.values())
        self.log.append({"step": number, "loss": total, "lr": learning_rate, **losses})
        if len(self._loss_names) == 2:
            self.conflicts.append({"step": number, "per_layer": self._cosines()})

    def _backward(self, batch: Batch) -> dict[str, float]:
        """Compute the gradient of each loss, and store their sum in the weights."""
        weights = list(self._weights.values())
        values = {}
        for name in self._loss_names:
            loss = self._losses.loss(name, batch)
            # Kept apart from the weights, to compare the gradients of two losses.
            self._gradients[name] = torch.autograd.grad(loss, weights)
            values[name] = float(loss.detach())
        for weight, *gradients in zip(weights, *self._gradients.values(), strict=True):
            weight.grad = torch.stack(gradients).sum(dim=0)
        return values

    def _cosines(self) -> dict[str, float]:
        """Return the cosine of the two gradients of each weight."""
        first_gradients, second_gradients = self._gradients.values()  # of the two losses
        cosines = {}
        for name, first_gradient, second_gradient in zip(
            self._weights, first_gradients, second_gradients, strict=True
        ):
            cosine = F.cosine_similarity(first_gradient.flatten(), second_gradient.flatten(), dim=0)
            cosines[f"model.{name}"] = float(cosine)
        return cosines


def _save_adapter(adapter: "PeftModel", folder: Path, base: Path) -> None:
    """Save an adapter; it names its base relative to the root, to keep checkouts movable."""
    with trainer.quietly():
        adapter.save_pretrained(str(folder))
    file = folder / "adapter_config.json"
    config = read_json(file)
    config["base_model_name_or_path"] = paths.shown(base)
    write_json(file, config, indent=2)


def _write_config(file: Path, base: Path, mode: str, seed: int, settings: LoraSettings) -> None:
    """Write the configuration of a training, in the form of the design documents."""
    import yaml

    config = {
        "model": {"base_model_name": paths.shown(base), "torch_dtype": "float32"},
        "lora": {"rank": settings.rank, "alpha": settings.alpha, "target_modules": _TARGETS},
        "data": {"dataset_name": "PyDocs", "instruction_prefix": INSTRUCTION, "seed": seed},
        "training": {"mode": mode, **asdict(settings), "seeds": list(settings.seeds)},
        "seed": seed,
    }
    write_text(file, yaml.safe_dump(config, sort_keys=False))


def _write_rows(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as JSON Lines; no file without rows."""
    if rows:
        lines = [json.dumps(row, allow_nan=False) + "\n" for row in rows]
        write_text(file, "".join(lines))


def _means(losses: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each loss."""
    means = {}
    for name in losses[0]:
        means[name] = sum(step[name] for step in losses) / len(losses)
    return means
