"""STS and MS MARCO in one table, and what was expected there beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import number
from qwen3nb.report.render.table import Table, with_ranks

__all__ = ["expected_table", "sts_and_msmarco_table"]

# The revisions of the data that MTEB pins: what is expected was set for these.
_REAL = {
    "STSBenchmark": "b0fddb56ed78048fa8b90373c8a3cfc37b684831",
    "MSMARCO": "c5a29a104738b98a9e76336939199e264163d4a0",
}
# Their sizes: a hub of one's own may serve a sample under any revision.
_SIZES = {
    "STSBenchmark": {"pairs": 1379},
    "MSMARCO": {"documents": 8_841_823, "queries": 6980},
}
_METRICS = {"STSBenchmark": "Spearman", "MSMARCO": "MRR@10"}
_MSMARCO = ("MRR@10", "Recall@1", "Recall@10", "Recall@100", "nDCG@10")


@dataclass(frozen=True)
class _Expected:
    """What was expected of a model: ``above`` is a target, else about the value is expected."""

    model: str
    values: Mapping[str, float]
    above: bool = False

    def text(self, task: str) -> str:
        return f"{'>' if self.above else '~'} {self.values[task]:.2f}"


_OURS = "ours"
_EXPECTED = (
    _Expected("Qwen3-0.6B", {"STSBenchmark": 0.60, "MSMARCO": 0.20}),
    _Expected(_OURS, {"STSBenchmark": 0.75, "MSMARCO": 0.30}, above=True),
    _Expected("e5-base-v2", {"STSBenchmark": 0.84, "MSMARCO": 0.35}),
    _Expected("gte-base", {"STSBenchmark": 0.82, "MSMARCO": 0.33}),
)


def expected_table(results: Iterable[Result]) -> Table | None:
    """Return expected and measured scores on STS-B and MS MARCO, a row per model.

    None if no model has a score on either.

    Every extracted model is one of ours. A target is judged only on the data it was set for, in
    the revision that MTEB pins and in full; a cell without a score names the command that fills it.
    """
    newest, _ = newest_records([r for r in latest(results) if r.task.key in _REAL])
    if not newest:
        return None
    names = model_names(newest)
    rows = []
    for expected in _EXPECTED:
        models = _models(expected.model, newest)
        for name, own in models.items() or [("", {})]:
            shown = names.get(name, expected.model)
            label = Cell(shown, "ours" if expected.above and name else "")
            spec = next(iter(own.values())).model.spec if own else expected.model
            cells = [
                cell
                for task in _REAL
                for cell in (Cell(expected.text(task)), _measured(expected, own, task, spec))
            ]
            rows.append((label, *cells))
    heads = [
        head
        for task, metric in _METRICS.items()
        for head in (f"{task}\n{metric}, expected", f"{task}\n{metric}, measured")
    ]
    note = (
        "Expected: about the value for baselines, above it for extracted models. Judged only on "
        "the data that MTEB pins, in full; scores on substitutes are shown, but not judged."
    )
    return Table(("model", *heads), tuple(rows), note, kind="words", name="expected",
                 caption="Scores expected on STS-B and MS MARCO, and measured.")  # fmt: skip


def _models(name: str, records: Sequence[Result]) -> dict[str, dict[str, Result]]:
    """Return the records by model identity, then task, of a baseline or of all extracted models."""
    models: dict[str, dict[str, Result]] = {}
    for record in records:
        own = name in (record.model.label, record.model.spec)
        if name == _OURS:
            own = read_provenance(paths.root() / str(record.model.spec)) is not None
        if own:
            models.setdefault(record.model.identity, {})[record.task.key] = record
    return models


def _measured(expected: _Expected, own: Mapping[str, Result], task: str, spec: str) -> Cell:
    record = own.get(task)
    score = record.metrics.get(_METRICS[task]) if record else None
    if record is None or score is None or score.value is None:
        folder = "FOLDER" if spec == _OURS else spec
        return Cell("missing", f"qwen3nb eval --model {folder} --tasks {','.join(_REAL)}")
    if record.task.revision != _REAL[task] or record.task.size != _SIZES[task]:
        return Cell(f"{score.value:.3f}", "other data, not judged", value=score.value)
    off = score.value - expected.values[task]
    verdict = ("above" if off > 0 else "BELOW") if expected.above else f"{off:+.3f}"
    return Cell(f"{score.value:.3f}", verdict, value=score.value, strong=verdict == "BELOW")


def sts_and_msmarco_table(results: Iterable[Result]) -> Table | None:
    """Return Spearman on every STS task with its mean, and five metrics on MS MARCO.

    A row per model; the mean is over the STS tasks of the table, if a model has all of them. None
    without records of such tasks.
    """
    given = [r for r in latest(results) if r.task.type == "STS" or r.task.key == "MSMARCO"]
    names, (newest, _) = model_names(given), newest_records(given)
    models: dict[str, dict[str, Result]] = {}
    for record in newest:
        models.setdefault(record.model.identity, {})[record.task.key] = record
    tasks = sorted({r.task.key for r in newest if "Spearman" in r.metrics})
    rows = [
        [
            Cell(names[identity]),
            *(_score(own.get(task), "Spearman") for task in tasks),
            _average(own, tasks),
            *(_score(own.get("MSMARCO"), metric) for metric in _MSMARCO),
        ]
        for identity, own in sorted(models.items(), key=lambda item: names[item[0]])
    ]
    heads = [*(f"{task}\nSpearman" for task in tasks), f"Avg\n{len(tasks)} STS tasks"]
    heads += [f"MS MARCO\n{metric.replace('Recall', 'R')}" for metric in _MSMARCO]
    note = "95 % intervals over pairs or queries; best of each column in bold."
    if not rows:
        return None
    caption = "Correlations on every STS task, and five metrics on MS MARCO dev."
    return Table(("model", *heads), with_ranks(rows), note, name="sts-msmarco", caption=caption)


def _score(record: Result | None, metric: str) -> Cell:
    if record is None:
        return Cell("not run")
    score = record.metrics.get(metric)
    return Cell("not recorded") if score is None else number(score)


def _average(own: Mapping[str, Result], tasks: Sequence[str]) -> Cell:
    scores = [own[task].metrics.get("Spearman") for task in tasks if task in own]
    values = [each.value for each in scores if each is not None and each.value is not None]
    if not tasks or len(values) < len(tasks):
        return Cell(f"{len(values)} of {len(tasks)}", "incomplete")
    return Cell(f"{fmean(values):.3f}", value=fmean(values))
