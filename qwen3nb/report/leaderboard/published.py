"""Scores of others and scores expected, beside one's own: published, reproduced, targets.

Published scores of other models cannot be paired. They are read from ``published.toml`` in the
study, an entry per score,

    [[score]]
    model = "e5-base-v2"
    task = "SciFact"
    value = 0.7194
    source = "MTEB results repository"

and from a folder ``published`` in the layout of MTEB's results repository,
``<model>/<revision>/<task>.json``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.analysis.comparison.benchmark_means import main_score
from qwen3nb.checkpoints.provenance import read_provenance
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.leaderboard.board import by_model
from qwen3nb.report.render.cell import Cell, as_cell, number
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import read_json
from qwen3nb.utils.schema import field_problem

if TYPE_CHECKING:
    from qwen3nb.evaluation.studies.reproduce import Reproduction


@dataclass(frozen=True)
class OtherScore:
    """A published score: model, key of the task, main score from 0 to 1, and its source."""

    model: str
    task: str
    value: Annotated[float, Field(strict=True, ge=0, le=1)]
    source: str


def read_published(folder: Path | None = None) -> list[OtherScore]:
    """Return the published scores of a study, by default `paths.root`; none without such files.

    Raises:
        ValueError: an entry without a field, of a wrong type, or a value outside 0 to 1.
    """
    folder = folder or paths.root()
    file = folder / "published.toml"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    try:
        listed = tomllib.loads(text).get("score", [])
        scores = TypeAdapter(list[OtherScore]).validate_python(listed)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: not TOML ({error})") from None
    except ValidationError as error:
        problem = field_problem(error, listed, within=["score"])
        raise ValueError(f"{file}: {problem} (divide percentages by 100)") from None
    files = sorted((folder / "published").glob("*/*/*.json"))
    return scores + [_mteb(each) for each in files if each.name != "model_meta.json"]


def _mteb(file: Path) -> OtherScore:
    """Read a file of MTEB's results repository; the score is the mean over splits and subsets."""
    content = read_json(file)
    model = file.parent.parent.name.replace("__", "/")
    try:
        scores = [float(row["main_score"]) for rows in content["scores"].values() for row in rows]
        return OtherScore(model, str(content["task_name"]), fmean(scores), "MTEB results")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{file}: not a file of MTEB's results ({error!r})") from None


def other_scores_table(
    results: Iterable[Result], *, tier: str, scores: Sequence[OtherScore] | None = None
) -> Table | None:
    """Return one's own main scores beside published ones, a row per task that has one.

    None if no task of the tier has a published score; ``scores`` are by default the study's.
    """
    others = read_published() if scores is None else list(scores)
    tasks = [key for key in TIERS[tier].task_keys if any(each.task == key for each in others)]
    if not tasks:
        return None
    on_tier = [r for r in latest(results) if r.task.key in tasks]
    names, records = model_names(on_tier), by_model(on_tier)
    published = {
        (each.model, each.task): number(each.value, ".4f", detail=each.source) for each in others
    }
    theirs = list(dict.fromkeys(each.model for each in others if each.task in tasks))
    rows = []
    for task in tasks:
        ours = (main_score(own[task]) if task in own else None for own in records.values())
        rows.append(
            (
                task,
                *(number(value, ".4f", absent="not run") for value in ours),
                *(published.get((model, task)) for model in theirs),
            )
        )
    heads = (*map(names.__getitem__, records), *(f"{m}\npublished, not paired" for m in theirs))
    return Table.of(
        rows,
        ("task", *heads),
        note="Main scores as MTEB defines them. Published scores are other people's numbers: "
        "without their scores per query there is no paired difference, no interval and no test.",
        name=f"published-{tier}",
        caption="Main scores of one's own models beside published ones.",
    )


def reproduction_table(reproductions: Iterable[Reproduction]) -> Table:
    """Return published scores beside ours; those that could not be run give the reason."""
    rows = []
    for done in reproductions:
        each, value = done.published, done.value
        row: dict[str, Any] = {
            "model": each.model,
            "task": each.task,
            "published": (f"{each.value:.4f}", each.source),
            "ours": (done.verdict, done.reason),
            "difference": "not run",
            "tolerance": f"{each.tolerance:g}",
            "verdict": None,
        }
        if value is not None:
            row["ours"], row["difference"] = f"{value:.4f}", f"{value - each.value:+.4f}"
            row["verdict"] = Cell(done.verdict, strong=done.verdict == "FAIL")
        rows.append(row)
    return Table.of(
        rows,
        note="Main scores as MTEB defines them. OK: within the tolerance; OKish: within five times "
        "the tolerance. mteb: MTEB's results repository; card: the model's card; stored: first "
        "measured here.",
        kind="words",
        name="reproduction",
        caption="Published main scores beside ours, with their difference and tolerance.",
    )


def reproduction_conclusion(reproductions: Iterable[Reproduction]) -> Conclusion:
    """Say how many published scores are reproduced, and name the one that is farthest off."""
    done = list(reproductions)
    run = [each for each in done if each.value is not None]
    left = f" {len(done) - len(run)} could not be run here." if len(run) < len(done) else ""
    if not run:
        return Conclusion(f"No published score could be run here, of {len(done)}.")
    off = {id(each): (each.value or 0.0) - each.published.value for each in run}
    worst = max(run, key=lambda each: abs(off[id(each)]) / each.published.tolerance)
    exact, near, failed = (
        sum(each.verdict == verdict for each in run) for verdict in ("OK", "OKish", "FAIL")
    )
    beyond = f"; {near} within five times it" if near else ""
    beyond += f"; {failed} not" if failed else ""
    return Conclusion(
        f"{exact} of {len(run)} published scores are reproduced within their tolerance{beyond}. "
        f"The farthest is {worst.published.model} on {worst.published.task}: "
        f"{off[id(worst)]:+.4f}, tolerance {worst.published.tolerance:g}.{left}"
    )


