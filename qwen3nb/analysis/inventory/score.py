"""One system's score on one task, the input of every analysis of many runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Score:
    """One system's score on one task.

    Attributes:
        system: name of the model, or of its training configuration.
        seed: of the run; None if unknown.
        task: name of the task or data set.
        metric: name of the metric.
        value: the score, or None if undefined.
        kind: ``reranking`` or ``embedding`` for adapters; else the type of the task.
        per_query: score per query id; may be empty.
        identity: digest of the weights; empty if unknown.
        source: file it was read from.
        origin: the program that wrote the file.
        revision: of the task's data, or empty.
        finished: time, ISO 8601, or empty.
        facts: how the run was trained; see `run_metadata.FACTS`.
        main: whether it is the task's main metric.
    """

    system: str
    seed: int | None
    task: str
    metric: str
    value: float | None
    kind: str = ""
    per_query: Mapping[str, float] = field(default_factory=dict, repr=False)
    identity: str = ""
    source: str = ""
    origin: str = ""
    revision: str = ""
    finished: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    main: bool = True

    @property
    def run(self) -> str:
        """The system and its seed."""
        return self.system if self.seed is None else f"{self.system} (seed {self.seed})"
