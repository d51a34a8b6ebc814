"""Train LoRA adapters on PyDocs, for ranking, for embedding, and for both; and their base model.

    base/                                            the base model
    outputs/<mode>_r<rank>/seed_<n>/checkpoints/final    its adapter, as PEFT writes it
                                    config.yaml, train_log.jsonl
                                    gradient_conflicts.jsonl   of the joint ones

A batch holds queries of PyDocs, each with its own document and that of the next query.
Ranking: whether query and document match, by the logits of yes and no at the last token
(the objective of Qwen3-Reranker). Embedding: queries and their documents against the
others of the batch (InfoNCE, van den Oord et al. 2018), last token, cosine. The shared start
of all pairs goes through the model once per batch, gradients included: the template makes up
a third of a pair.

An adapter brings out what its base model can do. A model that was only trained to continue
docstrings for a minute cannot rank: yes and no stay at chance (a loss of 0.69), however
long an adapter is trained. Therefore all weights of the base model are trained a little
on both tasks, on functions that are not measured; the adapters add to that.

All adapters take the same number of optimisation steps on the same examples, drawn before
the first step, so that they differ only in their objective. A joint step adds the
gradients of the two losses. They are computed separately, so that their cosine can be
measured without changing the training. The base model is a toy: the method is real, the
scores are not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from qwen3nb import paths
from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.datasets.pydocs.mteb_tasks import pydocs_sample
from qwen3nb.demo.train_ul2 import training_texts
from qwen3nb.demo.trainer import faster_linear_layers, padded, quietly, toy_qwen3, toy_sizes
from qwen3nb.models.modeling.tiny_tokenizer import END, write_tokenizer
from qwen3nb.models.rerankers.prompt_template import (
    INSTRUCTION,
    TEMPLATES,
    PairTokens,
    common_start,
)
from qwen3nb.utils.atomic_files import read_json, write_json, write_text
from qwen3nb.utils.progress import tqdm

# The task in a log, and the losses, of each mode.
_MODES = {
    "rank_only": ("reranking", ("loss_rerank",)),
    "emb_only": ("embedding", ("loss_emb",)),
    "joint": ("joint", ("loss_emb", "loss_rerank")),
}
_TEMPLATE = TEMPLATES["double-newline"]
_WORDS = ["no", "yes"]
_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class BaseSettings:
    """Size and training of the base model."""

    steps: int = 340  # optimisation steps
    batch: int = 16  # queries per step
    learning_rate: float = 3e-3  # peak of the learning rate; linear warm-up, then cosine
    temperature: float = 0.05  # temperature of the contrastive loss
    window: int = 128  # maximum tokens of a pair
    length: int = 64  # maximum tokens of an embedded text
    vocabulary: int = 4000  # size of the vocabulary without special tokens
    hidden: int = 64  # hidden size
    layers: int = 2  # number of layers
    seed: int = 0  # seed of everything random


BASE = BaseSettings()


@dataclass(frozen=True)
class LoraSettings:
    """Training of the demo's adapters."""

    steps: int = 30  # optimisation steps, for every mode
    batch: int = 8  # queries per step
    rank: int = 8  # rank of the adapters
    alpha: int = 16  # scale of the adapters, multiplied by 1/rank
    # peak of the learning rate; linear warm-up over a tenth, then cosine
    learning_rate: float = 3e-3
    temperature: float = 0.05  # temperature of the contrastive loss
    window: int = 128  # maximum tokens of a pair
    length: int = 64  # maximum tokens of an embedded text
    log_every: int = 5  # steps between entries of the log and of the gradient conflicts
    seeds: tuple[int, ...] = (42, 123)  # one adapter is trained per mode and seed


LORA = LoraSettings()


@dataclass(frozen=True)
class Batch:
    """Rows of token ids: pairs with their label, queries and their documents."""

    pairs: list[list[int]]
    labels: list[int]
    queries: list[list[int]]
    documents: list[list[int]]


def _batches(folder: Path, settings: BaseSettings | LoraSettings, *, seed: int) -> list[Batch]:
    """Draw the batches of a training, none of them from the sample of the smoke tier."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    pairs = PairTokens(
        tokenizer, template=_TEMPLATE, instruction=INSTRUCTION, max_length=settings.window
    )
    measured = {entry.name for entry in pydocs_sample().entries}
    seen = {text for entry in pydocs_sample().entries for text in (entry.summary, entry.text)}
    entries = [
        entry
        for entry in load_pydocs().entries
        if entry.name not in measured and not {entry.summary, entry.text} & seen
    ]
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


def _ranking_loss(backbone: Any, rows: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of no and yes; ``rows`` (2, H) are their rows of the output matrix."""
    logits = last_states(backbone, batch.pairs) @ rows.T
    return F.cross_entropy(logits, torch.tensor(batch.labels))


