"""Train LoRA adapters on PyDocs: to rank, to embed, and to do both.

    base/                                            a tiny language model
    outputs/<mode>_r<rank>/seed_<n>/checkpoints/final    its adapter, as PEFT writes it
                                    config.yaml, train_log.jsonl
                                    gradient_conflicts.jsonl   of the joint ones

All take the same number of optimisation steps on the same examples, drawn before the first
step, so that what joint training costs is not mixed up with what it was given. A joint step
adds the two losses' gradients, which are taken apart anyway: their cosine is measured on
the way, and measuring it changes nothing.

The base is a toy that saw a few hundred thousand tokens. What is real is the way, not the
scores: in a minute, embedding gets better and ranking hardly leaves chance (a loss of 0.69).
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from qwen3nb.demo.training import SETTINGS, Settings, train_decoder, training_texts, write_tokenizer
from qwen3nb.files import write_text
from qwen3nb.models.pairs import INSTRUCTION, TEMPLATES, PairTokens
from qwen3nb.tasks.embedded import pydocs_sample
from qwen3nb.tasks.pydocs import load_pydocs

__all__ = ["LORA", "LoraSettings", "train_adapters", "train_base"]

MODES = ("rank_only", "emb_only", "joint")
_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class LoraSettings:
    """How the demo's adapters are trained.

    Attributes:
        steps: optimisation steps, for every mode.
        batch: queries per step.
        rank: of the adapters.
        alpha: what their product is scaled by, over the rank.
        learning_rate: its peak; linear warm-up over a tenth, then cosine.
        temperature: of the contrastive loss.
        window: tokens of a pair.
        length: tokens of a text that is embedded.
        log_every: steps between lines of the log and of the gradient conflicts.
        seeds: one adapter per mode and seed.
    """

    steps: int = 60
    batch: int = 8
    rank: int = 8
    alpha: int = 16
    learning_rate: float = 5e-3
    temperature: float = 0.05
    window: int = 192
    length: int = 96
    log_every: int = 5
    seeds: tuple[int, ...] = (42, 123)


LORA = LoraSettings()


@dataclass(frozen=True)
class _Batch:
    """Rows of token ids: pairs with their label, queries and their documents."""

    pairs: list[list[int]]
    labels: list[int]
    queries: list[list[int]]
    documents: list[list[int]]


def train_base(folder: Path, settings: Settings = SETTINGS) -> Path:
    """Train a tiny language model whose tokenizer knows the reranker's template and words."""
    template = TEMPLATES["double-newline"]
    prompt = template.prefix + template.head(INSTRUCTION, "") + template.suffix
    texts, _ = training_texts()
    with tempfile.TemporaryDirectory() as tokenizer:
        write_tokenizer(
            [*texts, *[prompt, "yes", "no"] * 50], Path(tokenizer), vocabulary=settings.vocabulary
        )
        return train_decoder(folder, Path(tokenizer), settings)


def train_adapters(
    base: Path, outputs: Path, *, settings: LoraSettings = LORA, say: Callable[[str], Any] = print
) -> list[Path]:
    """Train one adapter per mode and seed; returns their folders.

    Args:
        base: from `train_base`, or any causal language model with yes and no as tokens.
        outputs: where they go.
        settings: see `LoraSettings`.
        say: takes a line per adapter.
    """
    folders = []
    for seed in settings.seeds:
        batches = _batches(base, settings, seed)
        for mode in MODES:
            started = time.perf_counter()
            place = outputs / f"{mode}_r{settings.rank}" / f"seed_{seed}"
            place.mkdir(parents=True, exist_ok=True)
            losses = _Run(base, place, mode, seed, settings).train(batches)
            shown = ", ".join(f"{name} {value:.2f}" for name, value in losses.items())
            say(f"{place.parent.name} seed {seed}: {shown}, {time.perf_counter() - started:.0f} s")
            folders.append(place / "checkpoints" / "final")
    return folders


