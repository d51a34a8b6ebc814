"""What a run of the evaluation notebook would need, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qwen3nb import paths
from qwen3nb.evaluation.mteb.plan import Preflight
from qwen3nb.execution.notebook import resolved_parameters
from qwen3nb.report.evaluation.checked_run import look


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
    return look(**{name: value for name, value in values.items() if name != "baseline"}).preflight
