"""Published and expected scores, compared with measured ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.leaderboard.board import by_model
from qwen3nb.report.render.table import Cell, Conclusion, Table, number

if TYPE_CHECKING:
    from qwen3nb.evaluation.studies.reproduce import Reproduction


def reproduction_table(reproductions: Iterable[Reproduction]) -> Table:
    """Return published scores next to ours, or the reason why a score could not be run."""
    rows, reproductions = [], list(reproductions)
    for done in reproductions:
        each = done.published
        row: dict[str, Any] = {
            "model": each.model,
            "task": each.task,
            "published": (f"{each.value:.4f}", each.source),
            "ours": (done.verdict, done.reason),
            "difference": "not run",
            "tolerance": f"{each.tolerance:g}",
            "verdict": None,
        }
        if done.value is not None:
            row["ours"] = number(done.value, ".4f", detail=done.reason)
            row["difference"] = Cell("not judged")
            if done.is_judged:
                row["difference"] = number(done.value - each.value, "+.4f")
            row["verdict"] = Cell(done.verdict, strong=done.verdict == "FAIL")
        rows.append(row)
    return Table.of(
        rows,
        note="Main scores as MTEB defines them. OK: within the tolerance; OKish: within five times "
        "the tolerance. mteb: MTEB's results repository; card: the model's card; stored: first "
        "measured here.",
        kind="words",
        name="reproduction",
        caption="Published main scores next to ours, with their difference and tolerance.",
        data=DataUsed.of(done.result for done in reproductions),
    )


def reproduction_conclusion(reproductions: Iterable[Reproduction]) -> Conclusion:
    """State how many published scores are reproduced, and the largest deviation."""
    done = list(reproductions)
    off = [(r, r.value - r.published.value) for r in done if r.value is not None and r.is_judged]
    data = DataUsed.of(each.result for each in done)
    others = sum(each.verdict == "not judged" for each in done)
    on_others = ""
    if others:
        on_others = f" {others} are on a mirror's substitutes for MTEB's data and not judged."
    if not off:
        what = "judged" if others else "run"
        text = f"No published score could be {what} here, of {len(done)}.{on_others}"
        return Conclusion(text, data=data)
    worst, by = max(off, key=lambda each: abs(each[1]) / each[0].published.tolerance)
    exact, near = (sum(r.verdict == verdict for r, _ in off) for verdict in ("OK", "OKish"))
    return Conclusion(
        f"{exact} of {len(off)} published scores are reproduced within their tolerance, {near} "
        f"more within five times it. The farthest is {worst.published.model} on "
        f"{worst.published.task}: {by:+.4f}, tolerance {worst.published.tolerance:g}. "
        f"{len(done) - len(off) - others} could not be run here.{on_others}",
        data=data,
    )


# The data of expected scores: metric, MTEB's revision, and size, which is checked because a private
# hub may serve a sample under any revision.
_TARGETS = {
    "STSBenchmark": ("Spearman", "b0fddb56ed78048fa8b90373c8a3cfc37b684831", {"pairs": 1379}),
    "MSMARCO": (
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
    newest, _ = newest_records([r for r in latest(results) if r.task.key in _TARGETS])
    if not newest:
        return None
    names, rows = model_names(newest), []
    extracted = [r for r in newest if read_provenance(paths.root() / r.model.spec) is not None]
    for label, values in _EXPECTED.items():
        ours = label == _OURS
        named = [r for r in newest if label in (r.model.label, r.model.spec)]
        for identity, own in by_model(extracted if ours else named).items():
            row: dict[str, Any] = {"model": (names[identity], _OURS * ours)}
            for task, (metric, _, _) in _TARGETS.items():
                expected = f"{'>' if ours else '~'} {values[task]:.2f}"
                row[f"{task}\n{metric}, expected"] = expected
                row[f"{task}\n{metric}, measured"] = _measured(label, own, task)
            rows.append(row)
    if not rows:
        return None
    return Table.of(
        rows,
        note="Expected: about the value for baselines, above it for extracted models. Judged only "
        "on the data that MTEB pins, in full; scores on substitutes are shown, but not judged.",
        kind="words",
        name="expected",
        caption="Scores expected on STS-B and MS MARCO, and measured.",
        data=DataUsed.of(newest),
    )


def _measured(label: str, own: Mapping[str, Result], task: str) -> Cell:
    (metric, revision, size), record = _TARGETS[task], own.get(task)
    score = record.metrics.get(metric) if record else None
    if record is None or score is None or score.value is None:
        folder = next(iter(own.values())).model.spec
        return Cell("missing", f"qwen3nb eval --model {folder} --tasks {','.join(_TARGETS)}")
    if record.task.revision != revision or record.task.size != size:
        return number(score.value, detail="other data, not judged")
    off = score.value - _EXPECTED[label][task]
    verdict = f"{off:+.3f}" if label != _OURS else "above" if off > 0 else "BELOW"
    return number(score.value, detail=verdict, strong=verdict == "BELOW")


def sts_and_msmarco_table(results: Iterable[Result]) -> Table | None:
    """Return Spearman on every STS task with its mean, and the metrics recorded on MS MARCO.

    A row per model; the mean is over the STS tasks of the table, if a model has all of them. None
    without records of two such tasks.
    """
    given = [r for r in latest(results) if r.task.type == "STS" or r.task.key == "MSMARCO"]
    if len({each.task.key for each in given}) < 2:
        return None
    names, models = model_names(given), by_model(given)
    tasks = sorted({each.task.key for each in given if "Spearman" in each.metrics})
    recorded = {name for each in given if each.task.key == "MSMARCO" for name in each.metrics}
    metrics = [name for name in _MSMARCO_METRICS if name in recorded]
    columns = [*((task, "Spearman") for task in tasks), *(("MSMARCO", name) for name in metrics)]
    count, rows = len(tasks), []
    for identity, own in sorted(models.items(), key=lambda item: names[item[0]]):
        cells = [
            number(own[task].metrics.get(metric)) if task in own else Cell("not run")
            for task, metric in columns
        ]
        known = [each.value for each in cells[:count] if each.value is not None]
        mean = fmean(known) if known and len(known) == count else f"{len(known)} of {count}"
        rows.append((names[identity], *cells[:count], mean, *cells[count:]))
    heads = [*(f"{task}\nSpearman" for task in tasks), f"Avg\n{len(tasks)} STS tasks"]
    heads += [f"MS MARCO\n{metric.replace('Recall', 'R')}" for metric in metrics]
    return Table.of(
        rows,
        ("model", *heads),
        best=True,
        note="95 % intervals over pairs or queries; best of each column in bold.",
        name="sts-msmarco",
        caption="Correlations on every STS task, and the metrics on MS MARCO dev.",
        data=DataUsed.of(given),
    )
