"""An evaluator for the trainers of transformers and of sentence-transformers."""

from __future__ import annotations

import copy
import json
import logging
import math
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from transformers import TrainerCallback

from qwen3nb.evaluation.training.measures import Data, Measure, find_measures
from qwen3nb.evaluation.training.trained_encoder import TrainedEncoder
from qwen3nb.evaluation.training.undisturbed import undisturbed
from qwen3nb.extraction.export import ExportOptions
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.encoders.wrapped import WrappedEncoder
from qwen3nb.models.modeling.runtime import load_tokenizer
from qwen3nb.models.modeling.tokenizer_template import surround
from qwen3nb.models.types import EncoderError, SpecError
from qwen3nb.utils.atomic_files import write_text

__all__ = ["TrainingEvaluator"]

log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class TrainingEvaluator(BaseEvaluator, TrainerCallback):
    """Scores a model while it is trained, and logs the score for ``average --best``.

    One object for two trainers:

    - ``SentenceTransformerTrainer(evaluator=…)`` of sentence-transformers: the model is scored at
      each evaluation, with its own prompts and pooling.
    - ``Trainer(callbacks=[…])`` of transformers: the encoder of a Qwen3 encoder-decoder is scored,
      bidirectionally, as `extract` would export it with these options. The model is not copied.
      It is scored at each evaluation of the trainer, and with each checkpoint of a step that was
      not evaluated. A SentenceTransformer can be trained with this callback too.

    Either way, `metric` is in ``trainer_state.json`` of each checkpoint, at its step::

        qwen3nb average RUN OUTPUT --best 3 --metric eval_smoke --higher-is-better

    ``metric_for_best_model`` and ``load_best_model_at_end`` work with it. Beside it are logged
    the seconds, as ``eval_<name>_runtime``, and with several sets the score on each, as
    ``eval_<name>_<set>``.

    The training goes on as if it had not been evaluated, to the same weights: modes and random
    states are restored. Under distributed training, the main process evaluates
    (``state.is_world_process_zero``) while the others wait for its scores; weights that are
    sharded (FSDP, ZeRO-3) are refused. Vectors are computed in the dtype of the weights, and
    nothing is kept in the embedding cache. If a model has no score, because its vectors are not
    finite or a correlation is undefined, NaN is logged with a warning. Reporters such as
    TensorBoard get the score from sentence-transformers' trainer only.

    Checkpoints that are selected by a score look better on that data than they are. Select on
    development data, not on what you report.

    Args:
        data: test collections or their folders (scored by nDCG@10), and sentence pairs or
            their files (by Spearman's correlation, as in `evaluate_sts`), one or several,
            instead of a tier.
        tier: name of a tier, a small one; its tasks are scored by their main metrics.
        tasks: MTEB tasks instead of a tier, as in `qwen3nb.evaluate`.
        limit: maximum number of queries and rows of a task; 0 for no limit.
        name: name of the score, which is the mean over all sets; by default that of the
            tier, of the only set, or ``mean``.
        tokenizer: of an encoder-decoder: a tokenizer of transformers or its folder; None for
            the trainer's ``processing_class``. It is copied.
        pooling: of an encoder-decoder, and so are the options below: one of `POOLINGS`.
        normalize: whether vectors get length 1.
        max_length: maximum number of tokens per text.
        prefix: text prepended to every input, such as ``[R]``.
        append_eos: whether the end-of-text token follows every input.
        prompts: text prepended by role, as in `load_encoder`.
        batch_size: texts per batch.

    Attributes:
        name: name of the score, such as ``smoke``.
        metric: its name in the log, such as ``eval_smoke``.

    Raises:
        ValueError: an unknown tier, task or pooling; a ``name`` that is not of letters,
            digits and ``._-``; both ``data`` and ``tasks``; or two sets of one name.
        DataError: data that cannot be read.
    """

    def __init__(
        self,
        data: Data | Iterable[Data] | None = None,
        *,
        tier: str = "smoke",
        tasks: Iterable[Any] | str | None = None,
        limit: int = 0,
        name: str = "",
        tokenizer: Any = None,
        pooling: str = "mean",
        normalize: bool = True,
        max_length: int = 512,
        prefix: str = "",
        append_eos: bool = False,
        prompts: Mapping[str, str] | None = None,
        batch_size: int = 32,
    ) -> None:
        """Choose the data, and how the encoder of an encoder-decoder is used."""
        super().__init__()
        self._measures = find_measures(
            data, tier=tier, tasks=tasks or None, limit=limit, batch_size=batch_size
        )
        given = data is not None or bool(tasks)
        only = self._measures[0].name if len(self._measures) == 1 else "mean"
        self.name = _checked(name.removeprefix("eval_") or (only if given else tier))
        self.primary_metric = self.name
        self._options = ExportOptions(
            pooling=pooling, normalize=normalize, max_length=max_length, prefix=prefix,
            append_eos=append_eos, prompts=dict(prompts or {}),
        )  # fmt: skip
        self._tokenizer = tokenizer
        self._copied: tuple[Any, Any] | None = None  # a given tokenizer, and the copy that is used
        self._batch_size = batch_size
        self._training = False

    @property
    def metric(self) -> str:
        """The name of the score in ``log_history``."""
        return f"eval_{self.name}"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the scores of ``model`` by name, without ``eval_``; nothing is written.

        Args:
            model: a SentenceTransformer, or an encoder-decoder, which needs a ``tokenizer``.
            output_path: not used; sentence-transformers gives it.
            epoch: for the model card of a SentenceTransformer.
            steps: likewise.

        Raises:
            SpecError: another kind of model, or no tokenizer.
        """
        scores = self._scores(model, None)
        if hasattr(model, "model_card_data"):
            self.store_metrics_in_model_card_data(model, scores, epoch, steps)
        return scores

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any = None, **trainer: Any
    ) -> None:
        """Refuse a model that cannot be scored before it is trained for hours.

        Raises:
            SpecError: as `__call__`, or weights that are sharded over processes.
        """
        self._training = True
        _check_whole(model)
        with undisturbed(model):
            self._encoder(model, trainer.get("processing_class"))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Forget the training: what is evaluated now may be another model of the same step."""
        self._training = False

    def on_evaluate(
        self, args: Any, state: Any, control: Any, *, metrics: Any = None, **trainer: Any
    ) -> None:
        """Score the model, and add the scores to the trainer's metrics and to its log."""
        metrics = {} if metrics is None else metrics
        if self.metric not in metrics:  # as it is if this is the trainer's evaluator too
            metrics.update((self._training and self._logged(state)) or self._log(state, **trainer))

    def on_save(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:
        """Score the model of a checkpoint whose step was not evaluated, and add it to its state."""
        if self._logged(state):
            return
        self._log(state, **trainer)
        if state.is_world_process_zero:
            _rewrite_log(Path(args.output_dir) / f"checkpoint-{state.global_step}", state)

    def _logged(self, state: Any) -> dict[str, float]:
        """Return the scores that the log has of this step, under their names there."""
        for entry in reversed(state.log_history):
            if entry.get("step") == state.global_step and self.metric in entry:
                return {key: entry[key] for key in map("eval_{}".format, self._names)}
        return {}

    @property
    def _names(self) -> list[str]:
        several = [each.name for each in self._measures] if len(self._measures) > 1 else []
        return [self.name, *(f"{self.name}_{each}" for each in several), f"{self.name}_runtime"]

    def _log(
        self, state: Any, *, model: Any = None, processing_class: Any = None, **_: Any
    ) -> dict[str, float]:
        """Score the model in the main process; add the scores to the log of every process."""
        own = self._scores(model, processing_class) if state.is_world_process_zero else {}
        scores = {f"eval_{name}": value for name, value in _of_main_process(own).items()}
        entry = {**scores, "step": state.global_step}
        state.log_history.append(entry if state.epoch is None else {**entry, "epoch": state.epoch})
        return scores

    def _scores(self, model: Any, tokenizer: Any) -> dict[str, float]:
        started = time.perf_counter()
        with undisturbed(model):
            encoder = self._encoder(model, tokenizer)
            values = [_value(each, encoder) for each in self._measures]
        mean = sum(values) / len(values)
        seconds = time.perf_counter() - started
        log.info("%s %.4f, in %.1f s", self.name, mean, seconds)
        each = values if len(values) > 1 else []
        return dict(zip(self._names, [mean, *each, seconds], strict=True))

    def _encoder(self, model: Any, tokenizer: Any) -> Encoder:
        if isinstance(model, SentenceTransformer):
            return WrappedEncoder(model, batch_size=self._batch_size, show_progress=False)
        return TrainedEncoder(
            model, self._own_tokenizer(model, tokenizer), self._options,
            batch_size=self._batch_size,
        )  # fmt: skip

    def _own_tokenizer(self, model: Any, given: Any) -> Any:
        """Return a tokenizer with prefix and end token that the training does not use."""
        given = given if self._tokenizer is None else self._tokenizer
        if given is None:
            raise SpecError(
                f"no tokenizer for {type(model).__name__}: expected tokenizer= of "
                "TrainingEvaluator, or processing_class= of the trainer"
            )
        if self._copied is None or self._copied[0] is not given:
            stored = isinstance(given, str | Path)
            own = load_tokenizer(Path(given), model.config) if stored else copy.deepcopy(given)
            if self._options.prefix or self._options.append_eos:
                end = own.eos_token if self._options.append_eos else None
                surround(own.backend_tokenizer, prefix=self._options.prefix, end=end)
            self._copied = given, own
        return self._copied[1]


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a name of letters, digits and ._-; got {name!r:.60}")
    return name


def _check_whole(model: torch.nn.Module) -> None:
    """Refuse weights of which a process has a part: the main process cannot score them alone."""
    fsdp = any(type(each).__name__ == "FullyShardedDataParallel" for each in model.modules())
    marks = ("full_tensor", "ds_id")  # of FSDP's second version and of DeepSpeed's ZeRO-3
    if fsdp or any(hasattr(each, mark) for each in model.parameters() for mark in marks):
        raise SpecError(
            f"{type(model).__name__}: its weights are sharded over processes (FSDP, ZeRO-3), so "
            "that no process can score it alone; score the checkpoints: qwen3nb eval --checkpoint "
            "FOLDER"
        )


def _value(measure: Measure, encoder: Encoder) -> float:
    """Return the score on one set; NaN, with a warning, if the model has none."""
    try:
        aggregate = measure.aggregate(encoder)
    except EncoderError as error:
        value, reason = None, str(error)
    else:
        value, reason = aggregate.value, aggregate.undefined
    if value is None:
        log.warning("%s: no score, NaN is logged (%s)", measure.name, reason)
        return math.nan
    return value


def _of_main_process(scores: dict[str, float]) -> dict[str, float]:
    """Return the scores that the main process has, in every process."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        shared = [scores]
        distributed.broadcast_object_list(shared, src=0)
        return shared[0]
    return scores


def _rewrite_log(checkpoint: Path, state: Any) -> None:
    """Put the log into the state of a checkpoint that was written before its last entry."""
    file = checkpoint / "trainer_state.json"
    if not file.is_file():
        log.warning("%s: not there, so the score is in the next checkpoint's only", file)
        return
    written = json.loads(file.read_bytes()) | {"log_history": state.log_history}
    # As transformers writes it: a loss or a score may be NaN.
    write_text(file, json.dumps(written, indent=2, sort_keys=True) + "\n")
