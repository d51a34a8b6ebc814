"""An evaluator for the trainers of transformers and of sentence-transformers.

Custom retrieval data are scored by nDCG@10 and sentence pairs by Spearman's correlation, with the
same results as `qwen3nb.evaluate` and `evaluate_sts`. Vectors, runs and records are not stored.
"""

import copy
import json
import logging
import math
import random
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from transformers import TrainerCallback
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.names import EMBEDDINGS, MODEL_TYPES, encoder_name
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.evaluation.embeddings.sts import STSPairs, evaluate_sts, read_pairs
from qwen3nb.evaluation.evaluate import CollectionItem
from qwen3nb.evaluation.retrieval.first_stage import search_collection
from qwen3nb.extraction.export import ExportOptions
from qwen3nb.metrics.aggregate import Aggregate, means
from qwen3nb.metrics.retrieval import RECORDED, score_run
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.encoders.wrapped import WrappedEncoder
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.kinds.prompts import named_prompts
from qwen3nb.models.kinds.source import IN_MEMORY, Source
from qwen3nb.models.modeling.configuration import encoder_config
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel, causal_leak, states_of
from qwen3nb.models.modeling.runtime import load_tokenizer, special_tokens, token_rows
from qwen3nb.models.modeling.tokenizer_template import surround
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import EncoderError, SpecError, Vectors
from qwen3nb.utils.atomic_files import write_text

