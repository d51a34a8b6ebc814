"""Task interference: the cost of training one adapter jointly on two tasks.

The task interference ratio (TIR) of a seed is (specialist − joint) / specialist: the share of
the specialist's score that joint training loses; it is negative if the joint model is better.
It is averaged over seeds; the maximum over tasks and seeds would find interference in noise.

A joint run is paired with the specialists of its seed that agree in the required facts; otherwise a
difference in rank, base, data or steps would be mistaken for interference. Runs that cannot be
compared are reported with the reason.

Unlike metrics are never averaged: the mean of a task, and that of the tasks, are over the data sets
with one metric that both tasks have, if they share any. Other data sets are estimated one by one.
On the tier ``fast``, SciFact, NFCorpus and FiQA2018 are averaged, by nDCG@10, for both tasks.

The kill gate decides whether there is enough interference to be worth treating. There are two
verdicts: by evidence (the default), which is INCONCLUSIVE if the interval over seeds and queries
crosses a threshold or there is only one seed, and by point estimate.

`configuration_differences` tests any two configurations on the seeds that both have. With scores
per query, each query's difference is averaged over the seeds, and the signs of these averages are
flipped: the test is over queries, for these trainings. Without them, it is a paired t-test over
seeds.

The models of all seeds answered the same queries: a crossed design in which both are random.

References:
    Zou and Donner 2008 (MOVER); Satterthwaite 1946 (degrees of freedom).
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import stdtrit

from qwen3nb.analysis.comparison.differences import HOLM, TEST, paired_difference
from qwen3nb.analysis.inventory import Score, from_oldest
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import t_test
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL
from qwen3nb.analysis.stats.score_matrix import join, system_scores
from qwen3nb.metrics.intervals import Array, Interval, student_interval
from qwen3nb.models.kinds.lora_change import are_equal, has_no_effect
from qwen3nb.records.record import is_substitute
from qwen3nb.utils.choices import one_of

Queries = tuple[str, ...]  # their ids

# 1 and 2 are reserved for errors and wrong usage.
EXIT_CODES = {"PASS": 0, "FAIL": 3, "MARGINAL": 4, "INCONCLUSIVE": 5, "NO RESULT": 6}
_TINY = 1e-12  # a rounding error


@dataclass(frozen=True)
class Gate:
    """The kill gate's thresholds, as shares."""

    pass_at: float = 0.02  # PASS at this TIR or more: interference worth treating
    fail_below: float = 0.01  # FAIL below this TIR

    def __post_init__(self) -> None:
        if not self.fail_below <= self.pass_at:
            raise ValueError(
                f"expected fail_below <= pass_at; got {self.fail_below} and {self.pass_at}"
            )

    @property
    def text(self) -> str:
        """Describe the rule."""
        high, low = 100 * self.pass_at, 100 * self.fail_below
        return (
            f"Kill gate, on the mean TIR over seeds of each task, and on the mean of the tasks: "
            f"PASS at {high:g} % or more (joint training interferes: continue), FAIL below "
            f"{low:g} % (it does not: stop), MARGINAL in between. By evidence, there must be two "
            f"or more seeds and the whole interval must lie in one range, else INCONCLUSIVE."
        )

    def verdict(self, tir: float | None) -> str:
        """Verdict by point estimate."""
        if tir is None:
            return "NO RESULT"
        if tir >= self.pass_at:
            return "PASS"
        return "FAIL" if tir < self.fail_below else "MARGINAL"

    def evidence(self, tir: float | None, interval: Interval | None) -> str:
        """Verdict by evidence: the common verdict of both ends of the interval."""
        if tir is None:
            return "NO RESULT"
        verdicts = {self.verdict(end) for end in interval or ()}
        return verdicts.pop() if len(verdicts) == 1 else "INCONCLUSIVE"


