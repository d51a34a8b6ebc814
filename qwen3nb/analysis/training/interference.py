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
from typing import Any, NamedTuple

import numpy as np

from qwen3nb.analysis.inventory.score import Score
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.analysis.training.tir_estimate import (
    EXIT_CODES,
    ByQuery,
    Estimate,
    Gate,
    Measured,
    estimate,
    mean_estimate,
)
from qwen3nb.metrics.intervals import Array
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
    facts: Mapping[str, Any]  # see `run_metadata.FACTS`
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
class MatchedPairs:
    """The pairs of one joint configuration."""

    system: str  # name of the joint configuration
    facts: dict[str, Any]  # mode, rank and base
    # specialist and joint run by task, in order of seeds
    pairs: dict[str, tuple[tuple[Run, Run], ...]]
    refused: tuple[str, ...]  # pairs that are not comparable, with the reason
    missing: tuple[str, ...]  # missing runs


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
    scores: Iterable[Score],
    *,
    specialists: Mapping[str, str] | None = None,
    joint: str = "joint",
    required: Sequence[str] = REQUIRED,
    gate: Gate | None = None,
    level: float = 0.95,
) -> Interference:
    """Interference of every joint configuration among ``scores``.

    Args:
        scores: from `collect.load_all_results`.
        specialists: mode of the specialist per task; by default `SPECIALISTS`.
        joint: prefix of the mode of joint runs.
        required: facts that have to agree; ``task_steps`` instead of ``steps`` compares the
            steps that the joint run spent on the task.
        gate: the thresholds.
        level: of the intervals.

    Raises:
        ValueError: an unknown required fact.
    """
    modes = dict(SPECIALISTS if specialists is None else specialists)
    rule = gate or Gate()
    matched, alone = match_runs(scores, specialists=modes, joint=joint, required=required)
    groups = tuple(_group(each, list(modes), gate=rule, level=level) for each in matched)
    return Interference(groups, rule, tuple(required), level, tuple(alone))


def match_runs(
    scores: Iterable[Score],
    *,
    specialists: Mapping[str, str],
    joint: str = "joint",
    required: Sequence[str] = REQUIRED,
) -> tuple[list[MatchedPairs], list[str]]:
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
) -> MatchedPairs:
    """Pair the runs of one joint configuration with the specialists among the ``known`` runs."""
    pairs: dict[str, tuple[tuple[Run, Run], ...]] = {}
    refused, missing = [], []
    for task, mode in specialists.items():
        candidates = [run for run in known if run.mode == mode]
        matching = []
        for joint in group:
            same_seed = [run for run in candidates if run.seed == joint.seed]
            reason, specialist = _specialist(task, joint, same_seed, required)
            if not same_seed:
                missing.append(f"{task}: no {mode} run of seed {joint.seed}")
            elif reason:
                refused.append(f"{task}: {reason}")
            else:
                matching.append((specialist, joint))
        seeds = {run.seed for run in group}
        missing += [
            f"{task}: no run of {group[0].system} of seed {run.seed}, which {run.system} has"
            for run in candidates
            if run.seed not in seeds and not _disagreements(task, run, group[0], required[:2])
        ]
        if matching:
            pairs[task] = tuple(matching)
    facts = {name: group[0].facts.get(name) for name in ("mode", "rank", "base")}
    return MatchedPairs(group[0].system, facts, pairs, tuple(refused), tuple(missing))


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


class _DataSetScores(NamedTuple):
    """Scores on one data set per role and seed (2, S), and by query, if there are any."""

    values: Array
    by_query: ByQuery | None = None


def _group(matched: MatchedPairs, wanted: Sequence[str], *, gate: Gate, level: float) -> Group:
    tasks: list[Measured] = []
    datasets = []
    missing = list(matched.missing)
    for task, pairs in matched.pairs.items():
        scores, notes = _scores(task, pairs)
        missing += notes
        if not scores:
            continue
        seeds = tuple(joint.seed for _, joint in pairs)
        for name, each in scores.items():
            one = _estimate(f"{task}: {name}", seeds, [each], gate=gate, level=level)
            datasets.append(one.estimate)
        tasks.append(_estimate(task, seeds, list(scores.values()), gate=gate, level=level))
    left = [task for task in wanted if task not in {each.estimate.name for each in tasks}]
    return Group(
        system=matched.system,
        mode=str(matched.facts["mode"]),
        rank=matched.facts["rank"],
        base=matched.facts["base"],
        overall=mean_estimate(tasks, left_out=left, gate=gate, level=level),
        tasks=tuple(each.estimate for each in tasks),
        datasets=tuple(datasets),
        refused=matched.refused,
        missing=tuple(missing),
    )


def _scores(
    task: str, pairs: Sequence[tuple[Run, Run]]
) -> tuple[dict[str, _DataSetScores], list[str]]:
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
            tables[name] = _DataSetScores(by_query.mean(axis=0), (matrix.queries, by_query))
            notes += matrix.notes
        else:
            values = np.array([score.value for score in own], dtype=float)
            tables[name] = _DataSetScores(values.reshape(shape).T)
    return tables, notes


def _estimate(
    name: str,
    seeds: tuple[int | None, ...],
    datasets: Sequence[_DataSetScores],
    *,
    gate: Gate,
    level: float,
) -> Measured:
    """Estimate the TIR of the mean over data sets."""
    values = np.mean([each.values for each in datasets], axis=0)
    by_query = [each.by_query for each in datasets if each.by_query is not None]
    known = by_query if len(by_query) == len(datasets) else None
    return estimate(name, seeds, values, known, gate=gate, level=level)
