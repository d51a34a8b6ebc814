"""Forecast the means of benchmarks for families of models that the fit has not seen.

Prints how far the forecasts err, and how often the interval of level 0.95 holds the true mean. The
factor that widens an interval is computed from the other families only.

    python -m benchmarks.forecasting

With the published results of MTEB in a folder, it first writes the package's data again:

    python -m benchmarks.forecasting --published FOLDER
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.options import command
from qwen3nb.analysis.forecasting.fitted import write_fitted
from qwen3nb.analysis.forecasting.forecast import USUAL, Calibration
from qwen3nb.analysis.forecasting.published import (
    PublishedBenchmark,
    PublishedScores,
    Source,
    published_benchmarks,
    published_scores,
    write_facts,
    write_published_scores,
)
from qwen3nb.analysis.forecasting.replay import FieldScores, LeftOut, calibrated, replay

BUDGETS = (0.01, 0.03, 0.05, 0.15, 0.3)
_COST_COLUMNS = {
    "MTEB(eng, v2)": ("cost_eng_v2", "time"),
    "BEIR": ("cost_beir", "documents"),
    "MTEB(Multilingual, v2)": ("cost_multilingual_v2", "time"),
}
# Small versions of BEIR's largest sets, which are tasks of MTEB(eng, v2), with their documents: the
# samples in mteb's descriptive statistics, less 1,000 queries.
_AIDS_OF_BEIR = {
    "ClimateFEVERHardNegatives": 47_416,
    "FEVERHardNegatives": 163_698,
    "HotpotQAHardNegatives": 225_621,
}
_DOCUMENTS_OF_MSMARCO = 8_841_823
_SOURCE = {
    "repository": "https://github.com/embeddings-benchmark/results",
    "commit": "f4cc6c8b365a3c779dbc708d6affe0b0355b2ddf",
    "date": "2026-08-20",
    "licence": "CC0-1.0",
}


@dataclass(frozen=True)
class Accuracy:
    """How far forecasts err at one budget."""

    benchmark: str
    budget: float  # share of the cost
    models: int
    families: int
    tasks: float  # measured tasks, mean over models
    error: float  # root mean square
    largest: float  # error
    width: float  # median half width of the interval
    coverage: float  # share of intervals that hold the true mean
    family_coverage: float  # the same with equal weights of families


def read_published(folder: Path) -> tuple[PublishedScores, list[PublishedBenchmark]]:
    """Read ``scores.tsv.gz``, ``tasks.tsv`` and ``benchmarks.json``."""
    names = json.loads((folder / "benchmarks.json").read_text())
    with (folder / "tasks.tsv").open() as lines:
        facts = {row["task"]: row for row in csv.DictReader(lines, delimiter="\t")}
    benchmarks = []
    for name, (column, unit) in _COST_COLUMNS.items():
        shares = {task: float(facts[task][column]) for task in names[name]}
        total = sum(shares.values())
        costs = {task: round(share / total, 8) for task, share in shares.items()}
        aids = _AIDS_OF_BEIR if name == "BEIR" else {}
        for task, documents in aids.items():
            costs[task] = round(documents / _DOCUMENTS_OF_MSMARCO * costs["MSMARCO"], 8)
        benchmarks.append(PublishedBenchmark(name, tuple(names[name]), tuple(aids), costs, unit))
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    revisions: dict[str, str] = {}
    text = gzip.decompress((folder / "scores.tsv.gz").read_bytes()).decode()
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        scores[row["model"]][row["task"]] = float(row["score"])
        revisions[row["model"]] = row["revision"]
    tasks = sorted({task for benchmark in benchmarks for task in benchmark.columns})
    models = sorted(model for model, there in scores.items() if there.keys() & set(tasks))
    matrix = np.array([[scores[model].get(task, np.nan) for task in tasks] for model in models])
    published = PublishedScores(
        tuple(models), tuple(revisions[model] for model in models), tuple(tasks), matrix
    )
    return published, benchmarks


def forecasting(published: str = "", benchmark: str = "") -> list[Accuracy]:
    """Forecast published models without their families; see the top of the file."""
    if published:
        scores, benchmarks = read_published(Path(published))
        digest = write_published_scores(scores)
        write_facts(Source(**_SOURCE, sha256=digest), benchmarks)
    rows: list[Accuracy] = []
    fitted = {}
    for name, facts in published_benchmarks().items():
        if benchmark and name != benchmark:
            continue
        field = FieldScores.of(published_scores(), facts)
        forecasts = list(tqdm(replay(field, budgets=BUDGETS), desc=name, unit="forecast"))
        rows += [accuracy(name, budget, forecasts) for budget in BUDGETS]
        fitted[name] = (field.fit(), calibrated(forecasts))
    if published and not benchmark:
        write_fitted(fitted)
    return rows


def accuracy(name: str, budget: float, forecasts: list[LeftOut]) -> Accuracy:
    """Return how far the forecasts at one budget err."""
    at_budget = [item for item in forecasts if item.how == f"budget {budget:g}" and item.tasks]
    errors = np.array([item.error for item in at_budget])
    half_widths = []
    calibrations: dict[str, Calibration] = {}  # by the family that it has not seen
    for item in at_budget:
        if item.family not in calibrations:
            others = [other for other in forecasts if other.family != item.family]
            calibrations[item.family] = calibrated(others)
        factor = calibrations[item.family].factor(item.tasks)
        deviation = item.forecast.spread * item.forecast.fit_deviation
        half_widths.append(USUAL * factor * deviation)
    covered = np.abs(errors) <= np.array(half_widths)
    families = [item.family for item in at_budget]
    weights = [1 / families.count(family) for family in families]
    return Accuracy(
        benchmark=name,
        budget=budget,
        models=len(at_budget),
        families=len(calibrations),
        tasks=float(np.mean([item.tasks for item in at_budget])),
        error=float(np.sqrt((errors**2).mean())),
        largest=float(np.abs(errors).max()),
        width=float(np.median(half_widths)),
        coverage=float(covered.mean()),
        family_coverage=float(np.average(covered, weights=weights)),
    )


def shown(rows: list[Accuracy]) -> str:
    """Return the table."""
    lines = [
        "| benchmark | budget | models (families) | tasks | RMSE | largest | half width | "
        "coverage | by family |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.benchmark} | {row.budget:.0%} | {row.models} ({row.families}) | "
            f"{row.tasks:.1f} | {row.error:.4f} | {row.largest:.4f} | {row.width:.4f} | "
            f"{row.coverage:.3f} | {row.family_coverage:.3f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    command(forecasting, shown)
