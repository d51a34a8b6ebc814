"""One system's score on one task, the input of every analysis of many runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Score:
    """One system's score on one task."""

    system: str  # name of the model, or of its training configuration
    seed: int | None  # of the run; None if unknown
    task: str  # name of the task or data set
    metric: str  # name of the metric
    value: float | None  # the score, or None if undefined
    kind: str = ""  # ``reranking`` or ``embedding`` for adapters; else the type of the task
    # score per query id; may be empty
    per_query: Mapping[str, float] = field(default_factory=dict, repr=False)
    identity: str = ""  # digest of the weights; empty if unknown
    source: str = ""  # file it was read from
    origin: str = ""  # the program that wrote the file
    revision: str = ""  # of the task's data, or empty
    finished: str = ""  # time, ISO 8601, or empty
    # how the run was trained; see `collect.FACTS`
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    main: bool = True  # whether it is the task's main metric

    @property
    def run(self) -> str:
        """The system and its seed."""
        return self.system if self.seed is None else f"{self.system} (seed {self.seed})"