@dataclass(frozen=True)
class Estimate:
    """An estimate of the TIR."""

    name: str  # of the task, of the task and data set, or ``overall``
    seeds: tuple[int | None, ...]  # of the pairs compared
    tirs: tuple[float | None, ...]  # TIR per seed; None if the specialist scores 0
    deltas: tuple[float, ...]  # specialist - joint, per seed
    tir: float | None  # mean over the seeds with a TIR
    std: float | None = None  # sample standard deviation over them (ddof = 1), of two or more
    delta: float | None = None  # mean of the deltas; ``delta_std`` is their standard deviation
    delta_std: float | None = None
    interval: Interval | None = None  # of the mean TIR over seeds and queries, or None
    by_point: str = ""  # verdict by point estimate; ``by_evidence`` by the interval
    by_evidence: str = ""
    notes: tuple[str, ...] = ()  # caveats


class DataSetScores(NamedTuple):
    """Scores of the S specialists and of their joint runs on one data set."""

    values: Array  # (2, S)
    # names of n sampling units (queries, or clusters of them), and their scores (n, 2, S)
    by_query: tuple[Queries, Array] | None = None


class Measured(NamedTuple):
    """An estimate and the error over its queries."""

    estimate: Estimate
    moved: Mapping[Queries, Array] | None  # by the queries (n,) of each set; None if unknown
    problem: str = ""  # why there can be no interval, or empty


def estimate(
    name: str, seeds: Sequence[int | None], datasets: Sequence[DataSetScores], *, gate: Gate
) -> Measured:
    """Estimate the TIR of the mean over data sets, from pairs of runs of these seeds."""
    values = np.mean([each.values for each in datasets], axis=0)
    specialist, joint = values
    has = specialist > 0
    tirs = (specialist - joint)[has] / specialist[has]
    notes = [
        f"the specialist of seed {each} scores 0, so its TIR is undefined"
        for each, fine in zip(seeds, has, strict=True)
        if not fine
    ]
    by_query = [each.by_query for each in datasets if each.by_query is not None]
    moved, problem = None, ""
    if len(by_query) < len(datasets):
        notes.append("no scores per query: the interval is over seeds only")
    elif has.any():
        kept = [(queries, scores[:, :, has]) for queries, scores in by_query]
        moved, problem = _moved(values[:, has], kept)
    per_seed = iter(tirs)
    one = Estimate(
        name,
        tuple(seeds),
        tuple(float(next(per_seed)) if fine else None for fine in has),
        tuple(map(float, specialist - joint)),
        float(tirs.mean()) if len(tirs) else None,
        notes=tuple(notes),
    )
    return Measured(_concluded(one, moved, problem, gate), moved, problem)


def mean_estimate(tasks: Sequence[Measured], *, left_out: Sequence[str], gate: Gate) -> Estimate:
    """Estimate the mean TIR of the tasks, over the seeds that all tasks have.

    Omitted tasks, each with its reason, are reported, and make the verdict by evidence
    INCONCLUSIVE.
    """
    notes = [f"without {name_and_reason}" for name_and_reason in left_out]
    given = [each for each in tasks if each.estimate.tir is not None]
    lacking = [each.estimate.name for each in tasks if each.estimate.tir is None]
    notes += [f"without {name}, which has no TIR" for name in lacking]
    tables = [
        {
            seed: (tir, delta)
            for seed, tir, delta in zip(e.seeds, e.tirs, e.deltas, strict=True)
            if tir is not None
        }
        for e in (each.estimate for each in given)
    ]
    seeds = tuple(s for s in next(iter(tables), {}) if all(s in table for table in tables))
    if len({frozenset(table) for table in tables}) > 1:
        own = "; ".join(
            f"{each.estimate.name}: {', '.join(map(str, table))}"
            for each, table in zip(given, tables, strict=True)
        )
        notes.append(f"the tasks have different seeds ({own}); each counts by the mean of its own")
    means = [np.mean([table[seed] for table in tables], axis=0) for seed in seeds]
    moved = [each.moved for each in given if each.moved is not None]
    complete = bool(given) and len(moved) == len(given)
    problem = next((each.problem for each in given if each.problem), "")
    if given and not complete and not problem:
        notes.append("a task has no scores per query: the interval is over seeds only")
    one = Estimate(
        "overall",
        seeds,
        tuple(float(tir) for tir, _ in means),
        tuple(float(delta) for _, delta in means),
        float(np.mean([each.estimate.tir for each in given])) if given else None,
        notes=tuple(notes),
    )
    parts = [(key, part / len(moved)) for each in moved for key, part in each.items()]
    partial = len(given) < len(tasks) + len(left_out)
    return _concluded(one, _sums(parts) if complete else None, problem, gate, partial=partial)


