"""Result files of MTEB and of the training of adapters, a model of each format.

::

    MTEB               <model>/<revision>/<task>.json next to model_meta.json
    adapter training   <config>/seed_<n>/results/reranking_results.json, mteb_results.json,
                       one file per data set (written by `evaluation.studies.lora_runs`),
                       or copies named <config>-seed_<n>-mteb_results.json

Files are recognised by their content.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from qwen3nb.analysis.inventory.scores import Score, training_facts
from qwen3nb.analysis.inventory.training_logs import LOG, step_number
from qwen3nb.datasets import rows
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.mteb.per_query import metrics_of
from qwen3nb.tiers import BENCHMARKS
from qwen3nb.utils.atomic_files import sha256_file
from qwen3nb.utils.schema import field_problem

_RERANKING_METRIC = "ndcg@10"
# Names of copies such as ``rank_only_r4-seed_42-mteb_results``, and folders such as ``seed_42``.
_COPY = re.compile(r"(?P<system>.+)-seed_(?P<seed>\d+)-(mteb|reranking)_results")
_SEED_FOLDER = re.compile(r"seed_(?P<seed>\d+)")
# Numbers of steps in the summary of an epoch, and the task that they are on.
_EPOCH_STEPS = {"epoch_emb_steps": "embedding", "epoch_rerank_steps": "reranking"}


def _finite(value: object) -> float:
    number = rows.finite_number(value)
    if number is None:
        raise ValueError("expected a finite number")
    return number


def _finite_or_nan(value: object) -> float:
    """MTEB writes NaN for an undefined score."""
    if isinstance(value, float) and math.isnan(value):
        return value
    return _finite(value)


def _name(value: str) -> str:
    return rows.checked_id(value, place="a name")


Name = Annotated[str, AfterValidator(_name)]
Finite = Annotated[float, BeforeValidator(_finite)]


class _Subset(BaseModel):
    """The score of one subset of an MTEB task."""

    main_score: Annotated[float, BeforeValidator(_finite_or_nan)]


class _MTEBFile(BaseModel):
    """MTEB's result of a model on a task."""

    task_name: Name
    dataset_revision: str | None = None
    scores: Annotated[dict[str, Annotated[list[_Subset], Field(min_length=1)]], Field(min_length=1)]


class _MTEBModel(BaseModel):
    """MTEB's ``model_meta.json``."""

    name: Name | None = None
    revision: str | None = None


class _Queries(BaseModel):
    """The scores of an adapter on one data set."""

    aggregate: Annotated[dict[Name, Finite | None], Field(min_length=1)]
    per_query: dict[Name, Finite]


class _DataSetFile(_Queries):
    """The file of one data set, as `evaluation.studies.lora_runs` writes it."""

    dataset: Name
    per_query: dict[Name, Finite] = {}
    model: str | None = None
    revision: str | None = None


class _RerankingFile(BaseModel):
    """``reranking_results.json``."""

    per_dataset: dict[Name, _Queries]


class _EmbeddingFile(BaseModel):
    """``mteb_results.json`` of an adapter."""

    class _Task(BaseModel):
        main_score: Finite

    per_task: dict[Name, _Task]


@dataclass
class ForeignScores:
    """The scores of a file, and what contradicts itself in it."""

    scores: list[Score] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)


def foreign_scores(file: Path, content: object) -> ForeignScores:
    """Return the scores in the parsed content of a JSON file; none if it has no results.

    Raises:
        DataError: results that cannot be read.
    """
    if isinstance(content, list):
        if _is_list_of_mteb(file, content):
            raise DataError(f"{file}: expected an MTEB result, a JSON object; got a list")
        return ForeignScores()
    if not isinstance(content, dict):
        return ForeignScores()
    if "mteb_dataset_name" in content:
        raise DataError(f"{file}: the format of MTEB before 1.11 is not read; convert it with mteb")
    # The formats, told apart by a field that only one of them has.
    try:
        if "task_name" in content and ("scores" in content or "mteb_version" in content):
            return _mteb_scores(file, _MTEBFile.model_validate(content))
        if isinstance(content.get("per_dataset"), dict):
            return _reranking_scores(file, _RerankingFile.model_validate(content))
        if isinstance(content.get("per_task"), dict):
            return _embedding_scores(file, _EmbeddingFile.model_validate(content))
        if "dataset" in content and isinstance(content.get("aggregate"), dict):
            return _data_set_scores(file, _DataSetFile.model_validate(content))
    except ValidationError as error:
        raise DataError(f"{file}: {field_problem(error, content)}") from None
    return ForeignScores()


def _is_list_of_mteb(file: Path, entries: list[object]) -> bool:
    """Return whether a file is a list of results, or lies where MTEB writes one."""
    if (file.parent / "model_meta.json").is_file():
        return True
    return any(isinstance(entry, dict) and "task_name" in entry for entry in entries)


def _mteb_scores(file: Path, result: _MTEBFile) -> ForeignScores:
    """Return one score per split: the mean of main_score over its subsets."""
    model = _mteb_model(file.parent / "model_meta.json")
    # Such as ``BAAI__bge-m3/<revision>/SciFact.json``.
    system = model.name or file.parent.parent.name.replace("__", "/", 1)
    if file.parent.parent.name == "experiments":  # settings of a model, in folders of their own
        system = f"{system} ({file.parent.name})"
    collected_scores = ForeignScores()
    for split, subsets in result.scores.items():
        task = result.task_name
        if len(result.scores) > 1:
            task = f"{task}/{split}"
        values = [subset.main_score for subset in subsets]
        mean = _mean(values)  # NaN if that of a subset is
        score = Score(
            system=system,
            seed=None,
            task=task,
            metric=_main_metric(result.task_name),
            value=None if math.isnan(mean) else mean,
            kind="MTEB",
            identity=model.revision or file.parent.name,
            source=str(file),
            origin="mteb",
            revision=result.dataset_revision or "",
        )
        collected_scores.scores.append(score)
    return collected_scores