def _batches(base: Path, settings: LoraSettings, seed: int) -> list[_Batch]:
    """All batches of a seed: each query with its own document and another one."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    pairs = PairTokens(
        tokenizer, template=TEMPLATES["double-newline"], instruction=INSTRUCTION,
        max_length=settings.window,
    )  # fmt: skip
    measured = {entry.name for entry in pydocs_sample().entries}
    entries = [entry for entry in load_pydocs().entries if entry.name not in measured]
    generator = np.random.default_rng(seed)
    return [
        _batch(tokenizer, pairs, [entries[i] for i in picks], settings)
        for picks in generator.integers(0, len(entries), size=(settings.steps, settings.batch))
    ]


def _batch(
    tokenizer: Any, pairs: PairTokens, entries: Sequence[Any], settings: LoraSettings
) -> _Batch:
    rows, labels = [], []
    for index, entry in enumerate(entries):
        other = entries[(index + 1) % len(entries)]
        found = pairs.rows(entry.summary, [entry.text, other.text])
        rows += [[*found.shared, *rest] for rest in found.rests]
        labels += [1, int(other.text == entry.text)]
    end = tokenizer.eos_token_id

    def texts(values: list[str]) -> list[list[int]]:
        ids = tokenizer(values, truncation=True, max_length=settings.length - 1).input_ids
        return [[*row, end] for row in ids]

    queries = [f"Instruct: {INSTRUCTION}\nQuery:{entry.summary}" for entry in entries]
    return _Batch(rows, labels, texts(queries), texts([entry.text for entry in entries]))


class _Run:
    """One training."""

    def __init__(
        self, base: Path, place: Path, mode: str, seed: int, settings: LoraSettings
    ) -> None:
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._place, self._mode, self._settings = place, mode, settings
        self._config = _config(base, mode, seed, settings)
        tokenizer = AutoTokenizer.from_pretrained(base)
        self._words = tokenizer.convert_tokens_to_ids(["no", "yes"])
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.filterwarnings("ignore", category=FutureWarning)
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_pretrained(base)
            lora = LoraConfig(
                r=settings.rank, lora_alpha=settings.alpha, lora_dropout=0.0,
                target_modules=_TARGETS,
            )  # fmt: skip
            self._model = get_peft_model(model, lora)
        self._weights = {n: p for n, p in self._model.named_parameters() if p.requires_grad}

    def train(self, batches: Sequence[_Batch]) -> dict[str, float]:
        """Train, write everything, and return the mean losses of the last steps."""
        import yaml

        optimiser = torch.optim.AdamW(self._weights.values(), lr=self._settings.learning_rate)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, self._rate)
        log, conflicts, recent = [], [], []
        for step, batch in enumerate(batches, start=1):
            started = time.perf_counter()
            losses, gradients = self._gradients(batch)
            logged = step % self._settings.log_every == 0
            if logged and len(gradients) == 2:
                conflicts.append(self._conflict(step, *gradients.values()))
            norm = self._step(optimiser, list(gradients.values()))
            recent.append(losses)
            if logged:
                rate = float(schedule.get_last_lr()[0])
                log.append(self._line(step, recent[-50:], rate, norm, started))
            schedule.step()
        means = _means(recent[-50:])
        log.append(self._summary(len(batches), recent))
        self._save()
        write_text(self._place / "config.yaml", yaml.safe_dump(self._config, sort_keys=False))
        write_text(self._place / "train_log.jsonl", _json_lines(log))
        if conflicts:
            write_text(self._place / "gradient_conflicts.jsonl", _json_lines(conflicts))
        return means

    def _rate(self, step: int) -> float:
        steps = self._settings.steps
        warm = max(1, steps // 10)
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + float(np.cos(np.pi * (step - warm) / max(1, steps - warm))))

    def _gradients(self, batch: _Batch) -> tuple[dict[str, float], dict[str, list[Tensor]]]:
        """Loss and gradient per objective of this mode."""
        objectives = {"loss_emb": self._embedding, "loss_rerank": self._ranking}
        wanted = {"rank_only": ["loss_rerank"], "emb_only": ["loss_emb"]}
        losses, gradients = {}, {}
        for name in wanted.get(self._mode, list(objectives)):
            loss = objectives[name](batch)
            gradients[name] = list(torch.autograd.grad(loss, list(self._weights.values())))
            losses[name] = float(loss.detach())
        return losses, gradients

    def _ranking(self, batch: _Batch) -> Tensor:
        """Cross-entropy of yes and no at the last position (Qwen3-Reranker's objective)."""
        states = self._last_states(batch.pairs)
        rows = self._model.get_output_embeddings().weight[self._words]
        return F.cross_entropy(states @ rows.T, torch.tensor(batch.labels))

    def _embedding(self, batch: _Batch) -> Tensor:
        """InfoNCE over the batch (van den Oord et al. 2018), last token, cosine."""
        queries, documents = (
            F.normalize(self._last_states(rows), dim=-1)
            for rows in (batch.queries, batch.documents)
        )
        scores = queries @ documents.T / self._settings.temperature
        return F.cross_entropy(scores, torch.arange(len(scores)))

    def _last_states(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """States (B, H) of the last token of B rows, padded on the right."""
        lengths = torch.tensor([len(row) for row in rows])
        ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
        for line, row in zip(ids, rows, strict=True):
            line[: len(row)] = torch.tensor(row)
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        backbone = self._model.get_base_model().model
        states = backbone(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        last: Tensor = states[torch.arange(len(rows)), lengths - 1]
        return last

    def _step(self, optimiser: torch.optim.Optimizer, gradients: list[list[Tensor]]) -> float:
        for index, weight in enumerate(self._weights.values()):
            weight.grad = torch.stack([each[index] for each in gradients]).sum(dim=0)
        norm = torch.nn.utils.clip_grad_norm_(list(self._weights.values()), 1.0)
        optimiser.step()
        return float(norm)

    def _conflict(
        self, step: int, first: Sequence[Tensor], second: Sequence[Tensor]
    ) -> dict[str, Any]:
        """Cosine of the two gradients, per parameter and on average."""
        cosines = {
            f"model.{name}": float(F.cosine_similarity(a.flatten(), b.flatten(), dim=0))
            for name, a, b in zip(self._weights, first, second, strict=True)
        }
        mean = sum(cosines.values()) / len(cosines)
        return {
            "step": step,
            "mean_cosine_similarity": mean,
            "per_layer": cosines,
            "timestamp": time.time(),
        }

    def _line(
        self, step: int, recent: list[dict[str, float]], rate: float, norm: float, started: float
    ) -> dict[str, Any]:
        means = _means(recent)
        task = {"rank_only": "reranking", "emb_only": "embedding"}.get(self._mode, "joint")
        return {
            "step": step,
            "loss": sum(means.values()),
            "lr": rate,
            "epoch": 0,
            "task": task,
            "grad_norm": norm,
            "step_time_sec": time.perf_counter() - started,
            "timestamp": time.time(),
            **means,
        }

    def _summary(self, steps: int, losses: list[dict[str, float]]) -> dict[str, Any]:
        means = _means(losses)
        short = {name.removeprefix("loss_"): value for name, value in means.items()}
        parts = {f"epoch_loss_{name}_mean": value for name, value in short.items()}
        return {
            "type": "epoch_summary",
            "epoch": 0,
            "global_step": steps,
            "epoch_loss_mean": sum(means.values()),
            "epoch_steps": steps,
            "timestamp": time.time(),
            **parts,
            **{f"epoch_{name}_steps": steps for name in short},
        }

    def _save(self) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)
            self._model.save_pretrained(str(self._place / "checkpoints" / "final"))


def _config(base: Path, mode: str, seed: int, settings: LoraSettings) -> dict[str, Any]:
    """What ``config.yaml`` says, in the layout of the training that adapters come from."""
    values = asdict(settings)
    return {
        "model": {"base_model_name": str(base), "torch_dtype": "float32", "device": "cpu"},
        "lora": {
            "rank": settings.rank,
            "alpha": settings.alpha,
            "dropout": 0.0,
            "target_modules": _TARGETS,
            "bias": "none",
        },
        "data": {"dataset_name": "PyDocs", "instruction_prefix": INSTRUCTION},
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
        "demo": {**values, "seeds": list(settings.seeds)},
        "seed": seed,
    }


def _means(losses: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: sum(each[name] for each in losses) / len(losses) for name in losses[0]}


def _json_lines(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