def _moved(
    values: Array, by_query: Sequence[tuple[Queries, Array]]
) -> tuple[dict[Queries, Array] | None, str]:
    """Influence of each query on the mean TIR (delta method), or why it is unknown.

    With scores s and g of a seed, a query's scores x and y move its TIR by (x g / s - y) / s, over
    the number of queries.
    """
    if any(len(queries) < 2 for queries, _ in by_query):
        return None, "a data set has a single query"
    specialist, joint = values
    shares = [scores / (len(by_query) * len(scores)) for _, scores in by_query]
    for seed, score in enumerate(specialist):
        error, freedom = query_error([part[:, 0, seed] for part in shares])
        if score <= stats.t.ppf((1 + LEVEL) / 2, freedom) * error:
            return None, "by its queries, the score of a specialist may be 0"
    parts = [
        ((part[:, 0] * joint / specialist - part[:, 1]) / specialist).mean(axis=1)
        for part in shares
    ]
    return _sums(zip((queries for queries, _ in by_query), parts, strict=True)), ""


def _sums(parts: Iterable[tuple[Queries, Array]]) -> dict[Queries, Array]:
    """Sums per set of queries: models with the same queries are not independent."""
    sums: dict[Queries, Array] = defaultdict(lambda: np.zeros(()))
    for queries, part in parts:
        sums[queries] = sums[queries] + part
    return dict(sums)


def _concluded(
    one: Estimate,
    moved: Mapping[Queries, Array] | None,
    problem: str,
    gate: Gate,
    *,
    partial: bool = False,
) -> Estimate:
    """Add deviations, intervals, verdicts and caveats to an estimate."""
    known = np.array([each for each in one.tirs if each is not None])
    deltas, parts, interval = np.array(one.deltas), list((moved or {}).values()), None
    if one.tir is not None and not problem:
        interval = crossed_interval(one.tir, known, parts)
    caveats = [f"no interval: {problem}"] if problem else []
    if parts and len(known) < 2 and not problem:
        caveats.append("one seed: the interval does not include the variance between trainings")
    return replace(
        one,
        std=float(known.std(ddof=1)) if len(known) > 1 else None,
        delta=float(deltas.mean()) if len(deltas) else None,
        delta_std=float(deltas.std(ddof=1)) if len(deltas) > 1 else None,
        interval=interval,
        by_point=gate.verdict(one.tir),
        by_evidence=gate.evidence(one.tir, interval if len(known) > 1 and not partial else None),
        notes=(*one.notes, *caveats),
    )


def crossed_interval(mean: float, per_seed: Array, moved: Sequence[Array]) -> Interval | None:
    """Interval of a mean over seeds and queries, combining the errors of both (MOVER).

    Each error is Student's. The error of the seeds includes their interaction with the queries,
    which the other counts again: the interval is conservative where queries vary most. For a single
    seed, or without influences of queries, only the other error counts; None if neither varies.

    ``per_seed``: value of each seed (S,); ``moved``: influence of each query, (n,) per set of them.
    """
    low, high = student_interval(per_seed, level=LEVEL) or (0.0, 0.0)
    error, freedom = query_error(moved)
    half = math.hypot((high - low) / 2, float(stdtrit(freedom, (1 + LEVEL) / 2)) * error)
    return (mean - half, mean + half) if half > _TINY else None


def query_error(moved: Sequence[Array]) -> tuple[float, float]:
    """Standard error of a sum over queries, and its degrees of freedom (Satterthwaite).

    ``moved``: influence of each of two or more queries on the sum, (n,) per independent set.
    """
    sizes = np.array([len(each) for each in moved])
    parts = np.array([len(each) * each.var(ddof=1) for each in moved])
    total = float(parts.sum())
    if total == 0:
        return 0.0, 1.0
    return math.sqrt(total), total**2 / float((parts**2 / (sizes - 1)).sum())


