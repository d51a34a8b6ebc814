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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from qwen3nb import paths
from qwen3nb.demo import trainer
from qwen3nb.demo.train_ul2 import training_texts, unmeasured
from qwen3nb.models.modeling.tiny_tokenizer import END, write_tokenizer
from qwen3nb.models.rerankers import TEMPLATES, PairTokens, common_start
from qwen3nb.models.types import INSTRUCTION
from qwen3nb.utils.atomic_files import read_json, write_json, write_text
from qwen3nb.utils.progress import tqdm

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
    others, seen = unmeasured()
    entries = [entry for entry in others if not {entry.summary, entry.text} & seen]
    generator = np.random.default_rng(seed)
    return [
        _batch(tokenizer, pairs, [entries[i] for i in picks], settings.length)
        for picks in generator.integers(0, len(entries), size=(settings.steps, settings.batch))
    ]


def _batch(tokenizer: Any, pairs: PairTokens, entries: Sequence[Any], length: int) -> Batch:
    rows, labels = [], []
    for index, entry in enumerate(entries):
        other = entries[(index + 1) % len(entries)]
        tokens = pairs.rows(entry.summary, [entry.text, other.text])
        rows += [[*tokens.shared, *rest] for rest in tokens.rests]
        labels += [1, int(other.text == entry.text)]
    end = tokenizer.eos_token_id

    def texts(values: list[str]) -> list[list[int]]:
        ids = tokenizer(values, truncation=True, max_length=length - 1).input_ids
        return [[*row, end] for row in ids]

    queries = [f"Instruct: {INSTRUCTION}\nQuery:{entry.summary}" for entry in entries]
    return Batch(rows, labels, texts(queries), texts([entry.text for entry in entries]))


def _losses(
    model: Any, words: list[int], batch: Batch, temperature: float
) -> dict[str, Callable[[], Tensor]]:
    """Return functions that compute the losses of a language model on a batch.

    Ranking: cross-entropy of the logits of the two ``words``. Embedding: InfoNCE over the batch.
    """

    def ranking() -> Tensor:
        rows = model.get_output_embeddings().weight[words]
        logits = last_states(model.model, batch.pairs) @ rows.T
        return F.cross_entropy(logits, torch.tensor(batch.labels))

    def embedding() -> Tensor:
        queries, documents = (
            F.normalize(last_states(model.model, rows), dim=-1)
            for rows in (batch.queries, batch.documents)
        )
        scores = queries @ documents.T / temperature
        return F.cross_entropy(scores, torch.arange(len(scores)))

    return {"loss_rerank": ranking, "loss_emb": embedding}


def last_states(backbone: Any, rows: Sequence[Sequence[int]]) -> Tensor:
    """Return states (B, H) of the last token of B rows; computes their common prefix once."""
    shared = min(min(common_start(rows[0], row), len(row) - 1) for row in rows)
    cache = None
    if shared:
        cache = DynamicCache(config=backbone.config)
        prefix = torch.tensor([list(rows[0][:shared])])
        # By position, as the name of the cache depends on the release.
        backbone(prefix, None, None, cache, use_cache=True)
        cache.batch_repeat_interleave(len(rows))
    rests = [list(row[shared:]) for row in rows]
    # Right padding does not affect earlier tokens of a causal model.
    ends = torch.tensor([len(rest) for rest in rests]) - 1
    states = backbone(trainer.padded(rests, 0), None, None, cache, use_cache=cache is not None)
    last: Tensor = states.last_hidden_state[torch.arange(len(rests)), ends]
    return last


def _train(
    weights: Iterable[Tensor],
    training: Iterable[Batch],
    settings: PairSettings,
    backward: Callable[[Batch], dict[str, float]],
) -> Iterator[tuple[float, dict[str, float]]]:
    """Take a step of AdamW per batch, and yield its learning rate and losses.

    ``backward`` returns the losses, and stores gradients in the weights. The learning rate rises
    linearly over a tenth of the steps, then follows a cosine.
    """
    weights, steps = list(weights), settings.steps
    warm = max(1, steps // 10)

    def share(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + float(np.cos(np.pi * (step - warm) / max(1, steps - warm))))

    optimiser = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, share)
    with trainer.faster_linear_layers():
        for batch in training:
            losses = backward(batch)
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimiser.step()
            yield float(schedule.get_last_lr()[0]), losses
            schedule.step()


