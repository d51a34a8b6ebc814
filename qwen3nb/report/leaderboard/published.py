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
from qwen3nb.report.render.cell import Cell, number
from qwen3nb.report.render.conclusion import Conclusion
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import read_json

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
    """Return the published scores of a study; none if it has no such files.

    Args:
        folder: the study; by default `paths.root`.

    Raises:
        ValueError: an entry without a field, of a wrong type, or a value outside 0 to 1.
    """
    folder = folder or paths.root()
    file = folder / "published.toml"
    scores = []
    if file.is_file():
        try:
            listed = tomllib.loads(file.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{file}: not TOML ({error})") from None
        try:
            scores = TypeAdapter(list[OtherScore]).validate_python(listed.get("score", []))
        except ValidationError as error:
            first = error.errors()[0]
            number, field = (*first["loc"], "", "")[:2]
            raise ValueError(
                f"{file}, score {number + 1 if isinstance(number, int) else ''}: expected model, "
                "task, source and a value from 0 to 1 (divide percentages by 100); "
                f"{field}: {first['msg']}, got {first['input']!r}"
            ) from None
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
    """Return one's own main scores beside published ones, a row per task.

    None if no task of the tier has a published score.

    Args:
        results: any records; those on other tiers' tasks are ignored.
        tier: the tier whose tasks are the rows, if they have a published score.
        scores: published scores; by default those of the study.
    """
    others = read_published() if scores is None else list(scores)
    tasks = [key for key in TIERS[tier].task_keys if any(each.task == key for each in others)]
    if not tasks:
        return None
    on_tier = [r for r in latest(results) if r.task.key in tasks]
    names, (newest, _) = model_names(on_tier), newest_records(on_tier)
    own = {(names[r.model.identity], r.task.key): main_score(r) for r in newest}
    models = list(dict.fromkeys(name for name, _ in own))
    published = {(each.model, each.task): each for each in others}
    theirs = list(dict.fromkeys(each.model for each in others if each.task in tasks))
    rows = [
        (
            task,
            *(number(own.get((name, task)), ".4f", absent="not run") for name in models),
            *(_other(published.get((model, task))) for model in theirs),
        )
        for task in tasks
    ]
    return Table.of(
        rows,
        ("task", *models, *(f"{model}\npublished, not paired" for model in theirs)),
        note="Main scores as MTEB defines them. Published scores are other people's numbers: "
        "without their scores per query there is no paired difference, no interval and no test.",
        name=f"published-{tier}",
        caption="Main scores of one's own models beside published ones.",
    )


def _other(score: OtherScore | None) -> Cell:
    return Cell("–") if score is None else number(score.value, ".4f", detail=score.source)


def reproduction_table(reproductions: Iterable[Reproduction]) -> Table:
    """Return published scores beside ours; those that could not be run give the reason."""
    rows = []
    for done in reproductions:
        each, value = done.published, done.value
        verdict = Cell(done.verdict, strong=done.verdict == "FAIL")
        rows.append(
            {
                "model": each.model,
                "task": each.task,
                "published": (f"{each.value:.4f}", each.source),
                "ours": (done.verdict, done.reason) if value is None else f"{value:.4f}",
                "difference": "not run" if value is None else f"{value - each.value:+.4f}",
                "tolerance": f"{each.tolerance:g}",
                "verdict": None if value is None else verdict,
            }
        )
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
_OURS = "ours"  # every extracted model, of which more than the value is expected
_EXPECTED = {
    "Qwen3-0.6B": {"STSBenchmark": 0.60, "MSMARCO": 0.20},
    _OURS: {"STSBenchmark": 0.75, "MSMARCO": 0.30},
    "e5-base-v2": {"STSBenchmark": 0.84, "MSMARCO": 0.35},
    "gte-base": {"STSBenchmark": 0.82, "MSMARCO": 0.33},
}


def expected_table(results: Iterable[Result]) -> Table | None:
    """Return expected and measured scores on STS-B and MS MARCO, a row per model.

    None if no model has a score on either.

    Every extracted model is one of ours. A target is judged only on the data it was set for, in
    the revision that MTEB pins and in full; a cell without a score names the command that fills it.
    """
    newest, _ = newest_records([r for r in latest(results) if r.task.key in _TARGETS])
    if not newest:
        return None
    names, rows = model_names(newest), []
    for label, values in _EXPECTED.items():
        ours = label == _OURS
        models: dict[str, dict[str, Result]] = {}
        for record in newest:
            if (
                read_provenance(paths.root() / str(record.model.spec)) is not None
                if ours
                else label in (record.model.label, record.model.spec)
            ):
                models.setdefault(record.model.identity, {})[record.task.key] = record
        for identity, own in models.items() or [("", {})]:
            row: dict[str, Any] = {
                "model": (names.get(identity, label), _OURS * (ours and bool(identity)))
            }
            for task, data in _TARGETS.items():
                expected = f"{'>' if ours else '~'} {values[task]:.2f}"
                row[f"{task}\n{data.metric}, expected"] = expected
                row[f"{task}\n{data.metric}, measured"] = _measured(label, own, task)
            rows.append(row)
    return Table.of(
        rows,
        note="Expected: about the value for baselines, above it for extracted models. Judged only "
        "on the data that MTEB pins, in full; scores on substitutes are shown, but not judged.",
        kind="words",
        name="expected",
        caption="Scores expected on STS-B and MS MARCO, and measured.",
    )


def _measured(label: str, own: Mapping[str, Result], task: str) -> Cell:
    data, record = _TARGETS[task], own.get(task)
    score = record.metrics.get(data.metric) if record else None
    if record is None or score is None or score.value is None:
        spec = next((each.model.spec for each in own.values()), label)
        folder = "FOLDER" if spec == _OURS else spec
        return Cell("missing", f"qwen3nb eval --model {folder} --tasks {','.join(_TARGETS)}")
    if record.task.revision != data.revision or record.task.size != data.size:
        return number(score.value, detail="other data, not judged")
    off = score.value - _EXPECTED[label][task]
    verdict = f"{off:+.3f}" if label != _OURS else "above" if off > 0 else "BELOW"
    return number(score.value, detail=verdict, strong=verdict == "BELOW")


def sts_and_msmarco_table(results: Iterable[Result]) -> Table | None:
    """Return Spearman on every STS task with its mean, and five metrics on MS MARCO.

    A row per model; the mean is over the STS tasks of the table, if a model has all of them. None
    without records of such tasks.
    """
    given = [r for r in latest(results) if r.task.type == "STS" or r.task.key == "MSMARCO"]
    if not given:
        return None
    names, (newest, _) = model_names(given), newest_records(given)
    models: dict[str, dict[str, Result]] = {}
    for record in newest:
        models.setdefault(record.model.identity, {})[record.task.key] = record
    tasks = sorted({r.task.key for r in newest if "Spearman" in r.metrics})
    metrics = ("MRR@10", "Recall@1", "Recall@10", "Recall@100", "nDCG@10")
    rows = (
        (
            names[identity],
            *(_score(own.get(task), "Spearman") for task in tasks),
            _average(own, tasks),
            *(_score(own.get("MSMARCO"), metric) for metric in metrics),
        )
        for identity, own in sorted(models.items(), key=lambda item: names[item[0]])
    )
    heads = [*(f"{task}\nSpearman" for task in tasks), f"Avg\n{len(tasks)} STS tasks"]
    heads += [f"MS MARCO\n{metric.replace('Recall', 'R')}" for metric in metrics]
    return Table.of(
        rows,
        ("model", *heads),
        best=True,
        note="95 % intervals over pairs or queries; best of each column in bold.",
        name="sts-msmarco",
        caption="Correlations on every STS task, and five metrics on MS MARCO dev.",
    )


def _score(record: Result | None, metric: str) -> Cell:
    if record is None:
        return Cell("not run")
    return number(record.metrics.get(metric), absent="not recorded")


def _average(own: Mapping[str, Result], tasks: Sequence[str]) -> Cell:
    scores = [own[task].metrics.get("Spearman") for task in tasks if task in own]
    values = [each.value for each in scores if each is not None and each.value is not None]
    if not tasks or len(values) < len(tasks):
        return Cell(f"{len(values)} of {len(tasks)}", "incomplete")
    return number(fmean(values))
