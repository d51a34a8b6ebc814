"""Match specialists with joint runs, and report why the others cannot be compared.

Two runs are compared if they have the same seed and agree in the required facts; otherwise a
difference in rank, base, data or steps would be mistaken for interference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qwen3nb.analysis.inventory.score import Score
from qwen3nb.utils.choices import one_of

__all__ = ["REQUIRABLE", "REQUIRED", "Matched", "Run", "RunPair", "match_runs"]

REQUIRED = ("rank", "base", "data_seed", "steps")
REQUIRABLE = (*REQUIRED, "task_steps")
_WORDS = {"data_seed": "data seed", "steps": "optimiser steps", "task_steps": "steps on the task"}


@dataclass(frozen=True)
class Run:
    """One trained adapter.

    Attributes:
        system: name of its configuration.
        seed: of the run.
        facts: see `run_metadata.FACTS`.
        scores: score by task (``reranking``, ``embedding``), then data set.
    """

    system: str
    seed: int | None
    facts: Mapping[str, Any]
    scores: dict[str, dict[str, Score]] = field(repr=False)

    @property
    def name(self) -> str:
        """The configuration and the seed."""
        return f"{self.system} (seed {self.seed})"

    @property
    def mode(self) -> str:
        """``rank_only``, ``emb_only`` or a mode that begins with ``joint``; empty if unknown."""
        return str(self.facts.get("mode", ""))

    def fact(self, name: str, task: str) -> Any:
        """A required fact, or None if unknown."""
        if name == "task_steps":
            # The log of a specialist also counts the steps of its only task by name.
            return self.facts.get(f"steps_{task}")
        return self.facts.get(name)


@dataclass(frozen=True)
class RunPair:
    """A specialist and a joint run that are comparable on one task."""

    task: str
    specialist: Run
    joint: Run


@dataclass(frozen=True)
class Matched:
    """Pairs of one joint configuration.

    Attributes:
        system: name of the joint configuration.
        facts: mode, rank and base.
        pairs: by task, in order of seeds.
        refused: pairs that are not comparable, with the reason.
        missing: missing runs.
    """

    system: str
    facts: dict[str, Any]
    pairs: dict[str, tuple[RunPair, ...]]
    refused: tuple[str, ...]
    missing: tuple[str, ...]


def match_runs(
    scores: Iterable[Score],
    *,
    specialists: Mapping[str, str],
    joint: str = "joint",
    required: Sequence[str] = REQUIRED,
) -> tuple[list[Matched], list[str]]:
    """Pair each joint run with the specialists of its seed, task by task.

    Args:
        scores: of any runs; those without a known mode are left out.
        specialists: mode of the specialist per task.
        joint: prefix of the mode of joint runs.
        required: facts that have to agree, of `REQUIRABLE`; unknown facts do not agree.

    Returns:
        The pairs per joint configuration, and the specialists without any joint run of their
        seed.

    Raises:
        ValueError: an unknown fact.
    """
    for name in required:
        one_of("fact", name, REQUIRABLE)
    runs = _runs(scores)
    joints: dict[str, list[Run]] = {}
    for run in runs:
        if run.mode.startswith(joint):
            joints.setdefault(run.system, []).append(run)
    known = [run for run in runs if run.mode in specialists.values()]
    matched = [_match(group, known, specialists, required) for group in joints.values()]
    seeds = {run.seed for group in joints.values() for run in group}
    alone = [f"{run.name}: no {joint} run of this seed" for run in known if run.seed not in seeds]
    return matched, alone


def _runs(scores: Iterable[Score]) -> list[Run]:
    """Runs ordered by configuration and seed, with main metrics only."""
    runs: dict[tuple[str, int | None], Run] = {}
    # Of several records of one adapter on one task, the one finished last is used.
    for score in sorted(scores, key=lambda each: each.finished):
        if not score.main or "mode" not in score.facts:
            continue
        key = (score.system, score.seed)
        earlier = runs[key] if key in runs else Run(*key, {}, {})
        runs[key] = Run(*key, {**earlier.facts, **score.facts}, earlier.scores)
        runs[key].scores.setdefault(score.kind, {})[score.task] = score
    return sorted(runs.values(), key=lambda run: (run.system, run.seed is None, run.seed or 0))


def _match(
    group: Sequence[Run],
    known: Sequence[Run],
    specialists: Mapping[str, str],
    required: Sequence[str],
) -> Matched:
    pairs: dict[str, tuple[RunPair, ...]] = {}
    refused: list[str] = []
    missing: list[str] = []
    for task, mode in specialists.items():
        matching = []
        candidates = [run for run in known if run.mode == mode]
        for joint in group:
            outcome = _specialist(task, joint, candidates, required)
            if isinstance(outcome, Run):
                matching.append(RunPair(task, outcome, joint))
            elif outcome:
                refused.append(outcome)
            else:
                missing.append(f"{task}: no {mode} run of seed {joint.seed}")
        seeds = {run.seed for run in group}
        missing += [
            f"{task}: no run of {group[0].system} of seed {run.seed}, which {run.system} has"
            for run in candidates
            if run.seed not in seeds and not _disagreements(task, run, group[0], required[:2])
        ]
        if matching:
            pairs[task] = tuple(matching)
    facts = {name: group[0].facts.get(name) for name in ("mode", "rank", "base")}
    return Matched(group[0].system, facts, pairs, tuple(refused), tuple(missing))


def _specialist(
    task: str, joint: Run, candidates: Sequence[Run], required: Sequence[str]
) -> Run | str:
    """The specialist of a joint run, else why the closest is refused; empty if there is none."""
    same_seed = [run for run in candidates if run.seed == joint.seed]
    if not same_seed:
        return ""
    ranked = sorted(
        ((_disagreements(task, run, joint, required), run) for run in same_seed),
        key=lambda item: len(item[0]),
    )
    reasons, nearest = ranked[0]
    if reasons:
        return f"{task}: {nearest.name} with {joint.name}: {'; '.join(reasons)}"
    fitting = [run for disagreements, run in ranked if not disagreements]
    if len(fitting) > 1:
        names = ", ".join(run.name for run in fitting)
        return f"{task}: {joint.name} has several specialists, none is preferred: {names}"
    for run in (nearest, joint):
        if not run.scores.get(task):
            return f"{task}: {run.name} has no scores on this task"
    return nearest


def _disagreements(task: str, specialist: Run, joint: Run, required: Sequence[str]) -> list[str]:
    reasons = []
    for name in required:
        ours, theirs = specialist.fact(name, task), joint.fact(name, task)
        if ours is None or theirs is None or ours != theirs:
            shown = ["unknown" if fact is None else str(fact) for fact in (ours, theirs)]
            reasons.append(f"{_WORDS.get(name, name)} {shown[0]} against {shown[1]}")
    return reasons