_UNKNOWN = "main_score"  # the metric of a file that names none

SPECIALISTS = {"reranking": "rank_only", "embedding": "emb_only"}
DEFINITION = (
    "TIR = (specialist − joint) / specialist, per seed: the share of the specialist's score "
    "that joint training loses; negative where the joint model is better."
)
REQUIRED = ("rank", "base", "data_seed", "steps")
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
        names, *others = self.averaged.values()
        if others and all({*sets} == {*names} for sets in others):
            return f"{self.metric} on {in_words(names)} for both tasks"
        parts = [f"{in_words(sets)} for {kind}" for kind, sets in self.averaged.items()]
        return f"{self.metric} on {'; on '.join(parts)}"


@dataclass(frozen=True)
class Interference:
    """Interference of all joint configurations."""

    groups: tuple[Group, ...]  # one per joint configuration
    gate: Gate  # the thresholds
    required: tuple[str, ...]  # facts that have to agree
    missing: tuple[str, ...]  # specialists without a joint run

    def verdict(self, *, by: str = "evidence") -> str:
        """Return the weakest verdict of all groups, ``by`` ``evidence`` or ``point``."""
        one_of("kind of verdict", by, ("point", "evidence"))
        verdicts = [getattr(group.overall, f"by_{by}") for group in self.groups]
        return min(verdicts, key=_ORDER.index, default="NO RESULT")

    def exit_code(self, *, by: str = "evidence") -> int:
        """Exit code for the verdict; see `EXIT_CODES`."""
        return EXIT_CODES[self.verdict(by=by)]


def interference(
    scores: Iterable[Score], *, required: Sequence[str] = REQUIRED, gate: Gate | None = None
) -> Interference:
    """Estimate the interference of every joint configuration in ``scores``.

    Args:
        scores: from `collect.load_all_results`; runs without a known mode are left out.
        required: facts that have to agree (unknown facts do not);
            ``task_steps`` instead of ``steps`` compares the steps of the joint run on the task.
        gate: the thresholds.
    """
    runs: dict[tuple[str, int | None], Run] = {}
    # The last of several records of one adapter on one task is used.
    for score in from_oldest(scores):
        if score.main and "mode" in score.facts:
            key = (score.system, score.seed)
            earlier = runs.get(key, Run(*key, {}, {}))
            runs[key] = Run(*key, {**earlier.facts, **score.facts}, earlier.scores)
            runs[key].scores.setdefault(score.kind, {})[score.task] = score
    ordered = sorted(runs.values(), key=lambda run: (run.system, run.seed is None, run.seed or 0))
    known = [run for run in ordered if run.mode in SPECIALISTS.values()]
    joint = [run for run in ordered if run.mode.startswith("joint")]
    by_system = itertools.groupby(joint, key=lambda run: run.system)
    gate = gate or Gate()
    groups = tuple(_group([*own], known, required, gate) for _, own in by_system)
    seeds = {run.seed for run in joint}
    alone = [f"{run.name}: no joint run of this seed" for run in known if run.seed not in seeds]
    return Interference(groups, gate, tuple(required), tuple(alone))


