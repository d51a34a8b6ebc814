"""Task interference: the cost of training one adapter jointly on two tasks.

The task interference ratio (TIR) of a seed is (specialist − joint) / specialist: the share of
the specialist's score that joint training loses; it is negative if the joint model is better.
It is averaged over seeds; the maximum over tasks and seeds would find interference in noise.

A joint run is paired with the specialists of its seed that agree with it in the required facts;
otherwise a difference in rank, base, data or steps would be mistaken for interference. What cannot
be compared is reported with the reason.

The kill gate decides whether there is enough interference to be worth treating: PASS at 2 % or
more, FAIL below 1 %, MARGINAL in between. There are two verdicts: by evidence, which is
INCONCLUSIVE if the interval over seeds and queries crosses a threshold or there is one seed, and
by point estimate. Evidence decides unless the point is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qwen3nb.analysis.inventory.score import Score
from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.analysis.training.tir_estimate import (
    EXIT_CODES,
    DataSetScores,
    Estimate,
    Gate,
    Measured,
    estimate,
    mean_estimate,
)
from qwen3nb.utils.choices import one_of

SPECIALISTS = {"reranking": "rank_only", "embedding": "emb_only"}
DEFINITION = (
    "TIR = (specialist − joint) / specialist, per seed: the share of the specialist's score "
    "that joint training loses; negative where the joint model is better."
)
REQUIRED = ("rank", "base", "data_seed", "steps")
REQUIRABLE = (*REQUIRED, "task_steps")
_ORDER = ("NO RESULT", "INCONCLUSIVE", "MARGINAL", "FAIL", "PASS")
_WORDS = {"data_seed": "data seed", "steps": "optimiser steps", "task_steps": "steps on the task"}


@dataclass(frozen=True)
class Run:
    """One trained adapter."""

    system: str  # name of its configuration
    seed: int | None  # of the run
    facts: Mapping[str, Any]  # see `collect.FACTS`
    # score by task (``reranking``, ``embedding``), then data set
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
class Group:
    """One joint configuration against its specialists."""

    system: str  # name of the joint configuration
    mode: str  # its training mode; ``rank`` and ``base`` are those of its adapter
    rank: int | None
    base: str | None
    overall: Estimate  # mean TIR of the tasks
    tasks: tuple[Estimate, ...]  # one estimate per task, on the mean of its data sets
    datasets: tuple[Estimate, ...]  # one estimate per task and data set
    refused: tuple[str, ...]  # pairs that are not comparable, with the reason
    missing: tuple[str, ...]  # missing runs and scores


@dataclass(frozen=True)
class Interference:
    """Interference of all joint configurations."""

    groups: tuple[Group, ...]  # one per joint configuration
    gate: Gate  # the thresholds
    required: tuple[str, ...]  # facts that have to agree
    level: float  # of the intervals
    missing: tuple[str, ...]  # specialists without a joint run

    def verdict(self, *, by: str = "evidence") -> str:
        """The weakest verdict of all groups, ``by`` ``evidence`` or ``point``."""
        verdicts = [group.overall.verdict(by) for group in self.groups]
        return min(verdicts, key=_ORDER.index, default="NO RESULT")

    def exit_code(self, *, by: str = "evidence") -> int:
        """Exit code for the verdict; see `EXIT_CODES`."""
        return EXIT_CODES[self.verdict(by=by)]


def interference(
    scores: Iterable[Score], *, required: Sequence[str] = REQUIRED, gate: Gate | None = None
) -> Interference:
    """Interference of every joint configuration among ``scores``.

    Args:
        scores: from `collect.load_all_results`; those of runs without a known mode are left out.
        required: facts that have to agree, of `REQUIRABLE`, where unknown ones do not;
            ``task_steps`` instead of ``steps`` compares the steps of the joint run on the task.
        gate: the thresholds.

    Raises:
        ValueError: an unknown required fact.
    """
    for name in required:
        one_of("fact", name, REQUIRABLE)
    gate, runs = gate or Gate(), _runs(scores)
    known = [run for run in runs if run.mode in SPECIALISTS.values()]
    joint: dict[str, list[Run]] = {}
    for run in runs:
        if run.mode.startswith("joint"):
            joint.setdefault(run.system, []).append(run)
    groups = tuple(_group(own, known, required, gate) for own in joint.values())
    seeds = {run.seed for own in joint.values() for run in own}
    alone = [f"{run.name}: no joint run of this seed" for run in known if run.seed not in seeds]
    return Interference(groups, gate, tuple(required), LEVEL, tuple(alone))


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


def _group(
    joint: Sequence[Run], known: Sequence[Run], required: Sequence[str], gate: Gate
) -> Group:
    """Compare the runs of one joint configuration with the specialists among the ``known`` runs."""
    tasks: list[Measured] = []
    datasets, refused, missing, notes = [], [], [], []
    for task, mode in SPECIALISTS.items():
        candidates = [run for run in known if run.mode == mode]
        pairs = []
        for run in joint:
            same_seed = [each for each in candidates if each.seed == run.seed]
            reason, specialist = _specialist(task, run, same_seed, required)
            if not same_seed:
                missing.append(f"{task}: no {mode} run of seed {run.seed}")
            elif reason:
                refused.append(f"{task}: {reason}")
            else:
                pairs.append((specialist, run))
        missing += [
            f"{task}: no run of {joint[0].system} of seed {run.seed}, which {run.system} has"
            for run in candidates
            if run.seed not in {each.seed for each in joint}
            and not _disagreements(task, run, joint[0], required[:2])
        ]
        scores, left_out = _scores(task, pairs)
        notes += left_out
        seeds = tuple(run.seed for _, run in pairs)
        for name, each in scores.items():
            datasets.append(estimate(f"{task}: {name}", seeds, [each], gate=gate).estimate)
        if scores:
            tasks.append(estimate(task, seeds, list(scores.values()), gate=gate))
    measured = {each.estimate.name for each in tasks}
    left = [task for task in SPECIALISTS if task not in measured]
    facts = joint[0].facts
    return Group(
        system=joint[0].system,
        mode=joint[0].mode,
        rank=facts.get("rank"),
        base=facts.get("base"),
        overall=mean_estimate(tasks, left_out=left, gate=gate),
        tasks=tuple(each.estimate for each in tasks),
        datasets=tuple(datasets),
        refused=tuple(refused),
        missing=(*missing, *notes),
    )


def _specialist(
    task: str, joint: Run, candidates: Sequence[Run], required: Sequence[str]
) -> tuple[str, Run]:
    """The specialist of a joint run that fits best, and why it is refused; empty if it is not."""
    ranked = sorted(
        ((_disagreements(task, run, joint, required), run) for run in candidates),
        key=lambda item: len(item[0]),
    )
    reasons, nearest = next(iter(ranked), ([], joint))
    fitting = [run.name for disagreements, run in ranked if not disagreements]
    if reasons:
        return f"{nearest.name} with {joint.name}: {'; '.join(reasons)}", nearest
    if len(fitting) > 1:
        names = ", ".join(fitting)
        return f"{joint.name} has several specialists, none is preferred: {names}", nearest
    for run in (nearest, joint):
        if not run.scores.get(task):
            return f"{run.name} has no scores on this task", nearest
    return "", nearest


def _disagreements(task: str, specialist: Run, joint: Run, required: Sequence[str]) -> list[str]:
    reasons = []
    for name in required:
        ours, theirs = specialist.fact(name, task), joint.fact(name, task)
        if ours is None or theirs is None or ours != theirs:
            shown = ["unknown" if fact is None else str(fact) for fact in (ours, theirs)]
            reasons.append(f"{_WORDS.get(name, name)} {shown[0]} against {shown[1]}")
    return reasons


def _scores(
    task: str, pairs: Sequence[tuple[Run, Run]]
) -> tuple[dict[str, DataSetScores], list[str]]:
    """Scores on the data sets that all pairs have, and a note on each of the others."""
    runs = [run for pair in pairs for run in pair]  # specialist and joint of each seed in turn
    shape, tables, notes = (len(pairs), 2), {}, []
    for name in dict.fromkeys(name for run in runs for name in run.scores[task]):
        given = [run.scores[task].get(name) for run in runs]
        own = [score for score in given if score is not None and score.value is not None]
        if len(own) < len(runs):
            lacking = [run.name for run, each in zip(runs, given, strict=True) if each not in own]
            notes.append(f"{task}: {name} is left out, no score of {', '.join(lacking)}")
        elif all(score.per_query for score in own):
            columns = {score.run: score.per_query for score in own}
            matrix = join(columns, task=f"{task}: {name}")
            by_query = matrix.scores.reshape(*shape, -1).transpose(2, 1, 0)
            tables[name] = DataSetScores(by_query.mean(axis=0), (matrix.queries, by_query))
            notes += matrix.notes
        else:
            values = np.array([score.value for score in own], dtype=float)
            tables[name] = DataSetScores(values.reshape(shape).T)
    return tables, notes
