"""Task interference: the cost of training one adapter jointly on two tasks.

A joint run is paired with the specialists of its seed that agree in the required facts; otherwise a
difference in rank, base, data or steps would be mistaken for interference. Runs that cannot be
compared are reported with the reason. `qwen3nb.analysis.stats.interference_ratio` estimates.

Unlike metrics are never averaged: the mean of a task, and that of the tasks, are over the data sets
with one metric that both tasks have, if they share any. Other data sets are estimated one by one.
On the tier ``fast``, SciFact, NFCorpus and FiQA2018 are averaged, by nDCG@10, for both tasks.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qwen3nb.analysis.inventory.scores import Score, from_oldest
from qwen3nb.analysis.stats.interference_ratio import (
    DataSetScores,
    Estimate,
    Gate,
    QueryScores,
    Verdict,
    estimate,
    mean_estimate,
    weakest,
)
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.metrics.intervals import Array
from qwen3nb.models.kinds.lora_change import are_equal, has_no_effect
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.format import names_in_words

SPECIALISTS = {"reranking": "rank_only", "embedding": "emb_only"}
REQUIRED = ("rank", "base", "data_seed", "steps")
_FACT_NAMES = {
    "data_seed": "data seed",
    "steps": "optimiser steps",
    "task_steps": "steps on the task",
}
_UNNAMED_METRIC = "main_score"  # the metric of a file that names none


@dataclass(frozen=True)
class Run:
    """One trained adapter."""

    system: str  # name of its configuration
    seed: int | None  # of the run
    facts: Mapping[str, Any]  # see ``training_facts``
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


@dataclass(frozen=True)
class Group:
    """One joint configuration compared with its specialists."""

    system: str  # name of the joint configuration
    overall: Estimate  # mean TIR of the tasks
    tasks: tuple[Estimate, ...]  # one estimate per task, on the mean of its data sets
    datasets: tuple[Estimate, ...]  # one estimate per task and data set
    refused: tuple[str, ...]  # pairs that are not comparable, with the reason
    missing: tuple[str, ...]  # missing runs and scores
    metric: str = ""  # of all data sets that are averaged over; empty without any
    # names of the data sets that are averaged over, by task
    averaged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def basis(self) -> str:
        """The metric and the data sets that the mean rests on, in words; may be empty."""
        if not self.metric:
            return ""
        parts = {kind: names_in_words(names) for kind, names in self.averaged.items()}
        distinct = {frozenset(names) for names in self.averaged.values()}
        if len(parts) > 1 and len(distinct) == 1:  # the same data sets for both
            words = next(iter(parts.values()))
            return f"{self.metric} on {words} for both tasks"
        words = "; on ".join(f"{words} for {kind}" for kind, words in parts.items())
        return f"{self.metric} on {words}"


@dataclass(frozen=True)
class JointComparisons:
    """All joint configurations, each compared with its specialists."""

    groups: tuple[Group, ...]  # one per joint configuration
    gate: Gate  # the thresholds
    required: tuple[str, ...]  # facts that have to agree
    missing: tuple[str, ...]  # specialists without a joint run

    @property
    def has_pairs(self) -> bool:
        """Whether a TIR could be estimated on any task."""
        tasks = itertools.chain.from_iterable(group.tasks for group in self.groups)
        return any(task.tir is not None for task in tasks)

    def verdict(self, *, by: str = "evidence") -> Verdict:
        """Return the weakest verdict of all groups, ``by`` ``evidence`` or ``point``."""
        check_choice("kind of verdict", by, ("point", "evidence"))
        if by == "point":
            return weakest(Verdict(group.overall.by_point) for group in self.groups)
        return weakest(Verdict(group.overall.by_evidence) for group in self.groups)


def compare_joint_runs(
    scores: Iterable[Score], *, required: Sequence[str] = REQUIRED, gate: Gate | None = None
) -> JointComparisons:
    """Compare every joint configuration in ``scores`` with its specialists.

    Args:
        scores: from `load_all_results`; runs without a known mode are left out.
        required: facts that have to agree (unknown facts do not);
            ``task_steps`` instead of ``steps`` compares the steps of the joint run on the task.
        gate: the thresholds.
    """
    gate = gate or Gate()
    specialists: list[Run] = []
    joint_runs: dict[str, list[Run]] = {}  # by configuration
    joint_seeds = set()
    for run in _trained_runs(scores):
        if run.mode in SPECIALISTS.values():
            specialists.append(run)
        elif run.mode.startswith("joint"):
            joint_runs.setdefault(run.system, []).append(run)
            joint_seeds.add(run.seed)
    groups = [_group(runs, specialists, required, gate) for runs in joint_runs.values()]
    notes_on_missing = [
        f"{run.name}: no joint run of this seed"
        for run in specialists
        if run.seed not in joint_seeds
    ]
    return JointComparisons(tuple(groups), gate, tuple(required), tuple(notes_on_missing))


def _trained_runs(scores: Iterable[Score]) -> list[Run]:
    """Return the runs of known mode; of several records on one task, the last one is used."""
    runs: dict[tuple[str, int | None], Run] = {}
    for score in from_oldest(scores):
        if not score.main or "mode" not in score.facts:  # not of a training in a known mode
            continue
        key = (score.system, score.seed)
        run = runs.get(key, Run(score.system, score.seed, {}, {}))
        scores_of_kind = run.scores.setdefault(score.kind, {})
        scores_of_kind[score.task] = score
        runs[key] = replace(run, facts={**run.facts, **score.facts})
    return sorted(runs.values(), key=_system_and_seed)


def _system_and_seed(run: Run) -> tuple[str, bool, int]:
    """Return the key to sort runs by; an unknown seed comes last."""
    return run.system, run.seed is None, run.seed or 0


@dataclass
class _Pairing:
    """The runs of a joint configuration with their specialists on one task."""

    task: str
    pairs: list[tuple[Run, Run]] = field(default_factory=list)  # specialist and joint run
    refused: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def seeds(self) -> tuple[int | None, ...]:
        return tuple(joint.seed for _, joint in self.pairs)

    @property
    def runs(self) -> list[Run]:
        """The specialist and the joint run of each seed in turn."""
        return list(itertools.chain.from_iterable(self.pairs))


@dataclass(frozen=True)
class _Candidate:
    """A specialist of the seed of a joint run, and the facts in which the two differ."""

    specialist: Run
    disagreements: list[str]


@dataclass(frozen=True)
class _DataSet:
    """The scores of pairs of runs on one data set, by one metric."""

    task: str
    name: str  # with the first stage of a reranking
    label: str  # without it
    metric: str
    scores: DataSetScores


def _group(
    joint_runs: Sequence[Run], specialists: Sequence[Run], required: Sequence[str], gate: Gate
) -> Group:
    """Compare the runs of one joint configuration with the specialists."""
    pairings = [_pair(task, joint_runs, specialists, required) for task in SPECIALISTS]
    notes_on_missing = [note for pairing in pairings for note in pairing.missing]
    datasets: dict[str, list[_DataSet]] = {}
    for pairing in pairings:
        datasets[pairing.task], notes = _data_sets(pairing)
        notes_on_missing += notes
    metrics = {
        task: [scored_dataset.metric for scored_dataset in datasets_of_task]
        for task, datasets_of_task in datasets.items()
    }
    metric = common_metric(metrics)
    averaged_datasets, notes = _averaged(datasets, metric)
    notes_on_missing += notes
    of_datasets, tasks, left_out = [], [], []
    for pairing in pairings:
        task, seeds = pairing.task, pairing.seeds
        for dataset in datasets[task]:
            name = f"{task}: {dataset.name}"
            of_datasets.append(estimate(name, seeds, [dataset.scores], gate=gate).estimate)
        scores = [dataset.scores for dataset in averaged_datasets[task]]
        if scores:
            tasks.append(estimate(task, seeds, scores, gate=gate))
        elif datasets[task]:
            left_out.append(f"{task}, which has no {metric}")
        else:
            left_out.append(f"{task}, which has no pair")
    return Group(
        system=joint_runs[0].system,
        overall=mean_estimate(tasks, left_out=left_out, gate=gate),
        tasks=tuple(task.estimate for task in tasks),
        datasets=tuple(of_datasets),
        refused=tuple(reason for pairing in pairings for reason in pairing.refused),
        missing=tuple(notes_on_missing),
        metric=metric,
        averaged={
            task: _labels(datasets_of_task)
            for task, datasets_of_task in averaged_datasets.items()
            if datasets_of_task
        },
    )


def _labels(datasets: Iterable[_DataSet]) -> tuple[str, ...]:
    """Return the distinct names of data sets, in order."""
    return tuple(dict.fromkeys(dataset.label for dataset in datasets))


def _averaged(
    datasets: Mapping[str, Sequence[_DataSet]], metric: str
) -> tuple[dict[str, list[_DataSet]], list[str]]:
    """Return the data sets that a task is averaged over, and a note on each of the others.

    These are the data sets with the common metric; those of both tasks, if there are any.
    """
    labels_by_task = []
    for of_task in datasets.values():
        labels_by_task.append({dataset.label for dataset in of_task if dataset.metric == metric})
    shared_labels = set.intersection(*labels_by_task)  # if none, each task has its own mean
    averaged_datasets: dict[str, list[_DataSet]] = {task: [] for task in datasets}
    notes = []
    for task, of_task in datasets.items():
        for dataset in of_task:
            # The start of a note, should the data set be left out.
            beginning = f"{task}: {dataset.name} is not part of the mean, which is"
            if dataset.metric != metric:
                notes.append(f"{beginning} of {metric}; it has {dataset.metric}")
            elif shared_labels and dataset.label not in shared_labels:
                notes.append(f"{beginning} over the data sets of both tasks")
            else:
                averaged_datasets[task].append(dataset)
    return averaged_datasets, notes


def common_metric(metrics: Mapping[str, Sequence[str]]) -> str:
    """Return the metric that most tasks have, then most data sets; the first of equals.

    ``metrics``: those of each task's data sets. Empty without any.

    >>> common_metric({"reranking": ["nDCG@10"], "embedding": ["Spearman", "Spearman", "nDCG@10"]})
    'nDCG@10'
    """
    candidates = list(itertools.chain.from_iterable(metrics.values()))

    def frequency(metric: str) -> tuple[int, int]:
        tasks = sum(metric in names for names in metrics.values())
        return tasks, candidates.count(metric)

    return max(candidates, key=frequency, default="")


def _pair(
    task: str, joint_runs: Sequence[Run], specialists: Sequence[Run], required: Sequence[str]
) -> _Pairing:
    """Pair each joint run with the specialist of its seed on one task."""
    pairing = _Pairing(task)
    mode = SPECIALISTS[task]
    for joint in joint_runs:
        candidates = []
        for specialist in specialists:
            if specialist.mode == mode and specialist.seed == joint.seed:
                disagreements = _disagreements(task, specialist, joint, required)
                candidates.append(_Candidate(specialist, disagreements))
        if not candidates:
            pairing.missing.append(f"{task}: no {mode} run of seed {joint.seed}")
            continue
        # The one that agrees most, of which the reasons are given if it does not fit either.
        nearest = min(candidates, key=lambda candidate: len(candidate.disagreements))
        reason = _why_refused(task, joint, nearest, candidates)
        if reason:
            pairing.refused.append(f"{task}: {reason}")
        else:
            pairing.pairs.append((nearest.specialist, joint))
    return pairing


def _why_refused(
    task: str, joint: Run, nearest: _Candidate, candidates: Sequence[_Candidate]
) -> str:
    """Return why a joint run cannot be compared with its nearest specialist, or an empty text."""
    specialist = nearest.specialist
    if nearest.disagreements:
        return f"{specialist.name} with {joint.name}: {'; '.join(nearest.disagreements)}"
    fitting_specialists = [
        candidate.specialist for candidate in candidates if not candidate.disagreements
    ]
    if len(fitting_specialists) > 1:
        names = ", ".join(run.name for run in fitting_specialists)
        return f"{joint.name} has several specialists, none is preferred: {names}"
    reason = _why_no_change(specialist, joint)
    if reason:
        return reason
    for run in (specialist, joint):
        if not run.scores.get(task):
            return f"{run.name} has no scores on this task"
    return ""


def _disagreements(task: str, specialist: Run, joint: Run, required: Sequence[str]) -> list[str]:
    """Return the facts in which two runs differ, or which are unknown, in words."""
    reasons = []
    for name in required:
        # The log of a specialist also counts the steps of its only task by name.
        key = f"steps_{task}" if name == "task_steps" else name
        of_specialist = specialist.facts.get(key)
        of_joint = joint.facts.get(key)
        is_any_unknown = of_specialist is None or of_joint is None
        if is_any_unknown or of_specialist != of_joint:
            fact_name = _FACT_NAMES.get(name, name)
            values = f"{_fact_text(of_specialist)} against {_fact_text(of_joint)}"
            reasons.append(f"{fact_name} {values}")
    return reasons


def _fact_text(fact: object) -> str:
    if fact is None:
        return "unknown"
    return str(fact)


def _why_no_change(specialist: Run, joint: Run) -> str:
    """Return why two adapters cannot show interference by what they change, or an empty text."""
    changes = []
    for run in (specialist, joint):
        change = run.facts.get("change")  # a few numbers that describe how the weights changed
        if not isinstance(change, list) or not change:
            return ""  # an older record does not state it
        values = [float(value) for value in change]
        if has_no_effect(values):
            return f"{run.name} has no effect: it scores as its base"
        changes.append(values)
    if are_equal(*changes):
        return f"{specialist.name} and {joint.name} are the same adapter after merging"
    return ""


def clusters_of(scores: Iterable[Score]) -> Mapping[str, str]:
    """Return the clusters by query id of the newest score that has them."""
    scores_with_clusters = from_oldest(score for score in scores if score.clusters)
    if not scores_with_clusters:
        return {}
    return scores_with_clusters[-1].clusters


def with_clusters(scores: Iterable[Score], donors: Iterable[Score]) -> list[Score]:
    """Give scores of older records, which lack clusters, those of the same data.

    The clusters are those of the newest of the ``donors`` on the task, or on the task that a
    reranking starts from (``SciFact.bm25-100``: ``SciFact``), that has one for each query.
    """
    donors_with_clusters = [donor for donor in donors if donor.clusters]
    completed_scores = []
    for score in scores:
        if score.per_query and not score.clusters:
            on_same_data = [
                donor for donor in donors_with_clusters if _has_clusters_for(donor, score)
            ]
            score = replace(score, clusters=clusters_of(on_same_data))
        completed_scores.append(score)
    return completed_scores


def _has_clusters_for(donor: Score, score: Score) -> bool:
    """Whether a score on the same data has a cluster for each query of the donor."""
    on_same_data = score.task == donor.task or score.task.startswith(f"{donor.task}.")
    return on_same_data and score.per_query.keys() <= donor.clusters.keys()


def _data_sets(pairing: _Pairing) -> tuple[list[_DataSet], list[str]]:
    """Return the data sets that all pairs have by one metric, and a note on each of the others."""
    task = pairing.task
    names: dict[str, None] = {}  # a set, in the order of the runs
    for run in pairing.runs:
        names |= dict.fromkeys(run.scores[task])
    datasets, notes = [], []
    for name in names:
        scores, runs_without = [], []
        for run in pairing.runs:
            score = run.scores[task].get(name)
            if score is None or score.value is None:
                runs_without.append(run.name)
            else:
                scores.append(score)
        metrics = list(dict.fromkeys(score.metric for score in scores))
        if runs_without:
            notes.append(f"{task}: {name} is left out, no score of {', '.join(runs_without)}")
        elif len(metrics) > 1:
            notes.append(f"{task}: {name} is left out, its runs have {' and '.join(metrics)}")
        else:
            dataset, dataset_notes = _paired_scores(task, name, scores)
            datasets.append(dataset)
            notes += dataset_notes
    return datasets, notes


def _paired_scores(
    task: str, name: str, scores: Sequence[Score]
) -> tuple[_DataSet, tuple[str, ...]]:
    """Return a data set from the scores of specialist and joint run in turn, with notes."""
    first_score = scores[0]
    metric = first_score.metric
    if metric == _UNNAMED_METRIC:  # it may be another on each data set
        metric = f"{_UNNAMED_METRIC} of {name}"
    if not all(score.per_query for score in scores):
        values = np.array([score.value for score in scores], dtype=float)  # (2 S,), in turn
        paired_scores = DataSetScores(_by_system(values))
        dataset = _DataSet(
            task, name, label=first_score.data_set, metric=metric, scores=paired_scores
        )
        return dataset, ()
    columns = {score.run: score.per_query for score in scores}
    matrix = join(columns, task=f"{task}: {name}", clusters=clusters_of(scores))
    means = matrix.scores.mean(axis=1)
    units = _by_system(matrix.unit_values(matrix.scores))  # (2, S, n)
    by_query = QueryScores(matrix.unit_names, np.moveaxis(units, -1, 0))  # (n, 2, S)
    paired_scores = DataSetScores(_by_system(means), by_query)
    dataset = _DataSet(task, name, label=first_score.data_set, metric=metric, scores=paired_scores)
    return dataset, tuple(matrix.notes)


def _by_system(values: Array) -> Array:
    """Return values (2 S, …) of specialist and joint run in turn as (2, S, …)."""
    return np.stack([values[0::2], values[1::2]])
