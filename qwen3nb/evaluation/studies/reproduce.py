"""Reproduce published scores, where data are available, and measure the difficulty of PyDocs."""

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.mirror import MirrorError, Need, mirrored, missing, needs
from qwen3nb.datasets.pydocs.build import PyDocs
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import suite_tasks
from qwen3nb.evaluation.retrieval.first_stage import search_collection
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.metrics.aggregate import Aggregate, means
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_model
from qwen3nb.models.types import SpecError
from qwen3nb.records.record import Result
from qwen3nb.utils.choices import split_names

OTHER_DATA = "on the mirror's substitute for MTEB's data"  # why a score is not judged
_NEAR = 5  # OKish: within this many tolerances


@dataclass(frozen=True)
class Published:
    """A published score."""

    model: str  # model name in the registry, or ``bm25``
    task: str  # name of an MTEB task, or ``organisation/name`` of a BEIR folder in the mirror
    value: float  # main score of the task, 0 to 1
    tolerance: float  # largest difference of an exact rerun
    source: str  # where it was published


@dataclass(frozen=True)
class Reproduction:
    """A published score with our reproduction, or why it did not run or is not judged."""

    published: Published
    result: Result | None
    value: float | None
    reason: str = ""

    @property
    def is_judged(self) -> bool:
        """Whether the score can be compared with the published one."""
        return self.verdict in ("OK", "OKish", "FAIL")

    @property
    def verdict(self) -> str:
        """``OK``, ``OKish``, ``FAIL``, ``not judged`` (on other data), or ``not run``."""
        if self.value is None:
            return "not run"
        if self.result is not None and self.result.task.is_substitute:
            return "not judged"
        off = abs(self.value - self.published.value)
        if off <= self.published.tolerance:
            return "OK"
        return "OKish" if off <= _NEAR * self.published.tolerance else "FAIL"


def published_scores(*, models: str = "", tasks: str = "") -> list[Published]:
    """Return the scores in ``published.toml``.

    Args:
        models: comma-separated model names; empty for all.
        tasks: comma-separated task names; empty for all.

    Raises:
        ValueError: no score matches.
    """
    file = Path(__file__).parent / "published.toml"
    rows = tomllib.loads(file.read_text(encoding="utf-8"))["score"]
    selected = [
        Published(row["model"], task, float(value), float(row["tolerance"]), row["source"])
        for row in rows
        for task, value in row["values"].items()
        if (not models or row["model"] in split_names(models))
        and (not tasks or task in split_names(tasks))
    ]
    if not selected:
        raise ValueError(f"no published score matches models {models!r} and tasks {tasks!r}")
    return selected


def unavailable(scores: Iterable[Published]) -> list[Need]:
    """Return the data sets and models of ``scores`` that are not available; checks the hub once."""
    scores = list(scores)
    tasks = suite_tasks(tier="", tasks=sorted({s.task for s in scores if "/" not in s.task}))
    models = [find_source(name) for name in sorted({each.model for each in scores})]
    return missing(needs(tasks, models))


def reproduce(
    scores: Iterable[Published] | None = None,
    *,
    absent: Iterable[Need] | None = None,
    show_progress: bool = True,
) -> Iterator[Reproduction]:
    """Reproduce scores one by one, if their data are in the mirror or on the hub.

    Records go to ``results/reproduce``. A score on a mirror's substitute for MTEB's data is not
    judged: it says nothing on the published one.

    Args:
        scores: a selection of `published_scores`; by default all.
        absent: from `unavailable`; by default determined before the first score.
        show_progress: whether to show progress bars.
    """
    output = paths.results() / "reproduce"
    scores = list(scores) if scores is not None else published_scores()
    absent = list(absent) if absent is not None else unavailable(scores)
    for published in scores:
        wanted = {published.task, published.model}
        if lost := [need.id for need in absent if {*need.used_by} & wanted]:
            reason = f"neither in the mirror nor on the hub: {', '.join(lost)}"
            yield Reproduction(published, None, None, reason)
            continue
        try:
            model = load_model(published.model, show_progress=show_progress)
            if "/" in published.task:
                if (folder := mirrored(published.task)) is None:
                    raise MirrorError(f"{published.task} is not in the mirror (QWEN3NB_MIRROR)")
                (result,) = evaluate(model, folder, output=output, show_progress=False)
                value = result.main.value
            else:
                result, *_ = evaluate(
                    model, tasks=published.task, output=output, show_progress=False
                )
                value = result.task.mteb.value if result.task.mteb else None
        except (SpecError, MirrorError, EvaluationError) as error:
            # The last line of the innermost error's message.
            last = str(error.__cause__ or error).strip().splitlines()[-1].strip()
            yield Reproduction(published, None, None, last.rpartition("Error: ")[2])
            continue
        reason = OTHER_DATA if result.task.is_substitute else ""
        yield Reproduction(published, result, value, reason)


def pydocs_difficulty(
    pydocs: PyDocs, specs: Sequence[str] = ("bm25", "random")
) -> dict[str, Aggregate]:
    """Return the mean nDCG@10, with its interval, of each model on the whole corpus, by spec.

    The queries are a fixed sample of 500; only a query's own document is relevant.
    """
    drawn = np.random.default_rng(0).choice(pydocs.query_names, size=500, replace=False)
    texts = {str(query): pydocs.queries[query] for query in sorted(drawn)}
    qrels = {query: {query: 1} for query in texts}
    collection, scores = TestCollection("PyDocs", dict(pydocs.corpus), texts, qrels), {}
    for spec in specs:
        run = search_collection(collection, load_model(spec, show_progress=False), depth=10)
        scores[spec] = means(score_run(qrels, run, ["nDCG@10"]))["nDCG@10"]
    return scores