def _group(
    joint: Sequence[Run], known: Sequence[Run], required: Sequence[str], gate: Gate
) -> Group:
    """Compare the runs of one joint configuration with the specialists among the ``known`` runs."""
    given: dict[str, list[_DataSet]] = {}
    refused, missing, notes = [], [], []
    seeds: dict[str, tuple[int | None, ...]] = {}
    for task, mode in SPECIALISTS.items():
        candidates = [run for run in known if run.mode == mode]
        pairs = []
        for run in joint:
            same_seed = [each for each in candidates if each.seed == run.seed]
            if not same_seed:
                missing.append(f"{task}: no {mode} run of seed {run.seed}")
                continue
            reason, specialist = _specialist(task, run, same_seed, required)
            if reason:
                refused.append(f"{task}: {reason}")
            else:
                pairs.append((specialist, run))
        seeds[task] = tuple(run.seed for _, run in pairs)
        given[task], left_out = _data_sets(task, pairs)
        notes += left_out
    metric = common_metric({task: [each.metric for each in own] for task, own in given.items()})
    alike = {task: [each for each in own if each.metric == metric] for task, own in given.items()}
    shared = set.intersection(*({each.label for each in own} for own in alike.values()))
    datasets, tasks, averaged = [], list[Measured](), dict[str, tuple[str, ...]]()
    for task, own in given.items():
        for each in own:
            one = estimate(f"{task}: {each.name}", seeds[task], [each.scores], gate=gate)
            datasets.append(one.estimate)
        counted = [each for each in alike[task] if not shared or each.label in shared]
        for each in own:
            if each.metric != metric:
                why = f"which is of {metric}; it has {each.metric}"
                notes.append(f"{task}: {each.name} is not part of the mean, {why}")
            elif shared and each.label not in shared:
                why = "which is over the data sets of both tasks"
                notes.append(f"{task}: {each.name} is not part of the mean, {why}")
        if counted:
            scores = [each.scores for each in counted]
            tasks.append(estimate(task, seeds[task], scores, gate=gate))
            averaged[task] = tuple(dict.fromkeys(each.label for each in counted))
    measured = {each.estimate.name for each in tasks}
    left = [
        f"{task}, which has no {metric if given[task] else 'pair'}"
        for task in SPECIALISTS
        if task not in measured
    ]
    return Group(
        system=joint[0].system,
        overall=mean_estimate(tasks, left_out=left, gate=gate),
        tasks=tuple(each.estimate for each in tasks),
        datasets=tuple(datasets),
        refused=tuple(refused),
        missing=(*missing, *notes),
        metric=metric,
        averaged=averaged,
    )


def common_metric(metrics: Mapping[str, Sequence[str]]) -> str:
    """Return the metric that most tasks have, then most data sets; the first of equals.

    ``metrics``: those of each task's data sets. Empty without any.

    >>> common_metric({"reranking": ["nDCG@10"], "embedding": ["Spearman", "Spearman", "nDCG@10"]})
    'nDCG@10'
    """
    every = [metric for own in metrics.values() for metric in own]
    tasks_with = {metric: sum(metric in own for own in metrics.values()) for metric in every}
    return max(tasks_with, key=lambda metric: (tasks_with[metric], every.count(metric)), default="")