def _embedding_loss(backbone: Any, batch: Batch, *, temperature: float) -> Tensor:
    """InfoNCE over the batch."""
    queries, documents = (
        F.normalize(last_states(backbone, rows), dim=-1)
        for rows in (batch.queries, batch.documents)
    )
    scores = queries @ documents.T / temperature
    return F.cross_entropy(scores, torch.arange(len(scores)))


def last_states(backbone: Any, rows: Sequence[Sequence[int]]) -> Tensor:
    """States (B, H) of the last token of B rows; their shared prefix is computed once."""
    from transformers import DynamicCache

    shared = min(min(common_start(rows[0], row), len(row) - 1) for row in rows)
    cache = None
    if shared:
        cache = DynamicCache(config=backbone.config)
        prefix = torch.tensor([list(rows[0][:shared])])
        backbone(input_ids=prefix, past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(len(rows))
    rests = [list(row[shared:]) for row in rows]
    # Padding on the right: tokens of a causal model do not see later ones.
    ends = torch.tensor([len(rest) for rest in rests]) - 1
    states = backbone(
        input_ids=padded(rests, 0), past_key_values=cache, use_cache=cache is not None
    )
    last: Tensor = states.last_hidden_state[torch.arange(len(rests)), ends]
    return last


def _optimiser(
    parameters: Iterable[Tensor], settings: BaseSettings | LoraSettings, **options: Any
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    """Return AdamW, and its learning rate: linear over a tenth of the steps, then cosine."""
    steps, warm = settings.steps, max(1, settings.steps // 10)

    def share(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + float(np.cos(np.pi * (step - warm) / max(1, steps - warm))))

    optimiser = torch.optim.AdamW(parameters, lr=settings.learning_rate, **options)
    return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, share)


def train_base(folder: Path, settings: BaseSettings = BASE) -> Path:
    """Train the base model; its tokenizer covers the template and words of the reranker."""
    from transformers import AutoTokenizer

    prompt = _TEMPLATE.prefix + _TEMPLATE.head(INSTRUCTION, "") + _TEMPLATE.suffix
    texts, _ = training_texts()
    write_tokenizer([*texts, *[prompt, "yes", "no"] * 50], folder, vocabulary=settings.vocabulary)
    training = _batches(folder, settings, seed=settings.seed)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows, end = len(tokenizer), tokenizer.convert_tokens_to_ids(END)
    sizes = toy_sizes(rows, settings.hidden, settings.layers, settings.hidden**-0.5, end)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = toy_qwen3(sizes)
    with faster_linear_layers():
        losses = _train_all(model, tokenizer.convert_tokens_to_ids(_WORDS), training, settings)
    with quietly():
        model.save_pretrained(folder)
    about = {
        "objective": "yes or no about a pair, and InfoNCE, added",
        "data": "PyDocs without the functions of the smoke tier's sample",
        "settings": asdict(settings),
        "last losses": losses,
        "hardware": "CPU",
        "toy": True,
    }
    write_json(folder / "training.json", about, indent=2)
    return folder


def _train_all(
    model: Any, ids: list[int], training: Sequence[Batch], settings: BaseSettings
) -> dict[str, float]:
    """Train all weights; return the mean losses of the last tenth of the steps."""
    optimiser, schedule = _optimiser(model.parameters(), settings, weight_decay=0.01)
    seen: list[tuple[float, float]] = []
    bar = tqdm(training, desc="training: base model of the adapters", unit="step")
    for batch in bar:
        rows = model.get_output_embeddings().weight[ids]
        ranked = _ranking_loss(model.model, rows, batch)
        embedded = _embedding_loss(model.model, batch, temperature=settings.temperature)
        optimiser.zero_grad()
        (ranked + embedded).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        seen.append((float(ranked.detach()), float(embedded.detach())))
        last = np.mean(seen[-max(1, len(training) // 10) :], axis=0).tolist()
        bar.set_postfix(yes_no=f"{last[0]:.2f}", embedding=f"{last[1]:.2f}", refresh=False)
    return dict(zip(("ranking", "embedding"), last, strict=True))


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
            folder.mkdir(parents=True, exist_ok=True)
            with faster_linear_layers():
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

    model, ids = _with_adapter(base, seed, settings)
    weights = {name: each for name, each in model.named_parameters() if each.requires_grad}
    backbone = model.get_base_model().model
    objectives = {
        "loss_emb": lambda b: _embedding_loss(backbone, b, temperature=settings.temperature),
        "loss_rerank": lambda b: _ranking_loss(
            backbone, model.get_output_embeddings().weight[ids], b
        ),
    }
    task, named = _MODES[mode]
    optimiser, schedule = _optimiser(weights.values(), settings)
    log, conflicts, recent = [], [], []
    for step, batch in enumerate(training, start=1):
        started = time.perf_counter()
        losses, gradients = {}, []
        for name in named:
            loss = objectives[name](batch)
            gradients.append(torch.autograd.grad(loss, list(weights.values())))
            losses[name] = float(loss.detach())
        recent.append(losses)
        logged = step % settings.log_every == 0
        if logged and len(gradients) == 2:
            conflicts.append(_conflict(step, list(weights), *gradients))
        for weight, *parts in zip(weights.values(), *gradients, strict=True):
            weight.grad = torch.stack(parts).sum(dim=0)
        norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimiser.step()
        if logged:
            means = _means(recent[-50:])
            line = {
                "step": step,
                "loss": sum(means.values()),
                "lr": float(schedule.get_last_lr()[0]),
                "epoch": 0,
                "task": task,
                "grad_norm": float(norm),
                "step_time_sec": time.perf_counter() - started,
                "timestamp": time.time(),
            }
            log.append({**line, **means})
        schedule.step()
    log.append(_summary(len(training), recent))
    config, final = _config(base, mode, seed, settings), folder / "checkpoints" / "final"
    with quietly():
        model.save_pretrained(str(final))
    # The path of the base model relative to the root, so that a checkout can be moved.
    adapter, name = final / "adapter_config.json", config["model"]["base_model_name"]
    write_json(adapter, {**read_json(adapter), "base_model_name_or_path": name}, indent=2)
    write_text(folder / "config.yaml", yaml.safe_dump(config, sort_keys=False))
    for file, rows in (("train_log", log), ("gradient_conflicts", conflicts)):
        if rows:
            lines = (json.dumps(row, allow_nan=False) + "\n" for row in rows)
            write_text(folder / f"{file}.jsonl", "".join(lines))
    return _means(recent[-50:])


def _with_adapter(base: Path, seed: int, settings: LoraSettings) -> tuple[Any, list[int]]:
    """Return the base model with a new adapter, and the token ids of no and yes."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ids = AutoTokenizer.from_pretrained(base).convert_tokens_to_ids(_WORDS)
    with quietly(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(base)
        sizes = {"r": settings.rank, "lora_alpha": settings.alpha, "lora_dropout": 0.0}
        lora = LoraConfig(**sizes, target_modules=_TARGETS)
        return get_peft_model(model, lora), ids


def _conflict(
    step: int, names: Sequence[str], first: Sequence[Tensor], second: Sequence[Tensor]
) -> dict[str, Any]:
    """Cosine of the two gradients, per parameter and on average."""
    cosines = {
        f"model.{name}": float(F.cosine_similarity(a.flatten(), b.flatten(), dim=0))
        for name, a, b in zip(names, first, second, strict=True)
    }
    return {
        "step": step,
        "mean_cosine_similarity": sum(cosines.values()) / len(cosines),
        "per_layer": cosines,
        "timestamp": time.time(),
    }


def _summary(steps: int, losses: list[dict[str, float]]) -> dict[str, Any]:
    means = {name.removeprefix("loss_"): value for name, value in _means(losses).items()}
    return {
        "type": "epoch_summary",
        "epoch": 0,
        "global_step": steps,
        "epoch_loss_mean": sum(means.values()),
        "epoch_steps": steps,
        "timestamp": time.time(),
        **{f"epoch_loss_{name}_mean": value for name, value in means.items()},
        **{f"epoch_{name}_steps": steps for name in means},
    }


def _config(base: Path, mode: str, seed: int, settings: LoraSettings) -> dict[str, Any]:
    """The content of ``config.yaml``, in the layout of the real adapter training."""
    return {
        "model": {"base_model_name": paths.shown(base), "torch_dtype": "float32", "device": "cpu"},
        "lora": {
            "rank": settings.rank,
            "alpha": settings.alpha,
            "dropout": 0.0,
            "target_modules": _TARGETS,
            "bias": "none",
        },
        "data": {"dataset_name": "PyDocs", "instruction_prefix": INSTRUCTION, "seed": seed},
        "training": {
            "mode": mode,
            "lr": settings.learning_rate,
            "steps": settings.steps,
            "batch_size_embedding": settings.batch,
            "batch_size_reranking": settings.batch * 2,
            "temperature": settings.temperature,
            "scoring_mode": "yes_no_logits",
            "gradient_conflict_every_n_steps": settings.log_every,
        },
        "demo": {**asdict(settings), "seeds": list(settings.seeds)},
        "seed": seed,
    }


def _means(losses: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: sum(each[name] for each in losses) / len(losses) for name in losses[0]}
