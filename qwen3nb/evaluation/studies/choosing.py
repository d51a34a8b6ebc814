"""Evaluate candidates for a choice.

Records go to ``results/choice``. A model that has a record there for the same data is not run
again, so a choice that was stopped continues where it was.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from qwen3nb import paths
from qwen3nb.checkpoints.folder import list_checkpoints
from qwen3nb.checkpoints.types import SpecError
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.models.kinds.resolve import training_named
from qwen3nb.models.model import Model
from qwen3nb.models.options import ModelOptions
from qwen3nb.records.record import Result
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.format import short_names
from qwen3nb.utils.progress import tqdm
from qwen3nb.utils.strict_json import first_duplicate

_log = logging.getLogger(__name__)


class EvaluationOptions(TypedDict, total=False):
    """What candidates are evaluated on; see `evaluate_candidates`."""

    tier: str
    tasks: str
    types: str
    data: Any
    output: Path | None


@dataclass(frozen=True)
class Evaluated:
    """Candidates with scores, and those that failed; all by name."""

    records: dict[str, list[Result]]
    specs: dict[str, str]  # of those with records
    failures: dict[str, str]  # why a candidate has no scores


def evaluate_candidates(
    models: Sequence[str],
    *,
    options: ModelOptions,
    seed: int = 0,
    show_progress: bool = True,
    **evaluation: Unpack[EvaluationOptions],
) -> Evaluated:
    """Evaluate each model. One that fails is left out, if two others remain.

    Args:
        models: specs, such as folders of checkpoints or of exports.
        options: how each is used, such as its pooling.
        seed: of the evaluation, part of the records' path.
        show_progress: whether to show a bar of the models.
        evaluation: ``tier``, ``tasks`` and ``types`` as comma-separated names, or ``data``, as of
            `qwen3nb.evaluation.evaluate.evaluate`, or comma-separated folders; and ``output``, by
            default ``results/choice``.

    Raises:
        ValueError: fewer than two models, one that is given twice, or both tasks and data.
        EvaluationError, SpecError: fewer than two models have scores; the first failure.
    """
    duplicate = first_duplicate(models)
    if duplicate is not None or len(models) < 2:
        problem = f"{duplicate} twice" if duplicate else f"{len(models)}"
        raise ValueError(f"expected two or more different models to choose from; got {problem}")
    if evaluation.get("data") and evaluation.get("tasks"):
        raise ValueError(
            "expected tasks or data to choose on; got both: "
            f"tasks {evaluation['tasks']!r}, data {evaluation['data']!r}"
        )
    evaluated = Evaluated({}, {}, {})
    errors: list[Exception] = []
    bar = tqdm(models, desc="choose", unit="model", disable=not show_progress)
    for spec, name in zip(bar, short_names(models), strict=True):
        try:
            evaluated.records[name] = evaluate_candidate(spec, options, seed, evaluation)
            evaluated.specs[name] = spec
        except (EvaluationError, SpecError) as error:
            errors.append(error)
            reason = str(error).splitlines()[-1].strip()  # the first line counts the failures
            evaluated.failures[name] = reason
            _log.warning("%s failed, and takes no part: %s", name, reason)
    if len(evaluated.records) < 2 and errors:
        raise errors[0]
    return evaluated


def expanded(models: Sequence[str]) -> list[str]:
    """Return the specs, with the checkpoints of a training in its place."""
    specs: list[str] = []
    for spec in map(str.strip, models):
        training = training_named(spec)
        if training is None:
            specs.append(spec)
        else:
            specs += [str(folder) for folder in list_checkpoints(training)]
    return specs


def evaluate_candidate(
    spec: str,
    options: ModelOptions,
    seed: int,
    evaluation: EvaluationOptions,
) -> list[Result]:
    """Return the records of one model."""
    model = Model.from_parameters({**vars(options), "checkpoint": spec})
    output = evaluation.get("output") or paths.results() / "choice"
    settings: dict[str, Any] = {"output": output, "seed": seed, "show_progress": False}
    data = evaluation.get("data")
    if isinstance(data, str):
        data = split_names(data)
    if data:
        settings["data"] = data
    else:
        settings["tasks"] = choose_tasks(
            tier=evaluation.get("tier", "smoke"),
            tasks=evaluation.get("tasks", ""),
            types=evaluation.get("types", ""),
        )
    return list(evaluate(model, **settings).results)
