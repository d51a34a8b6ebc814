"""Task interference: the cost of training one adapter jointly on two tasks.

The task interference ratio (TIR) of a seed is (specialist − joint) / specialist: the share of
the specialist's score that joint training loses; it is negative if the joint model is better.
It is averaged over seeds; the maximum over tasks and seeds would find interference in noise.

The kill gate decides whether there is enough interference to be worth treating: PASS at 2 % or
more, FAIL below 1 %, MARGINAL in between. There are two verdicts: by evidence, which is
INCONCLUSIVE if the interval over seeds and queries crosses a threshold or there is one seed, and
by point estimate. Evidence decides unless the point is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qwen3nb.analysis.inventory.score import Score
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.analysis.training.match_runs import REQUIRED, Matched, Run, RunPair, match_runs
from qwen3nb.analysis.training.tir_estimate import (
    EXIT_CODES,
    Estimate,
    Gate,
    Measured,
    Queries,
    estimate,
    mean_estimate,
)
from qwen3nb.metrics.intervals import Array
from qwen3nb.utils.format import interval_text, json_text, number_text, percent_text
from qwen3nb.utils.markdown import escaped, markdown_table

__all__ = ["SPECIALISTS", "Group", "Interference", "interference"]

SPECIALISTS = {"reranking": "rank_only", "embedding": "emb_only"}
DEFINITION = (
    "TIR = (specialist − joint) / specialist, per seed: the share of the specialist's score "
    "that joint training loses; negative where the joint model is better."
)
_ORDER = ("NO RESULT", "INCONCLUSIVE", "MARGINAL", "FAIL", "PASS")


@dataclass(frozen=True)
class Group:
    """One joint configuration against its specialists.

    Attributes:
        system: name of the joint configuration.
        mode: its training mode; ``rank`` and ``base`` are those of its adapter.
        overall: mean TIR of the tasks.
        tasks: one estimate per task, on the mean of its data sets.
        datasets: one estimate per task and data set.
        refused: pairs that are not comparable, with the reason.
        missing: missing runs and scores.
    """

    system: str
    mode: str
    rank: int | None
    base: str | None
    overall: Estimate
    tasks: tuple[Estimate, ...]
    datasets: tuple[Estimate, ...]
    refused: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Interference:
    """Interference of all joint configurations.

    Attributes:
        groups: one per joint configuration.
        gate: the thresholds.
        required: facts that have to agree.
        level: of the intervals.
        missing: specialists without a joint run.
    """

    groups: tuple[Group, ...]
    gate: Gate
    required: tuple[str, ...]
    level: float
    missing: tuple[str, ...]

    def verdict(self, *, by: str = "evidence") -> str:
        """The weakest verdict of all groups, ``by`` ``evidence`` or ``point``."""
        verdicts = [group.overall.verdict(by) for group in self.groups]
        return min(verdicts, key=_ORDER.index, default="NO RESULT")

    def exit_code(self, *, by: str = "evidence") -> int:
        """Exit code for the verdict; see `EXIT_CODES`."""
        return EXIT_CODES[self.verdict(by=by)]

    def to_json(self) -> str:
        """As strict JSON."""
        return json_text(self)

    def to_markdown(self) -> str:
        """As Markdown: definition, rule, and one table per joint configuration."""
        parts = [escaped(DEFINITION), self.gate.text]
        parts.append(f"Compared: same seed, and the same {', '.join(self.required)}.")
        parts += [_group_markdown(group, self.level) for group in self.groups]
        if not self.groups:
            parts.append("No joint run.")
        parts += [f"- missing: {escaped(line)}" for line in self.missing]
        return "\n\n".join(parts) + "\n"


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


@dataclass(frozen=True)
class _DataSetScores:
    """Scores on one data set per role and seed (2, S), its queries and their scores (n, 2, S).

    Without scores per query, the latter two are empty.
    """

    values: Array
    queries: Queries = ()
    by_query: Array | None = None


def _group(matched: Matched, wanted: Sequence[str], *, gate: Gate, level: float) -> Group:
    tasks: list[Measured] = []
    datasets = []
    missing = list(matched.missing)
    for task, pairs in matched.pairs.items():
        cells, notes = _cells(task, pairs)
        missing += notes
        if not cells:
            continue
        seeds = tuple(pair.joint.seed for pair in pairs)
        for dataset, cell in cells.items():
            one = _estimate(f"{task}: {dataset}", seeds, [cell], gate=gate, level=level)
            datasets.append(one.estimate)
        tasks.append(_estimate(task, seeds, list(cells.values()), gate=gate, level=level))
    left = [task for task in wanted if task not in {each.estimate.name for each in tasks}]
    overall = mean_estimate(tasks, left_out=left, gate=gate, level=level)
    return Group(
        system=matched.system,
        mode=str(matched.facts["mode"]),
        rank=matched.facts["rank"],
        base=matched.facts["base"],
        overall=overall,
        tasks=tuple(each.estimate for each in tasks),
        datasets=tuple(datasets),
        refused=matched.refused,
        missing=tuple(missing),
    )


def _cells(task: str, pairs: Sequence[RunPair]) -> tuple[dict[str, _DataSetScores], list[str]]:
    """Scores on the data sets that all pairs have, and a note on each of the others."""
    runs = [(run, pair.task) for pair in pairs for run in (pair.specialist, pair.joint)]
    tables = [run.scores[kind] for run, kind in runs]
    names = list(dict.fromkeys(name for table in tables for name in table))
    notes = []
    cells = {}
    for name in names:
        lacking = [run.name for run, kind in runs if not _has(run, kind, name)]
        if lacking:
            notes.append(f"{task}: {name} is left out, no score of {', '.join(lacking)}")
            continue
        cells[name], unpaired = _cell(task, name, pairs)
        notes += unpaired
    return cells, notes


def _has(run: Run, kind: str, name: str) -> bool:
    score = run.scores[kind].get(name)
    return score is not None and score.value is not None


def _cell(task: str, name: str, pairs: Sequence[RunPair]) -> tuple[_DataSetScores, list[str]]:
    """Scores on one data set, from the queries that all runs answered, if there are any."""
    rows = [[run.scores[task][name] for run in (pair.specialist, pair.joint)] for pair in pairs]
    if not all(score.per_query for row in rows for score in row):
        return _DataSetScores(np.array([[s.value for s in row] for row in rows], float).T), []
    columns = {score.run: score.per_query for row in rows for score in row}
    matrix = join(columns, task=f"{task}: {name}")
    # Rows: specialist and joint of each seed in turn.
    scores = matrix.scores.reshape(len(pairs), 2, -1).transpose(2, 1, 0)
    return _DataSetScores(scores.mean(axis=0), tuple(matrix.queries), scores), list(matrix.notes)


def _estimate(
    name: str,
    seeds: tuple[int | None, ...],
    cells: Sequence[_DataSetScores],
    *,
    gate: Gate,
    level: float,
) -> Measured:
    """Estimate the TIR of the mean over data sets."""
    values = np.mean([cell.values for cell in cells], axis=0)
    by_query = [(cell.queries, cell.by_query) for cell in cells if cell.by_query is not None]
    known = by_query if len(by_query) == len(cells) else None
    return estimate(name, seeds, values, known, gate=gate, level=level)


def _group_markdown(group: Group, level: float) -> str:
    interval = f"{100 * level:g} % interval"
    heads = (
        "task", "seeds", "TIR, mean ± std", interval, "specialist − joint", "by evidence",
        "by point",
    )  # fmt: skip
    rows = []
    for each in (*group.datasets, *group.tasks, group.overall):
        spread = "" if each.std is None else f" ± {percent_text(each.std, sign=False)}"
        rows.append(
            (
                each.name,
                ", ".join(map(str, each.seeds)) or "–",
                percent_text(each.tir) + spread,
                interval_text(each.interval, percent=True),
                number_text(each.delta, sign=True, digits=4),
                each.by_evidence,
                each.by_point,
            )
        )
    title = f"**{escaped(group.system)}** (rank {group.rank}, base {escaped(str(group.base))})"
    lines = [f"- refused: {escaped(line)}" for line in group.refused]
    lines += [f"- missing: {escaped(line)}" for line in group.missing]
    for each in (*group.datasets, *group.tasks, group.overall):
        lines += [f"- {escaped(each.name)}: {escaped(note)}" for note in each.notes]
    parts = [title, markdown_table(heads, rows)]
    return "\n\n".join([*parts, "\n".join(lines)] if lines else parts)
