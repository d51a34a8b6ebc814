"""The demo's trainings: the Trainer of transformers, with faster layers on CPUs.

PyTorch's float32 products use MKL, which leaves half of an AMD processor idle for layers as narrow
as the demo's (`qwen3nb.models.inference.onednn_linear`); they take two thirds of a step. Forward
and backward passes use oneDNN if `linear_library` selects it. Gradients equal those of ``F.linear``
up to rounding.
"""

import logging
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from transformers import (
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback

from qwen3nb.models.gate.weights import quiet_transformers
from qwen3nb.models.inference.onednn_linear import linear_library
from qwen3nb.utils.atomic_files import write_json
from qwen3nb.utils.progress import tqdm

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Trainer = TypeVar("_Trainer", bound=Trainer)
_Example = TypeVar("_Example")


@dataclass(frozen=True)
class Schedule:
    """Common settings of trainings by the Trainer."""

    steps: int  # optimisation steps
    save_every: int  # steps between checkpoints; step 0 is saved separately
    batch: int  # texts, or pairs of them, per step
    length: int  # maximum tokens of a text in training
    learning_rate: float = 3e-3  # peak of the learning rate; linear warm-up, then cosine
    seed: int = 0  # of everything random


def train(
    kind: Callable[..., _Trainer],
    folder: Path,
    schedule: Schedule,
    *,
    name: str,
    model: PreTrainedModel,
    examples: Sequence[_Example],
    held_out: Sequence[_Example],
    collate: Callable[[Sequence[_Example]], dict[str, Tensor]],
    callbacks: Sequence[TrainerCallback] = (),
    checkpoints: bool = True,
) -> _Trainer:
    """Train in one thread, with a checkpoint and a log every few steps; return the trainer."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=schedule.steps,
        per_device_train_batch_size=schedule.batch,
        per_device_eval_batch_size=schedule.batch,
        learning_rate=schedule.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, schedule.steps // 10),
        weight_decay=0.01,
        logging_steps=max(1, schedule.save_every // 5),
        eval_strategy="steps",
        eval_steps=schedule.save_every,
        save_strategy="steps" if checkpoints else "no",
        save_steps=schedule.save_every,
        save_only_model=True,
        seed=schedule.seed,
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels"],
    )
    with quietly(), faster_linear_layers():
        trainer = kind(
            args=arguments,
            model=model,
            train_dataset=examples,
            eval_dataset=held_out,
            data_collator=collate,
            callbacks=[_TrainingBar(name), _CopyTokenizer(folder / "tokenizer"), *callbacks],
        )
        trainer.remove_callback(PrinterCallback)  # prints every log entry as a dictionary
        trainer.train()
    return trainer


def describe(folder: Path, settings: "DataclassInstance", facts: Mapping[str, object]) -> None:
    """Write ``training.json``, from which model cards are written."""
    description = {
        **facts,
        "settings": asdict(settings),
        "hardware": "CPU",
        "language": ["en"],
        "toy": True,
    }
    write_json(folder / "training.json", description, indent=2)


class _TrainingBar(TrainerCallback):
    def __init__(self, name: str) -> None:
        self._name = name
        self._bar = tqdm(disable=True)  # until the training begins

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._bar = tqdm(total=state.max_steps, desc=f"training: {self._name}", unit="step")

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._bar.update(1)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._bar.close()


class _CopyTokenizer(TrainerCallback):
    """Copy the tokenizer files into each checkpoint unchanged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        if self._folder.is_dir():
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            shutil.copytree(self._folder, checkpoint, dirs_exist_ok=True)


def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    """Return rows of numbers as a tensor (B, T), padded on the right."""
    width = max(len(row) for row in rows)
    full_rows = []
    for row in rows:
        padding = [fill] * (width - len(row))
        full_rows.append([*row, *padding])
    return torch.tensor(full_rows)


class ToySizes(TypedDict):
    """The common configuration of toys, by the names of transformers."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    initializer_range: float
    max_position_embeddings: int
    pad_token_id: int
    eos_token_id: int


def toy_sizes(*, vocabulary: int, hidden: int, layers: int, spread: float, end: int) -> ToySizes:
    """Return the common configuration of toys.

    The embedding is padded to a multiple of 64 rows. ``spread`` is the standard deviation of the
    initial weights, and ``end`` the id of the token at the end of a text.
    """
    return {
        "vocab_size": 64 * math.ceil(vocabulary / 64),  # padded to a multiple of 64
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,  # as in Qwen3-0.6B
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,  # each shared by two attention heads
        "initializer_range": spread,
        "max_position_embeddings": 512,
        "pad_token_id": end,
        "eos_token_id": end,
    }


def toy_qwen3(sizes: ToySizes, *, use_cache: bool = True) -> PreTrainedModel:
    """Return a toy language model with random weights."""
    config = Qwen3Config(
        **sizes,
        head_dim=32,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        use_cache=use_cache,
    )
    return Qwen3ForCausalLM(config)


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress the progress bars and notices of transformers."""
    with quiet_transformers(logging.ERROR), warnings.catch_warnings():
        # Suppress the Trainer's warning on pickled arguments, which nothing reads.
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield


def faster_linear_layers() -> AbstractContextManager[object]:
    """Return a context in which ``F.linear`` without a bias uses the faster library."""
    if linear_library() == "onednn":
        return _InOneDNN()
    return nullcontext()


class _InOneDNN(TorchFunctionMode):
    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        if function is F.linear and len(args) == 3 and not kwargs:
            states, weight, bias = args
            if bias is None:
                return _Linear.apply(states, weight)
        return function(*args, **(kwargs or {}))


class _Linear(torch.autograd.Function):
    """States (..., I) times weight (O, I) transposed: (..., O)."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(states, weight)
        return _product(states, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        # Of y = x @ W.T, with the gradient g of y: g @ W for x, and g.T @ x for W.
        states, weight = ctx.saved_tensors
        needs_states, needs_weight = ctx.needs_input_grad
        gradient_of_states = None
        if needs_states:
            gradient_of_states = _product(gradient, weight.T)
        gradient_of_weight = None
        if needs_weight:
            gradient_rows = gradient.flatten(0, -2)
            state_rows = states.flatten(0, -2)
            # The product takes its second factor transposed.
            gradient_of_weight = _product(state_rows.T, gradient_rows.T).T.contiguous()
        return gradient_of_states, gradient_of_weight


def _product(states: Tensor, weight: Tensor) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, None, "none", [], "")
    return out
