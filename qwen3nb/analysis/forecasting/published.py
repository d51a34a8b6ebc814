"""The published scores that forecasts are fitted to, as they are in the package.

They are main scores of MTEB tasks, as the models' makers or MTEB's maintainers measured them.
`SOURCE` says where they come from. Prompts, precision and sequence lengths differ between models.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.utils.atomic_files import read_json, sha256_file, write_bytes, write_json

Array = NDArray[np.float64]

SCORES = Path(__file__).with_name("published_scores.tsv.gz")
FACTS = Path(__file__).with_name("published_facts.json")
_DIGITS = 5  # of a stored score
_LEADING = ("model", "revision")  # columns before the tasks


@dataclass(frozen=True)
class PublishedBenchmark:
    """A benchmark with published scores."""

    name: str  # such as ``BEIR``
    tasks: tuple[str, ...]  # MTEB's names; the mean is over these, each with equal weight
    # other tasks that tell of its mean, such as a small version of one of its tasks
    aids: tuple[str, ...]
    # cost of each task and aid, as a share of running all tasks of the benchmark
    costs: Mapping[str, float]
    unit: str  # what the costs are shares of: ``time`` or ``documents``

    @property
    def columns(self) -> tuple[str, ...]:
        """Its tasks, then its aids."""
        return (*self.tasks, *self.aids)


@dataclass(frozen=True, eq=False)
class PublishedScores:
    """Scores of published models; missing ones are NaN."""

    models: tuple[str, ...]
    revisions: tuple[str, ...]
    tasks: tuple[str, ...]
    scores: Array  # (models, tasks), from 0 to 1

    def of(self, tasks: Sequence[str]) -> Array:
        """Return the scores of tasks as a matrix of shape (models, tasks)."""
        places = [self.tasks.index(task) for task in tasks]
        return self.scores[:, places]

    @property
    def families(self) -> tuple[str, ...]:
        """The family of each model: the organisation that published it, in lower case."""
        return tuple(model.partition("/")[0].lower() for model in self.models)


@dataclass(frozen=True)
class Source:
    """Where the published scores come from."""

    repository: str
    commit: str
    date: str  # of the commit
    licence: str
    sha256: str  # of the file in this package


@functools.cache
def published_scores() -> PublishedScores:
    """Read the scores in this package.

    Raises:
        ValueError: the file is not the one whose digest is stated beside it.
    """
    digest = sha256_file(SCORES)
    expected = source().sha256
    if digest != expected:
        raise ValueError(
            f"expected {SCORES} with sha256 {expected}, got {digest}; install qwen3nb again"
        )
    lines = gzip.decompress(SCORES.read_bytes()).decode().splitlines()
    header, *rows = csv.reader(lines, delimiter="\t")
    tasks = tuple(header[len(_LEADING) :])
    scores = np.full((len(rows), len(tasks)), np.nan)
    for place, row in enumerate(rows):
        for column, text in enumerate(row[len(_LEADING) :]):
            if text:
                scores[place, column] = int(text) / 10**_DIGITS
    models = tuple(row[0] for row in rows)
    revisions = tuple(row[1] for row in rows)
    return PublishedScores(models, revisions, tasks, scores)


def write_published_scores(published: PublishedScores) -> str:
    """Write scores to the package's file, and return its sha256. The bytes follow the scores."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow([*_LEADING, *published.tasks])
    for model, revision, row in zip(
        published.models, published.revisions, published.scores, strict=True
    ):
        cells = ["" if np.isnan(score) else str(round(score * 10**_DIGITS)) for score in row]
        writer.writerow([model, revision, *cells])
    write_bytes(SCORES, gzip.compress(text.getvalue().encode(), mtime=0))
    return sha256_file(SCORES)


@functools.cache
def _facts() -> Any:
    return read_json(FACTS)


def source() -> Source:
    """Return where the published scores come from."""
    return Source(**_facts()["source"])


@functools.cache
def published_benchmarks() -> Mapping[str, PublishedBenchmark]:
    """Return the benchmarks that can be forecast, by name."""
    benchmarks = {}
    for name, facts in _facts()["benchmarks"].items():
        benchmarks[name] = PublishedBenchmark(
            name=name,
            tasks=tuple(facts["tasks"]),
            aids=tuple(facts["aids"]),
            costs=facts["costs"],
            unit=facts["unit"],
        )
    return benchmarks


def write_facts(source: Source, benchmarks: Sequence[PublishedBenchmark]) -> None:
    """Write the source and the benchmarks beside the scores."""
    by_name = {}
    for benchmark in benchmarks:
        by_name[benchmark.name] = {
            "tasks": list(benchmark.tasks),
            "aids": list(benchmark.aids),
            "unit": benchmark.unit,
            "costs": dict(benchmark.costs),
        }
    write_json(FACTS, {"source": vars(source), "benchmarks": by_name})
    _facts.cache_clear()
    published_benchmarks.cache_clear()
    published_scores.cache_clear()
