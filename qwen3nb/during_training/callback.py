"""A callback that evaluates checkpoints beside a training, and lets the book grow by itself."""

import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from qwen3nb import paths
from qwen3nb.during_training.evaluations import Evaluations, Settings
from qwen3nb.during_training.loggers import logger_named
from qwen3nb.during_training.orders import Outcome
from qwen3nb.execution.parameters import check_given, read_parameters
from qwen3nb.utils.secrets import known_secrets

log = logging.getLogger(__name__)


class CheckpointEvaluation(TrainerCallback):
    """Evaluates checkpoints in a process of its own while the training goes on.

    For ``Trainer(callbacks=[…])`` of transformers, and the trainers of sentence-transformers. A
    checkpoint is evaluated as by ``qwen3nb eval --checkpoint``: an encoder-decoder's encoder, a
    model of sentence-transformers, or an adapter on its base. Each evaluation has its page and its
    records, and the book is built at the end.

    The training does not wait: a checkpoint for which there is no time is skipped, and the log says
    why. The first and the last one are always evaluated; ``train()`` returns when the last one is.
    A failed evaluation, also one that hangs or is killed, is named in the log and on the status
    page, and the training goes on. Only the main process of a distributed training evaluates.

    Args:
        share: evaluations may take this share of the training's time; 0.05 is a twentieth.
        time_limit: most seconds for one evaluation, and for the book.
        threads: cores that an evaluation may use, on Linux; elsewhere it may use all.
        niceness: by how much the training comes first, from 0 to 19, where both need a core.
        gpu: id of a GPU for the evaluations, as in ``CUDA_VISIBLE_DEVICES``. By default they run on
            the CPU, as a second model on the training's GPU could take the memory that it needs.
        book: whether the book is built at the end.
        book_every: seconds between builds of the book during the training, which count as
            evaluation; by default it is only built at the end.
        study: folder of the study; by default that of the working directory.
        report_to: ``trackio``, to log each score with the SHA-256 of its record. By default, scores
            are not logged.
        parameters: those of ``eval.ipynb``, such as ``tier``, ``tasks``, ``data``, ``prefix``,
            ``append_eos``, ``pooling`` and ``limit``.

    Raises:
        NoStudyError: no study to write results to.
        ParameterError: a parameter that ``eval.ipynb`` does not have or allow.
        ValueError: another option is out of its range.
        ImportError: the logger is not installed.
    """

    def __init__(
        self,
        *,
        share: float = 0.05,
        time_limit: float = 3600.0,
        threads: int = 1,
        niceness: int = 10,
        gpu: str = "",
        book: bool = True,
        book_every: float | None = None,
        study: Path | str | None = None,
        report_to: str = "",
        **parameters: object,
    ) -> None:
        _check(share=share, time_limit=time_limit, threads=threads, niceness=niceness)
        if book_every is not None and book_every < 0:
            raise ValueError(f"expected book_every of at least 0 seconds; got {book_every}")
        self._study = _study_named(study)
        with paths.within(self._study):
            if "checkpoint" in parameters:
                raise ValueError("checkpoint: the training names it; leave it out")
            check_given(read_parameters(paths.find_notebook("eval")), parameters)
        self._settings = Settings(
            parameters=parameters,
            share=share,
            time_limit=time_limit,
            threads=threads,
            niceness=niceness,
            gpu=gpu,
            book=book,
            book_every=book_every,
        )
        self._logger = logger_named(report_to)
        self._evaluations: Evaluations | None = None

    @property
    def summary(self) -> str:
        """What was evaluated, skipped and failed, and the share of the time that it took."""
        if self._evaluations is None:
            return "No training has begun in this process."
        return self._evaluations.summary

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Begin, or go on where a stopped training was."""
        if not state.is_world_process_zero:
            return
        if self._evaluations is not None:  # of a training that an error ended
            self._evaluations.stop()
        self._logger.begin(args)
        training = Path(args.output_dir)
        evaluations = Evaluations(training, self._settings, report=self._log_scores)
        self._evaluations = evaluations
        self._without_error(lambda: evaluations.begin(resumed=state.global_step > 0))

    def on_save(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Keep the files of the checkpoint until it is evaluated or skipped."""
        evaluations = self._evaluations
        if evaluations is not None:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            self._without_error(lambda: evaluations.keep(checkpoint))

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Start an evaluation if there is time for it, and note one that has ended."""
        if self._evaluations is not None:
            self._without_error(self._evaluations.look)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Evaluate the last checkpoint, wait for its end, and build the book."""
        if self._evaluations is not None:
            self._without_error(self._evaluations.finish)
            log.warning("%s", self._evaluations.summary)

    def _without_error(self, act: Callable[[], None]) -> None:
        """Act, and log an error: the training must go on, such as with a full disk."""
        try:
            with paths.within(self._study):
                act()
        except Exception as error:  # noqa: BLE001 - none may end the training
            log.warning("evaluations during training: %s", known_secrets().without(str(error)))

    def _log_scores(self, step: int, outcome: Outcome) -> None:
        # Without an error: a dashboard that cannot be reached must not end what comes next.
        self._without_error(lambda: self._logger.log(outcome.scores, step=step))


def _study_named(study: Path | str | None) -> Path | None:
    """Return the folder of a study; by default that of the working directory."""
    if study is None:
        return paths.find_root()
    folder = Path(study).expanduser().resolve()
    home = os.environ.get("QWEN3NB_HOME")
    if home and paths.find_root() != folder:
        raise ValueError(f"study {study}: QWEN3NB_HOME names {home}; unset it, or leave study out")
    return folder


def _check(*, share: float, time_limit: float, threads: int, niceness: int) -> None:
    if not 0 < share <= 1:
        raise ValueError(f"expected a share above 0 and at most 1, such as 0.05; got {share}")
    if not 0 < time_limit < math.inf:
        raise ValueError(f"expected a time_limit of more than 0 seconds, finite; got {time_limit}")
    if threads < 1:
        raise ValueError(f"expected at least 1 of threads; got {threads}")
    if not 0 <= niceness <= 19:
        raise ValueError(f"expected a niceness from 0 to 19; got {niceness}")
