"""What a run of the evaluation notebook would find, without running it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from qwen3nb import paths
from qwen3nb.evaluation.mteb.preflight import Preflight, load_checked, preflight
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.execution.notebook import resolved_parameters
from qwen3nb.models.load import load_encoder

__all__ = ["dry_run"]


def dry_run(parameters: Mapping[str, Any]) -> Preflight:
    """Look for data and weights, load the model, encode a few batches and add up the needs.

    Args:
        parameters: parameters of ``eval.ipynb``; all others keep their defaults.

    Raises:
        ParameterError: invalid parameters.
        MirrorError: one list of the data sets and weights that are missing.
        PreflightError: the weights are larger than the free memory.
        EncoderError: a batch does not fit into memory, or a vector is not finite.
    """
    values = resolved_parameters(paths.find_notebook("eval"), parameters)
    tasks = [] if values["data"] else choose_tasks(**_among(values, choose_tasks))
    run = {name: values[name] for name in ("tier", "limit", "runs")}
    run["output"] = values["output_dir"] or None
    model = load_checked(values["checkpoint"], tasks, **run, **_among(values, load_encoder))
    return preflight(
        model, tasks=tasks, **run, seed=values["seed"], batch_size=values["batch_size"]
    )


def _among(values: Mapping[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    """Return the values that are parameters of ``function``."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in values.items() if name in names}