@dataclass(frozen=True)
class _Data:
    """The data that expected scores were set for: metric, MTEB's revision, and its size.

    A hub of one's own may serve a sample under any revision.
    """

    metric: str
    revision: str
    size: Mapping[str, int]


_STS = _Data("Spearman", "b0fddb56ed78048fa8b90373c8a3cfc37b684831", {"pairs": 1379})
_MSMARCO = _Data(
    "MRR@10",
    "c5a29a104738b98a9e76336939199e264163d4a0",
    {"documents": 8_841_823, "queries": 6980},
)
_TARGETS = {"STSBenchmark": _STS, "MSMARCO": _MSMARCO}
_MSMARCO_METRICS = ("MRR@10", "Recall@1", "Recall@10", "Recall@100", "nDCG@10")
_OURS = "ours"  # every extracted model, of which more than the value is expected
_EXPECTED = {
    "Qwen3-0.6B": {"STSBenchmark": 0.60, "MSMARCO": 0.20},
    _OURS: {"STSBenchmark": 0.75, "MSMARCO": 0.30},
    "e5-base-v2": {"STSBenchmark": 0.84, "MSMARCO": 0.35},
    "gte-base": {"STSBenchmark": 0.82, "MSMARCO": 0.33},
}


def expected_table(results: Iterable[Result]) -> Table | None:
    """Return expected and measured scores on STS-B and MS MARCO, a row per model.

    None if no model of which a score is expected has one on either.

    Every extracted model is one of ours. A target is judged only on the data it was set for, in
    the revision that MTEB pins and in full; of a model with one of the scores, a cell without the
    other names the command that fills it.
    """
    newest, _ = newest_records([r for r in latest(results) if r.task.key in _TARGETS])
    if not newest:
        return None
    names, rows = model_names(newest), []
    for label, values in _EXPECTED.items():
        ours = label == _OURS
        models = by_model(record for record in newest if _is(record, label))
        for identity, own in models.items():
            row: dict[str, Any] = {"model": (names[identity], _OURS * ours)}
            for task, data in _TARGETS.items():
                expected = f"{'>' if ours else '~'} {values[task]:.2f}"
                row[f"{task}\n{data.metric}, expected"] = expected
                row[f"{task}\n{data.metric}, measured"] = _measured(label, own, task)
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
    )


def _is(record: Result, label: str) -> bool:
    if label == _OURS:
        return read_provenance(paths.root() / str(record.model.spec)) is not None
    return label in (record.model.label, record.model.spec)


def _measured(label: str, own: Mapping[str, Result], task: str) -> Cell:
    data, record = _TARGETS[task], own.get(task)
    score = record.metrics.get(data.metric) if record else None
    if record is None or score is None or score.value is None:
        folder = next(iter(own.values())).model.spec
        return Cell("missing", f"qwen3nb eval --model {folder} --tasks {','.join(_TARGETS)}")
    if record.task.revision != data.revision or record.task.size != data.size:
        return number(score.value, detail="other data, not judged")
    off = score.value - _EXPECTED[label][task]
    verdict = f"{off:+.3f}" if label != _OURS else "above" if off > 0 else "BELOW"
    return number(score.value, detail=verdict, strong=verdict == "BELOW")


def sts_and_msmarco_table(results: Iterable[Result]) -> Table | None:
    """Return Spearman on every STS task with its mean, and the metrics recorded on MS MARCO.

    A row per model; the mean is over the STS tasks of the table, if a model has all of them. None
    without records of two such tasks, of which the leaderboard has the scores.
    """
    given = [r for r in latest(results) if r.task.type == "STS" or r.task.key == "MSMARCO"]
    if len({each.task.key for each in given}) < 2:
        return None
    names, models = model_names(given), by_model(given)
    every = {r.task.key for own in models.values() for r in own.values() if "Spearman" in r.metrics}
    tasks = sorted(every)
    recorded = {name for each in given if each.task.key == "MSMARCO" for name in each.metrics}
    metrics = [name for name in _MSMARCO_METRICS if name in recorded]
    columns = [*((task, "Spearman") for task in tasks), *(("MSMARCO", each) for each in metrics)]
    rows = []
    for identity, own in sorted(models.items(), key=lambda item: names[item[0]]):
        cells: list[Any] = [
            number(own[task].metrics.get(metric), absent="not recorded")
            if task in own
            else "not run"
            for task, metric in columns
        ]
        known = [each.value for each in map(as_cell, cells[: len(tasks)]) if each.value is not None]
        whole = tasks and len(known) == len(tasks)
        mean = fmean(known) if whole else (f"{len(known)} of {len(tasks)}", "incomplete")
        rows.append((names[identity], *cells[: len(tasks)], mean, *cells[len(tasks) :]))
    heads = [*(f"{task}\nSpearman" for task in tasks), f"Avg\n{len(tasks)} STS tasks"]
    heads += [f"MS MARCO\n{metric.replace('Recall', 'R')}" for metric in metrics]
    return Table.of(
        rows,
        ("model", *heads),
        best=True,
        note="95 % intervals over pairs or queries; best of each column in bold.",
        name="sts-msmarco",
        caption="Correlations on every STS task, and the metrics on MS MARCO dev.",
    )
