"""Scores that the design documents expect on STS-B and MS MARCO, and all STS tasks."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.answers.board.grid import by_model
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.table import Cell, Table, number


class _Target(NamedTuple):
    """The data of an expected score."""

    metric: str
    revision: str  # MTEB's
    size: Mapping[str, int]  # checked, because a private hub may serve a sample


TARGETS = {
    "STSBenchmark": _Target(
        "Spearman", "b0fddb56ed78048fa8b90373c8a3cfc37b684831", {"pairs": 1379}
    ),
    "MSMARCO": _Target(
        "MRR@10",
        "c5a29a104738b98a9e76336939199e264163d4a0",
        {"documents": 8_841_823, "queries": 6980},
    ),
}
_MSMARCO_METRICS = ("MRR@10", "Recall@1", "Recall@10", "Recall@100", "nDCG@10")
_OURS = "ours"  # extracted models, expected to exceed the value
_EXPECTED = {
    "Qwen3-0.6B": {"STSBenchmark": 0.60, "MSMARCO": 0.20},
    _OURS: {"STSBenchmark": 0.75, "MSMARCO": 0.30},
    "e5-base-v2": {"STSBenchmark": 0.84, "MSMARCO": 0.35},
    "gte-base": {"STSBenchmark": 0.82, "MSMARCO": 0.33},
}


def expected_table(results: Iterable[Result]) -> Table | None:
    """Return expected and measured scores on STS-B and MS MARCO, a row per model.

    None if no model with an expected score was measured. A target is judged only on the full data
    it was set for; a missing score names the command that measures it.
    """
    records, _ = newest_records(result for result in latest(results) if result.task.key in TARGETS)
    names = model_names(records)
    rows = []
    for label in _EXPECTED:
        records_of_label = _records_with_expectation(label, records)
        for identity, records_by_task in by_model(records_of_label).items():
            rows.append(_expected_row(label, names[identity], records_by_task))
    if not rows:
        return None
    return Table.of(
        rows,
        note="Expected: about the value for baselines, above it for extracted models. Judged only "
        "on the data that MTEB pins, in full; scores on substitutes are shown, but not judged.",
        kind="words",
        name="expected",
        caption="Scores expected on STS-B and MS MARCO, and measured.",
        data=DataUsed.of(records),
    )


def _records_with_expectation(label: str, records: Iterable[Result]) -> list[Result]:
    """Return the records of a model with an expected score, or of all extracted models."""
    if label != _OURS:
        return [record for record in records if label in (record.model.label, record.model.spec)]
    root = paths.root()
    return [record for record in records if read_provenance(root / record.model.spec) is not None]


def _expected_row(
    label: str, name: str, records_by_task: Mapping[str, Result]
) -> dict[str, object]:
    # "~": about the value; ">": above it.
    relation, remark = "~", ""
    if label == _OURS:
        relation, remark = ">", _OURS
    row: dict[str, object] = {"model": (name, remark)}
    for task, target in TARGETS.items():
        row[f"{task}\n{target.metric}, expected"] = f"{relation} {_EXPECTED[label][task]:.2f}"
        row[f"{task}\n{target.metric}, measured"] = _measured_cell(label, records_by_task, task)
    return row


def _measured_cell(label: str, records_by_task: Mapping[str, Result], task: str) -> Cell:
    target = TARGETS[task]
    score = None
    if task in records_by_task:
        score = records_by_task[task].metrics.get(target.metric)
    if score is None or score.value is None:
        folder = next(iter(records_by_task.values())).model.spec
        return Cell("missing", f"qwen3nb eval --model {folder} --tasks {','.join(TARGETS)}")
    measured_on = records_by_task[task].task
    if measured_on.revision != target.revision or measured_on.size != target.size:
        return number(score.value, detail="other data, not judged")
    difference = score.value - _EXPECTED[label][task]
    # Only extracted models have to exceed the value.
    if label != _OURS:
        return number(score.value, detail=f"{difference:+.3f}")
    if difference > 0:
        return number(score.value, detail="above")
    return number(score.value, detail="BELOW", strong=True)


def sts_table(results: Iterable[Result]) -> Table | None:
    """Return Spearman on every STS task with its mean, and the metrics recorded on MS MARCO.

    A row per model; the mean is over the STS tasks of the table, if a model has all of them. None
    without records of two such tasks.
    """
    records = [
        record
        for record in latest(results)
        if record.task.type == "STS" or record.task.key == "MSMARCO"
    ]
    if len({record.task.key for record in records}) < 2:
        return None
    tasks = sorted({record.task.key for record in records if "Spearman" in record.metrics})
    metrics = _metrics_on_msmarco(records)
    heads = ["model", *(f"{task}\nSpearman" for task in tasks), f"Avg\n{len(tasks)} STS tasks"]
    heads += [f"MS MARCO\n{metric.replace('Recall', 'R')}" for metric in metrics]
    names = model_names(records)
    rows = []
    for identity, records_by_task in by_model(records).items():
        correlations = [_metric_cell(records_by_task, task, "Spearman") for task in tasks]
        mean = _mean_of_cells(correlations)
        scores_on_msmarco = [_metric_cell(records_by_task, "MSMARCO", metric) for metric in metrics]
        rows.append((names[identity], *correlations, mean, *scores_on_msmarco))
    rows.sort(key=operator.itemgetter(0))  # by name
    return Table.of(
        rows,
        heads,
        best=True,
        note="95 % intervals over pairs or queries; best of each column in bold.",
        name="sts-msmarco",
        caption="Correlations on every STS task, and the metrics on MS MARCO dev.",
        data=DataUsed.of(records),
    )


def _metrics_on_msmarco(records: Iterable[Result]) -> list[str]:
    """Return the metrics that a record on MS MARCO has, in the order of their columns."""
    recorded: set[str] = set()
    for record in records:
        if record.task.key == "MSMARCO":
            recorded |= record.metrics.keys()
    return [metric for metric in _MSMARCO_METRICS if metric in recorded]


def _metric_cell(records_by_task: Mapping[str, Result], task: str, metric: str) -> Cell:
    if task not in records_by_task:
        return Cell("not run")
    return number(records_by_task[task].metrics.get(metric))


def _mean_of_cells(cells: Sequence[Cell]) -> float | str:
    """Return the mean of scores, or how many of them there are if some are missing."""
    scores = [cell.value for cell in cells if cell.value is not None]
    if scores and len(scores) == len(cells):
        return fmean(scores)
    return f"{len(scores)} of {len(cells)}"