log = logging.getLogger(__name__)
_SCORE_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class TrainingEvaluator(BaseEvaluator, TrainerCallback):
    """Scores a model during training, and logs the score for ``average --best``.

    It works with two trainers:

    - ``SentenceTransformerTrainer(evaluator=…)`` of sentence-transformers: the model is scored at
      each evaluation, with its own prompts and pooling.
    - ``Trainer(callbacks=[…])`` of transformers: the encoder of a Qwen3 encoder-decoder is scored,
      bidirectionally, as exported by `extract` with these options, at each evaluation and at
      checkpoints of other steps. It also accepts a SentenceTransformer.

    In both cases, `metric` is in ``trainer_state.json`` of each checkpoint, at its step::

        qwen3nb average RUN OUTPUT --best 3 --metric eval_dev

    ``metric_for_best_model`` and ``load_best_model_at_end`` work with it. The seconds are logged as
    ``eval_<name>_runtime``. Use one evaluator per data set.

    Evaluation does not affect the trained weights: modes and random states are restored, and
    weights are not copied. In distributed training, the main process evaluates while the others
    wait; sharded weights (FSDP, ZeRO-3) are refused. If vectors are not finite or a correlation is
    undefined, the score is logged as NaN with a warning.

    Scores of selected checkpoints are biased upwards on the data used for selection. Select on
    development data, and report scores on other data.

    Args:
        data: a test collection or its folder (scored by nDCG@10), or sentence pairs or
            their file (by Spearman's correlation, as in `evaluate_sts`).
        name: name of the score; by default the name of the data.
        tokenizer: for an encoder-decoder, a tokenizer of transformers or its folder, which is
            copied; None for the trainer's ``processing_class``.
        batch_size: texts per batch.
        options: for an encoder-decoder, as in `extract`: ``pooling``, ``normalize``,
            ``max_length``, ``prefix``, ``append_eos`` and ``prompts``.

    Attributes:
        name: name of the score, such as ``dev``.
        metric: its name in the log, such as ``eval_dev``.

    Raises:
        ValueError: an unknown pooling, a ``name`` with other characters than letters, digits and
            ``._-``, or a folder of several collections.
        DataError: data that cannot be read.
    """

    def __init__(
        self,
        data: TestCollection | STSPairs | Path | str,
        *,
        name: str = "",
        tokenizer: Any = None,
        batch_size: int = 32,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(data, str | Path):
            file = Path(data).expanduser()
            if file.is_file():
                data = read_pairs(file)
            else:
                data = _only(find_collections(data))
        self._data = data
        self.name = name.removeprefix("eval_") or data.name  # the log adds ``eval_``
        if not _SCORE_NAME.fullmatch(self.name):
            raise ValueError(f"expected a name of letters, digits and ._-; got {self.name!r:.60}")
        self.primary_metric = self.name
        self._options = ExportOptions(**options)
        self._tokenizer = tokenizer
        self._batch_size = batch_size
        self._training = False

    @property
    def metric(self) -> str:
        """The name of the score in ``log_history``."""
        return f"eval_{self.name}"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the scores of ``model`` by name, without ``eval_``; writes nothing.

        ``epoch`` and ``steps`` are for the model card of a SentenceTransformer.

        Raises:
            SpecError: neither a SentenceTransformer nor an encoder-decoder with a tokenizer.
        """
        scores = self._scores(model, None)
        if hasattr(model, "model_card_data"):
            self.store_metrics_in_model_card_data(model, scores, epoch, steps)
        return scores

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any = None, **trainer: Any
    ) -> None:
        """Refuse a model that cannot be scored, or is sharded, before training starts."""
        self._training = True
        # The main process has only a part of sharded weights.
        if _is_sharded(model):
            raise SpecError(
                f"{type(model).__name__}: its weights are sharded over processes (FSDP, ZeRO-3), "
                "so no process can score it alone; score the checkpoints: qwen3nb eval "
                "--checkpoint FOLDER"
            )
        # Made only to raise the error of an unsuitable model now, and not after an hour.
        with undisturbed(model):
            self._encoder(model, trainer.get("processing_class"))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Reset: the next model may be another one at the same step."""
        self._training = False

    def on_evaluate(
        self, args: Any, state: Any, control: Any, *, metrics: Any = None, **trainer: Any
    ) -> None:
        """Score the model, and add the scores to the trainer's metrics and to its log."""
        if metrics is None:
            metrics = {}
        if self.metric in metrics:  # this is also the trainer's evaluator
            return
        scores: dict[str, float] = {}
        # Outside of training, the log may be of another model at the same step.
        if self._training:
            scores = self._logged_scores(state)
        if not scores:
            scores = self._score_and_log(state, **trainer)
        metrics.update(scores)

    def on_save(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:
        """Score the model at a checkpoint whose step was not evaluated, and add it to its state."""
        if self._logged_scores(state):  # `on_evaluate` has scored this step
            return
        self._score_and_log(state, **trainer)
        if not state.is_world_process_zero:
            return
        # The state of the checkpoint was written before the last entry of the log.
        file = Path(args.output_dir) / f"checkpoint-{state.global_step}" / "trainer_state.json"
        if not file.is_file():
            log.warning("%s: missing, so the score is only in the next checkpoint", file)
            return
        trainer_state = json.loads(file.read_bytes()) | {"log_history": state.log_history}
        # As written by transformers: a loss or a score may be NaN.
        write_text(file, json.dumps(trainer_state, indent=2, sort_keys=True) + "\n")

    def _logged_scores(self, state: Any) -> dict[str, float]:
        """Return the scores of this step in the log, by their names there."""
        for entry in reversed(state.log_history):
            if entry.get("step") == state.global_step and self.metric in entry:
                return {key: entry[key] for key in (self.metric, f"{self.metric}_runtime")}
        return {}

    def _score_and_log(
        self, state: Any, *, model: Any = None, processing_class: Any = None, **_: object
    ) -> dict[str, float]:
        """Score the model in the main process; add the scores to the log of every process."""
        scores: dict[str, float] = {}
        if state.is_world_process_zero:
            scores = self._scores(model, processing_class)
        # The other processes wait here, so that all log the same.
        scores = _of_main_process(scores)
        scores = {f"eval_{name}": value for name, value in scores.items()}
        entry = {**scores, "step": state.global_step}
        if state.epoch is not None:
            entry["epoch"] = state.epoch
        state.log_history.append(entry)
        return scores

    def _scores(self, model: Any, tokenizer: Any) -> dict[str, float]:
        started = time.perf_counter()
        with undisturbed(model):
            encoder = self._encoder(model, tokenizer)
            value = self._value(encoder)
        seconds = time.perf_counter() - started
        log.info("%s %.4f, in %.1f s", self.name, value, seconds)
        return {self.name: value, f"{self.name}_runtime": seconds}

    def _value(self, encoder: Encoder) -> float:
        """Return the score; NaN, with a warning, if the model has none."""
        try:
            score = self._score(encoder)
            value, reason = score.value, score.undefined
        except EncoderError as error:
            value, reason = None, str(error)
        if value is None:
            log.warning("%s: no score, NaN is logged (%s)", self.name, reason)
            return math.nan
        return value

    def _score(self, encoder: Encoder) -> Aggregate:
        """Return Spearman's correlation of pairs, or nDCG@10 of a collection."""
        if isinstance(self._data, STSPairs):
            return evaluate_sts(encoder, self._data).spearman
        metric = RECORDED["collection"][0]
        depth = CollectionItem(self._data).depth
        run = search_collection(self._data, encoder, depth=depth)
        # zeros: a query counts as 0 if none of its judged documents is relevant.
        scores = score_run(self._data.qrels, run, [metric], zeros=True)
        return means(scores)[metric]

    def _encoder(self, model: Any, tokenizer: Any) -> Encoder:
        if isinstance(model, SentenceTransformer):
            return WrappedEncoder(model, batch_size=self._batch_size, show_progress=False)
        own_tokenizer = self._own_tokenizer(model, tokenizer)
        return TrainedEncoder(model, own_tokenizer, self._options, batch_size=self._batch_size)

    def _own_tokenizer(self, model: Any, trainers_tokenizer: Any) -> Any:
        """Return a copy of the tokenizer with prefix and end token; else of the trainer's."""
        source = trainers_tokenizer
        if self._tokenizer is not None:
            source = self._tokenizer
        if source is None:
            raise SpecError(
                f"no tokenizer for {type(model).__name__}: expected tokenizer= of "
                "TrainingEvaluator, or processing_class= of the trainer"
            )
        if isinstance(source, str | Path):
            tokenizer = load_tokenizer(ModelFolder(source), model.config)
        else:
            tokenizer = copy.deepcopy(source)
        prefix, end_token = self._options.prefix, None
        if self._options.append_eos:
            end_token = tokenizer.eos_token
        # From here on, the tokenizer adds both to every text.
        if prefix or self._options.append_eos:
            surround(tokenizer.backend_tokenizer, prefix=prefix, end=end_token)
        return tokenizer


def _is_sharded(model: torch.nn.Module) -> bool:
    """Return whether processes share the weights: by FSDP, or by DeepSpeed's ZeRO-3."""
    for module in model.modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            return True
    # FSDP2 and ZeRO-3 leave their marks on the weights.
    for weight in model.parameters():
        is_of_fsdp2, is_of_zero3 = hasattr(weight, "full_tensor"), hasattr(weight, "ds_id")
        if is_of_fsdp2 or is_of_zero3:
            return True
    return False


def _only(collections: list[TestCollection]) -> TestCollection:
    if len(collections) > 1:
        raise ValueError(f"expected one collection; got {len(collections)}: an evaluator for each")
    return collections[0]


def _of_main_process(scores: dict[str, float]) -> dict[str, float]:
    """Broadcast the scores of the main process to every process."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        shared = [scores]
        distributed.broadcast_object_list(shared, src=0)
        return shared[0]
    return scores


@contextmanager
def undisturbed(model: torch.nn.Module) -> Iterator[None]:
    """Compute without gradients, and restore modes and random states afterwards.

    These are the mode of each module (training or evaluation) and the random states of Python,
    NumPy and PyTorch, on the CPU and on the model's GPU.
    """
    modes = [(module, module.training) for module in model.modules()]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    devices = {weight.device for weight in model.parameters() if weight.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices, device_type="cuda"), torch.no_grad():
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for module, training in modes:
            # Not by `train()`, which would also set the modules within.
            module.training = training


class TrainedEncoder(Encoder):
    """The encoder of an encoder-decoder, as exported by `qwen3nb.extract`, for one evaluation.

    It shares the weights of the model in memory (except linear layers that oneDNN reorders on some
    processors).
    """

    def __init__(
        self, model: Any, tokenizer: Any, options: ExportOptions, *, batch_size: int
    ) -> None:
        """Take the encoder of ``model``; ``tokenizer`` adds the prefix and the end token.

        Raises:
            SpecError: not a Qwen3 encoder-decoder, weights that do not match its configuration, or
                a transformers release that runs the encoder causally.
        """
        encoder = _on_same_weights(model, options)
        # Without a mask, later tokens change the states of earlier ones.
        effect_of_later_tokens = causal_leak(states_of(encoder), encoder.config.vocab_size)
        if effect_of_later_tokens == 0:
            raise SpecError(
                f"{type(model).__name__}: this transformers release runs the encoder causally; "
                "install transformers 5.2 or newer"
            )
        self._tokenizer, self.max_length = tokenizer, options.max_length
        self._special = special_tokens(tokenizer)
        self._runner = Runner(
            encoder, pooling=options.pooling, normalize=options.normalize, batch_size=batch_size
        )
        self.device, self.width = str(encoder.device), int(encoder.config.hidden_size)
        source = Source(
            spec=type(model).__qualname__,
            kind=IN_MEMORY,
            label="training",
            prompts=named_prompts(options.prompts),
        )
        model_options = ModelOptions(batch_size=batch_size, cache=False, show_progress=False)
        # Each evaluation is of other weights, so none has the identity of another.
        settings = {"fingerprint": uuid.uuid4().hex, "normalize": options.normalize}
        super().__init__(source, model_options, settings=settings)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        self._runner.batch_size = self.batch_size
        rows, cut = token_rows(self._tokenizer, texts, max_length=self.max_length)
        self.stats.cut += cut
        return self._runner.vectors(rows, done=self._report_done)


def _on_same_weights(model: Any, options: ExportOptions) -> Qwen3EncoderModel:
    """Return the encoder of ``model``, in evaluation mode, with shared weights."""
    class_name = type(model).__name__
    fields = {}
    if hasattr(model, "config"):
        fields = model.config.to_dict()
    if fields.get("model_type") not in MODEL_TYPES:
        raise SpecError(
            f"{class_name}: expected a SentenceTransformer, or an encoder-decoder with one of the "
            f"model types {', '.join(MODEL_TYPES)}; got {fields.get('model_type')!r}"
        )
    config = encoder_config(fields, pooling=options.pooling, normalize=options.normalize)
    with torch.device("meta"):  # no memory: the weights are the model's
        encoder = Qwen3EncoderModel(config)
    weights = _encoder_weights(model.state_dict())
    mismatched = []
    for name, expected in encoder.state_dict().items():
        if name not in weights or weights[name].shape != expected.shape:
            mismatched.append(name)
    if mismatched:
        raise SpecError(
            f"{class_name}: {mismatched[0]} does not match its configuration ({len(mismatched)} "
            "such weights of the encoder). A model with adapters (LoRA) cannot be scored during "
            "training; score the result: qwen3nb eval --checkpoint FOLDER"
        )
    # assign: the tensors of the model, not copies.
    encoder.load_state_dict(weights, assign=True)
    # Frequencies are not weights: compute them as in a loaded model.
    encoder.rotary_emb = Qwen3RotaryEmbedding(config=config).to(encoder.device)
    return encoder.eval()


def _encoder_weights(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of the encoder in an encoder-decoder's, by their names in an encoder."""
    weights = {}
    for name, tensor in tensors.items():
        name_in_encoder = encoder_name(name)
        if name_in_encoder is not None:
            weights[name_in_encoder] = tensor
    # A checkpoint may store them under several names: the first of these counts.
    for name in EMBEDDINGS:
        if name in tensors:
            weights["embed_tokens.weight"] = tensors[name]
            break
    return weights
