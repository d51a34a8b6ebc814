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
_TOLERANCES_OF_OKISH = 5  # a score within so many tolerances is OKish


@dataclass(frozen=True)
class Published:
    """A published score."""

    model: str  # model name in the registry, or ``bm25``
    task: str  # name of an MTEB task, or ``organisation/name`` of a BEIR folder in the mirror
    value: float  # main score of the task, 0 to 1
    tolerance: float  # largest difference of an exact rerun
    source: str  # where it was published
    has_other_prompt: bool = False  # whether it was published with other prompts than ours

    @property
    def is_on_folder(self) -> bool:
        """Whether the task is a BEIR folder in the mirror."""
        return "/" in self.task


@dataclass(frozen=True)
class Reproduction:
    """A published score with our reproduction, or why it did not run or is not judged."""

    published: Published
    result: Result | None
    value: float | None
    reason: str = ""

    @property
    def is_on_substitute(self) -> bool:
        """Whether it was run on a mirror's substitute for MTEB's data."""
        return self.result is not None and self.result.task.is_substitute

    @property
    def is_judged(self) -> bool:
        """Whether the score can be compared with the published one."""
        return self.verdict in ("OK", "OKish", "FAIL")

    @property
    def verdict(self) -> str:
        """``OK``, ``OKish``, ``FAIL``, ``not judged`` (other data or prompts), or ``not run``."""
        if self.value is None:
            return "not run"
        if self.is_on_substitute or self.published.has_other_prompt:
            return "not judged"
        difference = abs(self.value - self.published.value)
        if difference <= self.published.tolerance:
            return "OK"
        if difference <= _TOLERANCES_OF_OKISH * self.published.tolerance:
            return "OKish"
        return "FAIL"


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
    selected_models, selected_tasks = split_names(models), split_names(tasks)
    selected = []
    for row in rows:
        model, tolerance, source = row["model"], float(row["tolerance"]), row["source"]
        if models and model not in selected_models:
            continue
        for task, value in row["values"].items():
            if not tasks or task in selected_tasks:
                selected.append(Published(model, task, float(value), tolerance, source))
    if not selected:
        raise ValueError(f"no published score matches models {models!r} and tasks {tasks!r}")
    return selected


def unavailable(scores: Iterable[Published]) -> list[Need]:
    """Return the data sets and models of ``scores`` that are not available; checks the hub once."""
    scores = list(scores)
    names_of_tasks = {score.task for score in scores if not score.is_on_folder}
    names_of_models = {score.model for score in scores}
    tasks = suite_tasks(tier="", tasks=sorted(names_of_tasks))
    models = [find_source(name) for name in sorted(names_of_models)]
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
    selected = published_scores() if scores is None else list(scores)
    absent_needs = unavailable(selected) if absent is None else list(absent)
    for published in selected:
        used_names = {published.task, published.model}
        absent_names = [need.id for need in absent_needs if used_names & set(need.used_by)]
        if absent_names:
            reason = f"neither in the mirror nor on the hub: {', '.join(absent_names)}"
            yield Reproduction(published, result=None, value=None, reason=reason)
            continue
        try:
            reproduction = _reproduce(published, show_progress=show_progress)
        except (SpecError, MirrorError, EvaluationError) as error:
            # The cause says more than the error that wraps it.
            innermost = error.__cause__ or error
            *_, last_line = str(innermost).strip().splitlines()
            # The last line of a traceback begins with a type, such as ``ValueError: ``.
            _, _, reason = last_line.strip().rpartition("Error: ")
            reproduction = Reproduction(published, result=None, value=None, reason=reason)
        yield reproduction


def _reproduce(published: Published, *, show_progress: bool) -> Reproduction:
    """Evaluate the model of a score; see `reproduce`."""
    output = paths.results() / "reproduce"
    model = load_model(published.model, show_progress=show_progress)
    if published.is_on_folder:
        folder = mirrored(published.task)
        if folder is None:
            raise MirrorError(f"{published.task} is not in the mirror (QWEN3NB_MIRROR)")
        (result,) = evaluate(model, folder, output=output, show_progress=False)
        value = result.main.value
    else:
        result, *_ = evaluate(model, tasks=published.task, output=output, show_progress=False)
        value = None
        if result.task.mteb is not None:
            value = result.task.mteb.value
    reason = ""
    if result.task.is_substitute:
        reason = OTHER_DATA
    return Reproduction(published, result, value, reason)


def pydocs_difficulty(
    pydocs: PyDocs, specs: Sequence[str] = ("bm25", "random")
) -> dict[str, Aggregate]:
    """Return the mean nDCG@10, with its interval, of each model on the whole corpus, by spec.

    The queries are a fixed sample of 500; only a query's own document is relevant.
    """
    sample = np.random.default_rng(0).choice(pydocs.query_names, size=500, replace=False)
    texts = {str(query): pydocs.queries[query] for query in sorted(sample)}
    qrels = {query: {query: 1} for query in texts}  # its own document only
    collection = TestCollection("PyDocs", dict(pydocs.corpus), texts, qrels)
    scores = {}
    for spec in specs:
        run = search_collection(collection, load_model(spec, show_progress=False), depth=10)
        scores[spec] = means(score_run(qrels, run, ["nDCG@10"]))["nDCG@10"]
    return scores
