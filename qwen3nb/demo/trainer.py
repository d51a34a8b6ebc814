"""What the demo's trainings with the Trainer of transformers share: arguments and callbacks."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainingArguments

from qwen3nb.utils.progress import tqdm

__all__ = ["checkpoint_callbacks", "copy_files", "quietly", "silence", "training_arguments"]


def training_arguments(
    folder: Path,
    *,
    steps: int,
    save_every: int,
    batch: int,
    learning_rate: float,
    seed: int,
    checkpoints: bool = True,
) -> TrainingArguments:
    """Arguments of the Trainer: one thread's work, a checkpoint and a log every few steps."""
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch,
        learning_rate=learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, steps // 10),
        weight_decay=0.01,
        logging_steps=max(1, save_every // 5),
        eval_strategy="steps",
        eval_steps=save_every,
        save_strategy="steps" if checkpoints else "no",
        save_steps=save_every,
        save_only_model=True,
        seed=seed,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        label_names=["labels"],
    )


def checkpoint_callbacks(name: str, tokenizer: Path) -> list[TrainerCallback]:
    """A progress bar called ``name``, and the tokenizer's files in every checkpoint."""
    return [_TrainingBar(name), _CopyTokenizer(tokenizer)]


def silence(trainer: Trainer) -> None:
    """Remove the callback that prints every log entry as a dictionary."""
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)


class _TrainingBar(TrainerCallback):
    """A progress bar with loss and evaluation loss."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bar: Any = None
        self._shown: dict[str, str] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar = tqdm(total=state.max_steps, desc=f"training: {self._name}", unit="step")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.update(1)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        for key in ("loss", "eval_loss"):
            if key in logs:
                self._shown[key] = f"{float(logs[key]):.2f}"
        self._bar.set_postfix(self._shown)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar.close()


class _CopyTokenizer(TrainerCallback):
    """Copy the tokenizer files into each checkpoint unchanged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._folder.is_dir():
            copy_files(self._folder, Path(args.output_dir) / f"checkpoint-{state.global_step}")


def copy_files(source: Path, target: Path) -> None:
    """Copy the files of a folder into another."""
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        shutil.copyfile(file, target / file.name)


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress the progress bars and notices of transformers."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # Trainer warns that it saves its arguments as a pickle; nothing here reads it.
            warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
