"""Log the scores of checkpoints where the training logs its losses, each with its record.

The digest next to a score is the SHA-256 of its record, which ``results/checksums.jsonl`` names.
"""

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from qwen3nb.during_training.orders import Score

TRACKIO = "trackio"


class Logger(Protocol):
    """Where scores are logged."""

    def begin(self, args: Any) -> None:
        """Take the names of project and run from the arguments of the training."""

    def log(self, scores: Sequence[Score], *, step: int) -> None:
        """Log the scores of a checkpoint."""


class NoLogger:
    """Logs nothing."""

    def begin(self, args: Any) -> None:
        """Do nothing."""

    def log(self, scores: Sequence[Score], *, step: int) -> None:
        """Do nothing."""


class TrackioLogger:
    """Logs to the training's run of Trackio, which keeps its files on this machine.

    If the training itself does not report to Trackio, the run is made with the project and the name
    in its arguments.
    """

    def __init__(self) -> None:
        try:
            self._trackio = importlib.import_module(TRACKIO)
        except ImportError as error:
            raise ImportError(
                'report_to="trackio" needs Trackio: pip install trackio; or leave report_to out'
            ) from error
        self._project, self._run, self._space = "", "", None

    def begin(self, args: Any) -> None:
        """Take the names of project and run from the arguments of the training."""
        self._project = getattr(args, "project", "") or "qwen3nb"
        self._run = getattr(args, "run_name", "") or args.output_dir
        self._space = getattr(args, "trackio_space_id", None)

    def log(self, scores: Sequence[Score], *, step: int) -> None:
        """Log main scores by task, and the digests of their records."""
        if not scores:
            return
        values: dict[str, object] = {}
        for score in scores:
            name = f"eval/{score.task}/{score.metric}"
            values[name] = score.value
            values[f"{name}/record"] = score.record
        # The trainer's own callback finishes its run before the last checkpoint is evaluated.
        current = self._trackio.context_vars.current_run.get()
        if current is not None:
            current.log(values, step=step)
            return
        run = self._trackio.init(
            project=self._project, name=self._run, space_id=self._space, resume="allow"
        )
        run.log(values, step=step)
        self._trackio.finish()


def logger_named(name: str) -> Logger:
    """Return the logger of a name; an empty one logs nothing.

    Raises:
        ValueError: an unknown name.
        ImportError: it is not installed.
    """
    if not name:
        return NoLogger()
    if name == TRACKIO:
        return TrackioLogger()
    raise ValueError(f"expected report_to {TRACKIO!r}, or none; got {name!r:.40}")
