"""The fits to the published scores, as they are in the package.

They follow from the scores: ``python -m benchmarks.forecasting --published FOLDER`` writes both.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qwen3nb.analysis.forecasting.forecast import Calibration
from qwen3nb.analysis.forecasting.moments import Moments
from qwen3nb.analysis.forecasting.published import published_benchmarks
from qwen3nb.utils.atomic_files import read_json, write_bytes, write_json

MOMENTS = Path(__file__).with_name("fitted_moments.npz")
CALIBRATIONS = Path(__file__).with_name("fitted_calibrations.json")


@functools.cache
def fitted_moments(benchmark: str) -> Moments:
    """Return the means and covariance of a benchmark's tasks over the published models."""
    columns = published_benchmarks()[benchmark].columns
    with np.load(MOMENTS, allow_pickle=False) as arrays:
        means = arrays[f"{benchmark} means"].astype(float)
        covariance = arrays[f"{benchmark} covariance"].astype(float)
    return Moments(columns, means, covariance)


@functools.cache
def fitted_calibration(benchmark: str) -> Calibration:
    """Return what leaving families out has shown of a benchmark's forecasts."""
    facts = read_json(CALIBRATIONS)[benchmark]
    factors = tuple((count, factor) for count, factor in facts["factors"])
    return Calibration(factors, facts["usual_distance"], facts["unusual_residual"])


def write_fitted(fitted: Mapping[str, tuple[Moments, Calibration]]) -> None:
    """Write the fits of all benchmarks, in single precision."""
    arrays = {}
    calibrations = {}
    for name, (moments, calibration) in fitted.items():
        arrays[f"{name} means"] = moments.means.astype(np.float32)
        arrays[f"{name} covariance"] = moments.covariance.astype(np.float32)
        calibrations[name] = vars(calibration)
    archive = io.BytesIO()
    np.savez_compressed(archive, allow_pickle=False, **arrays)
    write_bytes(MOMENTS, archive.getvalue())
    write_json(CALIBRATIONS, calibrations)
    fitted_moments.cache_clear()
    fitted_calibration.cache_clear()