def _mteb_model(file: Path) -> _MTEBModel:
    if not file.is_file():
        return _MTEBModel()
    return _MTEBModel.model_validate(
        rows.json_object(file.read_text("utf-8"), place=str(file), nan=True)
    )


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


def _main_metric(task: str) -> str:
    """Return the name of a task's main metric; ``main_score`` if it is in no benchmark here."""
    for benchmark in BENCHMARKS.values():
        for kind, tasks in benchmark.types.items():
            if task in tasks and kind != "Reranking":  # MTEB reranks by another
                return next(iter(metrics_of(kind)), "main_score")
    return "main_score"


@dataclass(frozen=True)
class _AdapterRun:
    """The run of an adapter that a file belongs to."""

    file: Path
    system: str
    seed: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def score(
        self, task: str, metric: str, value: float | None, kind: str, per_query: Mapping[str, float]
    ) -> Score:
        """Return a score of this run."""
        return Score(
            system=self.system,
            seed=self.seed,
            task=task,
            metric=metric,
            value=value,
            kind=kind,
            per_query=per_query,
            identity=self.facts.get("weights", ""),
            source=str(self.file),
            origin="adapter",
            facts=self.facts,
        )


def _adapter_run(file: Path) -> _AdapterRun:
    """Return the run of the adapter that ``file`` belongs to.

    System and seed follow from the folder ``<system>/seed_<n>/results/``, or from the name of a
    copy, ``<system>-seed_<n>-mteb_results.json``, which has no facts.
    """
    copy = _COPY.fullmatch(file.stem)  # such as ``rank_only_r4-seed_42-mteb_results``
    if copy:
        return _AdapterRun(file, system=copy["system"], seed=int(copy["seed"]))
    # Such as ``rank_only_r4/seed_42/results/mteb_results.json``.
    folder = file.parent
    training = folder.parent
    seed = _SEED_FOLDER.fullmatch(training.name)
    if folder.name == "results" and seed:
        return _AdapterRun(
            file,
            system=training.parent.name,
            seed=int(seed["seed"]),
            facts=_folder_facts(training),
        )
    return _AdapterRun(file, system=folder.name)


def _reranking_scores(file: Path, results: _RerankingFile) -> ForeignScores:
    run, collected_scores = _adapter_run(file), ForeignScores()
    for name, queries in results.per_dataset.items():
        _add_score(collected_scores, run, name, queries, "reranking")
    return collected_scores


def _embedding_scores(file: Path, results: _EmbeddingFile) -> ForeignScores:
    run = _adapter_run(file)
    scores = [
        run.score(task, _main_metric(task), result.main_score, "embedding", {})
        for task, result in results.per_task.items()
    ]
    return ForeignScores(scores)


def _data_set_scores(file: Path, result: _DataSetFile) -> ForeignScores:
    """Return the score of a file of its own; reranked ones are named with their first stage."""
    is_reranked = "." in file.stem  # such as SciFact.bm25-100
    kind = "reranking" if is_reranked else "embedding"
    collected_scores = ForeignScores()
    _add_score(collected_scores, _adapter_run(file), file.stem, result, kind)
    for index, score in enumerate(collected_scores.scores):
        collected_scores.scores[index] = replace(
            score,
            identity=result.model or "",
            revision=result.revision or "",
            collection=result.dataset if is_reranked else "",
        )
    return collected_scores


def _add_score(
    collected: ForeignScores, run: _AdapterRun, task: str, queries: _Queries, kind: str
) -> None:
    """Add the score of one data set, after comparing its mean with the scores of its queries."""
    # The first metric of the file, unless it has the usual one of rerankings.
    metric = next(iter(queries.aggregate))
    name = metric
    if _RERANKING_METRIC in queries.aggregate:
        metric = _RERANKING_METRIC
        name = "nDCG@10"
    stated_mean = queries.aggregate[metric]
    mean = stated_mean
    if stated_mean is not None and queries.per_query:
        mean = _mean(queries.per_query.values())
        if not math.isclose(mean, stated_mean, rel_tol=0, abs_tol=1e-6):
            collected.contradictions.append(
                f"{task} has mean {stated_mean:.6f}, its queries give {mean:.6f}"
            )
    score = run.score(task, metric=name, value=mean, kind=kind, per_query=queries.per_query)
    collected.scores.append(score)


def _folder_facts(folder: Path) -> dict[str, Any]:
    """Return the facts of a training, from its settings and log, and the digest of its weights."""
    settings = folder / "config.yaml"
    log = folder / LOG
    weights = folder / "checkpoints/final/adapter_model.safetensors"
    facts: dict[str, Any] = {}
    if settings.exists():
        facts |= training_facts(rows.read_settings(settings))
    if log.exists():
        facts |= _logged_steps(log)
    if weights.is_file():
        facts["weights"] = sha256_file(weights)
    return facts


def _logged_steps(log: Path) -> dict[str, int]:
    """Return the steps that a training reached, even if it was killed, and those per task."""
    steps: dict[str, int] = {}
    entries, _ = rows.json_lines(log)
    for entry in entries:
        step = step_number(entry.get("global_step", entry.get("step")))
        if step is not None:
            steps["steps"] = max(steps.get("steps", 0), step)  # the last step that was reached
        for name, task in _EPOCH_STEPS.items():
            count = step_number(entry.get(name))
            if count is not None:  # of one epoch; all epochs add up
                steps[f"steps_{task}"] = steps.get(f"steps_{task}", 0) + count
    return steps