def train_base(folder: Path, settings: BaseSettings = BASE) -> Path:
    """Train the base model; its tokenizer covers the template and words of the reranker."""
    prompt = _TEMPLATE.prefix + _TEMPLATE.head(INSTRUCTION, "") + _TEMPLATE.suffix
    texts, _ = training_texts()
    write_tokenizer([*texts, *[prompt, "yes", "no"] * 50], folder, vocabulary=settings.vocabulary)
    training = _batches(folder, settings, seed=settings.seed)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    words, end = tokenizer.convert_tokens_to_ids(_WORDS), tokenizer.convert_tokens_to_ids(END)
    spread = settings.hidden**-0.5
    sizes = trainer.toy_sizes(len(tokenizer), settings.hidden, settings.layers, spread, end)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = trainer.toy_qwen3(sizes)

    def backward(batch: Batch) -> dict[str, float]:
        losses = {
            name: loss()
            for name, loss in _losses(model, words, batch, settings.temperature).items()
        }
        model.zero_grad()
        sum(losses.values()).backward()  # type: ignore[union-attr]
        return {name: float(loss.detach()) for name, loss in losses.items()}

    bar = tqdm(training, desc="training: base model of the adapters", unit="step")
    seen = [losses for _, losses in _train(model.parameters(), bar, settings, backward)]
    with trainer.quietly():
        model.save_pretrained(folder)
    facts = {
        "objective": "yes or no about a pair, and InfoNCE, added",
        "data": "PyDocs without the functions of the smoke tier's sample",
        "last losses": _means(seen[-max(1, len(seen) // 10) :]),
    }
    trainer.describe(folder, settings, facts)
    return folder


def train_adapters(
    base: Path, outputs: Path, *, settings: LoraSettings = LORA, say: Callable[[str], Any] = print
) -> list[Path]:
    """Train one adapter per mode and seed, and return their folders."""
    folders = []
    for seed in settings.seeds:
        training = _batches(base, settings, seed=seed)
        for mode in _MODES:
            started = time.perf_counter()
            folder = outputs / f"{mode}_r{settings.rank}" / f"seed_{seed}"
            losses = _train_adapter(base, folder, mode, seed, settings, training)
            shown = ", ".join(f"{name} {value:.2f}" for name, value in losses.items())
            say(f"{folder.parent.name} seed {seed}: {shown}, {time.perf_counter() - started:.0f} s")
            folders.append(folder / "checkpoints" / "final")
    return folders


def _train_adapter(
    base: Path,
    folder: Path,
    mode: str,
    seed: int,
    settings: LoraSettings,
    training: Sequence[Batch],
) -> dict[str, float]:
    """Train, write all files, and return the mean losses of the last steps."""
    import yaml
    from peft import LoraConfig, get_peft_model

    words = AutoTokenizer.from_pretrained(base).convert_tokens_to_ids(_WORDS)
    lora = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=_TARGETS)
    with trainer.quietly(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        adapter = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
    model = adapter.get_base_model()
    weights = {name: each for name, each in adapter.named_parameters() if each.requires_grad}
    gradients: dict[str, Sequence[Tensor]] = {}

    def backward(batch: Batch) -> dict[str, float]:
        values, losses = {}, _losses(model, words, batch, settings.temperature)
        for name in _MODES[mode]:
            loss = losses[name]()
            gradients[name] = torch.autograd.grad(loss, list(weights.values()))
            values[name] = float(loss.detach())
        for weight, *parts in zip(weights.values(), *gradients.values(), strict=True):
            weight.grad = torch.stack(parts).sum(dim=0)
        return values

    log, conflicts, recent = [], [], []
    steps = _train(weights.values(), training, settings, backward)
    for step, (rate, losses) in enumerate(steps, start=1):
        recent.append(losses)
        if step % settings.log_every == 0:
            means = _means(recent[-50:])
            log.append({"step": step, "loss": sum(means.values()), "lr": rate, **means})
            if len(gradients) == 2:
                pairs = zip(weights, *gradients.values(), strict=True)
                cosines = {
                    f"model.{name}": float(F.cosine_similarity(a.flatten(), b.flatten(), dim=0))
                    for name, a, b in pairs
                }
                conflicts.append({"step": step, "per_layer": cosines})
    final, name = folder / "checkpoints" / "final", paths.shown(base)
    with trainer.quietly():
        adapter.save_pretrained(str(final))
    # The path of the base model relative to the root, to keep checkouts movable.
    file = final / "adapter_config.json"
    write_json(file, {**read_json(file), "base_model_name_or_path": name}, indent=2)
    config = {
        "model": {"base_model_name": name, "torch_dtype": "float32"},
        "lora": {"rank": settings.rank, "alpha": settings.alpha, "target_modules": _TARGETS},
        "data": {"dataset_name": "PyDocs", "instruction_prefix": INSTRUCTION, "seed": seed},
        "training": {"mode": mode, **asdict(settings), "seeds": list(settings.seeds)},
        "seed": seed,
    }
    write_text(folder / "config.yaml", yaml.safe_dump(config, sort_keys=False))
    for kind, rows in (("train_log", log), ("gradient_conflicts", conflicts)):
        if rows:
            lines = (json.dumps(row, allow_nan=False) + "\n" for row in rows)
            write_text(folder / f"{kind}.jsonl", "".join(lines))
    return _means(recent[-50:])


def _means(losses: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: sum(each[name] for each in losses) / len(losses) for name in losses[0]}