def in_words(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    >>> in_words(["SciFact", "NFCorpus", "FiQA2018"])
    'SciFact, NFCorpus and FiQA2018'
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _specialist(
    task: str, joint: Run, candidates: Sequence[Run], required: Sequence[str]
) -> tuple[str, Run]:
    """Return the best matching specialist of a joint run, and why it is refused, or ""."""
    apart = {run.system: _disagreements(task, run, joint, required) for run in candidates}
    nearest = min(candidates, key=lambda run: len(apart[run.system]))
    if reasons := apart[nearest.system]:
        return f"{nearest.name} with {joint.name}: {'; '.join(reasons)}", nearest
    fitting = [run.name for run in candidates if not apart[run.system]]
    if len(fitting) > 1:
        names = ", ".join(fitting)
        return f"{joint.name} has several specialists, none is preferred: {names}", nearest
    if reason := _without_difference(nearest, joint):
        return reason, nearest
    lacking = [run.name for run in (nearest, joint) if not run.scores.get(task)]
    return (f"{lacking[0]} has no scores on this task" if lacking else ""), nearest


def _without_difference(specialist: Run, joint: Run) -> str:
    """Return why two adapters cannot show interference by what they change, or ""."""
    changes = []
    for run in (specialist, joint):
        change = run.facts.get("change")
        if not isinstance(change, list) or not change:
            return ""  # of an older record
        changes.append([float(value) for value in change])
        if has_no_effect(changes[-1]):
            return f"{run.name} has no effect: it scores as its base"
    if are_equal(changes[0], changes[1]):
        return f"{specialist.name} and {joint.name} are the same adapter after merging"
    return ""


def _disagreements(task: str, specialist: Run, joint: Run, required: Sequence[str]) -> list[str]:
    reasons = []
    for name in required:
        # The log of a specialist also counts the steps of its only task by name.
        key = f"steps_{task}" if name == "task_steps" else name
        ours, theirs = specialist.facts.get(key), joint.facts.get(key)
        if ours is None or theirs is None or ours != theirs:
            shown = ["unknown" if fact is None else str(fact) for fact in (ours, theirs)]
            reasons.append(f"{_WORDS.get(name, name)} {shown[0]} against {shown[1]}")
    return reasons


def clusters_of(scores: Iterable[Score]) -> Mapping[str, str]:
    """Return the clusters by query id of the newest score that has them."""
    clustered = from_oldest(score for score in scores if score.clusters)
    return clustered[-1].clusters if clustered else {}


def with_clusters(scores: Iterable[Score], others: Iterable[Score]) -> list[Score]:
    """Give scores of older records, which lack clusters, those of the same data.

    The clusters are those of the newest of the ``others`` on the task, or on the task that a
    reranking starts from (``SciFact.bm25-100``: ``SciFact``), that has one for each query.
    """
    clustered = [other for other in others if other.clusters]
    completed = []
    for score in scores:
        if score.clusters or not score.per_query:
            completed.append(score)
            continue
        same = [
            other
            for other in clustered
            if score.task == other.task or score.task.startswith(f"{other.task}.")
            if score.per_query.keys() <= other.clusters.keys()
        ]
        completed.append(replace(score, clusters=clusters_of(same)))
    return completed


class _DataSet(NamedTuple):
    """The scores of pairs of runs on one data set, by one metric."""

    name: str  # with the first stage of a reranking
    label: str  # without it
    metric: str
    scores: DataSetScores


def _data_sets(task: str, pairs: Sequence[tuple[Run, Run]]) -> tuple[list[_DataSet], list[str]]:
    """Return the data sets that all pairs have by one metric, and a note on each of the others."""
    runs = [run for pair in pairs for run in pair]  # specialist and joint of each seed in turn
    shape, found, notes = (len(pairs), 2), list[_DataSet](), []
    for name in dict.fromkeys(name for run in runs for name in run.scores[task]):
        given = [run.scores[task].get(name) for run in runs]
        own = [score for score in given if score is not None and score.value is not None]
        metrics = [*dict.fromkeys(score.metric for score in own)]
        if len(own) < len(runs):
            lacking = [run.name for run, each in zip(runs, given, strict=True) if each not in own]
            notes.append(f"{task}: {name} is left out, no score of {', '.join(lacking)}")
            continue
        if len(metrics) > 1:
            notes.append(f"{task}: {name} is left out, its runs have {' and '.join(metrics)}")
            continue
        # A metric without a name may be another on each data set.
        metric = f"{_UNKNOWN} of {name}" if metrics[0] == _UNKNOWN else metrics[0]
        if all(score.per_query for score in own):
            columns = {score.run: score.per_query for score in own}
            matrix = join(columns, task=f"{task}: {name}", clusters=clusters_of(own))
            values = matrix.scores.mean(axis=1).reshape(shape).T
            by_unit = matrix.units(matrix.scores).reshape(*shape, -1).transpose(2, 1, 0)
            scores = DataSetScores(values, (matrix.sampled, by_unit))
            notes += matrix.notes
        else:
            values = np.array([score.value for score in own], dtype=float)
            scores = DataSetScores(values.reshape(shape).T)
        found.append(_DataSet(name, own[0].data_set, metric, scores))
    return found, notes


QUERIES = f"{TEST} over queries"
SEEDS = "t-test over seeds"


@dataclass(frozen=True)
class ConfigurationDifference:
    """The mean difference first − second of two configurations on one data set."""

    kind: str  # ``reranking`` or ``embedding``
    task: str
    metric: str
    first: str  # name of a configuration
    second: str  # name of the other
    seeds: tuple[int | None, ...]  # seeds that both have
    by_seed: tuple[float, ...]  # difference per seed
    difference: float  # mean over seeds
    # over queries if there are scores per query, else over seeds; or None
    interval: Interval | None = None
    p_value: float | None = None  # two-sided, uncorrected; None if it cannot be computed
    corrected: float | None = None  # p-value corrected over its family
    family: int = 0  # number of p-values in that family
    n: int = 0  # number of queries that all runs answered; 0 without scores per query
    unpaired: int = 0  # number of queries that only some of the runs answered
    units: int = 0  # number of clusters of queries; 0 if queries were sampled one by one
    test: str = SEEDS  # name of the test
    undefined: str = ""  # why there is no p-value, or empty
    revision: str = ""  # of the data set; of a substitute, if any run used one


def configuration_differences(
    scores: Iterable[Score], *, draws: int = DRAWS, seed: int
) -> list[ConfigurationDifference]:
    """Compare all pairs of configurations on every data set that both were evaluated on."""
    table: dict[tuple[str, str, str], dict[str, dict[int | None, Score]]] = {}
    for score in from_oldest(scores):
        if score.main and score.value is not None:
            systems = table.setdefault((score.kind, score.task, score.metric), {})
            systems.setdefault(score.system, {})[score.seed] = score
    given = []
    for key, systems in sorted(table.items()):
        for first, second in itertools.combinations(sorted(systems), 2):
            ours, theirs = systems[first], systems[second]
            seeds = sorted(ours.keys() & theirs.keys(), key=lambda each: (each is None, each or 0))
            pairs = [(ours[each], theirs[each]) for each in seeds]
            if pairs:
                by_seed = tuple((a.value or 0.0) - (b.value or 0.0) for a, b in pairs)
                names, mean = (*key, first, second), float(np.mean(by_seed))
                revisions = [score.revision for pair in pairs for score in pair]
                revision = max(revisions, key=is_substitute)
                one = ConfigurationDifference(
                    *names, tuple(seeds), by_seed, mean, revision=revision
                )
                given.append(_tested(one, pairs, draws, seed))
    tested = [each.p_value for each in given if each.p_value is not None]
    values = iter(adjust(tested, how=HOLM))
    return [
        each if each.p_value is None else replace(each, corrected=next(values), family=len(tested))
        for each in given
    ]


def _tested(
    one: ConfigurationDifference, pairs: Sequence[tuple[Score, Score]], draws: int, seed: int
) -> ConfigurationDifference:
    """Add the p-value: the test of differences on the means over seeds, or a t-test over seeds."""
    columns = {f"{score.system} {score.seed}": score.per_query for pair in pairs for score in pair}
    if not all(columns.values()):
        values = np.array(one.by_seed)
        if len(values) == 1:
            return replace(one, undefined="one seed, and no scores per query")
        test, ends = t_test(values, np.zeros(len(values))), student_interval(values, level=LEVEL)
        return replace(one, interval=ends, p_value=test.p_value, undefined=test.undefined)
    common = set.intersection(*(set(each) for each in columns.values()))
    unpaired = len(set().union(*columns.values()) - common)
    if not common:
        reason = "the runs have no query in common"
        return replace(one, test=QUERIES, unpaired=unpaired, undefined=reason)
    joined = join(columns, task=one.task)
    rows = joined.scores.reshape(len(pairs), 2, -1)
    means = {
        name: system_scores(joined.queries, mean)
        for name, mean in zip((one.first, one.second), rows.mean(axis=0), strict=True)
    }
    clusters = clusters_of([score for pair in pairs for score in pair])
    tested = paired_difference(
        means, task=one.task, metric=one.metric, clusters=clusters, draws=draws, seed=seed
    )
    return replace(
        one,
        by_seed=tuple(float(each) for each in (rows[:, 0] - rows[:, 1]).mean(axis=1)),
        difference=tested.difference,
        interval=tested.interval,
        p_value=tested.p_value,
        n=tested.n,
        unpaired=unpaired,
        units=tested.units,
        test=QUERIES,
    )
