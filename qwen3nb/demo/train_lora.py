"""Train LoRA adapters on PyDocs: for ranking, for embedding, and for both.

    base/                                            the base model (`train_causal_lm`)
    outputs/<mode>_r<rank>/seed_<n>/checkpoints/final    its adapter, as PEFT writes it
                                    config.yaml, train_log.jsonl
                                    gradient_conflicts.jsonl   of the joint ones

All adapters take the same number of optimisation steps on the same examples, drawn before
the first step, so that they differ only in their objective. A joint step adds the
gradients of the two losses. They are computed separately, so that their cosine can be
measured without changing the training.

The base model is a toy: the method is real, the scores are not.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from qwen3nb import paths
from qwen3nb.demo.linear_training import faster_linear_layers
from qwen3nb.demo.objectives import Batch, batches, embedding_loss, ranking_loss, words
from qwen3nb.demo.train_causal_lm import warm_cosine
from qwen3nb.models.rerankers.prompt_template import INSTRUCTION
from qwen3nb.utils.atomic_files import read_json, write_json, write_text

__all__ = ["LORA", "LoraSettings", "train_adapters"]

MODES = ("rank_only", "emb_only", "joint")
_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True)
class LoraSettings:
    """Training of the demo's adapters.

    Attributes:
        steps: optimisation steps, for every mode.
        batch: queries per step.
        rank: rank of the adapters.
        alpha: scale of the adapters, multiplied by 1/rank.
        learning_rate: peak of the learning rate; linear warm-up over a tenth, then cosine.
        temperature: temperature of the contrastive loss.
        window: maximum tokens of a pair.
        length: maximum tokens of an embedded text.
        log_every: steps between entries of the log and of the gradient conflicts.
        seeds: one adapter is trained per mode and seed.
    """

    steps: int = 40
    batch: int = 8
    rank: int = 8
    alpha: int = 16
    learning_rate: float = 3e-3
    temperature: float = 0.05
    window: int = 192
    length: int = 64
    log_every: int = 5
    seeds: tuple[int, ...] = (42, 123)


LORA = LoraSettings()


def train_adapters(
    base: Path, outputs: Path, *, settings: LoraSettings = LORA, say: Callable[[str], Any] = print
) -> list[Path]:
    """Train one adapter per mode and seed, and return their folders.

    Args:
        base: the model of `train_base`, or any causal language model with the tokens yes
            and no.
        outputs: the folder to write to.
        settings: see `LoraSettings`.
        say: called with one line per adapter.
    """
    folders = []
    for seed in settings.seeds:
        training = batches(
            base, steps=settings.steps, size=settings.batch, window=settings.window,
            length=settings.length, seed=seed,
        )  # fmt: skip
        for mode in MODES:
            started = time.perf_counter()
            folder = outputs / f"{mode}_r{settings.rank}" / f"seed_{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            with faster_linear_layers():
                losses = _LoraTraining(base, folder, mode, seed, settings).train(training)
            shown = ", ".join(f"{name} {value:.2f}" for name, value in losses.items())
            say(f"{folder.parent.name} seed {seed}: {shown}, {time.perf_counter() - started:.0f} s")
            folders.append(folder / "checkpoints" / "final")
    return folders


class _LoraTraining:
    """The training of one adapter."""

    def __init__(
        self, base: Path, folder: Path, mode: str, seed: int, settings: LoraSettings
    ) -> None:
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._folder, self._mode, self._settings = folder, mode, settings
        self._config = _config(base, mode, seed, settings)
        tokenizer = AutoTokenizer.from_pretrained(base)
        self._words = words(tokenizer)
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

    def train(self, batches: Sequence[Batch]) -> dict[str, float]:
        """Train, write all files, and return the mean losses of the last steps."""
        import yaml

        optimiser = torch.optim.AdamW(self._weights.values(), lr=self._settings.learning_rate)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: warm_cosine(step, len(batches))
        )
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
        write_text(self._folder / "config.yaml", yaml.safe_dump(self._config, sort_keys=False))
        write_text(self._folder / "train_log.jsonl", _json_lines(log))
        if conflicts:
            write_text(self._folder / "gradient_conflicts.jsonl", _json_lines(conflicts))
        return means

    def _gradients(self, batch: Batch) -> tuple[dict[str, float], dict[str, list[Tensor]]]:
        """Return loss and gradient per objective of this mode."""
        objectives = {"loss_emb": self._embedding, "loss_rerank": self._ranking}
        wanted = {"rank_only": ["loss_rerank"], "emb_only": ["loss_emb"]}
        losses, gradients = {}, {}
        for name in wanted.get(self._mode, list(objectives)):
            loss = objectives[name](batch)
            gradients[name] = list(torch.autograd.grad(loss, list(self._weights.values())))
            losses[name] = float(loss.detach())
        return losses, gradients

    def _ranking(self, batch: Batch) -> Tensor:
        rows = self._model.get_output_embeddings().weight[self._words]
        return ranking_loss(self._model.get_base_model().model, rows, batch)

    def _embedding(self, batch: Batch) -> Tensor:
        backbone = self._model.get_base_model().model
        return embedding_loss(backbone, batch, temperature=self._settings.temperature)

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
        final = self._folder / "checkpoints" / "final"
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)
            self._model.save_pretrained(str(final))
        # The path of the base model relative to the root, so that a checkout can be moved.
        written = final / "adapter_config.json"
        base = self._config["model"]["base_model_name"]
        write_json(written, {**read_json(written), "base_model_name_or_path": base}, indent=2)


def _config(base: Path, mode: str, seed: int, settings: LoraSettings) -> dict[str, Any]:
    """The content of ``config.yaml``, in the layout of the real adapter training."""
    values = asdict(settings)
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
        "demo": {**values, "seeds": list(settings.seeds)},
        "seed": seed,
    }


def _means(losses: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: sum(each[name] for each in losses) / len(losses) for name in losses[0]}


def _json_lines(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
